//! The memory of one memtable: a region that is handed out from the front and freed as a whole.
//!
//! A region is address space. What of it was claimed, from the front as well, is memory that the
//! owner has counted. So a memtable costs what its entries need, and not what they may need.
//!
//! 1. `reserve` hands out disjoint ranges of what was claimed, so the holder of a [`Space`] is the
//!    only writer of its bytes.
//! 2. Nobody has access to what was not claimed. It is claimed, and given back, by one thread at a
//!    time.
//! 3. Bytes after a published offset never change, except atomic words ([`Arena::word32`],
//!    [`Arena::word64`]).
//! 4. Every access is bounds-checked against the region.
//!
//! Thread safety: `Sync`. A writer writes only through the `Space` it owns. A reader reads only
//! bytes that were published to it by a release store that it loaded with acquire (the skiplist's
//! links, or the queue's lock).
#![expect(
    unsafe_code,
    reason = "shared memory for a lock-free structure; listed in UNSAFE.md"
)]

use firn_base::exec::give_way;
use firn_base::sync::{AtomicU64 as SharedU64, Mutex, Ordering, point};
use firn_fs::{Pages, give_back};
use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

const ALIGN: usize = 64;

/// The bytes that are claimed at a time: few for a model, so that it does so often.
const CLAIM_BYTES: usize = if cfg!(shuttle) { 64 } else { 256 << 10 };
/// The bytes that are given back at a time, because a writer may wait meanwhile.
const GIVE_BACK_BYTES: usize = 4 << 20;

/// A region of zeroed memory.
pub(super) struct Arena {
    /// The start of `pages`.
    base: NonNull<u8>,
    capacity: usize,
    pages: Pages,
    marks: SharedU64,
    /// Held while memory is claimed or given back.
    claiming: Mutex<()>,
}

/// How far a region was handed out, and how far it was claimed. One word, so that nothing is handed
/// out of what is given back.
#[derive(Debug, Clone, Copy)]
struct Marks {
    used: usize,
    claimed: usize,
}

impl Marks {
    fn of(word: u64) -> Marks {
        Marks {
            used: word as u32 as usize,
            claimed: (word >> 32) as usize,
        }
    }

    fn word(self) -> u64 {
        (self.claimed as u64) << 32 | self.used as u64
    }
}

// SAFETY: invariants 1 and 3: shared bytes are immutable or atomic, others have one owner. Test:
// `tests::concurrent`.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// A range that only its holder may write. Not `Clone`.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Arena {
    /// Bytes at the start that are never handed out.
    pub(super) const RESERVED_BYTES: usize = ALIGN;

    /// A region of `capacity` bytes (at most 4 GiB minus one line), all of it claimed. The system
    /// provides pages as they are touched.
    pub(super) fn new(capacity: usize) -> Arena {
        let mut arena = Self::unclaimed(capacity, 0);
        let all = Marks {
            claimed: arena.capacity,
            ..arena.marks()
        };
        *arena.marks.get_mut() = all.word();
        arena
    }

    /// As [`Arena::new`], with no more than `claimed` bytes claimed.
    pub(super) fn unclaimed(capacity: usize, claimed: usize) -> Arena {
        assert!(
            capacity < u32::MAX as usize - ALIGN,
            "an arena is addressed by 32 bits"
        );
        let capacity = capacity.next_multiple_of(ALIGN).max(2 * ALIGN);
        let Some(pages) = Pages::new(capacity) else {
            handle_alloc_error(Layout::array::<u8>(capacity).unwrap_or(Layout::new::<u8>()))
        };
        // Offset 0 means "none" in links, so the first line is not handed out.
        let marks = Marks {
            used: Self::RESERVED_BYTES,
            claimed: claimed.clamp(Self::RESERVED_BYTES, capacity),
        };
        Arena {
            base: pages.base(),
            capacity,
            pages,
            marks: SharedU64::new(marks.word()),
            claiming: Mutex::new(()),
        }
    }

    fn marks(&self) -> Marks {
        Marks::of(self.marks.load(Ordering::Relaxed))
    }

    /// Replaces the marks by what `next` makes of them. Returns those before, or those at which
    /// `next` returned `None`. Whoever is handed out what was claimed comes after the claim.
    fn change(&self, next: impl Fn(Marks) -> Option<Marks>) -> Result<Marks, Marks> {
        let to_word = |word| next(Marks::of(word)).map(Marks::word);
        let changed = self
            .marks
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, to_word);
        changed.map(Marks::of).map_err(Marks::of)
    }

    /// Claims memory until `bytes` more can be handed out, and some beyond. Calls `claim` with the
    /// number of bytes before they are used. False if the region has no room for them.
    pub(super) fn grow(&self, bytes: usize, claim: impl FnOnce(usize)) -> bool {
        let _one_by_one = self.claiming.lock();
        let Marks { used, claimed } = self.marks();
        let Some(wanted) = used.checked_add(bytes).filter(|&end| end <= self.capacity) else {
            return false;
        };
        if wanted > claimed {
            let end = wanted.next_multiple_of(CLAIM_BYTES).min(self.capacity);
            claim(end - claimed);
            let raised = self.change(|marks| {
                Some(Marks {
                    claimed: end,
                    ..marks
                })
            });
            debug_assert!(raised.is_ok_and(|before| before.claimed == claimed));
        }
        true
    }

    /// Returns to the system what was claimed and not handed out, and the number of bytes that are
    /// not claimed any more.
    pub(super) fn give_back(&self) -> usize {
        let pieces = std::iter::from_fn(|| {
            give_way();
            self.give_back_piece()
        });
        pieces.sum()
    }

    /// Returns the last piece that was claimed and not handed out. `None` if there is none.
    fn give_back_piece(&self) -> Option<usize> {
        let _one_by_one = self.claiming.lock();
        let lower = |marks: Marks| {
            let least = marks.used.next_multiple_of(CLAIM_BYTES);
            let claimed = least.max(marks.claimed.saturating_sub(GIVE_BACK_BYTES));
            (claimed < marks.claimed).then_some(Marks { claimed, ..marks })
        };
        let before = self.change(lower).ok()?;
        let start = lower(before)?.claimed;
        let bytes = before.claimed - start;
        // SAFETY: in bounds. Invariant 2: nobody has access to these bytes, and nobody gets it
        // while the lock is held.
        let freed = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(start), bytes) };
        match cfg!(shuttle) {
            // No page is as small as a model's memory, which must not keep what a page would lose.
            true => freed.fill(0),
            false => give_back(freed, || ()),
        }
        Some(bytes)
    }

    /// Takes back all that was handed out. `&mut self` proves that no reader is left.
    pub(super) fn reset(&mut self) {
        let empty = Marks {
            used: Self::RESERVED_BYTES,
            ..self.marks()
        };
        *self.marks.get_mut() = empty.word();
    }

    /// Zeroes `space`.
    pub(super) fn zero(&self, space: &Space) {
        const ZEROS: [u8; ALIGN] = [0; ALIGN];
        for at in (space.start..space.end).step_by(ALIGN) {
            self.write(
                space,
                at as usize,
                &ZEROS[..ALIGN.min((space.end - at) as usize)],
            );
        }
    }

    /// Hands out `bytes` (a multiple of 8); `None` if as many are not claimed.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Space> {
        debug_assert_eq!(bytes % 8, 0);
        let end = |marks: Marks| marks.used.checked_add(bytes);
        let next = |marks: Marks| {
            let used = end(marks).filter(|&end| end <= marks.claimed)?;
            Some(Marks { used, ..marks })
        };
        let before = self.change(next).ok()?;
        Some(Space {
            start: before.used as u32,
            end: (before.used + bytes) as u32,
        })
    }

    /// Bytes handed out.
    pub(super) fn used(&self) -> usize {
        self.marks().used
    }

    /// Bytes that were claimed.
    pub(super) fn claimed(&self) -> usize {
        self.marks().claimed
    }

    /// Total bytes.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    fn check(&self, at: usize, len: usize) {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= self.capacity),
            "offset outside the arena"
        );
    }

    /// Writes `bytes` at `at`, within `space`.
    #[inline]
    pub(super) fn write(&self, space: &Space, at: usize, bytes: &[u8]) {
        assert!(
            at >= space.start as usize && at + bytes.len() <= space.end as usize,
            "a write outside its space"
        );
        self.check(at, bytes.len());
        // SAFETY: in bounds (above), and invariant 1: no other thread reads or writes these bytes
        // before they are published.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(at), bytes.len())
        }
    }

    /// The `len` bytes at `at`. REQUIRES: they were published to this thread (invariant 2).
    #[inline]
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        self.check(at, len);
        // SAFETY: in bounds; invariant 2: published bytes do not change while the arena lives.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// The atomic 32-bit word at `at`, for one access.
    #[inline]
    pub(super) fn word32(&self, at: usize) -> &AtomicU32 {
        point();
        self.check(at, 4);
        assert_eq!(at % 4, 0);
        // SAFETY: in bounds and aligned (the base is); these words are accessed only as atomics
        // once published.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The atomic 64-bit word at `at`, for one access.
    #[inline]
    pub(super) fn word64(&self, at: usize) -> &AtomicU64 {
        point();
        self.check(at, 8);
        assert_eq!(at % 8, 0);
        // SAFETY: as for `word32`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: all of `pages`, and `&mut self` is the only remaining access to it.
        let all = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.pages.bytes()) };
        give_back(all, give_way);
    }
}
