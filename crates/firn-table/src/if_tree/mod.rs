//! Trees over the blocks of several tables, in persistent memory: the index of the profile `pmdb`
//! (PMDB, IEEE TC 2022, sections 3.2 and 4.1). A tree is one extent, written once: an array of
//! nodes, one for each block, with the block's bounds, location and filter, and above it levels
//! with the greatest end below each entry. A get finds the few blocks of a stack of overlapping
//! tables that may have a key, the newest run first, while none of the tables is open.

mod layout;
mod nodes;
mod read;
mod recover;
mod search;
mod space;
#[cfg(test)]
mod tests;
mod verify;
mod write;

pub use layout::{IfTreeFile, IfTreeTotals};
pub use read::IfTree;
pub use recover::{claim, find_trees, peek};
pub use search::{Candidate, Candidates, SearchCounts, Visit};
pub use space::IfTreeSpace;
pub use verify::{IfTreeReport, verify};
pub use write::{IfTreeOptions, IfTreeWriter};
