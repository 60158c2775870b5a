//! What a benchmark needs of an open database.

use firn_base::Result;
use firndb::Durability;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An ordered key-value store under test. Called by many threads at once.
pub trait Store: Send + Sync + 'static {
    /// Writes `value` at `key`; returns when it is as durable as asked.
    ///
    /// # Errors
    /// What the engine says.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()>;

    /// Hands the value at `key` to `see`. False, without calling it, if there is none.
    ///
    /// # Errors
    /// What the engine says.
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Hands up to `count` entries from `from` on to `see`, in key order. An empty `from` is the first key.
    ///
    /// # Errors
    /// What the engine says.
    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Removes `key`; returns when that is as durable as asked. Nothing is wrong if it was not there.
    ///
    /// # Errors
    /// What the engine says.
    fn delete(&self, key: &[u8], durability: Durability) -> Result<()>;

    /// Writes buffers out and waits until no background work is left: to zero compaction debt.
    ///
    /// # Errors
    /// What the engine says.
    fn settle(&self) -> Result<()>;

    /// What it is, in a few words, for reports.
    fn describe(&self) -> String;

    /// What the engine has counted since it was opened.
    fn counters(&self) -> Counters;

    /// The steps of its opening, in order; empty if the engine does not say.
    fn opening_steps(&self) -> Vec<OpeningStep> {
        Vec::new()
    }
}

/// A database that was closed and opened again, with whatever its log then had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// Seconds that closing took.
    pub close_seconds: f64,
    /// Seconds that opening took, until it could be read and written.
    pub seconds: f64,
    /// The steps of that, if the engine says.
    pub steps: Vec<OpeningStep>,
}

/// A step of an opening.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpeningStep {
    /// The engine's word for it.
    pub step: String,
    /// How long it took.
    pub seconds: f64,
}

/// What is counted in an engine: totals since it was opened, but for logs, indexes and space, which are now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes moved, by medium and cause. Empty if the engine does not count them.
    pub traffic: Vec<Traffic>,
    /// True if the traffic leaves out a part of the bytes written, such as those of a log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
    /// Seconds that writers were held back; nothing if the engine does not say.
    pub stall_seconds: Option<f64>,
    /// Blocks that were looked for in the block cache in vain; nothing if the engine does not say.
    #[serde(default)]
    pub cache_misses: Option<u64>,
    /// How often a table took what came from above by an append (`append: RULE`) or was written anew (`anew: RULE`), by
    /// the rule that decided; empty if the engine has no such choice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grains: BTreeMap<String, u64>,
    /// Seconds of compactions, each from its beginning to its end, without flushes; FirnDB leaves out what they slept
    /// for their pace. Nothing if the engine does not say.
    #[serde(default)]
    pub compaction_seconds: Option<f64>,
    /// Those of them that were out of level 0; nothing if the engine does not say.
    #[serde(default)]
    pub level0_seconds: Option<f64>,
    /// Bytes of the logs that level 0 has its values in: of a workload's last operation, as they shrink while the store
    /// comes to rest. Nothing if the engine has no such logs.
    #[serde(default)]
    pub log_bytes: Option<u64>,
    /// Bytes of memory that indexes of tables take, of those that are open; nothing if the engine does not say.
    #[serde(default)]
    pub index_bytes: Option<u64>,
    /// Bytes of storage in use, by the file system's count.
    pub space_bytes: u64,
    /// How it was closed and opened again behind a workload, if the workload does that; the benchmark says so, not the
    /// engine.
    #[serde(default)]
    pub opening: Option<Opening>,
}

/// Bytes that an engine moved for one cause, by its own count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// `ssd` or `pm`.
    pub medium: String,
    /// What for: `log`, `flush`, `compaction`, `manifest`, `read`, or another word of the engine's.
    pub cause: String,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads that it took; nothing if the engine does not count them.
    #[serde(default)]
    pub reads: Option<u64>,
}

impl Counters {
    /// True if the engine counts all bytes that it writes.
    pub fn counts_writes(&self) -> bool {
        !self.traffic.is_empty() && !self.is_partial
    }

    /// Bytes written to `medium` for causes that `wanted` takes.
    pub fn written(&self, medium: &str, wanted: impl Fn(&str) -> bool) -> u64 {
        let of = self.traffic.iter().filter(|t| t.medium == medium && wanted(&t.cause));
        of.map(|traffic| traffic.written_bytes).sum()
    }

    /// What was counted since `before`; logs, indexes and space are those of now.
    pub fn since(&self, before: &Counters) -> Counters {
        let earlier = |of: &Traffic| before.traffic.iter().find(|t| (&t.medium, &t.cause) == (&of.medium, &of.cause));
        let difference = |now: &Traffic| Traffic {
            written_bytes: now.written_bytes - earlier(now).map_or(0, |t| t.written_bytes.min(now.written_bytes)),
            read_bytes: now.read_bytes - earlier(now).map_or(0, |t| t.read_bytes.min(now.read_bytes)),
            reads: now.reads.map(|reads| reads.saturating_sub(earlier(now).and_then(|t| t.reads).unwrap_or(0))),
            ..now.clone()
        };
        Counters {
            traffic: self.traffic.iter().map(difference).collect(),
            is_partial: self.is_partial,
            stall_seconds: self.stall_seconds.map(|now| now - before.stall_seconds.unwrap_or(0.0)),
            cache_misses: self.cache_misses.map(|now| now.saturating_sub(before.cache_misses.unwrap_or(0))),
            grains: self
                .grains
                .iter()
                .map(|(rule, now)| (rule.clone(), now - before.grains.get(rule).unwrap_or(&0)))
                .collect(),
            compaction_seconds: self.compaction_seconds.map(|now| now - before.compaction_seconds.unwrap_or(0.0)),
            level0_seconds: self.level0_seconds.map(|now| now - before.level0_seconds.unwrap_or(0.0)),
            log_bytes: self.log_bytes,
            index_bytes: self.index_bytes,
            space_bytes: self.space_bytes,
            opening: None,
        }
    }
}
