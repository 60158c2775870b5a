//! An extent that no longer changes and so may be borrowed.
//!
//! 1. A frozen extent has exactly one `Frozen`, which is neither `Clone` nor `Copy`. Share it by
//!    `Arc`.
//! 2. While it exists every verb refuses to store to its extent, and only giving it up frees the
//!    extent. A borrow borrows the `Frozen`, so no borrowed byte can change or be allocated again.

use crate::offset::Extent;

/// The handle of an immutable extent. Made by [`crate::Pool::freeze`] or, after an open, by
/// [`crate::Pool::adopt`].
#[derive(Debug)]
pub struct Frozen {
    pub(crate) extent: Extent,
    /// The id of its pool. A handle guards nothing in another pool.
    pub(crate) pool: u64,
}

impl Frozen {
    /// The extent it protects.
    pub fn extent(&self) -> Extent {
        self.extent
    }
}
