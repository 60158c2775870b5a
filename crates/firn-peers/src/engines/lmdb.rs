//! LMDB: a copy-on-write B-tree in one memory-mapped file, through `heed`.
//!
//! | setting | value | why |
//! |---|---|---|
//! | `map_size` | twice the longest records, in pages, and 1 GiB | address space, not memory |
//! | a transaction | one per put, delete or batch | as for every engine here |
//! | [`Durability::Power`] | LMDB's default | two syncs per transaction |
//! | [`Durability::Process`] | `MDB_NOSYNC` | a write to the page cache |
//!
//! The memory budget cannot be enforced, because LMDB's memory is the page cache, which the kernel
//! controls. LMDB cannot compress, has no direct I/O, takes keys of at most 511 bytes, and has one
//! writer at a time.
//!
//! Invariant: `MDB_NOSYNC`, a flag of the environment, is changed and transactions are written only
//! under one lock, so each transaction has the durability that it asked for. (Without it, writers
//! would queue inside LMDB in the same way.) Power loss after commits without sync can damage an
//! LMDB, including earlier synced commits, so a run should not mix the two.
#![allow(unsafe_code)]

use super::share::described;
use firn_base::sync::Mutex;
use firn_base::{Error, ErrorKind, Result};
use firn_bench::{Change, Compression, Counters, Engine, Setup, Store, directory_bytes};
use firndb::Durability;
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, MdbError, RwTxn};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

const PAGE_BYTES: u64 = 4096;

/// LMDB.
#[derive(Debug)]
pub(crate) struct Lmdb;

fn check(setup: &Setup) -> Result<()> {
    setup.refuse_unknown(&[])?;
    match setup.compression {
        Compression::None => Ok(()),
        Compression::Lz4 => Err(Error::invalid(
            "lmdb cannot compress: choose the compression none",
        )),
    }
}

fn map_bytes(setup: &Setup) -> u64 {
    // A long value has pages of its own. A short one shares them, which rounding up more than
    // covers.
    let record = (setup.key_bytes_max + setup.value_bytes_max) as u64;
    let record = if record > PAGE_BYTES / 4 {
        record.next_multiple_of(PAGE_BYTES)
    } else {
        record * 2
    };
    let all = setup
        .records_max
        .saturating_mul(record)
        .saturating_mul(2)
        .saturating_add(1 << 30);
    all / PAGE_BYTES * PAGE_BYTES
}

impl Engine for Lmdb {
    fn name(&self) -> String {
        "lmdb".to_owned()
    }

    fn about(&self) -> String {
        "LMDB 0.9 (heed 0.23), copy-on-write B-tree in a memory map".to_owned()
    }

    fn settings(&self, setup: &Setup) -> BTreeMap<String, String> {
        described([
            ("map_size", map_bytes(setup).to_string()),
            ("memory", "the page cache, no limit".to_owned()),
            ("process durability", "MDB_NOSYNC".to_owned()),
            ("compression", "none, not supported".to_owned()),
            ("direct_io", "false, not supported".to_owned()),
        ])
    }

    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>> {
        check(setup)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(usize::try_from(map_bytes(setup)).unwrap_or(usize::MAX));
        // SAFETY: no one else changes the file while it is mapped, because the directory belongs to
        // this run, as `Engine::open` requires; `tests/engines.rs`.
        let env =
            unsafe { options.open(&setup.directory) }.map_err(|error| failed("open", error))?;
        if setup.key_bytes_max > env.max_key_size() {
            return Err(Error::invalid(format!(
                "lmdb takes keys of at most {} bytes",
                env.max_key_size()
            )));
        }
        let transaction = env.write_txn().map_err(|error| failed("begin", error))?;
        let made = env.create_databases_and_commit(transaction, |opener, transaction| {
            opener
                .create_database(transaction, None)
                .map(CommitOrAbort::<_, Infallible>::Commit)
        });
        let records = match made.map_err(|error| failed("open", error))? {
            CommitOrAbort::Commit(records) => records,
            CommitOrAbort::Abort(never) => match never {},
        };
        let is_synced = Mutex::new(true);
        Ok(Arc::new(LmdbStore {
            env,
            records,
            is_synced,
            directory: setup.directory.clone(),
        }))
    }
}

struct LmdbStore {
    env: Env,
    records: Database<'static, Bytes, Bytes>,
    /// True if commits sync now: the state of the environment's flag. Locked for the duration of
    /// each write.
    is_synced: Mutex<bool>,
    directory: PathBuf,
}

impl LmdbStore {
    fn transact(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut RwTxn<'_>) -> heed::Result<()>,
    ) -> Result<()> {
        let mut is_synced = self.is_synced.lock();
        let wanted = durability == Durability::Power;
        if *is_synced != wanted {
            let mode = if wanted {
                FlagSetMode::Disable
            } else {
                FlagSetMode::Enable
            };
            // SAFETY: the flag is changed only here, under the lock (this file's invariant), and
            // `NO_SYNC` endangers no memory; `engines_do_as_the_model` in `tests/engines.rs`
            // switches back and forth.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode) }
                .map_err(|error| failed("set flags", error))?;
            *is_synced = wanted;
        }
        let mut transaction = self
            .env
            .write_txn()
            .map_err(|error| failed("begin", error))?;
        work(&mut transaction).map_err(|error| failed("write", error))?;
        transaction
            .commit()
            .map_err(|error| failed("commit", error))
    }
}

impl Store for LmdbStore {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.transact(durability, |transaction| {
            self.records.put(transaction, key, value)
        })
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self
            .env
            .read_txn()
            .map_err(|error| failed("begin", error))?;
        let value = self
            .records
            .get(&transaction, key)
            .map_err(|error| failed("get", error))?;
        if let Some(value) = value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let transaction = self
            .env
            .read_txn()
            .map_err(|error| failed("begin", error))?;
        // LMDB has no empty key, not even as a bound.
        let lower = if from.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Included(from)
        };
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (lower, Bound::Unbounded);
        let entries = self
            .records
            .range(&transaction, &range)
            .map_err(|error| failed("scan", error))?;
        for entry in entries.take(count) {
            let (key, value) = entry.map_err(|error| failed("scan", error))?;
            see(key, value);
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.transact(durability, |transaction| {
            self.records.delete(transaction, key).map(drop)
        })
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        self.transact(durability, |transaction| {
            batch.iter().try_for_each(|change| match *change {
                Change::Put { key, value } => self.records.put(transaction, key, value),
                Change::Delete { key } => self.records.delete(transaction, key).map(drop),
            })
        })
    }

    /// Runs the sync that [`Durability::Process`] left out. There is no background work.
    fn settle(&self) -> Result<()> {
        self.env.force_sync().map_err(|error| failed("sync", error))
    }

    fn describe(&self) -> String {
        "LMDB, one memory-mapped file, one writer at a time".to_owned()
    }

    fn counters(&self) -> Counters {
        Counters {
            space_bytes: directory_bytes(&self.directory),
            ..Counters::default()
        }
    }
}

fn failed(verb: &str, error: heed::Error) -> Error {
    let kind = match &error {
        heed::Error::Mdb(MdbError::MapFull) => ErrorKind::NoSpace,
        heed::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            ErrorKind::NoSpace
        }
        heed::Error::Mdb(MdbError::Corrupted | MdbError::PageNotFound | MdbError::Invalid) => {
            ErrorKind::Corruption
        }
        heed::Error::Mdb(MdbError::VersionMismatch) => ErrorKind::Incompatible,
        heed::Error::Mdb(MdbError::BadValSize) => ErrorKind::Invalid,
        heed::Error::EnvAlreadyOpened => ErrorKind::Locked,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("lmdb cannot {verb}: {error}"))
}
