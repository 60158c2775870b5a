//! The footer of a table and the handles in it: the bytes from which all others are found.
//!
//! A table is found by (file, valid length, footer offset), which the manifest names; the footer is never searched for.
//! A crash while a table is written leaves a file that no manifest record names, which open removes.

use crate::sites;
use firn_base::checksum::{crc32c_salted, matches};
use firn_base::coding::{Reader, get_u32};

/// "FIRNSST" and the format's version.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"FIRNSST\x01");
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 80;
const CRC_AT: usize = FOOTER_BYTES - 4;

const _: () = assert!(8 + 8 + 3 * 16 + 8 + 4 + 4 == FOOTER_BYTES);

/// Where a section lies and what its checksum is.
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
        Some(Handle { offset: reader.u64()?, len: reader.u32()?, crc: reader.u32()? })
    }

    pub(super) fn end(self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.len))
    }
}

/// The last bytes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) file_id: u64,
    pub(super) filter: Handle,
    pub(super) index: Handle,
    pub(super) properties: Handle,
    /// Bytes of data blocks that the index names, dead ones not among them.
    pub(super) data_bytes: u64,
}

impl Footer {
    pub(super) fn encode(&self, footer_offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&self.file_id.to_le_bytes());
        self.filter.encode(&mut out);
        self.index.encode(&mut out);
        self.properties.encode(&mut out);
        out.extend_from_slice(&self.data_bytes.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        let crc = crc32c_salted(self.file_id, footer_offset, &[&out]);
        out.extend_from_slice(&crc.to_le_bytes());
        debug_assert_eq!(out.len(), FOOTER_BYTES);
        out
    }

    /// The footer in `bytes`, read at `footer_offset`, or what is wrong with it.
    pub(super) fn decode(bytes: &[u8], file_id: u64, footer_offset: u64) -> Result<Footer, &'static str> {
        let (body, crc) = bytes.split_at_checked(CRC_AT).ok_or("a footer of 80 bytes")?;
        let stored = get_u32(crc, 0).ok_or("a footer of 80 bytes")?;
        let computed = || crc32c_salted(file_id, footer_offset, &[body]);
        if bytes.len() != FOOTER_BYTES || !matches(&sites::SST_FOOTER_CHECK, stored, computed) {
            return Err("the footer's checksum");
        }
        let mut reader = Reader::new(body);
        if reader.u64() != Some(MAGIC) {
            return Err("the footer's magic and version");
        }
        Self::decode_body(&mut reader)
            .filter(|footer| footer.file_id == file_id && footer.fits(footer_offset))
            .ok_or("sections that lie in front of the footer")
    }

    fn decode_body(reader: &mut Reader<'_>) -> Option<Footer> {
        Some(Footer {
            file_id: reader.u64()?,
            filter: Handle::decode(reader)?,
            index: Handle::decode(reader)?,
            properties: Handle::decode(reader)?,
            data_bytes: reader.u64()?,
        })
    }

    /// Filter, index and properties lie one behind the other and end at the footer.
    fn fits(&self, footer_offset: u64) -> bool {
        self.filter.end() == Some(self.index.offset)
            && self.index.end() == Some(self.properties.offset)
            && self.properties.end() == Some(footer_offset)
            && self.data_bytes <= self.filter.offset
    }
}
