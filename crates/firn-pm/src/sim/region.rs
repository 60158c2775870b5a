//! Simulated memory, as held by a test.

use super::images::{Delta, draw};
use super::tracker::{CrashPoint, Instruction, LineBytes, Mode, Tracker};
use crate::line::LINE_BYTES;
use crate::region::Region;
use firn_base::Result;
use std::sync::{Arc, OnceLock};

/// Memory in which every store, flush and fence is recorded. Open a pool on it with
/// [`crate::Pool::open_simulated`]. Clones share the memory and its history. A second pool opened
/// on it finds the bytes that the first left.
#[derive(Debug, Clone)]
pub struct SimRegion {
    tracker: Arc<Tracker>,
    mapped: Arc<OnceLock<Arc<Region>>>,
}

/// All possible contents of memory after a cut at one moment.
#[derive(Debug, Clone)]
pub struct Cut {
    durable: Vec<u8>,
    point: CrashPoint,
    mode: Mode,
}

impl Cut {
    /// One image that this cut may leave, drawn by `seed`. Seed 0 persists nothing, seed 1
    /// everything.
    pub fn image(&self, seed: u64) -> Vec<u8> {
        let mut image = self.durable.clone();
        apply(
            &mut image,
            &draw(&self.durable, &self.point, self.mode, seed),
        );
        image
    }

    /// The memory that the next process finds if only the process ended: everything that was
    /// stored. A later power cut may lose what this one could have lost.
    pub fn killed(&self) -> SimRegion {
        let tracker = Tracker::new(self.durable.clone(), self.mode);
        tracker.state.lock().inherit(&self.point);
        SimRegion {
            tracker: Arc::new(tracker),
            mapped: Arc::default(),
        }
    }

    /// The memory that the next boot of the machine finds; `seed` as for [`Cut::image`].
    pub fn power_cut(&self, seed: u64) -> SimRegion {
        SimRegion::from_image(self.image(seed), self.mode)
    }

    /// The number of lines that it could lose.
    pub fn pending(&self) -> usize {
        self.point.lines.len()
    }
}

/// Writes the lines of `delta` to `memory`.
pub(super) fn apply(memory: &mut [u8], delta: &Delta) {
    for (at, bytes) in delta {
        memory[*at as usize..][..LINE_BYTES as usize].copy_from_slice(bytes);
    }
}

impl SimRegion {
    /// Zeroed memory of `bytes`.
    pub fn new(bytes: u64, mode: Mode) -> Self {
        Self::from_image(vec![0; bytes as usize], mode)
    }

    /// Memory that holds `image`, all of it durable, as after a power cut.
    pub fn from_image(image: Vec<u8>, mode: Mode) -> Self {
        Self {
            tracker: Arc::new(Tracker::new(image, mode)),
            mapped: Arc::default(),
        }
    }

    /// Memory that holds `image` and keeps no history, because it will not be cut.
    pub(super) fn stage(image: Vec<u8>, mode: Mode) -> Self {
        Self {
            tracker: Arc::new(Tracker::stage(image, mode)),
            mapped: Arc::default(),
        }
    }

    pub(crate) fn region(&self) -> Result<Arc<Region>> {
        if let Some(region) = self.mapped.get() {
            return Ok(region.clone());
        }
        let region = Arc::new(Region::simulated(self.tracker.clone())?);
        Ok(self.mapped.get_or_init(|| region).clone())
    }

    /// The kind of power cut it simulates.
    pub fn mode(&self) -> Mode {
        self.tracker.mode()
    }

    /// Starts recording crash points: before each fence, at each [`SimRegion::end_operation`], and
    /// with `at_every_store` also before each store.
    pub fn record(&self, at_every_store: bool) {
        self.record_beside(at_every_store, || ());
    }

    /// Like [`SimRegion::record`], and calls `beside` at each point with the memory's lock held.
    pub(super) fn record_beside(
        &self,
        at_every_store: bool,
        beside: impl FnMut() + Send + 'static,
    ) {
        let mut state = self.tracker.state.lock();
        state.at_every_store = at_every_store;
        state.beside = Some(Box::new(beside));
    }

    /// Marks the end of an acknowledged operation. A crash from here on must keep it.
    pub fn end_operation(&self) {
        let mut state = self.tracker.state.lock();
        state.operations += 1;
        state.record(Instruction::EndOfOperation);
    }

    /// Everything that a cut now could leave. For a harness that cuts memory and files at the same
    /// moment.
    pub fn cut(&self) -> Cut {
        let state = self.tracker.state.lock();
        Cut {
            durable: state.durable.clone(),
            point: state.point(Instruction::Asked),
            mode: self.mode(),
        }
    }

    /// Calls `at_cut` just before the `count`-th store or fence from now with everything that a cut
    /// at that moment could leave, so that a harness can cut other media with it. It is called with
    /// the memory's lock held, so it must not touch this memory.
    pub fn cut_after(&self, count: u64, at_cut: impl FnOnce(Cut) + Send + 'static) {
        let mode = self.mode();
        let spring = Box::new(move |state: &super::tracker::State| {
            at_cut(Cut {
                durable: state.durable.clone(),
                point: state.point(Instruction::Asked),
                mode,
            });
        });
        self.tracker.trap(count, spring);
    }

    pub(super) fn take_points(&self) -> Vec<CrashPoint> {
        std::mem::take(&mut self.tracker.state.lock().points)
    }

    /// The bytes that are certainly durable: the image of a cut now if nothing else persists.
    pub fn durable(&self) -> Vec<u8> {
        self.tracker.durable()
    }

    /// Offsets of the lines that a cut now could lose.
    pub fn pending_lines(&self) -> Vec<u64> {
        self.tracker.pending_lines()
    }

    /// The lint: at an acknowledgement no line may be left in the cache.
    ///
    /// # Panics
    /// If a line is dirty, or flushed and not fenced. The message names the lines.
    pub fn assert_clean(&self) {
        let lines = self.pending_lines();
        assert!(
            lines.is_empty(),
            "acknowledged with lines that a power cut could lose: {lines:#x?}"
        );
    }

    /// Numbers of calls to store, flush and fence so far.
    pub fn instruction_counts(&self) -> (u64, u64, u64) {
        let state = self.tracker.state.lock();
        (state.stores, state.flushes, state.fences)
    }

    /// Length of the memory in bytes.
    pub(super) fn len(&self) -> u64 {
        self.tracker.state.lock().durable.len() as u64
    }

    /// Forgets the history. Returns the lines that were stored to; their contents stay.
    pub(super) fn reset(&self) -> Vec<u64> {
        self.tracker.reset()
    }

    /// Removes what growing added since the memory was first mapped. False if the memory is in use
    /// or this failed.
    pub(super) fn back_to_first(&mut self) -> bool {
        let region = Arc::get_mut(&mut self.mapped)
            .and_then(OnceLock::get_mut)
            .and_then(Arc::get_mut);
        let Some(region) = region else { return false };
        let shrunk = region.back_to_first().is_ok();
        self.tracker
            .state
            .lock()
            .durable
            .truncate(region.len() as usize);
        shrunk
    }

    /// Makes a line hold `bytes`, durably, without any record in the history.
    pub(super) fn put_line(&self, at: u64, bytes: &LineBytes) {
        self.tracker.state.lock().durable[at as usize..][..LINE_BYTES as usize]
            .copy_from_slice(bytes);
        if let Some(region) = self.mapped.get() {
            region.put_line(at, bytes);
        }
    }
}
