//! How much is run, and on how many threads.

use firn_base::exec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Threads that the seeds of one test are spread over.
const THREADS: usize = 2;
/// Failing seeds after which a suite stops.
const FAILURES_MAX: usize = 20;

/// How much a suite runs, from the environment variable `FIRN_TESTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// The variable is not set: minutes for all tests together.
    Quick,
    /// `FIRN_TESTS=ci`.
    Ci,
}

impl Tier {
    /// The tier that was asked for.
    pub fn get() -> Tier {
        match std::env::var("FIRN_TESTS").as_deref() {
            Ok("ci") => Tier::Ci,
            _ => Tier::Quick,
        }
    }

    /// `quick` of something, or ten times as many.
    pub fn scale(self, quick: u64) -> u64 {
        match self {
            Tier::Quick => quick,
            Tier::Ci => 10 * quick,
        }
    }
}

/// The one seed to run, from the environment variable `FIRN_SEED`, when a failure is replayed.
pub fn replay() -> Option<u64> {
    std::env::var("FIRN_SEED").ok()?.parse().ok()
}

/// Runs `body` with each seed below `count`, spread over threads; or with the one that `FIRN_SEED` names.
///
/// # Panics
/// If `body` does, naming the seed and the command that replays it.
pub fn each_seed(test: &'static str, count: u64, body: impl Fn(u64) + Send + Sync + 'static) {
    let passes = move |seed: u64| catch_unwind(AssertUnwindSafe(|| body(seed))).is_ok();
    let mut failed = match replay() {
        Some(seed) => (!passes(seed)).then_some(seed).into_iter().collect(),
        None => spread(test, count, passes),
    };
    failed.sort_unstable();
    if let Some(seed) = failed.first() {
        panic!("seeds {failed:?} failed; replay: FIRN_SEED={seed} cargo test -p firn-sim --test suites {test}");
    }
}

/// Runs the seeds on all threads; returns those that failed, after so many that more would tell nothing.
pub(crate) fn spread(test: &str, count: u64, passes: impl Fn(u64) -> bool + Send + Sync + 'static) -> Vec<u64> {
    let (passes, next) = (Arc::new(passes), Arc::new(AtomicU64::new(0)));
    let failed = Arc::new(Mutex::new(Vec::new()));
    let worker = |i: usize| {
        let (passes, next, failed) = (passes.clone(), next.clone(), failed.clone());
        exec::spawn(&format!("{test}-{i}"), move || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= count || failed.lock().is_ok_and(|failed| failed.len() >= FAILURES_MAX) {
                    break;
                }
                if !passes(seed) {
                    failed.lock().expect("no panic under the lock").push(seed);
                }
            }
        })
        .expect("a thread")
    };
    let workers: Vec<_> = (0..THREADS).map(worker).collect();
    for worker in workers {
        worker.join().expect("a worker catches panics");
    }
    let failed = failed.lock().expect("no panic under the lock");
    failed.clone()
}
