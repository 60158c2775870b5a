//! An iterator over any run, and over the runs of a level.

use crate::memtable::MemtableIter;
use crate::read::parts_iter::PartsIter;
use crate::read::state::LevelRuns;
use crate::read::table::TableIter;
use crate::read::table_run::TableRun;
use crate::upper::UpperIter;
use firn_base::{Result, SeqNo, Tag};
use firn_fs::{LARGE_BYTES, Pending};
use firn_table::Value;
use firn_table::pm_btree::ValueAddress;
use firn_table::pm_skiplist::{Linked, ListIter};
use firn_table::pm_table::PmTableIter;
use firn_table::sst::{Access, SstIter};
use std::sync::Arc;

/// An iterator over one run, or over the runs of a sorted level or of all partitions one after
/// another.
pub(crate) enum RunIter {
    Memtable(MemtableIter),
    Upper(Box<UpperIter>),
    Sst(Box<SstIter>),
    List(Box<ListIter>),
    Sorted(Box<PmTableIter>),
    Level(Box<LevelIter>),
    Parts(Box<PartsIter>),
}

macro_rules! each {
    ($self:ident, $iter:ident => $body:expr, $fallible:expr) => {
        match $self {
            RunIter::Memtable($iter) => $body,
            RunIter::Upper($iter) => $fallible,
            RunIter::Sst($iter) => $fallible,
            RunIter::List($iter) => $fallible,
            RunIter::Sorted($iter) => $fallible,
            RunIter::Level($iter) => $fallible,
            RunIter::Parts($iter) => $fallible,
        }
    };
}

impl RunIter {
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        each!(self, iter => iter.valid(), iter.valid())
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        each!(self, iter => iter.key(), iter.key())
    }

    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        each!(self, iter => iter.tag(), iter.tag())
    }

    /// The key and the tag.
    #[inline]
    pub(super) fn entry(&self) -> (&[u8], Tag) {
        each!(self, iter => (iter.key(), iter.tag()), (iter.key(), iter.tag()))
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        each!(self, iter => iter.value(), iter.value())
    }

    /// Reads the value if that has not been done. REQUIRES: `valid`.
    pub(crate) fn load(&mut self) -> Result<()> {
        match self {
            RunIter::Memtable(iter) => iter.load(),
            RunIter::Upper(iter) => iter.load(),
            RunIter::Sst(iter) => iter.load(),
            RunIter::List(iter) => iter.load(),
            RunIter::Sorted(iter) => iter.load(),
            RunIter::Level(iter) => iter.within(TableIter::load),
            RunIter::Parts(iter) => iter.merge_mut().load(),
        }
    }

    /// The table iterator, if there is one. It may know less than the whole entry.
    #[inline]
    pub(super) fn sst(&self) -> Option<&SstIter> {
        match self {
            RunIter::Sst(iter) => Some(iter),
            RunIter::Level(iter) => iter.iter.as_ref()?.sst(),
            // The merge of a partition knows its whole entry.
            RunIter::Memtable(_)
            | RunIter::Upper(_)
            | RunIter::List(_)
            | RunIter::Sorted(_)
            | RunIter::Parts(_) => None,
        }
    }

    pub(super) fn be_lazy(&mut self) {
        match self {
            RunIter::Sst(iter) => iter.be_lazy(),
            RunIter::Level(iter) => iter.be_lazy(),
            // The merge of a partition makes its runs lazy itself.
            RunIter::Memtable(_)
            | RunIter::Upper(_)
            | RunIter::List(_)
            | RunIter::Sorted(_)
            | RunIter::Parts(_) => {}
        }
    }

    /// A copy of the value, if it is large. REQUIRES: `load`.
    pub(super) fn large_value(&self) -> Option<Value> {
        let value = self.value();
        (value.len() >= LARGE_BYTES).then(|| Value::copied(value))
    }

    /// The value, if it is in a memtable, or is small and already in memory.
    #[inline]
    pub(super) fn value_at_hand(&self) -> Option<&[u8]> {
        let of = |iter: &SstIter| !iter.is_at_large();
        match self {
            RunIter::Memtable(iter) => iter.is_at_hand().then(|| iter.value()),
            RunIter::Upper(_) | RunIter::List(_) | RunIter::Sorted(_) => None,
            RunIter::Sst(iter) => of(iter).then(|| iter.value()),
            RunIter::Level(iter) => {
                let iter = iter.iter.as_ref()?.sst().filter(|iter| of(iter))?;
                Some(iter.value())
            }
            RunIter::Parts(iter) => iter.merge().value_at_hand(),
        }
    }

    /// Releases a large block.
    pub(super) fn shed(&mut self) {
        match self {
            RunIter::Memtable(_) | RunIter::List(_) | RunIter::Sorted(_) => {}
            RunIter::Upper(iter) => iter.shed(),
            RunIter::Sst(iter) => iter.shed(),
            RunIter::Level(iter) => iter.iter.iter_mut().for_each(TableIter::shed),
            RunIter::Parts(iter) => iter.merge_mut().shed(),
        }
    }

    /// The address of the value and the sequence number of its entry, if the value is not in
    /// memory.
    pub(super) fn place(&self) -> Option<(ValueAddress, SeqNo)> {
        match self {
            RunIter::Upper(iter) => iter.place(),
            RunIter::Parts(iter) => iter.merge().place(),
            RunIter::Memtable(_)
            | RunIter::Sst(_)
            | RunIter::List(_)
            | RunIter::Sorted(_)
            | RunIter::Level(_) => None,
        }
    }

    /// The entry in persistent memory, to be linked into another list, if it is in one.
    pub(super) fn linked(&self) -> Option<Linked> {
        match self {
            RunIter::List(iter) => iter.linked(),
            RunIter::Level(iter) => iter.iter.as_ref()?.linked(),
            RunIter::Parts(iter) => iter.merge().linked(),
            RunIter::Memtable(_) | RunIter::Upper(_) | RunIter::Sst(_) | RunIter::Sorted(_) => None,
        }
    }

    /// The group of the entry in a sorted table in persistent memory, if gets found entries in it.
    pub(super) fn read_group(&self) -> Option<u64> {
        match self {
            RunIter::Sorted(iter) => iter.read_group(),
            RunIter::Level(iter) => iter.iter.as_ref()?.read_group(),
            RunIter::Parts(iter) => iter.merge().top()?.read_group(),
            RunIter::Memtable(_) | RunIter::Upper(_) | RunIter::Sst(_) | RunIter::List(_) => None,
        }
    }

    /// The read that `next` waits for. As [`SstIter::wants`].
    #[inline]
    pub(super) fn wants(&mut self) -> Option<&mut Pending> {
        match self {
            RunIter::Sst(iter) => iter.wants(),
            RunIter::Level(iter) => iter.wants(),
            RunIter::Memtable(_)
            | RunIter::Upper(_)
            | RunIter::List(_)
            | RunIter::Sorted(_)
            | RunIter::Parts(_) => None,
        }
    }

    /// The read that a seek to `from`, or to the first entry, waits for.
    ///
    /// # Errors
    /// The error of opening a table.
    pub(super) fn prepare(&mut self, from: Option<&[u8]>) -> Result<Option<&mut Pending>> {
        match self {
            RunIter::Sst(iter) => Ok(iter.prepare(from)),
            RunIter::Level(iter) => iter.prepare(from),
            RunIter::Memtable(_)
            | RunIter::Upper(_)
            | RunIter::List(_)
            | RunIter::Sorted(_)
            | RunIter::Parts(_) => Ok(None),
        }
    }

    /// An iterator over the tables of a sorted level, on no entry yet.
    ///
    /// # Errors
    /// The error of opening a table, if it is the only one.
    pub(crate) fn over_sorted(level: &Arc<LevelRuns>, access: Access) -> Result<RunIter> {
        match &level.runs[..] {
            [one] => RunIter::over(one, access),
            _ => Ok(RunIter::Level(Box::new(LevelIter::new(
                level.clone(),
                access,
            )))),
        }
    }

    /// An iterator over a table, on no entry yet.
    ///
    /// # Errors
    /// The error of opening it.
    pub(crate) fn over(run: &Arc<TableRun>, access: Access) -> Result<RunIter> {
        Ok(match run.table()?.iter(access) {
            TableIter::Sst(iter) => RunIter::Sst(Box::new(iter)),
            TableIter::List(iter) => RunIter::List(Box::new(iter)),
            TableIter::Sorted(iter) => RunIter::Sorted(Box::new(iter)),
        })
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        each!(self, iter => { iter.first(); Ok(()) }, iter.first())
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        each!(self, iter => { iter.last(); Ok(()) }, iter.last())
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        each!(self, iter => { iter.next(); Ok(()) }, iter.next())
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        each!(self, iter => { iter.prev(); Ok(()) }, iter.prev())
    }

    pub(crate) fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        each!(self, iter => { iter.seek(key, tag); Ok(()) }, iter.seek(key, tag))
    }

    pub(crate) fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        each!(self, iter => { iter.seek_before(key, tag); Ok(()) }, iter.seek_before(key, tag))
    }
}

/// An iterator over disjoint tables in key order. It opens one at a time.
pub(crate) struct LevelIter {
    level: Arc<LevelRuns>,
    access: Access,
    /// The first key that is not wanted.
    end: Option<Vec<u8>>,
    at: usize,
    iter: Option<TableIter>,
    /// The iterator over the table after `at`, whose first read is in flight.
    upcoming: Option<TableIter>,
    lazy: bool,
}

impl LevelIter {
    /// REQUIRES: the level is sorted.
    pub(crate) fn new(level: Arc<LevelRuns>, access: Access) -> LevelIter {
        LevelIter {
            at: level.runs.len(),
            level,
            access,
            end: None,
            iter: None,
            upcoming: None,
            lazy: false,
        }
    }

    /// An iterator over these tables only.
    pub(crate) fn of(runs: Vec<Arc<TableRun>>, access: Access) -> LevelIter {
        LevelIter::new(Arc::new(LevelRuns::new(true, runs)), access)
    }

    /// Limits the iterator to keys before `end`: tables from there on are not entered, and nothing
    /// after it is read ahead.
    pub(crate) fn until(mut self, end: Option<&[u8]>) -> LevelIter {
        self.end = end.map(<[u8]>::to_vec);
        self
    }

    /// As [`SstIter::be_lazy`]. REQUIRES: the iterator was not moved yet.
    fn be_lazy(&mut self) {
        self.lazy = true;
    }

    fn valid(&self) -> bool {
        self.iter.as_ref().is_some_and(TableIter::valid)
    }

    fn key(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], TableIter::key)
    }

    fn tag(&self) -> Tag {
        self.iter.as_ref().map_or(Tag(0), TableIter::tag)
    }

    fn value(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], TableIter::value)
    }

    /// Moves to table `at`, on no entry yet; to nothing if there is no such table.
    fn enter(&mut self, at: usize) -> Result<()> {
        if at != self.at || self.iter.is_none() {
            self.iter = None;
            let upcoming = self.upcoming.take().filter(|_| at == self.at + 1);
            self.at = at.min(self.level.runs.len());
            self.iter = match upcoming {
                Some(upcoming) => Some(upcoming),
                None => self.open(at)?,
            };
        }
        Ok(())
    }

    /// An iterator over table `at`, on no entry yet.
    fn open(&self, at: usize) -> Result<Option<TableIter>> {
        let Some(run) = self.level.runs.get(at).filter(|run| self.is_wanted(run)) else {
            return Ok(None);
        };
        let mut iter = run.table()?.iter(self.access);
        self.end.iter().for_each(|end| iter.stop_at(end));
        if self.lazy {
            iter.be_lazy();
        }
        Ok(Some(iter))
    }

    /// True if the table may have a key before the end.
    fn is_wanted(&self, run: &TableRun) -> bool {
        let end = self.end.as_deref();
        end.is_none_or(|end| run.meta.smallest.as_slice() < end)
    }

    #[inline]
    fn wants(&mut self) -> Option<&mut Pending> {
        let largest = self.level.runs.get(self.at).map(|run| &run.meta.largest);
        let (iter, largest) = (self.iter.as_ref()?, largest?);
        match iter.is_at_end(largest) {
            true => self.wants_next_table(),
            false => self.iter.as_mut().and_then(TableIter::wants),
        }
    }

    fn wants_next_table(&mut self) -> Option<&mut Pending> {
        if self.upcoming.is_none() {
            // An error is reported when the table is entered.
            self.upcoming = self.open(self.at + 1).unwrap_or_default();
        }
        self.upcoming.as_mut().and_then(|iter| iter.prepare(None))
    }

    fn prepare(&mut self, from: Option<&[u8]>) -> Result<Option<&mut Pending>> {
        self.enter(from.map_or(0, |from| self.level.first_not_below(from)))?;
        Ok(self.iter.as_mut().and_then(|iter| iter.prepare(from)))
    }

    fn within(&mut self, step: impl FnOnce(&mut TableIter) -> Result<()>) -> Result<()> {
        self.iter.as_mut().map_or(Ok(()), step)
    }

    fn first(&mut self) -> Result<()> {
        self.enter(0)?;
        self.within(TableIter::first)
    }

    fn last(&mut self) -> Result<()> {
        self.enter(self.level.runs.len().wrapping_sub(1))?;
        self.within(TableIter::last)
    }

    fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.enter(self.level.first_not_below(key))?;
        self.within(|iter| iter.seek(key, tag))?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.seek(key, tag)?;
        if self.valid() {
            self.prev()
        } else {
            self.last()
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.within(TableIter::next)?;
        self.skip_forward()
    }

    fn prev(&mut self) -> Result<()> {
        self.within(TableIter::prev)?;
        if !self.valid() && self.at > 0 {
            self.enter(self.at - 1)?;
            self.within(TableIter::last)?;
        }
        Ok(())
    }

    #[inline]
    fn skip_forward(&mut self) -> Result<()> {
        match self.valid() {
            true => Ok(()),
            false => self.skip_tables(),
        }
    }

    #[cold]
    fn skip_tables(&mut self) -> Result<()> {
        while !self.valid() && self.at < self.level.runs.len() {
            self.enter(self.at + 1)?;
            self.within(TableIter::first)?;
        }
        Ok(())
    }
}
