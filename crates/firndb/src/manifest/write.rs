//! Writes the manifest: one record per edit, and a fresh file when the old one has grown long.
//!
//! 1. An edit is installed only after its record is durable (or, for a log's seal under process
//!    durability, written).
//! 2. A log's name is made durable with the first record that must be durable, which says so
//!    (`logs_named`). From then on a missing log is damage. The name is not made durable at
//!    creation, because that is on the path of a commit, and syncing a directory can wait for the
//!    whole old log to reach the device.
//! 3. A fresh manifest begins with a snapshot and is durable before CURRENT names it; CURRENT
//!    changes by rename.
//! 4. After a failed write the record's place is written again; after a failed sync the writer is
//!    poisoned.

use super::edit::Edit;
use super::layout::{current, record};
use super::version::Version;
use crate::files::{FileName, Files};
use crate::sites;
use firn_base::count::{Cause, IoCounters};
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_fs::File;
use std::sync::Arc;

/// The open manifest and the state that it describes.
pub(crate) struct ManifestWriter {
    files: Arc<Files>,
    counters: Arc<IoCounters>,
    id: FileId,
    /// `None` for a read-only database.
    file: Option<Arc<dyn File>>,
    position: u64,
    /// The position up to which the manifest is durable.
    synced_through: u64,
    bytes_max: u64,
    version: Version,
    poison: Option<Error>,
}

impl ManifestWriter {
    /// Starts manifest `id` with a snapshot of `version` and makes CURRENT name it.
    ///
    /// # Errors
    /// The error of a write; CURRENT is unchanged then.
    pub(crate) fn create(
        files: Arc<Files>,
        counters: Arc<IoCounters>,
        id: FileId,
        mut version: Version,
        bytes_max: u64,
    ) -> Result<ManifestWriter> {
        // The directory is synced before CURRENT names this manifest.
        version.name_all_logs();
        let (file, position) = start(&files, &counters, id, &version)?;
        Ok(ManifestWriter {
            files,
            counters,
            id,
            file: Some(file),
            position,
            synced_through: position,

            bytes_max,
            version,
            poison: None,
        })
    }

    /// The manifest of a read-only database, which accepts no records.
    pub(crate) fn read_only(
        files: Arc<Files>,
        counters: Arc<IoCounters>,
        version: Version,
    ) -> Self {
        let (id, file, bytes_max) = (FileId(0), None, u64::MAX);
        ManifestWriter {
            files,
            counters,
            id,
            file,
            position: 0,
            synced_through: 0,
            bytes_max,
            version,
            poison: None,
        }
    }

    /// The state described by the records so far.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// The manifest's id.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Records `edit`, durably if `durable`. `new_id` provides the id of a fresh manifest if one is
    /// due.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing changed. `Poisoned`: a sync failed, and nothing more can be
    /// recorded.
    pub(crate) fn append(
        &mut self,
        mut edit: Edit,
        durable: bool,
        new_id: impl FnOnce() -> FileId,
    ) -> Result<()> {
        self.check_poison()?;
        edit.id = self.version.edit_id + 1;
        let mut next = self.version.clone();
        let file = self
            .file
            .clone()
            .ok_or_else(|| Error::invalid("the database was opened read-only"))?;
        next.apply(&edit).map_err(|broken| {
            Error::corruption(
                file.path().display(),
                self.position,
                format_args!("an edit broke {broken}"),
            )
        })?;
        let unnamed: Vec<FileId> = next
            .logs
            .iter()
            .filter(|(_, log)| !log.named)
            .map(|(&id, _)| id)
            .collect();
        if durable && !unnamed.is_empty() {
            self.files.sync_dir(&sites::LOG_NAMES_SYNC)?;
            next.name_logs(&unnamed);
            edit.logs_named = unnamed;
        }
        let bytes = record(self.id, self.position, self.synced_through, &edit.encode());
        file.write(self.position, &[&bytes])?;
        self.counters.wrote(Cause::Manifest, bytes.len());
        if durable {
            self.sync()?;
        }
        self.position += bytes.len() as u64;
        if durable {
            self.synced_through = self.position;
        }
        self.version = next;
        if self.position > self.bytes_max {
            self.renew(new_id())?;
        }
        Ok(())
    }

    /// Makes all records durable, and the names of the logs that they add.
    ///
    /// # Errors
    /// As [`ManifestWriter::append`].
    pub(crate) fn make_durable(&mut self, new_id: impl FnOnce() -> FileId) -> Result<()> {
        if self.synced_through == self.position && self.version.logs.values().all(|log| log.named) {
            return self.check_poison();
        }
        self.append(Edit::default(), true, new_id)
    }

    fn sync(&mut self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        if let Err(error) = file.sync(&sites::MANIFEST_SYNC) {
            let message = format!(
                "the manifest could not be synced ({error}); reads go on, reopen to recover"
            );
            self.poison = Some(Error::new(ErrorKind::Poisoned, message));
            return self.check_poison();
        }
        Ok(())
    }

    fn check_poison(&self) -> Result<()> {
        self.poison.clone().map_or(Ok(()), Err)
    }

    /// Continues in a fresh manifest. If that fails, the old one continues; it is only longer than
    /// it should be.
    fn renew(&mut self, id: FileId) -> Result<()> {
        self.version.next_file_id = self.version.next_file_id.max(id.next());
        let before = self.version.clone();
        self.version.name_all_logs();
        match start(&self.files, &self.counters, id, &self.version) {
            Ok((file, position)) => {
                let old = FileName::Manifest(self.id);
                (self.id, self.file, self.position, self.synced_through) =
                    (id, Some(file), position, position);
                if let Err(error) = self.files.remove(old) {
                    tracing::warn!(%error, "an old manifest stays");
                }
                // A manifest that is all snapshot is renewed when it has doubled.
                self.bytes_max = self.bytes_max.max(2 * position);
            }
            Err(error) if error.kind() == ErrorKind::Poisoned => {
                self.poison = Some(error.clone());
                return Err(error);
            }
            Err(error) => {
                tracing::warn!(%error, "the manifest could not be renewed");
                self.version = before;
                self.bytes_max = self.bytes_max.saturating_mul(2);
            }
        }
        Ok(())
    }
}

/// Writes a manifest that holds a snapshot, and makes CURRENT name it. A failure before the rename
/// leaves no trace. After that it is unknown which manifest a crash would find, so a failure is
/// `Poisoned`.
pub(crate) fn start(
    files: &Files,
    counters: &IoCounters,
    id: FileId,
    version: &Version,
) -> Result<(Arc<dyn File>, u64)> {
    // Remains of a crash. Nothing ever used it.
    match files.remove(FileName::CurrentNew) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = write_snapshot(files, counters, id, version)?;
    let renamed = files
        .rename(
            &sites::CURRENT_RENAME,
            FileName::CurrentNew,
            FileName::Current,
        )
        .and_then(|()| files.sync_dir(&sites::CURRENT_NAME_SYNC));
    match renamed {
        Ok(()) => Ok(written),
        Err(error) => Err(Error::new(
            ErrorKind::Poisoned,
            format!("CURRENT could not be replaced ({error})"),
        )),
    }
}

/// Writes a manifest and the CURRENT that is to name it, under names that are durable when this
/// returns. On failure removes them again, but never a file that was there before.
fn write_snapshot(
    files: &Files,
    counters: &IoCounters,
    id: FileId,
    version: &Version,
) -> Result<(Arc<dyn File>, u64)> {
    let bytes = record(id, 0, 0, &version.snapshot().encode());
    let contents = current(id);
    let write = |name: FileName, bytes: &[u8], site: &'static Site| -> Result<Arc<dyn File>> {
        let file = files.create(name)?;
        let written = file.write(0, &[bytes]).and_then(|()| file.sync(site));
        written
            .map(|()| file)
            .inspect_err(|_| drop(files.remove(name)))
    };
    let file = write(FileName::Manifest(id), &bytes, &sites::SNAPSHOT_SYNC)?;
    let named = write(
        FileName::CurrentNew,
        contents.as_bytes(),
        &sites::CURRENT_SYNC,
    )
    .and_then(|_| {
        let synced = files.sync_dir(&sites::SNAPSHOT_NAME_SYNC);
        synced.inspect_err(|_| drop(files.remove(FileName::CurrentNew)))
    });
    if let Err(error) = named {
        // If the file remains, the next open removes it.
        let _left = files.remove(FileName::Manifest(id));
        return Err(error);
    }
    counters.wrote(Cause::Manifest, bytes.len() + contents.len());
    Ok((file, bytes.len() as u64))
}
