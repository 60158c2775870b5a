//! What the engine tells a listener, as it happens.

use firn_base::Error;
use std::fmt;
use std::time::Duration;

/// The reason why writers wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(usize)]
pub enum StallReason {
    /// Level 0 holds too many tables.
    Level0,
    /// Levels exceed their target sizes.
    Debt,
    /// Flushes are slower than writes.
    Flush,
    /// All memtables are full.
    Buffers,
    /// The logs hold too much that level 0 needs.
    Logs,
    /// Level 0's trees leave too little room for flushes.
    Trees,
}

impl StallReason {
    pub(crate) const ALL: [StallReason; 6] = [
        StallReason::Level0,
        StallReason::Debt,
        StallReason::Flush,
        StallReason::Buffers,
        StallReason::Logs,
        StallReason::Trees,
    ];

    /// The name in statistics and metrics.
    pub fn name(self) -> &'static str {
        match self {
            StallReason::Level0 => "level0",
            StallReason::Debt => "debt",
            StallReason::Flush => "flush",
            StallReason::Buffers => "buffers",
            StallReason::Logs => "logs",
            StallReason::Trees => "trees",
        }
    }
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that happened. More kinds may come.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The database was opened; each step of recovery with the time that it took.
    Recovered {
        /// (step, time).
        steps: Vec<(&'static str, Duration)>,
        /// Entries that came back from logs.
        replayed_entries: u64,
    },
    /// A write buffer was written out as a table.
    Flushed {
        /// Bytes of the table.
        bytes: u64,
        /// Time taken.
        elapsed: Duration,
    },
    /// A compaction ended.
    Compacted {
        /// The level that tables came from.
        from_level: usize,
        /// The level that tables went to.
        level: usize,
        /// Tables that went in.
        tables_in: usize,
        /// Tables that came out.
        tables_out: usize,
        /// Bytes that went in.
        bytes_in: u64,
        /// Bytes that came out.
        bytes_out: u64,
        /// Whether a table was moved without being read.
        moved: bool,
        /// Time taken.
        elapsed: Duration,
    },
    /// A compaction chose how a table takes what comes from above. Only profiles whose tables may grow have a choice.
    GrainChosen {
        /// The table's level.
        level: usize,
        /// The table's file.
        table: u64,
        /// Whether blocks are appended to it; otherwise it is written anew.
        block_grained: bool,
        /// The rule that decided.
        because: &'static str,
        /// Blocks that are written in any case.
        dirty_blocks: usize,
        /// All its blocks.
        blocks: usize,
    },
    /// A log ended and another began.
    LogRotated {
        /// The new log's id.
        log_id: u64,
    },
    /// Writers are being delayed, or no more.
    Stall {
        /// Why; `None` when the delay ended.
        reason: Option<StallReason>,
    },
    /// Background work failed; it is tried again unless the error says otherwise.
    BackgroundError {
        /// What it met.
        error: Error,
    },
    /// Background work succeeded again.
    Resumed,
    /// A file that nothing needs any more was removed.
    FileRemoved {
        /// Its id.
        file_id: u64,
    },
}

/// Told of events on the thread where they happen, at times inside a commit. Be quick, and do not call the database.
pub trait EventListener: Send + Sync {
    /// Called once per event.
    fn on_event(&self, event: &Event);
}
