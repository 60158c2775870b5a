//! The picker of partition borders: a partition that has grown is divided in two, and two small
//! neighbours become one.
//!
//! 1. A border is wanted before it exists. From then on every output ends there, and the tables
//!    that cross it are compacted. Once none is left, one manifest record adds the border, and no
//!    data moves for it.
//! 2. A border changes only while no flush and no compaction of its partitions runs, because their
//!    outputs end at the borders that they began with.
//! 3. A border that is wanted is forgotten by a crash, which leaves nothing but tables that end
//!    there.

use super::Facts;
use super::leveled::{pick_level0, rewrite};
use crate::compaction::plan::{Border, BusyTables, How, Plan, Reason};
use crate::manifest::{Level, PartId};
use crate::read::state::{LevelRuns, Part, ReadState};
use crate::read::table_run::TableRun;
use firn_base::Limits;
use std::sync::Arc;

/// The partition that is to be divided, and the key at which it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) part: PartId,
    pub(crate) cut: Vec<u8>,
}

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

    fn is_large(&self, part: &Part) -> bool {
        bytes(part) > self.bytes || bytes_in_memory(part) > self.memory_bytes
    }

    /// True if both together have less than half of either size, wherever it is: what is in
    /// persistent memory now leaves it, and comes again.
    fn are_small(&self, left: &Part, right: &Part) -> bool {
        bytes(left) + bytes(right) < self.bytes.min(self.memory_bytes) / 2
    }
}

fn bytes(part: &Part) -> u64 {
    part.levels.values().map(|level| level.live_bytes()).sum()
}

fn bytes_in_memory(part: &Part) -> u64 {
    let tables = part.tables().filter(|(_, run)| !run.meta.is_file());
    tables.map(|(_, run)| run.meta.bytes()).sum()
}

/// The border that is wanted next: `before` as long as its partition is large, or one in the middle
/// of another partition that is.
pub(crate) fn wanted(state: &ReadState, sizes: &Sizes, before: Option<Wanted>) -> Option<Wanted> {
    if state.parts.len() >= sizes.count_max || state.upper().is_some() {
        return None;
    }
    let is_large = |part: &Part| sizes.is_large(part);
    let still = before.filter(|wanted| {
        let at = state.layout.part_of(&wanted.cut);
        state.layout.ids()[at] == wanted.part && is_large(&state.parts[at])
    });
    still.or_else(|| {
        state
            .parts()
            .filter(|(_, part)| is_large(part))
            .find_map(|(id, part)| {
                let cut = middle(part)?;
                (state.layout.cuts().iter().all(|other| **other != *cut))
                    .then_some(Wanted { part: id, cut })
            })
    })
}

/// The first key of the table in the middle of the lowest level that has several.
fn middle(part: &Part) -> Option<Vec<u8>> {
    let has_some = |level: &&Arc<LevelRuns>| level.sorted && level.runs.len() > 1;
    let level = part.levels.values().rev().find(has_some)?;
    let half = level.live_bytes() / 2;
    let mut before = 0;
    let at = level.runs.iter().position(|run| {
        before += run.meta.live_bytes();
        before > half
    })?;
    Some(level.runs[at.max(1)].meta.smallest.clone())
}

/// The wanted border, if nothing is in its way any more. It comes before other work, because the
/// partition is seldom idle while much is written.
pub(super) fn pick_ready(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    let wanted = facts.wanted?;
    let (id, part) = (wanted.part, state.part_by_id(wanted.part)?);
    let crosses = |(_, run): (Level, &Arc<TableRun>)| {
        run.meta.smallest < wanted.cut && run.meta.largest >= wanted.cut
    };
    let is_ready = !facts.flushing && !part.tables().any(crosses) && !is_busy(part, facts.busy);
    is_ready.then(|| border(id, &[part], Border::Add(wanted.cut.clone())))
}

/// The next step towards the wanted border, or a border that can go.
pub(super) fn pick(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    match facts.wanted {
        Some(wanted) => pick_division(state, wanted, facts),
        None => pick_union(state, facts),
    }
}

fn pick_division(state: &ReadState, wanted: &Wanted, facts: &Facts<'_>) -> Option<Plan> {
    let (id, part) = (wanted.part, state.part_by_id(wanted.part)?);
    let crosses = part
        .tables()
        .find(|(_, run)| run.meta.smallest < wanted.cut && run.meta.largest >= wanted.cut);
    match crosses {
        Some((Level::ZERO, _)) => pick_level0(id, part, facts),
        Some((level, run)) if !facts.busy.has(run) => Some(Plan {
            reason: Reason::Partition,
            ..rewrite(id, level, run)
        }),
        Some(_) => None,
        None => None,
    }
}

/// Joins two neighbours that have little together. Each keeps its tables.
fn pick_union(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    if facts.flushing || state.parts.len() == 1 {
        return None;
    }
    let is_free = |part: &Part| !is_busy(part, facts.busy);
    let parts = &state.parts;
    let at = (1..parts.len()).find(|&i| {
        let (left, right) = (&parts[i - 1], &parts[i]);
        facts.sizes.are_small(left, right) && is_free(left) && is_free(right)
    })?;
    let dropped = Border::Drop(state.layout.cuts()[at - 1].to_vec());
    let id = state.layout.ids()[at - 1];
    Some(border(id, &[&parts[at - 1], &parts[at]], dropped))
}

fn is_busy(part: &Part, busy: &BusyTables) -> bool {
    part.tables().any(|(_, run)| busy.has(run))
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
