//! The bytes of a log file, in version 4: a header, then frames. One frame holds one commit group,
//! so a group, and with it each of its batches, is there whole or not at all. Older versions are
//! in [`super::old`].
//!
//! ```text
//! file     header (64 bytes) | frame ...
//! header   magic: u64 | version: u32 | log id: u64 | database uuid: 16 bytes
//!          | previous log's id: u64 | its end: u64 | how far it was synced: u64 | CRC-32C: u32
//! frame    header (15 to 50 bytes) | key section | value section
//! frame header
//!          magic: u16 | CRC-32C of the rest: u32 | CRC-32C of the key section: u32
//!          | key section bytes: varint | entries << 1 | named: varint
//!          | value section bytes: varint | first sequence number: varint
//!          | synced through: varint
//! key      kind: u8 | key: length-prefixed | value length: varint [| slot: varint]
//! value    checksum: u32 | length: u32 | bytes
//! ```
//! 1. Header checksums are salted with (log id, offset), so a copy of a frame inside a value is not
//!    taken for a frame.
//! 2. A header has one form, because varints are in their shortest one. Its length is known once it
//!    is decoded, and its checksum covers exactly the decoded bytes.
//! 3. The key section gives the length of each value, so replay can skip values without reading the
//!    value section. The value of an entry of kind pointer is in the hot buffer, in the named slot,
//!    and not in the value section.
//! 4. `named` says that the manifest durably named this log when the frame was written. If no
//!    manifest names such a log, the manifest lost records.
//! 5. `synced through` is a position in this file up to which everything had been synced when the
//!    frame was written. Damage before it is damage to acknowledged data; damage after it may be
//!    the torn end of the log.
//! 6. The header of the file gives the end of the previous log, as the manifest does. So a manifest
//!    that lost its end does not take a log with it: the logs that follow the last known one are
//!    found through their headers. A log begun by an open has no previous one (id 0), because the
//!    manifest written by that open names it.
//! 7. A value's checksum is tied to its entry's sequence number (`of_entry`), and so to its key. A
//!    reader that follows a pointer knows the number and cannot mistake another entry's value for
//!    it.
//! 8. The top bit of a record's kind is reserved for a keyspace that would follow it. There is only
//!    one so far, and a record with the bit is rejected.

#[cfg(test)]
mod tests;

use super::old;
use super::write::LogEnd;
use crate::sites;
use firn_base::checksum::{crc32c, crc32c_salted, matches, of_entry};
use firn_base::coding::{Reader, get_u16, get_u32, put_bytes, put_varint, varint_len};
use firn_base::key::{KEY_BYTES_MAX, Kind};
use firn_base::{Error, FileId, Result, SeqNo};
use firn_fs::{File, IoBuf};
pub(crate) use firn_table::pm_btree::ValueAddress;

pub(super) const FILE_MAGIC: u64 = u64::from_le_bytes(*b"FIRNLOG\0");
pub(super) const VERSION: u32 = 4;
pub(crate) const FILE_HEADER_BYTES: usize = 64;
/// Two bytes that no UTF-8 text contains.
pub(super) const FRAME_MAGIC: u16 = u16::from_le_bytes([0xf4, 0x1e]);
/// The offset in a frame header of the bytes that its checksum covers.
const CHECKED_FROM: usize = 2 + 4;
/// The bytes of the longest frame header.
pub(super) const FRAME_HEADER_BYTES_MAX: usize = CHECKED_FROM
    + 4
    + varint_len(u32::MAX as u64)
    + varint_len((u32::MAX as u64) << 1 | 1)
    + 3 * varint_len(u64::MAX);
pub(super) const VALUE_HEADER_BYTES: usize = 8;
/// The bit of a record's first byte that says that a keyspace follows.
const KEYSPACE_BIT: u8 = 1 << 7;

const _: () = assert!(8 + 4 + 8 + 16 + 3 * 8 + 4 == FILE_HEADER_BYTES);
const _: () = assert!(FRAME_HEADER_BYTES_MAX == 50);

/// The first bytes of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogHeader {
    /// The version of its frames. New logs have [`VERSION`].
    pub(super) version: u32,
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
        out.extend_from_slice(&self.version.to_le_bytes());
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
        let version = match get_u32(bytes, 8)? {
            old::VERSION_2 => return old::decode_file_header(bytes, log_id),
            version @ (old::VERSION_3 | VERSION) => version,
            _ => return None,
        };
        let mut reader = Reader::new(bytes.get(20..)?);
        let uuid = reader.take(16)?.try_into().ok()?;
        let previous = LogEnd {
            log_id: FileId(reader.u64()?),
            end: reader.u64()?,
            synced_through: reader.u64()?,
        };
        let header = LogHeader {
            version,
            uuid,
            previous: Some(previous).filter(|previous| previous.log_id > FileId(0)),
        };
        (header.encode(log_id) == bytes).then_some(header)
    }
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
}

impl FrameHeader {
    /// Appends the header of a frame at `offset` of log `log_id`.
    pub(super) fn put(&self, out: &mut Vec<u8>, log_id: FileId, offset: u64) {
        let at = out.len();
        out.extend_from_slice(&FRAME_MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.key_crc.to_le_bytes());
        put_varint(out, u64::from(self.key_bytes));
        put_varint(out, u64::from(self.entries) << 1 | u64::from(self.named));
        put_varint(out, self.value_bytes);
        put_varint(out, self.first_seqno.0);
        put_varint(out, self.synced_through);
        let crc = crc32c_salted(log_id.0, offset, &[&out[at + CHECKED_FROM..]]);
        out[at + 2..at + CHECKED_FROM].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes the header at the start of `bytes`, read at `offset` of log `log_id`, and returns it
    /// and its length; `None` if it is not a header written there.
    pub(super) fn decode(
        bytes: &[u8],
        log_id: FileId,
        offset: u64,
    ) -> Option<(FrameHeader, usize)> {
        if get_u16(bytes, 0)? != FRAME_MAGIC {
            return None;
        }
        let mut reader = Reader::new(bytes.get(CHECKED_FROM..)?);
        let key_crc = reader.u32()?;
        let key_bytes = u32::try_from(reader.varint()?).ok()?;
        let entries_and_named = reader.varint()?;
        let header = FrameHeader {
            key_bytes,
            entries: u32::try_from(entries_and_named >> 1).ok()?,
            named: entries_and_named & 1 != 0,
            value_bytes: reader.varint()?,
            first_seqno: SeqNo(reader.varint()?),
            synced_through: reader.varint()?,
            key_crc,
        };
        let len = bytes.len() - reader.remaining();
        let crc = || crc32c_salted(log_id.0, offset, &[&bytes[CHECKED_FROM..len]]);
        matches(&sites::LOG_FRAME_CHECK, get_u32(bytes, 2)?, crc).then_some((header, len))
    }

    /// The bytes of the whole frame, whose header has `header_bytes`.
    pub(super) fn frame_bytes(&self, header_bytes: usize) -> u64 {
        (header_bytes as u64 + u64::from(self.key_bytes)).saturating_add(self.value_bytes)
    }
}

/// Appends an entry's record to a key section.
pub(super) fn put_key_record(out: &mut Vec<u8>, record: &KeyRecord<'_>) {
    debug_assert_eq!(record.kind & KEYSPACE_BIT, 0);
    out.push(record.kind);
    put_rest_of_record(out, record);
}

/// Appends the part of a record that is the same in all versions.
pub(super) fn put_rest_of_record(out: &mut Vec<u8>, record: &KeyRecord<'_>) {
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
    if kind & KEYSPACE_BIT != 0 {
        return None;
    }
    rest_of_record(kind, reader)
}

/// The part of a record that is the same in all versions.
pub(super) fn rest_of_record<'a>(kind: u8, reader: &mut Reader<'a>) -> Option<KeyRecord<'a>> {
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
