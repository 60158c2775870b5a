//! Space set aside before work starts, so that a compaction inside persistent memory cannot run out
//! of space halfway.
//!
//! 1. Headroom is a number of bytes, not a set of ranges: it protects against other allocations,
//!    not against fragmentation. Work that allocates extents of one size (as all structures here
//!    do) finds them as long as frees are of that size too.

use crate::extents::ExtentMap;
use crate::offset::Extent;
use crate::owner::Owner;
use firn_base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Reserved space. The unused rest is returned on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the space back"]
pub struct Headroom {
    map: Arc<ExtentMap>,
    left_bytes: u64,
}

impl Headroom {
    pub(crate) fn new(map: &Arc<ExtentMap>, bytes: u64) -> Result<Self> {
        Ok(Self {
            left_bytes: map.promise(bytes)?,
            map: map.clone(),
        })
    }

    /// Bytes not yet allocated.
    pub fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Allocates from the reserved space.
    ///
    /// # Errors
    /// `NoSpace` if less than `len` is left, or no free range is long enough.
    pub fn alloc(&mut self, len: u64, owner: Owner) -> Result<Extent> {
        self.alloc_up_to(len, len, owner)
    }

    /// Allocates from the reserved space `most` bytes in one piece, or as many as there are, but at
    /// least `least`.
    ///
    /// # Errors
    /// `NoSpace` if less than `least` is left, or no free range is long enough.
    pub fn alloc_up_to(&mut self, least: u64, most: u64, owner: Owner) -> Result<Extent> {
        let whole = least.checked_next_multiple_of(crate::GRANULE_BYTES);
        if whole.is_none_or(|whole| whole > self.left_bytes) {
            let left = self.left_bytes;
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!("{left} bytes of headroom are left, not {least}"),
            ));
        }
        let most = most.min(self.left_bytes).max(least);
        let extent = self.map.alloc_up_to(least, most, owner, true)?;
        self.left_bytes -= extent.len;
        Ok(extent)
    }

    /// Gives back what `extent`, which was allocated from it, has beyond its first `len` bytes,
    /// rounded up to whole granules. Returns the rest of the extent.
    ///
    /// # Errors
    /// As [`crate::Pool::trim`].
    pub fn trim(&mut self, extent: Extent, len: u64) -> Result<Extent> {
        let kept = self.map.trim(extent, len)?;
        // Nobody else can have taken it but those who need no promise.
        self.left_bytes += self.map.promise(extent.len - kept.len).unwrap_or(0);
        Ok(kept)
    }
}

impl Drop for Headroom {
    fn drop(&mut self) {
        self.map.unpromise(self.left_bytes);
    }
}
