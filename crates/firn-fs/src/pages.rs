//! Pages of large memory: asks the system for large ones, and returns them, piece by piece, before
//! the memory is freed.
//!
//! Freeing alone is not enough. Allocators keep pieces of up to some 32 MB for later requests, per
//! thread, so the memory limit would be about half of what the system counts as resident. In
//! addition, unmapping a region of 64 MB at once keeps its core in the kernel for 40 ms, together
//! with every thread that waits for that core. Returning it in pieces takes as long, but lets other
//! threads run in between.
#![expect(unsafe_code, reason = "madvise is unsafe as such; listed in UNSAFE.md")]

use rustix::mm::{Advice, madvise};

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

/// Asks the system for large pages for `memory`, if it is large, because accesses at random places
/// then miss fewer translations. A hint: not every system has such pages.
pub fn prefer_large_pages(memory: &mut [u8]) {
    let pages = whole_pages(memory);
    if pages.len() >= LARGE_PAGES_FROM {
        // SAFETY: whole pages of memory that is borrowed for writing, whose contents stay.
        let _kept = unsafe {
            madvise(
                pages.as_mut_ptr().cast(),
                pages.len(),
                Advice::LinuxHugepage,
            )
        };
    }
}

/// The whole pages of `memory`.
fn whole_pages(memory: &mut [u8]) -> &mut [u8] {
    let skip = memory.as_ptr().align_offset(PAGE_BYTES).min(memory.len());
    let whole = (memory.len() - skip) / PAGE_BYTES * PAGE_BYTES;
    &mut memory[skip..skip + whole]
}

/// Returns the whole pages of `memory`, which the caller is about to free, to the system. The
/// contents are lost. Calls `between` after each piece.
pub fn give_back(memory: &mut [u8], mut between: impl FnMut()) {
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
    fn memory_can_be_used_again() {
        for bytes in [
            0,
            1000,
            PAGE_BYTES,
            PIECE_BYTES,
            5 * PIECE_BYTES + 77,
            LARGE_PAGES_FROM + PIECE_BYTES,
        ] {
            let mut memory = vec![7; bytes];
            prefer_large_pages(&mut memory);
            assert!(memory.iter().all(|byte| *byte == 7));
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
}
