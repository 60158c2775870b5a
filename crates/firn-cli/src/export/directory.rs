//! Writes files below a directory and never outside of it.
//!
//! 1. Every step down is an `openat` of one component relative to an open directory, which follows
//!    no symbolic link. No path is checked that could be exchanged before its use.
//! 2. A file is always newly created (`O_EXCL`), so an existing link or file is neither followed
//!    nor written to. With `force` a regular file is unlinked first.

use firndb::{Error, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The reason why a file was not written.
#[derive(Debug)]
pub(super) enum Refusal {
    /// This file was refused; the others may still be written.
    Because(String),
    /// Nothing more can be written.
    Failed(Error),
}

pub(super) struct Directory {
    root: OwnedFd,
    /// The directories that are open below the root, each in the previous one.
    below: Vec<(Vec<u8>, OwnedFd)>,
    force: bool,
}

impl Directory {
    /// Opens `path`, creating it if it does not exist.
    pub(super) fn open(path: &Path, force: bool) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|e| Error::from_io("create", path, e))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty())
            .map_err(|e| Error::from_io("open", path, e.into()))?;
        Ok(Self {
            root,
            below: Vec::new(),
            force,
        })
    }

    /// Writes `bytes` to the file at the path `components`.
    pub(super) fn write(
        &mut self,
        components: &[&[u8]],
        bytes: &[u8],
    ) -> std::result::Result<(), Refusal> {
        let Some((name, directories)) = components.split_last() else {
            return Err(Refusal::Because("it is empty".to_owned()));
        };
        self.go_to(directories)?;
        let directory = self.below.last().map_or(&self.root, |(_, fd)| fd);
        let mut file = create(directory, name, self.force)?;
        file.write_all(bytes)
            .map_err(|e| Refusal::Failed(Error::from_io("write", "a file".as_ref(), e)))
    }

    /// Opens `directories`, each in the previous one. Those already open for the previous file stay
    /// open.
    fn go_to(&mut self, directories: &[&[u8]]) -> std::result::Result<(), Refusal> {
        let same = self
            .below
            .iter()
            .zip(directories)
            .take_while(|((open, _), wanted)| open == *wanted)
            .count();
        self.below.truncate(same);
        for name in &directories[same..] {
            let parent = self.below.last().map_or(&self.root, |(_, fd)| fd);
            let fd = open_directory(parent, name)?;
            self.below.push((name.to_vec(), fd));
        }
        Ok(())
    }
}

fn open_directory(parent: &OwnedFd, name: &[u8]) -> std::result::Result<OwnedFd, Refusal> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut made = false;
    loop {
        match openat(parent, name, flags, Mode::empty()) {
            Ok(fd) => return Ok(fd),
            Err(Errno::NOENT) if !made => match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => made = true,
                Err(e) => return Err(refusal(name, e)),
            },
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let name = crate::bytes_text::escape(name);
                return Err(Refusal::Because(format!(
                    "{name} is there, and is no directory"
                )));
            }
            Err(e) => return Err(refusal(name, e)),
        }
    }
}

fn create(directory: &OwnedFd, name: &[u8], force: bool) -> std::result::Result<File, Refusal> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    match openat(directory, name, flags, mode) {
        Ok(fd) => return Ok(File::from(fd)),
        Err(Errno::EXIST) => {}
        Err(e) => return Err(refusal(name, e)),
    }
    let there = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| refusal(name, e))?;
    match FileType::from_raw_mode(there.st_mode) {
        FileType::RegularFile if force => {}
        FileType::RegularFile => {
            return Err(Refusal::Because("the file exists: use --force".to_owned()));
        }
        FileType::Symlink => {
            return Err(Refusal::Because(
                "a symbolic link of that name exists".to_owned(),
            ));
        }
        FileType::Directory => {
            return Err(Refusal::Because(
                "a directory of that name exists".to_owned(),
            ));
        }
        _ => {
            return Err(Refusal::Because(
                "something of that name exists, and is no file".to_owned(),
            ));
        }
    }
    unlinkat(directory, name, AtFlags::empty()).map_err(|e| refusal(name, e))?;
    openat(directory, name, flags, mode)
        .map(File::from)
        .map_err(|e| refusal(name, e))
}

/// A full disk ends an export; a failure of one file does not.
fn refusal(name: &[u8], error: Errno) -> Refusal {
    let error: std::io::Error = error.into();
    if matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    ) {
        let name = crate::bytes_text::escape(name);
        return Refusal::Failed(Error::from_io("create", name.as_ref(), error));
    }
    Refusal::Because(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn because(result: std::result::Result<(), Refusal>) -> String {
        match result {
            Err(Refusal::Because(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn links_are_not_followed_and_files_not_overwritten() {
        let (target, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(outside.path(), target.path().join("link")).unwrap();
        symlink(outside.path().join("new"), target.path().join("dangling")).unwrap();
        fs::write(outside.path().join("old"), "old").unwrap();
        fs::hard_link(outside.path().join("old"), target.path().join("hard")).unwrap();
        for force in [false, true] {
            let mut directory = Directory::open(target.path(), force).unwrap();
            assert!(because(directory.write(&[b"link", b"file"], b"x")).contains("no directory"));
            assert!(because(directory.write(&[b"link"], b"x")).contains("symbolic link"));
            assert!(because(directory.write(&[b"dangling"], b"x")).contains("symbolic link"));
        }
        let mut directory = Directory::open(target.path(), false).unwrap();
        assert!(because(directory.write(&[b"hard"], b"x")).contains("--force"));
        Directory::open(target.path(), true)
            .unwrap()
            .write(&[b"hard"], b"new")
            .unwrap();
        assert_eq!(fs::read(target.path().join("hard")).unwrap(), b"new");
        assert_eq!(fs::read(outside.path().join("old")).unwrap(), b"old");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn directories_are_made_and_left() {
        let target = tempfile::tempdir().unwrap();
        let mut directory = Directory::open(&target.path().join("new/er"), false).unwrap();
        for path in ["a/b/c", "a/b/d", "a/e", "f", "g/b/c"] {
            let components: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
            directory.write(&components, path.as_bytes()).unwrap();
            assert_eq!(
                fs::read(target.path().join("new/er").join(path)).unwrap(),
                path.as_bytes()
            );
        }
        assert!(because(directory.write(&[b"f", b"x"], b"")).contains("no directory"));
        assert!(because(directory.write(&[b"a"], b"")).contains("directory"));
    }
}
