//! A cursor over one block, in both directions. Moving back re-reads from the restart point before.

use super::block::Block;
use firn_base::key::{Tag, compare};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// Damage found while moving. The caller knows the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

/// A position in a block, or none.
#[derive(Debug)]
pub(super) struct BlockIter {
    block: Arc<Block>,
    /// The offset of the current entry; `entries_end` if there is none.
    at: usize,
    next: usize,
    key: Vec<u8>,
    tag: Tag,
    value: Range<usize>,
}

impl BlockIter {
    pub(super) fn new(block: Arc<Block>) -> Self {
        let end = block.entries_end();
        Self {
            block,
            at: end,
            next: end,
            key: Vec::new(),
            tag: Tag(0),
            value: 0..0,
        }
    }

    /// Moves the cursor to another block, keeping its key's storage.
    pub(super) fn reset(&mut self, block: Arc<Block>) {
        self.at = block.entries_end();
        self.next = self.at;
        self.block = block;
        self.key.clear();
    }

    pub(super) fn valid(&self) -> bool {
        self.at < self.block.entries_end()
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    pub(super) fn value_range(&self) -> Range<usize> {
        self.value.clone()
    }

    /// True if the current entry is the block's first, and true if it is its last.
    pub(super) fn ends(&self) -> (bool, bool) {
        (self.at == 0, self.next >= self.block.entries_end())
    }

    pub(super) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Reads the entry at `at`. The key of the entry before it must be in `self.key`.
    fn read(&mut self, at: usize) -> Result<(), Damaged> {
        if at >= self.block.entries_end() {
            self.at = self.block.entries_end();
            return Ok(());
        }
        let entry = self.block.view().entry(at).ok_or(Damaged)?;
        if entry.shared > self.key.len() {
            return Err(Damaged);
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(entry.rest);
        self.tag = entry.tag;
        self.at = at;
        self.next = entry.value.end;
        self.value = entry.value;
        Ok(())
    }

    fn read_restart(&mut self, at: usize) -> Result<(), Damaged> {
        self.key.clear();
        self.read(at)
    }

    pub(super) fn first(&mut self) -> Result<(), Damaged> {
        self.read_restart(0)
    }

    pub(super) fn last(&mut self) -> Result<(), Damaged> {
        let restart = self
            .block
            .view()
            .restart(self.block.view().restarts() - 1)
            .ok_or(Damaged)?;
        self.read_restart(restart)?;
        while self.next < self.block.entries_end() {
            self.read(self.next)?;
        }
        Ok(())
    }

    pub(super) fn next(&mut self) -> Result<(), Damaged> {
        self.read(self.next)
    }

    /// Moves to the previous entry; to none if the current one is the first.
    pub(super) fn prev(&mut self) -> Result<(), Damaged> {
        let here = self.at;
        let mut restart = 0;
        // The last restart point before the current entry.
        let (mut low, mut high) = (0, self.block.view().restarts());
        while low < high {
            let middle = low + (high - low) / 2;
            let at = self.block.view().restart(middle).ok_or(Damaged)?;
            if at < here {
                restart = at;
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if here == 0 {
            self.at = self.block.entries_end();
            return Ok(());
        }
        self.read_restart(restart)?;
        while self.next < here {
            self.read(self.next)?;
        }
        Ok(())
    }

    /// Moves to the first entry at or after (key, tag).
    pub(super) fn seek(&mut self, key: &[u8], tag: Tag) -> Result<(), Damaged> {
        let restart = self.block.view().restart_before(key, tag).ok_or(Damaged)?;
        self.read_restart(restart)?;
        while self.valid() && compare(&self.key, self.tag, key, tag) == Ordering::Less {
            self.next()?;
        }
        Ok(())
    }
}
