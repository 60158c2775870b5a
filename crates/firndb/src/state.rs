//! The one readable state: everything a reader needs, swapped whole.
//!
//! 1. A state never changes; a change makes a new one and swaps it in (`install.rs`, and `write.rs` for a fresh
//!    buffer).
//! 2. Buffers and the runs of an unsorted level lie newest first, by sequence number range, never by file id.
//! 3. The runs of a sorted level do not share a user key and lie in key order.
//! 4. Routing and data are one value, so a reader cannot see the borders of one epoch and the runs of another.

use crate::buffer::Buffer;
use crate::manifest::{TableMeta, Version};
use crate::row_cache::RowCache;
use crate::sst_run::{SstRun, TableCache};
use crate::tier::Trees;
use firn_base::heads::KeyHeads;
use firn_base::key::Kind;
use firn_base::{SeqNo, Tag};
use firn_table::sst::Query;
use firn_table::{Row, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// What readers see.
#[derive(Debug, Clone)]
pub(crate) struct ReadState {
    pub(crate) layout: Layout,
    pub(crate) parts: Arc<[Arc<Part>]>,
}

/// Partition borders: none for `classic`, whose one part holds all keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    pub(crate) cuts: Arc<[Box<[u8]>]>,
    pub(crate) epoch: u64,
}

/// One partition: its buffers and its levels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// Newest first; the first takes writes.
    pub(crate) buffers: Vec<Arc<Buffer>>,
    /// Level 0 in persistent memory, in profile `lab`.
    pub(crate) trees: Option<Trees>,
    pub(crate) levels: Vec<Level>,
    /// All up to this number is below the buffers.
    pub(crate) flushed_through: SeqNo,
    /// The newest entries below the buffers, of keys that are read.
    pub(crate) rows: Option<Arc<RowCache>>,
}

/// One level of a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Level {
    /// Whether the runs are disjoint and in key order.
    pub(crate) sorted: bool,
    pub(crate) runs: Vec<Arc<SstRun>>,
    /// Of the runs' largest keys, if they are sorted.
    heads: KeyHeads,
}

impl ReadState {
    /// The state of one partition.
    pub(crate) fn single(part: Part) -> ReadState {
        ReadState { layout: Layout::default(), parts: Arc::new([Arc::new(part)]) }
    }

    /// The number of the part that holds `key`.
    pub(crate) fn part_of(&self, key: &[u8]) -> usize {
        self.layout.cuts.partition_point(|cut| **cut <= *key)
    }

    /// This state with part `i` replaced.
    pub(crate) fn with_part(&self, i: usize, part: Part) -> ReadState {
        let mut parts = self.parts.to_vec();
        parts[i] = Arc::new(part);
        ReadState { layout: Layout { epoch: self.layout.epoch + 1, ..self.layout.clone() }, parts: parts.into() }
    }
}

impl Part {
    /// The part with the tables of `version`; runs that `old` has already are shared with it.
    pub(crate) fn with_tables(&self, version: &Version, tables: &Arc<TableCache>, levels: usize) -> Part {
        let known: HashMap<u64, &Arc<SstRun>> =
            self.levels.iter().flat_map(|level| &level.runs).map(|run| (run.meta.id, run)).collect();
        let run = |meta: &Arc<TableMeta>| match known.get(&meta.id) {
            // `shared` may have changed; the run is the same one.
            Some(run) if run.meta.extent == meta.extent => Arc::clone(run),
            _ => Arc::new(SstRun::new(meta.clone(), tables.clone())),
        };
        let level = |i: usize| Level::new(i > 0, version.levels.get(i).into_iter().flatten().map(run).collect());
        Part { levels: (0..levels.max(version.levels.len())).map(level).collect(), ..self.clone() }
    }

    /// The newest entry of `key` below the buffers, if it is kept as a row and not above `seqno`. REQUIRES: no buffer
    /// has one.
    #[inline]
    pub(crate) fn row(&self, key: &[u8], hash: u64, seqno: SeqNo) -> Option<(Tag, Value)> {
        let row = self.rows.as_ref()?.get(key, hash, seqno)?;
        // After the look: what is in no buffer here is in one that was begun when this one was full.
        let newest = self.buffers.first().and_then(|active| active.frozen_at());
        newest.is_none_or(|newest| row.0.seqno() <= newest).then_some(row)
    }

    /// Whether what a reader at `seqno` finds can be kept as a row: he sees all that is below the buffers, and rows are
    /// taken now.
    #[inline]
    pub(crate) fn takes_rows(&self, seqno: SeqNo) -> bool {
        seqno >= self.flushed_through && self.rows.as_ref().is_some_and(|rows| rows.are_for(self.flushed_through))
    }

    /// Keeps what a get found to be that, if anything.
    pub(crate) fn keep_row(&self, query: &Query<'_>, found: Option<Row>) {
        if let (Some(row), Some(rows)) = (found, &self.rows) {
            rows.keep(self.flushed_through, query.seqno, query.hash, row);
        }
    }

    /// Keeps that a get found nothing at all.
    pub(crate) fn keep_absent(&self, query: &Query<'_>) {
        // What was deleted and dropped is absent for those who see the deletion: it was below that number.
        let row = || Row::new(query.key, Tag::new(self.flushed_through, Kind::Delete), &[]);
        self.keep_row(query, query.rows.then(row));
    }

    /// `flushed` goes: what it has is below the buffers now.
    pub(crate) fn let_go(&mut self, flushed: &Arc<Buffer>) {
        self.buffers.retain(|buffer| !Arc::ptr_eq(buffer, flushed));
        self.flushed_through = flushed.frozen_at().unwrap_or(self.flushed_through);
    }

    /// The last level that holds any table; 0 if none does.
    pub(crate) fn last_level(&self) -> usize {
        self.levels.iter().rposition(|level| !level.runs.is_empty()).unwrap_or(0)
    }

    /// (dead bytes, live bytes) of all tables.
    pub(crate) fn dead_and_live(&self) -> (u64, u64) {
        self.tables().fold((0, 0), |(dead, live), (_, run)| (dead + run.meta.dead_bytes, live + run.meta.live_bytes()))
    }

    /// All tables, from the top down.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<SstRun>)> {
        self.levels.iter().enumerate().flat_map(|(i, level)| level.runs.iter().map(move |run| (i, run)))
    }

    /// What the tables of each level below `level` are, without keeping any: who works for long holds nothing of the
    /// state but what it reads.
    pub(crate) fn metas_below(&self, level: usize) -> Vec<Vec<Arc<TableMeta>>> {
        let metas = |level: &Level| level.runs.iter().map(|run| run.meta.clone()).collect();
        self.levels.iter().skip(level + 1).map(metas).collect()
    }

    /// The oldest buffer, if it is frozen and all that belongs in it is visible, so that it can be flushed.
    pub(crate) fn flushable(&self, visible: SeqNo) -> Option<&Arc<Buffer>> {
        let oldest = self.buffers.last()?;
        (self.buffers.len() > 1 && oldest.frozen_at().is_some_and(|last| last <= visible)).then_some(oldest)
    }
}

impl Level {
    /// Of these runs, in their order.
    pub(crate) fn new(sorted: bool, runs: Vec<Arc<SstRun>>) -> Level {
        let heads = KeyHeads::new(if sorted { runs.len() } else { 0 }, |i| &runs[i].meta.largest);
        Level { sorted, runs, heads }
    }

    /// Bytes of its tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.meta.bytes()).sum()
    }

    /// Of these, bytes that their newest states need.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.meta.live_bytes()).sum()
    }

    /// The runs whose keys meet those from `smallest` to `largest`, both included.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<SstRun>] {
        debug_assert!(self.sorted);
        let from = self.runs.partition_point(|run| run.meta.largest.as_slice() < smallest);
        let to = self.runs.partition_point(|run| run.meta.smallest.as_slice() <= largest);
        self.runs.get(from..to).unwrap_or(&[])
    }

    /// The run of a sorted level that may hold `key`.
    #[inline]
    pub(crate) fn run_for(&self, key: &[u8]) -> Option<&Arc<SstRun>> {
        let at = self.heads.first_not_below(key, |i| &self.runs[i].meta.largest);
        self.runs.get(at).filter(|run| run.meta.smallest.as_slice() <= key)
    }
}
