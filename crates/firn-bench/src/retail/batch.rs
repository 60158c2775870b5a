//! The batch of one step of an order.

use super::key::{Index, RowId};
use super::market::Order;
use super::row;
use super::tables::TABLES;
use crate::store::Change;
use std::ops::Range;

/// Changes in one buffer, which is kept for the next batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// The key of each change; the value too, unless it is a delete.
    places: Vec<(Range<usize>, Option<Range<usize>>)>,
    row: Vec<u8>,
    /// The keys of an index entry before and after.
    keys: [Vec<u8>; 2],
}

impl Batch {
    /// The step of `order` that writes `version`: each of its rows, followed by the changes of the
    /// row's index entries.
    pub(super) fn fill(&mut self, order: &Order, version: u8) {
        self.bytes.clear();
        self.places.clear();
        for row in order.rows_of_step(version) {
            let before = order.version_of(row, version - 1);
            self.put_row(order, row, version);
            for column in 0..TABLES[row.table].indexes.len() {
                let table = row.table;
                self.change_entry(order, row, Index { table, column }, (before, version));
            }
        }
    }

    fn put_row(&mut self, order: &Order, row: RowId, version: u8) {
        let at = self.bytes.len();
        row.write(&mut self.bytes);
        let end = self.bytes.len();
        row::write(order, row, version, &mut self.row);
        self.bytes.extend_from_slice(&self.row);
        self.places.push((at..end, Some(end..self.bytes.len())));
    }

    /// Removes the entry of the version before and inserts that of the new one, if they differ.
    fn change_entry(
        &mut self,
        order: &Order,
        row: RowId,
        index: Index,
        (before, version): (Option<u8>, u8),
    ) {
        let [old, new] = &mut self.keys;
        old.clear();
        new.clear();
        index.write(order, row, version, new);
        if let Some(before) = before {
            index.write(order, row, before, old);
            if old == new {
                return;
            }
            let at = self.bytes.len();
            self.bytes.extend_from_slice(old);
            self.places.push((at..self.bytes.len(), None));
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(new);
        let end = self.bytes.len();
        self.bytes.extend_from_slice(&row::entry(new));
        self.places.push((at..end, Some(end..self.bytes.len())));
    }

    /// The changes, in order.
    pub(super) fn changes(&self) -> Vec<Change<'_>> {
        let change = |(key, value): &(Range<usize>, Option<Range<usize>>)| {
            let key = &self.bytes[key.clone()];
            match value {
                Some(value) => Change::Put {
                    key,
                    value: &self.bytes[value.clone()],
                },
                None => Change::Delete { key },
            }
        };
        self.places.iter().map(change).collect()
    }

    /// Bytes of all keys and values.
    pub(super) fn byte_size(&self) -> u64 {
        self.bytes.len() as u64
    }
}
