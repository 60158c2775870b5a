//! The manifest: the only record of the files that make up the database. Format:
//! `docs/format/manifest.md`.

mod block_trees;
mod edit;
mod evicted;
mod layout;
mod level;
mod parts;
#[cfg(feature = "proof")]
pub(crate) mod proof;
mod read;
#[cfg(test)]
mod tests;
mod version;
mod write;

pub(crate) use block_trees::{BlockTreeMeta, BlockTrees, ranks};
pub(crate) use edit::{
    Edit, FORMAT_VERSION, KNOWS_LARGEST_BLOCKS, Place, PmPairing, PoolEdit, RangeBorders,
    TABLES_HAVE_HEADERS, TableMeta,
};
pub(crate) use evicted::{Evicted, KeyRange};
pub(crate) use level::{Level, Levels};
pub(crate) use parts::{Layout, PartId, PartRange, evenly, within};
pub(crate) use read::{owner, read};
pub(crate) use version::{LogState, Tables, Version};
pub(crate) use write::{ManifestWriter, start};
