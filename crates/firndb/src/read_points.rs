//! Read points that merges respect while they are in use: those of snapshots and cursors.

use firn_base::SeqNo;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
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
