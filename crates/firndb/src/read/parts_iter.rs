//! An iterator over everything below the memtables that all partitions share, one partition after
//! another. A cursor over many partitions has only the runs of one of them open.
//!
//! Runs lie within one partition. Memtables of a partition may have keys of its neighbours, because
//! they were there before it was divided; a merge with any ends at the partition's borders.

use crate::read::merge_iter::MergeIter;
use crate::read::pins::{over_memtables, part_children};
use crate::read::state::ReadState;
use firn_base::{Result, SeqNo, Tag};
use std::sync::Arc;

/// An iterator over the partitions of a state.
pub(crate) struct PartsIter {
    state: Arc<ReadState>,
    at: usize,
    merge: MergeIter,
}

impl PartsIter {
    /// An iterator on no entry yet.
    pub(crate) fn new(state: Arc<ReadState>) -> PartsIter {
        PartsIter {
            at: state.parts.len(),
            state,
            merge: MergeIter::new(Vec::new()),
        }
    }

    // Not inlined, because most databases have one partition and pass by this.
    #[inline(never)]
    pub(super) fn valid(&self) -> bool {
        self.merge.valid()
    }

    #[inline(never)]
    pub(super) fn key(&self) -> &[u8] {
        self.merge.key()
    }

    #[inline(never)]
    pub(super) fn tag(&self) -> Tag {
        self.merge.tag()
    }

    #[inline(never)]
    pub(super) fn value(&self) -> &[u8] {
        self.merge.value()
    }

    /// The merge of the current partition's runs.
    pub(super) fn merge(&self) -> &MergeIter {
        &self.merge
    }

    pub(super) fn merge_mut(&mut self) -> &mut MergeIter {
        &mut self.merge
    }

    /// Opens the runs of partition `at`, on no entry yet.
    fn enter(&mut self, at: usize) -> Result<()> {
        if at != self.at {
            // Closed first, so that the runs of two partitions are never open together.
            self.merge = MergeIter::new(Vec::new());
            self.at = self.state.parts.len();
            let mut children = match self.has_memtables() {
                true => over_memtables(&self.state.memtables.of_part(at).memtables)?,
                false => Vec::new(),
            };
            children.extend(part_children(&self.state.parts[at])?);
            self.merge = MergeIter::new(children);
            self.at = at;
        }
        Ok(())
    }

    fn has_memtables(&self) -> bool {
        self.state.memtables.are_by_part()
    }

    /// True if the merge is on an entry of the current partition.
    fn is_inside(&self) -> bool {
        self.merge.valid() && {
            let (from, to) = self.state.layout.range(self.at);
            let key = self.merge.key();
            !self.has_memtables() || (from <= key && to.is_none_or(|to| key < to))
        }
    }

    /// Moves to the first entry of partition `at`.
    fn enter_first(&mut self, at: usize) -> Result<()> {
        self.enter(at)?;
        match self.state.layout.range(at) {
            (from, _) if self.has_memtables() && !from.is_empty() => {
                self.merge.seek(from, Tag::seek(SeqNo::MAX))
            }
            _ => self.merge.first(),
        }
    }

    /// Moves to the last entry of partition `at`.
    fn enter_last(&mut self, at: usize) -> Result<()> {
        self.enter(at)?;
        match self.state.layout.range(at) {
            (_, Some(to)) if self.has_memtables() => {
                self.merge.seek_before(to, Tag::seek(SeqNo::MAX))
            }
            _ => self.merge.last(),
        }
    }

    pub(super) fn first(&mut self) -> Result<()> {
        self.enter_first(0)?;
        self.skip_forward()
    }

    pub(super) fn last(&mut self) -> Result<()> {
        self.enter_last(self.state.parts.len() - 1)?;
        self.skip_backward()
    }

    pub(super) fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.enter(self.state.layout.part_of(key))?;
        self.merge.seek(key, tag)?;
        self.skip_forward()
    }

    pub(super) fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.enter(self.state.layout.part_of(key))?;
        self.merge.seek_before(key, tag)?;
        self.skip_backward()
    }

    pub(super) fn next(&mut self) -> Result<()> {
        self.merge.next()?;
        self.skip_forward()
    }

    pub(super) fn prev(&mut self) -> Result<()> {
        self.merge.prev()?;
        self.skip_backward()
    }

    fn skip_forward(&mut self) -> Result<()> {
        while !self.is_inside() && self.at + 1 < self.state.parts.len() {
            self.enter_first(self.at + 1)?;
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while !self.is_inside() && self.at > 0 {
            self.enter_last(self.at - 1)?;
        }
        Ok(())
    }
}
