//! The plan of a background job: the picker's only output.

use crate::compaction::hidden::Below;
use crate::compaction::index::Indexed;
use crate::lab::Chunk;
use crate::manifest::{Level, PartId, TableMeta, evenly};
use crate::memtable::Memtable;
use crate::read::state::Part;
use crate::read::table_run::TableRun;
use crate::tlsm::CutJob;
use firn_base::sync::Mutex;
use firn_base::{FileId, SeqNo};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The way in which a job makes its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Entries are merged and copied into new tables.
    Copy,
    /// Each table of the output's level takes its share of the input, by an append or by a rewrite.
    Append,
    /// The one input table moves down a level as it is. No entry is read.
    Move,
    /// The entries of a memtable are inserted into the structure above the levels. No table
    /// changes.
    Insert,
    /// The borders of partitions change. No table does.
    Border,
    /// A tree over the tables' blocks is made. No table changes.
    Index,
}

/// The medium of a job's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Medium {
    /// In files.
    #[default]
    Ssd,
    /// In lists in persistent memory, if there is room.
    Pm,
}

/// The reason why a job was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A memtable is full.
    Flush,
    /// A level exceeds its target size.
    Size,
    /// A table cost too many reads without a result.
    Seeks,
    /// Dead bytes exceed their limit.
    Space,
    /// Level 0, or lists, in persistent memory have reached their limit.
    Evict,
    /// Persistent memory has room for a table from a file.
    Promote,
    /// A user asked for it.
    Manual,
    /// A partition is to be divided, or joined with its neighbour.
    Partition,
    /// Tables have no tree over their blocks.
    Index,
}

impl Reason {
    /// Its name in statistics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Flush => "flush",
            Reason::Size => "size",
            Reason::Seeks => "seeks",
            Reason::Space => "space",
            Reason::Evict => "evict",
            Reason::Promote => "promote",
            Reason::Manual => "manual",
            Reason::Partition => "partition",
            Reason::Index => "index",
        }
    }
}

/// A change of the borders of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Border {
    /// The partition of the plan is divided at this key.
    Add(Vec<u8>),
    /// The partition of the plan is joined with the one that begins at this key.
    Drop(Vec<u8>),
    /// The partition's ranges are divided at these keys.
    AddRanges(Vec<Box<[u8]>>),
    /// The partition's ranges are joined at these keys.
    DropRanges(Vec<Box<[u8]>>),
}

/// The level of each part of an output that is divided by ranges.
#[derive(Debug, Clone)]
pub(crate) struct RangeLevels {
    /// The keys at which the ranges begin, except the first.
    pub(crate) cuts: Vec<Box<[u8]>>,
    /// The level of each range.
    pub(crate) levels: Vec<Level>,
    /// The tables of the ranges, if it is estimated what the output hides there.
    pub(crate) below: Option<Below>,
}

/// One job: its inputs, the level of its output, and how it is made.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The partition; `None` for a flush, whose memtables may have keys of several.
    pub(crate) part: Option<PartId>,
    /// The memtables that are flushed, the newest first.
    pub(crate) buffers: Vec<Arc<Memtable>>,
    pub(crate) border: Option<Border>,
    /// The place of the tree that is made.
    pub(crate) indexed: Option<Arc<Indexed>>,
    /// Leaves of the immutable tree.
    pub(crate) chunk: Option<Chunk>,
    /// (level, table), with the tables of the upper level first.
    pub(crate) tables: Vec<(Level, Arc<TableRun>)>,
    /// The output's level; the highest of them, if it differs by range.
    pub(crate) level: Level,
    /// The levels of the output, if they differ by range. Nothing else is above what the ranges
    /// have.
    pub(crate) by_range: Option<Arc<RangeLevels>>,
    /// The bytes of output from which the range is divided, if it may be.
    pub(crate) range_bytes: Option<u64>,
    pub(crate) how: How,
    pub(crate) reason: Reason,
    pub(crate) medium: Medium,
    /// True if entries that are read stay in persistent memory, on the level above the output's.
    pub(crate) sieves: bool,
    /// Chunks of lists whose entries are copied, by offset.
    pub(crate) relocate: Option<Arc<HashSet<u64>>>,
    /// The job that a crash cut short, if this goes on with it.
    pub(crate) resume: Option<Arc<Mutex<Option<CutJob>>>>,
}

/// Tables that running jobs read or replace, with their levels and live bytes, and partitions whose
/// borders they change, because these may have no table.
#[derive(Debug, Default)]
pub(crate) struct BusyTables {
    tables: HashMap<FileId, (Level, u64)>,
    bordered: Vec<PartId>,
}

impl BusyTables {
    /// Marks a table of `level` as taken by a job.
    pub(crate) fn take(&mut self, level: Level, run: &TableRun) {
        self.tables
            .insert(run.meta.id, (level, run.meta.live_bytes()));
    }

    /// Marks a table as free again.
    pub(crate) fn give_back(&mut self, id: FileId) {
        self.tables.remove(&id);
    }

    /// Marks the partition whose borders `plan` changes, if it does, as taken by a job.
    pub(crate) fn take_part(&mut self, plan: &Plan) {
        self.bordered.extend(plan.bordered());
    }

    /// Marks a partition as free again.
    pub(crate) fn give_back_part(&mut self, id: PartId) {
        self.bordered.retain(|other| *other != id);
    }

    /// True if a job changes the borders of partition `id`, or has a table of it.
    pub(crate) fn has_any_of(&self, id: PartId, part: &Part) -> bool {
        self.bordered.contains(&id) || part.tables().any(|(_, run)| self.has(run))
    }

    pub(crate) fn has(&self, run: &TableRun) -> bool {
        self.tables.contains_key(&run.meta.id)
    }

    /// Live bytes of the busy tables of `level`, which may just have been moved from there.
    pub(crate) fn live_bytes(&self, level: Level) -> u64 {
        self.tables
            .values()
            .filter(|(of, _)| *of == level)
            .map(|(_, bytes)| bytes)
            .sum()
    }
}

impl Plan {
    /// A plan that makes output on `level` of partition `part` from `tables`.
    pub(crate) fn new(
        part: PartId,
        tables: Vec<(Level, Arc<TableRun>)>,
        level: Level,
        how: How,
        reason: Reason,
    ) -> Plan {
        Plan {
            part: Some(part),
            buffers: Vec::new(),
            border: None,
            indexed: None,
            chunk: None,
            tables,
            level,
            by_range: None,
            range_bytes: None,
            how,
            reason,
            medium: Medium::default(),
            sieves: false,
            relocate: None,
            resume: None,
        }
    }

    /// The partition whose borders it changes.
    pub(crate) fn bordered(&self) -> Option<PartId> {
        self.part.filter(|_| self.border.is_some())
    }

    /// The flush of `buffers`, the newest first.
    pub(crate) fn flush(buffers: Vec<Arc<Memtable>>, how: How) -> Plan {
        Plan {
            part: None,
            buffers,
            border: None,
            indexed: None,
            chunk: None,
            tables: Vec::new(),
            level: Level::ZERO,
            by_range: None,
            range_bytes: None,
            how,
            reason: Reason::Flush,
            medium: Medium::default(),
            sieves: false,
            relocate: None,
            resume: None,
        }
    }

    /// The number through which everything in its memtables' key ranges is flushed by it, if it is
    /// a flush.
    pub(crate) fn flushes_through(&self) -> Option<SeqNo> {
        self.buffers.first().and_then(|newest| newest.frozen_at())
    }

    /// The log that has the newest entries of its memtables.
    pub(crate) fn log_id(&self) -> FileId {
        // What is in persistent memory has no log.
        let newest = self
            .buffers
            .first()
            .filter(|newest| newest.pm_buffer().is_none());
        newest.map_or(FileId(0), |newest| newest.log_id)
    }

    /// Bytes used in its memtables.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let buffers = self.buffers.iter();
        buffers.map(|buffer| buffer.used_bytes() as u64).sum()
    }

    /// True if borders of partitions change.
    pub(crate) fn moves_partitions(&self) -> bool {
        matches!(self.border, Some(Border::Add(_) | Border::Drop(_)))
    }

    /// The level of an output table that begins with `key`.
    pub(crate) fn level_of(&self, key: &[u8]) -> Level {
        match &self.by_range {
            Some(by) => by.levels[by.cuts.partition_point(|cut| **cut <= *key)],
            None => self.level,
        }
    }

    /// `tables` with their levels.
    pub(crate) fn leveled(&self, tables: Vec<TableMeta>) -> Vec<(Level, TableMeta)> {
        let leveled = |meta: TableMeta| (self.level_of(&meta.smallest), meta);
        tables.into_iter().map(leveled).collect()
    }

    /// The keys at which the range is divided whose merge made `tables`, if they are too many.
    pub(crate) fn divided_at(&self, tables: &[(Level, TableMeta)]) -> Vec<Vec<u8>> {
        let Some(most) = self.range_bytes else {
            return Vec::new();
        };
        let mut tables: Vec<&TableMeta> = tables.iter().map(|(_, table)| table).collect();
        tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        let bytes: u64 = tables.iter().map(|table| table.bytes()).sum();
        let pieces = bytes.div_ceil(most.max(1)) as usize;
        let sizes = tables.iter().map(|table| (&*table.smallest, table.bytes()));
        let cuts = evenly(sizes, pieces.max(1));
        cuts.into_iter().map(|cut| cut.into_vec()).collect()
    }

    /// The plan without the tables that have no key between the first and the last of `keys`.
    pub(crate) fn narrowed(&self, keys: Option<(&[u8], &[u8])>) -> Plan {
        let meets = |run: &TableRun| {
            keys.is_some_and(|(first, last)| {
                *run.meta.largest >= *first && *run.meta.smallest <= *last
            })
        };
        let tables = self
            .tables
            .iter()
            .filter(|(_, run)| meets(run))
            .cloned()
            .collect();
        Plan {
            tables,
            ..self.clone()
        }
    }

    /// Live bytes of the tables.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.tables
            .iter()
            .map(|(_, run)| run.meta.live_bytes())
            .sum()
    }

    /// Bytes of the largest block in the tables.
    pub(crate) fn block_bytes_max(&self) -> u64 {
        self.tables
            .iter()
            .map(|(_, run)| run.meta.block_bytes_max)
            .max()
            .unwrap_or(0)
    }

    /// The tables on the output's level.
    pub(crate) fn children(&self) -> impl Iterator<Item = &Arc<TableRun>> {
        self.tables
            .iter()
            .filter(|(level, _)| *level == self.level)
            .map(|(_, run)| run)
    }

    /// The level that the inputs come from.
    pub(crate) fn source_level(&self) -> Option<Level> {
        self.tables.first().map(|(level, _)| *level)
    }
}
