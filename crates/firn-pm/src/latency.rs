//! Injected delays that model memory slower than this machine's. For experiments only.
//!
//! The wait is a spin loop that is calibrated once against the clock, because at tens of
//! nanoseconds reading the clock would cost more than the delay.

use crate::config::Latency;
use firn_base::clock::Clock;

const CALIBRATION_SPINS: u64 = 200_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Delays {
    read_spins_per_line: f64,
    write_spins_per_line: f64,
}

impl Delays {
    /// The delays of `latency`; `None` if it asks for none.
    pub(crate) fn new(latency: Option<Latency>, clock: &Clock) -> Option<Self> {
        let latency = latency.filter(|latency| *latency != Latency::default())?;
        let start = clock.now_ns();
        spin(CALIBRATION_SPINS);
        let spins_per_ns =
            CALIBRATION_SPINS as f64 / clock.now_ns().saturating_sub(start).max(1) as f64;
        Some(Self {
            read_spins_per_line: f64::from(latency.read_ns) * spins_per_ns,
            write_spins_per_line: f64::from(latency.write_ns) * spins_per_ns,
        })
    }

    #[inline]
    pub(crate) fn read(&self, lines: u64) {
        spin((self.read_spins_per_line * lines as f64) as u64);
    }

    #[inline]
    pub(crate) fn write(&self, lines: u64) {
        spin((self.write_spins_per_line * lines as f64) as u64);
    }
}

#[inline]
fn spin(spins: u64) {
    for _ in 0..spins {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_latency_is_no_delay_and_some_is_in_proportion() {
        let clock = Clock::system();
        assert!(Delays::new(None, &clock).is_none());
        assert!(Delays::new(Some(Latency::default()), &clock).is_none());
        let delays = Delays::new(
            Some(Latency {
                read_ns: 100,
                write_ns: 300,
            }),
            &clock,
        )
        .unwrap();
        assert!(delays.write_spins_per_line > 2.9 * delays.read_spins_per_line);
        delays.read(1);
        delays.write(2);
    }
}
