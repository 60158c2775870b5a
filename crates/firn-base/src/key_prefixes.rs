//! The first bytes of many sorted keys, side by side. A search scans one dense array of words and
//! compares whole keys only where the words are equal. (Poor man's normalized keys: Graefe and
//! Larson, "B-Tree Indexes and CPU Caches", ICDE 2001.)
//!
//! 1. Every key starts with `prefix`.
//! 2. Word `i` is the eight bytes of key `i` after `prefix` as a big-endian number, padded with
//!    zeros. So words ascend, and a smaller word means a smaller key.

use crate::key::shared_prefix_len;
use std::cmp::Ordering;
use std::ops::Range;

/// The key prefixes of a sorted list of keys.
#[derive(Debug, Clone, Default)]
pub struct KeyPrefixes {
    prefix: Box<[u8]>,
    words: Box<[u64]>,
}

impl KeyPrefixes {
    /// Builds the words of `count` keys in ascending order. `key(i)` returns key `i`.
    pub fn new<'a>(count: usize, key: impl Fn(usize) -> &'a [u8]) -> Self {
        let Some(last) = count.checked_sub(1) else {
            return Self::default();
        };
        let shared = shared_prefix_len(key(0), key(last));
        let words = (0..count)
            .map(|i| word(key(i).get(shared..).unwrap_or_default()))
            .collect();
        Self {
            prefix: key(0)[..shared].into(),
            words,
        }
    }

    /// The key prefixes of keys that all begin with `prefix` and have these words behind it.
    pub fn of_words(prefix: Vec<u8>, words: Vec<u64>) -> Self {
        Self {
            prefix: prefix.into(),
            words: words.into(),
        }
    }

    /// The prefix of every key.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The word of key `index`: its bytes after the prefix, and zeros.
    pub fn word(&self, index: usize) -> [u8; WORD_BYTES] {
        self.words[index].to_be_bytes()
    }

    /// Like [`KeyPrefixes::new`], reusing the words of `self` for all keys outside `fresh`. Those
    /// keys are the first `fresh.start` and the last `count - fresh.end` keys of `self`.
    pub fn spliced<'a>(
        &self,
        count: usize,
        fresh: Range<usize>,
        key: impl Fn(usize) -> &'a [u8],
    ) -> Self {
        let Some(last) = count.checked_sub(1) else {
            return Self::default();
        };
        let shared = shared_prefix_len(key(0), key(last));
        if key(0)[..shared] != *self.prefix {
            return Self::new(count, key);
        }
        let (front, back) = (
            &self.words[..fresh.start],
            &self.words[self.words.len() - (count - fresh.end)..],
        );
        let fresh = fresh.map(|i| word(key(i).get(shared..).unwrap_or_default()));
        let words = front
            .iter()
            .copied()
            .chain(fresh)
            .chain(back.iter().copied())
            .collect();
        Self {
            prefix: self.prefix.clone(),
            words,
        }
    }

    /// The range of keys that a search must compare whole. All keys before it are less than
    /// `wanted`, all keys after it are greater.
    #[inline]
    pub fn narrow(&self, wanted: &[u8]) -> Range<usize> {
        let (head, rest) = wanted
            .split_at_checked(self.prefix.len())
            .unwrap_or((wanted, &[]));
        match head.cmp(&self.prefix) {
            Ordering::Less => 0..0,
            Ordering::Greater => self.words.len()..self.words.len(),
            Ordering::Equal => {
                let wanted = word(rest);
                let from = self.words.partition_point(|&word| word < wanted);
                // Almost always at most one key has the same word.
                let same = self.words[from..]
                    .iter()
                    .take_while(|&&word| word == wanted)
                    .take(LINEAR)
                    .count();
                let to = match same {
                    LINEAR => from + self.words[from..].partition_point(|&word| word == wanted),
                    same => from + same,
                };
                from..to
            }
        }
    }

    /// The index of the first key that is not less than `wanted`. `key(i)` returns key `i`.
    #[inline]
    pub fn first_not_below<'a>(&self, wanted: &[u8], key: impl Fn(usize) -> &'a [u8]) -> usize {
        self.first_not(wanted, |index| key(index) < wanted)
    }

    /// Like [`KeyPrefixes::first_not_below`]. `is_below(i)` says whether key `i` is less than
    /// `wanted`.
    #[inline]
    pub fn first_not(&self, wanted: &[u8], is_below: impl Fn(usize) -> bool) -> usize {
        let Range { mut start, mut end } = self.narrow(wanted);
        while start < end {
            let middle = start + (end - start) / 2;
            if is_below(middle) {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }

    /// Memory held, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.prefix.len() + size_of_val(&*self.words)
    }
}

/// The number of equal words up to which the scan is linear.
const LINEAR: usize = 4;

/// The bytes of a key in its word.
pub const WORD_BYTES: usize = size_of::<u64>();

/// The word of a key whose bytes after the prefix are `bytes`.
#[inline]
pub fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<WORD_BYTES>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; WORD_BYTES];
            chunk[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(chunk)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn finds_what_a_plain_search_finds() {
        let mut seed = Seed::new(5);
        for round in 0..300u64 {
            let prefix: Vec<u8> = vec![b'p'; (round % 5) as usize * 3];
            let mut random_key = || {
                let mut key = prefix.clone();
                // Few letters, zeros among them, and lengths around one word give many equal words.
                (0..seed.below(12))
                    .for_each(|_| key.push([0, 1, b'x', 255][seed.below(4) as usize]));
                key
            };
            let mut keys: Vec<Vec<u8>> = (0..round % 40).map(|_| random_key()).collect();
            keys.sort();
            let heads = KeyPrefixes::new(keys.len(), |i| &keys[i]);
            let mut wanted: Vec<Vec<u8>> = (0..50).map(|_| random_key()).collect();
            wanted.extend([
                vec![],
                prefix.clone(),
                vec![b'o'],
                vec![b'q'],
                vec![b'p'; 2],
            ]);
            wanted.extend(keys.iter().cloned());
            for wanted in wanted {
                let expected = keys.partition_point(|key| *key < wanted);
                assert_eq!(
                    heads.first_not_below(&wanted, |i| &keys[i]),
                    expected,
                    "{wanted:?} in {keys:?}"
                );
            }
        }
    }

    #[test]
    fn spliced_heads_are_those_made_anew() {
        let mut seed = Seed::new(9);
        for _ in 0..2000 {
            let mut random_key = || {
                let mut key = b"pp"[..1 + seed.below(2) as usize].to_vec();
                (0..seed.below(4))
                    .for_each(|_| key.push([b'a', b'b', b'z'][seed.below(3) as usize]));
                key
            };
            let mut sorted = |count: usize| {
                let mut keys: Vec<Vec<u8>> = (0..count).map(|_| random_key()).collect();
                keys.sort();
                keys
            };
            let (old, new) = (sorted(7), sorted(5));
            for (from, to) in [(0usize, 3), (2, 2), (2, 5), (3, 7), (0, 7), (0, 0), (7, 7)] {
                // Any keys that fit the middle without breaking the order.
                let within = new.iter().filter(|key| {
                    from.checked_sub(1).is_none_or(|i| old[i] <= **key)
                        && old.get(to).is_none_or(|old| **key <= *old)
                });
                let fresh: Vec<Vec<u8>> = within.cloned().collect();
                let keys: Vec<&Vec<u8>> =
                    old[..from].iter().chain(&fresh).chain(&old[to..]).collect();
                let before = KeyPrefixes::new(old.len(), |i| &old[i]);
                let spliced = before.spliced(keys.len(), from..from + fresh.len(), |i| keys[i]);
                let anew = KeyPrefixes::new(keys.len(), |i| keys[i]);
                assert_eq!(
                    (&spliced.prefix, &spliced.words),
                    (&anew.prefix, &anew.words),
                    "{old:?} to {keys:?}"
                );
            }
        }
    }
}
