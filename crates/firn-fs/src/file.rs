//! The two traits that everything on files goes through, and [`Pending`], an operation in flight.
//!
//! 1. A write is durable after `sync` of its file and, for a new or renamed file, `sync_dir` of its directory.
//! 2. Files are written at explicit offsets; there is no shared position, so all methods take `&self`.
//! 3. A direct file takes aligned writes only; reads may ask for any range, the file aligns them itself.
//! 4. What makes something durable or replaces a name says by its [`Site`] what for; a test can switch it off there.
//!
//! Thread safety: everything is `Send + Sync`; a [`Pending`] is `Send` and may be waited for on any thread.

use crate::buf::IoBuf;
use firn_base::Result;
use firn_base::site::Site;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read through the page cache.
    Read,
    /// An existing file, to read past the page cache where the file system can.
    ReadDirect,
    /// A new file (or an old one emptied), to read and write through the page cache.
    Create,
    /// A new file, to read and write past the page cache where the file system can.
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

/// An exclusive lock, held until dropped.
pub trait Lock: Send + Sync + Debug {}

/// A file system.
pub trait Fs: Send + Sync + Debug {
    /// Opens or creates a file.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Renames a file over any that is there. DURABLE AFTER: [`Fs::sync_dir`].
    fn rename(&self, site: &'static Site, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file. DURABLE AFTER: [`Fs::sync_dir`].
    fn remove(&self, path: &Path) -> Result<()>;
    /// Gives a file a second name. DURABLE AFTER: [`Fs::sync_dir`].
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Creates a directory and those above it. DURABLE AFTER: return.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// The names in a directory, sorted.
    fn list(&self, path: &Path) -> Result<Vec<String>>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, site: &'static Site, path: &Path) -> Result<()>;
    /// A file's length; an error of kind `NotFound` if it is not there.
    fn len(&self, path: &Path) -> Result<u64>;
    /// Takes the lock file at `path`, creating it if needed; an error of kind `Locked` if somebody holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;
    /// Which implementation moves the bytes, for the log and for stats.
    fn name(&self) -> String;
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
    path.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
