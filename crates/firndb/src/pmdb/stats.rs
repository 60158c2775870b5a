//! Statistics of ranges with stacks of tables, and of the trees over their blocks.

use super::buffers::BufferStore;
use super::trees::TreeStore;
use crate::read::state::ReadState;
use firn_table::IfTreeGets;
use serde::Serialize;
use std::collections::BTreeMap;

/// Partitions, and the ranges in them, in profile `pmdb`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PmdbStats {
    /// The number of partitions.
    pub partitions: usize,
    /// The number of ranges in all of them.
    pub ranges: usize,
    /// Flushed tables that were not merged into ranges yet.
    pub stash_tables: usize,
    /// The most of them in a partition.
    pub stash_tables_most: usize,
    /// The mean number of levels with tables in a range: the tables that a get may search there.
    pub height_mean: f64,
    /// The most levels with tables in a range.
    pub height_most: usize,
    /// Merges of flushed tables into ranges.
    pub stash_merges: u64,
    /// Merges of whole ranges.
    pub range_merges: u64,
    /// The same by reason: `size` (a full stack, or rest), `partition` (a range that is too large),
    /// `space` (hidden entries), `seeks` (scans), `manual`.
    pub merges_for: BTreeMap<&'static str, u64>,
    /// The trees over their blocks in persistent memory, if it is durable at the fence.
    pub trees: Option<BlockTreeStats>,
    /// The write buffers of partitions there, in the place of a log.
    pub buffers: Option<PartBufferStats>,
}

/// The write buffers of partitions in persistent memory.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PartBufferStats {
    /// The number of buffers. A partition without writes has none.
    pub buffers: usize,
    /// The buffers among them that take no more writes, and wait until they are flushed.
    pub frozen: usize,
    /// Bytes of persistent memory that they take.
    pub bytes: u64,
    /// Bytes of entries in them.
    pub used_bytes: u64,
    /// Bytes that they may take, beside what the trees need.
    pub most_bytes: u64,
    /// Bytes of DRAM for the lists over their entries.
    pub list_bytes: u64,
    /// Buffers begun since the open.
    pub begun: u64,
    /// Bytes of these.
    pub begun_bytes: u64,
    /// Times that a write found no room for another buffer.
    pub refused: u64,
}

/// Trees over the blocks of tables, in persistent memory.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BlockTreeStats {
    /// The number of trees.
    pub trees: usize,
    /// Bytes of persistent memory that they take.
    pub bytes: u64,
    /// The number of blocks in them.
    pub blocks: u64,
    /// Trees made since the open.
    pub made: u64,
    /// Bytes of these.
    pub made_bytes: u64,
    /// Trees that found no room, so that gets go through the indexes of the tables.
    pub refused: u64,
    /// Searches of gets.
    pub searches: u64,
    /// Nodes and entries above them whose bounds they compared.
    pub nodes: u64,
    /// Cache lines of persistent memory that they read.
    pub lines: u64,
    /// Filters of blocks that they tested.
    pub tests: u64,
    /// The tests that excluded the key.
    pub rejected: u64,
}

impl BufferStore {
    /// The statistics of the buffers of `state`.
    pub(crate) fn stats(&self, state: &ReadState) -> PartBufferStats {
        let facts = self.facts();
        let mut stats = PartBufferStats {
            bytes: facts.used_bytes,
            most_bytes: facts.most_bytes,
            list_bytes: self.lists_bytes(),
            begun: self.begun.get(),
            begun_bytes: self.begun_bytes.get(),
            refused: self.refused.get(),
            ..PartBufferStats::default()
        };
        for memtable in state.memtables.iter().filter(|of| of.pm_buffer().is_some()) {
            stats.buffers += 1;
            stats.frozen += usize::from(memtable.frozen_at().is_some());
            stats.used_bytes += memtable.used_bytes() as u64;
        }
        stats
    }
}

impl TreeStore {
    /// The statistics of the trees of `state`, and of the gets that searched them.
    pub(crate) fn stats(&self, state: &ReadState, gets: &IfTreeGets) -> BlockTreeStats {
        let mut stats = BlockTreeStats {
            made: self.made.get(),
            made_bytes: self.made_bytes.get(),
            refused: self.refused.get(),
            searches: gets.searches.get(),
            nodes: gets.nodes.get(),
            lines: gets.lines.get(),
            tests: gets.tests.get(),
            rejected: gets.rejected.get(),
            ..BlockTreeStats::default()
        };
        for run in state.trees() {
            stats.trees += 1;
            stats.bytes += run.meta.extent.len;
            stats.blocks += run.tree().blocks() as u64;
        }
        stats
    }
}
