//! Reads blocks of a file by their handles, which an open table's index or a tree in persistent
//! memory has. Needs nothing of the table but its file.
//!
//! 1. No block is decoded before its checksum matched, and a hostile handle allocates no more than
//!    a block may have.
//! 2. (file, offset) is the key of a block in the cache, so it does not matter who brought it.
//!
//! Thread safety: `Send + Sync`; readers share it without a lock.

use super::block::{Block, Lookup};
use super::compress::Codec;
use super::index::BlockHandle;
use super::read::Query;
use crate::admission::Admission;
use crate::cache::{BlockCache, Row};
use crate::context::TableContext;
use crate::sites;
use crate::value::Value;
use firn_base::checksum::{crc32c, matches};
use firn_base::count::Cause;
use firn_base::{Error, FileId, Result, Tag};
use firn_fs::{File, IoBuf, LARGE_BYTES, Pending};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The buffer for a block until it is checked and decoded.
    pub(super) static SCRATCH: RefCell<IoBuf> = RefCell::new(IoBuf::default());
}

/// Reads blocks of one file.
#[derive(Clone)]
pub struct BlockReader {
    file: Arc<dyn File>,
    id: FileId,
    context: TableContext,
}

/// The answer of one block to a get.
pub enum BlockGot {
    /// The newest entry at or below the read point.
    Found {
        /// Its sequence number and kind.
        tag: Tag,
        /// Its value.
        value: Value,
        /// The row to keep if this is the newest entry of the key.
        row: Option<Row>,
    },
    /// Neither this block nor a later one of its run has an entry that the read point sees.
    Absent {
        /// True if the block came from disk, not from the cache.
        read: bool,
    },
    /// This block has no such entry, and ends before the place where a next one would be. So the
    /// next block of its run may have it.
    PastEnd {
        /// True if the block came from disk, not from the cache.
        read: bool,
    },
}

/// The state of a get in a block that does not wait for the device.
pub enum BlockStep {
    /// The answer.
    Done(BlockGot),
    /// The block is being read; continue with [`BlockReader::finish_get`].
    Pending(PendingRead),
}

/// The read of a block in flight.
pub struct PendingRead {
    handle: BlockHandle,
    pending: Pending,
}

/// A block loaded for a get.
struct Loaded {
    block: Arc<Block>,
    /// True if it was not in the cache.
    read: bool,
}

impl BlockReader {
    /// A reader of `file`, known as `id`.
    pub fn new(file: Arc<dyn File>, id: FileId, context: TableContext) -> BlockReader {
        BlockReader { file, id, context }
    }

    /// The file's id.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub(super) fn context(&self) -> &TableContext {
        &self.context
    }

    /// Looks up the newest entry of the key at or below the read point in one block.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file.
    #[inline]
    pub fn get(&self, handle: &BlockHandle, query: &Query<'_>) -> Result<BlockGot> {
        let loaded = match self.cached_for_get(handle.offset, query) {
            Some(block) => Loaded { block, read: false },
            None => {
                let block = self.read(handle, Cause::UserRead)?;
                self.leave_for_get(handle, &block, query);
                Loaded { block, read: true }
            }
        };
        self.search(handle, loaded, query)
    }

    /// Like [`BlockReader::get`], but starts a read instead of waiting for it.
    ///
    /// # Errors
    /// As `get`.
    pub fn begin_get(&self, handle: &BlockHandle, query: &Query<'_>) -> Result<BlockStep> {
        if let Some(block) = self.cached_for_get(handle.offset, query) {
            let found = self.search(handle, Loaded { block, read: false }, query);
            return found.map(BlockStep::Done);
        }
        let len = handle.stored_len as usize;
        self.context.counters.read(Cause::UserRead, len);
        let pending = self.file.submit_read(handle.offset, len, IoBuf::default());
        let handle = *handle;
        Ok(BlockStep::Pending(PendingRead { handle, pending }))
    }

    /// Completes a get begun by [`BlockReader::begin_get`].
    ///
    /// # Errors
    /// As `get`.
    pub fn finish_get(&self, pending: PendingRead, query: &Query<'_>) -> Result<BlockGot> {
        let PendingRead { handle, pending } = pending;
        let user = self.context.counters.begin_user_read();
        let buf = pending.wait()?;
        drop(user);
        let block = Arc::new(self.decode(&handle, buf.bytes())?);
        self.leave_for_get(&handle, &block, query);
        self.search(&handle, Loaded { block, read: true }, query)
    }

    // Inlined, because its answer is large, and would be copied once more.
    #[inline(always)]
    fn search(&self, handle: &BlockHandle, at: Loaded, query: &Query<'_>) -> Result<BlockGot> {
        let (key, read) = (query.key, at.read);
        let lookup = at.block.get(key, Tag::seek(query.seqno));
        match lookup.ok_or_else(|| self.damaged(handle.offset, "entries in order"))? {
            Lookup::Found(tag, range) => {
                let keeps = self.keeps_row(handle.offset, &at, query, key.len() + range.len());
                let row = keeps.then(|| Row::of(&at.block, key, tag, range.clone()));
                let value = Value::pinned(at.block, range.start, range.len());
                Ok(BlockGot::Found { tag, value, row })
            }
            Lookup::Absent => Ok(BlockGot::Absent { read }),
            Lookup::PastEnd => Ok(BlockGot::PastEnd { read }),
        }
    }

    /// Looks up a block in the cache for a get. If a row is kept instead, the lookup does not
    /// protect the block from eviction.
    #[inline]
    fn cached_for_get(&self, offset: u64, query: &Query<'_>) -> Option<Arc<Block>> {
        match self.leaves_block(offset, query) {
            true => self.context.cache.get(self.id, offset),
            false => self.context.cache.look(self.id, offset),
        }
    }

    /// True if a get caches the block at `offset`: if the caller keeps no rows, if blocks are
    /// preferred, or if this block is observed.
    #[inline]
    fn leaves_block(&self, offset: u64, query: &Query<'_>) -> bool {
        !query.rows
            || self.context.cache.admission().prefers_blocks()
            || Admission::is_sampled(self.id, offset)
    }

    /// Caches a block read by a get, if [`BlockReader::leaves_block`] says so.
    fn leave_for_get(&self, handle: &BlockHandle, block: &Arc<Block>, query: &Query<'_>) {
        let offset = handle.offset;
        if self.leaves_block(offset, query) {
            block.touch(query.hash);
            block.begin(query.hash, self.context.cache.age());
            self.context.cache.insert(self.id, offset, block.clone());
        }
    }

    /// True if the entry of `bytes` bytes found in a block is to be kept as a row.
    fn keeps_row(&self, offset: u64, at: &Loaded, query: &Query<'_>, bytes: usize) -> bool {
        if !self.leaves_block(offset, query) {
            return true;
        }
        if at.read || !query.rows {
            return false;
        }
        let again = at.block.touch(query.hash);
        if Admission::is_sampled(self.id, offset) && at.block.is_young(self.context.cache.age()) {
            let (admission, cost) = (self.context.cache.admission(), BlockCache::cost);
            match at.block.was_read_for(query.hash) {
                true if at.block.touch_again() => {}
                true => admission.found_again(cost(at.block.len()), cost(bytes)),
                false if again => {}
                false => admission.found_another(),
            }
        }
        // A row beside its cached block must be much smaller to be worth it.
        again && 2 * bytes < at.block.len()
    }

    /// The block, from the cache or the file.
    pub(super) fn load(&self, handle: &BlockHandle, cause: Cause) -> Result<Arc<Block>> {
        if let Some(found) = self.context.cache.get(self.id, handle.offset) {
            return Ok(found);
        }
        self.load_missed(handle, cause)
    }

    /// Reads the block, which is not cached, from the file, and caches it.
    pub(super) fn load_missed(&self, handle: &BlockHandle, cause: Cause) -> Result<Arc<Block>> {
        let loaded = self.read(handle, cause)?;
        let cache = &self.context.cache;
        cache.insert(self.id, handle.offset, loaded.clone());
        Ok(loaded)
    }

    fn read(&self, handle: &BlockHandle, cause: Cause) -> Result<Arc<Block>> {
        let len = handle.stored_len as usize;
        let counters = &self.context.counters;
        counters.read(cause, len);
        let read = |into: &mut IoBuf| {
            let _user = (cause == Cause::UserRead).then(|| counters.begin_user_read());
            self.file.read(handle.offset, len, into)
        };
        if len >= LARGE_BYTES {
            // A thread keeps its buffer forever, so a large block gets a buffer of its own.
            let mut buf = IoBuf::default();
            read(&mut buf)?;
            return self.decode_own(handle, buf).map(Arc::new);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            read(scratch)?;
            self.decode(handle, scratch.bytes()).map(Arc::new)
        })
    }

    /// Like [`BlockReader::decode`], for a block that is alone in its buffer. Large memory is given
    /// back on the way.
    pub(super) fn decode_own(&self, handle: &BlockHandle, stored: IoBuf) -> Result<Block> {
        if handle.codec != Codec::None || handle.raw_len != handle.stored_len {
            return self.decode(handle, stored.bytes());
        }
        self.check(handle, stored.bytes())?;
        let block = Block::new(stored.into_bytes());
        block.ok_or_else(|| self.damaged(handle.offset, "a block"))
    }

    /// Checks and decodes the stored bytes of a block.
    pub(super) fn decode(&self, handle: &BlockHandle, stored: &[u8]) -> Result<Block> {
        self.check(handle, stored)?;
        let what = "a block that decompresses to its declared length";
        handle
            .codec
            .decompress(stored, handle.raw_len as usize)
            .and_then(Block::new)
            .ok_or_else(|| self.damaged(handle.offset, what))
    }

    fn check(&self, handle: &BlockHandle, stored: &[u8]) -> Result<()> {
        if stored.len() != handle.stored_len as usize {
            return Err(self.damaged(handle.offset, "a block; the file ends before it"));
        }
        if !matches(&sites::SST_BLOCK_CHECK, handle.crc, || crc32c(stored)) {
            let what = format!("a block with checksum {:#010x}", handle.crc);
            return Err(self.damaged(handle.offset, &what));
        }
        Ok(())
    }

    /// The error for damage in the block at `offset`.
    pub(super) fn damaged(&self, offset: u64, expected: &str) -> Error {
        let place = self.file.path().display();
        Error::corruption(place, offset, format_args!("expected {expected}"))
    }
}

impl std::fmt::Debug for BlockReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockReader({})", self.id)
    }
}
