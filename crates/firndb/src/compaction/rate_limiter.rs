//! The rate limiter of compactions, which slows them down while nothing is urgent.
//!
//! A compaction at full speed takes the device and a core from readers for seconds, although it
//! often need not end soon. So compactions share a rate, in bytes written per second, that follows
//! the rate of incoming data:
//!
//! ```text
//! rate = max(32 MiB, 8 x intake x 2^pressure)
//! ```
//! where `intake` is the recent rate of flushes, in bytes per second, which decays while there is
//! no flush, and `pressure` is the largest that the pickers report: for instance the number of
//! tables that level 0 has beyond its trigger, or the number of level-1 targets by which levels are
//! too large. So growing debt is worked off faster and faster, long before writers are slowed down.
//! At [`URGENT`] there is no limit, and neither while a caller waits for the work to end.
//!
//! The time that a compaction sleeps is not part of its duration, because `write_stall.rs` measures
//! how fast compactions can be.

use crate::log::FLYING_MAX;
pub(crate) use crate::write::write_stall::{Debt, Pressure};
use firn_base::SeqNo;
use firn_base::clock::Clock;
use firn_base::count::{Cause, Counter, IoCounters};
use firn_base::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The pressure from which on compactions are not limited.
pub(crate) const URGENT: u32 = 4;
const RATE_MIN: u64 = 32 << 20;
/// Bytes that compactions may write per byte of intake without pressure.
const SHARE: u64 = 8;
const SLEEP_MIN_NS: u64 = 1_000_000;
/// The longest single sleep, after which a compaction checks if something became urgent.
const SLEEP_MAX_NS: u64 = 4_000_000;

/// The time without a write after which there is time for work that is not urgent.
const REST_NS: u64 = 10_000_000_000;

/// The time after an open during which no compaction begins unless requested. A process that looks
/// something up or writes a little has exited by then, and would have discarded the compaction's
/// output.
const QUIET_NS: u64 = 1_000_000_000;

/// The rate limit of compactions.
pub(crate) struct RateLimiter {
    clock: Clock,
    /// True if compactions were requested, and the time of the open.
    is_awake: AtomicBool,
    opened_ns: u64,
    counters: Arc<IoCounters>,
    pressure: AtomicU64,
    /// Bytes that compactions had written when one of them last checked.
    seen: AtomicU64,
    /// The time at which compactions may continue, in the clock's nanoseconds.
    next_ns: AtomicU64,
    /// The rate of flushes in bytes per second; the bytes of the last flush, and the time of its
    /// end.
    intake: AtomicU64,
    flushed: AtomicU64,
    flushed_ns: AtomicU64,
    /// The number of callers that wait until the work is done, and the sequence number that was
    /// visible when the last of them began to wait.
    waiting: AtomicUsize,
    waited_at: AtomicU64,
    /// The sequence number that was visible at the last check, and the time at which a change of it
    /// was noticed.
    visible: AtomicU64,
    written_ns: AtomicU64,
    slept_ns: Counter,
}

/// Lifts the rate limit until it is dropped.
pub(crate) struct Hurry<'a>(&'a RateLimiter);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn per_second(bytes: u64, ns: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(ns)).min(1 << 48) as u64
}

impl RateLimiter {
    pub(crate) fn new(clock: Clock, counters: Arc<IoCounters>) -> RateLimiter {
        RateLimiter {
            is_awake: AtomicBool::new(false),
            opened_ns: clock.now_ns(),
            pressure: AtomicU64::new(u64::from(URGENT)),
            seen: AtomicU64::new(0),
            next_ns: AtomicU64::new(0),
            intake: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            flushed_ns: AtomicU64::new(clock.now_ns()),
            waiting: AtomicUsize::new(0),
            waited_at: AtomicU64::new(0),
            visible: AtomicU64::new(0),
            written_ns: AtomicU64::new(clock.now_ns()),
            slept_ns: Counter::default(),
            clock,
            counters,
        }
    }

    /// Requests compactions. Returns true if this is the first request.
    pub(crate) fn wake(&self) -> bool {
        !self.is_awake.load(Ordering::Relaxed) && !self.is_awake.swap(true, Ordering::Relaxed)
    }

    /// True if a compaction may begin: one was requested, a flush made work, or the database has
    /// been open for a while.
    pub(crate) fn may_begin(&self) -> bool {
        self.is_awake.load(Ordering::Relaxed) || self.clock.now_ns() >= self.opened_ns + QUIET_NS
    }

    /// Records a flush of `bytes`.
    pub(crate) fn flushed(&self, bytes: u64) {
        self.wake();
        let now = self.clock.now_ns();
        let since = now
            .saturating_sub(self.flushed_ns.swap(now, Ordering::Relaxed))
            .max(1);
        let before = self.intake.load(Ordering::Relaxed);
        self.intake.store(
            (before / 2 + per_second(bytes, since) / 2).min(1 << 48),
            Ordering::Relaxed,
        );
        self.flushed.store(bytes, Ordering::Relaxed);
    }

    /// Sets the pressure according to the debt.
    pub(crate) fn update(&self, debt: &Debt) {
        self.pressure.store(debt.haste() as u64, Ordering::Relaxed);
    }

    /// Lifts the rate limit for a caller that waits for compactions to end, and that sees
    /// everything up to `visible`.
    pub(crate) fn hurry(&self, visible: SeqNo) -> Hurry<'_> {
        self.wake();
        self.waited_at.store(visible.0, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Hurry(self)
    }

    /// True if there is time for work that is not urgent. `visible` is the current sequence number.
    /// Nothing was written recently, or nothing since a caller began to wait until all work is
    /// done.
    pub(crate) fn is_at_rest(&self, visible: SeqNo) -> bool {
        let now = self.clock.now_ns();
        if self.visible.swap(visible.0, Ordering::Relaxed) != visible.0 {
            self.written_ns.store(now, Ordering::Relaxed);
        }
        if self.has_rested(now) {
            return true;
        }
        self.waiting.load(Ordering::Relaxed) > 0
            && self.waited_at.load(Ordering::Relaxed) == visible.0
    }

    /// True if nothing was written for a long time, no matter if a caller waits for background
    /// work.
    pub(crate) fn is_idle(&self) -> bool {
        self.has_rested(self.clock.now_ns())
    }

    fn has_rested(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.written_ns.load(Ordering::Relaxed)) >= REST_NS
    }

    /// Bytes per second; 0 for no limit.
    fn rate_now(&self) -> u64 {
        let pressure = self.pressure.load(Ordering::Relaxed);
        if self.waiting.load(Ordering::Relaxed) > 0 || pressure >= u64::from(URGENT) {
            return 0;
        }
        // A compaction for reads, long after the last write, is in no hurry.
        let since = self
            .clock
            .now_ns()
            .saturating_sub(self.flushed_ns.load(Ordering::Relaxed))
            .max(1);
        let at_most = per_second(self.flushed.load(Ordering::Relaxed), since);
        let intake = self.intake.load(Ordering::Relaxed).min(at_most);
        (intake.saturating_mul(SHARE) << pressure).max(RATE_MIN)
    }

    /// The pressure, in steps; at least one while a caller waits for the work to end.
    pub(crate) fn haste(&self) -> usize {
        let waits = self.waiting.load(Ordering::Relaxed) > 0;
        let pressure = self.pressure.load(Ordering::Relaxed) as usize;
        pressure.max(usize::from(waits))
    }

    /// The number of short reads that a background job keeps in flight. Reads of users wait for
    /// them, so without pressure they are as few as a small machine's readers have, and each step
    /// of pressure doubles them.
    pub(crate) fn reads(&self) -> usize {
        match self.rate_now() {
            0 => FLYING_MAX,
            _ => {
                FLYING_MAX
                    >> (URGENT - 1).saturating_sub(self.pressure.load(Ordering::Relaxed) as u32)
            }
        }
    }

    /// Called by a compaction at its yield points. Sleeps to keep to the rate, and returns the
    /// nanoseconds slept. `between` is called after each short sleep; it does more urgent work, and
    /// returns true to continue waiting.
    pub(crate) fn wait(&self, mut between: impl FnMut() -> bool) -> u64 {
        let written = self.counters.get(Cause::Compaction).2 + self.counters.get(Cause::Evict).2;
        // Two compactions may check at once: each counts the bytes that were not counted before.
        let bytes = written.saturating_sub(self.seen.fetch_max(written, Ordering::Relaxed));
        let rate = self.rate_now();
        if rate == 0 {
            return 0;
        }
        let now = self.clock.now_ns();
        let cost = (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64;
        // Time in which no compaction ran is not made up for.
        self.next_ns.fetch_max(now, Ordering::Relaxed);
        let until = self.next_ns.fetch_add(cost, Ordering::Relaxed) + cost;
        let mut slept = 0;
        loop {
            let left = until.saturating_sub(self.clock.now_ns());
            if left < SLEEP_MIN_NS || self.rate_now() == 0 {
                break;
            }
            let sleep = left.min(SLEEP_MAX_NS);
            self.clock.sleep(Duration::from_nanos(sleep));
            slept += sleep;
            if !between() {
                break;
            }
        }
        self.slept_ns.add(slept);
        slept
    }

    /// The current rate, in bytes written per second; 0 for no limit.
    pub(crate) fn rate(&self) -> u64 {
        self.rate_now()
    }

    /// Nanoseconds that compactions slept, summed over all workers.
    pub(crate) fn slept_ns(&self) -> u64 {
        self.slept_ns.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::picker::{debt_pressure, level0_pressure};
    use firn_base::Limits;

    const MIB: u64 = 1 << 20;

    fn limiter() -> (Clock, Arc<IoCounters>, RateLimiter) {
        let (clock, counters) = (Clock::manual(), Arc::<IoCounters>::default());
        let rate_limiter = RateLimiter::new(clock.clone(), counters.clone());
        (clock, counters, rate_limiter)
    }

    fn debt(level0_tables: usize, bytes: u64) -> Debt {
        let (mut debt, limits) = (Debt::default(), Limits::default());
        debt.add(&[
            level0_pressure(level0_tables, &limits),
            debt_pressure(bytes, &limits),
        ]);
        debt
    }

    #[test]
    fn the_rate_follows_intake_and_doubles_with_pressure() {
        let (clock, _, rate_limiter) = limiter();
        let limits = Limits::default();
        let rate = |tables, bytes| {
            rate_limiter.update(&debt(tables, bytes));
            rate_limiter.rate()
        };
        assert_eq!(
            rate(limits.level0_trigger, 0),
            RATE_MIN,
            "nothing came in yet"
        );
        for _ in 0..20 {
            clock.advance(Duration::from_secs(1));
            rate_limiter.flushed(10 * MIB);
        }
        let calm = rate(limits.level0_trigger, limits.level_base_bytes);
        assert!((79 * MIB..=80 * MIB).contains(&calm), "{calm}");
        assert_eq!(rate(limits.level0_trigger + 1, 0), 2 * calm);
        assert_eq!(rate(0, 3 * limits.level_base_bytes), 4 * calm);
        assert_eq!(
            rate(limits.level0_trigger + URGENT as usize, 0),
            0,
            "no bound"
        );
        assert_eq!(rate(0, 5 * limits.level_base_bytes), 0, "no bound");
        clock.advance(Duration::from_secs(2));
        let later = rate(limits.level0_trigger, 0);
        assert!(
            (39 * MIB..=40 * MIB).contains(&later),
            "half of it came in per second: {later}"
        );
        clock.advance(Duration::from_secs(60));
        assert_eq!(
            rate(limits.level0_trigger, 0),
            RATE_MIN,
            "nothing comes in any more"
        );
        let reads = |tables| (rate(tables, 0), rate_limiter.reads()).1;
        let each = (0..=URGENT as usize).map(|more| reads(limits.level0_trigger + more));
        assert_eq!(each.collect::<Vec<_>>(), [4, 8, 16, 32, 32]);
        assert!(
            limits.level0_trigger + (URGENT as usize) < limits.level0_slow,
            "merges run free before writers wait"
        );
    }

    #[test]
    fn merges_take_the_time_that_the_rate_says() {
        let (clock, counters, rate_limiter) = limiter();
        rate_limiter.update(&debt(8, 0));
        let mut slept = 0;
        for _ in 0..64 {
            counters.wrote(Cause::Compaction, MIB as usize);
            slept += rate_limiter.wait(|| true);
        }
        let took = clock.now_ns();
        assert!(
            (1_900_000_000..=2_100_000_000).contains(&took),
            "64 MiB at 32 MiB a second took {took} ns"
        );
        assert_eq!((slept, rate_limiter.slept_ns()), (took, took));
    }

    #[test]
    fn there_is_rest_behind_writes_and_for_who_waits() {
        let (clock, _, rate_limiter) = limiter();
        assert!(!rate_limiter.is_at_rest(SeqNo(1)));
        clock.advance(Duration::from_nanos(REST_NS - 1));
        assert!(!rate_limiter.is_at_rest(SeqNo(1)));
        clock.advance(Duration::from_nanos(1));
        assert!(rate_limiter.is_at_rest(SeqNo(1)));
        assert!(!rate_limiter.is_at_rest(SeqNo(2)), "somebody writes again");
        let hurry = rate_limiter.hurry(SeqNo(2));
        assert!(
            rate_limiter.is_at_rest(SeqNo(2)) && !rate_limiter.is_at_rest(SeqNo(3)),
            "until somebody writes"
        );
        drop(hurry);
        assert!(!rate_limiter.is_at_rest(SeqNo(3)));
    }

    #[test]
    fn who_waits_for_the_end_is_not_made_to_wait_longer() {
        let (clock, counters, rate_limiter) = limiter();
        rate_limiter.update(&debt(8, 0));
        let hurry = rate_limiter.hurry(SeqNo(0));
        counters.wrote(Cause::Compaction, 1 << 30);
        assert_eq!((rate_limiter.wait(|| true), clock.now_ns()), (0, 0));
        drop(hurry);
        counters.wrote(Cause::Compaction, 1 << 30);
        let mut looks = 0;
        rate_limiter.wait(|| {
            looks += 1;
            looks < 3
        });
        assert_eq!(
            (looks, clock.now_ns()),
            (3, 3 * SLEEP_MAX_NS),
            "it ends when told that it is not wanted"
        );
    }
}
