//! One `mmap` of a file, unmapped when dropped.
//!
//! 1. The mapping is shared and lives as long as this value; its address never changes.
#![expect(unsafe_code, reason = "mmap hands out raw memory")]

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ptr::NonNull;

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory that any thread may address. The region's contract says which
// thread may touch which bytes and when (invariant 1 of view.rs). Test:
// pool::tests::threads_read_while_one_writes.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself never changes after its creation.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`. With `sync`, fails unless stores need no sync of the
    /// file (DAX).
    pub(crate) fn new(
        file: impl AsFd,
        len: usize,
        writable: bool,
        sync: bool,
    ) -> rustix::io::Result<Self> {
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        let flags = if sync {
            MapFlags::SHARED_VALIDATE | MapFlags::SYNC
        } else {
            MapFlags::SHARED
        };
        // SAFETY: a new mapping at an address chosen by the kernel overlaps nothing. Test:
        // region::tests.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { base, len })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mmap, and no borrow outlives the view that owns
        // this (invariant 2 of view.rs). Test: region::tests.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of what mmap gave");
    }
}
