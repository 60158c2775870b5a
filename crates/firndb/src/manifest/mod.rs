//! The manifest: the one record of which files make up the database. Format: `docs/format/manifest.md`.

mod edit;
mod layout;
#[cfg(feature = "proof")]
pub(crate) mod proof;
mod read;
#[cfg(test)]
mod tests;
mod version;
mod write;

pub(crate) use edit::{Edit, Evicted, PmPairing, TableMeta};
pub(crate) use read::{read, uuid};
pub(crate) use version::{LogState, Version};
pub(crate) use write::{ManifestWriter, start};
