//! The part of an install that concerns the structure above the levels, in a profile that has one.
//!
//! Its contents change step by step: a flush inserts some keys at a time, and an eviction takes
//! some out. Each step swaps in a new view of it (`swap_trees`). The manifest's record is between
//! the steps of an insertion, which come first, and those of an eviction, which come after it, so
//! an entry is always in one place or in both.

use crate::compaction::background::Obsolete;
use crate::compaction::plan::{How, Plan};
use crate::engine::Engine;
use crate::lab::retained::Version;
use crate::lab::view::Trees;
use crate::manifest;
use crate::manifest::Edit;
use crate::upper::Upper;
use firn_base::exec::give_way;
use firn_base::{Error, FileId, Result, SeqNo};
use firn_table::pm_btree::{Place, ValueAddress, View};
use std::sync::Arc;

/// The entries that an eviction copied into tables, and what is left without them.
#[derive(Debug)]
pub(crate) struct Evicted {
    /// The retained versions among them.
    pub(super) moved: Vec<Version>,
    /// The remaining tree; `None` if nothing remains.
    pub(super) left: Option<Arc<View>>,
    /// The start of the part of it that has yet to be evicted.
    pub(super) immutable_from: Arc<[u8]>,
    /// The leaves that it no longer has.
    pub(super) gone: Vec<Place>,
    /// The number of entries taken, of those that newer ones had replaced, and of those left.
    pub(super) entries: u64,
    pub(super) replaced: u64,
    pub(super) left_entries: u64,
    /// Bytes of the keys and values taken.
    pub(super) bytes: u64,
    /// True if it ended within a leaf.
    pub(super) is_edge: bool,
}

impl Engine {
    /// The current level 0.
    pub(crate) fn trees(&self) -> Result<Trees> {
        let state = self.state.load();
        let trees = state.upper().and_then(Upper::trees);
        trees
            .cloned()
            .ok_or_else(|| Error::invalid("this profile has no trees"))
    }

    /// Completes the edit of a flush before it is recorded. `version` is the one before it.
    pub(super) fn complete_flush(&self, plan: &Plan, version: &manifest::Version, edit: &mut Edit) {
        let (Some(last), Some(floor), Ok(trees)) =
            (plan.flushes_through(), edit.log_floor, self.trees())
        else {
            return;
        };
        if plan.how != How::Insert {
            return;
        }
        for (&id, log) in version.logs.range(..floor) {
            trees.values.end(id, log.end.map_or(0, |end| end.end), last);
        }
        if trees.need_logs() {
            // They are rebuilt from their logs.
            edit.log_floor = None;
        }
    }

    /// The logs of `logs` that are obsolete after a flush that needs none below `floor`. REQUIRES:
    /// the flush is recorded.
    pub(super) fn obsolete_logs(
        &self,
        plan: &Plan,
        logs: Vec<FileId>,
        floor: FileId,
    ) -> Vec<FileId> {
        let passed = logs.into_iter().filter(|&log| log < floor);
        let Ok(trees) = self.trees() else {
            return passed.collect();
        };
        let is_past = plan.how != How::Insert;
        if is_past {
            trees.counters.buffers_past.add(1);
            // The values that readers of older trees need of these logs stay. The logs must be
            // known, so that they are released like the others.
            passed.for_each(|log| trees.values.end(log, 0, SeqNo(0)));
            if trees.need_logs() {
                trees.values.rebuild_from(floor);
            }
        } else {
            self.jobs.releases.set_flushed_to(None);
        }
        if let Some(hot) = trees.values.hot()
            && (is_past || !trees.need_logs())
        {
            hot.release_below(floor);
        }
        trees.values.take_unused(floor)
    }

    /// Removes evicted entries, whose tables are installed, from the trees. `log_floor` is the
    /// floor that the eviction recorded, if it did; `elapsed_ns` is the time that it took.
    pub(super) fn end_eviction(
        &self,
        plan: &Plan,
        evicted: Evicted,
        log_floor: Option<FileId>,
        elapsed_ns: u64,
    ) -> Result<()> {
        let trees = self.trees()?;
        let (values, counters) = (trees.values.clone(), trees.counters.clone());
        drop(trees);
        counters.chunks.add(1);
        if let Some(floor) = log_floor {
            values.rebuild_from(floor);
        }
        let by_log = plan.chunk.as_ref().is_some_and(|chunk| chunk.is_by_log());
        counters.chunks_by_log.add(u64::from(by_log));
        counters.chunk_edges.add(u64::from(evicted.is_edge));
        counters.chunk_entries.add(evicted.entries);
        counters.chunk_entries_replaced.add(evicted.replaced);
        self.write_stall.drained(evicted.bytes, elapsed_ns);
        values.evicted(evicted.entries, evicted.left_entries);
        self.remove_evicted(evicted)?;
        self.release_trees();
        Ok(())
    }

    /// Swaps in a level 0 without the evicted entries.
    fn remove_evicted(&self, evicted: Evicted) -> Result<()> {
        let Evicted {
            moved,
            left,
            immutable_from,
            gone,
            ..
        } = evicted;
        let _changing = self.jobs.releases.changing.lock();
        let trees = self.trees()?;
        if trees.immutable.is_none() {
            return Ok(());
        }
        let (retained, removed) = trees.retained.without(&moved);
        let mut pointers: Vec<_> = removed
            .into_iter()
            .filter_map(|version| version.address)
            .collect();
        for place in &gone {
            give_way();
            trees
                .store
                .for_each_entry(*place, |entry| pointers.extend(entry.address))?;
        }
        if left.is_none() {
            trees.store.end_immutable()?;
        }
        trees.store.remove(&gone)?;
        let next = Trees {
            immutable: left,
            immutable_from,
            retained: Arc::new(retained),
            ..trees
        };
        self.swap_trees(next, gone, pointers);
        Ok(())
    }

    /// Makes `next` level 0 and ends the current generation. `places` and `pointers` are the ones
    /// that `next` no longer has. REQUIRES: `changing` has been held since `next` was derived from
    /// the current level 0.
    pub(super) fn swap_trees(&self, next: Trees, places: Vec<Place>, pointers: Vec<ValueAddress>) {
        let Ok(before) = self.trees() else {
            return;
        };
        let next = Trees {
            generation: Arc::default(),
            ..next
        };
        // The retained versions of older generations are not counted.
        match (before.retained.bytes(), next.retained.bytes()) {
            (before, now) if now > before => self.tables.add_buffer(now - before),
            (before, now) if now < before => self.tables.drop_buffer(before - now),
            _ => {}
        }
        self.state
            .rcu(|state| state.with_upper(Upper::Trees(next.clone())));
        // Pushed after the swap, when no new reader can hold that generation.
        self.jobs.releases.push(before.generation, places, pointers);
    }

    /// Releases leaves and pointers that no reader can reach, and then the logs that nothing points
    /// into.
    pub(crate) fn release_trees(&self) -> bool {
        let Ok(trees) = self.trees() else {
            return false;
        };
        let mut any = self.jobs.releases.run(&trees);
        if !trees.has_room() && !self.jobs.releases.is_empty() {
            // Otherwise a cursor that keeps moving would hold everything that was replaced since it
            // began.
            self.revoke_all_cursors();
            any |= self.jobs.releases.run(&trees);
        }
        if any {
            let unused = trees.values.take_unused(self.logs.sealed.floor());
            self.retire(unused.into_iter().map(Obsolete::Log));
        }
        any
    }
}
