//! A value as returned to readers: a copy in a buffer that the thread uses again.

use firn_fs::give_back_if_large;
use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;

/// A value. Derefs to its bytes, which it owns, so it holds nothing else in memory. A clone copies.
pub struct Value(Vec<u8>);

/// The largest buffer that a thread keeps for its next values, and their number.
const SPARE_BYTES_MAX: usize = 8 << 10;
const SPARE_MAX: usize = 8;

thread_local! {
    /// Buffers of dropped values, so that most gets do not allocate.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Value {
    /// A value of `bytes`.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self(bytes)
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
        if (1..=SPARE_BYTES_MAX).contains(&self.0.capacity()) {
            let bytes = std::mem::take(&mut self.0);
            // A thread that ends has no buffers anymore.
            let _kept = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < SPARE_MAX {
                    spare.push(bytes);
                }
            });
        } else {
            give_back_if_large(&mut self.0);
        }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Value::copied(&self.0)
    }
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
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
