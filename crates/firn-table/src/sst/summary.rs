//! The summaries of a table's blocks: bounds, location and filter of each. A reader with those of
//! all tables of a stack needs no table open.

use super::block_filters::BlockFilters;
use super::index::{BlockHandle, Index};

/// The bounds, the location and the filter of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSummary<'a> {
    /// The smallest user key.
    pub smallest: Vec<u8>,
    /// The largest user key.
    pub largest: Vec<u8>,
    /// Its location and encoding.
    pub handle: BlockHandle,
    /// Its filter for [`super::may_contain`]; empty if there is none.
    pub filter: &'a [u8],
}

/// The summaries of the blocks of a table that was written.
#[derive(Debug)]
pub struct BlockSummaries {
    index: Index,
    filters: BlockFilters,
}

impl BlockSummaries {
    /// The summaries in the stored index and filters of a table whose blocks end at `data_end`.
    ///
    /// # Errors
    /// A description of the expectation that does not hold.
    pub(super) fn decode(
        index: &[u8],
        filters: &[u8],
        data_end: u64,
    ) -> Result<BlockSummaries, &'static str> {
        let index = Index::decode(index, data_end)?;
        let filters =
            BlockFilters::decode(filters, index.len()).ok_or("a filter for each block")?;
        Ok(BlockSummaries { index, filters })
    }

    /// The summaries, in the order of the blocks.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = BlockSummary<'_>> {
        summaries(&self.index, Some(&self.filters))
    }

    /// Bytes of memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.filters.memory_bytes()
    }
}

impl PartialEq for BlockSummaries {
    fn eq(&self, other: &BlockSummaries) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for BlockSummaries {}

/// The summaries of the blocks of an index, with their filters.
pub(super) fn summaries<'a>(
    index: &'a Index,
    filters: Option<&'a BlockFilters>,
) -> impl ExactSizeIterator<Item = BlockSummary<'a>> {
    (0..index.len()).map(move |block| BlockSummary {
        smallest: index.smallest(block),
        largest: index.largest(block),
        handle: index.handle(block),
        filter: filters.map_or(&[], |filters| filters.get(block)),
    })
}
