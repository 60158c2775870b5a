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

/// The bytes of a first level of files for each byte of keys and values in it, which compression
/// makes less than one, and the bytes of all levels of files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Below {
    first_bytes: f64,
    all_bytes: f64,
    packed: f64,
}

impl Below {
    pub(super) fn of(state: &ReadState) -> Below {
        let (mut first, mut all, mut data) = (0, 0, 0);
        for part in state.parts.iter() {
            for (level, runs) in part.levels.iter().filter(|(level, _)| *level > DEEPEST) {
                all += runs.live_bytes();
                data += runs.data_bytes();
                if level == DEEPEST.below() {
                    first += runs.live_bytes();
                }
            }
        }
        Below {
            first_bytes: first as f64,
            all_bytes: all as f64,
            packed: match data {
                0 => 1.0,
                data => (all as f64 / data as f64).min(1.0),
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
    /// The size of a level for that of the one above it.
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
        FileSizes {
            above,
            ratio: match levels {
                None | Some(1) => f64::INFINITY,
                Some(levels) => root(levels),
            },
            least: facts.limits.level_base_bytes as f64,
            parts: parts as f64,
        }
    }

    /// The target of a level of one partition.
    pub(super) fn target(&self, level: Level) -> f64 {
        let depth = level.0.saturating_sub(DEEPEST.0) as i32;
        (self.above * self.ratio.powi(depth)).max(self.least) / self.parts
    }
}
