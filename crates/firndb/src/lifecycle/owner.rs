//! The owner of a file, determined by its contents, because a name proves nothing.
//!
//! 1. A file is removed or overwritten only if its own bytes say that it is of this database. The
//!    exceptions are a file with a name of ours that is empty or begins with zeros, as an
//!    unfinished file after a power cut does, and `CURRENT.new` and `OPTIONS.new`.
//! 2. A directory belongs to a database if one file in it says so. `LOCK` is written first, and
//!    durably, so that an interrupted creation is recognized. Any other directory is rejected, with
//!    a list of what was found.
//! 3. A file that cannot be read is not assumed to be someone else's: the error is passed on.

use crate::files::{FileName, Owner};
use crate::log::LogHeader;
use crate::manifest;
use crate::sites;
use firn_base::checksum::crc32c;
use firn_base::coding::Reader;
use firn_base::count::IoCounters;
use firn_base::{Error, ErrorKind, Result};
use firn_fs::{Dir, IoBuf, OpenMode};
use firn_table::sst::{HEADER_BYTES, TableOwner};

/// Reads the owner of `name` in `dir`.
///
/// # Errors
/// The error of reading; `NotFound` if it does not exist.
pub(crate) fn owner_of(dir: &dyn Dir, name: FileName) -> Result<Owner> {
    let bytes = match head(dir, name, LOCK_BYTES_MAX) {
        // It is not a regular file, and a database has no others.
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

/// The first `len` bytes of a file, or all if it is shorter.
pub(crate) fn head(dir: &dyn Dir, name: FileName, len: usize) -> Result<Vec<u8>> {
    let file = dir.open(&name.to_string(), OpenMode::Read)?;
    let mut buf = IoBuf::default();
    file.read(0, len, &mut buf)?;
    Ok(buf.bytes().to_vec())
}

/// The owner of the database in `dir`, from the first file that names one; `None` if no file does.
///
/// # Errors
/// The error of reading.
pub(crate) fn find(dir: &dyn Dir, names: &[String]) -> Result<Option<Owner>> {
    // The files by which a database is opened come first, because one read of them suffices.
    let is_first = |name: &FileName| matches!(name, FileName::Lock | FileName::Manifest(_));
    let known = names
        .iter()
        .map(|name| FileName::parse(name))
        .filter(|name| *name != FileName::Unknown);
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

/// The error for a directory that holds `names` but no database.
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
/// The number of origins that fit, one for each generation of copies.
const ORIGINS_MAX: usize = 64;
const LOCK_BYTES_MAX: usize = 8 + 16 + 4 + 16 * ORIGINS_MAX + 4;

/// The contents of `LOCK`: the owner of the directory, and the other databases whose tables may be
/// in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) uuid: [u8; 16],
    pub(crate) origins: Vec<[u8; 16]>,
}

impl Signature {
    fn new(uuid: &[u8; 16], origins: &[[u8; 16]]) -> Signature {
        // The newest origins are kept, because their tables are the most likely to be there.
        let from = origins.len().saturating_sub(ORIGINS_MAX);
        Signature {
            uuid: *uuid,
            origins: origins[from..].to_vec(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = LOCK_MAGIC.to_le_bytes().to_vec();
        out.extend_from_slice(&self.uuid);
        out.extend_from_slice(&(self.origins.len() as u32).to_le_bytes());
        self.origins
            .iter()
            .for_each(|origin| out.extend_from_slice(origin));
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Signature> {
        let mut reader = Reader::new(bytes.get(8..)?);
        let uuid = reader.take(16)?.try_into().ok()?;
        let count = reader
            .u32()
            .filter(|&count| count as usize <= ORIGINS_MAX)?;
        let origins = (0..count)
            .map(|_| reader.take(16)?.try_into().ok())
            .collect::<Option<_>>()?;
        let signature = Signature { uuid, origins };
        let encoded = signature.encode();
        (bytes.get(..encoded.len())? == encoded).then_some(signature)
    }
}

/// The signature in `LOCK` in `dir`; `None` if the file does not exist or has no signature of ours.
///
/// # Errors
/// The error of reading.
pub(crate) fn signature(dir: &dyn Dir) -> Result<Option<Signature>> {
    match head(dir, FileName::Lock, LOCK_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => Ok(Signature::decode(&read?)),
    }
}

/// True if `LOCK`, as the only file in its directory, may be written to: it is ours, or no longer
/// than the file that an interrupted creation leaves, whose contents may be anything.
///
/// # Errors
/// The error of reading.
pub(crate) fn may_be_lock(dir: &dyn Dir) -> Result<bool> {
    const UNSIGNED_BYTES: u64 = 8 + 16 + 4 + 4;
    match dir.len(&FileName::Lock.to_string()) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        len => Ok(len? <= UNSIGNED_BYTES || signature(dir)?.is_some()),
    }
}

/// Writes the owner's uuid into `LOCK`, durably, as the first thing in the directory. REQUIRES: the
/// lock is held.
///
/// # Errors
/// The error of writing.
pub(crate) fn sign(dir: &dyn Dir, uuid: &[u8; 16]) -> Result<()> {
    write_signature(dir, &Signature::new(uuid, &[]))
}

fn write_signature(dir: &dyn Dir, signature: &Signature) -> Result<()> {
    let file = dir.open(&FileName::Lock.to_string(), OpenMode::Append)?;
    // Written even if it says so already, because the process that wrote it may have been killed
    // before its sync.
    file.write(0, &[&signature.encode()])?;
    file.sync(&sites::LOCK_SYNC)?;
    dir.sync(&sites::LOCK_NAME_SYNC)
}

/// Rewrites `LOCK` with the database's uuid and origins unless it has them already. REQUIRES: the
/// lock is held, and another file identifies the directory, because a power cut may leave garbage
/// in this one.
///
/// # Errors
/// The error of reading or writing.
pub(crate) fn sign_again(dir: &dyn Dir, uuid: &[u8; 16], origins: &[[u8; 16]]) -> Result<()> {
    let wanted = Signature::new(uuid, origins);
    if signature(dir)?.as_ref() == Some(&wanted) {
        Ok(())
    } else {
        write_signature(dir, &wanted)
    }
}
