//! Caches of other libraries and this engine's own, behind one interface.
//!
//! 1. The key is [`Key`], whose first word is its hash, so hashing costs next to nothing anywhere.
//! 2. The weight of an entry is the bytes of key and value, as a user of these libraries would set
//!    it. [`Engine`] and [`Quick`] with an overhead count more.
//! 3. A look at a value copies nothing but a handle.
//!
//! All are shared by threads.

use crate::policies::Policy;
use crate::queues::WordHasher;
use crate::trace::KEY_BYTES;
use firn_base::Tag;
use firn_base::seed::mix;
use firn_table::BlockCache;
use foyer_memory::{CacheBuilder, EvictionConfig};
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{OptionsBuilder, Weighter};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

type Words = BuildHasherDefault<WordHasher>;
type Bytes = Arc<[u8]>;

/// A key of as many bytes as the traces' keys have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key([u8; KEY_BYTES as usize]);

impl Key {
    /// The key with this number.
    pub(crate) fn new(number: u64) -> Self {
        let mut key = [0; KEY_BYTES as usize];
        let (hash, rest) = key.split_at_mut(8);
        hash.copy_from_slice(&mix(number).to_le_bytes());
        rest[..8].copy_from_slice(&number.to_le_bytes());
        Self(key)
    }

    /// The first word, which is the hash.
    fn word(&self) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(word)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.word());
    }
}

/// A cache shared by threads.
pub(crate) trait Library: Send + Sync {
    /// The first byte of the value of `key`, if cached. Counts as a use.
    fn look(&self, key: &Key) -> Option<u8>;

    /// Inserts an entry.
    fn insert(&self, key: &Key, value: &[u8]);

    /// The weight held now, in bytes.
    fn bytes(&self) -> u64;
}

fn first(value: &[u8]) -> u8 {
    value.first().copied().unwrap_or_default()
}

fn weight(value: &Bytes) -> u64 {
    u64::from(KEY_BYTES) + value.len() as u64
}

/// `firn_table::BlockCache`, with rows only. Its own overhead is inside its limit.
pub(crate) struct Engine(BlockCache);

impl Engine {
    const TAG: Tag = Tag(1);

    pub(crate) fn new(capacity: u64) -> Self {
        Self(BlockCache::new(capacity))
    }
}

impl Library for Engine {
    fn look(&self, key: &Key) -> Option<u8> {
        let (_, value) = self.0.get_row(&key.0, key.word(), Self::TAG)?;
        Some(first(&value))
    }

    fn insert(&self, key: &Key, value: &[u8]) {
        self.0.insert_row(&key.0, key.word(), Self::TAG, value, 0);
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

#[derive(Clone)]
struct Weigh {
    overhead: u64,
}

impl Weighter<Key, Bytes> for Weigh {
    fn weight(&self, _: &Key, value: &Bytes) -> u64 {
        weight(value) + self.overhead
    }
}

type QuickShard = quick_cache::sync::Cache<Key, Bytes, Weigh, Words>;

/// `quick_cache` with the shards that the engine gives it, and `overhead` bytes more for each
/// entry.
pub(crate) struct Quick(Vec<QuickShard>);

impl Quick {
    const SHARD_BYTES: u64 = 2 << 20;
    const SHARDS_MAX: u64 = 64;

    pub(crate) fn new(capacity: u64, entries: usize, overhead: u64) -> Self {
        let shards = (capacity / Self::SHARD_BYTES).clamp(1, Self::SHARDS_MAX);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(entries.div_ceil(shards as usize))
            .weight_capacity(capacity / shards)
            .shards(1)
            .build()
            .unwrap_or_else(|_| unreachable!("both capacities were given"));
        let shard = || {
            let weigh = Weigh { overhead };
            let lifecycle = DefaultLifecycle::default();
            QuickShard::with_options(options.clone(), weigh, Words::default(), lifecycle)
        };
        Self((0..shards).map(|_| shard()).collect())
    }

    fn shard(&self, key: &Key) -> &QuickShard {
        let bits = (key.word() >> 16) & u64::from(u32::MAX);
        &self.0[((bits * self.0.len() as u64) >> 32) as usize]
    }
}

impl Library for Quick {
    fn look(&self, key: &Key) -> Option<u8> {
        self.shard(key).get(key).map(|value| first(&value))
    }

    fn insert(&self, key: &Key, value: &[u8]) {
        self.shard(key).insert(*key, value.into());
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(QuickShard::weight).sum()
    }
}

/// `moka::sync::Cache`, with its defaults.
pub(crate) struct Moka(moka::sync::Cache<Key, Bytes, Words>);

impl Moka {
    pub(crate) fn new(capacity: u64) -> Self {
        let builder = moka::sync::Cache::builder()
            .max_capacity(capacity)
            .weigher(|_: &Key, value: &Bytes| weight(value).try_into().unwrap_or(u32::MAX));
        Self(builder.build_with_hasher(Words::default()))
    }
}

impl Library for Moka {
    fn look(&self, key: &Key) -> Option<u8> {
        self.0.get(key).map(|value| first(&value))
    }

    fn insert(&self, key: &Key, value: &[u8]) {
        self.0.insert(*key, value.into());
    }

    fn bytes(&self) -> u64 {
        self.0.run_pending_tasks();
        self.0.weighted_size()
    }
}

/// `foyer_memory::Cache`, with its defaults but for the policy.
pub(crate) struct Foyer(foyer_memory::Cache<Key, Bytes, Words>);

impl Foyer {
    pub(crate) fn new(capacity: u64, policy: impl Into<EvictionConfig>) -> Self {
        let builder = CacheBuilder::new(capacity as usize)
            .with_hash_builder(Words::default())
            .with_weighter(|_: &Key, value: &Bytes| weight(value) as usize)
            .with_eviction_config(policy);
        Self(builder.build())
    }
}

impl Library for Foyer {
    fn look(&self, key: &Key) -> Option<u8> {
        self.0.get(key).map(|entry| first(entry.value()))
    }

    fn insert(&self, key: &Key, value: &[u8]) {
        self.0.insert(*key, value.into());
    }

    fn bytes(&self) -> u64 {
        self.0.usage() as u64
    }
}

/// A library's cache as a policy, with values of zeros.
pub(crate) struct Replayed {
    library: Box<dyn Library>,
    zeros: Vec<u8>,
}

impl Replayed {
    pub(crate) fn new(library: Box<dyn Library>) -> Self {
        let zeros = Vec::new();
        Self { library, zeros }
    }
}

impl Policy for Replayed {
    fn get(&mut self, key: u64, bytes: u32) -> bool {
        let key = Key::new(key);
        if self.library.look(&key).is_some() {
            return true;
        }
        let value_bytes = bytes.saturating_sub(KEY_BYTES) as usize;
        if self.zeros.len() < value_bytes {
            self.zeros.resize(value_bytes, 0);
        }
        self.library.insert(&key, &self.zeros[..value_bytes]);
        false
    }

    fn bytes(&self) -> u64 {
        self.library.bytes()
    }
}
