//! An open table of any kind: an SST in a file, or a list or a sorted table in persistent memory.
//! The closed sets are matched here, and nowhere else on the read path.

use crate::read::pm_space::PmSpace;
use firn_base::{Error, Result, Tag};
use firn_fs::Pending;
use firn_table::TableContext;
use firn_table::pm_skiplist::{Linked, List, ListIter};
use firn_table::pm_table::{PmTable, PmTableIter};
use firn_table::sst::{Access, Got, Query, Sst, SstIter};
use std::sync::{Arc, Weak};

/// An open table.
#[derive(Debug, Clone)]
pub(crate) enum Table {
    Sst(Arc<Sst>),
    List(Arc<List>),
    Sorted(Arc<PmTable>),
}

/// A table that a reader may have open.
#[derive(Debug, Default)]
pub(crate) enum WeakTable {
    #[default]
    Never,
    Sst(Weak<Sst>),
    List(Weak<List>),
    Sorted(Weak<PmTable>),
}

impl Table {
    /// The table in `space`, counted in `context`.
    ///
    /// # Errors
    /// The error of opening it.
    pub(crate) fn in_memory(space: &PmSpace, context: &TableContext) -> Result<Table> {
        Ok(match space {
            PmSpace::List(space, totals) => {
                let list = List::open(space.clone(), *totals)?;
                Table::List(Arc::new(list.counted_in(context)))
            }
            PmSpace::Sorted(space) => {
                let table = PmTable::open(space.clone())?;
                Table::Sorted(Arc::new(table.counted_in(context)))
            }
        })
    }

    /// The newest entry of the query's key that its read point sees.
    #[inline]
    pub(crate) fn get(&self, query: &Query<'_>) -> Result<Got> {
        match self {
            Table::Sst(sst) => sst.get(query),
            Table::List(list) => list.get(query),
            Table::Sorted(table) => table.get(query),
        }
    }

    /// Bytes of memory that it holds while it is open.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Table::Sst(sst) => sst.memory_bytes(),
            Table::List(list) => list.memory_bytes(),
            Table::Sorted(table) => table.memory_bytes(),
        }
    }

    /// Bytes of memory that its index holds.
    pub(crate) fn index_bytes(&self) -> u64 {
        match self {
            Table::Sst(sst) => sst.index_bytes() as u64,
            Table::List(list) => list.memory_bytes() as u64,
            Table::Sorted(table) => table.memory_bytes() as u64,
        }
    }

    /// The table in a file.
    ///
    /// # Errors
    /// `Invalid` if it is in persistent memory.
    pub(crate) fn sst(&self) -> Result<&Arc<Sst>> {
        match self {
            Table::Sst(sst) => Ok(sst),
            Table::List(_) | Table::Sorted(_) => {
                Err(Error::invalid("a table in persistent memory has no file"))
            }
        }
    }

    pub(crate) fn downgrade(&self) -> WeakTable {
        match self {
            Table::Sst(sst) => WeakTable::Sst(Arc::downgrade(sst)),
            Table::List(list) => WeakTable::List(Arc::downgrade(list)),
            Table::Sorted(table) => WeakTable::Sorted(Arc::downgrade(table)),
        }
    }

    /// An iterator that is on no entry yet.
    pub(crate) fn iter(&self, access: Access) -> TableIter {
        match self {
            Table::Sst(sst) => TableIter::Sst(sst.iter(access)),
            Table::List(list) => TableIter::List(match access {
                Access::Cached => ListIter::verifying(list.clone()),
                Access::Streaming { .. } => ListIter::new(list.clone()),
            }),
            Table::Sorted(table) => TableIter::Sorted(PmTableIter::new(table.clone())),
        }
    }
}

impl WeakTable {
    pub(crate) fn upgrade(&self) -> Option<Table> {
        match self {
            WeakTable::Never => None,
            WeakTable::Sst(sst) => sst.upgrade().map(Table::Sst),
            WeakTable::List(list) => list.upgrade().map(Table::List),
            WeakTable::Sorted(table) => table.upgrade().map(Table::Sorted),
        }
    }
}

/// An iterator over a table of any kind.
pub(crate) enum TableIter {
    Sst(SstIter),
    List(ListIter),
    Sorted(PmTableIter),
}

macro_rules! each {
    ($self:ident, $iter:ident => $body:expr) => {
        match $self {
            TableIter::Sst($iter) => $body,
            TableIter::List($iter) => $body,
            TableIter::Sorted($iter) => $body,
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
            TableIter::List(_) | TableIter::Sorted(_) => None,
        }
    }

    pub(crate) fn be_lazy(&mut self) {
        match self {
            TableIter::Sst(iter) => iter.be_lazy(),
            TableIter::List(_) | TableIter::Sorted(_) => {}
        }
    }

    /// The read that `next` waits for. As [`SstIter::wants`].
    #[inline]
    pub(crate) fn wants(&mut self) -> Option<&mut Pending> {
        match self {
            TableIter::Sst(iter) => iter.wants(),
            TableIter::List(_) | TableIter::Sorted(_) => None,
        }
    }

    /// The read that a seek to `from`, or to the first entry, waits for.
    pub(crate) fn prepare(&mut self, from: Option<&[u8]>) -> Option<&mut Pending> {
        match self {
            TableIter::Sst(iter) => iter.prepare(from),
            TableIter::List(_) | TableIter::Sorted(_) => None,
        }
    }

    /// True if no entry of the table, whose largest key is given, follows the current one. In
    /// persistent memory there may be an older version.
    #[inline]
    pub(crate) fn is_at_end(&self, largest: &[u8]) -> bool {
        match self {
            TableIter::Sst(iter) => iter.is_at_end(),
            TableIter::List(_) | TableIter::Sorted(_) => self.key() == largest,
        }
    }

    /// Reads nothing ahead from `end` on.
    pub(crate) fn stop_at(&mut self, end: &[u8]) {
        match self {
            TableIter::Sst(iter) => iter.stop_at(end),
            TableIter::List(_) | TableIter::Sorted(_) => {}
        }
    }

    /// Releases a large block.
    pub(crate) fn shed(&mut self) {
        match self {
            TableIter::Sst(iter) => iter.shed(),
            TableIter::List(_) | TableIter::Sorted(_) => {}
        }
    }

    /// The entry in persistent memory, to be linked into another list.
    pub(crate) fn linked(&self) -> Option<Linked> {
        match self {
            TableIter::Sst(_) | TableIter::Sorted(_) => None,
            TableIter::List(iter) => iter.linked(),
        }
    }

    /// The group of the entry in a sorted table, if gets found entries in it.
    pub(crate) fn read_group(&self) -> Option<u64> {
        match self {
            TableIter::Sst(_) | TableIter::List(_) => None,
            TableIter::Sorted(iter) => iter.read_group(),
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
