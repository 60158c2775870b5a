//! The layout of records in a manifest file, and the contents of CURRENT.
//!
//! ```text
//! manifest  record ...
//! record    payload length: u32 | CRC-32C of the rest, salted with (manifest id, offset): u32
//!           | synced through: u64 | payload
//! CURRENT   "MANIFEST-NNNNNN " | CRC-32C of the name in eight hex digits | "\n"
//! ```

use crate::files::FileName;
use crate::sites;
use firn_base::FileId;
use firn_base::checksum::{crc32c, crc32c_salted, matches};
use firn_base::coding::{get_u32, get_u64};

pub(super) const RECORD_HEADER_BYTES: usize = 16;
/// The most bytes a record may have; a snapshot of a million tables fits.
pub(super) const RECORD_BYTES_MAX: usize = 1 << 30;

/// Encodes a record for `offset` of manifest `id`, whose first `synced_through` bytes are durable
/// by then.
pub(super) fn record(id: FileId, offset: u64, synced_through: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(RECORD_HEADER_BYTES + payload.len());
    let synced = synced_through.to_le_bytes();
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c_salted(id.0, offset, &[&synced, payload]).to_le_bytes());
    out.extend_from_slice(&synced);
    out.extend_from_slice(payload);
    out
}

/// A whole record.
pub(super) struct Record<'a> {
    pub(super) payload: &'a [u8],
    pub(super) synced_through: u64,
}

/// Decodes the bytes at `offset` of a manifest as a record. The checksum is not verified yet.
pub(super) fn claimed_record(bytes: &[u8], offset: usize) -> Option<Record<'_>> {
    let len = get_u32(bytes, offset)? as usize;
    let synced_through = get_u64(bytes, offset.checked_add(8)?)?;
    let start = offset.checked_add(RECORD_HEADER_BYTES)?;
    let payload = bytes.get(start..start.checked_add(len)?)?;
    let fits = (1..=RECORD_BYTES_MAX).contains(&len) && synced_through <= offset as u64;
    fits.then_some(Record {
        payload,
        synced_through,
    })
}

/// The whole record at `offset` of the manifest's `bytes`, if there is one.
pub(super) fn whole_record(bytes: &[u8], id: FileId, offset: usize) -> Option<Record<'_>> {
    let record = claimed_record(bytes, offset)?;
    let crc = get_u32(bytes, offset.checked_add(4)?)?;
    let synced = record.synced_through.to_le_bytes();
    let computed = || crc32c_salted(id.0, offset as u64, &[&synced, record.payload]);
    matches(&sites::MANIFEST_CHECK, crc, computed).then_some(record)
}

/// The contents of a CURRENT that names manifest `id`.
pub(super) fn current(id: FileId) -> String {
    let name = FileName::Manifest(id).to_string();
    format!("{name} {:08x}\n", crc32c(name.as_bytes()))
}

/// The manifest named by CURRENT's contents.
pub(super) fn parse_current(bytes: &[u8]) -> Option<FileId> {
    let text = std::str::from_utf8(bytes).ok()?;
    match FileName::parse(text.split(' ').next()?) {
        FileName::Manifest(id) if !sites::CURRENT_CHECK.is_on() || current(id) == text => Some(id),
        _ => None,
    }
}
