//! Opening a database:
//!
//! 1. lock the directory;
//! 2. read CURRENT and the manifest;
//! 3. open the pool, check that it pairs with the manifest, and claim what either of them names
//!    there before anything else becomes free;
//! 4. find the logs that belong to the database although the manifest lost their names, and reject
//!    a manifest that lost more (`unnamed.rs`);
//! 5. replay the logs from their floor, in order, writing memtables to tables unless the logs hold
//!    little;
//! 6. start a new log and a new manifest, which name everything that was recovered;
//! 7. remove the database's own files that nothing names.
//!
//! Until 6 is durable, the old manifest and its logs are in force, so an interrupted recovery
//! starts over. Its files are then named by nothing, and 7 removes them. Opening read-only does 2
//! to 5 in memory and writes nothing.

mod buffers;
mod directory;
mod finish;
mod logs;
mod pm_tables;
mod trees;
mod unnamed;

use self::buffers::RecoveredBuffer;
use self::directory::{Creation, Directory};
use crate::compaction::CompactionContext;
use crate::engine::{Engine, OpenReport};
use crate::files::{FileName, Files};
use crate::lab::Trees;
use crate::log::{LogEnd, PmLogBuffer};
use crate::manifest::{
    self, FORMAT_VERSION, KNOWS_LARGEST_BLOCKS, TABLES_HAVE_HEADERS, TableMeta, Version,
};
use crate::memtable::Memtable;
use crate::options::budget::Budget;
use crate::options::{Options, Profile};
use crate::read::pm_space::NewTable;
use crate::read::table_run::{TableCache, TableCacheBounds};
use crate::tlsm::CutJobs;
use firn_base::clock::Clock;
use firn_base::count::IoCounters;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_fs::OsFs;
use firn_pm::Pool;
use firn_table::BlockCache;
use firn_table::TableContext;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A running recovery.
struct Recovery {
    options: Options,
    budget: Budget,
    clock: Clock,
    read_only: bool,
    counters: Arc<IoCounters>,
    files: Arc<Files>,
    version: Version,
    /// The files created by this open, to be removed if it fails.
    creation: Creation,
    pm: Option<Arc<Pool>>,
    compaction: CompactionContext,
    tables: Arc<TableCache>,
    report: OpenReport,
    since_ns: u64,
    /// Full memtables of a read-only open, oldest first.
    kept: Vec<Arc<Memtable>>,
    buffer: Option<Arc<Memtable>>,
    recovered: Recovered,
    last_seqno: SeqNo,
    /// Level 0, in profile `lab`.
    trees: Option<Trees>,
    replaying: Replaying,
    /// The sequence number through which entries found no room in rebuilt trees and are in tables,
    /// and the first log that has later ones.
    spilled: Option<(SeqNo, FileId)>,
}

/// The tables that no state has yet.
#[derive(Default)]
struct Recovered {
    /// Tables made from logs.
    tables: Vec<TableMeta>,
    /// Lists among them.
    placed: Vec<NewTable>,
    /// Compactions that a crash cut short.
    cut: CutJobs,
    /// Write buffers in persistent memory, the newest first.
    buffers: Vec<RecoveredBuffer>,
    /// All write buffers that the pool named.
    buffer_ids: Vec<FileId>,
}

/// The logs to be replayed.
#[derive(Default)]
struct Replaying {
    /// Total bytes of the logs.
    bytes: u64,
    /// True if the logs hold so little that it stays in them.
    stays: bool,
    /// The logs that are needed after this recovery, with the ends that were found.
    settled: Vec<LogEnd>,
    /// The log that is being replayed.
    log_id: FileId,
    /// Keys for which the log must have a newer version, because the slot of the older one in the
    /// hot buffer was reused.
    superseded: HashMap<Box<[u8]>, SeqNo>,
}

/// Bytes that the log's two halves take in a pool in addition to their contents.
const HALVES_MORE_BYTES: u64 = 16 << 10;

/// A read-only open copies the entries in a pool that a concurrent writer may reuse, if they are at
/// most this part of the memory limit.
const HELD_SHARE: u64 = 8;

/// The number of times a read-only open is tried if a concurrent writer removes a file that it
/// needs.
const READ_ONLY_TRIES: u32 = 8;

/// Opens the database at `dir`.
pub(crate) fn open(dir: &Path, options: Options, read_only: bool) -> Result<Arc<Engine>> {
    if !read_only {
        return open_once(dir, options, false);
    }
    let mut met: Option<Error> = None;
    let mut is_same = true;
    for _ in 0..READ_ONLY_TRIES {
        match open_once(dir, options.clone(), true) {
            Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Changed) => {
                is_same &= met
                    .as_ref()
                    .is_none_or(|met| met.to_string() == error.to_string());
                met = Some(error);
            }
            other => return other,
        }
    }
    // Damage gives the same error each time.
    Err(met
        .filter(|_| is_same)
        .unwrap_or_else(|| Error::changed(dir.display())))
}

fn open_once(dir: &Path, mut options: Options, read_only: bool) -> Result<Arc<Engine>> {
    options.tuning.block.check()?;
    options.tuning.lab.check()?;
    options.tuning.tlsm.check()?;
    options.tuning.blade.check()?;
    options.tuning.pmdb.check()?;
    if let Some(ranges) = options.ranges() {
        options.limits.table_bytes = options.limits.table_bytes.min(ranges.table_bytes);
    }
    let budget = Budget::new(&options)?;
    options.compression.check()?;
    let clock = options
        .environment
        .clock
        .clone()
        .unwrap_or_else(Clock::system);
    let fs = options
        .environment
        .fs
        .get_or_insert_with(|| Arc::new(OsFs::new()))
        .clone();
    let since_ns = clock.now_ns();
    let directory = if read_only {
        directory::open_read_only(&fs, dir)?
    } else {
        directory::prepare(&fs, dir, &options)?
    };
    let creation = directory.creation.clone();
    let opened = open_directory(directory, options, budget, clock, since_ns);
    opened.inspect_err(|_| creation.undo())
}

fn open_directory(
    directory: Directory,
    options: Options,
    budget: Budget,
    clock: Clock,
    since_ns: u64,
) -> Result<Arc<Engine>> {
    let counters = Arc::new(IoCounters::default());
    let version = directory::read_or_create(&directory, &counters, &options, &clock)?;
    let Directory {
        dir,
        lock,
        creation,
    } = directory;
    let read_only = lock.is_none();
    let files = Arc::new(Files::new(dir, version.uuid, lock));
    if creation.is_fresh && options.pm.is_some() {
        // The uuid must be durable before the pool that carries it is created: no later open would
        // generate the same one.
        let last = files
            .list()?
            .iter()
            .filter_map(|name| FileName::parse(name).number())
            .max();
        let id = last.map_or(FileId(1), FileId::next);
        manifest::start(&files, &counters, id, &version)?;
    }
    let compaction = CompactionContext::new(
        &files,
        &counters,
        &options,
        &budget,
        version.next_file_id.max(FileId(1)),
    );
    let tables = open_tables(&files, &counters, &options, &budget);
    let mut recovery = Recovery {
        last_seqno: version.last_seqno,
        options,
        budget,
        clock,
        read_only,
        counters,
        files,
        version,
        creation,
        pm: None,
        compaction,
        tables,
        report: OpenReport::default(),
        since_ns,
        kept: Vec::new(),
        buffer: None,
        recovered: Recovered::default(),
        trees: None,
        replaying: Replaying::default(),
        spilled: None,
    };
    recovery.step("manifest");
    recovery.open_pool()?;
    recovery.step("pool");
    recovery.open_pm_tables()?;
    if recovery.compaction.pm.is_some() {
        recovery.step("tables in memory");
    }
    recovery.open_trees()?;
    recovery.step("trees");
    recovery.check_tables()?;
    recovery.step("tables");
    recovery.replay_logs()?;
    recovery.step("logs");
    recovery.copy_buffers()?;
    recovery.finish()
}

/// The cache of open tables, none of which is open yet.
fn open_tables(
    files: &Arc<Files>,
    counters: &Arc<IoCounters>,
    options: &Options,
    budget: &Budget,
) -> Arc<TableCache> {
    let bytes_most = budget.shared_bytes.unwrap_or(budget.block_cache_bytes);
    let cache = Arc::new(BlockCache::new(bytes_most));
    cache.resize(budget.block_cache_bytes);
    // A read-only open keeps tables open regardless of memory, because a concurrent writer may
    // remove the files at any time.
    let tables_max = tables_max(options);
    let bytes_max = if files.is_read_only() {
        u64::MAX
    } else {
        budget.open_tables_bytes
    };
    let bounds = TableCacheBounds {
        tables_max,
        bytes_max,
        shared_bytes: budget.shared_bytes,
        job_bytes: budget.job_bytes,
        cache_bytes_min: budget.block_cache_bytes / 2,
        buffer_bytes_usual: (budget.write_buffer_bytes * options.limits.write_buffers) as u64,
        seek_charge_bytes: options.limits.seek_charge_bytes,
        direct: options.direct_io,
    };
    let context = TableContext::new(cache, counters.clone());
    Arc::new(TableCache::new(files.clone(), context, &bounds))
}

/// The number of tables kept open: the number in the options, limited so that the process keeps
/// some file handles.
fn tables_max(options: &Options) -> usize {
    const LEAST: usize = 16;
    let spared = firn_fs::handles_max() / 4 * 3;
    options.max_open_files.clamp(1, spared.max(LEAST))
}

impl Recovery {
    fn step(&mut self, name: &'static str) {
        let now = self.clock.now_ns();
        self.report
            .steps
            .push((name, Duration::from_nanos(now - self.since_ns)));
        self.since_ns = now;
    }

    /// Opens the pool, if there is one, and rejects one that does not match the manifest.
    fn open_pool(&mut self) -> Result<()> {
        let paired = self.version.pm.map_or(0, |pm| pm.generation);
        let has_trees = self.options.profile == Profile::Lab;
        let has_tables = self.version.tables().any(|table| !table.is_file());
        let has_buffers = self.version.holds_entries;
        let is_needed = paired > 0
            && (has_trees || has_tables || has_buffers || self.version.log_ends_in_pool());
        let part = match (has_trees, has_tables) {
            (true, _) => "level 0 of this database",
            (false, true) => "a part of this database's tables",
            (false, false) if has_buffers => "the newest part of this database",
            (false, false) => "the end of this database's log",
        };
        let Some(config) = &self.options.pm else {
            if is_needed {
                let otherwise = if has_trees || has_tables {
                    "if it is lost, run `firn repair`"
                } else if has_buffers {
                    "after a flush and a clean close it opens without; if it is lost, run `firn repair`"
                } else {
                    "after a clean close it opens without"
                };
                let message = format!(
                    "{part} is in a persistent-memory pool; open it with `pm` set to that pool ({otherwise})"
                );
                return Err(Error::new(ErrorKind::Incompatible, message));
            }
            return Ok(());
        };
        let is_simulated = self.options.environment.memory.is_some();
        if let Some(path) = config
            .path
            .as_ref()
            .filter(|path| is_needed && !is_simulated && !path.exists())
        {
            // Fails here, to avoid creating an empty pool in its place.
            let expected = format!(
                "the pool that {part} is in; put it back or, if it is lost, run `firn repair`"
            );
            return Err(Error::corruption(path.display(), 0, expected));
        }
        let uuid = self.files.uuid;
        let pool = match (&self.options.environment.memory, self.read_only) {
            (None, false) => Pool::open_or_create(config, uuid)?,
            (None, true) => Pool::open_read_only(config, uuid)?,
            (Some(memory), false) => Pool::open_simulated(memory, uuid)?,
            (Some(memory), true) => Pool::open_simulated_read_only(memory, uuid)?,
        };
        let pool = Arc::new(pool);
        let _first = self.creation.pool.set(pool.clone());
        let root = pool.root();
        let place = config
            .path
            .as_ref()
            .map_or_else(|| "the pool".to_owned(), |path| path.display().to_string());
        if root.generation < paired {
            let expected = format!(
                "root generation {paired} or later, as the manifest says; this is an older pool"
            );
            return Err(Error::corruption(place, 0, expected));
        }
        if root.applied_edit > self.version.edit_id {
            let expected = format!(
                "a pool that knows no edit after {}; the manifest is older",
                self.version.edit_id
            );
            return Err(Error::corruption(place, 0, expected));
        }
        // The pool's own open has claimed the extents that its roots name. What the manifest names
        // is claimed next.
        self.pm = Some(pool);
        Ok(())
    }

    /// Checks that each table that the manifest names exists in full, and sets the next file id.
    fn check_tables(&mut self) -> Result<()> {
        let mut ids = self.version.next_file_id;
        let files = self.version.tables().filter(|table| table.is_file());
        for table in files {
            let path = self.files.path_of(FileName::Table(table.id));
            let len =
                self.files
                    .len(FileName::Table(table.id))
                    .map_err(|error| match error.kind() {
                        ErrorKind::NotFound => Error::corruption(
                            path.display(),
                            0,
                            "the manifest names this table, but the file is missing",
                        ),
                        _ => error,
                    })?;
            if len < table.extent.valid_len {
                let expected = format!("{} bytes, as the manifest says", table.extent.valid_len);
                return Err(Error::corruption(path.display(), len, expected));
            }
        }
        self.upgrade_tables()?;
        // An id is never reused, not even that of a file that a crash left, or of a log that a
        // crash removed.
        ids = ids.max(
            self.version
                .logs
                .keys()
                .next_back()
                .map_or(FileId(0), |last| last.next()),
        );
        ids = self
            .recovered
            .cut
            .ids()
            .fold(ids, |ids, id| ids.max(id.next()));
        // Nor that of a write buffer, because its bytes may lie in an extent of another.
        let buffers = self.recovered.buffer_ids.iter();
        ids = buffers.fold(ids, |ids, id| ids.max(id.next()));
        // Nor that of a log whose half in the pool outlived its file, because the half would
        // overlay another log of that id.
        if let Some(pool) = &self.pm {
            let named = PmLogBuffer::logs_named(pool, &self.files.uuid)?;
            ids = named.into_iter().fold(ids, |ids, id| ids.max(id.next()));
        }
        let numbers = self
            .files
            .list()?
            .iter()
            .filter_map(|name| FileName::parse(name).number())
            .max();
        ids = ids.max(numbers.map_or(FileId(0), FileId::next));
        self.compaction.file_ids.start_at(ids.max(FileId(1)));
        Ok(())
    }

    /// Completes what a manifest of an older format does not know of its tables. The new manifest
    /// then has it.
    fn upgrade_tables(&mut self) -> Result<()> {
        let is_older = (1..FORMAT_VERSION).contains(&self.version.format);
        if self.read_only || !is_older {
            return Ok(());
        }
        tracing::info!(from = self.version.format, to = FORMAT_VERSION, "upgrading");
        if self.version.format >= KNOWS_LARGEST_BLOCKS {
            return Ok(());
        }
        for table in self.version.levels.values_mut().flat_map(Arc::make_mut) {
            let largest = self.tables.open(table)?.block_bytes_max();
            let table = Arc::make_mut(table);
            table.block_bytes_max = largest;
            // A file without a header never grows, because only its first footer says that it has
            // none.
            table.shared |= self.version.format < TABLES_HAVE_HEADERS;
        }
        Ok(())
    }

    fn next_file_id(&self) -> FileId {
        self.compaction.file_ids.take()
    }
}
