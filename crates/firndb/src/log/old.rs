//! Logs of versions 2 and 3. They are read, and not written any more: an open begins a new log.
//!
//! The file header of version 3 is that of version 4, with another number. Frames of both:
//!
//! ```text
//! frame    header (48 bytes) | key section | value section
//! frame header
//!          magic: u32 | CRC-32C of the rest: u32 | key section bytes: u32
//!          | named (top bit), entries: u32 | value section bytes: u64
//!          | first sequence number: u64 | synced through: u64 | CRC-32C of the key section: u32
//!          | CRC-32C of the values' headers: u32
//! key      kind: u8 | keyspace (0): varint | key: length-prefixed | value length: varint
//!          [| slot: varint]
//! ```
//! Nothing compares the checksum of the values' headers. Each of them is compared with its record
//! and its value, so that checksum could detect only a faulty writer.

#[cfg(test)]
mod tests;

use super::layout::{
    FILE_HEADER_BYTES, FILE_MAGIC, FrameHeader, KeyRecord, LogHeader, rest_of_record,
};
use crate::sites;
use firn_base::checksum::{crc32c, crc32c_salted, matches};
use firn_base::coding::{Reader, get_u32};
use firn_base::{FileId, SeqNo};

/// The version that does not know the previous log.
pub(super) const VERSION_2: u32 = 2;
pub(super) const VERSION_3: u32 = 3;
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"FRM1");
pub(super) const FRAME_HEADER_BYTES: usize = 48;
const NAMED_BIT: u32 = 1 << 31;
const KEYSPACE: u64 = 0;

const _: () = assert!(4 + 4 + 4 + 4 + 8 + 8 + 8 + 4 + 4 == FRAME_HEADER_BYTES);

/// Decodes the header of a file of version 2:
///
/// ```text
/// magic: u64 | version: u32 | 0: u32 | log id: u64 | database uuid: 16 bytes | 0: 20 bytes
/// | CRC-32C: u32
/// ```
pub(super) fn decode_file_header(bytes: &[u8], log_id: FileId) -> Option<LogHeader> {
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
        version: VERSION_2,
        uuid,
        previous: None,
    })
}

/// Decodes the frame header in `bytes`, read at `offset` of log `log_id`; `None` if it is not a
/// header written there.
pub(super) fn decode_frame_header(
    bytes: &[u8],
    log_id: FileId,
    offset: u64,
) -> Option<FrameHeader> {
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
    })
}

/// The next record; `None` if it is incomplete or unknown.
pub(super) fn key_record<'a>(reader: &mut Reader<'a>) -> Option<KeyRecord<'a>> {
    let kind = reader.u8()?;
    if reader.varint()? != KEYSPACE {
        return None;
    }
    rest_of_record(kind, reader)
}

/// The encoders, for tests and the proof alone.
#[cfg(any(test, feature = "proof"))]
pub(super) mod encode {
    use super::{FRAME_HEADER_BYTES, FRAME_MAGIC, KEYSPACE, NAMED_BIT};
    use crate::log::layout::{FrameHeader, KeyRecord, put_rest_of_record};
    use firn_base::FileId;
    use firn_base::checksum::crc32c_salted;
    use firn_base::coding::put_varint;

    /// Encodes the header of a frame at `offset` of log `log_id`. `value_headers_crc` is the
    /// checksum of its values' headers.
    pub(in crate::log) fn frame_header(
        header: &FrameHeader,
        value_headers_crc: u32,
        log_id: FileId,
        offset: u64,
    ) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&header.key_bytes.to_le_bytes());
        let named = if header.named { NAMED_BIT } else { 0 };
        out[12..16].copy_from_slice(&(header.entries | named).to_le_bytes());
        out[16..24].copy_from_slice(&header.value_bytes.to_le_bytes());
        out[24..32].copy_from_slice(&header.first_seqno.0.to_le_bytes());
        out[32..40].copy_from_slice(&header.synced_through.to_le_bytes());
        out[40..44].copy_from_slice(&header.key_crc.to_le_bytes());
        out[44..48].copy_from_slice(&value_headers_crc.to_le_bytes());
        let crc = crc32c_salted(log_id.0, offset, &[&out[8..]]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Appends an entry's record to a key section.
    pub(in crate::log) fn put_key_record(out: &mut Vec<u8>, record: &KeyRecord<'_>) {
        out.push(record.kind);
        put_varint(out, KEYSPACE);
        put_rest_of_record(out, record);
    }
}
