//! A cursor over a table, both ways.
//!
//! Two ways to the blocks ([`Access`]): a reader goes through the block cache and, once it goes on to the next block,
//! reads some more ahead in the same request; a merge passes the cache by and keeps the next stretch in flight while it
//! works on the present one.

use super::block::Block;
use super::block_iter::{BlockIter, Damaged};
use super::read::Sst;
use super::window::Window;
use crate::locality::Locality;
use crate::value::Value;
use firn_base::count::Cause;
use firn_base::{Result, Tag};
use firn_fs::IoBuf;
use std::ops::Range;
use std::sync::Arc;

/// How a cursor gets its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Through the block cache, reading ahead when it pays.
    Cached,
    /// Past the cache, in stretches of this many bytes, for merges that read all.
    Streaming {
        /// Bytes in one read.
        bytes: usize,
        /// Whom to count the bytes for.
        cause: Cause,
    },
}

/// A position in a table, or none. After an error it is on no entry.
pub struct SstIter {
    table: Arc<Sst>,
    access: Access,
    /// The block under the cursor; `index.len()` if none.
    pub(super) block: usize,
    cursor: Option<BlockIter>,
    /// Blocks that the last read on end had.
    ahead: usize,
    /// Blocks since the cursor began somewhere, all of them forward; 0 if it went back, or streams.
    stride: usize,
    /// Streaming reads nothing ahead from this block on.
    stop: usize,
    /// Blocks that are being worked on, and those behind them, which are in flight.
    stream: Option<(Range<usize>, Window)>,
    next_stream: Option<(Range<usize>, Window)>,
    spare: Vec<IoBuf>,
}

impl SstIter {
    pub(super) fn new(table: Arc<Sst>, access: Access) -> Self {
        let block = table.index().len();
        let (stream, next_stream, spare) = (None, None, Vec::new());
        Self { table, access, block, cursor: None, ahead: 0, stride: 0, stop: block, stream, next_stream, spare }
    }

    /// Streaming reads no further ahead than the block of `key`: nobody wants what lies behind it. The cursor may still
    /// go there.
    pub fn stop_at(&mut self, key: &[u8]) {
        self.stop = self.table.index().len().min(self.table.index().find(key) + 1);
    }

    /// Whether the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(BlockIter::valid)
    }

    /// The user key under the cursor. REQUIRES: `valid`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], BlockIter::key)
    }

    /// The tag under the cursor. REQUIRES: `valid`.
    #[inline]
    pub fn tag(&self) -> Tag {
        self.cursor.as_ref().map_or(Tag(0), BlockIter::tag)
    }

    /// The value under the cursor, in place. REQUIRES: `valid`.
    pub fn value(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], |cursor| cursor.block().value(&cursor.value_range()))
    }

    /// The value under the cursor, pinned. REQUIRES: `valid`.
    pub fn pinned(&self) -> Value {
        match &self.cursor {
            Some(cursor) => {
                let range = cursor.value_range();
                Value::pinned(cursor.block().clone(), range.start, range.len())
            }
            None => Value::owned(Vec::new()),
        }
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    /// `Corruption` and `Io`, as for every method that moves.
    pub fn first(&mut self) -> Result<()> {
        self.enter(0)?;
        self.within(BlockIter::first)
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    /// See [`SstIter::first`].
    pub fn last(&mut self) -> Result<()> {
        let blocks = self.table.index().len();
        self.enter(blocks.wrapping_sub(1))?;
        self.within(BlockIter::last)
    }

    /// Goes to the first entry at or behind (key, tag).
    ///
    /// # Errors
    /// See [`SstIter::first`].
    pub fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        let block = self.table.index().find(key);
        self.enter(block)?;
        self.within(|cursor| cursor.seek(key, tag))?;
        // The versions of one key can span blocks, so the place may lie in a later one.
        while !self.valid() && self.block < self.table.index().len() {
            self.enter(self.block + 1)?;
            self.within(|cursor| cursor.seek(key, tag))?;
        }
        Ok(())
    }

    /// Goes to the last entry in front of (key, tag).
    ///
    /// # Errors
    /// See [`SstIter::first`].
    pub fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.seek(key, tag)?;
        if self.valid() { self.prev() } else { self.last() }
    }

    /// Goes to the next entry. REQUIRES: `valid`.
    ///
    /// # Errors
    /// See [`SstIter::first`].
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a cursor's `next` borrows its entry")]
    pub fn next(&mut self) -> Result<()> {
        self.within(BlockIter::next)?;
        self.skip_forward()
    }

    /// Goes to the entry before. REQUIRES: `valid`.
    ///
    /// # Errors
    /// See [`SstIter::first`].
    pub fn prev(&mut self) -> Result<()> {
        self.within(BlockIter::prev)?;
        if !self.valid() && self.block > 0 {
            self.enter(self.block - 1)?;
            self.within(BlockIter::last)?;
        }
        Ok(())
    }

    fn skip_forward(&mut self) -> Result<()> {
        while !self.valid() && self.block < self.table.index().len() {
            self.enter(self.block + 1)?;
            self.within(BlockIter::first)?;
        }
        Ok(())
    }

    pub(super) fn within(&mut self, step: impl FnOnce(&mut BlockIter) -> Result<(), Damaged>) -> Result<()> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        if step(cursor).is_err() {
            self.cursor = None;
            return Err(self.table.damaged(self.block, "entries in order"));
        }
        Ok(())
    }

    /// Puts the cursor on `block`, on none of its entries yet; on nothing if there is no such block.
    pub(super) fn enter(&mut self, block: usize) -> Result<()> {
        let blocks = self.table.index().len();
        if block >= blocks {
            self.block = blocks;
            self.cursor = None;
            return Ok(());
        }
        if block == self.block && self.cursor.is_some() {
            return Ok(());
        }
        let forward = block == self.block.wrapping_add(1);
        let loaded = match self.access {
            Access::Cached => self.load_cached(block, forward),
            Access::Streaming { bytes, cause } => self.load_streaming(block, bytes, cause),
        };
        self.block = block;
        match loaded {
            Ok(loaded) => {
                match &mut self.cursor {
                    Some(cursor) => cursor.reset(loaded),
                    None => self.cursor = Some(BlockIter::new(loaded)),
                }
                Ok(())
            }
            Err(error) => {
                self.cursor = None;
                Err(error)
            }
        }
    }

    fn load_cached(&mut self, block: usize, forward: bool) -> Result<Arc<Block>> {
        let backward = block.wrapping_add(1) == self.block;
        if forward {
            self.stride += 1;
        } else {
            self.end_stride();
            (self.ahead, self.stride) = (0, usize::from(!backward));
        }
        let context = self.table.context();
        let (id, offset) = (self.table.id(), self.table.index().handle(block).offset);
        if let Some(found) = context.cache.get(id, offset) {
            if Locality::is_sampled(id, offset) && found.is_young(context.cache.age()) && !found.touch_by_cursor() {
                context.cache.locality().found_another();
            }
            return Ok(found);
        }
        self.ahead = match backward {
            true => 1,
            false => self.table.strides().next_read(self.stride.saturating_sub(1), self.ahead),
        };
        match self.ahead.min(self.table.index().len() - block) {
            1 => self.table.load_missed(block, Cause::UserRead),
            count => self.table.load_run(block, count),
        }
    }

    fn end_stride(&self) {
        if self.stride > 0 {
            self.table.strides().note(self.stride);
        }
    }

    fn load_streaming(&mut self, block: usize, bytes: usize, cause: Cause) -> Result<Arc<Block>> {
        let held = self.stream.as_ref().is_some_and(|(blocks, _)| blocks.contains(&block));
        if !held {
            let next = self.next_stream.take().filter(|(blocks, _)| blocks.start == block);
            let taken = next.unwrap_or_else(|| self.submit(block, bytes, cause));
            let end = taken.0.end;
            // What was just used up gives its buffers to what comes next.
            self.spare = self.stream.replace(taken).map(|(_, used)| used.into_buffers()).unwrap_or_default();
            if end < self.stop {
                self.next_stream = Some(self.submit(end, bytes, cause));
            }
        }
        let Some((_, window)) = &mut self.stream else { return self.table.load(block, cause) };
        let decoded = window.stored(&self.table, block).and_then(|stored| self.table.decode(block, stored));
        if decoded.is_err() {
            self.stream = None;
        }
        decoded.map(Arc::new)
    }

    /// Puts the blocks from `first` on in flight, as many as fit `bytes`.
    fn submit(&mut self, first: usize, bytes: usize, cause: Cause) -> (Range<usize>, Window) {
        let index = self.table.index();
        let (mut end, mut stored) = (first, 0);
        while end < index.len() {
            stored += index.handle(end).stored_len as usize;
            if (stored > bytes || end >= self.stop) && end > first {
                break;
            }
            end += 1;
        }
        let window = Window::submit(&self.table, (first..end).collect(), cause, std::mem::take(&mut self.spare));
        (first..end, window)
    }
}

impl Drop for SstIter {
    fn drop(&mut self) {
        self.end_stride();
    }
}
