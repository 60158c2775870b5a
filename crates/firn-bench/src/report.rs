//! The report of a benchmark's phase. Everything is in the JSON; the table shows a selection.

use crate::counters::Counters;
use crate::latency::Percentiles;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// The workload's name.
    pub workload: String,
    /// Threads that issued operations.
    pub threads: usize,
    /// The failure that an acknowledged write survives: `power` or `process`.
    pub durability: String,
    /// Operations acknowledged.
    pub operations: u64,
    /// Seconds from the start to the last acknowledgement.
    pub seconds: f64,
    /// Operations divided by seconds.
    pub operations_per_second: f64,
    /// The requested rate, in operations per second. If set, latency counts from the time at which
    /// an operation should have begun.
    pub rate: Option<f64>,
    /// Latency of all operations.
    pub latency: Percentiles,
    /// The latency of all operations by quantile, for plots: pairs of a quantile, 0 to 1, and
    /// microseconds.
    pub quantiles: Vec<(f64, f64)>,
    /// Latency by kind of operation.
    pub latency_by_sort: BTreeMap<String, Percentiles>,
    /// The course of the phase, second by second.
    pub timeline: Timeline,
    /// Seconds from the last acknowledgement until no background work was left, if that was
    /// awaited.
    pub settle_seconds: Option<f64>,
    /// Bytes of keys and values written by the workload.
    pub user_bytes: u64,
    /// The engine's counters, to zero compaction debt if that was awaited.
    pub engine: Counters,
    /// Bytes written to storage by this process, as counted by the kernel.
    pub os_written_bytes: Option<u64>,
    /// Bytes read from storage by this process, as counted by the kernel.
    pub os_read_bytes: Option<u64>,
    /// Bytes counted by the block device in the same time, by any process.
    pub device: Option<Moved>,
    /// CPU seconds used, including those of the benchmark itself.
    pub cpu_seconds: f64,
    /// The largest resident set in bytes, including that of the benchmark itself.
    pub peak_memory_bytes: Option<u64>,
    /// The part of these that is the benchmark's own.
    #[serde(flatten)]
    pub harness: Harness,
}

/// The part of the benchmark in the figures of a phase. Its fields are those of the phase in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Harness {
    /// The part of the phase's seconds in operations, without their generation and check: the sum
    /// of all latencies divided by the threads. 0 in reports of older programs.
    #[serde(default)]
    pub call_seconds: f64,
    /// The part of the largest resident set used by the check of the answers, in bytes; the same
    /// for all engines.
    pub checker_bytes: u64,
    /// Bytes of keys and values in the database at the end; `None` if they are those of the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
}

/// Bytes transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Written.
    pub written_bytes: u64,
    /// Read.
    pub read_bytes: u64,
}

/// The source of a count of bytes written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counted {
    /// The engine's own counters.
    Engine,
    /// The kernel's counters of the process, for engines that do not count everything.
    Kernel,
}

impl PhaseReport {
    /// The best available source for the bytes written; `None` if there is none.
    pub fn counted_by(&self) -> Option<Counted> {
        [Counted::Engine, Counted::Kernel]
            .into_iter()
            .find(|source| self.written_bytes_by(*source).is_some())
    }

    /// Bytes written to the SSD as counted by `source`; `None` if it does not count them.
    pub fn written_bytes_by(&self, source: Counted) -> Option<u64> {
        match source {
            Counted::Engine => self
                .engine
                .counts_writes()
                .then(|| self.engine.written("ssd", |_| true)),
            // 0 for a workload that writes means that the kernel does not count there, as on tmpfs.
            Counted::Kernel => self
                .os_written_bytes
                .filter(|bytes| *bytes > 0 || self.user_bytes == 0),
        }
    }

    /// Bytes written to the SSD, from the best available source.
    pub fn written_bytes(&self) -> Option<u64> {
        self.written_bytes_by(self.counted_by()?)
    }

    /// Bytes written to the SSD per byte of user data; `None` if nothing was written or counted.
    pub fn write_amplification(&self) -> Option<f64> {
        let written = self.written_bytes().filter(|_| self.user_bytes > 0)?;
        Some(written as f64 / self.user_bytes as f64)
    }

    /// Operations per second in operations; `None` if those seconds are unknown. With a rate, the
    /// seconds include the wait of operations that were due.
    pub fn operations_per_call_second(&self) -> Option<f64> {
        let call_seconds = self.harness.call_seconds;
        (call_seconds > 0.0).then(|| self.operations as f64 / call_seconds)
    }

    /// Bytes of storage in use at the end per byte of keys and values, of which a load wrote
    /// `loaded_bytes`.
    pub fn space_amplification(&self, loaded_bytes: u64) -> f64 {
        let kept_bytes = self.harness.kept_bytes.unwrap_or(loaded_bytes).max(1);
        self.engine.space_bytes as f64 / kept_bytes as f64
    }

    /// CPU microseconds per operation, over all threads.
    pub fn cpu_us_per_operation(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.operations.max(1) as f64
    }

    /// Block-cache misses per operation, if the engine counts them.
    pub fn cache_misses_per_operation(&self) -> Option<f64> {
        Some(self.engine.cache_misses? as f64 / self.operations.max(1) as f64)
    }

    /// Seconds to zero compaction debt, or to the last acknowledgement if that was not awaited.
    pub fn settled_seconds(&self) -> f64 {
        self.seconds + self.settle_seconds.unwrap_or(0.0)
    }
}

/// The seconds of a phase: operations acknowledged, and their latencies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Operations in the slowest whole second.
    pub min: u64,
    /// Operations in the median whole second.
    pub median: u64,
    /// Operations in every second; the last one may be partial.
    pub seconds: Vec<u64>,
    /// The 99th percentile of the latencies in each second, in microseconds, to one digit.
    pub p99_us: Vec<f64>,
    /// The largest latency in each second, in microseconds, to one digit.
    pub max_us: Vec<f64>,
}

impl Timeline {
    /// Builds a timeline from the counts of each second. The last second counts as partial unless
    /// it is the only one.
    pub fn new(seconds: Vec<u64>, p99_us: Vec<f64>, max_us: Vec<f64>) -> Self {
        let mut whole =
            seconds[..seconds.len().saturating_sub(1).max(1).min(seconds.len())].to_vec();
        whole.sort_unstable();
        let min = whole.first().copied().unwrap_or(0);
        let median = whole.get(whole.len() / 2).copied().unwrap_or(0);
        Self {
            min,
            median,
            seconds,
            p99_us,
            max_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_a_second_does_not_count() {
        let timeline = Timeline::new(vec![10, 30, 20, 1], Vec::new(), Vec::new());
        assert_eq!((timeline.min, timeline.median), (10, 20));
        assert_eq!(Timeline::new(vec![5], Vec::new(), Vec::new()).min, 5);
        assert_eq!(Timeline::new(Vec::new(), Vec::new(), Vec::new()).median, 0);
    }

    /// Without serde_json's feature `float_roundtrip` some figures are read as their neighbors, and
    /// a report that is shown again may differ from the first one in a last digit.
    #[test]
    fn a_figure_is_read_as_it_was_written() {
        let mut bits = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // From 1 to 2, with 17 digits: fewer are read exactly in any case.
            let figure = f64::from_bits(0x3FF0_0000_0000_0000 | bits >> 12);
            let text = serde_json::to_string(&figure).unwrap();
            let read: f64 = serde_json::from_str(&text).unwrap();
            assert_eq!(read.to_bits(), figure.to_bits(), "{text}");
        }
    }
}
