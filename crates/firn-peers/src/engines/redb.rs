//! redb: a copy-on-write B-tree in one file, in Rust.
//!
//! | setting | value | why |
//! |---|---|---|
//! | `cache_size` | all memory | its only memory; no memtables |
//! | a transaction | one per put, delete or batch | as for every engine here |
//! | [`Durability::Power`] | `Durability::Immediate` | a sync per transaction |
//! | [`Durability::Process`] | `Durability::None`, and `Immediate` for every 16 MiB | see below |
//!
//! redb has nothing between "on the medium" and "in this process": a commit with `Durability::None`
//! is lost with the process. So [`Durability::Process`] promises less here than it should, for at
//! most the last 16 MiB. The alternative would be a sync per put, which is not requested either.
//! Pages freed by such commits are not reused before an `Immediate` one, hence one for every 16
//! MiB. redb cannot compress and has no direct I/O; one writer runs at a time. It counts no
//! traffic.

use super::share::described;
use firn_base::sync::Mutex;
use firn_base::{Error, ErrorKind, Result};
use firn_bench::{Change, Compression, Counters, Engine, Setup, Store, directory_bytes};
use firndb::Durability;
use redb::{Database, ReadableDatabase, Table, TableDefinition};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const FILE: &str = "data.redb";
const UNSYNCED_BYTES_MAX: u64 = 16 << 20;

/// redb.
#[derive(Debug)]
pub(crate) struct Redb;

fn check(setup: &Setup) -> Result<()> {
    setup.refuse_unknown(&[])?;
    match setup.compression {
        Compression::None => Ok(()),
        Compression::Lz4 => Err(Error::invalid(
            "redb cannot compress: choose the compression none",
        )),
    }
}

impl Engine for Redb {
    fn name(&self) -> String {
        "redb".to_owned()
    }

    fn about(&self) -> String {
        "redb 4, copy-on-write B-tree".to_owned()
    }

    fn settings(&self, setup: &Setup) -> BTreeMap<String, String> {
        described([
            ("cache_size", setup.memory_bytes.to_string()),
            (
                "process durability",
                format!("none, immediate for every {UNSYNCED_BYTES_MAX} bytes"),
            ),
            ("compression", "none, not supported".to_owned()),
            ("direct_io", "false, not supported".to_owned()),
        ])
    }

    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>> {
        check(setup)?;
        let cache_bytes = usize::try_from(setup.memory_bytes).unwrap_or(usize::MAX);
        let path = setup.directory.join(FILE);
        let database = Database::builder()
            .set_cache_size(cache_bytes)
            .create(path)
            .map_err(failed("open"))?;
        let store = RedbStore {
            database,
            unsynced_bytes: Mutex::new(0),
            directory: setup.directory.clone(),
        };
        // Creates the table, so that reads find it.
        store.transact(0, Durability::Power, |_| Ok(()))?;
        Ok(Arc::new(store))
    }
}

struct RedbStore {
    database: Database,
    /// Bytes committed since the last commit that is on the medium. Only changed within a
    /// transaction.
    unsynced_bytes: Mutex<u64>,
    directory: PathBuf,
}

impl RedbStore {
    /// Runs one transaction that writes about `bytes`.
    fn transact(
        &self,
        bytes: u64,
        durability: Durability,
        work: impl FnOnce(&mut Table<'_, &[u8], &[u8]>) -> Result<(), redb::StorageError>,
    ) -> Result<()> {
        let mut transaction = self.database.begin_write().map_err(failed("begin"))?;
        let mut unsynced = self.unsynced_bytes.lock();
        *unsynced += bytes;
        let is_synced = durability == Durability::Power || *unsynced > UNSYNCED_BYTES_MAX;
        let theirs = if is_synced {
            redb::Durability::Immediate
        } else {
            redb::Durability::None
        };
        transaction
            .set_durability(theirs)
            .map_err(failed("set durability"))?;
        work(
            &mut transaction
                .open_table(RECORDS)
                .map_err(failed("open the table"))?,
        )
        .map_err(failed("write"))?;
        transaction.commit().map_err(failed("commit"))?;
        if is_synced {
            *unsynced = 0;
        }
        Ok(())
    }

    fn read<T>(
        &self,
        work: impl FnOnce(
            redb::ReadOnlyTable<&'static [u8], &'static [u8]>,
        ) -> Result<T, redb::StorageError>,
    ) -> Result<T> {
        let transaction = self.database.begin_read().map_err(failed("begin"))?;
        work(
            transaction
                .open_table(RECORDS)
                .map_err(failed("open the table"))?,
        )
        .map_err(failed("read"))
    }
}

impl Store for RedbStore {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        let bytes = (key.len() + value.len()) as u64;
        self.transact(bytes, durability, |table| {
            table.insert(key, value).map(drop)
        })
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.read(|table| {
            let value = table.get(key)?;
            if let Some(value) = &value {
                see(value.value());
            }
            Ok(value.is_some())
        })
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.read(|table| {
            for entry in table.range(from..)?.take(count) {
                let (key, value) = entry?;
                see(key.value(), value.value());
            }
            Ok(())
        })
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.transact(key.len() as u64, durability, |table| {
            table.remove(key).map(drop)
        })
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        let bytes: usize = batch.iter().map(Change::byte_size).sum();
        self.transact(bytes as u64, durability, |table| {
            for change in batch {
                match *change {
                    Change::Put { key, value } => drop(table.insert(key, value)?),
                    Change::Delete { key } => drop(table.remove(key)?),
                }
            }
            Ok(())
        })
    }

    /// Runs the sync that [`Durability::Process`] left out. There is no background work.
    fn settle(&self) -> Result<()> {
        self.transact(0, Durability::Power, |_| Ok(()))
    }

    fn describe(&self) -> String {
        "redb 4, one file, one writer at a time".to_owned()
    }

    fn counters(&self) -> Counters {
        Counters {
            space_bytes: directory_bytes(&self.directory),
            ..Counters::default()
        }
    }
}

fn failed<E: Into<redb::Error>>(verb: &str) -> impl FnOnce(E) -> Error {
    move |error| {
        let error = error.into();
        let kind = match &error {
            redb::Error::DatabaseAlreadyOpen => ErrorKind::Locked,
            redb::Error::Corrupted(_) => ErrorKind::Corruption,
            redb::Error::UpgradeRequired(_) => ErrorKind::Incompatible,
            redb::Error::ValueTooLarge(_) => ErrorKind::Invalid,
            redb::Error::PreviousIo => ErrorKind::Poisoned,
            redb::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                ErrorKind::NoSpace
            }
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("redb cannot {verb}: {error}"))
    }
}
