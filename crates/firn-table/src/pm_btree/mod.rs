//! B+ trees in persistent memory: level 0 of the profile `lab` (LAB-DB, ACM TOS 2024, sections 3.1
//! and 3.2). A leaf's entry is a key and the location of its value in the log, never the value. The
//! format is in `docs/format/btree.md`.
//!
//! 1. A leaf never changes. A flush writes a new leaf, and an 8-byte word of the directory puts it
//!    in the place of the old one. So readers need neither lock nor version, and a [`View`] never
//!    changes.
//! 2. Only leaves and the directory are in persistent memory. The search structure, [`View`], is
//!    rebuilt from the leaves' lower bounds at every open.
//! 3. There is one entry per user key.
//!
//! A crash leaves each word old or new. It may leave leaves that no word names; their space is free
//! again.

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
