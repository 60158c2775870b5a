//! Writes the bytes of a table to its file. Blocks and sections are appended to a buffer, and a
//! full buffer is put in flight while the next one fills, so merging and the device work in
//! parallel.
//!
//! A block larger than such a buffer passes through it piece by piece. So at most two buffers are
//! in memory besides the value of the block, or three if a queue takes the writes.
//!
//! Output begins at an offset aligned for the file, and nothing before it is touched.

use super::block::{BlockBuilder, around_value};
use super::compress::Codec;
use super::index::{BlockHandle, IndexBuilder};
use super::layout::{FOOTER_BYTES, FilterKind, Footer, HEADER_BYTES, Handle};
use super::properties::Properties;
use super::read::Extent;
use super::write::{SstMeta, SstOptions};
use crate::sites;
use firn_base::checksum::{Crc32c, crc32c};
use firn_base::count::{Cause, IoCounters};
use firn_base::exec::may_suspend;
use firn_base::site::Site;
use firn_base::sync::Mutex;
use firn_base::{FileId, Result, Tag};
use firn_fs::{File, IoBuf, Pending, WriteQueue, give_back_if_large};
use std::collections::VecDeque;
use std::sync::Arc;

/// Writes in flight while the next buffer fills; more if they wait for somebody else to submit
/// them.
const IN_FLIGHT: usize = 1;
const IN_FLIGHT_QUEUED: usize = 2;

/// A file that is written from some offset on. Dropping it waits for the writes in flight, which
/// must not overwrite the output of another attempt.
pub(super) struct Out {
    file: Arc<dyn File>,
    file_id: FileId,
    counters: Arc<IoCounters>,
    cause: Cause,
    codec: Codec,
    io_bytes: usize,
    block_bytes: usize,
    compressing: Arc<Mutex<()>>,
    packed: Vec<u8>,
    buffer: IoBuf,
    /// In order.
    in_flight: VecDeque<Pending>,
    /// The queue that its writes go to; `None` if it submits them itself.
    writes: Option<Arc<WriteQueue>>,
    /// The file offset at which the buffer begins.
    at: u64,
}

impl Drop for Out {
    fn drop(&mut self) {
        for pending in self.in_flight.drain(..) {
            // The caller that abandons the table has an error of its own.
            let _ended = pending.wait();
        }
    }
}

impl Out {
    /// Writes `file`, known as `file_id`, from `start` on.
    pub(super) fn new(
        file: Arc<dyn File>,
        file_id: FileId,
        start: u64,
        options: &SstOptions,
        counters: Arc<IoCounters>,
        cause: Cause,
    ) -> Out {
        Out {
            buffer: IoBuf::with_capacity(options.io_bytes),
            codec: options.codec,
            io_bytes: options.io_bytes,
            block_bytes: options.block_bytes,
            compressing: options.compressing.clone(),
            file,
            file_id,
            counters,
            cause,
            packed: Vec::new(),
            in_flight: VecDeque::new(),
            writes: options.writes.clone(),
            at: start,
        }
    }

    /// Writes the first bytes of a new file.
    pub(super) fn header(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// The file offset of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Compresses and writes a data block.
    pub(super) fn block(&mut self, raw: &[u8]) -> Result<BlockHandle> {
        let codec = self.codec.compress(raw, &mut self.packed);
        let packed = std::mem::take(&mut self.packed);
        let stored = if codec == Codec::None { raw } else { &packed };
        let handle = BlockHandle {
            offset: self.position(),
            stored_len: stored.len() as u32,
            raw_len: raw.len() as u32,
            crc: crc32c(stored),
            codec,
        };
        self.push(stored)?;
        self.packed = packed;
        Ok(handle)
    }

    /// True if a value of `value_bytes` makes a block of its own, written by [`Out::large_block`].
    pub(super) fn is_large(&self, value_bytes: usize) -> bool {
        value_bytes > self.io_bytes
    }

    /// Writes a data block of one large entry. The value is not copied unless it is compressed.
    pub(super) fn large_block(
        &mut self,
        key: &[u8],
        tag: Tag,
        value: &[u8],
    ) -> Result<BlockHandle> {
        if self.codec.pays_for(value) {
            let compressing = self.compressing.clone();
            let _alone = compressing.lock();
            let mut block = BlockBuilder::new(1);
            block.reserve(key.len() + value.len());
            block.add(key, tag, value);
            let handle = self.block(block.finish());
            give_back_if_large(&mut std::mem::take(&mut self.packed));
            give_back_if_large(&mut block.into_bytes());
            return handle;
        }
        let (head, tail) = around_value(key, tag, value.len());
        let mut crc = Crc32c::default();
        let (offset, mut len) = (self.position(), 0);
        for part in [&head, value, &tail] {
            crc.update(part);
            len += part.len() as u32;
            self.push(part)?;
        }
        Ok(BlockHandle {
            offset,
            stored_len: len,
            raw_len: len,
            crc: crc.finish(),
            codec: Codec::None,
        })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let is_whole = bytes.len() <= self.io_bytes;
        for piece in bytes.chunks(if is_whole {
            bytes.len().max(1)
        } else {
            self.io_bytes / 2
        }) {
            self.buffer.push(piece);
            if self.buffer.len() >= self.io_bytes {
                self.put_in_flight()?;
            }
        }
        Ok(())
    }

    /// Puts the buffer's aligned part in flight. The rest starts the next buffer.
    fn put_in_flight(&mut self) -> Result<()> {
        let aligned = self.buffer.len() - self.buffer.len() % self.file.alignment();
        let mut next = match self.take_buffer() {
            Some(pending) => pending.wait()?,
            None => IoBuf::with_capacity(self.io_bytes + self.block_bytes),
        };
        next.clear();
        next.push(&self.buffer.bytes()[aligned..]);
        self.buffer.truncate(aligned);
        let full = std::mem::replace(&mut self.buffer, next);
        self.counters.wrote(self.cause, aligned);
        self.submit(full);
        self.at += aligned as u64;
        Ok(())
    }

    fn in_flight_max(&self) -> usize {
        match self.writes {
            Some(_) => IN_FLIGHT_QUEUED,
            None => IN_FLIGHT,
        }
    }

    /// The oldest write, if its buffer is free or no more may be in flight.
    fn take_buffer(&mut self) -> Option<Pending> {
        let is_full = self.in_flight.len() >= self.in_flight_max();
        let is_done = self.in_flight.front().is_some_and(Pending::is_done);
        (is_full || is_done)
            .then(|| self.in_flight.pop_front())
            .flatten()
    }

    fn submit(&mut self, buf: IoBuf) {
        let pending = match &self.writes {
            Some(queue) => queue.write(&self.file, self.at, buf),
            None => self.tracked(self.file.submit_write(self.at, buf)),
        };
        self.in_flight.push_back(pending);
    }

    fn tracked(&self, pending: Pending) -> Pending {
        match self.cause {
            Cause::Compaction => pending.tracked(self.counters.begin_compaction_io()),
            _ => pending,
        }
    }

    /// The write that `bytes` more would wait for, if it is not known to have completed.
    #[inline]
    pub(super) fn wants(&mut self, bytes: usize) -> Option<&mut Pending> {
        let is_full = self.buffer.len() + bytes >= self.io_bytes
            && self.in_flight.len() >= self.in_flight_max();
        let oldest = self.in_flight.front_mut();
        oldest.filter(|pending| is_full && !pending.is_done())
    }

    /// Writes the buffer as the last one and syncs the file.
    async fn end(&mut self, site: &'static Site) -> Result<()> {
        if !may_suspend() {
            for pending in self.in_flight.drain(..) {
                pending.wait()?;
            }
            self.file.write(self.at, &[self.buffer.bytes()])?;
            return self.file.sync(site);
        }
        let last = std::mem::take(&mut self.buffer);
        self.submit(last);
        // A sync does not cover writes that are in flight.
        while let Some(pending) = self
            .in_flight
            .front_mut()
            .filter(|_| sites::SST_WRITES_WAIT.is_on())
        {
            pending.ready().await;
            self.in_flight
                .pop_front()
                .map_or(Ok(()), |pending| pending.wait().map(drop))?;
        }
        let mut synced = match &self.writes {
            Some(queue) => queue.sync(&self.file, site),
            None => self.tracked(self.file.submit_sync(site)),
        };
        synced.ready().await;
        synced.wait().map(drop)
    }

    fn section(&mut self, bytes: &[u8]) -> Handle {
        let handle = Handle {
            offset: self.position(),
            len: bytes.len() as u32,
            crc: crc32c(bytes),
        };
        self.buffer.push(bytes);
        handle
    }

    /// Writes filter, index, properties and footer after the blocks, of which `data_bytes` are
    /// live, and syncs the file.
    pub(super) async fn finish(
        mut self,
        site: &'static Site,
        filter_kind: FilterKind,
        filter: &[u8],
        index: &IndexBuilder,
        properties: Properties,
        data_bytes: u64,
    ) -> Result<SstMeta> {
        let data_end = self.position();
        let filter = self.section(filter);
        let small_blocks = index.blocks_below(self.block_bytes / 2);
        let block_bytes_max = index.block_bytes_max();
        let index = self.section(&index.finish());
        let encoded = self.section(&properties.encode());
        let footer_offset = self.position();
        let footer = Footer {
            file_id: self.file_id,
            filter,
            filter_kind,
            index,
            properties: encoded,
            data_bytes,
            has_header: true,
        };
        self.buffer.push(&footer.encode(footer_offset));
        let valid_len = footer_offset + FOOTER_BYTES as u64;
        self.buffer.pad_to(self.file.alignment());
        let data_left = data_end.saturating_sub(self.at) as usize;
        self.counters.wrote(self.cause, data_left);
        self.counters
            .wrote(Cause::Index, self.buffer.len() - data_left);
        self.end(site).await?;
        let extent = Extent {
            valid_len,
            footer_offset,
        };
        let dead_bytes = data_end - HEADER_BYTES as u64 - data_bytes;
        Ok(SstMeta {
            extent,
            data_bytes,
            dead_bytes,
            small_blocks,
            block_bytes_max,
            properties,
            blocks: None,
        })
    }
}
