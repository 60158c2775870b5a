//! [`SimFs`]: a file system in memory that discards unsynced data when told to, and fails on
//! demand.
//!
//! 1. Everything is a function of the seed and the operations: the same run gives the same trace
//!    and survivors.
//! 2. Operations in flight complete when they are submitted; after [`SimFs::defer`], when the seed
//!    says so, in any order.
//! 3. Clones are the same file system. [`SimFs::power_cut`] and [`SimFs::kill`] return a new one
//!    that holds the surviving state, and leave this one failing every operation.
//!
//! Thread safety: one lock around everything. With several threads the trace depends on their
//! timing.

use super::disk::{AtDeath, Disk, Operation};
use super::fault::{Fault, OpKind};
use super::handle::{DIRECT_ALIGNMENT, SimFile, SimLock};
use super::inode::Inode;
use super::names::Change;
use crate::file::{Dir, File, Fs, Lock, OpenMode, parent};
use firn_base::seed::Seed;
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The simulated file system. See the module's files for its fault model.
#[derive(Clone)]
pub struct SimFs {
    pub(super) disk: Arc<Mutex<Disk>>,
}

impl SimFs {
    /// An empty file system whose direct modes go through the page cache.
    pub fn new(seed: u64) -> Self {
        Self::over(Disk::new(seed))
    }

    /// An empty file system whose direct files require writes aligned to a sector and panic
    /// otherwise.
    pub fn direct(seed: u64) -> Self {
        let mut disk = Disk::new(seed);
        disk.direct = true;
        Self::over(disk)
    }

    pub(super) fn over(disk: Disk) -> Self {
        Self {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    /// From now on operations in flight complete when the seed says so, at the latest when they are
    /// waited for. Those that have not at a crash leave nothing.
    pub fn defer(&self) {
        self.disk.lock().defers = true;
    }

    /// The operations that blocked inside a task of a crew, which stops the others.
    pub fn blocked(&self) -> Vec<(OpKind, PathBuf)> {
        self.disk.lock().blocked.clone()
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.disk.lock().faults.push(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.disk.lock().faults.clear();
    }

    /// Limits the total bytes of all files; writes beyond it fail with ENOSPC. `None` lifts the
    /// limit.
    pub fn set_cap(&self, bytes: Option<u64>) {
        self.disk.lock().cap_bytes = bytes;
    }

    /// Total bytes of all files, including open files without a name.
    pub fn used(&self) -> u64 {
        self.disk.lock().used()
    }

    /// Ends the process at the `count`-th mutating operation from now (counting from 1). A write
    /// leaves its first part; any other operation does not happen. All later operations fail.
    pub fn crash_after(&self, count: u64) {
        let mut disk = self.disk.lock();
        disk.crash_at = Some(disk.mutations + count);
    }

    /// Ends the process now: all later operations fail. For a harness that cuts other media at this
    /// moment.
    pub fn halt(&self) {
        self.disk.lock().halt();
    }

    /// Calls `body` at the moment of death, whatever causes it. The lock of this file system is
    /// held, so `body` must not use it.
    pub fn at_death(&self, body: impl FnOnce() + Send + 'static) {
        self.disk.lock().at_death = Some(AtDeath(Box::new(body)));
    }

    /// True if the file system is dead: every operation fails.
    pub fn crashed(&self) -> bool {
        self.disk.lock().dead
    }

    /// The number of mutating operations so far.
    pub fn mutations(&self) -> u64 {
        self.disk.lock().mutations
    }

    /// The number of all operations so far.
    pub fn operations(&self) -> u64 {
        self.disk.lock().log.len() as u64
    }

    /// All operations so far, in order.
    pub fn log(&self) -> Vec<Operation> {
        self.disk.lock().log.clone()
    }

    /// A hash over all operations, their bytes and their outcomes.
    pub fn trace_hash(&self) -> u64 {
        self.disk.lock().trace
    }

    fn whole(
        &self,
        kind: OpKind,
        path: &Path,
        verb: &str,
        body: impl FnOnce(&mut Disk) -> Result<()>,
    ) -> Result<()> {
        let mut disk = self.disk.lock();
        let result = if disk.admit_whole(kind, path, verb)? {
            body(&mut disk)
        } else {
            Ok(())
        };
        disk.record(kind, path, 0, &[], result.is_ok());
        result
    }
}

fn failed(verb: &str, path: &Path, kind: io::ErrorKind) -> Error {
    Error::from_io(verb, path, io::Error::from(kind))
}

fn in_directory(disk: &Disk, path: &Path, verb: &str) -> Result<()> {
    match disk.names.is_directory(&parent(path)) {
        true => Ok(()),
        false => Err(failed(verb, path, io::ErrorKind::NotFound)),
    }
}

/// The inode of a newly created file at `path`. An existing file is returned if it `may_exist`.
fn create(disk: &mut Disk, path: &Path, may_exist: bool) -> Result<u64> {
    in_directory(disk, path, "open")?;
    match disk.names.seen.get(path) {
        Some(&id) if may_exist => return Ok(id),
        Some(_) => return Err(failed("open", path, io::ErrorKind::AlreadyExists)),
        None => {}
    }
    let id = disk.add_inode(Inode::default());
    disk.names.change(Change::Add {
        path: path.to_path_buf(),
        inode: id,
    });
    Ok(id)
}

/// Access to files by path, for tests. An engine uses [`Fs::open_dir`].
impl SimFs {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// The errors of [`Dir`] and [`Fs`], and the injected faults.
    pub fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut opened = (0, 1);
        self.whole(
            if mode.creates() {
                OpKind::Create
            } else {
                OpKind::Open
            },
            path,
            "open",
            |disk| {
                let inode = if mode.creates() {
                    create(disk, path, false)?
                } else {
                    disk.find(path, "open")?
                };
                disk.inode(inode).handles += 1;
                let direct = disk.direct
                    && matches!(
                        mode,
                        OpenMode::ReadDirect | OpenMode::CreateDirect | OpenMode::AppendDirect
                    );
                opened = (inode, if direct { DIRECT_ALIGNMENT } else { 1 });
                Ok(())
            },
        )?;
        let (inode, alignment) = opened;
        let writable = !matches!(mode, OpenMode::Read | OpenMode::ReadDirect);
        Ok(Arc::new(SimFile {
            disk: self.disk.clone(),
            path: path.to_path_buf(),
            inode,
            alignment,
            writable,
        }))
    }

    /// Renames a file, replacing any existing one.
    ///
    /// # Errors
    /// The errors of [`Dir`] and [`Fs`], and the injected faults.
    pub fn rename(&self, site: &'static Site, from: &Path, to: &Path) -> Result<()> {
        if !site.is_on() {
            return Ok(());
        }
        self.whole(OpKind::Rename, from, "rename", |disk| {
            in_directory(disk, to, "rename")?;
            let inode = disk.find(from, "rename")?;
            disk.names.change(Change::Move {
                from: from.to_path_buf(),
                to: to.to_path_buf(),
                inode,
            });
            Ok(())
        })
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The errors of [`Dir`] and [`Fs`], and the injected faults.
    pub fn remove(&self, path: &Path) -> Result<()> {
        self.whole(OpKind::Remove, path, "remove", |disk| {
            let inode = disk.find(path, "remove")?;
            disk.names.change(Change::Remove {
                path: path.to_path_buf(),
                inode,
            });
            Ok(())
        })
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// The errors of [`Dir`] and [`Fs`], and the injected faults.
    pub fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.whole(OpKind::Link, from, "link", |disk| {
            in_directory(disk, to, "link")?;
            if disk.names.seen.contains_key(to) {
                return Err(failed("link", to, io::ErrorKind::AlreadyExists));
            }
            let inode = disk.find(from, "link")?;
            disk.names.change(Change::Add {
                path: to.to_path_buf(),
                inode,
            });
            Ok(())
        })
    }

    /// Creates a directory and its parents.
    ///
    /// # Errors
    /// The errors of [`Dir`] and [`Fs`], and the injected faults.
    pub fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.whole(OpKind::CreateDir, path, "create directory", |disk| {
            disk.names.make_directories(path);
            Ok(())
        })
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// The errors of [`Dir`] and [`Fs`], and the injected faults.
    pub fn list(&self, path: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        self.whole(OpKind::List, path, "list", |disk| {
            if !disk.names.is_directory(path) {
                return Err(failed("list", path, io::ErrorKind::NotFound));
            }
            names = disk.names.list(path);
            Ok(())
        })?;
        Ok(names)
    }

    /// Makes creations, renames and removals in a directory durable.
    ///
    /// # Errors
    /// The errors of [`Dir`] and [`Fs`], and the injected faults.
    pub fn sync_dir(&self, site: &'static Site, path: &Path) -> Result<()> {
        if !site.is_on() {
            return Ok(());
        }
        self.whole(OpKind::SyncDir, path, "sync directory", |disk| {
            if !disk.names.is_directory(path) {
                return Err(failed("sync directory", path, io::ErrorKind::NotFound));
            }
            disk.names.sync(path);
            disk.sweep();
            Ok(())
        })
    }

    /// A file's length.
    ///
    /// # Errors
    /// The errors of [`Dir`] and [`Fs`], and the injected faults.
    pub fn len(&self, path: &Path) -> Result<u64> {
        let mut len = 0;
        self.whole(OpKind::Len, path, "stat", |disk| {
            let id = disk.find(path, "stat")?;
            len = disk.inode(id).bytes().len() as u64;
            Ok(())
        })?;
        Ok(len)
    }

    /// Takes a lock file.
    ///
    /// # Errors
    /// The errors of [`Dir`] and [`Fs`], and the injected faults.
    pub fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let mut inode = 0;
        self.whole(OpKind::Lock, path, "lock", |disk| {
            inode = create(disk, path, true)?;
            if !disk.locks.insert(path.to_path_buf()) {
                let message = format!(
                    "{} is held: another handle has the database open",
                    path.display()
                );
                return Err(Error::new(ErrorKind::Locked, message));
            }
            Ok(())
        })?;
        Ok(Box::new(SimLock {
            disk: self.disk.clone(),
            path: path.to_path_buf(),
            inode,
        }))
    }
}

impl Fs for SimFs {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        self.whole(OpKind::Open, path, "open directory", |disk| {
            match disk.names.is_directory(path) {
                true => Ok(()),
                false => Err(failed("open directory", path, io::ErrorKind::NotFound)),
            }
        })?;
        Ok(Arc::new(SimDir {
            fs: self.clone(),
            path: path.to_path_buf(),
        }))
    }

    fn create_dir(&self, path: &Path, parents: bool) -> Result<()> {
        let is_there = |path: &Path| self.disk.lock().names.is_directory(path);
        match is_there(path) || parents || is_there(&parent(path)) {
            true => self.create_dir_all(path),
            false => Err(failed("create directory", path, io::ErrorKind::NotFound)),
        }
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.whole(OpKind::Remove, path, "remove", |disk| {
            if !disk.names.list(path).is_empty() {
                return Err(failed("remove", path, io::ErrorKind::DirectoryNotEmpty));
            }
            disk.names.remove_directory(path);
            Ok(())
        })
    }

    /// Lets some of the deferred operations happen, in an order that the seed chooses; at least one
    /// if the caller would wait.
    fn complete(&self, at_most: Duration) {
        let mut disk = self.disk.lock();
        let mut waiting = std::mem::take(&mut disk.in_flight);
        let mut seed = Seed::new(disk.seed.next_u64());
        drop(disk);
        waiting.retain(|operation| operation.strong_count() > 0);
        let mut must_one = at_most > Duration::ZERO;
        for count in (1..=waiting.len()).rev() {
            let at = seed.below(count as u64) as usize;
            waiting.swap(at, count - 1);
            if must_one || seed.one_in(3) {
                must_one = false;
                if let Some(operation) = waiting.swap_remove(count - 1).upgrade() {
                    operation.lock().happen();
                }
            }
        }
        self.disk.lock().in_flight.extend(waiting);
    }

    fn name(&self) -> String {
        format!(
            "simulated, {}",
            if self.disk.lock().direct {
                "direct"
            } else {
                "buffered"
            }
        )
    }
}

/// A directory of a simulated file system. Directories never move there, so the path is sufficient
/// as a handle.
#[derive(Debug)]
struct SimDir {
    fs: SimFs,
    path: PathBuf,
}

impl Dir for SimDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.fs.open(&self.path.join(name), mode)
    }

    fn rename(&self, site: &'static Site, from: &str, to: &str) -> Result<()> {
        self.fs
            .rename(site, &self.path.join(from), &self.path.join(to))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.fs.remove(&self.path.join(name))
    }

    fn link(&self, name: &str, source: &dyn Dir, from: &str) -> Result<()> {
        match source
            .as_any()
            .downcast_ref::<SimDir>()
            .filter(|source| Arc::ptr_eq(&source.fs.disk, &self.fs.disk))
        {
            Some(source) => self.fs.link(&source.path.join(from), &self.path.join(name)),
            None => Err(failed(
                "link",
                &self.path.join(name),
                io::ErrorKind::CrossesDevices,
            )),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        self.fs.list(&self.path)
    }

    fn sync(&self, site: &'static Site) -> Result<()> {
        self.fs.sync_dir(site, &self.path)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.fs.len(&self.path.join(name))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        self.fs.lock(&self.path.join(name))
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let path = self.path.join(name);
        self.fs.create_dir_all(&path)?;
        Ok(Arc::new(SimDir {
            fs: self.fs.clone(),
            path,
        }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for SimFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.disk.lock();
        write!(
            f,
            "SimFs {{ {} files, {} mutations, dead: {} }}",
            disk.names.seen.len(),
            disk.mutations,
            disk.dead
        )
    }
}
