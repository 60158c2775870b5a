//! Back-pressure: a delay that grows with debt, so that writers slow down to what compaction can take instead of
//! running into a wall.
//!
//! Debt `d` runs from 0 (none) to 1 (as far behind as is allowed). From the first sign of debt writers are paced at
//!
//! ```text
//! rate = drain x (1.3 - 1.2 d)
//! ```
//! where `drain` is what level-0 compaction lately took away per second: at a quarter of the way the pace equals the
//! drain, so debt settles there; at the end of the way a tenth of it is left, never nothing.
//! Likewise while flushes lag: as the last buffer fills, writers are paced towards the rate of flushes.

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

use crate::event::StallReason;
use firn_base::Limits;
use firn_base::clock::Clock;
use firn_base::count::Counter;
use firn_base::sync::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How far behind compaction is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Debt {
    /// Buffers that wait for a flush.
    pub(crate) buffers: usize,
    /// Tables in level 0.
    pub(crate) level0_tables: usize,
    /// Bytes by which levels exceed their targets.
    pub(crate) bytes: u64,
    /// What logs hold for level 0, in parts of what they may.
    pub(crate) logs: f64,
    /// How far leaves have come on the way from where they are evicted to where there is no room for a flush.
    pub(crate) trees: f64,
}

/// Pace assumed before anything was measured, in bytes per second.
const DRAIN_GUESS: u64 = 64 << 20;
const DRAIN_MIN: u64 = 1 << 20;
/// A writer that is ahead of the pace by less goes on; sleeping costs about as much.
const SLEEP_MIN_NS: u64 = 1_000_000;
const SLEEP_MAX_NS: u64 = 50_000_000;

/// The pace of writers.
pub(crate) struct WriteStall {
    clock: Clock,
    /// Bytes per second; 0 for no bound.
    rate: AtomicU64,
    reason: AtomicU64,
    /// When the next write may go, in the clock's nanoseconds.
    next_ns: AtomicU64,
    drain: Ewma,
    flush: Ewma,
    /// All buffers but the active one wait for a flush.
    last_buffer: AtomicBool,
    stalled_ns: [Counter; StallReason::ALL.len()],
}

/// A smoothed rate in bytes per second.
struct Ewma(AtomicU64);

impl Ewma {
    fn add(&self, bytes: u64, elapsed_ns: u64) {
        let rate = (u128::from(bytes) * 1_000_000_000 / u128::from(elapsed_ns.max(1))) as u64;
        let old = self.get();
        self.0.store((old / 4 * 3 + rate / 4).max(DRAIN_MIN), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl WriteStall {
    pub(crate) fn new(clock: Clock) -> WriteStall {
        WriteStall {
            clock,
            rate: AtomicU64::new(0),
            reason: AtomicU64::new(0),
            next_ns: AtomicU64::new(0),
            drain: Ewma(AtomicU64::new(DRAIN_GUESS)),
            flush: Ewma(AtomicU64::new(DRAIN_GUESS)),
            last_buffer: AtomicBool::new(false),
            stalled_ns: Default::default(),
        }
    }

    /// Level-0 compaction took `bytes` away.
    pub(crate) fn drained(&self, bytes: u64, elapsed_ns: u64) {
        self.drain.add(bytes, elapsed_ns);
    }

    /// A flush took `bytes` away.
    pub(crate) fn flushed(&self, bytes: u64, elapsed_ns: u64) {
        self.flush.add(bytes, elapsed_ns);
    }

    /// Sets the pace by what is left to do. Returns the reason if there is a delay now and was none, or the reverse.
    pub(crate) fn update(&self, debt: Debt, limits: &Limits) -> Option<Option<StallReason>> {
        let tables = ramp(debt.level0_tables as f64, limits.level0_slow as f64, limits.level0_stop as f64);
        let base = limits.level_base_bytes as f64;
        let bytes = ramp(debt.bytes as f64, 8.0 * base, 32.0 * base);
        let logs = ramp(debt.logs, 1.5, 4.0);
        let trees = ramp(debt.trees, 0.1, 1.0);
        let debts = [
            (tables, StallReason::Level0),
            (bytes, StallReason::Debt),
            (logs, StallReason::Logs),
            (trees, StallReason::Trees),
        ];
        let (behind, reason) =
            debts.into_iter().fold((0.0, StallReason::Level0), |worst, one| if one.0 > worst.0 { one } else { worst });
        self.last_buffer.store(debt.buffers + 1 >= limits.write_buffers, Ordering::Relaxed);
        let rate = if behind > 0.0 { (self.drain.get() as f64 * (1.3 - 1.2 * behind)) as u64 } else { 0 };
        self.reason.store(reason as u64, Ordering::Relaxed);
        let before = self.rate.swap(rate, Ordering::Relaxed);
        match (before > 0, rate > 0) {
            (false, true) => Some(Some(reason)),
            (true, false) => Some(None),
            _ => None,
        }
    }

    /// Delays a write of `bytes` as the pace demands, for as long as `is_open` says. `fill` is how full the active
    /// buffer is, from 0 to 1.
    #[inline]
    pub(crate) fn pace(&self, bytes: usize, fill: impl FnOnce() -> f64, is_open: impl Fn() -> bool) {
        let mut rate = self.rate.load(Ordering::Relaxed);
        let mut reason = StallReason::ALL[self.reason.load(Ordering::Relaxed) as usize % StallReason::ALL.len()];
        if self.last_buffer.load(Ordering::Relaxed) {
            // Twice the rate of flushes while the last buffer is empty, half of it when it is nearly full.
            let flush = (self.flush.get() as f64 * (2.0 - 1.5 * fill())) as u64;
            if rate == 0 || flush < rate {
                (rate, reason) = (flush, StallReason::Flush);
            }
        }
        if rate > 0 {
            self.delay(bytes, rate, reason, is_open);
        }
    }

    #[cold]
    fn delay(&self, bytes: usize, rate: u64, reason: StallReason, is_open: impl Fn() -> bool) {
        let now = self.clock.now_ns();
        let cost = (u128::from(bytes as u64) * 1_000_000_000 / u128::from(rate.max(1))) as u64;
        // A pace is no credit: time in which nobody wrote is not made up for.
        let start = self.next_ns.fetch_max(now, Ordering::Relaxed).max(now);
        self.next_ns.fetch_add(cost, Ordering::Relaxed);
        let ahead = start.saturating_sub(now);
        if ahead < SLEEP_MIN_NS {
            return;
        }
        // A small write waits for a moment at most; a large one as long as its own bytes take.
        let mut left = ahead.min(SLEEP_MAX_NS.max(cost));
        while left > 0 && is_open() {
            let sleep = left.min(SLEEP_MAX_NS);
            self.clock.sleep(Duration::from_nanos(sleep));
            self.stalled(reason, sleep);
            left -= sleep;
            if self.rate() == 0 && !self.last_buffer.load(Ordering::Relaxed) {
                // Compaction has caught up.
                break;
            }
        }
    }

    /// Counts time that a writer waited.
    pub(crate) fn stalled(&self, reason: StallReason, ns: u64) {
        self.stalled_ns[reason as usize].add(ns);
    }

    /// Nanoseconds that writers waited, by reason.
    pub(crate) fn stalled_ns(&self, reason: StallReason) -> u64 {
        self.stalled_ns[reason as usize].get()
    }

    /// The pace now, in bytes per second; 0 for no bound.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }
}

/// How far `x` is on the way from `from` to `to`, from 0 to 1.
fn ramp(x: f64, from: f64, to: f64) -> f64 {
    ((x - from) / (to - from)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_falls_with_debt_and_never_stops() {
        let limits = Limits::default();
        let stall = WriteStall::new(Clock::manual());
        let mut last = u64::MAX;
        for level0_tables in 0..40 {
            let change = stall.update(Debt { level0_tables, ..Debt::default() }, &limits);
            assert_eq!(change.is_some(), level0_tables == limits.level0_slow + 1);
            let rate = if stall.rate() == 0 { u64::MAX } else { stall.rate() };
            assert!(rate <= last && rate > 0);
            last = rate;
        }
        assert_eq!(stall.update(Debt::default(), &limits), Some(None));
    }

    /// From 1.5 times what logs may hold on, by no step that a writer would notice, to a tenth at four times.
    #[test]
    fn lab_10_full_logs_slow_writers_down_bit_by_bit() {
        let stall = WriteStall::new(Clock::manual());
        stall.drained(100 << 20, 1_000_000_000);
        let rates: Vec<f64> = (0..50)
            .map(|step| {
                stall.update(Debt { logs: f64::from(step) / 10.0, ..Debt::default() }, &Limits::default());
                stall.rate() as f64
            })
            .collect();
        let paced = &rates[16..];
        assert!(rates[..16].iter().all(|&rate| rate == 0.0) && paced.iter().all(|&rate| rate > 0.0), "{rates:?}");
        let full = paced[0];
        assert!(paced.windows(2).all(|pair| pair[1] <= pair[0] && pair[0] - pair[1] < full / 20.0), "{rates:?}");
        assert!((full / 15.0..full / 8.0).contains(&paced[33]), "{rates:?}");
        assert_eq!(stall.update(Debt::default(), &Limits::default()), Some(None));
    }

    #[test]
    fn a_paced_writer_takes_the_time_that_the_rate_says() {
        let clock = Clock::manual();
        let stall = WriteStall::new(clock.clone());
        stall.update(Debt { level0_tables: 24, ..Debt::default() }, &Limits::default());
        let rate = stall.rate();
        for _ in 0..1000 {
            stall.pace(10_000, || 0.0, || true);
        }
        let want_ns = 10_000_000 * 1_000_000_000 / rate;
        let took = clock.now_ns();
        assert!(took > want_ns * 9 / 10 && took < want_ns * 11 / 10, "{took} of {want_ns}");
        assert!(stall.stalled_ns(StallReason::Level0) > 0);
    }

    /// A batch of many megabytes waits as long as its bytes take, and no longer once the database is closed.
    #[test]
    fn a_large_write_pays_for_its_bytes() {
        const BYTES: usize = 8 << 20;
        let clock = Clock::manual();
        let stall = WriteStall::new(clock.clone());
        stall.update(Debt { level0_tables: 34, ..Debt::default() }, &Limits::default());
        for _ in 0..20 {
            stall.pace(BYTES, || 0.0, || true);
        }
        let want_ns = 20 * BYTES as u64 * 1_000_000_000 / stall.rate();
        let took = clock.now_ns();
        assert!(took > want_ns * 9 / 10 && took < want_ns * 11 / 10, "{took} of {want_ns}");
        stall.pace(BYTES, || 0.0, || false);
        assert_eq!(clock.now_ns(), took);
    }
}
