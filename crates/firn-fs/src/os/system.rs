//! The operating system's file system, and the choice of backend for operations in flight.

use super::direct::{Handle, Span};
use super::directory::OsDir;
use super::pool::Pool;
#[cfg(target_os = "linux")]
use super::ring;
use crate::buf::IoBuf;
use crate::file::{Dir, Fs, Pending, parent};
use firn_base::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr as uninterrupted};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The number of files that this process may have open, as reported by the system (`ulimit -n`).
pub fn handles_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Nanoseconds of processor time that this thread has used.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The mechanism by which one thread keeps several operations in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoBackend {
    /// io_uring, with a ring for each thread that has an operation in flight, up to a limit.
    Ring,
    /// A pool of threads that call pread and pwrite.
    Pool,
}

impl IoBackend {
    /// The ring if the kernel allows it, otherwise the pool. The choice is logged.
    pub fn detect() -> Self {
        #[cfg(target_os = "linux")]
        match ring::probe() {
            Ok(()) => {
                tracing::info!("I/O in flight over io_uring");
                return IoBackend::Ring;
            }
            Err(error) => {
                tracing::warn!(%error, "io_uring is refused; I/O in flight over a thread pool")
            }
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

    pub(super) fn sync(self, handle: &Arc<Handle>) -> Pending {
        match self {
            #[cfg(target_os = "linux")]
            IoBackend::Ring => ring::sync(handle),
            _ => Pool::shared().sync(handle),
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
    /// Files with direct I/O where requested and possible, over the best backend of this kernel.
    pub fn new() -> Self {
        Self::with(IoBackend::detect(), true)
    }

    /// Files over a given backend. If `direct` is false even direct modes go through the page
    /// cache.
    pub fn with(backend: IoBackend, direct: bool) -> Self {
        Self { backend, direct }
    }
}

impl Default for OsFs {
    fn default() -> Self {
        Self::new()
    }
}

impl Fs for OsFs {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        OsDir::open(path, self.backend, self.direct).map(|dir| Arc::new(dir) as Arc<dyn Dir>)
    }

    fn create_dir(&self, path: &Path, parents: bool) -> Result<()> {
        // A new directory is durable once its parent is synced, and so on up to one that existed
        // before.
        let missing: Vec<&Path> = path.ancestors().take_while(|one| !one.is_dir()).collect();
        if !missing.is_empty() {
            let created = std::fs::DirBuilder::new().recursive(parents).create(path);
            created.map_err(|error| Error::from_io("create directory", path, error))?;
        }
        missing.into_iter().skip(1).try_for_each(sync_name)?;
        sync_name(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        std::fs::remove_dir(path).map_err(|error| Error::from_io("remove", path, error))
    }

    fn complete(&self, at_most: Duration) {
        match self.backend {
            #[cfg(target_os = "linux")]
            IoBackend::Ring => ring::complete_here(at_most),
            // The pool's threads unpark whoever waits.
            _ if at_most > Duration::ZERO => std::thread::park_timeout(at_most),
            _ => {}
        }
    }

    fn name(&self) -> String {
        format!(
            "{:?}{}",
            self.backend,
            if self.direct {
                ", direct"
            } else {
                ", buffered"
            }
        )
        .to_lowercase()
    }
}

/// Makes the name of a directory durable with a sync of its parent. If the parent may be traversed
/// but not opened, syncs the whole file system.
fn sync_name(path: &Path) -> Result<()> {
    let failed = |errno: Errno| Error::from_io("sync directory", path, errno.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: &Path| uninterrupted(|| rustix::fs::open(path, flags, Mode::empty()));
    match open(&parent(path)) {
        Ok(fd) => uninterrupted(|| rustix::fs::fsync(&fd)).map_err(failed),
        Err(Errno::ACCESS | Errno::PERM) => {
            let fd = open(path).map_err(failed)?;
            uninterrupted(|| rustix::fs::syncfs(&fd)).map_err(failed)
        }
        Err(errno) => Err(failed(errno)),
    }
}
