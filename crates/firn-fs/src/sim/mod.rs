//! The simulated file system: see [`SimFs`]. The fault model of file contents is in `inode.rs`,
//! that of directories in `names.rs`.

mod crash;
mod damage;
mod disk;
mod fault;
mod handle;
mod inode;
mod names;
mod system;
#[cfg(test)]
mod tests;

pub use crash::{CrashPlan, Keep};
pub use disk::Operation;
pub use fault::{Fault, FaultKind, OpKind};
pub use inode::SECTOR;
pub use system::SimFs;
