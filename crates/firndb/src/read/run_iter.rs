//! An iterator over any run, and the merge of several: in both directions, by internal key.

use crate::lab::TreesIter;
use crate::memtable::MemtableIter;
use crate::read::run::SstRun;
use crate::read::state::Level;
use firn_base::key::compare;
use firn_base::{Result, SeqNo, Tag};
use firn_fs::LARGE_BYTES;
use firn_table::Value;
use firn_table::pm_btree::ValueAddress;
use firn_table::sst::{Access, SstIter};
use std::cmp::Ordering;
use std::sync::Arc;

/// Entries in internal key order, one after another: the input of a compaction.
pub(crate) trait Entries {
    /// True if there is a current entry.
    fn valid(&self) -> bool;
    fn key(&self) -> &[u8];
    fn tag(&self) -> Tag;
    /// The value. REQUIRES: `load` since the last `next`.
    fn value(&self) -> &[u8];
    /// Moves to the next entry. REQUIRES: `valid`.
    fn next(&mut self) -> Result<()>;
    /// Reads the value if it is not in memory. An entry of the trees has its value in a log, and a
    /// version that is dropped need not be read. REQUIRES: `valid`.
    fn load(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Entries for MergeIter {
    fn valid(&self) -> bool {
        MergeIter::valid(self)
    }

    fn key(&self) -> &[u8] {
        MergeIter::key(self)
    }

    fn tag(&self) -> Tag {
        MergeIter::tag(self)
    }

    fn value(&self) -> &[u8] {
        MergeIter::value(self)
    }

    fn next(&mut self) -> Result<()> {
        MergeIter::next(self)
    }

    fn load(&mut self) -> Result<()> {
        MergeIter::load(self)
    }
}

/// An iterator over one run, or over the runs of a sorted level one after another.
pub(crate) enum RunIter {
    Memtable(MemtableIter),
    Sst(Box<SstIter>),
    Level(Box<LevelIter>),
    Trees(Box<TreesIter>),
}

macro_rules! each {
    ($self:ident, $iter:ident => $body:expr, $fallible:expr) => {
        match $self {
            RunIter::Memtable($iter) => $body,
            RunIter::Sst($iter) => $fallible,
            RunIter::Level($iter) => $fallible,
            RunIter::Trees($iter) => $fallible,
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

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        each!(self, iter => iter.value(), iter.value())
    }

    /// Reads the value if that has not been done. REQUIRES: `valid`.
    pub(crate) fn load(&mut self) -> Result<()> {
        match self {
            RunIter::Memtable(_) => Ok(()),
            RunIter::Sst(iter) => iter.load(),
            RunIter::Level(iter) => iter.within(SstIter::load),
            RunIter::Trees(iter) => iter.load(),
        }
    }

    /// The table iterator, if there is one. It may know less than the whole entry.
    #[inline]
    fn sst(&self) -> Option<&SstIter> {
        match self {
            RunIter::Sst(iter) => Some(iter),
            RunIter::Level(iter) => iter.iter.as_ref(),
            RunIter::Memtable(_) | RunIter::Trees(_) => None,
        }
    }

    fn be_lazy(&mut self) {
        match self {
            RunIter::Sst(iter) => iter.be_lazy(),
            RunIter::Level(iter) => iter.be_lazy(),
            RunIter::Memtable(_) | RunIter::Trees(_) => {}
        }
    }

    /// The value, pinned in its block, if it is large and in a block. REQUIRES: `load`.
    fn large_value(&self) -> Option<Value> {
        let is_large = self.value().len() >= LARGE_BYTES;
        match self {
            _ if !is_large => None,
            RunIter::Trees(iter) => iter.pinned(),
            _ => self.sst().map(SstIter::pinned),
        }
    }

    /// False if the value is in a memtable, or is small and already in memory.
    #[inline]
    fn may_be_large(&self) -> bool {
        match self {
            RunIter::Memtable(_) => false,
            RunIter::Trees(_) => true,
            RunIter::Sst(iter) => iter.is_at_large(),
            RunIter::Level(iter) => iter.iter.as_ref().is_some_and(SstIter::is_at_large),
        }
    }

    /// Releases a large block.
    fn shed(&mut self) {
        match self {
            RunIter::Sst(iter) => iter.shed(),
            RunIter::Level(iter) => iter.iter.iter_mut().for_each(SstIter::shed),
            RunIter::Trees(iter) => iter.shed(),
            RunIter::Memtable(_) => {}
        }
    }

    /// The address of the value and the sequence number of its entry, if the value is not in
    /// memory.
    fn place(&self) -> Option<(ValueAddress, SeqNo)> {
        if let RunIter::Trees(iter) = self {
            iter.place()
        } else {
            None
        }
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
    level: Arc<Level>,
    access: Access,
    /// The first key that is not wanted.
    end: Option<Vec<u8>>,
    at: usize,
    iter: Option<SstIter>,
    lazy: bool,
}

impl LevelIter {
    /// REQUIRES: the level is sorted.
    pub(crate) fn new(level: Arc<Level>, access: Access) -> LevelIter {
        LevelIter {
            at: level.runs.len(),
            level,
            access,
            end: None,
            iter: None,
            lazy: false,
        }
    }

    /// An iterator over these tables only.
    pub(crate) fn of(runs: Vec<Arc<SstRun>>, access: Access) -> LevelIter {
        LevelIter::new(Arc::new(Level::new(true, runs)), access)
    }

    /// Limits the iterator to keys before `end`, so that nothing after it is read ahead.
    pub(crate) fn until(mut self, end: Option<&[u8]>) -> LevelIter {
        self.end = end.map(<[u8]>::to_vec);
        self
    }

    /// As [`SstIter::be_lazy`]. REQUIRES: the iterator was not moved yet.
    fn be_lazy(&mut self) {
        self.lazy = true;
    }

    fn valid(&self) -> bool {
        self.iter.as_ref().is_some_and(SstIter::valid)
    }

    fn key(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], SstIter::key)
    }

    fn tag(&self) -> Tag {
        self.iter.as_ref().map_or(Tag(0), SstIter::tag)
    }

    fn value(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], SstIter::value)
    }

    /// Moves to table `at`, on no entry yet; to nothing if there is no such table.
    fn enter(&mut self, at: usize) -> Result<()> {
        if at != self.at || self.iter.is_none() {
            self.iter = None;
            self.at = at.min(self.level.runs.len());
            if let Some(run) = self.level.runs.get(at) {
                let mut iter = run.table()?.iter(self.access);
                self.end.iter().for_each(|end| iter.stop_at(end));
                if self.lazy {
                    iter.be_lazy();
                }
                self.iter = Some(iter);
            }
        }
        Ok(())
    }

    fn within(&mut self, step: impl FnOnce(&mut SstIter) -> Result<()>) -> Result<()> {
        self.iter.as_mut().map_or(Ok(()), step)
    }

    fn first(&mut self) -> Result<()> {
        self.enter(0)?;
        self.within(SstIter::first)
    }

    fn last(&mut self) -> Result<()> {
        self.enter(self.level.runs.len().wrapping_sub(1))?;
        self.within(SstIter::last)
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

    fn next(&mut self) -> Result<()> {
        self.within(SstIter::next)?;
        self.skip_forward()
    }

    fn prev(&mut self) -> Result<()> {
        self.within(SstIter::prev)?;
        if !self.valid() && self.at > 0 {
            self.enter(self.at - 1)?;
            self.within(SstIter::last)?;
        }
        Ok(())
    }

    fn skip_forward(&mut self) -> Result<()> {
        while !self.valid() && self.at < self.level.runs.len() {
            self.enter(self.at + 1)?;
            self.within(SstIter::first)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The merge of several iterators: a binary heap of child numbers, with the next entry's child on
/// top.
///
/// The children are lazy. A child that reaches a large block whose key the index knows reads it
/// only when it is on top, and releases it when it is no longer. So a merge of many tables with
/// large values has only one such block in memory.
pub(crate) struct MergeIter {
    children: Vec<RunIter>,
    heap: Vec<u32>,
    direction: Direction,
}

impl MergeIter {
    pub(crate) fn new(mut children: Vec<RunIter>) -> MergeIter {
        children.iter_mut().for_each(RunIter::be_lazy);
        MergeIter {
            heap: Vec::with_capacity(children.len()),
            children,
            direction: Direction::Forward,
        }
    }

    /// A merge positioned on the first entry of all.
    pub(crate) fn at_first(children: Vec<RunIter>) -> Result<MergeIter> {
        let mut merge = MergeIter::new(children);
        merge.first()?;
        Ok(merge)
    }

    fn top(&self) -> Option<&RunIter> {
        self.heap.first().map(|&i| &self.children[i as usize])
    }

    pub(crate) fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.top().map_or(&[], RunIter::key)
    }

    pub(crate) fn tag(&self) -> Tag {
        self.top().map_or(Tag(0), RunIter::tag)
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.top().map_or(&[], RunIter::value)
    }

    /// Makes `value` available. REQUIRES: `valid`.
    pub(crate) fn load(&mut self) -> Result<()> {
        let top = self.heap.first().copied();
        top.map_or(Ok(()), |top| self.children[top as usize].load())
    }

    /// The address of the value and the sequence number of its entry, if `value` needs `load`
    /// first. For a caller that decides only after moving on whether it needs the value, which
    /// stays readable while this merge exists.
    pub(crate) fn place(&self) -> Option<(ValueAddress, SeqNo)> {
        self.top().and_then(RunIter::place)
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.reposition(Direction::Forward, RunIter::first)
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.reposition(Direction::Backward, RunIter::last)
    }

    /// Moves to the first entry at or after (key, tag). `next` continues from there.
    pub(crate) fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.reposition(Direction::Forward, |child| child.seek(key, tag))
    }

    /// Moves to the last entry before (key, tag). `prev` continues from there.
    pub(crate) fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.reposition(Direction::Backward, |child| child.seek_before(key, tag))
    }

    /// REQUIRES: valid, and the last positioning was forward.
    pub(crate) fn next(&mut self) -> Result<()> {
        debug_assert_eq!(self.direction, Direction::Forward);
        self.advance(RunIter::next)
    }

    /// REQUIRES: valid, and the last positioning was backward.
    pub(crate) fn prev(&mut self) -> Result<()> {
        debug_assert_eq!(self.direction, Direction::Backward);
        self.advance(RunIter::prev)
    }

    fn reposition(
        &mut self,
        direction: Direction,
        mut step: impl FnMut(&mut RunIter) -> Result<()>,
    ) -> Result<()> {
        self.direction = direction;
        self.heap.clear();
        for i in 0..self.children.len() {
            step(&mut self.children[i])?;
            self.children[i].shed();
            if self.children[i].valid() {
                self.heap.push(i as u32);
            }
        }
        for i in (0..self.heap.len() / 2).rev() {
            self.sift_down(i);
        }
        self.settle()
    }

    /// Loads the top entry until it is known to be the next one. A child of which only the key is
    /// known comes before all others with that key.
    #[inline]
    fn settle(&mut self) -> Result<()> {
        if self.knows_top() {
            Ok(())
        } else {
            self.look_at_top()
        }
    }

    #[inline]
    fn knows_top(&self) -> bool {
        self.heap.first().is_none_or(|&top| {
            self.children[top as usize]
                .sst()
                .is_none_or(SstIter::knows_tag)
        })
    }

    #[cold]
    fn look_at_top(&mut self) -> Result<()> {
        while let Some(top) = self
            .heap
            .first()
            .map(|&top| top as usize)
            .filter(|_| !self.knows_top())
        {
            if let Err(error) = self.children[top].load() {
                self.heap.clear();
                return Err(error);
            }
            self.sift_down(0);
            if self.heap.first() != Some(&(top as u32)) {
                self.children[top].shed();
            }
        }
        Ok(())
    }

    /// False if the value is in memory already and small.
    #[inline]
    pub(crate) fn may_be_large(&self) -> bool {
        self.top().is_some_and(RunIter::may_be_large)
    }

    /// The value, if it is large and need not be copied. REQUIRES: `load`.
    pub(crate) fn large_value(&self) -> Option<Value> {
        self.top().and_then(RunIter::large_value)
    }

    /// Releases the entry's block if it is large, because the value is no longer needed.
    pub(crate) fn shed(&mut self) {
        if let Some(&top) = self.heap.first() {
            self.children[top as usize].shed();
        }
    }

    fn advance(&mut self, step: impl FnOnce(&mut RunIter) -> Result<()>) -> Result<()> {
        let Some(&top) = self.heap.first() else {
            return Ok(());
        };
        let child = &mut self.children[top as usize];
        if let Err(error) = step(child) {
            self.heap.clear();
            return Err(error);
        }
        if !child.valid() {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        self.settle()
    }

    /// True if the child at heap position `a` comes before the one at `b`.
    fn goes_before(&self, a: usize, b: usize) -> bool {
        let (x, y) = (
            &self.children[self.heap[a] as usize],
            &self.children[self.heap[b] as usize],
        );
        let order = compare(x.key(), x.tag(), y.key(), y.tag());
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Backward => order == Ordering::Greater,
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.goes_before(right, left) {
                right
            } else {
                left
            };
            if !self.goes_before(child, at) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }
}
