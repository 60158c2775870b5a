//! The tables below the output of a merge: whether one may hold the key at hand, and how many of
//! the next level's bytes the current output table overlaps.

use crate::manifest::{Level, TableMeta, Tables};
use std::sync::Arc;

/// Tracks the tables below the output along with a merge.
pub(crate) struct OverlapTracker {
    /// Older tables of the output's own level, if that is level 0; `None` if something else may
    /// hold any key.
    beside: Option<Tables>,
    deeper: Vec<Tables>,
    /// For each deeper level, the first table that does not end before the merge's key.
    at: Vec<usize>,
    /// Bytes of the next level's tables that the current output table has passed.
    pub(super) overlapped: u64,
}

impl OverlapTracker {
    pub(crate) fn new(level: Level, deeper: Vec<Tables>) -> OverlapTracker {
        let beside = (!level.is_zero()).then(Tables::default);
        OverlapTracker {
            beside,
            at: vec![0; deeper.len()],
            deeper,
            overlapped: 0,
        }
    }

    /// A tracker for an output on level 0 that is newer than the tables `beside` it, which are
    /// everything else on its level.
    pub(super) fn newest(beside: Tables, deeper: Vec<Tables>) -> OverlapTracker {
        OverlapTracker {
            beside: Some(beside),
            ..OverlapTracker::new(Level::ZERO, deeper)
        }
    }

    /// A tracker for an output with nothing below it.
    pub(crate) fn nothing() -> OverlapTracker {
        OverlapTracker {
            beside: Some(Tables::default()),
            deeper: Vec::new(),
            at: Vec::new(),
            overlapped: 0,
        }
    }

    /// Starts an output table at `key`. The first one of a walk skips the tables before it without
    /// counting them.
    pub(super) fn begin_at(&mut self, key: &[u8]) {
        for (tables, at) in self.deeper.iter().zip(&mut self.at) {
            *at += tables[*at..].partition_point(|table| table.largest.as_slice() < key);
        }
        self.overlapped = 0;
    }

    pub(super) fn walk(&mut self, key: &[u8]) {
        for (i, (tables, at)) in self.deeper.iter().zip(&mut self.at).enumerate() {
            while let Some(table) = tables
                .get(*at)
                .filter(|table| table.largest.as_slice() < key)
            {
                *at += 1;
                if i == 0 {
                    self.overlapped += table.bytes();
                }
            }
        }
    }

    /// True if nothing below has `key`. REQUIRES: `walk(key)` was called.
    pub(super) fn is_bottom(&self, key: &[u8]) -> bool {
        let holds = |(tables, &at): (&Tables, &usize)| {
            tables
                .get(at)
                .is_some_and(|table| table.smallest.as_slice() <= key)
        };
        let spans = |table: &Arc<TableMeta>| {
            table.smallest.as_slice() <= key && key <= table.largest.as_slice()
        };
        self.beside
            .as_ref()
            .is_some_and(|tables| !tables.iter().any(spans))
            && !self.deeper.iter().zip(&self.at).any(holds)
    }
}
