//! The block cache: decoded blocks by (file, offset), rows by the hash of their key, and values of
//! logs by (log, offset). Bounded by bytes.
//!
//! (file, offset) identifies a block forever, because an append never reuses the offset of a block
//! that was read. So an entry may be old but never wrong, and blocks that a compaction leaves clean
//! stay cached.
//!
//! A row is a single entry. With a skewed workload, a reader wants one entry of most blocks, and
//! several times more rows than blocks fit into the same memory. The owner of a row defines its
//! meaning and how long it is valid. `admission.rs` decides whether a get inserts its row or its
//! block here.

use crate::admission::Admission;
use crate::sst::{Block, BlockBuilder, Lookup};
use crate::value::Value;
use firn_base::FileId;
use firn_base::Tag;
use firn_base::count::Counter;
use firn_base::exec::give_way;
use firn_base::seed::mix;
use firn_base::sync::{AtomicBool, AtomicU64, Ordering};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// Overhead of an entry in bytes, besides the block's own: the block inside its `Arc`, and a slot
/// in the cache's tables, which grow by doubling.
const ENTRY_OVERHEAD: u64 = 192;

/// Marks a value of a log, as opposed to a block of a table. No file has an id with this bit.
const VALUE: u64 = 1 << 62;
/// Units of age in the time it takes to fill the cache once.
const AGES_A_FILL: u64 = 8;
/// Marks a row. Takes the place of a file's id.
const ROW: FileId = FileId(1 << 63);
/// The key of a cached value. A value is stored as a block with this one entry.
const VALUE_KEY: &[u8] = b"v";
const VALUE_TAG: Tag = Tag(1);

/// The minimum size of a shard in bytes, to leave room for large blocks, and the maximum number of
/// shards. There are many shards because a reader that is preempted while it holds a shard's lock
/// keeps the others out of that shard. Their number depends only on the cache's size, so evictions
/// are the same on any machine.
const SHARD_BYTES: u64 = 2 << 20;
const SHARDS_MAX: u64 = 64;
/// The number of steps in which a shard shrinks. Evicting many blocks at once would make readers
/// wait. There are only a few steps, because each one rounds down the capacity of the memory of
/// evicted entries.
const RESIZE_STEPS: u64 = 8;

#[derive(Clone)]
struct Weigh;

impl Weighter<(FileId, u64), Arc<Block>> for Weigh {
    fn weight(&self, _: &(FileId, u64), block: &Arc<Block>) -> u64 {
        BlockCache::cost(block.len())
    }
}

/// Hashes two words, the same way in every run. Evictions, and so reads, depend on nothing else.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ word);
    }
}

type Shard = Cache<(FileId, u64), Arc<Block>, Weigh, BuildHasherDefault<Mixer>>;

/// The blocks shared by all readers of a database. Sharded; a hit takes one short read lock. Each
/// shard is a cache of its own, so a thread that shrinks all of them can yield between two shards.
pub struct BlockCache {
    shards: Box<[Shard]>,
    bytes_max: AtomicU64,
    hits: Counter,
    misses: Counter,
    /// True if a row was ever inserted.
    has_rows: AtomicBool,
    /// Bytes inserted by gets and cursors so far.
    brought: AtomicU64,
    admission: Admission,
}

/// A single entry.
#[derive(Debug, Clone)]
pub struct Row(Arc<Block>);

impl Row {
    /// Copies an entry.
    pub fn new(key: &[u8], tag: Tag, value: &[u8]) -> Row {
        let mut builder = BlockBuilder::new(1);
        builder.reserve(key.len() + value.len());
        builder.add(key, tag, value);
        match Block::new(builder.finish().into()) {
            Some(block) => Row(Arc::new(block)),
            None => unreachable!("what a builder made is a block"),
        }
    }

    /// The entry of `key` whose value is at `value` of `block`: the block itself if it has no other
    /// entry, otherwise a copy.
    pub(crate) fn of(block: &Arc<Block>, key: &[u8], tag: Tag, value: Range<usize>) -> Row {
        match block.has_one_entry() {
            true => Row(block.clone()),
            false => Row::new(key, tag, block.value(&value)),
        }
    }

    /// The entry, if its key is `key` and its tag is not above `tag`.
    #[inline]
    pub fn get(&self, key: &[u8], tag: Tag) -> Option<(Tag, Value)> {
        match self.0.get(key, tag) {
            Some(Lookup::Found(tag, value)) => {
                Some((tag, Value::pinned(self.0.clone(), value.start, value.len())))
            }
            _ => None,
        }
    }
}

impl BlockCache {
    /// A cache of at most `bytes`, for blocks of about `block_bytes`, or for rows.
    pub fn new(bytes: u64, block_bytes: usize) -> Self {
        // The capacity of the memory of evicted entries is proportional to this. Assumes as many
        // rows as blocks.
        let items = (bytes / (block_bytes as u64 / 4 + ENTRY_OVERHEAD)).max(16) as usize;
        let shards = (bytes / SHARD_BYTES).clamp(1, SHARDS_MAX) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items.div_ceil(shards))
            .weight_capacity(bytes.div_ceil(shards as u64))
            .shards(1)
            .build()
            .unwrap_or_else(|_| unreachable!("both capacities were given"));
        let shard = || {
            Cache::with_options(
                options.clone(),
                Weigh,
                BuildHasherDefault::default(),
                DefaultLifecycle::default(),
            )
        };
        let shards = (0..shards).map(|_| shard()).collect();
        let (hits, misses, has_rows, brought) = Default::default();
        let bytes_max = AtomicU64::new(bytes);
        Self {
            shards,
            bytes_max,
            hits,
            misses,
            has_rows,
            brought,
            admission: Admission::default(),
        }
    }

    #[inline]
    fn shard(&self, key: &(FileId, u64)) -> &Shard {
        // Bits from the middle, because a shard's own table uses those at both ends.
        let bits =
            (BuildHasherDefault::<Mixer>::default().hash_one(key) >> 16) & u64::from(u32::MAX);
        &self.shards[((bits * self.shards.len() as u64) >> 32) as usize]
    }

    /// The block at `offset` of `file`, if cached.
    #[inline]
    pub fn get(&self, file: FileId, offset: u64) -> Option<Arc<Block>> {
        let key = (file, offset);
        let found = self.shard(&key).get(&key);
        if found.is_some() {
            self.hits.add(1)
        } else {
            self.misses.add(1)
        }
        found
    }

    /// The row of the key with this hash, if cached. A missing row does not count as a miss,
    /// because its block is looked up next.
    #[inline]
    pub fn get_row(&self, hash: u64) -> Option<Row> {
        if !self.has_rows() {
            return None;
        }
        let key = (ROW, hash);
        self.shard(&key)
            .get(&key)
            .map(Row)
            .inspect(|_| self.hits.add(1))
    }

    /// True if the row of the key with this hash is cached. Does not affect eviction.
    pub fn has_row(&self, hash: u64) -> bool {
        self.peek(ROW, hash).is_some()
    }

    /// Inserts a row.
    pub fn insert_row(&self, hash: u64, row: Row) {
        if !self.has_rows() {
            self.has_rows.store(true, Ordering::Release);
        }
        self.insert(ROW, hash, row.0);
    }

    /// Replaces the row with this hash, if still cached. The new row takes over its position in the
    /// eviction order.
    pub fn replace_row(&self, hash: u64, row: Row) {
        let key = (ROW, hash);
        let _gone = self.shard(&key).replace(key, row.0, true);
    }

    /// Removes the row with this hash.
    pub fn remove_row(&self, hash: u64) {
        self.remove(ROW, hash);
    }

    /// True if there may be a row. If not, lookups of rows can be skipped.
    pub fn has_rows(&self) -> bool {
        self.has_rows.load(Ordering::Acquire)
    }

    /// True if rows serve gets better than blocks, as observed so far.
    pub fn prefers_rows(&self) -> bool {
        !self.admission.prefers_blocks()
    }

    /// The observations of cached blocks.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The age of the cache, in units of [`AGES_A_FILL`] per fill. Starts at 2, so it is never
    /// close to 0, the age of a block that was not stamped.
    pub(crate) fn age(&self) -> u64 {
        2 + AGES_A_FILL * self.brought.load(Ordering::Relaxed)
            / self.bytes_max.load(Ordering::Relaxed).max(1)
    }

    /// The cost of an entry of `bytes` bytes, in bytes.
    pub(crate) fn cost(bytes: usize) -> u64 {
        bytes as u64 + ENTRY_OVERHEAD
    }

    /// Like [`BlockCache::get`], for a reader that keeps a row of the entry it finds in the block.
    /// Does not affect eviction.
    #[inline]
    pub(crate) fn look(&self, file: FileId, offset: u64) -> Option<Arc<Block>> {
        let found = self.peek(file, offset);
        if found.is_some() {
            &self.hits
        } else {
            &self.misses
        }
        .add(1);
        found
    }

    /// The block at `offset` of `file`, if cached, for a reader that reads it only once. Counts as
    /// neither hit nor miss and does not affect eviction.
    pub(crate) fn peek(&self, file: FileId, offset: u64) -> Option<Arc<Block>> {
        let key = (file, offset);
        self.shard(&key).peek(&key)
    }

    /// The value at `offset` of `log`, if cached. Otherwise counts a miss, because the value is
    /// read next.
    pub fn get_value(&self, log: FileId, offset: u64) -> Option<Value> {
        Row(self.get(FileId(log.0 | VALUE), offset)?)
            .get(VALUE_KEY, VALUE_TAG)
            .map(|(_, value)| value)
    }

    /// True if the value at `offset` of `log` is cached. For a caller that will ask for it later.
    pub fn has_value(&self, log: FileId, offset: u64) -> bool {
        self.peek(FileId(log.0 | VALUE), offset).is_some()
    }

    /// Inserts the value at `offset` of `log` and returns it.
    pub fn insert_value(&self, log: FileId, offset: u64, value: &[u8]) -> Value {
        let row = Row::new(VALUE_KEY, VALUE_TAG, value);
        self.insert(FileId(log.0 | VALUE), offset, row.0.clone());
        row.get(VALUE_KEY, VALUE_TAG)
            .map_or_else(|| Value::owned(value.to_vec()), |(_, value)| value)
    }

    /// True if the cache takes an entry of `bytes` bytes. It takes none of which it could hold only
    /// a few.
    pub fn admits(&self, bytes: usize) -> bool {
        const FEW: u64 = 8;
        bytes as u64 * FEW <= self.bytes_max.load(Ordering::Relaxed)
    }

    /// Inserts `block` if the cache admits it, evicting others if needed.
    pub fn insert(&self, file: FileId, offset: u64, block: Arc<Block>) {
        if !self.admits(block.len()) {
            return;
        }
        self.brought
            .fetch_add(Self::cost(block.len()), Ordering::Relaxed);
        let key = (file, offset);
        self.shard(&key).insert(key, block);
    }

    /// Changes the capacity to `bytes`, evicting blocks if needed.
    pub fn resize(&self, bytes: u64) {
        // Each shard is locked for this, so a negligible change is not worth it.
        let now = self.bytes_max.load(Ordering::Relaxed);
        if bytes.abs_diff(now) <= now / 128 {
            return;
        }
        self.bytes_max.store(bytes, Ordering::Relaxed);
        let shards = self.shards.len() as u64;
        let (now, bytes) = (now.div_ceil(shards), bytes.div_ceil(shards));
        let step = (now / RESIZE_STEPS).max(1);
        for shard in &self.shards {
            let mut left = now;
            while bytes + step < left {
                left -= step;
                shard.set_capacity(left);
                give_way();
            }
            shard.set_capacity(bytes);
            give_way();
        }
    }

    /// Removes a block that will not be looked up again. True if it was cached.
    pub fn remove(&self, file: FileId, offset: u64) -> bool {
        let key = (file, offset);
        self.shard(&key).remove(&key).is_some()
    }

    /// (hits, misses) so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }

    /// Bytes held now.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(Shard::weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_is_made_smaller_drops_what_it_must() {
        const MIB: u64 = 1 << 20;
        let cache = BlockCache::new(16 * MIB, 4096);
        let fill = |from: u64| {
            (from..from + 16_000).for_each(|at| drop(cache.insert_value(FileId(1), at, &[7; 1000])))
        };
        fill(0);
        let full = cache.bytes();
        assert!(full > 15 * MIB && full <= 16 * MIB, "{full}");
        cache.resize(3 * MIB);
        let left = cache.bytes();
        assert!(left > 2 * MIB && left <= 3 * MIB, "{left}");
        cache.resize(16 * MIB);
        fill(100_000);
        assert!(cache.bytes() > 15 * MIB, "{}", cache.bytes());
    }
}
