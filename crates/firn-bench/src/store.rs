//! The interface of an open database to the benchmark.

use firn_base::Result;
use firndb::Durability;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One change of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Writes `value` at `key`.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Removes `key`. A missing key is not an error.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

impl Change<'_> {
    /// Bytes of its key and value.
    pub fn byte_size(&self) -> usize {
        match self {
            Change::Put { key, value } => key.len() + value.len(),
            Change::Delete { key } => key.len(),
        }
    }
}

/// An ordered key-value store under test. Called by many threads at once.
pub trait Store: Send + Sync + 'static {
    /// Writes `value` at `key`. Returns once it has the requested durability.
    ///
    /// # Errors
    /// The engine's error.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()>;

    /// Passes the value at `key` to `see` and returns true. Returns false, without calling it, if
    /// there is none.
    ///
    /// # Errors
    /// The engine's error.
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes up to `count` entries, starting at `from`, to `see` in key order. An empty `from`
    /// starts at the first key.
    ///
    /// # Errors
    /// The engine's error.
    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Removes `key`. Returns once that has the requested durability. A missing key is not an
    /// error.
    ///
    /// # Errors
    /// The engine's error.
    fn delete(&self, key: &[u8], durability: Durability) -> Result<()>;

    /// Makes the changes of `batch`, in order, as one. Returns once all have the requested
    /// durability. By default each change is a write of its own, as [`Store::is_atomic`] says: a
    /// reader may then see a part of the batch, and so may the next open.
    ///
    /// REQUIRES: no key occurs twice.
    ///
    /// # Errors
    /// The engine's error. By default some of the changes may have been made.
    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        batch.iter().try_for_each(|change| match *change {
            Change::Put { key, value } => self.put(key, value, durability),
            Change::Delete { key } => self.delete(key, durability),
        })
    }

    /// True if [`Store::write`] makes all changes of a batch or none, and a scan sees all or none.
    fn is_atomic(&self) -> bool {
        false
    }

    /// Flushes memtables and waits until no background work is left: to zero compaction debt.
    ///
    /// # Errors
    /// The engine's error.
    fn settle(&self) -> Result<()>;

    /// A short description for reports.
    fn describe(&self) -> String;

    /// The engine's counters since it was opened.
    fn counters(&self) -> Counters;

    /// The steps of its opening, in order; empty if the engine does not report them.
    fn opening_steps(&self) -> Vec<OpeningStep> {
        Vec::new()
    }
}

/// The closing and reopening of a database, including the replay of its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// Seconds to close.
    pub close_seconds: f64,
    /// Seconds to open, until it could be read and written.
    pub seconds: f64,
    /// The steps of opening, if the engine reports them.
    pub steps: Vec<OpeningStep>,
}

/// A step of an opening.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpeningStep {
    /// The engine's name for it.
    pub step: String,
    /// Its duration in seconds.
    pub seconds: f64,
}

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
            grains: self
                .grains
                .iter()
                .map(|(rule, now)| (rule.clone(), now - before.grains.get(rule).unwrap_or(&0)))
                .collect(),
            compaction_seconds: self
                .compaction_seconds
                .map(|now| now - before.compaction_seconds.unwrap_or(0.0)),
            level0_seconds: self
                .level0_seconds
                .map(|now| now - before.level0_seconds.unwrap_or(0.0)),
            table_seconds: self.table_seconds.clone(),
            log_bytes: self.log_bytes,
            index_bytes: self.index_bytes,
            space_bytes: self.space_bytes,
            opening: None,
        }
    }
}
