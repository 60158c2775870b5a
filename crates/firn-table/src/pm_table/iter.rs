//! A cursor over a table, in both directions.

use super::layout::GROUP_BYTES;
use super::read::{PmTable, Probe};
use firn_base::key::compare;
use firn_base::{Result, SeqNo, Tag};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// A cursor over a table. It holds the heads of one group, and copies a value when it is asked for.
pub struct PmTableIter {
    table: Arc<PmTable>,
    probe: Probe,
    /// The group whose entries these are.
    group: Option<usize>,
    entries: Vec<Entry>,
    shared: usize,
    /// The entry; none if there are not so many.
    at: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    is_loaded: bool,
}

struct Entry {
    /// The rest of the key, in the probe's bytes.
    rest: Range<usize>,
    tag: Tag,
    value_at: usize,
    value_bytes: usize,
    value_crc: u32,
}

impl PmTableIter {
    /// A cursor that is at no entry yet.
    pub fn new(table: Arc<PmTable>) -> PmTableIter {
        PmTableIter {
            table,
            probe: Probe::default(),
            group: None,
            entries: Vec::new(),
            shared: 0,
            at: 0,
            key: Vec::new(),
            value: Vec::new(),
            is_loaded: false,
        }
    }

    /// True if it is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.at < self.entries.len()
    }

    /// The key of its entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The tag of its entry.
    #[inline]
    pub fn tag(&self) -> Tag {
        let entry = self.entries.get(self.at);
        entry.map_or(Tag::seek(SeqNo(0)), |entry| entry.tag)
    }

    /// The value of its entry. REQUIRES: it was loaded.
    #[inline]
    pub fn value(&self) -> &[u8] {
        debug_assert!(self.is_loaded);
        &self.value
    }

    /// The id of its entry's group, if gets have found entries in that group.
    pub fn read_group(&self) -> Option<u64> {
        let space = self.table.space();
        let group = self.group.filter(|group| space.read_groups.has(*group))?;
        Some(space.id().0 << 32 | group as u64)
    }

    /// The group of its entry.
    pub(super) fn group(&self) -> Option<usize> {
        self.group
    }

    /// Reads the value of its entry, unless it has.
    ///
    /// # Errors
    /// `Corruption` if the value is damaged.
    pub fn load(&mut self) -> Result<()> {
        if self.is_loaded {
            return Ok(());
        }
        if let Some(entry) = self.entries.get(self.at) {
            self.table.value(
                entry.tag,
                entry.value_at,
                entry.value_bytes,
                entry.value_crc,
                &mut self.value,
                &mut self.probe,
            )?;
            self.is_loaded = true;
        }
        Ok(())
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// `Corruption` if a group is damaged; so do the other moves.
    pub fn first(&mut self) -> Result<()> {
        self.enter(0)?;
        self.go(0);
        Ok(())
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// As [`PmTableIter::first`].
    pub fn last(&mut self) -> Result<()> {
        self.enter(self.table.groups() - 1)?;
        self.go(self.entries.len() - 1);
        Ok(())
    }

    /// Moves to the first entry that is not before (`key`, `tag`).
    ///
    /// # Errors
    /// As [`PmTableIter::first`].
    pub fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.leave();
        let Some(group) = self.table.group_of(key, &mut self.probe)? else {
            return self.first();
        };
        self.enter(group)?;
        self.go(0);
        if *self.key > *key {
            // A corrupt slot led past the entries that are sought.
            return Err(self.table.damaged_group(&self.probe));
        }
        for at in 0..self.entries.len() {
            if at > 0 {
                self.go(at);
            }
            if compare(&self.key, self.tag(), key, tag) != Ordering::Less {
                return Ok(());
            }
        }
        self.leave();
        if group + 1 < self.table.groups() {
            self.enter(group + 1)?;
            self.go(0);
            if compare(&self.key, self.tag(), key, tag) == Ordering::Less {
                return Err(self.table.damaged_group(&self.probe));
            }
        }
        Ok(())
    }

    /// Moves to the last entry before (`key`, `tag`).
    ///
    /// # Errors
    /// As [`PmTableIter::first`].
    pub fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.seek(key, tag)?;
        match self.valid() {
            true => self.prev(),
            false => self.last(),
        }
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    /// As [`PmTableIter::first`].
    #[allow(clippy::should_implement_trait, reason = "a cursor, not an iterator")]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.step() {
            return Ok(());
        }
        let next = self.group.filter(|_| self.valid()).map(|group| group + 1);
        self.leave();
        if let Some(next) = next.filter(|next| *next < self.table.groups()) {
            self.enter(next)?;
            self.go(0);
        }
        Ok(())
    }

    /// Moves to the previous entry.
    ///
    /// # Errors
    /// As [`PmTableIter::first`].
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid() {
            return Ok(());
        }
        if let Some(before) = self.at.checked_sub(1) {
            self.go(before);
            return Ok(());
        }
        let before = self.group.and_then(|group| group.checked_sub(1));
        self.leave();
        if let Some(before) = before {
            self.enter(before)?;
            self.go(self.entries.len() - 1);
        }
        Ok(())
    }

    /// Is at no entry.
    fn leave(&mut self) {
        (self.at, self.is_loaded, self.group) = (0, false, None);
        self.entries.clear();
    }

    /// Moves to the next entry of the group. Returns false if there is none.
    pub(super) fn step(&mut self) -> bool {
        let has_next = self.at + 1 < self.entries.len();
        if has_next {
            self.go(self.at + 1);
        }
        has_next
    }

    pub(super) fn go(&mut self, at: usize) {
        (self.at, self.is_loaded) = (at, false);
        if let Some(entry) = self.entries.get(at) {
            self.key.truncate(self.shared);
            let rest = self.probe.bytes().get(entry.rest.clone());
            self.key.extend_from_slice(rest.unwrap_or_default());
        }
    }

    /// Reads the heads of group `number`.
    pub(super) fn enter(&mut self, number: usize) -> Result<()> {
        self.leave();
        self.table.read_group(number, &mut self.probe)?;
        let values_at = self.probe.values_at();
        let decoded = self.probe.heads().and_then(|(shared, mut heads)| {
            self.key.clear();
            self.key.extend_from_slice(shared);
            self.shared = shared.len();
            let mut at = GROUP_BYTES + shared.len();
            while heads.left() > 0 {
                let before = heads.remaining();
                let head = heads.next()?;
                at += before - heads.remaining();
                self.entries.push(Entry {
                    rest: at - head.rest.len()..at,
                    tag: head.tag,
                    value_at: values_at + head.value_at,
                    value_bytes: head.value_bytes,
                    value_crc: head.value_crc,
                });
            }
            Some(())
        });
        if decoded.is_none() {
            self.leave();
            return Err(self.table.damaged_group(&self.probe));
        }
        self.group = Some(number);
        Ok(())
    }
}
