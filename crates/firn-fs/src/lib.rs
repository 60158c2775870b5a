//! The engine's view of files: [`Fs`], [`Dir`] and [`File`], with two implementations.
//!
//! [`OsFs`] is the real file system: direct I/O, over io_uring where the kernel allows it and
//! otherwise over a pool of pread/pwrite threads. [`SimFs`] keeps everything in memory, discards
//! unsynced data when told to, and fails on demand.
#![deny(unsafe_code)]

mod buf;
mod file;
mod os;
mod pages;
mod queue;
mod sim;

pub use buf::{BUFFER_ALIGN, IoBuf};
pub use file::{Dir, File, Fs, Lock, OpenMode, Pending, cannot_link, open_file};
pub use os::{IoBackend, OsFs, handles_max, thread_cpu_ns};
pub use pages::{
    LARGE_BYTES, Pages, free, give_back, give_back_buffer, give_back_if_large, mapped_bytes,
};
pub use queue::{Submitted, WriteQueue};
pub use sim::{CrashPlan, Fault, FaultKind, Keep, OpKind, Operation, SECTOR, SimFs};
