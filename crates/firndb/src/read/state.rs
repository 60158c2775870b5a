//! The one readable state: everything a reader needs, replaced as a whole.
//!
//! 1. A state never changes. A change creates a new state and swaps it in (`install.rs`, and
//!    `write/mod.rs` for a fresh memtable).
//! 2. The runs of an unsorted level are ordered newest first by sequence number range, never by
//!    file id.
//! 3. The runs of a sorted level do not share a user key and are in key order.
//! 4. Routing and data are one value, so a reader cannot see the partition borders of one state and
//!    the runs of another. A run lies within one partition, and the memtables have keys of all
//!    or of one (`memtables.rs`).
//! 5. A partition, and a level of it, is shared by all states in which it is unchanged, and by
//!    cursors. A changed level is derived from the previous one: only the tables that are not in
//!    both are examined, and the others get one more reference.

#[cfg(all(test, not(shuttle)))]
mod tests;

use crate::manifest::{BlockTreeMeta, Layout, Level, Levels, PartId, TableMeta, Tables, Version};
use crate::memtable::Memtable;
use crate::read::block_trees::{PartTrees, TreeRun};
use crate::read::heat::Heat;
use crate::read::level::Change;
pub(crate) use crate::read::level::LevelRuns;
use crate::read::memtables::{Memtables, Unflushed};
use crate::read::row_cache::RowCache;
use crate::read::table_run::{TableCache, TableRun};
use crate::upper::Upper;
use firn_base::key::Kind;
use firn_base::{FileId, SeqNo, Tag};
use firn_table::Value;
use firn_table::if_tree::IfTree;
use firn_table::sst::Query;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The state that readers see.
#[derive(Debug, Clone)]
pub(crate) struct ReadState {
    pub(crate) memtables: Memtables,
    /// The newest entries below the memtables, for keys that are read.
    pub(crate) rows: Option<Arc<RowCache>>,
    pub(crate) layout: Layout,
    /// The partitions, in key order. A database without borders has one.
    pub(crate) parts: Arc<[Arc<Part>]>,
    /// Shared by all states of a database that are still held.
    life: Arc<()>,
}

/// One partition: the entries of its keys that are below the memtables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// The structure between the memtables and the tables, in profiles that have one.
    pub(crate) upper: Option<Upper>,
    pub(crate) levels: Levels<Arc<LevelRuns>>,
    /// Trees over the blocks of its tables, if there are any.
    pub(crate) trees: Option<Arc<PartTrees>>,
    /// Its reads, if a policy looks at them.
    pub(crate) heat: Option<Arc<Heat>>,
}

/// The changed partitions of a new version.
pub(crate) enum Touched<'a> {
    All,
    /// The partitions of these keys.
    Keys(&'a mut dyn Iterator<Item = &'a [u8]>),
}

impl ReadState {
    /// A state of these memtables and the tables of `version`, in at least `levels` levels.
    pub(crate) fn new(
        memtables: Memtables,
        version: &Version,
        tables: &Arc<TableCache>,
        levels: usize,
    ) -> ReadState {
        let empty = ReadState {
            memtables: memtables.clone(),
            rows: None,
            layout: Layout::default(),
            parts: Arc::new([Arc::default()]),
            life: Arc::new(()),
        };
        ReadState {
            memtables,
            ..empty.with_tables(version, Touched::All, tables, levels)
        }
    }

    /// The partition that holds `key`.
    #[inline]
    pub(crate) fn part(&self, key: &[u8]) -> &Part {
        &self.parts[self.layout.part_of(key)]
    }

    /// The partition `id`, if it still exists.
    pub(crate) fn part_by_id(&self, id: PartId) -> Option<&Arc<Part>> {
        self.layout.index_of(id).map(|i| &self.parts[i])
    }

    /// The partitions, with their ids.
    pub(crate) fn parts(&self) -> impl DoubleEndedIterator<Item = (PartId, &Part)> {
        let parts = self.layout.ids().iter().zip(self.parts.iter());
        parts.map(|(&id, part)| (id, &**part))
    }

    /// All tables, by partition and from level 0 down.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (Level, &Arc<TableRun>)> {
        self.parts.iter().flat_map(|part| part.tables())
    }

    /// All trees over blocks.
    pub(crate) fn trees(&self) -> impl Iterator<Item = &Arc<TreeRun>> {
        let parts = self.parts.iter().filter_map(|part| part.trees.as_ref());
        parts.flat_map(|trees| trees.iter())
    }

    /// All trees over blocks, and those from which the next are made.
    pub(crate) fn trees_held(&self) -> impl Iterator<Item = &Arc<IfTree>> {
        let parts = self.parts.iter().filter_map(|part| part.trees.as_ref());
        parts.flat_map(|trees| trees.held())
    }

    /// The tables of `level` in all partitions.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn runs(&self, level: Level) -> Vec<Arc<TableRun>> {
        let parts = self.parts.iter().filter_map(|part| part.levels.get(level));
        parts.flat_map(|level| level.runs.clone()).collect()
    }

    /// The structure between the memtables and the tables. A profile that has one has one
    /// partition.
    pub(crate) fn upper(&self) -> Option<&Upper> {
        self.parts.first().and_then(|part| part.upper.as_ref())
    }

    /// This state with the tables of `version`. Only the partitions that `touched` names differ
    /// from those of this state, unless the borders changed. Runs that this state has are shared.
    pub(crate) fn with_tables(
        &self,
        version: &Version,
        touched: Touched<'_>,
        tables: &Arc<TableCache>,
        levels: usize,
    ) -> ReadState {
        let layout = version.layout.clone();
        if !layout.has_parts_of(&self.layout) || matches!(touched, Touched::All) {
            let parts = self.rebuilt(version, tables, levels);
            let memtables = self.memtables.divided_as(&self.layout, &layout);
            return ReadState {
                layout,
                parts,
                memtables,
                ..self.clone()
            };
        }
        let mut parts = self.parts.to_vec();
        if let Touched::Keys(keys) = touched {
            let mut of: Vec<usize> = keys.map(|key| layout.part_of(key)).collect();
            of.sort_unstable();
            of.dedup();
            for i in of {
                let new = version.tables_of(layout.range(i));
                let part = self.parts[i].with_tables(&new, tables, levels, |_| None);
                let part = part.with_trees(version, i, tables, &|_| None);
                parts[i] = Arc::new(part);
            }
        }
        ReadState {
            layout,
            parts: parts.into(),
            ..self.clone()
        }
    }

    /// The partitions of `version`, whose borders may differ.
    fn rebuilt(
        &self,
        version: &Version,
        tables: &Arc<TableCache>,
        levels: usize,
    ) -> Arc<[Arc<Part>]> {
        let layout = &version.layout;
        let runs: HashMap<FileId, &Arc<TableRun>> =
            self.tables().map(|(_, run)| (run.meta.id, run)).collect();
        let trees: HashMap<FileId, &Arc<TreeRun>> =
            self.trees().map(|tree| (tree.id(), tree)).collect();
        let part = |(i, &id): (usize, &PartId)| {
            let before = self.part_by_id(id).map(|part| Part::clone(part));
            let before = Part {
                heat: self.heat_of(layout, i),
                ..before.unwrap_or_default()
            };
            let new = version.tables_of(layout.range(i));
            let part = before.with_tables(&new, tables, levels, |id| runs.get(&id).copied());
            Arc::new(part.with_trees(version, i, tables, &|id| trees.get(&id).copied()))
        };
        layout.ids().iter().enumerate().map(part).collect()
    }

    /// The reads of partition `i` of `layout`, whose borders may be others than this state's.
    fn heat_of(&self, layout: &Layout, i: usize) -> Option<Arc<Heat>> {
        let was = self.layout.overlapping(layout.range(i));
        let heat = |j: usize| self.parts[j].heat.as_ref();
        if was.len() == 1 && self.layout.range(was.start) == layout.range(i) {
            return heat(was.start).cloned();
        }
        let divided = |j: usize| {
            let parts = layout.overlapping(self.layout.range(j)).len();
            heat(j).map(|heat| (&**heat, parts))
        };
        heat(was.start)?;
        Some(Arc::new(Heat::of(was.filter_map(divided))))
    }

    /// This state with partition `id` replaced.
    pub(crate) fn with_part(&self, id: PartId, part: Part) -> ReadState {
        let mut parts = self.parts.to_vec();
        if let Some(i) = self.layout.index_of(id) {
            parts[i] = Arc::new(part);
        }
        ReadState {
            parts: parts.into(),
            ..self.clone()
        }
    }

    /// This state, whose partitions count their reads.
    pub(crate) fn with_heat(self) -> ReadState {
        let heated = |part: &Arc<Part>| {
            Arc::new(Part {
                heat: Some(Arc::default()),
                ..Part::clone(part)
            })
        };
        ReadState {
            parts: self.parts.iter().map(heated).collect(),
            ..self
        }
    }

    /// This state with another structure between the memtables and the tables.
    pub(crate) fn with_upper(&self, upper: Upper) -> ReadState {
        let first = Part {
            upper: Some(upper),
            ..(*self.parts[0]).clone()
        };
        self.with_part(self.layout.ids()[0], first)
    }

    /// The memtables that may have entries of `key`, and how far its entries are flushed.
    #[inline]
    pub(crate) fn unflushed(&self, key: &[u8]) -> &Unflushed {
        self.memtables.of(&self.layout, key)
    }

    /// This state with `fresh` as the memtable that takes writes in the partition of `key`, or in
    /// all if they share one.
    pub(crate) fn with_memtable(&self, key: &[u8], fresh: &Arc<Memtable>) -> ReadState {
        let part = self.layout.part_of(key);
        self.with_memtable_in(part..part + 1, fresh)
    }

    /// As [`ReadState::with_memtable`], in several neighbours.
    pub(crate) fn with_memtable_in(&self, parts: Range<usize>, fresh: &Arc<Memtable>) -> ReadState {
        let lists = match self.memtables.are_by_part() {
            true => parts,
            false => 0..1,
        };
        ReadState {
            memtables: self.memtables.with_fresh(lists, fresh),
            ..self.clone()
        }
    }

    /// This state without `flushed`, whose entries are below the memtables now.
    pub(crate) fn without_memtables(self, flushed: &[Arc<Memtable>]) -> ReadState {
        ReadState {
            memtables: self.memtables.without(flushed),
            ..self
        }
    }

    /// This state without the trees from which the next are made.
    pub(crate) fn without_former_trees(&self) -> ReadState {
        let without = |part: &Arc<Part>| match &part.trees {
            Some(trees) if trees.has_former() => Arc::new(Part {
                trees: Some(Arc::new(trees.without_former())),
                ..Part::clone(part)
            }),
            _ => part.clone(),
        };
        ReadState {
            parts: self.parts.iter().map(without).collect(),
            ..self.clone()
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

    /// The newest entry of `key` below the memtables, if it is kept as a row and not above `seqno`.
    /// REQUIRES: no memtable has an entry of it.
    #[inline]
    pub(crate) fn row(
        &self,
        unflushed: &Unflushed,
        key: &[u8],
        hash: u64,
        seqno: SeqNo,
    ) -> Option<(Tag, Value)> {
        let row = self.rows.as_ref()?.get(key, hash, seqno)?;
        // Loaded after the row: an entry that is in none of these memtables is in one that was
        // created after this one was full.
        let newest = unflushed.active().frozen_at();
        newest
            .is_none_or(|newest| row.0.seqno() <= newest)
            .then_some(row)
    }

    /// True if an entry that a reader at `seqno` finds below the memtables, none of which has its
    /// key, may be kept as a row.
    #[inline]
    pub(crate) fn takes_rows(&self, unflushed: &Unflushed, seqno: SeqNo) -> bool {
        self.rows
            .as_ref()
            .is_some_and(|rows| rows.may_bring(&unflushed.searched(seqno)))
    }

    /// Keeps the entry that a get found, if that get keeps rows.
    #[inline]
    pub(crate) fn keep_row(&self, query: &Query<'_>, tag: Tag, value: &[u8]) {
        if let Some(rows) = self.rows.as_ref().filter(|_| query.rows) {
            let searched = self.unflushed(query.key).searched(query.seqno);
            rows.keep(&searched, query.key, query.hash, tag, value);
        }
    }

    /// Records that a get found nothing.
    pub(crate) fn keep_absent(&self, query: &Query<'_>) {
        // A key whose tombstone was dropped is absent for readers that see the deletion, and the
        // deletion is not above this number.
        let through = self.unflushed(query.key).flushed_through;
        self.keep_row(query, Tag::new(through, Kind::Delete), &[]);
    }

    /// The approximate number of keys that have a value at `visible`. Each version counts as one,
    /// and each tombstone subtracts one.
    pub(crate) fn approximate_len(&self, visible: SeqNo) -> u64 {
        let live = |run: &TableRun| run.meta.entries.saturating_sub(2 * run.meta.deletes);
        let in_tables: u64 = self.tables().map(|(_, run)| live(run)).sum();
        let above = self.upper().map_or(0, Upper::entries);
        in_tables + above + self.memtables.entries(visible)
    }

    /// The oldest memtable, if it is frozen and all its entries are visible, so that it can be
    /// flushed.
    pub(crate) fn flushable(&self, visible: SeqNo) -> Option<&Arc<Memtable>> {
        let memtables = &self.memtables.of_part(0).memtables;
        let oldest = memtables.last()?;
        let is_ready =
            memtables.len() > 1 && oldest.frozen_at().is_some_and(|last| last <= visible);
        is_ready.then_some(oldest)
    }

    /// The tables of `level` in all partitions.
    pub(crate) fn metas_of(&self, level: Level) -> Tables {
        match &*self.parts {
            [one] => one.metas_of(level),
            parts => {
                let all = parts.iter().map(|part| part.metas_of(level));
                Arc::new(all.flat_map(|metas| metas.to_vec()).collect())
            }
        }
    }

    /// The tables of each level below `level`, in all partitions.
    pub(crate) fn metas_below(&self, level: Level) -> Vec<Tables> {
        let levels = self.parts.iter().map(|part| part.levels.len()).max();
        (level.0 + 1..levels.unwrap_or(0))
            .map(|level| self.metas_of(Level(level)))
            .collect()
    }
}

impl Part {
    /// The partition with these tables, by level. Runs that this partition has are shared, and
    /// those that `known` finds.
    fn with_tables<'a>(
        &self,
        tables: &Levels<Tables>,
        cache: &Arc<TableCache>,
        levels: usize,
        known: impl Fn(FileId) -> Option<&'a Arc<TableRun>>,
    ) -> Part {
        let count = levels.max(tables.len());
        let (no_level, no_tables) = <(Arc<LevelRuns>, Tables)>::default();
        let old = |i: Level| self.levels.get(i).unwrap_or(&no_level);
        let new = |i: Level| tables.get(i).unwrap_or(&no_tables);
        let change = |i: Level| Change::new(old(i), new(i));
        let changes: Levels<Change<'_>> = (0..count).map(|i| change(Level(i))).collect();
        // Tables also move from one level to another.
        let gone = || changes.values().flat_map(Change::gone);
        let moved: HashMap<FileId, &Arc<TableRun>> = gone().map(|run| (run.meta.id, run)).collect();
        let run = |meta: &Arc<TableMeta>| {
            let held = moved.get(&meta.id).copied().or_else(|| known(meta.id));
            match held {
                // `shared` may have changed, but the run is the same.
                Some(run) if run.meta.extent == meta.extent => Arc::clone(run),
                _ => Arc::new(TableRun::new(meta.clone(), cache.clone())),
            }
        };
        let level = |(i, change): (Level, &Change<'_>)| match self
            .levels
            .get(i)
            .filter(|_| change.is_none())
        {
            Some(level) => level.clone(),
            None => Arc::new(change.made(!i.is_zero(), run)),
        };
        Part {
            levels: changes.iter().map(level).collect(),
            ..self.clone()
        }
    }

    /// The partition, which has index `i`, with the trees of `version`. Those that this partition
    /// has are shared, and those that `known` finds.
    fn with_trees<'a>(
        self,
        version: &Version,
        i: usize,
        cache: &TableCache,
        known: &impl Fn(FileId) -> Option<&'a Arc<TreeRun>>,
    ) -> Part {
        let layout = &version.layout;
        if version.trees.is_empty() && self.trees.is_none() {
            return self;
        }
        let tree = |meta: &Arc<BlockTreeMeta>| {
            let is_it = |tree: &&Arc<TreeRun>| tree.id() == meta.id;
            let held = self
                .trees
                .as_ref()
                .and_then(|trees| trees.iter().find(is_it));
            if let Some(held) = held.or_else(|| known(meta.id)) {
                return Some(held.clone());
            }
            let range = match meta.levels.0 {
                Level::ZERO => layout.range(i),
                _ => layout.range_of(i, &meta.from),
            };
            let tree = cache.tree(meta.id)?;
            TreeRun::new(meta.clone(), tree, &self.levels, range).map(Arc::new)
        };
        let trees = version.trees.within(layout.range(i)).filter_map(tree);
        let trees = PartTrees::new(trees, self.trees.as_deref(), &self.levels);
        let trees = Some(Arc::new(trees)).filter(|trees| trees.held().next().is_some());
        Part { trees, ..self }
    }

    /// The last level that holds any table; 0 if none does.
    pub(crate) fn last_level(&self) -> Level {
        let mut levels = self.levels.iter().rev();
        let has_any = |(_, level): &(Level, &Arc<LevelRuns>)| !level.runs.is_empty();
        levels.find(has_any).map_or(Level::ZERO, |(level, _)| level)
    }

    /// The number of tables in level 0.
    pub(crate) fn level0_tables(&self) -> usize {
        self.levels
            .get(Level::ZERO)
            .map_or(0, |level| level.runs.len())
    }

    /// (dead bytes, live bytes) of all tables.
    pub(crate) fn dead_and_live(&self) -> (u64, u64) {
        self.levels.values().fold((0, 0), |(dead, live), level| {
            (dead + level.bytes.dead, live + level.bytes.live)
        })
    }

    /// All tables, from level 0 down.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (Level, &Arc<TableRun>)> {
        self.levels
            .iter()
            .flat_map(|(i, level)| level.runs.iter().map(move |run| (i, run)))
    }

    /// The tables of each level below `level`, without their runs, so that a long job holds nothing
    /// of the state except the tables it reads.
    pub(crate) fn metas_below(&self, level: Level) -> Vec<Tables> {
        let below = self.levels.below(level).iter();
        below.map(|level| level.tables.clone()).collect()
    }

    /// As [`Part::metas_below`], for `level` itself.
    pub(crate) fn metas_of(&self, level: Level) -> Tables {
        self.levels
            .get(level)
            .map(|level| level.tables.clone())
            .unwrap_or_default()
    }
}
