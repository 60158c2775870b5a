//! Trees over blocks, as a get uses them: one run in the place of all the tables that a tree is
//! over, none of which it opens but those that have the key.
//!
//! 1. A tree that a state has is over exactly the tables of its range and levels there, because the
//!    manifest drops a tree with its tables, and because its files are compared with them here.
//! 2. A tree is never the truth. A range without one is searched through the indexes of its tables,
//!    and so is one whose tree turns out to be damaged.

use crate::manifest::{BlockTreeMeta, Level, Levels, PartRange, ranks};
use crate::read::level::LevelRuns;
use crate::read::table_run::{OpenBlocks, TableRun};
use firn_base::sync::{AtomicBool, Ordering};
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_table::if_tree::{Candidates, IfTree, IfTreeFile};
use firn_table::sst::{BlockGot, BlockStep, Got, PendingRead, Query};
use std::collections::HashSet;
use std::sync::Arc;

/// The deepest level that a record may name, so that a tree down to it has all below its first.
const DEEPEST: Level = Level(63);

/// The levels of a range that one tree is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Level 0 of a partition.
    Level0,
    /// The tables that were added to a range since its last merge.
    Added {
        /// The level of what a merge of the range makes.
        base: Level,
    },
    /// The tables that its last merge made.
    Base {
        /// The level of it.
        base: Level,
    },
}

impl Scope {
    /// The first and the last level.
    pub(crate) fn levels(self) -> (Level, Level) {
        match self {
            Scope::Level0 => (Level::ZERO, Level::ZERO),
            Scope::Added { base } => (Level(1), Level(base.0 - 1)),
            Scope::Base { base } => (base, DEEPEST),
        }
    }
}

/// The tables of `levels` of a range, the newest run first and in key order in a run.
pub(crate) fn tables_of<'a>(
    levels: &'a Levels<Arc<LevelRuns>>,
    (first, last): (Level, Level),
    range: PartRange<'_>,
) -> Vec<(Level, &'a Arc<TableRun>)> {
    let of_levels = levels.iter();
    let of_levels = of_levels.filter(|(level, _)| first <= *level && *level <= last);
    let runs = of_levels.flat_map(|(level, runs)| {
        let runs = match level {
            Level::ZERO => &runs.runs[..],
            _ => runs.within(range),
        };
        runs.iter().map(move |run| (level, run))
    });
    runs.collect()
}

/// A table as a tree has it.
pub(crate) fn file_of(run: u32, table: &TableRun) -> IfTreeFile {
    IfTreeFile {
        id: table.meta.id,
        valid_len: table.meta.bytes(),
        run,
    }
}

/// A tree, with the tables that it is over.
pub(crate) struct TreeRun {
    pub(crate) meta: Arc<BlockTreeMeta>,
    /// The key at which its range ends.
    to: Option<Box<[u8]>>,
    tree: Arc<IfTree>,
    /// By the number of their file in the tree.
    tables: Box<[Arc<TableRun>]>,
    is_damaged: AtomicBool,
}

/// A get in flight.
pub(crate) struct PendingTree<'a> {
    tree: &'a TreeRun,
    candidates: Candidates,
    reader: OpenBlocks,
    read: PendingRead,
}

/// The state of a get that does not wait.
pub(crate) enum TreeStep<'a> {
    Done(Got),
    Pending(Box<PendingTree<'a>>),
}

impl TreeRun {
    /// The run of `tree` over the tables of its levels, if it has these and no others.
    pub(crate) fn new(
        meta: Arc<BlockTreeMeta>,
        tree: Arc<IfTree>,
        levels: &Levels<Arc<LevelRuns>>,
        range: PartRange<'_>,
    ) -> Option<TreeRun> {
        let tables = tables_of(levels, meta.levels, range);
        let ranks = ranks(tables.iter().map(|(level, _)| *level));
        let files = tables.iter().zip(ranks);
        let files = files.map(|((_, run), rank)| file_of(rank, run));
        files.eq(tree.files().iter().copied()).then(|| TreeRun {
            meta,
            to: range.1.map(Box::from),
            tables: tables.into_iter().map(|(_, run)| run.clone()).collect(),
            tree,
            is_damaged: AtomicBool::new(false),
        })
    }

    pub(crate) fn id(&self) -> FileId {
        self.meta.id
    }

    pub(crate) fn tree(&self) -> &Arc<IfTree> {
        &self.tree
    }

    /// The tables, by the number of their file in the tree.
    pub(crate) fn tables(&self) -> &[Arc<TableRun>] {
        &self.tables
    }

    /// True if it is over these levels of the range that begins with `from`.
    fn is_of(&self, levels: (Level, Level), from: &[u8]) -> bool {
        *self.meta.from == *from && self.meta.levels == levels
    }

    /// True if a get found it damaged, so that it is to be made again.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// The newest entry of the query's key that its read point sees.
    // Not inlined, because most databases have no trees.
    #[inline(never)]
    pub(crate) fn get(&self, query: &Query<'_>) -> Result<Got> {
        match self.tree.search(query.key, query.hash) {
            Ok(candidates) => self.go_on(query, candidates, None),
            Err(error) => self.get_in_tables(query, error),
        }
    }

    /// As [`TreeRun::get`], but does not wait for the first read.
    pub(crate) fn begin_get(&self, query: &Query<'_>) -> Result<TreeStep<'_>> {
        let mut candidates = match self.tree.search(query.key, query.hash) {
            Ok(candidates) => candidates,
            Err(error) => return self.get_in_tables(query, error).map(TreeStep::Done),
        };
        let candidate = match candidates.next(&self.tree) {
            Ok(Some(candidate)) => candidate,
            Ok(None) => return Ok(TreeStep::Done(Got::Excluded)),
            Err(error) => return self.get_in_tables(query, error).map(TreeStep::Done),
        };
        let reader = self.reader(candidate.file)?;
        match reader.begin_get(&candidate.handle, query)? {
            BlockStep::Done(got) => {
                let got = self.go_on(query, candidates, Some(got));
                got.map(TreeStep::Done)
            }
            BlockStep::Pending(read) => Ok(TreeStep::Pending(Box::new(PendingTree {
                tree: self,
                candidates,
                reader,
                read,
            }))),
        }
    }

    /// True if a block may have the query's key, by the filters, and the number of filters that
    /// were tested. `None` if the tree is damaged.
    pub(crate) fn may_have(&self, query: &Query<'_>) -> Option<(bool, u64)> {
        let mut candidates = self.tree.search(query.key, query.hash).ok()?;
        let may = candidates.next(&self.tree).ok()?.is_some();
        Some((may, candidates.counts().tests))
    }

    /// Goes on with the next of `candidates`, after the answer of the last one if there is one.
    fn go_on(
        &self,
        query: &Query<'_>,
        mut candidates: Candidates,
        mut last: Option<BlockGot>,
    ) -> Result<Got> {
        let mut answer = Got::Excluded;
        loop {
            if let Some(got) = last.take() {
                let read = match got {
                    BlockGot::Found {
                        tag,
                        value,
                        keeps_row,
                    } => {
                        return Ok(Got::Found {
                            tag,
                            value,
                            keeps_row,
                        });
                    }
                    BlockGot::Absent { read } => {
                        candidates.skip_run();
                        read
                    }
                    BlockGot::PastEnd { read } => read,
                };
                let read = read || matches!(answer, Got::Missed { read: true });
                answer = Got::Missed { read };
            }
            match candidates.next(&self.tree) {
                Ok(Some(candidate)) => {
                    let reader = self.reader(candidate.file)?;
                    last = Some(reader.get(&candidate.handle, query)?);
                }
                Ok(None) => return Ok(answer),
                Err(error) => return self.get_in_tables(query, error),
            }
        }
    }

    fn reader(&self, file: usize) -> Result<OpenBlocks> {
        self.tables[file].blocks()
    }

    /// The same through the tables' own indexes, because the tree is damaged.
    #[cold]
    fn get_in_tables(&self, query: &Query<'_>, error: Error) -> Result<Got> {
        if error.kind() != ErrorKind::Corruption {
            return Err(error);
        }
        if !self.is_damaged.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "a tree over blocks is damaged and will be made again");
        }
        let mut answer = Got::Excluded;
        for table in self
            .tables
            .iter()
            .filter(|table| table.meta.spans(query.key))
        {
            match table.table()?.get(query)? {
                found @ Got::Found { .. } => return Ok(found),
                Got::Missed { read } => {
                    let read = read || matches!(answer, Got::Missed { read: true });
                    answer = Got::Missed { read };
                }
                Got::Excluded => {}
            }
        }
        Ok(answer)
    }
}

impl PendingTree<'_> {
    /// Waits for the read and completes the get.
    pub(crate) fn finish(self, query: &Query<'_>) -> Result<Got> {
        let got = self.reader.finish_get(self.read, query)?;
        self.tree.go_on(query, self.candidates, Some(got))
    }
}

impl std::fmt::Debug for TreeRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TreeRun({}, {:?})", self.meta.id, self.meta.levels)
    }
}

/// The trees of a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartTrees {
    level0: Option<Arc<TreeRun>>,
    /// By the first key of their range, and by their first level.
    ranges: Vec<Arc<TreeRun>>,
    /// Bit `n` is set if one of these begins on level `n`.
    begin_on: u64,
    /// Trees whose tables changed, until there is a new one in their place, which takes from them
    /// what they have of tables that are still there.
    former: Vec<FormerTree>,
}

/// A tree whose tables changed. It holds none of them.
#[derive(Debug, Clone)]
pub(crate) struct FormerTree {
    meta: Arc<BlockTreeMeta>,
    tree: Arc<IfTree>,
}

impl PartTrees {
    /// The trees in the order of their ranges and levels, over tables of `levels`. They are those
    /// that come after `before`.
    pub(crate) fn new(
        trees: impl IntoIterator<Item = Arc<TreeRun>>,
        before: Option<&PartTrees>,
        levels: &Levels<Arc<LevelRuns>>,
    ) -> PartTrees {
        let (level0, ranges): (Vec<_>, Vec<_>) = trees
            .into_iter()
            .partition(|tree| tree.meta.levels.0.is_zero());
        let first_bits = ranges.iter().map(|tree| 1_u64 << tree.meta.levels.0.0);
        let mut new = PartTrees {
            begin_on: first_bits.fold(0, |all, bit| all | bit),
            level0: level0.into_iter().next(),
            ranges,
            former: Vec::new(),
        };
        let Some(before) = before else { return new };
        let whole = before.iter().filter(|tree| !tree.is_damaged());
        let whole = whole.map(|tree| FormerTree {
            meta: tree.meta.clone(),
            tree: tree.tree.clone(),
        });
        let mut former: Vec<FormerTree> = before.former.iter().cloned().chain(whole).collect();
        former.retain(|former| {
            let BlockTreeMeta { levels, from, .. } = &*former.meta;
            !new.iter().any(|next| next.is_of(*levels, from))
        });
        if !former.is_empty() {
            let of_level = |level: &Arc<LevelRuns>| {
                let ids = level.runs.iter().map(|run| run.meta.id);
                ids.collect::<Vec<FileId>>()
            };
            let there: HashSet<FileId> = levels.values().flat_map(of_level).collect();
            former.retain(|former| {
                let mut files = former.tree.files().iter();
                files.any(|file| there.contains(&file.id))
            });
        }
        new.former = former;
        new
    }

    /// All of them, and those from which the next are made.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Arc<IfTree>> {
        let former = self.former.iter().map(|former| &former.tree);
        self.iter().map(|tree| &tree.tree).chain(former)
    }

    /// The tree that was over these levels of the range that begins with `from`, if it has no
    /// successor yet.
    pub(crate) fn former(&self, levels: (Level, Level), from: &[u8]) -> Option<&Arc<IfTree>> {
        let is_it =
            |former: &&FormerTree| former.meta.levels == levels && *former.meta.from == *from;
        self.former
            .iter()
            .rev()
            .find(is_it)
            .map(|former| &former.tree)
    }

    /// True if there are some from which the next are made.
    pub(crate) fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// The same without those from which the next are made.
    pub(crate) fn without_former(&self) -> PartTrees {
        PartTrees {
            former: Vec::new(),
            ..self.clone()
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TreeRun>> {
        self.level0.iter().chain(&self.ranges)
    }

    /// The tree over `level` and those that follow, in the range of `key`.
    #[inline]
    pub(crate) fn at(&self, level: Level, key: &[u8]) -> Option<&TreeRun> {
        if level.is_zero() {
            return self.level0.as_deref();
        }
        if self.begin_on & (1 << level.0) == 0 {
            return None;
        }
        let end = self.ranges.partition_point(|tree| *tree.meta.from <= *key);
        let mut of_range = self.ranges[..end].iter().rev().take(2);
        let tree = of_range.find(|tree| tree.meta.levels.0 == level)?;
        tree.to
            .as_ref()
            .is_none_or(|to| *key < **to)
            .then_some(tree)
    }

    /// True if a tree that is not damaged is over these levels of the range that begins with
    /// `from`.
    pub(crate) fn has(&self, levels: (Level, Level), from: &[u8]) -> bool {
        let is_it = |tree: &Arc<TreeRun>| tree.is_of(levels, from) && !tree.is_damaged();
        self.iter().any(is_it)
    }
}
