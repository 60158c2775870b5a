//! The cost models (PM-Blade, IV-C): the numbers that are compared for a partition, in nanoseconds.
//! `docs/design/blade.md` says what is wrong with those of the paper.

use super::DEEPEST;
use crate::blade::{BladeMerge, BladePartitionStats, SortedFacts};
use crate::manifest::{Level, PartId};
use crate::mechanisms;
use crate::options::tuning::BladeModels;
use crate::read::heat::Merged;
use crate::read::state::{Part, ReadState};
use crate::read::table::Table;
use firn_table::pm_table::Sketch;

/// The cost of a search of one more table, in nanoseconds.
const PROBE_NS: f64 = 100.0;
/// The time from which a partition's recent hits are, in the mean.
const HITS_SECONDS: f64 = 15.0;
/// The longest time that a partition is expected to stay in persistent memory.
const STAY_SECONDS_MAX: f64 = 600.0;

/// The upper tables of a partition, and the files that their merge to the SSD would take along.
pub(super) struct Upper {
    pub(super) bytes: u64,
    /// Bytes of keys and values.
    pub(super) data_bytes: u64,
    /// The part of them that is in persistent memory.
    pub(super) memory_bytes: u64,
    pub(super) entries: u64,
    /// Bytes of files on the first level of these.
    below_bytes: u64,
}

impl Upper {
    pub(super) fn of(part: &Part) -> Upper {
        let mut upper = Upper {
            bytes: 0,
            data_bytes: 0,
            memory_bytes: 0,
            entries: 0,
            below_bytes: part
                .levels
                .get(DEEPEST.below())
                .map_or(0, |level| level.live_bytes()),
        };
        for (_, run) in part.tables().filter(|(level, _)| *level <= DEEPEST) {
            upper.bytes += run.meta.bytes();
            upper.data_bytes += run.meta.data_bytes;
            if !run.meta.is_file() {
                upper.memory_bytes += run.meta.bytes();
            }
            upper.entries += run.meta.entries;
        }
        upper
    }
}

/// The statistics of the partitions of `state`.
pub(crate) fn weigh(state: &ReadState, facts: &SortedFacts) -> Vec<BladePartitionStats> {
    let stats = |(id, part): (PartId, &Part)| {
        let weights = Weights::of(part, facts);
        let heat = part.heat.as_ref();
        let (internal, major) = heat.map_or((None, None), |heat| heat.last_merges());
        let merge = |merged: Merged| BladeMerge {
            seconds_ago: facts.now_ns.saturating_sub(merged.at_ns) as f64 / 1e9,
            bytes_in: merged.bytes_in,
            bytes_out: merged.bytes_out,
        };
        let bytes: u64 = part.tables().map(|(_, run)| run.meta.bytes()).sum();
        let level0 = part.levels.get(Level::ZERO);
        BladePartitionStats {
            id: id.0,
            memory_bytes: weights.upper.memory_bytes,
            ssd_bytes: bytes - weights.upper.memory_bytes,
            unsorted_tables: level0.map_or(0, |level0| level0.runs.len()),
            hits: weights.hits(),
            wasted_searches: heat.map_or(0, |heat| heat.wasted()),
            wasted_ms: weights.wasted_ns() / 1e6,
            merge_ms: weights.merge_ns() / 1e6,
            repeats_ms: weights.repeats_ns().map(|ns| ns / 1e6),
            leave_ns_per_byte: weights.leave_ns_per_byte(state.parts.len()),
            last_internal: internal.map(merge),
            last_major: major.map(merge),
        }
    };
    state.parts().map(stats).collect()
}

/// The weights of a partition.
pub(super) struct Weights<'a> {
    part: &'a Part,
    pub(super) upper: Upper,
    tables: &'a SortedFacts,
}

impl<'a> Weights<'a> {
    pub(super) fn of(part: &'a Part, tables: &'a SortedFacts) -> Weights<'a> {
        Weights {
            part,
            upper: Upper::of(part),
            tables,
        }
    }

    /// The cost of a merge within persistent memory.
    pub(super) fn merge_ns(&self) -> f64 {
        self.upper.bytes as f64 * self.tables.costs.internal_byte
    }

    /// The cost of the searches in vain since the last merge. One is due once they have cost as
    /// much as it does: rent or buy. Whatever reads follow, that is at most twice the least cost.
    pub(super) fn wasted_ns(&self) -> f64 {
        let heat = self.part.heat.as_ref();
        let heat = heat.filter(|_| mechanisms::BLADE_WASTE.is_on());
        heat.map_or(0, |heat| heat.wasted()) as f64 * PROBE_NS
    }

    /// The cost on their way to the SSD of the entries that a merge would drop, as far as sketches
    /// tell; `None` if the tables are not all open.
    pub(super) fn repeats_ns(&self) -> Option<f64> {
        let upper = &self.upper;
        let repeats = self
            .repeats()
            .filter(|_| mechanisms::BLADE_REPEATS.is_on())?;
        let entry_bytes = upper.bytes as f64 / upper.entries.max(1) as f64;
        let along = 1.0 + upper.below_bytes as f64 / upper.bytes.max(1) as f64;
        Some(repeats * entry_bytes * along * self.tables.costs.major_byte)
    }

    /// The cost, for each byte that it frees, of moving the partition to the SSD while there are
    /// `parts` of them.
    pub(super) fn leave_ns_per_byte(&self, parts: usize) -> f64 {
        let (upper, costs) = (&self.upper, &self.tables.costs);
        let hits = match mechanisms::BLADE_HEAT.is_on() {
            true => self.hits(),
            false => 0.0,
        };
        let stay = costs.between_majors / 1e9 * parts as f64;
        let stay_seconds = stay.clamp(1.0, STAY_SECONDS_MAX);
        let merge = (upper.bytes + upper.below_bytes) as f64 * costs.major_byte;
        let cost = match self.tables.tuning.models {
            BladeModels::Off => 0.0,
            BladeModels::Paper => hits,
            BladeModels::Costs => {
                hits / HITS_SECONDS * stay_seconds * self.tables.ssd_read_ns + merge
            }
        };
        cost / upper.memory_bytes.max(1) as f64
    }

    /// Recent reads that found an entry.
    pub(super) fn hits(&self) -> f64 {
        let heat = self.part.heat.as_ref();
        heat.map_or(0.0, |heat| heat.hits(self.tables.now_ns))
    }

    /// True if a merge within persistent memory pays. `depth` tables overlap in some key, and
    /// `is_large` says that the partition has more than its share.
    pub(super) fn merge_pays(&self, depth: usize, is_large: bool) -> bool {
        match self.tables.tuning.models {
            BladeModels::Off => false,
            BladeModels::Paper => {
                self.printed_by_reads(depth) || (is_large && self.printed_by_room())
            }
            BladeModels::Costs => {
                let by_room = || self.repeats_ns().is_some_and(|ns| ns > self.merge_ns());
                self.wasted_ns() >= self.merge_ns() || (is_large && by_room())
            }
        }
    }

    /// The paper's first model: reads save half of the searches, and that is more than a whole
    /// core.
    fn printed_by_reads(&self, depth: usize) -> bool {
        self.hits() / HITS_SECONDS * (depth as f64 / 2.0) * PROBE_NS > 1e9
    }

    /// The paper's second model: what does not repeat saves writes to the SSD.
    fn printed_by_room(&self) -> bool {
        let costs = &self.tables.costs;
        self.repeats().is_some_and(|repeats| {
            let before = self.upper.entries as f64;
            (before - repeats) * costs.major_byte > before * costs.internal_byte
        })
    }

    /// The entries that a merge of the upper tables would drop; `None` if they are not all open.
    fn repeats(&self) -> Option<f64> {
        let mut keys = Sketch::default();
        for (_, run) in self.part.tables().filter(|(level, _)| *level <= DEEPEST) {
            match run.held() {
                Some(Table::Sorted(table)) => keys.add(table.sketch()),
                _ => return None,
            }
        }
        Some((self.upper.entries as f64 - keys.distinct()).max(0.0))
    }
}
