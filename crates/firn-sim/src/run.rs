//! A run of one suite at the size of its tier.

use crate::budget::Turn;
use crate::seeds::{Draw, Seeds};
use crate::suite::Suite;
use crate::tally::Tally;
use crate::tier::{Test, Tier, none_failed, replay, spread};
use firn_base::clock::Clock;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// A suite's run: its seeds, its time and its counts.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The number of seeds of the floor.
    pub floor: u64,
    /// The number of fresh seeds.
    pub fresh: u64,
    /// The first fresh seed, by number; the others follow in the order of [`Draw::fresh`].
    pub first_fresh: Option<u64>,
    /// The time that it took, in seconds.
    pub seconds: f64,
    /// The counts of all seeds.
    pub tally: Tally,
}

impl Report {
    fn add(&mut self, seed: u64, seeds: Seeds, tally: Tally) {
        if seed < seeds.floor {
            self.floor += 1;
        } else {
            self.fresh += 1;
            let first = self.first_fresh.unwrap_or(seed);
            self.first_fresh = Some(first.min(seed));
        }
        self.tally.add(tally);
    }

    /// This run and `other`, which came after it.
    fn and(mut self, other: Report) -> Report {
        self.floor += other.floor;
        self.fresh += other.fresh;
        self.first_fresh = self.first_fresh.or(other.first_fresh);
        self.seconds += other.seconds;
        self.tally.add(other.tally);
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "floor {}, fresh {}", self.floor, self.fresh)?;
        if let Some(first) = self.first_fresh {
            write!(f, " from {first}")?;
        }
        write!(f, ", {:.1} s; {}", self.seconds, self.tally)
    }
}

impl Suite {
    /// Runs the seeds of the tier, spread over threads; or, to replay a failure, the seed in
    /// `FIRN_SEED` alone.
    ///
    /// # Panics
    /// If a seed fails, naming it and the command that replays it, or if a seed of the floor did
    /// not run.
    pub fn test(&'static self) -> Report {
        if let Some(seed) = replay() {
            return self.run_all(move |index| (index == 0).then_some(seed));
        }
        let Seeds { floor, .. } = self.seeds;
        let known = move |index| (index < floor).then_some(index);
        let report = match Tier::get() {
            Tier::Quick => self.run_all(known),
            Tier::Ci => {
                let turn = Turn::of(self);
                let (draw, (clock, limit_ns)) = (Draw::get(), turn.limit());
                let report = self.run_all(known);
                // A seed that would take longer than the time that is left does not begin.
                let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
                let seed_ns = clock.now_ns() / (floor / threads as u64).max(1);
                let fresh = self.run_all(move |index| {
                    let fits = clock.now_ns() + seed_ns <= limit_ns;
                    fits.then(|| draw.fresh(self.seeds, index))?
                });
                report.and(fresh)
            }
        };
        assert_eq!(
            report.floor, floor,
            "{}: fewer seeds than its floor ran",
            self.name
        );
        report
    }

    /// The test that runs this suite.
    pub fn as_test(&self) -> Test {
        Test {
            file: "suites",
            name: self.name,
        }
    }

    fn run_all(&'static self, seed: impl Fn(u64) -> Option<u64> + Send + Sync + 'static) -> Report {
        let (report, clock) = (Arc::new(Mutex::new(Report::default())), Clock::system());
        let into = report.clone();
        let failed = spread(self.name, seed, move |seed| {
            let outcome = catch_unwind(AssertUnwindSafe(|| (self.run)(seed)));
            outcome.is_ok_and(|tally| {
                into.lock()
                    .expect("no panic under the lock")
                    .add(seed, self.seeds, tally);
                true
            })
        });
        none_failed(self.as_test(), failed);
        let report = std::mem::take(&mut *report.lock().expect("no panic under the lock"));
        Report {
            seconds: clock.now_ns() as f64 / 1e9,
            ..report
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_the_floor_from_fresh_seeds() {
        let (seeds, mut report) = (Seeds::random(2), Report::default());
        for seed in [0, 9, 1, 8] {
            report.add(seed, seeds, Tally::default());
        }
        assert_eq!(
            (report.floor, report.fresh, report.first_fresh),
            (2, 2, Some(8))
        );
        assert!(
            report
                .to_string()
                .starts_with("floor 2, fresh 2 from 8, 0.0 s; ")
        );
    }
}
