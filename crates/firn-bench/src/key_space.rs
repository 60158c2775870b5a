//! The keys of a benchmark, and the order in which they are used.
//!
//! A record has a number, which is its position in the order of insertion. Its rank among the
//! loaded records is given by a random permutation, not by a hash. So no key occurs twice, a
//! scrambled rank keeps its exact probability, and a rank can be mapped back to its record. The key
//! is twice the rank in decimal, zero-padded to the minimum key size. A record inserted later takes
//! the odd number after that of a loaded one. Longer keys are padded after the number, so keys of
//! all sizes sort by their numbers.

use crate::size::Sizes;
use firn_base::seed::mix;
use firn_base::{Error, Result};
use std::io::Write;

/// The order depends only on the number of records, so that a later run finds the keys of an
/// earlier one.
const ORDER_SALT: u64 = 0x6669_726E;
const KEY_BYTES_MAX: usize = 1024;

/// The keys of a benchmark: their sizes, and the mapping from record numbers to keys.
#[derive(Debug, Clone)]
pub struct KeySpace {
    sizes: Sizes,
    records: u64,
    order: Permutation,
}

impl KeySpace {
    /// Keys for `records` records and as many inserts.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if the shortest keys cannot hold the largest number.
    pub fn new(sizes: Sizes, records: u64) -> Result<Self> {
        if !(1..=1 << 40).contains(&records) {
            return Err(Error::invalid("the number of records must be 1 to 2^40"));
        }
        let digits = (records * 2 - 1).ilog10() as usize + 1;
        if sizes.min() < digits || sizes.max() > KEY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the key size must be {digits} to {KEY_BYTES_MAX} bytes for {records} records"
            )));
        }
        Ok(Self {
            sizes,
            records,
            order: Permutation::new(records, ORDER_SALT),
        })
    }

    /// Writes the key of record `number` into `key`.
    pub fn write(&self, number: u64, key: &mut Vec<u8>) {
        let id = self.id(number);
        key.clear();
        let width = self.sizes.min();
        // Writing to a `Vec` never fails.
        let _never_fails = write!(key, "{id:0width$}");
        debug_assert_eq!(key.len(), width);
        key.resize(self.sizes.of(id), b'-');
    }

    /// The key's number: even for a loaded record.
    fn id(&self, number: u64) -> u64 {
        match number.checked_sub(self.records) {
            None => self.order.get(number) * 2,
            Some(inserted) => self.order.get(inserted % self.records) * 2 + 1,
        }
    }

    /// The rank of record `number` among the loaded keys. An inserted record is just after the
    /// loaded one of the same rank.
    pub fn rank(&self, number: u64) -> u64 {
        self.id(number) / 2
    }

    /// The loaded record with rank `rank`.
    pub fn loaded_at(&self, rank: u64) -> u64 {
        self.order.inverse(rank)
    }

    /// The number of loaded records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The length of the longest key, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.sizes.max()
    }

    /// The mean length of a key, in bytes.
    pub fn bytes_mean(&self) -> f64 {
        self.sizes.mean()
    }
}

/// A pseudo-random permutation of 0..n: a Feistel network over the next power of four, repeated
/// until the result is below n.
#[derive(Debug, Clone)]
pub struct Permutation {
    items: u64,
    half_bits: u32,
    salt: u64,
}

const ROUNDS: u64 = 4;

impl Permutation {
    /// The permutation of 0..`items` selected by `salt`.
    pub fn new(items: u64, salt: u64) -> Self {
        assert!(
            (1..=1 << 62).contains(&items),
            "a permutation of nothing, or of too much"
        );
        let bits = 64 - (items - 1).leading_zeros();
        Self {
            items,
            half_bits: bits.div_ceil(2).max(1),
            salt,
        }
    }

    /// The image of `index`.
    ///
    /// REQUIRES: `index` is below the number of items.
    pub fn get(&self, index: u64) -> u64 {
        self.walk(index, |at| self.forward(at))
    }

    /// The index whose image is `place`.
    ///
    /// REQUIRES: `place` is below the number of items.
    pub fn inverse(&self, place: u64) -> u64 {
        self.walk(place, |at| self.backward(at))
    }

    fn walk(&self, from: u64, step: impl Fn(u64) -> u64) -> u64 {
        assert!(from < self.items, "outside the permutation");
        let mut at = step(from);
        while at >= self.items {
            at = step(at);
        }
        at
    }

    fn halves(&self, value: u64) -> (u64, u64) {
        (value >> self.half_bits, value & self.mask())
    }

    fn mask(&self) -> u64 {
        (1 << self.half_bits) - 1
    }

    fn scramble(&self, half: u64, round: u64) -> u64 {
        mix(half ^ self.salt.wrapping_add(round << 40)) & self.mask()
    }

    fn forward(&self, value: u64) -> u64 {
        let (mut left, mut right) = self.halves(value);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.scramble(right, round));
        }
        (left << self.half_bits) | right
    }

    fn backward(&self, value: u64) -> u64 {
        let (mut left, mut right) = self.halves(value);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.scramble(left, round), left);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_comes_once_and_back() {
        for items in [1, 2, 3, 5, 64, 1000, 4097] {
            let order = Permutation::new(items, 9);
            let mut seen = vec![false; items as usize];
            for index in 0..items {
                let id = order.get(index);
                assert!(!seen[id as usize], "{id} of {items} comes twice");
                seen[id as usize] = true;
                assert_eq!(order.inverse(id), index);
            }
        }
    }

    #[test]
    fn the_order_is_not_sorted() {
        let order = Permutation::new(100_000, 1);
        let rises = (1..100_000)
            .filter(|&i| order.get(i) > order.get(i - 1))
            .count();
        assert!((49_000..51_000).contains(&rises), "{rises}");
    }

    #[test]
    fn keys_differ_and_lie_where_they_say() {
        for sizes in ["16", "4", "4-40"] {
            let space = KeySpace::new(sizes.parse().unwrap(), 1000).unwrap();
            let mut keys = std::collections::BTreeSet::new();
            for number in 0..2000 {
                let mut key = Vec::new();
                space.write(number, &mut key);
                assert!((4..=40).contains(&key.len()));
                assert!(keys.insert(key));
                assert_eq!(space.order.inverse(space.rank(number)), number % 1000);
            }
            let mut loaded: Vec<(Vec<u8>, u64)> =
                (0..1000).map(|number| (Vec::new(), number)).collect();
            loaded
                .iter_mut()
                .for_each(|(key, number)| space.write(*number, key));
            loaded.sort();
            let in_order = (0..1000).map(|rank| space.loaded_at(rank));
            assert!(in_order.eq(loaded.iter().map(|(_, number)| *number)));
        }
        assert!(KeySpace::new(Sizes::fixed(6), 1_000_000).is_err());
        assert!(KeySpace::new(Sizes::fixed(7), 1_000_000).is_ok());
        assert!(KeySpace::new(Sizes::fixed(16), 0).is_err());
    }
}
