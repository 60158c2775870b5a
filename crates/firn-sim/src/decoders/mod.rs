//! Every decoder of the engine as a target for arbitrary bytes: what `fuzz/` mutates and `tests/corpus.rs` replays.
//!
//! 1. A target returns for any input. It panics only if a contract is broken: bytes give a value or an error that says
//!    what is wrong with them, in bounded time and memory.
//! 2. Seeds are real bytes: what a small database leaves behind.
//! 3. Mending makes the checksums of an input right and changes little else, so that what lies behind them is reached.
//!    Mended seeds are as they were.
#![expect(clippy::ptr_arg, reason = "all menders have one signature, and that of CURRENT changes the length")]

mod directory;
mod log;
mod manifest;
mod patch;
mod pool;
mod real;
mod table;
mod trees;

use firndb::{Error, ErrorKind};

/// One decoder.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Inputs that are longer tell nothing that shorter ones do not.
    pub bytes_max: usize,
    /// Decodes an input.
    pub run: fn(&[u8]),
    /// Real inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Makes the checksums of an input right.
    pub mend: fn(&mut Vec<u8>),
}

/// All decoders.
pub const TARGETS: [Target; 13] = [
    log::FRAME,
    log::LOG,
    log::HALF,
    manifest::EDIT,
    manifest::MANIFEST,
    manifest::CURRENT,
    table::BLOCK,
    table::INDEX,
    table::PROPERTIES,
    table::TABLE,
    pool::POOL,
    trees::TREES,
    directory::DIRECTORY,
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// For formats without a checksum of their own.
fn no_checksum(_: &mut Vec<u8>) {}

/// What bytes may be refused with.
fn check_refusal(error: &Error, what: &str) {
    let kind = error.kind();
    assert!(matches!(kind, ErrorKind::Corruption | ErrorKind::Incompatible), "{what}: {error:?}");
}
