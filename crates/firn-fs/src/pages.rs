//! Pages of large memory: takes them from the system without the allocator, asks for large ones,
//! and returns them, piece by piece, before the memory is freed.
//!
//! Freeing alone is not enough. Allocators keep pieces of up to some 32 MB for later requests, per
//! thread, so the memory limit would be about half of what the system counts as resident. In
//! addition, unmapping a region of 64 MB at once keeps its core in the kernel for 40 ms, together
//! with every thread that waits for that core. Returning it in pieces takes as long, but lets other
//! threads run in between.
//!
//! Large memory that is often made and freed should not be the allocator's at all. glibc raises its
//! thresholds for mapping and for trimming to the size of the largest piece that was freed, so one
//! freed write buffer lets it keep up to twice as much of everything else.
#![expect(
    unsafe_code,
    reason = "mmap and madvise are unsafe as such; listed in UNSAFE.md"
)]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of all [`Pages`] of this process.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// The bytes of address space that [`Pages`] have in this process, touched or not.
pub fn mapped_bytes() -> usize {
    MAPPED.load(Ordering::Relaxed)
}

/// Zeroed pages that belong to no allocator. Returned to the system when dropped.
///
/// The memory is reached through raw pointers only: who may read and write it, and when, is for the
/// owner to say.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory that any thread may address and unmap. Test: `tests::pages_are_zeroed`.
unsafe impl Send for Pages {}
// SAFETY: as above; `Pages` itself does not change.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `bytes` bytes, rounded up to whole pages. `None` if the system has no room for
    /// them.
    pub fn new(bytes: usize) -> Option<Pages> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let base = NonNull::new(base.ok()?.cast::<u8>())?;
        MAPPED.fetch_add(bytes, Ordering::Relaxed);
        if bytes >= LARGE_PAGES_FROM {
            // A hint: accesses at random places then miss fewer translations, and not every system
            // has such pages.
            // SAFETY: the new mapping, whose contents stay.
            let _hint = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
        Some(Pages { base, bytes })
    }

    /// The first byte, aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range that `new` mapped, and the last access to it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of what mmap gave");
        MAPPED.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The size in bytes from which large pages pay: the system then provides up to 2 MiB more than was
/// touched.
const LARGE_PAGES_FROM: usize = 16 << 20;

/// A multiple of every page size of the architecture.
const PAGE_BYTES: usize = if cfg!(target_arch = "x86_64") {
    4 << 10
} else {
    64 << 10
};
const PIECE_BYTES: usize = 256 << 10;

/// The size in bytes from which returning memory before it is freed pays.
pub const LARGE_BYTES: usize = 512 << 10;

/// The whole pages of `memory`.
fn whole_pages(memory: &mut [MaybeUninit<u8>]) -> &mut [MaybeUninit<u8>] {
    let skip = memory.as_ptr().align_offset(PAGE_BYTES).min(memory.len());
    let whole = (memory.len() - skip) / PAGE_BYTES * PAGE_BYTES;
    &mut memory[skip..skip + whole]
}

/// Returns the whole pages of `memory`, which the caller is about to free, to the system. The
/// contents are lost. Calls `between` after each piece.
pub fn give_back(memory: &mut [u8], between: impl FnMut()) {
    let (start, bytes) = (memory.as_mut_ptr().cast(), memory.len());
    // SAFETY: the same bytes, which become zero or keep their contents.
    give_back_pages(
        unsafe { std::slice::from_raw_parts_mut(start, bytes) },
        between,
    );
}

fn give_back_pages(memory: &mut [MaybeUninit<u8>], mut between: impl FnMut()) {
    for piece in whole_pages(memory).chunks_mut(PIECE_BYTES) {
        // SAFETY: the pieces are whole pages of memory that is borrowed for writing; they become
        // zero or keep their contents. Test: `tests::memory_can_be_used_again`.
        let _kept = unsafe {
            madvise(
                piece.as_mut_ptr().cast(),
                piece.len(),
                Advice::LinuxDontNeed,
            )
        };
        between();
    }
}

/// As [`give_back`] without pauses, for memory of any type, which is then freed. If a `T` has
/// something to drop, as in a model, the memory is only freed.
#[expect(clippy::boxed_local, reason = "it is freed here")]
pub fn free<T>(mut memory: Box<[T]>) {
    if std::mem::needs_drop::<T>() {
        return;
    }
    let bytes = size_of_val(&*memory);
    // SAFETY: all bytes of a slice that is borrowed for writing. Nothing looks at what they become,
    // because dropping a `T` does nothing. Test: `tests::memory_of_any_type_is_freed`.
    let memory = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), bytes) };
    give_back_pages(memory, || ());
}

/// The size in bytes from which a buffer that comes and goes with reads and writes is returned.
/// Many threads have such buffers, and allocators keep what each of them freed. Smaller ones fit
/// into the holes that others leave.
const BUFFER_BYTES: usize = 64 << 10;

/// As [`give_back`], for a buffer that comes and goes with reads and writes.
pub fn give_back_buffer(memory: &mut [u8]) {
    if memory.len() >= BUFFER_BYTES {
        give_back(memory, || ());
    }
}

/// As [`give_back`], without pauses and only if it pays, for callers that may hold a lock.
pub fn give_back_if_large(memory: &mut [u8]) {
    if memory.len() >= LARGE_BYTES {
        give_back(memory, || ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroed() {
        for bytes in [0, 1, PAGE_BYTES, 3 * PAGE_BYTES + 1, LARGE_PAGES_FROM] {
            let pages = Pages::new(bytes).expect("a little memory");
            assert!(pages.bytes() >= bytes.max(1) && pages.bytes() < bytes + 2 * PAGE_BYTES);
            assert!(mapped_bytes() >= pages.bytes());
            assert_eq!(pages.base().as_ptr() as usize % 4096, 0);
            // SAFETY: the pages' only borrow.
            let memory =
                unsafe { std::slice::from_raw_parts_mut(pages.base().as_ptr(), pages.bytes()) };
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(1);
            give_back(memory, || ());
            assert!(memory.iter().all(|byte| [0, 1].contains(byte)));
        }
        assert!(Pages::new(usize::MAX).is_none() && Pages::new(1 << 62).is_none());
    }

    #[test]
    fn memory_can_be_used_again() {
        for bytes in [0, 1000, PAGE_BYTES, PIECE_BYTES, 5 * PIECE_BYTES + 77] {
            let mut memory = vec![7; bytes];
            give_back(&mut memory, || ());
            assert!(memory.iter().all(|byte| [0, 7].contains(byte)));
            memory.fill(9);
            assert!(memory.iter().all(|byte| *byte == 9));
            // The allocator owns the memory again.
            memory.resize(2 * bytes + 1, 3);
            assert_eq!(
                memory.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
                9 * bytes as u64 + 3 * (bytes as u64 + 1)
            );
        }
    }

    #[test]
    fn memory_of_any_type_is_freed() {
        for count in [0, 1, 3 * PAGE_BYTES, PIECE_BYTES] {
            free(vec![u64::MAX; count].into_boxed_slice());
            free(vec![(1_u8, 1_u64); count].into_boxed_slice());
            free(vec![String::from("dropped"); count / 64].into_boxed_slice());
            let mut again = vec![7_u64; count];
            again.extend_from_within(..);
            assert!(again.iter().all(|word| *word == 7));
        }
    }
}
