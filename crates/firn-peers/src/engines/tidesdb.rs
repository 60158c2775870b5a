//! TidesDB: an LSM-tree in C, whose tables are B-trees, with one log for a whole database.
//!
//! | setting | value | why |
//! |---|---|---|
//! | `memtable_write_buffer_size` | 3/5 of FirnDB's | five take the memory of FirnDB's three |
//! | `memtable_l0_queue_stall_threshold` | 4 waiting | at less, one that waits delays every write |
//! | `block_cache_size` | memory less five memtables | filters' bits are in it, as blocks are |
//! | `btree_klog_block_size` | 4 KiB | the default, and FirnDB's |
//! | `bloom_fpr` | 0.01 | the default: 10 bits per key |
//! | `keep_values_inline` | true, see below; an option is a threshold | the default is 1 KiB |
//! | compression | as requested, on all levels | |
//! | threads | one for flushes, all others for compactions | as many as requested, at least 2 |
//! | open files | the limit is raised to 4,096 | with 1,024 tables as by default |
//! | `memtable_sync_mode` | by the run's durability, see below | |
//!
//! TidesDB chooses the durability of commits once, at the open. If most writes of a run ask for
//! [`Durability::Power`], it is `Full`, a sync per commit, and no write is weaker. Otherwise it is
//! `Interval`, a write to the page cache, and [`Durability::Power`] adds a sync of the log. Its
//! periodic sync is put off for a day, because [`Durability::Process`] asks for none. Its default,
//! `None`, would lose acknowledged writes with the process.
//!
//! By default values of 1 KiB and more go to a log of values, which TidesDB syncs at each write in
//! both modes. That is more than [`Durability::Process`] promises. So values stay in the tables;
//! `value_separation_threshold` brings the log back.
//!
//! Every operation is a transaction, because TidesDB has no other. Gets and writes take its default
//! isolation, read committed; scans a snapshot, because a scan must see a batch whole. An operation
//! that meets `Locked` is repeated, as TidesDB's header demands. In both modes a commit waits for
//! the thread that writes the log, which takes all that wait at once.
//!
//! There is no direct I/O. Reads of tables by users are not counted.

use super::share::{Share, background_threads, described};
use firn_base::clock::Clock;
use firn_base::{Error, ErrorKind, Result};
use firn_bench::{Change, Compression, Counters, Engine, Setup, Store, Traffic, directory_bytes};
use firndb::Durability;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidesdb::{
    ColumnFamily, ColumnFamilyConfig, CompressionAlgorithm, Config, DbStats, ErrorCode,
    IsolationLevel, LogLevel, SyncMode, TIDESDB_VERSION, TidesDB,
};

const MEMTABLES: u64 = 5;
/// Memtables that wait when writes stop: all but the one that fills.
const WAITING_MAX: i32 = 4;
const FAMILY: &str = "records";
const OPEN_FILES: i64 = 4096;
const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;
/// How long an operation is repeated before its `Locked` counts as a failure.
const PATIENCE: Duration = Duration::from_secs(60);
const REPEAT_EVERY: Duration = Duration::from_micros(50);
/// The number of consecutive idle checks after which TidesDB counts as idle.
const QUIET_LOOKS: u32 = 40;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// TidesDB.
#[derive(Debug)]
pub(crate) struct Tides;

/// The settings derived from a setup.
struct Choice {
    share: Share,
    /// `None` keeps all values in the tables.
    value_separation_threshold: Option<usize>,
    compaction_threads: i32,
    sync_mode: SyncMode,
    compression: Compression,
}

impl Choice {
    fn of(setup: &Setup) -> Result<Self> {
        setup.refuse_unknown(&[
            "write_buffer_bytes",
            "block_cache_bytes",
            "value_separation_threshold",
        ])?;
        let threads = background_threads(setup) - 1;
        Ok(Self {
            share: Share::of(
                setup,
                MEMTABLES,
                Share::memtable_bytes(setup) * 3 / MEMTABLES,
            )?,
            value_separation_threshold: setup.extra("value_separation_threshold")?,
            compaction_threads: i32::try_from(threads).unwrap_or(i32::MAX),
            sync_mode: match setup.durability {
                Durability::Power => SyncMode::Full,
                Durability::Process => SyncMode::Interval,
            },
            compression: setup.compression,
        })
    }

    fn database(&self, setup: &Setup) -> Config {
        let default = Config::default().value_separation_threshold;
        Config::new(&setup.directory)
            .log_to_file(true)
            .log_level(LogLevel::Warn)
            .num_flush_threads(1)
            .num_compaction_threads(self.compaction_threads)
            .block_cache_size(self.share.cache_bytes as usize)
            .memtable_write_buffer_size(self.share.write_buffer_bytes as usize)
            .memtable_l0_queue_stall_threshold(WAITING_MAX)
            .value_separation_threshold(self.value_separation_threshold.unwrap_or(default))
            .memtable_sync_mode(self.sync_mode)
            .memtable_sync_interval_us(DAY_US)
    }

    fn family(&self) -> ColumnFamilyConfig {
        let compression = match self.compression {
            Compression::None => CompressionAlgorithm::None,
            Compression::Lz4 => CompressionAlgorithm::Lz4,
        };
        ColumnFamilyConfig::default()
            .compression_algorithm(compression)
            .keep_values_inline(self.value_separation_threshold.is_none())
    }
}

impl Engine for Tides {
    fn name(&self) -> String {
        "tidesdb".to_owned()
    }

    fn about(&self) -> String {
        format!("TidesDB {TIDESDB_VERSION}, leveled compaction, tables as B-trees")
    }

    fn settings(&self, setup: &Setup) -> BTreeMap<String, String> {
        let Ok(choice) = Choice::of(setup) else {
            return BTreeMap::new();
        };
        let family = choice.family();
        let separated = choice
            .value_separation_threshold
            .map_or("none".to_owned(), |bytes| format!("from {bytes} bytes"));
        described([
            (
                "memtable_write_buffer_size",
                choice.share.write_buffer_bytes.to_string(),
            ),
            ("memtable_l0_queue_stall_threshold", WAITING_MAX.to_string()),
            ("block_cache_size", choice.share.cache_bytes.to_string()),
            (
                "btree_klog_block_size",
                family.btree_klog_block_size.to_string(),
            ),
            ("bloom_fpr", family.bloom_fpr.to_string()),
            ("values in a log of their own", separated),
            ("num_flush_threads", "1".to_owned()),
            (
                "num_compaction_threads",
                choice.compaction_threads.to_string(),
            ),
            ("memtable_sync_mode", format!("{:?}", choice.sync_mode)),
            ("compression", choice.compression.to_string()),
            ("direct_io", "false, not supported".to_owned()),
        ])
    }

    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>> {
        let choice = Choice::of(setup)?;
        tidesdb::raise_open_file_limit(OPEN_FILES);
        let database = TidesDB::open(choice.database(setup)).map_err(failed("open"))?;
        let names = database.list_column_families().map_err(failed("open"))?;
        if !names.iter().any(|name| name == FAMILY) {
            database
                .create_column_family(FAMILY, choice.family())
                .map_err(failed("open"))?;
        }
        let opened = Opened::try_new(database, |database| database.get_column_family(FAMILY))
            .map_err(failed("open"))?;
        Ok(Arc::new(TidesStore {
            opened,
            sync_mode: choice.sync_mode,
            directory: setup.directory.clone(),
        }))
    }
}

self_cell::self_cell!(
    /// A database, and the handle of its one family, which borrows it.
    struct Opened {
        owner: TidesDB,
        #[covariant]
        dependent: ColumnFamily,
    }
);

struct TidesStore {
    opened: Opened,
    sync_mode: SyncMode,
    directory: PathBuf,
}

impl TidesStore {
    fn database(&self) -> &TidesDB {
        self.opened.borrow_owner()
    }

    fn family(&self) -> &ColumnFamily<'_> {
        self.opened.borrow_dependent()
    }

    fn commit(&self, batch: &[Change<'_>], durability: Durability) -> tidesdb::Result<()> {
        patient(|| {
            let mut transaction = self.database().begin_transaction()?;
            for change in batch {
                match *change {
                    Change::Put { key, value } => transaction.put(self.family(), key, value)?,
                    Change::Delete { key } => transaction.delete(self.family(), key)?,
                }
            }
            transaction.commit()
        })?;
        match (durability, self.sync_mode) {
            (Durability::Power, SyncMode::Interval | SyncMode::None) => self.database().sync_wal(),
            _ => Ok(()),
        }
    }

    /// Counters that stand still while TidesDB is idle, and true if there is background work.
    fn activity(&self) -> Result<([u64; 4], bool)> {
        let stats = self.stats()?;
        let done = [
            stats.flush_count,
            stats.compaction_count,
            stats.compaction_bytes_written,
            stats.vlog_bytes_written,
        ];
        let is_busy = stats.is_flushing
            || stats.immutable_memtable_count > 0
            || stats.compaction_pending_count > 0
            || self.family().is_compacting();
        Ok((done, is_busy))
    }

    fn stats(&self) -> Result<DbStats> {
        self.database().get_db_stats().map_err(failed("count"))
    }
}

impl Store for TidesStore {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.commit(&[Change::Put { key, value }], durability)
            .map_err(failed("put"))
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = patient(|| self.database().begin_transaction()?.get(self.family(), key));
        match found {
            Ok(value) => {
                see(&value);
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(failed("get")(error)),
        }
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut scan = || {
            let level = IsolationLevel::Snapshot;
            let transaction = self.database().begin_transaction_with_isolation(level)?;
            let mut iter = patient(|| transaction.new_iterator(self.family()))?;
            patient(|| match from {
                [] => iter.seek_to_first(),
                _ => iter.seek(from),
            })?;
            for _ in 0..count {
                if !iter.is_valid() {
                    break;
                }
                let (key, value) = patient(|| iter.key_value())?;
                see(&key, &value);
                patient(|| iter.next())?;
            }
            Ok(())
        };
        scan().map_err(failed("scan"))
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.commit(&[Change::Delete { key }], durability)
            .map_err(failed("delete"))
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        self.commit(batch, durability).map_err(failed("write"))
    }

    fn settle(&self) -> Result<()> {
        patient(|| self.database().flush_memtable()).map_err(failed("flush"))?;
        let (clock, mut quiet_looks, mut before) = (Clock::system(), 0, self.activity()?);
        while quiet_looks < QUIET_LOOKS {
            clock.sleep(LOOK_EVERY);
            let now = self.activity()?;
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
        format!("TidesDB {TIDESDB_VERSION}, one column family, buffered I/O")
    }

    fn counters(&self) -> Counters {
        let space_bytes = directory_bytes(&self.directory);
        let Ok(stats) = self.stats() else {
            return Counters {
                space_bytes,
                ..Counters::default()
            };
        };
        let traffic = |cause: &str, written_bytes, read_bytes| Traffic {
            medium: "ssd".to_owned(),
            cause: cause.to_owned(),
            written_bytes,
            read_bytes,
            reads: None,
        };
        Counters {
            traffic: vec![
                traffic("log", stats.wal_bytes_written, 0),
                traffic("flush", stats.flush_bytes_written, 0),
                traffic(
                    "compaction",
                    stats.compaction_bytes_written,
                    stats.compaction_bytes_read,
                ),
                traffic("values", stats.vlog_bytes_written, 0),
            ],
            stall_seconds: Some(stats.write_stall_us as f64 / 1e6),
            cache_misses: self
                .database()
                .get_cache_stats()
                .ok()
                .map(|cache| cache.misses),
            space_bytes,
            ..Counters::default()
        }
    }
}

/// Repeats `act` while it meets [`ErrorCode::Locked`], up to [`PATIENCE`].
fn patient<T>(mut act: impl FnMut() -> tidesdb::Result<T>) -> tidesdb::Result<T> {
    let clock = Clock::system();
    let mut since_ns = None;
    loop {
        match act() {
            Err(error) if error.is_locked() => {
                let now_ns = clock.now_ns();
                if now_ns - *since_ns.get_or_insert(now_ns) > PATIENCE.as_nanos() as u64 {
                    return Err(error);
                }
                clock.sleep(REPEAT_EVERY);
            }
            result => return result,
        }
    }
}

fn failed(verb: &str) -> impl FnOnce(tidesdb::Error) -> Error {
    move |error| {
        let kind = match error.code() {
            Some(ErrorCode::NotFound) => ErrorKind::NotFound,
            Some(ErrorCode::Locked) => ErrorKind::Locked,
            Some(ErrorCode::Corruption) => ErrorKind::Corruption,
            Some(ErrorCode::NoSpace) => ErrorKind::NoSpace,
            Some(ErrorCode::InvalidArgs | ErrorCode::TooLarge) => ErrorKind::Invalid,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("tidesdb cannot {verb}: {error}"))
    }
}
