//! The memtable: a skiplist in an arena, in DRAM. Its entries may be in persistent memory.

mod arena;
mod examine;
mod found;
#[cfg(test)]
#[cfg(shuttle)]
mod interleave;
mod pm;
#[cfg(feature = "proof")]
pub(crate) mod proof;
mod run;
mod skiplist;
#[cfg(test)]
mod tests;

pub(crate) use found::Found;
pub(crate) use pm::Walked;
pub(crate) use run::{Entry, Footprint, LogEntry, Memtable, MemtableIter, Reservation};
