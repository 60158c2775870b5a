//! Level 0 as readers see it: both trees and the retained versions at one moment.
//!
//! 1. It never changes. A flush or an eviction swaps another one into the read state.
//! 2. It holds its generation, and so keeps everything that it can reach (`release.rs`).
//! 3. A reader at a read point sees the newest entry of a key in all three that is not above that
//!    point. The mutable tree's entry is newer than those of the others. A retained version may be
//!    older than the immutable tree's entry, because it may be from before the trees rotated.

use super::iter::TreesIter;
use super::release::Generation;
use super::retained::RetainedVersions;
use super::reuse::Reuse;
use super::stats::LabCounters;
use crate::log::{PendingValue, ValueLogs};
use crate::mechanisms;
use firn_base::count::Counter;
use firn_base::key::Kind;
use firn_base::{Result, SeqNo, Tag};
use firn_table::Value;
use firn_table::pm_btree::{HOT_LOG, TreeStore, ValueAddress, View};
use firn_table::sst::{Got, Query};
use std::sync::Arc;

/// The trees and the state that belongs to them.
#[derive(Clone)]
pub(crate) struct Trees {
    /// Keeps everything that the views and the retained versions can reach in persistent memory and
    /// in logs.
    pub(crate) generation: Arc<Generation>,
    pub(crate) store: Arc<TreeStore>,
    pub(crate) values: Arc<ValueLogs>,
    pub(crate) mutable: Arc<View>,
    pub(crate) immutable: Option<Arc<View>>,
    /// The start of the part of the immutable tree that is not evicted yet. Within its first leaf,
    /// if a chunk ended there. Entries before it in that leaf are in level 1, too, or were
    /// replaced.
    pub(crate) immutable_from: Arc<[u8]>,
    /// The number of leaves of the immutable tree when it became immutable, or when it was
    /// recovered.
    pub(crate) leaves: usize,
    pub(crate) retained: Arc<RetainedVersions>,
    /// All entries up to this sequence number were in the immutable tree when it became immutable,
    /// or had been evicted before.
    pub(crate) complete_through: SeqNo,
    pub(crate) counters: Arc<LabCounters>,
    pub(crate) reuse: Arc<Reuse>,
}

/// A lookup that has its result, or the read in flight that it waits for.
pub(crate) enum Lookup {
    Done(Got),
    Pending(Tag, PendingValue),
}

impl Trees {
    /// True if a recovery rebuilds them from the logs.
    pub(crate) fn need_logs(&self) -> bool {
        !self.store.is_durable() || !mechanisms::LAB_RECOVERY.is_on()
    }

    /// Releases the generation, and with it the views and the retained versions. An eviction calls
    /// this once it has read its chunk, because the flushes that run beside its merge need the room
    /// of the leaves they replace.
    pub(crate) fn stop_reading(&mut self) {
        self.generation = Arc::default();
        (self.mutable, self.immutable, self.retained) = Default::default();
    }

    /// True if level 0 has nothing but tables.
    pub(crate) fn are_empty(&self) -> bool {
        self.mutable.leaves() == 0
            && self.immutable.is_none()
            && self.retained.versions().is_empty()
    }

    /// The newest entry of a key, in the form that other runs return.
    pub(crate) fn get(&self, query: &Query<'_>) -> Result<Got> {
        match self.find(query.key, query.seqno)? {
            None => Ok(Got::Missed { read: false }),
            Some((tag, address)) => self.read(query, tag, address),
        }
    }

    /// Like [`Trees::get`], but only starts the read of a value that is not in memory.
    pub(crate) fn begin_get(&self, query: &Query<'_>) -> Result<Lookup> {
        let Some((tag, address)) = self.find(query.key, query.seqno)? else {
            return Ok(Lookup::Done(Got::Missed { read: false }));
        };
        let pending = match address {
            Some(address) => self.values.submit(address, tag.seqno())?,
            None => None,
        };
        match pending {
            Some(pending) => Ok(Lookup::Pending(as_put(tag), pending)),
            None => self.read(query, tag, address).map(Lookup::Done),
        }
    }

    /// Waits for the read of the value of entry `tag`.
    pub(crate) fn finish_get(
        &self,
        query: &Query<'_>,
        tag: Tag,
        pending: PendingValue,
    ) -> Result<Got> {
        if !query.rows {
            let value = self.values.finish(pending)?;
            return Ok(Got::Found {
                tag,
                value,
                keeps_row: false,
            });
        }
        let (value, keeps_row) = self.values.finish_once(pending)?;
        Ok(Got::Found {
            tag,
            value,
            keeps_row,
        })
    }

    fn read(&self, query: &Query<'_>, tag: Tag, address: Option<ValueAddress>) -> Result<Got> {
        let (seqno, tag) = (tag.seqno(), as_put(tag));
        let (value, keeps_row) = match address {
            None => (Value::owned(Vec::new()), false),
            Some(address) if query.rows => self.values.get_once(address, seqno)?,
            Some(address) => (self.values.get(address, seqno)?, false),
        };
        Ok(Got::Found {
            tag,
            value,
            keeps_row,
        })
    }

    fn find(&self, key: &[u8], seqno: SeqNo) -> Result<Option<(Tag, Option<ValueAddress>)>> {
        let visible = |entry: &(Tag, Option<ValueAddress>)| entry.0.seqno() <= seqno;
        if let Some(found) = self.store.get(&self.mutable, key)?.filter(visible) {
            self.count_hit(&found, &self.counters.mutable);
            return Ok(Some(found));
        }
        let beside = self.retained.newest(key, seqno);
        let below = match &self.immutable {
            Some(view) => self.store.get(view, key)?.filter(visible),
            None => None,
        };
        let tag_of =
            |found: &Option<(Tag, Option<ValueAddress>)>| found.as_ref().map(|(tag, _)| *tag);
        let (found, counter) = match tag_of(&beside) > tag_of(&below) {
            true => (beside, &self.counters.retained),
            false => (below, &self.counters.immutable),
        };
        found
            .iter()
            .for_each(|found| self.count_hit(found, counter));
        Ok(found)
    }

    fn count_hit(&self, found: &(Tag, Option<ValueAddress>), layer: &Counter) {
        let is_hot = found.1.is_some_and(|at| at.log_id == HOT_LOG);
        if is_hot { &self.counters.hot } else { layer }.add(1);
    }
}

/// The tag of a pointer as if its value were stored in place.
pub(crate) fn as_put(tag: Tag) -> Tag {
    match tag.kind() {
        Some(Kind::Pointer) => Tag::new(tag.seqno(), Kind::Put),
        _ => tag,
    }
}

impl std::fmt::Debug for Trees {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = |view: &Arc<View>| view.entries();
        let (mutable, immutable) = (entries(&self.mutable), self.immutable.as_ref().map(entries));
        f.debug_struct("Trees")
            .field("mutable", &mutable)
            .field("immutable", &immutable)
            .finish_non_exhaustive()
    }
}

impl Trees {
    /// The entries of both trees.
    pub(crate) fn entries(&self) -> u64 {
        std::iter::once(&self.mutable)
            .chain(&self.immutable)
            .map(|view| view.entries())
            .sum()
    }

    /// Reads every leaf and every value that one points to, and calls `checked` with the entries
    /// and bytes of each tree.
    pub(crate) fn verify(&self, mut checked: impl FnMut(u64, u64)) -> Result<()> {
        for view in std::iter::once(&self.mutable).chain(&self.immutable) {
            let mut found = None;
            let tree = self.store.verify(view, &mut |error| {
                found.get_or_insert(error);
            });
            found.map_or(Ok(()), Err)?;
            checked(tree.entries, tree.leaf_bytes);
        }
        self.values.hot().map_or(Ok(()), |hot| hot.verify())?;
        for iter in TreesIter::all(self) {
            let mut iter = iter;
            iter.first()?;
            while iter.valid() {
                iter.check_value()?;
                iter.next()?;
            }
        }
        Ok(())
    }
}
