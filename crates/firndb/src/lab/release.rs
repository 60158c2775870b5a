//! Frees the leaves and pointers that level 0 no longer has, once no reader can reach them.
//!
//! Level 0 passes through *generations*: each change (a step of a flush, the eviction of a chunk, the trees changing
//! places) ends one and begins the next. A reader holds the generation it reads, through the state or through a cursor
//! over the trees.
//!
//! 1. What a change takes away may still be reachable from the generation it ended and from older ones. It is queued
//!    with the generation that ended.
//! 2. Only the front of the queue is freed, and only when nobody else holds its generation.
//! 3. So everything that a held generation can reach stays. The change that ended the generation queued that
//!    generation, and the queue stops there, before anything taken away since. What earlier changes took away is not in
//!    it.
//! 4. This needs *every* change to queue the generation it ended, even a change that takes nothing away. So
//!    `Engine::swap_trees`, the only place that changes level 0, does it.
//!
//! Queuing the view of the tree that changed would not do, because a reader need not hold that view. When the trees
//! change places the new mutable tree is a view that no earlier reader holds, and what flushes take away after that
//! would be freed while earlier readers can still reach it.
//!
//! Thread safety: `Send + Sync`. The queue has a lock of its own, which is held for no I/O.

use super::view::Trees;
use crate::memtable::Memtable;
use firn_base::sync::Mutex;
use firn_table::pm_btree::{Place, ValueAddress};
use std::collections::VecDeque;
use std::sync::Arc;

/// Level 0 from one change to the next. Holding it keeps everything that both trees and the side table could reach
/// then: leaves, values in logs, slots of the hot buffer.
#[derive(Debug, Default)]
pub(crate) struct Generation;

/// The queue.
#[derive(Default)]
pub(crate) struct Releases {
    queue: Mutex<VecDeque<Release>>,
    /// Held by who makes a new level 0 from the one that is there.
    pub(crate) changing: Mutex<()>,
    /// A buffer whose flush was interrupted, and the last key of it that is in the trees.
    partly: Mutex<Option<(Arc<Memtable>, Vec<u8>)>>,
}

/// The leaves and pointers that one change took away, and the generation that it ended.
struct Release {
    generation: Arc<Generation>,
    places: Vec<Place>,
    pointers: Vec<ValueAddress>,
}

impl Releases {
    /// Queues what the change that ended `generation` took away: these leaves, and these pointers wherever they were.
    /// REQUIRES: every change calls this, in the order of the changes.
    pub(crate) fn push(&self, generation: Arc<Generation>, places: Vec<Place>, pointers: Vec<ValueAddress>) {
        self.queue.lock().push_back(Release { generation, places, pointers });
    }

    /// Whether everything was freed.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// How far the flush of `buffer` came, if it was interrupted.
    pub(crate) fn flushed_to(&self, buffer: &Arc<Memtable>) -> Option<Vec<u8>> {
        let partly = self.partly.lock();
        partly.as_ref().filter(|(of, _)| Arc::ptr_eq(of, buffer)).map(|(_, last)| last.clone())
    }

    pub(crate) fn set_flushed_to(&self, partly: Option<(Arc<Memtable>, Vec<u8>)>) {
        *self.partly.lock() = partly;
    }

    /// Frees what no reader can reach any more. True if there was any.
    pub(crate) fn run(&self, trees: &Trees) -> bool {
        let mut any = false;
        let mut queue = self.queue.lock();
        // `get_mut` rather than `strong_count`, which orders nothing: the last reader's loads must come before whatever
        // is stored in the same place next.
        while queue.front_mut().is_some_and(|release| Arc::get_mut(&mut release.generation).is_some()) {
            let Some(release) = queue.pop_front() else { break };
            trees.store.release(&release.places);
            release.pointers.into_iter().for_each(|at| trees.values.remove(at));
            any = true;
        }
        any
    }
}
