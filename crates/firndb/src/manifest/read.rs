//! Reads the manifest that CURRENT names.
//!
//! The manifest ends at the first place without a whole record. That is its torn end, unless a
//! later whole record says that the manifest had been synced past this place; then data that was
//! relied upon is damaged. (Records that begin or end a log are not synced by themselves, so a torn
//! one can precede a whole one.) The loss of the last record does not go unnoticed: files that it
//! made obsolete were deleted only after it was durable, so the files that the shorter manifest
//! needs are missing, and open detects that.

use super::edit::{Edit, FORMAT_VERSION, FORMAT_VERSION_MIN};
use super::layout::{RECORD_HEADER_BYTES, claimed_record, parse_current, whole_record};
use super::version::Version;
use crate::files::FileName;
use crate::files::Owner;
use firn_base::count::{Cause, IoCounters};
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_fs::{Dir, IoBuf, OpenMode};
use std::path::Path;

/// Reads CURRENT and the manifest it names. Returns the manifest's id and the state that it
/// describes; `None` if there is no CURRENT.
///
/// # Errors
/// `Corruption` if either is damaged.
pub(crate) fn read(dir: &dyn Dir, counters: &IoCounters) -> Result<Option<(FileId, Version)>> {
    let path = dir.path().join(FileName::Current.to_string());
    let named = match read_file(dir, FileName::Current, counters) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let id = parse_current(&named).ok_or_else(|| {
        Error::corruption(
            path.display(),
            0,
            "expected the name of a manifest and its checksum",
        )
    })?;
    let path = dir
        .path()
        .join(FileName::Manifest(FileId(id.0)).to_string());
    let bytes =
        read_file(dir, FileName::Manifest(FileId(id.0)), counters).map_err(|error| match error
            .kind()
        {
            ErrorKind::NotFound => {
                Error::corruption(path.display(), 0, "CURRENT names it, but it is missing")
            }
            _ => error,
        })?;
    let version = replay(&bytes, FileId(id.0), &path)?;
    Ok(Some((FileId(id.0), version)))
}

/// The owner of manifest `id` according to its first record, even if CURRENT does not name it.
///
/// # Errors
/// The error of a read.
pub(crate) fn owner(dir: &dyn Dir, id: FileId, counters: &IoCounters) -> Result<Owner> {
    let bytes = read_file(dir, FileName::Manifest(id), counters)?;
    let first = whole_record(&bytes, id, 0).map(|record| Edit::decode(record.payload));
    Ok(match first {
        Some(Some(Edit {
            uuid: Some(uuid), ..
        })) => Owner::Database(uuid),
        // Its checksum is that of a manifest, so a FirnDB wrote it.
        Some(_) => Owner::OtherVersion,
        None => Owner::Unknown,
    })
}

fn read_file(dir: &dyn Dir, name: FileName, counters: &IoCounters) -> Result<Vec<u8>> {
    let file = dir.open(&name.to_string(), OpenMode::Read)?;
    let mut buf = IoBuf::default();
    file.read(0, file.len()? as usize, &mut buf)?;
    counters.read(Cause::Recovery, buf.len());
    Ok(buf.bytes().to_vec())
}

fn replay(bytes: &[u8], id: FileId, path: &Path) -> Result<Version> {
    let mut version = Version::default();
    let mut format = FORMAT_VERSION;
    let mut at = 0;
    while let Some(record) = whole_record(bytes, id, at) {
        let damaged = |expected: &str| Error::corruption(path.display(), at as u64, expected);
        let edit = Edit::decode_as(record.payload, format).ok_or_else(|| {
            let message = format!(
                "{} holds a record that this version of FirnDB does not know; open it with the version that wrote it",
                path.display()
            );
            Error::new(ErrorKind::Incompatible, message)
        })?;
        format = edit.format.unwrap_or(format);
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&format) {
            let message = format!(
                "{} is of format version {format}, this build reads versions {FORMAT_VERSION_MIN} to {FORMAT_VERSION}; \
                 open it with the version of FirnDB that wrote it, or copy it from there by `firn export` and \
                 `firn load`",
                path.display()
            );
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        version.format = format;
        if at == 0 && edit.uuid.is_none() {
            return Err(damaged("expected a snapshot record first"));
        }
        version.apply(&edit).map_err(|broken| {
            damaged(&format!(
                "expected a record that keeps the invariant {broken}"
            ))
        })?;
        at += RECORD_HEADER_BYTES + record.payload.len();
    }
    if at == 0 || is_relied_on(bytes, id, at) {
        return Err(Error::corruption(
            path.display(),
            at as u64,
            "expected a whole record",
        ));
    }
    Ok(version)
}

/// True if a whole record after `end` says that the manifest had been synced past it.
///
/// The bytes there may be crafted so that every place looks like the header of a long record. So
/// the bytes that are checksummed are limited to a small multiple of the bytes present. A genuine
/// torn end never comes near the limit; anything that exceeds it counts as damage.
fn is_relied_on(bytes: &[u8], id: FileId, end: usize) -> bool {
    const TIMES_MAX: usize = 64;
    let mut left = (bytes.len() - end).saturating_mul(TIMES_MAX);
    (end + 1..bytes.len()).any(|later| {
        let Some(record) =
            claimed_record(bytes, later).filter(|record| record.synced_through > end as u64)
        else {
            return false;
        };
        let checked = left.checked_sub(record.payload.len());
        left = checked.unwrap_or(0);
        checked.is_none() || whole_record(bytes, id, later).is_some()
    })
}
