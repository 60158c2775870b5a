//! The bytes of a tree in a pool: leaves, the directory's words, the root's word.
//!
//! ```text
//! region     an extent of leaves, each at a multiple of 64 bytes
//! directory  an extent of words, each 0 or the place of a leaf:
//!            first unit: low 32 bits | version: high 32 bits
//! leaf       header (40 bytes) | lower bound | entry ...
//! header     CRC-32C of the rest: u32 | bytes: u32 | tree: u32 | version: u32 | entries: u32
//!            | bytes of the lower bound: u16 | 0: u16 | lowest sequence number: u64
//!            | newest log: u64
//! entry      bytes shared with the key before: varint | further bytes: varint
//!            | sequence number - lowest: varint | kind: u8
//!            | with a value: newest log - its log, offset, value bytes: varints
//!            | the key's further bytes
//! ```
//! 1. The checksum is salted with (version, first unit), so another leaf in a leaf's place is
//!    detected.
//! 2. Versions begin at 1, so no word of a leaf is 0.

use crate::sites;
use firn_base::FileId;
use firn_base::SeqNo;
use firn_base::checksum::{crc32c_salted, matches};
use firn_base::coding::Reader;
use firn_base::key::KEY_BYTES_MAX;
use std::ops::RangeInclusive;

/// The alignment of leaves, in bytes.
pub(super) const UNIT_BYTES: u64 = 64;
/// Bytes of a directory entry.
pub(super) const WORD_BYTES: u64 = 8;
pub(super) const HEADER_BYTES: usize = 40;
/// The target sizes of leaves, in bytes, with which trees can be created. A longer key has a leaf
/// of its own.
pub const LEAF_BYTES_RANGE: RangeInclusive<u32> = 128..=8192;
/// The limit on the total bytes of a leaf's keys. Needed because shared prefixes can turn few bytes
/// into many.
pub(super) const KEYS_BYTES_MAX: usize = 1 << 20;
/// The limit on a leaf's bytes: a full leaf, a long key, and a lower bound of the same length.
pub(super) const LEAF_BYTES_MAX: u32 = *LEAF_BYTES_RANGE.end() + 2 * KEY_BYTES_MAX as u32 + 256;

const _: () = assert!(4 + 4 + 4 + 4 + 4 + 2 + 2 + 8 + 8 == HEADER_BYTES);

/// A leaf's location and the word of the directory that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub(super) unit: u32,
    pub(super) version: u32,
    pub(super) slot: u32,
    pub(super) bytes: u32,
    pub(super) entries: u32,
}

impl Place {
    /// The directory's word for it.
    pub(super) fn word(&self) -> u64 {
        u64::from(self.version) << 32 | u64::from(self.unit)
    }

    /// The number of units it takes.
    pub(super) fn units(&self) -> u32 {
        units(self.bytes)
    }

    /// The number of entries in it.
    pub fn entries(&self) -> u32 {
        self.entries
    }
}

/// The number of units that a leaf of `bytes` takes.
pub(super) fn units(bytes: u32) -> u32 {
    u64::from(bytes).div_ceil(UNIT_BYTES) as u32
}

/// The fixed part of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) bytes: u32,
    pub(super) tree: u32,
    pub(super) version: u32,
    pub(super) entries: u32,
    pub(super) bound_bytes: u16,
    pub(super) lowest: SeqNo,
    pub(super) newest_log: FileId,
}

impl Header {
    /// Writes the header into the first bytes of `leaf`, whose remaining bytes are complete, for a
    /// leaf at `unit`.
    pub(super) fn seal(&self, leaf: &mut [u8], unit: u32) {
        debug_assert_eq!(leaf.len(), self.bytes as usize);
        let fields: [&[u8]; 8] = [
            &self.bytes.to_le_bytes(),
            &self.tree.to_le_bytes(),
            &self.version.to_le_bytes(),
            &self.entries.to_le_bytes(),
            &self.bound_bytes.to_le_bytes(),
            &[0; 2],
            &self.lowest.0.to_le_bytes(),
            &self.newest_log.0.to_le_bytes(),
        ];
        let mut at = 4;
        for field in fields {
            leaf[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        let crc = checksum(leaf, self.version, unit);
        leaf[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// The header of the leaf that begins at `bytes`; `None` if it cannot be one. The checksum is
    /// not verified yet.
    pub(super) fn peek(bytes: &[u8]) -> Option<Header> {
        let mut reader = Reader::new(bytes.get(4..)?);
        let header = Header {
            bytes: reader.u32()?,
            tree: reader.u32()?,
            version: reader.u32()?,
            entries: reader.u32()?,
            bound_bytes: reader.u16()?,
            lowest: (reader.u16()? == 0).then_some(SeqNo(0))?,
            newest_log: FileId(0),
        };
        let header = Header {
            lowest: SeqNo(reader.u64()?),
            newest_log: FileId(reader.u64()?),
            ..header
        };
        let least = HEADER_BYTES + usize::from(header.bound_bytes);
        let fits = least < header.bytes as usize && header.bytes <= LEAF_BYTES_MAX;
        (fits && header.entries > 0 && header.lowest <= SeqNo::MAX).then_some(header)
    }

    /// The header of the whole `leaf`, if its checksum is right for `version` at `unit`.
    pub(super) fn decode(leaf: &[u8], version: u32, unit: u32) -> Option<Header> {
        let header = Header::peek(leaf)?;
        let stored = u32::from_le_bytes(*leaf.first_chunk()?);
        let whole = header.bytes as usize == leaf.len() && header.version == version;
        (whole
            && matches(&sites::BTREE_LEAF_CHECK, stored, || {
                checksum(leaf, version, unit)
            }))
        .then_some(header)
    }
}

fn checksum(leaf: &[u8], version: u32, unit: u32) -> u32 {
    crc32c_salted(u64::from(version), u64::from(unit), &[&leaf[4..]])
}
