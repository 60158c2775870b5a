//! Logs that are in persistent memory instead of on the SSD (LAB-DB, 4.3, Fig. 16).
//!
//! 1. The first bytes of a log after its file's header, as many as a memtable has, are in an extent
//!    of its own. The rest goes through the log's buffer into the file, as for other logs. The file
//!    gives the log its name.
//! 2. The pool's root names each extent with its log before the log has a frame, until the log's
//!    file is gone. An open frees the extents of logs that nothing names.
//! 3. Older contents of an extent match no frame of its log, because checksums are salted with the
//!    log's id.

use super::layout::{FILE_HEADER_BYTES, VALUE_HEADER_BYTES, ValueAddress};
use crate::options::tuning::LogPlacement;
use firn_base::sync::Mutex;
use firn_base::{ErrorKind, FileId, Result};
use firn_pm::{Extent, Fenced, Owner, PmOffset, Pool, RootEntry};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of logs for which the root has room beside everything else.
const LOGS_MAX: usize = 100;

/// The logs in a pool.
pub(crate) struct PlacedLogs {
    pool: Arc<Pool>,
    placement: LogPlacement,
    /// Bytes of each extent.
    bytes: u64,
    read_only: bool,
    /// By log id: the kind under which the root names the log, and its extent.
    logs: Mutex<BTreeMap<FileId, (u16, Extent)>>,
}

impl PlacedLogs {
    /// The logs that the root of `pool` names. New logs get extents of `bytes`, as `placement`
    /// says.
    pub(crate) fn open(
        pool: Arc<Pool>,
        placement: LogPlacement,
        bytes: u64,
        read_only: bool,
    ) -> PlacedLogs {
        let entry = |entry: &RootEntry| Some((FileId(entry.word), (entry.kind, entry.extent?)));
        let root = pool.root();
        let logs = root
            .entries
            .iter()
            .filter(|entry| entry.owner == Owner::Log)
            .filter_map(entry)
            .collect();
        PlacedLogs {
            pool,
            placement,
            bytes,
            read_only,
            logs: Mutex::new(logs),
        }
    }

    /// Allocates an extent for log `log_id`, if the placement calls for one. DURABLE AFTER: the
    /// log's entry in the root.
    ///
    /// # Errors
    /// `NoSpace` if an extent is required and there is no room; the errors of the commit.
    pub(super) fn begin(&self, log_id: FileId) -> Result<Option<Extent>> {
        if self.placement == LogPlacement::Ssd {
            return Ok(None);
        }
        let mut logs = self.logs.lock();
        if let Some((_, extent)) = logs.get(&log_id) {
            // An earlier begin succeeded, and a later step failed.
            return Ok(Some(*extent));
        }
        let taken: Vec<u16> = logs.values().map(|(kind, _)| *kind).collect();
        let kind = (0..LOGS_MAX as u16).find(|kind| !taken.contains(kind));
        let none = || {
            firn_base::Error::new(
                ErrorKind::NoSpace,
                "the pool's root has no room for another log",
            )
        };
        let found = kind
            .ok_or_else(none)
            .and_then(|kind| Ok((kind, self.pool.alloc(self.bytes, Owner::Log)?)));
        let (kind, extent) = match found {
            Err(error)
                if error.kind() == ErrorKind::NoSpace && self.placement == LogPlacement::Rest =>
            {
                return Ok(None);
            }
            Err(error) => {
                return Err(
                    error.context("a log in persistent memory; raise pm.size or set `rest`")
                );
            }
            Ok(found) => found,
        };
        let named = self.pool.commit_with(Fenced::nothing(), |root| {
            root.set(RootEntry {
                owner: Owner::Log,
                kind,
                word: log_id.0,
                extent: Some(extent),
            });
            Ok(())
        });
        if let Err(error) = named {
            // If the root names it after all, the pool refuses this, and the next open finds it.
            let _refused = self.pool.free(extent);
            return Err(error);
        }
        logs.insert(log_id, (kind, extent));
        Ok(Some(extent))
    }

    /// True if a writer beside this one may give an extent to another log.
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// True if all logs must be placed here, and there is no room for `more` logs.
    pub(crate) fn lacks_room_for(&self, more: u64) -> bool {
        let lacks = || {
            let logs = self.logs.lock().len() as u64;
            logs + more > LOGS_MAX as u64 || self.pool.usage().free_bytes < more * self.bytes
        };
        self.placement == LogPlacement::Pm && lacks()
    }

    /// Frees the extent of a log. REQUIRES: no reader uses it, and its file is gone.
    ///
    /// # Errors
    /// The errors of the commit.
    pub(crate) fn remove(&self, log_id: FileId) -> Result<()> {
        let mut logs = self.logs.lock();
        let Some((kind, extent)) = logs.get(&log_id).copied() else {
            return Ok(());
        };
        self.pool.commit_with(Fenced::nothing(), |root| {
            root.entries
                .retain(|entry| (entry.owner, entry.kind) != (Owner::Log, kind));
            Ok(())
        })?;
        logs.remove(&log_id);
        self.pool.free(extent)
    }

    /// The ids of the logs.
    pub(crate) fn ids(&self) -> Vec<FileId> {
        self.logs.lock().keys().copied().collect()
    }

    /// The extent of log `log_id`, if it has one.
    pub(crate) fn extent(&self, log_id: FileId) -> Option<Extent> {
        self.logs.lock().get(&log_id).map(|(_, extent)| *extent)
    }

    /// Reads the part of the value at `at`, including its header, that is in `extent`.
    pub(super) fn read(&self, extent: Extent, at: ValueAddress) -> Result<Vec<u8>> {
        let len = VALUE_HEADER_BYTES as u64 + u64::from(at.len);
        let mut bytes = vec![0; end(extent).saturating_sub(at.offset).min(len) as usize];
        self.pool.read(place(extent, at.offset)?, &mut bytes)?;
        Ok(bytes)
    }
}

/// The offset in the log at which the contents of `extent` end.
pub(super) fn end(extent: Extent) -> u64 {
    FILE_HEADER_BYTES as u64 + extent.len
}

/// The place in `extent` of offset `offset` of its log.
pub(super) fn place(extent: Extent, offset: u64) -> Result<PmOffset> {
    let within = offset
        .checked_sub(FILE_HEADER_BYTES as u64)
        .and_then(|within| extent.at(within));
    within.ok_or_else(|| firn_base::Error::invalid("a place outside the log's extent"))
}
