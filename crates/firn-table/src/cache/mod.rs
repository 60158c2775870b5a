//! The block cache: blocks by (file, offset), rows by the hash of their key, and values of logs by
//! (log, offset). Bounded by bytes.
//!
//! (file, offset) identifies a block forever, because an append never reuses the offset of a block
//! that was read. So an entry may be old but never wrong, and blocks that a compaction leaves clean
//! stay cached.
//!
//! A row is a single entry. With a skewed workload, a reader wants one entry of most blocks, and
//! several times more rows than blocks fit into the same memory. The owner of a row defines its
//! meaning and how long it is valid. `admission.rs` decides whether a get inserts its row or its
//! block here.
//!
//! Entries are bytes in memory that the cache owns ([`log`]), so what it counts is what the process
//! has. Readers copy what they need, and keep nothing of it from being used again. `shard.rs` has
//! the policy, and `docs/design/cache.md` what it was chosen from.
//!
//! Thread safety: `Send + Sync`. A lookup takes the lock of one shard for reading.

mod index;
mod log;
mod shard;

use crate::admission::Admission;
use crate::sst::Block;
use crate::value::Value;
use firn_base::coding::{get_u16, get_u64};
use firn_base::count::Counter;
use firn_base::exec::give_way;
use firn_base::seed::mix;
use firn_base::sync::{AtomicBool, AtomicU64, Ordering};
use firn_base::{FileId, Tag};
use index::Hash;
use log::{Content, HEADER_BYTES, Kind, NOTE_MAX, PAYLOAD_BYTES_MAX, SEGMENT_BYTES_MAX};
use shard::Shard;
use std::sync::Arc;

/// Marks a value of a log, as opposed to a block of a table. No file has an id with this bit.
const VALUE: u64 = 1 << 62;
/// Marks the hash of a row.
const ROW: u64 = 1 << 63;
/// Units of age in the time it takes to fill the cache once.
const AGES_A_FILL: u64 = 8;

/// The maximum size of a shard in bytes: what a place in it can address. There are many shards
/// because a thread that is preempted while it holds a shard's lock keeps the others out of that
/// shard. Their number depends only on the cache's size, so evictions are the same on any machine.
const SHARD_BYTES: u64 = 16 << 20;
/// The bytes by which a shard shrinks at a time, because readers wait meanwhile.
const RESIZE_STEP: u64 = 256 << 10;
/// The bytes by which one of several shards becomes larger or smaller: a segment.
const RESIZE_UNIT: u64 = SEGMENT_BYTES_MAX as u64;
/// The minimum number of entries for which the cache, and a shard, must have room.
const FEW: u64 = 8;
const FEW_OF_SHARD: u64 = 4;
// A payload has a few bytes in front of what is admitted.
const _: () = assert!(SHARD_BYTES / FEW_OF_SHARD < PAYLOAD_BYTES_MAX as u64 - (1 << 10));

/// (file, offset) of a block, in front of its bytes.
const BLOCK_HEADER_BYTES: usize = 16;
/// The tag of a row, in front of key and value. The length of the key is the entry's note.
const ROW_HEADER_BYTES: usize = 8;
/// The note of a row whose key is longer than a note can say: a length follows the tag.
const LONG_KEY: u8 = NOTE_MAX;
const LONG_KEY_BYTES: usize = 2;
/// The approximate bytes of an entry in the index.
const INDEX_BYTES: usize = 12;

/// The blocks shared by all readers of a database. Sharded. Each shard is a cache of its own, so a
/// thread that shrinks all of them can yield between two shards.
pub struct BlockCache {
    shards: Box<[Shard]>,
    bytes_max: AtomicU64,
    hits: Counter,
    misses: Counter,
    /// True if a reader ever inserted something.
    is_read: AtomicBool,
    /// True if an entry had to go for another since the cache was last made larger.
    is_full: AtomicBool,
    /// Bytes inserted by gets and cursors so far.
    brought: AtomicU64,
    admission: Admission,
}

impl BlockCache {
    /// A cache that never has more than `bytes`, and may be made smaller.
    pub fn new(bytes: u64) -> Self {
        let count = bytes.div_ceil(SHARD_BYTES).max(1);
        let shard = |i| Shard::new(share_of_shard(bytes, i, count));
        Self {
            shards: (0..count).map(shard).collect(),
            bytes_max: AtomicU64::new(bytes),
            hits: Counter::default(),
            misses: Counter::default(),
            is_read: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            brought: AtomicU64::new(0),
            admission: Admission::default(),
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> (&Shard, Hash) {
        let shard = ((hash >> 32) * self.shards.len() as u64) >> 32;
        (&self.shards[shard as usize], Hash(hash as u32))
    }

    #[inline]
    fn shard_of_block(&self, file: FileId, offset: u64) -> (&Shard, Hash) {
        self.shard(mix(mix(file.0).rotate_left(5) ^ offset))
    }

    #[inline]
    fn shard_of_row(&self, hash: u64) -> (&Shard, Hash) {
        self.shard(mix(hash ^ ROW))
    }

    /// Calls `read` with the bytes of the block at `offset` of `file`, if cached. If `counts`, this
    /// is an access, which protects the block from eviction.
    #[inline]
    fn read_block<R>(
        &self,
        (file, offset): (FileId, u64),
        counts: bool,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let (shard, hash) = self.shard_of_block(file, offset);
        let mut read = Some(read);
        shard.read(hash, Kind::Block, counts, |_, payload| {
            let (header, bytes) = payload.split_at_checked(BLOCK_HEADER_BYTES)?;
            let is_it = get_u64(header, 0)? == file.0 && get_u64(header, 8)? == offset;
            is_it.then(|| read.take()).flatten().map(|read| read(bytes))
        })
    }

    fn count(&self, is_hit: bool) {
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.add(1);
    }

    /// A copy of the block at `offset` of `file`, if cached.
    pub fn get(&self, file: FileId, offset: u64) -> Option<Arc<Block>> {
        let found = self.read_block((file, offset), true, copy_of_block);
        self.count(found.is_some());
        found.flatten()
    }

    /// As [`BlockCache::get`], for a reader that had the block read ahead itself. No access,
    /// because that reader would find the block whatever stays in the cache.
    pub(crate) fn get_read_ahead(&self, file: FileId, offset: u64) -> Option<Arc<Block>> {
        let found = self.peek(file, offset);
        self.count(found.is_some());
        found
    }

    /// A copy of the block at `offset` of `file`, if cached, for a reader that reads it only once.
    /// Counts as neither hit nor miss and does not affect eviction.
    pub(crate) fn peek(&self, file: FileId, offset: u64) -> Option<Arc<Block>> {
        self.read_block((file, offset), false, copy_of_block)
            .flatten()
    }

    /// True if the block at `offset` of `file` is cached. Does not affect eviction.
    pub fn has(&self, file: FileId, offset: u64) -> bool {
        self.read_block((file, offset), false, |_| ()).is_some()
    }

    /// Calls `search` with the bytes of the block at `offset` of `file`, if cached. If the reader
    /// keeps a row of what it finds there instead, as `keeps_row` says, this is no access.
    #[inline]
    pub(crate) fn search<R>(
        &self,
        file: FileId,
        offset: u64,
        keeps_row: bool,
        search: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let found = self.read_block((file, offset), !keeps_row, search);
        self.count(found.is_some());
        found
    }

    /// The newest entry of `key`, if there is a row for its hash that is of this key and whose tag
    /// is not above `tag`. A missing row does not count as a miss, because its block is looked up
    /// next.
    #[inline]
    pub fn get_row(&self, key: &[u8], hash: u64, tag: Tag) -> Option<(Tag, Value)> {
        let (shard, hash) = self.shard_of_row(hash);
        let found = shard.read(hash, Kind::Row, true, |key_len, payload| {
            let its_tag = Tag(get_u64(payload, 0)?);
            let (header, key_len) = match key_len {
                LONG_KEY => (
                    ROW_HEADER_BYTES + LONG_KEY_BYTES,
                    get_u16(payload, ROW_HEADER_BYTES)?.into(),
                ),
                short => (ROW_HEADER_BYTES, short.into()),
            };
            let (its_key, value) = payload.get(header..)?.split_at_checked(key_len)?;
            let is_it = its_tag <= tag && its_key == key;
            is_it.then(|| (its_tag, Value::copied(value)))
        })?;
        self.hits.add(1);
        Some(found)
    }

    /// True if a row of the key with this hash is cached. Does not affect eviction.
    pub fn has_row(&self, hash: u64) -> bool {
        let (shard, hash) = self.shard_of_row(hash);
        shard
            .read(hash, Kind::Row, false, |_, _| Some(()))
            .is_some()
    }

    /// True if the row of the key with this hash was looked up before its last lookup.
    pub(crate) fn was_looked_up_before(&self, hash: u64) -> bool {
        let (shard, hash) = self.shard_of_row(hash);
        shard.frequency(hash, Kind::Row) > 1
    }

    /// Inserts an entry as the row of its key, if the cache admits it. It had `lookups` elsewhere
    /// before.
    pub fn insert_row(&self, key: &[u8], hash: u64, tag: Tag, value: &[u8], lookups: u8) {
        if !self.admits_row(key, value) {
            return;
        }
        self.note_read();
        self.brought
            .fetch_add(Self::cost(key.len() + value.len()), Ordering::Relaxed);
        let (shard, hash) = self.shard_of_row(hash);
        let is_full = with_row((key, tag, value), lookups, |row| shard.insert(hash, row));
        self.note_full(is_full);
    }

    /// Notes, before something is inserted, that the database is read.
    fn note_read(&self) {
        if !self.is_read() {
            self.is_read.store(true, Ordering::Release);
        }
    }

    fn note_full(&self, is_full: bool) {
        if is_full && self.has_room() {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    /// True if there is room for more without dropping anything. Memory that nobody needs is best
    /// used for whole blocks, of which no further read is needed for their other entries.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full.load(Ordering::Relaxed)
    }

    /// Replaces the row with this hash, if still cached. A row that the cache does not admit is
    /// removed. It had `lookups` elsewhere, which count here.
    pub fn replace_row(&self, key: &[u8], hash: u64, tag: Tag, value: &[u8], lookups: u8) {
        let (shard, hash) = self.shard_of_row(hash);
        match self.admits_row(key, value) {
            true => with_row((key, tag, value), lookups, |row| shard.replace(hash, row)),
            false => drop(shard.remove(hash, Kind::Row)),
        }
    }

    /// True if the cache admits a row.
    fn admits_row(&self, key: &[u8], value: &[u8]) -> bool {
        key.len() <= u16::MAX.into() && self.admits(key.len() + value.len())
    }

    /// True if anything was ever inserted. If not, there is no row to be replaced, and no reader to
    /// keep one for.
    pub fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    /// True if rows serve gets better than blocks, as observed so far.
    pub fn prefers_rows(&self) -> bool {
        !self.admission.prefers_blocks()
    }

    /// The observations of cached blocks.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The age of the cache, in units of [`AGES_A_FILL`] per fill.
    pub(crate) fn age(&self) -> u64 {
        AGES_A_FILL * self.brought.load(Ordering::Relaxed)
            / self.bytes_max.load(Ordering::Relaxed).max(1)
    }

    /// The cost of an entry of `bytes` bytes, in bytes.
    pub(crate) fn cost(bytes: usize) -> u64 {
        (bytes + HEADER_BYTES + BLOCK_HEADER_BYTES + INDEX_BYTES) as u64
    }

    /// The value at `offset` of `log`, if cached. Otherwise counts a miss, because the value is
    /// read next.
    pub fn get_value(&self, log: FileId, offset: u64) -> Option<Value> {
        let at = (FileId(log.0 | VALUE), offset);
        let found = self.read_block(at, true, Value::copied);
        self.count(found.is_some());
        found
    }

    /// True if the value at `offset` of `log` is cached. For a caller that will ask for it later.
    pub fn has_value(&self, log: FileId, offset: u64) -> bool {
        self.has(FileId(log.0 | VALUE), offset)
    }

    /// Inserts the value at `offset` of `log` and returns it.
    pub fn insert_value(&self, log: FileId, offset: u64, value: &[u8]) -> Value {
        self.insert(FileId(log.0 | VALUE), offset, value);
        Value::copied(value)
    }

    /// True if the cache takes an entry of `bytes` bytes. It takes none of which it, or a shard,
    /// could hold only a few.
    pub fn admits(&self, bytes: usize) -> bool {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        let of_shard = bytes_max / self.shards.len() as u64 / FEW_OF_SHARD;
        bytes as u64 <= (bytes_max / FEW).min(of_shard)
    }

    /// Inserts a block if the cache admits it, evicting others if needed.
    pub fn insert(&self, file: FileId, offset: u64, block: &[u8]) {
        if !self.admits(block.len()) {
            return;
        }
        self.note_read();
        self.brought
            .fetch_add(Self::cost(block.len()), Ordering::Relaxed);
        let (shard, hash) = self.shard_of_block(file, offset);
        let (file, offset) = (file.0.to_le_bytes(), offset.to_le_bytes());
        let content = Content {
            kind: Kind::Block,
            note: 0,
            lookups: 0,
            parts: &[&file, &offset, block],
        };
        let is_full = shard.insert(hash, content);
        self.note_full(is_full);
    }

    /// Changes the capacity to `bytes`, evicting blocks if needed. What that takes is in proportion
    /// to the change. REQUIRES: no other thread does so.
    pub fn resize(&self, bytes: u64) {
        let before = self.bytes_max();
        if bytes > before {
            self.bytes_max.store(bytes, Ordering::Relaxed);
            self.is_full.store(false, Ordering::Relaxed);
        }
        let count = self.shards.len() as u64;
        for (i, shard) in (0..).zip(&self.shards) {
            let share = share_of_shard(bytes, i, count);
            if share == share_of_shard(before, i, count) {
                continue;
            }
            while !shard.resize(share, RESIZE_STEP) {
                give_way();
            }
            give_way();
        }
        // Lowered only now, because until here the shards may hold more.
        self.bytes_max.store(bytes, Ordering::Release);
    }

    /// The most bytes that it holds.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Removes a block that will not be looked up again. True if it was cached.
    pub fn remove(&self, file: FileId, offset: u64) -> bool {
        let (shard, hash) = self.shard_of_block(file, offset);
        shard.remove(hash, Kind::Block)
    }

    /// (hits, misses) so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }

    /// Bytes held now, and the most that it may hold. If another thread changes that meanwhile, it
    /// is at least what the shards might hold when their bytes were read.
    pub fn bytes_of_max(&self) -> (u64, u64) {
        let before = self.bytes_max();
        let of_shards = self.shards.iter().map(Shard::bytes_of_max);
        let (bytes, max) = of_shards.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (bytes, before.max(self.bytes_max()).max(max))
    }

    /// Bytes held now.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(Shard::bytes).sum()
    }
}

/// The bytes of shard `i` of `count` in a cache of `bytes`. Several shards have whole segments, so
/// that a small change concerns few of them, and each segment another one. What a shard cannot
/// address is not used.
fn share_of_shard(bytes: u64, i: u64, count: u64) -> u64 {
    match count {
        1 => bytes.min(SHARD_BYTES),
        _ => ((bytes / RESIZE_UNIT + i) / count * RESIZE_UNIT).min(SHARD_BYTES),
    }
}

/// Calls `act` with the content of the row of `key`. REQUIRES: the cache admits the row.
fn with_row<R>(
    (key, tag, value): (&[u8], Tag, &[u8]),
    lookups: u8,
    act: impl FnOnce(Content<'_>) -> R,
) -> R {
    let tag = tag.0.to_le_bytes();
    let long = (key.len() as u16).to_le_bytes();
    let (note, long) = match u8::try_from(key.len()) {
        Ok(note) if note < LONG_KEY => (note, &long[..0]),
        _ => (LONG_KEY, &long[..]),
    };
    act(Content {
        kind: Kind::Row,
        note,
        lookups,
        parts: &[&tag, long, key, value],
    })
}

fn copy_of_block(bytes: &[u8]) -> Option<Arc<Block>> {
    Block::new(bytes.into()).map(Arc::new)
}

#[cfg(test)]
mod tests;
