//! One level of a partition, and its derivation from the level before a change.

use crate::manifest::{PartRange, TableMeta, Tables};
use crate::read::table_run::TableRun;
use firn_base::key_prefixes::KeyPrefixes;
use std::sync::Arc;

/// One level of a partition.
#[derive(Debug, Default)]
pub(crate) struct LevelRuns {
    /// True if the runs are disjoint and in key order.
    pub(crate) sorted: bool,
    pub(crate) runs: Vec<Arc<TableRun>>,
    /// The tables of the runs, as the manifest has them.
    pub(super) tables: Tables,
    /// Prefixes of the runs' largest keys, if the runs are sorted.
    prefixes: KeyPrefixes,
    /// If the runs are not sorted: the same runs in as few sorted levels as hold them.
    sorted_groups: Vec<Arc<LevelRuns>>,
    pub(super) bytes: Bytes,
}

/// Sums over the tables of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    all: u64,
    entries: u64,
    pub(super) live: u64,
    pub(super) dead: u64,
    /// The number of tables that are mostly tombstones.
    tombstone_tables: u64,
}

impl Bytes {
    fn of(runs: &[Arc<TableRun>]) -> Bytes {
        runs.iter().fold(Bytes::default(), |sum, run| Bytes {
            all: sum.all + run.meta.bytes(),
            entries: sum.entries + run.meta.entries,
            live: sum.live + run.meta.live_bytes(),
            dead: sum.dead + run.meta.dead_bytes,
            tombstone_tables: sum.tombstone_tables + u64::from(run.meta.is_mostly_tombstones()),
        })
    }
}

impl LevelRuns {
    /// A level of these runs, in their order.
    pub(crate) fn new(sorted: bool, runs: Vec<Arc<TableRun>>) -> LevelRuns {
        let tables = Tables::new(runs.iter().map(|run| run.meta.clone()).collect());
        Change::new(&LevelRuns::default(), &tables).with_runs(sorted, runs)
    }

    /// The runs of an unsorted level, in as few sorted levels as hold them. A flush may have made
    /// several tables, and a cursor needs one of them at a time.
    pub(crate) fn sorted_groups(&self) -> &[Arc<LevelRuns>] {
        &self.sorted_groups
    }

    /// Bytes of the tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.all
    }

    /// Entries of the tables.
    pub(crate) fn entries(&self) -> u64 {
        self.bytes.entries
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
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<TableRun>] {
        debug_assert!(self.sorted);
        let from = self
            .runs
            .partition_point(|run| run.meta.largest.as_slice() < smallest);
        let to = self
            .runs
            .partition_point(|run| run.meta.smallest.as_slice() <= largest);
        self.runs.get(from..to).unwrap_or(&[])
    }

    /// The runs that begin within `range`, of a sorted level that ends at its borders.
    pub(crate) fn within(&self, (from, to): PartRange<'_>) -> &[Arc<TableRun>] {
        let begins = |run: &Arc<TableRun>, key: &[u8]| *run.meta.smallest < *key;
        let first = self.runs.partition_point(|run| begins(run, from));
        let end = to.map_or(self.runs.len(), |to| {
            self.runs.partition_point(|run| begins(run, to))
        });
        self.runs.get(first..end).unwrap_or(&[])
    }

    /// The run of a sorted level that may hold `key`.
    #[inline]
    pub(crate) fn run_for(&self, key: &[u8]) -> Option<&Arc<TableRun>> {
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
        self.prefixes
            .first_not_below(key, |i| &self.runs[i].meta.largest)
    }

    /// The run of the table with the metadata `meta`, if it is in this level.
    pub(crate) fn run_of(&self, meta: &TableMeta) -> Option<&Arc<TableRun>> {
        let is_it = |run: &&Arc<TableRun>| run.meta.id == meta.id;
        match self.sorted {
            true => self.run_for(&meta.smallest).filter(is_it),
            false => self.runs.iter().find(is_it),
        }
    }
}

/// The difference between two versions of a level: the tables between their common prefix and
/// common suffix.
pub(super) struct Change<'a> {
    old: &'a LevelRuns,
    tables: &'a Tables,
    front: usize,
    back: usize,
}

impl<'a> Change<'a> {
    pub(super) fn new(old: &'a LevelRuns, tables: &'a Tables) -> Change<'a> {
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

    pub(super) fn is_none(&self) -> bool {
        self.front + self.back == self.old.runs.len().max(self.tables.len())
    }

    /// The old runs that are not in the new level.
    pub(super) fn gone(&self) -> &'a [Arc<TableRun>] {
        &self.old.runs[self.front..self.old.runs.len() - self.back]
    }

    /// The new level, with new runs for its new tables.
    pub(super) fn made(
        &self,
        sorted: bool,
        run: impl Fn(&Arc<TableMeta>) -> Arc<TableRun>,
    ) -> LevelRuns {
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
    fn with_runs(&self, sorted: bool, runs: Vec<Arc<TableRun>>) -> LevelRuns {
        let (front, back) = (self.front, runs.len() - self.back);
        let prefixes = match sorted {
            true => self
                .old
                .prefixes
                .spliced(runs.len(), front..back, |i| &runs[i].meta.largest),
            false => KeyPrefixes::default(),
        };
        let (gone, new) = (Bytes::of(self.gone()), Bytes::of(&runs[front..back]));
        let of = |old: u64, gone: u64, new: u64| old - gone + new;
        let old = self.old.bytes;
        let bytes = Bytes {
            all: of(old.all, gone.all, new.all),
            entries: of(old.entries, gone.entries, new.entries),
            live: of(old.live, gone.live, new.live),
            dead: of(old.dead, gone.dead, new.dead),
            tombstone_tables: of(
                old.tombstone_tables,
                gone.tombstone_tables,
                new.tombstone_tables,
            ),
        };
        debug_assert_eq!(bytes, Bytes::of(&runs));
        LevelRuns {
            sorted,
            sorted_groups: match sorted {
                true => Vec::new(),
                false => sorted_groups(&runs),
            },
            runs,
            tables: self.tables.clone(),
            prefixes,
            bytes,
        }
    }
}

/// `runs` in as few groups as possible in which they do not overlap and are in key order.
fn sorted_groups(runs: &[Arc<TableRun>]) -> Vec<Arc<LevelRuns>> {
    let mut by_key: Vec<&Arc<TableRun>> = runs.iter().collect();
    by_key.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let mut groups: Vec<Vec<Arc<TableRun>>> = Vec::new();
    for run in by_key {
        let ends_before = |group: &&mut Vec<Arc<TableRun>>| {
            let last = group.last();
            last.is_some_and(|last| last.meta.largest < run.meta.smallest)
        };
        match groups.iter_mut().find(ends_before) {
            Some(group) => group.push(run.clone()),
            None => groups.push(vec![run.clone()]),
        }
    }
    let level = |runs| Arc::new(LevelRuns::new(true, runs));
    groups.into_iter().map(level).collect()
}
