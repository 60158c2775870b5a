//! The foundation of every FirnDB crate: no file I/O, no `unsafe`, and no threads but those of
//! `exec`.
//!
//! Only [`clock`] reads time, only [`seed`] makes randomness and only [`exec`] starts threads, so
//! the whole engine can run deterministically in a test.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod clock;
pub mod coding;
pub mod count;
pub mod error;
pub mod exec;
pub mod key;
pub mod key_prefixes;
pub mod limits;
pub mod seed;
pub mod site;
pub mod sync;

pub use error::{Error, ErrorKind, Result};
pub use key::{FileId, Kind, SeqNo, Tag};
pub use limits::Limits;
