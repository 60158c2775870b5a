//! The crash model: for each line its durable bytes and the ordered versions stored since.
//!
//! 1. A fence by thread T makes durable, for each line, the newest version that T flushed (or
//!    copied past the cache). Older versions can no longer come back. A version stored after the
//!    flush may still persist or not.
//! 2. In eADR mode the cache itself is durable: stores are durable at once and in order; copies
//!    past the cache still wait for the fence.
//! 3. A crash point holds the changes since the previous one, not the whole memory, so a run costs
//!    what it writes.
//!
//! Thread safety: one lock, which is also held for the real store, so that versions have the order
//! of the memory.

use crate::line::{LINE_BYTES, LineRange, line_range};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The source of stores, flushes and fences: a thread, or the actor it stands in for.
type Actor = u64;

static NEXT_ACTOR: AtomicU64 = AtomicU64::new(1 << 32);

thread_local! {
    static ACTOR: Cell<Actor> = Cell::new(NEXT_ACTOR.fetch_add(1, Ordering::Relaxed));
}

fn actor() -> Actor {
    ACTOR.get()
}

/// Runs `body` as another thread from the viewpoint of simulated memory: a fence covers only the
/// flushes of the same `actor`. So one thread, directed by a seed, can produce the interleavings of
/// several.
pub fn act_as<R>(actor: u32, body: impl FnOnce() -> R) -> R {
    let before = ACTOR.replace(Actor::from(actor));
    let result = body();
    ACTOR.set(before);
    result
}

/// The bytes of one line.
pub(crate) type LineBytes = [u8; LINE_BYTES as usize];

/// The effect of a power cut on caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Whole lines persist or not.
    #[default]
    Adr,
    /// Each aligned 8-byte word of a line persists or not independently.
    TornAdr,
    /// The cache is drained on power loss: stores are durable at once, copies past the cache after
    /// the fence.
    Eadr,
}

/// The place of an imagined power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Just before the fence with this number.
    BeforeFence(u64),
    /// Just before the store with this number.
    BeforeStore(u64),
    /// At the end of an operation.
    EndOfOperation,
    /// At a moment chosen by the test.
    Asked,
}

/// All possible contents of memory after a cut at one moment, relative to the previous point.
#[derive(Debug, Clone)]
pub(crate) struct CrashPoint {
    pub(crate) at: Instruction,
    /// Operations that had ended by then.
    pub(crate) operations: u64,
    /// Lines that became durable since the previous point.
    pub(crate) settled: Vec<(u64, LineBytes)>,
    pub(crate) lines: Vec<PendingLine>,
    /// Length of the memory.
    pub(crate) len: u64,
}

/// A line with versions that may or may not be durable.
#[derive(Debug, Clone)]
pub(crate) struct PendingLine {
    pub(crate) line: u64,
    pub(crate) versions: Vec<Version>,
    pub(crate) is_streamed: bool,
}

/// The contents of a line after one store.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) bytes: LineBytes,
    pub(crate) store: Store,
}

/// One store, for the report of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) number: u64,
    pub(crate) operation: u64,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

#[derive(Debug)]
struct Line {
    versions: Vec<Version>,
    /// A thread, and the number of versions that its flushes cover.
    pins: Vec<(Actor, usize)>,
    is_streamed: bool,
}

/// A callback that runs just before some store or fence.
struct Trap {
    left: u64,
    spring: Box<dyn FnOnce(&State) + Send>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) durable: Vec<u8>,
    lines: BTreeMap<u64, Line>,
    pub(crate) points: Vec<CrashPoint>,
    /// Lines that became durable since the last point.
    settled: Vec<u64>,
    /// Lines stored to since the last [`Tracker::reset`].
    touched: Vec<u64>,
    trap: Option<Trap>,
    /// Stores are durable at once and only their lines are recorded, because this memory will not
    /// be cut.
    is_stage: bool,
    /// Called at each crash point. `None` if points are not recorded.
    pub(crate) beside: Option<Box<dyn FnMut() + Send>>,
    pub(crate) at_every_store: bool,
    pub(crate) operations: u64,
    pub(crate) stores: u64,
    pub(crate) flushes: u64,
    pub(crate) fences: u64,
}

pub(crate) struct Tracker {
    mode: Mode,
    pub(crate) state: Mutex<State>,
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracker")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Tracker {
    pub(crate) fn new(bytes: Vec<u8>, mode: Mode) -> Self {
        Self {
            mode,
            state: Mutex::new(State {
                durable: bytes,
                ..State::default()
            }),
        }
    }

    /// Memory that shows images and will not be cut.
    pub(crate) fn stage(bytes: Vec<u8>, mode: Mode) -> Self {
        Self {
            mode,
            state: Mutex::new(State {
                durable: bytes,
                is_stage: true,
                ..State::default()
            }),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// The bytes that are certainly durable.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.state.lock().durable.clone()
    }

    /// The bytes as a load sees them.
    pub(crate) fn visible(&self) -> Vec<u8> {
        let state = self.state.lock();
        let mut bytes = state.durable.clone();
        for (&at, line) in &state.lines {
            if let Some(newest) = line.versions.last() {
                bytes[at as usize..][..LINE_BYTES as usize].copy_from_slice(&newest.bytes);
            }
        }
        bytes
    }

    pub(crate) fn grow(&self, new_len: u64) {
        self.state.lock().durable.resize(new_len as usize, 0);
    }

    /// Records a store; `raw` makes the real one.
    pub(crate) fn store(&self, at: u64, bytes: &[u8], raw: impl FnOnce()) {
        let mut state = self.state.lock();
        state.before_store();
        state.add_versions(at, bytes, self.mode == Mode::Eadr, false);
        raw();
    }

    /// Records a copy of whole lines past the cache; `raw` makes it.
    pub(crate) fn stream(&self, at: u64, bytes: &[u8], raw: impl FnOnce()) {
        let mut state = self.state.lock();
        state.before_store();
        state.add_versions(at, bytes, false, true);
        raw();
    }

    pub(crate) fn flush(&self, lines: LineRange) {
        let mut state = self.state.lock();
        state.flushes += 1;
        let me = actor();
        for line in lines {
            if let Some(line) = state.lines.get_mut(&line) {
                line.pin(me);
            }
        }
    }

    pub(crate) fn fence(&self) {
        let mut state = self.state.lock();
        state.count_down();
        let number = state.fences;
        state.record(Instruction::BeforeFence(number));
        state.fences += 1;
        let me = actor();
        let State {
            lines,
            durable,
            settled,
            ..
        } = &mut *state;
        lines.retain(|&at, line| {
            let Some(&(_, covered)) = line.pins.iter().find(|(thread, _)| *thread == me) else {
                return true;
            };
            durable[at as usize..][..LINE_BYTES as usize]
                .copy_from_slice(&line.versions[covered - 1].bytes);
            settled.push(at);
            line.versions.drain(..covered);
            line.pins.retain_mut(|(_, other)| {
                *other = other.saturating_sub(covered);
                *other > 0
            });
            !line.versions.is_empty()
        });
    }

    /// Offsets of the lines that are not certainly durable.
    pub(crate) fn pending_lines(&self) -> Vec<u64> {
        self.state.lock().lines.keys().copied().collect()
    }

    /// Calls `spring` just before the `count`-th store or fence from now, with the lock held.
    pub(crate) fn trap(&self, count: u64, spring: Box<dyn FnOnce(&State) + Send>) {
        self.state.lock().trap = Some(Trap {
            left: count,
            spring,
        });
    }

    /// Forgets the history. Returns the lines that were stored to. The durable bytes stay.
    pub(crate) fn reset(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        let touched = std::mem::take(&mut state.touched);
        let durable = std::mem::take(&mut state.durable);
        *state = State {
            durable,
            is_stage: state.is_stage,
            ..State::default()
        };
        touched
    }
}

impl Line {
    fn pin(&mut self, thread: Actor) {
        let covered = self.versions.len();
        match self
            .pins
            .iter_mut()
            .find(|(pinned_by, _)| *pinned_by == thread)
        {
            Some(pin) => pin.1 = covered,
            None => self.pins.push((thread, covered)),
        }
    }
}

impl State {
    fn before_store(&mut self) {
        self.count_down();
        if self.at_every_store {
            self.record(Instruction::BeforeStore(self.stores));
        }
        self.stores += 1;
    }

    fn count_down(&mut self) {
        let Some(trap) = &mut self.trap else { return };
        trap.left -= 1;
        if trap.left == 0
            && let Some(trap) = self.trap.take()
        {
            (trap.spring)(self);
        }
    }

    fn add_versions(&mut self, at: u64, bytes: &[u8], durable_at_once: bool, is_streamed: bool) {
        let me = actor();
        let end = at + bytes.len() as u64;
        if end > self.durable.len() as u64 {
            return;
        }
        let store = Store {
            number: self.stores - 1,
            operation: self.operations,
            at,
            len: bytes.len() as u64,
        };
        for line_at in line_range(at, bytes.len() as u64) {
            self.touched.push(line_at);
            let home = &mut self.durable[line_at as usize..][..LINE_BYTES as usize];
            let (from, to) = (at.max(line_at), end.min(line_at + LINE_BYTES));
            let part = &bytes[(from - at) as usize..(to - at) as usize];
            let place = (from - line_at) as usize..(to - line_at) as usize;
            if self.is_stage {
                home[place].copy_from_slice(part);
                continue;
            }
            if durable_at_once && !self.lines.contains_key(&line_at) {
                home[place].copy_from_slice(part);
                self.settled.push(line_at);
                continue;
            }
            let line = self.lines.entry(line_at).or_insert(Line {
                versions: Vec::new(),
                pins: Vec::new(),
                is_streamed,
            });
            let mut bytes = [0; LINE_BYTES as usize];
            bytes.copy_from_slice(line.versions.last().map_or(home, |newest| &newest.bytes));
            bytes[place].copy_from_slice(part);
            line.versions.push(Version { bytes, store });
            line.is_streamed |= is_streamed;
            if is_streamed || durable_at_once {
                line.pin(me);
            }
        }
    }

    /// Takes over the pending lines of a point from a process that ended there. No flush is in
    /// progress.
    pub(crate) fn inherit(&mut self, point: &CrashPoint) {
        let line = |pending: &PendingLine| {
            let PendingLine {
                line,
                versions,
                is_streamed,
            } = pending.clone();
            (
                line,
                Line {
                    versions,
                    pins: Vec::new(),
                    is_streamed,
                },
            )
        };
        self.lines = point.lines.iter().map(line).collect();
    }

    /// Records a crash point, if they are recorded.
    pub(crate) fn record(&mut self, at: Instruction) {
        let Some(beside) = &mut self.beside else {
            return;
        };
        beside();
        let mut settled = std::mem::take(&mut self.settled);
        settled.sort_unstable();
        settled.dedup();
        let line = |at: u64| {
            let mut bytes = [0; LINE_BYTES as usize];
            bytes.copy_from_slice(&self.durable[at as usize..][..LINE_BYTES as usize]);
            (at, bytes)
        };
        let settled = settled.into_iter().map(line).collect();
        let point = CrashPoint {
            settled,
            ..self.point(at)
        };
        self.points.push(point);
    }

    /// Everything that a cut now could leave besides the durable bytes.
    pub(crate) fn point(&self, at: Instruction) -> CrashPoint {
        let lines = self.lines.iter().map(|(&line, state)| PendingLine {
            line,
            versions: state.versions.clone(),
            is_streamed: state.is_streamed,
        });
        let lines = lines.collect();
        CrashPoint {
            at,
            operations: self.operations,
            settled: Vec::new(),
            lines,
            len: self.durable.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests;
