//! The write stall: a delay that grows with debt, so that writers slow down to the rate that
//! compaction sustains instead of stopping abruptly.
//!
//! Debt `d` runs from 0 (none) to 1 (the most that is allowed). Once there is debt, writers are
//! limited to
//!
//! ```text
//! rate = drain x (1.3 - 1.2 d)
//! ```
//! where `drain` is the recent rate of level-0 compaction. At `d` = 1/4 the rate equals the drain,
//! so debt settles there. At `d` = 1 a tenth of the drain is left; the rate never reaches zero.
//! While persistent memory fills up, the rate of flushes limits the drain, because compaction by
//! links is fast and makes no room. Similarly, while flushes lag and the last memtable fills,
//! writers are limited towards the rate of flushes.

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

use crate::event::StallReason;
use firn_base::Limits;
use firn_base::clock::Clock;
use firn_base::count::Counter;
use firn_base::sync::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// How far a part of the engine is from the limit at which it slows writers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pressure {
    pub(crate) reason: StallReason,
    /// 0 or less where writers are not delayed; 1 or more where they are slowed the most.
    pub(crate) stall: f64,
    /// How often the rate of compactions is to be doubled.
    pub(crate) haste: f64,
}

/// The amount of outstanding compaction and flush work.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Debt {
    /// Memtables that wait for a flush.
    pub(crate) buffers: usize,
    /// Bytes by which levels exceed their targets.
    pub(crate) bytes: u64,
    /// One of each reason: the largest of those that were reported.
    pressures: Vec<Pressure>,
}

impl Debt {
    /// Adds what a part of the engine reports. Parts are compacted beside each other, so the one
    /// that is closest to its limit counts, and not their sum.
    pub(crate) fn add(&mut self, reported: &[Pressure]) {
        for new in reported {
            let known = self.pressures.iter_mut();
            match known.into_iter().find(|known| known.reason == new.reason) {
                None => self.pressures.push(*new),
                Some(known) => {
                    known.stall = known.stall.max(new.stall);
                    known.haste = known.haste.max(new.haste);
                }
            }
        }
    }

    /// The largest stall, 0 to 1, and its reason.
    pub(crate) fn stall(&self) -> (f64, StallReason) {
        let none = (0.0, StallReason::Level0);
        self.pressures.iter().fold(none, |worst, pressure| {
            let stall = pressure.stall.clamp(0.0, 1.0);
            match stall > worst.0 {
                true => (stall, pressure.reason),
                false => worst,
            }
        })
    }

    /// The stall of one reason: 1 and more if writers wait.
    pub(crate) fn stall_of(&self, reason: StallReason) -> f64 {
        let mut pressures = self.pressures.iter();
        let found = pressures.find(|pressure| pressure.reason == reason);
        found.map_or(0.0, |pressure| pressure.stall)
    }

    /// The largest haste.
    pub(crate) fn haste(&self) -> f64 {
        let hastes = self.pressures.iter().map(|pressure| pressure.haste);
        hastes.fold(0.0, f64::max)
    }
}

/// The rate assumed before anything was measured, in bytes per second.
const DRAIN_GUESS: u64 = 64 << 20;
const DRAIN_MIN: u64 = 1 << 20;
/// A writer that is ahead of the rate by less than this is not delayed, because sleeping costs
/// about as much.
const SLEEP_MIN_NS: u64 = 1_000_000;
const SLEEP_MAX_NS: u64 = 50_000_000;

/// The message of a write or a flush that finds persistent memory full.
pub(crate) const PM_FULL: &str = "persistent memory is full, and the options keep all tables there; \
                                  delete something, raise pm.size, or let tables leave it";

/// The writes that are refused for lack of room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fullness {
    /// None.
    Room,
    /// Puts.
    Puts,
    /// Puts and deletes.
    Deletes,
}

/// The rate limit of writers.
pub(crate) struct WriteStall {
    clock: Clock,
    /// Bytes per second; 0 for no limit.
    rate: AtomicU64,
    reason: AtomicU64,
    /// The time at which the next write may proceed, in the clock's nanoseconds.
    next_ns: AtomicU64,
    drain: Ewma,
    flush: Ewma,
    /// True if all memtables but the active one wait for a flush.
    last_buffer: AtomicBool,
    /// The writes that are refused: a [`Fullness`].
    fullness: AtomicU8,
    /// True if a delete was taken since puts are refused.
    deletes: AtomicBool,
    stalled_ns: [Counter; StallReason::ALL.len()],
}

/// A smoothed rate in bytes per second.
struct Ewma(AtomicU64);

impl Ewma {
    fn add(&self, bytes: u64, elapsed_ns: u64) {
        let rate = (u128::from(bytes) * 1_000_000_000 / u128::from(elapsed_ns.max(1))) as u64;
        let old = self.get();
        self.0
            .store((old / 4 * 3 + rate / 4).max(DRAIN_MIN), Ordering::Relaxed);
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
            fullness: AtomicU8::new(Fullness::Room as u8),
            deletes: AtomicBool::new(false),
            stalled_ns: Default::default(),
        }
    }

    /// Sets the writes that are refused. Returns those that were.
    pub(crate) fn set_fullness(&self, fullness: Fullness) -> Fullness {
        if fullness == Fullness::Room {
            self.deletes.store(false, Ordering::Relaxed);
        }
        match self.fullness.swap(fullness as u8, Ordering::Relaxed) {
            0 => Fullness::Room,
            1 => Fullness::Puts,
            _ => Fullness::Deletes,
        }
    }

    /// True if some writes are refused, because only deletes can make room.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.fullness.load(Ordering::Relaxed) != Fullness::Room as u8
    }

    /// Notes a delete that was taken while puts are refused.
    pub(crate) fn took_delete(&self) {
        self.deletes.store(true, Ordering::Relaxed);
    }

    /// True if a delete was taken since puts are refused.
    pub(crate) fn has_deletes(&self) -> bool {
        self.deletes.load(Ordering::Relaxed)
    }

    /// True if deletes are refused, too, until compactions of earlier ones have made room.
    pub(crate) fn refuses_deletes(&self) -> bool {
        self.fullness.load(Ordering::Relaxed) == Fullness::Deletes as u8
    }

    /// Measures a level-0 compaction of `bytes`.
    pub(crate) fn drained(&self, bytes: u64, elapsed_ns: u64) {
        self.drain.add(bytes, elapsed_ns);
    }

    /// Measures a flush of `bytes`.
    pub(crate) fn flushed(&self, bytes: u64, elapsed_ns: u64) {
        self.flush.add(bytes, elapsed_ns);
    }

    /// Sets the rate according to the debt. Returns the reason if a stall began, `Some(None)` if it
    /// ended, and `None` if neither.
    pub(crate) fn update(&self, debt: &Debt, limits: &Limits) -> Option<Option<StallReason>> {
        let (behind, reason) = debt.stall();
        self.last_buffer
            .store(debt.buffers + 1 >= limits.write_buffers, Ordering::Relaxed);
        let drain = match reason {
            // Level 0 is drained by links, which make no room there. Flushes take it.
            StallReason::PersistentMemory => self.drain.get().min(self.flush.get()),
            _ => self.drain.get(),
        };
        let rate = if behind > 0.0 {
            (drain as f64 * (1.3 - 1.2 * behind)) as u64
        } else {
            0
        };
        self.reason.store(reason as u64, Ordering::Relaxed);
        let before = self.rate.swap(rate, Ordering::Relaxed);
        match (before > 0, rate > 0) {
            (false, true) => Some(Some(reason)),
            (true, false) => Some(None),
            _ => None,
        }
    }

    /// Delays a write of `bytes` to keep to the rate, while `is_open` returns true. `fill` is the
    /// used fraction of the active memtable, 0 to 1.
    #[inline]
    pub(crate) fn pace(
        &self,
        bytes: usize,
        fill: impl FnOnce() -> f64,
        is_open: impl Fn() -> bool,
    ) {
        let mut rate = self.rate.load(Ordering::Relaxed);
        let mut reason =
            StallReason::ALL[self.reason.load(Ordering::Relaxed) as usize % StallReason::ALL.len()];
        if self.last_buffer.load(Ordering::Relaxed) {
            // Twice the flush rate while the last memtable is empty, half of it when it is nearly
            // full.
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
        // The rate is no credit: time in which nothing was written is not made up for.
        let start = self.next_ns.fetch_max(now, Ordering::Relaxed).max(now);
        self.next_ns.fetch_add(cost, Ordering::Relaxed);
        let ahead = start.saturating_sub(now);
        if ahead < SLEEP_MIN_NS {
            return;
        }
        // A small write waits for a moment at most, a large one as long as its own bytes take.
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

    /// Counts nanoseconds that a writer waited.
    pub(crate) fn stalled(&self, reason: StallReason, ns: u64) {
        self.stalled_ns[reason as usize].add(ns);
    }

    /// Nanoseconds that writers waited, by reason.
    pub(crate) fn stalled_ns(&self, reason: StallReason) -> u64 {
        self.stalled_ns[reason as usize].get()
    }

    /// The current rate, in bytes per second; 0 for no limit.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::picker::level0_pressure;

    /// The debt of a level 0 with `tables`.
    fn level0(tables: usize) -> Debt {
        let mut debt = Debt::default();
        debt.add(&[level0_pressure(tables, &Limits::default())]);
        debt
    }

    #[test]
    fn the_pace_falls_with_debt_and_never_stops() {
        let limits = Limits::default();
        let stall = WriteStall::new(Clock::manual());
        let mut last = u64::MAX;
        for level0_tables in 0..40 {
            let change = stall.update(&level0(level0_tables), &limits);
            assert_eq!(change.is_some(), level0_tables == limits.level0_slow + 1);
            let rate = if stall.rate() == 0 {
                u64::MAX
            } else {
                stall.rate()
            };
            assert!(rate <= last && rate > 0);
            last = rate;
        }
        assert_eq!(stall.update(&Debt::default(), &limits), Some(None));
    }

    /// The rate falls from 1.5 times the logs' threshold on, in steps too small for a writer to
    /// notice, to a tenth at four times.
    #[test]
    fn lab_10_full_logs_slow_writers_down_bit_by_bit() {
        let stall = WriteStall::new(Clock::manual());
        stall.drained(100 << 20, 1_000_000_000);
        let rates: Vec<f64> = (0..50)
            .map(|step| {
                stall.update(
                    &Debt {
                        pressures: vec![Pressure {
                            reason: StallReason::Logs,
                            stall: (f64::from(step) / 10.0 - 1.5) / 2.5,
                            haste: 0.0,
                        }],
                        ..Debt::default()
                    },
                    &Limits::default(),
                );
                stall.rate() as f64
            })
            .collect();
        let paced = &rates[16..];
        assert!(
            rates[..16].iter().all(|&rate| rate == 0.0) && paced.iter().all(|&rate| rate > 0.0),
            "{rates:?}"
        );
        let full = paced[0];
        assert!(
            paced
                .windows(2)
                .all(|pair| pair[1] <= pair[0] && pair[0] - pair[1] < full / 20.0),
            "{rates:?}"
        );
        assert!((full / 15.0..full / 8.0).contains(&paced[33]), "{rates:?}");
        assert_eq!(
            stall.update(&Debt::default(), &Limits::default()),
            Some(None)
        );
    }

    /// Links drain level 0 much faster than writers write, and make no room. Writers are slowed
    /// nevertheless, to a tenth of what flushes take of persistent memory.
    #[test]
    fn tlsm_09_writers_are_slowed_while_memory_fills_up() {
        const FLUSH: u64 = 100 << 20;
        let stall = WriteStall::new(Clock::manual());
        for _ in 0..50 {
            stall.drained(100 * FLUSH, 1_000_000_000);
            stall.flushed(FLUSH, 1_000_000_000);
        }
        let rates: Vec<u64> = (0..=10)
            .map(|step| {
                let mut debt = Debt::default();
                debt.add(&[Pressure {
                    reason: StallReason::PersistentMemory,
                    stall: f64::from(step) / 10.0,
                    haste: 0.0,
                }]);
                stall.update(&debt, &Limits::default());
                stall.rate()
            })
            .collect();
        assert_eq!(rates[0], 0, "no limit: {rates:?}");
        assert!(rates[1..].is_sorted_by(|a, b| a > b), "{rates:?}");
        assert!(rates[1] < FLUSH * 5 / 4, "{rates:?}");
        assert!((1..FLUSH / 9).contains(&rates[10]), "{rates:?}");
    }

    #[test]
    fn a_paced_writer_takes_the_time_that_the_rate_says() {
        let clock = Clock::manual();
        let stall = WriteStall::new(clock.clone());
        stall.update(&level0(24), &Limits::default());
        let rate = stall.rate();
        for _ in 0..1000 {
            stall.pace(10_000, || 0.0, || true);
        }
        let want_ns = 10_000_000 * 1_000_000_000 / rate;
        let took = clock.now_ns();
        assert!(
            took > want_ns * 9 / 10 && took < want_ns * 11 / 10,
            "{took} of {want_ns}"
        );
        assert!(stall.stalled_ns(StallReason::Level0) > 0);
    }

    /// A batch of many megabytes waits as long as its bytes take, but not after the database is
    /// closed.
    #[test]
    fn a_large_write_pays_for_its_bytes() {
        const BYTES: usize = 8 << 20;
        let clock = Clock::manual();
        let stall = WriteStall::new(clock.clone());
        stall.update(&level0(34), &Limits::default());
        for _ in 0..20 {
            stall.pace(BYTES, || 0.0, || true);
        }
        let want_ns = 20 * BYTES as u64 * 1_000_000_000 / stall.rate();
        let took = clock.now_ns();
        assert!(
            took > want_ns * 9 / 10 && took < want_ns * 11 / 10,
            "{took} of {want_ns}"
        );
        stall.pace(BYTES, || 0.0, || false);
        assert_eq!(clock.now_ns(), took);
    }
}
