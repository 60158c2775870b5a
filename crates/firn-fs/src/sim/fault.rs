//! Faults on demand: which operation fails, when, and how.

use std::io;
use std::path::Path;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Opening an existing file.
    Open,
    /// Opening in a mode that creates the file.
    Create,
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// Truncating a file.
    Truncate,
    /// Syncing a file.
    Sync,
    /// Syncing a directory.
    SyncDir,
    /// Renaming.
    Rename,
    /// Removing a name.
    Remove,
    /// Giving a file a second name.
    Link,
    /// Creating directories.
    CreateDir,
    /// Querying the length of a path or an open file.
    Len,
    /// Listing a directory.
    List,
    /// Taking a lock.
    Lock,
}

impl OpKind {
    /// True if it changes the visible or the surviving state. Crashes are placed at these
    /// operations.
    pub fn mutates(self) -> bool {
        use OpKind::{Create, CreateDir, Link, Remove, Rename, Sync, SyncDir, Truncate, Write};
        matches!(
            self,
            Create | Write | Truncate | Sync | SyncDir | Rename | Remove | Link | CreateDir
        )
    }
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// EIO. A write leaves nothing; a failed sync follows rule 7 of the model in `inode.rs`.
    Eio,
    /// ENOSPC, otherwise like [`FaultKind::Eio`].
    Enospc,
    /// EXDEV, as returned by a link across two file systems.
    Exdev,
    /// EINTR, for calls that the layer below would not have retried.
    Eintr,
    /// A read returns fewer bytes than exist, without an error. Other operations fail with EIO.
    ShortRead,
    /// A write leaves its first part, then fails with EIO. Other operations fail with EIO.
    ShortWrite,
    /// A read returns one wrong bit, without an error. Other operations fail with EIO.
    FlippedBit,
    /// A read returns the bytes 4 KiB after the requested ones (or, at the end of the file, zeros),
    /// without an error. Other operations fail with EIO.
    MisplacedBlock,
    /// A sync of a file or a directory reports success and does nothing, like a disk that lies or a
    /// program that forgot the sync. Other operations fail with EIO.
    LostSync,
}

impl FaultKind {
    pub(super) fn error(self) -> io::Error {
        const EINTR: i32 = 4;
        const EIO: i32 = 5;
        const ENOSPC: i32 = 28;
        const EXDEV: i32 = 18;
        io::Error::from_raw_os_error(match self {
            FaultKind::Enospc => ENOSPC,
            FaultKind::Eintr => EINTR,
            FaultKind::Exdev => EXDEV,
            _ => EIO,
        })
    }
}

/// A fault that waits for its operation. Add it with [`SimFs::inject`](super::SimFs::inject).
#[derive(Debug, Clone)]
pub struct Fault {
    kind: FaultKind,
    op: Option<OpKind>,
    mutating_only: bool,
    suffix: String,
    skip: u64,
    times: u64,
}

impl Fault {
    /// Fails the next operation, once.
    pub fn once(kind: FaultKind) -> Self {
        Self {
            kind,
            op: None,
            mutating_only: false,
            suffix: String::new(),
            skip: 0,
            times: 1,
        }
    }

    /// Fails every operation from now on.
    pub fn for_ever(kind: FaultKind) -> Self {
        Self {
            times: u64::MAX,
            ..Self::once(kind)
        }
    }

    /// Restricts the fault to operations of this kind.
    #[must_use]
    pub fn on(self, op: OpKind) -> Self {
        Self {
            op: Some(op),
            ..self
        }
    }

    /// Restricts the fault to operations that change something.
    #[must_use]
    pub fn on_mutations(self) -> Self {
        Self {
            mutating_only: true,
            ..self
        }
    }

    /// Restricts the fault to paths that end in this text.
    #[must_use]
    pub fn at(self, suffix: impl Into<String>) -> Self {
        Self {
            suffix: suffix.into(),
            ..self
        }
    }

    /// Lets the first `count` matching operations pass.
    #[must_use]
    pub fn after(self, count: u64) -> Self {
        Self {
            skip: count,
            ..self
        }
    }

    /// The fault to apply to this operation, if any. Counts matching operations.
    pub(super) fn strikes(&mut self, op: OpKind, path: &Path) -> Option<FaultKind> {
        let meant = self.op.is_none_or(|mine| mine == op)
            && (!self.mutating_only || op.mutates())
            && path.to_string_lossy().ends_with(&self.suffix);
        if !meant || self.times == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.kind)
    }
}
