//! The parts of the database that a cursor holds, and their revocation when the cursor is idle.

use crate::engine::Engine;
use crate::memtable::Memtable;
use crate::read::merge_iter::MergeIter;
use crate::read::parts_iter::PartsIter;
use crate::read::run_iter::{LevelIter, RunIter};
use crate::read::state::{Part, ReadState};
use crate::upper::Upper;
use firn_base::Result;
use firn_base::sync::{Mutex, Ordering};
use firn_table::sst::Access;
use std::sync::{Arc, Weak};

/// The parts of the database that a cursor holds. Revoked when the cursor is idle.
pub(crate) struct Pins {
    pub(crate) merge: MergeIter,
    pub(crate) state: Arc<ReadState>,
    pub(crate) direction: Direction,
    /// The idle tick at which the cursor was last moved.
    pub(crate) last_tick: u64,
    /// The number of revocations at the time the pins were taken.
    pub(crate) revocations: u64,
}

impl Pins {
    pub(crate) fn are_of(&self, state: &Arc<ReadState>) -> bool {
        Arc::ptr_eq(&self.state, state)
    }
}

/// The revocable part of a cursor.
pub(crate) type SharedPins = Mutex<Option<Pins>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The merge is at or after the current key's entries.
    Forward,
    /// The merge is before the current key's entries.
    Backward,
    /// The merge is anywhere.
    Elsewhere,
}

/// Iterators over everything in `state`, newest first.
pub(crate) fn children(state: &Arc<ReadState>) -> Result<Vec<RunIter>> {
    let parts = || RunIter::Parts(Box::new(PartsIter::new(state.clone())));
    let mut children = match state.memtables.are_by_part() && state.parts.len() > 1 {
        true => return Ok(vec![parts()]),
        false => over_memtables(&state.memtables.of_part(0).memtables)?,
    };
    match &*state.parts {
        [one] => children.extend(part_children(one)?),
        _ => children.push(parts()),
    }
    Ok(children)
}

/// Iterators over `memtables`.
pub(crate) fn over_memtables<'a>(
    memtables: impl IntoIterator<Item = &'a Arc<Memtable>>,
) -> Result<Vec<RunIter>> {
    let over = |memtable: &Arc<Memtable>| {
        memtable.link_found()?;
        Ok(RunIter::Memtable(memtable.iter()))
    };
    memtables.into_iter().map(over).collect()
}

/// Iterators over the runs of a partition, newest first.
pub(super) fn part_children(part: &Part) -> Result<Vec<RunIter>> {
    let upper = part.upper.iter().flat_map(Upper::iters);
    let mut children: Vec<RunIter> = upper.map(|iter| RunIter::Upper(Box::new(iter))).collect();
    for level in part.levels.values() {
        if level.sorted {
            if !level.runs.is_empty() {
                let level = LevelIter::new(level.clone(), Access::Cached);
                children.push(RunIter::Level(Box::new(level)));
            }
            continue;
        }
        for group in level.sorted_groups() {
            children.push(RunIter::over_sorted(group, Access::Cached)?);
        }
    }
    Ok(children)
}

impl Engine {
    /// Revokes the pins of cursors on older states that were not moved since tick `since`. Returns
    /// false if a cursor was being moved.
    pub(crate) fn revoke_cursors(&self, since: u64) -> bool {
        let iters: Vec<_> = self
            .readers
            .iters
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let current = self.state.load_full();
        let mut all = true;
        for pins in iters {
            match pins.try_lock() {
                Some(mut slot) => {
                    drop(slot.take_if(|held| held.last_tick < since && !held.are_of(&current)))
                }
                None => all = false,
            }
        }
        all
    }

    /// Makes every cursor release its older state. A cursor that is being moved does so with its
    /// next move.
    pub(crate) fn revoke_all_cursors(&self) {
        if !self.revoke_cursors(u64::MAX) {
            self.readers.revocations.fetch_add(1, Ordering::Relaxed);
        }
    }
}
