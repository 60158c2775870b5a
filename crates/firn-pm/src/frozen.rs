//! An extent that no longer changes, and so may be borrowed.
//!
//! 1. There is one `Frozen` for a frozen extent; it is neither `Clone` nor `Copy`. Share it by `Arc`.
//! 2. While it exists every verb refuses to store to its extent, and only giving it up frees the extent. A borrow
//!    borrows the `Frozen`, so no byte that is borrowed can change or be handed out again.

use crate::offset::Extent;

/// The handle of an immutable extent. Made by [`crate::Pool::freeze`] or, after an open, [`crate::Pool::adopt`].
#[derive(Debug)]
pub struct Frozen {
    pub(crate) extent: Extent,
    /// Which pool it is of: a handle of another pool guards nothing in this one.
    pub(crate) pool: u64,
}

impl Frozen {
    /// Where it lies.
    pub fn extent(&self) -> Extent {
        self.extent
    }
}
