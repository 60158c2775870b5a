//! Write buffers in persistent memory: the newest entries of the profile `pmdb`, which has no log.
//! A buffer is an append-only run of entries in one extent. A directory in the pool names the
//! buffers, and holds the number up to which all writes are committed. An open walks the buffers,
//! and takes the entries up to that number.

mod buffer;
mod directory;
mod entries;
mod layout;
mod salvage;
#[cfg(test)]
mod tests;

pub use buffer::PmBuffer;
pub use directory::{BufferDirectory, DamagedLine, NamedBuffer, Note};
pub use entries::{StagedEntries, WalkedEntry, walk};
pub use layout::{ENTRY_HEADER_BYTES, entry_bytes};
pub use salvage::{DamagedPart, salvage};
