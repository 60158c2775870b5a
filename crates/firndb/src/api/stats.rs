//! Counters and sizes, as a struct and as JSON (by serde); see `prometheus.rs` for the text that Prometheus reads.

use crate::compaction::LevelCounters;
use crate::engine::Engine;
use crate::event::StallReason;
use crate::lab::{LabStats, Trees};
use crate::read::state::{Level, ReadState};
use firn_base::count::{Cause, Counter};
use firn_base::sync::Ordering;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// What one medium moved for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseStats {
    /// Which cause.
    pub cause: &'static str,
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Writes.
    pub writes: u64,
}

/// One level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelStats {
    /// The level's number.
    pub level: usize,
    /// Tables in it.
    pub tables: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Entries, tombstones among them.
    pub entries: u64,
    /// Compactions out of this level.
    pub compactions: u64,
    /// Tables moved down without being read.
    pub moves: u64,
    /// Bytes that those compactions read.
    pub compaction_read_bytes: u64,
    /// Bytes that those compactions wrote.
    pub compaction_written_bytes: u64,
    /// Seconds that those compactions took.
    pub compaction_seconds: f64,
    /// Of the bytes, those that the tables' newest states need.
    pub live_bytes: u64,
    /// The others, which are in no live block.
    pub dead_bytes: u64,
    /// Data blocks of less than half the target size.
    pub small_blocks: u64,
    /// Bytes of memory of indexes, of the tables that are open.
    pub index_bytes: u64,
    /// Keys that filters have room for.
    pub filter_left: u64,
    /// Tables that grew since they were written anew.
    pub grown_tables: u64,
    /// How often they did.
    pub appends: u64,
    /// The share of appends in the writes that made the tables what they are: that of block-grained compactions, where
    /// each table was written anew once.
    pub append_share: f64,
    /// Since the open, times that a table of this level took what came from above by an append.
    pub block_grained: u64,
    /// Times that one that might have was written anew.
    pub table_grained: u64,
    /// Blocks that appends left where they were.
    pub kept_blocks: u64,
}

/// What users asked for.
#[derive(Debug, Clone, Serialize)]
pub struct UserStats {
    /// Operations written.
    pub writes: u64,
    /// Bytes of keys and values written.
    pub written_bytes: u64,
    /// Keys looked up.
    pub gets: u64,
    /// Keys found.
    pub found: u64,
}

/// Flushes and compactions.
#[derive(Debug, Clone, Serialize)]
pub struct BackgroundStats {
    /// Flushes done.
    pub flushes: u64,
    /// Compactions done that fruitless reads caused.
    pub seek_compactions: u64,
    /// Flushes that run now.
    pub flushing: usize,
    /// Compactions that run now.
    pub compacting: usize,
    /// Bytes by which levels exceed their targets.
    pub debt_bytes: u64,
    /// The pace of compactions in bytes written per second; 0 when there is no bound.
    pub rate: u64,
    /// Seconds that compactions slept, because nothing was urgent: of all workers together.
    pub slept_seconds: f64,
    /// What keeps background work from going on.
    pub error: Option<String>,
    /// Blocks that were in the block cache when compaction made them obsolete.
    pub invalidated_blocks: u64,
    /// Batches in which obsolete tables were removed.
    pub removals: u64,
    /// Obsolete tables removed.
    pub removed_tables: u64,
    /// Sub-tasks of compactions into tables that may grow.
    pub sub_tasks: u64,
    /// Of these, those that another worker took than the one that began.
    pub helped_sub_tasks: u64,
    /// Reads of an append's old blocks that went on at the same time, at most.
    pub append_reads_most: u64,
    /// Since the open, how tables of profile `block` took what came from above, by the rule that decided.
    pub grains: Vec<GrainStats>,
}

/// Choices between an append to a table and writing it anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrainStats {
    /// Whether it was an append.
    pub block_grained: bool,
    /// The rule that decided.
    pub because: &'static str,
    /// How often.
    pub count: u64,
}

impl fmt::Display for GrainStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", if self.block_grained { "append" } else { "anew" }, self.because)
    }
}

/// The delays of writers.
#[derive(Debug, Clone, Serialize)]
pub struct StallStats {
    /// Seconds that writers waited, by reason.
    pub seconds: Vec<(&'static str, f64)>,
    /// The pace of writers in bytes per second; 0 when there is no bound.
    pub rate: u64,
}

/// Memory: what is held, and how well it serves.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryStats {
    /// Write buffers, the active one among them.
    pub buffers: usize,
    /// Bytes used in them.
    pub buffer_bytes: u64,
    /// Block cache: hits.
    pub cache_hits: u64,
    /// Block cache: misses.
    pub cache_misses: u64,
    /// Block cache: bytes held.
    pub cache_bytes: u64,
    /// Tables kept open.
    pub open_tables: usize,
    /// Bytes of indexes and filters in memory: of these and of tables that only cursors hold.
    pub open_table_bytes: u64,
    /// Tables opened.
    pub table_opens: u64,
}

/// What the open did.
#[derive(Debug, Clone, Serialize)]
pub struct RecoveryStats {
    /// Its steps, with seconds.
    pub steps: Vec<(&'static str, f64)>,
    /// Entries that came back from logs.
    pub replayed_entries: u64,
}

/// Counters since the database was opened, and sizes now.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
    /// The profile.
    pub profile: String,
    /// How files are read and written.
    pub io: String,
    /// The log: `file`, or the persistent-memory backend in front of it.
    pub log: String,
    /// The highest visible sequence number.
    pub seqno: u64,
    /// What users asked for.
    pub user: UserStats,
    /// Bytes moved on the SSD, by cause.
    pub ssd: Vec<CauseStats>,
    /// Bytes moved in persistent memory, by owner.
    pub pm: Vec<PmStats>,
    /// All bytes written to the SSD.
    pub ssd_written_bytes: u64,
    /// Bytes written to the SSD per byte written by users.
    pub write_amplification: f64,
    /// Bytes of live tables.
    pub table_bytes: u64,
    /// Logs that hold what is in no table yet.
    pub logs: usize,
    /// Level 0 in persistent memory, in profile `lab`.
    pub tier: Option<LabStats>,
    /// Levels.
    pub levels: Vec<LevelStats>,
    /// Flushes and compactions.
    pub background: BackgroundStats,
    /// The delays of writers.
    pub stalls: StallStats,
    /// Memory.
    pub memory: MemoryStats,
    /// Snapshots and cursors alive.
    pub snapshots: usize,
    /// What the open did.
    pub recovery: RecoveryStats,
}

/// One owner of persistent memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PmStats {
    /// The owner.
    pub owner: String,
    /// Bytes of its extents.
    pub live_bytes: u64,
    /// Lines stored.
    pub lines_stored: u64,
    /// Lines flushed.
    pub lines_flushed: u64,
    /// Fences.
    pub fences: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Engine {
    fn grain_stats(&self) -> Vec<GrainStats> {
        let grains = self.counts.jobs.grains.lock();
        grains.iter().map(|(&(block_grained, because), &count)| GrainStats { block_grained, because, count }).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = self.state.load_full();
        let part = &state.parts[0];
        let ssd: Vec<CauseStats> = Cause::ALL.iter().map(|&cause| self.cause_stats(cause)).collect();
        let ssd_written_bytes = ssd.iter().map(|cause| cause.written_bytes).sum();
        let user_written_bytes = self.counts.user.written_bytes.get();
        let (cache_hits, cache_misses) = self.tables.context().cache.counts();
        let (open_tables, _, table_opens) = self.tables.usage();
        let (flushing, compacting) = self.running();
        Stats {
            profile: self.options.profile.to_string(),
            io: self.fs().name(),
            log: self.logs.name.clone(),
            seqno: self.commit.visible().0,
            user: UserStats {
                writes: self.counts.user.writes.get(),
                written_bytes: user_written_bytes,
                gets: self.counts.user.gets.get(),
                found: self.counts.user.found.get(),
            },
            ssd,
            pm: self.pm_stats(),
            ssd_written_bytes,
            write_amplification: ssd_written_bytes as f64 / user_written_bytes.max(1) as f64,
            table_bytes: part.tables().map(|(_, run)| run.meta.bytes()).sum(),
            logs: self.count_logs(),
            tier: part.trees.as_ref().map(Trees::stats),
            levels: self.level_stats(&state),
            background: BackgroundStats {
                flushes: self.counts.jobs.flushes.get(),
                seek_compactions: self.counts.jobs.seeks.get(),
                flushing,
                compacting,
                debt_bytes: self.debt().bytes,
                rate: self.jobs.rate_limiter.rate(),
                slept_seconds: self.jobs.rate_limiter.slept_ns() as f64 / 1e9,
                error: self.background_error().map(|error| error.to_string()),
                invalidated_blocks: self.counts.jobs.invalidated.get(),
                removals: self.counts.jobs.removals.get(),
                removed_tables: self.counts.jobs.removed.get(),
                sub_tasks: self.counts.jobs.sub_tasks.get(),
                helped_sub_tasks: self.counts.jobs.helped.get(),
                append_reads_most: self.counts.jobs.reads_most.load(Ordering::Relaxed),
                grains: self.grain_stats(),
            },
            stalls: StallStats {
                seconds: StallReason::ALL.map(|r| (r.name(), self.write_stall.stalled_ns(r) as f64 / 1e9)).to_vec(),
                rate: self.write_stall.rate(),
            },
            memory: MemoryStats {
                buffers: part.buffers.len(),
                buffer_bytes: part.buffers.iter().map(|buffer| buffer.used_bytes() as u64).sum(),
                cache_hits,
                cache_misses,
                cache_bytes: self.tables.context().cache.bytes(),
                open_tables,
                open_table_bytes: self.tables.context().open_bytes(),
                table_opens,
            },
            snapshots: self.readers.snapshots.len(),
            recovery: RecoveryStats {
                steps: self.recovery.steps.iter().map(|(step, time)| (*step, time.as_secs_f64())).collect(),
                replayed_entries: self.recovery.replayed_entries,
            },
        }
    }

    /// Logs that are to be replayed, and those that level 0 points into.
    fn count_logs(&self) -> usize {
        let uses = self.logs.values.as_ref().map(|values| values.uses()).unwrap_or_default();
        let manifest = self.manifest.lock();
        let logs = &manifest.version().logs;
        logs.len() + uses.iter().filter(|used| used.entries > 0 && !logs.contains_key(&used.log_id)).count()
    }

    fn cause_stats(&self, cause: Cause) -> CauseStats {
        let (read_bytes, reads, written_bytes, writes) = self.counts.io.get(cause);
        CauseStats { cause: cause.name(), read_bytes, reads, written_bytes, writes }
    }

    fn level_stats(&self, state: &ReadState) -> Vec<LevelStats> {
        let level = |(i, level): (usize, &Arc<Level>)| {
            let done = self.counts.jobs.levels.get(i);
            let count = |pick: fn(&LevelCounters) -> &Counter| done.map_or(0, |done| pick(done).get());
            let appends: u64 = level.runs.iter().map(|run| run.meta.appends).sum();
            LevelStats {
                level: i,
                tables: level.runs.len(),
                bytes: level.bytes(),
                entries: level.runs.iter().map(|run| run.meta.entries).sum(),
                compactions: count(|done| &done.compactions),
                moves: count(|done| &done.moves),
                compaction_read_bytes: count(|done| &done.read_bytes),
                compaction_written_bytes: count(|done| &done.written_bytes),
                compaction_seconds: count(|done| &done.ns) as f64 / 1e9,
                live_bytes: level.live_bytes(),
                dead_bytes: level.dead_bytes(),
                small_blocks: level.runs.iter().map(|run| run.meta.small_blocks).sum(),
                index_bytes: level
                    .runs
                    .iter()
                    .filter_map(|run| run.held())
                    .map(|table| table.index_bytes() as u64)
                    .sum(),
                filter_left: level.runs.iter().map(|run| run.meta.filter_left).sum(),
                grown_tables: level.runs.iter().filter(|run| run.meta.appends > 0).count() as u64,
                appends,
                append_share: appends as f64 / (appends + level.runs.len() as u64).max(1) as f64,
                block_grained: count(|done| &done.block_grained),
                table_grained: count(|done| &done.table_grained),
                kept_blocks: count(|done| &done.kept_blocks),
            }
        };
        state.parts[0].levels.iter().enumerate().map(level).collect()
    }

    fn pm_stats(&self) -> Vec<PmStats> {
        let Some(pool) = &self.pm else { return Vec::new() };
        let usage = pool.usage();
        let owner = |owner: &firn_pm::Owner| {
            let counts = pool.counts(*owner);
            PmStats {
                owner: owner.name().to_owned(),
                live_bytes: usage.live(*owner),
                lines_stored: counts.lines_stored,
                lines_flushed: counts.flushes,
                fences: counts.fences,
                read_bytes: counts.bytes_read,
                written_bytes: counts.bytes_written,
            }
        };
        firn_pm::Owner::ALL.iter().map(owner).filter(|pm| pm.live_bytes + pm.written_bytes > 0).collect()
    }
}
