//! Read points of snapshots and cursors, which compactions respect while they are in use.

use firn_base::SeqNo;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The read points in use. A point is registered before any read at it.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    points: Mutex<BTreeMap<SeqNo, usize>>,
}

impl Snapshots {
    /// Registers the current visible sequence number as a read point.
    pub(crate) fn register(self: &Arc<Self>, visible: &AtomicU64) -> Arc<Point> {
        let mut points = self.points.lock();
        // Read under the lock. A compaction that lists the points later sees this one. A compaction
        // that listed them earlier dropped only versions that were superseded at or below this
        // point.
        let seqno = SeqNo(visible.load(Ordering::Acquire));
        *points.entry(seqno).or_default() += 1;
        Arc::new(Point {
            seqno,
            owner: self.clone(),
        })
    }

    /// The points in use and the current one, ascending: the points that a compaction must serve.
    pub(crate) fn list(&self, visible: &AtomicU64) -> Vec<SeqNo> {
        let points = self.points.lock();
        let now = SeqNo(visible.load(Ordering::Acquire));
        points
            .keys()
            .copied()
            .filter(|&point| point < now)
            .chain([now])
            .collect()
    }

    /// The oldest point that [`Snapshots::list`] returns.
    pub(crate) fn oldest(&self, visible: &AtomicU64) -> SeqNo {
        let points = self.points.lock();
        let now = SeqNo(visible.load(Ordering::Acquire));
        points.keys().next().map_or(now, |&oldest| oldest.min(now))
    }

    /// The number of read points in use, counting each registration.
    pub(crate) fn len(&self) -> usize {
        self.points.lock().values().sum()
    }
}

/// True if one of `snapshots`, which ascend, sees the version that was written at `seqno` and
/// superseded at `until`.
pub(crate) fn is_seen(snapshots: &[SeqNo], seqno: SeqNo, until: SeqNo) -> bool {
    let at = snapshots.partition_point(|&snapshot| snapshot < seqno);
    snapshots.get(at).is_some_and(|&snapshot| snapshot < until)
}

/// A registered read point, which is released when this is dropped.
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
