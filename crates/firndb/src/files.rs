//! A database's directory and the names of the files in it, in one place.
//!
//! 1. The directory is held open and every file is reached through it, never by a path.
//! 2. A file that is made is new. Before it is made the directory's lock is looked at: a process that lost it to
//!    another makes and removes nothing more.
//! 3. Once the directory is closed nothing is opened, made, renamed or removed in it.

use crate::gate::Gate;
use firn_base::site::Site;
use firn_base::sync::Mutex;
use firn_base::{Error, Result};
use firn_fs::{Dir, File, Lock, OpenMode};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It is a file of the database with this uuid.
    Database([u8; 16]),
    /// It is a database's that another version of FirnDB wrote.
    OtherVersion,
    /// It has no byte, or nothing but zeros where it would say so: it was never finished.
    Nobody,
    /// It says nothing that a database of ours would: another program's, or one of ours whose first bytes are lost.
    Unknown,
}

impl Owner {
    pub(crate) fn uuid(self) -> Option<[u8; 16]> {
        if let Owner::Database(uuid) = self { Some(uuid) } else { None }
    }
}

/// The largest number of a file, an edit or anything else that a manifest counts. No database counts so far, and what
/// comes behind it can still be counted.
pub(crate) const NUMBER_MAX: u64 = 1 << 56;

/// A database directory.
#[derive(Debug)]
pub(crate) struct Files {
    dir: Arc<dyn Dir>,
    /// The database's uuid, in every log, table and pool that belongs to it.
    pub(crate) uuid: [u8; 16],
    /// `None` for a database that is open to read, and once it is closed.
    lock: Mutex<Option<Arc<dyn Lock>>>,
    is_read_only: bool,
    gate: Gate,
}

/// A file of a database, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum FileName {
    Log(u64),
    Table(u64),
    Manifest(u64),
    Current,
    CurrentNew,
    Lock,
    Options,
    OptionsNew,
    /// A name that no file of a database has.
    Unknown,
}

impl Files {
    /// A directory that `lock` makes this process's own; without a lock it is there to be read.
    pub(crate) fn new(dir: Arc<dyn Dir>, uuid: [u8; 16], lock: Option<Arc<dyn Lock>>) -> Files {
        let is_read_only = lock.is_none();
        Files { dir, uuid, lock: Mutex::new(lock), is_read_only, gate: Gate::default() }
    }

    /// The path that the directory was opened by, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The path of a file, for messages.
    pub(crate) fn path_of(&self, name: FileName) -> PathBuf {
        self.path().join(name.to_string())
    }

    /// The directory, for what only reads or what another directory links from it.
    pub(crate) fn dir(&self) -> &dyn Dir {
        &*self.dir
    }

    /// True for a database that was opened to read, beside which a writer may be at work.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Opens a file that is there.
    pub(crate) fn open(&self, name: FileName, mode: OpenMode) -> Result<Arc<dyn File>> {
        debug_assert!(!mode.creates());
        let _entered = self.gate.enter()?;
        self.dir.open(&name.to_string(), mode)
    }

    /// Makes a new file, to write through the page cache.
    ///
    /// # Errors
    /// `Io` if there is a file of that name.
    pub(crate) fn create(&self, name: FileName) -> Result<Arc<dyn File>> {
        self.make(name, OpenMode::Create)
    }

    /// Makes a new file, to write past the page cache if it `is_direct`.
    ///
    /// # Errors
    /// As [`Files::create`].
    pub(crate) fn create_table(&self, id: u64, is_direct: bool) -> Result<Arc<dyn File>> {
        self.make(FileName::Table(id), if is_direct { OpenMode::CreateDirect } else { OpenMode::Create })
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

    /// Renames a file over any that is there.
    pub(crate) fn rename(&self, site: &'static Site, from: FileName, to: FileName) -> Result<()> {
        let _entered = self.enter_to_change()?;
        self.dir.rename(site, &from.to_string(), &to.to_string())
    }

    /// Gives a file of another directory the same name here.
    pub(crate) fn link(&self, from: &Files, name: FileName) -> Result<()> {
        let _entered = self.enter_to_change()?;
        self.dir.link(&name.to_string(), from.dir(), &name.to_string())
    }

    fn enter_to_change(&self) -> Result<crate::gate::Entered<'_>> {
        let entered = self.gate.enter()?;
        if self.is_read_only {
            return Err(Error::invalid("the database was opened read-only; open it with `Db::open` to write"));
        }
        self.lock.lock().as_ref().map_or(Ok(()), |lock| lock.check())?;
        Ok(entered)
    }

    /// A file's length; an error of kind `NotFound` if it is not there.
    pub(crate) fn len(&self, name: FileName) -> Result<u64> {
        self.dir.len(&name.to_string())
    }

    /// The names in the directory, sorted: those of the database's files, and others.
    pub(crate) fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }

    /// Makes what was created, renamed and removed durable.
    pub(crate) fn sync_dir(&self, site: &'static Site) -> Result<()> {
        let _entered = self.gate.enter()?;
        self.dir.sync(site)
    }

    /// Gives the directory back: waits for what is under way in it, refuses what comes later, releases the lock.
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
    /// The file that `name` stands for. A number with too few or too many zeros in front stands for none.
    pub(crate) fn parse(name: &str) -> FileName {
        let fixed = [FileName::Current, FileName::CurrentNew, FileName::Lock, FileName::Options, FileName::OptionsNew];
        if let Some(found) = fixed.into_iter().find(|fixed| fixed.to_string() == name) {
            return found;
        }
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|&id| is_number && id <= NUMBER_MAX)
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
        parsed.filter(|parsed| parsed.to_string() == name).unwrap_or(FileName::Unknown)
    }

    /// The number in the name of a log, table or manifest.
    pub(crate) fn number(self) -> Option<u64> {
        match self {
            FileName::Log(id) | FileName::Table(id) | FileName::Manifest(id) => Some(id),
            _ => None,
        }
    }
}

#[cfg(test)]
impl Files {
    /// The directory at `path`, which is made and locked.
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
        assert_eq!(FileName::parse("000012.log"), FileName::Log(12));
        assert_eq!(FileName::parse("1234567.sst"), FileName::Table(1_234_567));
        assert_eq!(FileName::parse("MANIFEST-000003"), FileName::Manifest(3));
        assert_eq!(FileName::parse("CURRENT"), FileName::Current);
        assert_eq!(FileName::parse("+5.log"), FileName::Unknown);
        assert_eq!(FileName::parse("notes.txt"), FileName::Unknown);
        assert_eq!(FileName::parse("12.log"), FileName::Unknown, "ours has six digits");
        assert_eq!(FileName::parse("0000012.log"), FileName::Unknown);
        assert_eq!(FileName::parse(&format!("{}.log", NUMBER_MAX)), FileName::Log(NUMBER_MAX));
        assert_eq!(FileName::parse("18446744073709551615.sst"), FileName::Unknown, "no id could follow");
    }
}
