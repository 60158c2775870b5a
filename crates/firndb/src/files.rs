//! The directory of a database and the names of its files.
//!
//! 1. The directory is held open and every file is accessed through it, never by a path.
//! 2. Files are always created new. The directory's lock is checked first: a process that lost it
//!    to another one creates and removes nothing more.
//! 3. After the directory is closed, no file in it is opened, created, renamed or removed.

use crate::gate::Gate;
use firn_base::site::Site;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_base::{Error, FileId, Result};
use firn_fs::{Dir, File, Lock, OpenMode};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The owner of a file, according to its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The database with this uuid.
    Database([u8; 16]),
    /// A database written by another version of FirnDB.
    OtherVersion,
    /// None yet: the file is empty, or has only zeros where the owner would be, because it was
    /// never finished.
    Nobody,
    /// Unrecognized contents: another program's file, or one of ours whose first bytes are lost.
    Unknown,
}

impl Owner {
    pub(crate) fn uuid(self) -> Option<[u8; 16]> {
        if let Owner::Database(uuid) = self {
            Some(uuid)
        } else {
            None
        }
    }
}

/// The largest number of a file, an edit or anything else that a manifest counts. No database
/// counts this far, and the numbers after it can still be represented.
pub(crate) const NUMBER_MAX: u64 = 1 << 56;

/// A database directory.
#[derive(Debug)]
pub(crate) struct Files {
    dir: Arc<dyn Dir>,
    /// The database's uuid, in every log, table and pool that belongs to it.
    pub(crate) uuid: [u8; 16],
    /// `None` for a database that is open read-only, and after it is closed.
    lock: Mutex<Option<Arc<dyn Lock>>>,
    is_read_only: bool,
    gate: Gate,
}

/// A file of a database, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum FileName {
    Log(FileId),
    Table(FileId),
    Manifest(FileId),
    Current,
    CurrentNew,
    Lock,
    Options,
    OptionsNew,
    /// A name that no database file has.
    Unknown,
}

/// Hands out the ids of new files. No id is handed out twice, even after a restart.
#[derive(Debug)]
pub(crate) struct FileIds(AtomicU64);

impl FileIds {
    /// The ids from `next` on.
    pub(crate) fn from(next: FileId) -> FileIds {
        FileIds(AtomicU64::new(next.0))
    }

    /// The id of a new file.
    pub(crate) fn take(&self) -> FileId {
        FileId(self.0.fetch_add(1, Ordering::Relaxed))
    }

    /// The id that is handed out next.
    pub(crate) fn next(&self) -> FileId {
        FileId(self.0.load(Ordering::Relaxed))
    }

    /// Skips the ids below `next`. REQUIRES: no thread takes ids yet.
    pub(crate) fn start_at(&self, next: FileId) {
        self.0.store(next.0, Ordering::Relaxed);
    }
}

impl Files {
    /// A directory that `lock` reserves for this process, or a read-only one without a lock.
    pub(crate) fn new(dir: Arc<dyn Dir>, uuid: [u8; 16], lock: Option<Arc<dyn Lock>>) -> Files {
        let is_read_only = lock.is_none();
        Files {
            dir,
            uuid,
            lock: Mutex::new(lock),
            is_read_only,
            gate: Gate::default(),
        }
    }

    /// The path that the directory was opened by, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The path of a file, for messages.
    pub(crate) fn path_of(&self, name: FileName) -> PathBuf {
        self.path().join(name.to_string())
    }

    /// The directory, for reads and for links into another directory.
    pub(crate) fn dir(&self) -> &dyn Dir {
        &*self.dir
    }

    /// True if the database was opened read-only. A writer may be active at the same time.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Opens an existing file.
    pub(crate) fn open(&self, name: FileName, mode: OpenMode) -> Result<Arc<dyn File>> {
        debug_assert!(!mode.creates());
        let _entered = self.gate.enter()?;
        self.dir.open(&name.to_string(), mode)
    }

    /// Creates a file that is written through the page cache.
    ///
    /// # Errors
    /// `Io` if a file of that name exists.
    pub(crate) fn create(&self, name: FileName) -> Result<Arc<dyn File>> {
        self.make(name, OpenMode::Create)
    }

    /// Creates a table file. If `is_direct`, writes bypass the page cache.
    ///
    /// # Errors
    /// As [`Files::create`].
    pub(crate) fn create_table(&self, id: FileId, is_direct: bool) -> Result<Arc<dyn File>> {
        self.make(
            FileName::Table(id),
            if is_direct {
                OpenMode::CreateDirect
            } else {
                OpenMode::Create
            },
        )
    }

    fn make(&self, name: FileName, mode: OpenMode) -> Result<Arc<dyn File>> {
        let _entered = self.enter_to_change()?;
        self.dir.open(&name.to_string(), mode)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: FileName) -> Result<()> {
        let _entered = self.enter_to_change()?;
        self.dir.remove(&name.to_string())
    }

    /// Renames a file, replacing any existing one.
    pub(crate) fn rename(&self, site: &'static Site, from: FileName, to: FileName) -> Result<()> {
        let _entered = self.enter_to_change()?;
        self.dir.rename(site, &from.to_string(), &to.to_string())
    }

    /// Links a file of another directory into this one, under the same name.
    pub(crate) fn link(&self, from: &Files, name: FileName) -> Result<()> {
        let _entered = self.enter_to_change()?;
        self.dir
            .link(&name.to_string(), from.dir(), &name.to_string())
    }

    fn enter_to_change(&self) -> Result<crate::gate::Entered<'_>> {
        let entered = self.gate.enter()?;
        if self.is_read_only {
            return Err(Error::invalid(
                "the database was opened read-only; open it with `Db::open` to write",
            ));
        }
        self.lock
            .lock()
            .as_ref()
            .map_or(Ok(()), |lock| lock.check())?;
        Ok(entered)
    }

    /// The length of a file, in bytes; `NotFound` if it does not exist.
    pub(crate) fn len(&self, name: FileName) -> Result<u64> {
        self.dir.len(&name.to_string())
    }

    /// The names in the directory, sorted, including files that are not the database's.
    pub(crate) fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }

    /// Makes creations, renames and removals durable.
    pub(crate) fn sync_dir(&self, site: &'static Site) -> Result<()> {
        let _entered = self.gate.enter()?;
        self.dir.sync(site)
    }

    /// Closes the directory: waits for running calls, rejects later ones and releases the lock.
    pub(crate) fn close(&self) {
        self.gate.close();
        *self.lock.lock() = None;
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Log(id) => write!(f, "{id:06}.log"),
            FileName::Table(id) => write!(f, "{id:06}.sst"),
            FileName::Manifest(id) => write!(f, "MANIFEST-{id:06}"),
            FileName::Current => f.write_str("CURRENT"),
            FileName::CurrentNew => f.write_str("CURRENT.new"),
            FileName::Lock => f.write_str("LOCK"),
            FileName::Options => f.write_str("OPTIONS"),
            FileName::OptionsNew => f.write_str("OPTIONS.new"),
            FileName::Unknown => f.write_str("a file that is not of a database"),
        }
    }
}

impl FileName {
    /// The file with this name. A number with too few or too many leading zeros is `Unknown`.
    pub(crate) fn parse(name: &str) -> FileName {
        let fixed = [
            FileName::Current,
            FileName::CurrentNew,
            FileName::Lock,
            FileName::Options,
            FileName::OptionsNew,
        ];
        if let Some(found) = fixed.into_iter().find(|fixed| fixed.to_string() == name) {
            return found;
        }
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|b| b.is_ascii_digit());
            let id = digits.parse().ok();
            id.filter(|&id| is_number && id <= NUMBER_MAX).map(FileId)
        };
        let parsed = if let Some(digits) = name.strip_prefix("MANIFEST-") {
            number(digits).map(FileName::Manifest)
        } else if let Some(digits) = name.strip_suffix(".log") {
            number(digits).map(FileName::Log)
        } else if let Some(digits) = name.strip_suffix(".sst") {
            number(digits).map(FileName::Table)
        } else {
            None
        };
        parsed
            .filter(|parsed| parsed.to_string() == name)
            .unwrap_or(FileName::Unknown)
    }

    /// The number in the name of a log, table or manifest.
    pub(crate) fn number(self) -> Option<FileId> {
        match self {
            FileName::Log(id) | FileName::Table(id) | FileName::Manifest(id) => Some(id),
            _ => None,
        }
    }
}

#[cfg(test)]
impl Files {
    /// The directory at `path`, created and locked.
    pub(crate) fn of_test(fs: &dyn firn_fs::Fs, path: &Path, uuid: [u8; 16]) -> Files {
        fs.create_dir(path, true).unwrap();
        let dir = fs.open_dir(path).unwrap();
        let lock = dir.lock("LOCK").unwrap();
        Files::new(dir, uuid, Some(lock.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!(FileName::parse("000012.log"), FileName::Log(FileId(12)));
        assert_eq!(
            FileName::parse("1234567.sst"),
            FileName::Table(FileId(1_234_567))
        );
        assert_eq!(
            FileName::parse("MANIFEST-000003"),
            FileName::Manifest(FileId(3))
        );
        assert_eq!(FileName::parse("CURRENT"), FileName::Current);
        assert_eq!(FileName::parse("+5.log"), FileName::Unknown);
        assert_eq!(FileName::parse("notes.txt"), FileName::Unknown);
        assert_eq!(
            FileName::parse("12.log"),
            FileName::Unknown,
            "ours has six digits"
        );
        assert_eq!(FileName::parse("0000012.log"), FileName::Unknown);
        assert_eq!(
            FileName::parse(&format!("{}.log", NUMBER_MAX)),
            FileName::Log(FileId(NUMBER_MAX))
        );
        assert_eq!(
            FileName::parse("18446744073709551615.sst"),
            FileName::Unknown,
            "no id could follow"
        );
    }
}
