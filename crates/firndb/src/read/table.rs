//! An open table of either medium: an SST in a file, or a list in persistent memory. Both closed
//! sets are matched here, and nowhere else on the read path.

use firn_base::{Error, Result, Tag};
use firn_table::Value;
use firn_table::pm_skiplist::{Linked, List, ListIter};
use firn_table::sst::{Access, Got, Query, Sst, SstIter};
use std::sync::{Arc, Weak};

/// An open table.
#[derive(Debug, Clone)]
pub(crate) enum Table {
    Sst(Arc<Sst>),
    List(Arc<List>),
}

/// A table that a reader may have open.
#[derive(Debug, Default)]
pub(crate) enum WeakTable {
    #[default]
    Never,
    Sst(Weak<Sst>),
    List(Weak<List>),
}

impl Table {
    /// The newest entry of the query's key that its read point sees.
    #[inline]
    pub(crate) fn get(&self, query: &Query<'_>) -> Result<Got> {
        match self {
            Table::Sst(sst) => sst.get(query),
            Table::List(list) => list.get(query),
        }
    }

    /// Bytes of memory that it holds while it is open.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Table::Sst(sst) => sst.memory_bytes(),
            Table::List(list) => list.memory_bytes(),
        }
    }

    /// Bytes of memory that its index holds.
    pub(crate) fn index_bytes(&self) -> u64 {
        match self {
            Table::Sst(sst) => sst.index_bytes() as u64,
            Table::List(list) => list.memory_bytes() as u64,
        }
    }

    /// The table in a file.
    ///
    /// # Errors
    /// `Invalid` if it is in persistent memory.
    pub(crate) fn sst(&self) -> Result<&Arc<Sst>> {
        match self {
            Table::Sst(sst) => Ok(sst),
            Table::List(_) => Err(Error::invalid("a list has no file")),
        }
    }

    pub(crate) fn downgrade(&self) -> WeakTable {
        match self {
            Table::Sst(sst) => WeakTable::Sst(Arc::downgrade(sst)),
            Table::List(list) => WeakTable::List(Arc::downgrade(list)),
        }
    }

    /// An iterator that is on no entry yet.
    pub(crate) fn iter(&self, access: Access) -> TableIter {
        match self {
            Table::Sst(sst) => TableIter::Sst(sst.iter(access)),
            Table::List(list) => TableIter::List(ListIter::new(list.clone())),
        }
    }
}

impl WeakTable {
    pub(crate) fn upgrade(&self) -> Option<Table> {
        match self {
            WeakTable::Never => None,
            WeakTable::Sst(sst) => sst.upgrade().map(Table::Sst),
            WeakTable::List(list) => list.upgrade().map(Table::List),
        }
    }
}

/// An iterator over a table of either medium.
pub(crate) enum TableIter {
    Sst(SstIter),
    List(ListIter),
}

macro_rules! each {
    ($self:ident, $iter:ident => $body:expr) => {
        match $self {
            TableIter::Sst($iter) => $body,
            TableIter::List($iter) => $body,
        }
    };
}

impl TableIter {
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

    pub(crate) fn load(&mut self) -> Result<()> {
        each!(self, iter => iter.load())
    }

    /// The iterator over a table in a file, which may know less than the whole entry.
    #[inline]
    pub(crate) fn sst(&self) -> Option<&SstIter> {
        match self {
            TableIter::Sst(iter) => Some(iter),
            TableIter::List(_) => None,
        }
    }

    pub(crate) fn be_lazy(&mut self) {
        match self {
            TableIter::Sst(iter) => iter.be_lazy(),
            TableIter::List(_) => {}
        }
    }

    /// Reads nothing ahead from `end` on.
    pub(crate) fn stop_at(&mut self, end: &[u8]) {
        match self {
            TableIter::Sst(iter) => iter.stop_at(end),
            TableIter::List(_) => {}
        }
    }

    /// The value, pinned where it is, if that costs less than a copy. REQUIRES: `load`.
    pub(crate) fn pinned(&self) -> Option<Value> {
        match self {
            TableIter::Sst(iter) => Some(iter.pinned()),
            // A pinned value would keep its chunk.
            TableIter::List(_) => None,
        }
    }

    /// Releases a large block.
    pub(crate) fn shed(&mut self) {
        match self {
            TableIter::Sst(iter) => iter.shed(),
            TableIter::List(_) => {}
        }
    }

    /// The entry in persistent memory, to be linked into another list.
    pub(crate) fn linked(&self) -> Option<Linked> {
        match self {
            TableIter::Sst(_) => None,
            TableIter::List(iter) => iter.linked(),
        }
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
}
