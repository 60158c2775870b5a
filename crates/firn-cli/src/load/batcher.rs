//! Collects records into batches of at most 1 MiB or 1,000 records; a larger record is a batch of its own.

use super::position::Slot;
use crate::exit::{Failure, Outcome};
use firndb::{Db, Durability, WriteBatch, WriteOptions};
use serde::Serialize;

const BATCH_BYTES_MAX: usize = 1 << 20;
const BATCH_RECORDS_MAX: usize = 1000;

pub(super) struct Batcher<'a> {
    db: &'a Db,
    slot: Slot,
    durability: Durability,
    batch: WriteBatch,
    /// Whether a position is in the database, to be deleted at the end.
    slot_used: bool,
    /// Records and bytes that are written, without those that wait in the batch.
    pub(super) written: (u64, u64),
}

impl<'a> Batcher<'a> {
    pub(super) fn new(db: &'a Db, slot: Slot, durability: Durability, resumed: bool) -> Self {
        Self { db, slot, durability, batch: WriteBatch::new(), slot_used: resumed, written: (0, 0) }
    }

    /// Whether a record of `bytes` goes into the batch with what is in it already.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.batch.is_empty()
            || (self.batch.byte_size() + bytes <= BATCH_BYTES_MAX && self.batch.len() < BATCH_RECORDS_MAX)
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(key, value);
    }

    /// Writes the batch, and that the load stands at `position`.
    pub(super) fn commit(&mut self, position: &impl Serialize) -> Outcome<()> {
        let text =
            serde_json::to_vec(position).map_err(|e| Failure::invalid(format!("cannot note a position: {e}")))?;
        let size = self.batch_size();
        self.batch.put(self.slot.key(), &text);
        self.slot_used = true;
        self.write(size)
    }

    /// Writes the last batch, and forgets where the load stood.
    pub(super) fn finish(&mut self) -> Outcome<()> {
        let size = self.batch_size();
        if self.slot_used {
            self.batch.delete(self.slot.key());
        }
        self.write(size)
    }

    fn batch_size(&self) -> (u64, u64) {
        (self.batch.len() as u64, self.batch.byte_size() as u64)
    }

    fn write(&mut self, (records, bytes): (u64, u64)) -> Outcome<()> {
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            self.db.write(batch, &WriteOptions { durability: self.durability })?;
        }
        self.written = (self.written.0 + records, self.written.1 + bytes);
        Ok(())
    }
}
