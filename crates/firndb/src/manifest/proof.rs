//! Runs the manifest's decoders over arbitrary bytes, for [`crate::proof`].

use super::edit::{Edit, FORMAT_VERSION};
use super::version::Version;
use crate::files::FileName;
use firn_base::FileId;
use firn_base::Result;
use firn_base::count::IoCounters;
use firn_fs::{Fs, SimFs};
use std::path::Path;

/// Decodes and applies a record's payload.
///
/// # Panics
/// If a decoded edit does not survive another round trip, or the resulting state differs from that
/// of its snapshot.
pub fn edit(bytes: &[u8]) {
    let Some(edit) = Edit::decode(bytes) else {
        return;
    };
    // A record of an older version is written in the current one.
    if edit.format.is_none_or(|format| format == FORMAT_VERSION) {
        let again = Edit::decode(&edit.encode());
        assert_eq!(again.as_ref(), Some(&edit));
    }
    let mut version = Version::default();
    if version.apply(&edit).is_ok() {
        check_snapshot(&version);
    }
}

/// Reads a directory whose CURRENT contains `named` and whose manifest `id` contains `bytes`.
/// Returns the id of the current manifest.
///
/// # Errors
/// `Corruption` and `Incompatible`.
///
/// # Panics
/// If the state differs from that of its snapshot.
pub fn read_manifest(named: &[u8], id: FileId, bytes: &[u8]) -> Result<Option<FileId>> {
    let (fs, dir) = (SimFs::new(1), Path::new("/db"));
    fs.write_file(&dir.join(FileName::Current.to_string()), named);
    fs.write_file(&dir.join(FileName::Manifest(id).to_string()), bytes);
    let read = super::read(&*fs.open_dir(dir)?, &IoCounters::default())?;
    Ok(read.map(|(id, version)| {
        check_snapshot(&version);
        id
    }))
}

/// Checks that a snapshot replaces all edits that led to it.
fn check_snapshot(version: &Version) {
    let snapshot = version.snapshot();
    let read = Edit::decode(&snapshot.encode());
    assert_eq!(
        read.as_ref(),
        Some(&snapshot),
        "a snapshot is read as it was written"
    );
    let mut again = Version::default();
    assert_eq!(
        again.apply(&snapshot),
        Ok(()),
        "a snapshot of a sound state is sound"
    );
    assert_eq!(again.snapshot(), snapshot);
}
