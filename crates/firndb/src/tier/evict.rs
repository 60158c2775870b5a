//! A chunk of the immutable tree into level 1 (LAB-DB, 3.2, Fig. 8):
//!
//! 1. if there is no immutable tree, the mutable one becomes it: a root commit;
//! 2. the chunk's values are read from their logs, in the logs' order, and merged with the tables of level 1 that the
//!    chunk overlaps; versions that the side table has of the chunk's keys go along;
//! 3. one manifest record adds and drops tables and says what of the tree is gone;
//! 4. the leaves' words go, then the state has neither leaves nor versions; space and pointers are let go of behind the
//!    last reader.
//!
//! A crash before 3 leaves tables that nothing names, after it leaves that the next open takes out.

use super::chunk::Chunk;
use super::side::Version;
use super::view::{Trees, as_put};
use crate::background::Dead;
use crate::db::Inner;
use crate::log::Wanted;
use crate::manifest::{Edit, Evicted, KeyRange};
use crate::mill::{self, Around, Held, Made};
use crate::plan::Plan;
use crate::sst_run::{Lent, SstRun};
use firn_base::exec::{block_on_with, give_way};
use firn_base::sync::Ordering;
use firn_base::{Result, SeqNo, Tag};
use firn_table::pm_btree::{Place, TreeIter, ValueAddress, View};
use std::sync::Arc;

/// What an eviction takes.
struct Gathered<'a> {
    held: Held,
    /// Versions of the side table that are among that.
    moved: Vec<Version>,
    memory: Lent<'a>,
}

/// An address, and a reference to it while it is sorted.
const PLACE_BYTES: usize = 2 * size_of::<Wanted>() + size_of::<usize>();

/// Shows the entries of `immutable` that are in `ranges`, each with the side table's versions that are older, in order.
/// Returns those versions.
fn for_each_entry(
    trees: &Trees,
    immutable: &View,
    ranges: &[KeyRange],
    mut see: impl FnMut(&[u8], Tag, Option<ValueAddress>),
) -> Result<Vec<Version>> {
    let mut moved = Vec::new();
    let mut iter = TreeIter::new(trees.store.clone(), immutable.clone());
    for range in ranges {
        iter.seek(&range.from)?;
        while let Some(entry) = iter.entry().filter(|entry| range.contains(entry.key)) {
            see(entry.key, entry.tag, entry.address);
            let older = trees.side.older(entry.key, entry.tag);
            older.iter().for_each(|version| see(&version.key, version.tag, version.address));
            moved.extend_from_slice(older);
            iter.next()?;
            give_way();
        }
    }
    Ok(moved)
}

impl Inner {
    /// Runs and installs the eviction of `chunk`.
    pub(crate) fn evict(
        &self,
        part: usize,
        chunk: &Chunk,
        plan: &Plan,
        around: &Around,
        start_ns: u64,
    ) -> Result<Vec<Arc<SstRun>>> {
        if chunk.rotates {
            self.rotate_trees(part)?;
        }
        let mut trees = self.trees(part)?;
        let Some(immutable) = trees.immutable.clone() else { return Ok(Vec::new()) };
        let snapshots = self.readers.snapshots.list(&self.commit.visible);
        let ranges = chunk.ranges(&trees, &immutable)?;
        let Gathered { held, moved, memory } = self.gather(&trees, &immutable, &ranges)?;
        // Its values were read: flushes beside the merge need the room of the leaves that they replace.
        trees.mutable = Arc::default();
        let (evicted_bytes, evicted_entries) = (held.byte_size() as u64, held.len() as u64);
        let bytes_in = evicted_bytes + plan.input_bytes();
        let work = mill::run_above(held, plan, around, &snapshots, &self.mill);
        let mut slept_ns = 0;
        let made = block_on_with(work, || slept_ns += self.yield_point())?;
        drop(memory);
        let evicted = self.evicted_with(&trees, ranges);
        let (left, gone) = immutable.without(|bound| evicted.contains(bound));
        let all = left.leaves() == 0;
        let evicted = if all { Evicted { ranges: vec![KeyRange::all()], ..evicted } } else { evicted };
        let is_rebuilt = !trees.store.is_durable();
        // A log that was not flushed yet is behind all that were.
        // The floor first: a flush that ends beside this raises it behind the log that it ended.
        let floor = self.logs.sealed.floor();
        let behind = || trees.values.first_behind(trees.complete_through).unwrap_or(floor);
        let log_floor = (all && is_rebuilt).then(behind);
        let Made { edit, created, bytes_out, .. } = made;
        let added = edit.add.clone();
        self.install_eviction(part, Edit { evicted: Some(evicted), log_floor, ..edit }, &created, plan)?;
        trees.counters.chunks.add(1);
        log_floor.into_iter().for_each(|floor| trees.values.rebuild_from(floor));
        let left_entries = left.entries();
        self.leave(part, &moved, (!all).then(|| Arc::new(left)), gone)?;
        self.report(plan, added.len(), (bytes_in, bytes_out), start_ns + slept_ns);
        self.stall.drained(evicted_bytes, (self.clock.now_ns() - start_ns).saturating_sub(slept_ns));
        trees.values.evicted(evicted_entries, left_entries);
        trees.counters.chunks_by_log.add(u64::from(chunk.is_by_log()));
        trees.counters.chunk_entries.add(evicted_entries);
        // These views of them too.
        drop((trees, immutable));
        self.release_trees(part);
        Ok(self.runs_of(part, &added))
    }

    /// What is gone of the immutable tree once `ranges` are.
    fn evicted_with(&self, trees: &Trees, mut ranges: Vec<KeyRange>) -> Evicted {
        let (tree, through) = (trees.store.trees().immutable.unwrap_or(0), trees.complete_through);
        let manifest = self.manifest.lock();
        let before = manifest.version().evicted.as_ref();
        // Trees that are rebuilt begin at the same number again with each open.
        let is_ours = trees.store.is_durable() || trees.counters.chunks.get() > 0;
        let same = before.filter(|before| is_ours && (before.tree, before.through) == (tree, through));
        ranges.extend(same.iter().flat_map(|before| before.ranges.iter().cloned()));
        Evicted { tree, through, ranges: KeyRange::union(ranges) }
    }

    fn rotate_trees(&self, part: usize) -> Result<()> {
        let _changing = self.jobs.releases.changing.lock();
        let trees = self.trees(part)?;
        if trees.immutable.is_some() {
            return Ok(());
        }
        // Of a buffer that is being flushed some entries go into the new tree.
        let flushed_through = self.state.load().parts[part].flushed_through;
        let complete_through = if trees.store.is_durable() { SeqNo(0) } else { flushed_through };
        trees.store.rotate()?;
        let (mutable, immutable, leaves) = (Arc::default(), Some(trees.mutable.clone()), trees.mutable.leaves());
        let next = Trees { mutable, immutable, leaves, complete_through, ..trees.clone() };
        self.swap_trees(part, next, Arc::default(), Vec::new(), Vec::new());
        Ok(())
    }

    /// The entries of `immutable` that are in `ranges`, with their values and the side table's versions that are older
    /// than those, in order. Of that tree, not of the view that the chunk was picked from: a flush beside this may have
    /// brought more before the trees changed places.
    fn gather<'a>(&'a self, trees: &Trees, immutable: &View, ranges: &[KeyRange]) -> Result<Gathered<'a>> {
        let (mut entries, mut bytes) = (0, 0);
        let len = |at: Option<ValueAddress>| at.map_or(0, |at| at.len as usize);
        for_each_entry(trees, immutable, ranges, |key, _, address| {
            entries += 1;
            bytes += key.len() + len(address);
        })?;
        let memory = Held::memory_bytes(entries, bytes) + entries * PLACE_BYTES;
        let memory = self.tables.lend(memory as u64);
        let (mut held, mut places) = (Held::with_capacity(entries, bytes), Vec::with_capacity(entries));
        let moved = for_each_entry(trees, immutable, ranges, |key, tag, address| {
            held.push_key(key, as_put(tag), len(address));
            places.push(address.map(|at| (at, tag.seqno())));
        })?;
        trees.values.for_each(&places, |i, value| held.set_value(i, value))?;
        Ok(Gathered { held, moved, memory })
    }

    fn install_eviction(&self, part: usize, mut edit: Edit, created: &[u64], plan: &Plan) -> Result<()> {
        let mut manifest = self.manifest.lock();
        manifest.version().keep_shared(&mut edit);
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
            give_way();
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
