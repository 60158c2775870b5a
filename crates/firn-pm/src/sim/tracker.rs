//! The crash model: per line its durable bytes and the ordered versions stored since.
//!
//! 1. A fence by thread T makes durable, for each line, the newest version that T flushed (or copied past the cache);
//!    older versions can no longer come back. A version stored after the flush stays free.
//! 2. In eADR mode the cache itself is durable: stores are durable at once, in order; copies past the cache still wait
//!    for the fence.
//!
//! Thread safety: one lock, under which the real store is made too, so that versions are in the order of the memory.

use crate::line::{LINE_BYTES, LineRange, line_range};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::thread::ThreadId;

/// What a power cut does to caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Whole lines persist or not.
    #[default]
    Adr,
    /// Each aligned 8-byte word of a line persists or not by itself.
    TornAdr,
    /// The cache is drained on power loss: what was stored is durable, copies past the cache after the fence.
    Eadr,
}

/// What is left out on purpose, to see that a test notices. Counted from 0 over the whole script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The n-th flush does nothing.
    SkipFlush(u64),
    /// The n-th fence does nothing.
    SkipFence(u64),
}

/// Where a power cut is imagined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Just before the fence with this number.
    BeforeFence(u64),
    /// Just before the store with this number.
    BeforeStore(u64),
    /// At the end of an operation.
    EndOfOperation,
    /// Where the test said so.
    Asked,
}

/// All that memory could be after a cut at one moment.
#[derive(Debug, Clone)]
pub struct CrashPoint {
    /// The moment.
    pub at: Instruction,
    /// Operations that had ended by then.
    pub operations: u64,
    pub(crate) durable: Vec<u8>,
    pub(crate) lines: Vec<PendingLine>,
}

/// A line with versions that may or may not be durable.
#[derive(Debug, Clone)]
pub(crate) struct PendingLine {
    pub(crate) line: u64,
    pub(crate) versions: Vec<[u8; LINE_BYTES as usize]>,
    pub(crate) is_streamed: bool,
}

#[derive(Debug)]
struct Line {
    versions: Vec<[u8; LINE_BYTES as usize]>,
    /// Thread, and how many of the versions its flushes cover.
    pins: Vec<(ThreadId, usize)>,
    is_streamed: bool,
}

/// Gets each crash point as it is met.
pub(crate) type Observer = Box<dyn FnMut(CrashPoint) + Send>;

#[derive(Default)]
pub(crate) struct State {
    durable: Vec<u8>,
    lines: BTreeMap<u64, Line>,
    pub(crate) points: Vec<CrashPoint>,
    pub(crate) observer: Option<Observer>,
    pub(crate) is_recording: bool,
    pub(crate) at_every_store: bool,
    pub(crate) mutation: Option<Mutation>,
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
        f.debug_struct("Tracker").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Tracker {
    pub(crate) fn new(bytes: Vec<u8>, mode: Mode) -> Self {
        Self { mode, state: Mutex::new(State { durable: bytes, ..State::default() }) }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// The bytes that are durable for certain.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.state.lock().durable.clone()
    }

    pub(crate) fn grow(&self, new_len: u64) {
        self.state.lock().durable.resize(new_len as usize, 0);
    }

    /// `raw` makes the real store.
    pub(crate) fn store(&self, at: u64, bytes: &[u8], raw: impl FnOnce()) {
        let mut state = self.state.lock();
        state.before_store();
        state.add_versions(at, bytes, self.mode == Mode::Eadr, false);
        raw();
    }

    /// A copy of whole lines past the cache; `raw` makes it.
    pub(crate) fn stream(&self, at: u64, bytes: &[u8], raw: impl FnOnce()) {
        let mut state = self.state.lock();
        state.before_store();
        state.add_versions(at, bytes, false, true);
        raw();
    }

    pub(crate) fn flush(&self, lines: LineRange) {
        let mut state = self.state.lock();
        let number = state.flushes;
        state.flushes += 1;
        if state.mutation == Some(Mutation::SkipFlush(number)) {
            return;
        }
        let me = std::thread::current().id();
        for line in lines {
            if let Some(line) = state.lines.get_mut(&line) {
                line.pin(me);
            }
        }
    }

    pub(crate) fn fence(&self) {
        let mut state = self.state.lock();
        let number = state.fences;
        if state.is_recording {
            state.record(Instruction::BeforeFence(number));
        }
        state.fences += 1;
        if state.mutation == Some(Mutation::SkipFence(number)) {
            return;
        }
        let me = std::thread::current().id();
        let State { lines, durable, .. } = &mut *state;
        lines.retain(|&at, line| {
            let Some(&(_, covered)) = line.pins.iter().find(|(thread, _)| *thread == me) else { return true };
            durable[at as usize..][..LINE_BYTES as usize].copy_from_slice(&line.versions[covered - 1]);
            line.versions.drain(..covered);
            line.pins.retain_mut(|(_, other)| {
                *other = other.saturating_sub(covered);
                *other > 0
            });
            !line.versions.is_empty()
        });
    }

    /// Offsets of the lines that are not durable for certain.
    pub(crate) fn pending_lines(&self) -> Vec<u64> {
        self.state.lock().lines.keys().copied().collect()
    }
}

impl Line {
    fn pin(&mut self, thread: ThreadId) {
        let covered = self.versions.len();
        match self.pins.iter_mut().find(|(pinned_by, _)| *pinned_by == thread) {
            Some(pin) => pin.1 = covered,
            None => self.pins.push((thread, covered)),
        }
    }
}

impl State {
    fn before_store(&mut self) {
        if self.is_recording && self.at_every_store {
            self.record(Instruction::BeforeStore(self.stores));
        }
        self.stores += 1;
    }

    fn add_versions(&mut self, at: u64, bytes: &[u8], durable_at_once: bool, is_streamed: bool) {
        let me = std::thread::current().id();
        let end = at + bytes.len() as u64;
        if end > self.durable.len() as u64 {
            return;
        }
        for line_at in line_range(at, bytes.len() as u64) {
            let home = &mut self.durable[line_at as usize..][..LINE_BYTES as usize];
            let (from, to) = (at.max(line_at), end.min(line_at + LINE_BYTES));
            let part = &bytes[(from - at) as usize..(to - at) as usize];
            let place = (from - line_at) as usize..(to - line_at) as usize;
            if durable_at_once && !self.lines.contains_key(&line_at) {
                home[place].copy_from_slice(part);
                continue;
            }
            let line =
                self.lines.entry(line_at).or_insert(Line { versions: Vec::new(), pins: Vec::new(), is_streamed });
            let mut version = [0; LINE_BYTES as usize];
            version.copy_from_slice(line.versions.last().map_or(home, |newest| newest));
            version[place].copy_from_slice(part);
            line.versions.push(version);
            line.is_streamed |= is_streamed;
            if is_streamed || durable_at_once {
                line.pin(me);
            }
        }
    }

    pub(crate) fn record(&mut self, at: Instruction) {
        let point = self.point(at);
        match &mut self.observer {
            Some(observer) => observer(point),
            None => self.points.push(point),
        }
    }

    /// What a cut now could leave.
    pub(crate) fn point(&self, at: Instruction) -> CrashPoint {
        let lines = self.lines.iter().map(|(&line, state)| PendingLine {
            line,
            versions: state.versions.clone(),
            is_streamed: state.is_streamed,
        });
        let lines = lines.collect();
        CrashPoint { at, operations: self.operations, durable: self.durable.clone(), lines }
    }
}

#[cfg(test)]
mod tests;
