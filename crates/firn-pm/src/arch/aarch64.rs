//! aarch64: dc cvap and dsb. UNPROVEN: no machine or compiler target here has built or run this
//! file; it follows the architecture manual.
//!
//! 1. `flush_line` is ordered only by a later `fence` of the same thread.
//! 2. There is no portable way to bypass the cache, so `stream_lines` copies and then cleans each
//!    line.
#![expect(
    unsafe_code,
    reason = "cache instructions exist only as inline assembly"
)]

use super::LineFlush;
use std::arch::asm;

/// The flush instruction of this architecture.
pub(crate) fn best_flush() -> LineFlush {
    LineFlush::DcCvap
}

/// Starts writing the line that contains `line` back to the point of persistence.
///
/// # Safety
/// `line` points into a live mapping.
#[inline]
pub(crate) unsafe fn flush_line(line: *const u8, how: LineFlush) {
    match how {
        LineFlush::None => {}
        // SAFETY: cleaning a mapped line changes no byte. Encoded by number because older
        // assemblers lack the name (sys #3, c7, c12, #1). Test: none runs here; UNSAFE.md says so.
        LineFlush::DcCvap => unsafe {
            asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags))
        },
    }
}

/// Waits until the lines this thread cleaned are at the point of persistence.
#[inline]
pub(crate) fn fence() {
    // SAFETY: a barrier touches nothing. Test: none runs here.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Copies `lines` whole lines and cleans them.
///
/// # Safety
/// `target` is 64-byte aligned. Both ranges of `lines * 64` bytes lie in live memory and do not
/// overlap, and no other thread touches the target's range until a [`fence`] of this thread.
#[inline]
pub(crate) unsafe fn stream_lines(target: *mut u8, source: *const u8, lines: usize) {
    // SAFETY: the caller promises both ranges. Test: none runs here.
    unsafe {
        std::ptr::copy_nonoverlapping(source, target, lines * 64);
        for line in 0..lines {
            flush_line(target.add(line * 64), LineFlush::DcCvap);
        }
    }
}
