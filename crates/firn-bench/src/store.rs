//! What a benchmark needs of an engine, and FirnDB as one.

use crate::machine::directory_bytes;
use firn_base::Result;
use firndb::{Db, Durability, ReadOptions, WriteOptions};
use serde::Serialize;
use std::path::PathBuf;

/// An ordered key-value store under test. Called by many threads at once.
pub trait Store: Send + Sync + 'static {
    /// Writes `value` at `key`; returns when it is as durable as asked.
    ///
    /// # Errors
    /// What the engine says.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()>;

    /// Hands the value at `key` to `see`. False, without calling it, if there is none.
    ///
    /// # Errors
    /// What the engine says.
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Hands up to `count` entries from `from` on to `see`, in key order.
    ///
    /// # Errors
    /// What the engine says.
    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Waits until no background work is left.
    ///
    /// # Errors
    /// What the engine says.
    fn settle(&self) -> Result<()>;

    /// What it is, in a few words, for reports.
    fn describe(&self) -> String;

    /// What the engine has counted since it was opened.
    fn counters(&self) -> Counters;
}

/// What is counted in an engine: totals since it was opened, but for the space, which is now.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Counters {
    /// Bytes written to storage, whatever for.
    pub written_bytes: u64,
    /// Bytes read from storage, whatever for.
    pub read_bytes: u64,
    /// Seconds that writers were held back.
    pub stall_seconds: f64,
    /// Bytes of storage in use.
    pub space_bytes: u64,
}

/// A FirnDB database under test.
pub struct FirnStore {
    db: Db,
    directory: PathBuf,
}

impl FirnStore {
    /// `db`, open in `directory`, which stays the caller's too.
    pub fn new(db: &Db, directory: impl Into<PathBuf>) -> Self {
        Self { db: db.clone(), directory: directory.into() }
    }
}

impl Store for FirnStore {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.db.put_with(key, value, &WriteOptions { durability })
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get(key)?;
        if let Some(value) = &value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut iter = self.db.iter_with(ReadOptions { lower: Some(from.to_vec()), ..ReadOptions::default() })?;
        iter.first()?;
        for _ in 0..count {
            if !iter.valid() {
                break;
            }
            see(iter.key(), iter.value());
            iter.next()?;
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        self.db.wait_idle()
    }

    fn describe(&self) -> String {
        let stats = self.db.stats();
        format!("FirnDB {}, log: {}, tables: {}", stats.profile, stats.log, stats.io)
    }

    fn counters(&self) -> Counters {
        let stats = self.db.stats();
        Counters {
            written_bytes: stats.ssd_written_bytes,
            read_bytes: stats.ssd.iter().map(|cause| cause.read_bytes).sum(),
            stall_seconds: stats.stalls.seconds.iter().map(|(_, seconds)| seconds).sum(),
            space_bytes: directory_bytes(&self.directory),
        }
    }
}
