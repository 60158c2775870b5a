//! The end of a `firn` process: an exit code that a script can branch on, and one sentence on
//! stderr for a person.

use firndb::{Error, ErrorKind};
use std::io;
use std::process::ExitCode;

/// The meaning of each code, printed by `firn --help` and documented only here.
pub(crate) const HELP: &str = "\
Exit codes:
    0  done
    1  the key is not there, or not everything could be taken along
    2  wrong usage
    3  invalid or incompatible: input, options or database
    4  corruption: bytes are not what was written
    5  locked: another process has the database open
    6  no space
    7  the operating system failed an operation
    8  there is no database at the path, or no file
  130  interrupted by a signal

`firn help options` lists the options of the engine and where they come from.";

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    NotFound = 1,
    Usage = 2,
    Invalid = 3,
    Corruption = 4,
    Locked = 5,
    NoSpace = 6,
    Io = 7,
    NoDatabase = 8,
    Interrupted = 130,
}

/// The reason why a verb ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    /// Not printed if empty.
    message: String,
}

/// The result of a verb.
pub(crate) type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The same failure with `place` prefixed to its message.
    #[must_use]
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        Self {
            message: format!("{place}: {}", self.message),
            ..self
        }
    }

    /// The same failure with `sentence` appended to its message.
    #[must_use]
    pub(crate) fn and(self, sentence: impl std::fmt::Display) -> Self {
        Self {
            message: format!("{}; {sentence}", self.message),
            ..self
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Exit::Invalid, message)
    }

    /// The reader of the output closed it (`firn scan | head`). This is not an error, but there is
    /// nothing left to do.
    pub(crate) fn from_output(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Done, "");
        }
        Error::from_io("write to", "the output".as_ref(), error).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::NotFound => Exit::NoDatabase,
            ErrorKind::Locked => Exit::Locked,
            ErrorKind::Invalid | ErrorKind::Incompatible => Exit::Invalid,
            ErrorKind::Corruption => Exit::Corruption,
            ErrorKind::NoSpace => Exit::NoSpace,
            _ => Exit::Io,
        };
        Self::new(exit, error.to_string())
    }
}

/// Prints the message of `outcome` and returns its exit code.
pub(crate) fn report(outcome: Outcome) -> ExitCode {
    let exit = match outcome {
        Ok(exit) => exit,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("firn: {}", failure.message);
            }
            failure.exit
        }
    };
    ExitCode::from(exit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_codes() {
        for (kind, exit) in [
            (ErrorKind::NotFound, Exit::NoDatabase),
            (ErrorKind::Invalid, Exit::Invalid),
            (ErrorKind::Incompatible, Exit::Invalid),
            (ErrorKind::Corruption, Exit::Corruption),
            (ErrorKind::Locked, Exit::Locked),
            (ErrorKind::NoSpace, Exit::NoSpace),
            (ErrorKind::Poisoned, Exit::Io),
        ] {
            assert_eq!(Failure::from(Error::new(kind, "x")).exit, exit);
        }
    }
}
