//! Runs the clients of a phase and measures them: starts the threads, shows progress, adds up.
//!
//! Steps: 1 record the counters of engine and kernel; 2 create what the threads share; 3 run the
//! threads until each has ended; 4 wait until the engine is at rest, if requested; 5 report the
//! differences.

use crate::counters::Counters;
use crate::machine;
use crate::phase::{Phase, Watch};
use crate::report::{Harness, Moved, PhaseReport};
use crate::store::Store;
use crate::tally::Tally;
use firn_base::clock::Clock;
use firn_base::{Error, ErrorKind, Result, exec};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The client threads of a phase and the state that they share.
pub(crate) trait Clients: Send + Sync + 'static {
    /// The main function of client `thread`.
    ///
    /// # Errors
    /// The first error of the store, or the first wrong answer.
    fn run(&self, thread: u64) -> Result<Tally>;

    /// The number of operations begun so far.
    fn begun(&self) -> u64;

    /// Makes every client end after its current operation.
    fn stop(&self);

    /// The time at which the phase began.
    fn start_ns(&self) -> u64;

    /// Memory of the check of the answers, in bytes.
    fn checker_bytes(&self) -> u64;
}

/// A store under test, and the directory of its files, whose device is measured.
pub(crate) struct Place<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) directory: &'a Path,
    pub(crate) clock: &'a Clock,
}

impl Place<'_> {
    /// Runs `phase` with the clients from `create` and reports it.
    ///
    /// # Errors
    /// The first error of a client or of the store.
    pub(crate) fn measure<C: Clients>(
        &self,
        phase: &Phase,
        create: impl FnOnce() -> C,
        watch: &dyn Watch,
    ) -> Result<(PhaseReport, Arc<C>)> {
        machine::reset_peak();
        let before = Measure::take(self.store, self.directory);
        let clients = Arc::new(create());
        watch.begin(phase.workload.name(), phase.operations);
        let tally = run_threads(&clients, phase.threads, self.clock, watch);
        watch.end();
        let tally = tally?;
        let log_bytes = self.store.counters().log_bytes;
        let settle_seconds = self.settle(phase, watch)?;
        let mut after = Measure::take(self.store, self.directory);
        after.engine.log_bytes = log_bytes;
        let report = report(phase, &*clients, &tally, settle_seconds, &before, &after)?;
        Ok((report, clients))
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

/// Runs the threads until each has ended. The first error stops all of them.
fn run_threads<C: Clients>(
    clients: &Arc<C>,
    threads: usize,
    clock: &Clock,
    watch: &dyn Watch,
) -> Result<Tally> {
    let mut handles: Vec<JoinHandle<Result<Tally>>> = Vec::new();
    let mut result: Result<Option<Tally>> = Ok(None);
    for thread in 0..threads {
        let theirs = clients.clone();
        match exec::spawn(&format!("bench-{thread}"), move || {
            let tally = theirs.run(thread as u64);
            if tally.is_err() {
                theirs.stop();
            }
            tally
        }) {
            Ok(handle) => handles.push(handle),
            Err(e) => {
                clients.stop();
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
        watch.advance(clients.begun());
        clock.sleep(Duration::from_millis(20));
    }
    for handle in handles {
        let tally = handle
            .join()
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "a benchmark thread panicked")));
        result = match (result, tally) {
            (Ok(None), Ok(tally)) => Ok(Some(tally)),
            (Ok(Some(mut sum)), Ok(tally)) => sum.add(&tally).map(|()| Some(sum)),
            (Err(e), _) | (_, Err(e)) => Err(e),
        };
    }
    result?.ok_or_else(|| Error::invalid("a benchmark needs at least one thread"))
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
    phase: &Phase,
    clients: &impl Clients,
    tally: &Tally,
    settle_seconds: Option<f64>,
    before: &Measure,
    after: &Measure,
) -> Result<PhaseReport> {
    let all = tally.all()?;
    let latency = all
        .percentiles()
        .ok_or_else(|| Error::invalid("the time was up before any operation"))?;
    let seconds = (tally.last_ns.saturating_sub(clients.start_ns())).max(1) as f64 / 1e9;
    let difference = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
    Ok(PhaseReport {
        workload: phase.workload.name().to_owned(),
        threads: phase.threads,
        durability: phase.durability.to_string(),
        operations: latency.operations,
        seconds,
        operations_per_second: latency.operations as f64 / seconds,
        rate: phase.rate,
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
        harness: Harness {
            call_seconds: tally.call_ns as f64 / 1e9 / phase.threads.max(1) as f64,
            checker_bytes: clients.checker_bytes(),
            kept_bytes: None,
        },
    })
}
