//! Which keys there are, and in which order they are met.
//!
//! A record has a number, the order in which it is inserted. Its key is a random one of twice as many as there are
//! records (so that there is room for later inserts between them), in decimal, zero-padded to the key's size. Random
//! means a permutation, not a hash: no key comes twice, and a scrambled rank keeps its exact probability.

use firn_base::seed::mix;
use firn_base::{Error, Result};
use std::io::Write;

/// The order depends on nothing but the number of records, so that a later run finds the keys of an earlier one.
const ORDER_SALT: u64 = 0x6669_726E;

/// The keys of a benchmark: their size, and how a record's number becomes one.
#[derive(Debug, Clone)]
pub struct KeySpace {
    key_bytes: usize,
    order: Permutation,
}

impl KeySpace {
    /// Keys of `key_bytes` for `records` and as many inserts.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if so short a key cannot hold the largest number.
    pub fn new(key_bytes: usize, records: u64) -> Result<Self> {
        if !(1..=1 << 40).contains(&records) {
            return Err(Error::invalid("the number of records must be 1 to 2^40"));
        }
        let keys = records * 2;
        let digits = (keys - 1).ilog10() as usize + 1;
        if !(digits..=1024).contains(&key_bytes) {
            return Err(Error::invalid(format!("the key size must be {digits} to 1024 bytes for {records} records")));
        }
        Ok(Self { key_bytes, order: Permutation::new(keys, ORDER_SALT) })
    }

    /// Writes the key of record `number` into `key`.
    pub fn write(&self, number: u64, key: &mut Vec<u8>) {
        key.clear();
        let (id, width) = (self.order.get(number), self.key_bytes);
        // A `Vec` takes everything that is written to it.
        let _never_fails = write!(key, "{id:0width$}");
        debug_assert_eq!(key.len(), width);
    }

    /// Bytes of each key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }
}

/// A pseudo-random order of 0..n: a Feistel network over the next power of four, walked until it falls below n.
#[derive(Debug, Clone)]
pub struct Permutation {
    items: u64,
    half_bits: u32,
    salt: u64,
}

impl Permutation {
    /// The order of 0..`items` that `salt` chooses.
    pub fn new(items: u64, salt: u64) -> Self {
        assert!((1..=1 << 62).contains(&items), "a permutation of nothing, or of too much");
        let bits = 64 - (items - 1).leading_zeros();
        Self { items, half_bits: bits.div_ceil(2).max(1), salt }
    }

    /// Where `index` goes.
    ///
    /// REQUIRES: `index` is below the number of items.
    pub fn get(&self, index: u64) -> u64 {
        assert!(index < self.items, "outside the permutation");
        let mut at = index;
        loop {
            at = self.round_trip(at);
            if at < self.items {
                return at;
            }
        }
    }

    fn round_trip(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4u64 {
            let scrambled = mix(right ^ self.salt.wrapping_add(round << 40)) & mask;
            (left, right) = (right, left ^ scrambled);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_comes_once() {
        for items in [1, 2, 3, 5, 64, 1000, 4097] {
            let order = Permutation::new(items, 9);
            let mut seen = vec![false; items as usize];
            for index in 0..items {
                let id = order.get(index) as usize;
                assert!(!seen[id], "{id} of {items} comes twice");
                seen[id] = true;
            }
        }
    }

    #[test]
    fn the_order_is_not_sorted() {
        let order = Permutation::new(100_000, 1);
        let rises = (1..100_000).filter(|&i| order.get(i) > order.get(i - 1)).count();
        assert!((49_000..51_000).contains(&rises), "{rises}");
    }

    #[test]
    fn keys_are_all_of_one_size_and_differ() {
        let space = KeySpace::new(16, 1000).unwrap();
        let mut keys = std::collections::BTreeSet::new();
        for number in 0..2000 {
            let mut key = Vec::new();
            space.write(number, &mut key);
            assert_eq!(key.len(), 16);
            assert!(keys.insert(key));
        }
        assert!(KeySpace::new(6, 1_000_000).is_err());
        assert!(KeySpace::new(7, 1_000_000).is_ok());
        assert!(KeySpace::new(16, 0).is_err());
    }
}
