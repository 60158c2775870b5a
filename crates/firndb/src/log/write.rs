//! Writes the log. The commit queue ensures that there is one writer at a time.
//!
//! 1. A frame is written at `position`, which moves only after a successful write. The next frame
//!    overwrites a failed one, and the leftovers after it do not match its checksums.
//! 2. After a failed sync nothing is known about the pages, so the log is poisoned: nothing is
//!    acknowledged any more.
//! 3. A log's end is in the manifest before a later log acknowledges anything (the caller records
//!    [`LogEnd`]).
//! 4. A sync of this log first syncs the unsynced sealed logs before it, so acknowledged data has
//!    no hole before it.
//!
//! A crash leaves any number of whole frames and one that is cut. Replay detects a cut frame by its
//! checksums.

use super::hot::{HotPlace, HotWriter};
use super::layout::{
    FILE_HEADER_BYTES, FRAME_HEADER_BYTES_MAX, FrameHeader, KeyRecord, LogHeader,
    VALUE_HEADER_BYTES, VERSION, ValueAddress, put_key_record,
};
use super::placed::PlacedLogs;
use super::sealed::SealedLogs;
use super::sink::{PmLogBuffer, Sink};
use crate::files::{FileName, Files};
use crate::memtable::{LogEntry, Reservation};
use crate::sites;
use firn_base::checksum::crc32c;
use firn_base::count::{Cause, IoCounters};
use firn_base::key::Kind;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_fs::File;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

/// The end of a log, for the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) log_id: FileId,
    pub(crate) end: u64,
    /// The position up to which it was synced when it was sealed.
    pub(crate) synced_through: u64,
}

/// The locations of a frame's values, entry by entry.
#[derive(Debug)]
struct LogMark {
    log_id: FileId,
    /// The offset of the next value's header in the log. Values are stored one after the other.
    next_at: u64,
    entry: u32,
    hot: Peekable<IntoIter<HotPlace>>,
}

impl LogMark {
    fn new(log_id: FileId, values_at: u64, hot: Vec<HotPlace>) -> LogMark {
        LogMark {
            log_id,
            next_at: values_at,
            entry: 0,
            hot: hot.into_iter().peekable(),
        }
    }

    /// The location of the next entry's value, which has `len` bytes.
    fn next(&mut self, len: u32) -> ValueAddress {
        let (log_id, entry, offset) = (self.log_id, self.entry, self.next_at);
        self.entry += 1;
        if let Some(place) = self.hot.next_if(|place| place.entry == entry) {
            return place.address(len);
        }
        self.next_at += VALUE_HEADER_BYTES as u64 + u64::from(len);
        ValueAddress {
            log_id,
            offset,
            len,
        }
    }
}

/// The log that is currently written.
pub(crate) struct LogWriter {
    files: Arc<Files>,
    counters: Arc<IoCounters>,
    log_id: FileId,
    sink: Sink,
    hot: Option<HotWriter>,
    placed: Option<Arc<PlacedLogs>>,
    /// True if entries must know where their values are.
    notes_addresses: bool,
    position: u64,
    synced_through: u64,
    /// True if a frame of this log says that the manifest durably names it.
    says_named: bool,
    sealed: Arc<SealedLogs>,
    poison: Option<Error>,
    /// Files of future logs that could not be used yet: one for a writer, and one for a flush.
    begun: BTreeMap<FileId, Arc<dyn File>>,
    /// Header and key section of the frame under construction, after bytes that are not used.
    head: Vec<u8>,
}

/// A frame's place, and the fields of its header that do not depend on its entries.
pub(super) struct Place {
    pub(super) log_id: FileId,
    pub(super) offset: u64,
    pub(super) first_seqno: SeqNo,
    pub(super) synced_through: u64,
    pub(super) named: bool,
}

/// A frame's header and key section, encoded.
pub(super) struct EncodedHead {
    /// The offset in the encoded bytes at which the header begins.
    pub(super) from: usize,
    /// The bytes of the whole frame.
    pub(super) frame_bytes: u64,
}

/// Encodes into `head` the header and key section of a frame with the entries of `group`. Those in
/// `hot` have their values in the hot buffer. The values that follow the head are passed to
/// `each_value`, in order.
///
/// The header depends on the key section and lies before it, so there is room for the longest one,
/// and a shorter one ends where the key section begins.
pub(super) fn encode_head<'a>(
    head: &mut Vec<u8>,
    group: &'a [Reservation],
    hot: &[HotPlace],
    place: &Place,
    mut each_value: impl FnMut(&'a [u8]),
) -> Result<EncodedHead> {
    head.clear();
    head.resize(FRAME_HEADER_BYTES_MAX, 0);
    let mut entries = 0;
    let mut value_bytes = 0;
    let mut hot = hot.iter().peekable();
    for LogEntry {
        kind,
        key,
        framed_value,
    } in group.iter().flat_map(Reservation::entries)
    {
        let value_len = (framed_value.len() - VALUE_HEADER_BYTES) as u32;
        match hot.next_if(|place| place.entry == entries) {
            Some(place) => {
                let slot = Some(place.address(value_len).offset);
                put_key_record(
                    head,
                    &KeyRecord {
                        kind: Kind::Pointer as u8,
                        key,
                        value_len,
                        slot,
                    },
                );
            }
            None => {
                put_key_record(
                    head,
                    &KeyRecord {
                        kind,
                        key,
                        value_len,
                        slot: None,
                    },
                );
                value_bytes += framed_value.len() as u64;
                each_value(framed_value);
            }
        }
        entries += 1;
    }
    let keys = &head[FRAME_HEADER_BYTES_MAX..];
    let header = FrameHeader {
        key_bytes: u32::try_from(keys.len())
            .map_err(|_| Error::invalid("a commit group's keys exceed 4 GiB"))?,
        entries,
        named: place.named,
        value_bytes,
        first_seqno: place.first_seqno,
        synced_through: place.synced_through,
        key_crc: crc32c(keys),
    };
    let end = head.len();
    header.put(head, place.log_id, place.offset);
    let header_bytes = head.len() - end;
    let from = FRAME_HEADER_BYTES_MAX - header_bytes;
    head.copy_within(end.., from);
    head.truncate(end);
    Ok(EncodedHead {
        from,
        frame_bytes: header.frame_bytes(header_bytes),
    })
}

impl LogWriter {
    /// Creates log `log_id`. Its name is durable once a manifest record that names it is.
    ///
    /// # Errors
    /// The error of creating the file.
    pub(crate) fn create(
        files: Arc<Files>,
        counters: Arc<IoCounters>,
        log_id: FileId,
        sealed: Arc<SealedLogs>,
    ) -> Result<LogWriter> {
        let file = files.create(FileName::Log(log_id))?;
        write_header(&*file, &files, &counters, log_id, None)?;
        let mut writer = LogWriter {
            sink: Sink::new(file, log_id, counters.clone()),
            files,
            counters,
            log_id,
            hot: None,
            placed: None,
            notes_addresses: false,
            position: FILE_HEADER_BYTES as u64,
            synced_through: 0,
            says_named: false,
            sealed,
            poison: None,
            begun: BTreeMap::new(),
            head: Vec::new(),
        };
        writer.head.reserve(4 << 10);
        Ok(writer)
    }

    /// Sends the log through `buffer` from now on, and into extents of its own if `placed` says so.
    ///
    /// REQUIRES: nothing was appended yet, and no log that the durable manifest names needs the
    /// contents of the buffer.
    ///
    /// # Errors
    /// The error of writing to the pool.
    pub(crate) fn go_through(
        &mut self,
        buffer: PmLogBuffer,
        placed: Option<Arc<PlacedLogs>>,
    ) -> Result<()> {
        debug_assert_eq!(self.position, FILE_HEADER_BYTES as u64);
        self.placed = placed;
        self.sink.go_through(buffer, self.placed.as_deref())
    }

    /// Sends values of hot keys through `hot` from now on. REQUIRES: appended entries are durable
    /// at once.
    pub(crate) fn go_through_hot(&mut self, hot: HotWriter) {
        debug_assert!(self.durable_at_write());
        self.hot = Some(hot);
    }

    /// Tells each entry from now on where its value is.
    pub(crate) fn note_addresses(&mut self) {
        self.notes_addresses = true;
    }

    /// True if appended entries are durable at once, whatever durability was requested, because the
    /// log goes through persistent memory.
    pub(crate) fn durable_at_write(&self) -> bool {
        self.sink.durable_at_write()
    }

    /// The log's id.
    pub(crate) fn log_id(&self) -> FileId {
        self.log_id
    }

    /// Appends one frame with the entries of `group`, numbered from `first_seqno` on. With `power`,
    /// the log's contents are durable when this returns. Without it, they have reached the
    /// operating system.
    ///
    /// # Errors
    /// `NoSpace` and `Io`: nothing of the group is acknowledged and the log goes on. `Poisoned`: a
    /// sync failed.
    pub(crate) fn append(
        &mut self,
        group: &[Reservation],
        first_seqno: SeqNo,
        power: bool,
        named: bool,
    ) -> Result<()> {
        self.check_poison()?;
        // If the manifest loses its end, acknowledged data must be distinguishable from
        // unacknowledged data, so a sync without a new entry may still need a frame.
        let must_say =
            power && named && !self.says_named && self.position > FILE_HEADER_BYTES as u64;
        if must_say || group.iter().any(|reservation| reservation.count > 0) {
            let mut mark = self.write_frame(group, first_seqno, named)?;
            if self.notes_addresses {
                for reservation in group {
                    reservation.note_addresses(|len| mark.next(len));
                }
            }
        }
        if power {
            self.sync()?;
        }
        Ok(())
    }

    fn write_frame(
        &mut self,
        group: &[Reservation],
        first_seqno: SeqNo,
        named: bool,
    ) -> Result<LogMark> {
        let mut first = first_seqno;
        for reservation in group {
            reservation.tie_checksums(first);
            first.0 += reservation.count;
        }
        let place = Place {
            log_id: self.log_id,
            offset: self.position,
            first_seqno,
            synced_through: self.synced_through,
            named,
        };
        let hot = match &mut self.hot {
            Some(hot) => hot.place(self.log_id, group, first_seqno)?,
            None => &[],
        };
        let entries: usize = group
            .iter()
            .map(|reservation| reservation.count as usize)
            .sum();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(1 + entries);
        parts.push(&[]);
        let written = match encode_head(&mut self.head, group, hot, &place, |value| {
            parts.push(value)
        }) {
            Ok(encoded) => {
                parts[0] = &self.head[encoded.from..];
                self.sink.write(self.position, &parts).map(|()| encoded)
            }
            Err(error) => Err(error),
        };
        let encoded = written
            .inspect_err(|_| self.hot.iter_mut().for_each(|hot| hot.give_up(self.log_id)))?;
        let hot = self
            .hot
            .as_mut()
            .map(|hot| hot.wrote(self.log_id, group, first_seqno));
        let values_at = self.position + (self.head.len() - encoded.from) as u64;
        self.position += encoded.frame_bytes;
        self.says_named |= named;
        if self.sink.durable_at_write() {
            self.synced_through = self.position;
        }
        Ok(LogMark::new(
            self.log_id,
            values_at,
            hot.unwrap_or_default(),
        ))
    }

    /// Makes everything that was appended durable, in this log and those before it.
    fn sync(&mut self) -> Result<()> {
        if self.synced_through == self.position && self.sealed.is_synced() {
            return Ok(());
        }
        let synced = self
            .sealed
            .sync(|file| file.sync(&sites::LOG_SEALED_SYNC))
            .and_then(|()| self.sink.sync());
        if let Err(error) = synced {
            let message = format!(
                "the log could not be synced ({error}); reads go on, reopen the database to recover"
            );
            self.poison = Some(Error::new(ErrorKind::Poisoned, message));
            return self.check_poison();
        }
        self.synced_through = self.position;
        Ok(())
    }

    fn check_poison(&self) -> Result<()> {
        self.poison.clone().map_or(Ok(()), Err)
    }

    /// Ends this log and starts `log_id`. The caller records the returned end in the manifest
    /// before anything is acknowledged in the new log.
    ///
    /// # Errors
    /// The error of writing or creating a file; the old log then goes on.
    pub(crate) fn rotate(&mut self, log_id: FileId) -> Result<LogEnd> {
        self.check_poison()?;
        let end = self.end();
        let file = self.begin_file(log_id, end)?;
        let old_file = self.sink.rotate(file, log_id, self.placed.as_deref())?;
        self.begun.retain(|&id, _| id > log_id);
        if end.synced_through < end.end {
            self.sealed.add(end.log_id, old_file);
        }
        self.hot.iter_mut().for_each(HotWriter::rotate);
        self.log_id = log_id;
        self.position = FILE_HEADER_BYTES as u64;
        self.synced_through = 0;
        self.says_named = false;
        Ok(end)
    }

    /// The file of log `log_id`, whose header names this log's `end`. If a later step fails before
    /// the file is used, a retry takes the same file and rewrites its header with the new end. A
    /// log without a frame is ignored by any reader.
    fn begin_file(&mut self, log_id: FileId, end: LogEnd) -> Result<Arc<dyn File>> {
        let file = match self.begun.get(&log_id) {
            Some(file) => file.clone(),
            None => self
                .begun
                .entry(log_id)
                .or_insert(self.files.create(FileName::Log(log_id))?)
                .clone(),
        };
        write_header(&*file, &self.files, &self.counters, log_id, Some(end))?;
        Ok(file)
    }

    /// The current end of the log.
    pub(crate) fn end(&self) -> LogEnd {
        LogEnd {
            log_id: self.log_id,
            end: self.position,
            synced_through: self.synced_through,
        }
    }

    /// Writes buffered bytes to the file, syncs it and returns its end, for a clean close.
    ///
    /// # Errors
    /// The error of a write or sync.
    pub(crate) fn close(&mut self) -> Result<LogEnd> {
        self.check_poison()?;
        self.sink.drain()?;
        self.sync()?;
        Ok(self.end())
    }
}

fn write_header(
    file: &dyn File,
    files: &Files,
    counters: &IoCounters,
    log_id: FileId,
    previous: Option<LogEnd>,
) -> Result<()> {
    let header = LogHeader {
        version: VERSION,
        uuid: files.uuid,
        previous,
    }
    .encode(log_id);
    file.write(0, &[&header])?;
    counters.wrote(Cause::Log, header.len());
    Ok(())
}
