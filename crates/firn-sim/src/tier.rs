//! The amount of work, and the threads that do it.

use firn_base::clock::Clock;
use firn_base::exec;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No seed takes as long as this, unless it hangs.
const SEED_MAX: Duration = Duration::from_secs(600);
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
///
/// # Panics
/// If the variable is not a number.
pub fn replay() -> Option<u64> {
    number("FIRN_SEED")
}

/// The number in an environment variable, if it is set.
///
/// # Panics
/// If it is not a number.
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}={text} is not a number")))
}

/// A test, by the names that cargo knows.
#[derive(Debug, Clone, Copy)]
pub struct Test {
    /// The file in `tests/`.
    pub file: &'static str,
    /// The function.
    pub name: &'static str,
}

impl Test {
    /// The command that runs the test with this seed only.
    pub fn replay_command(self, seed: u64) -> String {
        let Test { file, name } = self;
        format!("FIRN_SEED={seed} cargo test --test {file} {name} -- --exact")
    }
}

/// Runs `body` with each seed below `count`, spread over threads, or only with the seed in
/// `FIRN_SEED`.
///
/// # Panics
/// If `body` panics. The message names the seed and the command that replays it.
pub fn each_seed(test: Test, count: u64, body: impl Fn(u64) + Send + Sync + 'static) {
    let passes = move |seed: u64| catch_unwind(AssertUnwindSafe(|| body(seed))).is_ok();
    let seed = move |index| match replay() {
        Some(seed) => (index == 0).then_some(seed),
        None => (index < count).then_some(index),
    };
    none_failed(test, spread(test.name, seed, passes));
}

/// # Panics
/// If there is a seed in `failed`. The message says how to replay it.
pub(crate) fn none_failed(test: Test, mut failed: Vec<u64>) {
    failed.sort_unstable();
    if let Some(seed) = failed.first() {
        let (name, command) = (test.name, test.replay_command(*seed));
        panic!("{name}: seeds {failed:?} failed; replay: {command}");
    }
}

/// Runs the seeds `seed(0)`, `seed(1)`, .. up to the first `None`, on all threads. Returns the
/// seeds that failed, and stops early once there are [`FAILURES_MAX`].
///
/// # Panics
/// If one runs for [`SEED_MAX`], because it hangs. Its thread is left behind.
pub(crate) fn spread(
    test: &str,
    seed: impl Fn(u64) -> Option<u64> + Send + Sync + 'static,
    passes: impl Fn(u64) -> bool + Send + Sync + 'static,
) -> Vec<u64> {
    spread_within(SEED_MAX, test, seed, passes)
}

fn spread_within(
    seed_max: Duration,
    test: &str,
    seed: impl Fn(u64) -> Option<u64> + Send + Sync + 'static,
    passes: impl Fn(u64) -> bool + Send + Sync + 'static,
) -> Vec<u64> {
    let (run, next) = (Arc::new((seed, passes)), Arc::new(AtomicU64::new(0)));
    let failed = Arc::new(Mutex::new(Vec::new()));
    let running = Arc::new(Mutex::new(HashMap::<usize, (u64, u64)>::new()));
    let clock = Clock::system();
    let (done, all_done) = channel::<()>();
    let worker = |i: usize| {
        let (run, next, failed) = (run.clone(), next.clone(), failed.clone());
        let (running, done, clock) = (running.clone(), done.clone(), clock.clone());
        exec::spawn(&format!("{test}-{i}"), move || {
            let _done = done;
            let (seed, passes) = &*run;
            while failed
                .lock()
                .is_ok_and(|failed| failed.len() < FAILURES_MAX)
            {
                let Some(seed) = seed(next.fetch_add(1, Ordering::Relaxed)) else {
                    break;
                };
                let mut its = running.lock().expect("no panic under the lock");
                its.insert(i, (seed, clock.now_ns()));
                drop(its);
                if !passes(seed) {
                    failed.lock().expect("no panic under the lock").push(seed);
                }
            }
            running.lock().expect("no panic under the lock").remove(&i);
        })
        .expect("a thread")
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let workers: Vec<_> = (0..threads.max(THREADS_MIN)).map(worker).collect();
    drop(done);
    // Nothing is sent: the channel ends with the last worker.
    while all_done.recv_timeout(seed_max / 100) == Err(RecvTimeoutError::Timeout) {
        let running = running.lock().expect("no panic under the lock");
        let now_ns = clock.now_ns();
        let max_ns = seed_max.as_nanos() as u64;
        let hang = |(_, since_ns): &&(u64, u64)| now_ns - since_ns >= max_ns;
        let hanging: Vec<u64> = running.values().filter(hang).map(|of| of.0).collect();
        drop(running);
        assert!(
            hanging.is_empty(),
            "{test}: seeds {hanging:?} hang, they have run for {seed_max:?}"
        );
    }
    for worker in workers {
        worker.join().expect("a worker catches panics");
    }
    let failed = failed.lock().expect("no panic under the lock");
    failed.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: Test = Test {
        file: "suites",
        name: "joint",
    };

    #[test]
    fn a_failure_says_how_to_replay_its_first_seed() {
        let failed = catch_unwind(|| none_failed(TEST, vec![4_294_967_303, 7]));
        let message = failed.expect_err("two seeds failed");
        let message = message.downcast_ref::<String>().expect("a message");
        let command = "FIRN_SEED=7 cargo test --test suites joint -- --exact";
        assert!(message.ends_with(command), "{message}");
        none_failed(TEST, Vec::new());
    }

    #[test]
    #[should_panic(expected = "seeds [2] hang")]
    fn a_seed_that_hangs_fails() {
        // Held until after the panic.
        let (_held, until_dropped) = channel::<()>();
        let until_dropped = Mutex::new(until_dropped);
        let seed = |index| (index < 4).then_some(index);
        let passes =
            move |seed| seed != 2 || until_dropped.lock().is_ok_and(|it| it.recv().is_ok());
        spread_within(Duration::from_millis(200), "hanging", seed, passes);
    }

    #[test]
    fn seeds_are_spread_until_there_are_no_more() {
        let seed = |index| (index < 9).then_some(100 + index);
        assert_eq!(spread("nine", seed, |seed| seed % 4 != 0).len(), 3);
        assert!(
            spread("many", Some, |_| false).len() >= FAILURES_MAX,
            "it ends"
        );
    }
}
