//! Admission of compactions' writes, so that reads of users come first (PM-Blade, V-C).
//!
//! ```text
//! writes in flight < max(depth - reads of compactions - reads of users, floor)
//! ```
//! in which reads are those in flight. The paper has no floor: readers that keep the device busy
//! would then stop all compactions until writers stop, too. Here it follows the pressure of
//! compaction debt, and is one for a write that has waited for [`PATIENCE_NS`].
//!
//! A write is admitted by one atomic step over all workers, not looked for and then submitted.

use crate::mechanisms;
use firn_base::count::{Counter, IoCounters};
use firn_base::sync::{AtomicUsize, Ordering};

/// The time after which a write is admitted if no other is in flight, in nanoseconds.
pub(crate) const PATIENCE_NS: u64 = 100_000_000;

/// The writes that may be in flight.
#[derive(Debug)]
pub(crate) struct Admission {
    depth: usize,
    writes: AtomicUsize,
    most: AtomicUsize,
    pub(crate) admitted: Counter,
    pub(crate) refused: Counter,
}

/// A write that was admitted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Admitted<'a>(&'a Admission);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.writes.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Admission {
    /// Admission of up to `depth` I/Os.
    pub(crate) fn new(depth: usize) -> Admission {
        Admission {
            depth,
            writes: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            admitted: Counter::default(),
            refused: Counter::default(),
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The largest number of writes that were admitted at the same time.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Admits a write, but at least `floor` at a time. `counters` count the reads in flight.
    pub(crate) fn admit(&self, floor: usize, counters: &IoCounters) -> Option<Admitted<'_>> {
        let admitted = self
            .writes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |writes| {
                // A write is counted here before it is in flight there.
                let reads = (counters.compactions.now() as usize).saturating_sub(writes);
                let users = counters.users.now() as usize;
                let room = self.depth.saturating_sub(reads + users).max(floor);
                let is_admitted = writes < room || !mechanisms::BLADE_ADMISSION.is_on();
                is_admitted.then_some(writes + 1)
            });
        match admitted {
            Ok(before) => {
                self.most.fetch_max(before + 1, Ordering::Relaxed);
                self.admitted.add(1);
                Some(Admitted(self))
            }
            Err(_) => {
                self.refused.add(1);
                None
            }
        }
    }
}

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn blade_09_reads_come_first_and_the_floor_lets_writes_through() {
        let (admission, counters) = (Admission::new(4), Arc::new(IoCounters::default()));
        let reads: Vec<_> = (0..2).map(|_| counters.begin_compaction_io()).collect();
        let user = counters.begin_user_read();
        let first = admission.admit(0, &counters).expect("1 of 4 is free");
        // The write is in flight, and no read.
        let in_flight = counters.begin_compaction_io();
        assert!(admission.admit(0, &counters).is_none(), "all are in use");
        drop(user);
        let second = admission.admit(0, &counters).expect("the user has read");
        drop((in_flight, first, second));
        let users: Vec<_> = (0..9).map(|_| counters.begin_user_read()).collect();
        assert!(admission.admit(0, &counters).is_none(), "as printed");
        let through = admission.admit(1, &counters).expect("the floor");
        assert!(admission.admit(1, &counters).is_none());
        drop((through, users, reads));
        let all: Vec<_> = (0..4)
            .map_while(|_| admission.admit(0, &counters))
            .collect();
        assert_eq!(all.len(), 4);
        assert!(admission.admit(0, &counters).is_none());
        assert_eq!((admission.admitted.get(), admission.refused.get()), (7, 4));
    }
}
