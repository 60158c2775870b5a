//! The contents of a row and of an index entry.
//!
//! | bytes | of a row |
//! |---|---|
//! | 8 | its table (8 bits), order (40) and line (16), little-endian |
//! | 1 | its version |
//! | 10 x (2 + n) | the columns, each behind its length: first those with an index, then data |
//!
//! Data is derived from seed, row and version, so that a reader can compare every byte. The value
//! of an index entry is the CRC-32C of its key.

use super::key::RowId;
use super::market::Order;
use super::tables::TABLES;
use crate::record;
use crate::size::Sizes;
use firn_base::checksum::crc32c;
use firn_base::seed::{Seed, mix};

/// Columns of a row.
const COLUMNS: usize = 10;
/// Bytes before the columns.
const HEAD_BYTES: usize = 9;
/// Bytes of the shortest and of the longest row.
const BYTES: (usize, usize) = (768, 1280);
/// Bytes of the value of an index entry.
pub(super) const ENTRY_BYTES: usize = 4;

/// The sizes of rows.
pub(super) fn sizes() -> Sizes {
    Sizes::between(BYTES.0, BYTES.1)
}

fn id(row: RowId) -> u64 {
    (row.table as u64) << 56 | row.order << 16 | u64::from(row.line)
}

/// A random word of `row` of `order`.
fn chance(order: &Order, row: RowId) -> u64 {
    mix(id(row) ^ order.chance)
}

/// Bytes of `row` of `order` in `version`.
pub(super) fn bytes_of(order: &Order, row: RowId, version: u8) -> usize {
    sizes().of(chance(order, row) ^ u64::from(version))
}

/// Writes `row` of `order` in `version` into `value`.
pub(super) fn write(order: &Order, row: RowId, version: u8, value: &mut Vec<u8>) {
    let bytes = bytes_of(order, row, version);
    value.clear();
    value.extend_from_slice(&id(row).to_le_bytes());
    value.push(version);
    let indexes = TABLES[row.table].indexes;
    for field in indexes {
        let at = value.len();
        value.extend_from_slice(&[0; 2]);
        order.write_field(*field, row.line, version, value);
        let length = (value.len() - at - 2) as u16;
        value[at..at + 2].copy_from_slice(&length.to_le_bytes());
    }
    let mut seed = Seed::new(chance(order, row) ^ mix(u64::from(version)));
    for left in (1..=COLUMNS - indexes.len()).rev() {
        // The columns share the rest equally.
        let length = (bytes - value.len()) / left - 2;
        value.extend_from_slice(&(length as u16).to_le_bytes());
        let at = value.len();
        value.resize(at + length, 0);
        record::fill(&mut value[at..], length.div_ceil(2), &mut seed);
    }
    debug_assert_eq!(value.len(), bytes);
}

/// The version that `value` claims to be; `None` if it is not one of `row`.
pub(super) fn claimed_version(row: RowId, value: &[u8]) -> Option<u8> {
    let (head, version) = (value.get(..8)?, value.get(HEAD_BYTES - 1)?);
    (head == id(row).to_le_bytes()).then_some(*version)
}

/// The value of the index entry at `key`.
pub(super) fn entry(key: &[u8]) -> [u8; ENTRY_BYTES] {
    crc32c(key).to_le_bytes()
}
