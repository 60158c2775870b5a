//! LevelDB 1.23, the system's library.
//!
//! | setting | value | why |
//! |---|---|---|
//! | `write_buffer_size` | memory / 8, at most 64 MiB | FirnDB's share; the default is 4 MiB |
//! | `block_cache` | memory less two memtables | it has two: one filling and one being flushed |
//! | filter | Bloom, 10 bits; option `filter_bits`, 0 for none | FirnDB has 10 too |
//! | `block_size` | 4 KiB | the default |
//! | `max_open_files` | 10,000 | with 2 MiB tables the default of 1,000 reopens them often |
//! | `verify_checksums` | on | FirnDB and RocksDB verify every block that they read |
//!
//! Indexes and filters of open tables are outside the cache, and tables are read through `mmap` (up
//! to 1,000 of them) or the page cache. LevelDB has no direct I/O, so the budget does not bound its
//! memory. It always has one background thread, and no LZ4. [`Durability::Process`] is its default,
//! [`Durability::Power`] is `sync`.
//!
//! LevelDB counts bytes written to tables in whole MB by level, flushes and compactions together,
//! and does not count its log. Here that is the cause `tables`. LevelDB has no call that
//! [`Store::settle`] could wait with. Instead the memtable is flushed by compacting a range that
//! holds no key, and then the files per level are watched until they do not change for a second.

use super::leveldb_ffi::{Database, Tuning};
use super::share::{Share, described};
use firn_base::clock::Clock;
use firn_base::{Error, ErrorKind, Result};
use firn_bench::{Change, Compression, Counters, Engine, Setup, Store, Traffic, directory_bytes};
use firndb::Durability;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const WRITE_BUFFERS: u64 = 2;
const FILTER_BITS: i32 = 10;
const BLOCK_BYTES: usize = 4096;
const OPEN_FILES_MAX: i32 = 10_000;
const QUIET_LOOKS: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// LevelDB.
#[derive(Debug)]
pub(crate) struct LevelDb;

fn share(setup: &Setup) -> Result<Share> {
    setup.refuse_unknown(&["write_buffer_bytes", "block_cache_bytes", "filter_bits"])?;
    match setup.compression {
        Compression::None => Share::of(setup, WRITE_BUFFERS, u64::MAX),
        Compression::Lz4 => Err(Error::invalid(
            "leveldb has no lz4: choose the compression none",
        )),
    }
}

/// Bits of the filter per key; 0 for no filter.
fn filter_bits(setup: &Setup) -> Result<i32> {
    Ok(setup.extra("filter_bits")?.unwrap_or(FILTER_BITS))
}

impl Engine for LevelDb {
    fn name(&self) -> String {
        "leveldb".to_owned()
    }

    fn about(&self) -> String {
        "LevelDB 1.23, leveled compaction by one thread".to_owned()
    }

    fn settings(&self, setup: &Setup) -> BTreeMap<String, String> {
        let (Ok(share), Ok(filter_bits)) = (share(setup), filter_bits(setup)) else {
            return BTreeMap::new();
        };
        described([
            ("write_buffer_size", share.write_buffer_bytes.to_string()),
            ("block_cache", share.cache_bytes.to_string()),
            ("filter", format!("bloom, {filter_bits} bits")),
            ("block_size", BLOCK_BYTES.to_string()),
            ("max_open_files", OPEN_FILES_MAX.to_string()),
            ("compression", "none".to_owned()),
            ("background threads", "1, not to be changed".to_owned()),
            ("direct_io", "false, not supported".to_owned()),
        ])
    }

    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>> {
        let share = share(setup)?;
        let tuning = Tuning {
            write_buffer_bytes: usize::try_from(share.write_buffer_bytes).unwrap_or(usize::MAX),
            cache_bytes: usize::try_from(share.cache_bytes).unwrap_or(usize::MAX),
            filter_bits: filter_bits(setup)?,
            block_bytes: BLOCK_BYTES,
            open_files_max: OPEN_FILES_MAX,
        };
        let database = Database::open(&setup.directory, tuning).map_err(failed("open"))?;
        Ok(Arc::new(LevelDbStore {
            database,
            directory: setup.directory.clone(),
        }))
    }
}

struct LevelDbStore {
    database: Database,
    directory: PathBuf,
}

impl LevelDbStore {
    fn statistics(&self) -> String {
        self.database.property(c"leveldb.stats").unwrap_or_default()
    }
}

impl Store for LevelDbStore {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.database
            .put(key, value, durability == Durability::Power)
            .map_err(failed("put"))
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.database.get(key, see).map_err(failed("get"))
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.database.scan(from, count, see).map_err(failed("scan"))
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.database
            .delete(key, durability == Durability::Power)
            .map_err(failed("delete"))
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        self.database
            .write(batch, durability == Durability::Power)
            .map_err(failed("write"))
    }

    fn settle(&self) -> Result<()> {
        self.database.flush();
        // A running compaction shows in the statistics only when it ends, but its output grows in
        // the directory meanwhile.
        let look = || (self.statistics(), directory_bytes(&self.directory));
        let (clock, mut quiet_looks, mut before) = (Clock::system(), 0, look());
        while quiet_looks < QUIET_LOOKS {
            clock.sleep(LOOK_EVERY);
            let now = look();
            quiet_looks = if now == before { quiet_looks + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        "LevelDB 1.23, tables by mmap and page cache".to_owned()
    }

    fn counters(&self) -> Counters {
        let (read_bytes, written_bytes) = table_bytes(&self.statistics());
        let (medium, cause) = ("ssd".to_owned(), "tables".to_owned());
        let tables = Traffic {
            medium,
            cause,
            written_bytes,
            read_bytes,
            reads: None,
        };
        let space_bytes = directory_bytes(&self.directory);
        // The log is not counted.
        Counters {
            traffic: vec![tables],
            is_partial: true,
            space_bytes,
            ..Counters::default()
        }
    }
}

/// Bytes read and written by flushes and compactions, from the table of `leveldb.stats`: level,
/// files, MB, seconds, MB read, MB written.
fn table_bytes(statistics: &str) -> (u64, u64) {
    let mut total = (0, 0);
    for line in statistics.lines() {
        let numbers: Option<Vec<u64>> = line
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect();
        if let Some(&[_level, _files, _size, _seconds, read, written]) = numbers.as_deref() {
            total = (total.0 + (read << 20), total.1 + (written << 20));
        }
    }
    total
}

fn failed(verb: &str) -> impl FnOnce(String) -> Error {
    move |text| {
        let kind = match &text {
            text if text.contains("No space left") => ErrorKind::NoSpace,
            text if text.contains("lock") => ErrorKind::Locked,
            text if text.starts_with("Corruption") => ErrorKind::Corruption,
            text if text.starts_with("NotFound") => ErrorKind::NotFound,
            text if text.starts_with("Invalid argument") => ErrorKind::Invalid,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("leveldb cannot {verb}: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNING: Tuning = Tuning {
        write_buffer_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        filter_bits: FILTER_BITS,
        block_bytes: BLOCK_BYTES,
        open_files_max: 100,
    };

    #[test]
    fn statistics_are_read() {
        let text = "        Compactions\nLevel  Files Size(MB) Time(sec) Read(MB) Write(MB)\n-----\n\
                    \x20 0   2   12   1   0   12\n  1   5   10   0   3    2\n";
        assert_eq!(table_bytes(text), (3 << 20, 14 << 20));
        let place = tempfile::tempdir().unwrap();
        let database = Database::open(place.path(), TUNING).unwrap();
        assert!(
            database
                .property(c"leveldb.stats")
                .unwrap()
                .contains("Write(MB)")
        );
        assert_eq!(database.property(c"leveldb.nothing"), None);
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let place = tempfile::tempdir().unwrap();
        let _first = Database::open(place.path(), TUNING).unwrap();
        let error = failed("open")(Database::open(place.path(), TUNING).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        let nowhere =
            failed("open")(Database::open(&place.path().join("a/b/c"), TUNING).unwrap_err());
        assert_eq!(nowhere.kind(), ErrorKind::NotFound, "{nowhere}");
    }
}
