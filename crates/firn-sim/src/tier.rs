//! The amount of work, and the number of threads.

use firn_base::exec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The number of threads over which the seeds of one test are spread.
const THREADS: usize = 2;
/// The number of failing seeds after which a suite stops.
const FAILURES_MAX: usize = 20;

/// The amount of work of a suite, set by the environment variable `FIRN_TESTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// The variable is not set: all tests together take minutes.
    Quick,
    /// `FIRN_TESTS=ci`.
    Ci,
}

impl Tier {
    /// The requested tier.
    pub fn get() -> Tier {
        match std::env::var("FIRN_TESTS").as_deref() {
            Ok("ci") => Tier::Ci,
            _ => Tier::Quick,
        }
    }

    /// `quick` in the quick tier, ten times as much in CI.
    pub fn scale(self, quick: u64) -> u64 {
        match self {
            Tier::Quick => quick,
            Tier::Ci => 10 * quick,
        }
    }
}

/// The single seed to run, from the environment variable `FIRN_SEED`, to replay a failure.
pub fn replay() -> Option<u64> {
    std::env::var("FIRN_SEED").ok()?.parse().ok()
}

/// Runs `body` with each seed below `count`, spread over threads, or only with the seed in
/// `FIRN_SEED`.
///
/// # Panics
/// If `body` panics. The message names the seed and the command that replays it.
pub fn each_seed(test: &'static str, count: u64, body: impl Fn(u64) + Send + Sync + 'static) {
    let passes = move |seed: u64| catch_unwind(AssertUnwindSafe(|| body(seed))).is_ok();
    let mut failed = match replay() {
        Some(seed) => (!passes(seed)).then_some(seed).into_iter().collect(),
        None => spread(test, count, passes),
    };
    failed.sort_unstable();
    if let Some(seed) = failed.first() {
        panic!(
            "seeds {failed:?} failed; replay: FIRN_SEED={seed} cargo test -p firn-sim --test suites {test}"
        );
    }
}

/// Runs the seeds on all threads. Returns the seeds that failed, and stops early once there are
/// [`FAILURES_MAX`].
pub(crate) fn spread(
    test: &str,
    count: u64,
    passes: impl Fn(u64) -> bool + Send + Sync + 'static,
) -> Vec<u64> {
    let (passes, next) = (Arc::new(passes), Arc::new(AtomicU64::new(0)));
    let failed = Arc::new(Mutex::new(Vec::new()));
    let worker = |i: usize| {
        let (passes, next, failed) = (passes.clone(), next.clone(), failed.clone());
        exec::spawn(&format!("{test}-{i}"), move || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= count
                    || failed
                        .lock()
                        .is_ok_and(|failed| failed.len() >= FAILURES_MAX)
                {
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
