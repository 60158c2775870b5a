//! The traits that everything on files goes through, and [`Pending`], an operation in flight.
//!
//! 1. A file is reached by its name in a [`Dir`] that was opened once. A directory that is moved, or removed and made
//!    again, or a process that changes its working directory, never leads a handle to another directory.
//! 2. A new file is new: creating one whose name is taken is an error, never a truncation.
//! 3. A write is durable after `sync` of its file and, for a new or renamed file, `sync` of its directory.
//! 4. Files are written at explicit offsets; there is no shared position, so all methods take `&self`.
//! 5. A direct file takes aligned writes only; reads may ask for any range, the file aligns them itself.
//! 6. What makes something durable or replaces a name says by its [`Site`] what for; a test can switch it off there.
//!
//! Thread safety: everything is `Send + Sync`; a [`Pending`] is `Send` and may be waited for on any thread.

use crate::buf::IoBuf;
use firn_base::site::Site;
use firn_base::{Error, Result};
use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read through the page cache.
    Read,
    /// An existing file, to read past the page cache where the file system can.
    ReadDirect,
    /// A new file, to read and write through the page cache. An error if the name is taken.
    Create,
    /// A new file, to read and write past the page cache where the file system can. An error if the name is taken.
    CreateDirect,
    /// An existing file, to read and append to through the page cache. Never truncates.
    Append,
    /// An existing file, to read and append to past the page cache where the file system can. Never truncates.
    AppendDirect,
}

/// One open file.
pub trait File: Send + Sync + Debug {
    /// Reads `len` bytes at `offset` into `into`, whose [`IoBuf::bytes`] are then those bytes: fewer only if the file
    /// ends before.
    fn read(&self, offset: u64, len: usize, into: &mut IoBuf) -> Result<()>;
    /// Writes `parts` one behind the other from `offset` on.
    ///
    /// REQUIRES, for a direct file: one part, from an [`IoBuf`], offset and length multiples of [`File::alignment`].
    /// DURABLE AFTER: [`File::sync`].
    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<()>;
    /// Starts a read like [`File::read`]. Several may be in flight; they start when one is waited for.
    fn submit_read(&self, offset: u64, len: usize, into: IoBuf) -> Pending;
    /// Starts a write of `buf` at `offset`, at once. Same rules as [`File::write`].
    fn submit_write(&self, offset: u64, buf: IoBuf) -> Pending;
    /// Cuts the file to `len` bytes; nothing happens if it is no longer than that.
    ///
    /// REQUIRES: no write is in flight behind `len`.
    /// DURABLE AFTER: [`File::sync`]. Until then a power cut may bring back what was synced behind `len`.
    fn truncate(&self, len: u64) -> Result<()>;
    /// Makes the file's data, and the length needed to read it, durable.
    fn sync(&self, site: &'static Site) -> Result<()>;
    /// Hints that the system's cache need not keep what was synced of the file: whoever reads it reads past that.
    fn leave_cache(&self) {}
    /// The file's length in bytes.
    fn len(&self) -> Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// What offsets and lengths of writes must be multiples of: 1 for a buffered file.
    fn alignment(&self) -> usize;
    /// The file's path, for messages.
    fn path(&self) -> &Path;
}

impl OpenMode {
    /// True if the file must not be there before.
    pub fn creates(self) -> bool {
        matches!(self, OpenMode::Create | OpenMode::CreateDirect)
    }
}

/// An exclusive lock, held until dropped.
pub trait Lock: Send + Sync + Debug {
    /// Checks that the lock's name still stands for the file that is locked: if not, another process may hold a lock
    /// of that name too.
    ///
    /// # Errors
    /// `Poisoned` if the name is gone or stands for another file; `Io`.
    fn check(&self) -> Result<()>;
}

/// A directory, held open: what is done by a name happens in this directory, wherever it was moved meanwhile.
pub trait Dir: Send + Sync + Debug {
    /// The path that the directory was opened by, for messages.
    fn path(&self) -> &Path;
    /// Opens or creates the file `name`.
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Renames a file over any that is there. DURABLE AFTER: [`Dir::sync`].
    fn rename(&self, site: &'static Site, from: &str, to: &str) -> Result<()>;
    /// Removes a file. DURABLE AFTER: [`Dir::sync`].
    fn remove(&self, name: &str) -> Result<()>;
    /// Gives the file `from` of directory `source` the new name `name` here. DURABLE AFTER: [`Dir::sync`].
    ///
    /// # Errors
    /// `Io` if the name is taken, or with a source for which [`cannot_link`] holds if the file has to be copied.
    fn link(&self, name: &str, source: &dyn Dir, from: &str) -> Result<()>;
    /// The names in the directory, sorted. Names that are not UTF-8 come with replacement characters: they are nobody's
    /// to open, but they are there.
    fn list(&self) -> Result<Vec<String>>;
    /// Makes creations, renames and removals in the directory durable.
    fn sync(&self, site: &'static Site) -> Result<()>;
    /// A file's length; an error of kind `NotFound` if it is not there.
    fn len(&self, name: &str) -> Result<u64>;
    /// Takes the lock file `name`, creating it if needed; an error of kind `Locked` if somebody holds it.
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>>;
    /// Opens the directory `name` in this one, after creating it if it is not there. DURABLE AFTER: return.
    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Dir>>;
    /// The concrete type, for [`Dir::link`].
    fn as_any(&self) -> &dyn Any;
}

/// A file system.
pub trait Fs: Send + Sync + Debug {
    /// Opens a directory; an error of kind `NotFound` if it is not there.
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>>;
    /// Creates a directory, and with `parents` those above it. Nothing happens if it is there. DURABLE AFTER: return.
    ///
    /// # Errors
    /// `NotFound` if the directory above it is not there.
    fn create_dir(&self, path: &Path, parents: bool) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Which implementation moves the bytes, for the log and for stats.
    fn name(&self) -> String;
}

/// Opens or creates a single file by its path, for tools and tests: an engine holds on to its directory.
///
/// # Errors
/// As [`Fs::open_dir`] and [`Dir::open`].
pub fn open_file(fs: &dyn Fs, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::invalid(format!("{} is no file's path", path.display())))?;
    fs.open_dir(&parent(path))?.open(name, mode)
}

/// True if `error` says that the file system cannot give a file a second name there, so that it has to be copied. Any
/// other error of a link is none that a copy may follow: if the name is taken, the copy would go onto what is there.
pub fn cannot_link(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| {
        use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
        matches!(source.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
    })
}

/// An operation in flight. Dropping it abandons the result, not the operation.
#[must_use = "an operation in flight reports its error only to `wait`"]
pub struct Pending(Box<dyn Completion + Send>);

/// The other side of a [`Pending`].
pub(crate) trait Completion {
    fn wait(self: Box<Self>) -> Result<IoBuf>;
}

struct Done(Result<IoBuf>);

impl Completion for Done {
    fn wait(self: Box<Self>) -> Result<IoBuf> {
        self.0
    }
}

impl Pending {
    pub(crate) fn new(completion: impl Completion + Send + 'static) -> Self {
        Self(Box::new(completion))
    }

    /// An operation that is over already.
    pub(crate) fn done(result: Result<IoBuf>) -> Self {
        Self::new(Done(result))
    }

    /// Waits for the end and gives the buffer back.
    ///
    /// # Errors
    /// What the operation met; the buffer is then gone.
    pub fn wait(self) -> Result<IoBuf> {
        self.0.wait()
    }
}

impl Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// The directory that holds `path`.
pub(crate) fn parent(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
