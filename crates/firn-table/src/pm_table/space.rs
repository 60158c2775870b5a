//! The extent of a table.

use super::layout::{HEADER_BYTES, Header, PmTotals};
use super::read_groups::ReadGroups;
use crate::frozen_space::FrozenSpace;
use firn_base::{FileId, Result};
use firn_pm::{Extent, Frozen, Pool};
use std::ops::Deref;
use std::sync::Arc;

const WHAT: &str = "table";

/// A table's extent. Dropping it frees nothing, so no reader ever does; [`PmTableSpace::release`]
/// does.
#[derive(Debug)]
pub struct PmTableSpace {
    space: FrozenSpace,
    /// The groups in which gets found entries. They are here, because a table may be closed.
    pub(super) read_groups: ReadGroups,
}

impl Deref for PmTableSpace {
    type Target = FrozenSpace;

    fn deref(&self) -> &FrozenSpace {
        &self.space
    }
}

impl PmTableSpace {
    pub(super) fn new(pool: Arc<Pool>, id: FileId, frozen: Frozen) -> PmTableSpace {
        PmTableSpace {
            space: FrozenSpace::new(WHAT, pool, id, frozen),
            read_groups: ReadGroups::default(),
        }
    }

    /// The extent of table `id` in a pool that another process may write. Its readers find out if
    /// the extent was reused, because they check every group.
    pub fn foreign(pool: Arc<Pool>, id: FileId, extent: Extent) -> PmTableSpace {
        PmTableSpace {
            space: FrozenSpace::foreign(WHAT, pool, id, extent),
            read_groups: ReadGroups::default(),
        }
    }

    /// The same with a copy of its bytes, which another process cannot change. They may have been
    /// changed before: the table is to be verified.
    ///
    /// # Errors
    /// The error of reading the pool.
    pub fn copied(self) -> Result<PmTableSpace> {
        Ok(PmTableSpace {
            space: self.space.copied()?,
            ..self
        })
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<PmTableSpace>() + self.copy_bytes() + self.read_groups.memory_bytes()
    }

    /// As [`FrozenSpace::release`].
    ///
    /// # Errors
    /// As [`FrozenSpace::release`].
    pub fn release(self) -> Result<()> {
        self.space.release()
    }

    /// The number of groups in which gets found entries since this process knows the table.
    pub fn groups_read(&self) -> u32 {
        self.read_groups.count()
    }

    /// The sums of the table.
    ///
    /// # Errors
    /// `Corruption` if another table or none begins there; `Changed` if another process may have
    /// reused the extent.
    pub fn totals(&self) -> Result<PmTotals> {
        self.header().map(|header| header.totals)
    }

    /// The header.
    pub(super) fn header(&self) -> Result<Header> {
        let mut bytes = [0; HEADER_BYTES];
        self.read(0, &mut bytes)?;
        let header = Header::decode(&bytes, &self.pool().uuid(), self.extent().offset.get());
        header
            .filter(|header| header.id == self.id() && header.end() as u64 <= self.extent().len)
            .ok_or_else(|| self.damaged(0, "a table's header"))
    }
}
