//! A chunk of the immutable tree into level 1 (LAB-DB, 3.2, Fig. 8):
//!
//! 1. if there is no immutable tree, the mutable one becomes it: a root commit;
//! 2. the chunk's values are read from their logs, in the logs' order, and merged with the tables of level 1 that the
//!    chunk overlaps; versions that the side table has of the chunk's keys go along;
//! 3. one manifest record adds and drops tables and says how far the tree is evicted;
//! 4. the leaves' words go, then the state has neither leaves nor versions; space and pointers are let go of behind the
//!    last reader.
//!
//! A crash before 3 leaves tables that nothing names, after it leaves that the next open takes out.

use super::chunk::Chunk;
use super::side::Version;
use super::view::{Trees, as_put};
use crate::background::Dead;
use crate::db::Inner;
use crate::manifest::{Edit, Evicted, TableMeta};
use crate::mill::{self, Around, Held, Made};
use crate::plan::Plan;
use firn_base::exec::block_on_with;
use firn_base::sync::Ordering;
use firn_base::{Result, SeqNo};
use firn_table::pm_btree::{Place, TreeIter, View};
use std::sync::Arc;

impl Inner {
    /// Runs and installs the eviction of `chunk`.
    pub(crate) fn evict(
        &self,
        part: usize,
        chunk: &Chunk,
        plan: &Plan,
        around: &Around,
        start_ns: u64,
    ) -> Result<Vec<u64>> {
        if chunk.rotates {
            self.rotate_trees(part)?;
        }
        let trees = self.trees(part)?;
        let Some(immutable) = &trees.immutable else { return Ok(Vec::new()) };
        let snapshots = self.readers.snapshots.list(&self.commit.visible);
        let (held, moved) = self.gather(&trees, immutable, chunk)?;
        let (evicted_bytes, evicted_entries) = (held.byte_size() as u64, held.len() as u64);
        let bytes_in = evicted_bytes + plan.input_bytes();
        let work = mill::run_above(held, plan, around, &snapshots, &self.mill);
        let mut slept_ns = 0;
        let made = block_on_with(work, || slept_ns += self.yield_point())?;
        let (left, gone) = immutable.without(|_, upper| match (chunk.to(), upper) {
            (Some(to), Some(upper)) => upper <= to,
            (Some(_), None) => false,
            (None, _) => true,
        });
        let all = left.leaves() == 0;
        let evicted = Evicted {
            tree: trees.store.trees().immutable.unwrap_or(0),
            to: chunk.to().filter(|_| !all).map(<[u8]>::to_vec),
            through: trees.complete_through,
        };
        let is_rebuilt = !trees.store.is_durable();
        // A log that was not flushed yet is behind all that were.
        let behind = || trees.values.first_behind(trees.complete_through).unwrap_or(self.logs.sealed.floor());
        let log_floor = (all && is_rebuilt).then(behind);
        let Made { edit, created, bytes_out, .. } = made;
        let ids: Vec<u64> = edit.add.iter().map(|(_, table)| table.id).collect();
        self.install_eviction(part, Edit { evicted: Some(evicted), log_floor, ..edit }, &created, plan)?;
        log_floor.into_iter().for_each(|floor| trees.values.rebuild_from(floor));
        self.leave(part, &moved, (!all).then(|| Arc::new(left)), gone)?;
        self.report(plan, ids.len(), (bytes_in, bytes_out), start_ns + slept_ns);
        self.stall.drained(evicted_bytes, (self.clock.now_ns() - start_ns).saturating_sub(slept_ns));
        trees.counters.chunks.add(1);
        trees.counters.chunk_entries.add(evicted_entries);
        self.release_trees(part);
        Ok(ids)
    }

    fn rotate_trees(&self, part: usize) -> Result<()> {
        let _changing = self.jobs.releases.changing.lock();
        let trees = self.trees(part)?;
        if trees.immutable.is_some() {
            return Ok(());
        }
        // Of a buffer that is being flushed some entries go into the new tree.
        let complete = self.manifest.lock().version().last_seqno;
        let complete_through = if trees.store.is_durable() { SeqNo(0) } else { complete };
        trees.store.rotate()?;
        let (mutable, immutable) = (Arc::default(), Some(trees.mutable.clone()));
        let next = Trees { mutable, immutable, complete_through, ..trees.clone() };
        self.swap_trees(part, next, Arc::default(), Vec::new(), Vec::new());
        Ok(())
    }

    /// The entries of `immutable` that are in `chunk`, with their values and the side table's versions that are older
    /// than those, in order. Of that tree, not of the view that the chunk was picked from: a flush beside this may have
    /// brought more before the trees changed places.
    fn gather(&self, trees: &Trees, immutable: &View, chunk: &Chunk) -> Result<(Held, Vec<Version>)> {
        let mut iter = TreeIter::new(trees.store.clone(), immutable.clone());
        let mut versions = Vec::new();
        let mut moved = Vec::new();
        iter.first()?;
        while let Some(entry) = iter.entry().filter(|entry| chunk.to().is_none_or(|to| entry.key < to)) {
            let (key, tag) = (entry.key.into(), entry.tag);
            versions.push(Version { key, tag, address: entry.address, until: SeqNo::MAX });
            let older = trees.side.older(entry.key, entry.tag);
            versions.extend_from_slice(older);
            moved.extend_from_slice(older);
            iter.next()?;
        }
        let values = trees.values.get_many(versions.iter().map(|version| version.address))?;
        let mut held = Held::default();
        for (version, value) in versions.iter().zip(values) {
            held.push_parts(&version.key, as_put(version.tag), &value);
        }
        Ok((held, moved))
    }

    fn install_eviction(&self, part: usize, mut edit: Edit, created: &[u64], plan: &Plan) -> Result<()> {
        let mut manifest = self.manifest.lock();
        for (_, table) in &mut edit.add {
            table.shared |=
                manifest.version().tables().any(|known: &Arc<TableMeta>| known.id == table.id && known.shared);
        }
        edit.next_file_id = Some(self.mill.next_file_id.load(Ordering::Relaxed));
        if let Err(error) = manifest.append(edit, true, || self.next_file_id()) {
            drop(manifest);
            self.undo_tables(&error, created);
            return Err(error);
        }
        let version = manifest.version();
        self.state.rcu(|state| {
            let part_now = state.parts[part].with_tables(version, &self.tables, self.options.limits.levels);
            state.with_part(part, part_now)
        });
        drop(manifest);
        self.bury(plan.tables.iter().map(|(_, run)| Dead::Table(run.clone())));
        Ok(())
    }

    /// Takes what was evicted out of the trees, and swaps in level 0 without it.
    fn leave(&self, part: usize, moved: &[Version], left: Option<Arc<View>>, gone: Vec<Place>) -> Result<()> {
        let _changing = self.jobs.releases.changing.lock();
        let trees = self.trees(part)?;
        let Some(before) = trees.immutable.clone() else { return Ok(()) };
        let (side, removed) = trees.side.without(moved);
        let mut pointers: Vec<_> = removed.into_iter().filter_map(|version| version.address).collect();
        for place in &gone {
            trees.store.for_each_entry(*place, |entry| pointers.extend(entry.address))?;
        }
        if left.is_none() {
            trees.store.end_immutable()?;
        }
        trees.store.remove(&gone)?;
        let next = Trees { immutable: left, side: Arc::new(side), ..trees };
        self.swap_trees(part, next, before, gone, pointers);
        Ok(())
    }
}
