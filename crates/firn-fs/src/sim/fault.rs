//! Faults on demand: which operation fails, when, and how.

use std::io;
use std::path::Path;

/// What sort of operation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Opening a file that exists.
    Open,
    /// Opening in a mode that creates or empties.
    Create,
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// Cutting a file.
    Truncate,
    /// Syncing a file.
    Sync,
    /// Syncing a directory.
    SyncDir,
    /// Renaming.
    Rename,
    /// Removing a name.
    Remove,
    /// Giving a second name.
    Link,
    /// Creating directories.
    CreateDir,
    /// Asking a length, of a path or of an open file.
    Len,
    /// Listing a directory.
    List,
    /// Taking a lock.
    Lock,
}

impl OpKind {
    /// Whether it changes what is seen or what survives; these are what a crash is placed at.
    pub fn mutates(self) -> bool {
        use OpKind::{Create, CreateDir, Link, Remove, Rename, Sync, SyncDir, Truncate, Write};
        matches!(self, Create | Write | Truncate | Sync | SyncDir | Rename | Remove | Link | CreateDir)
    }
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// EIO. A write leaves nothing, a sync leaves what rule 8 of the model says.
    Eio,
    /// ENOSPC, otherwise like [`FaultKind::Eio`].
    Enospc,
    /// EXDEV: what a link over the border of two file systems meets.
    Exdev,
    /// EINTR, for what the system under this one would not have retried.
    Eintr,
    /// A read gives fewer bytes than there are, without an error. Other operations fail with EIO.
    ShortRead,
    /// A write leaves its first part, then fails with EIO. Other operations fail with EIO.
    ShortWrite,
    /// A read gives one wrong bit, without an error. Other operations fail with EIO.
    FlippedBit,
    /// A read gives the bytes of the block 4 KiB behind (or, at the end, zeros), without an error. Other operations
    /// fail with EIO.
    MisplacedBlock,
    /// A sync, of a file or a directory, says that it succeeded and does nothing: a disk that lies, or a program that
    /// forgot. Other operations fail with EIO.
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
        Self { kind, op: None, mutating_only: false, suffix: String::new(), skip: 0, times: 1 }
    }

    /// Fails every operation from the next on.
    pub fn for_ever(kind: FaultKind) -> Self {
        Self { times: u64::MAX, ..Self::once(kind) }
    }

    /// Only operations of this kind.
    #[must_use]
    pub fn on(self, op: OpKind) -> Self {
        Self { op: Some(op), ..self }
    }

    /// Only operations that change something.
    #[must_use]
    pub fn on_mutations(self) -> Self {
        Self { mutating_only: true, ..self }
    }

    /// Only operations on paths that end in this text.
    #[must_use]
    pub fn at(self, suffix: impl Into<String>) -> Self {
        Self { suffix: suffix.into(), ..self }
    }

    /// Lets `count` of the operations it is meant for pass first.
    #[must_use]
    pub fn after(self, count: u64) -> Self {
        Self { skip: count, ..self }
    }

    /// Whether this operation is the one; counts it if it could have been.
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
