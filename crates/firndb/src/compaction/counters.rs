//! Counters of finished background work.

use super::grain::{Choice, Grain};
use super::plan::{How, Plan, Reason};
use crate::event::GrainRule;
use crate::manifest::{Level, Levels};
use firn_base::count::Counter;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use std::collections::BTreeMap;

/// Finished background work, per source level.
#[derive(Default)]
pub(crate) struct JobCounters {
    pub(crate) flushes: Counter,
    pub(crate) seeks: Counter,
    /// Blocks that were in the block cache when compaction made them obsolete.
    pub(crate) invalidated: Counter,
    /// The number of batches in which obsolete tables were removed, and of these tables.
    pub(crate) removals: Counter,
    pub(crate) removed: Counter,
    /// The number of sub-tasks of compactions, and of those that a second worker ran.
    pub(crate) sub_tasks: Counter,
    pub(crate) helped: Counter,
    /// The largest number of sub-tasks of a compaction that ran at the same time.
    pub(crate) sub_tasks_most: AtomicU64,
    /// The time that workers spent on them without sleeping for the rate limiter, and the processor
    /// time that they used.
    pub(crate) worker_ns: Counter,
    pub(crate) worker_cpu_ns: Counter,
    pub(crate) reads_most: AtomicU64,
    /// Partitions that were divided, and pairs that were joined.
    pub(crate) divided: Counter,
    pub(crate) joined: Counter,
    /// Merges of flushed tables into ranges with stacks, and of whole ranges.
    pub(crate) stash_merges: Counter,
    pub(crate) range_merges: Counter,
    pub(crate) range_merges_for: Mutex<BTreeMap<&'static str, u64>>,
    /// The number of choices by (block-grained, rule).
    pub(crate) grains: Mutex<BTreeMap<(bool, GrainRule), u64>>,
    pub(crate) levels: Levels<LevelCounters>,
}

#[derive(Default)]
pub(crate) struct LevelCounters {
    pub(crate) compactions: Counter,
    pub(crate) moves: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) ns: Counter,
    pub(crate) block_grained: Counter,
    pub(crate) table_grained: Counter,
    pub(crate) kept_blocks: Counter,
    /// Tables that compactions replaced, and the sum of their ages.
    pub(crate) replaced: Counter,
    pub(crate) replaced_seconds: Counter,
}

impl JobCounters {
    pub(crate) fn new(levels: usize) -> JobCounters {
        let levels = (0..levels).map(|_| LevelCounters::default()).collect();
        JobCounters {
            levels,
            ..JobCounters::default()
        }
    }

    /// Counts the choices for tables of `level`.
    pub(crate) fn chose(&self, level: Level, choices: &[Choice]) {
        let Some(level) = self.levels.get(level) else {
            return;
        };
        for choice in choices {
            *self
                .grains
                .lock()
                .entry((choice.grain == Grain::Block, choice.rule))
                .or_default() += 1;
            match choice.grain {
                Grain::Block => {
                    level.block_grained.add(1);
                    level
                        .kept_blocks
                        .add((choice.blocks - choice.dirty_blocks) as u64);
                    self.reads_most
                        .fetch_max(choice.reads_most as u64, Ordering::Relaxed);
                }
                Grain::Table => level.table_grained.add(1),
            }
        }
    }

    pub(crate) fn compacted(
        &self,
        plan: &Plan,
        moved: bool,
        (bytes_in, bytes_out): (u64, u64),
        ns: u64,
    ) {
        if plan.reason == Reason::Seeks {
            self.seeks.add(1);
        }
        self.stash_merges.add(u64::from(plan.by_range.is_some()));
        if plan.range_bytes.is_some() {
            self.range_merges.add(1);
            *self
                .range_merges_for
                .lock()
                .entry(plan.reason.name())
                .or_default() += 1;
        }
        let replaced = plan.tables.iter().filter(|_| plan.how == How::Copy);
        for (level, run) in replaced {
            if let Some(level) = self.levels.get(*level) {
                level.replaced.add(1);
                level.replaced_seconds.add(run.age_seconds());
            }
        }
        // The tables of an eviction, if any, are those that the entries of the trees are merged
        // with.
        let source = if plan.chunk.is_some() {
            Some(Level::ZERO)
        } else {
            plan.source_level()
        };
        let Some(level) = source.and_then(|level| self.levels.get(level)) else {
            return;
        };
        if moved {
            level.moves.add(1);
            return;
        }
        level.compactions.add(1);
        level.read_bytes.add(bytes_in);
        level.written_bytes.add(bytes_out);
        level.ns.add(ns);
    }
}
