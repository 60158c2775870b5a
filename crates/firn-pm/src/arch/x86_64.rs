//! x86-64: clwb, else clflushopt, else clflush; sfence; movntdq.
//!
//! 1. `flush_line` and `stream_lines` are ordered only by a later `fence` of the same thread.
//! 2. No instruction here carries `nomem`, so the compiler moves no store across it.
#![expect(
    unsafe_code,
    reason = "cache instructions exist only as inline assembly"
)]

use super::LineFlush;
use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

const CPUID_CLFLUSHOPT: u32 = 1 << 23;
const CPUID_CLWB: u32 = 1 << 24;

/// The best flush instruction of this processor.
pub(crate) fn best_flush() -> LineFlush {
    #[allow(
        unused_unsafe,
        reason = "safe since Rust 1.93, unsafe in the oldest supported release"
    )]
    // SAFETY: every x86-64 processor has cpuid; leaf 0 says if leaf 7 exists. Test:
    // arch::x86_64::tests.
    let features = unsafe {
        if __cpuid_count(0, 0).eax >= 7 {
            __cpuid_count(7, 0).ebx
        } else {
            0
        }
    };
    if features & CPUID_CLWB != 0 {
        LineFlush::Clwb
    } else if features & CPUID_CLFLUSHOPT != 0 {
        LineFlush::Clflushopt
    } else {
        LineFlush::Clflush
    }
}

/// Starts writing the line that contains `line` back to memory.
///
/// # Safety
/// `line` points into a live mapping, and `how` came from [`best_flush`].
#[inline]
pub(crate) unsafe fn flush_line(line: *const u8, how: LineFlush) {
    // SAFETY: the caller promises a mapped address and an instruction that the processor has;
    // flushing changes no byte. Test: arch::x86_64::tests, pool::tests (emulated).
    unsafe {
        match how {
            LineFlush::None => {}
            LineFlush::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
            LineFlush::Clflushopt => {
                asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
            }
            LineFlush::Clflush => {
                asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags))
            }
        }
    }
}

/// Waits until memory has accepted everything this thread flushed and streamed.
#[inline]
pub(crate) fn fence() {
    // SAFETY: sfence orders stores and touches nothing. Test: arch::x86_64::tests.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// Copies `lines` whole lines past the cache.
///
/// # Safety
/// `target` is 64-byte aligned. Both ranges of `lines * 64` bytes lie in live memory, and no other
/// thread touches the target's range until a [`fence`] of this thread.
#[inline]
pub(crate) unsafe fn stream_lines(target: *mut u8, source: *const u8, lines: usize) {
    debug_assert!(
        (target as usize).is_multiple_of(64),
        "a stream starts at a line"
    );
    for line in 0..lines {
        // SAFETY: the caller promises both ranges and the alignment that movntdq needs. Test:
        // arch::x86_64::tests.
        unsafe {
            asm!(
                "movdqu {a}, [{source}]",
                "movdqu {b}, [{source} + 16]",
                "movdqu {c}, [{source} + 32]",
                "movdqu {d}, [{source} + 48]",
                "movntdq [{target}], {a}",
                "movntdq [{target} + 16], {b}",
                "movntdq [{target} + 32], {c}",
                "movntdq [{target} + 48], {d}",
                source = in(reg) source.add(line * 64),
                target = in(reg) target.add(line * 64),
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 256]);

    #[test]
    fn streams_and_flushes_keep_every_byte() {
        let source: Vec<u8> = (0..=255).map(|i: u8| i.wrapping_mul(7)).collect();
        for shift in 0..16 {
            let mut target = Lines([0xaa; 256]);
            let lines = 3;
            // SAFETY: source holds shift + 192 <= 256 bytes, target is aligned and ours, clflush is
            // in every x86-64.
            unsafe {
                stream_lines(target.0.as_mut_ptr(), source[shift..].as_ptr(), lines);
                fence();
                flush_line(target.0.as_ptr(), best_flush());
                flush_line(target.0.as_ptr().add(64), LineFlush::Clflush);
                fence();
            }
            assert_eq!(target.0[..192], source[shift..shift + 192]);
            assert!(target.0[192..].iter().all(|&byte| byte == 0xaa));
        }
    }
}
