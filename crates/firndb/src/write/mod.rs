//! The write path. [`Engine::write`] is its ordered description.

pub(crate) mod commit;
pub(crate) mod write_stall;

use crate::engine::Engine;
use crate::event::Event;
use crate::event::StallReason;
use crate::log::{LogMark, LogWriter};
use crate::memtable::{Entry, Memtable, Reservation};
use crate::options::Durability;
use crate::write::commit::{Group, GroupRole, Members, Queue};
use firn_base::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use firn_base::sync::Ordering;
use firn_base::{Error, ErrorKind, Result};
use std::sync::Arc;

impl Engine {
    /// Applies `entries` atomically. Returns once they are visible, and durable as requested.
    pub(crate) fn write<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        durability: Durability,
    ) -> Result<()> {
        let joined = self.join(entries, durability)?;
        self.complete(joined)
    }

    /// The first half of a write: adds `entries` to a commit group, which is passed to
    /// [`Engine::complete`].
    pub(crate) fn join<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        durability: Durability,
    ) -> Result<GroupRole> {
        let seed = self.commit.heights.fetch_add(1, Ordering::Relaxed);
        let bytes = self.check(entries.clone(), seed)?;
        self.write_stall
            .pace(bytes, || self.active_fill(), || !self.calls.is_closed());
        loop {
            let ticket = self.reserve(entries.clone(), bytes, seed)?;
            if let Some(joined) = self.commit.join(ticket, durability == Durability::Power)? {
                return Ok(joined);
            }
        }
    }

    /// The second half: leads the group, or waits for its leader.
    pub(crate) fn complete(&self, joined: GroupRole) -> Result<()> {
        match joined {
            GroupRole::Leader(group) => {
                let result = self.commit.lead(&group, |log, group, members| {
                    self.write_group(log, group, members)
                });
                if matches!(&result, Err(error) if error.kind() == ErrorKind::NoSpace) {
                    // Removes obsolete files, so that a retry finds room.
                    self.remove_obsolete(true);
                }
                if self.state.load().memtables[0].log_id != group.log_id {
                    // The memtable was frozen during this commit and can be flushed only now. No
                    // other thread would wake the workers for it.
                    self.executor.wake();
                }
                result
            }
            GroupRole::Follower(group) => group.wait(),
        }
    }

    /// Rejects entries that cannot be written, before anything is written. Returns the bytes of
    /// memtable that they take.
    fn check<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        seed: u64,
    ) -> Result<usize> {
        self.check_writable()?;
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
        let bytes = Memtable::bytes_for(entries, seed);
        if bytes > self.budget.batch_bytes_max {
            return Err(Error::invalid(format!(
                "a batch takes {bytes} bytes; at most a quarter of what memory_limit has for buffers and caches may be \
                 taken ({} bytes): split it or raise memory_limit",
                self.budget.batch_bytes_max
            )));
        }
        Ok(bytes)
    }

    /// Copies `entries` into the active memtable, making room if there is none.
    fn reserve<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        bytes: usize,
        seed: u64,
    ) -> Result<Reservation> {
        loop {
            let active = self.commit.active();
            if let Some(ticket) = active.reserve(entries.clone(), bytes, seed) {
                return Ok(ticket);
            }
            self.make_room(&active, bytes)?;
        }
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
            let switched = !Arc::ptr_eq(&queue.active, full);
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
        let buffers = &state.memtables;
        let held: usize = buffers.iter().map(|buffer| buffer.capacity_bytes()).sum();
        // Each is a little larger than requested.
        let fits = || held + bytes.max(usual) <= most * usual + usual / 2;
        buffers.len() < most && (buffers.len() < 2 || fits())
    }

    /// True if a new log may begin. A log that must be in persistent memory waits while evictions
    /// that may make room there are running or due. After that, the log itself reports that the
    /// pool is too small.
    pub(crate) fn next_log_may_begin(&self) -> bool {
        let lacks_room = self
            .logs
            .values
            .as_ref()
            .is_some_and(|values| values.lacks_room_for(1));
        if lacks_room {
            self.ask_for_merges();
            if !self.is_idle() {
                return false;
            }
            // Releases the logs that the last eviction finished with.
            self.remove_obsolete(true);
        }
        true
    }

    /// Freezes the active memtable and adds a fresh one before it, with room for `bytes`.
    pub(crate) fn switch_buffer(&self, queue: &mut Queue, bytes: usize) {
        let log_id = self.next_file_id();
        let capacity = self.budget.write_buffer_bytes.max(bytes);
        let fresh = Arc::new(self.fresh_buffer(capacity, log_id));
        self.state.rcu(|state| state.with_memtable(&fresh));
        queue.switch(fresh);
    }

    /// Writes a group's frame to the log, after starting the log that belongs to its memtable.
    fn write_group(
        &self,
        log: &mut LogWriter,
        group: &Group,
        members: &Members,
    ) -> Result<Option<LogMark>> {
        if log.log_id() != group.log_id {
            self.rotate_log(log, group.log_id)?;
        }
        self.record_log_end()?;
        if members.power || log.durable_at_write() {
            // The ends of earlier logs must be durable before anything after them is acknowledged
            // as durable.
            self.sync_log_ends()?;
        }
        if log.has_superseded() {
            log.let_go(&self.readers.snapshots.list(&self.commit.visible));
        }
        let named = self.logs.ends_synced.load(Ordering::Acquire);
        let mark = log.append(&members.tickets, group.first_seqno(), members.power, named)?;
        if self
            .logs
            .pm_buffer
            .as_ref()
            .is_some_and(|buffer| buffer.has_full())
        {
            self.executor.wake();
        }
        Ok(self.logs.values.is_some().then_some(mark))
    }

    pub(crate) fn rotate_log(&self, log: &mut LogWriter, log_id: u64) -> Result<()> {
        let end = log.rotate(log_id)?;
        // An earlier end may still be waiting, because logs end even if the manifest cannot be
        // written.
        let mut unrecorded = self.logs.unrecorded_end.lock();
        let edit = unrecorded.get_or_insert_default();
        edit.logs_added.push(log_id);
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
        let active = self.commit.active();
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
