//! A value as returned to readers: a copy in a buffer that the thread uses again.

use firn_base::count::{Held, HeldBytes};
use firn_fs::give_back_buffer;
use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;

/// A value. Derefs to its bytes, which it owns, so it holds nothing else in memory. A clone copies.
pub struct Value {
    bytes: Vec<u8>,
    /// Counts its bytes, if a user may hold it.
    held: Option<Held>,
}

/// The largest buffer that a thread keeps for its next values, and their number.
const SPARE_BYTES_MAX: usize = 8 << 10;
const SPARE_MAX: usize = 8;
/// Bytes that a buffer may have beyond nine eighths of its value.
const ROUNDING_BYTES: usize = 64;

thread_local! {
    /// Buffers of dropped values, so that most gets do not allocate.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Value {
    /// A value of `bytes`.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self { bytes, held: None }
    }

    /// The same, counted in `held` until it is dropped.
    #[inline]
    pub fn counted(mut self, held: &HeldBytes) -> Self {
        self.held = Some(held.hold(self.bytes.capacity()));
        self
    }

    /// A copy of `bytes`.
    #[inline]
    pub fn copied(bytes: &[u8]) -> Self {
        // A value that is held for long must not hold a larger buffer.
        let most = bytes.len() + bytes.len() / 8 + ROUNDING_BYTES;
        let fits = |spare: &mut Vec<u8>| spare.capacity() <= most;
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop_if(fits));
        let mut copy = spare.ok().flatten().unwrap_or_default();
        copy.clear();
        copy.reserve_exact(bytes.len());
        copy.extend_from_slice(bytes);
        Self::owned(copy)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if (1..=SPARE_BYTES_MAX).contains(&self.bytes.capacity()) {
            let bytes = std::mem::take(&mut self.bytes);
            // A thread that ends has no buffers anymore.
            let _kept = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                // The newest has the size that is wanted now.
                spare.truncate(SPARE_MAX - 1);
                spare.push(bytes);
            });
        } else {
            give_back_buffer(&mut self.bytes);
        }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        let mut copy = Value::copied(&self.bytes);
        let held = self.held.as_ref();
        copy.held = held.map(|held| held.and(copy.bytes.capacity()));
        copy
    }
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_value_does_not_hold_the_buffer_of_a_large_one() {
        for _ in 0..20 {
            drop(Value::copied(&[1; SPARE_BYTES_MAX]));
            let small = Value::copied(&[2; 100]);
            let capacity = small.bytes.capacity();
            assert!(capacity <= 176, "{capacity} bytes");
            assert_eq!(small, [2; 100]);
        }
        let held = HeldBytes::begin();
        let value = Value::copied(&[5; 100]).counted(&held);
        let clone = value.clone();
        assert!((200..=352).contains(&held.bytes()), "{}", held.bytes());
        drop((value, clone));
        assert_eq!(held.bytes(), 0);
        let at = Value::copied(&[3; 100]).as_ptr();
        assert_eq!(Value::copied(&[4; 100]).as_ptr(), at, "it is used again");
    }
}
