//! The cache instructions of the machine: one file per architecture, with the same four functions
//! in each.
//!
//! `flush_line` starts writing a line back to memory, `fence` waits for everything this thread
//! started, and `stream_lines` copies whole lines past the cache. The flush instruction is chosen
//! at run time; the fence is never compiled out.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{best_flush, fence, flush_line, stream_lines};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{best_flush, fence, flush_line, stream_lines};

/// The instruction that writes a line back to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineFlush {
    /// No flush. The backend's memory is not a medium; only its sync, or nothing, makes bytes
    /// durable.
    None,
    /// x86-64 `clwb`: the line stays in the cache.
    #[cfg(target_arch = "x86_64")]
    Clwb,
    /// x86-64 `clflushopt`: the line leaves the cache.
    #[cfg(target_arch = "x86_64")]
    Clflushopt,
    /// x86-64 `clflush`: evicts the line too, and flushes are executed one after the other.
    #[cfg(target_arch = "x86_64")]
    Clflush,
    /// aarch64 `dc cvap`.
    #[cfg(target_arch = "aarch64")]
    DcCvap,
}
