//! The merge of several iterators: in both directions, by internal key.

use crate::read::run_iter::RunIter;
use firn_base::exec::may_suspend;
use firn_base::key::compare;
use firn_base::{Result, SeqNo, Tag};
use firn_fs::Pending;
use firn_table::Value;
use firn_table::pm_btree::ValueAddress;
use firn_table::pm_skiplist::Linked;
use firn_table::sst::SstIter;
use std::cmp::Ordering;

/// Entries in internal key order, one after another: the input of a compaction.
pub(crate) trait Entries {
    /// True if there is a current entry.
    fn valid(&self) -> bool;
    fn key(&self) -> &[u8];
    fn tag(&self) -> Tag;
    /// The value. REQUIRES: `load` since the last `next`.
    fn value(&self) -> &[u8];
    /// The read that `next` waits for, if it is not known to have completed.
    fn wants(&mut self) -> Option<&mut Pending> {
        None
    }
    /// Moves to the next entry. REQUIRES: `valid`.
    fn next(&mut self) -> Result<()>;
    /// Reads the value if it is not in memory. The value may be in a log, and a
    /// version that is dropped need not be read. REQUIRES: `valid`.
    fn load(&mut self) -> Result<()> {
        Ok(())
    }
    /// The entry in persistent memory, if it is there and can be linked into a list.
    fn linked(&self) -> Option<Linked> {
        None
    }
    /// The group of the entry in a table in persistent memory, if gets found entries in it.
    fn read_group(&self) -> Option<u64> {
        None
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

    fn wants(&mut self) -> Option<&mut Pending> {
        let top = self.heap.first().copied()?;
        self.children[top as usize].wants()
    }

    fn next(&mut self) -> Result<()> {
        MergeIter::next(self)
    }

    fn load(&mut self) -> Result<()> {
        MergeIter::load(self)
    }

    fn linked(&self) -> Option<Linked> {
        MergeIter::linked(self)
    }

    fn read_group(&self) -> Option<u64> {
        self.top().and_then(RunIter::read_group)
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

    /// A merge positioned on the first entry from `from` on, or of all. The first reads of all
    /// children are in flight at the same time.
    pub(crate) async fn starting(children: Vec<RunIter>, from: Option<&[u8]>) -> Result<MergeIter> {
        let mut merge = MergeIter::new(children);
        if may_suspend() {
            for child in &mut merge.children {
                child.prepare(from)?;
            }
            for child in &mut merge.children {
                while let Some(pending) = child.prepare(from)? {
                    pending.ready().await;
                }
            }
        }
        match from {
            Some(from) => merge.seek(from, Tag::seek(SeqNo::MAX))?,
            None => merge.first()?,
        }
        Ok(merge)
    }

    pub(super) fn top(&self) -> Option<&RunIter> {
        self.heap.first().map(|&i| &self.children[i as usize])
    }

    pub(crate) fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.top().map_or(&[], RunIter::key)
    }

    /// The key and the tag of the current entry, if there is one.
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], Tag)> {
        self.top().map(RunIter::entry)
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

    /// The current entry in persistent memory, if it is there and can be linked into a list.
    pub(crate) fn linked(&self) -> Option<Linked> {
        self.top().and_then(RunIter::linked)
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

    /// The value, if it is in a memtable, or is small and already in memory.
    #[inline]
    pub(crate) fn value_at_hand(&self) -> Option<&[u8]> {
        self.top().and_then(RunIter::value_at_hand)
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
        let ((x, x_tag), (y, y_tag)) = (x.entry(), y.entry());
        let order = compare(x, x_tag, y, y_tag);
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
