//! Tables in persistent memory: claims what the manifest names there, before anything else becomes
//! free.

use super::{HALVES_MORE_BYTES, HELD_SHARE, Recovery};
use crate::manifest::TableMeta;
use crate::options::tuning::Tiering;
use crate::tlsm::{CutJobs, ListStore};
use firn_base::{Error, ErrorKind, Result};
use firn_pm::{DurableAt, Pool};
use firn_table::pm_skiplist::{Chunks, FoundList, List, ListSpace, ListTotals, claim, verify};
use std::sync::Arc;

/// Bytes of a pool beside its extents: the header and the roots.
const PAGES_BYTES: u64 = 64 << 10;

type Found = (ListSpace, ListTotals);

impl Recovery {
    /// Claims the lists that the manifest names, and ends the recovery of the pool.
    pub(super) fn open_lists(&mut self) -> Result<()> {
        let named: Vec<Arc<TableMeta>> = self
            .version
            .tables()
            .filter(|table| table.list.is_some())
            .cloned()
            .collect();
        let mut chunks = Chunks::default();
        if !named.is_empty() {
            let pool = self.pool_of_lists()?;
            let mut found = Vec::new();
            for table in named {
                found.extend(claim_list(&pool, &table, &mut chunks)?);
            }
            if self.read_only {
                found = self.hold(&pool, found, &chunks)?;
            }
            for (space, totals) in found {
                self.tables.add_list(space, totals);
            }
        }
        let Some(pool) = self.pm.clone().filter(|_| !self.read_only) else {
            self.compaction.lists = self.list_store()?.map(Arc::new);
            return Ok(());
        };
        let store = self.list_store()?.map(Arc::new);
        let mut cut = match &store {
            Some(_) => CutJobs::claim(&pool, &self.version, &mut chunks)?,
            None => CutJobs::stale(&pool),
        };
        pool.finish_recovery()?;
        cut.settle(&pool, store.as_deref())?;
        (self.compaction.lists, self.recovered.cut) = (store, cut);
        Ok(())
    }

    fn pool_of_lists(&self) -> Result<Arc<Pool>> {
        let durable = |pool: &Arc<Pool>| pool.durable_at() == DurableAt::Fence;
        self.pm.clone().filter(durable).ok_or_else(|| {
            let message = "tables of this database are in a persistent-memory pool, on a medium that is durable at \
                           the fence: open it with `pm` set to that pool, as `dax` or `emulated`";
            Error::new(ErrorKind::Incompatible, message)
        })
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
            verify(&list)?;
            let space = Arc::into_inner(list).and_then(|list| Arc::into_inner(list.into_space()));
            let is_ours = || Error::invalid("a list that is verified has one owner");
            Ok((space.ok_or_else(is_ours)?, totals))
        };
        found.into_iter().map(whole).collect()
    }

    /// Bytes of one half of the log's buffer in the pool; 0 for none. Where tables are in the pool,
    /// writes that are not durable at once gain nothing from it.
    pub(super) fn log_half_bytes(&self) -> usize {
        let is_needed =
            self.options.lists().is_none() || self.options.durability == crate::Durability::Power;
        match is_needed {
            true => self.options.limits.pm_log_buffer_bytes,
            false => 0,
        }
    }

    /// The lists' part of the pool, if the profile has one and the pool can hold lists. A read-only
    /// open takes whatever is there.
    fn list_store(&self) -> Result<Option<ListStore>> {
        let Some(tuning) = self.options.lists() else {
            return Ok(None);
        };
        let durable = |pool: &Arc<Pool>| pool.durable_at() == DurableAt::Fence;
        let Some(pool) = self.pm.clone().filter(durable) else {
            if self.read_only {
                return Ok(None);
            }
            if tuning.tiering == Tiering::None {
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
        ListStore::new(pool, tuning, filter_bits, other_bytes, buffer_bytes).map(Some)
    }
}

/// Claims a list that the manifest names.
fn claim_list(pool: &Arc<Pool>, table: &TableMeta, chunks: &mut Chunks) -> Result<Option<Found>> {
    let Some(place) = table.list else {
        return Ok(None);
    };
    let FoundList { space, totals, .. } = claim(pool, table.id, place, chunks)?;
    let found = (totals.entries, totals.deletes, totals.entry_bytes);
    let named = (table.entries, table.deletes, table.data_bytes);
    let numbers = (totals.seqno_min, totals.seqno_max);
    if found != named || numbers != (table.seqno_min, table.seqno_max) {
        let expected = format!("the list {} that the manifest names", table.id);
        let at = place.first.offset.get();
        return Err(Error::corruption("the lists' pool", at, expected));
    }
    Ok(Some((space, totals)))
}
