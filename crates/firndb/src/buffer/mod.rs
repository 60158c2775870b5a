//! The write buffer: a skiplist in an arena, in DRAM.

mod arena;
#[cfg(all(test, shuttle))]
mod interleave;
mod run;
mod skiplist;
#[cfg(test)]
mod tests;

pub(crate) use run::{Buffer, BufferIter, Entry, Ticket};
