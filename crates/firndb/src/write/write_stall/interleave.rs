//! The write stall with several writers that are delayed at the same time.

use super::*;
use crate::interleave::{join, thread};
use firn_base::sync::explore;
use std::sync::Arc;

/// No write is free: the time charged to all writers together matches the rate.
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
