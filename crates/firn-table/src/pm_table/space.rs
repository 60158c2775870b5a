//! The extent of a table.

use super::layout::{HEADER_BYTES, Header, PmTotals};
use super::read_groups::ReadGroups;
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_pm::{Extent, Frozen, Pool};
use std::fmt;
use std::sync::Arc;

/// A table's extent. Dropping it frees nothing, so no reader ever does; [`PmTableSpace::release`]
/// does.
pub struct PmTableSpace {
    pub(super) pool: Arc<Pool>,
    pub(super) id: FileId,
    pub(super) extent: Extent,
    /// The extent's handle; `None` if another process may free and reuse it at any time.
    frozen: Option<Frozen>,
    /// A copy, in the latter case, if there is memory for it.
    copy: Option<Box<[u8]>>,
    /// The groups in which gets found entries. They are here, because a table may be closed.
    pub(super) read_groups: ReadGroups,
}

impl PmTableSpace {
    pub(super) fn new(pool: Arc<Pool>, id: FileId, frozen: Frozen) -> PmTableSpace {
        PmTableSpace {
            pool,
            id,
            extent: frozen.extent(),
            frozen: Some(frozen),
            copy: None,
            read_groups: ReadGroups::default(),
        }
    }

    /// The extent of table `id` in a pool that another process may write. Its readers find out if
    /// the extent was reused, because they check every group.
    pub fn foreign(pool: Arc<Pool>, id: FileId, extent: Extent) -> PmTableSpace {
        PmTableSpace {
            pool,
            id,
            extent,
            frozen: None,
            copy: None,
            read_groups: ReadGroups::default(),
        }
    }

    /// The same with a copy of its bytes, which another process cannot change. They may have been
    /// changed before: the table is to be verified.
    ///
    /// # Errors
    /// The error of reading the pool.
    pub fn copied(self) -> Result<PmTableSpace> {
        let mut bytes = vec![0; self.extent.len as usize];
        self.read(0, &mut bytes)?;
        Ok(PmTableSpace {
            copy: Some(bytes.into()),
            ..self
        })
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let copy = self.copy.as_ref().map_or(0, |copy| copy.len());
        size_of::<PmTableSpace>() + copy + self.read_groups.memory_bytes()
    }

    /// The number of groups in which gets found entries since this process knows the table.
    pub fn groups_read(&self) -> u32 {
        self.read_groups.count()
    }

    /// The table's id.
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

    /// Reads the bytes at `at` of the table.
    ///
    /// # Errors
    /// `Corruption` if they are not in it.
    #[inline]
    pub(super) fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        let end = at as u64 + out.len() as u64;
        if let Some(copy) = &self.copy {
            let bytes = copy.get(at..at + out.len());
            out.copy_from_slice(bytes.ok_or_else(|| self.damaged(at, "the table's bytes"))?);
            return Ok(());
        }
        match self.extent.at(at as u64).filter(|_| end <= self.extent.len) {
            Some(place) => self.pool.read(place, out),
            None => Err(self.damaged(at, "the table's bytes")),
        }
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
        let header = Header::decode(&bytes, &self.pool.uuid(), self.extent.offset.get());
        header
            .filter(|header| header.id == self.id && header.end() as u64 <= self.extent.len)
            .ok_or_else(|| self.damaged(0, "a table's header"))
    }

    /// The error of a reader that met damage at `at`: `Changed` if another process may have reused
    /// the extent.
    #[cold]
    pub(super) fn damaged(&self, at: usize, expected: &str) -> Error {
        let place = format!("table {} in the pool", self.id);
        match self.frozen {
            Some(_) => Error::corruption(place, self.extent.offset.get() + at as u64, expected),
            None => Error::changed(format_args!("{place}")),
        }
    }

    /// The error as it is, or `Changed` if another process may have caused it.
    pub(super) fn told(&self, error: Error) -> Error {
        match (error.kind(), &self.frozen) {
            (ErrorKind::Corruption, None) => {
                Error::changed(format_args!("table {} in the pool", self.id))
            }
            _ => error,
        }
    }
}

impl fmt::Debug for PmTableSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PmTableSpace")
            .field("id", &self.id)
            .field("extent", &self.extent)
            .finish_non_exhaustive()
    }
}
