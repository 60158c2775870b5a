//! The sizes of levels of files below persistent memory.

use super::DEEPEST;
use crate::blade::SortedFacts;
use crate::compaction::picker::Facts;
use crate::manifest::Level;
use crate::options::tuning::BladeModels;
use crate::read::state::ReadState;

/// The bytes of the first level of files for each byte of persistent memory from which that
/// overflows.
const OVERFLOW_RATIO: f64 = 4.0;
/// The most levels of files whose sizes are chosen.
const FILE_LEVELS_MAX: u32 = 4;

/// The bytes of the first level of files and of all of them, and those of an entry there for each
/// byte of one in persistent memory, which compression makes less than one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Below {
    first_bytes: f64,
    all_bytes: f64,
    packed: f64,
}

impl Below {
    pub(super) fn of(state: &ReadState) -> Below {
        let (mut first, mut all, mut entries) = (0, 0, 0);
        let (mut memory, mut memory_entries) = (0, 0);
        for part in state.parts.iter() {
            for (level, runs) in part.levels.iter() {
                if level <= DEEPEST {
                    for run in runs.runs.iter().filter(|run| !run.meta.is_file()) {
                        memory += run.meta.bytes();
                        memory_entries += run.meta.entries;
                    }
                    continue;
                }
                all += runs.live_bytes();
                entries += runs.entries();
                if level == DEEPEST.below() {
                    first += runs.live_bytes();
                }
            }
        }
        let mean = |bytes: u64, entries: u64| bytes as f64 / entries as f64;
        Below {
            first_bytes: first as f64,
            all_bytes: all as f64,
            packed: match entries.min(memory_entries) {
                0 => 1.0,
                _ => (mean(all, entries) / mean(memory, memory_entries)).min(1.0),
            },
        }
    }

    /// True if persistent memory overflows.
    pub(super) fn overflows(&self, tables: &SortedFacts) -> bool {
        let capacity = tables.capacity_bytes as f64 * self.packed;
        tables.tuning.models == BladeModels::Costs && self.first_bytes > capacity * OVERFLOW_RATIO
    }
}

/// The targets of levels of files, each the same part of a level for all partitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileSizes {
    /// The size of what is above the first level.
    above: f64,
    /// The number of levels, and the size of one for that of the one above it.
    levels: u32,
    ratio: f64,
    least: f64,
    parts: f64,
}

impl FileSizes {
    /// The sizes at which a byte is written least often on its way to the last level. With k levels
    /// and x times as many bytes as above the first, that is once and x^(1/k) times for each level.
    pub(super) fn of(
        below: &Below,
        parts: usize,
        facts: &Facts<'_>,
        tables: &SortedFacts,
    ) -> FileSizes {
        let flushes = match below.overflows(tables) {
            true => facts.limits.level0_trigger as u64 * facts.buffer_bytes,
            false => 0,
        };
        let above = (tables.capacity_bytes + flushes) as f64 * below.packed;
        let all = (below.all_bytes / above.max(1.0)).max(1.0);
        let root = |levels: u32| all.powf(1.0 / f64::from(levels));
        let cost = |levels: u32| f64::from(levels) * (1.5 + root(levels));
        let levels = (1..=FILE_LEVELS_MAX).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        let levels = levels.unwrap_or(1);
        FileSizes {
            above,
            levels,
            ratio: root(levels),
            least: facts.limits.level_base_bytes as f64,
            parts: parts as f64,
        }
    }

    /// The target of a level of one partition. The last one has none.
    pub(super) fn target(&self, level: Level) -> f64 {
        let depth = level.0.saturating_sub(DEEPEST.0) as i32;
        match depth < self.levels as i32 {
            true => (self.above * self.ratio.powi(depth)).max(self.least) / self.parts,
            false => f64::INFINITY,
        }
    }
}
