//! An extent that grows at its end: bytes below its revealed end may be borrowed, while one
//! appender writes behind it.
//!
//! 1. A growing extent has exactly one [`Growing`] and one [`Appender`], neither `Clone` nor
//!    `Copy`. While they exist every verb but `append` refuses to store to the extent, and only
//!    giving up both frees it.
//! 2. An appender's end only rises, and an append stores at or after it. So no byte below it
//!    changes again.
//! 3. The revealed end is at most the appender's end, and a borrow ends at or before the revealed
//!    end. So no borrowed byte can change or be allocated again.
//!
//! Thread safety: readers borrow through a shared `&Growing` without a lock. Only the owner of the
//! `Appender` appends and reveals. The revealed end is stored with release and loaded with acquire,
//! so a reader that sees it sees the bytes below it.

use crate::offset::Extent;
use firn_base::sync::{AtomicU64, Ordering};

/// The readers' handle of a growing extent. Made by [`crate::Pool::begin_growing`].
#[derive(Debug)]
pub struct Growing {
    pub(crate) extent: Extent,
    /// The id of its pool. A handle guards nothing in another pool.
    pub(crate) pool: u64,
    end: AtomicU64,
}

/// The writer's handle of a growing extent.
#[derive(Debug)]
pub struct Appender {
    pub(crate) extent: Extent,
    pub(crate) pool: u64,
    pub(crate) end: u64,
}

impl Growing {
    pub(crate) fn new(extent: Extent, pool: u64, end: u64) -> Self {
        let end = AtomicU64::new(end);
        Self { extent, pool, end }
    }

    /// The extent it protects.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The revealed end: the number of bytes at the start of the extent that may be borrowed.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(crate) fn reveal(&self, end: u64) {
        debug_assert!(self.end() <= end, "a revealed end only rises");
        self.end.store(end, Ordering::Release);
    }
}

impl Appender {
    /// The extent it writes to.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The number of bytes appended so far. It may be above the revealed end.
    pub fn end(&self) -> u64 {
        self.end
    }
}
