//! Decides whether gets insert single entries or whole blocks into the cache, by observing a sample
//! of blocks.
//!
//! A reader of neighbouring keys benefits from blocks. A reader of scattered keys benefits from
//! entries, because several times more of them fit into the same memory. Gets insert entries,
//! except for one block in [`SAMPLE`], which is inserted whole. Its further use is then observed:
//!
//! ```text
//! the entry it was read for was found again          + 2 (block / entry - 1)
//! another of its entries was found, or by a cursor   - 1
//! ```
//! Here `block / entry - 1` is the number of other entries that would have fitted. Each is counted
//! once, and only while the block is young. The sum, which forgets old observations, tells which
//! one serves more reads per byte of memory: below 0, blocks do. The factor 2 is for blocks that
//! one hot entry keeps cached until each of the others is found once too. Without it, or with a sum
//! for each table, a tenth more of the reads of a zipfian reader miss, and a reader of recent
//! writes gains nothing (docs/decisions.md).

use firn_base::FileId;
use firn_base::seed::mix;
use firn_base::sync::{AtomicI64, Mutex, Ordering};
use std::collections::HashMap;

/// One block in this many is observed.
const SAMPLE: u64 = 64;
/// The approximate number of observations that count.
const MEMORY: i64 = 256;
/// The unit of the sum.
const ONE: i64 = 1024;

/// The blocks that are observed at a time. Those that are no longer young make room.
const OBSERVED_MAX: usize = 4096;

/// The observations.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    sum: AtomicI64,
    observed: Mutex<HashMap<(FileId, u64), Observed>>,
}

/// A block under observation.
#[derive(Debug)]
struct Observed {
    read_for: u64,
    /// The age of the cache when it was read.
    since: u64,
    /// A bit for each other entry that was found, one for the entry it was read for, and one for
    /// cursors.
    found: u64,
}

const READ_FOR: u64 = 1 << 62;
const BY_CURSOR: u64 = 1 << 63;

impl Observed {
    /// True if it was read recently: at most one unit of age ago.
    fn is_young(&self, age: u64) -> bool {
        age.saturating_sub(self.since) <= 1
    }

    /// Sets a bit. True if it was not set.
    fn is_first(&mut self, bit: u64) -> bool {
        let is_first = self.found & bit == 0;
        self.found |= bit;
        is_first
    }
}

impl Admission {
    /// True if blocks served more gets per byte than entries would have.
    #[inline]
    pub(crate) fn prefers_blocks(&self) -> bool {
        self.sum.load(Ordering::Relaxed) < 0
    }

    /// True if the block at `offset` of `file` belongs to the sample.
    #[inline]
    pub(crate) fn is_sampled(file: FileId, offset: u64) -> bool {
        mix(file.0 ^ mix(offset)).is_multiple_of(SAMPLE)
    }

    /// Begins to observe a block of the sample, which was read for the key with this hash when the
    /// cache was `age` old.
    pub(crate) fn began(&self, file: FileId, offset: u64, hash: u64, age: u64) {
        let block = Observed {
            read_for: hash,
            since: age,
            found: 0,
        };
        let mut observed = self.observed.lock();
        if observed.len() >= OBSERVED_MAX {
            observed.retain(|_, block| block.is_young(age));
        }
        if observed.len() < OBSERVED_MAX {
            observed.insert((file, offset), block);
        }
    }

    /// Records that a get found the entry with this hash in a block of the sample. `block` and
    /// `entry` are their costs in the cache, in bytes.
    pub(crate) fn found(&self, at: (FileId, u64), hash: u64, age: u64, block: u64, entry: u64) {
        let mut observed = self.observed.lock();
        let young = observed.get_mut(&at).filter(|block| block.is_young(age));
        let Some(seen) = young else { return };
        if seen.read_for != hash {
            if seen.is_first(1 << (hash % 62)) {
                self.found_another();
            }
        } else if seen.is_first(READ_FOR) {
            self.found_again(block, entry);
        }
    }

    /// Records that a cursor reached a block.
    #[inline]
    pub(crate) fn reached(&self, file: FileId, offset: u64, age: u64) {
        if Self::is_sampled(file, offset) {
            let mut observed = self.observed.lock();
            let block = observed.get_mut(&(file, offset));
            if block.is_some_and(|block| block.is_young(age) && block.is_first(BY_CURSOR)) {
                self.found_another();
            }
        }
    }

    fn found_again(&self, block: u64, entry: u64) {
        self.add(2 * ONE * block.saturating_sub(entry) as i64 / entry.max(1) as i64);
    }

    fn found_another(&self) {
        self.add(-ONE);
    }

    fn add(&self, parts: i64) {
        let next = |sum: i64| Some(sum - sum / MEMORY + parts);
        let _before = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_neighbours_gets_blocks() {
        let admission = Admission::default();
        assert!(!admission.prefers_blocks(), "nothing was seen yet");
        (0..10_000).for_each(|_| admission.found_again(4288, 1286));
        (0..100).for_each(|_| admission.found_another());
        assert!(!admission.prefers_blocks());
        (0..600).for_each(|_| admission.found_another());
        assert!(
            admission.prefers_blocks(),
            "what was seen long ago counts no more"
        );
        (0..300).for_each(|_| admission.found_again(4288, 1286));
        assert!(!admission.prefers_blocks());
    }

    #[test]
    fn about_one_block_in_sixty_four_is_sampled() {
        let sampled = (0..64_000)
            .filter(|i| Admission::is_sampled(FileId(7), i * 4096))
            .count();
        assert!((900..1100).contains(&sampled), "{sampled}");
    }
}
