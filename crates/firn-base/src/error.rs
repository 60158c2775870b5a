//! The one public error: a kind to branch on, a message that says what to do, and the underlying
//! cause.
//!
//! An `Error` is cheap to clone (every member of a commit group gets the same one) and one word
//! wide, so that `Result<()>` stays in a register on the hot paths.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// `Result` with FirnDB's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The category of a failure. Branch on this; print the error itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file, database or pool does not exist.
    NotFound,
    /// Another process (or another handle of this one) has the database or pool open.
    Locked,
    /// The request cannot be carried out as stated. Nothing was written.
    Invalid,
    /// The files are intact, but this open cannot serve their version, profile or pairing.
    Incompatible,
    /// Bytes read from media differ from the bytes written. The message names the place and what
    /// was expected.
    Corruption,
    /// A writer removed what a read-only open was reading. Nothing is damaged: try again.
    Changed,
    /// The disk or pool is full. Writes resume by themselves once there is room.
    NoSpace,
    /// The operating system failed an operation.
    Io,
    /// An earlier sync failed, so this handle acknowledges no further write. Reads still work;
    /// reopen to recover.
    Poisoned,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<io::Error>>,
}

/// A failure: what happened, where, and what to do about it.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

impl Error {
    /// An error of `kind` saying `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    /// The caller's request cannot be served; `message` says what to change.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Damage at `offset` of `place` (a file or pool), with what was expected there.
    pub fn corruption(place: impl fmt::Display, offset: u64, expected: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Corruption,
            format!("{place} is damaged at byte {offset}: {expected}; run `firn verify`"),
        )
    }

    /// A writer removed `what` while a read-only open was using it.
    pub fn changed(what: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Changed,
            format!("{what} changed underneath, as a writer has the database open: try again"),
        )
    }

    /// An operating system error that occurred while doing `verb` to `path`.
    ///
    /// A full disk becomes [`ErrorKind::NoSpace`], a missing file [`ErrorKind::NotFound`], and
    /// running out of file handles says which knob to turn.
    pub fn from_io(verb: &str, path: &Path, source: io::Error) -> Self {
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        let place = path.display();
        let (kind, advice) = match (source.kind(), source.raw_os_error()) {
            (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, _) => (
                ErrorKind::NoSpace,
                "; free some space, writes resume by themselves",
            ),
            (io::ErrorKind::NotFound, _) => (ErrorKind::NotFound, ""),
            (_, Some(ENFILE | EMFILE)) => (
                ErrorKind::Io,
                "; raise `ulimit -n` or lower the option `max_open_files`",
            ),
            _ => (ErrorKind::Io, ""),
        };
        let message = format!("cannot {verb} {place}: {source}{advice}");
        Self(Arc::new(Inner {
            kind,
            message,
            source: Some(Arc::new(source)),
        }))
    }

    /// The kind, to branch on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The same error with `context` prefixed to its message.
    #[must_use]
    pub fn context(&self, context: impl fmt::Display) -> Self {
        let message = format!("{context}: {}", self.0.message);
        Self(Arc::new(Inner {
            kind: self.0.kind,
            message,
            source: self.0.source.clone(),
        }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}
