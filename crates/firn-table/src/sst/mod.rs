//! The sorted string table: an immutable run of entries in one file. Format: `docs/format/sst.md`.

mod append;
mod block;
mod block_filters;
mod block_iter;
mod block_reader;
mod blocks_iter;
mod compress;
mod dirty;
mod filter;
mod index;
mod iter;
mod layout;
mod load;
mod out;
mod properties;
mod read;
mod readahead;
mod summary;
#[cfg(test)]
mod tests;
mod verify;
mod window;
mod write;

pub use append::SstAppender;
pub use block::{Block, BlockBuilder, Lookup};
pub use block_filters::{block_filter, false_positives, may_contain};
pub use block_reader::{BlockGot, BlockReader, BlockStep, PendingRead};
pub use blocks_iter::BlocksIter;
pub use compress::Codec;
pub use dirty::{Dirty, DirtyFinder};
pub use filter::{Filter, SharedFilter, hash};
pub use index::{BlockHandle, Index};
pub use iter::{Access, SstIter};
pub use layout::{FOOTER_BYTES, HEADER_BYTES, TableOwner};
pub use properties::Properties;
pub use read::{Extent, GetStep, Got, PendingBlock, Query, Sst};
pub use summary::{BlockSummaries, BlockSummary};
pub use verify::{DamagedBlock, SstReport};
pub use write::{SstMeta, SstOptions, SstWriter};
