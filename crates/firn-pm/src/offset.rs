//! Positions in a pool: a [`PmOffset`], never a pointer, and an [`Extent`] of bytes that starts at
//! one.
//!
//! 1. An offset means the same at every mapping address and in every process.
//! 2. Arithmetic is checked, so an offset read from media cannot wrap around.

use std::fmt;

/// A distance from the start of the pool, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PmOffset(u64);

impl PmOffset {
    /// The offset `bytes` from the start of the pool.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes from the start of the pool. Structures store this number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// This offset plus `bytes`; `None` if the sum overflows.
    pub fn plus(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }
}

impl fmt::Display for PmOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A range of the pool that one owner holds: whole granules, as returned by [`crate::Pool::alloc`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Its first byte.
    pub offset: PmOffset,
    /// Its length in bytes, a multiple of [`crate::GRANULE_BYTES`].
    pub len: u64,
}

impl Extent {
    /// The extent of `len` bytes at `offset`.
    pub const fn new(offset: u64, len: u64) -> Self {
        Self {
            offset: PmOffset::new(offset),
            len,
        }
    }

    /// The offset of the byte `within` bytes into the extent; `None` past its end.
    pub fn at(self, within: u64) -> Option<PmOffset> {
        (within <= self.len)
            .then(|| self.offset.plus(within))
            .flatten()
    }

    /// The offset of the first byte after it; `None` if the sum overflows.
    pub fn end(self) -> Option<u64> {
        self.offset.get().checked_add(self.len)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "extent {}+{:#x}", self.offset, self.len)
    }
}
