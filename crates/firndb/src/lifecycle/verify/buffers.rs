//! Verification of write buffers in persistent memory.
//!
//! 1. The directory is read between two groups of writes, with the ends of the buffers. What is
//!    below an end never changes, so the entries are read beside writes.
//! 2. An entry that readers can see, and that is not flushed, is in the list of its memtable. Each
//!    linked entry is in the buffer.
//! 3. A read-only open has copies, which it checked when it made them, and cannot tell a commit
//!    from damage to one of the two words. So it checks that the directory's words and lines are
//!    whole.

use super::{Damage, VerifyReport};
use crate::engine::Engine;
use crate::memtable::{Memtable, Walked};
use crate::read::state::ReadState;
use crate::write::journal::Journal;
use firn_base::{Error, ErrorKind, Result, SeqNo};
use firn_pm::Pool;
use firn_table::pm_buffer::{
    BufferDirectory, DamagedLine, DamagedPart, NamedBuffer, PmBuffer, salvage,
};
use std::sync::Arc;

type Found<'a> = &'a mut dyn FnMut(Damage) -> Result<()>;

/// The buffers between two groups of writes.
struct Moment {
    committed: SeqNo,
    /// Everything up to this number is linked.
    visible: SeqNo,
    lines: Vec<Result<NamedBuffer, DamagedLine>>,
    /// The memtables with buffers, and the ends of these.
    ends: Vec<(Arc<Memtable>, u64)>,
}

impl Engine {
    /// Reads the write buffers, and compares them with their memtables.
    pub(super) fn examine_buffers(
        &self,
        state: &ReadState,
        report: &mut VerifyReport,
        found: Found<'_>,
    ) -> Result<()> {
        let Some(moment) = self.buffers_now(state, found)? else {
            return Ok(());
        };
        for line in &moment.lines {
            if let Err(damaged) = line {
                let its = moment.ends.iter().find(|(memtable, _)| {
                    let buffer = memtable.pm_buffer();
                    buffer.is_some_and(|buffer| buffer.line() == damaged.line)
                });
                let its = its.filter(|(memtable, _)| memtable.link_found().is_ok());
                let keys = its.and_then(|(memtable, end)| memtable.keys_within(&(0..*end)));
                let error = damaged.error.clone();
                found(Damage { error, keys })?;
            }
        }
        for (memtable, end) in &moment.ends {
            self.calls.check()?;
            if let Some(buffer) = memtable.pm_buffer() {
                let of = (memtable, buffer, *end);
                self.examine_buffer(state, &moment, of, report, found)?;
            }
        }
        Ok(())
    }

    /// The buffers of `state` between two groups; `None` if it has none.
    fn buffers_now(&self, state: &ReadState, found: Found<'_>) -> Result<Option<Moment>> {
        let Some(store) = self.buffers() else {
            return Ok(None);
        };
        let visible = self.commit.visible();
        let (mut moment, mut checked) = (None, Ok(()));
        self.commit.with_journal(|journal| {
            let Journal::Buffers(journal) = journal else {
                return Ok(());
            };
            let committed = journal.committed();
            // A write that failed may have left words that differ.
            let expected = journal.poison().is_none().then_some(committed);
            checked = store.directory().check_committed(expected);
            let ends = state.memtables.iter().filter_map(|memtable| {
                let end = memtable.pm_buffer()?.end();
                Some((memtable.clone(), end))
            });
            moment = Some(Moment {
                committed,
                visible: visible.min(committed),
                lines: store.directory().salvage_lines()?,
                ends: ends.collect(),
            });
            Ok(())
        })?;
        match checked {
            // The other word has it.
            Err(error) if error.kind() == ErrorKind::Corruption => {
                found(Damage { error, keys: None })?
            }
            checked => checked?,
        }
        Ok(moment)
    }

    fn examine_buffer(
        &self,
        state: &ReadState,
        moment: &Moment,
        (memtable, buffer, end): (&Arc<Memtable>, &PmBuffer, u64),
        report: &mut VerifyReport,
        found: Found<'_>,
    ) -> Result<()> {
        let Some(store) = self.buffers() else {
            return Ok(());
        };
        let pool = store.directory().pool();
        if let Err(error) = memtable.link_found() {
            return found(Damage { error, keys: None });
        }
        let mut walk = Walk {
            memtable,
            named: NamedBuffer {
                line: buffer.line(),
                id: buffer.id(),
                extent: buffer.extent(),
                through: SeqNo(0),
                end,
                is_final: true,
            },
            note: moment.note_of(buffer),
            linked: 0,
            damages: 0,
        };
        walk.check_note(end, moment, found)?;
        let committed = moment.committed;
        salvage(pool, &walk.named.clone(), committed, |part| match part {
            Ok(entry) => {
                let list = state.memtables.of(&state.layout, entry.key);
                let is_flushed = entry.tag.seqno() <= list.flushed_through;
                let must_be_linked = !is_flushed && entry.tag.seqno() <= moment.visible;
                walk.check_entry(pool, &entry, must_be_linked, moment.visible, found)?;
                report.bytes += entry.key.len() as u64 + u64::from(entry.value_len);
                Ok(())
            }
            Err(DamagedPart { range, error }) => {
                let keys = memtable.keys_within(&range);
                walk.found(Damage { error, keys }, found)
            }
        })?;
        report.entries += walk.linked;
        if walk.damages == 0 && walk.linked != memtable.linked_up_to(moment.visible) {
            let error = error(&walk.named, 0, "all entries that are linked");
            let keys = memtable.keys_within(&(0..end));
            walk.found(Damage { error, keys }, found)?;
        }
        Ok(())
    }

    /// Checks the words and lines of the directory in the pool of a read-only open.
    pub(super) fn check_directory(&self, pool: &Arc<Pool>) -> Vec<Result<()>> {
        if !self.read_only {
            return Vec::new();
        }
        let checked = || -> Result<Vec<Result<()>>> {
            let Some(directory) = BufferDirectory::find(pool)? else {
                return Ok(Vec::new());
            };
            let lines = directory.named()?.into_iter();
            let words = std::iter::once(directory.check_committed(None));
            Ok(words.chain(lines.map(|line| line.map(drop))).collect())
        };
        checked().unwrap_or_else(|error| vec![Err(error)])
    }
}

impl Moment {
    /// The line of a buffer. `None` if it is damaged; the error if there is none.
    fn note_of(&self, buffer: &PmBuffer) -> Result<Option<NamedBuffer>, &'static str> {
        let is_damaged = |line: &Result<NamedBuffer, DamagedLine>| {
            line.as_ref()
                .is_err_and(|damaged| damaged.line == buffer.line())
        };
        if self.lines.iter().any(is_damaged) {
            return Ok(None);
        }
        let mut lines = self.lines.iter().flatten();
        match lines.find(|named| named.line == buffer.line()) {
            None => Err("a line that names it"),
            Some(named) if named.id != buffer.id() || named.extent != buffer.extent() => {
                Err("its own id and extent in its line")
            }
            Some(named) => Ok(Some(*named)),
        }
    }
}

/// The examination of one buffer.
struct Walk<'a> {
    memtable: &'a Arc<Memtable>,
    /// The buffer, up to its end.
    named: NamedBuffer,
    note: Result<Option<NamedBuffer>, &'static str>,
    /// Entries that the list has, too.
    linked: u64,
    damages: u64,
}

impl Walk<'_> {
    fn found(&mut self, damage: Damage, found: Found<'_>) -> Result<()> {
        self.damages += 1;
        found(damage)
    }

    /// Checks the note without a look at entries.
    fn check_note(&mut self, end: u64, moment: &Moment, found: Found<'_>) -> Result<()> {
        let expected = match &self.note {
            Err(expected) => Some(*expected),
            Ok(Some(note)) if note.end > end => Some("a noted end that it has reached"),
            Ok(Some(note)) if note.is_final && note.end < end => Some("a final end at its end"),
            Ok(Some(note)) if note.through > moment.committed => {
                Some("a noted number that was committed")
            }
            Ok(Some(note)) if note.is_final && self.memtable.frozen_at().is_none() => {
                Some("no final end, because it takes writes")
            }
            Ok(_) => None,
        };
        let Some(expected) = expected else {
            return Ok(());
        };
        let keys = self.memtable.keys_within(&(0..end));
        let error = error(&self.named, 0, expected);
        self.found(Damage { error, keys }, found)
    }

    fn check_entry(
        &mut self,
        pool: &Pool,
        entry: &Walked<'_>,
        must_be_linked: bool,
        visible: SeqNo,
        found: Found<'_>,
    ) -> Result<()> {
        let seqno = entry.tag.seqno();
        let keys = || Some((entry.key.to_vec(), entry.key.to_vec()));
        match self.named.read_value(pool, entry) {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let keys = keys();
                self.found(Damage { error, keys }, found)?;
            }
            read => drop(read?),
        }
        let linked = match seqno <= visible {
            true => self.memtable.has_linked(entry),
            false => Ok(false),
        };
        self.linked += u64::from(linked != Ok(false));
        let expected = match (linked, &self.note) {
            (Err(expected), _) => expected,
            (Ok(false), _) if must_be_linked => "an entry that is linked",
            (_, Ok(Some(note))) if (entry.at < note.end) != (seqno <= note.through) => {
                "an entry on the side of the noted end that its number is on"
            }
            _ => return Ok(()),
        };
        let (error, keys) = (error(&self.named, entry.at, expected), keys());
        self.found(Damage { error, keys }, found)
    }
}

fn error(named: &NamedBuffer, at: u64, expected: &str) -> Error {
    let place = format!("write buffer {} in the pool", named.id);
    Error::corruption(place, named.extent.offset.get() + at, expected)
}
