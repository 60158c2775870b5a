//! Rows: the newest entry of a key below the write buffers, kept in the block cache for gets.
//!
//! A hit costs one look, and neither filters nor indexes of any level; and a merge takes no row away, because in which
//! table an entry lies does not matter.
//!
//! 1. A row is the newest entry that the trees and tables of a state have of its key, or says that they have none.
//! 2. Merges and evictions do not change what that is. A flush does, once its buffer goes: before a state without the
//!    buffer is there, its keys' rows are replaced ([`RowCache::follow`]).
//! 3. A reader who found nothing in his state's buffers may take it, unless it is above his read point, or above all
//!    that his state may have. If his state is older than the row, it has the row's entry in a buffer (he has looked)
//!    or below, and none between. Without that bound he might see one half of a batch in a row, and not the other,
//!    which is in a buffer that his state has not.
//! 4. Rows are brought by readers of states with all flushes behind them only, and by nobody while they are replaced.
//!    So who reads from an older state does not bring back what was replaced. A flush that could not be recorded leaves
//!    rows that are newer than what is below its buffer, and the buffer: it is looked into first, and flushed again.
//!
//! Thread safety: `Send + Sync`. Gets take no lock beside the cache's; keeping a row takes one of a few.

use crate::buffer::Buffer;
use crate::sites;
use firn_base::exec::give_way;
use firn_base::key::Kind;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_base::{SeqNo, Tag};
use firn_table::sst::hash;
use firn_table::{BlockCache, Row, Value};
use std::sync::Arc;

/// Locks, by hash.
const LOCKS: usize = 16;
/// Nobody brings rows: they are being replaced.
const CLOSED: u64 = u64::MAX;

/// The rows of a part.
pub(crate) struct RowCache {
    cache: Arc<BlockCache>,
    /// What is flushed in the states whose readers may bring rows, or [`CLOSED`].
    flushed_through: AtomicU64,
    keeping: [Mutex<()>; LOCKS],
}

impl RowCache {
    /// For states in which all up to `flushed_through` is below the buffers.
    pub(crate) fn new(cache: Arc<BlockCache>, flushed_through: SeqNo) -> RowCache {
        RowCache { cache, flushed_through: AtomicU64::new(flushed_through.0), keeping: Default::default() }
    }

    /// The newest entry of `key` below the buffers, if it is here and not above `seqno`. It may be newer than the
    /// caller's state.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], hash: u64, seqno: SeqNo) -> Option<(Tag, Value)> {
        self.cache.get_row(hash)?.get(key, Tag::seek(seqno))
    }

    /// Whether readers of a state may bring rows.
    #[inline]
    pub(crate) fn are_for(&self, flushed_through: SeqNo) -> bool {
        self.flushed_through.load(Ordering::Acquire) == flushed_through.0
    }

    /// Keeps what a reader at `seqno` found to be the newest entry of a key below the buffers of a state.
    pub(crate) fn keep(&self, flushed_through: SeqNo, seqno: SeqNo, hash: u64, row: Row) {
        // There may be a newer one that he does not see.
        if seqno < flushed_through {
            return;
        }
        let _keeping = self.keeping[hash as usize % LOCKS].lock();
        if self.are_for(flushed_through) {
            self.cache.insert_row(hash, row);
        }
    }

    /// Replaces the rows of the keys that `buffer` has, which was flushed and is about to go from the state. Nobody
    /// brings any until [`RowCache::open`].
    pub(crate) fn follow(&self, buffer: &Arc<Buffer>) {
        self.flushed_through.store(CLOSED, Ordering::Release);
        // Who looked before has kept his row once his lock is free.
        self.keeping.iter().for_each(|lock| drop(lock.lock()));
        if self.cache.has_rows() && sites::ROWS_REPLACE.is_on() {
            self.replace_all(buffer);
        }
    }

    /// The state is, or stays, one with all up to `flushed_through` below its buffers.
    pub(crate) fn open(&self, flushed_through: SeqNo) {
        self.flushed_through.store(flushed_through.0, Ordering::Release);
    }

    fn replace_all(&self, buffer: &Arc<Buffer>) {
        let mut iter = buffer.iter();
        let mut last = Vec::new();
        let mut is_first = true;
        iter.first();
        while iter.valid() {
            let key = iter.key();
            // The newest of a key comes first.
            if is_first || *key != *last {
                let hash = hash(key);
                if self.cache.has_row(hash) {
                    let value = if iter.tag().kind() == Some(Kind::Put) { iter.value() } else { &[] };
                    self.cache.replace_row(hash, Row::new(key, iter.tag(), value));
                }
                is_first = false;
                last.clear();
                last.extend_from_slice(key);
            }
            iter.next();
            give_way();
        }
    }
}

impl std::fmt::Debug for RowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowCache(of states through {})", self.flushed_through.load(Ordering::Acquire))
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::{Db, Options, Profile};

    fn open(dir: &std::path::Path, profile: Profile) -> Db {
        Db::open(dir, Options { profile, block_cache_bytes: Some(64 << 10), ..Options::tiny() }).unwrap()
    }

    fn misses(db: &Db) -> u64 {
        db.stats().memory.cache_misses
    }

    /// Gets twice: the first may make a row.
    fn get(db: &Db, key: &[u8]) -> Option<Vec<u8>> {
        let first = db.get(key).unwrap().map(|value| value.to_vec());
        assert_eq!(db.get(key).unwrap().map(|value| value.to_vec()), first);
        first
    }

    #[test]
    fn rows_follow_flushes_and_outlive_merges() {
        for profile in Profile::ALL {
            let dir = tempfile::tempdir().unwrap();
            let db = open(dir.path(), profile);
            let keys: Vec<Vec<u8>> = (0..200_u32).map(|i| format!("key{i:05}").into_bytes()).collect();
            keys.iter().for_each(|key| db.put(key, [1; 50]).unwrap());
            db.compact_range(None, None).unwrap();
            // Three times, because of those that are observed.
            (0..3).for_each(|_| keys.iter().for_each(|key| assert_eq!(get(&db, key).unwrap(), [1; 50])));
            let snapshot = db.snapshot();
            keys.iter().step_by(10).for_each(|key| db.put(key, [2; 50]).unwrap());
            keys.iter().skip(5).step_by(10).for_each(|key| db.delete(key).unwrap());
            db.compact_range(None, None).unwrap();
            let before = misses(&db);
            for (i, key) in keys.iter().enumerate() {
                let expected = match i % 10 {
                    0 => Some(vec![2; 50]),
                    5 => None,
                    _ => Some(vec![1; 50]),
                };
                assert_eq!(get(&db, key), expected, "{profile:?} key {i}");
            }
            assert_eq!(misses(&db), before, "{profile:?}: all of them are rows");
            keys.iter().for_each(|key| assert_eq!(snapshot.get(key).unwrap().unwrap(), [1; 50], "older than rows"));
            keys.iter().step_by(10).for_each(|key| assert_eq!(get(&db, key).unwrap(), [2; 50]));
        }
    }

    #[test]
    fn rows_can_be_done_without() {
        let misses_of_gets = |row_cache| {
            let dir = tempfile::tempdir().unwrap();
            let options = Options { row_cache, block_cache_bytes: Some(64 << 10), ..Options::tiny() };
            let db = Db::open(dir.path(), options).unwrap();
            let keys: Vec<Vec<u8>> = (0..4000_u32).map(|i| format!("key{i:05}").into_bytes()).collect();
            keys.iter().for_each(|key| db.put(key, [1; 50]).unwrap());
            db.compact_range(None, None).unwrap();
            // They fit the cache, and their blocks do not.
            let gets = || keys.iter().step_by(20).for_each(|key| assert_eq!(db.get(key).unwrap().unwrap(), [1; 50]));
            (0..4).for_each(|_| gets());
            let before = misses(&db);
            gets();
            misses(&db) - before
        };
        assert_eq!(misses_of_gets(true), 0);
        let without = misses_of_gets(false);
        assert!(without > 50, "{without} misses of 200 gets in blocks");
    }

    #[test]
    fn rows_are_brought_from_the_newest_state() {
        let cache = Arc::new(BlockCache::new(1 << 20, 4096));
        let rows = RowCache::new(cache, SeqNo(5));
        let (key, hash, tag) = (b"k", hash(b"k"), Tag::new(SeqNo(3), Kind::Put));
        let get = |seqno| rows.get(key, hash, SeqNo(seqno)).map(|(_, value)| value.to_vec());
        let row = Row::new(key, tag, b"v");
        let keep = |through, seqno| rows.keep(SeqNo(through), SeqNo(seqno), hash, row.clone());
        keep(5, 4);
        assert_eq!(get(9), None, "brought by one who sees not all");
        keep(2, 9);
        assert_eq!(get(9), None, "brought from an older state");
        keep(5, 9);
        assert_eq!(get(9), Some(b"v".to_vec()));
        assert_eq!(get(2), None, "above the read point");
        assert_eq!(rows.get(b"other", hash, SeqNo(9)).map(|(tag, _)| tag), None, "of the same hash");
        rows.follow(&Arc::new(Buffer::new(4096, 1)));
        assert_eq!(get(9), Some(b"v".to_vec()), "is not in that buffer");
        rows.keep(SeqNo(5), SeqNo(9), hash, Row::new(key, tag, b"other"));
        assert_eq!(get(9), Some(b"v".to_vec()), "the state is about to change");
        rows.open(SeqNo(8));
        rows.keep(SeqNo(8), SeqNo(9), hash, Row::new(key, tag, b"other"));
        assert_eq!(get(9), Some(b"other".to_vec()));
    }
}
