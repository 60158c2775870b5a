//! Statistics of sorted tables in persistent memory.

use super::store::SortedStore;
use crate::manifest::Level;
use crate::read::state::ReadState;
use firn_base::count::Counter;
use firn_table::PmGets;
use serde::Serialize;

/// Counts of what was written to sorted tables, since the open.
#[derive(Debug, Default)]
pub(crate) struct SortedCounters {
    pub(crate) flushed_bytes: Counter,
    pub(crate) internal: Counter,
    pub(crate) internal_bytes: Counter,
    pub(crate) major: Counter,
    pub(crate) major_bytes: Counter,
    pub(crate) spilled: Counter,
}

/// Tables in persistent memory, in profile `blade`.
#[derive(Debug, Clone, Serialize)]
pub struct BladeStats {
    /// Bytes that tables may take.
    pub capacity_bytes: u64,
    /// Bytes that they take. Those that no table of the current state has are held by readers or
    /// running jobs.
    pub used_bytes: u64,
    /// The part of [`Stats::table_bytes`](crate::Stats::table_bytes) that is in persistent memory.
    pub table_bytes: u64,
    /// Tables of level 0, as they were flushed.
    pub unsorted_tables: usize,
    /// Tables of level 1, which do not overlap.
    pub sorted_tables: usize,
    /// Searches of gets in tables whose filter did not rule the key out.
    pub searches: u64,
    /// Cache lines of persistent memory that they read, values included.
    pub search_lines: u64,
    /// Bytes of tables that flushes wrote.
    pub flushed_bytes: u64,
    /// Compactions within persistent memory.
    pub internal_compactions: u64,
    /// Bytes of tables that they wrote.
    pub internal_bytes: u64,
    /// Compactions that moved tables to the SSD.
    pub major_compactions: u64,
    /// Bytes of tables that they wrote.
    pub major_bytes: u64,
    /// Jobs whose output became files because there was no room.
    pub spilled: u64,
}

impl SortedStore {
    /// The statistics, with the tables of `state`.
    pub(crate) fn stats(&self, state: &ReadState, gets: &PmGets) -> BladeStats {
        let facts = self.facts(0);
        let counters = &self.counters;
        let (mut unsorted, mut sorted, mut table_bytes) = (0, 0, 0);
        for (level, run) in state.tables().filter(|(_, run)| !run.meta.is_file()) {
            match level {
                Level::ZERO => unsorted += 1,
                _ => sorted += 1,
            }
            table_bytes += run.meta.bytes();
        }
        BladeStats {
            capacity_bytes: facts.capacity_bytes,
            // A read-only open knows of nothing but the tables of its state.
            used_bytes: facts.used_bytes.max(table_bytes),
            table_bytes,
            unsorted_tables: unsorted,
            sorted_tables: sorted,
            searches: gets.searches.get(),
            search_lines: gets.lines.get(),
            flushed_bytes: counters.flushed_bytes.get(),
            internal_compactions: counters.internal.get(),
            internal_bytes: counters.internal_bytes.get(),
            major_compactions: counters.major.get(),
            major_bytes: counters.major_bytes.get(),
            spilled: counters.spilled.get(),
        }
    }
}
