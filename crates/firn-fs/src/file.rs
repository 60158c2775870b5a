//! The traits that all file access goes through, and [`Pending`], an operation in flight.
//!
//! 1. A file is accessed by its name in a [`Dir`] that was opened once. A handle never moves to
//!    another directory, even if the directory is moved, or removed and created again, or the
//!    process changes its working directory.
//! 2. A new file is new: creating a file whose name is taken is an error, never a truncation.
//! 3. A write is durable after `sync` of its file and, for a new or renamed file, `sync` of its
//!    directory.
//! 4. Files are written at explicit offsets. There is no shared position, so all methods take
//!    `&self`.
//! 5. A direct file accepts aligned writes only. Reads may ask for any range; the file aligns them
//!    itself.
//! 6. An operation that makes something durable or replaces a name takes a [`Site`] that states its
//!    purpose. A test can switch it off there.
//!
//! Thread safety: everything is `Send + Sync`. A [`Pending`] is `Send` and may be waited for on any
//! thread.

use crate::buf::IoBuf;
use firn_base::count::CompactionIo;
use firn_base::exec::may_suspend;
use firn_base::site::Site;
use firn_base::{Error, Result};
use std::any::Any;
use std::fmt::Debug;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The mode in which to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, read through the page cache.
    Read,
    /// An existing file, read past the page cache where the file system supports it.
    ReadDirect,
    /// A new file, read and written through the page cache. An error if the name is taken.
    Create,
    /// A new file, read and written past the page cache where the file system supports it. An error
    /// if the name is taken.
    CreateDirect,
    /// An existing file, read and appended to through the page cache. Never truncates.
    Append,
    /// An existing file, read and appended to past the page cache where the file system supports
    /// it. Never truncates.
    AppendDirect,
}

/// One open file.
pub trait File: Send + Sync + Debug {
    /// Reads `len` bytes at `offset` into `into`, whose [`IoBuf::bytes`] are then those bytes.
    /// Fewer only if the file ends earlier.
    fn read(&self, offset: u64, len: usize, into: &mut IoBuf) -> Result<()>;
    /// Writes `parts`, one after the other, starting at `offset`.
    ///
    /// REQUIRES, for a direct file: one part, from an [`IoBuf`], offset and length multiples of
    /// [`File::alignment`].
    /// DURABLE AFTER: [`File::sync`].
    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<()>;
    /// Starts a read like [`File::read`]. Several may be in flight. Reads may be queued until one
    /// of them is waited for.
    fn submit_read(&self, offset: u64, len: usize, into: IoBuf) -> Pending;
    /// Starts a write of `buf` at `offset` at once. The rules of [`File::write`] apply.
    fn submit_write(&self, offset: u64, buf: IoBuf) -> Pending;
    /// Truncates the file to `len` bytes. Does nothing if it is already that short.
    ///
    /// REQUIRES: no write beyond `len` is in flight.
    /// DURABLE AFTER: [`File::sync`]. Until then a power cut may bring back synced bytes beyond
    /// `len`.
    fn truncate(&self, len: u64) -> Result<()>;
    /// Makes the file's data, and the length needed to read it, durable.
    fn sync(&self, site: &'static Site) -> Result<()>;
    /// Starts a [`File::sync`] at once. It covers the writes that completed before, so one that is
    /// still in flight may be left out. The buffer of its result is empty.
    fn submit_sync(&self, site: &'static Site) -> Pending;
    /// Hints that the system's cache need not keep the synced bytes of the file, because its
    /// readers bypass that cache.
    fn leave_cache(&self) {}
    /// The file's length in bytes.
    fn len(&self) -> Result<u64>;
    /// True if the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// The alignment of write offsets and lengths, in bytes; 1 for a buffered file.
    fn alignment(&self) -> usize;
    /// The file's path, for messages.
    fn path(&self) -> &Path;
}

impl OpenMode {
    /// True if the file must not exist yet.
    pub fn creates(self) -> bool {
        matches!(self, OpenMode::Create | OpenMode::CreateDirect)
    }
}

/// An exclusive lock, held until dropped.
pub trait Lock: Send + Sync + Debug {
    /// Checks that the lock's name still refers to the locked file. Otherwise another process may
    /// hold a lock of the same name.
    ///
    /// # Errors
    /// `Poisoned` if the name is gone or refers to another file; `Io`.
    fn check(&self) -> Result<()>;
}

/// A directory, held open. Operations by name happen in this directory, even if it was moved
/// meanwhile.
pub trait Dir: Send + Sync + Debug {
    /// The path by which the directory was opened, for messages.
    fn path(&self) -> &Path;
    /// Opens or creates the file `name`.
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Renames a file, replacing any existing one. DURABLE AFTER: [`Dir::sync`].
    fn rename(&self, site: &'static Site, from: &str, to: &str) -> Result<()>;
    /// Removes a file. DURABLE AFTER: [`Dir::sync`].
    fn remove(&self, name: &str) -> Result<()>;
    /// Links the file `from` of directory `source` here under the name `name`. DURABLE AFTER:
    /// [`Dir::sync`].
    ///
    /// # Errors
    /// `Io` if the name is taken. `Io` with a source for which [`cannot_link`] holds if the file
    /// has to be copied instead.
    fn link(&self, name: &str, source: &dyn Dir, from: &str) -> Result<()>;
    /// The names in the directory, sorted. Names that are not UTF-8 are returned with replacement
    /// characters; they cannot be opened but are listed.
    fn list(&self) -> Result<Vec<String>>;
    /// Makes creations, renames and removals in the directory durable.
    fn sync(&self, site: &'static Site) -> Result<()>;
    /// The length of a file in bytes; an error of kind `NotFound` if it does not exist.
    fn len(&self, name: &str) -> Result<u64>;
    /// Takes the lock file `name`, creating it if needed; an error of kind `Locked` if it is held
    /// already.
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>>;
    /// Opens the subdirectory `name`, creating it first if it does not exist. DURABLE AFTER:
    /// return.
    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Dir>>;
    /// The concrete type, for [`Dir::link`].
    fn as_any(&self) -> &dyn Any;
}

/// A file system.
pub trait Fs: Send + Sync + Debug {
    /// Opens a directory; an error of kind `NotFound` if it does not exist.
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>>;
    /// Creates a directory, and with `parents` those above it. Does nothing if it exists. DURABLE
    /// AFTER: return.
    ///
    /// # Errors
    /// `NotFound` if the parent directory does not exist.
    fn create_dir(&self, path: &Path, parents: bool) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Starts the operations that this thread has queued, and notices which of its operations have
    /// completed. If `at_most` is not zero, waits that long for one. It may return earlier, for
    /// instance when the thread is unparked.
    fn complete(&self, at_most: Duration);
    /// The name of the implementation that moves the bytes, for the log and for stats.
    fn name(&self) -> String;
}

/// Opens or creates a single file by its path. For tools and tests; an engine keeps its directory
/// open.
///
/// # Errors
/// The errors of [`Fs::open_dir`] and [`Dir::open`].
pub fn open_file(fs: &dyn Fs, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or_else(|| Error::invalid(format!("{} is no file's path", path.display())))?;
    fs.open_dir(&parent(path))?.open(name, mode)
}

/// True if `error` says that the file system cannot give a file a second name there, so it has to
/// be copied. No copy may follow any other error of a link: if the name is taken, the copy would
/// overwrite that file.
pub fn cannot_link(error: &Error) -> bool {
    let source =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| {
        use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
        matches!(
            source.kind(),
            CrossesDevices | PermissionDenied | TooManyLinks | Unsupported
        )
    })
}

/// An operation in flight. Dropping it abandons the result, not the operation.
#[must_use = "an operation in flight reports its error only to `wait`"]
pub struct Pending(State);

enum State {
    InFlight(Box<dyn Completion + Send>),
    Done(Result<IoBuf>),
}

/// The implementation of a [`Pending`].
pub(crate) trait Completion {
    fn wait(self: Box<Self>) -> Result<IoBuf>;
    /// The result, if the operation has completed. Otherwise `waker` is woken once it has.
    fn poll(&mut self, waker: &Waker) -> Option<Result<IoBuf>>;
    /// Keeps `tracked` until the operation has completed.
    fn track(&mut self, tracked: CompactionIo);
}

impl Pending {
    pub(crate) fn new(completion: impl Completion + Send + 'static) -> Self {
        Self(State::InFlight(Box::new(completion)))
    }

    /// An operation that has already completed.
    pub(crate) fn done(result: Result<IoBuf>) -> Self {
        Self(State::Done(result))
    }

    /// Waits for completion and returns the buffer.
    ///
    /// # Errors
    /// The error of the operation; the buffer is then lost.
    pub fn wait(self) -> Result<IoBuf> {
        match self.0 {
            State::InFlight(completion) => completion.wait(),
            State::Done(result) => result,
        }
    }

    /// Completes once [`Pending::wait`] returns at once. Outside of a crew
    /// ([`may_suspend`]) this does not wait, so `wait` does.
    pub async fn ready(&mut self) {
        if may_suspend() {
            poll_fn(|context| match self.poll(context.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
    }

    /// True if the operation has completed. Otherwise `waker` is woken once it has.
    pub fn poll(&mut self, waker: &Waker) -> bool {
        if let State::InFlight(completion) = &mut self.0 {
            let Some(result) = completion.poll(waker) else {
                return false;
            };
            self.0 = State::Done(result);
        }
        true
    }

    /// True if the operation was found to have completed.
    pub fn is_done(&self) -> bool {
        matches!(self.0, State::Done(_))
    }

    /// Counts the operation as one of a compaction until it has completed.
    pub fn tracked(mut self, tracked: CompactionIo) -> Pending {
        if let State::InFlight(completion) = &mut self.0 {
            completion.track(tracked);
        }
        self
    }
}

impl Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// The directory that contains `path`.
pub(crate) fn parent(path: &Path) -> PathBuf {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
