//! The databases, keys and values that the tests of this folder share.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops at the first surprise, and needs not all of it"
)]

pub(crate) mod memory;
pub(crate) mod pools;

use firndb::{Backend, Cursor, Db, Durability, Options, PmConfig, Profile, WriteOptions};
use std::collections::BTreeMap;
use std::path::Path;

/// The expected contents of a database.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A profile, with persistent memory or without.
pub(crate) type Kind = (Profile, bool);

/// For writes that need not survive a loss of power.
pub(crate) const PROCESS: WriteOptions = WriteOptions::new().durability(Durability::Process);

/// True in the CI tier, where tests with threads run longer.
pub(crate) fn is_ci() -> bool {
    std::env::var("FIRN_TESTS").is_ok_and(|tier| tier == "ci")
}

/// Every profile, with persistent memory and without.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    let profiles = Profile::ALL.into_iter();
    profiles.flat_map(|profile| [false, true].map(|pool| (profile, pool)))
}

/// A pool of `bytes` in `dir`, if `kind` has one.
pub(crate) fn pool(dir: &Path, kind: Kind, bytes: u64) -> Option<PmConfig> {
    let place = || PmConfig::at(dir.join("pool"), Backend::Emulated, bytes);
    kind.1.then(place)
}

/// Tiny limits, and a pool of 2 MiB in `dir` if `kind` has one.
pub(crate) fn options(dir: &Path, kind: Kind) -> Options {
    Options::tiny().profile(kind.0).pm(pool(dir, kind, 2 << 20))
}

/// Opens the database in `dir/db` with these options.
pub(crate) fn open(dir: &Path, kind: Kind) -> Db {
    Db::open(dir.join("db"), options(dir, kind)).unwrap()
}

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// A value that names its key.
pub(crate) fn value(number: u64, round: u64) -> Vec<u8> {
    let mut value = [number.to_be_bytes(), round.to_be_bytes()].concat();
    value.resize(60 + (number % 100) as usize, number as u8);
    value
}

/// Checks that `found` is a value of key `number`, and returns its round.
pub(crate) fn round_of(number: u64, found: &[u8]) -> u64 {
    let round = u64::from_be_bytes(found[8..16].try_into().unwrap());
    assert!(found == value(number, round), "a value of another key");
    round
}

/// The entry at which a cursor is.
pub(crate) fn entry(cursor: &Cursor) -> Option<(Vec<u8>, Vec<u8>)> {
    let entry = || (cursor.key().to_vec(), cursor.value().to_vec());
    cursor.valid().then(entry)
}
