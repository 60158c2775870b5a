//! The database's own files that no record of the manifest names. They were left by a crash, or by
//! a manifest that lost its end. The open must tell which, so that damage to a manifest never
//! deletes files that the manifest no longer knows.
//!
//! 1. A log's header records where the previous log ended. A log with a frame that follows the last
//!    known log is that log's successor, whatever the manifest lost, and is replayed like a named
//!    one. (Without a frame it may never have been used, and the log before it may have continued.)
//! 2. A log that follows a missing one was written after records that are now lost. If a frame
//!    shows that the manifest had named it durably, or that it was synced, the open fails. If no
//!    frame does, nothing in it was promised to survive the event that removed the other log's
//!    name, and it goes to `lost/`.
//! 3. A flushed table is written only after the name of its log is durable. If it holds newer
//!    entries than all tables and logs, and the manifest does not know its log, the record of that
//!    log is lost and the open fails. The same holds for the output of a compaction, whose inputs
//!    were named before.
//!
//! All other unnamed files were written by a job that never finished; their entries are elsewhere.

use super::Recovery;
use crate::files::FileName;
use crate::lifecycle::lost;
use crate::lifecycle::owner;
use crate::log::{FILE_HEADER_BYTES, LogEnd, LogHeader};
use crate::manifest::{self, LogState};
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_fs::OpenMode;
use firn_table::sst::{HEADER_BYTES, Sst, TableOwner};

/// The contents of a log that no record names.
struct Found {
    entries: u64,
    /// True if the log shows that the manifest named it durably, or that it was synced.
    is_promised: bool,
}

impl Recovery {
    /// Treats logs that belong to the database although no record names them as named ones. Rejects
    /// a manifest that lost the name of a log in between.
    pub(super) fn adopt_logs(&mut self) -> Result<()> {
        let mut names: Vec<FileName> = self
            .files
            .list()?
            .iter()
            .map(|name| FileName::parse(name))
            .collect();
        // By number, because each log follows the previous one.
        names.sort();
        for name in names {
            let FileName::Log(log_id) = name else {
                continue;
            };
            if log_id < self.version.log_floor || self.version.logs.contains_key(&log_id) {
                continue;
            }
            let header = match owner::head(self.files.dir(), name, FILE_HEADER_BYTES) {
                Ok(bytes) => LogHeader::decode(&bytes, log_id),
                // A writer that runs beside a read-only open removed it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                // It is not a regular file, so it is not ours.
                Err(error) if error.kind() == ErrorKind::Invalid => continue,
                Err(error) => return Err(error),
            };
            let Some(header) = header.filter(|header| header.uuid == self.files.uuid) else {
                continue;
            };
            let Some(found) = self.look_through(log_id)?.filter(|found| found.entries > 0) else {
                continue;
            };
            let floor = self.version.log_floor;
            let follows = match (
                header.previous,
                self.version.logs.range_mut(..log_id).next_back(),
            ) {
                (Some(previous), Some((&id, before))) if previous.log_id == id => {
                    before.end = before.end.or(Some(previous));
                    true
                }
                // All logs before it are in tables.
                (Some(previous), None) => previous.log_id < floor && log_id == floor,
                _ => false,
            };
            if follows {
                self.version.logs.insert(
                    log_id,
                    LogState {
                        end: None,
                        named: false,
                    },
                );
            } else {
                self.check_left_over(log_id, header.previous, found)?;
            }
        }
        Ok(())
    }

    /// The contents of log `log_id`; `None` if it is gone.
    fn look_through(&self, log_id: FileId) -> Result<Option<Found>> {
        let Some(mut replay) = self.open_log(log_id, None, false)? else {
            return Ok(None);
        };
        let mut entries = 0_u64;
        while replay.next(|_| {
            entries += 1;
            Ok(())
        })? {}
        let is_promised = replay.named() || replay.synced_through() > FILE_HEADER_BYTES as u64;
        Ok(Some(Found {
            entries,
            is_promised,
        }))
    }

    /// Rejects log `log_id`, which follows no known log, if it holds promised entries. Otherwise
    /// moves it to `lost/`.
    fn check_left_over(
        &mut self,
        log_id: FileId,
        previous: Option<LogEnd>,
        found: Found,
    ) -> Result<()> {
        let Found {
            entries,
            is_promised,
        } = found;
        let log = self.files.path_of(FileName::Log(log_id));
        if is_promised {
            let after = previous.map_or_else(
                || "which an open began".to_owned(),
                |previous| format!("which follows on log {:06}", previous.log_id),
            );
            let expected = format!(
                "records that name {} ({after}): the manifest lost them, and with them {entries} entries or more; \
                 nothing was touched; copy the directory, then run `firn repair`",
                log.display()
            );
            return Err(self.lost_records(expected)?);
        }
        if !self.read_only {
            tracing::warn!(log = %log.display(), entries, "a log that follows on a lost one is kept in lost/");
            lost::keep(&self.files, &[FileName::Log(log_id)])?;
            self.files.remove(FileName::Log(log_id))?;
        }
        Ok(())
    }

    /// Rejects a manifest that lost the record of a table whose entries are nowhere else.
    pub(super) fn check_unnamed_tables(&self) -> Result<()> {
        // Write buffers in a pool have what a flush that was not recorded wrote, and with a writer
        // beside this, more than when they were copied.
        let last = self.last_seqno.max(self.committed_now()?);
        for name in self.files.list()? {
            let FileName::Table(id) = FileName::parse(&name) else {
                continue;
            };
            let is_named = |table: &crate::manifest::TableMeta| table.id == id;
            if self.version.tables().any(|table| is_named(table))
                || self.recovered.tables.iter().any(is_named)
            {
                continue;
            }
            let Some((newest, owner)) = self.read_unnamed(id)? else {
                continue;
            };
            let log_is_known = owner.log_id > FileId(0) && self.knows_log(owner.log_id)?;
            if newest > last && !log_is_known {
                let expected = format!(
                    "a record that names table {} with entries up to number {}, where logs and named tables end at {}: \
                     the manifest lost it; nothing was touched; copy the directory, then run `firn repair`",
                    self.files.path_of(FileName::Table(id)).display(),
                    newest.0,
                    last.0
                );
                return Err(self.lost_records(expected)?);
            }
        }
        Ok(())
    }

    /// The error for a manifest that lost records. If a writer that runs beside a read-only open
    /// recorded something after the manifest was read, the error is `Changed`.
    fn lost_records(&self, expected: String) -> Result<Error> {
        let read = manifest::read(self.files.dir(), &self.counters)?;
        let (id, now) = read.map_or((FileId(0), 0), |(id, version)| (id, version.edit_id));
        if self.read_only && now != self.version.edit_id {
            return Ok(Error::changed(self.files.path().display()));
        }
        Ok(Error::corruption(
            self.files.path_of(FileName::Manifest(id)).display(),
            0,
            expected,
        ))
    }

    /// True if the entries of a table may still be in log `log_id`. Whatever the manifest says, a
    /// log whose file is gone was removed because a record named the table. A log below the floor
    /// is obsolete: an earlier recovery read it, and the removal of the table was not durable.
    fn knows_log(&self, log_id: FileId) -> Result<bool> {
        if log_id < self.version.log_floor {
            return Ok(true);
        }
        match self.files.len(FileName::Log(log_id)) {
            Ok(_) => Ok(self.version.logs.contains_key(&log_id)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The highest sequence number in table `id` and the owner in its header, if the table is whole
    /// and the database's own.
    fn read_unnamed(&self, id: FileId) -> Result<Option<(SeqNo, TableOwner)>> {
        use ErrorKind::{Corruption, Invalid, NotFound};
        let name = FileName::Table(id);
        let read = owner::head(self.files.dir(), name, HEADER_BYTES).and_then(|bytes| {
            let owner =
                TableOwner::decode(&bytes, id).filter(|owner| owner.uuid == self.files.uuid);
            let Some(owner) = owner else { return Ok(None) };
            let file = self.files.open(name, OpenMode::Read)?;
            let extent = Sst::find_extent(&*file, id)?;
            let table = Sst::open(file, id, extent, self.tables.context().clone())?;
            Ok(Some((table.properties().seqno_max, owner)))
        });
        match read {
            // It was never finished, a writer beside a read-only open removed it, or it is not a
            // regular file.
            Err(error) if matches!(error.kind(), Corruption | NotFound | Invalid) => Ok(None),
            read => read,
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use crate::{Db, Durability, Environment, Options, WriteOptions};
    use firn_base::clock::Clock;
    use firn_base::exec::Inline;
    use firn_fs::SimFs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    fn options(fs: &SimFs) -> Options {
        let environment = Environment {
            fs: Some(Arc::new(fs.clone())),
            clock: Some(Clock::manual()),
            executor: Some(Arc::new(Inline::new())),
            memory: None,
        };
        Options {
            environment,
            ..Options::tiny()
        }
    }

    fn manifest(fs: &SimFs) -> PathBuf {
        let names = fs.list(Path::new("/db")).unwrap();
        Path::new("/db").join(
            names
                .iter()
                .find(|name| name.starts_with("MANIFEST"))
                .unwrap(),
        )
    }

    /// A database was killed after its second log began, whose name was in the manifest's last
    /// record. With one bit flipped there, only a thousand of twenty thousand keys were left.
    #[test]
    fn a_log_whose_name_is_lost_is_replayed() {
        let fs = SimFs::new(1);
        let process = WriteOptions::new().durability(Durability::Process);
        let db = Db::open("/db", options(&fs)).unwrap();
        let mut keys = 0_u32;
        // Nothing is flushed, because no background work runs.
        while db.stats().logs < 2 || !keys.is_multiple_of(50) {
            db.put_with(keys.to_be_bytes(), [7; 300], &process).unwrap();
            keys += 1;
        }
        let killed = fs.duplicate();
        drop(db);
        let bytes = killed.read_file(&manifest(&killed)).unwrap();
        let mut opened = 0;
        for at in 0..bytes.len() {
            let fs = killed.duplicate();
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            fs.write_file(&manifest(&fs), &flipped);
            for read_only in [true, false] {
                let open = if read_only {
                    Db::open_read_only
                } else {
                    Db::open
                };
                let Ok(db) = open(Path::new("/db"), options(&fs)) else {
                    continue;
                };
                let found = (0..keys)
                    .filter(|key| db.get(key.to_be_bytes()).unwrap().is_some())
                    .count();
                assert_eq!(found, keys as usize, "byte {at}");
                opened += 1;
            }
        }
        assert!(opened > 40, "{opened} opened");
    }
}
