//! The structure between the memtables and the tables: a closed set, one variant for each design
//! that has one. A profile without one goes from the memtables straight to the tables.
//!
//! 1. Its entries are older than those of the memtables. They are newer than those of level 1 and
//!    below, and the read path searches it before level 0.
//! 2. A value of it never changes. A flush or a compaction swaps another one into the read state.

pub(crate) use crate::lab::Lookup;
use crate::lab::{LabStats, Trees, TreesIter};
use crate::log::{PendingValue, ValueAddress};
use firn_base::{Result, SeqNo, Tag};
use firn_table::sst::{Got, Query};

/// The structure between the memtables and the tables.
#[derive(Debug, Clone)]
pub(crate) enum Upper {
    /// B+ trees in persistent memory, in profile `lab`.
    Trees(Trees),
}

impl Upper {
    /// The trees, if it is these.
    pub(crate) fn trees(&self) -> Option<&Trees> {
        match self {
            Upper::Trees(trees) => Some(trees),
        }
    }

    /// The newest entry of the query's key that its read point sees.
    #[inline]
    pub(crate) fn get(&self, query: &Query<'_>) -> Result<Got> {
        match self {
            Upper::Trees(trees) => trees.get(query),
        }
    }

    /// As [`Upper::get`], but does not wait for a read.
    pub(crate) fn begin_get(&self, query: &Query<'_>) -> Result<Lookup> {
        match self {
            Upper::Trees(trees) => trees.begin_get(query),
        }
    }

    /// Waits for the read of an entry's value.
    pub(crate) fn finish_get(
        &self,
        query: &Query<'_>,
        tag: Tag,
        pending: PendingValue,
    ) -> Result<Got> {
        match self {
            Upper::Trees(trees) => trees.finish_get(query, tag, pending),
        }
    }

    /// Iterators over everything in it, newest first.
    pub(crate) fn iters(&self) -> impl Iterator<Item = UpperIter> {
        match self {
            Upper::Trees(trees) => TreesIter::all(trees).map(UpperIter::Trees),
        }
    }

    /// The number of entries.
    pub(crate) fn entries(&self) -> u64 {
        match self {
            Upper::Trees(trees) => trees.entries(),
        }
    }

    /// True if it holds nothing, so that level 0 is the newest after the memtables.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Upper::Trees(trees) => trees.are_empty(),
        }
    }

    /// Reads everything in it, and calls `checked` with the entries and bytes of each piece.
    ///
    /// # Errors
    /// `Corruption` for the first damage.
    pub(crate) fn verify(&self, checked: impl FnMut(u64, u64)) -> Result<()> {
        match self {
            Upper::Trees(trees) => trees.verify(checked),
        }
    }

    /// Statistics of profile `lab`, if it is that profile's.
    pub(crate) fn lab_stats(&self) -> Option<LabStats> {
        match self {
            Upper::Trees(trees) => Some(trees.stats()),
        }
    }
}

/// An iterator over a part of an [`Upper`].
pub(crate) enum UpperIter {
    Trees(TreesIter),
}

macro_rules! each {
    ($self:ident, $iter:ident => $body:expr) => {
        match $self {
            UpperIter::Trees($iter) => $body,
        }
    };
}

impl UpperIter {
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        each!(self, iter => iter.valid())
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        each!(self, iter => iter.key())
    }

    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        each!(self, iter => iter.tag())
    }

    /// The value. REQUIRES: `load`.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        each!(self, iter => iter.value())
    }

    /// Reads the value if that has not been done. REQUIRES: `valid`.
    pub(crate) fn load(&mut self) -> Result<()> {
        each!(self, iter => iter.load())
    }

    /// Releases a large value.
    pub(crate) fn shed(&mut self) {
        each!(self, iter => iter.shed())
    }

    /// The address of the value and the sequence number of its entry, if the value is in a log.
    pub(crate) fn place(&self) -> Option<(ValueAddress, SeqNo)> {
        each!(self, iter => iter.place())
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        each!(self, iter => iter.first())
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        each!(self, iter => iter.last())
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        each!(self, iter => iter.next())
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        each!(self, iter => iter.prev())
    }

    pub(crate) fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        each!(self, iter => iter.seek(key, tag))
    }

    pub(crate) fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        each!(self, iter => iter.seek_before(key, tag))
    }
}
