//! The block cache: decoded blocks by (file, offset), rows by the hash of their key, and values of logs by (log,
//! offset), bounded by bytes.
//!
//! (file, offset) names a block for ever, because an append never reuses the offset of one that was read; so an entry
//! can be old but never wrong, and what a compaction leaves clean stays cached.
//!
//! A row is an entry on its own. A skewed reader wants one entry of most blocks: with rows instead of blocks he finds
//! several times more of them in the same memory. What a row means, and how long it is true, is its owner's to say.
//! Whether a get leaves its row or its block here is in `locality.rs`.

use crate::locality::Locality;
use crate::sst::{Block, BlockBuilder, Lookup};
use crate::value::Value;
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

/// Bytes that an entry costs besides its block's own: the block behind its `Arc`, and a slot in the cache's tables,
/// which grow by doubling.
const ENTRY_OVERHEAD: u64 = 192;

/// Tells values of logs from blocks of tables: no file has such an id.
const VALUE: u64 = 1 << 62;
/// Ages in the time that it takes to fill the cache anew.
const AGES_A_FILL: u64 = 8;
/// In place of a file's id: a row.
const ROW: u64 = 1 << 63;
/// A value is a block of one entry, which is this.
const VALUE_KEY: &[u8] = b"v";
const VALUE_TAG: Tag = Tag(1);

/// A shard has at least so many bytes, to have room for large blocks, and there are at most so many shards: a reader
/// that is preempted while it holds a shard's lock keeps the others from that shard for as long. Their number depends
/// on nothing else, so that what is evicted is the same on any machine.
const SHARD_BYTES: u64 = 2 << 20;
const SHARDS_MAX: u64 = 64;
/// What it takes to evict many blocks is no reader's to wait for: a shard is made smaller by so little at a time. Few
/// steps, as each rounds down how much is remembered of what was evicted.
const RESIZE_STEPS: u64 = 8;

#[derive(Clone)]
struct Weigh;

impl Weighter<(u64, u64), Arc<Block>> for Weigh {
    fn weight(&self, _: &(u64, u64), block: &Arc<Block>) -> u64 {
        BlockCache::cost(block.len())
    }
}

/// Hashes two words, the same way in every run: what is evicted, and so what is read again, depends on nothing else.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ word);
    }
}

type Shard = Cache<(u64, u64), Arc<Block>, Weigh, BuildHasherDefault<Mixer>>;

/// Blocks shared by all readers of a database. Sharded; a hit takes one short read lock. The shards are caches of their
/// own, so that one who makes all of them smaller can let others run between two of them.
pub struct BlockCache {
    shards: Box<[Shard]>,
    bytes_max: AtomicU64,
    hits: Counter,
    misses: Counter,
    /// Whether there ever was a row.
    has_rows: AtomicBool,
    /// What gets and cursors brought in so far, in bytes.
    brought: AtomicU64,
    locality: Locality,
}

/// An entry on its own.
#[derive(Debug, Clone)]
pub struct Row(Arc<Block>);

impl Row {
    /// An entry's copy.
    pub fn new(key: &[u8], tag: Tag, value: &[u8]) -> Row {
        let mut builder = BlockBuilder::new(1);
        builder.reserve(key.len() + value.len());
        builder.add(key, tag, value);
        match Block::new(builder.finish().into()) {
            Some(block) => Row(Arc::new(block)),
            None => unreachable!("what a builder made is a block"),
        }
    }

    /// The entry of `key` whose value is at `value` of `block`: the block itself if it has no other, or else a copy.
    pub(crate) fn of(block: &Arc<Block>, key: &[u8], tag: Tag, value: Range<usize>) -> Row {
        match block.has_one_entry() {
            true => Row(block.clone()),
            false => Row::new(key, tag, block.value(&value)),
        }
    }

    /// The entry, if it is one of `key` that is not above `tag`.
    #[inline]
    pub fn get(&self, key: &[u8], tag: Tag) -> Option<(Tag, Value)> {
        match self.0.get(key, tag) {
            Some(Lookup::Found(tag, value)) => Some((tag, Value::pinned(self.0.clone(), value.start, value.len()))),
            _ => None,
        }
    }
}

impl BlockCache {
    /// A cache of at most `bytes`, expecting blocks of about `block_bytes`, or rows.
    pub fn new(bytes: u64, block_bytes: usize) -> Self {
        // What was evicted is remembered in proportion to this, as many rows as blocks.
        let items = (bytes / (block_bytes as u64 / 4 + ENTRY_OVERHEAD)).max(16) as usize;
        let shards = (bytes / SHARD_BYTES).clamp(1, SHARDS_MAX) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items.div_ceil(shards))
            .weight_capacity(bytes.div_ceil(shards as u64))
            .shards(1)
            .build()
            .unwrap_or_else(|_| unreachable!("both capacities were given"));
        let shard =
            || Cache::with_options(options.clone(), Weigh, BuildHasherDefault::default(), DefaultLifecycle::default());
        let shards = (0..shards).map(|_| shard()).collect();
        let (hits, misses, has_rows, brought) = Default::default();
        let bytes_max = AtomicU64::new(bytes);
        Self { shards, bytes_max, hits, misses, has_rows, brought, locality: Locality::default() }
    }

    #[inline]
    fn shard(&self, key: &(u64, u64)) -> &Shard {
        // Bits from the middle: a shard's own table goes by those at both ends.
        let bits = (BuildHasherDefault::<Mixer>::default().hash_one(key) >> 16) & u64::from(u32::MAX);
        &self.shards[((bits * self.shards.len() as u64) >> 32) as usize]
    }

    /// The block at `offset` of `file`, if it is here.
    #[inline]
    pub fn get(&self, file: u64, offset: u64) -> Option<Arc<Block>> {
        let key = (file, offset);
        let found = self.shard(&key).get(&key);
        if found.is_some() {
            self.hits.add(1)
        } else {
            self.misses.add(1)
        }
        found
    }

    /// The row of a key with this hash, if it is here. Not finding one is no miss: its block is asked for next.
    #[inline]
    pub fn get_row(&self, hash: u64) -> Option<Row> {
        if !self.has_rows() {
            return None;
        }
        let key = (ROW, hash);
        self.shard(&key).get(&key).map(Row).inspect(|_| self.hits.add(1))
    }

    /// Whether the row of a key with this hash is here; it stays no longer for the question.
    pub fn has_row(&self, hash: u64) -> bool {
        self.peek(ROW, hash).is_some()
    }

    /// Keeps a row.
    pub fn insert_row(&self, hash: u64, row: Row) {
        if !self.has_rows() {
            self.has_rows.store(true, Ordering::Release);
        }
        self.insert(ROW, hash, row.0);
    }

    /// Puts `row` where one with this hash is, if there still is; it stays as long as that would have.
    pub fn replace_row(&self, hash: u64, row: Row) {
        let key = (ROW, hash);
        let _gone = self.shard(&key).replace(key, row.0, true);
    }

    /// Whether there may be any row: if not, nobody needs to look for one.
    pub fn has_rows(&self) -> bool {
        self.has_rows.load(Ordering::Acquire)
    }

    /// Whether rows serve gets better than blocks, as far as was observed.
    pub fn prefers_rows(&self) -> bool {
        !self.locality.prefers_blocks()
    }

    /// What gets leave here.
    pub(crate) fn locality(&self) -> &Locality {
        &self.locality
    }

    /// The time, in parts of what it takes to fill the cache anew; never near that of blocks that note none, 0.
    pub(crate) fn age(&self) -> u64 {
        2 + AGES_A_FILL * self.brought.load(Ordering::Relaxed) / self.bytes_max.load(Ordering::Relaxed).max(1)
    }

    /// What keeping so many bytes costs.
    pub(crate) fn cost(bytes: usize) -> u64 {
        bytes as u64 + ENTRY_OVERHEAD
    }

    /// As [`BlockCache::get`], for one who keeps a row of what it finds in the block: it stays no longer for it.
    #[inline]
    pub(crate) fn look(&self, file: u64, offset: u64) -> Option<Arc<Block>> {
        let found = self.peek(file, offset);
        if found.is_some() { &self.hits } else { &self.misses }.add(1);
        found
    }

    /// The block at `offset` of `file`, if it is here, for one who reads it but once: it counts as neither hit nor
    /// miss, and stays no longer for it.
    pub(crate) fn peek(&self, file: u64, offset: u64) -> Option<Arc<Block>> {
        let key = (file, offset);
        self.shard(&key).peek(&key)
    }

    /// The value at `offset` of `log`, if it is here. Not finding it is a miss: it is read next.
    pub fn get_value(&self, log: u64, offset: u64) -> Option<Value> {
        Row(self.get(log | VALUE, offset)?).get(VALUE_KEY, VALUE_TAG).map(|(_, value)| value)
    }

    /// Whether the value at `offset` of `log` is here, for one who will ask for it only later.
    pub fn has_value(&self, log: u64, offset: u64) -> bool {
        self.peek(log | VALUE, offset).is_some()
    }

    /// Keeps the value at `offset` of `log`, and hands it out.
    pub fn insert_value(&self, log: u64, offset: u64, value: &[u8]) -> Value {
        let row = Row::new(VALUE_KEY, VALUE_TAG, value);
        self.insert(log | VALUE, offset, row.0.clone());
        row.get(VALUE_KEY, VALUE_TAG).map_or_else(|| Value::owned(value.to_vec()), |(_, value)| value)
    }

    /// Keeps `block`, dropping others if needed; not one of which the cache could hold only a few.
    pub fn insert(&self, file: u64, offset: u64, block: Arc<Block>) {
        const FEW: u64 = 8;
        if block.len() as u64 * FEW > self.bytes_max.load(Ordering::Relaxed) {
            return;
        }
        self.brought.fetch_add(Self::cost(block.len()), Ordering::Relaxed);
        let key = (file, offset);
        self.shard(&key).insert(key, block);
    }

    /// Has at most `bytes` from now on, dropping blocks if needed.
    pub fn resize(&self, bytes: u64) {
        // Each shard is locked for it: not for a change that nobody would notice.
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

    /// Drops a block that nothing will ask for again. True if it was there.
    pub fn remove(&self, file: u64, offset: u64) -> bool {
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
        let fill = |from: u64| (from..from + 16_000).for_each(|at| drop(cache.insert_value(1, at, &[7; 1000])));
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
