//! Snapshots: read points that merges respect while they live.

use crate::api::db::Db;
use crate::api::iter::Iter;
use crate::options::ReadOptions;
use crate::read_points::Point;
use firn_base::Result;
use firn_table::Value;
use std::sync::Arc;

/// The database as it was when this was taken. Owns what it needs: keep it as long as you like, but the space of what
/// was overwritten since comes back only once it is dropped.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) db: Db,
    pub(crate) point: Arc<Point>,
}

impl Snapshot {
    /// The value that `key` had.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.db.get_at(key.as_ref(), self.point.seqno)
    }

    /// A cursor over all keys as they were.
    ///
    /// # Errors
    /// As [`Db::iter`].
    pub fn iter(&self) -> Result<Iter> {
        self.iter_with(ReadOptions::default())
    }

    /// A cursor with bounds.
    ///
    /// # Errors
    /// As [`Db::iter_with`].
    pub fn iter_with(&self, options: ReadOptions) -> Result<Iter> {
        self.db.iter_with(ReadOptions { snapshot: Some(self.clone()), ..options })
    }

    /// The position in the order of all writes that it shows.
    pub fn seqno(&self) -> u64 {
        self.point.seqno.0
    }
}
