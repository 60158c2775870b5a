//! The flush of a memtable into the mutable tree (LAB-DB, 3.2, Fig. 7):
//!
//! 1. the memtable's bytes in the log are made durable in the log's file, because its values are
//!    read from there from now on, and its keys will not be replayed;
//! 2. step by step through its keys: count the pointers, insert them into the tree, swap in the new
//!    view. The memtable stays in the state, so an entry may be in both, with the same sequence
//!    number;
//! 3. one manifest record moves the log's floor, and the memtable is removed.
//!
//! A memtable of which few keys will be written again becomes a table of level 0 instead, if the
//! trees are empty (`reuse.rs`).
//!
//! A crash in between leaves the entries of some keys in the tree. Replay brings all of them again,
//! with the same sequence numbers.

use crate::engine::Engine;
use crate::lab::retained::Version;
use crate::lab::view::Trees;
use crate::mechanisms;
use crate::memtable::{Memtable, MemtableIter};
use crate::upper::Upper;
use firn_base::exec::give_way;
use firn_base::key::Kind;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo, Tag};
use firn_table::pm_btree::{Entry, ValueAddress};
use std::ops::Range;
use std::sync::Arc;

/// The number of entries in one step. In the worst case each is in a leaf of its own, and a step
/// needs the space of its leaves twice.
fn step_entries(trees: &Trees) -> usize {
    const LEAST: u64 = 16;
    const MOST: u64 = 4096;
    (trees.store.leaves_max() / 8).clamp(LEAST, MOST) as usize
}

/// Bytes of keys in one step, unless one key alone is larger. They are in the leaves in addition to
/// the earlier ones.
fn step_bytes(trees: &Trees) -> usize {
    (trees.store.usage().region_bytes / 64) as usize
}

/// The newest versions of some consecutive keys, and the older ones of the same keys.
#[derive(Default)]
struct Batch {
    keys: Vec<u8>,
    newest: Vec<(Range<usize>, Tag, Option<ValueAddress>)>,
    older: Vec<Version>,
}

impl Batch {
    /// Takes the next keys of `iter`, with all versions of each: at most `keys_max`, and no more
    /// once they have `bytes_max`.
    fn take(iter: &mut MemtableIter, keys_max: usize, bytes_max: usize) -> Batch {
        let mut batch = Batch::default();
        while iter.valid() {
            let tag = iter.tag();
            let (tag, address) = match tag.kind() {
                Some(Kind::Put) => (Tag::new(tag.seqno(), Kind::Pointer), Some(iter.address())),
                _ => (tag, None),
            };
            match batch.newest.last() {
                Some((key, newer, _)) if batch.keys[key.clone()] == *iter.key() => {
                    let newer = batch
                        .older
                        .last()
                        .filter(|v| *v.key == *iter.key())
                        .map_or(*newer, |v| v.tag);
                    batch.older.push(Version {
                        key: iter.key().into(),
                        tag,
                        address,
                        until: newer.seqno(),
                    });
                }
                _ if batch.newest.len() == keys_max || batch.keys.len() >= bytes_max => break,
                _ => {
                    let start = batch.keys.len();
                    batch.keys.extend_from_slice(iter.key());
                    batch.newest.push((start..batch.keys.len(), tag, address));
                }
            }
            iter.next();
            give_way();
        }
        batch
    }

    fn entries(&self) -> Vec<Entry<'_>> {
        let entry = |(key, tag, address): &(Range<usize>, Tag, Option<ValueAddress>)| Entry {
            key: &self.keys[key.clone()],
            tag: *tag,
            address: *address,
        };
        self.newest.iter().map(entry).collect()
    }
}

impl Trees {
    /// Inserts a replayed memtable into the mutable tree. REQUIRES: there are no readers yet.
    pub(crate) fn insert_replayed(&mut self, buffer: &Arc<Memtable>) -> Result<()> {
        let mut iter = buffer.iter();
        iter.first();
        while iter.valid() {
            let batch = Batch::take(&mut iter, step_entries(self), step_bytes(self));
            let entries = batch.entries();
            entries
                .iter()
                .filter_map(|entry| entry.address)
                .for_each(|at| self.values.add(at));
            let mut lost = Vec::new();
            let tree = self.store.trees().mutable;
            let inserted = self
                .store
                .insert(tree, &self.mutable, &entries, &mut |loser| {
                    lost.extend(loser.address)
                });
            let inserted = inserted.inspect_err(|_| {
                entries
                    .iter()
                    .filter_map(|entry| entry.address)
                    .for_each(|at| self.values.remove(at));
            })?;
            lost.into_iter().for_each(|at| self.values.remove(at));
            self.store.release(&inserted.replaced);
            self.mutable = Arc::new(inserted.view);
        }
        Ok(())
    }
}

impl Engine {
    /// Compares the keys of the memtable that is flushed next with those before it, so that the
    /// picker knows whether they are written again. It takes long, so no lock is held.
    pub(super) fn sample_reuse(&self) {
        let lab = &self.options.tuning.lab;
        let (buffer, reuse, tree_bytes) = {
            let state = self.state.load();
            let buffer = state.flushable(self.commit.visible());
            let Some((buffer, trees)) = buffer.zip(state.upper().and_then(Upper::trees)) else {
                return;
            };
            if lab.reuse_min == 0.0 || trees.values.is_placed(buffer.log_id) {
                return;
            }
            let tree_bytes = trees.store.usage().region_bytes;
            // The state is not held, so that what it alone can reach can be released meanwhile.
            (buffer.clone(), trees.reuse.clone(), tree_bytes)
        };
        reuse.sample(&buffer, |key| lab.entries_max(tree_bytes, key.len() as u64));
    }

    /// Inserts the oldest memtable, which is `buffer`, into the trees. Returns false if it stopped
    /// for want of room: an eviction makes some, and the next call continues from there. The
    /// entries inserted so far are in the trees, or already in level 1.
    pub(crate) fn flush_to_trees(&self, buffer: &Arc<Memtable>) -> Result<bool> {
        let floor = self
            .log_after(buffer)
            .ok_or_else(|| Error::invalid("the active buffer is not flushed"))?;
        self.drain_log_of(buffer, floor)?;
        let mut iter = buffer.iter();
        match self.jobs.releases.flushed_to(buffer) {
            None => iter.first(),
            Some(last) => {
                iter.seek(&last, Tag(0));
                while iter.valid() && *iter.key() == *last {
                    iter.next();
                }
            }
        }
        let trees = self.trees()?;
        let keys_max = if mechanisms::LAB_BULK.is_on() {
            step_entries(&trees)
        } else {
            1
        };
        let bytes_max = step_bytes(&trees);
        drop(trees);
        while iter.valid() {
            let batch = Batch::take(&mut iter, keys_max, bytes_max);
            let last = batch
                .newest
                .last()
                .map(|(key, ..)| batch.keys[key.clone()].to_vec());
            match self.flush_step(batch) {
                Err(error) if error.kind() == ErrorKind::NoSpace && self.may_come_by_room()? => {
                    return Ok(false);
                }
                done => done?,
            }
            self.jobs
                .releases
                .set_flushed_to(last.map(|last| (buffer.clone(), last)));
            self.release_trees();
            if !self.trees()?.has_room() && iter.valid() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if leaves that found no room may find some once others are evicted or released.
    /// Otherwise no event will tell when to retry, so the caller must return its error.
    pub(crate) fn may_come_by_room(&self) -> Result<bool> {
        let _changing = self.jobs.releases.changing.lock();
        let trees = self.trees()?;
        let is_empty = trees.mutable.leaves() == 0
            && trees.immutable.is_none()
            && self.jobs.releases.is_empty();
        // Checked last, because leaves that were released meanwhile have left the queue and made it
        // untrue.
        if !is_empty || !trees.store.is_short() {
            return Ok(true);
        }
        trees.store.forget_shortage();
        Ok(false)
    }

    /// Makes the bytes of `buffer` in the log durable in the log's file. From then on the file is
    /// read past the page cache.
    fn drain_log_of(&self, buffer: &Arc<Memtable>, next: FileId) -> Result<()> {
        self.commit.with_log(|log| {
            // Nothing was written since the memtable was frozen.
            if log.log_id() == buffer.log_id {
                self.rotate_log(log, next)?
            }
            self.record_log_end()
        })?;
        match &self.logs.pm_buffer {
            Some(pm_buffer) => pm_buffer.drain_full().map(drop)?,
            None => self.logs.sealed.sync_below(next)?,
        }
        self.logs
            .values
            .iter()
            .for_each(|values| values.leave_cache(buffer.log_id));
        Ok(())
    }

    fn flush_step(&self, mut batch: Batch) -> Result<()> {
        let _changing = self.jobs.releases.changing.lock();
        let trees = self.trees()?;
        let snapshots = self.readers.snapshots.list(&self.commit.visible);
        let mut older = std::mem::take(&mut batch.older);
        let entries = batch.entries();
        let pointers = || entries.iter().filter_map(|entry| entry.address);
        // Counted before any state has them.
        pointers().for_each(|at| trees.values.add(at));
        // A version whose slot in the hot buffer was released is not seen by any snapshot.
        older.retain(|version| {
            version
                .address
                .is_none_or(|at| trees.values.add_if_there(at, version.tag.seqno()))
        });
        let counted = older.len();
        let mut again = Vec::new();
        let inserted = trees.store.insert(
            trees.store.trees().mutable,
            &trees.mutable,
            &entries,
            &mut |loser| {
                let newer = entries
                    .binary_search_by(|entry| entry.key.cmp(loser.key))
                    .map(|at| entries[at].tag);
                match newer {
                    // A replayed log brings an entry again that the tree has.
                    Ok(newer) if newer == loser.tag => again.extend(loser.address),
                    newer => {
                        let until =
                            newer.map_or(SeqNo::MAX, |newer| newer.seqno().max(loser.tag.seqno()));
                        let (key, tag, address) = (loser.key.into(), loser.tag, loser.address);
                        older.push(Version {
                            key,
                            tag,
                            address,
                            until,
                        });
                    }
                }
            },
        );
        let inserted = match inserted {
            Ok(inserted) => inserted,
            Err(error) => {
                // The entries that it would have replaced stay in the tree.
                pointers().for_each(|at| trees.values.remove(at));
                older[..counted]
                    .iter()
                    .filter_map(|version| version.address)
                    .for_each(|at| trees.values.remove(at));
                return Err(error);
            }
        };
        let (retained, gone) = trees.retained.with(older, &snapshots);
        let next = Trees {
            mutable: Arc::new(inserted.view),
            retained: Arc::new(retained),
            ..trees
        };
        let pointers = gone
            .into_iter()
            .filter_map(|version| version.address)
            .chain(again)
            .collect();
        self.swap_trees(next, inserted.replaced, pointers);
        Ok(())
    }

    /// Releases retained versions whose snapshots have ended.
    pub(crate) fn prune_retained(&self) {
        // A thread that is changing level 0 now prunes as well.
        let Some(_changing) = self.jobs.releases.changing.try_lock() else {
            return;
        };
        let Ok(trees) = self.trees() else { return };
        let snapshots = self.readers.snapshots.list(&self.commit.visible);
        if trees
            .retained
            .versions()
            .iter()
            .all(|version| version.is_seen(&snapshots))
        {
            return;
        }
        let (retained, gone) = trees.retained.with(Vec::new(), &snapshots);
        let pointers = gone
            .into_iter()
            .filter_map(|version| version.address)
            .collect();
        self.swap_trees(
            Trees {
                retained: Arc::new(retained),
                ..trees
            },
            Vec::new(),
            pointers,
        );
    }
}
