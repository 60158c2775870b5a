//! The header of a table's file, which identifies its owner, and the footer with the handles from
//! which all other bytes are found.
//!
//! ```text
//! header   magic: u64 | version: u32 | 0: u32 | file id: u64 | database uuid: 16 bytes
//!          | log id: u64 | 0: 12 bytes | CRC-32C: u32
//! ```
//! 1. A table is found by (file, valid length, footer offset), which the manifest names. The footer
//!    is never searched for, and the header is not read to find it.
//! 2. A crash while a table is written leaves a file that no manifest record names. Open removes it
//!    if the header says that it belongs to this database.

use crate::sites;
use firn_base::FileId;
use firn_base::checksum::{crc32c, crc32c_salted, matches};
use firn_base::coding::{Reader, get_u32, get_u64};

/// "FIRNSST" and the format's version.
const MAGIC: u64 = u64::from_le_bytes(*b"FIRNSST\x02");
/// The version of tables with a filter for each block, which are otherwise the same. A reader that
/// does not know it refuses them.
const MAGIC_BLOCK_FILTERS: u64 = u64::from_le_bytes(*b"FIRNSST\x03");
/// The version before, whose files have no header. Its tables are read, and not written any more.
const MAGIC_1: u64 = u64::from_le_bytes(*b"FIRNSST\x01");
const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"FIRNTBL\0");
const HEADER_VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
const _: () = assert!(8 + 4 + 4 + 8 + 16 + 8 + 12 + 4 == HEADER_BYTES);

/// The owner of a table's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOwner {
    /// The database for which the table was written. A checkpoint links tables of its source.
    pub uuid: [u8; 16],
    /// The log of the memtable from which the table was flushed; 0 for any other table.
    pub log_id: FileId,
}

impl TableOwner {
    pub(super) fn encode(&self, file_id: FileId) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&HEADER_MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&HEADER_VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&file_id.0.to_le_bytes());
        out[24..40].copy_from_slice(&self.uuid);
        out[40..48].copy_from_slice(&self.log_id.0.to_le_bytes());
        let crc = crc32c(&out[..HEADER_BYTES - 4]);
        out[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The owner named by the header at the start of `bytes`, if it is the header of table
    /// `file_id`.
    pub fn decode(bytes: &[u8], file_id: FileId) -> Option<TableOwner> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let owner = TableOwner {
            uuid: bytes[24..40].try_into().ok()?,
            log_id: FileId(get_u64(bytes, 40)?),
        };
        (owner.encode(file_id) == bytes).then_some(owner)
    }
}
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 80;
const CRC_AT: usize = FOOTER_BYTES - 4;

const _: () = assert!(8 + 8 + 3 * 16 + 8 + 4 + 4 == FOOTER_BYTES);

/// A section's location and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Handle {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) crc: u32,
}

impl Handle {
    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Handle> {
        Some(Handle {
            offset: reader.u64()?,
            len: reader.u32()?,
            crc: reader.u32()?,
        })
    }

    pub(super) fn end(self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.len))
    }
}

/// The kind of a table's filter section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterKind {
    /// One filter for all keys.
    Table,
    /// A filter for each block.
    Blocks,
}

/// The last bytes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) file_id: FileId,
    pub(super) filter: Handle,
    pub(super) filter_kind: FilterKind,
    pub(super) index: Handle,
    pub(super) properties: Handle,
    /// Bytes of the data blocks that the index names, without dead ones.
    pub(super) data_bytes: u64,
    /// True if the file begins with a header.
    pub(super) has_header: bool,
}

impl Footer {
    pub(super) fn encode(&self, footer_offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        let magic = match self.filter_kind {
            FilterKind::Table => MAGIC,
            FilterKind::Blocks => MAGIC_BLOCK_FILTERS,
        };
        out.extend_from_slice(&magic.to_le_bytes());
        out.extend_from_slice(&self.file_id.0.to_le_bytes());
        self.filter.encode(&mut out);
        self.index.encode(&mut out);
        self.properties.encode(&mut out);
        out.extend_from_slice(&self.data_bytes.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        let crc = crc32c_salted(self.file_id.0, footer_offset, &[&out]);
        out.extend_from_slice(&crc.to_le_bytes());
        debug_assert_eq!(out.len(), FOOTER_BYTES);
        out
    }

    /// True if a footer may begin with `bytes`.
    pub(super) fn may_begin(bytes: &[u8]) -> bool {
        [MAGIC, MAGIC_BLOCK_FILTERS, MAGIC_1]
            .iter()
            .any(|magic| bytes.starts_with(&magic.to_le_bytes()))
    }

    /// Decodes the footer in `bytes`, read at `footer_offset`. The error says what was expected.
    pub(super) fn decode(
        bytes: &[u8],
        file_id: FileId,
        footer_offset: u64,
    ) -> Result<Footer, &'static str> {
        let (body, crc) = bytes
            .split_at_checked(CRC_AT)
            .ok_or("a footer of 80 bytes")?;
        let stored = get_u32(crc, 0).ok_or("a footer of 80 bytes")?;
        let computed = || crc32c_salted(file_id.0, footer_offset, &[body]);
        if bytes.len() != FOOTER_BYTES || !matches(&sites::SST_FOOTER_CHECK, stored, computed) {
            return Err("the footer's checksum");
        }
        let mut reader = Reader::new(body);
        let (has_header, filter_kind) = match reader.u64() {
            Some(MAGIC) => (true, FilterKind::Table),
            Some(MAGIC_BLOCK_FILTERS) => (true, FilterKind::Blocks),
            Some(MAGIC_1) => (false, FilterKind::Table),
            _ => return Err("the footer's magic and version"),
        };
        Self::decode_body(&mut reader, has_header, filter_kind)
            .filter(|footer| footer.file_id == file_id && footer.fits(footer_offset))
            .ok_or("sections that lie in front of the footer")
    }

    fn decode_body(
        reader: &mut Reader<'_>,
        has_header: bool,
        filter_kind: FilterKind,
    ) -> Option<Footer> {
        Some(Footer {
            file_id: FileId(reader.u64()?),
            filter: Handle::decode(reader)?,
            filter_kind,
            index: Handle::decode(reader)?,
            properties: Handle::decode(reader)?,
            data_bytes: reader.u64()?,
            has_header,
        })
    }

    /// Bytes of the file's header.
    pub(super) fn header_bytes(&self) -> u64 {
        if self.has_header {
            HEADER_BYTES as u64
        } else {
            0
        }
    }

    /// True if filter, index and properties are adjacent, in this order, and end at the footer.
    fn fits(&self, footer_offset: u64) -> bool {
        self.filter.end() == Some(self.index.offset)
            && self.index.end() == Some(self.properties.offset)
            && self.properties.end() == Some(footer_offset)
            && self
                .data_bytes
                .checked_add(self.header_bytes())
                .is_some_and(|end| end <= self.filter.offset)
    }
}
