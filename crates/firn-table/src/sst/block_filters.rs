//! The filters of a table's blocks: a small Bloom filter for each, so that whoever has a block's
//! bounds and its filter knows nearly always whether to read it, without the rest of the table.
//!
//! ```text
//! filters  blocks: u32 | end: u32 ... | filter ...
//! ```
//! 1. A block's filter has every key of the block, also one whose versions began in the block
//!    before.
//! 2. `end` is where the block's filter ends, from the first filter on. Ends do not descend.
//! 3. An empty filter answers "maybe".
//!
//! [`PROBES`] bits are set for a key, at any number of bits per key: 8 is best at 12 bits, and its
//! false positives are within a third of the best from 9 bits to 16.

use firn_base::coding::{Reader, get_u32};

const PROBES: u32 = 8;
/// The most bits of a filter per key.
pub(super) const BITS_MAX: u32 = 64;

/// The expected share of keys that a filter with `bits` for each of its keys has although its block
/// has not; `None` if there is no filter.
pub fn false_positives(bits: u32) -> Option<f64> {
    let set = 1.0 - (-f64::from(PROBES) / f64::from(bits)).exp();
    (bits > 0).then(|| set.powi(PROBES as i32))
}

/// True if the filter may have the key with this [`super::hash`].
#[inline]
pub fn may_contain(filter: &[u8], hash: u64) -> bool {
    filter.is_empty() || probes(hash, filter.len()).all(|bit| filter[bit / 8] & 1 << (bit % 8) != 0)
}

/// The bits of a hash in a filter of `bytes`: the top of a word that is remixed per probe, scaled
/// to the number of bits.
#[inline]
fn probes(hash: u64, bytes: usize) -> impl Iterator<Item = usize> {
    let bits = bytes as u64 * 8;
    let mut word = hash;
    (0..PROBES).map(move |_| {
        word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(word) * u128::from(bits)) >> 64) as usize
    })
}

/// The filter of the keys with these hashes.
pub fn block_filter(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put_filter(hashes, bits_per_key.min(BITS_MAX), &mut out);
    out
}

/// Appends the filter of the keys with these hashes to `out`.
fn put_filter(hashes: &[u64], bits_per_key: u32, out: &mut Vec<u8>) {
    let bits = hashes.len() * bits_per_key as usize;
    let (start, bytes) = (out.len(), bits.div_ceil(8));
    out.resize(start + bytes, 0);
    let filter = &mut out[start..];
    for bit in hashes.iter().flat_map(|hash| probes(*hash, bytes)) {
        filter[bit / 8] |= 1 << (bit % 8);
    }
}

/// Builds the filters of a table, block by block.
#[derive(Debug, Default)]
pub(super) struct BlockFiltersBuilder {
    bits_per_key: u32,
    /// The hashes of the keys of the block that is being filled.
    hashes: Vec<u64>,
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl BlockFiltersBuilder {
    pub(super) fn new(bits_per_key: u32) -> BlockFiltersBuilder {
        BlockFiltersBuilder {
            bits_per_key: bits_per_key.min(BITS_MAX),
            ..BlockFiltersBuilder::default()
        }
    }

    /// Adds a key of the block.
    pub(super) fn push(&mut self, hash: u64) {
        self.hashes.push(hash);
    }

    /// Ends the block.
    pub(super) fn end_block(&mut self) {
        put_filter(&self.hashes, self.bits_per_key, &mut self.bytes);
        self.hashes.clear();
        self.ends.push(self.bytes.len() as u32);
    }

    /// The bytes of memory that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * 4 + self.hashes.len() * 8
    }

    /// The section's bytes.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut out = (self.ends.len() as u32).to_le_bytes().to_vec();
        for end in &self.ends {
            out.extend_from_slice(&end.to_le_bytes());
        }
        out.extend_from_slice(&self.bytes);
        out
    }
}

/// The filters of a table's blocks.
#[derive(Debug)]
pub(super) struct BlockFilters {
    /// The end of each block's filter in `bytes`.
    ends: Box<[u32]>,
    bytes: Box<[u8]>,
}

impl BlockFilters {
    /// Takes the bytes of a section for the filters of `blocks` blocks; `None` if they are not.
    pub(super) fn decode(bytes: &[u8], blocks: usize) -> Option<BlockFilters> {
        let mut reader = Reader::new(bytes);
        let count = reader.u32()? as usize;
        let ends = reader.take(count.checked_mul(4)?)?;
        let ends: Box<[u32]> = (0..count).filter_map(|i| get_u32(ends, 4 * i)).collect();
        let rest = reader.remaining();
        let last = ends.last().map_or(0, |end| *end as usize);
        (count == blocks && last == rest && ends.is_sorted()).then(|| BlockFilters {
            bytes: bytes[bytes.len() - rest..].into(),
            ends,
        })
    }

    /// The filter of a block.
    pub(super) fn get(&self, block: usize) -> &[u8] {
        let start = block.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[block] as usize]
    }

    /// The bytes of memory that it holds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash;
    use super::*;

    /// The share of absent keys that pass filters of blocks of `keys` keys.
    fn wrong(keys: u64, bits: u32) -> f64 {
        const BLOCKS: u64 = 1_000;
        const ABSENT: u64 = 200;
        let of = |number: u64| hash(&number.to_be_bytes());
        let mut builder = BlockFiltersBuilder::new(bits);
        for block in 0..BLOCKS {
            (0..keys).for_each(|key| builder.push(of(block * keys + key)));
            builder.end_block();
        }
        let section = builder.finish();
        let filters = BlockFilters::decode(&section, BLOCKS as usize).unwrap();
        let mut passed = 0;
        for block in 0..BLOCKS {
            let filter = filters.get(block as usize);
            assert_eq!(filter.len() as u64, (keys * u64::from(bits)).div_ceil(8));
            assert!((0..keys).all(|key| may_contain(filter, of(block * keys + key))));
            let absent = (0..ABSENT).map(|n| of((1 << 40) + block * ABSENT + n));
            passed += absent.filter(|hash| may_contain(filter, *hash)).count();
        }
        passed as f64 / (BLOCKS * ABSENT) as f64
    }

    #[test]
    fn small_filters_have_no_false_no_and_few_false_yes() {
        for keys in [1, 2, 3, 4, 5, 8, 28, 300] {
            let wrong = wrong(keys, 14);
            assert!(wrong < 0.005, "{wrong} at {keys} keys a block");
        }
        assert!(wrong(4, 10) < 0.02 && wrong(40, 10) < 0.012);
        assert!(may_contain(&[], 7), "no filter excludes nothing");
    }

    #[test]
    fn other_bytes_are_refused() {
        let mut builder = BlockFiltersBuilder::new(14);
        for block in 0..5 {
            (0..block).for_each(|key| builder.push(hash(&[key])));
            builder.end_block();
        }
        let section = builder.finish();
        let filters = BlockFilters::decode(&section, 5).unwrap();
        assert_eq!((filters.get(0), filters.get(1).len()), (&[][..], 2));
        assert!(BlockFilters::decode(&section, 4).is_none());
        for cut in 0..section.len() {
            assert!(BlockFilters::decode(&section[..cut], 5).is_none());
        }
        let mut longer = section.clone();
        longer.push(0);
        assert!(BlockFilters::decode(&longer, 5).is_none());
        let mut descends = section;
        descends[4] = 9;
        assert!(BlockFilters::decode(&descends, 5).is_none());
    }
}
