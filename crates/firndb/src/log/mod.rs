//! The write-ahead log: one file of frames per write buffer. Format: `docs/format/log.md`.

mod layout;
mod replay;
mod sink;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use layout::ValueAddress;
pub(crate) use replay::{End, LogSource, Replay, Replayed};
pub(crate) use sink::PmLogBuffer;
pub(crate) use write::{LogEnd, LogWriter};
