//! An estimate of the number of different keys in several tables, without reading them: each table
//! keeps the least hashes of its keys (Bar-Yossef et al. 2002, "Counting distinct elements in a
//! data stream").

use std::collections::BTreeSet;

/// The number of hashes that a table keeps. The error of an estimate is some 6 %.
const HASHES: usize = 256;

/// The least hashes of a set of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch {
    least: BTreeSet<u64>,
}

impl Sketch {
    /// Adds a key by its hash.
    #[inline]
    pub fn insert(&mut self, hash: u64) {
        if self.least.len() == HASHES {
            match self.least.last() {
                Some(&most) if hash < most => {}
                _ => return,
            }
        }
        if self.least.insert(hash) && self.least.len() > HASHES {
            self.least.pop_last();
        }
    }

    /// Adds all keys of `other`.
    pub fn add(&mut self, other: &Sketch) {
        other.least.iter().for_each(|hash| self.insert(*hash));
    }

    /// The estimated number of different keys.
    pub fn distinct(&self) -> f64 {
        match self.least.last() {
            Some(&most) if self.least.len() == HASHES => {
                (HASHES - 1) as f64 * (u64::MAX as f64 / most as f64)
            }
            _ => self.least.len() as f64,
        }
    }

    /// The hashes, in order.
    pub(super) fn hashes(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.least.iter().copied()
    }

    /// The most hashes of a sketch.
    pub(super) const fn hashes_max() -> usize {
        HASHES
    }
}

impl FromIterator<u64> for Sketch {
    fn from_iter<I: IntoIterator<Item = u64>>(hashes: I) -> Sketch {
        let mut sketch = Sketch::default();
        hashes.into_iter().for_each(|hash| sketch.insert(hash));
        sketch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sst::hash;

    fn of(keys: std::ops::Range<u64>) -> Sketch {
        keys.map(|key| hash(&key.to_be_bytes())).collect()
    }

    #[test]
    fn estimates_are_near_and_small_sets_exact() {
        assert_eq!(of(0..0).distinct(), 0.0);
        assert_eq!(of(0..200).distinct(), 200.0);
        for keys in [1_000, 30_000, 200_000] {
            let share = of(0..keys).distinct() / keys as f64;
            assert!((share - 1.0).abs() < 0.2, "{keys}: {share}");
        }
    }

    #[test]
    fn what_sets_share_counts_once() {
        let mut both = of(0..40_000);
        both.add(&of(20_000..60_000));
        assert_eq!(both, of(0..60_000));
        let share = both.distinct() / 60_000.0;
        assert!((share - 1.0).abs() < 0.2, "{share}");
    }
}
