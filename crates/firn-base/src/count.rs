//! Counters by cause: amplification is measured where the bytes move, not guessed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why bytes moved. One row of the amplification table each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Cause {
    /// The write-ahead log.
    Log,
    /// A write buffer written out as a table.
    Flush,
    /// A compaction that stays inside persistent memory.
    Internal,
    /// A compaction between levels.
    Compaction,
    /// Index, filter, properties and footer of tables.
    Index,
    /// A tier's contents moved from persistent memory to the SSD.
    Evict,
    /// Live data moved to free the space around it.
    Gc,
    /// Blocks read to answer a user.
    UserRead,
    /// The manifest and other bookkeeping.
    Manifest,
    /// Open: manifest and log replay.
    Recovery,
    /// Verify, repair, checkpoint.
    Maintenance,
}

impl Cause {
    /// All causes, in the order of their rows.
    pub const ALL: [Cause; 11] = [
        Cause::Log,
        Cause::Flush,
        Cause::Internal,
        Cause::Compaction,
        Cause::Index,
        Cause::Evict,
        Cause::Gc,
        Cause::UserRead,
        Cause::Manifest,
        Cause::Recovery,
        Cause::Maintenance,
    ];

    /// The name used in tables, JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Log => "log",
            Cause::Flush => "flush",
            Cause::Internal => "internal",
            Cause::Compaction => "compaction",
            Cause::Index => "index_filter",
            Cause::Evict => "evict",
            Cause::Gc => "gc",
            Cause::UserRead => "user_read",
            Cause::Manifest => "manifest",
            Cause::Recovery => "recovery",
            Cause::Maintenance => "maintenance",
        }
    }
}

/// A number that only grows, shared between threads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes and operations of one medium, by cause.
#[derive(Debug, Default)]
pub struct IoCounters {
    read_bytes: [Counter; Cause::ALL.len()],
    reads: [Counter; Cause::ALL.len()],
    written_bytes: [Counter; Cause::ALL.len()],
    writes: [Counter; Cause::ALL.len()],
    recent: Recent,
}

/// What reads were like between the last two looks.
#[derive(Debug, Default)]
struct Recent {
    /// Bytes and reads in all at the last look.
    bytes: AtomicU64,
    reads: AtomicU64,
    /// Bytes of a read, in the mean. 0 before the first look.
    mean: AtomicU64,
}

/// What a device moves in the time that one more read takes it: 15.6 KB on a cloud disk with 250 MB/s and 16,000
/// reads a second, 6 on a `sata` one. Where reads have as many bytes in the mean, it comes to both its limits at once.
const READ_COSTS: u64 = 12 << 10;
/// Reads between two looks.
const LOOK_READS: u64 = 1024;
/// The least and the most that is read along.
const GAP_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=32 << 10;

impl IoCounters {
    /// How many bytes that it does not need a merge should read along rather than begin another read, which waits for
    /// no single one but shares a device with who does.
    ///
    /// While reads, of whatever cause, are small, the device comes to its number of reads first, and bytes cost
    /// nothing; while they are large it is the other way round. So the more, the smaller reads were of late. At the
    /// least it is what one more read costs a processor.
    pub fn merge_gap(&self) -> u64 {
        let sum = |counters: &[Counter]| counters.iter().map(Counter::get).sum::<u64>();
        let (recent, reads) = (&self.recent, sum(&self.reads));
        let since = recent.reads.load(Ordering::Relaxed);
        // One who looks at the same time may count a few reads to the one side or the other.
        if reads.saturating_sub(since) >= LOOK_READS
            && recent.reads.compare_exchange(since, reads, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let bytes = sum(&self.read_bytes);
            let moved = bytes.saturating_sub(recent.bytes.swap(bytes, Ordering::Relaxed));
            recent.mean.store((moved / (reads - since)).max(1), Ordering::Relaxed);
        }
        match recent.mean.load(Ordering::Relaxed) {
            0 => *GAP_BYTES.start(),
            mean => (READ_COSTS * READ_COSTS / mean).clamp(*GAP_BYTES.start(), *GAP_BYTES.end()),
        }
    }

    /// Counts one read of `bytes`.
    #[inline]
    pub fn read(&self, cause: Cause, bytes: usize) {
        self.read_bytes[cause as usize].add(bytes as u64);
        self.reads[cause as usize].add(1);
    }

    /// Counts one write of `bytes`.
    #[inline]
    pub fn wrote(&self, cause: Cause, bytes: usize) {
        self.written_bytes[cause as usize].add(bytes as u64);
        self.writes[cause as usize].add(1);
    }

    /// What was counted for `cause`: (bytes read, reads, bytes written, writes).
    pub fn get(&self, cause: Cause) -> (u64, u64, u64, u64) {
        let i = cause as usize;
        (self.read_bytes[i].get(), self.reads[i].get(), self.written_bytes[i].get(), self.writes[i].get())
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn merges_read_more_along_beside_small_reads() {
        let counters = IoCounters::default();
        let after = |reads: u64, bytes: usize| {
            (0..reads).for_each(|_| counters.read(Cause::UserRead, bytes));
            counters.merge_gap()
        };
        assert_eq!(after(0, 0), 4 << 10, "nothing is known");
        assert_eq!(after(LOOK_READS, 4 << 10), 32 << 10);
        assert_eq!(after(LOOK_READS - 1, 64 << 10), 32 << 10, "too few to say something");
        assert_eq!(after(LOOK_READS, 64 << 10), 4 << 10, "only what was read since counts");
        assert_eq!(after(LOOK_READS, READ_COSTS as usize), READ_COSTS);
        let mixed = after(LOOK_READS / 2, 4 << 10).min(after(LOOK_READS / 2, 12 << 10));
        assert_eq!(mixed, READ_COSTS, "half of a look");
        assert_eq!(counters.merge_gap(), READ_COSTS * READ_COSTS / (8 << 10));
    }
}
