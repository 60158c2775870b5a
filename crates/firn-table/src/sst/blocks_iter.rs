//! A cursor over some blocks of a table, forward only, for a merge that knows which ones it needs: their reads go on at
//! the same time (BlockDB, III-C), those of near neighbours in one. What the block cache has is not read.

use super::block::Block;
use super::block_iter::BlockIter;
use super::properties::Properties;
use super::read::Sst;
use firn_base::count::Cause;
use firn_base::{Result, SeqNo, Tag};
use firn_fs::{IoBuf, Pending};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Reads in flight at most.
const READS_MAX: usize = 16;
/// Bytes that are read for nothing rather than read around: about what a device moves in the time that one more read
/// takes it (250 MB/s and 16,000 reads per second of a cloud disk: 15.6 KB), and less than that read costs a processor.
const GAP_MAX: u64 = 16 << 10;

/// Blocks that lie one behind the other, or nearly: places in `blocks`, and where the first lies in the file.
struct Stretch {
    places: Range<usize>,
    offset: u64,
}

/// What comes next.
enum Ahead {
    Cached(Arc<Block>),
    Read(Stretch, Pending),
}

/// A position in one of the blocks, or none.
pub struct BlocksIter {
    table: Arc<Sst>,
    blocks: Arc<[usize]>,
    cause: Cause,
    /// Bytes in one read.
    stretch_bytes: usize,
    reads_max: usize,
    /// Place in `blocks` of the block under the cursor.
    at: usize,
    cursor: Option<BlockIter>,
    queue: VecDeque<Ahead>,
    /// The first place that is not in the queue yet.
    ahead: usize,
    held: Option<(Stretch, IoBuf)>,
    seen: Properties,
    reads_most: usize,
}

impl BlocksIter {
    /// On the first entry of `blocks`, whose numbers ascend. With `alone`, one read goes on at a time.
    ///
    /// # Errors
    /// `Corruption` and `Io`, as for `next`.
    pub fn new(
        table: Arc<Sst>,
        blocks: Arc<[usize]>,
        stretch_bytes: usize,
        cause: Cause,
        alone: bool,
    ) -> Result<BlocksIter> {
        let mut iter = BlocksIter {
            table,
            blocks,
            cause,
            stretch_bytes,
            reads_max: if alone { 1 } else { READS_MAX },
            at: 0,
            cursor: None,
            queue: VecDeque::new(),
            ahead: 0,
            held: None,
            seen: Properties { seqno_min: SeqNo::MAX, ..Properties::default() },
            reads_most: 0,
        };
        iter.enter()?;
        iter.count();
        Ok(iter)
    }

    /// Whether the cursor is on an entry.
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
        self.cursor.as_ref().map_or(&[], |cursor| cursor.block().value(&cursor.value_range()))
    }

    /// Goes to the next entry. REQUIRES: `valid`.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file.
    #[expect(clippy::should_implement_trait, reason = "a cursor's `next` borrows its entry")]
    pub fn next(&mut self) -> Result<()> {
        self.within(BlockIter::next)?;
        if !self.valid() && self.at < self.blocks.len() {
            self.at += 1;
            self.enter()?;
        }
        self.count();
        Ok(())
    }

    /// Counts of all entries that the cursor was on.
    pub fn seen(&self) -> &Properties {
        &self.seen
    }

    /// How many reads went on at the same time, at most.
    pub fn reads_most(&self) -> usize {
        self.reads_most
    }

    fn count(&mut self) {
        if let Some(cursor) = self.cursor.as_ref().filter(|cursor| cursor.valid()) {
            self.seen.count(cursor.key(), cursor.tag(), cursor.block().value(&cursor.value_range()));
        }
    }

    fn within(&mut self, step: impl FnOnce(&mut BlockIter) -> Result<(), super::block_iter::Damaged>) -> Result<()> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        if step(cursor).is_err() {
            self.cursor = None;
            return Err(self.table.damaged(self.blocks[self.at], "entries in order"));
        }
        Ok(())
    }

    /// Puts the cursor on the first entry of the block at `at`; on nothing if there is no such block.
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
        let handle = self.table.index().handle(number);
        if !self.held.as_ref().is_some_and(|(stretch, _)| stretch.places.contains(&self.at)) {
            let spare = self.held.take().map(|(_, buf)| buf);
            self.look_ahead(spare.unwrap_or_default());
            match self.queue.pop_front() {
                Some(Ahead::Cached(block)) => return Ok(block),
                Some(Ahead::Read(stretch, pending)) => self.held = Some((stretch, pending.wait()?)),
                None => {}
            }
        }
        let stored = self.held.as_ref().and_then(|(stretch, buf)| {
            let at = (handle.offset - stretch.offset) as usize;
            buf.bytes().get(at..at + handle.stored_len as usize)
        });
        let stored = stored.ok_or_else(|| self.table.damaged(number, "a block; the file ends before it"))?;
        self.table.decode(number, stored).map(Arc::new)
    }

    /// Puts reads in flight, as many as may be; the first into `spare`.
    fn look_ahead(&mut self, mut spare: IoBuf) {
        let index = self.table.index();
        let cache = &self.table.context().cache;
        while self.queue.len() < self.reads_max && self.ahead < self.blocks.len() {
            let first = self.ahead;
            let offset = index.handle(self.blocks[first]).offset;
            if let Some(block) = cache.peek(self.table.id(), offset) {
                self.queue.push_back(Ahead::Cached(block));
                self.ahead += 1;
                continue;
            }
            let (mut end, mut len) = (first, 0);
            while let Some(&number) = self.blocks.get(end) {
                let handle = index.handle(number);
                let gap = handle.offset.checked_sub(offset + len as u64).filter(|&gap| gap <= GAP_MAX);
                let Some(reach) = gap.map(|gap| len + gap as usize + handle.stored_len as usize) else { break };
                if len > 0 && reach > self.stretch_bytes {
                    break;
                }
                len = reach;
                end += 1;
            }
            self.table.context().counters.read(self.cause, len);
            let pending = self.table.file().submit_read(offset, len, std::mem::take(&mut spare));
            self.queue.push_back(Ahead::Read(Stretch { places: first..end, offset }, pending));
            self.ahead = end;
        }
        let reads = self.queue.iter().filter(|ahead| matches!(ahead, Ahead::Read(..))).count();
        self.reads_most = self.reads_most.max(reads);
    }
}
