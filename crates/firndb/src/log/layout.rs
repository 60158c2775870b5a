//! The bytes of a log file: a header, then frames. One frame holds one commit group, so a group,
//! and with it each of its batches, is there whole or not at all.
//!
//! ```text
//! file     header (64 bytes) | frame ...
//! header   magic: u64 | version: u32 | log id: u64 | database uuid: 16 bytes
//!          | previous log's id: u64 | its end: u64 | how far it was synced: u64 | CRC-32C: u32
//! frame    header (48 bytes) | key section | value section
//! frame header
//!          magic: u32 | CRC-32C of the rest: u32 | key section bytes: u32 | entries: u32
//!          | value section bytes: u64 | first sequence number: u64 | synced through: u64
//!          | CRC-32C of the key section: u32 | CRC-32C of the values' headers: u32
//! key      kind: u8 | keyspace: varint | key: length-prefixed | value length: varint
//!          [| slot: varint]
//! value    checksum: u32 | length: u32 | bytes
//! ```
//! 1. Header checksums are salted with (log id, offset), so a copy of a frame inside a value is not
//!    taken for a frame.
//! 2. The key section gives the length of each value, so replay can skip values without reading the
//!    value section. The value of an entry of kind pointer is in the hot buffer, in the named slot,
//!    and not in the value section.
//! 3. The top bit of `entries` says that the manifest durably named this log when the frame was
//!    written. If no manifest names such a log, the manifest lost records.
//! 4. `synced through` is a position in this file up to which everything had been synced when the
//!    frame was written. Damage before it is damage to acknowledged data; damage after it may be
//!    the torn end of the log.
//! 5. The header gives the end of the previous log, as the manifest does. So a manifest that lost
//!    its end does not take a log with it: the logs that follow the last known one are found
//!    through their headers. A log begun by an open has no previous one (id 0), because the
//!    manifest written by that open names it.
//! 6. A value's checksum is tied to its entry's sequence number (`of_entry`), and so to its key. A
//!    reader that follows a pointer knows the number and cannot mistake another entry's value for
//!    it.

use super::write::LogEnd;
use crate::sites;
use firn_base::checksum::{crc32c, crc32c_salted, matches, of_entry};
use firn_base::coding::{Reader, get_u32, put_bytes, put_varint};
use firn_base::key::{KEY_BYTES_MAX, Kind};
use firn_base::{Error, FileId, Result, SeqNo};
use firn_fs::{File, IoBuf};
pub(crate) use firn_table::pm_btree::ValueAddress;

pub(super) const FILE_MAGIC: u64 = u64::from_le_bytes(*b"FIRNLOG\0");
pub(super) const VERSION: u32 = 3;
/// The version before, which does not know the previous log. Its logs are read, and not written any
/// more.
const VERSION_2: u32 = 2;
pub(crate) const FILE_HEADER_BYTES: usize = 64;
pub(super) const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"FRM1");
pub(super) const FRAME_HEADER_BYTES: usize = 48;
pub(super) const VALUE_HEADER_BYTES: usize = 8;
const NAMED_BIT: u32 = 1 << 31;
/// The only keyspace so far. The number is in every record so that more can be added.
const KEYSPACE: u64 = 0;

const _: () = assert!(8 + 4 + 8 + 16 + 3 * 8 + 4 == FILE_HEADER_BYTES);
const _: () = assert!(4 + 4 + 4 + 4 + 8 + 8 + 8 + 4 + 4 == FRAME_HEADER_BYTES);

/// The first bytes of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) uuid: [u8; 16],
    /// The end of the previous log; `None` for a log begun by an open.
    pub(crate) previous: Option<LogEnd>,
}

impl LogHeader {
    pub(super) fn encode(&self, log_id: FileId) -> Vec<u8> {
        let previous = self.previous.unwrap_or(LogEnd {
            log_id: FileId(0),
            end: 0,
            synced_through: 0,
        });
        let mut out = Vec::with_capacity(FILE_HEADER_BYTES);
        out.extend_from_slice(&FILE_MAGIC.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&log_id.0.to_le_bytes());
        out.extend_from_slice(&self.uuid);
        for number in [previous.log_id.0, previous.end, previous.synced_through] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header at the start of `bytes`, if it belongs to log `log_id`.
    pub(crate) fn decode(bytes: &[u8], log_id: FileId) -> Option<LogHeader> {
        let bytes = bytes.get(..FILE_HEADER_BYTES)?;
        if get_u32(bytes, 8) == Some(VERSION_2) {
            return LogHeader::decode_2(bytes, log_id);
        }
        let mut reader = Reader::new(bytes.get(20..)?);
        let uuid = reader.take(16)?.try_into().ok()?;
        let previous = LogEnd {
            log_id: FileId(reader.u64()?),
            end: reader.u64()?,
            synced_through: reader.u64()?,
        };
        let header = LogHeader {
            uuid,
            previous: Some(previous).filter(|previous| previous.log_id > FileId(0)),
        };
        (header.encode(log_id) == bytes).then_some(header)
    }

    /// Decodes a header of version 2:
    ///
    /// ```text
    /// magic: u64 | version: u32 | 0: u32 | log id: u64 | database uuid: 16 bytes | 0: 20 bytes
    /// | CRC-32C: u32
    /// ```
    fn decode_2(bytes: &[u8], log_id: FileId) -> Option<LogHeader> {
        const CRC_AT: usize = FILE_HEADER_BYTES - 4;
        let uuid: [u8; 16] = bytes.get(24..40)?.try_into().ok()?;
        let mut expected = [0; CRC_AT];
        expected[..8].copy_from_slice(&FILE_MAGIC.to_le_bytes());
        expected[8..12].copy_from_slice(&VERSION_2.to_le_bytes());
        expected[16..24].copy_from_slice(&log_id.0.to_le_bytes());
        expected[24..40].copy_from_slice(&uuid);
        let (is_same, crc) = (bytes[..CRC_AT] == expected, get_u32(bytes, CRC_AT)?);
        let is_whole = matches(&sites::LOG_HEADER_CHECK, crc, || crc32c(&expected));
        (is_same && is_whole).then_some(LogHeader {
            uuid,
            previous: None,
        })
    }
}

/// True if `bytes` begin with the header of log `log_id` of this database.
pub(super) fn is_file_header(bytes: &[u8], log_id: FileId, uuid: &[u8; 16]) -> bool {
    !sites::LOG_HEADER_CHECK.is_on()
        || LogHeader::decode(bytes, log_id).is_some_and(|header| header.uuid == *uuid)
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) key_bytes: u32,
    pub(super) entries: u32,
    /// True if the manifest durably named this log.
    pub(super) named: bool,
    pub(super) value_bytes: u64,
    pub(super) first_seqno: SeqNo,
    pub(super) synced_through: u64,
    pub(super) key_crc: u32,
    pub(super) value_headers_crc: u32,
}

impl FrameHeader {
    pub(super) fn encode(&self, log_id: FileId, offset: u64) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&self.key_bytes.to_le_bytes());
        let named = if self.named { NAMED_BIT } else { 0 };
        out[12..16].copy_from_slice(&(self.entries | named).to_le_bytes());
        out[16..24].copy_from_slice(&self.value_bytes.to_le_bytes());
        out[24..32].copy_from_slice(&self.first_seqno.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.synced_through.to_le_bytes());
        out[40..44].copy_from_slice(&self.key_crc.to_le_bytes());
        out[44..48].copy_from_slice(&self.value_headers_crc.to_le_bytes());
        let crc = crc32c_salted(log_id.0, offset, &[&out[8..]]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header in `bytes`, read at `offset` of log `log_id`; `None` if it is not a
    /// header written there.
    pub(super) fn decode(bytes: &[u8], log_id: FileId, offset: u64) -> Option<FrameHeader> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        let crc = || crc32c_salted(log_id.0, offset, &[&bytes[8..]]);
        if get_u32(bytes, 0)? != FRAME_MAGIC
            || !matches(&sites::LOG_FRAME_CHECK, get_u32(bytes, 4)?, crc)
        {
            return None;
        }
        let mut reader = Reader::new(&bytes[8..]);
        let (key_bytes, entries) = (reader.u32()?, reader.u32()?);
        Some(FrameHeader {
            key_bytes,
            entries: entries & !NAMED_BIT,
            named: entries & NAMED_BIT != 0,
            value_bytes: reader.u64()?,
            first_seqno: SeqNo(reader.u64()?),
            synced_through: reader.u64()?,
            key_crc: reader.u32()?,
            value_headers_crc: reader.u32()?,
        })
    }

    /// The bytes of the whole frame.
    pub(super) fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER_BYTES as u64 + u64::from(self.key_bytes)).saturating_add(self.value_bytes)
    }
}

/// Appends an entry's record to a key section.
pub(super) fn put_key_record(out: &mut Vec<u8>, record: &KeyRecord<'_>) {
    out.push(record.kind);
    put_varint(out, KEYSPACE);
    put_bytes(out, record.key);
    put_varint(out, u64::from(record.value_len));
    record
        .slot
        .into_iter()
        .for_each(|slot| put_varint(out, slot));
}

/// An entry's record in a key section.
#[derive(Debug)]
pub(super) struct KeyRecord<'a> {
    pub(super) kind: u8,
    pub(super) key: &'a [u8],
    pub(super) value_len: u32,
    /// The slot of the value in the hot buffer, if the kind is pointer.
    pub(super) slot: Option<u64>,
}

/// The next record; `None` if it is incomplete or unknown.
pub(super) fn key_record<'a>(reader: &mut Reader<'a>) -> Option<KeyRecord<'a>> {
    let kind = reader.u8()?;
    if reader.varint()? != KEYSPACE {
        return None;
    }
    let key = reader.bytes()?;
    let value_len = u32::try_from(reader.varint()?).ok()?;
    let slot = if kind == Kind::Pointer as u8 {
        Some(reader.varint()?)
    } else {
        None
    };
    (!key.is_empty() && key.len() <= KEY_BYTES_MAX).then_some(KeyRecord {
        kind,
        key,
        value_len,
        slot,
    })
}

/// Splits the header of entry `seqno`'s value from its bytes and checks them; `None` if they do not
/// match.
pub(super) fn check_value(framed: &[u8], len: u32, seqno: SeqNo) -> Option<&[u8]> {
    let value = framed.get(VALUE_HEADER_BYTES..)?;
    let fits = get_u32(framed, 4)? == len && value.len() == len as usize;
    let sum = || of_entry(crc32c(value), seqno);
    (fits && matches(&sites::LOG_VALUE_CHECK, get_u32(framed, 0)?, sum)).then_some(value)
}

/// Reads entry `seqno`'s value at `address` from its log file into `buf` and returns it.
///
/// # Errors
/// `Corruption` if the bytes there are not that value.
pub(super) fn read_value<'a>(
    file: &dyn File,
    address: ValueAddress,
    seqno: SeqNo,
    buf: &'a mut IoBuf,
) -> Result<&'a [u8]> {
    file.read(
        address.offset,
        VALUE_HEADER_BYTES + address.len as usize,
        buf,
    )?;
    check_value(buf.bytes(), address.len, seqno).ok_or_else(|| damaged(file, address))
}

/// The error for bytes at `address` that are not the expected value.
pub(super) fn damaged(file: &dyn File, address: ValueAddress) -> Error {
    Error::corruption(
        file.path().display(),
        address.offset,
        "expected a value with its checksum",
    )
}
