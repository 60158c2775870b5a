//! The destination of the log's bytes: the file, directly or through persistent memory (LAB-DB,
//! 3.2). Bytes that fit into an extent of the log's own ([`super::placed`]) stay there, and only
//! the rest goes on into the file.
//!
//! The persistent-memory buffer has two halves. Frames stream into the active half and are durable
//! at the fence. A full half is written to the file by one large write while the other half fills.
//! The layout of a half:
//!
//! ```text
//! half     header | the same header | bytes of the log
//! header   magic: u64 | log id: u64 | base: u64 | database uuid: 16 bytes | 0: 20 bytes
//!          | CRC-32C: u32
//! ```
//! 1. The half with `base` holds the log's bytes from offset `base` on. The frames' own checksums
//!    tell where they end.
//! 2. A half's header changes only after its contents were written to its file and synced.
//! 3. A log's own header is synced before a half holds any frame of the log. Without the header,
//!    recovery would not look for the frames.
//! 4. So at any time each acknowledged byte of the log is in the file or in a half, and recovery
//!    overlays the file with the halves. Bytes after a half's last frame match no frame of that
//!    place, because checksums are salted.
//! 5. The header is stored twice, in two cache lines. Otherwise one damaged line would silently
//!    lose the acknowledged bytes after it, because a half without a header is valid, too. A crash
//!    while the header changes leaves either copy, both or none; all are fine, because the half's
//!    contents are in the file by then.
//!
//! A crash while a half is drained leaves both copies of its bytes; a crash while its header
//! changes leaves the file's copy.

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

use super::layout::FILE_HEADER_BYTES;
use super::placed::{PlacedLogs, end, place};
use crate::sites;
use firn_base::checksum::crc32c;
use firn_base::count::{Cause, IoCounters};
use firn_base::sync::Mutex;
use firn_base::{Error, FileId, Result};
use firn_fs::File;
use firn_pm::{DurableAt, Extent, Fenced, LINE_BYTES, Owner, PmOffset, Pool, RootEntry};
use std::sync::Arc;

const HALF_MAGIC: u64 = u64::from_le_bytes(*b"FIRNPMLB");
const HEADER_BYTES: usize = 64;
const HALF_HEADER_BYTES: usize = 2 * HEADER_BYTES;
const _: () = assert!(8 + 8 + 8 + 16 + 20 + 4 == HEADER_BYTES && HEADER_BYTES as u64 == LINE_BYTES);

/// The two halves in a pool.
#[derive(Clone)]
pub(crate) struct PmLogBuffer {
    pool: Arc<Pool>,
    halves: [Extent; 2],
    uuid: [u8; 16],
    /// A half that is full and not yet in its file.
    full: Arc<Mutex<Option<Full>>>,
}

struct Full {
    file: Arc<dyn File>,
    counters: Arc<IoCounters>,
    half: usize,
    base: u64,
    len: usize,
}

impl PmLogBuffer {
    /// The halves that the pool's root names, or new ones of `half_bytes` each. `None` on a backend
    /// without a durable fence, where they would have no benefit.
    ///
    /// # Errors
    /// `NoSpace` if the pool is too small.
    pub(crate) fn open(
        pool: &Arc<Pool>,
        uuid: [u8; 16],
        half_bytes: usize,
    ) -> Result<Option<PmLogBuffer>> {
        if pool.durable_at() != DurableAt::Fence {
            return Ok(None);
        }
        let mut halves = Vec::new();
        for kind in 0..2 {
            if let Some(extent) = pool
                .root()
                .find(Owner::LogBuffer, kind)
                .and_then(|entry| entry.extent)
            {
                halves.push(extent);
                continue;
            }
            let extent = pool
                .alloc((HALF_HEADER_BYTES + half_bytes) as u64, Owner::LogBuffer)
                .map_err(|error| {
                    error.context("the pool has no room for the log's two buffers; raise pm.size")
                })?;
            // The half's current contents are not a header of this database, because halves are
            // never freed.
            let entry = RootEntry {
                owner: Owner::LogBuffer,
                kind,
                word: 0,
                extent: Some(extent),
            };
            pool.commit_with(Fenced::nothing(), |root| {
                root.set(entry);
                Ok(())
            })?;
            halves.push(extent);
        }
        let halves = halves
            .try_into()
            .map_err(|_| Error::invalid("a log buffer has two halves"))?;
        Ok(Some(PmLogBuffer {
            pool: pool.clone(),
            halves,
            uuid,
            full: Arc::default(),
        }))
    }

    fn capacity(&self, half: usize) -> usize {
        self.halves[half].len as usize - HALF_HEADER_BYTES
    }

    /// The bytes of log `log_id` in `pool`, in an extent of its own or in the halves, for replay:
    /// (offset in the log, bytes), ascending.
    ///
    /// # Errors
    /// The error of reading the pool.
    pub(crate) fn overlay(
        pool: &Pool,
        uuid: &[u8; 16],
        log_id: FileId,
    ) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut overlay = Vec::new();
        let is_its = |entry: &&RootEntry| entry.owner == Owner::Log && entry.word == log_id.0;
        for extent in pool
            .root()
            .entries
            .iter()
            .filter(is_its)
            .filter_map(|entry| entry.extent)
        {
            let mut bytes = vec![0; extent.len as usize];
            pool.read(extent.offset, &mut bytes)?;
            overlay.push((FILE_HEADER_BYTES as u64, bytes));
        }
        for kind in 0..2 {
            let Some(extent) = pool
                .root()
                .find(Owner::LogBuffer, kind)
                .and_then(|entry| entry.extent)
            else {
                continue;
            };
            let mut bytes = vec![0; extent.len as usize];
            pool.read(extent.offset, &mut bytes)?;
            if let Some((_, base)) = decode_half(&bytes, uuid).filter(|(id, _)| *id == log_id) {
                let mut header = [0; HALF_HEADER_BYTES];
                pool.read(extent.offset, &mut header)?;
                if header[..] != bytes[..HALF_HEADER_BYTES] {
                    // A writer beside a read-only open reused the half, so some of these bytes
                    // belong to a later part.
                    return Err(Error::corruption(
                        "the pool's log buffer",
                        extent.offset.get(),
                        "a half that stays what it is",
                    ));
                }
                bytes.drain(..HALF_HEADER_BYTES);
                overlay.push((base, bytes));
            }
        }
        overlay.sort();
        Ok(overlay)
    }

    /// The logs that the halves in `pool` or its root name, even if their files no longer exist.
    ///
    /// # Errors
    /// The error of reading the pool.
    pub(crate) fn logs_named(pool: &Pool, uuid: &[u8; 16]) -> Result<Vec<FileId>> {
        let is_log = |entry: &&RootEntry| entry.owner == Owner::Log;
        let mut named: Vec<FileId> = pool
            .root()
            .entries
            .iter()
            .filter(is_log)
            .map(|entry| FileId(entry.word))
            .collect();
        for extent in (0..2).filter_map(|kind| pool.root().find(Owner::LogBuffer, kind)?.extent) {
            let mut header = vec![0; HALF_HEADER_BYTES];
            pool.read(extent.offset, &mut header)?;
            named.extend(decode_half(&header, uuid).map(|(log_id, _)| log_id));
        }
        Ok(named)
    }

    /// Writes the full half to its file, if there is one. True if there was.
    ///
    /// # Errors
    /// The error of a write or sync; the half stays full.
    pub(crate) fn drain_full(&self) -> Result<bool> {
        let mut slot = self.full.lock();
        let Some(full) = &*slot else { return Ok(false) };
        let mut bytes = vec![0; full.len];
        self.pool.read(self.data(full.half, 0)?, &mut bytes)?;
        full.file.write(full.base, &[&bytes])?;
        full.counters.wrote(Cause::Log, bytes.len());
        full.file.sync(&sites::LOG_DRAIN_SYNC)?;
        *slot = None;
        Ok(true)
    }

    /// True if a half waits to be written to its file. False if it is being drained.
    pub(crate) fn has_full(&self) -> bool {
        self.full.try_lock().is_some_and(|full| full.is_some())
    }

    fn data(&self, half: usize, at: usize) -> Result<PmOffset> {
        let within = (HALF_HEADER_BYTES + at) as u64;
        self.halves[half]
            .at(within)
            .ok_or_else(|| Error::invalid("a place outside the log buffer"))
    }
}

fn encode_header(log_id: FileId, base: u64, uuid: &[u8; 16]) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(&HALF_MAGIC.to_le_bytes());
    out[8..16].copy_from_slice(&log_id.0.to_le_bytes());
    out[16..24].copy_from_slice(&base.to_le_bytes());
    out[24..40].copy_from_slice(uuid);
    let crc = crc32c(&out[..60]);
    out[60..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The log and the base in a half's header.
fn decode_half(bytes: &[u8], uuid: &[u8; 16]) -> Option<(FileId, u64)> {
    let (first, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    decode_header(first, uuid).or_else(|| decode_header(rest.get(..HEADER_BYTES)?, uuid))
}

fn decode_header(bytes: &[u8], uuid: &[u8; 16]) -> Option<(FileId, u64)> {
    let mut reader = firn_base::coding::Reader::new(bytes);
    let (_, log_id, base) = (reader.u64()?, FileId(reader.u64()?), reader.u64()?);
    let is_ours = || *bytes == encode_header(log_id, base, uuid);
    (!sites::LOG_HALF_CHECK.is_on() || is_ours()).then_some((log_id, base))
}

/// The destination of a log writer's bytes.
pub(super) struct Sink {
    file: Arc<dyn File>,
    log_id: FileId,
    counters: Arc<IoCounters>,
    pm: Option<PmStream>,
    /// The extent for the log's first bytes.
    placed: Option<Extent>,
}

/// The stream through the halves.
struct PmStream {
    buffer: PmLogBuffer,
    active: usize,
    /// The log's offset at the active half's first byte.
    base: u64,
    /// Bytes of the active half that hold frames, or the beginning of one.
    used: usize,
}

impl Sink {
    pub(super) fn new(file: Arc<dyn File>, log_id: FileId, counters: Arc<IoCounters>) -> Sink {
        Sink {
            file,
            log_id,
            counters,
            pm: None,
            placed: None,
        }
    }

    /// Sends the log through persistent memory: bytes that fit into an extent from `logs` stay
    /// there, and the rest is streamed through `buffer`. Earlier contents of `buffer` are lost.
    pub(super) fn go_through(
        &mut self,
        buffer: PmLogBuffer,
        logs: Option<&PlacedLogs>,
    ) -> Result<()> {
        self.file.sync(&sites::LOG_BUFFERED_HEADER_SYNC)?;
        let placed = logs.map_or(Ok(None), |logs| logs.begin(self.log_id))?;
        let start = start(placed);
        let mut stream = PmStream {
            buffer,
            active: 0,
            base: start,
            used: 0,
        };
        stream.begin_half(self.log_id, start)?;
        self.pm = Some(stream);
        self.placed = placed;
        Ok(())
    }

    /// True if written bytes are durable without a sync.
    pub(super) fn durable_at_write(&self) -> bool {
        self.pm.is_some()
    }

    pub(super) fn write(&mut self, position: u64, parts: &[&[u8]]) -> Result<()> {
        match (&mut self.pm, self.placed) {
            (Some(stream), Some(placed)) if position < start(Some(placed)) => {
                let (here, rest) = split(parts, start(Some(placed)) - position);
                let _durable = stream.buffer.pool.write_durable(
                    &sites::LOG_PLACED_FENCE,
                    place(placed, position)?,
                    &here,
                )?;
                if rest.is_empty() {
                    return Ok(());
                }
                stream.write(
                    &self.file,
                    &self.counters,
                    self.log_id,
                    start(Some(placed)),
                    &rest,
                )
            }
            (Some(stream), _) => {
                stream.write(&self.file, &self.counters, self.log_id, position, parts)
            }
            (None, _) => {
                self.file.write(position, parts)?;
                self.counters
                    .wrote(Cause::Log, parts.iter().map(|part| part.len()).sum());
                Ok(())
            }
        }
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        if self.pm.is_some() {
            Ok(())
        } else {
            self.file.sync(&sites::LOG_SYNC)
        }
    }

    /// Writes the contents of the halves to the file, durably.
    pub(super) fn drain(&mut self) -> Result<()> {
        let Some(stream) = &mut self.pm else {
            return Ok(());
        };
        stream.retire(&self.file, &self.counters)?;
        stream.buffer.drain_full()?;
        Ok(())
    }

    /// Continues with another log. Bytes that fit into an extent from `logs` stay there. Returns
    /// the old log's file.
    pub(super) fn rotate(
        &mut self,
        file: Arc<dyn File>,
        log_id: FileId,
        logs: Option<&PlacedLogs>,
    ) -> Result<Arc<dyn File>> {
        if let Some(stream) = &mut self.pm {
            file.sync(&sites::LOG_NEXT_HEADER_SYNC)?;
            stream.retire(&self.file, &self.counters)?;
            // This is the last step that may fail, because a retry writes the file's header again,
            // and a crash in between must not find an extent of a log without a header.
            let placed = logs.map_or(Ok(None), |logs| logs.begin(log_id))?;
            stream.active = 1 - stream.active;
            stream.begin_half(log_id, start(placed))?;
            self.placed = placed;
        }
        self.log_id = log_id;
        Ok(std::mem::replace(&mut self.file, file))
    }
}

/// The offset in a log at which bytes no longer stay in `placed`.
fn start(placed: Option<Extent>) -> u64 {
    placed.map_or(FILE_HEADER_BYTES as u64, end)
}

/// Splits `parts` after `len` bytes.
fn split<'a>(parts: &[&'a [u8]], mut len: u64) -> (Vec<&'a [u8]>, Vec<&'a [u8]>) {
    let (mut here, mut rest) = (Vec::with_capacity(parts.len()), Vec::new());
    for part in parts {
        let (now, later) = part.split_at(len.min(part.len() as u64) as usize);
        len -= now.len() as u64;
        here.push(now);
        if !later.is_empty() {
            rest.push(later);
        }
    }
    (here, rest)
}

impl PmStream {
    /// Makes the active half hold log `log_id` from `base` on. REQUIRES: its contents are in its
    /// file.
    fn begin_half(&mut self, log_id: FileId, base: u64) -> Result<()> {
        let header = encode_header(log_id, base, &self.buffer.uuid);
        let _durable = self.buffer.pool.write_durable(
            &sites::LOG_HALF_FENCE,
            self.buffer.halves[self.active].offset,
            &[&header, &header],
        )?;
        self.base = base;
        self.used = 0;
        Ok(())
    }

    /// Makes `half` hold no log. REQUIRES: its contents are in its file.
    fn give_up_half(&self, half: usize) -> Result<()> {
        let nothing = [0; HALF_HEADER_BYTES];
        let place = self.buffer.halves[half].offset;
        let _durable =
            self.buffer
                .pool
                .write_durable(&sites::LOG_HALF_FENCE, place, &[&nothing])?;
        Ok(())
    }

    /// Hands over the active half to be written to `file`, after the previous one was written.
    fn retire(&mut self, file: &Arc<dyn File>, counters: &Arc<IoCounters>) -> Result<()> {
        // Usually a background thread has done this already.
        self.buffer.drain_full()?;
        if self.used > 0 {
            let full = Full {
                file: file.clone(),
                counters: counters.clone(),
                half: self.active,
                base: self.base,
                len: self.used,
            };
            *self.buffer.full.lock() = Some(full);
        }
        Ok(())
    }

    fn write(
        &mut self,
        file: &Arc<dyn File>,
        counters: &Arc<IoCounters>,
        log_id: FileId,
        position: u64,
        parts: &[&[u8]],
    ) -> Result<()> {
        // A frame that failed half way may have moved on to another half. Its place is then in the
        // file.
        if position < self.base {
            self.retire(file, counters)?;
            self.buffer.drain_full()?;
            // The other half's part of the failed frame would otherwise overlay the new bytes.
            self.give_up_half(1 - self.active)?;
            self.begin_half(log_id, position)?;
        }
        self.used = (position - self.base) as usize;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if self.used + total <= self.buffer.capacity(self.active) {
            let place = self.buffer.data(self.active, self.used)?;
            let _durable = self
                .buffer
                .pool
                .write_durable(&sites::LOG_FRAME_FENCE, place, parts)?;
            self.used += total;
            return Ok(());
        }
        for part in parts {
            self.write_across(file, counters, log_id, part)?;
        }
        Ok(())
    }

    fn write_across(
        &mut self,
        file: &Arc<dyn File>,
        counters: &Arc<IoCounters>,
        log_id: FileId,
        mut part: &[u8],
    ) -> Result<()> {
        while !part.is_empty() {
            let room = self.buffer.capacity(self.active) - self.used;
            if room == 0 {
                let next = self.base + self.used as u64;
                self.retire(file, counters)?;
                self.active = 1 - self.active;
                self.begin_half(log_id, next)?;
                continue;
            }
            let (now, rest) = part.split_at(room.min(part.len()));
            let place = self.buffer.data(self.active, self.used)?;
            let _durable =
                self.buffer
                    .pool
                    .write_durable(&sites::LOG_FRAME_PART_FENCE, place, &[now])?;
            self.used += now.len();
            part = rest;
        }
        Ok(())
    }
}
