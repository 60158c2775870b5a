//! B+ trees in persistent memory: level 0 of the profile `lab` (LAB-DB, ACM TOS 2024, sections 3.1 and 3.2). A leaf's
//! entry is a key and where its value lies in the log, never the value. The format is in `docs/format/btree.md`.
//!
//! 1. A leaf never changes. What a flush puts into one is a new leaf, which an 8-byte word of the directory puts in
//!    the place of the old; so readers need neither lock nor version, and a [`View`] stays what it is.
//! 2. Only leaves and the directory are in persistent memory. What finds a leaf, [`View`], is made anew from their
//!    lower bounds at every open.
//! 3. There is one entry per user key.
//!
//! A crash leaves each word old or new, and leaves that no word names, whose space is free again.

mod by_log;
mod index;
mod insert;
mod iter;
mod layout;
mod leaf;
mod recover;
mod space;
mod store;
#[cfg(test)]
mod tests;
mod verify;
mod write;

pub use by_log::LeafLog;
pub use index::View;
pub use insert::Inserted;
pub use iter::TreeIter;
pub use layout::{LEAF_BYTES_RANGE, Place};
pub use leaf::{Entry, HOT_LOG, Leaf, ValueAddress};
pub use recover::{Hold, IsEvicted, Recovered, Seen};
pub use space::Space;
pub use store::{TreeStore, Trees, Usage};
pub use verify::TreeReport;
