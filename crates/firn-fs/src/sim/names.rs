//! The directories, and the states in which a power cut may leave them. This is the fault model for
//! names:
//!
//! 1. A creation, link, rename or removal is durable after the next sync of its directory (for a
//!    rename, the directory of its new name). The sync of a file does not make its name durable.
//! 2. Any subset of the pending changes may survive a crash, applied in the order in which they
//!    were made.
//! 3. A name refers to an inode. A rename that survives although the preceding creation does not
//!    gives the new name to the created file.
//! 4. A rename is atomic: at every moment its new name refers to the old file or to the new one.
//! 5. A directory is durable when [`create_dir`](crate::Fs::create_dir) returns.

use crate::file::parent;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The id of an inode, never reused.
pub(super) type InodeId = u64;

#[derive(Debug, Clone)]
pub(super) enum Change {
    Add {
        path: PathBuf,
        inode: InodeId,
    },
    Move {
        from: PathBuf,
        to: PathBuf,
        inode: InodeId,
    },
    Remove {
        path: PathBuf,
        inode: InodeId,
    },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    pub(super) seen: BTreeMap<PathBuf, InodeId>,
    durable: BTreeMap<PathBuf, InodeId>,
    pending: Vec<Change>,
    directories: BTreeSet<PathBuf>,
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, InodeId>) {
        match self {
            Change::Add { path, inode } => drop(names.insert(path.clone(), *inode)),
            Change::Move { from, to, inode } => {
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
            Change::Remove { path, inode } => {
                if names.get(path) == Some(inode) {
                    names.remove(path);
                }
            }
        }
    }

    fn directory(&self) -> PathBuf {
        match self {
            Change::Add { path, .. } | Change::Remove { path, .. } => parent(path),
            Change::Move { to, .. } => parent(to),
        }
    }

    fn inode(&self) -> InodeId {
        match self {
            Change::Add { inode, .. }
            | Change::Move { inode, .. }
            | Change::Remove { inode, .. } => *inode,
        }
    }
}

impl Names {
    /// Names that are all durable.
    pub(super) fn durable(
        seen: BTreeMap<PathBuf, InodeId>,
        directories: BTreeSet<PathBuf>,
    ) -> Self {
        Self {
            durable: seen.clone(),
            seen,
            pending: Vec::new(),
            directories,
        }
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.pending.push(change);
    }

    /// Gives `path` to `inode`, durably at once.
    pub(super) fn settle(&mut self, path: &Path, inode: InodeId) {
        self.seen.insert(path.to_path_buf(), inode);
        self.durable.insert(path.to_path_buf(), inode);
    }

    pub(super) fn make_directories(&mut self, path: &Path) {
        self.directories
            .extend(path.ancestors().map(Path::to_path_buf));
    }

    pub(super) fn remove_directory(&mut self, path: &Path) {
        self.directories.remove(path);
    }

    pub(super) fn is_directory(&self, path: &Path) -> bool {
        let top = path.parent().is_none() || path.as_os_str().is_empty() || path == Path::new(".");
        top || self.directories.contains(path)
    }

    pub(super) fn list(&self, directory: &Path) -> Vec<String> {
        let inside = self
            .seen
            .keys()
            .chain(&self.directories)
            .filter(|path| path.parent() == Some(directory));
        let mut names: Vec<String> = inside
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect();
        names.sort();
        names
    }

    pub(super) fn sync(&mut self, directory: &Path) {
        let (now, later) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|c| c.directory() == directory);
        self.pending = later;
        for change in now {
            change.apply(&mut self.durable);
        }
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The names after a crash in which the pending changes survive for which `holds` returns true.
    pub(super) fn survivor(&self, mut holds: impl FnMut(usize) -> bool) -> Names {
        let mut names = self.durable.clone();
        for (i, change) in self.pending.iter().enumerate() {
            if holds(i) {
                change.apply(&mut names);
            }
        }
        Names::durable(names, self.directories.clone())
    }

    /// The inodes that have a name now or may have one after a crash.
    pub(super) fn reachable(&self) -> BTreeSet<InodeId> {
        let named = self.seen.values().chain(self.durable.values()).copied();
        named
            .chain(self.pending.iter().map(Change::inode))
            .collect()
    }
}
