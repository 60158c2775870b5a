//! Counters by cause. Amplification is measured where the bytes move, not estimated.

mod held;

pub use held::{Held, HeldBytes};

use crate::clock::statistics_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reason why bytes moved. Each is one row of the amplification table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Cause {
    /// The write-ahead log.
    Log,
    /// A memtable written out as a table.
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

/// The I/Os of one kind: how many are in flight, and what those that ended took.
///
/// Where one ends while another begins, `busy_ns` may have a busy period twice.
#[derive(Debug, Default)]
pub struct Flight {
    now: AtomicU64,
    most: AtomicU64,
    ended: Counter,
    latency_ns: Counter,
    busy_since_ns: AtomicU64,
    busy_ns: Counter,
}

impl Flight {
    fn begin(&self) -> u64 {
        let begun_ns = statistics_ns();
        let before = self.now.fetch_add(1, Ordering::AcqRel);
        if before == 0 {
            self.busy_since_ns.store(begun_ns, Ordering::Relaxed);
        }
        self.most.fetch_max(before + 1, Ordering::Relaxed);
        begun_ns
    }

    fn end(&self, begun_ns: u64) {
        let now_ns = statistics_ns();
        self.ended.add(1);
        self.latency_ns.add(now_ns.saturating_sub(begun_ns));
        let since_ns = self.busy_since_ns.load(Ordering::Relaxed);
        if self.now.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.busy_ns.add(now_ns.saturating_sub(since_ns));
        }
    }

    /// The number of I/Os in flight.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// The largest number that was in flight at the same time.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// The I/Os that ended, and the sum of their durations in nanoseconds.
    pub fn ended(&self) -> (u64, u64) {
        (self.ended.get(), self.latency_ns.get())
    }

    /// Nanoseconds during which at least one was in flight.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.get()
    }
}

/// An I/O of a compaction, in flight until this is dropped.
#[derive(Debug)]
pub struct CompactionIo {
    counters: Arc<IoCounters>,
    begun_ns: u64,
}

impl Drop for CompactionIo {
    fn drop(&mut self) {
        self.counters.compactions.end(self.begun_ns);
    }
}

/// A read that a user waits for, in flight until this is dropped.
#[derive(Debug)]
pub struct UserRead<'a> {
    flight: &'a Flight,
    begun_ns: u64,
}

impl Drop for UserRead<'_> {
    fn drop(&mut self) {
        self.flight.end(self.begun_ns);
    }
}

/// Bytes and operations of one medium, by cause.
#[derive(Debug, Default)]
pub struct IoCounters {
    /// I/Os of compactions that run as coroutines or threads.
    pub compactions: Flight,
    /// Reads that users wait for.
    pub users: Flight,
    read_bytes: [Counter; Cause::ALL.len()],
    reads: [Counter; Cause::ALL.len()],
    written_bytes: [Counter; Cause::ALL.len()],
    writes: [Counter; Cause::ALL.len()],
    recent: Recent,
}

/// Statistics of the reads since the last sample.
#[derive(Debug, Default)]
struct Recent {
    /// Total bytes and reads at the last sample.
    bytes: AtomicU64,
    reads: AtomicU64,
    /// Mean bytes per read. 0 before the first sample.
    mean: AtomicU64,
}

/// The bytes that a device transfers in the time that one more read costs it: 15.6 KB on a cloud
/// disk with 250 MB/s and 16,000 reads a second, 6 KB on a `sata` disk. At this mean read size a
/// device reaches both its limits at once.
const READ_COSTS: u64 = 12 << 10;
/// Reads between two samples.
const LOOK_READS: u64 = 1024;
/// The smallest and the largest gap that is read through, in bytes.
const GAP_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=32 << 10;

impl IoCounters {
    /// The largest gap, in bytes, that a merge should read through rather than start another read.
    /// A merge does not wait for any single read, but it shares the device with readers that do.
    ///
    /// While reads of every cause are small, the device hits its limit on reads per second first
    /// and bytes cost nothing. While they are large it hits its bandwidth first. So the gap is
    /// larger the smaller recent reads were. Its lower bound is what one more read costs the
    /// processor.
    pub fn merge_gap(&self) -> u64 {
        let sum = |counters: &[Counter]| counters.iter().map(Counter::get).sum::<u64>();
        let (recent, reads) = (&self.recent, sum(&self.reads));
        let since = recent.reads.load(Ordering::Relaxed);
        // A concurrent sample may count a few reads on the other side of the boundary.
        if reads.saturating_sub(since) >= LOOK_READS
            && recent
                .reads
                .compare_exchange(since, reads, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let bytes = sum(&self.read_bytes);
            let moved = bytes.saturating_sub(recent.bytes.swap(bytes, Ordering::Relaxed));
            recent
                .mean
                .store((moved / (reads - since)).max(1), Ordering::Relaxed);
        }
        match recent.mean.load(Ordering::Relaxed) {
            0 => *GAP_BYTES.start(),
            mean => (READ_COSTS * READ_COSTS / mean).clamp(*GAP_BYTES.start(), *GAP_BYTES.end()),
        }
    }

    /// Begins an I/O of a compaction.
    pub fn begin_compaction_io(self: &Arc<Self>) -> CompactionIo {
        CompactionIo {
            begun_ns: self.compactions.begin(),
            counters: self.clone(),
        }
    }

    /// Begins a read that a user waits for.
    pub fn begin_user_read(&self) -> UserRead<'_> {
        UserRead {
            begun_ns: self.users.begin(),
            flight: &self.users,
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

    /// The counts of `cause`: (bytes read, reads, bytes written, writes).
    pub fn get(&self, cause: Cause) -> (u64, u64, u64, u64) {
        let i = cause as usize;
        (
            self.read_bytes[i].get(),
            self.reads[i].get(),
            self.written_bytes[i].get(),
            self.writes[i].get(),
        )
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_is_counted_until_it_ends() {
        let counters = Arc::new(IoCounters::default());
        let first = counters.begin_compaction_io();
        let second = counters.begin_compaction_io();
        drop(first);
        let flight = &counters.compactions;
        assert_eq!((flight.now(), flight.most(), flight.ended().0), (1, 2, 1));
        assert_eq!(flight.busy_ns(), 0, "one is still in flight");
        drop(second);
        assert_eq!((flight.now(), flight.ended().0), (0, 2));
        let user = counters.begin_user_read();
        assert_eq!((counters.users.now(), flight.now()), (1, 0));
        drop(user);
        assert_eq!(counters.users.now(), 0);
    }

    #[test]
    fn merges_read_more_along_beside_small_reads() {
        let counters = IoCounters::default();
        let after = |reads: u64, bytes: usize| {
            (0..reads).for_each(|_| counters.read(Cause::UserRead, bytes));
            counters.merge_gap()
        };
        assert_eq!(after(0, 0), 4 << 10, "nothing is known");
        assert_eq!(after(LOOK_READS, 4 << 10), 32 << 10);
        assert_eq!(
            after(LOOK_READS - 1, 64 << 10),
            32 << 10,
            "too few to say something"
        );
        assert_eq!(
            after(LOOK_READS, 64 << 10),
            4 << 10,
            "only what was read since counts"
        );
        assert_eq!(after(LOOK_READS, READ_COSTS as usize), READ_COSTS);
        let mixed = after(LOOK_READS / 2, 4 << 10).min(after(LOOK_READS / 2, 12 << 10));
        assert_eq!(mixed, READ_COSTS, "half of a look");
        assert_eq!(counters.merge_gap(), READ_COSTS * READ_COSTS / (8 << 10));
    }
}
