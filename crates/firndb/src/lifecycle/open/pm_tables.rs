//! Tables in persistent memory: claims what the manifest names there, before anything else becomes
//! free.

use super::{HALVES_MORE_BYTES, HELD_SHARE, Recovery};
use crate::blade::SortedStore;
use crate::compaction::pm_store::PmStore;
use crate::manifest::{BlockTreeMeta, BlockTrees, Place, TableMeta, ranks};
use crate::mechanisms;
use crate::options::tuning::Tiering;
use crate::pmdb::TreeStore;
use crate::read::pm_space::PmSpace;
use crate::tlsm::{CutJobs, ListStore};
use firn_base::{Error, ErrorKind, Result};
use firn_pm::{DurableAt, Extent, Pool};
use firn_table::if_tree::{self, IfTree, IfTreeFile, IfTreeSpace};
use firn_table::pm_skiplist::{self, Chunks, FoundList, List, ListPlace, ListSpace, ListTotals};
use firn_table::pm_table::{self, PmTable, PmTableSpace};
use std::sync::Arc;

/// Bytes of a pool beside its extents: the header and the roots.
const PAGES_BYTES: u64 = 64 << 10;

type Found = (ListSpace, ListTotals);

impl Recovery {
    /// Claims the tables that the manifest names, and ends the recovery of the pool.
    pub(super) fn open_pm_tables(&mut self) -> Result<()> {
        let named: Vec<Arc<TableMeta>> = self
            .version
            .tables()
            .filter(|table| !table.is_file())
            .cloned()
            .collect();
        let mut chunks = Chunks::default();
        if !named.is_empty() {
            let pool = self.pool_of_tables()?;
            let (mut lists, mut sorted) = (Vec::new(), Vec::new());
            for table in named {
                match table.place {
                    Place::File => {}
                    Place::List(place) => {
                        lists.push(claim_list(&pool, &table, place, &mut chunks)?);
                    }
                    Place::Sorted(extent) => {
                        sorted.push(self.claim_sorted(&pool, &table, extent)?);
                    }
                }
            }
            if self.read_only {
                lists = self.hold(&pool, lists, &chunks)?;
                sorted = self.copied(sorted)?;
            }
            for space in sorted {
                self.tables.add_placed(PmSpace::Sorted(Arc::new(space)));
            }
            for (space, totals) in lists {
                self.tables
                    .add_placed(PmSpace::List(Arc::new(space), totals));
            }
        }
        self.refuse_without_buffers()?;
        self.claim_block_trees()?;
        let mut store = self.pm_store()?;
        if matches!(store, Some(PmStore::Trees(_))) {
            self.compaction.sst.block_filter_bits = self.options.filter_bits;
        }
        let Some(pool) = self.pm.clone().filter(|_| !self.read_only) else {
            self.compaction.pm = store;
            return Ok(());
        };
        let lists = store.as_ref().and_then(PmStore::lists).cloned();
        let mut cut = match &lists {
            Some(_) => CutJobs::claim(&pool, &self.version, &mut chunks)?,
            None => CutJobs::stale(&pool),
        };
        let has_buffers = mechanisms::PMDB_BUFFERS.is_on();
        let buffers = match &store {
            Some(PmStore::Trees(_)) if has_buffers => Some(self.claim_buffers(&pool)?),
            _ => None,
        };
        pool.finish_recovery()?;
        if let (Some(PmStore::Trees(trees)), Some(found)) = (&mut store, buffers) {
            let buffers = self.open_buffers(&pool, found)?;
            Arc::get_mut(trees)
                .ok_or_else(|| Error::invalid("the trees of an open have one owner"))?
                .buffers = Some(buffers);
        }
        cut.settle(&pool, lists.as_deref())?;
        (self.compaction.pm, self.recovered.cut) = (store, cut);
        Ok(())
    }

    /// Claims the trees over blocks that the manifest names. One that is not whole, or not over the
    /// tables that are there, is dropped: its space is free then, and it is made again.
    fn claim_block_trees(&mut self) -> Result<()> {
        let named: Vec<Arc<BlockTreeMeta>> = self.version.trees.iter().cloned().collect();
        let has_trees = self.options.ranges().is_some() && !self.read_only;
        let Some(pool) = self.durable_pool().filter(|_| has_trees) else {
            self.version.trees = BlockTrees::default();
            return Ok(());
        };
        for meta in named {
            let claimed = if_tree::claim(&pool, meta.id, meta.extent);
            let space = match claimed.map(Arc::new) {
                Ok(space) => space,
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    tracing::warn!(%error, "a tree over blocks is made again");
                    self.version.trees.drop_one(meta.id);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let tables = self.version.tables_under(meta.levels, &meta.from);
            let tables = tables.unwrap_or_default();
            let runs = ranks(tables.iter().map(|(level, _)| *level));
            let files = tables.iter().zip(runs).map(|((_, table), run)| IfTreeFile {
                id: table.id,
                valid_len: table.bytes(),
                run,
            });
            let tree = IfTree::open(space.clone())?;
            if !files.eq(tree.files().iter().copied()) {
                self.version.trees.drop_one(meta.id);
                drop(tree);
                Arc::into_inner(space).map_or(Ok(()), IfTreeSpace::release)?;
                continue;
            }
            let tree = tree.counted_in(self.tables.context());
            self.tables.add_tree(Arc::new(tree));
        }
        Ok(())
    }

    fn pool_of_tables(&self) -> Result<Arc<Pool>> {
        self.durable_pool().ok_or_else(|| {
            let message = "tables of this database are in a persistent-memory pool, on a medium that is durable at \
                           the fence: open it with `pm` set to that pool, as `dax` or `emulated`";
            Error::new(ErrorKind::Incompatible, message)
        })
    }

    /// Refuses a pool that cannot have the write buffers that the manifest says are there.
    fn refuse_without_buffers(&self) -> Result<()> {
        if !self.version.holds_entries || self.durable_pool().is_some() {
            return Ok(());
        }
        let message = "the newest entries of this database are in write buffers in a persistent-memory pool, on a \
                       medium that is durable at the fence: open it with `pm` set to that pool, as `dax` or `emulated`";
        Err(Error::new(ErrorKind::Incompatible, message))
    }

    /// The pool, if it is durable at the fence.
    pub(super) fn durable_pool(&self) -> Option<Arc<Pool>> {
        let durable = |pool: &Arc<Pool>| pool.durable_at() == DurableAt::Fence;
        self.pm.clone().filter(durable)
    }

    /// Copies what a writing process may free and reuse: nodes, and entries if they are few. If it
    /// did meanwhile, the open begins again.
    fn hold(&self, pool: &Pool, found: Vec<Found>, chunks: &Chunks) -> Result<Vec<Found>> {
        for (space, totals) in &found {
            space.hold(totals)?;
        }
        if chunks.bytes() > self.options.memory_limit_bytes / HELD_SHARE {
            return Ok(found);
        }
        chunks.hold(pool)?;
        let whole = |(space, totals): Found| {
            let list = Arc::new(List::open(Arc::new(space), totals)?);
            pm_skiplist::verify(&list)?;
            let space = Arc::into_inner(list).and_then(|list| Arc::into_inner(list.into_space()));
            let is_ours = || Error::invalid("a list that is verified has one owner");
            Ok((space.ok_or_else(is_ours)?, totals))
        };
        found.into_iter().map(whole).collect()
    }

    /// Copies sorted tables whose space a writing process may free and reuse, if they are few. If
    /// it did meanwhile, the open begins again. Readers of larger ones notice.
    fn copied(&self, found: Vec<PmTableSpace>) -> Result<Vec<PmTableSpace>> {
        let bytes: u64 = found.iter().map(|space| space.extent().len).sum();
        if bytes > self.options.memory_limit_bytes / HELD_SHARE {
            return Ok(found);
        }
        let whole = |space: PmTableSpace| {
            let table = Arc::new(PmTable::open(Arc::new(space.copied()?))?);
            pm_table::verify(&table)?;
            let space = Arc::into_inner(table).map(PmTable::into_space);
            let is_ours = || Error::invalid("a table that is verified has one owner");
            space.and_then(Arc::into_inner).ok_or_else(is_ours)
        };
        found.into_iter().map(whole).collect()
    }

    /// Claims a sorted table that the manifest names.
    fn claim_sorted(
        &self,
        pool: &Arc<Pool>,
        table: &TableMeta,
        extent: Extent,
    ) -> Result<PmTableSpace> {
        let (space, totals) = match self.read_only {
            false => pm_table::claim(pool, table.id, extent)?,
            true => {
                let space = PmTableSpace::foreign(pool.clone(), table.id, extent);
                let totals = space.totals()?;
                (space, totals)
            }
        };
        let found = (totals.entries, totals.deletes, totals.data_bytes);
        let named = (table.entries, table.deletes, table.data_bytes);
        let numbers = (totals.seqno_min, totals.seqno_max);
        if found != named || numbers != (table.seqno_min, table.seqno_max) {
            let expected = format!("the table {} that the manifest names", table.id);
            return Err(Error::corruption(
                "the tables' pool",
                extent.offset.get(),
                expected,
            ));
        }
        Ok(space)
    }

    /// Bytes of one half of the log's buffer in the pool; 0 for none. Where tables or their trees
    /// are in the pool, writes that are not durable at once gain nothing from it.
    pub(super) fn log_half_bytes(&self) -> usize {
        let options = &self.options;
        let has_tables = options.lists().is_some() || options.sorted().is_some();
        let has_others = has_tables || options.ranges().is_some();
        let is_power = options.durability == crate::Durability::Power;
        let is_needed = (!has_others || is_power) && !self.has_part_buffers();
        match is_needed {
            true => self.options.limits.pm_log_buffer_bytes,
            false => 0,
        }
    }

    /// The tables' part of the pool, if the profile has one and the pool can hold tables. A
    /// read-only open takes whatever is there.
    fn pm_store(&self) -> Result<Option<PmStore>> {
        let (lists, sorted) = (self.options.lists(), self.options.sorted());
        if self.options.ranges().is_some() {
            let pool = self.durable_pool().filter(|_| !self.read_only);
            let store = |pool| Arc::new(TreeStore::new(pool, self.options.filter_bits));
            return Ok(pool.map(|pool| PmStore::Trees(store(pool))));
        }
        if lists.is_none() && sorted.is_none() {
            return Ok(None);
        }
        let Some(pool) = self.durable_pool() else {
            if self.read_only {
                return Ok(None);
            }
            if lists.is_some_and(|tuning| tuning.tiering == Tiering::None) {
                return Err(Error::invalid(
                    "tuning.tlsm.tiering keeps all tables in persistent memory, and there is none that is durable \
                     at the fence: set `pm`, or choose another tiering",
                ));
            }
            tracing::warn!("no persistent memory is durable at the fence; all tables are files");
            return Ok(None);
        };
        let halves = match self.log_half_bytes() as u64 {
            0 => 0,
            half => 2 * half + HALVES_MORE_BYTES,
        };
        let buffer_bytes = match self.read_only {
            true => 0,
            false => self.budget.write_buffer_bytes as u64,
        };
        let filter_bits = self.options.filter_bits;
        let other_bytes = PAGES_BYTES + halves;
        let store = match (lists, sorted) {
            (Some(tuning), _) => {
                let store = ListStore::new(pool, tuning, filter_bits, other_bytes, buffer_bytes)?;
                Some(PmStore::Lists(Arc::new(store)))
            }
            (None, Some(tuning)) => {
                let store = SortedStore::new(pool, tuning, filter_bits, other_bytes, buffer_bytes)?;
                Some(PmStore::Sorted(Arc::new(store)))
            }
            (None, None) => None,
        };
        Ok(store)
    }
}

/// Claims a list that the manifest names.
fn claim_list(
    pool: &Arc<Pool>,
    table: &TableMeta,
    place: ListPlace,
    chunks: &mut Chunks,
) -> Result<Found> {
    let FoundList { space, totals, .. } = pm_skiplist::claim(pool, table.id, place, chunks)?;
    let found = (totals.entries, totals.deletes, totals.entry_bytes);
    let named = (table.entries, table.deletes, table.data_bytes);
    let numbers = (totals.seqno_min, totals.seqno_max);
    if found != named || numbers != (table.seqno_min, table.seqno_max) {
        let expected = format!("the list {} that the manifest names", table.id);
        let at = place.first.offset.get();
        return Err(Error::corruption("the lists' pool", at, expected));
    }
    Ok((space, totals))
}
