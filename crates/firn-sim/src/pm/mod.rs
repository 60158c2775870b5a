//! Structures in persistent memory under power cuts. A new structure joins every suite here by
//! implementing [`Structure`]: see `docs/testing.md`.

mod align;
mod btree;
mod buffers;
#[cfg(test)]
mod counts;
mod file_pool;
mod if_trees;
mod lists;
mod log_buffer;
mod pool_space;
mod shelf;
mod structure;
mod suites;
mod tables;

pub(crate) use align::align;
pub(crate) use btree::{BTrees, DAMAGE_SEEDS, damage as trees_damage};
pub(crate) use buffers::{Buffers, DAMAGE_SEEDS as BUFFER_DAMAGE_SEEDS, damage as buffers_damage};
pub(crate) use file_pool::file_pool;
pub(crate) use if_trees::{
    DAMAGE_SEEDS as IF_TREE_DAMAGE_SEEDS, IfTrees, damage as if_trees_damage,
};
pub(crate) use lists::{DAMAGE_SEEDS as LIST_DAMAGE_SEEDS, Lists, damage as lists_damage};
pub(crate) use log_buffer::{Hot, LogBuffer, Placed};
pub(crate) use pool_space::{Op as PoolOp, PoolSpace};
pub use shelf::{Bug, Shelf};
pub use structure::{Structure, explore_sequence};
pub(crate) use suites::{double, eadr, init, lint, sequence, torn};
pub(crate) use tables::{DAMAGE_SEEDS as TABLE_DAMAGE_SEEDS, Tables, damage as tables_damage};
