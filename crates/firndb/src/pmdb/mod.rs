//! Ranges with stacks of tables, profile `pmdb` (PMDB, IEEE TC 2022). The policy is
//! `compaction/picker/ranges.rs`.

mod stats;
mod trees;

pub use stats::{BlockTreeStats, PmdbStats};
pub(crate) use trees::{TreeFacts, TreeStore};
