//! Sealed logs, until they are obsolete or synced.
//!
//! Their files are shared between the writer, which syncs them, and the thread that raises the
//! floor, which releases them. Closing the last handle of a removed file frees its space, which
//! takes longer the larger the file is, and a commit must not wait for that.

use crate::sites;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_fs::File;
use std::sync::Arc;

/// The sealed logs before the current one.
#[derive(Default)]
pub(crate) struct SealedLogs {
    /// Logs below this id are obsolete and need no sync.
    floor: AtomicU64,
    /// The logs that are still needed and whose last bytes were not synced.
    unsynced: Mutex<Vec<(FileId, Arc<dyn File>)>>,
}

impl SealedLogs {
    /// Begins with the logs from `floor` on as needed.
    pub(crate) fn new(floor: FileId) -> SealedLogs {
        SealedLogs {
            floor: AtomicU64::new(floor.0),
            unsynced: Mutex::default(),
        }
    }

    /// The floor: logs below this id are obsolete.
    pub(crate) fn floor(&self) -> FileId {
        FileId(self.floor.load(Ordering::Acquire))
    }

    /// Marks logs below `floor` as obsolete. Their files may be removed after this.
    pub(crate) fn raise_floor(&self, floor: FileId) {
        self.floor.fetch_max(floor.0, Ordering::AcqRel);
        let gone: Vec<_> = self
            .unsynced
            .lock()
            .extract_if(.., |(id, _)| *id < floor)
            .collect();
        drop(gone);
    }

    /// Adds a sealed log that has to be synced before anything in a later log is durable.
    pub(super) fn add(&self, id: FileId, file: Arc<dyn File>) {
        let mut unsynced = self.unsynced.lock();
        // If the floor was raised meanwhile, that call did not find this log.
        if id >= self.floor() {
            unsynced.push((id, file));
        }
    }

    /// True if no log has to be synced.
    pub(super) fn is_synced(&self) -> bool {
        self.unsynced.lock().is_empty()
    }

    /// Makes the logs below `id` durable.
    ///
    /// # Errors
    /// `Poisoned` if a sync fails, because nothing is known about the file then.
    pub(crate) fn sync_below(&self, id: FileId) -> Result<()> {
        let poison = |error: Error| {
            let message = format!(
                "an ended log could not be synced ({error}); reopen the database to recover"
            );
            Error::new(ErrorKind::Poisoned, message)
        };
        let below = |(other, file): &(FileId, Arc<dyn File>)| (*other < id).then(|| file.clone());
        let files: Vec<Arc<dyn File>> = self.unsynced.lock().iter().filter_map(below).collect();
        files
            .iter()
            .try_for_each(|file| file.sync(&sites::LOG_FLUSH_SYNC))
            .map_err(poison)?;
        self.unsynced.lock().retain(|(other, _)| *other >= id);
        Ok(())
    }

    /// Passes each log that has to be synced to `sync`, oldest first. Forgets them if all calls
    /// succeed.
    pub(super) fn sync<E>(
        &self,
        sync: impl FnMut(&Arc<dyn File>) -> Result<(), E>,
    ) -> Result<(), E> {
        let files: Vec<Arc<dyn File>> = self
            .unsynced
            .lock()
            .iter()
            .map(|(_, file)| file.clone())
            .collect();
        files.iter().try_for_each(sync)?;
        self.unsynced.lock().clear();
        Ok(())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use firn_fs::{OpenMode, open_file};

    #[test]
    fn who_raises_the_floor_lets_go_of_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let fs = firn_fs::OsFs::with(firn_fs::IoBackend::Pool, false);
        let file = |id: FileId| {
            open_file(&fs, &dir.path().join(id.to_string()), OpenMode::Create).unwrap()
        };
        let sealed = SealedLogs::new(FileId(1));
        let files = [1, 2, 3].map(|id| file(FileId(id)));
        for (id, file) in (1..).zip(&files) {
            sealed.add(FileId(id), file.clone());
        }
        sealed.raise_floor(FileId(3));
        assert_eq!(files.each_ref().map(Arc::strong_count), [1, 1, 2]);
        sealed.add(FileId(2), files[1].clone());
        assert_eq!(Arc::strong_count(&files[1]), 1, "obsolete before it came");
        assert!(sealed.sync(|_| Err("a sync that fails")).is_err());
        assert!(!sealed.is_synced());
        sealed.sync(|_| Ok::<(), ()>(())).unwrap();
        assert!(sealed.is_synced());
    }
}
