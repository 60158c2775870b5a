//! The bytes of a pool that the pool itself owns: header line, session word, root record. See
//! `docs/format/pool.md`.
//!
//! 1. Little-endian, no padding, no pointers. Offsets and sizes are asserted here at compile time.
//! 2. These structs only name fields; [`crate::header`] and [`crate::root`] decide if they are
//!    valid.

use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The format version that this code writes and reads.
pub const VERSION: u32 = 1;
/// Extents are whole granules of this many bytes, so that no two extents share a page of a file.
pub const GRANULE_BYTES: u64 = 4096;
/// The first byte that can belong to an extent, after the header page and the two root pages.
pub const DATA_START: u64 = 3 * PAGE_BYTES;
/// The smallest pool: the pool's own pages and one granule.
pub const MIN_POOL_BYTES: u64 = DATA_START + GRANULE_BYTES;
/// The maximum number of entries in a root record.
pub const MAX_ROOT_ENTRIES: usize = 124;

pub(crate) const PAGE_BYTES: u64 = 4096;
pub(crate) const POOL_MAGIC: u64 = u64::from_le_bytes(*b"FIRNPOOL");
pub(crate) const ROOT_MAGIC: u64 = u64::from_le_bytes(*b"FIRNROOT");
pub(crate) const MAGIC_AT: u64 = 0;
pub(crate) const SESSION_AT: u64 = 64;

/// The first line of the pool.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct HeaderLine {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) granule_bytes: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) created_bytes: U64,
    pub(crate) reserved: [u8; 16],
    pub(crate) crc: U32,
    pub(crate) reserved_end: U32,
}

/// The fixed part of a root record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RootHead {
    pub(crate) magic: U64,
    pub(crate) crc: U32,
    pub(crate) entry_count: U32,
    pub(crate) generation: U64,
    pub(crate) applied_edit: U64,
    pub(crate) pool_bytes: U64,
    pub(crate) uuid: [u8; 16],
    pub(crate) reserved: [u8; 72],
}

/// One entry of a root record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct EntryBytes {
    pub(crate) owner: U16,
    pub(crate) kind: U16,
    pub(crate) reserved: U32,
    pub(crate) word: U64,
    pub(crate) offset: U64,
    pub(crate) len: U64,
}

pub(crate) const HEADER_CRC_AT: usize = offset_of!(HeaderLine, crc);
pub(crate) const ROOT_CRC_AT: usize = offset_of!(RootHead, crc);
pub(crate) const ROOT_HEAD_BYTES: usize = size_of::<RootHead>();
pub(crate) const ENTRY_BYTES: usize = size_of::<EntryBytes>();

const _: () = {
    assert!(size_of::<HeaderLine>() == 64);
    assert!(offset_of!(HeaderLine, magic) as u64 == MAGIC_AT);
    assert!(offset_of!(HeaderLine, version) == 8);
    assert!(offset_of!(HeaderLine, granule_bytes) == 12);
    assert!(offset_of!(HeaderLine, uuid) == 16);
    assert!(offset_of!(HeaderLine, created_bytes) == 32);
    assert!(offset_of!(HeaderLine, reserved) == 40);
    assert!(offset_of!(HeaderLine, crc) == 56);
    assert!(offset_of!(HeaderLine, reserved_end) == 60);
    assert!(SESSION_AT as usize == size_of::<HeaderLine>());

    assert!(ROOT_HEAD_BYTES == 128);
    assert!(offset_of!(RootHead, magic) == 0);
    assert!(offset_of!(RootHead, crc) == 8);
    assert!(offset_of!(RootHead, entry_count) == 12);
    assert!(offset_of!(RootHead, generation) == 16);
    assert!(offset_of!(RootHead, applied_edit) == 24);
    assert!(offset_of!(RootHead, pool_bytes) == 32);
    assert!(offset_of!(RootHead, uuid) == 40);
    assert!(offset_of!(RootHead, reserved) == 56);

    assert!(ENTRY_BYTES == 32);
    assert!(offset_of!(EntryBytes, owner) == 0);
    assert!(offset_of!(EntryBytes, kind) == 2);
    assert!(offset_of!(EntryBytes, reserved) == 4);
    assert!(offset_of!(EntryBytes, word) == 8);
    assert!(offset_of!(EntryBytes, offset) == 16);
    assert!(offset_of!(EntryBytes, len) == 24);
    assert!(ROOT_HEAD_BYTES + MAX_ROOT_ENTRIES * ENTRY_BYTES == PAGE_BYTES as usize);
    assert!(MIN_POOL_BYTES == 16 << 10);
    assert!(GRANULE_BYTES.is_power_of_two() && GRANULE_BYTES.is_multiple_of(PAGE_BYTES));
};
