//! Counters and sizes, as a struct and as JSON (through serde). `prometheus.rs` has the Prometheus
//! text.

use crate::blade::BladeStats;
use crate::compaction::LevelCounters;
use crate::compaction::picker::{measure, weigh};
use crate::compaction::pm_store::PmStore;
use crate::engine::Engine;
use crate::event::GrainRule;
use crate::event::StallReason;
use crate::lab::LabStats;
use crate::manifest::{Level, PartId, TableMeta};
use crate::pmdb::PmdbStats;
use crate::read::Layer;
use crate::read::state::{Part, ReadState};
use crate::tlsm::TlsmStats;
use crate::upper::Upper;
use firn_base::count::{Cause, Counter};
use firn_base::sync::Ordering;
use serde::Serialize;
use std::fmt;

/// The I/O of one cause on the SSD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseStats {
    /// The cause.
    pub cause: &'static str,
    /// Bytes read.
    pub read_bytes: u64,
    /// The number of reads.
    pub reads: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The number of writes.
    pub writes: u64,
}

/// Sizes and counters of one level. Counters start when the database is opened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelStats {
    /// The level's number.
    pub level: usize,
    /// The number of tables.
    pub tables: usize,
    /// Bytes of the tables.
    pub bytes: u64,
    /// The number of entries, including tombstones.
    pub entries: u64,
    /// Compactions out of this level, without moves.
    pub compactions: u64,
    /// Tables moved to the next level without being read.
    pub moves: u64,
    /// Bytes read by these compactions.
    pub compaction_read_bytes: u64,
    /// Bytes written by these compactions.
    pub compaction_written_bytes: u64,
    /// Seconds spent in these compactions.
    pub compaction_seconds: f64,
    /// Bytes of `bytes` that the newest states of the tables need.
    pub live_bytes: u64,
    /// Bytes of `bytes` that are in no live block.
    pub dead_bytes: u64,
    /// Data blocks smaller than half the target size.
    pub small_blocks: u64,
    /// Bytes of memory for the indexes of open tables.
    pub index_bytes: u64,
    /// The number of additional keys that the tables' filters have room for.
    pub filter_left: u64,
    /// Appends to tables, in profiles that have them.
    #[serde(flatten)]
    pub growth: GrowthStats,
    /// The mean age, in seconds, of tables of this level that compactions copied into others, since
    /// they were made or the database was opened; 0 if there were none.
    pub replaced_table_seconds: f64,
}

/// Appends to the tables of a level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GrowthStats {
    /// Tables with appended blocks.
    pub grown_tables: u64,
    /// The number of appends to these tables since they were last rewritten.
    pub appends: u64,
    /// The fraction of appends among the writes that produced the current tables, 0 to 1. Each
    /// table counts as one full write.
    pub append_share: f64,
    /// Tables of this level that received keys from the level above by an append.
    pub block_grained: u64,
    /// Tables of this level that were rewritten although an append was possible.
    pub table_grained: u64,
    /// Blocks that appends left unchanged in place.
    pub kept_blocks: u64,
}

/// The operations of users since the database was opened.
#[derive(Debug, Clone, Serialize)]
pub struct UserStats {
    /// Operations written. A batch counts each of its operations.
    pub writes: u64,
    /// Bytes of keys and values written.
    pub written_bytes: u64,
    /// Keys looked up by gets, and by seeks of cursors that are used like gets.
    pub gets: u64,
    /// Keys found by gets.
    pub found: u64,
    /// Keys found by gets, by the layer that had the value, from the newest to the oldest:
    /// `memtables`, `rows` (entries kept one by one in the block cache), `upper` (what a profile
    /// has above its tables), and each level.
    pub hits: Vec<(String, u64)>,
}

/// One partition: a range of keys whose tables are compacted on their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionStats {
    /// Its number, which stays the same while its borders change.
    pub id: u32,
    /// Its tables.
    pub tables: usize,
    /// Its tables in level 0.
    pub level0_tables: usize,
    /// Bytes of its tables.
    pub bytes: u64,
}

/// Flushes and compactions. Counters start when the database is opened.
#[derive(Debug, Clone, Serialize)]
pub struct BackgroundStats {
    /// Finished flushes.
    pub flushes: u64,
    /// Finished compactions that were caused by reads without a result.
    pub seek_compactions: u64,
    /// Flushes that are running now.
    pub flushing: usize,
    /// Compactions that are running now.
    pub compacting: usize,
    /// Bytes by which levels exceed their targets.
    pub debt_bytes: u64,
    /// The rate limit of compactions, in bytes written per second; 0 for no limit.
    pub rate: u64,
    /// Seconds that the rate limiter made compactions sleep, summed over all workers.
    pub slept_seconds: f64,
    /// The error that keeps background work from continuing, if any.
    pub error: Option<String>,
    /// Blocks that were in the block cache when a compaction made them obsolete.
    pub invalidated_blocks: u64,
    /// Batches in which obsolete tables were removed.
    pub removals: u64,
    /// Obsolete tables removed.
    pub removed_tables: u64,
    /// Sub-tasks of compactions: key ranges that are compacted on their own.
    pub sub_tasks: u64,
    /// Sub-tasks that another worker ran than the one that started the compaction.
    pub helped_sub_tasks: u64,
    /// The largest number of sub-tasks of one compaction that ran at the same time.
    pub sub_tasks_most: u64,
    /// How workers run sub-tasks, and the I/O of these.
    pub io: CompactionIoStats,
    /// The largest number of concurrent reads of an append's old blocks.
    pub append_reads_most: u64,
    /// Partitions that were divided in two.
    pub divided_partitions: u64,
    /// Pairs of neighbouring partitions that were joined.
    pub joined_partitions: u64,
    /// The choices between an append and a rewrite, by the rule that decided. Only in profiles
    /// whose tables may grow.
    pub grains: Vec<GrainStats>,
}

/// The I/O of compactions, and how workers overlap it with computation.
#[derive(Debug, Clone, Serialize)]
pub struct CompactionIoStats {
    /// How a worker runs sub-tasks: `threads`, `coroutines` or `flush-coroutine`.
    pub concurrency: String,
    /// The I/Os that compactions keep in flight at most, users' reads included.
    pub depth: usize,
    /// The sub-tasks that a worker runs at a time.
    pub coroutines: usize,
    /// Reads and writes of compactions in flight now, and the most that were.
    pub in_flight: u64,
    /// The largest number of them in flight at the same time.
    pub in_flight_most: u64,
    /// The number that ended.
    pub ended: u64,
    /// Their mean duration, in microseconds, from submission to when the worker noticed the end.
    pub mean_us: f64,
    /// Seconds during which at least one was in flight.
    pub busy_seconds: f64,
    /// Seconds that workers spent on sub-tasks, without the rate limiter's sleep.
    pub worker_seconds: f64,
    /// Seconds of processor time that they used meanwhile; the rest they waited.
    pub worker_cpu_seconds: f64,
    /// Writes that a flush coroutine submitted.
    pub admitted_writes: u64,
    /// The most that were in flight at the same time.
    pub admitted_most: usize,
    /// How often it found no room beside the reads in flight.
    pub refusals: u64,
    /// Reads in flight now that users wait for.
    pub user_reads: u64,
}

/// The number of choices of one kind between an append to a table and a rewrite of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrainStats {
    /// True for an append, false for a rewrite.
    pub block_grained: bool,
    /// The rule that decided.
    pub rule: GrainRule,
    /// The number of choices.
    pub count: u64,
}

impl fmt::Display for GrainStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}",
            if self.block_grained {
                "append"
            } else {
                "rewrite"
            },
            self.rule
        )
    }
}

/// Write stalls.
#[derive(Debug, Clone, Serialize)]
pub struct StallStats {
    /// Seconds that writers waited, by reason, since the database was opened.
    pub seconds: Vec<(&'static str, f64)>,
    /// The rate limit of writers, in bytes per second; 0 for no limit.
    pub rate: u64,
}

/// The use of memory now, and the block cache's hits since the database was opened.
///
/// Write buffers, open tables and the block cache share a part of `memory_limit_bytes`. The cache
/// may have what the other two do not take at the moment.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryStats {
    /// The number of write buffers, including the active one.
    pub buffers: usize,
    /// Bytes used in the write buffers.
    pub buffer_bytes: u64,
    /// Bytes of DRAM that the write buffers take, and that background work has borrowed from the
    /// block cache.
    pub buffer_dram_bytes: u64,
    /// Bytes of the values that readers hold. From 256 KiB on the block cache gives way to them.
    /// The value that a cursor is on does not count.
    pub held_value_bytes: u64,
    /// Block cache hits.
    pub cache_hits: u64,
    /// Block cache misses.
    pub cache_misses: u64,
    /// Bytes in the block cache.
    pub cache_bytes: u64,
    /// The most bytes that the block cache may have now.
    pub cache_bytes_max: u64,
    /// The number of tables kept open.
    pub open_tables: usize,
    /// Bytes of memory for indexes and filters: those of the tables kept open and of the tables
    /// that only cursors hold.
    pub open_table_bytes: u64,
    /// The number of times a table was opened.
    pub table_opens: u64,
}

/// The work of the open.
#[derive(Debug, Clone, Serialize)]
pub struct RecoveryStats {
    /// The steps of the open, each with its duration in seconds.
    pub steps: Vec<(&'static str, f64)>,
    /// Entries replayed from logs.
    pub replayed_entries: u64,
}

/// The parts that a profile's design adds, each in that profile only.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DesignStats {
    /// Level 0 in persistent memory, in profile `lab`.
    pub lab: Option<LabStats>,
    /// Tables in persistent memory, in profile `tlsm`.
    pub tlsm: Option<TlsmStats>,
    /// Tables in persistent memory, in profile `blade`.
    pub blade: Option<BladeStats>,
    /// Ranges with stacks of tables, in profile `pmdb`.
    pub pmdb: Option<PmdbStats>,
}

/// Counters since the database was opened, and sizes now.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
    /// The profile.
    pub profile: String,
    /// The file system's way of reading and writing files.
    pub io: String,
    /// The log's destination: `file`, or the persistent-memory backend that buffers it.
    pub log: String,
    /// The highest visible sequence number.
    pub seqno: u64,
    /// The operations of users.
    pub user: UserStats,
    /// I/O on the SSD, by cause.
    pub ssd: Vec<CauseStats>,
    /// I/O in persistent memory, by owner.
    pub pm: Vec<PmStats>,
    /// All bytes written to the SSD.
    pub ssd_written_bytes: u64,
    /// Bytes written to the SSD per byte written by users.
    pub write_amplification: f64,
    /// Bytes of live tables.
    pub table_bytes: u64,
    /// The number of logs that hold entries or values which are in no table yet.
    pub logs: usize,
    /// The parts that the profile's design adds.
    #[serde(flatten)]
    pub design: DesignStats,
    /// The levels, from level 0 on, over all partitions.
    pub levels: Vec<LevelStats>,
    /// The partitions, in key order.
    pub partitions: Vec<PartitionStats>,
    /// Flushes and compactions.
    pub background: BackgroundStats,
    /// Write stalls.
    pub stalls: StallStats,
    /// Memory.
    pub memory: MemoryStats,
    /// The number of read points in use by snapshots, cursors and iterators.
    pub snapshots: usize,
    /// The work of the open.
    pub recovery: RecoveryStats,
}

/// The use of persistent memory by one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PmStats {
    /// The owner.
    pub owner: String,
    /// Bytes of its extents.
    pub live_bytes: u64,
    /// Cache lines stored.
    pub lines_stored: u64,
    /// Cache lines flushed.
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
        grains
            .iter()
            .map(|(&(block_grained, rule), &count)| GrainStats {
                block_grained,
                rule,
                count,
            })
            .collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = self.state.load_full();
        let ssd: Vec<CauseStats> = Cause::ALL
            .iter()
            .map(|&cause| self.cause_stats(cause))
            .collect();
        let ssd_written_bytes = ssd.iter().map(|cause| cause.written_bytes).sum();
        let user = UserStats {
            writes: self.counts.user.writes.get(),
            written_bytes: self.counts.user.written_bytes.get(),
            gets: self.counts.user.gets.get(),
            found: self.counts.user.hits.sum(),
            hits: self.hits(&state),
        };
        let cache = &self.tables.context().cache;
        let (cache_bytes, cache_bytes_max) = cache.bytes_of_max();
        let (cache_hits, cache_misses) = cache.counts();
        let (open_tables, _, table_opens) = self.tables.usage();
        Stats {
            profile: self.options.profile.to_string(),
            io: self.fs().name(),
            log: self.logs.name.clone(),
            seqno: self.commit.visible().0,
            write_amplification: ssd_written_bytes as f64 / user.written_bytes.max(1) as f64,
            user,
            ssd,
            pm: self.pm_stats(),
            ssd_written_bytes,
            table_bytes: state.tables().map(|(_, run)| run.meta.bytes()).sum(),
            logs: self.count_logs(),
            design: self.design_stats(&state),
            levels: self.level_stats(&state),
            partitions: partition_stats(&state),
            background: self.background_stats(),
            stalls: StallStats {
                seconds: StallReason::ALL
                    .map(|r| (r.name(), self.write_stall.stalled_ns(r) as f64 / 1e9))
                    .to_vec(),
                rate: self.write_stall.rate(),
            },
            memory: MemoryStats {
                buffers: state.memtables.iter().count(),
                buffer_bytes: state
                    .memtables
                    .iter()
                    .map(|memtable| memtable.used_bytes() as u64)
                    .sum(),
                buffer_dram_bytes: self.tables.buffer_bytes(),
                held_value_bytes: self.tables.held().bytes(),
                cache_hits,
                cache_misses,
                cache_bytes,
                cache_bytes_max,
                open_tables,
                open_table_bytes: self.tables.context().open_bytes(),
                table_opens,
            },
            snapshots: self.readers.snapshots.len(),
            recovery: RecoveryStats {
                steps: self
                    .recovery
                    .steps
                    .iter()
                    .map(|(step, time)| (*step, time.as_secs_f64()))
                    .collect(),
                replayed_entries: self.recovery.replayed_entries,
            },
        }
    }

    fn design_stats(&self, state: &ReadState) -> DesignStats {
        let gets = &self.tables.context().pm_gets;
        let store = self.compaction.pm.as_ref();
        let lists = store.and_then(PmStore::lists);
        let sorted = store.and_then(PmStore::sorted);
        let trees = store.and_then(PmStore::trees);
        let block_gets = &self.tables.context().if_tree_gets;
        DesignStats {
            lab: state.upper().and_then(Upper::lab_stats),
            tlsm: lists.map(|lists| lists.stats(state, gets)),
            blade: sorted.map(|sorted| {
                let facts = sorted.facts(self.clock.now_ns());
                let facts = facts.with_reads(&self.counts.io);
                let partitions = weigh(state, &facts);
                sorted.stats(state, gets, &facts, partitions)
            }),
            pmdb: self.options.ranges().map(|_| PmdbStats {
                stash_merges: self.counts.jobs.stash_merges.get(),
                range_merges: self.counts.jobs.range_merges.get(),
                merges_for: self.counts.jobs.range_merges_for.lock().clone(),
                trees: trees.map(|trees| trees.stats(state, block_gets)),
                buffers: self.buffers().map(|buffers| buffers.stats(state)),
                ..measure(state)
            }),
        }
    }

    fn background_stats(&self) -> BackgroundStats {
        let jobs = &self.counts.jobs;
        let (flushing, compacting) = self.running();
        BackgroundStats {
            flushes: jobs.flushes.get(),
            seek_compactions: jobs.seeks.get(),
            flushing,
            compacting,
            debt_bytes: self.debt().bytes,
            rate: self.jobs.rate_limiter.rate(),
            slept_seconds: self.jobs.rate_limiter.slept_ns() as f64 / 1e9,
            error: self.background_error().map(|error| error.to_string()),
            invalidated_blocks: jobs.invalidated.get(),
            removals: jobs.removals.get(),
            removed_tables: jobs.removed.get(),
            sub_tasks: jobs.sub_tasks.get(),
            helped_sub_tasks: jobs.helped.get(),
            sub_tasks_most: jobs.sub_tasks_most.load(Ordering::Relaxed),
            io: self.compaction_io_stats(),
            append_reads_most: jobs.reads_most.load(Ordering::Relaxed),
            divided_partitions: jobs.divided.get(),
            joined_partitions: jobs.joined.get(),
            grains: self.grain_stats(),
        }
    }

    fn compaction_io_stats(&self) -> CompactionIoStats {
        let (jobs, admission) = (&self.counts.jobs, &self.compaction.admission);
        let flight = &self.counts.io.compactions;
        let (ended, latency_ns) = flight.ended();
        CompactionIoStats {
            concurrency: self.options.concurrency().to_string(),
            depth: admission.depth(),
            coroutines: self.options.coroutines(),
            in_flight: flight.now(),
            in_flight_most: flight.most(),
            ended,
            mean_us: latency_ns as f64 / ended.max(1) as f64 / 1e3,
            busy_seconds: flight.busy_ns() as f64 / 1e9,
            worker_seconds: jobs.worker_ns.get() as f64 / 1e9,
            worker_cpu_seconds: jobs.worker_cpu_ns.get() as f64 / 1e9,
            admitted_writes: admission.admitted.get(),
            admitted_most: admission.most(),
            refusals: admission.refused.get(),
            user_reads: self.counts.io.users.now(),
        }
    }

    /// The number of logs that have to be replayed or that level 0 points into.
    fn count_logs(&self) -> usize {
        let uses = self
            .logs
            .values
            .as_ref()
            .map(|values| values.uses())
            .unwrap_or_default();
        let manifest = self.manifest.lock();
        let logs = &manifest.version().logs;
        logs.len()
            + uses
                .iter()
                .filter(|used| used.entries > 0 && !logs.contains_key(&used.log_id))
                .count()
    }

    fn cause_stats(&self, cause: Cause) -> CauseStats {
        let (read_bytes, reads, written_bytes, writes) = self.counts.io.get(cause);
        CauseStats {
            cause: cause.name(),
            read_bytes,
            reads,
            written_bytes,
            writes,
        }
    }

    /// Values found by gets, by layer.
    fn hits(&self, state: &ReadState) -> Vec<(String, u64)> {
        let hits = &self.counts.user.hits;
        let named = |name: &str, layer| (name.to_owned(), hits.get(layer));
        let mut all = vec![
            named("memtables", Layer::Memtables),
            named("rows", Layer::Rows),
        ];
        if state.upper().is_some() {
            all.push(named("upper", Layer::Upper));
        }
        let levels = 0..self.options.levels();
        all.extend(levels.map(|level| named(&format!("level{level}"), Layer::Level(Level(level)))));
        all
    }

    fn level_stats(&self, state: &ReadState) -> Vec<LevelStats> {
        let levels = state.parts.iter().map(|part| part.levels.len()).max();
        (0..levels.unwrap_or(0))
            .map(|level| self.stats_of_level(state, Level(level)))
            .collect()
    }

    fn stats_of_level(&self, state: &ReadState, i: Level) -> LevelStats {
        let levels = || state.parts.iter().filter_map(|part| part.levels.get(i));
        let runs = || levels().flat_map(|level| level.runs.iter());
        let sum = |of: fn(&TableMeta) -> u64| runs().map(|run| of(&run.meta)).sum::<u64>();
        let done = self.counts.jobs.levels.get(i);
        let count = |pick: fn(&LevelCounters) -> &Counter| done.map_or(0, |done| pick(done).get());
        let (tables, appends) = (runs().count(), sum(|table| table.appends));
        LevelStats {
            level: i.0,
            tables,
            bytes: levels().map(|level| level.bytes()).sum(),
            entries: sum(|table| table.entries),
            compactions: count(|done| &done.compactions),
            moves: count(|done| &done.moves),
            compaction_read_bytes: count(|done| &done.read_bytes),
            compaction_written_bytes: count(|done| &done.written_bytes),
            compaction_seconds: count(|done| &done.ns) as f64 / 1e9,
            live_bytes: levels().map(|level| level.live_bytes()).sum(),
            dead_bytes: levels().map(|level| level.dead_bytes()).sum(),
            small_blocks: sum(|table| table.small_blocks),
            index_bytes: runs()
                .filter_map(|run| run.held())
                .map(|table| table.index_bytes())
                .sum(),
            filter_left: sum(|table| table.filter_left),
            growth: GrowthStats {
                grown_tables: runs().filter(|run| run.meta.appends > 0).count() as u64,
                appends,
                append_share: appends as f64 / (appends + tables as u64).max(1) as f64,
                block_grained: count(|done| &done.block_grained),
                table_grained: count(|done| &done.table_grained),
                kept_blocks: count(|done| &done.kept_blocks),
            },
            replaced_table_seconds: count(|done| &done.replaced_seconds) as f64
                / count(|done| &done.replaced).max(1) as f64,
        }
    }

    fn pm_stats(&self) -> Vec<PmStats> {
        let Some(pool) = &self.pm else {
            return Vec::new();
        };
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
        firn_pm::Owner::ALL
            .iter()
            .map(owner)
            .filter(|pm| pm.live_bytes + pm.written_bytes > 0)
            .collect()
    }
}

fn partition_stats(state: &ReadState) -> Vec<PartitionStats> {
    let stats = |(id, part): (PartId, &Part)| PartitionStats {
        id: id.0,
        tables: part.tables().count(),
        level0_tables: part.level0_tables(),
        bytes: part.tables().map(|(_, run)| run.meta.bytes()).sum(),
    };
    state.parts().map(stats).collect()
}
