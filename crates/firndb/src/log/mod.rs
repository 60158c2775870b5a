//! The write-ahead log: one file of frames per memtable. Format: `docs/format/log.md`.

mod frames;
mod hot;
mod layout;
mod old;
mod placed;
#[cfg(feature = "proof")]
pub(crate) mod proof;
mod replay;
mod sealed;
mod sink;
#[cfg(test)]
mod tests;
mod values;
mod write;

pub use hot::HotStats;
pub(crate) use hot::{HotSlots, HotWriter};
pub(crate) use layout::{FILE_HEADER_BYTES, LogHeader, ValueAddress};
pub(crate) use placed::PlacedLogs;
pub(crate) use replay::{End, LogSource, Replay, Replayed};
pub(crate) use sealed::SealedLogs;
pub(crate) use sink::PmLogBuffer;
pub(crate) use values::{FLYING_MAX, PendingValue, ValueLogs, Wanted};
pub(crate) use write::{LogEnd, LogWriter};
