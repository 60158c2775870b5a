//! A cursor over a table, in both directions.
//!
//! There are two ways to the blocks ([`Access`]). A reader goes through the block cache and, once
//! it continues to the next block, reads ahead in the same request. A compaction bypasses the cache
//! and keeps the next stretch in flight while it works on the current one.
//!
//! A block larger than one read is read alone and not ahead. A lazy cursor, one of several that are
//! merged, is only *at* such a block until its entry is needed, because the index knows the block's
//! first and last key. So of all the cursors of a merge only one has a large block in memory.

use super::block::Block;
use super::block_iter::{BlockIter, Damaged};
use super::read::Sst;
use super::window::Window;
use firn_base::count::Cause;
use firn_base::{Result, SeqNo, Tag};
use firn_fs::{IoBuf, Pending};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// The way a cursor gets its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Through the block cache, reading ahead when it pays.
    Cached,
    /// Past the cache, in stretches of this many bytes, for compactions that read everything.
    Streaming {
        /// Bytes in one read.
        bytes: usize,
        /// The cause for which to count the bytes.
        cause: Cause,
    },
}

/// The largest block, in bytes, that a reader's lazy cursor loads before its entry is needed.
const LAZY_BYTES: usize = 128 << 10;

/// A position at one end of a block that is not in memory.
struct Bare {
    key: Vec<u8>,
    /// True for the block's last entry, false for its first.
    last: bool,
    /// Its tag, and true if the block has no other entry. Known only after it was loaded once.
    known: Option<(Tag, bool)>,
}

impl Bare {
    /// The tag. While it is unknown, the tag that comes before all others of the key in the
    /// direction of movement: forward from a first entry, backward from a last one.
    fn tag(&self) -> Tag {
        self.known
            .map_or(Tag(if self.last { 0 } else { u64::MAX }), |(tag, _)| tag)
    }
}

/// A position in a table, or none. After an error it is on no entry.
pub struct SstIter {
    table: Arc<Sst>,
    access: Access,
    /// The block under the cursor; `index.len()` if none.
    pub(super) block: usize,
    cursor: Option<BlockIter>,
    /// Used instead of `cursor` if the block is not in memory.
    bare: Option<Bare>,
    /// Blocks larger than this many bytes are loaded only when needed. `at_large` is true if the
    /// cursor is at one.
    lazy_above: usize,
    at_large: bool,
    /// The number of blocks in the last read of the current scan.
    ahead: usize,
    /// The blocks beyond the first of the last read that the cursor has yet to reach.
    read_ahead: Range<usize>,
    /// The number of blocks since the cursor was positioned, all forward; 0 if it moved back, or
    /// streams.
    walked: usize,
    /// The block at which streaming stops reading ahead.
    stop: usize,
    /// The stretch being worked on, and the one after it, which is in flight.
    stream: Option<(Range<usize>, Window)>,
    next_stream: Option<(Range<usize>, Window)>,
    spare: Vec<IoBuf>,
}

impl SstIter {
    pub(super) fn new(table: Arc<Sst>, access: Access) -> Self {
        let block = table.index().len();
        let (stream, next_stream, spare) = (None, None, Vec::new());
        let (cursor, bare, lazy_above) = (None, None, usize::MAX);
        let (ahead, walked, stop) = (0, 0, block);
        let at_large = false;
        Self {
            table,
            access,
            block,
            cursor,
            bare,
            lazy_above,
            at_large,
            ahead,
            read_ahead: 0..0,
            walked,
            stop,
            stream,
            next_stream,
            spare,
        }
    }

    /// Makes the cursor lazy: from now on large blocks are loaded only by [`SstIter::load`]. The
    /// caller that merges it with others calls that where the tag is not known
    /// ([`SstIter::knows_tag`]), and before it asks for a value.
    pub fn be_lazy(&mut self) {
        self.lazy_above = match self.access {
            Access::Cached => LAZY_BYTES,
            Access::Streaming { bytes, .. } => bytes,
        };
    }

    /// False if only the key is known. REQUIRES: `valid`.
    #[inline]
    pub fn knows_tag(&self) -> bool {
        self.bare.as_ref().is_none_or(|bare| bare.known.is_some())
    }

    /// Loads the entry under the cursor into memory if it is not there yet.
    ///
    /// # Errors
    /// `Corruption` and `Io`.
    pub fn load(&mut self) -> Result<()> {
        let Some(bare) = self.bare.take() else {
            return Ok(());
        };
        self.enter(self.block)?;
        self.within(if bare.last {
            BlockIter::last
        } else {
            BlockIter::first
        })?;
        if self.key() != bare.key {
            self.cursor = None;
            return Err(self
                .table
                .damaged(self.block, "a block with the keys that the index says"));
        }
        Ok(())
    }

    /// True if the cursor is at a block large enough to be loaded lazily.
    #[inline]
    pub fn is_at_large(&self) -> bool {
        self.at_large
    }

    /// Drops a large block from memory, if the cursor can keep its position without it.
    #[inline]
    pub fn shed(&mut self) {
        if self.at_large {
            self.shed_large();
        }
    }

    fn shed_large(&mut self) {
        let Some(cursor) = self.cursor.as_ref().filter(|cursor| cursor.valid()) else {
            return;
        };
        let (first, last) = cursor.ends();
        if first || last {
            let known = Some((cursor.tag(), first && last));
            self.bare = Some(Bare {
                key: cursor.key().to_vec(),
                last: !first,
                known,
            });
            self.cursor = None;
        }
    }

    #[inline]
    fn is_large(&self, block: usize) -> bool {
        let index = self.table.index();
        self.lazy_above < usize::MAX
            && block < index.len()
            && index.handle(block).raw_len as usize > self.lazy_above
    }

    /// Stops reading ahead after the block of `key`, because nothing after it is needed. The cursor
    /// may still move there.
    pub fn stop_at(&mut self, key: &[u8]) {
        self.stop = self
            .table
            .index()
            .len()
            .min(self.table.index().find(key) + 1);
    }

    /// True if the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.cursor
            .as_ref()
            .map_or(self.bare.is_some(), BlockIter::valid)
    }

    /// The user key under the cursor. REQUIRES: `valid`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match &self.cursor {
            Some(cursor) => cursor.key(),
            None => self.bare.as_ref().map_or(&[], |bare| &bare.key),
        }
    }

    /// The tag under the cursor, if it is known. REQUIRES: `valid`.
    #[inline]
    pub fn tag(&self) -> Tag {
        match &self.cursor {
            Some(cursor) => cursor.tag(),
            None => self.bare.as_ref().map_or(Tag(0), Bare::tag),
        }
    }

    /// The value under the cursor, in place. REQUIRES: `valid`, and `load` of a lazy cursor.
    pub fn value(&self) -> &[u8] {
        self.cursor
            .as_ref()
            .map_or(&[], |cursor| cursor.block().value(&cursor.value_range()))
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// `Corruption` and `Io`, as for every method that moves.
    pub fn first(&mut self) -> Result<()> {
        self.enter_at(0, false)
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// See [`SstIter::first`].
    pub fn last(&mut self) -> Result<()> {
        let blocks = self.table.index().len();
        self.enter_at(blocks.wrapping_sub(1), true)
    }

    /// Moves to the first entry at or after (key, tag).
    ///
    /// # Errors
    /// See [`SstIter::first`].
    pub fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        let mut block = self.table.index().find(key);
        loop {
            if self.is_large(block) {
                let index = self.table.index();
                let order = index.compare_smallest(block, key);
                if order == Ordering::Greater
                    || (order == Ordering::Equal && tag == Tag::seek(SeqNo::MAX))
                {
                    return self.enter_at(block, false);
                }
                if tag == Tag(0) && index.compare_largest(block, key).is_eq() {
                    // After all entries of the key.
                    block += 1;
                    continue;
                }
            }
            self.enter(block)?;
            self.within(|cursor| cursor.seek(key, tag))?;
            // The versions of one key can span blocks, so the place may be in a later one.
            if self.valid() || self.block >= self.table.index().len() {
                return Ok(());
            }
            block = self.block + 1;
        }
    }

    /// Moves to the last entry before (key, tag).
    ///
    /// # Errors
    /// See [`SstIter::first`].
    pub fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.seek(key, tag)?;
        if self.valid() {
            self.prev()
        } else {
            self.last()
        }
    }

    /// Moves to the next entry. REQUIRES: `valid`.
    ///
    /// # Errors
    /// See [`SstIter::first`].
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor's `next` borrows its entry"
    )]
    pub fn next(&mut self) -> Result<()> {
        if self.bare.is_some() && self.leaves_bare(false)? {
            self.enter_at(self.block + 1, false)?;
        } else {
            self.within(BlockIter::next)?;
        }
        while !self.valid() && self.block < self.table.index().len() {
            self.enter_at(self.block + 1, false)?;
        }
        Ok(())
    }

    /// Moves to the previous entry. REQUIRES: `valid`.
    ///
    /// # Errors
    /// See [`SstIter::first`].
    pub fn prev(&mut self) -> Result<()> {
        if self.bare.is_none() || !self.leaves_bare(true)? {
            self.within(BlockIter::prev)?;
        }
        if !self.valid() && self.block > 0 {
            self.enter_at(self.block - 1, true)?;
        }
        Ok(())
    }

    /// Tries one step from a position whose block is not in memory. True if the step leads out of
    /// the block; the cursor is on nothing then. Otherwise, or if only the block can tell, the
    /// block is loaded and the step still has to be made.
    fn leaves_bare(&mut self, back: bool) -> Result<bool> {
        let leaves = |bare: &Bare| bare.last != back || bare.known.is_some_and(|(_, alone)| alone);
        if self.bare.take_if(|bare| leaves(bare)).is_some() {
            return Ok(true);
        }
        self.load().map(|()| false)
    }

    /// Moves the cursor to the first or last entry of `block`; to none if there is no such block.
    fn enter_at(&mut self, block: usize, last: bool) -> Result<()> {
        if !self.is_large(block) {
            self.enter(block)?;
            return self.within(if last {
                BlockIter::last
            } else {
                BlockIter::first
            });
        }
        let index = self.table.index();
        let key = if last {
            index.largest(block)
        } else {
            index.smallest(block)
        };
        self.bare = Some(Bare {
            key,
            last,
            known: None,
        });
        (self.block, self.cursor, self.at_large) = (block, None, true);
        Ok(())
    }

    pub(super) fn within(
        &mut self,
        step: impl FnOnce(&mut BlockIter) -> Result<(), Damaged>,
    ) -> Result<()> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(());
        };
        if step(cursor).is_err() {
            self.cursor = None;
            return Err(self.table.damaged(self.block, "entries in order"));
        }
        Ok(())
    }

    /// Moves the cursor to `block`, but to none of its entries yet; to nothing if there is no such
    /// block.
    pub(super) fn enter(&mut self, block: usize) -> Result<()> {
        self.bare = None;
        let blocks = self.table.index().len();
        if block >= blocks {
            (self.block, self.cursor, self.at_large) = (blocks, None, false);
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
        (self.block, self.at_large) = (block, self.is_large(block));
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
            self.walked += 1;
        } else {
            self.end_walk();
            (self.ahead, self.walked) = (0, usize::from(!backward));
        }
        let was_read_ahead = self.was_read_ahead(block);
        let cache = &self.table.context().cache;
        let (id, offset) = (self.table.id(), self.table.index().handle(block).offset);
        let found = match was_read_ahead {
            true => cache.get_read_ahead(id, offset),
            false => cache.get(id, offset),
        };
        if let Some(found) = found {
            cache.admission().reached(id, offset, cache.age());
            return Ok(found);
        }
        self.ahead = match backward {
            true => 1,
            false => self
                .table
                .readahead()
                .next_read(self.walked.saturating_sub(1), self.ahead),
        };
        let count = self.table.run_within_bytes(block, self.ahead);
        self.read_ahead = block + 1..block + count;
        match count {
            1 => self.table.load_missed(block, Cause::UserRead),
            count => self.table.load_run(block, count),
        }
    }

    /// True if this cursor read the block ahead. Each block once.
    fn was_read_ahead(&mut self, block: usize) -> bool {
        let was = self.read_ahead.contains(&block);
        if was {
            self.read_ahead.start = block + 1;
        }
        was
    }

    fn end_walk(&self) {
        if self.walked > 0 {
            self.table.readahead().note(self.walked);
        }
    }

    fn load_streaming(&mut self, block: usize, bytes: usize, cause: Cause) -> Result<Arc<Block>> {
        let held = self
            .stream
            .as_ref()
            .is_some_and(|(blocks, _)| blocks.contains(&block));
        if !held {
            let next = self
                .next_stream
                .take()
                .filter(|(blocks, _)| blocks.start == block);
            let taken = next.unwrap_or_else(|| self.submit(block, bytes, cause));
            let end = taken.0.end;
            // The used-up stretch gives its buffers to the next one.
            self.spare = self
                .stream
                .replace(taken)
                .map(|(_, used)| used.into_buffers())
                .unwrap_or_default();
            if end < self.stop && !self.is_alone(end, bytes) {
                self.next_stream = Some(self.submit(end, bytes, cause));
            }
        }
        let alone = self.is_alone(block, bytes);
        if let Some((_, window)) = self
            .stream
            .take_if(|(blocks, _)| alone && blocks.len() == 1)
        {
            return self
                .table
                .decode_own(block, window.into_only()?)
                .map(Arc::new);
        }
        let Some((_, window)) = &mut self.stream else {
            return self.table.load(block, cause);
        };
        let decoded = window
            .stored(&self.table, block)
            .and_then(|stored| self.table.decode(block, stored));
        if decoded.is_err() {
            self.stream = None;
        }
        decoded.map(Arc::new)
    }

    /// The read that the next `next` waits for, if it is not known to have completed. For a cursor
    /// that streams forward. A block that is read alone is not among them.
    #[inline]
    pub fn wants(&mut self) -> Option<&mut Pending> {
        let cursor = self.cursor.as_ref()?;
        match cursor.ends() {
            (_, true) => self.read_of(self.block + 1),
            _ => None,
        }
    }

    /// The read that a seek to `from`, or to the first entry, waits for. As [`SstIter::wants`].
    pub fn prepare(&mut self, from: Option<&[u8]>) -> Option<&mut Pending> {
        let block = from.map_or(0, |key| self.table.index().find(key));
        self.read_of(block)
    }

    /// True if no entry of the table follows the current one.
    pub fn is_at_end(&self) -> bool {
        let is_last = |cursor: &BlockIter| cursor.ends().1;
        self.block + 1 >= self.table.index().len() && self.cursor.as_ref().is_none_or(is_last)
    }

    /// The read of `block`, which is begun if it is not in flight.
    fn read_of(&mut self, block: usize) -> Option<&mut Pending> {
        let Access::Streaming { bytes, cause } = self.access else {
            return None;
        };
        if block >= self.table.index().len() || self.is_alone(block, bytes) {
            return None;
        }
        let holds = |stream: &Option<(Range<usize>, Window)>| {
            let blocks = stream.as_ref().map(|(blocks, _)| blocks);
            blocks.is_some_and(|blocks| blocks.contains(&block))
        };
        let stream = if holds(&self.stream) {
            &mut self.stream
        } else {
            if !holds(&self.next_stream) {
                self.next_stream = Some(self.submit(block, bytes, cause));
            }
            &mut self.next_stream
        };
        let (_, window) = stream.as_mut()?;
        window.wants(&self.table, block)
    }

    /// True if `block` is larger than one read. Such a block is read only when it is needed, and
    /// its buffer is not kept.
    fn is_alone(&self, block: usize, bytes: usize) -> bool {
        self.table.index().handle(block).stored_len as usize > bytes
    }

    /// Starts reading the blocks from `first` on, as many as fit into `bytes`, but at least one.
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
        let window = Window::submit(
            &self.table,
            (first..end).collect(),
            cause,
            std::mem::take(&mut self.spare),
        );
        (first..end, window)
    }
}

impl Drop for SstIter {
    fn drop(&mut self) {
        self.end_walk();
    }
}
