//! The interface of an open database to the benchmark.

use crate::counters::Counters;
use firn_base::{Error, Result};
use firndb::Durability;
use serde::{Deserialize, Serialize};

/// One change of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Writes `value` at `key`.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Removes `key`. A missing key is not an error.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

impl Change<'_> {
    /// Bytes of its key and value.
    pub fn byte_size(&self) -> usize {
        match self {
            Change::Put { key, value } => key.len() + value.len(),
            Change::Delete { key } => key.len(),
        }
    }
}

/// An ordered key-value store under test. Called by many threads at once.
pub trait Store: Send + Sync + 'static {
    /// Writes `value` at `key`. Returns once it has the requested durability.
    ///
    /// # Errors
    /// The engine's error.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()>;

    /// Passes the value at `key` to `see` and returns true. Returns false, without calling it, if
    /// there is none.
    ///
    /// # Errors
    /// The engine's error.
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes up to `count` entries, starting at `from`, to `see` in key order. An empty `from`
    /// starts at the first key.
    ///
    /// # Errors
    /// The engine's error.
    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Removes `key`. Returns once that has the requested durability. A missing key is not an
    /// error.
    ///
    /// # Errors
    /// The engine's error.
    fn delete(&self, key: &[u8], durability: Durability) -> Result<()>;

    /// Makes the changes of `batch` as one: all or none of them, and a scan sees all or none.
    /// Returns once they have the requested durability.
    ///
    /// REQUIRES: no key occurs twice.
    ///
    /// # Errors
    /// The engine's error.
    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()>;

    /// Flushes memtables in DRAM and waits until no background work is left: to zero compaction
    /// debt.
    ///
    /// # Errors
    /// The engine's error.
    fn settle(&self) -> Result<()>;

    /// Compacts all records by hand, as the engine's own call does. Returns once that is done. By
    /// default there is no such call.
    ///
    /// # Errors
    /// The engine's error; [`firn_base::ErrorKind::Invalid`] if it has no such call here.
    fn compact(&self) -> Result<()> {
        Err(Error::invalid(format!(
            "a compaction by hand is not available here for {}",
            self.describe()
        )))
    }

    /// A short description for reports.
    fn describe(&self) -> String;

    /// The engine's counters since it was opened.
    fn counters(&self) -> Counters;

    /// The steps of its opening, in order; empty if the engine does not report them.
    fn opening_steps(&self) -> Vec<OpeningStep> {
        Vec::new()
    }
}

/// The closing and reopening of a database, including the replay of its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// Seconds to close.
    pub close_seconds: f64,
    /// Seconds to open, until it could be read and written.
    pub seconds: f64,
    /// The steps of opening, if the engine reports them.
    pub steps: Vec<OpeningStep>,
}

/// A step of an opening.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpeningStep {
    /// The engine's name for it.
    pub step: String,
    /// Its duration in seconds.
    pub seconds: f64,
}
