//! A part of the immutable tree that is evicted at a time, of values that come to about one to three write buffers
//! (LAB-DB, 3.2, 3.3, Figs. 8 and 10): leaves from the left; once four fifths of them are gone
//! (`by_log_share`), those with entries of the oldest logs, so that few cold keys do not keep a log for long.
//!
//! A table of level 1 that two chunks meet is written twice, so a chunk from the left ends where a table begins, if one
//! is near (`aligned`), which is hardly ever where a leaf does. The entries of the leaf there that lie in front of the
//! edge go along, the leaf stays until the next chunk has taken the rest: until then they are in level 1, too, as they
//! are. Who is to look at either finds the same, and a recovery that knows leaves alone takes them along once more.

use super::view::Trees;
use crate::manifest::{KeyRange, TableMeta};
use crate::mechanisms;
use firn_base::Result;
use firn_table::pm_btree::{TreeIter, Usage, View};
use std::sync::Arc;

/// Which keys, and whether the tree that they are in is to become the immutable one.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// The tree is still the mutable one.
    pub(crate) rotates: bool,
    /// All keys are in there.
    within: KeyRange,
    /// It takes the leaves with entries of the oldest logs, and not all that is in `within`.
    by_log: bool,
    /// Entries at most of a chunk by log, if the first leaf has not more; about so many of another.
    entries_max: u64,
    /// Bytes of keys and values at most, if the first leaf has not more: how many entries that is was only guessed.
    bytes_max: u64,
}

/// What of a tree a chunk takes.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The keys of its entries, in order.
    pub(crate) keys: Vec<KeyRange>,
    /// The leaves that it leaves nothing in, in order.
    pub(crate) leaves: Vec<KeyRange>,
    /// Where it ends, if that is within a leaf.
    pub(crate) edge: Option<Vec<u8>>,
}

impl Chunk {
    /// This, from the left of `tree`, with its end where a table of level 1 begins if it would lie within one: that
    /// one, if a quarter of what was asked for lies in front of it, or the next, if that is a quarter more at most.
    pub(crate) fn aligned(self, tree: &View, level1: &[Arc<TableMeta>]) -> Chunk {
        let KeyRange { from, to: Some(to) } = &self.within else { return self };
        let at = level1.partition_point(|table| table.largest < *to);
        let is_cut = level1.get(at).is_some_and(|table| table.smallest < *to);
        if !is_cut || self.is_by_log() {
            return self;
        }
        // The bounds of these leaves; all are further to the left than where there is none.
        let end_of = |entries: u64| tree.first_leaves(entries).and_then(|(_, to)| to);
        let (least, most) =
            (end_of(self.entries_max / 4), end_of(self.entries_max.saturating_add(self.entries_max / 4)));
        let cut = &level1[at];
        let behind = level1.get(at + 1).map_or_else(|| [&cut.largest[..], &[0]].concat(), |next| next.smallest.clone());
        let is_near = |edge: &Vec<u8>| {
            edge > from
                && least.as_ref().is_some_and(|least| edge >= least)
                && most.as_ref().is_none_or(|most| edge <= most)
        };
        match [cut.smallest.clone(), behind].into_iter().find(is_near) {
            Some(edge) => Chunk { within: KeyRange { from: from.clone(), to: Some(edge) }, ..self },
            None => self,
        }
    }

    /// No key is outside.
    pub(crate) fn within(&self) -> &KeyRange {
        &self.within
    }

    pub(crate) fn is_by_log(&self) -> bool {
        self.by_log
    }

    /// What it takes of `immutable`.
    ///
    /// # Errors
    /// `Corruption` of a leaf that was looked into.
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
            leaves.sort_by_key(|leaf| leaf.oldest_log.unwrap_or(u64::MAX));
        }
        let (mut entries, mut bytes) = (0, 0);
        let chosen = leaves.into_iter().take_while(|leaf| {
            let is_first = entries == 0;
            bytes += leaf.entry_bytes;
            let takes = is_first || ((!self.by_log || entries < self.entries_max) && bytes <= self.bytes_max);
            entries += leaf.entries;
            takes
        });
        let mut leaves: Vec<_> = chosen.map(|leaf| KeyRange { from: leaf.from, to: leaf.to }).collect();
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
        Ok(Taken { keys, leaves: KeyRange::union(leaves), edge })
    }
}

/// The share of the memory in use up to which buffers are flushed: the rest is for leaves that replace others.
const FLUSH_SHARE_MAX: f64 = 0.85;

/// What the side table may take of DRAM, as a share of the trees' memory, before an eviction is due for its sake.
const SIDE_SHARE_MAX: f64 = 0.25;

/// What an entry of a chunk takes in memory beside its value, with a key of some 16 bytes.
const ENTRY_BYTES: u64 = 128;

/// Fewer entries that could have been moved for what was asked for are no reason to move any.
const ASKED_MIN: u64 = 1000;

impl Trees {
    /// Whether a flush may begin or go on.
    pub(crate) fn has_room(&self) -> bool {
        self.store.usage().share() < FLUSH_SHARE_MAX && !self.store.is_short()
    }

    /// How far leaves have come on the way from where entries are evicted, `share` of the memory, to where no buffer is
    /// flushed any more; or the side table from where it makes evictions due to twice that.
    pub(crate) fn fullness(&self, share: f64) -> f64 {
        let usage = self.store.usage();
        let leaves = (usage.share() - share) / (FLUSH_SHARE_MAX - share);
        leaves.max(self.side_share(&usage) / SIDE_SHARE_MAX - 1.0)
    }

    fn side_share(&self, usage: &Usage) -> f64 {
        self.side.bytes() as f64 / usage.region_bytes.max(1) as f64
    }

    /// Whether cursors read so many values from logs that moving a chunk of `entries_max` to level 1, where neighbours
    /// lie together, would have cost no more.
    fn is_scanned(&self, entries_max: impl Fn() -> u64) -> bool {
        let entries = || self.mutable.entries() + self.immutable.as_ref().map_or(0, |view| view.entries());
        let asked = self.values.asked();
        asked > ASKED_MIN && asked > entries().min(entries_max())
    }

    /// What is to be evicted next, if more than `share` of the memory is used, snapshots see many replaced versions,
    /// logs hold more than `log_bytes_max`, or cursors read much from logs: values of about `bytes`, by log once no
    /// more than `by_log_share` of the leaves are left.
    pub(crate) fn chunk_if_due(&self, share: f64, by_log_share: f64, log_bytes_max: u64, bytes: u64) -> Option<Chunk> {
        let logs_are_full = mechanisms::LAB_LOGS.is_on() && self.values.held_bytes() > log_bytes_max;
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
        let by_log = !rotates && few_left && mechanisms::LAB_BY_LOG.is_on();
        let bytes_max = if mechanisms::LAB_CHUNKS.is_on() { bytes + bytes / 4 } else { u64::MAX };
        let (from, to) = view.first_leaves(if by_log { u64::MAX } else { entries_max })?;
        // What is flushed before the trees change places may come in front of the first leaf.
        let from = if rotates { Vec::new() } else { from.max(self.immutable_from.to_vec()) };
        Some(Chunk { rotates, within: KeyRange { from, to }, by_log, entries_max, bytes_max })
    }
}
