//! Runs a model under many schedules. All `interleave` modules use this driver.
//!
//! A failure prints its schedule. To replay only that schedule, set `FIRN_SCHEDULE=<schedule>` and
//! run the test of that model. `SHUTTLE_RANDOM_SEED` starts from another seed.

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Enough for the engine's deepest calls in an unoptimized build.
const STACK_BYTES: usize = 1 << 20;
/// A model takes thousands of steps. One that takes this many has threads that wait for each other.
const STEPS_MAX: usize = 300_000;
/// The most preemptions that a bug of interest needs.
const DEPTH: usize = 3;
const SEED: u64 = 1;

/// Runs `model` under random schedules: 20,000 in the CI tier, otherwise 400. Half are chosen at
/// random step by step. The other half use priorities that change at a few points, which finds bugs
/// that need one thread to run for long.
pub fn random(model: impl Fn() + Clone + Send + Sync + 'static) {
    if replayed(&model) {
        return;
    }
    let each = if is_ci() { 20_000 } else { 400 } / 2;
    run(RandomScheduler::new_from_seed(SEED, each), &model);
    run(PctScheduler::new_from_seed(SEED, DEPTH, each), &model);
}

/// Runs `model` under every possible schedule.
pub fn all(model: impl Fn() + Clone + Send + Sync + 'static) {
    if !replayed(&model) {
        run(DfsScheduler::new(None, false), &model);
    }
}

fn replayed(model: &(impl Fn() + Clone + Send + Sync + 'static)) -> bool {
    let Ok(schedule) = std::env::var("FIRN_SCHEDULE") else {
        return false;
    };
    run(ReplayScheduler::new_from_encoded(&schedule), model);
    true
}

fn run(scheduler: impl Scheduler + 'static, model: &(impl Fn() + Clone + Send + Sync + 'static)) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.failure_persistence = FailurePersistence::Print;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(model.clone());
}

/// True in the large tier, CI.
pub fn is_ci() -> bool {
    std::env::var("FIRN_TESTS").is_ok_and(|tier| tier == "ci")
}
