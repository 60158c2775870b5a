//! How far cursors go on in a table from where they begin, and how many blocks they read at a time for that.
//!
//! That differs from table to table more than from scan to scan. Of one scan the table of the last level gives most
//! entries, and those above it one block each.
//!
//! Reads of `n` blocks cost a stride of `m` some `m / n` reads, and half a read's blocks for nothing. If a read costs
//! what two blocks more of one do (sata 1.4, cloud 3.8), that is least for `n = 2 sqrt(m)`. Scans of 1 to 100 entries
//! of 1 KiB, 13.9 blocks, so take 2.4 reads and 17.1 blocks in the mean; with reads of 4, 8 and 16 blocks it would be
//! as many reads and 19.8 blocks, with 1, 2, 4, 8 and 16 4.0 and 18.6. Who goes on beyond what is usual reads twice as
//! many each time.
//!
//! A table that grew has the blocks of a read in about two places, so a read of it is about two. More blocks for each
//! made scans of 100 entries read 10 % more than from tables in one piece, instead of 5 %, and the device's bandwidth
//! is what long scans wait for.

use firn_base::sync::{AtomicU64, Ordering};

/// About so many strides count.
const MEMORY: u64 = 16;
/// Parts of a block, and what one block in the mean comes to in the sum.
const PARTS: u64 = 16;
const ONE: u64 = MEMORY * PARTS;
/// Longer ones count as this.
const STRIDE_MAX: usize = 1 << 10;
/// Blocks of one read at most, and beyond the usual stride at least.
const READ_MAX: usize = 16;
const READ_BEYOND_MIN: usize = 4;

/// The strides of a table's cursors, summed up: a hint, so what two cursors note at the same time may count once.
#[derive(Debug, Default)]
pub(super) struct Strides {
    sum: AtomicU64,
    scans: AtomicU64,
}

impl Strides {
    /// A cursor began somewhere and went on until it had been in so many blocks.
    pub(super) fn note(&self, blocks: usize) {
        let sum = self.sum.load(Ordering::Relaxed);
        self.sum.store(sum - sum / MEMORY + blocks.min(STRIDE_MAX) as u64 * PARTS, Ordering::Relaxed);
        if blocks > 1 {
            self.scans.store(self.scans.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// How many went on to a second block.
    pub(super) fn scans(&self) -> u64 {
        self.scans.load(Ordering::Relaxed)
    }

    /// Blocks that the next read of a stride brings, which has come through `passed` blocks and whose last read had
    /// `before`.
    pub(super) fn next_read(&self, passed: usize, before: usize) -> usize {
        let sum = self.sum.load(Ordering::Relaxed);
        let is_usual = passed == 0 || passed as u64 * ONE < 2 * sum;
        match is_usual {
            // Hardly one in two goes on.
            true if 2 * sum < 3 * ONE => 1,
            true => ((4 * sum / ONE).isqrt() as usize).clamp(1, READ_MAX),
            false => (2 * before).clamp(READ_BEYOND_MIN, READ_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reads of a stride of `blocks`.
    fn reads(strides: &Strides, blocks: usize) -> Vec<usize> {
        let (mut passed, mut reads) = (0, Vec::new());
        while passed < blocks {
            reads.push(strides.next_read(passed, reads.last().copied().unwrap_or(0)));
            passed += reads[reads.len() - 1];
        }
        reads
    }

    #[test]
    fn reads_follow_what_is_usual() {
        let strides = Strides::default();
        assert_eq!(reads(&strides, 30), [1, 4, 8, 16, 16], "nothing is known");
        (0..100).for_each(|_| strides.note(1));
        assert_eq!((reads(&strides, 5), strides.scans()), (vec![1, 1, 4], 0));
        (0..100).for_each(|_| strides.note(13));
        assert_eq!((reads(&strides, 13), strides.scans()), (vec![7, 7], 100));
        assert_eq!(reads(&strides, 50), [7, 7, 7, 7, 14, 16], "one goes on");
        (0..200).for_each(|_| strides.note(usize::MAX));
        assert_eq!(reads(&strides, 40), [16, 16, 16]);
        (0..200).for_each(|_| strides.note(1));
        assert_eq!(reads(&strides, 1), [1]);
    }
}
