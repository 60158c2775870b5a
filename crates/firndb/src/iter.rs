//! Cursors over the database, both ways, at one read point.
//!
//! 1. A cursor sees the database as of its read point, which is registered while it lives.
//! 2. Its position is a user key of its own memory; the pins on buffers and tables underneath (`Pins`) are revocable: a
//!    cursor that idles on an old state has them taken away, and seeks again when it is next moved.
//! 3. After an error the cursor is on no entry.

use crate::db::{Db, Inner};
use crate::options::ReadOptions;
use crate::run_iter::{LevelIter, MergeIter, RunIter};
use crate::snapshot::Point;
use crate::state::ReadState;
use crate::tier::TierIter;
use firn_base::key::Kind;
use firn_base::sync::{Mutex, Ordering};
use firn_base::{Error, Result, SeqNo, Tag};
use firn_table::Value;
use firn_table::sst::Access;
use std::sync::{Arc, Weak};

/// What a cursor holds of the database. Taken away when it idles.
pub(crate) struct Pins {
    merge: MergeIter,
    state: Arc<ReadState>,
    direction: Direction,
    /// When it was last moved, in idle ticks.
    last_tick: u64,
    /// How many revocations there had been when it was taken.
    revocations: u64,
}

impl Pins {
    fn are_of(&self, state: &Arc<ReadState>) -> bool {
        Arc::ptr_eq(&self.state, state)
    }
}

/// The revocable part of a cursor.
pub(crate) type SharedPins = Mutex<Option<Pins>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// The merge is behind the current key's entries.
    Forward,
    /// The merge is in front of them.
    Backward,
}

/// A cursor. Create with [`crate::Db::iter`] and its siblings; it is on no entry until positioned.
pub struct Iter {
    db: Db,
    point: Arc<Point>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    pins: Arc<SharedPins>,
    key: Vec<u8>,
    value: Vec<u8>,
    valid: bool,
    /// A key that `prev` has read past while it looked for the one before.
    scratch: Vec<u8>,
}

impl Iter {
    pub(crate) fn new(db: Db, point: Arc<Point>, options: ReadOptions) -> Iter {
        let pins = Arc::new(Mutex::new(None));
        db.inner.register_iter(&pins);
        let ReadOptions { lower, upper, snapshot: _ } = options;
        Iter { db, point, lower, upper, pins, key: Vec::new(), value: Vec::new(), valid: false, scratch: Vec::new() }
    }

    /// Whether the cursor is on an entry.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key under the cursor; empty if there is none.
    pub fn key(&self) -> &[u8] {
        if self.valid { &self.key } else { &[] }
    }

    /// The value under the cursor; empty if there is none.
    pub fn value(&self) -> &[u8] {
        if self.valid { &self.value } else { &[] }
    }

    /// Goes to the first key within the bounds.
    ///
    /// # Errors
    /// `Corruption` and `Io`, naming the file; likewise for every method that moves.
    pub fn first(&mut self) -> Result<()> {
        let lower = self.lower.take();
        let result = self.move_by(|iter, pins| {
            match &lower {
                Some(key) => pins.merge.seek(key, Tag::seek(SeqNo::MAX))?,
                None => pins.merge.first()?,
            }
            pins.direction = Direction::Forward;
            iter.settle_forward(pins)
        });
        self.lower = lower;
        result
    }

    /// Goes to the last key within the bounds.
    ///
    /// # Errors
    /// See [`Iter::first`].
    pub fn last(&mut self) -> Result<()> {
        let upper = self.upper.take();
        let result = self.move_by(|iter, pins| {
            match &upper {
                Some(key) => pins.merge.seek_before(key, Tag::seek(SeqNo::MAX))?,
                None => pins.merge.last()?,
            }
            pins.direction = Direction::Backward;
            iter.settle_backward(pins)
        });
        self.upper = upper;
        // The bounds were set aside so that they could be borrowed; the lower one is checked by `settle_backward`.
        result
    }

    /// Goes to the first key at or behind `key`, within the bounds.
    ///
    /// # Errors
    /// See [`Iter::first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let target = match &self.lower {
            Some(lower) if lower.as_slice() > key.as_ref() => lower.clone(),
            _ => key.as_ref().to_vec(),
        };
        self.move_by(|iter, pins| {
            pins.merge.seek(&target, Tag::seek(SeqNo::MAX))?;
            pins.direction = Direction::Forward;
            iter.settle_forward(pins)
        })
    }

    /// Goes to the last key at or before `key`, within the bounds.
    ///
    /// # Errors
    /// See [`Iter::first`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let (target, tag) = match &self.upper {
            Some(upper) if upper.as_slice() <= key.as_ref() => (upper.clone(), Tag::seek(SeqNo::MAX)),
            // Tag 0 is behind every entry of the key.
            _ => (key.as_ref().to_vec(), Tag(0)),
        };
        self.move_by(|iter, pins| {
            pins.merge.seek_before(&target, tag)?;
            pins.direction = Direction::Backward;
            iter.settle_backward(pins)
        })
    }

    /// Goes to the next key. Does nothing if the cursor is on none.
    ///
    /// # Errors
    /// See [`Iter::first`].
    #[expect(clippy::should_implement_trait, reason = "a cursor's `next` borrows its entry; see `Iter::entries`")]
    pub fn next(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.move_by(|iter, pins| {
            if pins.direction == Direction::Backward {
                pins.merge.seek(&iter.key, Tag(0))?;
                pins.direction = Direction::Forward;
            }
            pass_key(&mut pins.merge, &iter.key)?;
            iter.settle_forward(pins)
        })
    }

    /// Goes to the key before. Does nothing if the cursor is on none.
    ///
    /// # Errors
    /// See [`Iter::first`].
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.move_by(|iter, pins| {
            if pins.direction == Direction::Forward {
                pins.merge.seek_before(&iter.key, Tag::seek(SeqNo::MAX))?;
                pins.direction = Direction::Backward;
            }
            iter.settle_backward(pins)
        })
    }

    /// The entries from the first on, as owned pairs.
    pub fn entries(mut self) -> impl Iterator<Item = Result<(Vec<u8>, Value)>> {
        let mut started = false;
        std::iter::from_fn(move || {
            let moved = if std::mem::replace(&mut started, true) { self.next() } else { self.first() };
            match moved {
                Err(error) => Some(Err(error)),
                Ok(()) => self.valid.then(|| Ok((self.key.clone(), Value::owned(self.value.clone())))),
            }
        })
    }

    /// Runs `step` on the pins, taken anew if they were revoked.
    fn move_by(&mut self, step: impl FnOnce(&mut Self, &mut Pins) -> Result<()>) -> Result<()> {
        let shared = self.pins.clone();
        let mut slot = shared.lock();
        let was_valid = std::mem::replace(&mut self.valid, false);
        let inner = &self.db.inner;
        // With the lock on the pins: closing takes it once for each cursor, and waits so for the last move.
        inner.calls.check()?;
        let revocations = inner.readers.revocations.load(Ordering::Relaxed);
        let is_older = |pins: &mut Pins| pins.revocations != revocations && !pins.are_of(&inner.state.load());
        if slot.take_if(is_older).is_some() {
            // Somebody waits for what it held.
            inner.executor.wake();
        }
        let mut pins = match slot.take() {
            Some(pins) => pins,
            None => self.pin(was_valid)?,
        };
        (pins.last_tick, pins.revocations) = (inner.readers.idle_ticks.load(Ordering::Relaxed), revocations);
        step(self, &mut pins)?;
        *slot = Some(pins);
        Ok(())
    }

    fn pin(&self, was_valid: bool) -> Result<Pins> {
        let state = self.db.inner.state.load_full();
        let mut merge = MergeIter::new(children(&state)?);
        if was_valid {
            merge.seek(&self.key, Tag::seek(SeqNo::MAX))?;
        }
        Ok(Pins { merge, state, direction: Direction::Forward, last_tick: 0, revocations: 0 })
    }

    /// From an entry on, goes to the first key that is visible and not deleted.
    fn settle_forward(&mut self, pins: &mut Pins) -> Result<()> {
        let merge = &mut pins.merge;
        let mut newer = 0;
        while merge.valid() {
            if self.upper.as_ref().is_some_and(|upper| merge.key() >= upper.as_slice()) {
                return Ok(());
            }
            if merge.tag().seqno() > self.point.seqno {
                newer += 1;
                if newer % STEPS_MAX == 0 {
                    // Versions of one key, perhaps, and this point sees an older one.
                    self.scratch.clear();
                    self.scratch.extend_from_slice(merge.key());
                    merge.seek(&self.scratch, Tag::seek(self.point.seqno))?;
                } else {
                    merge.next()?;
                }
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(merge.key());
            match known_kind(merge.tag())? {
                Kind::Delete => pass_key(merge, &self.key)?,
                _ => {
                    merge.load()?;
                    self.value.clear();
                    self.value.extend_from_slice(merge.value());
                    self.valid = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// From an entry back, goes to the first key that is visible and not deleted, and past all its entries.
    ///
    /// Versions come oldest first here, and the newest visible one counts. Which one that is shows only when the merge
    /// has passed it. So a value in a log is read then, and no other: reading every version on the way would cost a
    /// disk read for values nobody asked for.
    fn settle_backward(&mut self, pins: &mut Pins) -> Result<()> {
        let merge = &mut pins.merge;
        while merge.valid() {
            if self.lower.as_ref().is_some_and(|lower| merge.key() < lower.as_slice()) {
                return Ok(());
            }
            self.scratch.clear();
            self.scratch.extend_from_slice(merge.key());
            let (mut found, mut place) = (false, None);
            let mut steps = 0;
            while merge.valid() && merge.key() == self.scratch {
                steps += 1;
                if steps > STEPS_MAX {
                    // Straight to the version that counts, and past the others.
                    merge.seek(&self.scratch, Tag::seek(self.point.seqno))?;
                    found = merge.valid() && merge.key() == self.scratch && known_kind(merge.tag())? != Kind::Delete;
                    place = merge.place().filter(|_| found);
                    self.value.clear();
                    self.value.extend_from_slice(if found && place.is_none() { merge.value() } else { &[] });
                    merge.seek_before(&self.scratch, Tag::seek(SeqNo::MAX))?;
                    break;
                }
                if merge.tag().seqno() <= self.point.seqno {
                    found = known_kind(merge.tag())? != Kind::Delete;
                    place = merge.place();
                    self.value.clear();
                    self.value.extend_from_slice(if found && place.is_none() { merge.value() } else { &[] });
                }
                merge.prev()?;
            }
            if found {
                if let Some((at, seqno)) = place {
                    // The merge has moved on, but the pins still hold the state with this place, so the value is there.
                    let values = self.db.inner.logs.values.as_ref();
                    let values = values.ok_or_else(|| Error::invalid("this profile has no values in logs"))?;
                    self.value.extend_from_slice(&values.get(at, seqno)?);
                }
                std::mem::swap(&mut self.key, &mut self.scratch);
                self.valid = true;
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Versions of a key that are passed one by one; behind so many a search is cheaper, however many more there are.
const STEPS_MAX: u32 = 8;

/// Goes past all entries of `key` that lie ahead.
fn pass_key(merge: &mut MergeIter, key: &[u8]) -> Result<()> {
    for _ in 0..STEPS_MAX {
        if !merge.valid() || merge.key() != key {
            return Ok(());
        }
        merge.next()?;
    }
    // Tag 0 is behind every entry of the key.
    if merge.valid() && merge.key() == key { merge.seek(key, Tag(0)) } else { Ok(()) }
}

fn known_kind(tag: Tag) -> Result<Kind> {
    tag.kind().filter(|kind| *kind != Kind::Pointer).ok_or_else(|| {
        let kind = tag.kind_byte();
        Error::corruption("an entry", tag.seqno().0, format_args!("expected a put or delete, not kind {kind}"))
    })
}

fn children(state: &ReadState) -> Result<Vec<RunIter>> {
    let mut children = Vec::new();
    for part in state.parts.iter() {
        children.extend(part.buffers.iter().map(|buffer| RunIter::Buffer(buffer.iter())));
        if let Some(trees) = &part.trees {
            children.extend(TierIter::all(trees).map(|iter| RunIter::Tier(Box::new(iter))));
        }
        for level in &part.levels {
            if level.sorted {
                if !level.runs.is_empty() {
                    let level = LevelIter::new(level.clone(), Access::Cached);
                    children.push(RunIter::Level(Box::new(level)));
                }
                continue;
            }
            for run in &level.runs {
                children.push(RunIter::Sst(Box::new(run.table()?.iter(Access::Cached))));
            }
        }
    }
    Ok(children)
}

impl Inner {
    /// Takes the pins of cursors on older states that were not moved since tick `since`. False if one was being moved.
    pub(crate) fn revoke_cursors(&self, since: u64) -> bool {
        let iters: Vec<_> = self.readers.iters.lock().iter().filter_map(Weak::upgrade).collect();
        let current = self.state.load_full();
        let mut all = true;
        for pins in iters {
            match pins.try_lock() {
                Some(mut slot) => drop(slot.take_if(|held| held.last_tick < since && !held.are_of(&current))),
                None => all = false,
            }
        }
        all
    }

    /// Has every cursor let go of its older state; one that is being moved does when it is moved again.
    pub(crate) fn revoke_all_cursors(&self) {
        if !self.revoke_cursors(u64::MAX) {
            self.readers.revocations.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("valid", &self.valid).field("seqno", &self.point.seqno).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::Options;

    /// Revokes while `iter` is being moved, as far as that can be told, and moves it.
    fn revoke_and_move(db: &Db, iter: &mut Iter) {
        let shared = iter.pins.clone();
        let moving = shared.lock();
        db.inner.revoke_all_cursors();
        drop(moving);
        iter.next().unwrap();
    }

    #[test]
    fn a_cursor_that_goes_on_lets_go_of_an_older_state_alone() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), Options::tiny()).unwrap();
        (0..9_u8).for_each(|i| db.put([i], [i]).unwrap());
        let mut iter = db.iter().unwrap();
        iter.first().unwrap();
        let held = |iter: &Iter| Arc::downgrade(&iter.pins.lock().as_ref().unwrap().state);
        let first = held(&iter);
        revoke_and_move(&db, &mut iter);
        assert!(first.ptr_eq(&held(&iter)), "it held what is there");
        db.put([3], [99]).unwrap();
        db.flush().unwrap();
        assert!(first.upgrade().is_some());
        revoke_and_move(&db, &mut iter);
        assert!(!first.ptr_eq(&held(&iter)), "somebody waits for what it held");
        let rest: Vec<u8> = std::iter::from_fn(|| {
            let value = iter.valid().then(|| iter.value()[0])?;
            iter.next().unwrap();
            Some(value)
        })
        .collect();
        assert_eq!(rest, [2, 3, 4, 5, 6, 7, 8], "as of the time that it was made");
    }

    /// A key that was written often costs a cursor a search, not a step for each version: both ways, at the present and
    /// at a snapshot in between, with versions in a buffer and in tables.
    #[test]
    fn versions_of_a_key_are_passed_by_a_search() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), Options { write_buffer_bytes: Some(128 << 10), ..Options::tiny() }).unwrap();
        let process = crate::WriteOptions { durability: crate::Durability::Process };
        let raise = |from: u32, to: u32| {
            for round in from..to {
                for key in [b"b", b"d", b"f"] {
                    db.put_with(key, round.to_be_bytes(), &process).unwrap();
                }
                db.delete_with(b"c", &process).unwrap();
            }
        };
        for key in [b"a", b"c", b"e", b"g"] {
            db.put(key, b"once").unwrap();
        }
        let before = db.snapshot();
        raise(0, 200);
        let middle = db.snapshot();
        raise(200, 500);
        let entry = |key: &str, value: &[u8]| (key.as_bytes().to_vec(), value.to_vec());
        let at = |round: u32| {
            let raised = round.to_be_bytes();
            let entry = |key| entry(key, &raised);
            let once = |key| (key_of(key), b"once".to_vec());
            vec![once("a"), entry("b"), entry("d"), once("e"), entry("f"), once("g")]
        };
        let first = ["a", "c", "e", "g"].map(|key| (key_of(key), b"once".to_vec())).to_vec();
        let check = || {
            for (iter, want) in [
                (before.iter().unwrap(), first.clone()),
                (middle.iter().unwrap(), at(199)),
                (db.iter().unwrap(), at(499)),
            ] {
                let (mut forward, mut backward) = (Vec::new(), Vec::new());
                let mut iter = iter;
                iter.first().unwrap();
                while iter.valid() {
                    forward.push((iter.key().to_vec(), iter.value().to_vec()));
                    iter.next().unwrap();
                }
                iter.last().unwrap();
                while iter.valid() {
                    backward.push((iter.key().to_vec(), iter.value().to_vec()));
                    iter.prev().unwrap();
                }
                backward.reverse();
                assert_eq!(forward, want);
                assert_eq!(backward, want);
            }
        };
        check();
        db.flush().unwrap();
        check();
    }

    fn key_of(key: &str) -> Vec<u8> {
        key.as_bytes().to_vec()
    }
}
