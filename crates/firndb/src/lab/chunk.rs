//! A chunk: a part of the immutable tree that is evicted at a time. Its values are about as large
//! as one to three memtables (LAB-DB, 3.2, 3.3, Figs. 8 and 10). Chunks take leaves from the left.
//! Once four fifths of the leaves are gone (`by_log_share`), they take the leaves with entries of
//! the oldest logs, so that a few cold keys do not keep a log for long.
//!
//! A table of level 1 that overlaps two chunks is written twice. So a chunk from the left ends
//! where a table begins, if one is near (`aligned`), which hardly ever is the start of a leaf. The
//! entries before the edge in the leaf there are evicted too, but the leaf stays until the next
//! chunk has taken the rest. Until then they are in level 1 as well, unchanged. Both copies give
//! the same result to a reader, and a recovery that only knows leaves evicts them once more.

use super::view::Trees;
use crate::manifest::{KeyRange, TableMeta};
use crate::mechanisms;
use firn_base::FileId;
use firn_base::Result;
use firn_table::pm_btree::{TreeIter, Usage, View};
use std::sync::Arc;

/// A range of keys to evict, and whether their tree is to become the immutable one.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// The tree is still the mutable one.
    pub(crate) rotates: bool,
    /// The range that contains all keys.
    within: KeyRange,
    /// True if it takes the leaves with entries of the oldest logs, and not everything in `within`.
    by_log: bool,
    /// The maximum entries of a chunk by log, unless its first leaf has more. Approximate for other
    /// chunks.
    entries_max: u64,
    /// The maximum bytes of keys and values, unless the first leaf has more. Needed because
    /// `entries_max` is only an estimate.
    bytes_max: u64,
}

/// The part of a tree that a chunk takes.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The ranges of the taken keys, in order.
    pub(crate) keys: Vec<KeyRange>,
    /// The ranges of the leaves that it empties, in order.
    pub(crate) leaves: Vec<KeyRange>,
    /// The end of the chunk, if it is within a leaf.
    pub(crate) edge: Option<Vec<u8>>,
}

impl Chunk {
    /// Aligns the end of this chunk from the left of `tree`. If it is within a table of level 1, it
    /// moves to where that table begins, if that leaves at least a quarter of the intended entries,
    /// or else to where the next table begins, if that adds at most a quarter.
    pub(crate) fn aligned(self, tree: &View, level1: &[Arc<TableMeta>]) -> Chunk {
        let KeyRange { from, to: Some(to) } = &self.within else {
            return self;
        };
        let at = level1.partition_point(|table| table.largest < *to);
        let is_cut = level1.get(at).is_some_and(|table| table.smallest < *to);
        if !is_cut || self.is_by_log() {
            return self;
        }
        // Bounds of leaves. `None`, after all leaves, is the rightmost.
        let end_of = |entries: u64| tree.first_leaves(entries).and_then(|(_, to)| to);
        let (least, most) = (
            end_of(self.entries_max / 4),
            end_of(self.entries_max.saturating_add(self.entries_max / 4)),
        );
        let cut = &level1[at];
        let behind = level1.get(at + 1).map_or_else(
            || [&cut.largest[..], &[0]].concat(),
            |next| next.smallest.clone(),
        );
        let is_near = |edge: &Vec<u8>| {
            edge > from
                && least.as_ref().is_some_and(|least| edge >= least)
                && most.as_ref().is_none_or(|most| edge <= most)
        };
        match [cut.smallest.clone(), behind].into_iter().find(is_near) {
            Some(edge) => Chunk {
                within: KeyRange {
                    from: from.clone(),
                    to: Some(edge),
                },
                ..self
            },
            None => self,
        }
    }

    /// The range that contains all keys.
    pub(crate) fn within(&self) -> &KeyRange {
        &self.within
    }

    pub(crate) fn is_by_log(&self) -> bool {
        self.by_log
    }

    /// Selects the part of `immutable` that this chunk takes.
    ///
    /// # Errors
    /// `Corruption` of a leaf that was read.
    pub(crate) fn of(&self, trees: &Trees, immutable: &View) -> Result<Taken> {
        let (mut leaves, mut bytes) = (Vec::new(), 0);
        let end = self.within.to.as_ref();
        trees.store.for_each_leaf(immutable, |leaf| {
            if end.is_some_and(|end| leaf.from >= *end) {
                return false;
            }
            bytes += leaf.entry_bytes;
            leaves.push(leaf);
            self.by_log || bytes <= self.bytes_max
        })?;
        if self.by_log {
            trees.counters.leaves_looked_into.add(leaves.len() as u64);
            leaves.sort_by_key(|leaf| leaf.oldest_log.unwrap_or(FileId(u64::MAX)));
        }
        let (mut entries, mut bytes) = (0, 0);
        let chosen = leaves.into_iter().take_while(|leaf| {
            let is_first = entries == 0;
            bytes += leaf.entry_bytes;
            let takes = is_first
                || ((!self.by_log || entries < self.entries_max) && bytes <= self.bytes_max);
            entries += leaf.entries;
            takes
        });
        let mut leaves: Vec<_> = chosen
            .map(|leaf| KeyRange {
                from: leaf.from,
                to: leaf.to,
            })
            .collect();
        let within = |leaf: &KeyRange| leaf.within(&self.within);
        let keys = KeyRange::union(leaves.iter().filter_map(within).collect());
        let last_goes_on = match (end, leaves.last()) {
            (Some(end), Some(last)) if last.to.as_ref().is_none_or(|to| to > end) => {
                let mut behind = TreeIter::new(trees.store.clone(), immutable.clone());
                behind.seek(end)?;
                behind.entry().is_some_and(|entry| last.contains(entry.key))
            }
            _ => false,
        };
        let edge = leaves.pop_if(|_| last_goes_on).and(end.cloned());
        Ok(Taken {
            keys,
            leaves: KeyRange::union(leaves),
            edge,
        })
    }
}

/// The share of the memory in use up to which memtables are flushed. The rest is for leaves that
/// replace others.
const FLUSH_SHARE_MAX: f64 = 0.85;

/// The DRAM that retained versions may take before they make an eviction due, as a share of the
/// trees' memory.
const SIDE_SHARE_MAX: f64 = 0.25;

/// Bytes of memory that an entry of a chunk takes besides its value, with a key of some 16 bytes.
const ENTRY_BYTES: u64 = 128;

/// The minimum number of entries that cursors' reads must be worth before any are moved.
const ASKED_MIN: u64 = 1000;

impl Trees {
    /// True if a flush may begin or continue.
    pub(crate) fn has_room(&self) -> bool {
        self.store.usage().share() < FLUSH_SHARE_MAX && !self.store.is_short()
    }

    /// How full the trees are: 0 at `share` of the memory, where entries are evicted, and 1 where
    /// no memtable is flushed any more. If retained versions are worse, 0 where they make evictions
    /// due, and 1 at twice that.
    pub(crate) fn fullness(&self, share: f64) -> f64 {
        let usage = self.store.usage();
        let leaves = (usage.share() - share) / (FLUSH_SHARE_MAX - share);
        leaves.max(self.side_share(&usage) / SIDE_SHARE_MAX - 1.0)
    }

    fn side_share(&self, usage: &Usage) -> f64 {
        self.retained.bytes() as f64 / usage.region_bytes.max(1) as f64
    }

    /// True if cursors read so many values from logs that moving a chunk of `entries_max` entries
    /// to level 1, where neighbours are stored together, would have cost no more.
    fn is_scanned(&self, entries_max: impl Fn() -> u64) -> bool {
        let entries =
            || self.mutable.entries() + self.immutable.as_ref().map_or(0, |view| view.entries());
        let asked = self.values.asked();
        asked > ASKED_MIN && asked > entries().min(entries_max())
    }

    /// The next chunk to evict, if more than `share` of the memory is used, snapshots see many
    /// replaced versions, logs hold more than `log_bytes_max` bytes, or cursors read much from
    /// logs. Its values are about `bytes` in total. It is by log once no more than `by_log_share`
    /// of the leaves are left.
    pub(crate) fn chunk_if_due(
        &self,
        share: f64,
        by_log_share: f64,
        log_bytes_max: u64,
        bytes: u64,
    ) -> Option<Chunk> {
        let logs_are_full =
            mechanisms::LAB_LOGS.is_on() && self.values.held_bytes() > log_bytes_max;
        let entries_max = || match mechanisms::LAB_CHUNKS.is_on() {
            true => (bytes / (self.values.mean_bytes() + ENTRY_BYTES)).max(1),
            false => u64::MAX,
        };
        let usage = self.store.usage();
        let many_seen = self.side_share(&usage) >= SIDE_SHARE_MAX;
        let is_full = usage.share() >= share || self.store.is_short() || many_seen;
        let logs_are_full = logs_are_full || self.values.is_short_of_room();
        if !is_full && !logs_are_full && !self.is_scanned(entries_max) {
            return None;
        }
        let entries_max = entries_max();
        let rotates = self.immutable.is_none();
        let view = self.immutable.as_ref().unwrap_or(&self.mutable);
        let few_left = view.leaves() as f64 <= self.leaves as f64 * by_log_share;
        let by_log = !rotates && few_left;
        let bytes_max = if mechanisms::LAB_CHUNKS.is_on() {
            bytes + bytes / 4
        } else {
            u64::MAX
        };
        let (from, to) = view.first_leaves(if by_log { u64::MAX } else { entries_max })?;
        // Entries flushed before the trees rotate may come before the first leaf.
        let from = if rotates {
            Vec::new()
        } else {
            from.max(self.immutable_from.to_vec())
        };
        Some(Chunk {
            rotates,
            within: KeyRange { from, to },
            by_log,
            entries_max,
            bytes_max,
        })
    }
}
