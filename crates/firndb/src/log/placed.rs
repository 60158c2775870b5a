//! Logs that lie in persistent memory instead of on the SSD (LAB-DB, 4.3, Fig. 16).
//!
//! 1. A log's first bytes behind its file's header, as many as a write buffer has, are in an extent of its own; what
//!    does not fit goes the way of other logs, through the log's buffer into the file. The file gives the log its name.
//! 2. The pool's root names each extent with its log before the log has a frame, and no more once the log's file is
//!    gone. An open gives the extents of logs free that nothing names.
//! 3. What an extent held before matches no frame of its log: checksums are salted with the log's number.

use super::layout::{FILE_HEADER_BYTES, VALUE_HEADER_BYTES, ValueAddress};
use crate::options::tuning::LogPlacement;
use firn_base::sync::Mutex;
use firn_base::{ErrorKind, Result};
use firn_pm::{Extent, Fenced, Owner, PmOffset, Pool, RootEntry};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Logs that the root has room for beside everything else.
const LOGS_MAX: usize = 100;

/// The logs in a pool.
pub(crate) struct PlacedLogs {
    pool: Arc<Pool>,
    placement: LogPlacement,
    /// Of each.
    bytes: u64,
    read_only: bool,
    /// By number: the kind under which the root has it, and where it lies.
    logs: Mutex<BTreeMap<u64, (u16, Extent)>>,
}

impl PlacedLogs {
    /// The logs that the root of `pool` names, and room of `bytes` for each new one as `placement` says.
    pub(crate) fn open(pool: Arc<Pool>, placement: LogPlacement, bytes: u64, read_only: bool) -> PlacedLogs {
        let entry = |entry: &RootEntry| Some((entry.word, (entry.kind, entry.extent?)));
        let root = pool.root();
        let logs = root.entries.iter().filter(|entry| entry.owner == Owner::Log).filter_map(entry).collect();
        PlacedLogs { pool, placement, bytes, read_only, logs: Mutex::new(logs) }
    }

    /// Room for log `log_id`, if it is to lie here. DURABLE AFTER: that it does.
    ///
    /// # Errors
    /// `NoSpace` if it must and there is none; what the commit met.
    pub(super) fn begin(&self, log_id: u64) -> Result<Option<Extent>> {
        if self.placement == LogPlacement::Ssd {
            return Ok(None);
        }
        let mut logs = self.logs.lock();
        if let Some((_, extent)) = logs.get(&log_id) {
            // It was begun before, and something else failed.
            return Ok(Some(*extent));
        }
        let taken: Vec<u16> = logs.values().map(|(kind, _)| *kind).collect();
        let kind = (0..LOGS_MAX as u16).find(|kind| !taken.contains(kind));
        let none = || firn_base::Error::new(ErrorKind::NoSpace, "the pool's root has no room for another log");
        let found = kind.ok_or_else(none).and_then(|kind| Ok((kind, self.pool.alloc(self.bytes, Owner::Log)?)));
        let (kind, extent) = match found {
            Err(error) if error.kind() == ErrorKind::NoSpace && self.placement == LogPlacement::Rest => {
                return Ok(None);
            }
            Err(error) => return Err(error.context("a log in persistent memory; raise pm.size or set `rest`")),
            Ok(found) => found,
        };
        let named = self.pool.commit_with(Fenced::nothing(), |root| {
            root.set(RootEntry { owner: Owner::Log, kind, word: log_id, extent: Some(extent) });
            Ok(())
        });
        if let Err(error) = named {
            // If the root names it after all, the pool refuses this, and the next open knows.
            let _refused = self.pool.free(extent);
            return Err(error);
        }
        logs.insert(log_id, (kind, extent));
        Ok(Some(extent))
    }

    /// Whether a writer beside this may give an extent to another log.
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether all logs must lie here, and there is no room for so many more.
    pub(crate) fn lacks_room_for(&self, more: u64) -> bool {
        let lacks = || {
            let logs = self.logs.lock().len() as u64;
            logs + more > LOGS_MAX as u64 || self.pool.usage().free_bytes < more * self.bytes
        };
        self.placement == LogPlacement::Pm && lacks()
    }

    /// Gives the room of a log free. REQUIRES: nobody reads it, and its file is gone.
    ///
    /// # Errors
    /// What the commit met.
    pub(crate) fn remove(&self, log_id: u64) -> Result<()> {
        let mut logs = self.logs.lock();
        let Some((kind, extent)) = logs.get(&log_id).copied() else { return Ok(()) };
        self.pool.commit_with(Fenced::nothing(), |root| {
            root.entries.retain(|entry| (entry.owner, entry.kind) != (Owner::Log, kind));
            Ok(())
        })?;
        logs.remove(&log_id);
        self.pool.free(extent)
    }

    /// The logs.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.logs.lock().keys().copied().collect()
    }

    /// Where log `log_id` lies, if it does here.
    pub(crate) fn extent(&self, log_id: u64) -> Option<Extent> {
        self.logs.lock().get(&log_id).map(|(_, extent)| *extent)
    }

    /// Reads of the value at `at`, with its header, what of it is in `extent`.
    pub(super) fn read(&self, extent: Extent, at: ValueAddress) -> Result<Vec<u8>> {
        let len = VALUE_HEADER_BYTES as u64 + u64::from(at.len);
        let mut bytes = vec![0; end(extent).saturating_sub(at.offset).min(len) as usize];
        self.pool.read(place(extent, at.offset)?, &mut bytes)?;
        Ok(bytes)
    }
}

/// Where in its log what `extent` holds ends.
pub(super) fn end(extent: Extent) -> u64 {
    FILE_HEADER_BYTES as u64 + extent.len
}

/// Where offset `offset` of its log lies in `extent`.
pub(super) fn place(extent: Extent, offset: u64) -> Result<PmOffset> {
    let within = offset.checked_sub(FILE_HEADER_BYTES as u64).and_then(|within| extent.at(within));
    within.ok_or_else(|| firn_base::Error::invalid("a place outside the log's extent"))
}
