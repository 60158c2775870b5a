//! The entries that stay in persistent memory while their partition leaves it: those of groups in
//! which gets found something since their tables were opened. Where hot keys are all over the key
//! space, every partition is as hot as the others, and no choice among partitions keeps them.
//!
//! 1. At most [`SHARE_MAX`] of the bytes stay, or a partition that is read everywhere would leave
//!    nothing behind. Of more groups, some by chance.
//! 2. The entries that stay are above those that leave. So a version of a key stays only if all
//!    newer ones in this merge do.
//! 3. A merge within persistent memory keeps the marks of groups that are read. In the tables of
//!    what stays here no group has one: it must be read again before it may stay once more.
//! 4. Tombstones leave, with what they hide.

use crate::blade::SortedStore;
use crate::compaction::output::PmTarget;
use crate::compaction::plan::Plan;
use crate::compaction::pm_store::PmStore;
use crate::compaction::sub_task::KeyBounds;
use crate::mechanisms;
use crate::read::merge_iter::Entries;
use crate::read::pm_space::PmSpace;
use firn_base::Result;
use firn_base::key::Kind;
use firn_base::seed::mix;
use std::sync::Arc;

/// The most that stays, of the bytes in persistent memory.
const SHARE_MAX: f64 = 0.25;

/// Room for entries, and for their bytes, beyond the estimate.
const ENTRIES_MIN: u64 = 16;
const BYTES_MIN: u64 = 4 << 10;

/// The choice of entries that stay.
pub(super) struct Sieve {
    /// Groups whose mixed number is not above this stay.
    number_max: u64,
    /// Entries and bytes that may stay, for which there is room.
    entries: u64,
    bytes: u64,
    /// True if the last entry stayed.
    stayed: bool,
    /// The key of the last entry.
    key: Vec<u8>,
}

impl Sieve {
    /// The sieve of the part of `plan` within `keys`, and where the entries go that stay; `None` if
    /// nothing was read, or there is no room.
    ///
    /// # Errors
    /// The error of the pool.
    pub(super) fn of(
        plan: &Plan,
        keys: &KeyBounds,
        store: Option<&PmStore>,
    ) -> Result<Option<(Sieve, PmTarget)>> {
        let store = store.and_then(PmStore::sorted).filter(|_| plan.sieves);
        match store.filter(|_| mechanisms::BLADE_SIEVE.is_on()) {
            Some(store) => Sieve::in_store(plan, keys, store),
            None => Ok(None),
        }
    }

    fn in_store(
        plan: &Plan,
        keys: &KeyBounds,
        store: &Arc<SortedStore>,
    ) -> Result<Option<(Sieve, PmTarget)>> {
        let (mut all, mut read, mut entries) = (0.0, 0.0, 0.0);
        let runs = plan.tables.iter().map(|(_, run)| run);
        for run in runs.filter(|run| !run.meta.is_file() && keys.meets(run)) {
            all += run.meta.data_bytes as f64;
            let space = run.space().and_then(PmSpace::sorted);
            // A group has some entries more or less than the mean.
            let groups = run.meta.entries as f64 / f64::from(store.group_entries());
            let share = space.map_or(0.0, |space| f64::from(space.groups_read()) / groups);
            read += run.meta.data_bytes as f64 * share.min(1.0);
            entries += run.meta.entries as f64 * share.min(1.0);
        }
        if read == 0.0 {
            return Ok(None);
        }
        let part = (all * SHARE_MAX / read).min(1.0);
        // These entries may be larger than the mean.
        let slack = |estimate: f64, least: u64| (estimate * part * 1.25) as u64 + least;
        let (entries, bytes) = (slack(entries, ENTRIES_MIN), slack(read, BYTES_MIN));
        let target = PmTarget::sorted(store, entries, bytes)?;
        Ok(target.map(|target| {
            let sieve = Sieve {
                number_max: (part * u64::MAX as f64) as u64,
                entries,
                bytes,
                stayed: false,
                key: Vec::new(),
            };
            (sieve, target)
        }))
    }

    /// True if the entry of `merge` stays.
    ///
    /// # Errors
    /// The error of reading its value.
    pub(super) fn keeps(&mut self, merge: &mut impl Entries) -> Result<bool> {
        let key = merge.key();
        let is_newest = *self.key != *key;
        if is_newest {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        let is_chosen = || {
            let group = merge.read_group();
            group.is_some_and(|group| mix(group) <= self.number_max)
        };
        let is_put = merge.tag().kind() == Some(Kind::Put);
        self.stayed = (is_newest || self.stayed) && is_put && is_chosen();
        if self.stayed {
            merge.load()?;
            let bytes = (merge.key().len() + merge.value().len()) as u64;
            self.stayed = self.entries > 0 && bytes <= self.bytes;
            if self.stayed {
                self.entries -= 1;
                self.bytes -= bytes;
            }
        }
        Ok(self.stayed)
    }
}
