//! What a background action is to do: the picker's only output.

use crate::lab::Chunk;
use crate::memtable::Memtable;
use crate::read::run::SstRun;
use std::collections::HashMap;
use std::sync::Arc;

/// How an action makes its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Entries are merged and copied into new tables.
    Copy,
    /// Each table of the output's level takes what falls into it, by an append or by being written anew.
    Append,
    /// The one input goes down a level as it is: no entry is read.
    Move,
}

/// Why an action was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A write buffer is full.
    Flush,
    /// A level is over its target.
    Size,
    /// A table cost too many fruitless reads.
    Seeks,
    /// Dead bytes are over their limit.
    Space,
    /// Level 0 in persistent memory is as full as it may be.
    Evict,
    /// A user asked.
    Manual,
}

/// One action: inputs, where the output goes, and how it is made.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) part: usize,
    pub(crate) buffer: Option<Arc<Memtable>>,
    /// Leaves of the immutable tree.
    pub(crate) chunk: Option<Chunk>,
    /// (level, table); those of the upper level first.
    pub(crate) tables: Vec<(usize, Arc<SstRun>)>,
    /// The output's level.
    pub(crate) level: usize,
    pub(crate) how: How,
    pub(crate) reason: Reason,
}

/// Tables that running actions read or replace, with their levels and live bytes.
#[derive(Debug, Default)]
pub(crate) struct BusyTables(HashMap<u64, (usize, u64)>);

impl BusyTables {
    /// An action takes a table of `level`.
    pub(crate) fn take(&mut self, level: usize, run: &SstRun) {
        self.0.insert(run.meta.id, (level, run.meta.live_bytes()));
    }

    /// It is free again.
    pub(crate) fn give_back(&mut self, id: u64) {
        self.0.remove(&id);
    }

    pub(crate) fn has(&self, run: &SstRun) -> bool {
        self.0.contains_key(&run.meta.id)
    }

    /// Live bytes of those of `level`. They may have just gone from there.
    pub(crate) fn live_bytes(&self, level: usize) -> u64 {
        self.0.values().filter(|(of, _)| *of == level).map(|(_, bytes)| bytes).sum()
    }
}

impl Plan {
    /// Without the tables that have no key from the first of `keys` to the last.
    pub(crate) fn narrowed(&self, keys: Option<(&[u8], &[u8])>) -> Plan {
        let meets =
            |run: &SstRun| keys.is_some_and(|(first, last)| *run.meta.largest >= *first && *run.meta.smallest <= *last);
        let tables = self.tables.iter().filter(|(_, run)| meets(run)).cloned().collect();
        Plan { tables, ..self.clone() }
    }

    /// Bytes of its tables.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.tables.iter().map(|(_, run)| run.meta.live_bytes()).sum()
    }

    /// Bytes of the largest block of its tables.
    pub(crate) fn block_bytes_max(&self) -> u64 {
        self.tables.iter().map(|(_, run)| run.meta.block_bytes_max).max().unwrap_or(0)
    }

    /// Its tables on the output's level.
    pub(crate) fn children(&self) -> impl Iterator<Item = &Arc<SstRun>> {
        self.tables.iter().filter(|(level, _)| *level == self.level).map(|(_, run)| run)
    }

    /// The level that the inputs come from.
    pub(crate) fn source_level(&self) -> Option<usize> {
        self.tables.first().map(|(level, _)| *level)
    }
}
