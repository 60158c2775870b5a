//! Which seeds a suite runs: its floor, the seeds 0, 1, 2, .., in every run, and then fresh ones
//! that differ from commit to commit, so that runs add up.

use firn_base::seed::mix;

/// Fresh seeds that are not of a list start here. All floors and lists end far below.
const DRAWN_FROM: u64 = 1 << 32;
/// The number of bits of the first fresh seed, few enough to read it aloud.
const DRAWN_BITS: u32 = 40;

/// The seeds of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// The seeds below this number run in every tier. In the quick tier nothing else does.
    pub floor: u64,
    /// The seeds below this number enumerate cases, if it is more than the floor.
    list: u64,
    /// Every seed from there on is a random case. Otherwise it repeats a case of the list.
    endless: bool,
    /// CI runs the floor only.
    floor_in_ci: bool,
}

impl Seeds {
    /// Every seed is a random case.
    pub(crate) const fn random(floor: u64) -> Seeds {
        Seeds {
            floor,
            list: 0,
            endless: true,
            floor_in_ci: false,
        }
    }

    /// The seeds below `list` enumerate cases, then random cases follow.
    pub(crate) const fn list_then_random(floor: u64, list: u64) -> Seeds {
        Seeds {
            floor,
            list,
            endless: true,
            floor_in_ci: false,
        }
    }

    /// The seeds below `list` enumerate all cases.
    pub(crate) const fn list(floor: u64, list: u64) -> Seeds {
        Seeds {
            floor,
            list,
            endless: false,
            floor_in_ci: false,
        }
    }

    /// The same seeds; those above the floor take too long for CI, so only the soak runs them.
    pub(crate) const fn long(self) -> Seeds {
        Seeds {
            floor_in_ci: true,
            ..self
        }
    }

    /// Seed number `index` of those above the floor, if random cases begin at `start`; `None` if
    /// there are no more cases. The rest of the list comes first, from a place that depends on
    /// `start`, so that several runs together finish a list that is too long for one.
    pub fn beyond_the_floor(self, start: u64, index: u64) -> Option<u64> {
        let listed = self.list.saturating_sub(self.floor);
        if index < listed {
            return Some(self.floor + (start % listed + index) % listed);
        }
        self.endless.then(|| start + index - listed)
    }
}

/// The place from which a run takes its fresh seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw(u64);

impl Draw {
    /// The draw of a text, which is the hash of a commit.
    pub fn of(text: &str) -> Draw {
        let drawn = text
            .bytes()
            .fold(0, |sum, byte| mix(sum ^ u64::from(byte)).wrapping_add(1));
        Draw(drawn >> (64 - DRAWN_BITS))
    }

    /// The draw of the environment variable `FIRN_SEEDS`, which `cargo xtask ci` sets to the hash
    /// of the commit. Without it, always the same one.
    pub fn get() -> Draw {
        Draw::of(&drawn_from())
    }

    /// A line for the log of a run: the text that repeats its draw.
    pub fn origin() -> String {
        let text = drawn_from();
        if text.is_empty() {
            "FIRN_SEEDS is not set: the same draw as in every run without it".to_owned()
        } else {
            format!("drawn from FIRN_SEEDS={text}")
        }
    }

    /// Fresh seed number `index` of CI, from 0; `None` if there are no more cases.
    pub fn fresh(self, seeds: Seeds, index: u64) -> Option<u64> {
        let fresh = seeds.beyond_the_floor(DRAWN_FROM + self.0, index);
        fresh.filter(|_| !seeds.floor_in_ci)
    }
}

fn drawn_from() -> String {
    std::env::var("FIRN_SEEDS").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const COMMITS: [&str; 4] = ["", "272ba11", "272ba12", "0f4efb8"];

    #[test]
    fn fresh_seeds_differ_from_commit_to_commit() {
        let mut all = BTreeSet::new();
        for commit in COMMITS {
            for index in 0..1000 {
                let seed = Draw::of(commit)
                    .fresh(Seeds::random(10), index)
                    .expect("a seed");
                assert!(
                    all.insert(seed),
                    "{seed} twice, the second time at {commit}"
                );
            }
            assert_eq!(Draw::of(commit), Draw::of(commit));
        }
    }

    #[test]
    fn fresh_seeds_repeat_neither_the_floor_nor_themselves() {
        for seeds in [
            Seeds::random(1600),
            Seeds::list_then_random(7, 43),
            Seeds::list_then_random(43, 43),
            Seeds::list_then_random(50, 43),
            Seeds::list(8, 64),
        ] {
            for commit in COMMITS {
                let fresh = |index| Draw::of(commit).fresh(seeds, index);
                let some: Vec<u64> = (0..100).map_while(fresh).collect();
                assert!(
                    some.iter().all(|&seed| seed >= seeds.floor),
                    "{seeds:?}: {some:?}"
                );
                assert_eq!(BTreeSet::from_iter(&some).len(), some.len(), "{seeds:?}");
            }
        }
    }

    #[test]
    fn a_list_is_finished_before_random_cases_begin() {
        let rest: BTreeSet<u64> = (7..43).collect();
        let (endless, finite) = (Seeds::list_then_random(7, 43), Seeds::list(7, 43));
        for draw in COMMITS.map(Draw::of) {
            let first = |seeds| -> BTreeSet<u64> {
                (0..36)
                    .filter_map(|index| draw.fresh(seeds, index))
                    .collect()
            };
            assert_eq!(
                (first(endless), first(finite)),
                (rest.clone(), rest.clone())
            );
            assert!(draw.fresh(endless, 36) >= Some(DRAWN_FROM));
            assert_eq!(draw.fresh(finite, 36), None);
            assert_eq!(draw.fresh(Seeds::list(43, 43), 0), None);
            assert_eq!(draw.fresh(endless.long(), 0), None);
        }
    }
}
