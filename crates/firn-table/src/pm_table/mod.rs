//! Sorted tables in persistent memory: the upper levels of the profile `blade` (PM-Blade, ICDE
//! 2023). A table is one extent, written once, in key order. Entries are in groups that share a
//! prefix; above the groups lie the beginnings of their first keys, in slots of one size, and above
//! those the prefixes that whole ranges of slots share. A get reads a line of slots and one group.

mod iter;
mod layout;
mod read;
mod read_groups;
mod recover;
mod search;
mod sketch;
mod space;
#[cfg(test)]
mod tests;
mod verify;
mod write;

pub use iter::PmTableIter;
pub use layout::{Arrangement, PmTotals};
pub use read::PmTable;
pub use recover::{claim, find_tables, peek};
pub use sketch::Sketch;
pub use space::PmTableSpace;
pub use verify::{PmTableReport, salvage, verify};
pub use write::{PmTableOptions, PmTableWriter};
