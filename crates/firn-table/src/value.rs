//! A value as returned to readers: pinned in place, so a get neither copies nor allocates.

use firn_fs::give_back_if_large;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// An owner of bytes that are immutable while it lives, such as a block or a memtable's arena.
pub trait Pin: Send + Sync {
    /// The `len` bytes at `at`. Both come from the owner of this pin, which guarantees that the
    /// range is within bounds and never changes.
    fn bytes(&self, at: usize, len: usize) -> &[u8];
}

/// A value. Derefs to its bytes and keeps their holder alive. Drop it when done, or copy it with
/// `to_vec()` to keep it for long.
#[derive(Clone)]
pub struct Value {
    pin: Arc<dyn Pin>,
    at: usize,
    len: usize,
}

impl Value {
    /// The `len` bytes at `at` of `pin`.
    pub fn pinned(pin: Arc<dyn Pin>, at: usize, len: usize) -> Self {
        Self { pin, at, len }
    }

    /// A value that owns its bytes.
    pub fn owned(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self {
            pin: Arc::new(Owned(bytes)),
            at: 0,
            len,
        }
    }
}

struct Owned(Vec<u8>);

impl Drop for Owned {
    fn drop(&mut self) {
        give_back_if_large(&mut self.0);
    }
}

impl Pin for Owned {
    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.0[at..at + len]
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.pin.bytes(self.at, self.len)
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}
