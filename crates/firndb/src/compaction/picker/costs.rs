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
//!
//! Where persistent memory is small beside the files below it, it fills long before a merge of it
//! with them pays. Then it overflows: flushes become files of level 0 for a while, as many as
//! `Limits::level0_trigger`, and leave with it.

mod files;
mod weights;

use self::files::{Below, FileSizes};
use self::weights::Weights;
pub(crate) use self::weights::weigh;
use super::leveled::{self, ramp};
use super::{Facts, Sizes, partitions, pick_flush};
use crate::blade::{SortedFacts, SortedStore};
use crate::compaction::plan::{How, Medium, Plan, Reason};
use crate::compaction::rate_limiter::{Debt, Pressure};
use crate::event::StallReason;
use crate::manifest::{Level, PartId};
use crate::read::state::{Part, ReadState};
use crate::read::table_run::TableRun;
use firn_base::Limits;
use std::sync::Arc;

/// The deepest level in persistent memory.
const DEEPEST: Level = Level(1);
/// The most partitions.
const PARTITIONS_MAX: usize = 1024;
/// The least mean part of a flush that goes into a partition.
const SLICE_BYTES_MIN: u64 = 256 << 10;
/// The least and the most tables' worth of bytes from which a partition is divided.
const TABLES_OF_PARTITION: (u64, u64) = (16, 64);
/// A partition has at most this part of persistent memory, unless that is less than a table.
const PARTITIONS_OF_CAPACITY: u64 = 16;

/// The next action, if one is due.
pub(super) fn pick(state: &ReadState, facts: &Facts<'_>, tables: &SortedFacts) -> Option<Plan> {
    pick_flush(state, facts)
        .or_else(|| pick_major(state, facts, tables))
        .or_else(|| pick_due(state, facts, tables))
        .or_else(|| pick_files_at_rest(state, facts, tables))
        .or_else(|| leveled::pick_rest_below(state, facts).map(placed))
}

/// The sizes at which partitions are divided and joined, unless the limits name some. A merge takes
/// the upper tables of a partition, so these are a small part of persistent memory. But they are a
/// table's worth, because what leaves with less meets as many files; where memory overflows they do
/// not matter. And a flush writes a table into each partition, so that there are not too many.
pub(super) fn sizes(
    state: &ReadState,
    limits: &Limits,
    tables: &SortedFacts,
    buffer_bytes: u64,
) -> Sizes {
    if limits.partitions_max > 1 {
        return Sizes::of(limits);
    }
    let share = limits.table_bytes;
    let all: u64 = state.parts.iter().map(|part| partitions::bytes(part)).sum();
    let (least, most) = TABLES_OF_PARTITION;
    let of_share = all as f64 / tables.capacity_bytes.max(1) as f64 * share as f64;
    Sizes {
        count_max: PARTITIONS_MAX
            .min((buffer_bytes / SLICE_BYTES_MIN) as usize)
            .max(1),
        bytes: (of_share as u64).clamp(least * limits.table_bytes, most * limits.table_bytes),
        memory_bytes: match Below::of(state).overflows(tables) {
            true => u64::MAX,
            false => (tables.capacity_bytes / PARTITIONS_OF_CAPACITY).max(share),
        },
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

/// The number of flushes that are files at which they are merged. Where persistent memory overflows
/// there may be more, because buffers are smaller there.
fn files_max(limits: &Limits, overflows: bool) -> usize {
    match overflows {
        true => limits.level0_trigger.midpoint(limits.level0_slow),
        false => limits.level0_trigger,
    }
}

/// The number of flushes that are files, scaled so that their merge is due at
/// `Limits::level0_trigger`.
fn level0_weight(part: &Part, limits: &Limits, overflows: bool) -> usize {
    level0_files(part) * limits.level0_trigger / files_max(limits, overflows).max(1)
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
    if Below::of(state).overflows(tables) {
        return None;
    }
    let count = state.parts.len();
    let mut parts: Vec<(f64, PartId, &Part)> = state
        .parts()
        .map(|(id, part)| (Weights::of(part, tables), id, part))
        .filter(|(weights, _, _)| weights.upper.memory_bytes > 0)
        .map(|(weights, id, part)| (weights.leave_ns_per_byte(count), id, part))
        .collect();
    parts.sort_by(|a, b| a.0.total_cmp(&b.0));
    parts
        .into_iter()
        .find_map(|(_, id, part)| merge(id, part, DEEPEST.below(), facts, Reason::Evict))
}

/// Compacts what exceeds its limit the most: the upper tables of a partition, or one of its levels
/// of files.
fn pick_due(state: &ReadState, facts: &Facts<'_>, tables: &SortedFacts) -> Option<Plan> {
    let below = Below::of(state);
    let sizes = FileSizes::of(&below, state.parts.len(), facts, tables);
    // (excess, partition, output's level)
    let mut due: Vec<(f64, PartId, &Part, Level)> = Vec::new();
    for (id, part) in state.parts() {
        if let Some(level) = merge_level(part, &below, state, facts, tables) {
            let overflows = below.overflows(tables);
            // Where memory overflows, many files leave with fewer writes for each, until writers
            // would wait for them.
            let due_at = match overflows {
                true => facts.limits.level0_slow,
                false => facts.limits.level0_trigger,
            };
            let excess = level0_weight(part, facts.limits, overflows) as f64 / due_at as f64;
            due.push((excess.max(1.0), id, part, level));
        }
        for level in (DEEPEST.0 + 1..part.levels.last().0).map(Level) {
            let live = part.levels.get(level).map_or(0, |runs| runs.live_bytes());
            let idle = live.saturating_sub(busy_bytes(part, level, facts));
            let excess = idle as f64 / sizes.target(level);
            if excess >= 1.0 {
                due.push((excess, id, part, level.below()));
            }
        }
    }
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    due.into_iter()
        .find_map(|(_, id, part, level)| match level {
            level if level <= DEEPEST.below() => merge(id, part, level, facts, Reason::Size),
            level => leveled::pick_table(id, part, Level(level.0 - 1), facts),
        })
}

/// The level to which the upper tables of a partition are merged now: within persistent memory, if
/// that pays or they are too many. If there is no room, or no such merges are wanted, they leave
/// once too many are files, because writers wait for those.
fn merge_level(
    part: &Part,
    below: &Below,
    state: &ReadState,
    facts: &Facts<'_>,
    tables: &SortedFacts,
) -> Option<Level> {
    // A merge needs as much room again.
    let share = tables.capacity_bytes / 2 / state.parts.len().max(2) as u64;
    let depth = depth(part);
    let has_many_files = level0_files(part) >= files_max(facts.limits, below.overflows(tables));
    if depth < 2 && !has_many_files {
        return None;
    }
    let (weights, is_deep) = (
        Weights::of(part, tables),
        depth >= tables.tuning.unsorted_max,
    );
    let upper = &weights.upper;
    let room = tables.room_for(upper.entries, upper.data_bytes, 1);
    let stays = tables.tuning.internal && tables.has_room(room, 1.0);
    if !stays || (has_many_files && below.overflows(tables)) {
        return has_many_files.then_some(DEEPEST.below());
    }
    let is_due = is_deep || has_many_files || weights.merge_pays(depth, upper.bytes >= share);
    is_due.then_some(DEEPEST)
}

/// Moves the upper tables of a partition to the SSD where memory overflows, while there is time for
/// it, because each file of level 0 costs a get a search.
fn pick_files_at_rest(state: &ReadState, facts: &Facts<'_>, tables: &SortedFacts) -> Option<Plan> {
    if !facts.at_rest || !Below::of(state).overflows(tables) {
        return None;
    }
    let least = facts.limits.level0_rest.max(1);
    let mut parts = state
        .parts()
        .filter(|(_, part)| level0_files(part) >= least);
    parts.find_map(|(id, part)| merge(id, part, DEEPEST.below(), facts, Reason::Size))
}

/// Live bytes of the tables of `level` that jobs have.
fn busy_bytes(part: &Part, level: Level, facts: &Facts<'_>) -> u64 {
    let runs = part.levels.get(level).map(|level| level.runs.iter());
    let busy = runs.into_iter().flatten().filter(|run| facts.busy.has(run));
    busy.map(|run| run.meta.live_bytes()).sum()
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
    Some(Plan {
        sieves: level > DEEPEST && facts.tuning.blade.sieve,
        ..placed(Plan::new(id, inputs, level, How::Copy, reason))
    })
}

/// The amount of outstanding work.
pub(super) fn debt(state: &ReadState, limits: &Limits, tables: &SortedFacts) -> Debt {
    let mut debt = Debt::default();
    debt.buffers = state.memtables.of_part(0).memtables.len() - 1;
    let overflows = Below::of(state).overflows(tables);
    if !overflows {
        debt.add(&[pressure(tables)]);
    }
    for part in state.parts.iter() {
        // Tables of level 0 that are files cost a read each.
        let files = level0_weight(part, limits, overflows);
        debt.add(&[leveled::level0_pressure(files, limits)]);
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
