//! Reads a log, frame by frame, to its end, and distinguishes a torn end from damage.
//!
//! A log ends at the first place without a whole frame. That is its torn end, unless
//! - a later whole frame header says that the log had been synced past this place, or
//! - the manifest says that the log was synced past it.
//!
//! In both cases acknowledged data is damaged, which is `Corruption` (`docs/crash_model.md`).

use super::ValueAddress;
use super::frames::Frames;
use super::layout::{
    FILE_HEADER_BYTES, FRAME_HEADER_BYTES_MAX, FrameHeader, LogHeader, VALUE_HEADER_BYTES,
    check_value,
};
use crate::sites;
use firn_base::checksum::{crc32c, matches};
use firn_base::coding::Reader;
use firn_base::count::{Cause, IoCounters};
use firn_base::key::Kind;
use firn_base::{Error, FileId, Result, SeqNo, Tag};
use firn_fs::{File, IoBuf, give_back_if_large};
use firn_table::pm_btree::HOT_LOG;
use std::sync::Arc;

/// Bytes read at once while searching for frames after a damaged place.
const SEARCH_BYTES: usize = 1 << 20;

/// The most bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// The bytes of a log: its file, overlaid with the contents of a persistent-memory buffer.
pub(crate) struct LogSource {
    pub(crate) file: Arc<dyn File>,
    file_len: u64,
    /// (offset in the log, bytes), in ascending order. Each begins at or before the end of the
    /// bytes so far.
    overlay: Vec<(u64, Vec<u8>)>,
    pub(crate) counters: Arc<IoCounters>,
}

impl LogSource {
    /// A log that is in its file alone.
    ///
    /// # Errors
    /// The error of reading the file's length.
    pub(crate) fn new(file: Arc<dyn File>, counters: Arc<IoCounters>) -> Result<LogSource> {
        Ok(LogSource {
            file_len: file.len()?,
            file,
            overlay: Vec::new(),
            counters,
        })
    }

    /// Overlays the file with the contents of a persistent-memory buffer. Bytes after the `end` of
    /// a sealed log are ignored, because a half may have begun there to which nothing was written.
    ///
    /// # Errors
    /// `Corruption` if an overlay begins after the end of the bytes so far. A half begins only
    /// where everything before it is in the file or in the other half.
    pub(crate) fn lay_over(
        &mut self,
        overlay: Vec<(u64, Vec<u8>)>,
        end: Option<u64>,
    ) -> Result<()> {
        self.file_len = self.file_len.min(end.unwrap_or(u64::MAX));
        for (at, mut bytes) in overlay
            .into_iter()
            .filter(|(at, _)| end.is_none_or(|end| *at < end))
        {
            let so_far = self.len();
            if at > so_far {
                let expected = format!("the bytes up to {at}, where the log's buffer goes on");
                return Err(Error::corruption(
                    self.file.path().display(),
                    so_far,
                    expected,
                ));
            }
            let room = end.map_or(u64::MAX, |end| end - at);
            bytes.truncate(room.min(bytes.len() as u64) as usize);
            self.overlay.push((at, bytes));
        }
        Ok(())
    }

    /// The offset at which the bytes end.
    pub(crate) fn len(&self) -> u64 {
        self.overlay
            .iter()
            .map(|(at, bytes)| at + bytes.len() as u64)
            .fold(self.file_len, u64::max)
    }

    /// Reads up to `len` bytes at `offset` into `out`.
    fn read(&self, offset: u64, len: usize, buf: &mut IoBuf, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        if offset < self.file_len {
            let from_file = len.min((self.file_len - offset) as usize);
            self.counters.read(Cause::Recovery, from_file);
            out.reserve_exact(from_file);
            // In pieces, so that a frame of a large value is not in memory twice.
            let mut left = from_file;
            while left > 0 {
                self.file
                    .read(offset + out.len() as u64, left.min(READ_BYTES), buf)?;
                out.extend_from_slice(buf.bytes());
                left = if buf.len() < left.min(READ_BYTES) {
                    0
                } else {
                    left - buf.len()
                };
            }
        }
        for (at, bytes) in &self.overlay {
            let (from, to) = (
                (*at).max(offset),
                (at + bytes.len() as u64).min(offset + len as u64),
            );
            if from < to {
                let place = (from - offset) as usize;
                let part = &bytes[(from - at) as usize..(to - at) as usize];
                if out.len() < place + part.len() {
                    out.resize(place + part.len(), 0);
                }
                out[place..place + part.len()].copy_from_slice(part);
            }
        }
        Ok(())
    }
}

/// The end of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// The offset at which the last whole frame ends.
    pub(crate) at: u64,
    /// True if bytes follow it.
    pub(crate) torn: bool,
}

/// An entry of the log. The value of an entry of kind pointer is in the hot buffer, at `address`.
pub(crate) struct Replayed<'a> {
    pub(crate) tag: Tag,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) address: ValueAddress,
}

/// A replay in progress.
pub(crate) struct Replay {
    source: LogSource,
    log_id: FileId,
    /// The layout of its frames; `None` if its header cannot be read.
    frames: Option<Frames>,
    position: u64,
    /// The number of the last entry replayed.
    last_seqno: SeqNo,
    /// The largest `synced through` seen.
    synced_through: u64,
    /// True if a frame says that the manifest durably named this log.
    named: bool,
    buf: IoBuf,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Drop for Replay {
    fn drop(&mut self) {
        give_back_if_large(&mut self.values);
    }
}

impl Replay {
    /// Begins a replay at the start of log `log_id` of the database `uuid`. A file without a whole
    /// header is an empty log, because nothing was acknowledged in it.
    ///
    /// # Errors
    /// The error of a read.
    pub(crate) fn open(source: LogSource, log_id: FileId, uuid: &[u8; 16]) -> Result<Replay> {
        let mut replay = Replay {
            source,
            log_id,
            frames: None,
            position: 0,
            last_seqno: SeqNo(0),
            synced_through: 0,
            named: false,
            buf: IoBuf::default(),
            keys: Vec::new(),
            values: Vec::new(),
        };
        replay
            .source
            .read(0, FILE_HEADER_BYTES, &mut replay.buf, &mut replay.keys)?;
        let header = LogHeader::decode(&replay.keys, log_id);
        replay.frames = header.as_ref().map(Frames::after);
        if !sites::LOG_HEADER_CHECK.is_on() || header.is_some_and(|header| header.uuid == *uuid) {
            replay.position = FILE_HEADER_BYTES as u64;
        }
        Ok(replay)
    }

    /// Like [`Replay::open`], for a database whose uuid is not known. Any log header is accepted.
    /// Without one, the first frame tells the layout of all.
    ///
    /// # Errors
    /// The error of a read.
    pub(crate) fn open_any(source: LogSource, log_id: FileId, uuid: &[u8; 16]) -> Result<Replay> {
        let mut replay = Replay::open(source, log_id, uuid)?;
        // Frames have checksums of their own. The header identifies the owner and the version.
        replay.position = FILE_HEADER_BYTES as u64;
        if replay.frames.is_none() {
            replay.read_header_bytes()?;
            let is_first = |frames: &Frames| {
                frames
                    .header(&replay.keys, log_id, replay.position)
                    .is_some()
            };
            replay.frames = Frames::ALL.into_iter().find(is_first);
        }
        Ok(replay)
    }

    /// The layout of the frames to be replayed.
    fn layout(&self) -> Frames {
        self.frames.unwrap_or(Frames::Current)
    }

    fn corruption(&self, expected: &str) -> Error {
        let place = self.source.file.path().display().to_string();
        Error::corruption(place, self.position, format_args!("expected {expected}"))
    }

    /// True if a frame so far says that the manifest durably named this log.
    pub(crate) fn named(&self) -> bool {
        self.named
    }

    /// The largest position that a frame declares as synced.
    pub(crate) fn synced_through(&self) -> u64 {
        self.synced_through
    }

    /// Passes each entry of the next frame to `visit`. False at the end of the log.
    ///
    /// # Errors
    /// The error of a read, and of `visit`.
    pub(crate) fn next(
        &mut self,
        mut visit: impl FnMut(Replayed<'_>) -> Result<()>,
    ) -> Result<bool> {
        let Some((header, header_bytes)) = self.read_frame()? else {
            return Ok(false);
        };
        let frames = self.layout();
        let values_at = self.position + header_bytes as u64 + u64::from(header.key_bytes);
        let mut reader = Reader::new(&self.keys);
        let mut at = 0usize;
        for i in 0..u64::from(header.entries) {
            let record = frames
                .key_record(&mut reader)
                .ok_or_else(|| self.corruption("a known record in a whole frame"))?;
            let kind = Kind::from_byte(record.kind)
                .ok_or_else(|| self.corruption("a known kind in a whole frame"))?;
            let (tag, key, len) = (
                Tag::new(SeqNo(header.first_seqno.0 + i), kind),
                record.key,
                record.value_len,
            );
            if let Some(offset) = record.slot {
                visit(Replayed {
                    tag,
                    key,
                    value: &[],
                    address: ValueAddress {
                        log_id: HOT_LOG,
                        offset,
                        len,
                    },
                })?;
                continue;
            }
            let address = ValueAddress {
                log_id: self.log_id,
                offset: values_at + at as u64,
                len,
            };
            let value_at = at + VALUE_HEADER_BYTES;
            at = value_at + len as usize;
            visit(Replayed {
                tag,
                key,
                value: &self.values[value_at..at],
                address,
            })?;
        }
        self.position += header.frame_bytes(header_bytes);
        if header.entries > 0 {
            self.last_seqno = SeqNo(header.first_seqno.0 + u64::from(header.entries) - 1);
        }
        self.synced_through = self.synced_through.max(header.synced_through);
        self.named |= header.named;
        Ok(true)
    }

    /// Reads the bytes at `position` that hold a frame's header, if there is one, into `keys`.
    fn read_header_bytes(&mut self) -> Result<()> {
        self.source.read(
            self.position,
            FRAME_HEADER_BYTES_MAX,
            &mut self.buf,
            &mut self.keys,
        )
    }

    /// Reads and checks the frame at `position` into `keys` and `values`. Returns its header and
    /// the header's length; `None` if there is no whole frame.
    fn read_frame(&mut self) -> Result<Option<(FrameHeader, usize)>> {
        if self.position == 0 {
            return Ok(None);
        }
        self.read_header_bytes()?;
        let Some((header, header_bytes)) =
            self.layout().header(&self.keys, self.log_id, self.position)
        else {
            return Ok(None);
        };
        let end = self.position.checked_add(header.frame_bytes(header_bytes));
        if end.is_none_or(|end| end > self.source.len()) || !seqnos_fit(&header) {
            return Ok(None);
        }
        let keys_at = self.position + header_bytes as u64;
        self.source.read(
            keys_at,
            header.key_bytes as usize,
            &mut self.buf,
            &mut self.keys,
        )?;
        let values_at = keys_at + u64::from(header.key_bytes);
        self.source.read(
            values_at,
            header.value_bytes as usize,
            &mut self.buf,
            &mut self.values,
        )?;
        Ok(self.is_whole(&header).then_some((header, header_bytes)))
    }

    /// True if `keys` and `values` match `header`.
    fn is_whole(&self, header: &FrameHeader) -> bool {
        let keys_match = || {
            matches(&sites::LOG_KEYS_CHECK, header.key_crc, || {
                crc32c(&self.keys)
            })
        };
        if self.keys.len() != header.key_bytes as usize || !keys_match() {
            return false;
        }
        let frames = self.layout();
        let mut reader = Reader::new(&self.keys);
        let mut values = Reader::new(&self.values);
        for i in 0..u64::from(header.entries) {
            let Some(record) = frames.key_record(&mut reader) else {
                return false;
            };
            if record.slot.is_some() {
                continue;
            }
            let framed = values.take(VALUE_HEADER_BYTES + record.value_len as usize);
            let seqno = SeqNo(header.first_seqno.0 + i);
            if framed.is_none_or(|framed| check_value(framed, record.value_len, seqno).is_none()) {
                return false;
            }
        }
        reader.is_empty() && values.is_empty()
    }

    /// The overlay of the file: (offset, bytes).
    pub(crate) fn overlay(&self) -> &[(u64, Vec<u8>)] {
        &self.source.overlay
    }

    /// The end of the log, after `next` returned false. An error if the log did not end there when
    /// it was written.
    ///
    /// # Errors
    /// `Corruption` if a frame after the end, or `known_synced` (from the manifest), says that more
    /// had been synced.
    pub(crate) fn end(&mut self, known_synced: u64) -> Result<End> {
        let torn = self.source.len() > self.position;
        let mut synced = self.synced_through.max(known_synced);
        if torn {
            synced = synced.max(self.synced_behind()?);
        }
        if synced > self.position {
            let expected = format!("a frame; the log had been synced through byte {synced}");
            return Err(self.corruption(&expected));
        }
        Ok(End {
            at: self.position,
            torn,
        })
    }

    /// The largest `synced through` of the frame headers after `position`.
    ///
    /// Other bytes are practically never taken for a header. Random ones have the magic of version
    /// 4 with probability 2^-16, and then a matching checksum with 2^-32, so there is such a place
    /// in 1 GiB with 2^-18. It has an effect only if its numbers are plausible, too, with a `synced
    /// through` between `position` and its own offset. Headers from another log or offset, which a
    /// half or a reused block may hold, fail by their salt.
    fn synced_behind(&mut self) -> Result<u64> {
        let mut synced = 0;
        let mut at = self.position;
        let layouts = match &self.frames {
            Some(frames) => std::slice::from_ref(frames),
            None => &Frames::ALL,
        };
        while at < self.source.len() {
            self.source
                .read(at, SEARCH_BYTES, &mut self.buf, &mut self.keys)?;
            for i in 0..self.keys.len() {
                let offset = at + i as u64;
                let found = layouts
                    .iter()
                    .find_map(|frames| frames.header(&self.keys[i..], self.log_id, offset))
                    .filter(|(header, len)| self.is_plausible(header, *len, offset));
                if let Some((header, _)) = found {
                    synced = synced.max(header.synced_through);
                }
            }
            if self.keys.len() < SEARCH_BYTES {
                break;
            }
            // Overlap, so that a header across the border is seen whole.
            at += (SEARCH_BYTES - FRAME_HEADER_BYTES_MAX) as u64;
        }
        Ok(synced)
    }

    /// True if `header`, of `header_bytes` and at `offset`, may be that of a frame written after
    /// those replayed so far.
    fn is_plausible(&self, header: &FrameHeader, header_bytes: usize, offset: u64) -> bool {
        header.synced_through <= offset
            && header.first_seqno >= self.last_seqno
            && seqnos_fit(header)
            && offset
                .checked_add(header.frame_bytes(header_bytes))
                .is_some()
    }
}

fn seqnos_fit(header: &FrameHeader) -> bool {
    header
        .first_seqno
        .0
        .checked_add(u64::from(header.entries))
        .is_some_and(|end| end <= SeqNo::MAX.0)
}
