//! Opening a database:
//!
//! 1. lock the directory;
//! 2. read CURRENT and the manifest;
//! 3. open the pool and check that it pairs with the manifest;
//! 4. replay the logs from their floor, in order, writing full buffers out as tables;
//! 5. start a new log and a new manifest, which name what was recovered;
//! 6. remove what nothing names.
//!
//! Until 5 is durable the old manifest and its logs stand, so a recovery that is cut begins again; what it wrote is
//! then named by nothing and removed by 6. Opening read-only does 2 to 4 in memory and writes nothing.

use crate::background::Jobs;
use crate::budget::Budget;
use crate::buffer::{Buffer, Entry};
use crate::commit::Commit;
use crate::db::{Counts, Db, Inner, Logs, Readers, emit};
use crate::event::Event;
use crate::files::{self, FileName, Files};
use crate::log::{End, FILE_HEADER_BYTES, LogEnd, LogSource, LogWriter, PmLogBuffer, Replay, Replayed};
use crate::manifest::{self, Edit, LogState, ManifestWriter, PmPairing, TableMeta, Version};
use crate::mill::{Below, MillContext, Output, write_tables};
use crate::options::{Options, Profile};
use crate::run_iter::{MergeIter, RunIter};
use crate::sites;
use crate::sst_run::{TableCache, TableCacheBounds};
use crate::stall::Stall;
use crate::state::{Part, ReadState};
use crate::stats::JobCounters;
use firn_base::clock::Clock;
use firn_base::count::{Cause, IoCounters};
use firn_base::exec::{Executor, Threads, block_on};
use firn_base::seed::Seed;
use firn_base::sync::{ArcSwap, AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Error, ErrorKind, Result, SeqNo};
use firn_fs::{Fs, Lock, OpenMode, OsFs};
use firn_pm::{Fenced, Pool};
use firn_table::BlockCache;
use firn_table::sst::TableContext;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What recovery did, step by step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) steps: Vec<(&'static str, Duration)>,
    pub(crate) replayed_entries: u64,
}

/// A recovery under way.
struct Recovery {
    options: Options,
    budget: Budget,
    clock: Clock,
    read_only: bool,
    counters: Arc<IoCounters>,
    files: Arc<Files>,
    version: Version,
    /// Whether the database is being created.
    fresh: bool,
    pm: Option<Arc<Pool>>,
    mill: MillContext,
    tables: Arc<TableCache>,
    report: Report,
    since_ns: u64,
    /// Full buffers of a read-only open, oldest first.
    kept: Vec<Arc<Buffer>>,
    buffer: Option<Arc<Buffer>>,
    recovered: Vec<TableMeta>,
    last_seqno: SeqNo,
}

/// How often a read-only open begins again because a writer beside it removed a file under its feet.
const READ_ONLY_TRIES: u32 = 8;

/// Opens the database at `dir`.
pub(crate) fn open(dir: &Path, options: Options, read_only: bool) -> Result<Db> {
    let mut tries = if read_only { READ_ONLY_TRIES } else { 1 };
    loop {
        tries -= 1;
        match open_once(dir, options.clone(), read_only) {
            Err(error) if tries > 0 && error.kind() == ErrorKind::Corruption => {}
            other => return other,
        }
    }
}

fn open_once(dir: &Path, options: Options, read_only: bool) -> Result<Db> {
    let budget = Budget::new(&options)?;
    options.compression.check()?;
    let clock = options.environment.clock.clone().unwrap_or_else(Clock::system);
    let fs = options.environment.fs.clone().unwrap_or_else(|| Arc::new(OsFs::new()));
    let since_ns = clock.now_ns();
    let lock = if read_only { None } else { Some(prepare(&*fs, dir, &options)?) };
    let counters = Arc::new(IoCounters::default());
    let (version, fresh) = read_or_create(&fs, dir, &counters, &options, &clock, read_only)?;
    let files = Arc::new(Files { fs, dir: dir.to_path_buf(), uuid: version.uuid });
    if fresh && options.pm.is_some() {
        // The uuid must outlive a crash before the pool that is to bear it: no later open would make the same one.
        manifest::start(&files, &counters, version.next_file_id, &version)?;
    }
    let mut recovery = Recovery::new(options, budget, clock, read_only, counters, files, version, fresh, since_ns);
    recovery.step("manifest");
    recovery.open_pool()?;
    recovery.step("pool");
    recovery.check_tables()?;
    recovery.step("tables");
    recovery.replay_logs()?;
    recovery.step("logs");
    recovery.finish(lock)
}

/// Creates the directory if it may, and locks it.
fn prepare(fs: &dyn Fs, dir: &Path, options: &Options) -> Result<Box<dyn Lock>> {
    if fs.len(&files::current(dir)).is_err() {
        if !options.create_if_missing {
            return Err(missing(dir));
        }
        fs.create_dir_all(dir).map_err(|error| match is_in_the_way(&error) {
            true => Error::invalid(format!("{} cannot be a database's directory: {error}", dir.display())),
            false => error,
        })?;
    }
    fs.lock(&files::lock(dir))
}

/// Whether a file stands where a directory should.
fn is_in_the_way(error: &Error) -> bool {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory};
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| matches!(source.kind(), AlreadyExists | NotADirectory))
}

fn missing(dir: &Path) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no database at {}", dir.display()))
}

/// The state that the manifest describes, or that of a new database.
fn read_or_create(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    counters: &IoCounters,
    options: &Options,
    clock: &Clock,
    read_only: bool,
) -> Result<(Version, bool)> {
    if let Some((id, version)) = manifest::read(&**fs, dir, counters)? {
        if options.pm.is_some() && !read_only {
            // The pool will say that it knows these records: a power cut must not take the last of them after that, nor
            // that CURRENT names this manifest.
            fs.open(&dir.join(files::manifest_name(id)), OpenMode::Append)?.sync(&sites::MANIFEST_REOPEN_SYNC)?;
            fs.sync_dir(&sites::CURRENT_REOPEN_SYNC, dir)?;
        }
        let profile = Profile::from_number(version.profile);
        if profile != Some(options.profile) {
            let has = profile.map_or_else(|| format!("number {}", version.profile), |profile| profile.to_string());
            let message = format!(
                "the database at {} has profile {has}, not {}; open it with its own, or copy it by `firn export` and \
                 `firn load`",
                dir.display(),
                options.profile
            );
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        return Ok((version, false));
    }
    if read_only || !options.create_if_missing {
        return Err(missing(dir));
    }
    // Crashes while a database is created leave logs, empty but for their headers, and no table.
    let is_data = |name: &String| match files::parse(name) {
        FileName::Table(_) => true,
        FileName::Log(_) => fs.len(&dir.join(name)).map_or(true, |len| len > FILE_HEADER_BYTES as u64),
        _ => false,
    };
    if fs.list(dir)?.iter().any(is_data) {
        let message = format!("{} holds tables or logs but no CURRENT; run `firn repair` on it", dir.display());
        return Err(Error::new(ErrorKind::Corruption, message));
    }
    let mut seed = if clock.is_manual() { Seed::new(1) } else { Seed::from_entropy() };
    let mut version = Version { profile: options.profile.number(), next_file_id: 1, ..Version::default() };
    seed.fill(&mut version.uuid);
    Ok((version, true))
}

impl Recovery {
    #[expect(clippy::too_many_arguments, reason = "the parts that `open` has made so far")]
    fn new(
        options: Options,
        budget: Budget,
        clock: Clock,
        read_only: bool,
        counters: Arc<IoCounters>,
        files: Arc<Files>,
        version: Version,
        fresh: bool,
        since_ns: u64,
    ) -> Recovery {
        let mill = MillContext::new(&files, &counters, &options, &budget, version.next_file_id.max(1));
        let cache = Arc::new(BlockCache::new(budget.block_cache_bytes, options.limits.block_bytes));
        // A read-only open keeps every table open: a writer beside it may remove the files at any time.
        let (tables_max, bytes_max) = match read_only {
            true => (usize::MAX, u64::MAX),
            false => (options.max_open_files.max(1), budget.open_tables_bytes),
        };
        let bounds = TableCacheBounds {
            tables_max,
            bytes_max,
            seek_charge_bytes: options.limits.seek_charge_bytes,
            direct: options.direct_io,
        };
        let context = TableContext { cache, counters: counters.clone() };
        let tables = Arc::new(TableCache::new(files.clone(), context, &bounds));
        Recovery {
            last_seqno: version.last_seqno,
            options,
            budget,
            clock,
            read_only,
            counters,
            files,
            version,
            fresh,
            pm: None,
            mill,
            tables,
            report: Report::default(),
            since_ns,
            kept: Vec::new(),
            buffer: None,
            recovered: Vec::new(),
        }
    }

    fn step(&mut self, name: &'static str) {
        let now = self.clock.now_ns();
        self.report.steps.push((name, Duration::from_nanos(now - self.since_ns)));
        self.since_ns = now;
    }

    /// Opens the pool, if there is one, and refuses one of another time.
    fn open_pool(&mut self) -> Result<()> {
        let paired = self.version.pm.map_or(0, |pm| pm.generation);
        let Some(config) = &self.options.pm else {
            let open_logs =
                self.version.logs.values().any(|log| log.end.is_none_or(|end| end.synced_through < end.end));
            if paired > 0 && open_logs {
                let message = "the end of this database's log is in a persistent-memory pool; open it with `pm` set to \
                               that pool (after a clean close it opens without)";
                return Err(Error::new(ErrorKind::Incompatible, message));
            }
            return Ok(());
        };
        let uuid = self.files.uuid;
        let pool = match (&self.options.environment.memory, self.read_only) {
            (None, false) => Pool::open_or_create(config, uuid)?,
            (None, true) => Pool::open_read_only(config, uuid)?,
            (Some(memory), false) => Pool::open_simulated(memory, uuid)?,
            (Some(memory), true) => Pool::open_simulated_read_only(memory, uuid)?,
        };
        if !self.read_only {
            pool.finish_recovery()?;
        }
        let root = pool.root();
        let place = config.path.as_ref().map_or_else(|| "the pool".to_owned(), |path| path.display().to_string());
        if root.generation < paired {
            let expected = format!("root generation {paired} or later, as the manifest says; this is an older pool");
            return Err(Error::corruption(place, 0, expected));
        }
        if root.applied_edit > self.version.edit_id {
            let expected = format!("a pool that knows no edit after {}; the manifest is older", self.version.edit_id);
            return Err(Error::corruption(place, 0, expected));
        }
        self.pm = Some(Arc::new(pool));
        Ok(())
    }

    /// Each table that the manifest names must be there in full.
    fn check_tables(&mut self) -> Result<()> {
        let mut ids = self.version.next_file_id;
        for table in self.version.levels.iter().flatten() {
            let path = self.files.table(table.id);
            let len = self.files.fs.len(&path).map_err(|error| match error.kind() {
                ErrorKind::NotFound => {
                    Error::corruption(path.display(), 0, "the manifest names this table, but the file is missing")
                }
                _ => error,
            })?;
            if len < table.extent.valid_len {
                let expected = format!("{} bytes, as the manifest says", table.extent.valid_len);
                return Err(Error::corruption(path.display(), len, expected));
            }
        }
        // An id is never used again, not even that of a file that a crash left behind, or of a log that one took away.
        ids = ids.max(self.version.logs.keys().next_back().map_or(0, |last| last + 1));
        for name in self.files.fs.list(&self.files.dir)? {
            if let FileName::Log(id) | FileName::Table(id) | FileName::Manifest(id) = files::parse(&name) {
                ids = ids.max(id + 1);
            }
        }
        self.mill.next_file_id.store(ids.max(1), Ordering::Relaxed);
        Ok(())
    }

    fn next_file_id(&self) -> u64 {
        self.mill.next_file_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Replays the logs in order. Behind a torn end nothing may follow that was acknowledged as durable.
    fn replay_logs(&mut self) -> Result<()> {
        if !self.read_only {
            self.check_unnamed_logs()?;
        }
        let logs: BTreeMap<u64, LogState> = self.version.logs.clone();
        let mut torn: Option<u64> = None;
        for (log_id, LogState { end: sealed, named }) in logs {
            let Some(mut replay) = self.open_log(log_id, sealed, named)? else {
                torn.get_or_insert(log_id);
                continue;
            };
            if let Some(torn) = torn {
                while replay.next(|_| Ok(()))? {}
                if replay.synced_through() > 0 {
                    let place = self.files.log(torn);
                    let expected = format!("more frames: the later log {log_id} was acknowledged as durable");
                    return Err(Error::corruption(place.display(), 0, expected));
                }
                continue;
            }
            while replay.next(|entry| self.replay_entry(&entry))? {}
            let End { at, torn: is_torn } = replay.end(sealed.map_or(0, |end| end.synced_through))?;
            let cut =
                sealed.map_or(is_torn && self.version.logs.range(log_id + 1..).next().is_some(), |end| at < end.end);
            if cut {
                tracing::warn!(log_id, at, "the log is torn; later logs are not replayed");
                torn = Some(log_id);
            }
        }
        Ok(())
    }

    /// A log above the floor that no record names holds nothing that was promised to survive power loss - unless one of
    /// its frames says that a record did name it: then the manifest lost its end.
    fn check_unnamed_logs(&self) -> Result<()> {
        for name in self.files.fs.list(&self.files.dir)? {
            let FileName::Log(log_id) = files::parse(&name) else { continue };
            if log_id < self.version.log_floor || self.version.logs.contains_key(&log_id) {
                continue;
            }
            let Some(mut replay) = self.open_log(log_id, None, false)? else { continue };
            while !replay.named() && replay.next(|_| Ok(()))? {}
            if replay.named() {
                let expected = format!("a record that names log {log_id}, as there was; run `firn repair`");
                return Err(Error::corruption(self.files.dir.join("MANIFEST").display(), 0, expected));
            }
        }
        Ok(())
    }

    /// The log's replay; `None` if a power cut took the log before its name was durable.
    fn open_log(&self, log_id: u64, sealed: Option<LogEnd>, named: bool) -> Result<Option<Replay>> {
        let path = self.files.log(log_id);
        let file = match self.files.fs.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && !named => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let expected = "the manifest names this log, but the file is missing";
                return Err(Error::corruption(path.display(), 0, expected));
            }
            Err(error) => return Err(error),
        };
        // The halves before the file's length: what a writer moves from there meanwhile is then seen twice, not never.
        let overlay = match &self.pm {
            Some(pool) => PmLogBuffer::overlay(pool, &self.files.uuid, log_id)?,
            None => Vec::new(),
        };
        let mut source = LogSource::new(file, self.counters.clone())?;
        source.lay_over(overlay)?;
        if let Some(end) = sealed {
            source.cut(end.end);
        }
        Replay::open(source, log_id, &self.files.uuid).map(Some)
    }

    fn replay_entry(&mut self, replayed: &Replayed<'_>) -> Result<()> {
        debug_assert!(replayed.address.len as usize == replayed.value.len());
        let seqno = replayed.tag.seqno();
        let Some(kind) = replayed.tag.kind() else { return Ok(()) };
        let entry = Entry { kind, key: replayed.key, value: replayed.value };
        let bytes = Buffer::bytes_for(std::iter::once(entry), seqno.0);
        loop {
            let capacity = self.budget.write_buffer_bytes.max(bytes);
            let buffer = self.buffer.get_or_insert_with(|| Arc::new(Buffer::new(capacity, 0)));
            if let Some(ticket) = buffer.reserve(std::iter::once(entry), bytes, seqno.0) {
                ticket.link(seqno);
                self.last_seqno = self.last_seqno.max(seqno);
                self.report.replayed_entries += 1;
                return Ok(());
            }
            self.end_buffer()?;
        }
    }

    /// Writes the buffer out as a table; a read-only open keeps it.
    fn end_buffer(&mut self) -> Result<()> {
        let Some(buffer) = self.buffer.take() else { return Ok(()) };
        if self.read_only {
            self.kept.push(buffer);
            return Ok(());
        }
        let merge = MergeIter::new(vec![RunIter::Buffer(buffer.iter())]);
        let output = Output { cause: Cause::Flush, split: false, seqno_max: SeqNo::MAX };
        let part = Part::default().with_tables(&self.version, &self.tables, self.options.limits.levels);
        let below = Below::new(&part, 0);
        self.recovered.extend(block_on(write_tables(merge, &[SeqNo::MAX], below, output, &self.mill))?);
        Ok(())
    }

    /// Records what was recovered and puts the parts together.
    fn finish(mut self, lock: Option<Box<dyn Lock>>) -> Result<Db> {
        self.end_buffer()?;
        let log_id = self.next_file_id();
        let log_floor = Arc::new(AtomicU64::new(log_id));
        let (log, log_name, manifest) = if self.read_only {
            let version = self.version.clone();
            let manifest = ManifestWriter::read_only(self.files.clone(), self.counters.clone(), 0, version);
            (None, "none: read-only".to_owned(), manifest)
        } else {
            let (pm, log_name) = self.pm_log_buffer()?;
            let mut log = LogWriter::create(self.files.clone(), self.counters.clone(), log_id, log_floor.clone())?;
            let manifest = self.record(log_id)?;
            // Only now: until the manifest named what was recovered, the buffer held the only copy of the old log's
            // end.
            pm.clone().map_or(Ok(()), |buffer| log.go_through(buffer))?;
            self.sweep(&manifest);
            self.write_options();
            ((Some((log, pm))), log_name, manifest)
        };
        self.step("record");
        let active = Arc::new(Buffer::new(self.budget.write_buffer_bytes, log_id));
        let mut part = Part::default().with_tables(manifest.version(), &self.tables, self.options.limits.levels);
        if self.read_only {
            for (_, run) in part.tables() {
                run.table()?;
            }
        }
        part.buffers.push(active.clone());
        part.buffers.extend(self.kept.drain(..).rev());
        let (log, pm_buffer) = log.map_or((None, None), |(log, pm)| (Some(log), pm));
        let logs = Logs {
            unrecorded_end: Mutex::new(None),
            ends_synced: AtomicBool::new(true),
            floor: log_floor,
            name: log_name,
            pm_buffer,
        };
        let commit = Commit::new(log, active, self.last_seqno, self.options.limits.group_bytes);
        Ok(self.assemble(lock, commit, manifest, part, logs))
    }

    /// The log's buffer in the pool, and what to call the log in stats.
    fn pm_log_buffer(&self) -> Result<(Option<PmLogBuffer>, String)> {
        let Some(pool) = &self.pm else { return Ok((None, "file".to_owned())) };
        let buffer = PmLogBuffer::open(pool, self.files.uuid, self.options.limits.pm_log_buffer_bytes)?;
        let name = pool.backend_name();
        let log_name = match buffer {
            Some(_) => format!("pm buffer ({name})"),
            None => format!("file (pm backend {name} is not durable at the fence, so the log is not buffered there)"),
        };
        Ok((buffer, log_name))
    }

    /// The new manifest: what the old one said, what was recovered, and the new log.
    fn record(&mut self, log_id: u64) -> Result<ManifestWriter> {
        let pm = match &self.pm {
            Some(pool) => {
                let edit_id = self.version.edit_id;
                let root = pool.commit_with(Fenced::nothing(), |root| {
                    root.applied_edit = edit_id;
                    Ok(())
                })?;
                PmPairing { generation: root.generation }
            }
            None => PmPairing::default(),
        };
        let manifest_id = self.next_file_id();
        let edit = Edit {
            id: self.version.edit_id + 1,
            next_file_id: Some(self.mill.next_file_id.load(Ordering::Relaxed)),
            last_seqno: Some(self.last_seqno),
            log_floor: Some(log_id),
            logs_added: vec![log_id],
            add: std::mem::take(&mut self.recovered).into_iter().map(|table| (0, table)).collect(),
            pm: Some(pm),
            ..Edit::default()
        };
        let mut version = self.version.clone();
        version.apply(&edit).map_err(|broken| {
            Error::corruption(self.files.dir.display(), 0, format_args!("recovery broke the invariant {broken}"))
        })?;
        let bytes_max = self.options.limits.manifest_bytes;
        ManifestWriter::create(self.files.clone(), self.counters.clone(), manifest_id, version, bytes_max)
    }

    /// Removes files that the manifest does not name. Failing to is no reason not to open.
    fn sweep(&self, manifest: &ManifestWriter) {
        let version = manifest.version();
        let named = |name: &str| match files::parse(name) {
            FileName::Table(id) => version.levels.iter().flatten().any(|table| table.id == id),
            FileName::Log(id) => version.logs.contains_key(&id),
            FileName::Manifest(id) => id == manifest.id(),
            FileName::CurrentNew => false,
            _ => true,
        };
        let names = match self.files.fs.list(&self.files.dir) {
            Ok(names) => names,
            Err(error) => return tracing::warn!(%error, "cannot look for files to remove"),
        };
        for name in names.iter().filter(|name| !named(name)) {
            if let Err(error) = self.files.fs.remove(&self.files.dir.join(name)) {
                tracing::warn!(%error, "a file that nothing names stays");
            }
        }
    }

    /// Writes down the options, for people. Nothing reads them back.
    fn write_options(&self) {
        let text = format!("# FirnDB {}: options at the last open\n{:#?}\n", env!("CARGO_PKG_VERSION"), self.options);
        let written = self
            .files
            .fs
            .open(&files::options(&self.files.dir), OpenMode::Create)
            .and_then(|file| file.write(0, &[text.as_bytes()]));
        if let Err(error) = written {
            tracing::warn!(%error, "OPTIONS could not be written");
        }
    }

    fn assemble(
        self,
        lock: Option<Box<dyn Lock>>,
        commit: Commit,
        manifest: ManifestWriter,
        part: Part,
        logs: Logs,
    ) -> Db {
        let workers = match self.options.background_workers {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get().min(4)),
            n => n,
        };
        let executor: Arc<dyn Executor> =
            self.options.environment.executor.clone().unwrap_or_else(|| Arc::new(Threads::new(workers)));
        let event =
            Event::Recovered { steps: self.report.steps.clone(), replayed_entries: self.report.replayed_entries };
        emit(self.options.listener.as_ref(), &event);
        tracing::info!(fresh = self.fresh, replayed = self.report.replayed_entries, log = logs.name, "opened");
        let inner = Arc::new(Inner {
            counts: Counts {
                io: self.counters,
                user: Default::default(),
                jobs: JobCounters::new(self.options.limits.levels),
            },
            stall: Stall::new(self.clock.clone()),
            options: self.options,
            budget: self.budget,
            files: self.files,
            clock: self.clock,
            executor: executor.clone(),
            tables: self.tables,
            state: ArcSwap::from_pointee(ReadState::single(part)),
            commit,
            manifest: Mutex::new(manifest),
            logs,
            readers: Readers::default(),
            jobs: Jobs::default(),
            mill: self.mill,
            read_only: self.read_only,
            closed: AtomicBool::new(false),
            recovery: self.report,
            pm: self.pm,
            lock: Mutex::new(lock),
        });
        if !inner.read_only {
            let work: Weak<Inner> = Arc::downgrade(&inner);
            executor.attach(work);
        }
        inner.update_stall();
        Db::new(inner)
    }
}
