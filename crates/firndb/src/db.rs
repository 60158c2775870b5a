//! The handle that users hold, and what all handles of one open database share.

use crate::background::Jobs;
use crate::batch::WriteBatch;
use crate::budget::Budget;
use crate::buffer::Entry;
use crate::commit::Commit;
use crate::event::{Event, EventListener};
use crate::files::Files;
use crate::gate::Gate;
use crate::iter::{Iter, SharedPins};
use crate::log::{PmLogBuffer, SealedLogs, ValueLogs};
use crate::manifest::{Edit, ManifestWriter};
use crate::mill::MillContext;
use crate::options::{Options, ReadOptions, WriteOptions};
use crate::recover;
use crate::snapshot::{Snapshot, Snapshots};
use crate::sst_run::TableCache;
use crate::stall::Stall;
use crate::state::ReadState;
use crate::stats::JobCounters;
use firn_base::clock::Clock;
use firn_base::count::{Counter, IoCounters};
use firn_base::exec::{Executor, relax};
use firn_base::key::{Kind, prefix_end};
use firn_base::sync::{ArcSwap, AtomicBool, AtomicU64, Guard, Mutex, Ordering};
use firn_base::{Error, Result};
use firn_fs::{Fs, OsFs};
use firn_table::Value;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// An open database. Clones are handles of the same one; it closes when the last goes, or by [`Db::close`].
#[derive(Clone)]
pub struct Db {
    pub(crate) inner: Arc<Inner>,
    _open: Arc<Open>,
}

/// Closes the database when the last handle, snapshot or cursor goes; workers hold only the `Inner`.
struct Open(Arc<Inner>);

impl Drop for Open {
    fn drop(&mut self) {
        if let Err(error) = self.0.close() {
            tracing::error!(%error, "the database was not closed cleanly");
        }
    }
}

/// What the handles share.
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) budget: Budget,
    pub(crate) files: Arc<Files>,
    pub(crate) clock: Clock,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) counts: Counts,
    pub(crate) tables: Arc<TableCache>,
    pub(crate) state: ArcSwap<ReadState>,
    pub(crate) commit: Commit,
    pub(crate) manifest: Mutex<ManifestWriter>,
    pub(crate) logs: Logs,
    pub(crate) readers: Readers,
    pub(crate) jobs: Jobs,
    pub(crate) mill: MillContext,
    pub(crate) stall: Stall,
    pub(crate) read_only: bool,
    /// Calls that touch media and may last; closing waits for those inside.
    pub(crate) calls: Gate,
    /// Held while the database is closed; true once it was.
    pub(crate) closing: Mutex<bool>,
    pub(crate) recovery: recover::Report,
    pub(crate) pm: Option<Arc<firn_pm::Pool>>,
}

/// What is known of the logs beside the one that is written.
pub(crate) struct Logs {
    /// The end of the log before this one, if a full disk kept it from being recorded.
    pub(crate) unrecorded_end: Mutex<Option<Edit>>,
    /// Whether the ends that were recorded are durable.
    pub(crate) ends_synced: AtomicBool,
    pub(crate) sealed: Arc<SealedLogs>,
    /// What to call the log in stats.
    pub(crate) name: String,
    pub(crate) pm_buffer: Option<PmLogBuffer>,
    /// Logs whose values level 0 points to, in profile `lab`.
    pub(crate) values: Option<Arc<ValueLogs>>,
}

/// Who reads: what merges must respect, and what idle cursors hold.
#[derive(Default)]
pub(crate) struct Readers {
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) iters: Mutex<Vec<Weak<SharedPins>>>,
    pub(crate) idle_ticks: AtomicU64,
    /// How often cursors were told to let go of older states.
    pub(crate) revocations: AtomicU64,
}

/// Counters.
pub(crate) struct Counts {
    pub(crate) io: Arc<IoCounters>,
    pub(crate) user: UserCounters,
    pub(crate) jobs: JobCounters,
}

/// What users asked for.
#[derive(Debug, Default)]
pub(crate) struct UserCounters {
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) gets: Counter,
    pub(crate) found: Counter,
}

impl Db {
    pub(crate) fn new(inner: Arc<Inner>) -> Db {
        Db { _open: Arc::new(Open(inner.clone())), inner }
    }

    /// Opens the database in directory `path`, creating it if it is not there.
    ///
    /// # Errors
    /// `Locked` if it is open elsewhere; `Invalid` for options that cannot be; `Incompatible` if it was made by another
    /// version or profile; `Corruption` if its files are damaged, naming the file; `Io`.
    ///
    /// ```
    /// # fn main() -> firndb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = firndb::Db::open(dir.path().join("db"), firndb::Options::default())?;
    /// db.put(b"snow", b"falls")?;
    /// assert_eq!(db.get(b"snow")?.unwrap(), b"falls");
    /// db.close()
    /// # }
    /// ```
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        recover::open(path.as_ref(), options, false)
    }

    /// Opens an existing database to read. Writes nothing; works beside a process that has it open for writing, and
    /// shows what was there when it was opened. The logs are replayed in memory.
    ///
    /// # Errors
    /// As [`Db::open`], but never `Locked`. `Corruption`, here or of reads in profile `lab`, may also mean that a
    /// writer took away what was looked at: open it again.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        recover::open(path.as_ref(), options, true)
    }

    /// Sets `key` to `value`, with the durability of the options.
    ///
    /// # Errors
    /// `Invalid` for an empty or oversize key or value; `NoSpace` when the disk is full (it resumes by itself);
    /// `Poisoned` after a failed sync.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, &self.default_write())
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        self.write_one(Entry { kind: Kind::Put, key: key.as_ref(), value: value.as_ref() }, options)
    }

    /// Deletes `key`; it need not be there.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, &self.default_write())
    }

    /// Deletes `key`; it need not be there.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        self.write_one(Entry { kind: Kind::Delete, key: key.as_ref(), value: &[] }, options)
    }

    fn default_write(&self) -> WriteOptions {
        WriteOptions { durability: self.inner.options.durability }
    }

    fn write_one(&self, entry: Entry<'_>, options: &WriteOptions) -> Result<()> {
        self.inner.write(std::iter::once(entry), options.durability)?;
        self.inner.counts.user.writes.add(1);
        self.inner.counts.user.written_bytes.add((entry.key.len() + entry.value.len()) as u64);
        Ok(())
    }

    /// Applies a batch: all of it or nothing.
    ///
    /// # Errors
    /// As [`Db::put`]; `Invalid` too for a batch over a quarter of `memory_limit`.
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        if batch.is_empty() {
            return self.inner.check_writable();
        }
        self.inner.write(batch.entries(), options.durability)?;
        self.inner.counts.user.writes.add(batch.len() as u64);
        self.inner.counts.user.written_bytes.add(batch.byte_size() as u64);
        Ok(())
    }

    /// The value of `key`, pinned where it lies.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.count_get(self.inner.get(key).map_err(|error| self.reread(error, key)))
    }

    pub(crate) fn get_at(&self, key: &[u8], seqno: firn_base::SeqNo) -> Result<Option<Value>> {
        self.count_get(self.inner.get_at(key, seqno).map_err(|error| self.reread(error, key)))
    }

    fn reread(&self, error: Error, key: &[u8]) -> Error {
        self.inner.told_apart(error, |fresh| fresh.inner.get(key).map(drop))
    }

    fn count_get(&self, got: Result<Option<Value>>) -> Result<Option<Value>> {
        self.inner.counts.user.gets.add(1);
        if matches!(got, Ok(Some(_))) {
            self.inner.counts.user.found.add(1);
        }
        got
    }

    /// The values of several keys at one moment, their reads in flight together.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.inner.counts.user.gets.add(keys.len() as u64);
        let got = self.inner.multi_get(&keys);
        got.map_err(|error| self.inner.told_apart(error, |fresh| fresh.inner.multi_get(&keys).map(drop)))
    }

    /// A cursor over all keys.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file.
    pub fn iter(&self) -> Result<Iter> {
        self.iter_with(ReadOptions::default())
    }

    /// A cursor over the keys in `range`.
    ///
    /// # Errors
    /// As [`Db::iter`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        let behind = |key: &K| {
            let mut key = key.as_ref().to_vec();
            key.push(0);
            key
        };
        let lower = match range.start_bound() {
            Bound::Included(key) => Some(key.as_ref().to_vec()),
            Bound::Excluded(key) => Some(behind(key)),
            Bound::Unbounded => None,
        };
        let upper = match range.end_bound() {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        self.iter_with(ReadOptions { lower, upper, snapshot: None })
    }

    /// A cursor over just the keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`Db::iter`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        let prefix = prefix.as_ref();
        self.iter_with(ReadOptions { lower: Some(prefix.to_vec()), upper: prefix_end(prefix), snapshot: None })
    }

    /// A cursor with bounds, at the present or at a snapshot.
    ///
    /// # Errors
    /// As [`Db::iter`].
    pub fn iter_with(&self, options: ReadOptions) -> Result<Iter> {
        self.inner.calls.check()?;
        let point = match &options.snapshot {
            Some(snapshot) if Arc::ptr_eq(&snapshot.db.inner, &self.inner) => snapshot.point.clone(),
            Some(_) => return Err(Error::invalid("the snapshot is of another database")),
            None => self.inner.readers.snapshots.register(&self.inner.commit.visible),
        };
        Ok(Iter::new(self.clone(), point, options))
    }

    /// The database as it is now, to read later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { point: self.inner.readers.snapshots.register(&self.inner.commit.visible), db: self.clone() }
    }

    /// Makes all that was acknowledged so far survive power loss.
    ///
    /// # Errors
    /// `Poisoned` if the sync fails.
    pub fn sync(&self) -> Result<()> {
        self.inner.write(std::iter::empty(), crate::Durability::Power)
    }

    /// Writes what is in memory into tables, and waits for it.
    ///
    /// # Errors
    /// What the flush met.
    pub fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    /// Compacts the keys from `from` to `to` (not included) down to the last level that holds any, so that what was
    /// overwritten or deleted gives its space back. `None` means no bound.
    ///
    /// # Errors
    /// What reading and writing met.
    pub fn compact_range(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<()> {
        self.inner.compact_range(from.unwrap_or(&[]), to)
    }

    /// Waits until no background work is left to do.
    ///
    /// # Errors
    /// What background work met, if it cannot go on.
    pub fn wait_idle(&self) -> Result<()> {
        self.inner.wait_idle()
    }

    /// Writes a copy of the database, as it is now, into the new directory `dir`: tables are linked where the file
    /// system can, the rest is written as tables. The copy is a database of its own.
    ///
    /// # Errors
    /// `Invalid` if `dir` exists and is not empty; `NoSpace` and `Io`.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.inner.checkpoint(dir.as_ref())
    }

    /// Counters and sizes.
    pub fn stats(&self) -> crate::Stats {
        self.inner.stats()
    }

    /// Reads everything and checks every checksum, order and bound.
    ///
    /// # Errors
    /// `Corruption` naming the first damage.
    pub fn verify(&self) -> Result<crate::VerifyReport> {
        self.inner.verify()
    }

    /// Reads everything as [`Db::verify`] does, and lists all damage: which file, where, and the keys that it may have
    /// taken.
    ///
    /// # Errors
    /// What kept it from reading and is no damage: `Io`, and `Changed` beside a writer.
    pub fn find_damage(&self) -> Result<(crate::VerifyReport, Vec<crate::Damage>)> {
        self.inner.find_damage()
    }

    /// Closes the database. Calls on other handles that are under way are awaited or broken off; whatever comes later
    /// on any handle, snapshot or cursor answers that the database was closed. Then background work is stopped, the log
    /// is synced, and directory and pool are given back. Blocks until all of that is done, also if another handle is
    /// closing already.
    ///
    /// # Errors
    /// What syncing met; the database is closed all the same.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }
}

impl Inner {
    /// Where directories of copies are made; the database's own is `files`.
    pub(crate) fn fs(&self) -> Arc<dyn Fs> {
        // Set by the open.
        self.options.environment.fs.clone().unwrap_or_else(|| Arc::new(OsFs::new()))
    }

    pub(crate) fn next_file_id(&self) -> u64 {
        self.mill.next_file_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn emit(&self, event: &Event) {
        emit(self.options.listener.as_ref(), event);
    }

    pub(crate) fn register_iter(&self, pins: &Arc<SharedPins>) {
        let mut iters = self.readers.iters.lock();
        if iters.len() == iters.capacity() {
            iters.retain(|iter| iter.strong_count() > 0);
        }
        iters.push(Arc::downgrade(pins));
    }

    /// Counts what background work has done, and what else may end a wait for it.
    pub(crate) fn progress(&self) -> u64 {
        *self.jobs.progress.0.lock()
    }

    /// Waits until background work moved on from `seen`, at most `timeout`; or makes it move, where it runs on the
    /// caller. REQUIRES: `seen` is older than the look at what is waited for, so that nothing is slept through.
    pub(crate) fn wait_for_background(&self, seen: u64, timeout: Duration) {
        self.executor.wake();
        if self.executor.help() {
            return;
        }
        if self.clock.is_manual() {
            self.clock.advance(timeout);
            // Whoever does the work may be another that asked for help.
            relax(u32::MAX);
            return;
        }
        let mut progress = self.jobs.progress.0.lock();
        if *progress == seen {
            let _timed_out = self.jobs.progress.1.wait_for(&mut progress, timeout);
        }
    }

    /// Wakes those who wait for background work.
    pub(crate) fn progressed(&self) {
        *self.jobs.progress.0.lock() += 1;
        self.jobs.progress.1.notify_all();
    }

    /// The state to read from.
    ///
    /// # Errors
    /// `Invalid` if the database was closed.
    #[inline]
    pub(crate) fn read_state(&self) -> Result<Guard<Arc<ReadState>>> {
        let state = self.state.load();
        // After the load: closing shuts the gate, then puts another state in place and waits for those that were read.
        self.calls.check()?;
        Ok(state)
    }
}

pub(crate) fn emit(listener: Option<&Arc<dyn EventListener>>, event: &Event) {
    tracing::debug!(?event);
    if let Some(listener) = listener {
        listener.on_event(event);
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.inner.files.path().display())
    }
}
