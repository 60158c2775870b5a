//! Every decoder of the engine as a target for arbitrary bytes. `fuzz/` mutates the inputs, and
//! `tests/corpus.rs` replays them.
//!
//! 1. A target returns for any input and panics only if a contract is broken: bytes decode to a
//!    value or to an error that says what is wrong with them, in bounded time and memory.
//! 2. Seeds are real bytes: the files of a small database.
//! 3. Mending corrects the checksums of an input and changes little else, so that the code after
//!    the checks is reached. It leaves seeds unchanged.
#![expect(
    clippy::ptr_arg,
    reason = "all menders have one signature, and that of CURRENT changes the length"
)]

mod buffers;
mod directory;
mod if_tree;
mod in_pool;
mod lists;
mod log;
mod manifest;
mod patch;
mod pool;
mod real;
mod sorted;
mod table;
mod trees;

use firndb::{Error, ErrorKind};

/// One decoder.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of its corpus.
    pub name: &'static str,
    /// The maximum length of an input, in bytes. Longer inputs reveal nothing more.
    pub bytes_max: usize,
    /// Decodes an input.
    pub run: fn(&[u8]),
    /// Real inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Corrects the checksums of an input.
    pub mend: fn(&mut Vec<u8>),
}

/// All decoders.
pub const TARGETS: [Target; 17] = [
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
    lists::LISTS,
    sorted::SORTED,
    if_tree::IF_TREE,
    buffers::BUFFERS,
    directory::DIRECTORY,
];

/// The target named `name`.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The mender for formats without their own checksum.
fn no_checksum(_: &mut Vec<u8>) {}

/// Checks that `error` is a permitted refusal of bytes.
fn check_refusal(error: &Error, what: &str) {
    let kind = error.kind();
    assert!(
        matches!(kind, ErrorKind::Corruption | ErrorKind::Incompatible),
        "{what}: {error:?}"
    );
}
