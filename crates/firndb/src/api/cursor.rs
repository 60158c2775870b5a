//! Cursors over the database, in both directions, at one read point.
//!
//! 1. A cursor sees the database as of its read point, which stays registered while the cursor
//!    exists.
//! 2. Its position is a user key in its own memory. Its pins on memtables and tables (`Pins`) are
//!    revocable: a cursor that is idle on an old state loses them, and seeks again when it is next
//!    moved.
//! 3. After an error the cursor is on no entry.
//! 4. A seek for a single entry may leave the merge elsewhere (`look.rs`). The next move seeks.
//! 5. Deleted keys that one cursor walked over are skipped in one step by later cursors
//!    (`gaps.rs`).

mod look;
#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;
mod walk;

use self::walk::Walk;
use crate::api::db::Db;
use crate::options::ReadOptions;
use crate::read::gaps::behind;
use crate::read::merge_iter::MergeIter;
use crate::read::pins::{Direction, Pins, SharedPins, children};
use crate::read_points::Point;
use firn_base::key::Kind;
use firn_base::sync::{Mutex, Ordering};
use firn_base::{Error, Result, SeqNo, Tag};
use firn_fs::{LARGE_BYTES, give_back_buffer, give_back_if_large};
use firn_table::Value;
use std::sync::Arc;

/// A cursor over the entries of a database or a snapshot.
///
/// Created by [`crate::Db::cursor`] and [`crate::Db::cursor_with`], and by the same methods of
/// [`crate::Snapshot`]. It is on no entry until it is positioned. For a loop over entries, use
/// [`crate::Iter`].
pub struct Cursor {
    db: Db,
    point: Arc<Point>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    pins: Arc<SharedPins>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// Replaces `value` if the value is large and not in a memtable. It is not copied, and keeps
    /// only its own block in memory.
    large: Option<Value>,
    valid: bool,
    /// True if a seek found its very key, and the cursor is still there.
    is_at_sought: bool,
    /// A key that `prev` read past while it looked for the previous one.
    scratch: Vec<u8>,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.leave_sought(false);
        give_back_buffer(&mut self.value);
    }
}

impl Cursor {
    pub(crate) fn new(db: Db, point: Arc<Point>, options: ReadOptions) -> Cursor {
        let pins = Arc::new(Mutex::new(None));
        db.engine.register_iter(&pins);
        let ReadOptions {
            lower,
            upper,
            snapshot: _,
        } = options;
        let (key, value, scratch) = (Vec::new(), Vec::new(), Vec::new());
        Cursor {
            db,
            point,
            lower,
            upper,
            pins,
            key,
            value,
            large: None,
            valid: false,
            is_at_sought: false,
            scratch,
        }
    }

    /// True if the cursor is on an entry.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key at the cursor; empty if it is on no entry.
    pub fn key(&self) -> &[u8] {
        if self.valid { &self.key } else { &[] }
    }

    /// The value at the cursor; empty if it is on no entry.
    pub fn value(&self) -> &[u8] {
        match &self.large {
            _ if !self.valid => &[],
            Some(large) => large,
            None => &self.value,
        }
    }

    /// A copy of the value at the cursor.
    pub(crate) fn to_value(&self) -> Value {
        Value::copied(self.value()).counted(self.db.engine.tables.held())
    }

    /// Moves to the first key within the bounds.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file; `Invalid` if the database was closed. The same for
    /// every method that moves.
    pub fn first(&mut self) -> Result<()> {
        self.leave_sought(false);
        let lower = self.lower.take();
        self.note_scan(lower.as_deref().unwrap_or_default());
        let result = self
            .move_by(|iter, pins| iter.forward_from(lower.as_deref().unwrap_or_default(), pins));
        self.lower = lower;
        result
    }

    /// Moves to the last key within the bounds.
    ///
    /// # Errors
    /// See [`Cursor::first`].
    pub fn last(&mut self) -> Result<()> {
        self.leave_sought(false);
        let upper = self.upper.take();
        let result = self.move_by(|iter, pins| iter.backward_from(upper.as_deref(), pins));
        self.upper = upper;
        // The bounds were taken out so that they could be borrowed; `settle_backward` checks the
        // lower one.
        result
    }

    /// Moves to the first key at or after `key`, within the bounds.
    ///
    /// # Errors
    /// See [`Cursor::first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let target = match &self.lower {
            Some(lower) if lower.as_slice() > key.as_ref() => lower.clone(),
            _ => key.as_ref().to_vec(),
        };
        self.leave_sought(false);
        if self.look_at(&target)? {
            return Ok(());
        }
        self.note_scan(&target);
        self.move_by(|iter, pins| iter.forward_from(&target, pins))?;
        self.note_sought(&target);
        Ok(())
    }

    fn note_scan(&self, key: &[u8]) {
        self.db.engine.note_scan(key);
    }

    /// Moves to the last key at or before `key`, within the bounds.
    ///
    /// # Errors
    /// See [`Cursor::first`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let border = match &self.upper {
            Some(upper) if upper.as_slice() <= key.as_ref() => upper.clone(),
            _ => behind(key.as_ref()),
        };
        self.leave_sought(false);
        if self.look_at(key.as_ref())? {
            return Ok(());
        }
        self.note_scan(key.as_ref());
        self.move_by(|iter, pins| iter.backward_from(Some(&border), pins))?;
        self.note_sought(key.as_ref());
        Ok(())
    }

    /// Moves to the next key. Does nothing if the cursor is on no entry.
    ///
    /// # Errors
    /// See [`Cursor::first`].
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor's `next` borrows its entry; see `Iter` for loops"
    )]
    pub fn next(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.leave_sought(true);
        self.move_by(|iter, pins| {
            if pins.direction != Direction::Forward {
                pins.merge.seek(&iter.key, Tag(0))?;
                pins.direction = Direction::Forward;
            }
            pass_key(&mut pins.merge, &iter.key)?;
            iter.settle_forward(pins, None, None)
        })
    }

    /// Moves to the previous key. Does nothing if the cursor is on no entry.
    ///
    /// # Errors
    /// See [`Cursor::first`].
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.leave_sought(true);
        self.move_by(|iter, pins| {
            if pins.direction != Direction::Backward {
                pins.merge.seek_before(&iter.key, Tag::seek(SeqNo::MAX))?;
                pins.direction = Direction::Backward;
            }
            iter.settle_backward(pins, None, None)
        })
    }

    /// Moves by `step`. Corruption found through a read-only handle is read again through fresh
    /// opens (`Engine::told_apart`).
    fn move_by(&mut self, step: impl Fn(&mut Self, &mut Pins) -> Result<()>) -> Result<()> {
        let was_valid = self.valid;
        self.step_by(&step).map_err(|error| {
            self.db.engine.told_apart(error, |fresh| {
                let (lower, upper, snapshot) = (self.lower.clone(), self.upper.clone(), None);
                let mut iter = Db::new(fresh.clone()).cursor_with(ReadOptions {
                    lower,
                    upper,
                    snapshot,
                })?;
                iter.key.clone_from(&self.key);
                iter.valid = was_valid;
                iter.step_by(&step)
            })
        })
    }

    /// Runs `step` on the pins, which are taken again if they were revoked.
    fn step_by(&mut self, step: impl Fn(&mut Self, &mut Pins) -> Result<()>) -> Result<()> {
        let shared = self.pins.clone();
        let mut slot = shared.lock();
        let was_valid = self.leave_entry();
        let engine = &self.db.engine;
        // Checked with the pins locked: closing takes each cursor's lock once, and so waits for its
        // last move.
        engine.calls.check()?;
        let revocations = engine.readers.revocations.load(Ordering::Relaxed);
        let is_older =
            |pins: &mut Pins| pins.revocations != revocations && !pins.are_of(&engine.state.load());
        if slot.take_if(is_older).is_some() {
            // A worker may be waiting for the state that the pins held.
            engine.executor.wake();
        }
        let pins = match &mut *slot {
            Some(pins) => pins,
            None => slot.insert(self.pin(was_valid)?),
        };
        (pins.last_tick, pins.revocations) = (
            engine.readers.idle_ticks.load(Ordering::Relaxed),
            revocations,
        );
        let moved = step(self, pins);
        if moved.is_err() {
            // The position of the merge is unknown after an error.
            *slot = None;
        }
        moved
    }

    /// Leaves the current entry. True if there was one. Its value goes now if it is large, because
    /// otherwise two of them would be in memory while the next one is read.
    fn leave_entry(&mut self) -> bool {
        self.large = None;
        if self.value.capacity() >= LARGE_BYTES {
            give_back_if_large(&mut std::mem::take(&mut self.value));
        }
        std::mem::replace(&mut self.valid, false)
    }

    fn pin(&self, was_valid: bool) -> Result<Pins> {
        let state = self.db.engine.state.load_full();
        let mut merge = MergeIter::new(children(&state)?);
        if was_valid {
            merge.seek(&self.key, Tag::seek(SeqNo::MAX))?;
        }
        Ok(Pins {
            merge,
            state,
            direction: Direction::Forward,
            last_tick: 0,
            revocations: 0,
        })
    }

    /// Takes the value of the merge's current entry, after which its block may be released.
    #[inline]
    fn take_value(
        value: &mut Vec<u8>,
        large: &mut Option<Value>,
        merge: &mut MergeIter,
    ) -> Result<()> {
        if let Some(at_hand) = merge.value_at_hand() {
            value.clear();
            value.extend_from_slice(at_hand);
            return Ok(());
        }
        merge.load()?;
        value.clear();
        *large = merge.large_value();
        if large.is_none() {
            value.extend_from_slice(merge.value());
        }
        merge.shed();
        Ok(())
    }

    /// Moves to the first visible key at or after `start`, which is empty for the first key of all.
    fn forward_from(&mut self, start: &[u8], pins: &mut Pins) -> Result<()> {
        pins.direction = Direction::Forward;
        let mut walk = None;
        if let Some(gap) = self.db.engine.commit.gaps.at(start, self.point.seqno) {
            walk.insert(Walk::forward(self.point.seqno, Some(start)))
                .pass(&gap);
            match &gap.to {
                Some(to) => pins.merge.seek(to, Tag::seek(SeqNo::MAX))?,
                None => return Ok(()),
            }
        } else if start.is_empty() {
            pins.merge.first()?;
        } else {
            pins.merge.seek(start, Tag::seek(SeqNo::MAX))?;
        }
        self.settle_forward(pins, Some(start), walk)
    }

    /// Moves to the last visible key before `border`, which is `None` for the last key of all.
    fn backward_from(&mut self, border: Option<&[u8]>, pins: &mut Pins) -> Result<()> {
        pins.direction = Direction::Backward;
        let start = Some(border);
        let mut walk = None;
        let gap = self.db.engine.commit.gaps.before(border, self.point.seqno);
        let border = match &gap {
            Some(gap) if gap.from.is_empty() => return Ok(()),
            Some(gap) => {
                walk.insert(Walk::backward(self.point.seqno, start))
                    .pass(gap);
                Some(gap.from.as_slice())
            }
            None => border,
        };
        match border {
            Some(border) => pins.merge.seek_before(border, Tag::seek(SeqNo::MAX))?,
            None => pins.merge.last()?,
        }
        self.settle_backward(pins, start, walk)
    }

    /// Moves forward from the merge's entry to the first key that is visible and not deleted.
    /// `start` is the key from which the caller sought, if any. `walk` is the way so far, if it
    /// passed deleted keys.
    fn settle_forward<'a>(
        &mut self,
        pins: &mut Pins,
        start: Option<&'a [u8]>,
        mut walk: Option<Walk<'a>>,
    ) -> Result<()> {
        let merge = &mut pins.merge;
        let commit = &self.db.engine.commit;
        let mut newer = 0;
        while let Some((key, tag)) = merge.entry() {
            if let Some(upper) = self.upper.as_deref().filter(|upper| key >= *upper) {
                Walk::end_at(walk, Some(upper), commit);
                return Ok(());
            }
            if tag.seqno() > self.point.seqno {
                newer += 1;
                if newer % STEPS_MAX == 0 {
                    // Probably many versions of one key, of which this read point sees an older
                    // one.
                    self.scratch.clear();
                    self.scratch.extend_from_slice(key);
                    merge.seek(&self.scratch, Tag::seek(self.point.seqno))?;
                } else {
                    merge.next()?;
                }
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(key);
            match known_kind(tag)? {
                Kind::Delete => {
                    let walk = walk.get_or_insert_with(|| Walk::forward(self.point.seqno, start));
                    match commit.gaps.at(&self.key, self.point.seqno) {
                        Some(gap) => {
                            walk.pass(&gap);
                            let Some(to) = gap.to else { break };
                            merge.seek(&to, Tag::seek(SeqNo::MAX))?;
                        }
                        None => {
                            walk.step_forward(&self.key);
                            pass_key(merge, &self.key)?;
                        }
                    }
                }
                _ => {
                    Walk::end_at(walk, Some(&self.key), commit);
                    Self::take_value(&mut self.value, &mut self.large, merge)?;
                    self.valid = true;
                    return Ok(());
                }
            }
        }
        Walk::end_at(walk, None, commit);
        Ok(())
    }

    /// Moves backward from the merge's entry to the first key that is visible and not deleted, and
    /// past all versions of that key.
    fn settle_backward<'a>(
        &mut self,
        pins: &mut Pins,
        start: Option<Option<&'a [u8]>>,
        mut walk: Option<Walk<'a>>,
    ) -> Result<()> {
        let merge = &mut pins.merge;
        while merge.valid() {
            if let Some(lower) = self
                .lower
                .as_ref()
                .filter(|lower| merge.key() < lower.as_slice())
            {
                Walk::begin_at(walk, || lower.clone(), &self.db.engine.commit);
                return Ok(());
            }
            self.scratch.clear();
            self.scratch.extend_from_slice(merge.key());
            if self.pass_versions_backward(merge)? {
                Walk::begin_at(walk, || behind(&self.scratch), &self.db.engine.commit);
                std::mem::swap(&mut self.key, &mut self.scratch);
                self.valid = true;
                return Ok(());
            }
            let walk = walk.get_or_insert_with(|| Walk::backward(self.point.seqno, start));
            match self
                .db
                .engine
                .commit
                .gaps
                .at(&self.scratch, self.point.seqno)
            {
                Some(gap) => {
                    walk.pass(&gap);
                    if gap.from.is_empty() {
                        break;
                    }
                    merge.seek_before(&gap.from, Tag::seek(SeqNo::MAX))?;
                }
                None => walk.step_backward(&self.scratch),
            }
        }
        Walk::begin_at(walk, Vec::new, &self.db.engine.commit);
        Ok(())
    }

    /// Moves the merge backward past all versions of the key in `scratch`. Returns true if the
    /// newest visible one is a put, whose value is then the cursor's.
    ///
    /// Versions come oldest first here, so the merge has passed a version before it is known to be
    /// the newest visible one. A value in a log is therefore read only afterwards. Reading each
    /// version on the way would cost one disk read for each value that is not returned.
    fn pass_versions_backward(&mut self, merge: &mut MergeIter) -> Result<bool> {
        let (mut found, mut place) = (false, None);
        let mut steps = 0;
        while merge.valid() && merge.key() == self.scratch {
            steps += 1;
            let jumps = steps > STEPS_MAX;
            if jumps {
                // Seeks straight to the newest visible version and skips the others.
                merge.seek(&self.scratch, Tag::seek(self.point.seqno))?;
                found = false;
                place = None;
            }
            if merge.valid()
                && merge.key() == self.scratch
                && merge.tag().seqno() <= self.point.seqno
            {
                found = known_kind(merge.tag())? != Kind::Delete;
                place = merge.place().filter(|_| found);
                self.large = None;
                self.value.clear();
                if found && place.is_none() {
                    Self::take_value(&mut self.value, &mut self.large, merge)?;
                }
            }
            if jumps {
                merge.seek_before(&self.scratch, Tag::seek(SeqNo::MAX))?;
                break;
            }
            merge.prev()?;
        }
        if let Some((at, seqno)) = place {
            // The merge has moved on, but the pins still hold the state with this place, so the
            // value is there.
            let values = self.db.engine.logs.values.as_ref();
            let values =
                values.ok_or_else(|| Error::invalid("this profile has no values in logs"))?;
            let value = values.get(at, seqno)?;
            match value.len() >= LARGE_BYTES {
                true => self.large = Some(value),
                false => self.value.extend_from_slice(&value),
            }
        }
        Ok(found)
    }
}

/// The number of versions of a key that are passed one by one. After that a seek is cheaper.
const STEPS_MAX: u32 = 8;

/// Moves past all remaining entries of `key`.
fn pass_key(merge: &mut MergeIter, key: &[u8]) -> Result<()> {
    let is_at_key = |merge: &MergeIter| merge.entry().is_some_and(|(at, _)| at == key);
    for _ in 0..STEPS_MAX {
        if !is_at_key(merge) {
            return Ok(());
        }
        merge.next()?;
    }
    // Tag 0 sorts after every entry of the key.
    match is_at_key(merge) {
        true => merge.seek(key, Tag(0)),
        false => Ok(()),
    }
}

fn known_kind(tag: Tag) -> Result<Kind> {
    tag.kind()
        .filter(|kind| *kind != Kind::Pointer)
        .ok_or_else(|| {
            let kind = tag.kind_byte();
            Error::corruption(
                "an entry",
                tag.seqno().0,
                format_args!("expected a put or delete, not kind {kind}"),
            )
        })
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("valid", &self.valid)
            .field("seqno", &self.point.seqno)
            .finish_non_exhaustive()
    }
}
