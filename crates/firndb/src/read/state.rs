//! The one readable state: everything a reader needs, replaced as a whole.
//!
//! 1. A state never changes. A change creates a new state and swaps it in (`install.rs`, and
//!    `write/mod.rs` for a fresh memtable).
//! 2. Memtables and the runs of an unsorted level are ordered newest first by sequence number
//!    range, never by file id.
//! 3. The runs of a sorted level do not share a user key and are in key order.
//! 4. Routing and data are one value, so a reader cannot see the borders of one epoch and the runs
//!    of another.
//! 5. A level is shared by all states in which it is unchanged, and by cursors. A changed level is
//!    derived from the previous one: only the tables that are not in both are examined, and the
//!    others get one more reference.

use crate::lab::Trees;
use crate::manifest::{TableMeta, Tables, Version};
use crate::memtable::Memtable;
use crate::read::row_cache::RowCache;
use crate::read::run::{SstRun, TableCache};
use firn_base::heads::KeyHeads;
use firn_base::key::Kind;
use firn_base::{SeqNo, Tag};
use firn_table::sst::Query;
use firn_table::{Row, Value};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The state that readers see.
#[derive(Debug, Clone)]
pub(crate) struct ReadState {
    pub(crate) layout: Layout,
    pub(crate) parts: Arc<[Arc<Part>]>,
    /// Shared by all states of a database that are still held.
    life: Arc<()>,
}

/// Partition borders: none for `classic`, whose one part holds all keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    pub(crate) cuts: Arc<[Box<[u8]>]>,
    pub(crate) epoch: u64,
}

/// One partition: its memtables and its levels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// The memtables, newest first. The first takes writes.
    pub(crate) buffers: Vec<Arc<Memtable>>,
    /// Level 0 in persistent memory, in profile `lab`.
    pub(crate) trees: Option<Trees>,
    pub(crate) levels: Vec<Arc<Level>>,
    /// Everything up to this sequence number is below the memtables.
    pub(crate) flushed_through: SeqNo,
    /// The newest entries below the memtables, for keys that are read.
    pub(crate) rows: Option<Arc<RowCache>>,
}

/// One level of a partition.
#[derive(Debug, Default)]
pub(crate) struct Level {
    /// True if the runs are disjoint and in key order.
    pub(crate) sorted: bool,
    pub(crate) runs: Vec<Arc<SstRun>>,
    /// The tables of the runs, as the manifest has them.
    tables: Tables,
    /// Prefixes of the runs' largest keys, if the runs are sorted.
    heads: KeyHeads,
    bytes: Bytes,
}

/// Sums over the tables of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bytes {
    all: u64,
    live: u64,
    dead: u64,
    /// The number of tables that are mostly tombstones.
    tombstone_tables: u64,
}

impl Bytes {
    fn of(runs: &[Arc<SstRun>]) -> Bytes {
        runs.iter().fold(Bytes::default(), |sum, run| Bytes {
            all: sum.all + run.meta.bytes(),
            live: sum.live + run.meta.live_bytes(),
            dead: sum.dead + run.meta.dead_bytes,
            tombstone_tables: sum.tombstone_tables + u64::from(run.meta.is_mostly_tombstones()),
        })
    }
}

impl ReadState {
    /// The state of one partition.
    pub(crate) fn single(part: Part) -> ReadState {
        ReadState {
            layout: Layout::default(),
            parts: Arc::new([Arc::new(part)]),
            life: Arc::new(()),
        }
    }

    /// The number of the part that holds `key`.
    pub(crate) fn part_of(&self, key: &[u8]) -> usize {
        self.layout.cuts.partition_point(|cut| **cut <= *key)
    }

    /// This state with part `i` replaced.
    pub(crate) fn with_part(&self, i: usize, part: Part) -> ReadState {
        let mut parts = self.parts.to_vec();
        parts[i] = Arc::new(part);
        let layout = Layout {
            epoch: self.layout.epoch + 1,
            ..self.layout.clone()
        };
        ReadState {
            layout,
            parts: parts.into(),
            life: self.life.clone(),
        }
    }

    /// The same state as a new value, to distinguish readers of this one from later ones.
    pub(crate) fn renewed(&self) -> ReadState {
        self.clone()
    }

    /// The number of states of this database in memory, including this one.
    pub(crate) fn alive(&self) -> usize {
        Arc::strong_count(&self.life)
    }
}

impl Part {
    /// The part with the tables of `version`. Runs that this part already has are shared.
    pub(crate) fn with_tables(
        &self,
        version: &Version,
        tables: &Arc<TableCache>,
        levels: usize,
    ) -> Part {
        let count = levels.max(version.levels.len());
        let (no_level, no_tables) = <(Arc<Level>, Tables)>::default();
        let old = |i: usize| self.levels.get(i).unwrap_or(&no_level);
        let new = |i: usize| version.levels.get(i).unwrap_or(&no_tables);
        let changes: Vec<Change<'_>> = (0..count).map(|i| Change::new(old(i), new(i))).collect();
        // Tables also move from one level to another.
        let gone = || changes.iter().flat_map(Change::gone);
        let known: HashMap<u64, &Arc<SstRun>> = gone().map(|run| (run.meta.id, run)).collect();
        let run = |meta: &Arc<TableMeta>| match known.get(&meta.id) {
            // `shared` may have changed, but the run is the same.
            Some(run) if run.meta.extent == meta.extent => Arc::clone(run),
            _ => Arc::new(SstRun::new(meta.clone(), tables.clone())),
        };
        let level =
            |(i, change): (usize, &Change<'_>)| match change.is_none() && i < self.levels.len() {
                true => self.levels[i].clone(),
                false => Arc::new(change.made(i > 0, run)),
            };
        Part {
            levels: changes.iter().enumerate().map(level).collect(),
            ..self.clone()
        }
    }

    /// The newest entry of `key` below the memtables, if it is kept as a row and not above `seqno`.
    /// REQUIRES: no memtable has an entry of it.
    #[inline]
    pub(crate) fn row(&self, key: &[u8], hash: u64, seqno: SeqNo) -> Option<(Tag, Value)> {
        let row = self.rows.as_ref()?.get(key, hash, seqno)?;
        // Loaded after the row: an entry that is in none of these memtables is in one that was
        // created after this one was full.
        let newest = self.buffers.first().and_then(|active| active.frozen_at());
        newest
            .is_none_or(|newest| row.0.seqno() <= newest)
            .then_some(row)
    }

    /// True if an entry that a reader at `seqno` finds below the memtables, none of which has its
    /// key, may be kept as a row.
    #[inline]
    pub(crate) fn takes_rows(&self, seqno: SeqNo) -> bool {
        self.rows
            .as_ref()
            .is_some_and(|rows| rows.may_bring(&self.searched(seqno)))
    }

    /// The sequence numbers that a reader at `seqno` covers by searching these memtables: those
    /// above the first number of the range, up to the last one that is visible to it and in them.
    #[inline]
    fn searched(&self, seqno: SeqNo) -> RangeInclusive<SeqNo> {
        // Loaded after the read point: if that is above the end of these memtables, they are known
        // to be frozen.
        let last = self.buffers.first().and_then(|active| active.frozen_at());
        self.flushed_through..=last.map_or(seqno, |last| last.min(seqno))
    }

    /// Keeps the entry that a get found, if any.
    pub(crate) fn keep_row(&self, query: &Query<'_>, found: Option<Row>) {
        if let (Some(row), Some(rows)) = (found, &self.rows) {
            rows.keep(&self.searched(query.seqno), query.hash, row);
        }
    }

    /// Records that a get found nothing.
    pub(crate) fn keep_absent(&self, query: &Query<'_>) {
        // A key whose tombstone was dropped is absent for readers that see the deletion, and the
        // deletion is not above this number.
        let row = || Row::new(query.key, Tag::new(self.flushed_through, Kind::Delete), &[]);
        self.keep_row(query, query.rows.then(row));
    }

    /// Removes `flushed`, whose entries are below the memtables now.
    pub(crate) fn let_go(&mut self, flushed: &Arc<Memtable>) {
        self.buffers.retain(|buffer| !Arc::ptr_eq(buffer, flushed));
        self.flushed_through = flushed.frozen_at().unwrap_or(self.flushed_through);
    }

    /// The approximate number of keys that have a value at `visible`. Each version counts as one,
    /// and each tombstone subtracts one.
    pub(crate) fn approximate_len(&self, visible: SeqNo) -> u64 {
        let live = |run: &SstRun| run.meta.entries.saturating_sub(2 * run.meta.deletes);
        let in_tables: u64 = self.tables().map(|(_, run)| live(run)).sum();
        let in_trees = self.trees.as_ref().map_or(0, Trees::entries);
        in_tables + in_trees + visible.0.saturating_sub(self.flushed_through.0)
    }

    /// The last level that holds any table; 0 if none does.
    pub(crate) fn last_level(&self) -> usize {
        self.levels
            .iter()
            .rposition(|level| !level.runs.is_empty())
            .unwrap_or(0)
    }

    /// (dead bytes, live bytes) of all tables.
    pub(crate) fn dead_and_live(&self) -> (u64, u64) {
        self.levels.iter().fold((0, 0), |(dead, live), level| {
            (dead + level.bytes.dead, live + level.bytes.live)
        })
    }

    /// All tables, from level 0 down.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<SstRun>)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(i, level)| level.runs.iter().map(move |run| (i, run)))
    }

    /// The tables of each level below `level`, without their runs, so that a long job holds nothing
    /// of the state except the tables it reads.
    pub(crate) fn metas_below(&self, level: usize) -> Vec<Tables> {
        self.levels
            .iter()
            .skip(level + 1)
            .map(|level| level.tables.clone())
            .collect()
    }

    /// As [`Part::metas_below`], for `level` itself.
    pub(crate) fn metas_of(&self, level: usize) -> Tables {
        self.levels
            .get(level)
            .map(|level| level.tables.clone())
            .unwrap_or_default()
    }

    /// The oldest memtable, if it is frozen and all its entries are visible, so that it can be
    /// flushed.
    pub(crate) fn flushable(&self, visible: SeqNo) -> Option<&Arc<Memtable>> {
        let oldest = self.buffers.last()?;
        (self.buffers.len() > 1 && oldest.frozen_at().is_some_and(|last| last <= visible))
            .then_some(oldest)
    }
}

impl Level {
    /// A level of these runs, in their order.
    pub(crate) fn new(sorted: bool, runs: Vec<Arc<SstRun>>) -> Level {
        let tables = Tables::new(runs.iter().map(|run| run.meta.clone()).collect());
        Change::new(&Level::default(), &tables).with_runs(sorted, runs)
    }

    /// Bytes of the tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.all
    }

    /// True if any table is mostly tombstones.
    pub(crate) fn has_tombstone_tables(&self) -> bool {
        self.bytes.tombstone_tables > 0
    }

    /// Bytes that the newest states of the tables need.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.bytes.live
    }

    /// Bytes in no live block.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.bytes.dead
    }

    /// The runs with keys between `smallest` and `largest`, both inclusive.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<SstRun>] {
        debug_assert!(self.sorted);
        let from = self
            .runs
            .partition_point(|run| run.meta.largest.as_slice() < smallest);
        let to = self
            .runs
            .partition_point(|run| run.meta.smallest.as_slice() <= largest);
        self.runs.get(from..to).unwrap_or(&[])
    }

    /// The run of a sorted level that may hold `key`.
    #[inline]
    pub(crate) fn run_for(&self, key: &[u8]) -> Option<&Arc<SstRun>> {
        if self.runs.is_empty() {
            return None;
        }
        self.runs
            .get(self.first_not_below(key))
            .filter(|run| run.meta.smallest.as_slice() <= key)
    }

    /// The index of the first run of a sorted level that does not end below `key`.
    #[inline]
    pub(crate) fn first_not_below(&self, key: &[u8]) -> usize {
        self.heads
            .first_not_below(key, |i| &self.runs[i].meta.largest)
    }

    /// The run of the table with the metadata `meta`, if it is in this level.
    pub(crate) fn run_of(&self, meta: &TableMeta) -> Option<&Arc<SstRun>> {
        let is_it = |run: &&Arc<SstRun>| run.meta.id == meta.id;
        match self.sorted {
            true => self.run_for(&meta.smallest).filter(is_it),
            false => self.runs.iter().find(is_it),
        }
    }
}

/// The difference between two versions of a level: the tables between their common prefix and
/// common suffix.
struct Change<'a> {
    old: &'a Level,
    tables: &'a Tables,
    front: usize,
    back: usize,
}

impl<'a> Change<'a> {
    fn new(old: &'a Level, tables: &'a Tables) -> Change<'a> {
        let (before, after) = (&old.tables, tables);
        if Arc::ptr_eq(before, after) {
            return Change {
                old,
                tables,
                front: before.len(),
                back: 0,
            };
        }
        let same = |(a, b): &(&Arc<TableMeta>, &Arc<TableMeta>)| Arc::ptr_eq(a, b);
        let front = before.iter().zip(after.iter()).take_while(same).count();
        let back = before[front..]
            .iter()
            .rev()
            .zip(after[front..].iter().rev())
            .take_while(same)
            .count();
        Change {
            old,
            tables,
            front,
            back,
        }
    }

    fn is_none(&self) -> bool {
        self.front + self.back == self.old.runs.len().max(self.tables.len())
    }

    /// The old runs that are not in the new level.
    fn gone(&self) -> &'a [Arc<SstRun>] {
        &self.old.runs[self.front..self.old.runs.len() - self.back]
    }

    /// The new level, with new runs for its new tables.
    fn made(&self, sorted: bool, run: impl Fn(&Arc<TableMeta>) -> Arc<SstRun>) -> Level {
        let old = &self.old.runs;
        let mut runs = Vec::with_capacity(self.tables.len());
        runs.extend_from_slice(&old[..self.front]);
        runs.extend(
            self.tables[self.front..self.tables.len() - self.back]
                .iter()
                .map(run),
        );
        runs.extend_from_slice(&old[old.len() - self.back..]);
        self.with_runs(sorted, runs)
    }

    /// The new level, made of `runs`.
    fn with_runs(&self, sorted: bool, runs: Vec<Arc<SstRun>>) -> Level {
        let (front, back) = (self.front, runs.len() - self.back);
        let heads = match sorted {
            true => self
                .old
                .heads
                .spliced(runs.len(), front..back, |i| &runs[i].meta.largest),
            false => KeyHeads::default(),
        };
        let (gone, new) = (Bytes::of(self.gone()), Bytes::of(&runs[front..back]));
        let of = |old: u64, gone: u64, new: u64| old - gone + new;
        let old = self.old.bytes;
        let bytes = Bytes {
            all: of(old.all, gone.all, new.all),
            live: of(old.live, gone.live, new.live),
            dead: of(old.dead, gone.dead, new.dead),
            tombstone_tables: of(
                old.tombstone_tables,
                gone.tombstone_tables,
                new.tombstone_tables,
            ),
        };
        debug_assert_eq!(bytes, Bytes::of(&runs));
        Level {
            sorted,
            runs,
            tables: self.tables.clone(),
            heads,
            bytes,
        }
    }
}
