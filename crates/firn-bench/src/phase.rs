//! A run over one database: its store, its records and their ledger, and the phases that share
//! them.

use crate::key_space::{KeySpace, Permutation};
use crate::ledger::Ledger;
use crate::measure::{Clients, Place};
use crate::record::Values;
use crate::report::PhaseReport;
use crate::store::{Opening, Store};
use crate::worker::Job;
use crate::workload::Workload;
use firn_base::clock::Clock;
use firn_base::seed::{Seed, mix};
use firn_base::{Error, Result};
use firndb::Durability;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

impl Phase {
    /// True if its minimum duration is over after `elapsed_ns`.
    pub(crate) fn time_is_up(&self, elapsed_ns: u64) -> bool {
        elapsed_ns >= self.seconds_min * 1_000_000_000
    }
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
    /// True if they all exist: false after a first workload that filled the database in part.
    is_whole: AtomicBool,
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
    /// [`firn_base::ErrorKind::Invalid`] for impossible sizes.
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
            is_whole: AtomicBool::new(true),
            inserted,
            seed: 0x5EED,
            phases: AtomicU64::new(0),
        })
    }

    /// Runs `phase` to completion.
    ///
    /// # Errors
    /// The first error of the store, or [`firn_base::ErrorKind::Corruption`] for the first wrong
    /// answer.
    pub fn run(&self, phase: &Phase, watch: &dyn Watch) -> Result<PhaseReport> {
        if phase.threads == 0 || phase.operations == 0 {
            return Err(Error::invalid(
                "a benchmark needs at least one thread and one operation",
            ));
        }
        let place = Place {
            store: &*self.store,
            directory: &self.directory,
            clock: &self.clock,
        };
        let is_first = self.phases.load(Ordering::SeqCst) == 0;
        let (report, job) = place.measure(phase, || self.job(phase), watch)?;
        if phase.workload.fills_some() {
            self.is_whole.fetch_and(!is_first, Ordering::SeqCst);
        } else if phase.workload.fills() {
            self.is_whole.store(true, Ordering::SeqCst);
            self.records.store(job.begun(), Ordering::SeqCst);
        }
        Ok(report)
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
            is_whole: self.is_whole.load(Ordering::SeqCst),
            inserted: self.inserted.clone(),
            seed: mix(self.seed + self.phases.fetch_add(1, Ordering::SeqCst)),
            start_ns: self.clock.now_ns(),
            clock: self.clock.clone(),
            next: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            acted: AtomicBool::new(false),
        }
    }
}
