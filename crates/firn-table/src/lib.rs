//! The on-media structures, one folder each, with the same verbs in each: layout, write, read,
//! iter, recover, verify.
//!
//! [`sst`] is the sorted string table on the SSD; [`pm_btree`] is a pair of B+ trees,
//! [`pm_skiplist`] skiplists and [`pm_table`] sorted tables in persistent memory; [`if_tree`] is
//! an index in persistent memory over the blocks of several sorted string tables; [`pm_buffer`] is
//! the write buffers in persistent memory. [`Value`] is the type that every read returns: a
//! copy of the bytes.
#![forbid(unsafe_code)]

mod admission;
mod cache;
mod context;
mod frozen_space;
pub mod if_tree;
pub mod mechanisms;
pub mod pm_btree;
pub mod pm_buffer;
pub mod pm_skiplist;
pub mod pm_table;
pub mod sites;
pub mod sst;
mod value;

pub use cache::BlockCache;
pub use context::{IfTreeGets, OpenBytes, PmGets, TableContext};
pub use frozen_space::FrozenSpace;
pub use value::Value;
