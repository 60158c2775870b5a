//! Events that the engine reports to a listener.

use firn_base::{Error, FileId};
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// The reason for a write stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(usize)]
pub enum StallReason {
    /// Level 0 has too many tables.
    Level0,
    /// Levels exceed their target sizes.
    Debt,
    /// Flushes are slower than writes.
    Flush,
    /// All memtables are full.
    Buffers,
    /// The logs hold too many bytes for level 0.
    Logs,
    /// Level 0's trees leave too little room for flushes.
    Trees,
    /// Persistent memory is nearly full of tables that must be there.
    PersistentMemory,
}

impl StallReason {
    pub(crate) const ALL: [StallReason; 7] = [
        StallReason::Level0,
        StallReason::Debt,
        StallReason::Flush,
        StallReason::Buffers,
        StallReason::Logs,
        StallReason::Trees,
        StallReason::PersistentMemory,
    ];

    /// The name in statistics and metrics.
    pub fn name(self) -> &'static str {
        match self {
            StallReason::Level0 => "level0",
            StallReason::Debt => "debt",
            StallReason::Flush => "flush",
            StallReason::PersistentMemory => "persistent_memory",
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

/// The rule that decided whether a table takes its input by an append or is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum GrainRule {
    /// The way that was chosen writes fewer bytes.
    Cost,
    /// The table's filter has no room for the new keys.
    Filter,
    /// The table is too large.
    LiveBytes,
    /// Too few of its bytes are live.
    LiveShare,
    /// Too many of its blocks receive an entry.
    DirtyShare,
    /// An append would cost scans more than it saves.
    Scans,
    /// Dead bytes would cost more than an append saves, or exceed their limit.
    Space,
    /// Another append to the table is running, or a checkpoint shares its file.
    MayNotGrow,
}

impl GrainRule {
    /// The name in statistics and metrics.
    pub fn name(self) -> &'static str {
        match self {
            GrainRule::Cost => "cost",
            GrainRule::Filter => "filter",
            GrainRule::LiveBytes => "live bytes",
            GrainRule::LiveShare => "live share",
            GrainRule::DirtyShare => "dirty share",
            GrainRule::Scans => "scans",
            GrainRule::Space => "space",
            GrainRule::MayNotGrow => "may not grow",
        }
    }
}

impl fmt::Display for GrainRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for GrainRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Something that happened in the engine. Later versions may add kinds.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The database was opened.
    Recovered {
        /// The steps of recovery, each with the time it took.
        steps: Vec<(&'static str, Duration)>,
        /// Entries replayed from logs.
        replayed_entries: u64,
    },
    /// A write buffer was flushed, to a table or, in profile `lab`, into the trees of level 0.
    Flushed {
        /// Bytes of the table; 0 if the buffer was flushed into the trees.
        bytes: u64,
        /// Time taken.
        elapsed: Duration,
    },
    /// A compaction finished.
    Compacted {
        /// The level that the input tables came from.
        from_level: usize,
        /// The level that the output tables went to.
        level: usize,
        /// The number of input tables.
        tables_in: usize,
        /// The number of output tables.
        tables_out: usize,
        /// Bytes of the input.
        bytes_in: u64,
        /// Bytes of the output.
        bytes_out: u64,
        /// True if a table was moved to the next level without being read.
        moved: bool,
        /// Time taken.
        elapsed: Duration,
    },
    /// A compaction chose between appending to a table and rewriting it. Only profiles with appends
    /// have this choice.
    GrainChosen {
        /// The table's level.
        level: usize,
        /// The table's file.
        table: FileId,
        /// True if blocks are appended to the table, false if it is rewritten.
        block_grained: bool,
        /// The rule that decided.
        rule: GrainRule,
        /// The blocks of the table that must be rewritten in either case.
        dirty_blocks: usize,
        /// All blocks of the table.
        blocks: usize,
    },
    /// A partition was divided in two, or two became one.
    Partitioned {
        /// The number of partitions now.
        partitions: usize,
    },
    /// A log ended and a new one began.
    LogRotated {
        /// The new log's id.
        log_id: FileId,
    },
    /// A write stall began or ended.
    Stall {
        /// The reason; `None` if the stall ended.
        reason: Option<StallReason>,
    },
    /// Background work failed. It is retried unless the error says otherwise.
    BackgroundError {
        /// The error of the background work.
        error: Error,
    },
    /// Background work succeeded again.
    Resumed,
    /// An obsolete file was removed.
    FileRemoved {
        /// The id of the file.
        file_id: FileId,
    },
}

/// Receives events on the thread where they happen, sometimes inside a commit. An implementation
/// must return quickly and must not call the database.
pub trait EventListener: Send + Sync {
    /// Handles one event.
    fn on_event(&self, event: &Event);
}
