//! The amount of work, and the threads that do it.

use firn_base::exec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The least number of threads over which the seeds of one test are spread.
const THREADS_MIN: usize = 2;
/// The number of failing seeds after which a suite stops.
const FAILURES_MAX: usize = 20;

/// The amount of work of a suite, set by the environment variable `FIRN_TESTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// The variable is not set: each suite runs its floor, all tests together take minutes.
    Quick,
    /// `FIRN_TESTS=ci`: each suite also runs fresh seeds, until its share of the budget is used.
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
}

/// The single seed to run, from the environment variable `FIRN_SEED`, to replay a failure.
pub fn replay() -> Option<u64> {
    std::env::var("FIRN_SEED").ok()?.parse().ok()
}

/// Runs `body` with each seed below `count`, spread over threads, or only with the seed in
/// `FIRN_SEED`. `test` is the name of the test that calls.
///
/// # Panics
/// If `body` panics. The message names the seed and the command that replays it.
pub fn each_seed(test: &'static str, count: u64, body: impl Fn(u64) + Send + Sync + 'static) {
    let passes = move |seed: u64| catch_unwind(AssertUnwindSafe(|| body(seed))).is_ok();
    none_failed(
        test,
        match replay() {
            Some(seed) => (!passes(seed)).then_some(seed).into_iter().collect(),
            None => spread(test, move |index| (index < count).then_some(index), passes),
        },
    );
}

/// # Panics
/// If there is a seed in `failed`. The message says how to replay it.
pub(crate) fn none_failed(test: &str, mut failed: Vec<u64>) {
    failed.sort_unstable();
    if let Some(seed) = failed.first() {
        panic!(
            "seeds {failed:?} failed; replay: FIRN_SEED={seed} cargo test -p firn-sim {test} -- --exact"
        );
    }
}

/// Runs the seeds `seed(0)`, `seed(1)`, .. up to the first `None`, on all threads. Returns the
/// seeds that failed, and stops early once there are [`FAILURES_MAX`].
pub(crate) fn spread(
    test: &str,
    seed: impl Fn(u64) -> Option<u64> + Send + Sync + 'static,
    passes: impl Fn(u64) -> bool + Send + Sync + 'static,
) -> Vec<u64> {
    let (run, next) = (Arc::new((seed, passes)), Arc::new(AtomicU64::new(0)));
    let failed = Arc::new(Mutex::new(Vec::new()));
    let worker = |i: usize| {
        let (run, next, failed) = (run.clone(), next.clone(), failed.clone());
        exec::spawn(&format!("{test}-{i}"), move || {
            let (seed, passes) = &*run;
            while failed
                .lock()
                .is_ok_and(|failed| failed.len() < FAILURES_MAX)
            {
                let Some(seed) = seed(next.fetch_add(1, Ordering::Relaxed)) else {
                    break;
                };
                if !passes(seed) {
                    failed.lock().expect("no panic under the lock").push(seed);
                }
            }
        })
        .expect("a thread")
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let workers: Vec<_> = (0..threads.max(THREADS_MIN)).map(worker).collect();
    for worker in workers {
        worker.join().expect("a worker catches panics");
    }
    let failed = failed.lock().expect("no panic under the lock");
    failed.clone()
}
