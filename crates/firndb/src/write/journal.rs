//! The journal: what makes the entries of a group durable before they are linked.
//!
//! It is a log or, where each partition has a write buffer in persistent memory, these buffers
//! themselves. The leader appends to the buffers in the order of numbers, fences once for all of
//! them, and commits the last number, which is a second fence. An open takes nothing above the
//! committed number, so a group is there as a whole or not at all, whatever partitions it is in.
//!
//! A group that fails may have appended a part. The number of a later group would make that part
//! count, so no group follows one that failed until the next open, which ends each buffer before
//! the first entry that was not committed.

use crate::log::LogWriter;
use crate::memtable::Reservation;
use crate::sites;
use firn_base::{Error, ErrorKind, Result, SeqNo};
use firn_pm::Fenced;
use firn_table::pm_buffer::BufferDirectory;
use std::sync::Arc;

/// The journal of a database.
pub(crate) enum Journal {
    Log(Box<LogWriter>),
    Buffers(BufferJournal),
}

/// The journal of buffers in persistent memory.
pub(crate) struct BufferJournal {
    directory: Arc<BufferDirectory>,
    committed: SeqNo,
    poison: Option<Error>,
}

impl Journal {
    /// The log, if it is one.
    pub(crate) fn log(&mut self) -> Option<&mut LogWriter> {
        match self {
            Journal::Log(log) => Some(log),
            Journal::Buffers(_) => None,
        }
    }

    /// Takes note that a group with numbers failed.
    pub(crate) fn failed(&mut self, error: &Error) {
        match self {
            // The log goes on, or knows that it cannot.
            Journal::Log(_) => {}
            Journal::Buffers(buffers) => buffers.fail(error),
        }
    }
}

impl BufferJournal {
    /// A journal of the buffers in `directory`. DURABLE AFTER: everything up to `committed` is
    /// committed, by both words, which a cut may have left different.
    pub(crate) fn begin(
        directory: &Arc<BufferDirectory>,
        committed: SeqNo,
    ) -> Result<BufferJournal> {
        directory.commit(committed, &Fenced::nothing())?;
        Ok(BufferJournal {
            directory: directory.clone(),
            committed,
            poison: None,
        })
    }

    /// The name of the pool's backend, for reports.
    pub(crate) fn backend_name(&self) -> &'static str {
        self.directory.pool().backend_name()
    }

    /// The last number that is committed.
    pub(crate) fn committed(&self) -> SeqNo {
        self.committed
    }

    /// The reason why nothing can be written, if there is one.
    pub(crate) fn poison(&self) -> Option<&Error> {
        self.poison.as_ref()
    }

    /// Appends the entries of `group`, numbered from `first` on. DURABLE AFTER: all of them.
    ///
    /// # Errors
    /// `Poisoned` after a group that failed.
    // Not inlined, because most databases have a log.
    #[inline(never)]
    pub(crate) fn append(&mut self, group: &mut [Reservation], first: SeqNo) -> Result<()> {
        if let Some(poison) = &self.poison {
            return Err(poison.clone());
        }
        let mut next = first;
        let mut flushed = Vec::with_capacity(group.len());
        for reservation in group.iter_mut() {
            flushed.extend(reservation.append(next)?);
            next.0 += reservation.count;
        }
        if next == first {
            return Ok(());
        }
        let pool = self.directory.pool();
        let fenced = pool.fence(&sites::BUFFER_ENTRIES_FENCE, flushed);
        let last = SeqNo(next.0 - 1);
        self.directory.commit(last, &fenced)?;
        self.committed = last;
        group
            .iter()
            .for_each(|reservation| reservation.reveal(&fenced));
        Ok(())
    }

    fn fail(&mut self, error: &Error) {
        let message = format!(
            "a write to persistent memory failed ({error}); reads go on, reopen the database to recover"
        );
        self.poison
            .get_or_insert_with(|| Error::new(ErrorKind::Poisoned, message));
    }
}
