//! The use of the pool's space: live + free + the pool's own pages = the pool, exactly.

use crate::owner::Owner;
use firn_base::{Error, Result};

/// The pool's space at one moment, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The whole pool.
    pub pool_bytes: u64,
    /// The header and root pages.
    pub header_bytes: u64,
    /// In no extent; includes headroom.
    pub free_bytes: u64,
    /// The part of the free space that [`crate::Headroom`]s set aside.
    pub headroom_bytes: u64,
    /// Not claimed yet; 0 once recovery is finished.
    pub unclaimed_bytes: u64,
    pub(crate) live_bytes: [u64; Owner::SLOTS],
}

impl Usage {
    /// Bytes in extents of `owner`.
    pub fn live(&self, owner: Owner) -> u64 {
        self.live_bytes[owner as usize]
    }

    /// Bytes in extents of all owners.
    pub fn live_total(&self) -> u64 {
        self.live_bytes.iter().sum()
    }

    /// Checks that the parts add up to the whole.
    ///
    /// # Errors
    /// `Corruption` if they do not: an extent leaked or is counted twice.
    pub fn check(&self) -> Result<()> {
        let sum = self.live_total() + self.free_bytes + self.header_bytes + self.unclaimed_bytes;
        if sum == self.pool_bytes && self.headroom_bytes <= self.free_bytes {
            return Ok(());
        }
        Err(Error::corruption(
            "the pool",
            0,
            format!("live + free + header to be the pool, but {self:?}"),
        ))
    }
}
