//! Files as the engine sees them: [`Fs`], [`Dir`] and [`File`] with two implementations.
//!
//! [`OsFs`] is the real thing: direct I/O, io_uring where the kernel allows it and a pread/pwrite pool where not.
//! [`SimFs`] keeps everything in memory, forgets what was not synced when told to, and fails on demand.
#![deny(unsafe_code)]

mod buf;
mod file;
mod os;
mod pages;
mod sim;

pub use buf::{BUFFER_ALIGN, IoBuf};
pub use file::{Dir, File, Fs, Lock, OpenMode, Pending, cannot_link, open_file};
pub use os::{IoBackend, OsFs, handles_max};
pub use pages::{LARGE_BYTES, give_back, give_back_if_large};
pub use sim::{CrashPlan, Fault, FaultKind, Keep, OpKind, Operation, SECTOR, SimFs};
