//! The database handle, and the state that all handles of one open database share.

use crate::api::batch::WriteBatch;
use crate::api::cursor::Cursor;
use crate::api::iter::Iter;
use crate::api::snapshot::Snapshot;
use crate::engine::Engine;
use crate::files::FileName;
use crate::lifecycle::open;
use crate::memtable::Entry;
use crate::options::{Durability, Options, ReadOptions, WriteOptions};
use crate::read_points::Point;
use firn_base::key::Kind;
use firn_base::{Error, ErrorKind, Result, SeqNo};
use firn_table::Value;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

/// An open database. A clone is another handle of the same database, which closes when the last
/// handle is dropped, or by [`Db::close`].
#[derive(Clone)]
pub struct Db {
    pub(crate) engine: Arc<Engine>,
    _open: Arc<Open>,
}

/// Closes the database when the last handle, snapshot or cursor is dropped. Workers hold only the
/// `Engine`.
struct Open(Arc<Engine>);

impl Drop for Open {
    fn drop(&mut self) {
        if let Err(error) = self.0.close() {
            tracing::error!(%error, "the database was not closed cleanly");
        }
    }
}

impl Db {
    pub(crate) fn new(engine: Arc<Engine>) -> Db {
        Db {
            _open: Arc::new(Open(engine.clone())),
            engine,
        }
    }

    /// Opens the database in directory `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// `Locked` if it is open elsewhere; `Invalid` for options that are out of range or contradict
    /// each other; `Incompatible` if it was created by another version or profile; `Corruption` if
    /// its files are damaged, naming the file; `Io`.
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
        open::open(path.as_ref(), options, false).map(Db::new)
    }

    /// Opens an existing database for reading. It writes nothing, works while another process has
    /// the database open for writing, and shows the state at the time of the open. The logs are
    /// replayed in memory.
    ///
    /// # Errors
    /// As [`Db::open`], but never `Locked`. `Changed`, here or from a later read, means that a
    /// writer removed or replaced data while it was being read: open the database again.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        open::open(path.as_ref(), options, true).map(Db::new)
    }

    /// Sets `key` to `value`, with the durability of [`Options::durability`].
    ///
    /// # Errors
    /// `Invalid` for an empty key or for a key or value that is too large; `NoSpace` while the disk
    /// is full (writes resume by themselves); `Poisoned` after a failed sync.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, &WriteOptions::new())
    }

    /// Sets `key` to `value`, with the durability of `options`.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<()> {
        self.write_one(
            Entry {
                kind: Kind::Put,
                key: key.as_ref(),
                value: value.as_ref(),
            },
            options,
        )
    }

    /// Deletes `key`, which need not exist.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, &WriteOptions::new())
    }

    /// Deletes `key`, which need not exist, with the durability of `options`.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        self.write_one(
            Entry {
                kind: Kind::Delete,
                key: key.as_ref(),
                value: &[],
            },
            options,
        )
    }

    fn durability(&self, options: &WriteOptions) -> Durability {
        options.durability.unwrap_or(self.engine.options.durability)
    }

    fn write_one(&self, entry: Entry<'_>, options: &WriteOptions) -> Result<()> {
        self.engine
            .write(std::iter::once(entry), self.durability(options))?;
        self.engine.counts.user.writes.add(1);
        self.engine
            .counts
            .user
            .written_bytes
            .add((entry.key.len() + entry.value.len()) as u64);
        Ok(())
    }

    /// Applies a batch, entirely or not at all. The batch can be cleared and used again.
    ///
    /// # Errors
    /// As [`Db::put`]; also `Invalid` for a batch larger than a quarter of `memory_limit_bytes`.
    pub fn write(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        if batch.is_empty() {
            return self.engine.check_writable();
        }
        self.engine
            .write(batch.entries(), self.durability(options))?;
        self.engine.counts.user.writes.add(batch.len() as u64);
        self.engine
            .counts
            .user
            .written_bytes
            .add(batch.byte_size() as u64);
        Ok(())
    }

    /// The value of `key`, as a copy in a buffer that the thread uses again.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file; `Invalid` if the database was closed.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.engine
            .get(key)
            .map_err(|error| self.reread(error, key))
    }

    pub(crate) fn get_at(&self, key: &[u8], seqno: SeqNo) -> Result<Option<Value>> {
        self.engine
            .get_at(key, seqno)
            .map_err(|error| self.reread(error, key))
    }

    fn reread(&self, error: Error, key: &[u8]) -> Error {
        self.engine
            .told_apart(error, |fresh| fresh.get(key).map(drop))
    }

    /// The values of several keys at one read point. The reads are issued together.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value>>> {
        self.multi_get_at(keys, None)
    }

    pub(crate) fn multi_get_at(
        &self,
        keys: &[impl AsRef<[u8]>],
        at: Option<SeqNo>,
    ) -> Result<Vec<Option<Value>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let got = self.engine.multi_get(&keys, at);
        got.map_err(|error| {
            self.engine
                .told_apart(error, |fresh| fresh.multi_get(&keys, None).map(drop))
        })
    }

    /// True if `key` has a value.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(key).map(|found| found.is_some())
    }

    /// The entry with the smallest key.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn first(&self) -> Result<Option<(Vec<u8>, Value)>> {
        self.iter().next().transpose()
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn last(&self) -> Result<Option<(Vec<u8>, Value)>> {
        self.iter().next_back().transpose()
    }

    /// An iterator over all entries. Its first item is the error if the database was closed.
    pub fn iter(&self) -> Iter {
        Iter::new(self, ReadOptions::default())
    }

    /// An iterator over the entries with keys in `range`.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        Iter::new(self, ReadOptions::range(range))
    }

    /// An iterator over the entries whose keys begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(self, ReadOptions::prefix(prefix))
    }

    /// A cursor over all keys.
    ///
    /// # Errors
    /// `Invalid` if the database was closed.
    pub fn cursor(&self) -> Result<Cursor> {
        self.cursor_with(ReadOptions::default())
    }

    /// A cursor with bounds, over the current state or a snapshot.
    ///
    /// # Errors
    /// `Invalid` if the database was closed, or if the snapshot belongs to another one.
    pub fn cursor_with(&self, options: ReadOptions) -> Result<Cursor> {
        let point = self.point(&options)?;
        Ok(Cursor::new(self.clone(), point, options))
    }

    /// The read point that `options` select.
    pub(crate) fn point(&self, options: &ReadOptions) -> Result<Arc<Point>> {
        self.engine.calls.check()?;
        match &options.snapshot {
            Some(snapshot) if Arc::ptr_eq(&snapshot.db.engine, &self.engine) => {
                Ok(snapshot.point.clone())
            }
            Some(_) => Err(Error::invalid("the snapshot is of another database")),
            None => Ok(self
                .engine
                .readers
                .snapshots
                .register(&self.engine.commit.visible)),
        }
    }

    /// A snapshot of the current state, for later reads.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            point: self
                .engine
                .readers
                .snapshots
                .register(&self.engine.commit.visible),
            db: self.clone(),
        }
    }

    /// Makes all writes that were acknowledged so far survive power loss. Blocks until they do.
    ///
    /// # Errors
    /// `Poisoned` if the sync fails.
    pub fn sync(&self) -> Result<()> {
        self.engine
            .write(std::iter::empty(), crate::Durability::Power)
    }

    /// Writes the contents of memory to tables. Blocks until that is done.
    ///
    /// # Errors
    /// The error of the flush.
    pub fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    /// Compacts all keys: [`Db::compact_range`] without bounds.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file.
    pub fn compact(&self) -> Result<()> {
        self.engine.compact_range(&[], None)
    }

    /// Compacts the keys in `range` down to the last level that holds any, which releases the space
    /// of overwritten and deleted entries. Blocks until that is done; reads and writes go on
    /// meanwhile.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file.
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        let ReadOptions { lower, upper, .. } = ReadOptions::range(range);
        self.engine
            .compact_range(lower.as_deref().unwrap_or_default(), upper.as_deref())
    }

    /// Blocks until there is no background work left to do.
    ///
    /// # Errors
    /// The error of background work, if it cannot continue.
    pub fn wait_idle(&self) -> Result<()> {
        self.engine.wait_idle()
    }

    /// Writes a copy of the database's current state into the new directory `dir`. Tables are
    /// hard-linked if the file system can do that; everything else is written as tables. The copy
    /// is an independent database. Blocks until it is complete.
    ///
    /// # Errors
    /// `Invalid` if `dir` exists and is not empty; `NoSpace` and `Io`.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.engine.checkpoint(dir.as_ref())
    }

    /// The directory of the database, as it was passed to the open.
    pub fn path(&self) -> &Path {
        self.engine.files.path()
    }

    /// Bytes that the database's files take on disk: tables, logs and manifest.
    ///
    /// # Errors
    /// `Io`, if the directory cannot be read.
    pub fn disk_space(&self) -> Result<u64> {
        self.engine.calls.check()?;
        let own = |name: &String| FileName::parse(name) != FileName::Unknown;
        let mut bytes = 0;
        for name in self.engine.files.list()?.iter().filter(|name| own(name)) {
            match self.engine.files.len(FileName::parse(name)) {
                Ok(len) => bytes += len,
                // Removed after it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    /// The approximate number of keys that have a value. An overwritten key counts more than once
    /// until its versions are compacted.
    pub fn approximate_len(&self) -> u64 {
        let visible = self.engine.commit.visible();
        self.engine.state.load().approximate_len(visible)
    }

    /// Counters and sizes.
    pub fn stats(&self) -> crate::Stats {
        self.engine.stats()
    }

    /// Reads the whole database and checks every checksum, order and bound.
    ///
    /// # Errors
    /// `Corruption`, naming the first damage.
    pub fn verify(&self) -> Result<crate::VerifyReport> {
        self.engine.verify()
    }

    /// Reads the whole database as [`Db::verify`] does, and lists all damage: the file, the place
    /// in it, and the keys that may be affected.
    ///
    /// # Errors
    /// An error that prevented reading and is not damage: `Io`, or `Changed` because of a
    /// concurrent writer.
    pub fn find_damage(&self) -> Result<(crate::VerifyReport, Vec<crate::Damage>)> {
        self.engine.find_damage()
    }

    /// Closes the database. Running calls on other handles are awaited or cancelled; later calls on
    /// any handle, snapshot or cursor return the error that the database was closed. Then
    /// background work is stopped, the log is synced, and the directory and the pool are released.
    /// Blocks until all of that is done, even if another handle is already closing.
    ///
    /// # Errors
    /// The error of the sync. The database is closed in any case.
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.engine.files.path().display())
    }
}
