//! A directory of the operating system, held by its descriptor, and the lock in it.

use super::direct::{Handle, OsFile};
use super::system::IoBackend;
use crate::file::{Dir, File, Lock, OpenMode};
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr as uninterrupted};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that is held open.
#[derive(Debug)]
pub(super) struct OsDir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    backend: IoBackend,
    direct: bool,
}

impl OsDir {
    pub(super) fn open(path: &Path, backend: IoBackend, direct: bool) -> Result<OsDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = uninterrupted(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|errno| Error::from_io("open directory", path, errno.into()))?;
        Ok(OsDir {
            fd: Arc::new(fd),
            path: path.to_path_buf(),
            backend,
            direct,
        })
    }

    fn failed(&self, verb: &str, name: &str, errno: Errno) -> Error {
        Error::from_io(verb, &self.path.join(name), errno.into())
    }

    /// Refuses an existing name that is not a regular file, because opening a FIFO would wait for
    /// its other end.
    fn check_regular(&self, name: &str) -> Result<()> {
        match rustix::fs::statat(&self.fd, name, AtFlags::empty()) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile => {
                let path = self.path.join(name);
                Err(Error::invalid(format!(
                    "{} is not a regular file: move it out of the way",
                    path.display()
                )))
            }
            // The open that follows reports any error.
            _ => Ok(()),
        }
    }

    fn flags(mode: OpenMode) -> OFlags {
        match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::ReadDirect => OFlags::RDONLY | OFlags::DIRECT,
            OpenMode::Create => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            OpenMode::CreateDirect => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::DIRECT,
            OpenMode::Append => OFlags::RDWR,
            OpenMode::AppendDirect => OFlags::RDWR | OFlags::DIRECT,
        }
    }

    fn open_fd(&self, name: &str, mut flags: OFlags) -> rustix::io::Result<(OwnedFd, OFlags)> {
        let permissions = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        if flags.contains(OFlags::DIRECT | OFlags::EXCL) {
            // A file system without direct I/O may create the file and then refuse to open it. So
            // it is created first.
            flags.remove(OFlags::DIRECT);
            let fd = uninterrupted(|| rustix::fs::openat(&self.fd, name, flags, permissions))?;
            let status = rustix::fs::fcntl_getfl(&fd)?;
            return match rustix::fs::fcntl_setfl(&fd, status | OFlags::DIRECT) {
                Ok(()) => Ok((fd, flags | OFlags::DIRECT)),
                Err(_) => Ok((fd, flags)),
            };
        }
        match uninterrupted(|| rustix::fs::openat(&self.fd, name, flags, permissions)) {
            // A file system without direct I/O refuses here, before any byte is transferred.
            Err(Errno::INVAL) if flags.contains(OFlags::DIRECT) => {
                flags.remove(OFlags::DIRECT);
                uninterrupted(|| rustix::fs::openat(&self.fd, name, flags, permissions))
                    .map(|fd| (fd, flags))
            }
            other => other.map(|fd| (fd, flags)),
        }
    }
}

/// The alignment of direct transfers on this file in bytes, as reported by the kernel; a page if it
/// does not report it.
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

impl Dir for OsDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut flags = Self::flags(mode) | OFlags::CLOEXEC;
        if !mode.creates() {
            self.check_regular(name)?;
        }
        if !self.direct {
            flags.remove(OFlags::DIRECT);
        }
        let (fd, flags) = self
            .open_fd(name, flags)
            .map_err(|errno| self.failed("open", name, errno))?;
        let alignment = if flags.contains(OFlags::DIRECT) {
            direct_alignment(&fd)
        } else {
            1
        };
        let handle = Arc::new(Handle {
            fd,
            path: self.path.join(name),
            alignment,
        });
        Ok(Arc::new(OsFile {
            handle,
            backend: self.backend,
        }))
    }

    fn rename(&self, site: &'static Site, from: &str, to: &str) -> Result<()> {
        if !site.is_on() {
            return Ok(());
        }
        uninterrupted(|| rustix::fs::renameat(&self.fd, from, &self.fd, to))
            .map_err(|errno| self.failed("rename", from, errno))
    }

    fn remove(&self, name: &str) -> Result<()> {
        uninterrupted(|| rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()))
            .map_err(|errno| self.failed("remove", name, errno))
    }

    fn link(&self, name: &str, source: &dyn Dir, from: &str) -> Result<()> {
        let Some(source) = source.as_any().downcast_ref::<OsDir>() else {
            return Err(self.failed("link", name, Errno::XDEV));
        };
        uninterrupted(|| rustix::fs::linkat(&source.fd, from, &self.fd, name, AtFlags::empty()))
            .map_err(|errno| self.failed("link", name, errno))
    }

    fn list(&self) -> Result<Vec<String>> {
        let failed = |errno: Errno| Error::from_io("list", &self.path, errno.into());
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn sync(&self, site: &'static Site) -> Result<()> {
        if !site.is_on() {
            return Ok(());
        }
        uninterrupted(|| rustix::fs::fsync(&self.fd))
            .map_err(|errno| Error::from_io("sync directory", &self.path, errno.into()))
    }

    fn len(&self, name: &str) -> Result<u64> {
        let stat = uninterrupted(|| rustix::fs::statat(&self.fd, name, AtFlags::empty()));
        stat.map(|stat| stat.st_size as u64)
            .map_err(|errno| self.failed("stat", name, errno))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR);
        let fd = uninterrupted(open).map_err(|errno| self.failed("open", name, errno))?;
        match uninterrupted(|| rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let message = format!(
                    "{} is held: another process (or another handle of this one) has the database open; \
                     close it, or open this one read-only",
                    self.path.join(name).display()
                );
                return Err(Error::new(ErrorKind::Locked, message));
            }
            Err(errno) => return Err(self.failed("lock", name, errno)),
        }
        let lock = OsLock {
            fd,
            dir: self.fd.clone(),
            path: self.path.clone(),
            name: name.to_owned(),
        };
        // Another process may have removed the file between the two calls.
        lock.check()?;
        Ok(Box::new(lock))
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let made = uninterrupted(|| {
            rustix::fs::mkdirat(&self.fd, name, Mode::RWXU | Mode::RWXG | Mode::RWXO)
        });
        match made {
            Ok(()) => uninterrupted(|| rustix::fs::fsync(&self.fd))
                .map_err(|errno| self.failed("sync", name, errno))?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(self.failed("create directory", name, errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = uninterrupted(|| rustix::fs::openat(&self.fd, name, flags, Mode::empty()))
            .map_err(|errno| self.failed("open directory", name, errno))?;
        let path = self.path.join(name);
        Ok(Arc::new(OsDir {
            fd: Arc::new(fd),
            path,
            backend: self.backend,
            direct: self.direct,
        }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An flock. It is unlocked explicitly rather than by closing its descriptor, because a child
/// process has a copy of the descriptor between fork and exec.
#[derive(Debug)]
struct OsLock {
    fd: OwnedFd,
    dir: Arc<OwnedFd>,
    path: PathBuf,
    name: String,
}

impl Lock for OsLock {
    fn check(&self) -> Result<()> {
        let failed =
            |errno: Errno| Error::from_io("stat", &self.path.join(&self.name), errno.into());
        let held = uninterrupted(|| rustix::fs::fstat(&self.fd)).map_err(failed)?;
        match uninterrupted(|| rustix::fs::statat(&self.dir, self.name.as_str(), AtFlags::empty()))
        {
            Ok(named) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) => Ok(()),
            Ok(_) | Err(Errno::NOENT) => {
                let message = format!(
                    "the lock file {} of this database was removed or replaced while the database was open, so another \
                     process may have opened it too; nothing more is written here: close it and open it again",
                    self.path.join(&self.name).display()
                );
                Err(Error::new(ErrorKind::Poisoned, message))
            }
            Err(errno) => Err(failed(errno)),
        }
    }
}

impl Drop for OsLock {
    fn drop(&mut self) {
        // An error does not matter, because the descriptor closes now.
        let _closes_anyway = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fs, OsFs};

    #[test]
    fn a_lock_is_given_back_whoever_has_a_copy_of_its_descriptor() {
        let root = tempfile::tempdir().unwrap();
        let dir = OsDir::open(root.path(), IoBackend::Pool, false).unwrap();
        let flags = OFlags::RDWR | OFlags::CREATE;
        let fd = rustix::fs::openat(&dir.fd, "LOCK", flags, Mode::RUSR | Mode::WUSR).unwrap();
        let lock = OsLock {
            fd,
            dir: dir.fd.clone(),
            path: dir.path.clone(),
            name: "LOCK".to_owned(),
        };
        rustix::fs::flock(&lock.fd, FlockOperation::NonBlockingLockExclusive).unwrap();
        let copy = lock.fd.try_clone().unwrap();
        assert_eq!(
            dir.lock("LOCK").err().map(|error| error.kind()),
            Some(ErrorKind::Locked)
        );
        drop(lock);
        assert!(dir.lock("LOCK").is_ok());
        drop(copy);
    }

    #[test]
    fn a_lock_whose_file_was_removed_or_replaced_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let dir = OsFs::new().open_dir(root.path()).unwrap();
        let lock = dir.lock("LOCK").unwrap();
        lock.check().unwrap();
        std::fs::remove_file(root.path().join("LOCK")).unwrap();
        assert_eq!(lock.check().unwrap_err().kind(), ErrorKind::Poisoned);
        let other = dir.lock("LOCK").unwrap();
        assert_eq!(
            lock.check().unwrap_err().kind(),
            ErrorKind::Poisoned,
            "two hold what they think is the lock"
        );
        other.check().unwrap();
    }

    /// The directory is held, not looked up: a handle stays with it even if its path changes.
    #[test]
    fn a_directory_that_is_moved_is_followed_and_one_that_is_removed_takes_no_file() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("db");
        std::fs::create_dir(&path).unwrap();
        let dir = OsFs::new().open_dir(&path).unwrap();
        let moved = root.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        std::fs::create_dir(&path).unwrap();
        dir.open("a", OpenMode::Create).unwrap();
        assert!(moved.join("a").exists() && !path.join("a").exists());
        dir.remove("a").unwrap();
        std::fs::remove_dir(&moved).unwrap();
        assert_eq!(
            dir.open("b", OpenMode::Create).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert!(!path.join("b").exists());
    }

    #[test]
    fn a_new_file_is_new() {
        let root = tempfile::tempdir().unwrap();
        let dir = OsFs::new().open_dir(root.path()).unwrap();
        for mode in [OpenMode::Create, OpenMode::CreateDirect] {
            std::fs::write(root.path().join("taken"), "kept").unwrap();
            assert_eq!(dir.open("taken", mode).unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(std::fs::read(root.path().join("taken")).unwrap(), b"kept");
        }
        assert!(
            !crate::cannot_link(&dir.link("taken", &*dir, "taken").unwrap_err()),
            "it is no reason to copy"
        );
    }
}
