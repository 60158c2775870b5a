//! The trees' part of the pool.

use super::buffers::{BufferFacts, BufferStore};
use crate::read::block_trees::file_of;
use crate::read::table_run::{TableCache, TableRun};
use firn_base::count::Counter;
use firn_base::sync::{AtomicBool, Ordering};
use firn_base::{ErrorKind, FileId, Result};
use firn_pm::Pool;
use firn_table::if_tree::{IfTree, IfTreeOptions, IfTreeSpace, IfTreeTotals, IfTreeWriter};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The facts about the trees that a picker needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeFacts {
    /// True if the pool has room for another, as far as is known.
    pub(crate) has_room: bool,
    /// Bits of a block's filter for each key.
    pub(crate) filter_bits: u32,
    /// The write buffers beside them, if there are any.
    pub(crate) buffers: Option<BufferFacts>,
}

impl TreeFacts {
    /// True if another tree may be made. While trees are given up for a write, none is.
    pub(crate) fn may_grow(&self) -> bool {
        let is_wanted = |buffers: BufferFacts| buffers.used_bytes == 0 && buffers.wanted_bytes > 0;
        self.has_room && !self.buffers.is_some_and(is_wanted)
    }
}

/// The trees' part of the pool.
pub(crate) struct TreeStore {
    pool: Arc<Pool>,
    filter_bits: u32,
    /// The write buffers beside them, if partitions have any there.
    pub(crate) buffers: Option<BufferStore>,
    /// True if the pool had no room for the last tree, until one is freed.
    is_full: AtomicBool,
    pub(crate) made: Counter,
    pub(crate) made_bytes: Counter,
    /// Trees that found no room.
    pub(crate) refused: Counter,
}

impl std::fmt::Debug for TreeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TreeStore({} made)", self.made.get())
    }
}

/// A tree that no state has yet. Dropping it frees its space.
#[derive(Debug)]
pub(crate) struct NewTree<'a> {
    store: &'a TreeStore,
    tree: Option<IfTree>,
}

/// The part of a tree that its successor takes.
struct Former<'a> {
    tree: &'a IfTree,
    /// The first table that it has; it has all that follow.
    from: usize,
    /// The ranks that their runs have now.
    ranks: HashMap<FileId, u32>,
}

impl Former<'_> {
    /// The part of `tree` that one over `tables` takes: the oldest of them, if `tree` has
    /// these in the same order.
    fn of<'a>(tree: &'a IfTree, tables: &[(u32, Arc<TableRun>)]) -> Option<Former<'a>> {
        let had: HashSet<FileId> = tree.files().iter().map(|file| file.id).collect();
        let is_new = |(_, run): &(u32, Arc<TableRun>)| !had.contains(&run.meta.id);
        let from = tables.iter().rposition(is_new).map_or(0, |last| last + 1);
        let taken = &tables[from..];
        let ids: HashSet<FileId> = taken.iter().map(|(_, run)| run.meta.id).collect();
        let of_tree = tree.files().iter().map(|file| file.id);
        let in_order = of_tree
            .filter(|id| ids.contains(id))
            .eq(taken.iter().map(|(_, run)| run.meta.id));
        (in_order && !taken.is_empty()).then(|| Former {
            tree,
            from,
            ranks: taken
                .iter()
                .map(|(rank, run)| (run.meta.id, *rank))
                .collect(),
        })
    }
}

impl TreeStore {
    /// The trees of `pool`, over blocks whose filters have `filter_bits` for each key.
    pub(crate) fn new(pool: Arc<Pool>, filter_bits: u32) -> TreeStore {
        TreeStore {
            pool,
            filter_bits,
            buffers: None,
            is_full: AtomicBool::new(false),
            made: Counter::default(),
            made_bytes: Counter::default(),
            refused: Counter::default(),
        }
    }

    pub(crate) fn facts(&self) -> TreeFacts {
        TreeFacts {
            has_room: !self.is_full.load(Ordering::Relaxed),
            filter_bits: self.filter_bits,
            buffers: self.buffers.as_ref().map(BufferStore::facts),
        }
    }

    /// Writes the tree `id` over `tables`, which come newest run first with the ranks of their
    /// runs. Blocks that `former` has come from there, others from the indexes of the tables.
    /// `None` if there is no room. Calls `between` after each table.
    ///
    /// # Errors
    /// The error of opening a table, and of the pool.
    pub(crate) fn make(
        &self,
        id: FileId,
        tables: &[(u32, Arc<TableRun>)],
        former: Option<&IfTree>,
        cache: &TableCache,
        between: impl Fn(),
    ) -> Result<Option<NewTree<'_>>> {
        let totals = IfTreeTotals {
            entries: tables.iter().map(|(_, run)| run.meta.entries).sum(),
            superseded: 0,
        };
        let options = IfTreeOptions { id, totals };
        let mut writer = IfTreeWriter::new(self.pool.clone(), options, None);
        let former = former.and_then(|former| Former::of(former, tables));
        let fresh = former.as_ref().map_or(tables.len(), |former| former.from);
        for (rank, run) in &tables[..fresh] {
            // Not kept open by this.
            let table = match run.held() {
                Some(table) => table.sst()?.clone(),
                None => Arc::new(cache.open(&run.meta)?),
            };
            writer.add_file(file_of(*rank, run), table.block_summaries())?;
            between();
        }
        if let Some(Former { tree, ranks, .. }) = &former {
            writer.add_tree(tree, |file| ranks.get(&file.id).copied())?;
        }
        let space = match writer.finish() {
            Ok(space) => space,
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.is_full.store(true, Ordering::Relaxed);
                self.refused.add(1);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.made.add(1);
        self.made_bytes.add(space.extent().len);
        let tree = IfTree::open(Arc::new(space))?.counted_in(cache.context());
        Ok(Some(NewTree {
            store: self,
            tree: Some(tree),
        }))
    }

    /// Frees the space of a tree. REQUIRES: nobody else has it, and no durable record names it.
    pub(crate) fn release(&self, tree: IfTree) {
        match Arc::try_unwrap(tree.into_space()).map(IfTreeSpace::release) {
            Ok(Ok(())) => self.is_full.store(false, Ordering::Relaxed),
            // The next open frees it.
            Ok(Err(error)) => tracing::warn!(%error, "the space of a tree stays taken"),
            Err(_) => tracing::warn!("the space of a tree that is in use stays taken"),
        }
    }
}

impl NewTree<'_> {
    /// The place of the tree.
    pub(crate) fn extent(&self) -> Option<firn_pm::Extent> {
        self.tree.as_ref().map(|tree| tree.space().extent())
    }

    /// Gives up the tree to the next state, or leaves its space taken, because a record that names
    /// it may turn out to be durable.
    pub(crate) fn into_tree(mut self) -> Option<Arc<IfTree>> {
        self.tree.take().map(Arc::new)
    }
}

impl Drop for NewTree<'_> {
    fn drop(&mut self) {
        if let Some(tree) = self.tree.take() {
            self.store.release(tree);
        }
    }
}
