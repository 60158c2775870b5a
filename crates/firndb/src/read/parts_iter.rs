//! An iterator over everything below the memtables, one partition after another. A cursor over many
//! partitions has only the runs of one of them open.

use crate::read::merge_iter::MergeIter;
use crate::read::pins::part_children;
use crate::read::state::ReadState;
use firn_base::{Result, Tag};
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
            self.merge = MergeIter::new(part_children(&self.state.parts[at])?);
            self.at = at;
        }
        Ok(())
    }

    pub(super) fn first(&mut self) -> Result<()> {
        self.enter(0)?;
        self.merge.first()?;
        self.skip_forward()
    }

    pub(super) fn last(&mut self) -> Result<()> {
        self.enter(self.state.parts.len() - 1)?;
        self.merge.last()?;
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
        while !self.merge.valid() && self.at + 1 < self.state.parts.len() {
            self.enter(self.at + 1)?;
            self.merge.first()?;
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while !self.merge.valid() && self.at > 0 {
            self.enter(self.at - 1)?;
            self.merge.last()?;
        }
        Ok(())
    }
}
