//! A growable window into mapped memory: bounds-checked loads, stores, flushes.
//!
//! 1. Bytes that another thread may be writing are loaded and stored as atomic words (relaxed;
//!    single bytes at unaligned ends). A `&[u8]` is made only for bytes that no thread stores to,
//!    which the pool's frozen extents and the revealed parts of its growing ones guarantee.
//! 2. Mappings are only added, and are dropped with the view or under exclusive access to it. All
//!    show the same memory. `len` is raised after `base` is replaced, so a thread that sees the new
//!    length sees a base that is valid for it.
//! 3. `base + at` is touched only for `at + len <= self.len`.
#![expect(unsafe_code, reason = "raw access to mapped memory")]

use super::mapping::Mapping;
use crate::arch::{self, LineFlush};
use crate::line::LineRange;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// Mapped memory.
#[derive(Debug)]
pub(crate) struct View {
    base: AtomicPtr<u8>,
    len: AtomicU64,
    kept: Mutex<Vec<Mapping>>,
}

impl View {
    pub(crate) fn new(mapping: Mapping) -> Self {
        let view = Self {
            base: AtomicPtr::new(std::ptr::null_mut()),
            len: AtomicU64::new(0),
            kept: Mutex::new(Vec::new()),
        };
        view.replace(mapping);
        view
    }

    /// Switches to `mapping`, a longer one of the same memory.
    pub(crate) fn replace(&self, mapping: Mapping) {
        let mut kept = self.kept.lock();
        debug_assert!(mapping.len() as u64 >= self.len(), "a view only grows");
        self.base.store(mapping.base(), Ordering::Release);
        self.len.store(mapping.len() as u64, Ordering::Release);
        kept.push(mapping);
    }

    /// Returns to the first mapping. REQUIRES: nothing else uses the view, as `&mut self`
    /// guarantees.
    pub(crate) fn back_to_first(&mut self) {
        let kept = self.kept.get_mut();
        kept.truncate(1);
        if let Some(first) = kept.first() {
            *self.base.get_mut() = first.base();
            *self.len.get_mut() = first.len() as u64;
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// The address of `at`, if the `len` bytes from there are mapped.
    #[inline]
    fn address(&self, at: u64, len: u64) -> Option<*mut u8> {
        let end = at.checked_add(len)?;
        if end > self.len() {
            return None;
        }
        let base = self.base.load(Ordering::Acquire);
        // SAFETY: at <= end <= the mapped length (invariants 2 and 3). Test:
        // region::tests::nothing_outside.
        Some(unsafe { base.add(at as usize) })
    }

    #[inline]
    pub(crate) fn load(&self, at: u64, out: &mut [u8]) -> Option<()> {
        let mut source = self.address(at, out.len() as u64)?.cast_const();
        let ragged = source.align_offset(8).min(out.len());
        let (head, rest) = out.split_at_mut(ragged);
        // SAFETY: `source` walks over the out.len() mapped bytes checked above; words are loaded
        // where it is aligned (invariant 1). Test: region::tests::every_alignment.
        unsafe {
            for byte in head {
                *byte = load_byte(source);
                source = source.add(1);
            }
            let mut words = rest.chunks_exact_mut(8);
            for word in &mut words {
                word.copy_from_slice(&load_word(source, Ordering::Relaxed).to_le_bytes());
                source = source.add(8);
            }
            for byte in words.into_remainder() {
                *byte = load_byte(source);
                source = source.add(1);
            }
        }
        Some(())
    }

    #[inline]
    pub(crate) fn load_u64(&self, at: u64) -> Option<u64> {
        let source = self.address(at, 8).filter(|_| at.is_multiple_of(8))?;
        // SAFETY: mapped, and aligned because mappings are page-aligned. Test:
        // region::tests::words_are_atomic.
        Some(unsafe { load_word(source, Ordering::Acquire) })
    }

    #[inline]
    pub(crate) fn store(&self, at: u64, bytes: &[u8]) -> Option<()> {
        let mut target = self.address(at, bytes.len() as u64)?;
        let ragged = target.align_offset(8).min(bytes.len());
        let (head, rest) = bytes.split_at(ragged);
        // SAFETY: as in `load`, on the writable mapping. Test: region::tests::every_alignment.
        unsafe {
            for &byte in head {
                AtomicU8::from_ptr(target).store(byte, Ordering::Relaxed);
                target = target.add(1);
            }
            let (words, tail) = rest.as_chunks::<8>();
            for word in words {
                AtomicU64::from_ptr(target.cast())
                    .store(u64::from_le_bytes(*word), Ordering::Relaxed);
                target = target.add(8);
            }
            for &byte in tail {
                AtomicU8::from_ptr(target).store(byte, Ordering::Relaxed);
                target = target.add(1);
            }
        }
        Some(())
    }

    #[inline]
    pub(crate) fn store_u64(&self, at: u64, word: u64) -> Option<()> {
        let target = self.address(at, 8).filter(|_| at.is_multiple_of(8))?;
        // SAFETY: mapped writable, aligned. Test: region::tests::words_are_atomic.
        unsafe { AtomicU64::from_ptr(target.cast()).store(word, Ordering::Release) };
        Some(())
    }

    /// Copies whole lines past the cache.
    #[inline]
    pub(crate) fn stream(&self, at: u64, bytes: &[u8]) -> Option<()> {
        let target = self
            .address(at, bytes.len() as u64)
            .filter(|_| at.is_multiple_of(64))?;
        debug_assert!(
            bytes.len().is_multiple_of(64),
            "only whole lines are streamed"
        );
        // SAFETY: mapped and line-aligned; the caller owns these bytes until its fence (contract of
        // region.rs). Test: region::tests::every_alignment.
        unsafe { arch::stream_lines(target, bytes.as_ptr(), bytes.len() / 64) };
        Some(())
    }

    #[inline]
    pub(crate) fn flush(&self, at: u64, len: u64, lines: LineRange, how: LineFlush) -> Option<()> {
        self.address(at, len)?;
        for line in lines {
            // A mapping is a whole number of lines, so the line of a mapped byte is mapped.
            let address = self.address(line, 1)?;
            // SAFETY: mapped; the processor has the instruction `how` (region/open.rs). Test:
            // pool::tests (emulated).
            unsafe { arch::flush_line(address, how) };
        }
        Some(())
    }

    /// REQUIRES: no thread stores to these bytes while the borrow lives.
    pub(crate) fn borrow(&self, at: u64, len: u64) -> Option<&[u8]> {
        let source = self.address(at, len)?;
        // SAFETY: mapped for as long as `self` lives (invariant 2), and not stored to (invariant 1:
        // callers borrow frozen extents, to which every verb refuses to store, and revealed bytes
        // of growing ones, behind which the only appender stores). Tests:
        // pool::tests::frozen_bytes_cannot_change,
        // pool::tests::growing::readers_borrow_while_one_appends.
        Some(unsafe { std::slice::from_raw_parts(source, len as usize) })
    }
}

/// # Safety
/// `source` is mapped.
#[inline]
unsafe fn load_byte(source: *const u8) -> u8 {
    // SAFETY: the caller's promise; an atomic load through a read-only mapping only reads. Test:
    // region::tests.
    unsafe { AtomicU8::from_ptr(source.cast_mut()).load(Ordering::Relaxed) }
}

/// # Safety
/// `source` is mapped for eight bytes and aligned to eight.
#[inline]
unsafe fn load_word(source: *const u8, order: Ordering) -> u64 {
    // SAFETY: the caller's promise; an atomic load through a read-only mapping only reads. Test:
    // region::tests.
    unsafe { AtomicU64::from_ptr(source.cast_mut().cast()).load(order) }
}
