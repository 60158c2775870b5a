//! The filter of a table: a Bloom filter in cache lines, so a probe costs one line.
//!
//! ```text
//! lines    64 bytes each
//! ```
//! A key's hash selects one line and [`PROBES`] bits in it (register-blocked Bloom filters: Putze,
//! Sanders, Singler 2007). The filter is sized for more keys than it holds if bits are reserved for
//! later appends (BlockDB, IV-D).

// Not those of the models: bits are only added, and the models of what publishes the keys would
// have too many orders.
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

const LINE_BYTES: usize = 64;
const PROBES: u32 = 6;

/// The hash used by filters. A get hashes its key once for all tables.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// A set of key hashes, immutable or growing, with false positives but no false negatives.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    lines: Box<[u8]>,
}

impl Filter {
    /// A filter with `bits_per_key` for `keys`. If `bits_per_key` is 0, an empty filter that always
    /// answers "maybe".
    pub fn with_capacity(keys: usize, bits_per_key: u32) -> Filter {
        if bits_per_key == 0 {
            return Filter::default();
        }
        let lines = (keys * bits_per_key as usize)
            .div_ceil(LINE_BYTES * 8)
            .max(1);
        Filter {
            lines: vec![0; lines * LINE_BYTES].into_boxed_slice(),
        }
    }

    /// Takes stored bytes for a filter; `None` if they are not whole lines.
    pub fn from_bytes(bytes: &[u8]) -> Option<Filter> {
        bytes.len().is_multiple_of(LINE_BYTES).then(|| Filter {
            lines: bytes.into(),
        })
    }

    /// The bytes to store, without the filter.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.lines.into_vec()
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.lines
    }

    fn line(&self, hash: u64) -> usize {
        let lines = (self.lines.len() / LINE_BYTES) as u64;
        (((hash >> 32) * lines) >> 32) as usize * LINE_BYTES
    }

    /// Adds a key by its [`hash`].
    pub fn insert(&mut self, hash: u64) {
        if self.lines.is_empty() {
            return;
        }
        let line = self.line(hash);
        for bit in probes(hash) {
            self.lines[line + bit / 8] |= 1 << (bit % 8);
        }
    }

    /// The expected share of keys, of those not among its `keys`, that it has all the same.
    pub fn false_positives(&self, keys: u64) -> f64 {
        let bits = 8.0 * self.lines.len() as f64;
        let set = 1.0 - (-f64::from(PROBES) * keys as f64 / bits.max(1.0)).exp();
        set.powi(PROBES as i32)
    }

    /// True if the key with this [`hash`] may be in the table.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        if self.lines.is_empty() {
            return true;
        }
        let line = self.line(hash);
        probes(hash).all(|bit| self.lines[line + bit / 8] & (1 << (bit % 8)) != 0)
    }
}

/// A filter that takes keys while others look into it. All bits of a key are in one word, because
/// a write then changes one, and a look reads one. Its price, twice as many false positives, is
/// small where what they cost is a search in memory.
#[derive(Debug)]
pub struct SharedFilter {
    words: Box<[AtomicU64]>,
}

impl Drop for SharedFilter {
    fn drop(&mut self) {
        firn_fs::free(std::mem::take(&mut self.words));
    }
}

impl SharedFilter {
    const PROBES: u32 = 4;

    /// An empty filter of `bytes`, in whole words.
    pub fn with_bytes(bytes: usize) -> SharedFilter {
        let words = bytes.div_ceil(8).max(1);
        SharedFilter {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        for word in &mut self.words {
            *word.get_mut() = 0;
        }
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Adds a key by its [`hash`]. Whoever learns of the key after that finds it here.
    #[inline]
    pub fn insert(&self, hash: u64) {
        let (word, bits) = self.place(hash);
        // Without a store, the cores that look share the line.
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// True if the key with this [`hash`] may have been added.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        word.load(Ordering::Relaxed) & bits == bits
    }

    /// The word of a hash, by its upper half, and the bits there, by six bits each of the lower.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let at = ((hash >> 32) * self.words.len() as u64) >> 32;
        let bits = (0..Self::PROBES).fold(0, |bits, i| bits | 1 << (hash >> (6 * i) & 63));
        (&self.words[at as usize], bits)
    }
}

/// The hashes of a table's keys while it is written. In chunks, because a single vector would be in
/// memory twice each time it grows.
#[derive(Debug, Default)]
pub(super) struct Hashes {
    chunks: Vec<Vec<u64>>,
}

impl Hashes {
    const CHUNK: usize = 8192;

    pub(super) fn push(&mut self, hash: u64) {
        match self
            .chunks
            .last_mut()
            .filter(|chunk| chunk.len() < Self::CHUNK)
        {
            Some(chunk) => chunk.push(hash),
            None => {
                // The first chunk grows, because it is never filled by most tables of tests and by
                // tables of few large entries.
                let mut chunk = Vec::with_capacity(if self.chunks.is_empty() {
                    0
                } else {
                    Self::CHUNK
                });
                chunk.push(hash);
                self.chunks.push(chunk);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.chunks
            .last()
            .map_or(0, |last| (self.chunks.len() - 1) * Self::CHUNK + last.len())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.chunks.iter().flatten().copied()
    }
}

/// The bits of a hash within its line: nine bits each, from the top of a word that is remixed per
/// probe.
#[inline]
fn probes(hash: u64) -> impl Iterator<Item = usize> {
    let mut word = hash as u32;
    (0..PROBES).map(move |_| {
        word = word.wrapping_mul(0x9E37_79B9);
        (word >> 23) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_false_no_and_few_false_yes() {
        let mut filter = Filter::with_capacity(10_000, 10);
        for i in 0..10_000u64 {
            filter.insert(hash(&i.to_be_bytes()));
        }
        assert!((0..10_000u64).all(|i| filter.may_contain(hash(&i.to_be_bytes()))));
        let wrong = (10_000..110_000u64)
            .filter(|i| filter.may_contain(hash(&i.to_be_bytes())))
            .count();
        assert!(wrong < 2_000, "{wrong} of 100,000 absent keys pass");
        let copy = Filter::from_bytes(filter.as_bytes()).unwrap();
        assert!(copy.may_contain(hash(&5u64.to_be_bytes())));
        assert!(Filter::from_bytes(&[0; 63]).is_none());
        assert!(Filter::with_capacity(10, 0).may_contain(1));
    }

    #[test]
    fn a_shared_filter_has_all_keys_that_were_added() {
        let mut filter = SharedFilter::with_bytes(10_000 * 10 / 8);
        for i in 0..10_000u64 {
            filter.insert(hash(&i.to_be_bytes()));
            assert!(filter.may_contain(hash(&(i / 2).to_be_bytes())));
        }
        let wrong = (10_000..110_000u64)
            .filter(|i| filter.may_contain(hash(&i.to_be_bytes())))
            .count();
        assert!(wrong < 3_000, "{wrong} of 100,000 absent keys pass");
        filter.clear();
        assert!((0..10_000u64).all(|i| !filter.may_contain(hash(&i.to_be_bytes()))));
        assert_eq!(SharedFilter::with_bytes(0).bytes(), 8);
    }

    #[test]
    fn hashes_come_back_in_order() {
        let mut hashes = Hashes::default();
        assert_eq!((hashes.len(), hashes.iter().count()), (0, 0));
        let all = 3 * Hashes::CHUNK as u64;
        for i in 0..all {
            hashes.push(i);
            assert_eq!(hashes.len() as u64, i + 1);
        }
        assert!(hashes.iter().eq(0..all));
        assert!(
            hashes
                .chunks
                .iter()
                .all(|chunk| chunk.capacity() == Hashes::CHUNK),
            "none twice"
        );
    }
}
