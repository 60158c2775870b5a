//! The only place that reads time or waits for it.
//!
//! A [`Clock`] is either the system's monotonic clock or a manual clock. A manual clock moves only
//! when it is told to or when a thread sleeps on it, so a test that runs on one never waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time. Clones share the same time.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System(Instant),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's monotonic clock, counting from now.
    pub fn system() -> Self {
        Self(Source::System(Instant::now()))
    }

    /// A clock that starts at zero and moves only by [`Clock::sleep`] and [`Clock::advance`].
    pub fn manual() -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(0))))
    }

    /// Nanoseconds since this clock began.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            Source::System(start) => start.elapsed().as_nanos() as u64,
            Source::Manual(now) => now.load(Ordering::Relaxed),
        }
    }

    /// Waits for `duration`. A manual clock advances by it instead.
    pub fn sleep(&self, duration: Duration) {
        match &self.0 {
            Source::System(_) => std::thread::sleep(duration),
            Source::Manual(_) => self.advance(duration),
        }
    }

    /// Moves a manual clock forward. Does nothing to a system clock.
    pub fn advance(&self, duration: Duration) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// True if this clock moves only when it is told to.
    pub fn is_manual(&self) -> bool {
        matches!(self.0, Source::Manual(_))
    }

    /// Seconds since 1970 by the wall clock, for reports only; 0 on a manual clock.
    pub fn unix_seconds(&self) -> u64 {
        match &self.0 {
            Source::System(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_secs()),
            Source::Manual(_) => 0,
        }
    }
}

/// Nanoseconds since this process first asked, by the machine's clock. For statistics, and
/// for decisions where the engine's clock is the machine's: they would not follow from a seed.
pub fn statistics_ns() -> u64 {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::system).now_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_time_moves_only_when_told() {
        let clock = Clock::manual();
        let other = clock.clone();
        assert_eq!(clock.now_ns(), 0);
        other.sleep(Duration::from_micros(3));
        assert_eq!(clock.now_ns(), 3_000);
    }
}
