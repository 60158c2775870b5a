//! Shapes: pure policies that say what to compact next.

mod leveled;
#[cfg(test)]
mod tests;

pub(crate) use leveled::{
    Facts, debt, pick, pick_eviction, pick_flush, pick_manual, pick_manual_eviction, pick_manual_rewrite,
};
