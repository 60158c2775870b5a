//! The file under the `file` backend: ranges of the DRAM image are written to it and synced, and
//! loaded back at open.
//!
//! 1. After a failed sync nothing more is acknowledged, because the kernel may have marked the
//!    pages clean. The image is poisoned until the pool is opened again.
//!
//! A crash leaves in the file everything that was synced, and any part of the writes in progress.

use super::view::View;
use crate::sites;
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, Result};
use rustix::io::Errno;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes per copy from the file.
const LOAD_BYTES: usize = 64 << 10;

/// The storage of an image. Tests substitute a simulated file.
pub trait Backing: Debug + Send + Sync {
    /// Fills `out` from offset `at`.
    ///
    /// # Errors
    /// The errors of the file. Reaching its end is an error.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()>;
    /// Writes `bytes` at `at`.
    ///
    /// # Errors
    /// The errors of the file.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Syncs the file. DURABLE AFTER: everything written, and the length.
    ///
    /// # Errors
    /// The errors of the file.
    fn sync(&self) -> io::Result<()>;
    /// Extends the file to `len` bytes, with space for all of them. DURABLE AFTER, unless `site` is
    /// off: the length, and that the new part reads as zeros.
    ///
    /// # Errors
    /// The errors of the file.
    fn extend(&self, site: &'static Site, len: u64) -> io::Result<()>;
}

impl Backing for File {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, at)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn extend(&self, site: &'static Site, len: u64) -> io::Result<()> {
        super::open::allocate(site, self, len)
    }
}

/// The error for bytes at `at` that cannot be read. A media error is reported as damage, so that a
/// repair continues without the pool.
pub(super) fn unreadable(path: &Path, at: u64, source: io::Error) -> Error {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::IO) => Error::corruption(
            path.display(),
            at,
            format!("the medium cannot give the bytes from there on ({source})"),
        ),
        _ => Error::from_io("read", path, source),
    }
}

#[derive(Debug)]
pub(crate) struct FileImage {
    file: Box<dyn Backing>,
    path: PathBuf,
    is_poisoned: AtomicBool,
}

impl FileImage {
    pub(crate) fn new(file: Box<dyn Backing>, path: PathBuf) -> Self {
        Self {
            file,
            path,
            is_poisoned: AtomicBool::new(false),
        }
    }

    pub(crate) fn poison(&self) {
        self.is_poisoned.store(true, Ordering::Release);
    }

    /// Writes ranges of the image and syncs. DURABLE AFTER: the ranges are in the file.
    pub(crate) fn write_and_sync(
        &self,
        site: &'static Site,
        image: &View,
        ranges: &[(u64, u64)],
    ) -> Result<()> {
        if self.is_poisoned.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Poisoned,
                format!(
                    "an earlier sync of {} failed: close the pool and open it again",
                    self.path.display()
                ),
            ));
        }
        for &(at, len) in ranges {
            let written = image
                .borrow(at, len)
                .map(|bytes| self.file.write_at(at, bytes));
            let written = written.unwrap_or_else(|| Err(std::io::ErrorKind::InvalidInput.into()));
            written.map_err(|source| Error::from_io("write", &self.path, source))?;
        }
        if !site.is_on() {
            return Ok(());
        }
        self.file.sync().map_err(|source| {
            self.poison();
            Error::from_io("sync", &self.path, source)
        })
    }

    /// Copies the `len` bytes at `at` from the file into the image.
    pub(crate) fn load(&self, image: &View, at: u64, len: u64) -> Result<()> {
        let mut buffer = vec![0u8; LOAD_BYTES.min(len as usize)];
        let mut done = 0;
        while done < len {
            let now = (len - done).min(LOAD_BYTES as u64) as usize;
            self.file
                .read_at(at + done, &mut buffer[..now])
                .map_err(|source| unreadable(&self.path, at + done, source))?;
            if image.store(at + done, &buffer[..now]).is_none() {
                return Err(Error::corruption(
                    self.path.display(),
                    at,
                    "a range inside the pool",
                ));
            }
            done += now as u64;
        }
        Ok(())
    }

    /// Extends the file to `new_len` bytes, with space for all of them.
    pub(crate) fn extend(&self, new_len: u64) -> Result<()> {
        self.file
            .extend(&sites::PM_SPACE_SYNC, new_len)
            .map_err(|source| Error::from_io("grow", &self.path, source))
    }
}
