//! Reads blocks of a file by their handles, which an open table's index or a tree in persistent
//! memory has. Needs nothing of the table but its file.
//!
//! 1. No block is decoded before its checksum matched, and a hostile handle allocates no more than
//!    a block may have.
//! 2. (file, offset) is the key of a block in the cache, so it does not matter who brought it.
//!
//! Thread safety: `Send + Sync`; readers share it without a lock.

use super::block::{Block, BlockView, Lookup};
use super::compress::Codec;
use super::index::BlockHandle;
use super::read::Query;
use crate::admission::Admission;
use crate::cache::BlockCache;
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
        /// True if the entry is to be kept as a row, if it is the newest of the key.
        keeps_row: bool,
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

/// The result of a search of a block.
struct Searched {
    /// `None` if the block is damaged.
    entry: Option<Entry>,
    /// The size of the block in bytes.
    block_bytes: usize,
    /// True if it was not in the cache.
    read: bool,
}

enum Entry {
    Found(Tag, Value),
    Absent,
    PastEnd,
}

impl Searched {
    // Inlined, because its result is large, and would be copied once more.
    #[inline(always)]
    fn of(bytes: &[u8], query: &Query<'_>, read: bool) -> Searched {
        let search = || {
            let block = BlockView::new(bytes)?;
            Some(match block.get(query.key, Tag::seek(query.seqno))? {
                Lookup::Found(tag, range) => Entry::Found(tag, Value::copied(block.value(&range))),
                Lookup::Absent => Entry::Absent,
                Lookup::PastEnd => Entry::PastEnd,
            })
        };
        Searched {
            entry: search(),
            block_bytes: bytes.len(),
            read,
        }
    }
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
        let searched = match self.search_cached(handle.offset, query) {
            Some(searched) => searched,
            None => {
                let block = self.read(handle, Cause::UserRead)?;
                self.search_read(handle, &block, query)
            }
        };
        self.answer(handle, searched, query)
    }

    /// Like [`BlockReader::get`], but starts a read instead of waiting for it.
    ///
    /// # Errors
    /// As `get`.
    pub fn begin_get(&self, handle: &BlockHandle, query: &Query<'_>) -> Result<BlockStep> {
        if let Some(searched) = self.search_cached(handle.offset, query) {
            return self.answer(handle, searched, query).map(BlockStep::Done);
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
        let block = self.decode(&handle, buf.bytes())?;
        let searched = self.search_read(&handle, &block, query);
        self.answer(&handle, searched, query)
    }

    // Inlined, because its answer is large, and would be copied once more.
    #[inline(always)]
    fn answer(&self, handle: &BlockHandle, of: Searched, query: &Query<'_>) -> Result<BlockGot> {
        let read = of.read;
        let damaged = || self.damaged(handle.offset, "entries in order");
        match of.entry.ok_or_else(damaged)? {
            Entry::Found(tag, value) => {
                let bytes = query.key.len() + value.len();
                let keeps_row = match (read, self.leaves_block(handle.offset, query)) {
                    (_, false) => true,
                    (true, true) => false,
                    (false, true) => self.keeps_row(handle.offset, query, of.block_bytes, bytes),
                };
                Ok(BlockGot::Found {
                    tag,
                    value,
                    keeps_row,
                })
            }
            Entry::Absent => Ok(BlockGot::Absent { read }),
            Entry::PastEnd => Ok(BlockGot::PastEnd { read }),
        }
    }

    /// Searches a block in place if it is cached. If a row is kept instead, the lookup does not
    /// protect the block from eviction.
    #[inline]
    fn search_cached(&self, offset: u64, query: &Query<'_>) -> Option<Searched> {
        let keeps_row = !self.leaves_block(offset, query);
        let search = |bytes: &[u8]| Searched::of(bytes, query, false);
        self.context
            .cache
            .search(self.id, offset, keeps_row, search)
    }

    /// Searches a block that was read, and caches it if [`BlockReader::leaves_block`] says so.
    fn search_read(&self, handle: &BlockHandle, block: &Block, query: &Query<'_>) -> Searched {
        let (offset, cache) = (handle.offset, &self.context.cache);
        if self.leaves_block(offset, query) {
            if query.rows && Admission::is_sampled(self.id, offset) {
                let admission = cache.admission();
                admission.began(self.id, offset, query.hash, cache.age());
            }
            cache.insert(self.id, offset, block.bytes());
        }
        Searched::of(block.bytes(), query, true)
    }

    /// True if a get caches the block at `offset`: if the caller keeps no rows, if there is room,
    /// if blocks are preferred, or if this block is observed.
    #[inline]
    fn leaves_block(&self, offset: u64, query: &Query<'_>) -> bool {
        !query.rows
            || self.context.cache.has_room()
            || self.context.cache.admission().prefers_blocks()
            || Admission::is_sampled(self.id, offset)
    }

    /// True if the entry of `bytes` bytes, found in a cached block of `block_bytes`, is to be kept
    /// as a row.
    fn keeps_row(&self, offset: u64, query: &Query<'_>, block_bytes: usize, bytes: usize) -> bool {
        if !query.rows {
            return false;
        }
        let cache = &self.context.cache;
        if Admission::is_sampled(self.id, offset) {
            let (block, entry) = (BlockCache::cost(block_bytes), BlockCache::cost(bytes));
            let at = (self.id, offset);
            let admission = cache.admission();
            admission.found(at, query.hash, cache.age(), block, entry);
        }
        // A row beside its cached block must be much smaller to be worth it.
        2 * bytes < block_bytes && cache.was_looked_up_before(query.hash)
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
        cache.insert(self.id, handle.offset, loaded.bytes());
        Ok(Arc::new(loaded))
    }

    fn read(&self, handle: &BlockHandle, cause: Cause) -> Result<Block> {
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
            return self.decode_own(handle, buf);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            read(scratch)?;
            self.decode(handle, scratch.bytes())
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
