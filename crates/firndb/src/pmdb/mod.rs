//! Ranges with stacks of tables, profile `pmdb` (PMDB, IEEE TC 2022): their part of a pool. The
//! policy is
//! `compaction/picker/ranges.rs`.

mod buffers;
mod stats;
mod trees;

pub(crate) use buffers::{BufferFacts, BufferStore, buffer_bytes, lines_for, list_bytes};
pub use stats::{BlockTreeStats, PartBufferStats, PmdbStats};
pub(crate) use trees::{TreeFacts, TreeStore};
