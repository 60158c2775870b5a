//! The write path. [`Engine::write`] is its ordered description.

pub(crate) mod commit;
pub(crate) mod journal;
mod part_buffers;
pub(crate) mod write_stall;

use crate::engine::Engine;
use crate::event::Event;
use crate::event::StallReason;
use crate::log::LogWriter;
use crate::memtable::{Entry, Footprint, Memtable};
use crate::options::Durability;
use crate::write::commit::{Group, Members, Queue, Reserved};
use crate::write::journal::Journal;
use firn_base::key::{KEY_BYTES_MAX, Kind, VALUE_BYTES_MAX};
use firn_base::sync::Ordering;
use firn_base::{Error, ErrorKind, FileId, Result};
use std::sync::Arc;

impl Engine {
    /// Applies `entries` atomically. Returns once they are visible, and durable as requested.
    ///
    /// 1. Reject what cannot be written, before anything is.
    /// 2. Wait if compaction is late.
    /// 3. Copy the entries into the active memtable, where no reader sees them, and join a commit
    ///    group, which gives them their sequence numbers.
    /// 4. Wait for the group, or lead it: append it to the log, link its entries, publish it.
    pub(crate) fn write<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        durability: Durability,
    ) -> Result<()> {
        let footprint = self.check(entries.clone())?;
        let fill = || self.active_fill();
        self.write_stall
            .pace(footprint.bytes, fill, || !self.calls.is_closed());
        let power = durability == Durability::Power;
        let group = loop {
            let reserved = self.reserve_any(entries.clone(), footprint)?;
            // `None` if a memtable was frozen meanwhile.
            if let Some(group) = self.commit.join(reserved, power)? {
                break group;
            }
        };
        self.wait_for_group(&group)
    }

    /// Rejects entries that cannot be written. Returns the space that they take.
    pub(crate) fn check<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
    ) -> Result<Footprint> {
        self.check_writable()?;
        if self.write_stall.is_full() {
            self.wait_for_space(entries.clone())?;
        }
        for entry in entries.clone() {
            if entry.key.is_empty() {
                return Err(Error::invalid("a key must have at least one byte"));
            }
            if entry.key.len() > KEY_BYTES_MAX {
                let len = entry.key.len();
                return Err(Error::invalid(format!(
                    "a key of {len} bytes exceeds the limit of {KEY_BYTES_MAX}"
                )));
            }
            if entry.value.len() > VALUE_BYTES_MAX {
                let len = entry.value.len();
                return Err(Error::invalid(format!(
                    "a value of {len} bytes exceeds the limit of {VALUE_BYTES_MAX}"
                )));
            }
        }
        let footprint = self.commit.footprint(entries);
        if footprint.bytes > self.budget.batch_bytes_max {
            let bytes = footprint.bytes;
            return Err(Error::invalid(format!(
                "a batch takes {bytes} bytes; it may take a quarter of what memory_limit_bytes leaves for buffers and \
                 caches ({} bytes): split it or raise memory_limit_bytes",
                self.budget.batch_bytes_max
            )));
        }
        Ok(footprint)
    }

    /// Waits while persistent memory is full and background work may make room in it.
    ///
    /// # Errors
    /// `NoSpace` if none is left to do.
    #[cold]
    fn wait_for_space<'a>(&self, entries: impl Iterator<Item = Entry<'a>> + Clone) -> Result<()> {
        let is_refused = |entry: Entry<'_>| {
            let stall = &self.write_stall;
            stall.is_full() && (entry.kind != Kind::Delete || stall.refuses_deletes())
        };
        let _entered = self.calls.enter()?;
        let start_ns = self.clock.now_ns();
        let has_room = self.wait_for(|| {
            // Read before the space, which the last work may have freed.
            let all_done = self.is_all_done();
            self.update_stall();
            match entries.clone().any(is_refused) {
                false => Some(true),
                true => all_done.then_some(false),
            }
        })?;
        let waited_ns = self.clock.now_ns() - start_ns;
        self.write_stall
            .stalled(StallReason::PersistentMemory, waited_ns);
        match has_room {
            true => {
                if self.write_stall.is_full() {
                    // It has deletes only.
                    self.write_stall.took_delete();
                }
                Ok(())
            }
            false => Err(Error::new(ErrorKind::NoSpace, write_stall::PM_FULL)),
        }
    }

    /// Copies `entries` to where they are linked later, making room if there is none.
    #[inline]
    pub(crate) fn reserve_any<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        footprint: Footprint,
    ) -> Result<Reserved> {
        match self.has_part_buffers() {
            false => self.reserve(entries, footprint),
            true => self.reserve_in_parts(entries, footprint),
        }
    }

    /// Copies `entries` into the active memtable, making room if there is none.
    fn reserve<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        footprint: Footprint,
    ) -> Result<Reserved> {
        loop {
            let state = self.state.load();
            let active = state.memtables.of_part(0).active();
            if let Some(reservation) = active.reserve(entries.clone(), footprint) {
                return Ok(reservation.into());
            }
            if active.grow(footprint.bytes, |bytes| self.tables.claim(bytes as u64)) {
                continue;
            }
            let full = active.clone();
            drop(state);
            self.make_room(&full, footprint.bytes)?;
        }
    }

    /// The memtable that takes writes, where all keys share one.
    pub(crate) fn active(&self) -> Arc<Memtable> {
        self.state.load().memtables.of_part(0).active().clone()
    }

    /// Waits until `group` has finished, and leads groups if nobody else does.
    pub(crate) fn wait_for_group(&self, group: &Group) -> Result<()> {
        let append = |journal: &mut Journal, group: &Group, members: &mut Members| match journal {
            Journal::Log(log) => self.append_group(log, group, members),
            Journal::Buffers(buffers) => {
                buffers.append(&mut members.reservations, group.first_seqno())
            }
        };
        self.commit.wait(group, append, |behind| {
            if behind.no_space {
                // Removes obsolete files, so that a retry finds room.
                self.remove_obsolete(true);
            }
            if behind.froze {
                // The memtable was frozen during this commit and can be flushed only now. No other
                // thread would wake the workers for it.
                self.executor.wake();
            }
        })
    }

    /// Replaces the full memtable with a fresh one, once another is allowed.
    fn make_room(&self, full: &Arc<Memtable>, bytes: usize) -> Result<()> {
        let _entered = self.calls.enter()?;
        let start_ns = self.clock.now_ns();
        let mut looks = 0;
        self.wait_for(|| {
            looks += 1;
            if bytes > self.budget.write_buffer_bytes {
                // Releases flushed memtables of such batches that no worker has released yet.
                self.remove_obsolete(true);
            }
            let may_begin = self.next_log_may_begin();
            let mut queue = self.commit.lock();
            let switched = full.frozen_at().is_some();
            let may_switch = may_begin && self.may_add_buffer(bytes);
            if !switched && may_switch {
                self.switch_buffer(&mut queue, bytes);
            }
            (switched || may_switch).then_some(())
        })?;
        if looks > 1 {
            self.write_stall
                .stalled(StallReason::Buffers, self.clock.now_ns() - start_ns);
        }
        self.update_stall();
        self.executor.wake();
        Ok(())
    }

    /// True if there may be one more memtable with room for `bytes`. Allowed are `write_buffers` of
    /// the usual size, or two of any size, or more if their total is no larger.
    pub(crate) fn may_add_buffer(&self, bytes: usize) -> bool {
        let (most, usual) = (
            self.options.limits.write_buffers,
            self.budget.write_buffer_bytes,
        );
        let state = self.state.load();
        let buffers = &state.memtables.of_part(0).memtables;
        let held: usize = buffers.iter().map(|buffer| buffer.capacity_bytes()).sum();
        // Each is a little larger than requested.
        let fits = || held + bytes.max(usual) <= most * usual + usual / 2;
        buffers.len() < most && (buffers.len() < 2 || fits())
    }

    /// Freezes the active memtable and adds a fresh one before it, with room for `bytes`.
    pub(crate) fn switch_buffer(&self, queue: &mut Queue, bytes: usize) {
        let log_id = self.next_file_id();
        let capacity = self.budget.write_buffer_bytes.max(bytes);
        let fresh = Arc::new(self.fresh_buffer(capacity, log_id));
        let before = self.state.rcu(|state| state.with_memtable(&[], &fresh));
        queue.freeze(before.memtables.of_part(0).active());
    }

    /// Appends a group to the log, after starting the log that belongs to its memtable.
    fn append_group(&self, log: &mut LogWriter, group: &Group, members: &Members) -> Result<()> {
        if log.log_id() != group.log_id {
            self.rotate_log(log, group.log_id)?;
        }
        self.record_log_end()?;
        if members.power || log.durable_at_write() {
            // The ends of earlier logs must be durable before anything after them is acknowledged
            // as durable.
            self.sync_log_ends()?;
        }
        let named = self.logs.ends_synced.load(Ordering::Acquire);
        log.append(
            &members.reservations,
            group.first_seqno(),
            members.power,
            named,
        )?;
        if self.logs.has_work() {
            self.executor.wake();
        }
        Ok(())
    }

    pub(crate) fn rotate_log(&self, log: &mut LogWriter, log_id: FileId) -> Result<()> {
        let end = log.rotate(log_id)?;
        // An earlier end may still be waiting, because logs end even if the manifest cannot be
        // written.
        let mut unrecorded = self.logs.unrecorded_end.lock();
        let edit = unrecorded.get_or_insert_default();
        edit.logs_added.push(FileId(log_id.0));
        edit.logs_sealed.push(end);
        drop(unrecorded);
        self.emit(&Event::LogRotated { log_id });
        Ok(())
    }

    /// Records the end of the previous log in the manifest, if a full disk has prevented that so
    /// far.
    pub(crate) fn record_log_end(&self) -> Result<()> {
        let mut unrecorded = self.logs.unrecorded_end.lock();
        if let Some(edit) = &*unrecorded {
            let mut manifest = self.manifest.lock();
            manifest.append(edit.clone(), false, || self.next_file_id())?;
            // Stored under the manifest's lock, because the thread that makes the records durable
            // sets it under that lock, too.
            self.logs.ends_synced.store(false, Ordering::Release);
            *unrecorded = None;
        }
        Ok(())
    }

    /// Makes the names and ends of all logs so far durable.
    pub(crate) fn sync_log_ends(&self) -> Result<()> {
        if self.logs.ends_synced.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut manifest = self.manifest.lock();
        manifest.make_durable(|| self.next_file_id())?;
        self.logs.ends_synced.store(true, Ordering::Release);
        Ok(())
    }

    fn active_fill(&self) -> f64 {
        if self.has_part_buffers() {
            return self.buffers_fill();
        }
        let active = self.active();
        active.used_bytes() as f64 / active.capacity_bytes() as f64
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::invalid(
                "the database was opened read-only; open it with `Db::open` to write",
            ));
        }
        self.calls.check()?;
        match self.background_error() {
            Some(error)
                if error.kind() == ErrorKind::Corruption || error.kind() == ErrorKind::Poisoned =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }
}
