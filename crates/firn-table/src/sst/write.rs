//! Writes a table in one pass:
//!
//! 1. Entries go into the block builder. A full block is compressed, checksummed and handed to the
//!    output (`out.rs`).
//! 2. At the end: filter, index, properties, footer, padding to the file's alignment, one sync.
//!
//! A crash before the sync leaves a file that no manifest record names. DURABLE AFTER: `finish`,
//! and a sync of the directory, which the caller does once for all tables of an edit.

use super::block::BlockBuilder;
use super::block_filters::BlockFiltersBuilder;
use super::compress::Codec;
use super::filter::{self, Filter, Hashes};
use super::index::IndexBuilder;
use super::layout::{FilterKind, HEADER_BYTES, TableOwner};
use super::out::Out;
use super::properties::Properties;
use super::read::Extent;
use super::summary::BlockSummaries;
use crate::sites;
use firn_base::count::{Cause, IoCounters};
use firn_base::exec::{block_on, may_suspend};
use firn_base::key::Tag;
use firn_base::sync::Mutex;
use firn_base::{Error, FileId, Limits, Result, SeqNo};
use firn_fs::{File, Pending, WriteQueue};
use std::sync::Arc;

/// The options for writing a table.
#[derive(Debug, Clone)]
pub struct SstOptions {
    /// Target size of a data block, in bytes.
    pub block_bytes: usize,
    /// Entries between restart points.
    pub restart_interval: usize,
    /// Compression of data blocks.
    pub codec: Codec,
    /// Filter bits per key; 0 for no filter.
    pub filter_bits: u32,
    /// Bits per key of a filter for each block, which the table then has instead of one filter for
    /// all keys; 0 for none. Nothing can be appended to such a table.
    pub block_filter_bits: u32,
    /// Bits reserved for keys appended later, in percent of the table's keys.
    pub filter_reserve_percent: u32,
    /// The most bits that are reserved, as a share of the table's data.
    pub filter_reserve_share_max: f64,
    /// Bytes put in flight at once.
    pub io_bytes: usize,
    /// The table's owner.
    pub owner: TableOwner,
    /// The queue that its writes go to; `None` if it submits them itself.
    pub writes: Option<Arc<WriteQueue>>,
    /// Held while a large block is compressed, because that takes as much memory again. Only one of
    /// the writers that share it compresses at a time.
    pub compressing: Arc<Mutex<()>>,
}

impl SstOptions {
    /// Options with the sizes of `limits`, no compression and filters of 10 bits.
    pub fn new(limits: &Limits) -> Self {
        Self {
            block_bytes: limits.block_bytes,
            restart_interval: limits.restart_interval,
            codec: Codec::None,
            filter_bits: 10,
            block_filter_bits: 0,
            filter_reserve_percent: 0,
            filter_reserve_share_max: 1.0,
            io_bytes: limits.io_bytes,
            owner: TableOwner {
                uuid: [0; 16],
                log_id: FileId(0),
            },
            writes: None,
            compressing: Arc::default(),
        }
    }
}

/// The result of writing a table: its location and contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SstMeta {
    /// The table's location in its file.
    pub extent: Extent,
    /// Bytes of live data blocks.
    pub data_bytes: u64,
    /// Bytes before its sections that are in no live block.
    pub dead_bytes: u64,
    /// Data blocks of less than half the target size.
    pub small_blocks: u64,
    /// Bytes of the largest data block before compression.
    pub block_bytes_max: u64,
    /// Counts and bounds.
    pub properties: Properties,
    /// The summaries of its blocks, if they have filters of their own.
    pub blocks: Option<Arc<BlockSummaries>>,
}

/// The keys of a table under construction, as its filter section wants them.
enum Keys {
    /// For one filter of all of them.
    Table(Hashes),
    /// For a filter of each block, with their number.
    Blocks(BlockFiltersBuilder, u64),
}

/// A table under construction.
pub struct SstWriter {
    out: Out,
    options: SstOptions,
    block: BlockBuilder,
    block_smallest: Vec<u8>,
    index: IndexBuilder,
    keys: Keys,
    properties: Properties,
    last_key: Vec<u8>,
}

impl SstWriter {
    /// A writer at the start of an empty `file`, to be known as `file_id`.
    pub fn new(
        file: Arc<dyn File>,
        file_id: FileId,
        options: SstOptions,
        counters: Arc<IoCounters>,
        cause: Cause,
    ) -> Self {
        let keys = match options.block_filter_bits {
            0 => Keys::Table(Hashes::default()),
            bits => Keys::Blocks(BlockFiltersBuilder::new(bits), 0),
        };
        let mut out = Out::new(file, file_id, 0, &options, counters, cause);
        out.header(&options.owner.encode(file_id));
        Self {
            out,
            block: BlockBuilder::new(options.restart_interval),
            options,
            block_smallest: Vec::new(),
            index: IndexBuilder::default(),
            keys,
            properties: Properties {
                seqno_min: SeqNo::MAX,
                ..Properties::default()
            },
            last_key: Vec::new(),
        }
    }

    /// Appends an entry.
    ///
    /// REQUIRES: (key, tag) is after the last one in internal key order.
    ///
    /// # Errors
    /// The error of writing a full buffer; the table must then be abandoned.
    pub fn add(&mut self, key: &[u8], tag: Tag, value: &[u8]) -> Result<()> {
        if self.out.is_large(value.len()) {
            if !self.block.is_empty() {
                self.end_block()?;
            }
            self.count(key, tag, value, true);
            let handle = self.out.large_block(key, tag, value)?;
            self.index.add(key, key, handle);
            self.end_filter();
            return Ok(());
        }
        // Even an empty value takes some bytes, so a block of large entries ends before an entry
        // that would overshoot.
        let full = self.block.len() + key.len() + value.len() / 2 >= self.options.block_bytes;
        if !self.block.is_empty() && full {
            self.end_block()?;
        }
        let begins = self.block.is_empty();
        if begins {
            self.block_smallest.clear();
            self.block_smallest.extend_from_slice(key);
        }
        self.block.add(key, tag, value);
        self.count(key, tag, value, begins);
        Ok(())
    }

    /// Counts an entry, which `begins` a block or not.
    fn count(&mut self, key: &[u8], tag: Tag, value: &[u8], begins: bool) {
        if self.properties.entries == 0 {
            self.properties.smallest = key.to_vec();
        }
        let is_new = self.properties.entries == 0 || self.last_key != key;
        match &mut self.keys {
            Keys::Table(hashes) if is_new => hashes.push(filter::hash(key)),
            Keys::Blocks(filters, keys) if is_new || begins => {
                filters.push(filter::hash(key));
                *keys += u64::from(is_new);
            }
            _ => {}
        }
        if is_new {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        } else {
            self.properties.superseded_bytes += (key.len() + value.len()) as u64;
        }
        self.properties.count(key, tag, value);
    }

    /// The number of entries so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// The last user key added.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The table's size in bytes if it ended here, without the filter.
    pub fn estimated_bytes(&self) -> u64 {
        self.out.position() + (self.block.len() + self.index.len()) as u64
    }

    /// Bytes of memory that keys take until the table ends: their hashes, the future filter, and
    /// the index.
    pub fn held_bytes(&self) -> usize {
        let bits = self.options.filter_bits as usize
            * (100 + self.options.filter_reserve_percent as usize)
            / 100;
        let keys = match &self.keys {
            Keys::Table(hashes) => hashes.len() * (size_of::<u64>() + bits / 8),
            // The summaries have all of it once more.
            Keys::Blocks(filters, _) => 2 * filters.held_bytes() + self.index.len(),
        };
        keys + self.index.len()
    }

    /// Ends the filter of a block, if each has its own.
    fn end_filter(&mut self) {
        if let Keys::Blocks(filters, _) = &mut self.keys {
            filters.end_block();
        }
    }

    fn end_block(&mut self) -> Result<()> {
        let handle = self.out.block(self.block.finish())?;
        self.index.add(&self.block_smallest, &self.last_key, handle);
        self.end_filter();
        self.block.reset();
        Ok(())
    }

    /// The write that the next `add` may wait for, if it is not known to have completed. The pieces
    /// of a value larger than a buffer are not among them.
    #[inline]
    pub fn wants(&mut self) -> Option<&mut Pending> {
        self.out.wants(self.block.len() + self.options.block_bytes)
    }

    /// Ends the table and syncs its file.
    ///
    /// # Errors
    /// The error of a write or sync; the table must then be abandoned.
    pub fn finish(self) -> Result<SstMeta> {
        block_on(self.end())
    }

    /// As [`SstWriter::finish`], but suspends where a crew polls it.
    ///
    /// # Errors
    /// As `finish`.
    pub async fn end(mut self) -> Result<SstMeta> {
        while let Some(pending) = self.wants().filter(|_| may_suspend()) {
            pending.ready().await;
        }
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let data_bytes = self.out.position() - HEADER_BYTES as u64;
        let (mut properties, index) = (self.properties, self.index);
        properties.largest = self.last_key;
        let (kind, filter) = match self.keys {
            Keys::Table(hashes) => {
                let (filter, capacity) = build_filter(&hashes, &self.options, data_bytes);
                properties.filter_capacity = capacity;
                properties.filter_keys = hashes.len() as u64;
                (FilterKind::Table, filter.into_bytes())
            }
            Keys::Blocks(filters, keys) => {
                (properties.filter_capacity, properties.filter_keys) = (keys, keys);
                (FilterKind::Blocks, filters.finish())
            }
        };
        let blocks = match kind {
            FilterKind::Table => None,
            FilterKind::Blocks => {
                let data_end = HEADER_BYTES as u64 + data_bytes;
                let blocks = BlockSummaries::decode(&index.finish(), &filter, data_end);
                Some(Arc::new(blocks.map_err(Error::invalid)?))
            }
        };
        let written = self.out.finish(
            &sites::SST_SYNC,
            kind,
            &filter,
            &index,
            properties,
            data_bytes,
        );
        let meta = written.await?;
        Ok(SstMeta { blocks, ..meta })
    }
}

/// The filter of all keys, for `data_bytes` of blocks, and the number of keys for which it has
/// room.
fn build_filter(hashes: &Hashes, options: &SstOptions, data_bytes: u64) -> (Filter, u64) {
    let keys = hashes.len() as u64;
    let bits_max = (data_bytes * 8) as f64 * options.filter_reserve_share_max;
    let affordable = bits_max as u64 / u64::from(options.filter_bits.max(1));
    let capacity = keys + (keys * u64::from(options.filter_reserve_percent) / 100).min(affordable);
    let mut filter = Filter::with_capacity(capacity as usize, options.filter_bits);
    hashes.iter().for_each(|hash| filter.insert(hash));
    (filter, capacity)
}
