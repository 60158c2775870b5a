//! What stands beside each other in a run: engines, each told the same and each saying what it made of it.

use crate::store::Store;
use firn_base::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// A key-value store that can be measured. What it opens is used by one process, and by many threads of it.
pub trait Engine: Sync {
    /// The name in `--engines` and in reports.
    fn name(&self) -> String;

    /// What it is, in one line.
    fn about(&self) -> String;

    /// What it makes of `setup`, option by option, for reports.
    fn settings(&self, setup: &Setup) -> BTreeMap<String, String>;

    /// Opens the database in `setup.directory`, or creates it there.
    ///
    /// # Errors
    /// What the engine says; [`firn_base::ErrorKind::Invalid`] for a setup that it cannot follow.
    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>>;
}

/// What every engine of a run is given alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Where its files go. It is there, and empty before the database is created.
    pub directory: PathBuf,
    /// Bytes of DRAM for write buffers, caches, filters and indexes together.
    pub memory_bytes: u64,
    /// How tables are compressed, where the engine can.
    pub compression: Compression,
    /// Whether tables pass the page cache by, where the engine can.
    pub direct_io: bool,
    /// Threads for flushes and compactions.
    pub background_threads: usize,
    /// Records that it will hold at most, for engines that must know.
    pub records_max: u64,
    /// Bytes of the longest key.
    pub key_bytes_max: usize,
    /// Bytes of the longest value.
    pub value_bytes_max: usize,
    /// Persistent memory, for engines that use it.
    pub pm: Option<PmBudget>,
    /// What is said to this engine alone, option by option.
    pub extra: BTreeMap<String, String>,
}

impl Setup {
    /// The option `name` that is said to this engine alone.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if it is there and cannot be read.
    pub fn extra<T: FromStr<Err: fmt::Display>>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.extra.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|e| Error::invalid(format!("option {name}={text}: {e}")))
    }

    /// Refuses what is said to this engine alone and not in `known`.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] naming what is known.
    pub fn refuse_unknown(&self, known: &[&str]) -> Result<()> {
        match self.extra.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) if known.is_empty() => Err(Error::invalid(format!("option {name}: this engine has none"))),
            Some(name) => Err(Error::invalid(format!("option {name} is not known: there are {}", known.join(", ")))),
            None => Ok(()),
        }
    }
}

/// Persistent memory that an engine may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmBudget {
    /// A directory on it: a DAX mount, or one in `/dev/shm` that stands for one.
    pub directory: PathBuf,
    /// Bytes of it.
    pub bytes: u64,
}

/// Compression of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// None.
    None,
    /// LZ4.
    Lz4,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
        })
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Compression::None),
            "lz4" => Ok(Compression::Lz4),
            _ => Err(Error::invalid(format!("no compression is called {text}: there are none and lz4"))),
        }
    }
}
