//! Level 0 of profile `lab`: the trees as found in the pool, and the replay of logs into them.

use super::{HALVES_MORE_BYTES, HELD_SHARE, Recovery};
use crate::files::FileName;
use crate::lab::{Trees, TreesIter};
use crate::log::{HotSlots, PlacedLogs, ValueLogs};
use crate::manifest::{self, Version};
use crate::memtable::Memtable;
use crate::options::Profile;
use crate::read::merge_iter::MergeIter;
use crate::read::run_iter::RunIter;
use crate::upper::UpperIter;
use firn_base::{Error, ErrorKind, Result, SeqNo};
use firn_pm::{DurableAt, PmConfig, Pool};
use firn_table::pm_btree::{Hold, Recovered, Seen, TreeStore, View};
use std::sync::Arc;

const NO_ROOM: &str = "level 0; lower tuning.lab.tree_bytes, or raise pm.size";

impl Recovery {
    /// Reads the trees, or creates them, and counts the values that they point to.
    pub(super) fn open_trees(&mut self) -> Result<()> {
        if self.options.profile != Profile::Lab {
            return Ok(());
        }
        let Some((pool, tree_bytes)) = self.tree_pool()? else {
            return Ok(());
        };
        let cache = self.tables.context().cache.clone();
        let direct = self.options.direct_io;
        let values = ValueLogs::new(self.files.clone(), self.counters.clone(), cache, direct);
        let values = values
            .with_hot(HotSlots::find(&pool).map(Arc::new))
            .with_placed(self.placed_logs(&pool));
        let leaf_bytes = self.options.tuning.lab.leaf_bytes;
        let version = self.version.clone();
        let immutable = TreeStore::named(&pool).and_then(|trees| trees.immutable);
        let is_evicted = |bound: &[u8]| version.leaf_is_evicted(immutable, bound);
        let (mut last, mut counted) = (self.last_seqno, Ok(()));
        let mut count = |entry: &firn_table::pm_btree::Entry<'_>, _| {
            let seqno = entry.tag.seqno();
            last = last.max(seqno);
            if let (Some(at), Ok(())) = (entry.address, &counted) {
                counted = values.add_recovered(at, seqno);
            }
        };
        let bytes_max = self.options.memory_limit_bytes / HELD_SHARE;
        let mut copied = || values.hot().map_or(Ok(()), |hot| hot.take_along(bytes_max));
        let hold = self.read_only.then_some(Hold {
            bytes_max,
            copied: &mut copied,
        });
        let seen = Seen {
            evicted: &is_evicted,
            entry: &mut count,
            damage: &mut Err,
            hold,
        };
        let recovered = match TreeStore::recover(pool.clone(), leaf_bytes, seen)? {
            Some(recovered) => recovered,
            None if self.read_only => return Ok(()),
            None => {
                let store = TreeStore::create(pool.clone(), tree_bytes, leaf_bytes);
                let store = store.map_err(|error| error.context(NO_ROOM))?;
                Recovered {
                    store,
                    mutable: View::default(),
                    immutable: None,
                    swept: 0,
                }
            }
        };
        self.check_none_evicted_since()?;
        counted?;
        let values = Arc::new(self.with_hot(values, &pool)?);
        self.last_seqno = last;
        let Recovered {
            store,
            mutable,
            mut immutable,
            ..
        } = recovered;
        if !self.read_only && immutable.as_ref().is_some_and(|view| view.leaves() == 0) {
            store.end_immutable()?;
            immutable = None;
        }
        self.check_value_logs(&values)?;
        let (store, mutable, immutable) =
            (Arc::new(store), Arc::new(mutable), immutable.map(Arc::new));
        let retained = Arc::default();
        let (complete_through, counters, reuse) = (SeqNo(0), Arc::default(), Arc::default());
        let leaves = immutable.as_ref().map_or(0, |view| view.leaves());
        let immutable_from = Arc::default();
        let trees = Trees {
            generation: Arc::default(),
            store,
            values,
            mutable,
            immutable,
            immutable_from,
            leaves,
            retained,
            complete_through,
            counters,
            reuse,
        };
        if trees.need_logs() {
            trees.values.rebuild_from(self.version.log_floor);
        }
        self.trees = Some(trees);
        Ok(())
    }

    /// The logs placed in `pool`, which holds the trees.
    fn placed_logs(&self, pool: &Arc<Pool>) -> Option<Arc<PlacedLogs>> {
        if pool.durable_at() != DurableAt::Fence {
            return None;
        }
        let placement = self.options.tuning.lab.log_placement;
        // A frame takes some 30 bytes more in the log than in the memtable.
        let bytes = self.budget.write_buffer_bytes as u64 / 8 * 9;
        Some(Arc::new(PlacedLogs::open(
            pool.clone(),
            placement,
            bytes,
            self.read_only,
        )))
    }

    /// Adds a hot buffer in `pool`, which holds the trees, to `values` if there is none yet and one
    /// is possible.
    fn with_hot(&self, values: ValueLogs, pool: &Arc<Pool>) -> Result<ValueLogs> {
        if values.hot().is_some() || self.read_only || pool.durable_at() != DurableAt::Fence {
            return Ok(values);
        }
        let lab = &self.options.tuning.lab;
        let log_buffer_bytes = 2 * self.options.limits.pm_log_buffer_bytes as u64;
        let bytes = lab.hot_bytes_in(pool.size_bytes(), log_buffer_bytes);
        let is_asked = lab.hot_bytes.is_some();
        // Leaves room for the log's buffer, which may not exist yet.
        if !is_asked && pool.usage().free_bytes < bytes + log_buffer_bytes + HALVES_MORE_BYTES {
            return Ok(values);
        }
        Ok(values.with_hot(HotSlots::create(pool, bytes, is_asked)?.map(Arc::new)))
    }

    /// The pool of the trees, existing or to be created, and the bytes for their leaves. `None` if
    /// the trees would have to be rebuilt in a read-only open.
    fn tree_pool(&self) -> Result<Option<(Arc<Pool>, u64)>> {
        let durable = |pool: &Arc<Pool>| pool.durable_at() == DurableAt::Fence;
        if self
            .pm
            .as_ref()
            .is_some_and(|pool| !durable(pool) && TreeStore::named(pool).is_some())
        {
            let message = "level 0 is in this pool, on a medium that is durable at the fence: open it as \
                           `dax` or `emulated`";
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        let lab = &self.options.tuning.lab;
        let found = match self.pm.clone().filter(durable) {
            Some(pool) => {
                let log_buffer_bytes = 2 * self.options.limits.pm_log_buffer_bytes as u64;
                let tree_bytes = lab.tree_bytes_in(pool.size_bytes(), log_buffer_bytes);
                (pool, tree_bytes)
            }
            // The trees are rebuilt from the logs, in memory that counts towards the limit.
            None if self.read_only => return Ok(None),
            None => {
                let tree_bytes = self.options.tree_bytes_in_dram();
                let pool = Pool::open_or_create(
                    &PmConfig::volatile(lab.pool_bytes(tree_bytes)),
                    self.files.uuid,
                )?;
                pool.finish_recovery()?;
                (Arc::new(pool), tree_bytes)
            }
        };
        Ok(Some(found))
    }

    /// Checks that no leaf was evicted since the manifest was read, which was before the trees
    /// were. A writer that runs beside a read-only open records an eviction first, so leaves that
    /// were removed in between are in tables of a newer manifest only.
    fn check_none_evicted_since(&self) -> Result<()> {
        if !self.read_only {
            return Ok(());
        }
        let evicted = |version: &Version| (version.evicted.clone(), version.evicted_through);
        match manifest::read(self.files.dir(), &self.counters)? {
            Some((_, now)) if evicted(&now) == evicted(&self.version) => Ok(()),
            _ => Err(Error::changed(format_args!(
                "level 0 of {}",
                self.files.path().display()
            ))),
        }
    }

    /// Checks that each log that a leaf points into exists. A read-only open also holds these logs
    /// open.
    fn check_value_logs(&self, values: &ValueLogs) -> Result<()> {
        for used in values.uses() {
            let path = self.files.path_of(FileName::Log(used.log_id));
            let missing = |error: Error| match error.kind() {
                ErrorKind::NotFound => {
                    let expected = format!(
                        "{} values that leaves point to, but the file is missing",
                        used.entries
                    );
                    Error::corruption(path.display(), 0, expected)
                }
                _ => error,
            };
            if self.read_only {
                values.hold(used.log_id).map_err(missing)?;
            }
            values.end(
                used.log_id,
                self.files
                    .len(FileName::Log(used.log_id))
                    .map_err(missing)?,
                SeqNo(0),
            );
        }
        Ok(())
    }

    /// True if the trees were rebuilt from logs.
    pub(super) fn is_rebuilt(&self) -> bool {
        !self.replaying.settled.is_empty()
            && self
                .trees
                .as_ref()
                .is_some_and(|trees| !trees.store.is_durable())
    }

    /// True if replayed entries go to tables because nothing shows that their keys are written
    /// again (`picker/trees.rs`). Either the trees outlived the process and are empty, or
    /// they would be rebuilt from logs that hold no more than the memtables can, but more than
    /// stays in logs.
    pub(super) fn replayed_goes_past(&self) -> bool {
        let buffers_bytes =
            (self.budget.write_buffer_bytes * self.options.limits.write_buffers) as u64;
        let fits_in_buffers = self.replaying.bytes <= buffers_bytes;
        let may = |trees: &Trees| {
            trees.are_empty()
                && (trees.store.is_durable() || (fits_in_buffers && !self.replaying.stays))
                && !trees.values.is_placed(self.replaying.log_id)
        };
        let is_asked = self.options.tuning.lab.reuse_min > 0.0;
        is_asked
            && self.kept.is_empty()
            && self.spilled.is_none()
            && self.trees.as_ref().is_some_and(may)
    }

    /// Writes the rebuilt trees to tables of level 0, and starts with empty trees.
    pub(super) fn trees_into_tables(&mut self) -> Result<()> {
        let Some(trees) = self.trees.take() else {
            return Ok(());
        };
        if trees.store.is_durable() {
            let message = "a log is torn, and the trees in persistent memory have no room for what is in front of \
                           that: run `firn repair`";
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        let kept = self
            .kept
            .drain(..)
            .map(|buffer| RunIter::Memtable(buffer.iter()));
        let children = TreesIter::all(&trees)
            .map(|iter| RunIter::Upper(Box::new(UpperIter::Trees(iter))))
            .chain(kept)
            .collect();
        self.write_recovered(MergeIter::at_first(children)?)?;
        self.replaying.settled.clear();
        drop(trees);
        self.open_trees()
    }

    /// Inserts a replayed memtable into the mutable tree. If there is no room, rebuilt trees are
    /// written to tables, together with the memtable. Durable trees keep the memtable and all later
    /// ones, which were not flushed before either; they are flushed once something was evicted. No
    /// snapshot has outlived the earlier process.
    pub(super) fn insert_replayed(&mut self, buffer: Arc<Memtable>) -> Result<()> {
        let Some(trees) = &mut self.trees else {
            return Ok(());
        };
        if self.kept.is_empty() {
            match trees.insert_replayed(&buffer) {
                // The memtable is kept, and its flush is tried again.
                Err(error) if error.kind() == ErrorKind::NoSpace => trees.store.forget_shortage(),
                inserted => return inserted,
            }
        }
        let is_rebuilt = !trees.store.is_durable();
        // The manifest may know higher sequence numbers than were replayed so far.
        let replayed = buffer.seqnos().map(|(_, last)| last);
        buffer.freeze(self.last_seqno);
        self.kept.push(buffer);
        if let Some(through) = replayed.filter(|_| is_rebuilt && !self.read_only) {
            // The next open needs no entry before this one.
            self.spilled = Some((through, self.replaying.log_id));
            self.trees_into_tables()?;
        }
        Ok(())
    }
}
