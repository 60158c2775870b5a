//! The extent of a tree.

use super::layout::{HEADER_BYTES, Header};
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_pm::{Extent, Frozen, Pool};
use std::fmt;
use std::sync::Arc;

/// A tree's extent. Dropping it frees nothing, so no reader ever does; [`IfTreeSpace::release`]
/// does.
pub struct IfTreeSpace {
    pool: Arc<Pool>,
    pub(super) id: FileId,
    extent: Extent,
    /// The extent's handle; `None` if another process may free and reuse it at any time.
    frozen: Option<Frozen>,
}

impl IfTreeSpace {
    pub(super) fn new(pool: Arc<Pool>, id: FileId, frozen: Frozen) -> IfTreeSpace {
        IfTreeSpace {
            pool,
            id,
            extent: frozen.extent(),
            frozen: Some(frozen),
        }
    }

    /// The extent of tree `id` in a pool that another process may write. Its readers find out if
    /// the extent was reused, because they check every group.
    pub fn foreign(pool: Arc<Pool>, id: FileId, extent: Extent) -> IfTreeSpace {
        IfTreeSpace {
            pool,
            id,
            extent,
            frozen: None,
        }
    }

    /// The tree's id.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Its place in the pool.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The handle of the extent, if this process owns it.
    pub fn frozen(&self) -> Option<&Frozen> {
        self.frozen.as_ref()
    }

    /// Frees the extent. REQUIRES: no durable record names it, and no reader has it.
    ///
    /// # Errors
    /// The error of the pool. The extent stays allocated until the next open.
    pub fn release(self) -> Result<()> {
        match self.frozen {
            Some(frozen) => self.pool.free_frozen(frozen).map_err(|(_, error)| error),
            None => Ok(()),
        }
    }

    /// Reads the bytes at `at` of the tree.
    ///
    /// # Errors
    /// `Corruption` if they are not in it.
    #[inline]
    pub(super) fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        let end = at as u64 + out.len() as u64;
        match self.extent.at(at as u64).filter(|_| end <= self.extent.len) {
            Some(place) => self.pool.read(place, out),
            None => Err(self.damaged(at, "the tree's bytes")),
        }
    }

    /// The header.
    ///
    /// # Errors
    /// `Corruption` if another tree or none begins there; `Changed` if another process may have
    /// reused the extent.
    pub(super) fn header(&self) -> Result<Header> {
        let mut bytes = [0; HEADER_BYTES];
        self.read(0, &mut bytes)?;
        let header = Header::decode(&bytes, &self.pool.uuid(), self.extent.offset.get());
        header
            .filter(|header| header.id == self.id && header.end() as u64 <= self.extent.len)
            .ok_or_else(|| self.damaged(0, "a tree's header"))
    }

    /// The error of a reader that met damage at `at`: `Changed` if another process may have reused
    /// the extent.
    #[cold]
    pub(super) fn damaged(&self, at: usize, expected: &str) -> Error {
        let place = format!("tree {} in the pool", self.id);
        match self.frozen {
            Some(_) => Error::corruption(place, self.extent.offset.get() + at as u64, expected),
            None => Error::changed(format_args!("{place}")),
        }
    }

    /// The error as it is, or `Changed` if another process may have caused it.
    pub(super) fn told(&self, error: Error) -> Error {
        match (error.kind(), &self.frozen) {
            (ErrorKind::Corruption, None) => {
                Error::changed(format_args!("tree {} in the pool", self.id))
            }
            _ => error,
        }
    }
}

impl fmt::Debug for IfTreeSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IfTreeSpace")
            .field("id", &self.id)
            .field("extent", &self.extent)
            .finish_non_exhaustive()
    }
}
