//! Cursors that are used like gets: each seek is for the entry of one key, and no move follows.
//!
//! Such a seek searches for its key as a get does, with filters and rows. It reads at most the
//! block of that entry, where a seek of all runs reads one of each. The runs are sought only if the
//! cursor moves on, or if the key has no entry.

use super::Cursor;
use crate::read::pins::Direction;
use firn_base::Result;
use firn_fs::LARGE_BYTES;

impl Cursor {
    /// Ends the stay at an entry whose key was sought, if there is one. `moves` is true if the
    /// cursor moves on from there.
    #[inline]
    pub(super) fn leave_sought(&mut self, moves: bool) {
        if std::mem::take(&mut self.is_at_sought) {
            self.db.engine.readers.looks.note(!moves);
        }
    }

    /// Moves to the entry of `key` if it is found as a get finds it, and such looks are usual.
    /// False if it has to be sought in all runs.
    pub(super) fn look_at(&mut self, key: &[u8]) -> Result<bool> {
        let is_within = self.upper.as_deref().is_none_or(|upper| key < upper)
            && self.lower.as_deref().is_none_or(|lower| key >= lower);
        if !is_within || !self.db.engine.readers.looks.are_usual() {
            return Ok(false);
        }
        let shared = self.pins.clone();
        // Closing takes each cursor's lock once, and so waits for its last move.
        let mut slot = shared.lock();
        self.leave_entry();
        let engine = &self.db.engine;
        engine.calls.check()?;
        // An error is left to the seek: it reads every block that a get may read, and tells damage
        // from a change by a writer.
        let Ok(Some(value)) = engine.get_at(key, self.point.seqno) else {
            return Ok(false);
        };
        if let Some(pins) = &mut *slot {
            pins.direction = Direction::Elsewhere;
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        match value.len() >= LARGE_BYTES {
            true => self.large = Some(value),
            false => self.value.extend_from_slice(&value),
        }
        self.valid = true;
        self.is_at_sought = true;
        Ok(true)
    }

    /// Notes that `key` was sought.
    #[inline]
    pub(super) fn note_sought(&mut self, key: &[u8]) {
        self.is_at_sought = self.valid && self.key == key;
    }
}
