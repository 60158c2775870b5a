//! The time of the CI tier, shared among the suites by weight.
//!
//! One suite runs at a time, on all cores, so that the time it takes is its own whether the test
//! program runs its tests one by one or side by side. A suite first runs its floor, however long
//! that takes, and then fresh seeds until its share is used. The time that it leaves goes to the
//! suites after it. The time that it takes beyond its share, for its floor or for its last seed,
//! is on top of the budget: taken from the suites after it, a few long seeds would leave the last
//! ones without any. Time never makes a suite fail.

use crate::suite::{SUITES, Suite};
use crate::tier::number;
use firn_base::clock::Clock;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The budget of all suites together, if the environment variable `FIRN_BUDGET` does not say.
const DEFAULT_SECONDS: u64 = 480;
const SECOND_NS: u64 = 1_000_000_000;

static BUDGET: Mutex<Option<Budget>> = Mutex::new(None);

/// The time left for the suites that have not run yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget {
    left_ns: u64,
    left_weight: u64,
}

impl Budget {
    fn of(seconds: u64, suites: &[Suite]) -> Budget {
        Budget {
            left_ns: seconds * SECOND_NS,
            left_weight: suites.iter().map(|suite| suite.weight).sum(),
        }
    }

    /// The share of a suite of this weight, which has not run yet.
    fn share_ns(self, weight: u64) -> u64 {
        let share = u128::from(self.left_ns) * u128::from(weight);
        (share / u128::from(self.left_weight.max(weight).max(1))) as u64
    }

    /// A suite of this weight ran for so long.
    fn spend(&mut self, weight: u64, used_ns: u64) {
        self.left_ns -= used_ns.min(self.share_ns(weight));
        self.left_weight = self.left_weight.saturating_sub(weight);
    }
}

/// The turn of one suite. The next suite waits until it is dropped.
pub(crate) struct Turn {
    budget: MutexGuard<'static, Option<Budget>>,
    weight: u64,
    share_ns: u64,
    clock: Clock,
}

impl Turn {
    /// Waits for the turn of `suite`.
    pub(crate) fn of(suite: &Suite) -> Turn {
        let mut budget = BUDGET.lock().unwrap_or_else(PoisonError::into_inner);
        let left = budget.get_or_insert_with(|| Budget::of(seconds(), SUITES));
        Turn {
            share_ns: left.share_ns(suite.weight),
            weight: suite.weight,
            budget,
            clock: Clock::system(),
        }
    }

    /// The clock of the turn, which began at zero, and the time on it at which the share is used.
    pub(crate) fn limit(&self) -> (Clock, u64) {
        (self.clock.clone(), self.share_ns)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let used_ns = self.clock.now_ns();
        if let Some(budget) = self.budget.as_mut() {
            budget.spend(self.weight, used_ns);
        }
    }
}

fn seconds() -> u64 {
    number("FIRN_BUDGET").unwrap_or(DEFAULT_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(left_ns: u64, left_weight: u64) -> Budget {
        Budget {
            left_ns,
            left_weight,
        }
    }

    #[test]
    fn shares_follow_the_weights_and_add_up_to_the_budget() {
        let mut left = budget(1000, 10);
        for (weight, share_ns) in [(5, 500), (3, 300), (2, 200)] {
            assert_eq!(left.share_ns(weight), share_ns);
            left.spend(weight, share_ns);
        }
        assert_eq!(left, budget(0, 0));
        let all = Budget::of(480, SUITES);
        let sum: u64 = SUITES.iter().map(|suite| all.share_ns(suite.weight)).sum();
        let least = 480 * SECOND_NS - SUITES.len() as u64;
        assert!((least..=480 * SECOND_NS).contains(&sum), "{sum}");
    }

    #[test]
    fn a_long_floor_takes_nothing_from_the_suites_after_it() {
        let mut left = budget(1000, 10);
        left.spend(5, 700);
        assert_eq!((left.share_ns(3), left.share_ns(2)), (300, 200));
        left.spend(3, 4000);
        assert_eq!(left, budget(200, 2));
    }

    #[test]
    fn without_a_budget_only_floors_run() {
        let mut left = budget(0, 10);
        assert_eq!(left.share_ns(5), 0);
        left.spend(5, 700);
        assert_eq!(left, budget(0, 5));
    }

    #[test]
    fn what_a_suite_leaves_goes_to_the_suites_after_it() {
        let mut left = budget(1000, 10);
        left.spend(5, 100);
        assert_eq!((left.share_ns(3), left.share_ns(2)), (540, 360));
    }
}
