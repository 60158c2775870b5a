//! Statistics of sorted tables in persistent memory.

use super::store::{SortedFacts, SortedStore};
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
    /// The mean time of a read from the SSD that a user waits for, in microseconds, with which
    /// reads of a partition are weighed. It is a guess until enough were measured.
    pub ssd_read_us: f64,
    /// The partitions, in key order.
    pub partitions: Vec<BladePartitionStats>,
}

/// One partition of profile `blade`, and what the models compare for it now (PM-Blade, IV-C).
#[derive(Debug, Clone, Serialize)]
pub struct BladePartitionStats {
    /// Its number, which stays the same while its borders change.
    pub id: u32,
    /// Bytes of its tables in persistent memory.
    pub memory_bytes: u64,
    /// Bytes of its files.
    pub ssd_bytes: u64,
    /// Its tables of level 0, as they were flushed.
    pub unsorted_tables: usize,
    /// Recent reads that found an entry in its tables. Half of them are forgotten every ten
    /// seconds.
    pub hits: f64,
    /// Tables that were searched in vain since the last merge of unsorted ones.
    pub wasted_searches: u64,
    /// The cost of these searches, in milliseconds. A merge within persistent memory is due once
    /// it is as large as `merge_ms`.
    pub wasted_ms: f64,
    /// The cost of a merge within persistent memory, in milliseconds.
    pub merge_ms: f64,
    /// The cost, on their way to the SSD, of the entries that such a merge would drop, in
    /// milliseconds; none if tables are not open.
    pub repeats_ms: Option<f64>,
    /// The cost of moving it to the SSD, in nanoseconds for each byte that this frees. The
    /// partition with the least leaves first.
    pub leave_ns_per_byte: f64,
    /// The last merge within persistent memory.
    pub last_internal: Option<BladeMerge>,
    /// The last merge that moved tables to the SSD.
    pub last_major: Option<BladeMerge>,
}

/// A merge of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BladeMerge {
    /// Seconds since it ended.
    pub seconds_ago: f64,
    /// Bytes of the tables that it read.
    pub bytes_in: u64,
    /// Bytes of the tables that it wrote.
    pub bytes_out: u64,
}

impl SortedStore {
    /// The statistics, with the tables of `state` and its `partitions`.
    pub(crate) fn stats(
        &self,
        state: &ReadState,
        gets: &PmGets,
        facts: &SortedFacts,
        partitions: Vec<BladePartitionStats>,
    ) -> BladeStats {
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
            ssd_read_us: facts.ssd_read_ns / 1e3,
            partitions,
        }
    }
}
