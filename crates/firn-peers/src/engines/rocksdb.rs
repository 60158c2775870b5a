//! RocksDB, set up as its own tuning guide recommends for a memory budget and direct I/O.
//!
//! | setting | value | why |
//! |---|---|---|
//! | `write_buffer_size` | memory / 8, at most 64 MiB | RocksDB's default, and FirnDB's share |
//! | `max_write_buffer_number` | 3 | two may wait for a flush while a third fills, as in FirnDB |
//! | block cache | HyperClockCache of all other memory | recommended over LRU since 8.0 |
//! | `cache_index_and_filter_blocks` | true, level 0 pinned | else they would exceed the budget |
//! | filter | full Bloom, 10 bits per key | FirnDB has 10 too |
//! | `block_size` | 4 KiB | the default, and FirnDB's |
//! | direct I/O | as requested: reads, flushes, compactions | else the page cache adds memory |
//! | compression | as requested, on all levels | |
//! | `max_background_jobs` | as requested, at least 2 | one for flushes |
//! | `bytes_per_sync`, also of the WAL | 1 MiB | the tuning guide's; smooths writeback |
//! | `max_open_files` | -1 | the default: all tables stay open |
//! | statistics | counters, without timers | cheap, and the source of [`Counters`] |
//! | all else | default | dynamic level sizes, 256 MiB base, 64 MiB tables, 2 MiB readahead |
//!
//! The readahead is that of compactions. `enable_pipelined_write` stays off, as by default: it is
//! not a general recommendation, and it excludes other ways of writing. The WAL is always buffered:
//! [`Durability::Process`] is a write to the page cache, [`Durability::Power`] a sync shared by the
//! writers of a group. Memory that compactions use for their blocks is outside the budget, in
//! RocksDB's favour.

use super::rocksdb_library;
use super::share::{Share, background_threads, described};
use firn_base::{Error, ErrorKind, Result};
use firn_bench::{
    Change, Compression, Counters, Engine, Moved, Setup, Store, Traffic, device_bytes,
    directory_bytes,
};
use firndb::Durability;
use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBPath, Options, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The version for which the binding in Cargo.lock is made. `cargo xtask peers` fetches or builds
/// the same.
pub(super) const NAME: &str = "RocksDB 11.8";
const WRITE_BUFFERS: u64 = 3;
const FILTER_BITS: f64 = 10.0;
const BYTES_PER_SYNC: u64 = 1 << 20;

/// RocksDB, all of it in one directory.
#[derive(Debug)]
pub(crate) struct RocksDb;

impl Engine for RocksDb {
    fn name(&self) -> String {
        "rocksdb".to_owned()
    }

    fn about(&self) -> String {
        format!("{NAME}, leveled compaction, all on SSD")
    }

    fn settings(&self, setup: &Setup) -> BTreeMap<String, String> {
        Choice::of(setup, u64::MAX)
            .map(|choice| choice.describe())
            .unwrap_or_default()
    }

    fn open(&self, setup: &Setup) -> Result<Arc<dyn Store>> {
        let choice = Choice::of(setup, u64::MAX)?;
        Ok(Arc::new(RocksDbStore::open(setup, choice.options(), None)?))
    }
}

/// The settings derived from a setup.
#[derive(Debug)]
pub(super) struct Choice {
    share: Share,
    pub(super) level_base_bytes: u64,
    table_bytes: u64,
    /// The numbers of level-0 tables at which compactions begin, writes slow down, and writes stop.
    /// `None` for RocksDB's default.
    level0: [Option<i32>; 3],
    block_bytes: usize,
    background_jobs: usize,
    max_open_files: i32,
    direct_io: bool,
    compression: Compression,
}

impl Choice {
    const EXTRA: [&str; 10] = [
        "write_buffer_bytes",
        "block_cache_bytes",
        "level_base_bytes",
        "table_bytes",
        "block_bytes",
        "level0_trigger",
        "level0_slow",
        "level0_stop",
        "max_background_jobs",
        "max_open_files",
    ];

    /// The settings for `setup`, with memtables of at most `write_buffer_bytes_max` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown option, or too little memory.
    pub(super) fn of(setup: &Setup, write_buffer_bytes_max: u64) -> Result<Self> {
        setup.refuse_unknown(&Self::EXTRA)?;
        Ok(Self {
            share: Share::of(setup, WRITE_BUFFERS, write_buffer_bytes_max)?,
            level_base_bytes: setup.extra("level_base_bytes")?.unwrap_or(256 << 20),
            table_bytes: setup.extra("table_bytes")?.unwrap_or(64 << 20),
            level0: [
                setup.extra("level0_trigger")?,
                setup.extra("level0_slow")?,
                setup.extra("level0_stop")?,
            ],
            block_bytes: setup.extra("block_bytes")?.unwrap_or(4096),
            background_jobs: setup
                .extra("max_background_jobs")?
                .unwrap_or_else(|| background_threads(setup)),
            max_open_files: setup.extra("max_open_files")?.unwrap_or(-1),
            direct_io: setup.direct_io,
            compression: setup.compression,
        })
    }

    pub(super) fn write_buffer_bytes(&self) -> u64 {
        self.share.write_buffer_bytes
    }

    pub(super) fn describe(&self) -> BTreeMap<String, String> {
        described([
            (
                "write_buffer_size",
                self.share.write_buffer_bytes.to_string(),
            ),
            ("max_write_buffer_number", WRITE_BUFFERS.to_string()),
            (
                "block_cache",
                format!("hyper clock, {}", self.share.cache_bytes),
            ),
            (
                "cache_index_and_filter_blocks",
                "true, level 0 pinned".to_owned(),
            ),
            ("filter", format!("full bloom, {FILTER_BITS} bits")),
            ("block_size", self.block_bytes.to_string()),
            (
                "max_bytes_for_level_base",
                self.level_base_bytes.to_string(),
            ),
            ("target_file_size_base", self.table_bytes.to_string()),
            (
                "level0 trigger, slowdown, stop",
                self.level0
                    .map(|n| n.map_or("own".to_owned(), |n| n.to_string()))
                    .join(", "),
            ),
            ("max_background_jobs", self.background_jobs.to_string()),
            ("bytes_per_sync", BYTES_PER_SYNC.to_string()),
            ("direct_io", self.direct_io.to_string()),
            ("compression", self.compression.to_string()),
            ("library", rocksdb_library::origin()),
            ("crc", rocksdb_library::crc()),
        ])
    }

    pub(super) fn options(&self) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_hyper_clock_cache(
            self.share.cache_bytes as usize,
            0,
        ));
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_bloom_filter(FILTER_BITS, false);
        table.set_block_size(self.block_bytes);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(self.share.write_buffer_bytes as usize);
        options.set_max_write_buffer_number(WRITE_BUFFERS as i32);
        options.set_max_bytes_for_level_base(self.level_base_bytes);
        options.set_target_file_size_base(self.table_bytes);
        let [trigger, slow, stop] = self.level0;
        trigger
            .into_iter()
            .for_each(|n| options.set_level_zero_file_num_compaction_trigger(n));
        slow.into_iter()
            .for_each(|n| options.set_level_zero_slowdown_writes_trigger(n));
        stop.into_iter()
            .for_each(|n| options.set_level_zero_stop_writes_trigger(n));
        options.set_max_background_jobs(self.background_jobs as i32);
        options.set_bytes_per_sync(BYTES_PER_SYNC);
        options.set_wal_bytes_per_sync(BYTES_PER_SYNC);
        options.set_max_open_files(self.max_open_files);
        options.set_use_direct_reads(self.direct_io);
        options.set_use_direct_io_for_flush_and_compaction(self.direct_io);
        options.set_compression_type(match self.compression {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
        });
        options.enable_statistics();
        // The binding's number for this level is the library's for "all but timers": sizes are
        // counted, clocks are not read.
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        options
    }
}

/// The directory of the first levels, and the bytes moved by its block device before, if it has one
/// of its own.
#[derive(Debug)]
pub(super) struct FastPath {
    directory: PathBuf,
    before: Option<Moved>,
}

impl FastPath {
    /// The fast path in `directory`. Its traffic is counted only if its device is not that of
    /// `other`.
    pub(super) fn new(directory: &Path, other: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
        let apart = device(directory) != device(other);
        Self {
            directory: directory.to_owned(),
            before: device_bytes(directory).filter(|_| apart),
        }
    }

    /// Bytes written to the device since then; `None` if the directory has no device of its own.
    fn written_bytes(&self) -> Option<u64> {
        Some(
            device_bytes(&self.directory)?
                .written_bytes
                .saturating_sub(self.before?.written_bytes),
        )
    }
}

/// An open RocksDB. The database is dropped first, then the options that hold its statistics.
pub(super) struct RocksDbStore {
    db: DB,
    options: Options,
    fast: Option<FastPath>,
    directory: PathBuf,
    read: ReadOptions,
    synced: WriteOptions,
    buffered: WriteOptions,
}

impl RocksDbStore {
    pub(super) fn open(setup: &Setup, options: Options, fast: Option<FastPath>) -> Result<Self> {
        let db = DB::open(&options, &setup.directory).map_err(|error| failed("open", error))?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let (read, buffered, directory) = (
            ReadOptions::default(),
            WriteOptions::default(),
            setup.directory.clone(),
        );
        Ok(Self {
            db,
            options,
            fast,
            directory,
            read,
            synced,
            buffered,
        })
    }

    fn write_options(&self, durability: Durability) -> &WriteOptions {
        match durability {
            Durability::Power => &self.synced,
            Durability::Process => &self.buffered,
        }
    }
}

impl Store for RocksDbStore {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.db
            .put_opt(key, value, self.write_options(durability))
            .map_err(|error| failed("put", error))
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self
            .db
            .get_pinned_opt(key, &self.read)
            .map_err(|error| failed("get", error))?;
        if let Some(value) = &value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut iter = self.db.raw_iterator_opt(ReadOptions::default());
        if from.is_empty() {
            iter.seek_to_first();
        } else {
            iter.seek(from);
        }
        for _ in 0..count {
            let Some((key, value)) = iter.item() else {
                break;
            };
            see(key, value);
            iter.next();
        }
        iter.status().map_err(|error| failed("scan", error))
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.db
            .delete_opt(key, self.write_options(durability))
            .map_err(|error| failed("delete", error))
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        let mut changes = WriteBatch::default();
        for change in batch {
            match *change {
                Change::Put { key, value } => changes.put(key, value),
                Change::Delete { key } => changes.delete(key),
            }
        }
        self.db
            .write_opt(changes, self.write_options(durability))
            .map_err(|error| failed("write", error))
    }

    fn settle(&self) -> Result<()> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        self.db
            .wait_for_compact(&wait)
            .map_err(|error| failed("settle", error))
    }

    fn describe(&self) -> String {
        format!(
            "{NAME}, tables written by flushes on {}",
            if self.fast.is_some() { "pm" } else { "ssd" }
        )
    }

    fn counters(&self) -> Counters {
        let ticker = |ticker| self.options.get_ticker_count(ticker);
        let traffic = |medium: &str, cause: &str, written_bytes, read_bytes| Traffic {
            medium: medium.to_owned(),
            cause: cause.to_owned(),
            written_bytes,
            read_bytes,
            reads: None,
        };
        let compaction_read = ticker(Ticker::CompactReadBytes);
        // Every read of a table counts under its level, whatever its cause.
        let read = ticker(Ticker::LastLevelReadBytes) + ticker(Ticker::NonLastLevelReadBytes);
        let (flushed, compacted) = (
            ticker(Ticker::FlushWriteBytes),
            ticker(Ticker::CompactWriteBytes),
        );
        let (flush, tables) = if self.fast.is_some() {
            ("pm", "ssd+pm")
        } else {
            ("ssd", "ssd")
        };
        let on_fast = self.fast.as_ref().and_then(FastPath::written_bytes);
        let on_fast = on_fast.map(|written| written.saturating_sub(flushed).min(compacted));
        let log = ticker(Ticker::WalFileBytes);
        let levels = self.db.property_value("rocksdb.cfstats").ok().flatten();
        let mut parts = vec![
            traffic("ssd", "log", log, 0),
            traffic(flush, "flush", flushed, 0),
        ];
        if let Some(on_fast) = on_fast {
            parts.push(traffic("pm", "compaction", on_fast, 0));
            parts.push(traffic("ssd", "compaction", compacted - on_fast, 0));
        }
        parts.push(traffic(
            tables,
            "compaction",
            on_fast.map_or(compacted, |_| 0),
            compaction_read,
        ));
        parts.push(traffic(
            tables,
            "user_read",
            0,
            read.saturating_sub(compaction_read),
        ));
        Counters {
            traffic: parts,
            stall_seconds: Some(ticker(Ticker::StallMicros) as f64 / 1e6),
            cache_misses: Some(ticker(Ticker::BlockCacheDataMiss)),
            compaction_seconds: levels.and_then(|text| compaction_seconds(&text)),
            pm_bytes: (self.fast.iter())
                .map(|fast| ("tables".to_owned(), directory_bytes(&fast.directory)))
                .collect(),
            space_bytes: directory_bytes(&self.directory),
            ..Counters::default()
        }
    }
}

/// A target of `bytes` for tables in `directory`.
pub(super) fn path(directory: &std::path::Path, bytes: u64) -> Result<DBPath> {
    DBPath::new(directory, bytes).map_err(|error| failed("name a path for tables", error))
}

/// Seconds of compactions in RocksDB's table of levels. Their time is listed at the level they
/// write to; flushes are at level 0. Columns are counted from the right, because a size is two
/// words.
fn compaction_seconds(text: &str) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.contains("Comp(sec)"));
    let from_right = lines
        .next()?
        .split_whitespace()
        .rev()
        .position(|column| column == "Comp(sec)")?;
    let is_level = |line: &&str| line.trim_start().starts_with(['L', '-', 'S']);
    let below =
        |line: &&str| line.trim_start().starts_with('L') && !line.trim_start().starts_with("L0 ");
    let seconds = |line: &str| {
        line.split_whitespace()
            .rev()
            .nth(from_right)?
            .parse::<f64>()
            .ok()
    };
    lines.take_while(is_level).filter(below).map(seconds).sum()
}

pub(super) fn failed(verb: &str, error: rocksdb::Error) -> Error {
    use rocksdb::ErrorKind as Theirs;
    let text = error.to_string();
    let kind = match error.kind() {
        Theirs::NotFound => ErrorKind::NotFound,
        Theirs::Corruption => ErrorKind::Corruption,
        Theirs::InvalidArgument | Theirs::NotSupported => ErrorKind::Invalid,
        Theirs::IOError if text.contains("No space left") => ErrorKind::NoSpace,
        Theirs::IOError if text.contains("lock") => ErrorKind::Locked,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("rocksdb cannot {verb}: {text}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn compactions_are_summed_without_flushes() {
        let text = "\n** Compaction Stats [default] **\n\
            Level    Files   Size     Score  W-Amp Wr(MB/s) Comp(sec) CompMergeCPU(sec) Comp(cnt) KeyIn\n\
            ---------------------------------------------------------\n  \
            L0      1/0   65.63 MB   0.2   1.0     62.3      9.00              8.90         5   0\n  \
            L4     21/0    1.22 GB   0.0   2.1     92.4     10.25             10.11         3  41M\n  \
            L5    121/0    3.22 GB   0.0   2.1     92.4      0.50             10.11         3  41M\n \
            Sum    22/0    1.28 GB   0.0   3.1     71.4     19.75             19.01         8  41M\n\n\
            ** Compaction Stats [default] **\n\
            Priority    Files   Size     Score  W-Amp Wr(MB/s) Comp(sec) CompMergeCPU(sec) Comp(cnt) KeyIn\n\
            Low      0/0    0.00 KB   0.0   0.0     92.4     10.25             10.11         3  41M\n";
        assert_eq!(super::compaction_seconds(text), Some(10.75));
        assert_eq!(super::compaction_seconds("nothing"), None);
    }
}
