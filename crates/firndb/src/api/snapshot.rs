//! Snapshots: read points that compactions respect while they exist.

use crate::api::cursor::Cursor;
use crate::api::db::Db;
use crate::api::iter::Iter;
use crate::options::ReadOptions;
use crate::read_points::Point;
use firn_base::Result;
use firn_table::Value;
use std::ops::RangeBounds;
use std::sync::Arc;

/// The state of the database at the time the snapshot was taken. It holds everything it needs and
/// may be kept for any time, but the space of entries that were overwritten since is released only
/// after it is dropped.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) db: Db,
    pub(crate) point: Arc<Point>,
}

impl Snapshot {
    /// The value of `key` in the snapshot.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.db.get_at(key.as_ref(), self.point.seqno)
    }

    /// The values of several keys in the snapshot. The reads are issued together.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value>>> {
        self.db.multi_get_at(keys, Some(self.point.seqno))
    }

    /// True if `key` has a value in the snapshot.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(key).map(|found| found.is_some())
    }

    /// The entry with the smallest key.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn first(&self) -> Result<Option<(Vec<u8>, Value)>> {
        self.iter().next().transpose()
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn last(&self) -> Result<Option<(Vec<u8>, Value)>> {
        self.iter().next_back().transpose()
    }

    /// An iterator over all entries. Its first item is the error if the database was closed.
    pub fn iter(&self) -> Iter {
        Iter::new(&self.db, self.within(ReadOptions::default()))
    }

    /// An iterator over the entries with keys in `range`.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        Iter::new(&self.db, self.within(ReadOptions::range(range)))
    }

    /// An iterator over the entries whose keys begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(&self.db, self.within(ReadOptions::prefix(prefix)))
    }

    /// A cursor over all keys.
    ///
    /// # Errors
    /// As [`Db::cursor`].
    pub fn cursor(&self) -> Result<Cursor> {
        self.cursor_with(ReadOptions::default())
    }

    /// A cursor with bounds.
    ///
    /// # Errors
    /// As [`Db::cursor`].
    pub fn cursor_with(&self, options: ReadOptions) -> Result<Cursor> {
        self.db.cursor_with(self.within(options))
    }

    fn within(&self, options: ReadOptions) -> ReadOptions {
        ReadOptions {
            snapshot: Some(self.clone()),
            ..options
        }
    }

    /// The sequence number of the last write that the snapshot shows.
    pub fn seqno(&self) -> u64 {
        self.point.seqno.0
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({}, of {:?})", self.seqno(), self.db)
    }
}
