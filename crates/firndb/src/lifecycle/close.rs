//! The end of an open database.
//!
//! Each step leaves nothing running that could undo it: first calls and background work end, then
//! writes, then reads, then the log. The directory and the pool are unlocked last, because the next
//! open may begin at that moment.

use crate::engine::Engine;
use crate::manifest::Edit;
use crate::write::journal::Journal;
use firn_base::Result;
use firn_base::exec::relax;
use firn_base::sync::Ordering;
use std::sync::Weak;

impl Engine {
    /// Closes the database, in an order in which no running step can undo an earlier one.
    pub(crate) fn close(&self) -> Result<()> {
        let mut closing = self.closing.lock();
        if std::mem::replace(&mut *closing, true) {
            return Ok(());
        }
        // 1. No call enters, and calls that wait inside leave.
        self.calls.shut();
        self.compaction.stop.store(true, Ordering::Release);
        self.progressed();
        self.executor.wake();
        self.calls.close();
        // 2. No background work runs.
        self.executor.stop();
        // 3. Nothing is written: running groups finish, and later ones are rejected.
        self.commit.close();
        // 4. Nothing is read.
        self.await_readers();
        // 5. The log ends, and its space in the pool is released.
        let result = if self.read_only {
            Ok(())
        } else {
            self.close_log().and(self.close_buffers())
        };
        self.remove_obsolete(true);
        // A pool that was not closed is one whose writer was killed.
        let result = result.and_then(|()| self.pm.as_ref().map_or(Ok(()), |pool| pool.close()));
        // 6. The directory and the pool are free for the next open.
        self.pm.iter().for_each(|pool| pool.release());
        self.files.close();
        result
    }

    /// Revokes the pins of all cursors and waits for running reads. REQUIRES: `calls` is closed, so
    /// that later reads are rejected.
    fn await_readers(&self) {
        let iters: Vec<_> = self
            .readers
            .iters
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        // A cursor holds the lock on its pins while it is being moved.
        iters.iter().for_each(|pins| drop(pins.lock().take()));
        // A read holds the state that it loaded. A read that loads the new one finds the gate
        // closed.
        self.state.rcu(|state| state.renewed());
        let mut round = 0;
        while self.state.load().alive() > 1 {
            relax(round);
            round = round.saturating_add(1);
        }
    }

    /// Records whether write buffers in persistent memory have entries. Without any, the next open
    /// needs no pool.
    ///
    /// # Errors
    /// The error of a write to them that failed, because what it left must not look like the
    /// remains of a clean end.
    fn close_buffers(&self) -> Result<()> {
        self.commit.with_journal(|journal| {
            let Journal::Buffers(buffers) = journal else {
                return Ok(());
            };
            if let Some(poison) = buffers.poison() {
                return Err(poison.clone());
            }
            let state = self.state.load();
            let mut memtables = state.memtables.iter();
            let mut edit = Edit {
                last_seqno: Some(self.commit.visible()),
                ..Edit::default()
            };
            let holds_entries = memtables.any(|memtable| memtable.entries() > 0);
            edit.pool.holds_entries = Some(holds_entries);
            let mut manifest = self.manifest.lock();
            manifest.append(edit, true, || self.next_file_id())
        })
    }

    /// Syncs the log and records its end, so that the next open can detect later damage.
    fn close_log(&self) -> Result<()> {
        self.commit.with_log(|log| {
            if let Some(edit) = self.logs.unrecorded_end.lock().take() {
                self.manifest
                    .lock()
                    .append(edit, false, || self.next_file_id())?;
            }
            let end = log.close()?;
            let edit = Edit {
                logs_sealed: vec![end],
                last_seqno: Some(self.commit.visible()),
                ..Edit::default()
            };
            self.manifest
                .lock()
                .append(edit, true, || self.next_file_id())
        })
    }
}
