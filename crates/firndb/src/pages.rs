//! Large memory back to the system piece by piece.
//!
//! A region of 64 MB that is unmapped at once keeps its core in the kernel for 40 ms, and who waits for that core with
//! it. Given back in pieces it takes as long, and lets others run in between.
#![expect(unsafe_code, reason = "madvise is unsafe as such; listed in UNSAFE.md")]

use firn_base::exec::give_way;
use rustix::mm::{Advice, madvise};

/// A multiple of any page.
const PIECE_BYTES: usize = 256 << 10;

/// Gives the system the pages of `memory`, which its owner is about to free. What was in them is gone.
pub(crate) fn give_back(memory: &mut [u8]) {
    let skip = memory.as_ptr().align_offset(PIECE_BYTES).min(memory.len());
    for piece in memory[skip..].chunks_exact_mut(PIECE_BYTES) {
        // SAFETY: whole pages within memory that is borrowed for writing; they become zeros, or stay what they are.
        // Test: `tests::memory_can_be_used_again`.
        let _kept = unsafe { madvise(piece.as_mut_ptr().cast(), PIECE_BYTES, Advice::LinuxDontNeed) };
        give_way();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_can_be_used_again() {
        for bytes in [0, 1000, PIECE_BYTES, 5 * PIECE_BYTES + 77] {
            let mut memory = vec![7; bytes];
            give_back(&mut memory);
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
