//! Entries of write buffers in persistent memory, which profile `pmdb` has in the place of a log.
//! They go into temporary tables.
//!
//! 1. Entries above the committed number are of writes that never returned. If that number is lost,
//!    they cannot be told from the others, and all are taken.
//! 2. Entries up to the flushed number of their partition are in tables, or were dropped with the
//!    tombstones that hid them. Without a manifest that number is unknown, and all are taken.
//! 3. Where the end of a buffer is lost, entries of a group that failed may lie behind it, whose
//!    numbers were given out again. If an entry with the same number is in another buffer, it is
//!    the one that is taken.

use super::Repair;
use crate::manifest::Version;
use crate::memtable::{Entry, Walked};
use firn_base::{ErrorKind, FileId, Result, SeqNo};
use firn_pm::{Owner, Pool};
use firn_table::pm_buffer::{BufferDirectory, NamedBuffer, salvage, walk};
use std::collections::HashSet;
use std::sync::Arc;

/// Ids that are skipped where the greatest one that a buffer had is unknown. A buffer must not have
/// the id of an older one, whose entries would come back in the same place.
const IDS_SKIPPED: u64 = 1 << 32;

/// The numbers of the entries that were found.
struct Found {
    /// The greatest number, or the committed one.
    last: SeqNo,
    /// The greatest number through which a partition is flushed.
    flushed: SeqNo,
    /// How many numbers above `flushed` were found.
    above: u64,
    /// All numbers, if the end of a buffer is unknown.
    taken: Option<HashSet<SeqNo>>,
}

impl Found {
    /// True if no entry with this number was found before.
    fn add(&mut self, seqno: SeqNo) -> bool {
        let is_new = match &mut self.taken {
            Some(taken) => taken.insert(seqno),
            None => true,
        };
        self.last = self.last.max(seqno);
        self.above += u64::from(is_new && seqno > self.flushed);
        is_new
    }
}

/// True if `pool` has, or had, write buffers.
pub(super) fn has_directory(pool: &Pool) -> bool {
    let root = pool.root();
    let mut owners = root.entries.iter().map(|entry| entry.owner);
    owners.any(|owner| owner == Owner::WriteBuffer)
}

/// The first id from `next` on that no write buffer in `pool` had.
pub(super) fn next_id(
    pool: Option<&Arc<Pool>>,
    next: FileId,
    known: Option<&Version>,
) -> Result<FileId> {
    let Some(pool) = pool else {
        return Ok(next);
    };
    let unknown = FileId(next.0.saturating_add(IDS_SKIPPED));
    let directory = match BufferDirectory::find(pool) {
        Ok(None) => return Ok(next),
        Ok(Some(directory)) => directory,
        Err(error) if error.kind() == ErrorKind::Corruption => return Ok(unknown),
        Err(error) => return Err(error),
    };
    let lines = directory.salvage_lines()?;
    let ids = lines.iter().map(|line| match line {
        Ok(named) => Some(named.id),
        Err(damaged) => damaged.buffer.map(|(named, _)| named.id),
    });
    let greatest = ids.collect::<Option<Vec<FileId>>>();
    match (known, greatest) {
        (Some(_), Some(ids)) => Ok(ids.into_iter().fold(next, |next, id| next.max(id.next()))),
        _ => Ok(unknown),
    }
}

/// The last number in the write buffers of `pool`, if they have all numbers that are in no table
/// that `known` names. A table of a flush or a repair that was not recorded has nothing else then.
/// `None` if they cannot be read, which reading them for the repair reports.
pub(super) fn whole_through(pool: Option<&Arc<Pool>>, known: Option<&Version>) -> Option<SeqNo> {
    let (pool, known) = (pool?, known.filter(|known| known.holds_entries)?);
    let directory = BufferDirectory::find(pool).ok()??;
    let committed = directory.committed().ok()?;
    let flushed = known.flushed_most();
    let mut above = 0;
    for line in directory.salvage_lines().ok()? {
        let walked = walk(pool, &line.ok()?, 0, committed, |entry| {
            let seqno = entry.tag.seqno();
            above += u64::from(seqno > flushed && seqno > known.flushed_of(entry.key));
            Ok(())
        });
        walked.ok()?;
    }
    (above == committed.0.saturating_sub(flushed.0)).then_some(committed)
}

impl Repair {
    /// Copies the entries of the write buffers that are in no table.
    pub(super) fn read_buffers(&mut self, pool: &Arc<Pool>) -> Result<()> {
        let known = self.known.as_ref();
        if known.is_some_and(|known| !known.holds_entries) {
            return Ok(());
        }
        let directory = match BufferDirectory::find(pool) {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                self.report.buffers_damaged.push(error.to_string());
                None
            }
            found => found?,
        };
        let Some(directory) = directory else {
            let is_damaged = !self.report.buffers_damaged.is_empty();
            self.report.newest_lost = is_damaged || known.is_some();
            return Ok(());
        };
        let committed = self.read_committed(&directory)?;
        let (mut buffers, mut doubtful) = (Vec::new(), Vec::new());
        for line in directory.salvage_lines()? {
            match line {
                Ok(named) => buffers.push(named),
                Err(damaged) => {
                    self.report.buffers_damaged.push(damaged.error.to_string());
                    match damaged.buffer {
                        Some((named, true)) => buffers.push(named),
                        Some((named, false)) => doubtful.push(named),
                        None => {}
                    }
                }
            }
        }
        let known = self.known.as_ref();
        let flushed = known.map(Version::flushed_most);
        let mut found = Found {
            last: committed.unwrap_or_default(),
            flushed: flushed.unwrap_or_default(),
            above: 0,
            taken: (!doubtful.is_empty()).then(HashSet::new),
        };
        for named in buffers.into_iter().chain(doubtful) {
            self.read_buffer(pool, &named, committed.unwrap_or(SeqNo::MAX), &mut found)?;
        }
        self.last_seqno = self.last_seqno.max(found.last);
        if let Some(known) = &self.known {
            let last = found.last.max(known.last_seqno);
            let numbers = last.0.saturating_sub(found.flushed.0);
            self.report.buffer_entries_lost = numbers.saturating_sub(found.above);
        }
        self.end_buffer()
    }

    /// The committed number; `None` if it is lost.
    fn read_committed(&mut self, directory: &BufferDirectory) -> Result<Option<SeqNo>> {
        match directory.check_committed(None) {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                self.report.buffers_damaged.push(error.to_string());
            }
            checked => checked?,
        }
        match directory.committed() {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                self.report.buffers_damaged.push(error.to_string());
                Ok(None)
            }
            committed => committed.map(Some),
        }
    }

    fn read_buffer(
        &mut self,
        pool: &Pool,
        named: &NamedBuffer,
        committed: SeqNo,
        found: &mut Found,
    ) -> Result<()> {
        salvage(pool, named, committed, |part| match part {
            Ok(entry) => self.keep_buffered(pool, named, &entry, found),
            Err(damaged) => {
                self.report.buffers_damaged.push(damaged.error.to_string());
                Ok(())
            }
        })
    }

    /// Keeps an entry of a write buffer, if it is in no table and its value can be read.
    fn keep_buffered(
        &mut self,
        pool: &Pool,
        named: &NamedBuffer,
        entry: &Walked<'_>,
        found: &mut Found,
    ) -> Result<()> {
        let (Some(kind), seqno, key) = (entry.tag.kind(), entry.tag.seqno(), entry.key) else {
            return Ok(());
        };
        let known = self.known.as_ref();
        if known.is_some_and(|known| seqno <= known.flushed_of(key)) || !found.add(seqno) {
            return Ok(());
        }
        self.report.buffer_entries += 1;
        match named.read_value(pool, entry) {
            Ok(value) => self.keep(
                Entry {
                    kind,
                    key,
                    value: &value,
                },
                seqno,
            ),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                self.report.buffers_damaged.push(error.to_string());
                let newest = self.superseded.entry(key.into()).or_default();
                *newest = seqno.max(*newest);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
