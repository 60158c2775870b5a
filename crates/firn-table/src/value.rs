//! A value as returned to readers: a copy in a buffer that the thread uses again, or pinned in
//! place.

use firn_fs::give_back_if_large;
use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// An owner of bytes that are immutable while it lives, such as a block or a memtable's arena.
pub trait Pin: Send + Sync {
    /// The `len` bytes at `at`. Both come from the owner of this pin, which guarantees that the
    /// range is within bounds and never changes.
    fn bytes(&self, at: usize, len: usize) -> &[u8];
}

/// A value. Derefs to its bytes, and holds no more memory than these, unless it is pinned: then it
/// keeps their owner alive. A clone copies.
pub struct Value(Bytes);

enum Bytes {
    Owned(Vec<u8>),
    Pinned {
        pin: Arc<dyn Pin>,
        at: usize,
        len: usize,
    },
}

/// The largest buffer that a thread keeps for its next values, and their number.
const SPARE_BYTES_MAX: usize = 8 << 10;
const SPARE_MAX: usize = 8;

thread_local! {
    /// Buffers of dropped values, so that most gets do not allocate.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Value {
    /// The `len` bytes at `at` of `pin`.
    pub fn pinned(pin: Arc<dyn Pin>, at: usize, len: usize) -> Self {
        Self(Bytes::Pinned { pin, at, len })
    }

    /// A value that owns its bytes.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self(Bytes::Owned(bytes))
    }

    /// A copy of `bytes`.
    #[inline]
    pub fn copied(bytes: &[u8]) -> Self {
        let spare = match bytes.len() <= SPARE_BYTES_MAX {
            true => SPARE.try_with(|spare| spare.borrow_mut().pop()),
            false => Ok(None),
        };
        let mut copy = spare.ok().flatten().unwrap_or_default();
        copy.clear();
        copy.reserve_exact(bytes.len());
        copy.extend_from_slice(bytes);
        Self::owned(copy)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let Bytes::Owned(bytes) = &mut self.0 else {
            return;
        };
        if (1..=SPARE_BYTES_MAX).contains(&bytes.capacity()) {
            let bytes = std::mem::take(bytes);
            // A thread that ends has no buffers anymore.
            let _kept = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < SPARE_MAX {
                    spare.push(bytes);
                }
            });
        } else {
            give_back_if_large(bytes);
        }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        match &self.0 {
            Bytes::Owned(bytes) => Value::copied(bytes),
            Bytes::Pinned { pin, at, len } => Value::pinned(pin.clone(), *at, *len),
        }
    }
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Owned(bytes) => bytes,
            Bytes::Pinned { pin, at, len } => pin.bytes(*at, *len),
        }
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
