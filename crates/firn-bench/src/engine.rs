//! Engines that are compared in a run: each gets the same setup and reports the settings it
//! derived.

use crate::store::Store;
use firn_base::{Error, Result};
use firndb::Durability;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// A key-value store that can be measured. One process uses an open database, with many threads.
pub trait Engine: Sync {
    /// The name in `--engines` and in reports.
    fn name(&self) -> String;

    /// A one-line description.
    fn about(&self) -> String;

    /// The settings it derives from `setup`, option by option, for reports.
    fn settings(&self, setup: &Setup) -> BTreeMap<String, String>;

    /// Opens the database in `setup.directory`, or creates it there.
    ///
    /// # Errors
    /// The engine's error; [`firn_base::ErrorKind::Invalid`] for a setup that it cannot implement.
    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>>;
}

/// The setup that every engine of a run gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Directory for its files. It exists, and is empty before the database is created.
    pub directory: PathBuf,
    /// Total DRAM for write buffers, caches, filters and indexes, in bytes.
    pub memory_bytes: u64,
    /// Compression of tables, if the engine supports it.
    pub compression: Compression,
    /// True if tables bypass the page cache, if the engine supports it.
    pub direct_io: bool,
    /// Threads for flushes and compactions.
    pub background_threads: usize,
    /// The durability that most writes ask for, for engines that choose the log's place by it.
    #[serde(with = "crate::as_word", default)]
    pub durability: Durability,
    /// Maximum number of records, for engines that must know it.
    pub records_max: u64,
    /// Length of the longest key, in bytes.
    pub key_bytes_max: usize,
    /// Length of the longest value, in bytes.
    pub value_bytes_max: usize,
    /// Persistent memory, for engines that use it.
    pub pm: Option<PmBudget>,
    /// Options for this engine only.
    pub extra: BTreeMap<String, String>,
}

impl Setup {
    /// The value of option `name` among those for this engine only.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if it is set but cannot be parsed.
    pub fn extra<T: FromStr<Err: fmt::Display>>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.extra.get(name) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|e| Error::invalid(format!("option {name}={text}: {e}")))
    }

    /// Refuses options for this engine only that are not in `known`.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] with the known names.
    pub fn refuse_unknown(&self, known: &[&str]) -> Result<()> {
        match self
            .extra
            .keys()
            .find(|name| !known.contains(&name.as_str()))
        {
            Some(name) if known.is_empty() => Err(Error::invalid(format!(
                "option {name}: this engine has none"
            ))),
            Some(name) => Err(Error::invalid(format!(
                "option {name} is not known: there are {}",
                known.join(", ")
            ))),
            None => Ok(()),
        }
    }
}

/// Persistent memory that an engine may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmBudget {
    /// A directory on it: a DAX mount, or a directory in `/dev/shm` as a substitute.
    pub directory: PathBuf,
    /// The amount, in bytes.
    pub bytes: u64,
}

/// Compression of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
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
            _ => Err(Error::invalid(format!(
                "no compression is called {text}: there are none and lz4"
            ))),
        }
    }
}
