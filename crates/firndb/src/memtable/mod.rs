//! The memtable: a skiplist in an arena, in DRAM.

mod arena;
#[cfg(test)]
#[cfg(shuttle)]
mod interleave;
#[cfg(feature = "proof")]
pub(crate) mod proof;
mod run;
mod skiplist;
#[cfg(test)]
mod tests;

pub(crate) use run::{Entry, Footprint, LogEntry, Memtable, MemtableIter, Reservation};
