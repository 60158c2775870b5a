//! Statistics of ranges with stacks of tables.

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
}
