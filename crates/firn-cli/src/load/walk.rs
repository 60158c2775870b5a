//! Walks a directory tree in the byte order of its paths, following no link.
//!
//! The order is that of the whole relative paths, as the database sorts them: `a.b` comes before
//! `a/b`, although `a` comes before `a.b`. So a directory is sorted as if its name ended with a
//! slash.

use std::ffi::OsStr;
use std::fs::FileType;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An entry below the root.
#[derive(Debug)]
pub(super) struct Found {
    /// Path relative to the root, as bytes. The path of a directory ends with a slash.
    pub(super) name: Vec<u8>,
    pub(super) sort: Sort,
}

#[derive(Debug)]
pub(super) enum Sort {
    File,
    SymbolicLink,
    Special,
    EmptyDirectory,
    /// A directory or entry that could not be read.
    Unreadable(io::Error),
}

pub(super) struct Walk {
    root: PathBuf,
    /// Entries still to be visited, in reverse order.
    pending: Vec<(Vec<u8>, FileType)>,
}

impl Walk {
    /// Starts at `root`, which must be a directory.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let mut walk = Self {
            root: root.to_owned(),
            pending: Vec::new(),
        };
        walk.pending = walk.entries(&[])?;
        Ok(walk)
    }

    /// The entries of directory `name`, in reverse order.
    fn entries(&self, name: &[u8]) -> io::Result<Vec<(Vec<u8>, FileType)>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.root.join(OsStr::from_bytes(name)))? {
            let entry = entry?;
            let sort = entry.file_type()?;
            let mut path = [name, entry.file_name().as_bytes()].concat();
            if sort.is_dir() {
                path.push(b'/');
            }
            entries.push((path, sort));
        }
        entries.sort_unstable_by(|a, b| b.0.cmp(&a.0));
        Ok(entries)
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            let (name, file_type) = self.pending.pop()?;
            let sort = if file_type.is_dir() {
                match self.entries(&name) {
                    Ok(entries) if entries.is_empty() => Sort::EmptyDirectory,
                    Ok(entries) => {
                        self.pending.extend(entries);
                        continue;
                    }
                    Err(e) => Sort::Unreadable(e),
                }
            } else if file_type.is_file() {
                Sort::File
            } else if file_type.is_symlink() {
                Sort::SymbolicLink
            } else {
                Sort::Special
            };
            return Some(Found { name, sort });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn in_the_order_of_the_bytes() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a/b", "a.b", "a-", "b/c/d", "a/c/e", "é"] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        fs::create_dir(root.path().join("a/d")).unwrap();
        std::os::unix::fs::symlink("/", root.path().join("link")).unwrap();
        let found: Vec<Found> = Walk::new(root.path()).unwrap().collect();
        let names: Vec<&[u8]> = found.iter().map(|found| found.name.as_slice()).collect();
        assert!(names.is_sorted());
        let expected = ["a-", "a.b", "a/b", "a/c/e", "a/d/", "b/c/d", "link", "é"];
        assert_eq!(names, expected.map(str::as_bytes));
        assert!(matches!(found[4].sort, Sort::EmptyDirectory));
        assert!(matches!(found[6].sort, Sort::SymbolicLink));
    }
}
