//! The ground that every FirnDB crate stands on: no file I/O, no `unsafe`, and the only threads are `exec`'s.
//!
//! Nothing outside [`clock`] reads time, nothing outside [`seed`] makes randomness and nothing outside [`exec`] starts
//! a thread, so that the whole engine runs deterministically when a test wants it to.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod clock;
pub mod coding;
pub mod count;
pub mod error;
pub mod exec;
pub mod heads;
pub mod key;
pub mod limits;
pub mod seed;
pub mod site;
pub mod sync;

pub use error::{Error, ErrorKind, Result};
pub use key::{Kind, SeqNo, Tag};
pub use limits::Limits;
