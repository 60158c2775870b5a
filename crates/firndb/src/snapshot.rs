//! Snapshots: read points that merges respect while they live.

use crate::db::Db;
use crate::iter::Iter;
use crate::options::ReadOptions;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_base::{Result, SeqNo};
use firn_table::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The read points in use. A point is registered before anything is read at it.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    points: Mutex<BTreeMap<SeqNo, usize>>,
}

impl Snapshots {
    /// Registers the present as a read point.
    pub(crate) fn register(self: &Arc<Self>, visible: &AtomicU64) -> Arc<Point> {
        let mut points = self.points.lock();
        // Read under the lock: a merge that lists the points later sees this one, one that did before dropped only
        // versions that were superseded at a point no higher than this.
        let seqno = SeqNo(visible.load(Ordering::Acquire));
        *points.entry(seqno).or_default() += 1;
        Arc::new(Point { seqno, owner: self.clone() })
    }

    /// The points in use and the present, ascending: what a merge must serve.
    pub(crate) fn list(&self, visible: &AtomicU64) -> Vec<SeqNo> {
        let points = self.points.lock();
        let now = SeqNo(visible.load(Ordering::Acquire));
        points.keys().copied().filter(|&point| point < now).chain([now]).collect()
    }

    /// The oldest of those that [`Snapshots::list`] gives.
    pub(crate) fn oldest(&self, visible: &AtomicU64) -> SeqNo {
        let points = self.points.lock();
        let now = SeqNo(visible.load(Ordering::Acquire));
        points.keys().next().map_or(now, |&oldest| oldest.min(now))
    }

    /// How many are in use.
    pub(crate) fn len(&self) -> usize {
        self.points.lock().values().sum()
    }
}

/// Whether one of `snapshots`, ascending, sees the version from `seqno` on that was superseded at `until`.
pub(crate) fn is_seen(snapshots: &[SeqNo], seqno: SeqNo, until: SeqNo) -> bool {
    let at = snapshots.partition_point(|&snapshot| snapshot < seqno);
    snapshots.get(at).is_some_and(|&snapshot| snapshot < until)
}

/// A registered read point; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) seqno: SeqNo,
    owner: Arc<Snapshots>,
}

impl Drop for Point {
    fn drop(&mut self) {
        let mut points = self.owner.points.lock();
        if let Some(count) = points.get_mut(&self.seqno) {
            *count -= 1;
            if *count == 0 {
                points.remove(&self.seqno);
            }
        }
    }
}

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
