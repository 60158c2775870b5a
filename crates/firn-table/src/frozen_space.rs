//! The extent of something that was written once, a table or a tree, for its readers.

use firn_base::{Error, ErrorKind, FileId, Result};
use firn_pm::{Extent, Frozen, Pool};
use std::fmt;
use std::sync::Arc;

/// An extent with immutable contents. Dropping it frees nothing, so no reader ever does;
/// [`FrozenSpace::release`] does.
pub struct FrozenSpace {
    /// Its kind, for errors: `table` or `tree`.
    what: &'static str,
    pool: Arc<Pool>,
    id: FileId,
    extent: Extent,
    /// The extent's handle; `None` if another process may free and reuse it at any time.
    frozen: Option<Frozen>,
    /// A copy, in the latter case, if there is memory for it.
    copy: Option<Box<[u8]>>,
}

impl FrozenSpace {
    pub(crate) fn new(
        what: &'static str,
        pool: Arc<Pool>,
        id: FileId,
        frozen: Frozen,
    ) -> FrozenSpace {
        FrozenSpace {
            extent: frozen.extent(),
            frozen: Some(frozen),
            copy: None,
            what,
            pool,
            id,
        }
    }

    /// The extent of `id` in a pool that another process may write. Its readers find out if the
    /// extent was reused, because they check what they read.
    pub(crate) fn foreign(
        what: &'static str,
        pool: Arc<Pool>,
        id: FileId,
        extent: Extent,
    ) -> FrozenSpace {
        FrozenSpace {
            what,
            pool,
            id,
            extent,
            frozen: None,
            copy: None,
        }
    }

    /// The same with a copy of its bytes, which another process cannot change. They may have been
    /// changed before: they are to be verified.
    pub(crate) fn copied(self) -> Result<FrozenSpace> {
        let mut bytes = vec![0; self.extent.len as usize];
        self.read(0, &mut bytes)?;
        Ok(FrozenSpace {
            copy: Some(bytes.into()),
            ..self
        })
    }

    /// Bytes of memory that the copy takes.
    pub(crate) fn copy_bytes(&self) -> usize {
        self.copy.as_ref().map_or(0, |copy| copy.len())
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The id of what it holds.
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

    /// Reads its bytes at `at`.
    ///
    /// # Errors
    /// `Corruption` if they are not in it.
    #[inline]
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        let end = at as u64 + out.len() as u64;
        if let Some(copy) = &self.copy {
            let bytes = copy.get(at..at + out.len());
            out.copy_from_slice(bytes.ok_or_else(|| self.damaged(at, "bytes within it"))?);
            return Ok(());
        }
        match self.extent.at(at as u64).filter(|_| end <= self.extent.len) {
            Some(place) => self.pool.read(place, out),
            None => Err(self.damaged(at, "bytes within it")),
        }
    }

    /// The error of a reader that met damage at `at`: `Changed` if another process may have reused
    /// the extent.
    #[cold]
    pub(crate) fn damaged(&self, at: usize, expected: &str) -> Error {
        match self.frozen {
            Some(_) => {
                let offset = self.extent.offset.get() + at as u64;
                Error::corruption(self.place(), offset, expected)
            }
            None => Error::changed(format_args!("{}", self.place())),
        }
    }

    /// The error as it is, or `Changed` if another process may have caused it.
    pub(crate) fn told(&self, error: Error) -> Error {
        match (error.kind(), &self.frozen) {
            (ErrorKind::Corruption, None) => Error::changed(format_args!("{}", self.place())),
            _ => error,
        }
    }

    fn place(&self) -> String {
        format!("{} {} in the pool", self.what, self.id)
    }
}

impl fmt::Debug for FrozenSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrozenSpace")
            .field("id", &self.id)
            .field("extent", &self.extent)
            .finish_non_exhaustive()
    }
}
