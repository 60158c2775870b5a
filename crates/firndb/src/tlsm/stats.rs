//! Statistics of lists in persistent memory.

use super::store::ListStore;
use crate::read::pm_space::PmSpace;
use crate::read::state::ReadState;
use firn_base::count::Counter;
use firn_table::PmGets;
use serde::Serialize;
use std::collections::HashMap;

/// Counts of what was written to lists, since the open.
#[derive(Debug, Default)]
pub(crate) struct ListCounters {
    pub(crate) linked: Counter,
    pub(crate) flushed_bytes: Counter,
    pub(crate) promoted_bytes: Counter,
    pub(crate) relocated_bytes: Counter,
    /// Entries of lists that a compaction copied although it could have linked them.
    pub(crate) copied_bytes: Counter,
    pub(crate) evictions: Counter,
    pub(crate) evictions_in_place: Counter,
    pub(crate) relocations: Counter,
    pub(crate) spilled: Counter,
    pub(crate) resumed: Counter,
    pub(crate) discarded: Counter,
}

/// Searches in lists whose filter did not rule the key out.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ListSearches {
    /// The number of searches.
    pub count: u64,
    /// Cache lines of persistent memory that they read, values included.
    pub lines: u64,
}

/// Tables in persistent memory, in profile `tlsm`.
#[derive(Debug, Clone, Serialize)]
pub struct TlsmStats {
    /// Bytes that lists may take.
    pub capacity_bytes: u64,
    /// Bytes of their nodes and filters.
    pub node_bytes: u64,
    /// Bytes of the chunks that have their entries.
    pub chunk_bytes: u64,
    /// Bytes of the entries to which lists point.
    pub live_bytes: u64,
    /// Bytes of these chunks to which no list points.
    pub garbage_bytes: u64,
    /// Bytes of nodes and chunks that no list of the current state has: readers or running jobs
    /// have them.
    pub buried_bytes: u64,
    /// The part of [`Stats::table_bytes`](crate::Stats::table_bytes) that is in lists.
    pub table_bytes: u64,
    /// Lists by level.
    pub lists: Vec<usize>,
    /// Searches of gets.
    pub searches: ListSearches,
    /// Entries that compactions linked.
    pub linked: u64,
    /// Bytes of entries that flushes copied into chunks.
    pub flushed_bytes: u64,
    /// Bytes of entries of tables in files that compactions copied into chunks.
    pub promoted_bytes: u64,
    /// Bytes of entries that were moved out of chunks that were mostly garbage.
    pub relocated_bytes: u64,
    /// Bytes of entries in chunks that compactions copied into chunks. 0, because they link them.
    pub copied_bytes: u64,
    /// Compactions that moved lists to the SSD.
    pub evictions: u64,
    /// Evictions from the last level, whose tables stayed on it. The others went down a level.
    pub evictions_in_place: u64,
    /// Compactions that moved entries out of chunks that were mostly garbage.
    pub relocations: u64,
    /// Jobs whose output became files because there was no room for lists.
    pub spilled: u64,
    /// Compactions that a crash had cut short and that went on from there.
    pub resumed: u64,
    /// Compactions that a crash had cut short and that began again, because their inputs had
    /// changed or their output was damaged.
    pub discarded: u64,
}

impl ListStore {
    /// The statistics, with the lists of `state`.
    pub(crate) fn stats(&self, state: &ReadState, gets: &PmGets) -> TlsmStats {
        let facts = self.facts();
        let counters = &self.counters;
        let lists = state.tables().filter(|(_, run)| !run.meta.is_file());
        let (mut by_level, mut chunks) = (Vec::new(), HashMap::new());
        let (mut table_bytes, mut live_bytes, mut listed_bytes) = (0, 0, 0);
        for (level, run) in lists {
            by_level.resize(by_level.len().max(level.0 + 1), 0);
            by_level[level.0] += 1;
            table_bytes += run.meta.bytes();
            live_bytes += run.meta.data_bytes;
            if let Some(space) = run.space().and_then(PmSpace::list) {
                listed_bytes += space.node_bytes();
                let extents = space.chunks().map(|(chunk, _)| chunk.extent());
                chunks.extend(extents.map(|extent| (extent.offset.get(), extent.len)));
            }
        }
        let chunk_bytes: u64 = chunks.values().sum();
        // A read-only open knows of nothing but the lists of its state.
        let taken_bytes = (facts.node_bytes + facts.chunk_bytes).max(listed_bytes + chunk_bytes);
        TlsmStats {
            capacity_bytes: facts.capacity_bytes,
            node_bytes: facts.node_bytes.max(listed_bytes),
            chunk_bytes: facts.chunk_bytes.max(chunk_bytes),
            live_bytes,
            garbage_bytes: chunk_bytes.saturating_sub(live_bytes),
            buried_bytes: taken_bytes - listed_bytes - chunk_bytes,
            table_bytes,
            lists: by_level,
            searches: ListSearches {
                count: gets.searches.get(),
                lines: gets.lines.get(),
            },
            linked: counters.linked.get(),
            flushed_bytes: counters.flushed_bytes.get(),
            promoted_bytes: counters.promoted_bytes.get(),
            relocated_bytes: counters.relocated_bytes.get(),
            copied_bytes: counters.copied_bytes.get(),
            evictions: counters.evictions.get(),
            evictions_in_place: counters.evictions_in_place.get(),
            relocations: counters.relocations.get(),
            spilled: counters.spilled.get(),
            resumed: counters.resumed.get(),
            discarded: counters.discarded.get(),
        }
    }
}
