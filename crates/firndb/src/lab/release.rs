//! Frees the leaves and pointers that level 0 no longer has, once no reader can reach them.
//!
//! Level 0 passes through *generations*: each change (a step of a flush, the eviction of a chunk, a
//! rotation of the trees) ends one and begins the next. A reader holds the generation it reads,
//! through the state or through a cursor over the trees.
//!
//! 1. Items removed by a change may still be reachable from the generation it ended and from older
//!    ones. They are queued with the generation that ended.
//! 2. Only the front of the queue is freed, and only when nothing else holds its generation.
//! 3. So everything that a held generation can reach stays. The change that ended the generation
//!    queued that generation, and the queue stops there, before anything removed since. Items
//!    removed by earlier changes are not reachable from it.
//! 4. This needs *every* change to queue the generation it ended, even a change that removes
//!    nothing. So `Engine::swap_trees`, the only place that changes level 0, does it.
//!
//! Queuing the view of the tree that changed would not be enough, because a reader need not hold
//! that view. When the trees rotate, the new mutable tree is a view that no earlier reader holds,
//! and items that flushes remove after that would be freed while earlier readers can still reach
//! them.
//!
//! Thread safety: `Send + Sync`. The queue has a lock of its own, which is never held during I/O.

use super::view::Trees;
use crate::memtable::Memtable;
use firn_base::sync::Mutex;
use firn_table::pm_btree::{Place, ValueAddress};
use std::collections::VecDeque;
use std::sync::Arc;

/// Level 0 from one change to the next. Holding it keeps everything that both trees and the
/// retained versions could reach then: leaves, values in logs, slots of the hot buffer.
#[derive(Debug, Default)]
pub(crate) struct Generation;

/// The queue of items to free.
#[derive(Default)]
pub(crate) struct Releases {
    queue: Mutex<VecDeque<Release>>,
    /// Held while a new level 0 is derived from the current one.
    pub(crate) changing: Mutex<()>,
    /// A memtable whose flush was interrupted, and its last key that is in the trees.
    partly: Mutex<Option<(Arc<Memtable>, Vec<u8>)>>,
}

/// The leaves and pointers that one change removed, and the generation that it ended.
struct Release {
    generation: Arc<Generation>,
    places: Vec<Place>,
    pointers: Vec<ValueAddress>,
}

impl Releases {
    /// Queues the leaves and pointers removed by the change that ended `generation`. REQUIRES:
    /// every change calls this, in the order of the changes.
    pub(crate) fn push(
        &self,
        generation: Arc<Generation>,
        places: Vec<Place>,
        pointers: Vec<ValueAddress>,
    ) {
        self.queue.lock().push_back(Release {
            generation,
            places,
            pointers,
        });
    }

    /// True if everything was freed.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// The last flushed key of `buffer`, if its flush was interrupted.
    pub(crate) fn flushed_to(&self, buffer: &Arc<Memtable>) -> Option<Vec<u8>> {
        let partly = self.partly.lock();
        partly
            .as_ref()
            .filter(|(of, _)| Arc::ptr_eq(of, buffer))
            .map(|(_, last)| last.clone())
    }

    /// True if the flush of `buffer` was interrupted, so that some of it is in the trees, or
    /// already in level 1.
    pub(crate) fn is_begun(&self, buffer: &Arc<Memtable>) -> bool {
        let partly = self.partly.lock();
        partly
            .as_ref()
            .is_some_and(|(of, _)| Arc::ptr_eq(of, buffer))
    }

    pub(crate) fn set_flushed_to(&self, partly: Option<(Arc<Memtable>, Vec<u8>)>) {
        *self.partly.lock() = partly;
    }

    /// Frees everything that no reader can reach any more. True if there was any.
    pub(crate) fn run(&self, trees: &Trees) -> bool {
        let mut any = false;
        let mut queue = self.queue.lock();
        // `get_mut` rather than `strong_count`, which orders nothing: the last reader's loads must
        // come before the next store to the same place.
        while queue
            .front_mut()
            .is_some_and(|release| Arc::get_mut(&mut release.generation).is_some())
        {
            let Some(release) = queue.pop_front() else {
                break;
            };
            trees.store.release(&release.places);
            release
                .pointers
                .into_iter()
                .for_each(|at| trees.values.remove(at));
            any = true;
        }
        any
    }
}
