//! Simulated memory, as a test holds it.

use super::tracker::{CrashPoint, Instruction, Mode, Mutation, Tracker};
use crate::region::Region;
use firn_base::Result;
use std::sync::Arc;

/// Memory in which every store, flush and fence is seen. Open a pool on it by [`crate::Pool::open_simulated`]; clones
/// share the memory's history.
#[derive(Debug, Clone)]
pub struct SimRegion {
    tracker: Arc<Tracker>,
}

impl SimRegion {
    /// Zeroed memory of `bytes`.
    pub fn new(bytes: u64, mode: Mode) -> Self {
        Self::from_image(vec![0; bytes as usize], mode)
    }

    /// Memory that holds `image`, all of it durable: what a machine finds after a power cut.
    pub fn from_image(image: Vec<u8>, mode: Mode) -> Self {
        Self { tracker: Arc::new(Tracker::new(image, mode)) }
    }

    pub(crate) fn region(&self) -> Result<Region> {
        Region::simulated(self.tracker.clone())
    }

    /// What kind of power cuts it sees.
    pub fn mode(&self) -> Mode {
        self.tracker.mode()
    }

    /// Starts taking crash points: before each fence, at each [`SimRegion::end_operation`], and with `at_every_store`
    /// before each store too.
    pub fn record(&self, at_every_store: bool) {
        let mut state = self.tracker.state.lock();
        (state.is_recording, state.at_every_store) = (true, at_every_store);
    }

    /// Leaves something out from here on, to see that a test notices.
    pub fn mutate(&self, mutation: Option<Mutation>) {
        self.tracker.state.lock().mutation = mutation;
    }

    /// An operation was acknowledged: a crash from here on must keep it.
    pub fn end_operation(&self) {
        let mut state = self.tracker.state.lock();
        state.operations += 1;
        if state.is_recording {
            state.record(Instruction::EndOfOperation);
        }
    }

    /// What a cut now could leave: for a harness that cuts memory and files at one moment.
    pub fn cut(&self) -> CrashPoint {
        self.tracker.state.lock().point(Instruction::Asked)
    }

    /// Gives crash points to `observer` as they are met instead of keeping them, so that a harness can cut other media
    /// at the same moment. It is called with the memory's lock held: it must not touch this memory.
    pub fn observe(&self, observer: impl FnMut(CrashPoint) + Send + 'static) {
        self.tracker.state.lock().observer = Some(Box::new(observer));
    }

    /// The crash points so far, taken out.
    pub fn take_points(&self) -> Vec<CrashPoint> {
        std::mem::take(&mut self.tracker.state.lock().points)
    }

    /// The bytes that are durable for certain: the image of a cut now, if nothing else made it.
    pub fn durable(&self) -> Vec<u8> {
        self.tracker.durable()
    }

    /// Offsets of the lines that a cut now could lose.
    pub fn pending_lines(&self) -> Vec<u64> {
        self.tracker.pending_lines()
    }

    /// The lint: at an acknowledgement nothing is left in the cache.
    ///
    /// # Panics
    /// If a line is dirty, or flushed and not fenced; names them.
    pub fn assert_clean(&self) {
        let lines = self.pending_lines();
        assert!(lines.is_empty(), "acknowledged with lines that a power cut could lose: {lines:#x?}");
    }

    /// Stores, flushes and fences so far, by calls.
    pub fn instruction_counts(&self) -> (u64, u64, u64) {
        let state = self.tracker.state.lock();
        (state.stores, state.flushes, state.fences)
    }
}
