//! An aligned buffer for direct I/O, made without `unsafe`: a `Vec` with room to start at an
//! aligned address.
//!
//! 1. `start` is aligned to [`BUFFER_ALIGN`]. Storage never grows beyond its capacity, so it does
//!    not move.
//! 2. The bytes that a caller sees are `view`, which is within the storage, at or after `start`.
//! 3. Storage is only as long as the bytes ever put into it. Unused room is never zeroed.

use crate::pages::{LARGE_BYTES, give_back_buffer, give_back_if_large};
use std::ops::Range;

/// The alignment of every buffer's address, in bytes: a page, which satisfies every device.
pub const BUFFER_ALIGN: usize = 4096;

/// A reusable, page-aligned buffer. Grows, never shrinks.
#[derive(Debug, Default)]
pub struct IoBuf {
    storage: Vec<u8>,
    start: usize,
    view: Range<usize>,
}

impl IoBuf {
    /// An empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut buf = Self::default();
        buf.ensure(capacity);
        buf
    }

    /// The number of bytes it can hold without growing.
    pub fn capacity(&self) -> usize {
        self.storage.capacity().saturating_sub(self.start)
    }

    /// The bytes read into it or pushed onto it.
    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.view.clone()]
    }

    /// Copies the last `len` of its bytes out, as [`IoBuf::into_bytes`] does.
    pub fn into_tail(mut self, len: usize) -> Box<[u8]> {
        self.view.start = self.view.end.saturating_sub(len).max(self.view.start);
        self.into_bytes()
    }

    /// Copies its bytes out. Memory goes back to the system as soon as it is copied, so a large
    /// buffer is never in memory twice.
    pub fn into_bytes(mut self) -> Box<[u8]> {
        let mut out = Vec::with_capacity(self.len());
        let mut at = self.view.start;
        while at < self.view.end {
            let end = self.view.end.min(at + LARGE_BYTES);
            out.extend_from_slice(&self.storage[at..end]);
            give_back_if_large(&mut self.storage[at..end]);
            at = end;
        }
        out.into_boxed_slice()
    }

    /// The number of bytes it holds.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// True if it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// Empties it but keeps its storage.
    pub fn clear(&mut self) {
        self.view = self.start..self.start;
    }

    /// Appends `bytes`, growing if they do not fit.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.view.end + bytes.len() > self.storage.capacity() {
            let held = self.bytes().to_vec();
            self.ensure((held.len() + bytes.len()).next_power_of_two());
            self.put(&held);
        }
        self.put(bytes);
    }

    /// Appends `bytes`. REQUIRES: there is room.
    fn put(&mut self, bytes: &[u8]) {
        let at = self.view.end;
        let (over, behind) = bytes.split_at(bytes.len().min(self.storage.len() - at));
        self.storage[at..at + over.len()].copy_from_slice(over);
        self.storage.extend_from_slice(behind);
        self.view.end = at + bytes.len();
    }

    /// Keeps the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.view.end = self.view.end.min(self.view.start + len);
    }

    /// Appends zeros until the length is a multiple of `align`.
    pub fn pad_to(&mut self, align: usize) {
        const ZEROS: [u8; BUFFER_ALIGN] = [0; BUFFER_ALIGN];
        let mut missing = self.len().next_multiple_of(align) - self.len();
        while missing > 0 {
            let step = missing.min(ZEROS.len());
            self.push(&ZEROS[..step]);
            missing -= step;
        }
    }

    /// Room for `len` bytes at the aligned start, to be filled by a read.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        self.ensure(len);
        let end = self.start + len;
        if self.storage.len() < end {
            self.storage.resize(end, 0);
        }
        &mut self.storage[self.start..end]
    }

    /// Sets the view, after a read, to the `len` bytes that begin `skip` bytes after the aligned
    /// start.
    pub(crate) fn set_view(&mut self, skip: usize, len: usize) {
        self.view = self.start + skip..self.start + skip + len;
    }

    fn ensure(&mut self, capacity: usize) {
        if self.capacity() >= capacity && self.storage.capacity() > 0 {
            return;
        }
        give_back_if_large(&mut self.storage);
        self.storage = Vec::with_capacity(capacity + BUFFER_ALIGN);
        self.start = self.storage.as_ptr().align_offset(BUFFER_ALIGN);
        self.storage.resize(self.start, 0);
        self.clear();
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        give_back_buffer(&mut self.storage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_aligned_and_keeps_bytes_while_growing() {
        let mut buf = IoBuf::with_capacity(10);
        let mut want = Vec::new();
        for i in 0..3000u32 {
            buf.push(&i.to_le_bytes());
            want.extend_from_slice(&i.to_le_bytes());
            assert_eq!(buf.bytes().as_ptr() as usize % BUFFER_ALIGN, 0);
        }
        assert_eq!(buf.bytes(), want);
        buf.pad_to(4096);
        assert_eq!(buf.len(), 12288);
        buf.clear();
        assert!(buf.is_empty());
        // Overwrites the old bytes and continues after them.
        let more = vec![9; 13_000];
        buf.push(&more);
        assert_eq!(buf.bytes(), more);
        buf.truncate(5);
        buf.push(b"six");
        assert_eq!(buf.bytes(), b"\x09\x09\x09\x09\x09six");
    }

    #[test]
    fn room_for_a_read_is_aligned_and_as_long_as_asked_for() {
        let mut buf = IoBuf::default();
        for len in [100, 5000, 300, 70_000] {
            let room = buf.room(len);
            assert_eq!(
                (room.len(), room.as_ptr() as usize % BUFFER_ALIGN),
                (len, 0)
            );
            room.fill(7);
            buf.set_view(10, len - 10);
            assert_eq!(buf.bytes(), vec![7; len - 10]);
        }
        for len in [0, 100, LARGE_BYTES, 5 * LARGE_BYTES / 2] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut buf = IoBuf::default();
            buf.push(&bytes);
            assert_eq!(*buf.into_bytes(), bytes);
        }
    }
}
