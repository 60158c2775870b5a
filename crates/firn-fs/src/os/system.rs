//! The operating system's file system, and the choice of how operations are put in flight.

use super::direct::{Handle, OsFile, Span};
use super::pool::Pool;
#[cfg(target_os = "linux")]
use super::ring;
use crate::buf::IoBuf;
use crate::file::{File, Fs, Lock, OpenMode, Pending, parent};
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// How several operations are kept in flight by one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoBackend {
    /// io_uring, one ring per thread.
    Ring,
    /// A pool of threads that pread and pwrite.
    Pool,
}

impl IoBackend {
    /// The ring where the kernel allows it, else the pool. The choice is logged.
    pub fn detect() -> Self {
        #[cfg(target_os = "linux")]
        match ring::probe() {
            Ok(()) => {
                tracing::info!("I/O in flight over io_uring");
                return IoBackend::Ring;
            }
            Err(error) => tracing::warn!(%error, "io_uring is refused; I/O in flight over a thread pool"),
        }
        IoBackend::Pool
    }

    pub(super) fn read(self, handle: &Arc<Handle>, span: Span, buf: IoBuf) -> Pending {
        match self {
            #[cfg(target_os = "linux")]
            IoBackend::Ring => ring::read(handle, span, buf),
            _ => Pool::shared().read(handle, span, buf),
        }
    }

    pub(super) fn write(self, handle: &Arc<Handle>, offset: u64, buf: IoBuf) -> Pending {
        match self {
            #[cfg(target_os = "linux")]
            IoBackend::Ring => ring::write(handle, offset, buf),
            _ => Pool::shared().write(handle, offset, buf),
        }
    }
}

/// Files of the operating system.
#[derive(Debug)]
pub struct OsFs {
    backend: IoBackend,
    direct: bool,
}

impl OsFs {
    /// Files with direct I/O where asked for and possible, over the best backend this kernel has.
    pub fn new() -> Self {
        Self::with(IoBackend::detect(), true)
    }

    /// Files over a given backend. With `direct` false even direct modes go through the page cache.
    pub fn with(backend: IoBackend, direct: bool) -> Self {
        Self { backend, direct }
    }

    fn flags(mode: OpenMode) -> OFlags {
        match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::ReadDirect => OFlags::RDONLY | OFlags::DIRECT,
            OpenMode::Create => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
            OpenMode::CreateDirect => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::DIRECT,
            OpenMode::Append => OFlags::RDWR,
            OpenMode::AppendDirect => OFlags::RDWR | OFlags::DIRECT,
        }
    }
}

impl Default for OsFs {
    fn default() -> Self {
        Self::new()
    }
}

/// What direct transfers on this file must be aligned to, as the kernel says; a page where it does not say.
fn direct_alignment(fd: &rustix::fd::OwnedFd) -> usize {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        if let Ok(answer) = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
            let align = answer.stx_dio_offset_align.max(answer.stx_dio_mem_align) as usize;
            if align.is_power_of_two() && (512..=crate::BUFFER_ALIGN).contains(&align) {
                return align;
            }
        }
    }
    let _no_answer = fd;
    crate::BUFFER_ALIGN
}

impl Fs for OsFs {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut flags = Self::flags(mode) | OFlags::CLOEXEC;
        if !self.direct {
            flags.remove(OFlags::DIRECT);
        }
        let permissions = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let fd = match rustix::fs::open(path, flags, permissions) {
            // A file system without direct I/O says so here, before any byte moved.
            Err(Errno::INVAL) if flags.contains(OFlags::DIRECT) => {
                flags.remove(OFlags::DIRECT);
                rustix::fs::open(path, flags, permissions)
            }
            other => other,
        };
        let fd = fd.map_err(|errno| Error::from_io("open", path, errno.into()))?;
        let alignment = if flags.contains(OFlags::DIRECT) { direct_alignment(&fd) } else { 1 };
        let handle = Arc::new(Handle { fd, path: path.to_path_buf(), alignment });
        Ok(Arc::new(OsFile { handle, backend: self.backend }))
    }

    fn rename(&self, site: &'static Site, from: &Path, to: &Path) -> Result<()> {
        if !site.is_on() {
            return Ok(());
        }
        std::fs::rename(from, to).map_err(|error| Error::from_io("rename", from, error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(|error| Error::from_io("remove", path, error))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::hard_link(from, to).map_err(|error| Error::from_io("link", to, error))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        // A new directory is durable when the one above it is synced, and so on up to one that was there before.
        let missing: Vec<&Path> = path.ancestors().take_while(|one| !one.is_dir()).collect();
        std::fs::create_dir_all(path).map_err(|error| Error::from_io("create directory", path, error))?;
        missing.into_iter().try_for_each(|one| sync_directory(&parent(one)))?;
        sync_directory(&parent(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let failed = |error| Error::from_io("list", path, error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry.map_err(failed)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self, site: &'static Site, path: &Path) -> Result<()> {
        if !site.is_on() {
            return Ok(());
        }
        sync_directory(path)
    }

    fn len(&self, path: &Path) -> Result<u64> {
        std::fs::metadata(path).map(|m| m.len()).map_err(|error| Error::from_io("stat", path, error))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| Error::from_io("open", path, errno.into()))?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(OsLock { fd })),
            Err(Errno::WOULDBLOCK) => {
                let message = format!(
                    "{} is held: another process (or another handle of this one) has the database open; \
                     close it, or open this one read-only",
                    path.display()
                );
                Err(Error::new(ErrorKind::Locked, message))
            }
            Err(errno) => Err(Error::from_io("lock", path, errno.into())),
        }
    }

    fn name(&self) -> String {
        format!("{:?}{}", self.backend, if self.direct { ", direct" } else { ", buffered" }).to_lowercase()
    }
}

/// An flock. Given back by name, not by closing its descriptor: a process that is being started has a copy of that
/// until it runs its own program.
#[derive(Debug)]
struct OsLock {
    fd: rustix::fd::OwnedFd,
}

impl Lock for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Whatever it says, the descriptor closes now.
        let _closes_anyway = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

fn sync_directory(path: &Path) -> Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let failed = |errno: Errno| Error::from_io("sync directory", path, errno.into());
    let fd =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    rustix::fs::fsync(&fd).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_given_back_whoever_has_a_copy_of_its_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let open = || rustix::fs::open(&path, OFlags::RDWR | OFlags::CREATE, Mode::RUSR | Mode::WUSR).unwrap();
        let lock = OsLock { fd: open() };
        rustix::fs::flock(&lock.fd, FlockOperation::NonBlockingLockExclusive).unwrap();
        let copy = lock.fd.try_clone().unwrap();
        assert_eq!(OsFs::new().lock(&path).err().map(|error| error.kind()), Some(ErrorKind::Locked));
        drop(lock);
        assert!(OsFs::new().lock(&path).is_ok());
        drop(copy);
    }
}
