//! Writing a table, in one pass:
//!
//! 1. entries go into the block builder; a full block is compressed, checksummed and put on the file's buffer;
//! 2. a full buffer is put in flight while the next one fills, so that merging and the device work side by side;
//! 3. at the end: filter, index, properties, footer, padding to the file's alignment, one sync.
//!
//! A crash before the sync leaves a file that no manifest record names. DURABLE AFTER: `finish`, and a sync of the
//! directory, which the caller does once for all tables of an edit.

use super::block::BlockBuilder;
use super::compress::Codec;
use super::filter::{self, Filter};
use super::index::{BlockHandle, IndexBuilder};
use super::layout::{FOOTER_BYTES, Footer, Handle};
use super::properties::Properties;
use super::read::Extent;
use crate::sites;
use firn_base::checksum::crc32c;
use firn_base::count::{Cause, IoCounters};
use firn_base::key::{Kind, Tag};
use firn_base::{Limits, Result, SeqNo};
use firn_fs::{File, IoBuf, Pending};
use std::sync::Arc;

/// How tables are written.
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
    /// Bits reserved for keys appended later, in percent of the table's keys.
    pub filter_reserve_percent: u32,
    /// Bytes put in flight at once.
    pub io_bytes: usize,
}

impl SstOptions {
    /// Options with the sizes of `limits`, no compression and filters of 10 bits.
    pub fn new(limits: &Limits) -> Self {
        Self {
            block_bytes: limits.block_bytes,
            restart_interval: limits.restart_interval,
            codec: Codec::None,
            filter_bits: 10,
            filter_reserve_percent: 0,
            io_bytes: limits.io_bytes,
        }
    }
}

/// What was written: where the table is and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SstMeta {
    /// Where the table lies in its file.
    pub extent: Extent,
    /// Bytes of live data blocks.
    pub data_bytes: u64,
    /// Counts and bounds.
    pub properties: Properties,
}

/// A table under construction.
pub struct SstWriter {
    file: Arc<dyn File>,
    file_id: u64,
    options: SstOptions,
    counters: Arc<IoCounters>,
    cause: Cause,
    block: BlockBuilder,
    block_smallest: Vec<u8>,
    packed: Vec<u8>,
    index: IndexBuilder,
    hashes: Vec<u64>,
    properties: Properties,
    last_key: Vec<u8>,
    buffer: IoBuf,
    in_flight: Option<Pending>,
    flushed_bytes: u64,
}

impl SstWriter {
    /// A writer at the start of an empty `file`, which is to be known as `file_id`.
    pub fn new(
        file: Arc<dyn File>,
        file_id: u64,
        options: SstOptions,
        counters: Arc<IoCounters>,
        cause: Cause,
    ) -> Self {
        Self {
            block: BlockBuilder::new(options.restart_interval),
            buffer: IoBuf::with_capacity(options.io_bytes),
            file,
            file_id,
            options,
            counters,
            cause,
            block_smallest: Vec::new(),
            packed: Vec::new(),
            index: IndexBuilder::default(),
            hashes: Vec::new(),
            properties: Properties { seqno_min: SeqNo::MAX, ..Properties::default() },
            last_key: Vec::new(),
            in_flight: None,
            flushed_bytes: 0,
        }
    }

    /// Appends an entry.
    ///
    /// REQUIRES: (key, tag) is behind the last one in internal key order.
    ///
    /// # Errors
    /// What writing a full buffer met; the table is then to be abandoned.
    pub fn add(&mut self, key: &[u8], tag: Tag, value: &[u8]) -> Result<()> {
        // Even an empty value costs some bytes, so a block of large entries ends in front of one that overshoots.
        let full = self.block.len() + key.len() + value.len() / 2 >= self.options.block_bytes;
        if !self.block.is_empty() && full {
            self.end_block()?;
        }
        if self.block.is_empty() {
            self.block_smallest.clear();
            self.block_smallest.extend_from_slice(key);
        }
        self.block.add(key, tag, value);
        self.count(key, tag, value);
        Ok(())
    }

    fn count(&mut self, key: &[u8], tag: Tag, value: &[u8]) {
        let properties = &mut self.properties;
        if properties.entries == 0 {
            properties.smallest = key.to_vec();
        }
        if properties.entries == 0 || self.last_key != key {
            self.hashes.push(filter::hash(key));
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        properties.entries += 1;
        properties.deletes += u64::from(tag.kind() == Some(Kind::Delete));
        properties.key_bytes += key.len() as u64;
        properties.value_bytes += value.len() as u64;
        properties.seqno_min = properties.seqno_min.min(tag.seqno());
        properties.seqno_max = properties.seqno_max.max(tag.seqno());
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// The last user key added.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The table's size if it ended here, but for the filter.
    pub fn estimated_bytes(&self) -> u64 {
        self.position() + (self.block.len() + self.index.len()) as u64
    }

    fn position(&self) -> u64 {
        self.flushed_bytes + self.buffer.len() as u64
    }

    fn end_block(&mut self) -> Result<()> {
        let raw = self.block.finish();
        let codec = self.options.codec.compress(raw, &mut self.packed);
        let stored = if codec == Codec::None { raw } else { &self.packed };
        let handle = BlockHandle {
            offset: self.flushed_bytes + self.buffer.len() as u64,
            stored_len: stored.len() as u32,
            raw_len: raw.len() as u32,
            crc: crc32c(stored),
            codec,
        };
        self.index.add(&self.block_smallest, &self.last_key, handle);
        self.buffer.push(stored);
        self.block.reset();
        if self.buffer.len() >= self.options.io_bytes { self.put_in_flight() } else { Ok(()) }
    }

    /// Puts the buffer's aligned part in flight; what is left over starts the next buffer.
    fn put_in_flight(&mut self) -> Result<()> {
        let aligned = self.buffer.len() - self.buffer.len() % self.file.alignment();
        let mut next = match self.in_flight.take() {
            Some(pending) => pending.wait()?,
            None => IoBuf::with_capacity(self.options.io_bytes + self.options.block_bytes),
        };
        next.clear();
        next.push(&self.buffer.bytes()[aligned..]);
        self.buffer.truncate(aligned);
        let full = std::mem::replace(&mut self.buffer, next);
        self.counters.wrote(self.cause, aligned);
        self.in_flight = Some(self.file.submit_write(self.flushed_bytes, full));
        self.flushed_bytes += aligned as u64;
        Ok(())
    }

    fn section(&mut self, bytes: &[u8]) -> Handle {
        let handle = Handle { offset: self.position(), len: bytes.len() as u32, crc: crc32c(bytes) };
        self.buffer.push(bytes);
        handle
    }

    fn build_filter(&self) -> (Filter, u64) {
        let keys = self.hashes.len() as u64;
        let capacity = keys + keys * u64::from(self.options.filter_reserve_percent) / 100;
        let mut filter = Filter::with_capacity(capacity as usize, self.options.filter_bits);
        for &hash in &self.hashes {
            filter.insert(hash);
        }
        (filter, capacity)
    }

    /// Ends the table and syncs its file.
    ///
    /// # Errors
    /// What writing or syncing met; the table is then to be abandoned.
    pub fn finish(mut self) -> Result<SstMeta> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let data_bytes = self.position();
        let (filter, filter_capacity) = self.build_filter();
        self.properties.filter_capacity = filter_capacity;
        self.properties.largest = std::mem::take(&mut self.last_key);
        let filter = self.section(filter.as_bytes());
        let index = std::mem::take(&mut self.index).finish();
        let index = self.section(&index);
        let encoded = self.properties.encode();
        let properties = self.section(&encoded);
        let footer_offset = self.position();
        let footer = Footer { file_id: self.file_id, filter, index, properties, data_bytes };
        self.buffer.push(&footer.encode(footer_offset));
        let valid_len = footer_offset + FOOTER_BYTES as u64;
        self.buffer.pad_to(self.file.alignment());
        self.write_rest(data_bytes)?;
        let extent = Extent { valid_len, footer_offset };
        Ok(SstMeta { extent, data_bytes, properties: self.properties })
    }

    fn write_rest(&mut self, data_bytes: u64) -> Result<()> {
        if let Some(pending) = self.in_flight.take() {
            pending.wait()?;
        }
        let data_left = data_bytes.saturating_sub(self.flushed_bytes) as usize;
        self.counters.wrote(self.cause, data_left);
        self.counters.wrote(Cause::Index, self.buffer.len() - data_left);
        self.file.write(self.flushed_bytes, &[self.buffer.bytes()])?;
        self.file.sync(&sites::SST_SYNC)
    }
}
