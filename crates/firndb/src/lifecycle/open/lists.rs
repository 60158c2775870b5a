//! Tables in persistent memory: claims what the manifest names there, before anything else becomes
//! free.

use super::Recovery;
use crate::manifest::TableMeta;
use crate::options::tuning::Tiering;
use crate::tlsm::{CutJobs, ListStore};
use firn_base::{Error, ErrorKind, Result};
use firn_pm::{DurableAt, Pool};
use firn_table::pm_skiplist::{Chunks, FoundList, claim};
use std::sync::Arc;

/// Bytes of a pool beside its extents: the header and the roots.
const PAGES_BYTES: u64 = 64 << 10;
/// Bytes that the log's two halves take in a pool in addition to their contents.
const HALVES_MORE_BYTES: u64 = 16 << 10;

impl Recovery {
    /// Claims the lists that the manifest names, and ends the recovery of the pool.
    pub(super) fn open_lists(&mut self) -> Result<()> {
        let named: Vec<Arc<TableMeta>> = self
            .version
            .tables()
            .filter(|table| table.list.is_some())
            .cloned()
            .collect();
        if !named.is_empty() {
            let pool = self.pool_of_lists()?;
            let mut chunks = Chunks::default();
            for table in named {
                self.claim_list(&pool, &table, &mut chunks)?;
            }
            if !self.read_only {
                self.recovered.cut = CutJobs::claim(&pool, &self.version, &mut chunks)?;
            }
        }
        match &self.pm {
            Some(pool) if !self.read_only => pool.finish_recovery()?,
            _ => {}
        }
        self.compaction.lists = self.list_store()?.map(Arc::new);
        match &self.compaction.lists {
            Some(store) => self.recovered.cut.settle(store),
            None => Ok(()),
        }
    }

    fn pool_of_lists(&self) -> Result<Arc<Pool>> {
        let durable = |pool: &Arc<Pool>| pool.durable_at() == DurableAt::Fence;
        self.pm.clone().filter(durable).ok_or_else(|| {
            let message = "tables of this database are in a persistent-memory pool, on a medium that is durable at \
                           the fence: open it with `pm` set to that pool, as `dax` or `emulated`";
            Error::new(ErrorKind::Incompatible, message)
        })
    }

    fn claim_list(
        &mut self,
        pool: &Arc<Pool>,
        table: &TableMeta,
        chunks: &mut Chunks,
    ) -> Result<()> {
        let Some(place) = table.list else {
            return Ok(());
        };
        let FoundList { space, totals, .. } = claim(pool, table.id, place, chunks)?;
        let found = (totals.entries, totals.deletes, totals.entry_bytes);
        let named = (table.entries, table.deletes, table.data_bytes);
        let numbers = (totals.seqno_min, totals.seqno_max);
        if found != named || numbers != (table.seqno_min, table.seqno_max) {
            let expected = format!("the list {} that the manifest names", table.id);
            return Err(Error::corruption(
                "the lists' pool",
                place.first.offset.get(),
                expected,
            ));
        }
        self.tables.add_list(space, totals);
        Ok(())
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

    /// The lists' part of the pool, if the profile has one and the pool can hold lists.
    fn list_store(&self) -> Result<Option<ListStore>> {
        let Some(tuning) = self.options.lists().filter(|_| !self.read_only) else {
            return Ok(None);
        };
        let durable = |pool: &Arc<Pool>| pool.durable_at() == DurableAt::Fence;
        let Some(pool) = self.pm.clone().filter(durable) else {
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
        let buffer_bytes = self.budget.write_buffer_bytes as u64;
        let filter_bits = self.options.filter_bits;
        let other_bytes = PAGES_BYTES + halves;
        ListStore::new(pool, tuning, filter_bits, other_bytes, buffer_bytes).map(Some)
    }
}
