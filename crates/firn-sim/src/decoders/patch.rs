//! Integers written over bytes in place. A write outside the bytes does nothing.

use firn_base::coding::{get_u32, get_u64};

pub(super) fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    let end = at.checked_add(new.len());
    if let Some(old) = end.and_then(|end| bytes.get_mut(at..end)) {
        old.copy_from_slice(new);
    }
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_le_bytes());
}

pub(super) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    put(bytes, at, &value.to_le_bytes());
}

/// Limits the `u32` length at `at` to `max`, in place, and returns it.
pub(super) fn clamp_u32(bytes: &mut [u8], at: usize, max: usize) -> usize {
    let len = (get_u32(bytes, at).unwrap_or(0) as usize).min(max);
    put_u32(bytes, at, len as u32);
    len
}

/// Limits the `u64` length at `at` to `max`, in place, and returns it.
pub(super) fn clamp_u64(bytes: &mut [u8], at: usize, max: usize) -> usize {
    let len = get_u64(bytes, at).unwrap_or(0).min(max as u64);
    put_u64(bytes, at, len);
    len as usize
}
