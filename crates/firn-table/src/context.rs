//! The context of a database's open tables: the block cache, and the counts of their reads and of
//! their memory.

use crate::BlockCache;
use crate::if_tree::SearchCounts;
use firn_base::count::{Counter, IoCounters};
use firn_base::sync::{AtomicU64, Ordering};
use std::sync::Arc;

/// The block cache and the counters of open tables.
#[derive(Clone)]
pub struct TableContext {
    /// Decoded blocks.
    pub cache: Arc<BlockCache>,
    /// Bytes read from files, by cause.
    pub counters: Arc<IoCounters>,
    /// Gets that searched tables in persistent memory.
    pub pm_gets: Arc<PmGets>,
    /// Searches of trees over blocks.
    pub if_tree_gets: Arc<IfTreeGets>,
    open_bytes: Arc<AtomicU64>,
}

/// Gets that searched a table in persistent memory.
#[derive(Debug, Default)]
pub struct PmGets {
    /// Searches that the table's filter did not rule out.
    pub searches: Counter,
    /// Cache lines of persistent memory that they read, values included.
    pub lines: Counter,
}

/// Searches of trees over blocks.
#[derive(Debug, Default)]
pub struct IfTreeGets {
    /// Searches.
    pub searches: Counter,
    /// Nodes whose bounds were compared, and entries above them.
    pub nodes: Counter,
    /// Cache lines of persistent memory that were read.
    pub lines: Counter,
    /// Filters tested.
    pub tests: Counter,
    /// The tests that excluded the key.
    pub rejected: Counter,
}

/// Bytes of memory of an open table, counted until it is dropped.
#[derive(Debug)]
pub struct OpenBytes {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl PmGets {
    /// Counts a search that read `lines`.
    #[inline]
    pub fn searched(&self, lines: u64) {
        self.searches.add(1);
        self.lines.add(lines);
    }
}

impl IfTreeGets {
    /// Counts searches, and their costs.
    #[inline]
    pub(crate) fn searched(&self, searches: u64, counts: &SearchCounts) {
        self.searches.add(searches);
        self.nodes.add(counts.nodes);
        self.lines.add(counts.lines);
        self.tests.add(counts.tests);
        self.rejected.add(counts.rejected);
    }
}

impl TableContext {
    /// A context for tables that keep their blocks in `cache` and count their reads in `counters`.
    pub fn new(cache: Arc<BlockCache>, counters: Arc<IoCounters>) -> Self {
        Self {
            cache,
            counters,
            pm_gets: Arc::default(),
            if_tree_gets: Arc::default(),
            open_bytes: Arc::default(),
        }
    }

    /// Bytes of memory held by open tables. A table counts until its last reader drops it, even if
    /// it is obsolete.
    pub fn open_bytes(&self) -> u64 {
        self.open_bytes.load(Ordering::Relaxed)
    }

    /// Counts `bytes` of a table.
    pub fn count_open(&self, bytes: usize) -> OpenBytes {
        let (all, bytes) = (self.open_bytes.clone(), bytes as u64);
        all.fetch_add(bytes, Ordering::Relaxed);
        OpenBytes { all, bytes }
    }
}

impl OpenBytes {
    /// The bytes that it counts.
    pub fn get(&self) -> usize {
        self.bytes as usize
    }
}

impl Drop for OpenBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
