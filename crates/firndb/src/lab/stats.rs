//! Statistics of level 0.

use super::view::Trees;
use crate::log::HotStats;
use firn_base::count::Counter;
use serde::Serialize;

/// Gets by the structure that answered them, and evictions, since the open.
#[derive(Debug, Default)]
pub(crate) struct LabCounters {
    pub(crate) mutable: Counter,
    pub(crate) retained: Counter,
    pub(crate) immutable: Counter,
    pub(crate) hot: Counter,
    pub(crate) buffers_past: Counter,
    pub(crate) chunks: Counter,
    pub(crate) chunks_by_log: Counter,
    pub(crate) leaves_looked_into: Counter,
    pub(crate) chunk_edges: Counter,
    pub(crate) chunk_entries: Counter,
    pub(crate) chunk_entries_replaced: Counter,
}

/// Level 0 of profile `lab`: a pair of B+ trees over the log's values.
#[derive(Debug, Clone, Serialize)]
pub struct LabStats {
    /// Entries of the tree that flushes go into.
    pub mutable_entries: u64,
    /// Entries of the tree that is being evicted into level 1.
    pub immutable_entries: u64,
    /// Replaced versions that snapshots see.
    pub retained_versions: usize,
    /// The used share of the trees' memory, 0 to 1.
    pub occupancy: f64,
    /// Bytes of leaves, including those that only readers hold.
    pub leaf_bytes: u64,
    /// Bytes of DRAM used by the search structures over leaves.
    pub index_bytes: usize,
    /// Gets that found their key here, by the structure that had it. A hit of a tree or a retained
    /// version counts for the hot buffer if the value was there.
    pub hits: Vec<(&'static str, u64)>,
    /// Memtables that became tables of level 0, because few of their keys had been written
    /// recently.
    pub buffers_past: u64,
    /// Chunks moved to level 1.
    pub chunks: u64,
    /// Chunks that took the entries of the oldest logs.
    pub chunks_by_log: u64,
    /// Leaves that were read to find those entries.
    pub leaves_looked_into: u64,
    /// Chunks that ended within a leaf, where a table of level 1 begins.
    pub chunk_edges: u64,
    /// Entries in all chunks.
    pub chunk_entries: u64,
    /// Entries of chunks that were dropped, because they had been replaced in the tree that flushes
    /// go into.
    pub chunk_entries_replaced: u64,
    /// Values in logs that level 0 points to.
    pub log_entries: u64,
    /// Bytes of these values.
    pub log_live_bytes: u64,
    /// Bytes of the logs that contain them.
    pub log_file_bytes: u64,
    /// The hot buffer; `None` without a pool that is durable at the fence, or with a pool that had
    /// no room.
    pub hot: Option<HotStats>,
}

impl Trees {
    pub(crate) fn stats(&self) -> LabStats {
        let views = || std::iter::once(&self.mutable).chain(&self.immutable);
        let usage = self.store.usage();
        let counters = &self.counters;
        let uses = self.values.uses();
        LabStats {
            mutable_entries: self.mutable.entries(),
            immutable_entries: self.immutable.as_ref().map_or(0, |view| view.entries()),
            retained_versions: self.retained.versions().len(),
            occupancy: usage.share(),
            leaf_bytes: usage.used_bytes,
            index_bytes: views().map(|view| view.memory_bytes()).sum(),
            hits: vec![
                ("mutable_tree", counters.mutable.get()),
                ("retained_versions", counters.retained.get()),
                ("immutable_tree", counters.immutable.get()),
                ("hot_buffer", counters.hot.get()),
            ],
            buffers_past: counters.buffers_past.get(),
            chunks: counters.chunks.get(),
            chunks_by_log: counters.chunks_by_log.get(),
            leaves_looked_into: counters.leaves_looked_into.get(),
            chunk_edges: counters.chunk_edges.get(),
            chunk_entries: counters.chunk_entries.get(),
            chunk_entries_replaced: counters.chunk_entries_replaced.get(),
            log_entries: uses.iter().map(|used| used.entries).sum(),
            log_live_bytes: uses.iter().map(|used| used.bytes).sum(),
            log_file_bytes: uses.iter().map(|used| used.file_bytes).sum(),
            hot: self.values.hot().map(|hot| hot.stats()),
        }
    }
}
