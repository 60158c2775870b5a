//! The reference: every issued batch, in order, with its outcome. It determines what may come back:
//!
//! 1. The state that comes back is that after some prefix of the acknowledged batches, each whole
//!    or absent (I1, I2, I3).
//! 2. The prefix includes everything that must survive. After a kill this is every acknowledged
//!    batch. After a power cut it is every batch acknowledged with `Durability::Power`, and every
//!    batch acknowledged before such a batch, or before a successful sync or flush.
//! 3. After the whole prefix there may be more batches that were issued and not acknowledged: the
//!    first of those in flight together at the crash, or one that failed after the last success.
//! 4. A batch that failed and was followed by a success does not come back.

use firndb::Durability;
use std::collections::BTreeMap;

/// The contents of a database.
pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// A key and its new value; `None` deletes.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// The process was killed.
    Kill,
    /// The machine lost power.
    Power,
}

#[derive(Debug, Clone)]
struct Batch {
    changes: Vec<Change>,
    /// Batches in flight together have the same number.
    flight: u64,
    acknowledged: bool,
}

/// The batches issued since `base`, and which of them must survive.
#[derive(Debug, Clone, Default)]
pub struct History {
    base: Map,
    now: Map,
    batches: Vec<Batch>,
    survives_kill: usize,
    survives_power: usize,
    flights: u64,
}

fn apply(map: &mut Map, changes: &[Change]) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(map.insert(key.clone(), value.clone())),
            None => drop(map.remove(key)),
        }
    }
}

impl History {
    /// The contents that a reader must see now: everything acknowledged.
    pub fn now(&self) -> &Map {
        &self.now
    }

    /// Records batches that are about to be written, each by its own writer, in this order. Returns
    /// the number of the first. Until it is acknowledged a batch counts as failed.
    pub fn issue(&mut self, batches: impl IntoIterator<Item = Vec<Change>>) -> usize {
        let first = self.batches.len();
        self.flights += 1;
        let batch = |changes| Batch {
            changes,
            flight: self.flights,
            acknowledged: false,
        };
        self.batches.extend(batches.into_iter().map(batch));
        first
    }

    /// Records that batch `number` was acknowledged. Earlier batches without an acknowledgement by
    /// then will never get one.
    pub fn acknowledge(&mut self, number: usize, durability: Durability) {
        if let Some(batch) = self.batches.get_mut(number) {
            batch.acknowledged = true;
            apply(&mut self.now, &batch.changes);
        }
        self.survives_kill = number + 1;
        if durability == Durability::Power {
            self.survives_power = number + 1;
        }
    }

    /// Records that everything acknowledged is now durable.
    pub fn synced(&mut self) {
        self.survives_power = self.survives_kill;
    }

    /// Records a failed sync. Pages may hold old bytes even for a reader, so only earlier durable
    /// batches are certain.
    pub fn doubt(&mut self) {
        self.survives_kill = self.survives_power;
    }

    /// True if a database with these contents must exist.
    pub fn must_exist(&self, death: Death) -> bool {
        !self.base.is_empty() || self.floor(death) > 0
    }

    fn floor(&self, death: Death) -> usize {
        match death {
            Death::Kill => self.survives_kill,
            Death::Power => self.survives_power,
        }
    }

    /// Checks that `got` may have come back after `death`.
    ///
    /// # Errors
    /// A description of the violation.
    pub fn check(&self, got: &Map, death: Death) -> Result<(), String> {
        let mut state = self.base.clone();
        let floor = self.floor(death);
        let mut matched = None;
        for count in 0..=self.batches.len() {
            if count > 0 && self.batches[count - 1].acknowledged {
                apply(&mut state, &self.batches[count - 1].changes);
            }
            if state == *got {
                matched = Some(count);
                if count >= floor {
                    return Ok(());
                }
            }
        }
        // `state` now contains every acknowledged batch.
        let failed = self
            .batches
            .iter()
            .rposition(|batch| batch.acknowledged)
            .map_or(0, |last| last + 1);
        for flight in self.batches[failed..].chunk_by(|a, b| a.flight == b.flight) {
            let mut state = state.clone();
            for batch in flight {
                apply(&mut state, &batch.changes);
                if state == *got {
                    return Ok(());
                }
            }
        }
        Err(self.account(got, death, matched))
    }

    fn account(&self, got: &Map, death: Death, matched: Option<usize>) -> String {
        let (floor, issued) = (self.floor(death), self.batches.len());
        let head =
            format!("after {death:?}, {issued} issued of which the first {floor} must be there: ");
        if let Some(count) = matched {
            return format!("{head}only the first {count} are");
        }
        let mut differences = Vec::new();
        for (key, value) in &self.now {
            match got.get(key) {
                None => differences.push(format!("{} missing", key.escape_ascii())),
                Some(other) if other != value => {
                    differences.push(format!("{} differs", key.escape_ascii()))
                }
                _ => {}
            }
        }
        let extra = got.keys().filter(|key| !self.now.contains_key(*key));
        differences.extend(extra.map(|key| format!("{} came back", key.escape_ascii())));
        differences.truncate(12);
        format!(
            "{head}no prefix gives what came back; against all acknowledged: {}",
            differences.join(", ")
        )
    }

    /// Restarts the history from the contents that came back.
    pub fn restart(&mut self, got: Map) {
        *self = History {
            base: got.clone(),
            now: got,
            ..History::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(n: u8) -> Vec<Change> {
        vec![(vec![n], Some(vec![n])), (vec![0], Some(vec![n]))]
    }

    fn map(entries: &[(u8, u8)]) -> Map {
        entries
            .iter()
            .map(|(key, value)| (vec![*key], vec![*value]))
            .collect()
    }

    #[test]
    fn prefixes_pass_and_holes_do_not() {
        let mut history = History::default();
        for n in 1..=3 {
            let number = history.issue([put(n)]);
            history.acknowledge(
                number,
                if n == 1 {
                    Durability::Power
                } else {
                    Durability::Process
                },
            );
        }
        let all = map(&[(0, 3), (1, 1), (2, 2), (3, 3)]);
        assert_eq!(history.now(), &all);
        let two = map(&[(0, 2), (1, 1), (2, 2)]);
        assert!(
            history.check(&all, Death::Kill).is_ok() && history.check(&two, Death::Power).is_ok()
        );
        assert!(
            history
                .check(&two, Death::Kill)
                .unwrap_err()
                .contains("only the first 2")
        );
        assert!(history.check(&Map::new(), Death::Power).is_err());
        let hole = map(&[(0, 3), (1, 1), (3, 3)]);
        assert!(
            history
                .check(&hole, Death::Power)
                .unwrap_err()
                .contains("missing")
        );
        let torn = map(&[(0, 2), (1, 1), (2, 2), (3, 3)]);
        assert!(history.check(&torn, Death::Power).is_err());
    }

    #[test]
    fn one_unacknowledged_batch_may_follow_but_none_in_the_middle() {
        let mut history = History::default();
        history.issue([put(1)]);
        let second = history.issue([put(2)]);
        history.acknowledge(second, Durability::Power);
        history.issue([put(3)]);
        history.issue([put(4)]);
        for (got, good) in [
            (map(&[(0, 2), (2, 2)]), true),
            (map(&[(0, 4), (2, 2), (4, 4)]), true),
            (map(&[(0, 3), (2, 2), (3, 3)]), true),
            (map(&[(0, 2), (1, 1), (2, 2)]), false),
            (map(&[(0, 4), (2, 2), (3, 3), (4, 4)]), false),
        ] {
            assert_eq!(history.check(&got, Death::Power).is_ok(), good, "{got:?}");
        }
    }

    #[test]
    fn of_those_in_flight_together_the_first_may_be_there() {
        let mut history = History::default();
        history.issue([put(1), put(2), put(3)]);
        let both = map(&[(0, 2), (1, 1), (2, 2)]);
        let without_the_first = map(&[(0, 3), (2, 2), (3, 3)]);
        assert!(
            history.check(&both, Death::Power).is_ok()
                && history.check(&Map::new(), Death::Kill).is_ok()
        );
        assert!(history.check(&without_the_first, Death::Power).is_err());
    }
}
