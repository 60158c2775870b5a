//! Whose a file is, by its contents: a name proves nothing.
//!
//! 1. Only a file that says in its own bytes that it is of this database is ever removed or written over, apart from
//!    one with a name of ours that is empty or begins with zeros, as what a power cut left unfinished does, and from
//!    `CURRENT.new` and `OPTIONS.new`.
//! 2. A directory is a database's if one file in it says so. `LOCK` is written first, and durably, so that a creation
//!    that was cut is known for what it is. Anything else is refused with what was found.
//! 3. What cannot be read is not taken for somebody else's: the error is passed on.

use crate::files::FileName;
use crate::log::LogHeader;
use crate::manifest;
use crate::sites;
use firn_base::checksum::crc32c;
use firn_base::coding::Reader;
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
    /// It has no byte, or nothing but zeros where it would say so: it was never finished.
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
    let bytes = match head(dir, name, LOCK_BYTES_MAX) {
        // No regular file: a database has no other.
        Err(error) if error.kind() == ErrorKind::Invalid => return Ok(Owner::Unknown),
        read => read?,
    };
    if bytes.iter().take(HEADER_BYTES).all(|&byte| byte == 0) {
        return Ok(Owner::Nobody);
    }
    let uuid = match name {
        FileName::Log(id) => LogHeader::decode(&bytes, id).map(|header| header.uuid),
        FileName::Table(id) => TableOwner::decode(&bytes, id).map(|owner| owner.uuid),
        FileName::Manifest(id) => return manifest::owner(dir, id, &IoCounters::default()),
        FileName::Lock => Signature::decode(&bytes).map(|signature| signature.uuid),
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
    let known = names.iter().map(|name| FileName::parse(name)).filter(|name| *name != FileName::Unknown);
    let (first, rest): (Vec<_>, Vec<_>) = known.partition(is_first);
    for name in first.into_iter().chain(rest) {
        match owner_of(dir, name) {
            Ok(owner @ (Owner::Database(_) | Owner::OtherVersion)) => return Ok(Some(owner)),
            Ok(Owner::Nobody | Owner::Unknown) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
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
        "{} holds no FirnDB database, but other files ({}); nothing in it was touched: choose a new or an empty \
         directory",
        dir.path().display(),
        found.join(", ")
    ))
}

const LOCK_MAGIC: u64 = u64::from_le_bytes(*b"FIRNLOCK");
/// Origins that fit: a copy of a copy of a copy.
const ORIGINS_MAX: usize = 64;
const LOCK_BYTES_MAX: usize = 8 + 16 + 4 + 16 * ORIGINS_MAX + 4;

/// What `LOCK` says: whose directory it is, and whose tables may be in it besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) uuid: [u8; 16],
    pub(crate) origins: Vec<[u8; 16]>,
}

impl Signature {
    fn new(uuid: &[u8; 16], origins: &[[u8; 16]]) -> Signature {
        // The newest ones are those whose tables are most likely there.
        let from = origins.len().saturating_sub(ORIGINS_MAX);
        Signature { uuid: *uuid, origins: origins[from..].to_vec() }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = LOCK_MAGIC.to_le_bytes().to_vec();
        out.extend_from_slice(&self.uuid);
        out.extend_from_slice(&(self.origins.len() as u32).to_le_bytes());
        self.origins.iter().for_each(|origin| out.extend_from_slice(origin));
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Signature> {
        let mut reader = Reader::new(bytes.get(8..)?);
        let uuid = reader.take(16)?.try_into().ok()?;
        let count = reader.u32().filter(|&count| count as usize <= ORIGINS_MAX)?;
        let origins = (0..count).map(|_| reader.take(16)?.try_into().ok()).collect::<Option<_>>()?;
        let signature = Signature { uuid, origins };
        let encoded = signature.encode();
        (bytes.get(..encoded.len())? == encoded).then_some(signature)
    }
}

/// What `LOCK` in `dir` says; `None` if it is not there or says nothing of ours.
///
/// # Errors
/// What reading met.
pub(crate) fn signature(dir: &dyn Dir) -> Result<Option<Signature>> {
    match head(dir, FileName::Lock, LOCK_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => Ok(Signature::decode(&read?)),
    }
}

/// True if a file called `LOCK`, alone in its directory, may be written into: it is ours, or no longer than what a
/// creation of ours leaves that was cut, which may be anything.
///
/// # Errors
/// What reading met.
pub(crate) fn may_be_lock(dir: &dyn Dir) -> Result<bool> {
    const UNSIGNED_BYTES: u64 = 8 + 16 + 4 + 4;
    match dir.len(&FileName::Lock.to_string()) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        len => Ok(len? <= UNSIGNED_BYTES || signature(dir)?.is_some()),
    }
}

/// Writes into `LOCK` whose directory this is, durably, as the first thing in it. REQUIRES: the lock is held.
///
/// # Errors
/// What writing met.
pub(crate) fn sign(dir: &dyn Dir, uuid: &[u8; 16]) -> Result<()> {
    write_signature(dir, &Signature::new(uuid, &[]))
}

fn write_signature(dir: &dyn Dir, signature: &Signature) -> Result<()> {
    let file = dir.open(&FileName::Lock.to_string(), OpenMode::Append)?;
    // Also if it says so already: whoever wrote it may have been killed before its sync.
    file.write(0, &[&signature.encode()])?;
    file.sync(&sites::LOCK_SYNC)?;
    dir.sync(&sites::LOCK_NAME_SYNC)
}

/// Rewrites `LOCK` with the database's uuid and origins unless it has them already. REQUIRES: the lock is held, and
/// another file identifies the directory, because a power cut may leave garbage in this one.
///
/// # Errors
/// What reading or writing met.
pub(crate) fn sign_again(dir: &dyn Dir, uuid: &[u8; 16], origins: &[[u8; 16]]) -> Result<()> {
    let wanted = Signature::new(uuid, origins);
    if signature(dir)?.as_ref() == Some(&wanted) { Ok(()) } else { write_signature(dir, &wanted) }
}
