//! A single memory in which crash images are shown one after the other. An image costs the lines in
//! which it differs from the durable bytes and the lines that its recovery wrote, not the size of
//! the memory.
//!
//! 1. Between two shows the memory holds `base`, and `sum` is the sum over its lines of their
//!    hashes, each seeded with the line's offset. So the fingerprint of an image follows from its
//!    delta.

use super::images::Delta;
use super::region::{SimRegion, apply};
use super::tracker::{LineBytes, Mode};
use crate::line::LINE_BYTES;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(super) struct Stage {
    sim: SimRegion,
    base: Vec<u8>,
    sum: u64,
}

fn hash(at: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, at)
}

fn line(memory: &[u8], at: u64) -> LineBytes {
    let mut bytes = [0; LINE_BYTES as usize];
    bytes.copy_from_slice(&memory[at as usize..][..LINE_BYTES as usize]);
    bytes
}

impl Stage {
    /// A stage whose memory holds `base` and simulates power cuts of `mode`.
    pub(super) fn new(base: Vec<u8>, mode: Mode) -> Stage {
        let lines = (0u64..)
            .step_by(LINE_BYTES as usize)
            .zip(base.chunks(LINE_BYTES as usize));
        let sum = lines.fold(0u64, |sum, (at, bytes)| sum.wrapping_add(hash(at, bytes)));
        Stage {
            sim: SimRegion::stage(base.clone(), mode),
            base,
            sum,
        }
    }

    pub(super) fn base(&self) -> &[u8] {
        &self.base
    }

    /// Changes the durable bytes: the length is now `len`, and these lines changed.
    pub(super) fn settle(&mut self, len: u64, lines: &Delta) {
        if len != self.base.len() as u64 {
            let mut base = std::mem::take(&mut self.base);
            base.resize(len as usize, 0);
            *self = Stage::new(base, self.sim.mode());
        }
        self.sum = self.fingerprint(lines);
        apply(&mut self.base, lines);
        lines
            .iter()
            .for_each(|(at, bytes)| self.sim.put_line(*at, bytes));
    }

    /// The fingerprint of an image. Equal images have equal fingerprints, whatever the base.
    pub(super) fn fingerprint(&self, delta: &Delta) -> u64 {
        delta.iter().fold(self.sum, |sum, (at, bytes)| {
            sum.wrapping_sub(hash(*at, &line(&self.base, *at)))
                .wrapping_add(hash(*at, bytes))
        })
    }

    /// Calls `body` with memory that holds the image, then restores everything.
    pub(super) fn show<R>(&mut self, delta: &Delta, body: impl FnOnce(&SimRegion) -> R) -> R {
        delta
            .iter()
            .for_each(|(at, bytes)| self.sim.put_line(*at, bytes));
        let result = body(&self.sim);
        let mut changed = self.sim.reset();
        let len = self.base.len() as u64;
        if self.sim.len() != len && !(self.sim.back_to_first() && self.sim.len() == len) {
            self.sim = SimRegion::stage(self.base.clone(), self.sim.mode());
            return result;
        }
        changed.extend(delta.iter().map(|(at, _)| *at));
        changed.sort_unstable();
        changed.dedup();
        changed.retain(|at| *at < len);
        changed
            .iter()
            .for_each(|at| self.sim.put_line(*at, &line(&self.base, *at)));
        result
    }
}
