//! Whose a file is, by its contents: a name proves nothing.
//!
//! 1. Only a file that says in its own bytes that it is of this database is ever removed or written over, apart from an
//!    empty one with a name of ours, which holds nothing of anybody, and `CURRENT.new`.
//! 2. A directory is a database's if one file in it says so. `LOCK` is written first, and durably, so that a creation
//!    that was cut is known for what it is. Anything else is refused with what was found.
//! 3. What cannot be read is not taken for somebody else's: the error is passed on.

use crate::files::FileName;
use crate::log::{FILE_HEADER_BYTES, LogHeader};
use crate::manifest;
use crate::sites;
use firn_base::checksum::crc32c;
use firn_base::count::IoCounters;
use firn_base::{Error, ErrorKind, Result};
use firn_fs::{Dir, IoBuf, OpenMode};
use firn_table::sst::{HEADER_BYTES, TableOwner};

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It is a file of the database with this uuid.
    Database([u8; 16]),
    /// It is a database's that another version of FirnDB wrote.
    OtherVersion,
    /// It has no byte.
    Nobody,
    /// It says nothing that a database of ours would: another program's, or one of ours whose first bytes are lost.
    Unknown,
}

impl Owner {
    pub(crate) fn uuid(self) -> Option<[u8; 16]> {
        if let Owner::Database(uuid) = self { Some(uuid) } else { None }
    }
}

/// Reads whose `name` in `dir` is.
///
/// # Errors
/// What reading met; `NotFound` if it is not there.
pub(crate) fn owner_of(dir: &dyn Dir, name: FileName) -> Result<Owner> {
    let bytes = head(dir, name, FILE_HEADER_BYTES.max(HEADER_BYTES).max(LOCK_BYTES))?;
    if bytes.is_empty() {
        return Ok(Owner::Nobody);
    }
    let uuid = match name {
        FileName::Log(id) => LogHeader::decode(&bytes, id).map(|header| header.uuid),
        FileName::Table(id) => TableOwner::decode(&bytes, id).map(|owner| owner.uuid),
        FileName::Manifest(id) => return manifest::owner(dir, id, &IoCounters::default()),
        FileName::Lock => decode_lock(&bytes),
        _ => None,
    };
    Ok(uuid.map_or(Owner::Unknown, Owner::Database))
}

/// The first bytes of a file, `len` of them or all that there are.
pub(crate) fn head(dir: &dyn Dir, name: FileName, len: usize) -> Result<Vec<u8>> {
    let file = dir.open(&name.to_string(), OpenMode::Read)?;
    let mut buf = IoBuf::default();
    file.read(0, len, &mut buf)?;
    Ok(buf.bytes().to_vec())
}

/// Whose database `dir` holds, by the first file that says so; `None` if no file does.
///
/// # Errors
/// What reading met.
pub(crate) fn find(dir: &dyn Dir, names: &[String]) -> Result<Option<Owner>> {
    // What opens a database is looked at first: it says so there in one read.
    let is_first = |name: &FileName| matches!(name, FileName::Lock | FileName::Manifest(_));
    let (first, rest): (Vec<_>, Vec<_>) = names.iter().map(|name| FileName::parse(name)).partition(is_first);
    for name in first.into_iter().chain(rest) {
        match owner_of(dir, name) {
            Ok(owner @ (Owner::Database(_) | Owner::OtherVersion)) => return Ok(Some(owner)),
            Ok(Owner::Nobody | Owner::Unknown) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // A directory, say.
            Err(_) if name == FileName::Unknown => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The error for a directory that holds `names` and is none of a database.
pub(crate) fn not_ours(dir: &dyn Dir, names: &[String]) -> Error {
    const SHOWN: usize = 4;
    let mut found: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let more = format!("{} more", names.len().saturating_sub(SHOWN));
    if names.len() > SHOWN {
        found.push(&more);
    }
    Error::invalid(format!(
        "{} holds no FirnDB database, but other files ({}); nothing in it was touched: choose a new or an empty directory",
        dir.path().display(),
        found.join(", ")
    ))
}

const LOCK_MAGIC: u64 = u64::from_le_bytes(*b"FIRNLOCK");
const LOCK_BYTES: usize = 8 + 16 + 4;

fn encode_lock(uuid: &[u8; 16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(LOCK_BYTES);
    out.extend_from_slice(&LOCK_MAGIC.to_le_bytes());
    out.extend_from_slice(uuid);
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn decode_lock(bytes: &[u8]) -> Option<[u8; 16]> {
    let uuid = bytes.get(8..24)?.try_into().ok()?;
    (bytes.get(..LOCK_BYTES)? == encode_lock(&uuid)).then_some(uuid)
}

/// True if a file called `LOCK` may be written into: it is ours, or so small that it can be nothing but a lock.
pub(crate) fn may_be_lock(dir: &dyn Dir) -> Result<bool> {
    match dir.len(&FileName::Lock.to_string()) {
        Ok(len) => Ok(len <= LOCK_BYTES as u64),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Writes into `LOCK` whose directory this is, durably, as the first thing in it. REQUIRES: the lock is held.
///
/// # Errors
/// What writing met.
pub(crate) fn sign(dir: &dyn Dir, uuid: &[u8; 16]) -> Result<()> {
    let file = dir.open(&FileName::Lock.to_string(), OpenMode::Append)?;
    // Also if it says so already: whoever wrote it may have been killed before its sync.
    file.write(0, &[&encode_lock(uuid)])?;
    file.sync(&sites::LOCK_SYNC)?;
    dir.sync(&sites::LOCK_NAME_SYNC)
}

/// As [`sign`], if `LOCK` says anything else.
///
/// # Errors
/// What reading or writing met.
pub(crate) fn sign_again(dir: &dyn Dir, uuid: &[u8; 16]) -> Result<()> {
    match owner_of(dir, FileName::Lock)? {
        Owner::Database(found) if found == *uuid => Ok(()),
        _ => sign(dir, uuid),
    }
}
