//! fjall: an LSM-tree in Rust, leveled, with one journal for a whole database.
//!
//! | setting | value | why |
//! |---|---|---|
//! | `max_memtable_size` | memory / 8, at most 64 MiB | fjall's default, and FirnDB's share |
//! | `cache_size` | memory less three memtables | as in FirnDB; fjall stalls at four waiting |
//! | compression | as requested, all levels and journal | fjall's own default begins at level 2 |
//! | filters, blocks, pinning | default | 10 bits per key, at level 0 more; 4 KiB |
//! | `worker_threads` | as requested, at least 2 | |
//!
//! There is no direct I/O: tables go through the page cache, which is memory beyond the budget.
//! [`Durability::Process`] is fjall's default, a write to the page cache. [`Durability::Power`]
//! adds `persist`, one sync per write, because fjall has no group commit. fjall exposes no traffic
//! counters.

use super::share::{Share, background_threads, described};
use firn_base::clock::Clock;
use firn_base::{Error, ErrorKind, Result};
use firn_bench::{Change, Compression, Counters, Engine, Setup, Store, directory_bytes};
use firndb::Durability;
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const MEMTABLES: u64 = 3;
const KEYSPACE: &str = "records";
/// The number of consecutive idle checks after which fjall counts as idle. fjall reports running
/// work, not pending work.
const QUIET_LOOKS: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// fjall.
#[derive(Debug)]
pub(crate) struct Fjall;

fn share(setup: &Setup) -> Result<Share> {
    setup.refuse_unknown(&["write_buffer_bytes", "block_cache_bytes"])?;
    Share::of(setup, MEMTABLES, u64::MAX)
}

fn compression(setup: &Setup) -> CompressionType {
    match setup.compression {
        Compression::None => CompressionType::None,
        Compression::Lz4 => CompressionType::Lz4,
    }
}

impl Engine for Fjall {
    fn name(&self) -> String {
        "fjall".to_owned()
    }

    fn about(&self) -> String {
        "fjall 3, leveled compaction".to_owned()
    }

    fn settings(&self, setup: &Setup) -> BTreeMap<String, String> {
        let Ok(share) = share(setup) else {
            return BTreeMap::new();
        };
        described([
            ("max_memtable_size", share.write_buffer_bytes.to_string()),
            ("cache_size", share.cache_bytes.to_string()),
            ("worker_threads", background_threads(setup).to_string()),
            ("compression", setup.compression.to_string()),
            ("direct_io", "false, not supported".to_owned()),
        ])
    }

    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>> {
        let share = share(setup)?;
        let database = Database::builder(&setup.directory)
            .cache_size(share.cache_bytes)
            .journal_compression(compression(setup))
            .worker_threads(background_threads(setup))
            .open()
            .map_err(|error| failed("open", error))?;
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(share.write_buffer_bytes)
                .data_block_compression_policy(CompressionPolicy::all(compression(setup)))
        };
        let records = database
            .keyspace(KEYSPACE, options)
            .map_err(|error| failed("open", error))?;
        Ok(Arc::new(FjallStore {
            records,
            database,
            directory: setup.directory.clone(),
        }))
    }
}

struct FjallStore {
    records: Keyspace,
    database: Database,
    directory: PathBuf,
}

impl FjallStore {
    fn persist(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Power => self
                .database
                .persist(PersistMode::SyncData)
                .map_err(|error| failed("sync", error)),
            Durability::Process => Ok(()),
        }
    }

    /// The number of completed compactions, and true if there is background work.
    fn activity(&self) -> (usize, bool) {
        let is_busy = self.database.active_compactions() > 0
            || self.database.outstanding_flushes() > 0
            || self.records.sealed_memtable_count() > 0;
        (self.database.compactions_completed(), is_busy)
    }
}

impl Store for FjallStore {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.records
            .insert(key, value)
            .map_err(|error| failed("put", error))?;
        self.persist(durability)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self
            .records
            .get(key)
            .map_err(|error| failed("get", error))?;
        if let Some(value) = &value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        // Without a snapshot a scan would see the part of a batch that is being applied.
        let snapshot = self.database.snapshot();
        for entry in snapshot.range(&self.records, from..).take(count) {
            let (key, value) = entry.into_inner().map_err(|error| failed("scan", error))?;
            see(&key, &value);
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.records
            .remove(key)
            .map_err(|error| failed("delete", error))?;
        self.persist(durability)
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        let mut changes = self.database.batch();
        for change in batch {
            match *change {
                Change::Put { key, value } => changes.insert(&self.records, key, value),
                Change::Delete { key } => changes.remove(&self.records, key),
            }
        }
        changes.commit().map_err(|error| failed("write", error))?;
        self.persist(durability)
    }

    fn settle(&self) -> Result<()> {
        self.records
            .rotate_memtable_and_wait()
            .map_err(|error| failed("flush", error))?;
        let (clock, mut quiet_looks, mut before) = (Clock::system(), 0, self.activity());
        while quiet_looks < QUIET_LOOKS {
            clock.sleep(LOOK_EVERY);
            let now = self.activity();
            quiet_looks = if now == before && !now.1 {
                quiet_looks + 1
            } else {
                0
            };
            before = now;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        "fjall 3, one keyspace, buffered I/O".to_owned()
    }

    fn counters(&self) -> Counters {
        Counters {
            space_bytes: directory_bytes(&self.directory),
            ..Counters::default()
        }
    }
}

fn failed(verb: &str, error: fjall::Error) -> Error {
    let io = |error: &std::io::Error| match error.kind() {
        std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
        _ => ErrorKind::Io,
    };
    let kind = match &error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => io(error),
        fjall::Error::Locked => ErrorKind::Locked,
        fjall::Error::Poisoned => ErrorKind::Poisoned,
        fjall::Error::InvalidVersion(_) => ErrorKind::Incompatible,
        fjall::Error::KeyspaceDeleted => ErrorKind::NotFound,
        _ => ErrorKind::Corruption,
    };
    Error::new(kind, format!("fjall cannot {verb}: {error}"))
}
