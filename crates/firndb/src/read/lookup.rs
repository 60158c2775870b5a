//! The search for one key: the memtables, the rows, then the runs from the newest to the oldest.
//! Gets and `multi_get` run the same search; only the latter does not wait for each read.

use crate::manifest::Level;
use crate::read::run::Run;
use crate::read::state::{Part, ReadState};
use crate::read::table_run::TableRun;
use firn_base::count::Counter;
use firn_base::{SeqNo, Tag};
use firn_table::Value;
use firn_table::sst::{Got, Query, hash};
use std::sync::Arc;

/// A place where a get can find an entry, from the newest to the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Memtables,
    /// Entries below the memtables that were read before, kept one by one.
    Rows,
    /// The structure between the memtables and the tables, in profiles that have one.
    Upper,
    Level(Level),
}

/// The number of levels with a counter of their own. Deeper ones count as the last of these.
const LEVELS: usize = 10;

/// Values found by gets, by layer.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    memtables: Counter,
    rows: Counter,
    upper: Counter,
    levels: [Counter; LEVELS],
}

impl Hits {
    fn of(&self, layer: Layer) -> &Counter {
        match layer {
            Layer::Memtables => &self.memtables,
            Layer::Rows => &self.rows,
            Layer::Upper => &self.upper,
            Layer::Level(level) => &self.levels[level.0.min(LEVELS - 1)],
        }
    }

    /// Counts a value found in `layer`.
    #[inline]
    pub(crate) fn add(&self, layer: Layer) {
        self.of(layer).add(1);
    }

    /// The values found in `layer`.
    pub(crate) fn get(&self, layer: Layer) -> u64 {
        self.of(layer).get()
    }

    /// All values found.
    pub(crate) fn sum(&self) -> u64 {
        let levels: u64 = self.levels.iter().map(Counter::get).sum();
        self.memtables.get() + self.rows.get() + self.upper.get() + levels
    }
}

/// The runs that may hold a key, newest first. On level 0 every table may; on each lower level at
/// most one can.
struct Candidates<'a> {
    part: &'a Part,
    key: &'a [u8],
    upper: Option<Run<'a>>,
    level: Level,
    run: usize,
    /// Tables of unsorted levels so far, and one more if there were others.
    visited: u64,
    has_sorted: bool,
}

impl<'a> Candidates<'a> {
    /// The next run. With `TREES` as false, it is never a tree.
    #[inline(always)]
    fn next<const TREES: bool>(&mut self) -> Option<(Layer, Run<'a>)> {
        if let Some(upper) = self.upper.take() {
            return Some((Layer::Upper, upper));
        }
        while let Some(level) = self.part.levels.get(self.level) {
            // What a tree finds counts as found on its first level.
            let layer = Layer::Level(self.level);
            let trees = self.part.trees.as_ref().filter(|_| TREES && self.run == 0);
            if let Some(tree) = trees.and_then(|trees| trees.at(self.level, self.key)) {
                self.level = tree.meta.levels.1.below();
                return Some((layer, Run::Tree(tree)));
            }
            if level.sorted {
                self.level = self.level.below();
                if let Some(run) = level.run_for(self.key) {
                    self.has_sorted = true;
                    return Some((layer, Run::Table(run)));
                }
                continue;
            }
            while let Some(run) = level.runs.get(self.run) {
                self.run += 1;
                if run.meta.spans(self.key) {
                    self.visited += 1;
                    return Some((layer, Run::Table(run)));
                }
            }
            (self.level, self.run) = (self.level.below(), 0);
        }
        None
    }
}

/// A search in progress.
pub(super) struct Search<'a> {
    pub(super) query: Query<'a>,
    state: &'a ReadState,
    candidates: Candidates<'a>,
    /// The first table that was read without finding the key. Compacting it would have saved that
    /// read (LevelDB's rule).
    charged: Option<(Level, &'a Arc<TableRun>)>,
    /// True if a run was read without finding the key.
    read_in_vain: bool,
}

/// Looks where no read is needed: in the memtables and the rows. If the key is in neither, returns
/// the query that goes on with the runs. Memtables of partitions are searched before
/// ([`look_in_part`]).
#[inline(always)]
pub(super) fn look_in_memory<'a>(
    state: &ReadState,
    key: &'a [u8],
    seqno: SeqNo,
) -> Result<(Layer, Tag, Value), Query<'a>> {
    let (unflushed, hash) = (state.unflushed(key), hash(key));
    if !state.memtables.are_by_part() {
        for memtable in &unflushed.memtables {
            if let Some((tag, value)) = memtable.get(key, hash, seqno) {
                return Ok((Layer::Memtables, tag, value));
            }
        }
    }
    if let Some((tag, value)) = state.row(unflushed, key, hash, seqno) {
        return Ok((Layer::Rows, tag, value));
    }
    let rows = state.takes_rows(unflushed, seqno);
    Err(Query {
        key,
        hash,
        seqno,
        rows,
    })
}

/// The newest entry of `key` at or below `seqno` in the memtables of its partition.
///
/// # Errors
/// `Corruption` if it is damaged in persistent memory.
// Not inlined, because most databases have none.
#[inline(never)]
pub(super) fn look_in_part(
    state: &ReadState,
    key: &[u8],
    seqno: SeqNo,
) -> firn_base::Result<Option<(Layer, Tag, Value)>> {
    let hash = hash(key);
    for memtable in &state.unflushed(key).memtables {
        if let Some((tag, value)) = memtable.find(key, hash, seqno)? {
            return Ok(Some((Layer::Memtables, tag, value)));
        }
    }
    Ok(None)
}

impl<'a> Search<'a> {
    /// Begins a search of the runs.
    #[inline]
    pub(super) fn new(state: &'a ReadState, query: Query<'a>) -> Search<'a> {
        let part = state.part(query.key);
        Search {
            candidates: Candidates {
                part,
                key: query.key,
                upper: part.upper.as_ref().map(Run::Upper),
                level: Level(0),
                run: 0,
                visited: 0,
                has_sorted: false,
            },
            query,
            state,
            charged: None,
            read_in_vain: false,
        }
    }

    /// The next run to be searched, if there is another.
    #[inline(always)]
    pub(super) fn next<const TREES: bool>(&mut self) -> Option<(Layer, Run<'a>)> {
        self.candidates.next::<TREES>()
    }

    /// True if there are trees over blocks. If not, none need be looked for.
    #[inline(always)]
    pub(super) fn has_trees(&self) -> bool {
        self.candidates.part.trees.is_some()
    }

    /// Takes the result of a run. Returns the entry if it was found, which ends the search.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        (layer, run): (Layer, Run<'a>),
        got: Got,
    ) -> Option<(Layer, Tag, Value)> {
        match got {
            Got::Found {
                tag,
                value,
                keeps_row,
            } => {
                if keeps_row {
                    self.state.keep_row(&self.query, tag, &value);
                }
                return Some((layer, tag, value));
            }
            // A block from the cache cost nothing that a compaction could save.
            Got::Missed { read: true } => {
                self.read_in_vain = true;
                if let (Layer::Level(level), Run::Table(run)) = (layer, run) {
                    self.charged.get_or_insert((level, run));
                }
            }
            Got::Missed { read: false } | Got::Excluded => {}
        }
        None
    }

    /// Counts the search as a read of its partition, if a policy looks at these.
    #[inline(always)]
    pub(super) fn note_heat(&self, found: bool) {
        if let Some(heat) = &self.candidates.part.heat {
            let sorted = u64::from(self.candidates.has_sorted);
            heat.searched(self.candidates.visited + sorted, found);
        }
    }

    /// Keeps that there is no entry, if it took a read to learn it. REQUIRES: all runs were
    /// searched.
    #[inline]
    pub(super) fn keep_absent(&self) {
        if self.read_in_vain {
            self.state.keep_absent(&self.query);
        }
    }

    /// The table that is to be charged for a read in vain, with its level.
    #[inline]
    pub(super) fn charged(&self) -> Option<(Level, &'a Arc<TableRun>)> {
        self.charged
    }
}
