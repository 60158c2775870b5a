//! Sorted tables in persistent memory, profile `blade` (PM-Blade, ICDE 2023). The format and the
//! readers of a table are in `firn-table`; the policy is `compaction/picker/costs.rs`.

mod stats;
mod store;

pub use stats::{BladeMerge, BladePartitionStats, BladeStats};
#[cfg(test)]
pub(crate) use store::Costs;
pub(crate) use store::{Merge, SortedFacts, SortedStore};
