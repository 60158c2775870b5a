//! The picker of partition borders: a partition that has grown is divided, and two small neighbours
//! become one.
//!
//! 1. A border is wanted before it exists. From then on every output ends there, and the tables
//!    that cross it are compacted. Once none is left, one manifest record adds the border, and no
//!    data moves for it. A partition that is many times too large wants all its borders at once,
//!    so that its tables are not rewritten for each of them.
//! 2. A border changes only while no flush and no compaction of its partitions runs, because their
//!    outputs end at the borders that they began with.
//! 3. A border that is wanted is forgotten by a crash, which leaves nothing but tables that end
//!    there.

use super::leveled::{pick_level0, rewrite};
use super::{Facts, ranges};
use crate::compaction::plan::{Border, How, Plan, Reason};
use crate::manifest::{Level, PartId, evenly, within};
use crate::read::state::{LevelRuns, Part, ReadState};
use crate::read::table_run::TableRun;
use firn_base::Limits;
use std::sync::Arc;

/// Keys at which partitions are to be divided, ascending.
pub(crate) type WantedCuts = Vec<Box<[u8]>>;

/// The sizes at which partitions are divided and joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// The most partitions.
    pub(crate) count_max: usize,
    /// The bytes from which a partition is divided.
    pub(crate) bytes: u64,
    /// The same for those in persistent memory.
    pub(crate) memory_bytes: u64,
}

impl Sizes {
    /// The sizes that the limits name.
    pub(crate) fn of(limits: &Limits) -> Sizes {
        Sizes {
            count_max: limits.partitions_max,
            bytes: limits.partition_bytes,
            memory_bytes: u64::MAX,
        }
    }

    /// The number of partitions that `part` is to become, each of about half the size from which
    /// it would be divided again.
    fn pieces(&self, part: &Part) -> usize {
        let (all, memory) = (bytes(part), bytes_in_memory(part));
        if all <= self.bytes && memory <= self.memory_bytes {
            return 1;
        }
        let pieces = |bytes: u64, most: u64| bytes.saturating_mul(2) / most.max(1);
        pieces(all, self.bytes)
            .max(pieces(memory, self.memory_bytes))
            .max(2) as usize
    }

    /// True if both together have less than half of either size, wherever it is: what is in
    /// persistent memory now leaves it, and comes again.
    fn are_small(&self, left: &Part, right: &Part) -> bool {
        bytes(left) + bytes(right) < self.bytes.min(self.memory_bytes) / 2
    }
}

/// The live bytes of a partition.
pub(super) fn bytes(part: &Part) -> u64 {
    part.levels.values().map(|level| level.live_bytes()).sum()
}

fn bytes_in_memory(part: &Part) -> u64 {
    let tables = part.tables().filter(|(_, run)| !run.meta.is_file());
    tables.map(|(_, run)| run.meta.bytes()).sum()
}

/// The borders that are wanted next: those of `before` in partitions that are still large, and as
/// many as it takes in each other one that is.
pub(crate) fn wanted(state: &ReadState, sizes: &Sizes, before: &[Box<[u8]>]) -> WantedCuts {
    let mut room = sizes.count_max.saturating_sub(state.parts.len());
    let mut wanted = Vec::new();
    if room == 0 || state.upper().is_some() {
        return wanted;
    }
    for (at, part) in state.parts.iter().enumerate() {
        let pieces = sizes.pieces(part).min(room + 1);
        if pieces < 2 {
            continue;
        }
        let mut cuts = within(before, state.layout.range(at)).to_vec();
        if cuts.is_empty() {
            cuts = borders_of(state, at, part, pieces);
        }
        cuts.truncate(room);
        room -= cuts.len();
        wanted.extend(cuts);
    }
    wanted
}

/// The first keys of the ranges or, without ranges, of the tables of the lowest level with several,
/// that divide `part`, the one with index `at`, into `pieces` of about the same size.
fn borders_of(state: &ReadState, at: usize, part: &Part, pieces: usize) -> WantedCuts {
    let ranges = state.layout.ranges_of(at);
    if !ranges.is_empty() {
        let stacks = ranges::stacks(part, state.layout.range(at), ranges);
        return evenly(
            stacks.iter().map(|stack| (stack.from, stack.bytes())),
            pieces,
        );
    }
    let has_some = |level: &&Arc<LevelRuns>| level.sorted && level.runs.len() > 1;
    let Some(level) = part.levels.values().rev().find(has_some) else {
        return Vec::new();
    };
    let tables = level.runs.iter();
    evenly(
        tables.map(|run| (&*run.meta.smallest, run.meta.live_bytes())),
        pieces,
    )
}

/// A wanted border that nothing is in the way of any more. It comes before other work, because the
/// partition is seldom idle while much is written.
pub(super) fn pick_ready(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    if facts.flushes.running {
        return None;
    }
    facts.wanted.iter().find_map(|cut| {
        let (id, part) = part_with(state, cut);
        let is_ready = crossing(part, cut).is_none() && !facts.busy.has_any_of(id, part);
        is_ready.then(|| border(id, &[part], Border::Add(cut.to_vec())))
    })
}

/// The next step towards a wanted border, or a border that can go.
pub(super) fn pick(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    match facts.wanted {
        [] => pick_union(state, facts),
        wanted => wanted
            .iter()
            .find_map(|cut| pick_division(state, cut, facts)),
    }
}

fn pick_division(state: &ReadState, cut: &[u8], facts: &Facts<'_>) -> Option<Plan> {
    let (id, part) = part_with(state, cut);
    match crossing(part, cut)? {
        (Level::ZERO, _) => match facts.ranges {
            Some(tuning) => ranges::pick_partition(state, id, facts, tuning),
            None => pick_level0(id, part, facts),
        },
        (level, run) if !facts.busy.has(run) => Some(Plan {
            reason: Reason::Partition,
            ..rewrite(id, level, run)
        }),
        _ => None,
    }
}

/// The partition that has `key`.
fn part_with<'a>(state: &'a ReadState, key: &[u8]) -> (PartId, &'a Part) {
    let at = state.layout.part_of(key);
    (state.layout.ids()[at], &state.parts[at])
}

/// The first table that has keys on both sides of `cut`.
fn crossing<'a>(part: &'a Part, cut: &[u8]) -> Option<(Level, &'a Arc<TableRun>)> {
    part.tables()
        .find(|(_, run)| *run.meta.smallest < *cut && *run.meta.largest >= *cut)
}

/// Joins two neighbours that have little together. Each keeps its tables.
fn pick_union(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    if facts.flushes.running || state.parts.len() == 1 {
        return None;
    }
    let parts = &state.parts;
    let is_free = |i: usize| !facts.busy.has_any_of(state.layout.ids()[i], &parts[i]);
    let at = (1..parts.len()).find(|&i| {
        let (left, right) = (&parts[i - 1], &parts[i]);
        let are_free = is_free(i - 1) && is_free(i) && state.memtables.may_join(i - 1);
        facts.sizes.are_small(left, right) && are_free
    })?;
    let dropped = Border::Drop(state.layout.cuts()[at - 1].to_vec());
    let id = state.layout.ids()[at - 1];
    Some(border(id, &[&parts[at - 1], &parts[at]], dropped))
}

/// The plan takes all tables of its partitions, so that no compaction of them begins.
fn border(id: PartId, parts: &[&Part], border: Border) -> Plan {
    let tables = parts.iter().flat_map(|part| part.tables());
    let tables = tables.map(|(level, run)| (level, run.clone())).collect();
    Plan {
        border: Some(border),
        ..Plan::new(id, tables, Level::ZERO, How::Border, Reason::Partition)
    }
}
