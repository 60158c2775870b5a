//! The picker of sorted tables in persistent memory (PM-Blade, IV). Level 0 has tables as they were
//! flushed, level 1 tables that do not overlap, both in persistent memory; the levels below are
//! files.
//!
//! In order of urgency: flush; move the upper tables of a partition to the SSD, while persistent
//! memory is nearly full; merge them within persistent memory, if they are too many or if it pays;
//! compact a level of files that exceeds its target; and while nothing is written, drop what no
//! reader sees. The three cost models of the paper are replaced by ours (docs/design/blade.md).
//!
//! Without persistent memory, or where it has no room, tables of the upper levels are files. What
//! is picked is the same.

use super::leveled::{self, plan_for, ramp};
use super::{Facts, Sizes, pick_flush};
use crate::blade::{SortedFacts, SortedStore};
use crate::compaction::plan::{How, Medium, Plan, Reason};
use crate::compaction::rate_limiter::{Debt, Pressure};
use crate::event::StallReason;
use crate::manifest::{Level, PartId};
use crate::mechanisms;
use crate::options::tuning::BladeModels;
use crate::read::state::{Part, ReadState};
use crate::read::table::Table;
use crate::read::table_run::TableRun;
use firn_base::Limits;
use firn_table::pm_table::Sketch;
use std::sync::Arc;

/// The deepest level in persistent memory.
const DEEPEST: Level = Level(1);
/// The size of the first level of files, in capacities of persistent memory. With more data there
/// is a second one, because a merge of one partition would rewrite too much of a single one.
const FILES_PER_CAPACITY: u64 = 12;

/// The most partitions.
const PARTITIONS_MAX: usize = 1024;
/// The least mean part of a flush that goes into a partition.
const SLICE_BYTES_MIN: u64 = 256 << 10;
/// The files from which a partition is divided.
const FILES_OF_PARTITION: u64 = 16;
/// A partition has at most this part of persistent memory.
const PARTITIONS_OF_CAPACITY: u64 = 16;
/// The cost of a search of one more table, in nanoseconds.
const PROBE_NS: f64 = 100.0;
/// The cost of a read from the SSD beside one from persistent memory, in nanoseconds.
const SSD_READ_NS: f64 = 100_000.0;
/// The time from which a partition's recent hits are, in the mean.
const HITS_SECONDS: f64 = 15.0;
/// The longest time that a partition is expected to stay in persistent memory.
const STAY_SECONDS_MAX: f64 = 600.0;

/// The next action, if one is due.
pub(super) fn pick(state: &ReadState, facts: &Facts<'_>, tables: &SortedFacts) -> Option<Plan> {
    pick_flush(state, facts)
        .or_else(|| pick_major(state, facts, tables))
        .or_else(|| pick_internal(state, facts, tables))
        .or_else(|| pick_files(state, facts, tables))
        .or_else(|| leveled::pick_rest_below(state, facts).map(placed))
}

/// The sizes at which partitions are divided and joined, unless the limits name some. A merge takes
/// the upper tables of a partition, so these are a small part of persistent memory; and a flush
/// writes a table into each, so that there are not too many.
pub(super) fn sizes(limits: &Limits, tables: &SortedFacts, buffer_bytes: u64) -> Sizes {
    if limits.partitions_max > 1 {
        return Sizes::of(limits);
    }
    Sizes {
        count_max: PARTITIONS_MAX
            .min((buffer_bytes / SLICE_BYTES_MIN) as usize)
            .max(1),
        bytes: FILES_OF_PARTITION * limits.table_bytes,
        memory_bytes: tables.capacity_bytes / PARTITIONS_OF_CAPACITY,
    }
}

/// Where the flush of a write buffer is.
pub(super) fn flush_medium(facts: &Facts<'_>, tables: &SortedFacts) -> Medium {
    match tables.has_room(facts.buffer_bytes, 1.0) {
        true => Medium::Pm,
        false => Medium::Ssd,
    }
}

/// `plan` with the medium of its output.
pub(super) fn placed(plan: Plan) -> Plan {
    let medium = match plan.level <= DEEPEST {
        true => Medium::Pm,
        false => Medium::Ssd,
    };
    let leaves = medium == Medium::Ssd && plan.tables.iter().any(|(_, run)| !run.meta.is_file());
    let how = match plan.how {
        How::Move if leaves => How::Copy,
        how => how,
    };
    Plan {
        how,
        medium,
        ..plan
    }
}

/// The most tables of level 0 that overlap in one key, so that a get may search all of them.
fn depth(part: &Part) -> usize {
    let Some(level0) = part.levels.get(Level::ZERO) else {
        return 0;
    };
    let runs = level0.runs.iter();
    let mut ends: Vec<(&[u8], bool)> = runs
        .flat_map(|run| [(&*run.meta.smallest, false), (&*run.meta.largest, true)])
        .collect();
    // A table that begins with a key is before one that ends with it.
    ends.sort_unstable();
    let (mut open, mut most) = (0_usize, 0);
    for (_, is_end) in ends {
        open = match is_end {
            true => open - 1,
            false => open + 1,
        };
        most = most.max(open);
    }
    most
}

/// The number of flushes that are files.
fn level0_files(part: &Part) -> usize {
    let runs = part
        .levels
        .get(Level::ZERO)
        .map(|level0| level0.runs.iter());
    runs.map_or(0, |runs| runs.filter(|run| run.meta.is_file()).count())
}

/// The upper tables of a partition, and the files that their merge to the SSD would take along.
struct Upper {
    bytes: u64,
    /// Bytes of keys and values.
    data_bytes: u64,
    /// The part of them that is in persistent memory.
    memory_bytes: u64,
    entries: u64,
    /// Bytes of files on the first level of these.
    below_bytes: u64,
}

impl Upper {
    fn of(part: &Part) -> Upper {
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

/// Moves the upper tables of one partition to the SSD, while persistent memory is nearly full, or
/// has no room for a flush: of the partition that costs least for each byte that it frees. Beside a
/// running one there is another only if flushes find no room.
fn pick_major(state: &ReadState, facts: &Facts<'_>, tables: &SortedFacts) -> Option<Plan> {
    let flush_bytes = SortedStore::of_memtable(facts.buffer_bytes);
    let room = tables.room_for(0, flush_bytes, state.parts.len() as u64);
    if tables.has_room(room, 1.0) && (facts.evicting || !tables.is_evicting) {
        return None;
    }
    let count = state.parts.len() as f64;
    let stay_seconds = (tables.costs.between_majors / 1e9 * count).clamp(1.0, STAY_SECONDS_MAX);
    let cost = |part: &Part, upper: &Upper| {
        let heat = part
            .heat
            .as_ref()
            .filter(|_| mechanisms::BLADE_HEAT.is_on());
        let hits = heat.map_or(0.0, |heat| heat.hits(tables.now_ns));
        let merge = (upper.bytes + upper.below_bytes) as f64 * tables.costs.major_byte;
        let cost = match tables.tuning.models {
            BladeModels::Off => 0.0,
            BladeModels::Paper => hits,
            BladeModels::Costs => hits / HITS_SECONDS * stay_seconds * SSD_READ_NS + merge,
        };
        cost / upper.memory_bytes as f64
    };
    let mut parts: Vec<(f64, PartId, &Part)> = state
        .parts()
        .map(|(id, part)| (Upper::of(part), id, part))
        .filter(|(upper, _, _)| upper.memory_bytes > 0)
        .map(|(upper, id, part)| (cost(part, &upper), id, part))
        .collect();
    parts.sort_by(|a, b| a.0.total_cmp(&b.0));
    parts
        .into_iter()
        .find_map(|(_, id, part)| merge(id, part, DEEPEST.below(), facts, Reason::Evict))
}

/// Merges the upper tables of a partition within persistent memory, if that pays or they are too
/// many. If there is no room, or no such merges are wanted, they leave once too many are files,
/// because writers wait for those.
fn pick_internal(state: &ReadState, facts: &Facts<'_>, tables: &SortedFacts) -> Option<Plan> {
    // A merge needs as much room again.
    let share = tables.capacity_bytes / 2 / state.parts.len().max(2) as u64;
    let level_for = |part: &Part| {
        let depth = depth(part);
        let has_many_files = level0_files(part) >= facts.limits.level0_trigger;
        if depth < 2 && !has_many_files {
            return None;
        }
        let (upper, is_deep) = (Upper::of(part), depth >= tables.tuning.unsorted_max);
        let room = tables.room_for(upper.entries, upper.data_bytes, 1);
        if !tables.tuning.internal || !tables.has_room(room, 1.0) {
            return has_many_files.then_some(DEEPEST.below());
        }
        let pays = match tables.tuning.models {
            BladeModels::Off => false,
            BladeModels::Paper => {
                printed_by_reads(part, depth, tables)
                    || (upper.bytes >= share && printed_by_room(part, &upper, tables))
            }
            BladeModels::Costs => {
                pays_by_reads(part, &upper, tables)
                    || (upper.bytes >= share && pays_by_room(part, &upper, tables))
            }
        };
        (is_deep || has_many_files || pays).then_some(DEEPEST)
    };
    state.parts().find_map(|(id, part)| {
        let level = level_for(part)?;
        merge(id, part, level, facts, Reason::Size)
    })
}

/// Rent or buy: a merge is due once the searches in vain since the last one have cost as much as it
/// does. Whatever reads follow, that is at most twice the least cost.
fn pays_by_reads(part: &Part, upper: &Upper, tables: &SortedFacts) -> bool {
    let heat = part
        .heat
        .as_ref()
        .filter(|_| mechanisms::BLADE_WASTE.is_on());
    let wasted = heat.map_or(0, |heat| heat.wasted());
    wasted as f64 * PROBE_NS >= upper.bytes as f64 * tables.costs.internal_byte
}

/// The entries that a merge of the upper tables would drop, as far as sketches tell; `None` if they
/// are not all open.
fn repeats(part: &Part, upper: &Upper) -> Option<f64> {
    let mut keys = Sketch::default();
    for (_, run) in part.tables().filter(|(level, _)| *level <= DEEPEST) {
        match run.held() {
            Some(Table::Sorted(table)) => keys.add(table.sketch()),
            _ => return None,
        }
    }
    Some((upper.entries as f64 - keys.distinct()).max(0.0))
}

/// The paper's first model: reads save half of the searches, and that is more than a whole core.
fn printed_by_reads(part: &Part, depth: usize, tables: &SortedFacts) -> bool {
    let hits = part
        .heat
        .as_ref()
        .map_or(0.0, |heat| heat.hits(tables.now_ns));
    hits / HITS_SECONDS * (depth as f64 / 2.0) * PROBE_NS > 1e9
}

/// The paper's second model: what does not repeat saves writes to the SSD.
fn printed_by_room(part: &Part, upper: &Upper, tables: &SortedFacts) -> bool {
    repeats(part, upper).is_some_and(|repeats| {
        let before = upper.entries as f64;
        (before - repeats) * tables.costs.major_byte > before * tables.costs.internal_byte
    })
}

/// True if the entries that a merge drops would cost more on their way to the SSD than the merge.
fn pays_by_room(part: &Part, upper: &Upper, tables: &SortedFacts) -> bool {
    let Some(repeats) = repeats(part, upper).filter(|_| mechanisms::BLADE_REPEATS.is_on()) else {
        return false;
    };
    let entry_bytes = upper.bytes as f64 / upper.entries.max(1) as f64;
    let removed = repeats * entry_bytes;
    let along = 1.0 + upper.below_bytes as f64 / upper.bytes.max(1) as f64;
    removed * along * tables.costs.major_byte > upper.bytes as f64 * tables.costs.internal_byte
}

/// A merge of all tables of a partition above `level` with those that they overlap there; `None` if
/// one of them is busy.
fn merge(id: PartId, part: &Part, level: Level, facts: &Facts<'_>, reason: Reason) -> Option<Plan> {
    let upper: Vec<(Level, Arc<TableRun>)> = part
        .tables()
        .filter(|(above, _)| *above < level)
        .map(|(above, run)| (above, run.clone()))
        .collect();
    let smallest = upper.iter().map(|(_, run)| &*run.meta.smallest).min()?;
    let largest = upper.iter().map(|(_, run)| &*run.meta.largest).max()?;
    let below = part.levels.get(level)?.overlapping(smallest, largest);
    let below = below.iter().map(|run| (level, run.clone()));
    let inputs: Vec<(Level, Arc<TableRun>)> = upper.iter().cloned().chain(below).collect();
    if inputs.iter().any(|(_, run)| facts.busy.has(run)) {
        return None;
    }
    Some(placed(Plan::new(id, inputs, level, How::Copy, reason)))
}

/// The target size of a level of files, in bytes, for one of `parts` partitions.
fn target(tables: &SortedFacts, limits: &Limits, parts: usize, level: Level) -> u64 {
    let first = (tables.capacity_bytes * FILES_PER_CAPACITY).max(limits.level_base_bytes);
    let first = first / parts as u64;
    (DEEPEST.0 + 1..level.0).fold(first, |target, _| {
        target.saturating_mul(limits.level_fan_out)
    })
}

/// Compacts a level of files that exceeds its target.
fn pick_files(state: &ReadState, facts: &Facts<'_>, tables: &SortedFacts) -> Option<Plan> {
    state.parts().find_map(|(id, part)| {
        let last = part.levels.last();
        let mut levels = (DEEPEST.0 + 1..last.0).map(Level);
        levels.find_map(|level| {
            let runs = part.levels.get(level)?;
            if runs.live_bytes() < target(tables, facts.limits, state.parts.len(), level) {
                return None;
            }
            let mut free = runs.runs.iter().filter(|run| !facts.busy.has(run));
            free.find_map(|run| {
                let inputs = std::slice::from_ref(run);
                plan_for(id, part, level, inputs, facts, Reason::Size)
            })
        })
    })
}

/// The amount of outstanding work.
pub(super) fn debt(state: &ReadState, limits: &Limits, tables: &SortedFacts) -> Debt {
    let mut debt = Debt::default();
    debt.buffers = state.memtables.len().saturating_sub(1);
    debt.add(&[pressure(tables)]);
    for part in state.parts.iter() {
        // Tables of level 0 that are files cost a read each.
        debt.add(&[leveled::level0_pressure(level0_files(part), limits)]);
    }
    debt
}

/// How far persistent memory is from its capacity. Writers are slowed before flushes become files.
fn pressure(tables: &SortedFacts) -> Pressure {
    let (used, due) = (tables.used_share(), tables.tuning.evict_share);
    Pressure {
        reason: StallReason::PersistentMemory,
        stall: ramp(used, (1.0 + due) / 2.0, 1.0),
        haste: ramp(used, due, 1.0).max(0.0) * 4.0,
    }
}
