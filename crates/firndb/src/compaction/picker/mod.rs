//! Pickers: pure policies that choose the next compaction.

mod leveled;
#[cfg(test)]
mod tests;

pub(crate) use leveled::{
    Facts, debt, pick, pick_eviction, pick_flush, pick_manual, pick_manual_eviction,
    pick_manual_rewrite,
};
