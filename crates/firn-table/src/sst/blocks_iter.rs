//! A forward cursor over some blocks of a table, for a compaction that knows which ones it needs,
//! so their reads run in parallel (BlockDB, III-C). Blocks in the block cache are not read.

use super::block::Block;
use super::block_iter::BlockIter;
use super::properties::Properties;
use super::read::Sst;
use super::window::Window;
use firn_base::count::Cause;
use firn_base::{Result, SeqNo, Tag};
use firn_fs::{IoBuf, Pending};
use std::ops::Range;
use std::sync::Arc;

/// The maximum number of blocks that are looked up together.
const BLOCKS_MAX: usize = 256;

/// A stretch of upcoming blocks: their positions in `blocks`, the blocks found in the cache, and
/// the reads of the others.
struct Ahead {
    places: Range<usize>,
    cached: Vec<(usize, Arc<Block>)>,
    window: Window,
}

/// A position in one of the blocks, or none.
pub struct BlocksIter {
    table: Arc<Sst>,
    blocks: Arc<[usize]>,
    cause: Cause,
    /// Bytes in flight at a time.
    stretch_bytes: usize,
    alone: bool,
    /// The position in `blocks` of the block under the cursor.
    at: usize,
    cursor: Option<BlockIter>,
    held: Option<Ahead>,
    next: Option<Ahead>,
    seen: Properties,
    reads_most: usize,
}

impl BlocksIter {
    /// An iterator over `blocks`, whose numbers ascend, on no entry yet. With `alone`, only one
    /// read is in flight at a time.
    pub fn new(
        table: Arc<Sst>,
        blocks: Arc<[usize]>,
        stretch_bytes: usize,
        cause: Cause,
        alone: bool,
    ) -> BlocksIter {
        BlocksIter {
            table,
            blocks,
            cause,
            stretch_bytes,
            alone,
            at: 0,
            cursor: None,
            held: None,
            next: None,
            seen: Properties {
                seqno_min: SeqNo::MAX,
                ..Properties::default()
            },
            reads_most: 0,
        }
    }

    /// Moves to the first entry. REQUIRES: the iterator was not moved yet.
    ///
    /// # Errors
    /// `Corruption` and `Io`, as for `next`.
    pub fn first(&mut self) -> Result<()> {
        self.enter()?;
        self.count();
        Ok(())
    }

    /// The read that `first` or the next `next` waits for, if it is not known to have completed.
    pub fn wants(&mut self) -> Option<&mut Pending> {
        let at = match &self.cursor {
            None => self.at,
            Some(cursor) if cursor.ends().1 => self.at + 1,
            Some(_) => return None,
        };
        let number = *self.blocks.get(at)?;
        if self.is_large(number) {
            return None;
        }
        let holds = |ahead: &Option<Ahead>| ahead.as_ref().is_some_and(|a| a.places.contains(&at));
        let ahead = if holds(&self.held) {
            &mut self.held
        } else {
            if !holds(&self.next) {
                self.next = Some(self.look_ahead(at, Vec::new()));
            }
            &mut self.next
        };
        let ahead = ahead.as_mut()?;
        let is_cached = ahead.cached.iter().any(|(place, _)| *place == at);
        match is_cached {
            true => None,
            false => ahead.window.wants(&self.table, number),
        }
    }

    /// True if the cursor is on an entry.
    pub fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(BlockIter::valid)
    }

    /// The user key under the cursor. REQUIRES: `valid`.
    pub fn key(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], BlockIter::key)
    }

    /// The tag under the cursor. REQUIRES: `valid`.
    pub fn tag(&self) -> Tag {
        self.cursor.as_ref().map_or(Tag(0), BlockIter::tag)
    }

    /// The value under the cursor. REQUIRES: `valid`.
    pub fn value(&self) -> &[u8] {
        self.cursor
            .as_ref()
            .map_or(&[], |cursor| cursor.block().value(&cursor.value_range()))
    }

    /// Moves to the next entry. REQUIRES: `valid`.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file.
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor's `next` borrows its entry"
    )]
    pub fn next(&mut self) -> Result<()> {
        self.within(BlockIter::next)?;
        if !self.valid() && self.at < self.blocks.len() {
            self.at += 1;
            self.enter()?;
        }
        self.count();
        Ok(())
    }

    /// Counts of all entries that the cursor has visited.
    pub fn seen(&self) -> &Properties {
        &self.seen
    }

    /// The largest number of reads that were in flight at the same time.
    pub fn reads_most(&self) -> usize {
        self.reads_most
    }

    fn count(&mut self) {
        if let Some(cursor) = self.cursor.as_ref().filter(|cursor| cursor.valid()) {
            self.seen.count(
                cursor.key(),
                cursor.tag(),
                cursor.block().value(&cursor.value_range()),
            );
        }
    }

    fn within(
        &mut self,
        step: impl FnOnce(&mut BlockIter) -> Result<(), super::block_iter::Damaged>,
    ) -> Result<()> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(());
        };
        if step(cursor).is_err() {
            self.cursor = None;
            return Err(self.table.damaged(self.blocks[self.at], "entries in order"));
        }
        Ok(())
    }

    /// Moves the cursor to the first entry of the block at `at`; to none if there is no such block.
    fn enter(&mut self) -> Result<()> {
        if self.at >= self.blocks.len() {
            self.cursor = None;
            return Ok(());
        }
        let block = self.load().inspect_err(|_| self.cursor = None)?;
        match &mut self.cursor {
            Some(cursor) => cursor.reset(block),
            None => self.cursor = Some(BlockIter::new(block)),
        }
        self.within(BlockIter::first)
    }

    fn load(&mut self) -> Result<Arc<Block>> {
        let number = self.blocks[self.at];
        if !self
            .held
            .as_ref()
            .is_some_and(|held| held.places.contains(&self.at))
        {
            let used = self
                .held
                .take()
                .map(|held| held.window.into_buffers())
                .unwrap_or_default();
            let (held, spare) = match self.next.take() {
                Some(next) => (next, used),
                None => (self.look_ahead(self.at, used), Vec::new()),
            };
            let behind = held.places.end;
            if self
                .blocks
                .get(behind)
                .is_some_and(|&number| !self.alone && !self.is_large(number))
            {
                self.next = Some(self.look_ahead(behind, spare));
            }
            let reads =
                held.window.reads() + self.next.as_ref().map_or(0, |next| next.window.reads());
            self.reads_most = self.reads_most.max(reads);
            self.held = Some(held);
        }
        let Some(held) = &mut self.held else {
            return self.table.load(number, self.cause);
        };
        if let Ok(at) = held
            .cached
            .binary_search_by_key(&self.at, |(place, _)| *place)
        {
            return Ok(held.cached[at].1.clone());
        }
        if held.places.len() == 1
            && self.is_large(number)
            && let Some(held) = self.held.take()
        {
            return self
                .table
                .decode_own(number, held.window.into_only()?)
                .map(Arc::new);
        }
        let Some(held) = &mut self.held else {
            return self.table.load(number, self.cause);
        };
        let stored = held.window.stored(&self.table, number)?;
        self.table.decode(number, stored).map(Arc::new)
    }

    /// True if a block is larger than the bytes in flight at a time. Such a block is read alone,
    /// and only when it is needed.
    fn is_large(&self, number: usize) -> bool {
        self.table.index().handle(number).stored_len as usize > self.stretch_bytes
    }

    /// Starts reading the blocks from position `from` on, as many as allowed; only one if reads go
    /// alone.
    fn look_ahead(&self, from: usize, spare: Vec<IoBuf>) -> Ahead {
        let (index, cache) = (self.table.index(), &self.table.context().cache);
        let (mut cached, mut wanted, mut stored) = (Vec::new(), Vec::new(), 0);
        let places_max = if self.alone { 1 } else { BLOCKS_MAX };
        let mut end = from;
        for &number in self.blocks[from..].iter().take(places_max) {
            let handle = index.handle(number);
            // Cached blocks count too: the cache may evict them, but they stay in memory here.
            stored += handle.stored_len as usize;
            if end > from && (stored > self.stretch_bytes || self.is_large(number)) {
                break;
            }
            match cache.peek(self.table.id(), handle.offset) {
                Some(block) => cached.push((end, block)),
                None => wanted.push(number),
            }
            end += 1;
        }
        Ahead {
            places: from..end,
            cached,
            window: Window::submit(&self.table, wanted, self.cause, spare),
        }
    }
}
