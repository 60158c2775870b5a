//! Level 0 of profile `lab`: the trees as the pool has them, and replayed logs into them.

use super::Recovery;
use crate::buffer::Buffer;
use crate::log::{Replay, ValueLogs};
use crate::options::Profile;
use crate::sites;
use crate::tier::Trees;
use firn_base::{Error, ErrorKind, Result};
use firn_fs::OpenMode;
use firn_pm::{DurableAt, Pool};
use firn_table::pm_btree::{Recovered, Seen, TreeStore, View};
use std::sync::Arc;

impl Recovery {
    /// Reads the trees, or makes them; counts what they point to.
    pub(super) fn open_trees(&mut self) -> Result<()> {
        if self.options.profile != Profile::Lab {
            return Ok(());
        }
        let durable = |pool: &Arc<Pool>| pool.durable_at() == DurableAt::Fence;
        let pool = self.pm.clone().filter(durable).ok_or_else(|| {
            Error::invalid(
                "profile `lab` needs a pool of persistent memory that is durable at the fence: set `pm` to a `dax` or \
                 an `emulated` one, or choose another profile",
            )
        })?;
        let cache = self.tables.context().cache.clone();
        let direct = self.options.direct_io;
        let values = Arc::new(ValueLogs::new(self.files.clone(), self.counters.clone(), cache, direct));
        let leaf_bytes = self.options.tuning.lab.leaf_bytes;
        let evicted = self.version.evicted.clone();
        let immutable = TreeStore::named(&pool).and_then(|trees| trees.immutable);
        let is_evicted = |_: &[u8], upper: Option<&[u8]>| {
            let done = evicted.as_ref().filter(|evicted| Some(evicted.tree) == immutable);
            done.is_some_and(|done| done.to.as_ref().is_none_or(|to| upper.is_some_and(|upper| upper <= to.as_slice())))
        };
        let mut last = self.last_seqno;
        let mut count = |entry: &firn_table::pm_btree::Entry<'_>, _| {
            last = last.max(entry.tag.seqno());
            entry.address.into_iter().for_each(|at| values.add(at));
        };
        let seen = Seen { evicted: &is_evicted, entry: &mut count, damage: &mut Err };
        let recovered = match TreeStore::recover(pool.clone(), leaf_bytes, seen)? {
            Some(recovered) => recovered,
            None if self.read_only => return Ok(()),
            None => {
                let store = TreeStore::create(pool, self.options.tuning.lab.tree_bytes, leaf_bytes)?;
                Recovered { store, mutable: View::default(), immutable: None, swept: 0 }
            }
        };
        self.last_seqno = last;
        let Recovered { store, mutable, mut immutable, .. } = recovered;
        if !self.read_only && immutable.as_ref().is_some_and(|view| view.leaves() == 0) {
            store.end_immutable()?;
            immutable = None;
        }
        self.check_value_logs(&values)?;
        let (store, mutable, immutable) = (Arc::new(store), Arc::new(mutable), immutable.map(Arc::new));
        self.trees = Some(Trees { store, values, mutable, immutable, side: Arc::default() });
        Ok(())
    }

    /// Each log that a leaf points into must be there.
    fn check_value_logs(&self, values: &ValueLogs) -> Result<()> {
        for used in values.uses() {
            let path = self.files.log(used.log_id);
            self.files.fs.len(&path).map_err(|error| match error.kind() {
                ErrorKind::NotFound => {
                    let expected = format!("{} values that leaves point to, but the file is missing", used.entries);
                    Error::corruption(path.display(), 0, expected)
                }
                _ => error,
            })?;
        }
        Ok(())
    }

    /// Puts what the pool has of log `log_id`, up to `end`, into its file, where leaves will point to.
    pub(super) fn settle_log(&self, log_id: u64, replay: &Replay, end: u64) -> Result<()> {
        if self.trees.is_none() || self.read_only || replay.overlay().is_empty() {
            return Ok(());
        }
        let file = self.files.fs.open(&self.files.log(log_id), OpenMode::Append)?;
        for (at, bytes) in replay.overlay() {
            let len = end.saturating_sub(*at).min(bytes.len() as u64) as usize;
            if len > 0 {
                file.write(*at, &[&bytes[..len]])?;
            }
        }
        file.sync(&sites::LOG_SETTLE_SYNC)
    }

    /// Puts a replayed buffer into the mutable tree. No snapshot has outlived the process before.
    pub(super) fn insert_replayed(&mut self, buffer: &Arc<Buffer>) -> Result<()> {
        let Some(trees) = &mut self.trees else { return Ok(()) };
        trees.insert_replayed(buffer)
    }
}
