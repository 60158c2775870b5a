//! The cache instructions of the machine: one file per architecture, the same four functions in each.
//!
//! `flush_line` starts a line's way to memory, `fence` waits for what this thread started, `stream_lines` copies whole
//! lines past the cache. Which flush instruction is used is found out at run time; the fence is never compiled out.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{best_flush, fence, flush_line, stream_lines};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{best_flush, fence, flush_line, stream_lines};

/// How a line is sent to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineFlush {
    /// Not at all: the backend's memory is no medium, only its sync or nothing makes bytes durable.
    None,
    /// x86-64 `clwb`: the line stays in the cache.
    #[cfg(target_arch = "x86_64")]
    Clwb,
    /// x86-64 `clflushopt`: the line leaves the cache.
    #[cfg(target_arch = "x86_64")]
    Clflushopt,
    /// x86-64 `clflush`: as above, and one after the other.
    #[cfg(target_arch = "x86_64")]
    Clflush,
    /// aarch64 `dc cvap`.
    #[cfg(target_arch = "aarch64")]
    DcCvap,
}
