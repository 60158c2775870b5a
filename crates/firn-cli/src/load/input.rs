//! The input of a load: a regular file, or a stream that cannot be read again from its start
//! (stdin, a FIFO, `<(..)`, a device).

use crate::exit::{Failure, Outcome};
use crate::interrupt;
use firndb::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// The time that a read from a stream waits before it checks for a signal.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// An opened source.
pub(super) struct Input {
    /// The name under which the load's position is stored: an absolute path, or `-`.
    pub(super) name: PathBuf,
    /// The size of a regular file when it was opened, in bytes; `None` for a stream.
    pub(super) file_bytes: Option<u64>,
    pub(super) reader: Box<dyn Read>,
}

impl Input {
    pub(super) fn open(source: &Path) -> Outcome<Self> {
        if source.as_os_str() == "-" {
            // Without the buffer of `io::stdin`, because a poll does not see its contents.
            let stdin = io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|e| Error::from_io("open", source, e))?;
            return Ok(Self::stream(source.to_owned(), File::from(stdin)));
        }
        let failed = |e| Error::from_io("open", source, e);
        let file = File::open(source).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(Failure::invalid(format!(
                "{} is a directory: give a file, or load a directory with --tree",
                source.display()
            )));
        }
        if metadata.is_file() {
            let name = source.canonicalize().map_err(failed)?;
            return Ok(Self {
                name,
                file_bytes: Some(metadata.len()),
                reader: Box::new(file),
            });
        }
        // The links of /dev/fd lead to names such as pipe:[4711], which cannot be opened.
        let name = std::path::absolute(source).map_err(failed)?;
        Ok(Self::stream(name, file))
    }

    fn stream(name: PathBuf, source: File) -> Self {
        Self {
            name,
            file_bytes: None,
            reader: Box::new(Stream { source }),
        }
    }
}

/// A source whose reads may block. Checks for a signal while waiting.
struct Stream {
    source: File,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !is_ready(self.source.as_fd())? {
            if interrupt::is_requested() {
                // Not of the kind `Interrupted`, because readers retry after that.
                return Err(io::Error::other("interrupted"));
            }
        }
        self.source.read(buffer)
    }
}

/// True if a read returns at once, even with the end or an error.
fn is_ready(source: BorrowedFd<'_>) -> io::Result<bool> {
    match poll(&mut [PollFd::new(&source, PollFlags::IN)], Some(&PATIENCE)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
