//! The position of a load, stored in the database under a reserved key.
//!
//! 1. The position is written in the same batch as the last record that it counts, so every record
//!    before it is loaded.
//! 2. It is deleted together with the last record of the load. If it exists, the load is not
//!    complete.

use crate::exit::{Failure, Outcome};
use crate::reserved;
use firndb::Db;
use serde::de::DeserializeOwned;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// The reserved key of one load.
#[derive(Debug)]
pub(super) struct Slot {
    key: Vec<u8>,
}

impl Slot {
    /// The slot for loading `source` (an absolute path, or `-`) in the way described by `mode`.
    pub(super) fn new(source: &Path, mode: &str) -> Self {
        let mut name = mode.as_bytes().to_vec();
        name.push(0);
        name.extend_from_slice(source.as_os_str().as_bytes());
        let mut key = reserved::PREFIX.to_vec();
        key.extend_from_slice(format!("load/{:016x}", xxh3_64(&name)).as_bytes());
        Self { key }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The position stored by an earlier run, if that was interrupted.
    pub(super) fn read<P: DeserializeOwned>(&self, db: &Db) -> Outcome<Option<P>> {
        let Some(value) = db.get(&self.key)? else {
            return Ok(None);
        };
        serde_json::from_slice(&value).map(Some).map_err(|e| {
            Failure::invalid(format!(
                "the position that an earlier load left cannot be read ({e}): use --restart"
            ))
        })
    }
}
