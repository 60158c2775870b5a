//! Runs a workload: starts the threads, shows progress, adds up.
//!
//! Steps: 1 create the job that the threads share; 2 record the counters of engine and kernel; 3
//! run the threads until both the operations are done and the minimum time is over; 4 wait until
//! the engine is at rest, if requested; 5 report the differences.

use crate::key_space::{KeySpace, Permutation};
use crate::ledger::Ledger;
use crate::machine;
use crate::record::Values;
use crate::report::{Moved, PhaseReport};
use crate::store::{Counters, Opening, Store};
use crate::worker::{Job, Tally, work};
use crate::workload::Workload;
use firn_base::clock::Clock;
use firn_base::seed::{Seed, mix};
use firn_base::{Error, ErrorKind, Result, exec};
use firndb::Durability;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// One workload to run.
#[derive(Debug, Clone)]
pub struct Phase {
    /// The workload.
    pub workload: Workload,
    /// The number of operations; for a load, the number of records.
    pub operations: u64,
    /// Threads that issue operations, each waiting for its own.
    pub threads: usize,
    /// The failure that a write must survive before it counts as done.
    pub durability: Durability,
    /// Minimum duration in seconds, even if the operations are done. A load ends when all records
    /// are loaded.
    pub seconds_min: u64,
    /// Total operations per second of all threads. Each operation is due at its scheduled time,
    /// however late the others are.
    pub rate: Option<f64>,
    /// The zipfian parameter: 0 is uniform; YCSB uses 0.99.
    pub theta: f64,
    /// True to wait for background work at the end.
    pub settle: bool,
}

/// An observer of progress. Called only from the thread that runs the benchmark.
pub trait Watch {
    /// A phase of `total` operations starts; 0 means unknown.
    fn begin(&self, name: &str, total: u64);
    /// The number of operations begun so far.
    fn advance(&self, done: u64);
    /// The phase has ended.
    fn end(&self);
}

/// An observer that ignores everything.
#[derive(Debug)]
pub struct Silent;

impl Watch for Silent {
    fn begin(&self, _name: &str, _total: u64) {}
    fn advance(&self, _done: u64) {}
    fn end(&self) {}
}

/// A store, its records and their ledger: the state shared by the phases of one run.
pub struct Bench {
    store: Arc<dyn Store>,
    /// The directory of the store's files. The device under it is measured.
    directory: PathBuf,
    keys: KeySpace,
    values: Values,
    clock: Clock,
    ledger: Arc<Ledger>,
    /// Records that certainly exist: all, unless a load of this run was interrupted.
    records: AtomicU64,
    /// Records inserted by this run after the first `records`.
    inserted: Arc<AtomicU64>,
    seed: u64,
    /// Phases begun. Each generates different operations, because repeating those of the previous
    /// phase would find everything in caches.
    phases: AtomicU64,
}

impl Bench {
    /// A run of `workloads`, with `operations` each, over all records of `keys`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for impossible sizes.
    pub fn new(
        store: Arc<dyn Store>,
        directory: &Path,
        keys: KeySpace,
        values: Values,
        workloads: &[Workload],
        operations: u64,
        clock: Clock,
    ) -> Result<Self> {
        values.check()?;
        let run = (Seed::from_entropy().next_u64() >> 32) as u32;
        let inserts: u64 = workloads
            .iter()
            .map(|workload| workload.inserts_max(operations))
            .sum();
        let deletes = workloads.iter().any(Workload::deletes);
        let ledger = Arc::new(Ledger::new(
            keys.records() + inserts.min(keys.records()),
            run,
            deletes,
        ));
        let (records, inserted) = (AtomicU64::new(keys.records()), Arc::default());
        Ok(Self {
            store,
            directory: directory.to_owned(),
            keys,
            values,
            clock,
            ledger,
            records,
            inserted,
            seed: 0x5EED,
            phases: AtomicU64::new(0),
        })
    }

    /// Runs `phase` to completion.
    ///
    /// # Errors
    /// The first error of the store, or [`ErrorKind::Corruption`] for the first wrong answer.
    pub fn run(&self, phase: &Phase, watch: &dyn Watch) -> Result<PhaseReport> {
        if phase.threads == 0 || phase.operations == 0 {
            return Err(Error::invalid(
                "a benchmark needs at least one thread and one operation",
            ));
        }
        machine::reset_peak();
        let before = Measure::take(&*self.store, &self.directory);
        let job = Arc::new(self.job(phase));
        watch.begin(phase.workload.name(), phase.operations);
        let tally = run_threads(&job, watch);
        watch.end();
        let tally = tally?;
        if phase.workload.fills() {
            self.records.store(job.begun(), Ordering::SeqCst);
        }
        let log_bytes = self.store.counters().log_bytes;
        let settle_seconds = self.settle(phase, watch)?;
        let mut after = Measure::take(&*self.store, &self.directory);
        after.engine.log_bytes = log_bytes;
        report(&job, &tally, settle_seconds, &before, &after)
    }

    /// The same run with its store closed and then opened with `open`.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn reopened(
        self,
        open: &dyn Fn() -> Result<Arc<dyn Store>>,
        watch: &dyn Watch,
    ) -> Result<(Self, Opening)> {
        let start = self.clock.now_ns();
        let since = |from: u64| (self.clock.now_ns() - from) as f64 / 1e9;
        watch.begin("open", 0);
        // This is the only handle, because no phase is running.
        drop(self.store);
        let (close_seconds, closed) = (since(start), self.clock.now_ns());
        let store = open();
        watch.end();
        let store = store?;
        let opening = Opening {
            close_seconds,
            seconds: since(closed),
            steps: store.opening_steps(),
        };
        Ok((Self { store, ..self }, opening))
    }

    fn job(&self, phase: &Phase) -> Job {
        let records = self.records.load(Ordering::SeqCst);
        Job {
            store: self.store.clone(),
            keys: self.keys.clone(),
            ledger: self.ledger.clone(),
            values: self.values,
            choice: phase.workload.choice(records, phase.theta),
            scramble: Permutation::new(records, !self.seed),
            phase: phase.clone(),
            records,
            inserted: self.inserted.clone(),
            seed: mix(self.seed + self.phases.fetch_add(1, Ordering::SeqCst)),
            start_ns: self.clock.now_ns(),
            clock: self.clock.clone(),
            next: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    fn settle(&self, phase: &Phase, watch: &dyn Watch) -> Result<Option<f64>> {
        if !phase.settle {
            return Ok(None);
        }
        let start = self.clock.now_ns();
        watch.begin("settle", 0);
        let settled = self.store.settle();
        watch.end();
        settled?;
        Ok(Some((self.clock.now_ns() - start) as f64 / 1e9))
    }
}

fn run_threads(job: &Arc<Job>, watch: &dyn Watch) -> Result<Tally> {
    let mut handles: Vec<JoinHandle<Result<Tally>>> = Vec::new();
    let mut result = Tally::new();
    for thread in 0..job.phase.threads {
        let theirs = job.clone();
        match exec::spawn(&format!("bench-{thread}"), move || {
            work(&theirs, thread as u64)
        }) {
            Ok(handle) => handles.push(handle),
            Err(e) => {
                job.failed.store(true, Ordering::SeqCst);
                result = Err(Error::from_io(
                    "start a thread of",
                    Path::new("the benchmark"),
                    e,
                ));
                break;
            }
        }
    }
    while handles.iter().any(|handle| !handle.is_finished()) {
        watch.advance(job.begun());
        job.clock.sleep(Duration::from_millis(20));
    }
    for handle in handles {
        let tally = handle
            .join()
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "a benchmark thread panicked")));
        result = match (result, tally) {
            (Ok(mut sum), Ok(tally)) => sum.add(&tally).map(|()| sum),
            (Err(e), _) | (_, Err(e)) => Err(e),
        };
    }
    result
}

/// Counters maintained outside of the benchmark.
struct Measure {
    engine: Counters,
    device: Option<Moved>,
    os_written_bytes: Option<u64>,
    os_read_bytes: Option<u64>,
    cpu_seconds: f64,
}

impl Measure {
    fn take(store: &dyn Store, directory: &Path) -> Self {
        Self {
            engine: store.counters(),
            device: machine::device_bytes(directory),
            os_written_bytes: machine::written_bytes(),
            os_read_bytes: machine::read_bytes(),
            cpu_seconds: machine::cpu_seconds(),
        }
    }
}

fn report(
    job: &Job,
    tally: &Tally,
    settle_seconds: Option<f64>,
    before: &Measure,
    after: &Measure,
) -> Result<PhaseReport> {
    let all = tally.all()?;
    let latency = all
        .percentiles()
        .ok_or_else(|| Error::invalid("the time was up before any operation"))?;
    let seconds = (tally.last_ns.saturating_sub(job.start_ns)).max(1) as f64 / 1e9;
    let difference = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
    Ok(PhaseReport {
        workload: job.phase.workload.name().to_owned(),
        threads: job.phase.threads,
        durability: job.phase.durability.to_string(),
        operations: latency.operations,
        seconds,
        operations_per_second: latency.operations as f64 / seconds,
        rate: job.phase.rate,
        latency,
        quantiles: all.quantiles(),
        latency_by_sort: tally.by_sort(),
        timeline: tally.timeline(),
        settle_seconds,
        user_bytes: tally.user_bytes,
        engine: after.engine.since(&before.engine),
        os_written_bytes: difference(after.os_written_bytes, before.os_written_bytes),
        os_read_bytes: difference(after.os_read_bytes, before.os_read_bytes),
        device: after
            .device
            .zip(before.device)
            .map(|(after, before)| Moved {
                written_bytes: after.written_bytes.saturating_sub(before.written_bytes),
                read_bytes: after.read_bytes.saturating_sub(before.read_bytes),
            }),
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        peak_memory_bytes: machine::peak_memory_bytes(),
        checker_bytes: job.ledger.bytes(),
    })
}
