//! Readahead of a table's cursors: how far they go from where they begin, and how many blocks they
//! read at a time.
//!
//! The distance differs more from table to table than from scan to scan. In one scan the table of
//! the last level gives most entries, and the tables above it one block each.
//!
//! A scan over `m` more blocks with reads of `n` blocks costs about `m / n` reads, and half a read
//! of blocks that are not used. If a read costs as much as reading two more blocks (sata 1.4, cloud
//! 3.8), the minimum is at `n = 2 sqrt(m)`. How many more it will be is not known. If distances
//! are uniform up to twice their average, it is half of what is missing to that, so reads become
//! smaller on the way. That matters because often used places are cached, and so it is the end of
//! a scan that is read. Scans of 1 to 100 entries of 1 KiB, 13.6 blocks, then take 2.7 reads and
//! 15.7 blocks on average if none is cached. Reads of 4, 8 and 16 blocks would take 3.8, 2.2 and
//! 1.4 reads and 15.2, 17.3 and 22.2 blocks. A cursor that goes beyond the usual distance doubles
//! its reads each time.
//!
//! A table that grew has the blocks of one read in about two places, so one such read costs about
//! two. More blocks per read made scans of 100 entries read 10 % more than from tables in one
//! piece, instead of 5 %, and long scans are limited by the device's bandwidth.

use firn_base::sync::{AtomicU64, Ordering};

/// The approximate number of scans that count.
const MEMORY: u64 = 16;
/// Fractions per block, and the value of the sum for an average of one block.
const PARTS: u64 = 16;
const ONE: u64 = MEMORY * PARTS;
/// Longer scans count as this many blocks.
const BLOCKS_MAX: usize = 1 << 10;
/// The maximum blocks of a read, and the minimum beyond the usual distance.
const READ_MAX: usize = 16;
const READ_BEYOND_MIN: usize = 4;

/// The running sum of the distances of a table's cursors. It is a hint, so two concurrent updates
/// may count once.
#[derive(Debug, Default)]
pub(super) struct Readahead {
    sum: AtomicU64,
    scans: AtomicU64,
}

impl Readahead {
    /// Records that a cursor was positioned and went on until it had visited `blocks` blocks.
    pub(super) fn note(&self, blocks: usize) {
        let sum = self.sum.load(Ordering::Relaxed);
        self.sum.store(
            sum - sum / MEMORY + blocks.min(BLOCKS_MAX) as u64 * PARTS,
            Ordering::Relaxed,
        );
        if blocks > 1 {
            self.scans
                .store(self.scans.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// The number of cursors that continued to a second block.
    pub(super) fn scans(&self) -> u64 {
        self.scans.load(Ordering::Relaxed)
    }

    /// The number of blocks for the next read of a scan that has passed `passed` blocks and whose
    /// last read had `before`.
    pub(super) fn next_read(&self, passed: usize, before: usize) -> usize {
        let sum = self.sum.load(Ordering::Relaxed);
        let is_usual = passed == 0 || passed as u64 * ONE < 2 * sum;
        match is_usual {
            // Fewer than about one cursor in two continues.
            true if 2 * sum < 3 * ONE => 1,
            true => {
                let left = (2 * sum).saturating_sub(passed as u64 * ONE);
                ((2 * left / ONE).isqrt() as usize).clamp(1, READ_MAX)
            }
            false => (2 * before).clamp(READ_BEYOND_MIN, READ_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reads of a scan over `blocks` blocks.
    fn reads(readahead: &Readahead, blocks: usize) -> Vec<usize> {
        let (mut passed, mut reads) = (0, Vec::new());
        while passed < blocks {
            reads.push(readahead.next_read(passed, reads.last().copied().unwrap_or(0)));
            passed += reads[reads.len() - 1];
        }
        reads
    }

    /// The averages that the file's head names.
    #[test]
    fn short_scans_take_few_reads_and_few_unused_blocks() {
        const ENTRIES_A_BLOCK: usize = 4;
        let readahead = Readahead::default();
        let scans = (1..=100).flat_map(|entries| (0..ENTRIES_A_BLOCK).map(move |at| at + entries));
        let distances: Vec<usize> = scans.map(|end| end.div_ceil(ENTRIES_A_BLOCK)).collect();
        let average = |sum: usize| sum as f64 / distances.len() as f64;
        let usual = average(distances.iter().sum());
        (0..200).for_each(|_| readahead.note(usual.round() as usize));
        let all: Vec<Vec<usize>> = distances.iter().map(|&d| reads(&readahead, d)).collect();
        let count = average(all.iter().map(Vec::len).sum());
        let blocks = average(all.iter().flatten().sum());
        assert!((13.0..14.0).contains(&usual), "{usual} blocks are wanted");
        assert!(
            count < 2.8 && blocks < 15.8,
            "{count} reads of {blocks} blocks"
        );
    }

    #[test]
    fn reads_follow_what_is_usual() {
        let readahead = Readahead::default();
        assert_eq!(reads(&readahead, 30), [1, 4, 8, 16, 16], "nothing is known");
        (0..100).for_each(|_| readahead.note(1));
        assert_eq!(
            (reads(&readahead, 5), readahead.scans()),
            (vec![1, 1, 4], 0)
        );
        (0..100).for_each(|_| readahead.note(13));
        assert_eq!(
            (reads(&readahead, 13), readahead.scans()),
            (vec![7, 6], 100)
        );
        let goes_on = [7, 6, 5, 4, 2, 2, 4, 8, 16];
        assert_eq!(reads(&readahead, 50), goes_on, "one goes on");
        (0..200).for_each(|_| readahead.note(usize::MAX));
        assert_eq!(reads(&readahead, 40), [16, 16, 16]);
        (0..200).for_each(|_| readahead.note(1));
        assert_eq!(reads(&readahead, 1), [1]);
    }
}
