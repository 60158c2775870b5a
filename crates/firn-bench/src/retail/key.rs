//! Keys: `table|pk` for a row, `table|index|value|pk` for an index entry. A pk is the order's
//! number in ten digits, and in tables with several rows an order `-` and the line in two.

use super::market::Order;
use super::tables::{Field, Rows, TABLES};
use crate::size::Sizes;
use std::io::Write;

/// Bytes of a pk with its line.
const PK_BYTES: usize = 13;
/// Bytes of the shortest and of the longest key.
const BYTES: (usize, usize) = (
    "orders|".len() + 10,
    "order_lines|product_state|p00000000-s00|".len() + PK_BYTES,
);

/// A row: its table, its order and its line among the order's rows.
///
/// The rows of a table are ordered as their primary keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowId {
    pub(super) table: usize,
    pub(super) order: u64,
    pub(super) line: u8,
}

/// The sizes of keys.
pub(super) fn sizes() -> Sizes {
    Sizes::between(BYTES.0, BYTES.1)
}

impl RowId {
    pub(super) fn write_pk(self, key: &mut Vec<u8>) {
        let Self { table, order, line } = self;
        // Writing to a `Vec` never fails.
        let _never_fails = match TABLES[table].rows {
            Rows::One => write!(key, "{order:010}"),
            Rows::Lines | Rows::PerStep => write!(key, "{order:010}-{line:02}"),
        };
    }

    /// Appends the key of the row.
    pub(super) fn write(self, key: &mut Vec<u8>) {
        key.extend_from_slice(TABLES[self.table].name.as_bytes());
        key.push(b'|');
        self.write_pk(key);
    }

    /// The row of `table` with the pk in `text`; `None` if it is none.
    pub(super) fn parse(table: usize, text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|t| t.is_ascii())?;
        let (order, line) = match TABLES[table].rows {
            Rows::One => (text, "0"),
            Rows::Lines | Rows::PerStep => text.split_once('-')?,
        };
        let id = Self {
            table,
            order: order.parse().ok()?,
            line: line.parse().ok()?,
        };
        let mut again = Vec::with_capacity(PK_BYTES);
        id.write_pk(&mut again);
        (again == text.as_bytes()).then_some(id)
    }
}

/// An index of a table, by its place among the table's indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) table: usize,
    pub(super) column: usize,
}

impl Index {
    /// The indexed column.
    pub(super) fn field(self) -> Field {
        TABLES[self.table].indexes[self.column]
    }

    /// Appends the beginning of the keys of all entries with the value that line `line` of `order`
    /// has at `version`.
    pub(super) fn write_prefix(self, order: &Order, line: u8, version: u8, key: &mut Vec<u8>) {
        key.extend_from_slice(TABLES[self.table].name.as_bytes());
        key.push(b'|');
        key.extend_from_slice(self.field().name().as_bytes());
        key.push(b'|');
        order.write_field(self.field(), line, version, key);
        key.push(b'|');
    }

    /// Appends the key of the entry of `row`, which belongs to `order`, at `version`.
    pub(super) fn write(self, order: &Order, row: RowId, version: u8, key: &mut Vec<u8>) {
        self.write_prefix(order, row.line, version, key);
        row.write_pk(key);
    }
}
