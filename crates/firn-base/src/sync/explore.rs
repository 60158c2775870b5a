//! Runs a model under many schedules: the driver of all `interleave` modules.
//!
//! A failure prints its schedule. With `FIRN_SCHEDULE=<that>` and the model's name as the test to run just that one is
//! run again; `SHUTTLE_RANDOM_SEED` begins elsewhere.

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// The engine's deepest calls, in a build without optimisation.
const STACK_BYTES: usize = 1 << 20;
/// A model takes thousands of steps; one that takes this many has threads that wait for each other.
const STEPS_MAX: usize = 300_000;
/// Preemptions that the bugs sought need at most.
const DEPTH: usize = 3;
const SEED: u64 = 1;

/// Runs `model` under random schedules: 20,000 in the CI tier, else a few hundred. Half are drawn step by step, half by
/// priorities that change at few places, which finds what takes a long run of one thread.
pub fn random(model: impl Fn() + Clone + Send + Sync + 'static) {
    if replayed(&model) {
        return;
    }
    let each = if is_ci() { 20_000 } else { 400 } / 2;
    run(RandomScheduler::new_from_seed(SEED, each), &model);
    run(PctScheduler::new_from_seed(SEED, DEPTH, each), &model);
}

/// Runs `model` under every schedule there is.
pub fn all(model: impl Fn() + Clone + Send + Sync + 'static) {
    if !replayed(&model) {
        run(DfsScheduler::new(None, false), &model);
    }
}

fn replayed(model: &(impl Fn() + Clone + Send + Sync + 'static)) -> bool {
    let Ok(schedule) = std::env::var("FIRN_SCHEDULE") else { return false };
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

/// Whether this is the large tier.
pub fn is_ci() -> bool {
    std::env::var("FIRN_TESTS").is_ok_and(|tier| tier == "ci")
}
