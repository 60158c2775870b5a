//! Skiplists in persistent memory: the upper levels of the profile `tlsm` (TLSM, IEEE Access 2020).
//! A list is written once, in key order, and never changes. Its nodes point to entries in chunks
//! that lists share, so a compaction writes nodes and copies no entry.

mod iter;
mod layout;
mod read;
mod recover;
mod space;
#[cfg(test)]
mod tests;
mod verify;
mod write;

pub use iter::ListIter;
pub use layout::{ListCause, ListJob, ListTotals};
pub use read::List;
pub use recover::{
    Anchored, Chunks, FoundList, Unfinished, claim, claim_anchored, find_lists, peek,
};
pub use space::{Chunk, ListPlace, ListSpace};
pub use verify::{ChunkSums, ListReport, salvage, verify};
pub use write::{Linked, ListOptions, ListWriter, Persist, ResumePoint};
