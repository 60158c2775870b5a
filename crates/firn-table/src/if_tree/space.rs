//! The extent of a tree.

use super::layout::{HEADER_BYTES, Header};
use crate::frozen_space::FrozenSpace;
use firn_base::{FileId, Result};
use firn_pm::{Extent, Frozen, Pool};
use std::ops::Deref;
use std::sync::Arc;

const WHAT: &str = "tree";

/// A tree's extent. Dropping it frees nothing, so no reader ever does; [`IfTreeSpace::release`]
/// does.
#[derive(Debug)]
pub struct IfTreeSpace(FrozenSpace);

impl Deref for IfTreeSpace {
    type Target = FrozenSpace;

    fn deref(&self) -> &FrozenSpace {
        &self.0
    }
}

impl IfTreeSpace {
    pub(super) fn new(pool: Arc<Pool>, id: FileId, frozen: Frozen) -> IfTreeSpace {
        IfTreeSpace(FrozenSpace::new(WHAT, pool, id, frozen))
    }

    /// The extent of tree `id` in a pool that another process may write. Its readers find out if
    /// the extent was reused, because they check every group.
    pub fn foreign(pool: Arc<Pool>, id: FileId, extent: Extent) -> IfTreeSpace {
        IfTreeSpace(FrozenSpace::foreign(WHAT, pool, id, extent))
    }

    /// As [`FrozenSpace::release`].
    ///
    /// # Errors
    /// As [`FrozenSpace::release`].
    pub fn release(self) -> Result<()> {
        self.0.release()
    }

    /// The header.
    ///
    /// # Errors
    /// `Corruption` if another tree or none begins there; `Changed` if another process may have
    /// reused the extent.
    pub(super) fn header(&self) -> Result<Header> {
        let mut bytes = [0; HEADER_BYTES];
        self.read(0, &mut bytes)?;
        let header = Header::decode(&bytes, &self.pool().uuid(), self.extent().offset.get());
        header
            .filter(|header| header.id == self.id() && header.end() as u64 <= self.extent().len)
            .ok_or_else(|| self.damaged(0, "a tree's header"))
    }
}
