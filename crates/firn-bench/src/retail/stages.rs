//! The stage of every order: how many of its steps have begun and ended.
//!
//! One word per order: the time of the last end (48 bits), in ends of any step; the steps begun
//! (8); the steps ended (8). An order's steps are one thread's, one after the other, so:
//! 1. a reader sees the effects of every step that ended before its read, and of none that began
//!    after it;
//! 2. if no step is under way after a read and the last one ended before a scan began, scan and
//!    read both had to see exactly that stage.
//!
//! Safe for any number of threads.

use firn_base::{Error, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Orders of a segment.
const SEGMENT_ORDERS: usize = 1 << 14;
/// Most segments.
const SEGMENTS: usize = 1 << 12;

/// The stages of all orders. Memory is taken as orders are placed.
#[derive(Debug)]
pub(super) struct Stages {
    ends: AtomicU64,
    segments: Vec<OnceLock<Vec<AtomicU64>>>,
}

/// The stage of one order at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) begun: u8,
    pub(super) ended: u8,
    changed: u64,
}

impl Stage {
    fn unpack(word: u64) -> Self {
        Self {
            begun: (word >> 8) as u8,
            ended: word as u8,
            changed: word >> 16,
        }
    }

    fn pack(self) -> u64 {
        self.changed << 16 | u64::from(self.begun) << 8 | u64::from(self.ended)
    }

    /// True if no step is under way.
    pub(super) fn is_still(self) -> bool {
        self.begun == self.ended
    }

    /// True if no step has been under way since `moment`.
    pub(super) fn is_still_since(self, moment: u64) -> bool {
        self.is_still() && self.changed <= moment
    }
}

impl Stages {
    pub(super) fn new() -> Self {
        Self {
            ends: AtomicU64::new(0),
            segments: (0..SEGMENTS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let taken = self.segments.iter().filter(|s| s.get().is_some()).count();
        (taken * SEGMENT_ORDERS * size_of::<AtomicU64>()) as u64
    }

    /// The current moment, for [`Stage::is_still_since`].
    pub(super) fn now(&self) -> u64 {
        self.ends.load(Ordering::SeqCst)
    }

    /// The stage of order `number`; 0 steps if it was never placed.
    pub(super) fn stage(&self, number: u64) -> Stage {
        let (segment, at) = place(number);
        let words = self.segments.get(segment).and_then(OnceLock::get);
        Stage::unpack(words.map_or(0, |words| words[at].load(Ordering::SeqCst)))
    }

    /// Begins the next step of order `number`, which must be followed by [`Stages::end`]. Returns
    /// its version.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if there are too many orders.
    pub(super) fn begin(&self, number: u64) -> Result<u8> {
        let mut stage = self.stage(number);
        stage.begun += 1;
        let word = self.word(number)?;
        word.store(stage.pack(), Ordering::SeqCst);
        Ok(stage.begun)
    }

    /// Ends the step of order `number`, which was acknowledged.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if there are too many orders.
    pub(super) fn end(&self, number: u64) -> Result<()> {
        let stage = self.stage(number);
        let done = Stage {
            ended: stage.begun,
            changed: self.ends.fetch_add(1, Ordering::SeqCst) + 1,
            ..stage
        };
        self.word(number)?.store(done.pack(), Ordering::SeqCst);
        Ok(())
    }

    fn word(&self, number: u64) -> Result<&AtomicU64> {
        let (segment, at) = place(number);
        let full = || Error::invalid("retail has room for 67 million orders: run a shorter time");
        let words = self.segments.get(segment).ok_or_else(full)?;
        let zeros = || (0..SEGMENT_ORDERS).map(|_| AtomicU64::new(0)).collect();
        Ok(&words.get_or_init(zeros)[at])
    }
}

/// The segment of an order, and its place there.
fn place(number: u64) -> (usize, usize) {
    let number = number as usize;
    (number / SEGMENT_ORDERS, number % SEGMENT_ORDERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_still_between_its_steps() {
        let stages = Stages::new();
        let before = stages.now();
        assert_eq!(stages.stage(7).begun, 0);
        assert_eq!(stages.begin(7).unwrap(), 1);
        assert!(!stages.stage(7).is_still());
        stages.end(7).unwrap();
        let stage = stages.stage(7);
        assert!(stage.is_still() && !stage.is_still_since(before));
        assert!(stage.is_still_since(stages.now()));
        stages.begin(8).unwrap();
        stages.end(8).unwrap();
        assert_eq!(stages.stage(7), stage);
        assert_eq!(stages.begin(7).unwrap(), 2);
        assert_eq!((stages.stage(7).begun, stages.stage(7).ended), (2, 1));
        assert!(stages.begin(1 << 40).is_err());
        assert_eq!(stages.bytes(), (SEGMENT_ORDERS * 8) as u64);
    }
}
