//! Rows: the newest entry of a key below the memtables, kept in the block cache for gets.
//!
//! A hit costs one lookup and needs no filter or index of any level. A compaction removes no row,
//! because it does not matter which table an entry is in.
//!
//! 1. A row is the newest entry of its key below the memtables of a state, or states that they
//!    have none.
//! 2. Compactions and evictions do not change which entry that is. A flush does, once its memtable
//!    leaves the state. So before there is a state without the memtable, the rows of its keys are
//!    replaced, and entries that gets found in it become rows ([`RowCache::follow`]), because they
//!    are in memory now and would otherwise be read again a moment later. The number of those gets
//!    counts for a row as if it had been there already.
//! 3. A reader that found nothing in its state's memtables may use a row, unless the row is above
//!    its read point or above everything its state may have. If its state is older than the row, it
//!    has the row's entry in a memtable (which it has searched) or below, and no entry in between.
//!    Without that bound the reader might see one half of a batch in a row but not the other half,
//!    which is in a memtable that its state does not have.
//! 4. An entry that a reader finds below its state's memtables is a row if it is also the newest
//!    one after the newest flush. For that its read point must not be below the flushed sequence
//!    number, and its state must have everything flushed either in its memtables, which have no
//!    entry of the key, or below them ([`RowCache::may_bring`]). So while a flush is being
//!    recorded, readers of the previous state insert rows for keys that are not in its memtable,
//!    and a reader of an older state does not insert an entry that was replaced. A flush that could
//!    not be recorded leaves rows that are newer than the entries below its memtable. That is
//!    correct, because the memtable stays: it is searched first, and flushed again.
//!
//! Thread safety: `Send + Sync`. Gets take no lock other than the cache's. Keeping a row takes one
//! of a few locks.

use crate::memtable::Memtable;
use crate::sites;
use firn_base::exec::give_way;
use firn_base::key::Kind;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_base::{SeqNo, Tag};
use firn_table::sst::hash;
use firn_table::{BlockCache, Value};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The number of locks, which are chosen by hash.
const LOCKS: usize = 16;

/// The rows of a part.
pub(crate) struct RowCache {
    cache: Arc<BlockCache>,
    /// The sequence number through which rows are the newest entries. Everything up to it is
    /// flushed, or about to be. It only rises, and does so before rows are replaced.
    through: AtomicU64,
    keeping: [Mutex<()>; LOCKS],
    /// True if entries that gets found in a memtable become rows when it is flushed.
    keeps_found: bool,
}

impl RowCache {
    /// A cache for states in which everything up to `flushed_through` is below the memtables.
    pub(crate) fn new(
        cache: Arc<BlockCache>,
        flushed_through: SeqNo,
        keeps_found: bool,
    ) -> RowCache {
        RowCache {
            cache,
            through: AtomicU64::new(flushed_through.0),
            keeping: Default::default(),
            keeps_found,
        }
    }

    /// The newest entry of `key` below the memtables, if there is a row for it that is not above
    /// `seqno`. It may be newer than the caller's state.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], hash: u64, seqno: SeqNo) -> Option<(Tag, Value)> {
        self.cache.get_row(key, hash, Tag::seek(seqno))
    }

    /// True if a reader that searched every sequence number in `searched`, except the first,
    /// without finding the key may cache the newest entry up to the first number.
    #[inline]
    pub(crate) fn may_bring(&self, searched: &RangeInclusive<SeqNo>) -> bool {
        searched.contains(&SeqNo(self.through.load(Ordering::Acquire)))
    }

    /// Keeps the newest entry of a key, as found by a reader that searched `searched`.
    pub(crate) fn keep(
        &self,
        searched: &RangeInclusive<SeqNo>,
        key: &[u8],
        hash: u64,
        tag: Tag,
        value: &[u8],
    ) {
        let _keeping = self.keeping[hash as usize % LOCKS].lock();
        if self.may_bring(searched) {
            self.cache.insert_row(key, hash, tag, value, 0);
        }
    }

    /// Replaces the rows of the keys in `buffer`, which was flushed and is about to leave the
    /// state, and keeps the entries that gets found there.
    pub(crate) fn follow(&self, buffer: &Arc<Memtable>) {
        // A flushed memtable was frozen. If it were not, this would stop readers from inserting
        // rows.
        let through = buffer.frozen_at().unwrap_or(SeqNo::MAX).0;
        // Partitions with memtables of their own are not flushed in the order of numbers. Those
        // that are behind only keep fewer rows, because a reader must have searched up to here.
        self.through.fetch_max(through, Ordering::Release);
        // A reader that checked earlier has kept its row once its lock is free. A reader that
        // checks from now on knows that its key is not in the memtable.
        self.keeping.iter().for_each(|lock| drop(lock.lock()));
        if self.cache.is_read() && sites::ROWS_REPLACE.is_on() {
            self.replace_all(buffer);
        }
    }

    fn replace_all(&self, buffer: &Arc<Memtable>) {
        let mut iter = buffer.iter();
        let mut newest = buffer.iter();
        let keeps_found = self.keeps_found && self.cache.prefers_rows();
        iter.first();
        while iter.valid() {
            // The newest entry of a key comes first.
            newest.move_to(&iter);
            let mut reads = 0_u8;
            while iter.valid() && *iter.key() == *newest.key() {
                reads = reads.saturating_add(iter.reads());
                iter.next();
                give_way();
            }
            let hash = hash(newest.key());
            let value = match newest.tag().kind() {
                Some(Kind::Put) => newest.value(),
                _ => &[],
            };
            let (key, tag) = (newest.key(), newest.tag());
            // Hot values stay in persistent memory.
            let is_kept = reads > 0 && keeps_found && !newest.is_hot();
            if self.cache.has_row(hash) {
                self.cache.replace_row(key, hash, tag, value, reads);
            } else if is_kept {
                self.cache.insert_row(key, hash, tag, value, reads);
            }
        }
    }
}

impl std::fmt::Debug for RowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "RowCache(through {})",
            self.through.load(Ordering::Acquire)
        )
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::{Db, Options, Profile};
    use firn_base::FileId;

    fn open(dir: &std::path::Path, profile: Profile) -> Db {
        Db::open(
            dir,
            Options {
                profile,
                block_cache_bytes: Some(64 << 10),
                ..Options::tiny()
            },
        )
        .unwrap()
    }

    fn misses(db: &Db) -> u64 {
        db.stats().memory.cache_misses
    }

    /// Values that gets found in rows.
    fn rows(db: &Db) -> u64 {
        let hits = db.stats().user.hits;
        let of_rows = hits.iter().find(|(layer, _)| *layer == "rows");
        of_rows.map_or(0, |(_, hits)| *hits)
    }

    /// Gets twice, because the first get may make a row.
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
            let keys: Vec<Vec<u8>> = (0..200_u32)
                .map(|i| format!("key{i:05}").into_bytes())
                .collect();
            keys.iter().for_each(|key| db.put(key, [1; 50]).unwrap());
            db.compact().unwrap();
            // Three times, because a sample of blocks is cached whole (`admission.rs`).
            (0..3).for_each(|_| {
                keys.iter()
                    .for_each(|key| assert_eq!(get(&db, key).unwrap(), [1; 50]))
            });
            let snapshot = db.snapshot();
            keys.iter()
                .step_by(10)
                .for_each(|key| db.put(key, [2; 50]).unwrap());
            keys.iter()
                .skip(5)
                .step_by(10)
                .for_each(|key| db.delete(key).unwrap());
            db.compact().unwrap();
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
            keys.iter().for_each(|key| {
                assert_eq!(
                    snapshot.get(key).unwrap().unwrap(),
                    [1; 50],
                    "older than rows"
                )
            });
            keys.iter()
                .step_by(10)
                .for_each(|key| assert_eq!(get(&db, key).unwrap(), [2; 50]));
        }
    }

    #[test]
    fn what_was_read_in_a_buffer_is_a_row_behind_it() {
        for profile in Profile::ALL {
            let dir = tempfile::tempdir().unwrap();
            let db = open(dir.path(), profile);
            db.put(b"a", [0; 50]).unwrap();
            db.compact().unwrap();
            // Makes the first row, because a cache without rows looks for none.
            (0..3).for_each(|_| assert_eq!(get(&db, b"a").unwrap(), [0; 50]));
            let keys: Vec<Vec<u8>> = (0..20_u32)
                .map(|i| format!("key{i:05}").into_bytes())
                .collect();
            keys.iter().for_each(|key| db.put(key, [1; 50]).unwrap());
            keys.iter()
                .step_by(2)
                .for_each(|key| assert_eq!(db.get(key).unwrap().unwrap(), [1; 50]));
            // A key found in its previous version is as likely to be read again.
            keys.iter()
                .step_by(4)
                .for_each(|key| db.put(key, [2; 50]).unwrap());
            db.delete(&keys[2]).unwrap();
            db.compact().unwrap();
            let (before, before_of_rows) = (misses(&db), rows(&db));
            for (i, key) in keys.iter().enumerate().step_by(2) {
                let expected = if i == 2 {
                    None
                } else {
                    Some(vec![if i % 4 == 0 { 2 } else { 1 }; 50])
                };
                assert_eq!(
                    db.get(key).unwrap().map(|value| value.to_vec()),
                    expected,
                    "{profile:?} key {i}"
                );
            }
            assert_eq!(misses(&db), before, "{profile:?}");
            let of_rows = rows(&db);
            assert_eq!(
                of_rows,
                before_of_rows + 9,
                "{profile:?}: all but the deleted"
            );
            assert_eq!(db.get(&keys[1]).unwrap().unwrap(), [1; 50]);
            assert_eq!(rows(&db), of_rows, "{profile:?}: nobody had found that one");
        }
    }

    #[test]
    fn a_row_that_grew_too_large_leaves_the_cache() {
        for profile in Profile::ALL {
            let dir = tempfile::tempdir().unwrap();
            let db = open(dir.path(), profile);
            let cache_bytes = || db.stats().memory.cache_bytes;
            db.put(b"a", [1; 50]).unwrap();
            db.compact().unwrap();
            (0..3).for_each(|_| assert_eq!(get(&db, b"a").unwrap(), [1; 50]));
            assert!(cache_bytes() > 0, "{profile:?}: a row or its block");
            let large = vec![2; 16 << 10];
            for _ in 0..3 {
                db.put(b"a", &large).unwrap();
                db.compact().unwrap();
                (0..3).for_each(|_| assert_eq!(get(&db, b"a").unwrap(), large));
                let held = cache_bytes();
                assert!(held < 8 << 10, "{profile:?}: {held} bytes are cached");
            }
        }
    }

    #[test]
    fn rows_can_be_done_without() {
        let misses_of_gets = |row_cache| {
            let dir = tempfile::tempdir().unwrap();
            let options = Options {
                row_cache,
                block_cache_bytes: Some(64 << 10),
                ..Options::tiny()
            };
            let db = Db::open(dir.path(), options).unwrap();
            let keys: Vec<Vec<u8>> = (0..4000_u32)
                .map(|i| format!("key{i:05}").into_bytes())
                .collect();
            keys.iter().for_each(|key| db.put(key, [1; 50]).unwrap());
            db.compact().unwrap();
            // The entries fit into the cache, but their blocks do not.
            let gets = || {
                keys.iter()
                    .step_by(20)
                    .for_each(|key| assert_eq!(db.get(key).unwrap().unwrap(), [1; 50]))
            };
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
        let cache = Arc::new(BlockCache::new(1 << 20));
        let rows = RowCache::new(cache, SeqNo(5), true);
        let (key, hash, tag) = (b"k", hash(b"k"), Tag::new(SeqNo(3), Kind::Put));
        let get = |seqno| {
            rows.get(key, hash, SeqNo(seqno))
                .map(|(_, value)| value.to_vec())
        };
        let keep = |from, through| {
            rows.keep(&(SeqNo(from)..=SeqNo(through)), key, hash, tag, b"v");
        };
        keep(5, 4);
        assert_eq!(get(9), None, "brought by one who sees not all");
        keep(2, 4);
        assert_eq!(get(9), None, "brought from an older state");
        keep(5, 9);
        assert_eq!(get(9), Some(b"v".to_vec()));
        assert_eq!(get(2), None, "above the read point");
        assert_eq!(
            rows.get(b"other", hash, SeqNo(9)).map(|(tag, _)| tag),
            None,
            "of the same hash"
        );
        let flushed = Arc::new(Memtable::new(4096, FileId(1)));
        flushed.freeze(SeqNo(8));
        rows.follow(&flushed);
        assert_eq!(get(9), Some(b"v".to_vec()), "is not in that buffer");
        let bring = |from, through| {
            let searched = SeqNo(from)..=SeqNo(through);
            rows.keep(&searched, key, hash, tag, b"other");
            get(9)
        };
        assert_eq!(
            bring(5, 7),
            Some(b"v".to_vec()),
            "it took writes when he looked"
        );
        assert_eq!(
            bring(5, 8),
            Some(b"other".to_vec()),
            "he knows that it is not there, before the state changes"
        );
        assert_eq!(bring(8, 9), Some(b"other".to_vec()));
    }
}
