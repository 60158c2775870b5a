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
}

impl IoCounters {
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
