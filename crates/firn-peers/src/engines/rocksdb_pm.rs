//! RocksDB with its first levels on persistent memory, by `db_paths`, as in the papers that compare
//! with it.
//!
//! The log and the MANIFEST stay on the SSD. Tables of level 0, and of each further level whose
//! target size still fits the budget of persistent memory, go to `pm.directory/rocksdb`, which must
//! be on a file system: a DAX mount, or one in `/dev/shm` that stands for one. In addition to
//! `rocksdb`'s settings:
//!
//! | setting | value | why |
//! |---|---|---|
//! | `db_paths` | persistent memory up to its budget, then the SSD | the only way to place levels |
//! | dynamic level sizes | off | with several paths RocksDB uses static sizes |
//! | `max_bytes_for_level_base` | budget / 4, at most 256 MiB | fits levels 0, 1 and an output |
//! | `write_buffer_size` | also at most budget / 16 | level 0 must be able to hold several |
//! | level 0 stop | tables in half of the budget, 8 to 36 | a flush that does not fit is an error |
//! | level 0 slowdown | 20/36 of the stop | the proportion of the defaults |
//! | direct I/O | as requested | `/dev/shm` refuses it, a file system mounted from there does not |
//!
//! RocksDB counts its writes by cause and not by path. Flushes always write to the first path, so
//! they count as `pm`. If that path has a block device of its own, the device's writes beyond the
//! flushes are those of compactions there (with a few pages of the file system's own), and the
//! remaining compaction writes are the SSD's. Otherwise compaction writes count as `ssd+pm`, as all
//! reads of tables do. The reported space is that of the SSD.

use super::rocksdb::{Choice, FastPath, RocksDbStore, path};
use firn_base::{Error, Result};
use firn_bench::{Engine, PmBudget, Setup, Store};
use rocksdb::Options;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const STOP_TABLES_DEFAULT: u64 = 36;
const SLOW_TABLES_DEFAULT: u64 = 20;
const STOP_TABLES_MIN: u64 = 8;

/// RocksDB on SSD and persistent memory.
#[derive(Debug)]
pub(crate) struct RocksDbPm;

impl Engine for RocksDbPm {
    fn name(&self) -> String {
        "rocksdb-pm".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "{}, first levels on persistent memory by db_paths",
            super::rocksdb::NAME
        )
    }

    fn settings(&self, setup: &Setup) -> BTreeMap<String, String> {
        Tiers::of(setup)
            .map(|tiers| tiers.describe())
            .unwrap_or_default()
    }

    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>> {
        let tiers = Tiers::of(setup)?;
        let directory = &tiers.directory;
        std::fs::create_dir_all(directory)
            .map_err(|error| Error::from_io("create", directory, error))?;
        let fast = FastPath::new(directory, &setup.directory);
        Ok(Arc::new(RocksDbStore::open(
            setup,
            tiers.options(setup)?,
            Some(fast),
        )?))
    }
}

/// The settings derived from a setup with persistent memory.
struct Tiers {
    choice: Choice,
    directory: PathBuf,
    bytes: u64,
    stop_tables: u64,
}

impl Tiers {
    fn of(setup: &Setup) -> Result<Self> {
        let Some(PmBudget { directory, bytes }) = &setup.pm else {
            return Err(Error::invalid(
                "rocksdb-pm needs persistent memory: name a directory on it and a size",
            ));
        };
        let mut choice = Choice::of(setup, bytes / 16)?;
        if !setup.extra.contains_key("level_base_bytes") {
            choice.level_base_bytes = choice.level_base_bytes.min(bytes / 4);
        }
        let tables = bytes / 2 / choice.write_buffer_bytes().max(1);
        let stop_tables = tables.clamp(STOP_TABLES_MIN, STOP_TABLES_DEFAULT);
        Ok(Self {
            choice,
            directory: directory.join("rocksdb"),
            bytes: *bytes,
            stop_tables,
        })
    }

    /// The number of level-0 tables at which writes slow down, in the proportion of the defaults.
    fn slow_tables(&self) -> u64 {
        self.stop_tables * SLOW_TABLES_DEFAULT / STOP_TABLES_DEFAULT
    }

    fn options(&self, setup: &Setup) -> Result<Options> {
        let mut options = self.choice.options();
        options.set_db_paths(&[
            path(&self.directory, self.bytes)?,
            path(&setup.directory, u64::MAX)?,
        ]);
        options.set_wal_dir(&setup.directory);
        options.set_level_compaction_dynamic_level_bytes(false);
        options.set_level_zero_stop_writes_trigger(self.stop_tables as i32);
        options.set_level_zero_slowdown_writes_trigger(self.slow_tables() as i32);
        Ok(options)
    }

    fn describe(&self) -> BTreeMap<String, String> {
        let mut settings = self.choice.describe();
        let paths = format!(
            "{}: {} bytes, then the SSD",
            self.directory.display(),
            self.bytes
        );
        settings.insert("db_paths".to_owned(), paths);
        settings.insert(
            "level_compaction_dynamic_level_bytes".to_owned(),
            "false".to_owned(),
        );
        settings.insert(
            "level0_stop_writes_trigger".to_owned(),
            self.stop_tables.to_string(),
        );
        settings.insert(
            "level0_slowdown_writes_trigger".to_owned(),
            self.slow_tables().to_string(),
        );
        settings
    }
}
