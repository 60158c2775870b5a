//! The counters of an engine under test, as far as it reports them.

use crate::store::Opening;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counters of an engine. They are totals since it was opened, except those of logs, indexes and
/// space, which are current values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes moved, by medium and cause. Empty if the engine does not count them.
    pub traffic: Vec<Traffic>,
    /// True if the traffic omits some of the bytes written, such as those of a log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
    /// Total seconds that writers were held back; `None` if the engine does not report them.
    pub stall_seconds: Option<f64>,
    /// Block cache misses; `None` if the engine does not report them.
    #[serde(default)]
    pub cache_misses: Option<u64>,
    /// How often a table received entries from above by an append (`append: RULE`) or was rewritten
    /// (`rewrite: RULE`), by the rule that decided. Empty if the engine has no such choice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grains: BTreeMap<String, u64>,
    /// Bytes of tables written on all media, by the kind of job that wrote them: `flush`,
    /// `internal` and `major` in profile `blade`. Empty if the engine does not tell them apart.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub job_bytes: BTreeMap<String, u64>,
    /// Keys found by gets, by the layer that had the value. Empty if the engine does not report
    /// it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hits: BTreeMap<String, u64>,
    /// The I/O of compactions; `None` if the engine does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction_io: Option<CompactionIo>,
    /// Total seconds of compactions, without flushes, each from start to end. FirnDB excludes the
    /// time that its rate limiter makes them sleep. `None` if the engine does not report them.
    #[serde(default)]
    pub compaction_seconds: Option<f64>,
    /// The part of them spent on compactions out of level 0; `None` if the engine does not report
    /// it.
    #[serde(default)]
    pub level0_seconds: Option<f64>,
    /// The mean age, in seconds, of tables that compactions replaced, by level, since the engine
    /// was opened. Empty if the engine does not report it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub table_seconds: Vec<f64>,
    /// Bytes of the logs that hold the values of level 0. Taken at a workload's last operation,
    /// because they shrink while the store comes to rest. `None` if the engine has no such logs.
    #[serde(default)]
    pub log_bytes: Option<u64>,
    /// Memory of the indexes of open tables, in bytes; `None` if the engine does not report it.
    #[serde(default)]
    pub index_bytes: Option<u64>,
    /// Bytes of persistent memory that tables take; `None` if the engine does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pm_table_bytes: Option<u64>,
    /// Bytes of persistent memory in use now, by owner. Empty if the engine does not report them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pm_bytes: BTreeMap<String, u64>,
    /// Cache lines of persistent memory that searches of gets read in tables or trees, write
    /// buffers excluded; `None` if the engine does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pm_search_lines: Option<u64>,
    /// Bytes of storage in use, as counted by the file system.
    pub space_bytes: u64,
    /// The reopening after a workload, if the workload has one. Set by the benchmark, not by the
    /// engine.
    #[serde(default)]
    pub opening: Option<Opening>,
}

/// Bytes that an engine transferred for one cause, by its own count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// `ssd` or `pm`.
    pub medium: String,
    /// The cause: `log`, `flush`, `compaction`, `manifest`, `read`, or another word of the engine.
    pub cause: String,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// The number of reads; `None` if the engine does not count them.
    #[serde(default)]
    pub reads: Option<u64>,
}

/// The I/O of an engine's compactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CompactionIo {
    /// Reads and writes that ended.
    pub ended: u64,
    /// Their mean duration, in microseconds.
    pub mean_us: f64,
    /// Seconds during which at least one was in flight.
    pub busy_seconds: f64,
    /// Seconds that workers spent on compactions, summed over the workers.
    pub worker_seconds: f64,
    /// The processor time that they used meanwhile, in seconds.
    pub worker_cpu_seconds: f64,
}

impl CompactionIo {
    /// The I/O since `before`.
    fn since(self, before: CompactionIo) -> CompactionIo {
        let ended = self.ended.saturating_sub(before.ended);
        let total_us = |of: CompactionIo| of.mean_us * of.ended as f64;
        CompactionIo {
            ended,
            mean_us: (total_us(self) - total_us(before)).max(0.0) / ended.max(1) as f64,
            busy_seconds: self.busy_seconds - before.busy_seconds,
            worker_seconds: self.worker_seconds - before.worker_seconds,
            worker_cpu_seconds: self.worker_cpu_seconds - before.worker_cpu_seconds,
        }
    }
}

/// The growth of each count in `now` since `before`.
fn differences(
    now: &BTreeMap<String, u64>,
    before: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let growth = |(name, count): (&String, &u64)| {
        let earlier = before.get(name).copied().unwrap_or(0);
        (name.clone(), count.saturating_sub(earlier))
    };
    now.iter().map(growth).collect()
}

impl Counters {
    /// True if the engine counts all bytes that it writes.
    pub fn counts_writes(&self) -> bool {
        !self.traffic.is_empty() && !self.is_partial
    }

    /// Bytes written to `medium` for causes that `wanted` accepts.
    pub fn written(&self, medium: &str, wanted: impl Fn(&str) -> bool) -> u64 {
        let of = self
            .traffic
            .iter()
            .filter(|t| t.medium == medium && wanted(&t.cause));
        of.map(|traffic| traffic.written_bytes).sum()
    }

    /// Totals of `amount` over the traffic of `medium`; `None` if the engine does not count it, or
    /// not apart from that of another medium.
    pub fn total_of(&self, medium: &str, amount: impl Fn(&Traffic) -> u64) -> Option<u64> {
        let is_mixed = |t: &Traffic| !["ssd", "pm"].contains(&&*t.medium) && amount(t) > 0;
        if self.traffic.is_empty() || self.traffic.iter().any(is_mixed) {
            return None;
        }
        let of = self.traffic.iter().filter(|t| t.medium == medium);
        Some(of.map(&amount).sum())
    }

    /// The share, 0 to 1, of the keys found by gets that a layer in `layers` had; `None` if nothing
    /// was found or the engine does not report it.
    pub fn hit_share(&self, layers: &[&str]) -> Option<f64> {
        let found: u64 = self.hits.values().sum();
        let hits = self.hits.iter();
        let those = hits.filter(|(layer, _)| layers.contains(&layer.as_str()));
        let those: u64 = those.map(|(_, count)| count).sum();
        (found > 0).then(|| those as f64 / found as f64)
    }

    /// The counts since `before`. Ages, logs, indexes and space keep their current values.
    pub fn since(&self, before: &Counters) -> Counters {
        let earlier = |of: &Traffic| {
            before
                .traffic
                .iter()
                .find(|t| (&t.medium, &t.cause) == (&of.medium, &of.cause))
        };
        let difference = |now: &Traffic| Traffic {
            written_bytes: now.written_bytes
                - earlier(now).map_or(0, |t| t.written_bytes.min(now.written_bytes)),
            read_bytes: now.read_bytes
                - earlier(now).map_or(0, |t| t.read_bytes.min(now.read_bytes)),
            reads: now
                .reads
                .map(|reads| reads.saturating_sub(earlier(now).and_then(|t| t.reads).unwrap_or(0))),
            ..now.clone()
        };
        Counters {
            traffic: self.traffic.iter().map(difference).collect(),
            is_partial: self.is_partial,
            stall_seconds: self
                .stall_seconds
                .map(|now| now - before.stall_seconds.unwrap_or(0.0)),
            cache_misses: self
                .cache_misses
                .map(|now| now.saturating_sub(before.cache_misses.unwrap_or(0))),
            grains: differences(&self.grains, &before.grains),
            job_bytes: differences(&self.job_bytes, &before.job_bytes),
            hits: differences(&self.hits, &before.hits),
            compaction_io: self
                .compaction_io
                .map(|now| now.since(before.compaction_io.unwrap_or_default())),
            compaction_seconds: self
                .compaction_seconds
                .map(|now| now - before.compaction_seconds.unwrap_or(0.0)),
            level0_seconds: self
                .level0_seconds
                .map(|now| now - before.level0_seconds.unwrap_or(0.0)),
            table_seconds: self.table_seconds.clone(),
            log_bytes: self.log_bytes,
            index_bytes: self.index_bytes,
            pm_table_bytes: self.pm_table_bytes,
            pm_bytes: self.pm_bytes.clone(),
            pm_search_lines: self
                .pm_search_lines
                .map(|now| now.saturating_sub(before.pm_search_lines.unwrap_or(0))),
            space_bytes: self.space_bytes,
            opening: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_and_hits_are_those_since_before() {
        let at = |scale: u64| Counters {
            hits: [("level0".to_owned(), 3 * scale), ("rows".to_owned(), scale)].into(),
            compaction_io: Some(CompactionIo {
                ended: 10 * scale,
                mean_us: 5.0 * scale as f64,
                busy_seconds: scale as f64,
                ..CompactionIo::default()
            }),
            ..Counters::default()
        };
        let since = at(3).since(&at(1));
        assert_eq!(since.hit_share(&["level0", "level1"]), Some(0.75));
        assert_eq!(Counters::default().hit_share(&["level0"]), None);
        let io = since.compaction_io.unwrap();
        assert_eq!((io.ended, io.busy_seconds), (20, 2.0));
        assert_eq!(io.mean_us, (15.0 * 30.0 - 5.0 * 10.0) / 20.0);
    }
}
