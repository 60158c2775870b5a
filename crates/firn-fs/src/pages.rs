//! Large memory back to the system, piece by piece.
//!
//! What is freed need not go back: an allocator keeps pieces of up to some 32 MB for the next one who asks, each
//! thread's for itself, and a bound on memory that the system would see as half of what is resident is none. And a
//! region of 64 MB that is unmapped at once keeps its core in the kernel for 40 ms, and who waits for that core with
//! it. Given back in pieces it takes as long, and lets others run in between.
#![expect(unsafe_code, reason = "madvise is unsafe as such; listed in UNSAFE.md")]

use rustix::mm::{Advice, madvise};

/// A multiple of any page.
const PAGE_BYTES: usize = 64 << 10;
const PIECE_BYTES: usize = 4 * PAGE_BYTES;

/// From so many bytes on it pays to give memory back before it is freed.
pub const LARGE_BYTES: usize = 512 << 10;

/// Gives the system the pages of `memory`, which its owner is about to free. What was in them is gone. Calls `between`
/// behind each piece.
pub fn give_back(memory: &mut [u8], mut between: impl FnMut()) {
    let skip = memory.as_ptr().align_offset(PAGE_BYTES).min(memory.len());
    let whole = (memory.len() - skip) / PAGE_BYTES * PAGE_BYTES;
    for piece in memory[skip..skip + whole].chunks_mut(PIECE_BYTES) {
        // SAFETY: whole pages within memory that is borrowed for writing; they become zeros, or stay what they are.
        // Test: `tests::memory_can_be_used_again`.
        let _kept = unsafe { madvise(piece.as_mut_ptr().cast(), piece.len(), Advice::LinuxDontNeed) };
        between();
    }
}

/// As [`give_back`], without a pause and only if it pays: for who may hold a lock.
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
        for bytes in [0, 1000, PAGE_BYTES, PIECE_BYTES, 5 * PIECE_BYTES + 77] {
            let mut memory = vec![7; bytes];
            give_back(&mut memory, || ());
            assert!(memory.iter().all(|byte| [0, 7].contains(byte)));
            memory.fill(9);
            assert!(memory.iter().all(|byte| *byte == 9));
            // The allocator has it again.
            memory.resize(2 * bytes + 1, 3);
            assert_eq!(
                memory.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
                9 * bytes as u64 + 3 * (bytes as u64 + 1)
            );
        }
    }
}
