//! Whether gets leave their entry or its whole block in the cache, from what a sample of blocks shows.
//!
//! Who reads keys that lie together wants blocks, who reads keys from all over wants entries: several times more of
//! them fit into the same memory. Gets leave entries, but for one block in [`SAMPLE`], which is left whole, and it is
//! noted what else it is good for:
//!
//! ```text
//! the entry it was read for was found again          + 2 (block / entry - 1)   so many others would have fitted there
//! another of its entries was found, or by a cursor   - 1
//! ```
//! Each is counted once, and only while the block is young. The sum, which forgets old observations, says which serves
//! more reads per byte of memory: below 0 blocks do. The 2 is for blocks that stay, for one hot entry, until each of
//! the others is found once too. Without it, or with a sum for each table, a tenth more of a zipfian reader's reads
//! miss, and who reads what was written last gains nothing (docs/perf.md).

use firn_base::seed::mix;
use firn_base::sync::{AtomicI64, Ordering};

/// One block in so many is observed.
const SAMPLE: u64 = 64;
/// How many observations count, about.
const MEMORY: i64 = 256;
/// The sum is in parts of so many.
const ONE: i64 = 1024;

/// What was observed.
#[derive(Debug, Default)]
pub(crate) struct Locality(AtomicI64);

impl Locality {
    /// Whether blocks served more gets per byte than entries would have.
    #[inline]
    pub(crate) fn prefers_blocks(&self) -> bool {
        self.0.load(Ordering::Relaxed) < 0
    }

    /// Whether the block at `offset` of `file` is one of the sample.
    #[inline]
    pub(crate) fn is_sampled(file: u64, offset: u64) -> bool {
        mix(file ^ mix(offset)).is_multiple_of(SAMPLE)
    }

    /// The entry that a block was read for was found again; in the cache they cost so many bytes.
    pub(crate) fn found_again(&self, block: u64, entry: u64) {
        self.add(2 * ONE * block.saturating_sub(entry) as i64 / entry.max(1) as i64);
    }

    /// Another entry of a block was found, or a cursor came through.
    pub(crate) fn found_another(&self) {
        self.add(-ONE);
    }

    fn add(&self, parts: i64) {
        let next = |sum: i64| Some(sum - sum / MEMORY + parts);
        let _before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_neighbours_gets_blocks() {
        let locality = Locality::default();
        assert!(!locality.prefers_blocks(), "nothing was seen yet");
        (0..10_000).for_each(|_| locality.found_again(4288, 1286));
        (0..100).for_each(|_| locality.found_another());
        assert!(!locality.prefers_blocks());
        (0..600).for_each(|_| locality.found_another());
        assert!(locality.prefers_blocks(), "what was seen long ago counts no more");
        (0..300).for_each(|_| locality.found_again(4288, 1286));
        assert!(!locality.prefers_blocks());
    }

    #[test]
    fn about_one_block_in_sixty_four_is_sampled() {
        let sampled = (0..64_000).filter(|i| Locality::is_sampled(7, i * 4096)).count();
        assert!((900..1100).contains(&sampled), "{sampled}");
    }
}
