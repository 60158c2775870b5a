//! The pace of writers: several that are paced at once.

use super::*;
use crate::interleave::{join, thread};
use firn_base::sync::explore;
use std::sync::Arc;

/// No write is free: the time that all are charged together is what the rate says.
#[test]
fn pacing_complete() {
    explore::all(|| {
        let stall = Arc::new(WriteStall::new(Clock::manual()));
        let spawn = |_| {
            let stall = stall.clone();
            thread::spawn(move || stall.delay(1 << 10, 1 << 20, StallReason::Debt, || true))
        };
        join((0..3).map(spawn).collect());
        let (cost, charged) = (1_000_000_000 >> 10, stall.next_ns.load(Ordering::Relaxed));
        assert!(charged >= 3 * cost, "{charged}");
    });
}
