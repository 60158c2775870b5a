//! Level 0 of profile `lab`: a pair of B+ trees in persistent memory over the log's values (LAB-DB,
//! ACM TOS 2024). The design and its reasons are in `docs/design/lab.md`, the trees themselves in
//! `firn_table::pm_btree`.

pub(crate) mod chunk;
mod iter;
pub(crate) mod release;
pub(crate) mod retained;
mod reuse;
mod stats;
pub(crate) mod view;

pub(crate) use chunk::Chunk;
pub(crate) use iter::TreesIter;
pub(crate) use release::Releases;
pub use stats::LabStats;
pub(crate) use view::{Lookup, Trees};
