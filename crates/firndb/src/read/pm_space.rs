//! The space of a table in persistent memory, of either kind, and its way into a state and out of
//! it.
//!
//! 1. What a job writes belongs to the job until a durable record names it. Dropping a
//!    [`NewTable`] before frees the space.
//! 2. Space is freed behind the last reader: only who gives up the last reference frees it.

use crate::read::table_run::TableCache;
use firn_base::{FileId, Result};
use firn_table::pm_skiplist::{ListSpace, ListTotals};
use firn_table::pm_table::PmTableSpace;
use std::sync::Arc;

/// The space of a table in persistent memory.
#[derive(Debug, Clone)]
pub(crate) enum PmSpace {
    List(Arc<ListSpace>, ListTotals),
    Sorted(Arc<PmTableSpace>),
}

impl PmSpace {
    /// The table's id.
    pub(crate) fn id(&self) -> FileId {
        match self {
            PmSpace::List(space, _) => space.id(),
            PmSpace::Sorted(space) => space.id(),
        }
    }

    /// Bytes of memory that it takes even if the table is not open.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            PmSpace::List(space, _) => space.memory_bytes(),
            PmSpace::Sorted(space) => space.memory_bytes(),
        }
    }

    /// The list's space, if it is a list.
    pub(crate) fn list(&self) -> Option<&Arc<ListSpace>> {
        match self {
            PmSpace::List(space, _) => Some(space),
            PmSpace::Sorted(_) => None,
        }
    }

    /// The table's space, if it is a sorted table.
    pub(crate) fn sorted(&self) -> Option<&Arc<PmTableSpace>> {
        match self {
            PmSpace::List(..) => None,
            PmSpace::Sorted(space) => Some(space),
        }
    }

    /// Counts its entries as part of a state.
    pub(crate) fn count_live(&self) {
        if let PmSpace::List(space, _) = self {
            space.count_live();
        }
    }

    /// Takes its entries off that count.
    pub(crate) fn count_dead(&self) {
        if let PmSpace::List(space, _) = self {
            space.count_dead();
        }
    }

    /// True if nobody else has it.
    pub(crate) fn is_last(&self) -> bool {
        match self {
            PmSpace::List(space, _) => Arc::strong_count(space) == 1,
            PmSpace::Sorted(space) => Arc::strong_count(space) == 1,
        }
    }

    /// Frees it, unless somebody else has it, who gets it back. REQUIRES: no durable record names
    /// it.
    pub(crate) fn release(self) -> Result<Result<()>, PmSpace> {
        match self {
            PmSpace::List(space, totals) => Arc::try_unwrap(space)
                .map(ListSpace::release)
                .map_err(|held| PmSpace::List(held, totals)),
            PmSpace::Sorted(space) => Arc::try_unwrap(space)
                .map(PmTableSpace::release)
                .map_err(PmSpace::Sorted),
        }
    }
}

/// A table in persistent memory that is not part of a state yet. Dropping it frees its space.
#[derive(Debug)]
pub(crate) struct NewTable(Option<PmSpace>);

impl NewTable {
    pub(crate) fn list(space: ListSpace, totals: ListTotals) -> NewTable {
        NewTable(Some(PmSpace::List(Arc::new(space), totals)))
    }

    pub(crate) fn sorted(space: PmTableSpace) -> NewTable {
        NewTable(Some(PmSpace::Sorted(Arc::new(space))))
    }

    /// Gives up tables that a durable record names to the next state.
    pub(crate) fn install_all(new: Vec<NewTable>, tables: &TableCache) {
        for space in new.into_iter().filter_map(|mut table| table.0.take()) {
            tables.add_placed(space);
        }
    }

    /// The table's space.
    pub(crate) fn get(&self) -> Option<&PmSpace> {
        self.0.as_ref()
    }

    /// Leaves the space taken, because a record that names the table may turn out to be durable.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for NewTable {
    fn drop(&mut self) {
        if let Some(Ok(Err(error))) = self.0.take().map(PmSpace::release) {
            // The next open frees it.
            tracing::warn!(%error, "the space of a table that was not installed stays taken");
        }
    }
}
