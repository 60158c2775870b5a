//! The memory of one memtable: a region that is handed out from the front and freed as a whole.
//!
//! 1. `reserve` hands out disjoint ranges, so the holder of a [`Space`] is the only writer of its
//!    bytes.
//! 2. Bytes after a published offset never change, except atomic words ([`Arena::word32`],
//!    [`Arena::word64`]).
//! 3. Every access is bounds-checked against the region.
//!
//! Thread safety: `Sync`. A writer writes only through the `Space` it owns. A reader reads only
//! bytes that were published to it by a release store that it loaded with acquire (the skiplist's
//! links, or the queue's lock).
#![expect(
    unsafe_code,
    reason = "shared memory for a lock-free structure; listed in UNSAFE.md"
)]

use firn_base::exec::give_way;
use firn_base::sync::{AtomicUsize, Ordering, point};
use firn_fs::give_back;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

const ALIGN: usize = 64;

/// The alignment that the allocator provides by itself. It zeroes memory of any larger alignment
/// byte by byte, and so touches every page.
const ALLOCATED_ALIGN: usize = 16;

/// A region of zeroed memory.
pub(super) struct Arena {
    /// The start of the allocation.
    allocated: NonNull<u8>,
    /// The first aligned byte in it.
    base: NonNull<u8>,
    capacity: usize,
    used: AtomicUsize,
}

// SAFETY: invariants 1 and 2: shared bytes are immutable or atomic, others have one owner. Test:
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

    /// A region of `capacity` bytes (at most 4 GiB minus one line). The system provides pages as
    /// they are touched.
    pub(super) fn new(capacity: usize) -> Arena {
        assert!(
            capacity < u32::MAX as usize - ALIGN,
            "an arena is addressed by 32 bits"
        );
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(allocated) = NonNull::new(memory) else {
            handle_alloc_error(layout)
        };
        let skip = allocated.align_offset(ALIGN).min(ALIGN);
        // SAFETY: the layout has a line more than the region.
        let base = unsafe { allocated.add(skip) };
        // Offset 0 means "none" in links, so the first line is not handed out.
        Arena {
            allocated,
            base,
            capacity: layout.size() - ALIGN,
            used: AtomicUsize::new(Self::RESERVED_BYTES),
        }
    }

    /// Touches every page, so that no writer has to wait for the system to provide it.
    pub(super) fn touch(&mut self) {
        const PAGE_BYTES: usize = 4096;
        for at in (0..self.capacity).step_by(PAGE_BYTES) {
            // SAFETY: in bounds, and `&mut self` is the only way to the region. The beginning of
            // the first page is never handed out, and all other pages are still empty.
            unsafe { self.base.add(at).write_volatile(0) }
        }
    }

    /// Takes all memory back. `&mut self` proves that no reader is left.
    pub(super) fn reset(&mut self) {
        *self.used.get_mut() = Self::RESERVED_BYTES;
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

    fn layout(capacity: usize) -> Layout {
        let size = capacity.next_multiple_of(ALIGN).max(2 * ALIGN) + ALIGN;
        Layout::from_size_align(size, ALLOCATED_ALIGN).unwrap_or(Layout::new::<[u128; 12]>())
    }

    /// Hands out `bytes` (a multiple of 8); `None` if they do not fit.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Space> {
        debug_assert_eq!(bytes % 8, 0);
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let end = used
                .checked_add(bytes)
                .filter(|&end| end <= self.capacity)?;
            match self
                .used
                .compare_exchange_weak(used, end, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    return Some(Space {
                        start: used as u32,
                        end: end as u32,
                    });
                }
                Err(now) => used = now,
            }
        }
    }

    /// Bytes handed out.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
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
        // SAFETY: the region is initialized, and `&mut self` is the only remaining access to it.
        give_back(
            unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.capacity) },
            give_way,
        );
        // SAFETY: `allocated` came from `alloc_zeroed` with this layout, which is the layout of the
        // resulting capacity.
        unsafe { dealloc(self.allocated.as_ptr(), Self::layout(self.capacity)) }
    }
}
