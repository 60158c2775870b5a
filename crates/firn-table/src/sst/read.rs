//! Opening a table and reading from it. Index and filter stay in memory, so a get costs one read if
//! its block is not cached, and none if the filter or the bounds exclude the key.
//!
//! 1. Nothing is trusted before its checksum matched, and no length from media is allocated before
//!    it was bounded.
//! 2. A table is immutable. An append makes a new `Sst` over the same file, and readers keep the
//!    one they have.
//!
//! Thread safety: `Send + Sync`; readers share it without a lock.

use super::block_filters::{BlockFilters, may_contain};
use super::block_reader::{BlockGot, BlockReader, BlockStep, PendingRead};
use super::filter::{Filter, hash};
use super::index::{BlockHandle, Index};
use super::iter::{Access, SstIter};
use super::layout::{FOOTER_BYTES, FilterKind, Footer, Handle};
use super::properties::Properties;
use super::readahead::Readahead;
use super::summary::{BlockSummary, summaries};
use crate::context::{OpenBytes, TableContext};
use crate::mechanisms;
use crate::sites;
use crate::value::Value;
use firn_base::checksum::{crc32c, matches};
use firn_base::count::Cause;
use firn_base::{Error, FileId, Result, SeqNo, Tag};
use firn_fs::{File, IoBuf};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// The maximum size of an index, filter or properties section, in bytes.
const SECTION_BYTES_MAX: u32 = 1 << 30;

/// A table's location in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Bytes of the file that belong to the table.
    pub valid_len: u64,
    /// The offset of its footer.
    pub footer_offset: u64,
}

/// An open table.
pub struct Sst {
    reader: BlockReader,
    extent: Extent,
    /// Bytes of the file's header: 0 in a file of the version that had none.
    pub(super) header_bytes: u64,
    dead_bytes: u64,
    index: Index,
    filter: TableFilter,
    properties: Properties,
    readahead: Readahead,
    memory: OpenBytes,
}

/// The arguments of a get.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The key's [`super::filter::hash`].
    pub hash: u64,
    /// The read point: entries with a higher sequence number are ignored.
    pub seqno: SeqNo,
    /// True if the caller keeps rows. If not, blocks are cached.
    pub rows: bool,
}

impl<'a> Query<'a> {
    /// A query of a caller that keeps no rows.
    pub fn new(key: &'a [u8], seqno: SeqNo) -> Self {
        Self {
            key,
            hash: hash(key),
            seqno,
            rows: false,
        }
    }
}

/// The answer of a table to a get.
pub enum Got {
    /// The filter or the bounds exclude the key. No block was searched.
    Excluded,
    /// Blocks were searched and did not contain the key.
    Missed {
        /// True if a block came from disk, not from the cache.
        read: bool,
    },
    /// The newest entry at or below the read point.
    Found {
        /// Its sequence number and kind.
        tag: Tag,
        /// Its value.
        value: Value,
        /// True if the entry is to be kept as a row, if it is the newest of the key.
        keeps_row: bool,
    },
}

/// The state of a get that does not wait for the device.
pub enum GetStep {
    /// The answer.
    Done(Got),
    /// A block is being read; continue with [`Sst::finish_get`].
    Pending(PendingBlock),
}

/// A block read in flight.
pub struct PendingBlock {
    block: usize,
    pending: PendingRead,
}

/// The filter of a table.
#[derive(Debug)]
enum TableFilter {
    /// One for all keys.
    Table(Filter),
    /// One for each block.
    Blocks(BlockFilters),
}

impl TableFilter {
    fn memory_bytes(&self) -> usize {
        match self {
            TableFilter::Table(filter) => filter.as_bytes().len(),
            TableFilter::Blocks(filters) => filters.memory_bytes(),
        }
    }
}

impl Sst {
    /// Opens the table at `extent` of `file`, known as `id`.
    ///
    /// # Errors
    /// `Corruption` if a checksum, bound or length does not hold; `Io` if the device fails.
    pub fn open(
        file: Arc<dyn File>,
        id: FileId,
        extent: Extent,
        context: TableContext,
    ) -> Result<Sst> {
        let place = file.path().display().to_string();
        let damaged = |offset: u64, what: &str| {
            Error::corruption(&place, offset, format_args!("expected {what}"))
        };
        let footer_end = extent.footer_offset.checked_add(FOOTER_BYTES as u64);
        if footer_end != Some(extent.valid_len) {
            let what = format!(
                "the table's footer at the end of its valid length of {}",
                extent.valid_len
            );
            return Err(damaged(extent.footer_offset, &what));
        }
        let file_bytes = file.len()?;
        if file_bytes < extent.valid_len {
            let what = format!(
                "{} bytes, as the manifest says, of which the file has {file_bytes}",
                extent.valid_len
            );
            return Err(damaged(file_bytes, &what));
        }
        let mut buf = IoBuf::default();
        context.counters.read(Cause::Index, FOOTER_BYTES);
        file.read(extent.footer_offset, FOOTER_BYTES, &mut buf)?;
        let footer = Footer::decode(buf.bytes(), id, extent.footer_offset)
            .map_err(|what| damaged(extent.footer_offset, what))?;
        let mut section = |handle: Handle, what: &str| {
            if handle.len > SECTION_BYTES_MAX {
                return Err(damaged(handle.offset, what));
            }
            context.counters.read(Cause::Index, handle.len as usize);
            file.read(handle.offset, handle.len as usize, &mut buf)?;
            let computed = || crc32c(buf.bytes());
            if buf.len() != handle.len as usize
                || !matches(&sites::SST_SECTION_CHECK, handle.crc, computed)
            {
                return Err(damaged(handle.offset, what));
            }
            Ok(buf.bytes().to_vec())
        };
        let filter = section(footer.filter, "a filter with its checksum")?;
        let index = section(footer.index, "an index with its checksum")?;
        let properties = section(footer.properties, "properties with their checksum")?;
        let index = Index::decode(&index, footer.data_bytes.max(footer.filter.offset))
            .map_err(|what| damaged(footer.index.offset, what))?;
        if index.stored_bytes() != footer.data_bytes {
            return Err(damaged(
                footer.index.offset,
                "blocks that add up to the data that the footer claims",
            ));
        }
        let filter = match footer.filter_kind {
            FilterKind::Table => Filter::from_bytes(&filter).map(TableFilter::Table),
            FilterKind::Blocks => {
                BlockFilters::decode(&filter, index.len()).map(TableFilter::Blocks)
            }
        };
        let filter = filter.ok_or_else(|| damaged(footer.filter.offset, "whole filters"))?;
        let properties = Properties::decode(&properties)
            .ok_or_else(|| damaged(footer.properties.offset, "known properties"))?;
        let header_bytes = footer.header_bytes();
        let dead_bytes = footer.filter.offset - header_bytes - footer.data_bytes;
        let memory = index.memory_bytes() + filter.memory_bytes() + size_of::<Sst>();
        Ok(Sst {
            memory: context.count_open(memory),
            reader: BlockReader::new(file, id, context),
            extent,
            header_bytes,
            dead_bytes,
            index,
            filter,
            properties,
            readahead: Readahead::default(),
        })
    }

    /// The file's id.
    pub fn id(&self) -> FileId {
        self.reader.id()
    }

    /// Opens the table again through the file handle that it holds. Footer, index and filter are
    /// read from media again; the file need not have a name any more.
    ///
    /// # Errors
    /// As [`Sst::open`].
    pub fn reopen(&self) -> Result<Sst> {
        Sst::open(
            self.file().clone(),
            self.id(),
            self.extent,
            self.context().clone(),
        )
    }

    /// The table's location in its file.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Counts and bounds.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Bytes before its sections that are in no live block.
    pub fn dead_bytes(&self) -> u64 {
        self.dead_bytes
    }

    /// Bytes of its live blocks.
    pub fn data_bytes(&self) -> u64 {
        self.index.stored_bytes()
    }

    /// The byte ranges of its newest state: its blocks, then the header, then its sections with the
    /// footer.
    pub fn live(&self) -> impl Iterator<Item = Range<u64>> {
        let block =
            |handle: BlockHandle| handle.offset..handle.offset + u64::from(handle.stored_len);
        let header = 0..self.header_bytes;
        let sections_at = self.header_bytes + self.dead_bytes + self.data_bytes();
        let sections = sections_at..self.extent.valid_len;
        (0..self.blocks())
            .map(move |number| block(self.index.handle(number)))
            .chain([header, sections])
    }

    /// True if it has a filter.
    pub fn has_filter(&self) -> bool {
        match &self.filter {
            TableFilter::Table(filter) => !filter.as_bytes().is_empty(),
            TableFilter::Blocks(_) => true,
        }
    }

    /// The expected share of keys that its filter has although the table has not, for tables with
    /// one filter of all keys.
    pub fn false_positives(&self) -> Option<f64> {
        match &self.filter {
            TableFilter::Table(filter) if self.has_filter() => {
                Some(filter.false_positives(self.properties.entries))
            }
            TableFilter::Table(_) | TableFilter::Blocks(_) => None,
        }
    }

    /// True unless the bounds and the filter exclude the query's key. Reads nothing.
    pub fn may_have(&self, query: &Query<'_>) -> bool {
        self.candidate(query).is_ok()
    }

    /// The number of data blocks.
    pub fn blocks(&self) -> usize {
        self.index.len()
    }

    /// The number of data blocks of fewer than `bytes` before compression.
    pub fn blocks_below(&self, bytes: usize) -> usize {
        (0..self.index.len())
            .filter(|&block| (self.index.handle(block).raw_len as usize) < bytes)
            .count()
    }

    /// Bytes of its largest data block before compression.
    pub fn block_bytes_max(&self) -> u64 {
        (0..self.index.len())
            .map(|block| u64::from(self.index.handle(block).raw_len))
            .max()
            .unwrap_or(0)
    }

    /// Removes the blocks with these numbers from the cache, because nothing will look them up
    /// again. Returns the number of blocks that were cached.
    pub fn forget(&self, blocks: impl Iterator<Item = usize>) -> u64 {
        let drop = |block: &usize| {
            self.context()
                .cache
                .remove(self.id(), self.index.handle(*block).offset)
        };
        blocks.filter(drop).count() as u64
    }

    /// Bytes of memory used by its index.
    pub fn index_bytes(&self) -> usize {
        self.index.memory_bytes()
    }

    /// Bytes of memory that it holds while open: index, filter and the struct itself.
    pub fn memory_bytes(&self) -> usize {
        self.memory.get()
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// The filter of all keys; `None` if each block has its own.
    pub(super) fn filter(&self) -> Option<&Filter> {
        match &self.filter {
            TableFilter::Table(filter) => Some(filter),
            TableFilter::Blocks(_) => None,
        }
    }

    /// False if the filters show that block `block` does not have the key with this hash.
    pub(super) fn may_contain(&self, block: usize, hash: u64) -> bool {
        match &self.filter {
            TableFilter::Table(filter) => filter.may_contain(hash),
            TableFilter::Blocks(filters) => may_contain(filters.get(block), hash),
        }
    }

    /// The summaries of its blocks, in order, as its writer told them. Their filters are empty if
    /// there is one filter for the whole table.
    pub fn block_summaries(&self) -> impl ExactSizeIterator<Item = BlockSummary<'_>> {
        let filters = match &self.filter {
            TableFilter::Table(_) => None,
            TableFilter::Blocks(filters) => Some(filters),
        };
        summaries(&self.index, filters)
    }

    /// The reader of its blocks, which needs no open table.
    pub fn block_reader(&self) -> &BlockReader {
        &self.reader
    }

    pub(super) fn context(&self) -> &TableContext {
        self.reader.context()
    }

    /// The number of cursors that continued from one block to the next since this state of the
    /// table was opened.
    pub fn scans(&self) -> u64 {
        self.readahead.scans()
    }

    /// The readahead statistics of cursors.
    pub(super) fn readahead(&self) -> &Readahead {
        &self.readahead
    }

    /// The file that contains the table.
    pub fn file(&self) -> &Arc<dyn File> {
        self.reader.file()
    }

    /// The error for damage in block `block`.
    pub(super) fn damaged(&self, block: usize, expected: &str) -> Error {
        let offset = self.index.handle(block).offset;
        self.reader.damaged(offset, expected)
    }

    /// The error for a false claim of the table as a whole.
    pub(super) fn wrong(&self, expected: &str) -> Error {
        let place = self.file().path().display();
        Error::corruption(
            place,
            self.extent.footer_offset,
            format_args!("expected {expected}"),
        )
    }

    /// A cursor over the table.
    pub fn iter(self: &Arc<Self>, access: Access) -> SstIter {
        SstIter::new(self.clone(), access)
    }

    /// Looks up the newest entry of the key at or below the read point.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file.
    pub fn get(&self, query: &Query<'_>) -> Result<Got> {
        match self.candidate(query) {
            Ok(block) => self.get_from(block, query),
            Err(got) => Ok(got),
        }
    }

    // Not inlined, because most tables exclude the key, and need none of its stack.
    #[inline(never)]
    fn get_from(&self, block: usize, query: &Query<'_>) -> Result<Got> {
        match self.reader.get(&self.index.handle(block), query)? {
            BlockGot::Found {
                tag,
                value,
                keeps_row,
            } => Ok(Got::Found {
                tag,
                value,
                keeps_row,
            }),
            BlockGot::Absent { read } => Ok(Got::Missed { read }),
            past_end @ BlockGot::PastEnd { .. } => self.follow(block, past_end, query),
        }
    }

    /// Like [`Sst::get`], but starts a read instead of waiting for it.
    ///
    /// # Errors
    /// As `get`.
    pub fn begin_get(&self, query: &Query<'_>) -> Result<GetStep> {
        let block = match self.candidate(query) {
            Ok(block) => block,
            Err(got) => return Ok(GetStep::Done(got)),
        };
        match self.reader.begin_get(&self.index.handle(block), query)? {
            BlockStep::Done(found) => self.follow(block, found, query).map(GetStep::Done),
            BlockStep::Pending(pending) => Ok(GetStep::Pending(PendingBlock { block, pending })),
        }
    }

    /// Completes a get begun by [`Sst::begin_get`].
    ///
    /// # Errors
    /// As `get`.
    pub fn finish_get(&self, pending: PendingBlock, query: &Query<'_>) -> Result<Got> {
        let found = self.reader.finish_get(pending.pending, query)?;
        self.follow(pending.block, found, query)
    }

    /// The first block that may contain the key, or the answer `Excluded` if the filter or the
    /// bounds exclude it.
    #[inline]
    fn candidate(&self, &Query { key, hash, .. }: &Query<'_>) -> Result<usize, Got> {
        match &self.filter {
            TableFilter::Table(filter) => match filter.may_contain(hash) {
                true => self.block_of(key),
                false => None,
            },
            // Later blocks have the key only if this one ends with it, so its filter decides.
            TableFilter::Blocks(filters) => self
                .block_of(key)
                .filter(|&block| may_contain(filters.get(block), hash)),
        }
        .ok_or(Got::Excluded)
    }

    /// The first block whose bounds include `key`.
    #[inline]
    fn block_of(&self, key: &[u8]) -> Option<usize> {
        let block = self.index.find(key);
        let starts = || self.index.compare_smallest(block, key) != Ordering::Greater;
        let within = block < self.index.len() && (starts() || !mechanisms::BLOCK_BOUNDS.is_on());
        within.then_some(block)
    }

    /// Takes the answer of block `number`, or of one after it while the key's versions may continue
    /// there.
    fn follow(&self, mut number: usize, mut found: BlockGot, query: &Query<'_>) -> Result<Got> {
        let mut any_read = false;
        loop {
            match found {
                BlockGot::Found {
                    tag,
                    value,
                    keeps_row,
                } => {
                    return Ok(Got::Found {
                        tag,
                        value,
                        keeps_row,
                    });
                }
                BlockGot::Absent { read } => {
                    let read = any_read || read;
                    return Ok(Got::Missed { read });
                }
                BlockGot::PastEnd { read } => any_read |= read,
            }
            number += 1;
            if number >= self.index.len()
                || self.index.compare_smallest(number, query.key) != Ordering::Equal
            {
                return Ok(Got::Missed { read: any_read });
            }
            found = self.reader.get(&self.index.handle(number), query)?;
        }
    }
}

impl std::fmt::Debug for Sst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Sst({}, {} entries, {} blocks)",
            self.id(),
            self.properties.entries,
            self.index.len()
        )
    }
}
