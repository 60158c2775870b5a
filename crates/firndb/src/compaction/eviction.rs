//! The eviction of a chunk of the immutable tree into level 1 (LAB-DB, 3.2, Fig. 8):
//!
//! 1. if there is no immutable tree, the mutable one becomes it: a root commit;
//! 2. the chunk's values are read from their logs, in the order of the logs, and merged with the
//!    tables of level 1 that the chunk overlaps; retained versions of the chunk's keys are merged
//!    with them;
//! 3. one manifest record adds and drops tables, and records which part of the tree is gone
//!    (`install.rs`);
//! 4. the leaves' words in the directory are cleared, and a state without the leaves and the
//!    retained versions is swapped in (`upper.rs`); space and pointers are released after the last
//!    reader.
//!
//! A crash before 3 leaves tables that nothing names. A crash after it leaves leaves that the next
//! open removes.

use crate::compaction::plan::Plan;
use crate::compaction::upper::Evicted;
use crate::compaction::{self, BufferedEntries, CompactionOutput, LevelContext};
use crate::engine::Engine;
use crate::lab::chunk::{Chunk, Taken};
use crate::lab::retained::Version;
use crate::lab::view::{Trees, as_put};
use crate::log::Wanted;
use crate::manifest::{self, KeyRange};
use crate::read::table_run::MemoryReservation;
use crate::read_points::is_seen;
use firn_base::exec::give_way;
use firn_base::{Result, SeqNo, Tag};
use firn_fs::LARGE_BYTES;
use firn_table::pm_btree::{HOT_LOG, TreeIter, ValueAddress, View};
use std::sync::Arc;

/// The entries of one eviction.
struct Gathered<'a> {
    held: BufferedEntries,
    /// The retained versions among them.
    moved: Vec<Version>,
    /// The number of entries taken from the trees, and bytes of their keys and values. `held` has
    /// at most these.
    entries: u64,
    bytes: u64,
    /// Bytes of the largest value that is read only when the merge comes to it.
    largest: u64,
    memory: MemoryReservation<'a>,
    slept_ns: u64,
}

/// Bytes of an address, and of a reference to it for sorting.
const PLACE_BYTES: usize = 2 * size_of::<Wanted>() + size_of::<usize>();

/// An entry of the trees that a chunk takes.
struct EvictedEntry<'e> {
    key: &'e [u8],
    tag: Tag,
    address: Option<ValueAddress>,
    /// True if the entry is in the tree, which keeps its value in the log until the eviction has
    /// ended.
    is_of_tree: bool,
    /// True if level 0 has a newer version and no read point lies between the two. No reader will
    /// see this one again, so its value is not read.
    is_replaced: bool,
}

impl EvictedEntry<'_> {
    /// The address of the value, if it is so large that it is read only when the merge comes to it.
    /// Otherwise a leaf full of large values would not fit in memory.
    fn stays_in_log(&self) -> Option<ValueAddress> {
        self.address
            .filter(|at| self.is_of_tree && at.log_id != HOT_LOG && at.len as usize >= LARGE_BYTES)
    }
}

/// Passes the entries of `immutable` in `ranges` to `see`, each followed by its retained versions,
/// in order. Returns those versions.
///
/// A newer version that replaced an entry is in the mutable tree, so it is as durable as that. Its
/// log was synced before it was inserted, and stays until it is evicted itself, after this chunk.
fn for_each_entry(
    trees: &Trees,
    immutable: &View,
    ranges: &[KeyRange],
    snapshots: &[SeqNo],
    mut see: impl FnMut(EvictedEntry<'_>),
) -> Result<Vec<Version>> {
    let mut moved = Vec::new();
    let mut iter = TreeIter::new(trees.store.clone(), immutable.clone());
    let mut newer = TreeIter::new(trees.store.clone(), (*trees.mutable).clone());
    for range in ranges {
        iter.seek(&range.from)?;
        newer.seek(&range.from)?;
        while let Some(entry) = iter.entry().filter(|entry| range.contains(entry.key)) {
            if newer.entry().is_some_and(|newer| newer.key < entry.key) {
                newer.seek(entry.key)?;
            }
            let until = newer
                .entry()
                .filter(|newer| newer.key == entry.key)
                .map(|newer| newer.tag.seqno());
            let is_replaced = until.is_some_and(|until| {
                until >= entry.tag.seqno() && !is_seen(snapshots, entry.tag.seqno(), until)
            });
            see(EvictedEntry {
                key: entry.key,
                tag: entry.tag,
                address: entry.address,
                is_of_tree: true,
                is_replaced,
            });
            let older = trees.retained.older(entry.key, entry.tag);
            older.iter().for_each(|version| {
                // True if the snapshot for which this version was retained has ended.
                let is_replaced = !version.is_seen(snapshots);
                let (tag, address) = (version.tag, version.address);
                see(EvictedEntry {
                    key: &version.key,
                    tag,
                    address,
                    is_of_tree: false,
                    is_replaced,
                });
            });
            moved.extend_from_slice(older);
            iter.next()?;
            give_way();
        }
    }
    Ok(moved)
}

impl Engine {
    /// True if a new log may begin. A log that must be in persistent memory waits while evictions
    /// that may make room there are running or due. After that, the log itself reports that the
    /// pool is too small.
    pub(crate) fn next_log_may_begin(&self) -> bool {
        let lacks_room = self
            .logs
            .values
            .as_ref()
            .is_some_and(|values| values.lacks_room_for(1));
        if lacks_room {
            self.ask_for_merges();
            if !self.is_idle() {
                return false;
            }
            // Releases the logs that the last eviction finished with.
            self.remove_obsolete(true);
        }
        true
    }

    /// Runs the eviction of `chunk`. Returns its output, and `plan` without the tables that no
    /// entry falls into, which stay as they are. `None` if there is nothing to evict.
    pub(super) fn evict(
        &self,
        chunk: &Chunk,
        plan: &Plan,
        around: &LevelContext,
    ) -> Result<Option<(Plan, CompactionOutput)>> {
        if chunk.rotates {
            self.rotate_trees()?;
        }
        let mut trees = self.trees()?;
        let Some(immutable) = trees.immutable.clone() else {
            return Ok(None);
        };
        let snapshots = self.readers.snapshots.list(&self.commit.visible);
        let Taken { keys, leaves, edge } = chunk.of(&trees, &immutable)?;
        let Gathered {
            held,
            moved,
            entries,
            bytes,
            largest,
            memory,
            slept_ns,
        } = self.gather(&trees, &immutable, &keys, &snapshots)?;
        // From here on only the index of `immutable` is used. Its leaves stay in the state until
        // `end_eviction`, because only evictions remove leaves, and evictions run one at a time.
        trees.stop_reading();
        let plan = plan.narrowed(held.keys());
        let bytes_in = held.byte_size() as u64 + plan.input_bytes();
        let replaced = entries - held.len() as u64;
        let _loan = self.borrow_for(&plan, largest)?;
        let work = compaction::run_above(held, &plan, around, &snapshots, &self.compaction);
        let mut output = self.run_limited(work)?;
        drop(memory);
        output.slept_ns += slept_ns;
        output.bytes_in = bytes_in;
        let ranges = self.evicted_ranges(&trees, leaves);
        let (left, gone) = immutable.without(|bound| ranges.contains(bound));
        let is_all = left.leaves() == 0;
        output.edit.evicted = Some(match is_all {
            true => manifest::Evicted {
                ranges: vec![KeyRange::all()],
                ..ranges
            },
            false => ranges,
        });
        if is_all && !trees.store.is_durable() {
            // A log that was not flushed is after all flushed ones. The floor is read first,
            // because a concurrent flush raises it past the log that it flushed.
            let floor = self.logs.sealed.floor();
            let behind = trees.values.first_behind(trees.complete_through);
            output.edit.log_floor = Some(behind.unwrap_or(floor));
        }
        output.evicted = Some(Evicted {
            moved,
            left_entries: left.entries(),
            left: (!is_all).then(|| Arc::new(left)),
            is_edge: edge.is_some(),
            immutable_from: edge.map_or_else(|| trees.immutable_from.clone(), Arc::from),
            gone,
            entries,
            replaced,
            bytes,
        });
        Ok(Some((plan, output)))
    }

    /// The evicted part of the immutable tree, including the leaves that begin in `ranges`.
    fn evicted_ranges(&self, trees: &Trees, mut ranges: Vec<KeyRange>) -> manifest::Evicted {
        let (tree, through) = (
            trees.store.trees().immutable.unwrap_or(0),
            trees.complete_through,
        );
        let manifest = self.manifest.lock();
        let before = manifest.version().evicted.as_ref();
        // Trees that are rebuilt begin at the same number again with each open.
        let is_ours = trees.store.is_durable() || trees.counters.chunks.get() > 0;
        let same =
            before.filter(|before| is_ours && (before.tree, before.through) == (tree, through));
        ranges.extend(same.iter().flat_map(|before| before.ranges.iter().cloned()));
        manifest::Evicted {
            tree,
            through,
            ranges: KeyRange::union(ranges),
        }
    }

    fn rotate_trees(&self) -> Result<()> {
        let _changing = self.jobs.releases.changing.lock();
        let trees = self.trees()?;
        if trees.immutable.is_some() {
            return Ok(());
        }
        // Some entries of a memtable that is being flushed go into the new tree.
        let flushed_through = self.state.load().unflushed(&[]).flushed_through;
        let complete_through = if trees.store.is_durable() {
            SeqNo(0)
        } else {
            flushed_through
        };
        trees.store.rotate()?;
        let (mutable, immutable, leaves) = (
            Arc::default(),
            Some(trees.mutable.clone()),
            trees.mutable.leaves(),
        );
        let immutable_from = Arc::default();
        let next = Trees {
            mutable,
            immutable,
            immutable_from,
            leaves,
            complete_through,
            ..trees.clone()
        };
        // This removes nothing, but it ends a generation, so that later removals wait for its
        // readers, too.
        self.swap_trees(next, Vec::new(), Vec::new());
        Ok(())
    }

    /// The entries of `immutable` in `ranges` that are not replaced, with their values and older
    /// retained versions, in order. They are read from that tree, not from the view that the chunk
    /// was picked from, because a concurrent flush may have inserted more before the trees were
    /// rotated.
    fn gather<'a>(
        &'a self,
        trees: &Trees,
        immutable: &View,
        ranges: &[KeyRange],
        snapshots: &[SeqNo],
    ) -> Result<Gathered<'a>> {
        let (mut entries, mut bytes, mut held_entries, mut held_bytes, mut largest) =
            (0, 0, 0, 0, 0_u64);
        let len = |at: Option<ValueAddress>| at.map_or(0, |at| at.len as usize);
        for_each_entry(trees, immutable, ranges, snapshots, |taking| {
            let more = taking.key.len() + len(taking.address);
            (entries, bytes) = (entries + 1, bytes + more as u64);
            if taking.is_replaced {
                return;
            }
            held_entries += 1;
            match taking.stays_in_log() {
                Some(at) => {
                    held_bytes += taking.key.len();
                    largest = largest.max(u64::from(at.len));
                }
                None => held_bytes += more,
            }
        })?;
        let memory =
            BufferedEntries::memory_bytes(held_entries, held_bytes) + held_entries * PLACE_BYTES;
        let memory = self.tables.lend(memory as u64);
        let mut held = BufferedEntries::with_capacity(held_entries, held_bytes);
        let mut places = Vec::with_capacity(held_entries);
        let moved = for_each_entry(trees, immutable, ranges, snapshots, |taking| {
            if taking.is_replaced {
                return;
            }
            let in_log = taking.stays_in_log();
            match in_log {
                Some(at) => held.push_in_log(taking.key, as_put(taking.tag), at, &trees.values),
                None => held.push_key(taking.key, as_put(taking.tag), len(taking.address)),
            }
            let address = taking.address.filter(|_| in_log.is_none());
            places.push(address.map(|at| (at, taking.tag.seqno())));
        })?;
        let mut slept_ns = 0;
        let flying_max = || {
            slept_ns += self.yield_point();
            self.compaction.check_open()?;
            Ok(self.jobs.rate_limiter.reads())
        };
        trees
            .values
            .for_each(&places, flying_max, |i, value| held.set_value(i, value))?;
        Ok(Gathered {
            held,
            moved,
            entries,
            bytes,
            largest,
            memory,
            slept_ns,
        })
    }
}
