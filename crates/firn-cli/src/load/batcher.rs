//! Collects records into batches of at most 1 MiB or 1,000 records. A larger record is written
//! alone.

use super::position::Slot;
use crate::exit::{Failure, Outcome};
use firndb::{Db, Durability, ErrorKind, Options, WriteBatch, WriteOptions};
use serde::Serialize;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64;

const BATCH_BYTES_MAX: u64 = 1 << 20;
const BATCH_RECORDS_MAX: usize = 1000;

pub(super) struct Batcher<'a> {
    db: &'a Db,
    slot: Slot,
    durability: Durability,
    bytes_max: usize,
    batch: WriteBatch,
    /// The hash of each value in the batch by its key, if existing keys matter.
    pending: Option<HashMap<Vec<u8>, u64>>,
    /// True if a position is in the database and has to be deleted at the end.
    slot_used: bool,
    /// Records and bytes written, without those that wait in the batch.
    pub(super) written: (u64, u64),
}

impl<'a> Batcher<'a> {
    pub(super) fn new(db: &'a Db, slot: Slot, options: &Options, slot_used: bool) -> Self {
        Self {
            db,
            slot,
            durability: options.durability,
            // The engine accepts a quarter of the memory limit, less in some profiles.
            bytes_max: BATCH_BYTES_MAX.min(options.memory_limit_bytes / 16) as usize,
            batch: WriteBatch::new(),
            pending: None,
            slot_used,
            written: (0, 0),
        }
    }

    /// Also notes keys, for [`Batcher::would_overwrite`].
    pub(super) fn noting_keys(self) -> Self {
        Self {
            pending: Some(HashMap::new()),
            ..self
        }
    }

    /// True if `key` already has a different value, in the database or in the batch. Always false
    /// unless keys are noted.
    pub(super) fn would_overwrite(&self, key: &[u8], value: &[u8]) -> Outcome<bool> {
        let Some(pending) = &self.pending else {
            return Ok(false);
        };
        if let Some(hash) = pending.get(key) {
            return Ok(*hash != xxh3_64(value));
        }
        Ok(self.db.get(key)?.is_some_and(|there| *there != *value))
    }

    /// True if a record of `bytes` fits into the current batch.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.batch.is_empty()
            || (self.batch.byte_size() + bytes <= self.bytes_max
                && self.batch.len() < BATCH_RECORDS_MAX)
    }

    /// True if a record of `bytes` must be written with [`Batcher::write_alone`].
    pub(super) fn is_large(&self, bytes: usize) -> bool {
        bytes > self.bytes_max
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(key, value);
        if let Some(pending) = &mut self.pending {
            pending.insert(key.to_vec(), xxh3_64(value));
        }
    }

    /// Writes one record. The stored position stays before it, so that an interrupted load writes
    /// it twice at most. The inner error is the engine's reason for refusing the record.
    ///
    /// REQUIRES: the batch is empty.
    pub(super) fn write_alone(&mut self, key: &[u8], value: &[u8]) -> Outcome<Result<(), String>> {
        debug_assert!(self.batch.is_empty());
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        match self
            .db
            .write(&batch, &WriteOptions::new().durability(self.durability))
        {
            Ok(()) => {
                self.written.0 += 1;
                self.written.1 += (key.len() + value.len()) as u64;
                Ok(Ok(()))
            }
            Err(e) if e.kind() == ErrorKind::Invalid => Ok(Err(e.to_string())),
            Err(e) => Err(e.into()),
        }
    }

    /// Writes the batch together with the load's `position`.
    pub(super) fn commit(&mut self, position: &impl Serialize) -> Outcome<()> {
        let text = serde_json::to_vec(position)
            .map_err(|e| Failure::invalid(format!("cannot note a position: {e}")))?;
        let size = self.batch_size();
        self.batch.put(self.slot.key(), &text);
        self.slot_used = true;
        self.write(size)
    }

    /// Writes the last batch and deletes the stored position.
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
        if let Some(pending) = &mut self.pending {
            pending.clear();
        }
        if !batch.is_empty() {
            self.db
                .write(&batch, &WriteOptions::new().durability(self.durability))?;
        }
        self.written = (self.written.0 + records, self.written.1 + bytes);
        Ok(())
    }
}

/// The largest value worth reading for a database with `options`, in bytes. The engine may still
/// refuse it.
pub(crate) fn value_bytes_max(options: &Options) -> usize {
    let quarter = usize::try_from(options.memory_limit_bytes / 4).unwrap_or(usize::MAX);
    quarter.min(firn_base::key::VALUE_BYTES_MAX)
}
