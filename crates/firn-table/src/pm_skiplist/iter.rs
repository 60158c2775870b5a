//! A cursor over a list, in both directions.

use super::read::{List, Position, Probe};
use super::write::Linked;
use firn_base::{Result, SeqNo, Tag};
use std::sync::Arc;

/// A cursor over a list. It copies the key once per step, and the value when it is asked for.
pub struct ListIter {
    list: Arc<List>,
    at: Option<Position>,
    probe: Probe,
}

impl ListIter {
    /// A cursor that is at no entry yet, and reads an entry's value when it is asked for.
    pub fn new(list: Arc<List>) -> ListIter {
        ListIter {
            list,
            at: None,
            probe: Probe::default(),
        }
    }

    /// A cursor that verifies every entry before it tells the key.
    pub fn verifying(list: Arc<List>) -> ListIter {
        ListIter {
            probe: Probe::verifying(),
            ..ListIter::new(list)
        }
    }

    /// True if it is at an entry.
    pub fn valid(&self) -> bool {
        self.at.is_some()
    }

    /// The key of its entry.
    pub fn key(&self) -> &[u8] {
        &self.probe.key
    }

    /// The tag of its entry.
    pub fn tag(&self) -> Tag {
        let found = self.probe.found();
        found.map_or(Tag::seek(SeqNo(0)), |found| found.head.tag)
    }

    /// The value of its entry. REQUIRES: it was loaded.
    pub fn value(&self) -> &[u8] {
        &self.probe.value
    }

    /// Reads the value of its entry, unless it has.
    ///
    /// # Errors
    /// `Corruption` if the entry is damaged.
    pub fn load(&mut self) -> Result<()> {
        match self.at {
            Some(_) => self.list.load(&mut self.probe),
            None => Ok(()),
        }
    }

    /// True if its node has the prefix by which searches find it.
    ///
    /// # Errors
    /// The error of reading the pool.
    pub(super) fn is_found_by_prefix(&self) -> Result<bool> {
        match self.at {
            Some(at) => self.list.has_prefix(at, &self.probe.key),
            None => Ok(true),
        }
    }

    /// Its entry, to be linked into another list.
    pub fn linked(&self) -> Option<Linked> {
        self.at?;
        Some(self.list.linked(&self.probe.found()?))
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// `Corruption` if a node leads to no entry; so do the other moves.
    pub fn first(&mut self) -> Result<()> {
        self.go(self.list.first())
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// As [`ListIter::first`].
    pub fn last(&mut self) -> Result<()> {
        self.go(self.list.last())
    }

    /// Moves to the first entry that is not before (`key`, `tag`).
    ///
    /// # Errors
    /// As [`ListIter::first`].
    pub fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        let at = self.list.seek(key, tag, &mut self.probe)?;
        self.go(at)
    }

    /// Moves to the last entry before (`key`, `tag`).
    ///
    /// # Errors
    /// As [`ListIter::first`].
    pub fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        let at = self.list.seek(key, tag, &mut self.probe)?;
        let before = match at {
            Some(at) => self.list.before(at),
            None => self.list.last(),
        };
        self.go(before)
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    /// As [`ListIter::first`].
    #[allow(clippy::should_implement_trait, reason = "a cursor, not an iterator")]
    pub fn next(&mut self) -> Result<()> {
        let next = self.at.and_then(|at| self.list.after(at));
        self.go(next)
    }

    /// Moves to the previous entry.
    ///
    /// # Errors
    /// As [`ListIter::first`].
    pub fn prev(&mut self) -> Result<()> {
        let before = self.at.and_then(|at| self.list.before(at));
        self.go(before)
    }

    fn go(&mut self, at: Option<Position>) -> Result<()> {
        self.at = None;
        if let Some(at) = at {
            self.list.entry(at, &mut self.probe)?;
            self.at = Some(at);
        }
        Ok(())
    }
}
