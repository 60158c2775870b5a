//! Replay of logs into memtables, and the writing of these to tables.
//!
//! Logs that hold little are kept: their entries become the first of the new active memtable, which
//! then has several logs. So a process that writes little and exits leaves no small table, and an
//! open writes none. Each kept log ends where its replay ended, and the new manifest records that
//! end: a torn frame after it is never read again, and nothing that was acknowledged in a later log
//! can be mistaken for a continuation of a torn one.

use super::Recovery;
use crate::compaction::{Output, OverlapTracker, PmTarget, Written, write_outputs};
use crate::files::FileName;
use crate::log::{End, LogEnd, LogSource, PmLogBuffer, Replay, Replayed, ValueAddress};
use crate::manifest::{self, Level, LogState};
use crate::memtable::{Entry, Footprint, Memtable};
use crate::read::merge_iter::{Entries, MergeIter};
use crate::read::run_iter::RunIter;
use crate::sites;
use firn_base::count::Cause;
use firn_base::exec::block_on;
use firn_base::key::Kind;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_fs::OpenMode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most logs that are kept, because each costs an open one file.
const KEPT_LOGS_MAX: usize = 16;
/// The number of times a read-only open reads the end of a log that is being written.
const CATCH_UPS_MAX: usize = 100;
/// The most bytes in kept logs, because each open reads them again.
const KEPT_BYTES_MAX: u64 = 4 << 20;

impl Recovery {
    /// Replays the logs in order. No frame that was acknowledged as durable may follow a torn end.
    pub(super) fn replay_logs(&mut self) -> Result<()> {
        self.adopt_logs()?;
        let logs: BTreeMap<FileId, LogState> = self.version.logs.clone();
        self.weigh_logs(&logs)?;
        let mut torn: Option<FileId> = None;
        for (log_id, LogState { end: sealed, named }) in logs {
            let Some(mut replay) = self.open_log(log_id, sealed, named)? else {
                torn.get_or_insert(log_id);
                continue;
            };
            if self.trees.is_some() {
                // Pointers name the log of their memtable, so a memtable has entries of one log
                // only.
                self.end_buffer()?;
            }
            self.replaying.log_id = log_id;
            if let Some(torn) = torn {
                while replay.next(|_| Ok(()))? {}
                // If the manifest had named this log durably, it would still be named, and so would
                // the torn one.
                if replay.synced_through() > 0 || (replay.named() && !named) {
                    let place = self.files.path_of(FileName::Log(torn));
                    let expected =
                        format!("more frames: the later log {log_id} was acknowledged as durable");
                    return Err(Error::corruption(place.display(), 0, expected));
                }
                continue;
            }
            while replay.next(|entry| self.replay_entry(&entry))? {}
            if self.read_only && !self.replaying.superseded.is_empty() {
                replay = self.catch_up(replay, log_id, sealed, named)?;
            }
            self.check_superseded(log_id)?;
            let End { at, torn: is_torn } =
                replay.end(sealed.map_or(0, |end| end.synced_through))?;
            self.settle_log(log_id, &replay, at)?;
            let cut = sealed.map_or(
                is_torn && self.version.logs.range(log_id.next()..).next().is_some(),
                |end| at < end.end,
            );
            if cut {
                tracing::warn!(%log_id, at, "the log is torn; later logs are not replayed");
                torn = Some(log_id);
            }
        }
        // Logs after a torn one must never be read again, and only a floor above all of them
        // ensures that.
        if torn.is_some() || !self.may_continue_buffer() {
            self.end_buffer()?;
        }
        self.check_unnamed_tables()?;
        let needs_logs =
            self.buffer.is_some() || (self.trees.is_some() && !self.replayed_goes_past());
        if !needs_logs {
            self.replaying.settled.clear();
        }
        if torn.is_some() && !self.read_only && (self.is_rebuilt() || !self.kept.is_empty()) {
            self.trees_into_tables()?;
        }
        Ok(())
    }

    /// Decides by the size of `logs` whether their entries stay in them.
    fn weigh_logs(&mut self, logs: &BTreeMap<FileId, LogState>) -> Result<()> {
        for (&log_id, log) in logs {
            self.replaying.bytes += match self.files.len(FileName::Log(log_id)) {
                Ok(len) => log.end.map_or(len, |end| end.end),
                // `open_log` decides whether it may be missing.
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            };
        }
        let bytes_max = KEPT_BYTES_MAX.min(self.budget.write_buffer_bytes as u64 / 4);
        self.replaying.stays =
            !self.read_only && logs.len() <= KEPT_LOGS_MAX && self.replaying.bytes <= bytes_max;
        Ok(())
    }

    /// True if the memtable may continue as the active one. It may not if an earlier part of its
    /// log is in a table, because the next replay would bring that part back.
    fn may_continue_buffer(&self) -> bool {
        let has_memtable = self.trees.is_none() && !self.has_part_buffers();
        self.replaying.stays && has_memtable && self.recovered.tables.is_empty()
    }

    /// Makes log `log_id` durable up to `end`, where its replay ended, if it is needed after this
    /// recovery. Its bytes in the pool are written to its file.
    fn settle_log(&mut self, log_id: FileId, replay: &Replay, end: u64) -> Result<()> {
        if self.read_only || (self.trees.is_none() && !self.may_continue_buffer()) {
            return Ok(());
        }
        let mut stays = false;
        if let Some(trees) = &self.trees {
            trees.values.end(log_id, end, self.last_seqno);
            stays = trees
                .values
                .placed()
                .and_then(|placed| placed.extent(log_id))
                .is_some();
        }
        let settled = LogEnd {
            log_id,
            end,
            synced_through: end,
        };
        self.replaying.settled.push(settled);
        if self
            .version
            .logs
            .get(&log_id)
            .is_some_and(|log| log.end == Some(settled))
            && replay.overlay().is_empty()
        {
            return Ok(());
        }
        let file = self.files.open(FileName::Log(log_id), OpenMode::Append)?;
        // The bytes of the log's own extent come first, and stay there.
        for (at, bytes) in replay.overlay().iter().skip(usize::from(stays)) {
            let len = end.saturating_sub(*at).min(bytes.len() as u64) as usize;
            if len > 0 {
                file.write(*at, &[&bytes[..len]])?;
            }
        }
        file.sync(&sites::LOG_SETTLE_SYNC)
    }

    /// The replay of a log; `None` if a power cut lost the log before its name was durable.
    pub(super) fn open_log(
        &self,
        log_id: FileId,
        sealed: Option<LogEnd>,
        named: bool,
    ) -> Result<Option<Replay>> {
        let path = self.files.path_of(FileName::Log(log_id));
        let file = match self.files.open(FileName::Log(log_id), OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && !named => {
                self.check_still_needed(log_id)?;
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let expected = "the manifest names this log, but the file is missing";
                return Err(Error::corruption(path.display(), 0, expected));
            }
            Err(error) => return Err(error),
        };
        // The halves are read before the file's length, so that bytes a concurrent writer moves
        // meanwhile are seen twice instead of never.
        let overlay = match &self.pm {
            Some(pool) => PmLogBuffer::overlay(pool, &self.files.uuid, log_id)?,
            None => Vec::new(),
        };
        if self.read_only && !overlay.is_empty() {
            // A concurrent writer gives the extent to another log after the file is removed.
            self.files
                .len(FileName::Log(log_id))
                .map_err(|_| Error::changed(path.display()))?;
        }
        let mut source = LogSource::new(file, self.counters.clone())?;
        source.lay_over(overlay, sealed.map(|end| end.end))?;
        Replay::open(source, log_id, &self.files.uuid).map(Some)
    }

    /// Checks that a missing log was lost in a power cut. Otherwise a writer that runs beside a
    /// read-only open flushed and removed it after the manifest was read. The writer records that
    /// before it removes the file, so reading the manifest again decides. A power cut is assumed
    /// only if the manifest still names the log as before.
    fn check_still_needed(&self, log_id: FileId) -> Result<()> {
        if !self.read_only {
            return Ok(());
        }
        match manifest::read(self.files.dir(), &self.counters)? {
            Some((_, now)) if now.logs.get(&log_id).is_some_and(|log| !log.named) => Ok(()),
            _ => Err(Error::changed(
                self.files.path_of(FileName::Log(log_id)).display(),
            )),
        }
    }

    fn replay_entry(&mut self, replayed: &Replayed<'_>) -> Result<()> {
        let (seqno, key) = (replayed.tag.seqno(), replayed.key);
        let Some(kind) = replayed.tag.kind() else {
            return Ok(());
        };
        if !self.replaying.superseded.is_empty() {
            self.replaying.superseded.remove(key);
        }
        if self.version.is_evicted(key, seqno) {
            self.last_seqno = self.last_seqno.max(seqno);
            return Ok(());
        }
        if kind != Kind::Pointer {
            return self.keep_entry(
                Entry {
                    kind,
                    key,
                    value: replayed.value,
                },
                seqno,
                replayed.address,
            );
        }
        match self.replay_hot(replayed.address, seqno)? {
            Some(value) => self.keep_entry(
                Entry {
                    kind: Kind::Put,
                    key,
                    value: &value,
                },
                seqno,
                replayed.address,
            ),
            None => {
                self.replaying.superseded.insert(key.into(), seqno);
                self.last_seqno = self.last_seqno.max(seqno);
                Ok(())
            }
        }
    }

    /// The value of entry `seqno` in the hot buffer; `None` if its slot was reused.
    fn replay_hot(&self, at: ValueAddress, seqno: SeqNo) -> Result<Option<Vec<u8>>> {
        let trees = self.trees.as_ref().ok_or_else(|| {
            let message = "the log has values in a pool's hot buffer: open the database as the profile that wrote it";
            Error::new(ErrorKind::Incompatible, message)
        })?;
        let hot = trees.values.hot_named()?;
        let value = hot.replayed(at, seqno)?;
        if value.is_some() {
            hot.hold(self.replaying.log_id, at, seqno)?;
        }
        Ok(value)
    }

    /// Replays the frames that a concurrent writer appended meanwhile, until they include the newer
    /// versions of keys whose slots were reused.
    fn catch_up(
        &mut self,
        mut replay: Replay,
        log_id: FileId,
        sealed: Option<LogEnd>,
        named: bool,
    ) -> Result<Replay> {
        for _ in 0..CATCH_UPS_MAX {
            let through = self.last_seqno;
            let Some(longer) = self.open_log(log_id, sealed, named)? else {
                break;
            };
            replay = longer;
            while replay.next(|entry| match entry.tag.seqno() > through {
                true => self.replay_entry(&entry),
                false => Ok(()),
            })? {}
            if self.replaying.superseded.is_empty() || self.last_seqno == through {
                break;
            }
        }
        Ok(replay)
    }

    /// Checks that each key that lost its slot in the hot buffer has a newer version in the same,
    /// replayed log.
    fn check_superseded(&mut self, log_id: FileId) -> Result<()> {
        match self.replaying.superseded.drain().next() {
            None => Ok(()),
            Some((_, seqno)) => {
                let expected = format!(
                    "the value of entry {} in the hot buffer, or a newer version of its key",
                    seqno.0
                );
                Err(Error::corruption(
                    self.files.path_of(FileName::Log(log_id)).display(),
                    0,
                    expected,
                ))
            }
        }
    }

    fn keep_entry(&mut self, entry: Entry<'_>, seqno: SeqNo, address: ValueAddress) -> Result<()> {
        let footprint = Footprint::of(std::iter::once(entry), seqno.0);
        loop {
            let capacity = self.budget.write_buffer_bytes.max(footprint.bytes);
            let buffer = self
                .buffer
                .get_or_insert_with(|| Arc::new(Memtable::new(capacity, self.replaying.log_id)));
            if let Some(reservation) = buffer.reserve(std::iter::once(entry), footprint) {
                if self.trees.is_some() {
                    reservation.note_addresses(|_| address);
                }
                reservation.link(seqno);
                self.last_seqno = self.last_seqno.max(seqno);
                self.report.replayed_entries += 1;
                return Ok(());
            }
            self.end_buffer()?;
        }
    }

    /// Writes the memtable to a table. A read-only open keeps the memtable.
    pub(super) fn end_buffer(&mut self) -> Result<()> {
        let Some(buffer) = self.buffer.take() else {
            return Ok(());
        };
        if self.read_only {
            self.kept.push(buffer);
            return Ok(());
        }
        if self.trees.is_some() && !self.replayed_goes_past() {
            return self.insert_replayed(buffer);
        }
        let merge = || MergeIter::at_first(vec![RunIter::Memtable(buffer.iter())]);
        let cuts = self.version.layout.cuts().len() as u64;
        let bytes = buffer.used_bytes() as u64;
        let target = match &self.compaction.pm {
            Some(store) => PmTarget::recovered(store, self.replaying.log_id, cuts, bytes)?,
            None => None,
        };
        let is_in_memory = target.is_some();
        match self.write_level0(merge()?, target) {
            Err(error) if is_in_memory && error.kind() == ErrorKind::NoSpace => {
                self.write_recovered(merge()?)
            }
            written => written,
        }
    }

    /// Writes `entries` to tables of level 0 in files.
    pub(super) fn write_recovered(&mut self, entries: impl Entries) -> Result<()> {
        self.write_level0(entries, None)
    }

    fn write_level0(&mut self, entries: impl Entries, target: Option<PmTarget>) -> Result<()> {
        let output = Output {
            log_id: self.replaying.log_id,
            cuts: self.version.layout.cuts().clone(),
            ..Output::new(Cause::Flush, false)
        };
        let below =
            OverlapTracker::new(Level::ZERO, self.version.levels.below(Level::ZERO).to_vec());
        let work = write_outputs(
            entries,
            &[SeqNo::MAX],
            below,
            output,
            target,
            &self.compaction,
        );
        let Written { metas, placed, .. } = block_on(work)?;
        self.recovered.tables.extend(metas);
        self.recovered.placed.extend(placed);
        Ok(())
    }
}
