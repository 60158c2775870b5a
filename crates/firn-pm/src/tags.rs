//! The owner of each granule, and its frozen bit: one byte per granule, read by every verb without
//! a lock.
//!
//! 1. 0 is free. Otherwise it is the owner's number, with the top bit set while the extent is
//!    frozen.
//! 2. The table only grows, by chunks that double in size and never move.
//! 3. Tags change under the extent map's lock. A verb reads them relaxed: its caller owns the
//!    extent, so the allocation that set the tags happened before.

use crate::layout::GRANULE_BYTES;
use crate::owner::Owner;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

const FIRST_CHUNK: u64 = 64;
const CHUNKS: usize = 40;
const FROZEN: u8 = 0x80;

#[derive(Debug)]
pub(crate) struct Tags {
    chunks: [OnceLock<Box<[AtomicU8]>>; CHUNKS],
}

/// The combined tags of a range of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeTag {
    /// The owner's number of the first granule; 0 if it is free.
    pub(crate) owner: u8,
    /// True if some granule of the range is free.
    pub(crate) has_free: bool,
    /// True if some granule of the range is frozen.
    pub(crate) has_frozen: bool,
}

fn locate(granule: u64) -> (usize, usize) {
    let chunk = (granule / FIRST_CHUNK + 1).ilog2() as usize;
    let start = ((1u64 << chunk) - 1) * FIRST_CHUNK;
    (chunk, (granule - start) as usize)
}

impl Tags {
    pub(crate) fn new() -> Self {
        Self {
            chunks: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    fn tag(&self, granule: u64) -> u8 {
        let (chunk, index) = locate(granule);
        let chunk = self.chunks.get(chunk).and_then(OnceLock::get);
        chunk
            .and_then(|chunk| chunk.get(index))
            .map_or(0, |tag| tag.load(Ordering::Relaxed))
    }

    /// Sets the tag of every granule of a range. `None` makes them free.
    pub(crate) fn set(&self, offset: u64, len: u64, owner: Option<Owner>, frozen: bool) {
        let tag = owner.map_or(0, |owner| owner as u8 | if frozen { FROZEN } else { 0 });
        for granule in offset / GRANULE_BYTES..(offset + len) / GRANULE_BYTES {
            let (chunk, index) = locate(granule);
            let len = FIRST_CHUNK as usize * (1 << chunk);
            let make = || {
                std::iter::repeat_with(AtomicU8::default)
                    .take(len)
                    .collect()
            };
            self.chunks[chunk].get_or_init(make)[index].store(tag, Ordering::Relaxed);
        }
    }

    /// The combined tags of the `len` bytes at `offset`. An empty range counts as its first
    /// granule.
    #[inline]
    pub(crate) fn range(&self, offset: u64, len: u64) -> RangeTag {
        let first = offset / GRANULE_BYTES;
        let last = offset.saturating_add(len.max(1) - 1) / GRANULE_BYTES;
        let tag = self.tag(first);
        let mut range = RangeTag {
            owner: tag & !FROZEN,
            has_free: tag == 0,
            has_frozen: tag & FROZEN != 0,
        };
        for granule in first + 1..=last {
            let tag = self.tag(granule);
            range.has_free |= tag == 0;
            range.has_frozen |= tag & FROZEN != 0;
        }
        range
    }

    /// The owner's number at `offset`; 0 if it is free.
    #[inline]
    pub(crate) fn owner_at(&self, offset: u64) -> u8 {
        self.tag(offset / GRANULE_BYTES) & !FROZEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_have_places_of_their_own() {
        let mut expected = (0, 0);
        for granule in 0..10_000 {
            assert_eq!(locate(granule), expected);
            expected.1 += 1;
            if expected.1 == FIRST_CHUNK as usize * (1 << expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn a_range_sees_its_worst_granule() {
        let tags = Tags::new();
        tags.set(0, 8192, Some(Owner::Btree), false);
        tags.set(8192, 4096, Some(Owner::Table), true);
        assert_eq!(
            tags.range(0, 8192),
            RangeTag {
                owner: 3,
                has_free: false,
                has_frozen: false
            }
        );
        assert_eq!(
            tags.range(8191, 2),
            RangeTag {
                owner: 3,
                has_free: false,
                has_frozen: true
            }
        );
        assert_eq!(
            tags.range(12287, 2),
            RangeTag {
                owner: 5,
                has_free: true,
                has_frozen: true
            }
        );
        assert_eq!(tags.owner_at(8192), 5);
        tags.set(8192, 4096, None, false);
        assert_eq!(tags.owner_at(8192), 0);
        assert_eq!(tags.owner_at(u64::MAX), 0);
    }
}
