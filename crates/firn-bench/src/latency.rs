//! Latencies: one histogram per kind of operation, with three significant digits, up to an hour.

use firn_base::{Error, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

const HOUR_NS: u64 = 3_600_000_000_000;

/// A longer operation is slow: it has waited for something.
const SLOW_NS: u64 = 500_000;

/// A histogram of nanoseconds. Not shared: each thread has its own, and they are added up.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// An empty histogram.
    ///
    /// # Errors
    /// Never with these bounds; otherwise the error of the histogram library.
    pub fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, HOUR_NS, 3);
        histogram
            .map(Self)
            .map_err(|e| Error::invalid(format!("cannot make a histogram: {e}")))
    }

    /// A histogram for the many seconds of a timeline: one significant digit, and small.
    ///
    /// # Errors
    /// The errors of [`Latencies::new`].
    pub(crate) fn coarse() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1000, HOUR_NS, 1);
        histogram
            .map(Self)
            .map_err(|e| Error::invalid(format!("cannot make a histogram: {e}")))
    }

    /// The number of operations recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency in microseconds that the fraction `quantile` of the operations did not exceed.
    pub fn at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Records one operation that took `ns`.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// Adds the counts of `other`.
    ///
    /// # Errors
    /// Never: both have the same bounds.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.0
            .add(&other.0)
            .map_err(|e| Error::invalid(format!("cannot add histograms: {e}")))
    }

    /// Pairs of a quantile and its latency in microseconds: nine steps from each number of nines to
    /// the next.
    pub fn quantiles(&self) -> Vec<(f64, f64)> {
        let steps = (0..54).map(|i| 1.0 - 10f64.powi(-(i / 9)) * f64::from(10 - i % 9) / 10.0);
        let enough = |quantile: &f64| (1.0 - quantile) * self.0.len() as f64 >= 1.0;
        steps
            .filter(enough)
            .map(|quantile| (quantile, self.at(quantile)))
            .collect()
    }

    /// The percentiles to print; `None` if nothing was recorded.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile: f64| self.at(quantile);
        (!self.0.is_empty()).then(|| Percentiles {
            operations: self.0.len(),
            mean_us: self.0.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            p99_99_us: at(0.9999),
            max_us: self.0.max() as f64 / 1e3,
            slow_seconds: Some(self.slow_seconds()),
        })
    }

    /// Total seconds of the operations that took longer than 0.5 ms, to the histogram's digits.
    fn slow_seconds(&self) -> f64 {
        let slow = self
            .0
            .iter_recorded()
            .filter(|step| step.value_iterated_to() > SLOW_NS);
        slow.map(|step| step.value_iterated_to() as f64 / 1e9 * step.count_at_value() as f64)
            .fold(0.0, |sum, seconds| sum + seconds)
    }
}

/// Latencies in a report, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Operations counted.
    pub operations: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Half of the operations were no slower.
    pub p50_us: f64,
    /// 90 % were no slower.
    pub p90_us: f64,
    /// 99 % were no slower.
    pub p99_us: f64,
    /// 99.9 % were no slower.
    pub p99_9_us: f64,
    /// 99.99 % were no slower.
    pub p99_99_us: f64,
    /// The slowest operation.
    pub max_us: f64,
    /// Total seconds of the operations that took longer than 0.5 ms. `None` in reports of older
    /// versions.
    #[serde(default)]
    pub slow_seconds: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_within_their_digits() {
        let (mut all, mut half) = (Latencies::new().unwrap(), Latencies::new().unwrap());
        assert!(all.percentiles().is_none());
        for micros in 1..=1000u64 {
            let target = if micros % 2 == 0 { &mut all } else { &mut half };
            target.record(micros * 1000);
        }
        all.add(&half).unwrap();
        let found = all.percentiles().unwrap();
        assert_eq!(found.operations, 1000);
        for (found, exact) in [
            (found.p50_us, 500.0),
            (found.p99_us, 990.0),
            (found.max_us, 1000.0),
        ] {
            assert!((found - exact).abs() / exact < 0.002, "{found} for {exact}");
        }
        // 501 to 1000 microseconds.
        let (slow, exact) = (found.slow_seconds.unwrap(), 500.0 * 750.5e-6);
        assert!((slow - exact).abs() / exact < 0.01, "{slow} for {exact}");
    }
}
