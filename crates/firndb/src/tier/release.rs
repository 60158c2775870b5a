//! What newer views of the trees do not have any more, until nobody reads an older one.
//!
//! What a step replaced may be in every view before it, so it is let go of in the order of views: the front of a queue
//! goes once nobody holds its view, and with it no older one is held.

use super::view::Trees;
use crate::buffer::Buffer;
use firn_base::sync::Mutex;
use firn_table::pm_btree::{Place, ValueAddress, View};
use std::collections::VecDeque;
use std::sync::Arc;

/// The queue.
#[derive(Default)]
pub(crate) struct Releases {
    queue: Mutex<VecDeque<Release>>,
    /// Held by who makes a new level 0 from the one that is there.
    pub(super) changing: Mutex<()>,
    /// A buffer whose flush was interrupted, and the last key of it that is in the trees.
    partly: Mutex<Option<(Arc<Buffer>, Vec<u8>)>>,
}

/// What is let go of once `view` is.
struct Release {
    view: Arc<View>,
    places: Vec<Place>,
    pointers: Vec<ValueAddress>,
}

impl Releases {
    /// `view` was replaced by one that has neither these leaves nor, anywhere in level 0, these pointers.
    pub(crate) fn push(&self, view: Arc<View>, places: Vec<Place>, pointers: Vec<ValueAddress>) {
        self.queue.lock().push_back(Release { view, places, pointers });
    }

    /// Whether everything was let go of.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// How far the flush of `buffer` came, if it was interrupted.
    pub(super) fn flushed_to(&self, buffer: &Arc<Buffer>) -> Option<Vec<u8>> {
        let partly = self.partly.lock();
        partly.as_ref().filter(|(of, _)| Arc::ptr_eq(of, buffer)).map(|(_, last)| last.clone())
    }

    pub(super) fn set_flushed_to(&self, partly: Option<(Arc<Buffer>, Vec<u8>)>) {
        *self.partly.lock() = partly;
    }

    /// Lets go of what nobody can read any more. True if there was any.
    pub(crate) fn run(&self, trees: &Trees) -> bool {
        let mut any = false;
        let mut queue = self.queue.lock();
        while queue.front().is_some_and(|release| Arc::strong_count(&release.view) == 1) {
            let Some(release) = queue.pop_front() else { break };
            trees.store.release(&release.places);
            release.pointers.into_iter().for_each(|at| trees.values.remove(at));
            any = true;
        }
        any
    }
}
