//! The leveled picker: level 0 collects flushed memtables. Every level below is one sorted run of
//! tables, and each level is larger than the one above by a fixed factor (O'Neil et al. 1996;
//! LevelDB's arrangement).
//!
//! In order of urgency: flush the oldest full memtable; compact the level that exceeds its target
//! the most; compact a table that costs too many reads without a result, or is mostly tombstones;
//! rewrite the table with the largest share of dead bytes, if there are too many; and while nothing
//! is written, do the work that would soon be due. Each partition has levels of its own.

use super::{Facts, pick_flush};
use crate::compaction::plan::{How, Plan, Reason};
use crate::compaction::rate_limiter::Pressure;
use crate::event::StallReason;
use crate::manifest::{Level, PartId};
use crate::mechanisms;
use crate::read::state::{LevelRuns, Part, ReadState};
use crate::read::table_run::TableRun;
use firn_base::Limits;
use std::sync::Arc;

/// A table is moved down only if it overlaps at most this many tables' worth of the level below the
/// next. Otherwise its own compaction would be a large one.
const GRANDPARENT_TABLES: u64 = 10;

/// The target size of a level below 0, in bytes.
pub(crate) fn level_target(limits: &Limits, level: Level) -> u64 {
    (1..level.0).fold(limits.level_base_bytes, |target, _| {
        target.saturating_mul(limits.level_fan_out)
    })
}

/// The next action, if one is due.
pub(super) fn pick(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    pick_flush(state, facts)
        .or_else(|| pick_due(state, facts))
        .or_else(|| pick_rest(state, facts))
}

/// The next compaction that is due, except flushes.
pub(super) fn pick_due(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    let parts = || state.parts();
    pick_by_size(state, facts)
        .or_else(|| parts().find_map(|(id, part)| pick_by_seeks(id, part, facts)))
        .or_else(|| parts().find_map(|(id, part)| pick_by_tombstones(id, part, facts)))
        .or_else(|| parts().find_map(|(id, part)| pick_by_space(id, part, facts)))
}

/// A job that is not urgent, if there is time for it: a compaction of level 0 with fewer tables,
/// because each costs a scan one read, or of tables that hold much that no reader sees.
pub(super) fn pick_rest(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    if !facts.at_rest {
        return None;
    }
    state.parts().find_map(|(id, part)| {
        match part.level0_tables() >= facts.limits.level0_rest.max(1) {
            true => pick_level0(id, part, facts),
            false => pick_by_versions(id, part, facts),
        }
    })
}

/// Compacts a table below level 0 that `is_due` and has others below it.
pub(super) fn pick_hiding(
    state: &ReadState,
    facts: &Facts<'_>,
    is_due: impl Fn(&TableRun) -> bool,
) -> Option<Plan> {
    state.parts().find_map(|(id, part)| {
        let hides = |(level, run): &(Level, &Arc<TableRun>)| {
            let is_free = is_due(run) && !facts.busy.has(run);
            is_free
                && !level.is_zero()
                && *level < part.levels.last()
                && has_below(part, *level, run)
        };
        let mut due = part.tables().filter(hides);
        due.find_map(|(level, run)| {
            plan_for(
                id,
                part,
                level,
                std::slice::from_ref(run),
                facts,
                Reason::Space,
            )
        })
    })
}

/// As [`pick_rest`], but leaves level 0 alone.
pub(super) fn pick_rest_below(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    let mut parts = state.parts().filter(|_| facts.at_rest);
    parts.find_map(|(id, part)| pick_by_versions(id, part, facts))
}

/// Bytes by which the levels of a partition exceed their targets.
pub(super) fn excess_bytes(part: &Part, limits: &Limits) -> u64 {
    let level0 = part
        .levels
        .get(Level::ZERO)
        .filter(|level| level.runs.len() >= limits.level0_trigger);
    let below = part.levels.iter().skip(1);
    let last = part.levels.last();
    level0.map_or(0, |level| level.bytes())
        + below
            .filter(|(i, _)| *i < last)
            .map(|(i, level)| level.live_bytes().saturating_sub(level_target(limits, i)))
            .sum::<u64>()
}

/// How far a partition is from the limits at which it slows writers.
pub(super) fn pressures(part: &Part, limits: &Limits) -> [Pressure; 2] {
    [
        level0_pressure(part.level0_tables(), limits),
        debt_pressure(excess_bytes(part, limits), limits),
    ]
}

/// The pressure of `tables` in level 0.
pub(crate) fn level0_pressure(tables: usize, limits: &Limits) -> Pressure {
    let (slow, stop) = (limits.level0_slow as f64, limits.level0_stop as f64);
    Pressure {
        reason: StallReason::Level0,
        stall: ramp(tables as f64, slow, stop),
        haste: tables.saturating_sub(limits.level0_trigger) as f64,
    }
}

/// The pressure of levels that exceed their targets by `bytes`.
pub(crate) fn debt_pressure(bytes: u64, limits: &Limits) -> Pressure {
    let base = limits.level_base_bytes.max(1);
    Pressure {
        reason: StallReason::Debt,
        stall: ramp(bytes as f64, 8.0 * base as f64, 32.0 * base as f64),
        // The due part of level 0 is about one target of level 1, and no sign that compactions are
        // too slow.
        haste: (bytes / base).saturating_sub(1) as f64,
    }
}

/// The position of `x` between `from` and `to`: 0 at `from`, 1 at `to`.
pub(super) fn ramp(x: f64, from: f64, to: f64) -> f64 {
    (x - from) / (to - from)
}

/// Compacts the level of any partition that exceeds its target the most.
fn pick_by_size(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    let score = |part: &Part, level: Level| match level {
        Level::ZERO => part.level0_tables() as f64 / facts.limits.level0_trigger as f64,
        _ => {
            let idle = part.levels[level]
                .live_bytes()
                .saturating_sub(facts.busy.live_bytes(level));
            idle as f64 / level_target(facts.limits, level) as f64
        }
    };
    let mut levels: Vec<(f64, PartId, &Part, Level)> = Vec::new();
    for (id, part) in state.parts() {
        let inner = (0..part.levels.last().0).map(Level);
        let scored = inner.map(|level| (score(part, level), id, part, level));
        levels.extend(scored.filter(|scored| scored.0 >= 1.0));
    }
    levels.sort_by(|a, b| b.0.total_cmp(&a.0));
    levels.iter().find_map(|&(_, id, part, level)| match level {
        Level::ZERO => pick_level0(id, part, facts),
        _ => pick_table(id, part, level, facts),
    })
}

/// All of level 0, or as much of it as one compaction may take, with the tables of level 1 that it
/// overlaps.
pub(super) fn pick_level0(id: PartId, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    plan_for(
        id,
        part,
        Level::ZERO,
        oldest_of_level0(part, facts),
        facts,
        Reason::Size,
    )
}

/// The oldest tables of level 0, which one compaction may take. The tables that stay must be newer,
/// because level 0 is searched first.
fn oldest_of_level0<'a>(part: &'a Part, facts: &Facts<'_>) -> &'a [Arc<TableRun>] {
    let runs = &part.levels[Level::ZERO].runs;
    &runs[runs.len().saturating_sub(facts.level0_inputs_max)..]
}

/// The table that costs least per byte moved down.
pub(super) fn pick_table(id: PartId, part: &Part, level: Level, facts: &Facts<'_>) -> Option<Plan> {
    let below = &part.levels[level.below()];
    let mut choices: Vec<(f64, &Arc<TableRun>)> = part.levels[level]
        .runs
        .iter()
        .filter(|run| !facts.busy.has(run))
        .map(|run| {
            let overlapping = below.overlapping(&run.meta.smallest, &run.meta.largest);
            let bytes: u64 = overlapping
                .iter()
                .map(|other| other.meta.live_bytes())
                .sum();
            (bytes as f64 / run.meta.live_bytes().max(1) as f64, run)
        })
        .collect();
    choices.sort_by(|a, b| a.0.total_cmp(&b.0));
    choices.iter().find_map(|(_, run)| {
        plan_for(
            id,
            part,
            level,
            std::slice::from_ref(*run),
            facts,
            Reason::Size,
        )
    })
}

fn pick_by_seeks(id: PartId, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let (level, table) = facts.seek?;
    let runs = &part
        .levels
        .get(level)
        .filter(|_| level < part.levels.last())?
        .runs;
    let run = runs.iter().find(|run| run.meta.id == table)?;
    let inputs = if level.is_zero() {
        oldest_of_level0(part, facts)
    } else {
        std::slice::from_ref(run)
    };
    plan_for(id, part, level, inputs, facts, Reason::Seeks)
}

/// Compacts a table that is mostly tombstones. Reads walk over them and over the entries that they
/// hide, which are below and are removed with them. Tables of level 0 wait until it is full.
fn pick_by_tombstones(id: PartId, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let inner = (1..part.levels.last().0).map(Level);
    inner
        .filter(|&level| part.levels[level].has_tombstone_tables())
        .find_map(|level| {
            let is_due = |run: &&Arc<TableRun>| {
                let is_free = run.meta.is_mostly_tombstones()
                    && !facts.busy.has(run)
                    && run.meta.seqno_max <= facts.oldest;
                is_free && has_below(part, level, run)
            };
            let mut due = part.levels[level].runs.iter().filter(is_due);
            due.find_map(|run| {
                plan_for(
                    id,
                    part,
                    level,
                    std::slice::from_ref(run),
                    facts,
                    Reason::Space,
                )
            })
        })
}

/// Rewrites one table in its place to remove its dead bytes (BlockDB, V-E, bounds them only per
/// table).
fn pick_by_space(id: PartId, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let (dead, live) = part.dead_and_live();
    if dead as f64 <= live as f64 * facts.dead_share_max || !mechanisms::BLOCK_SPACE.is_on() {
        return None;
    }
    let share = |run: &TableRun| run.meta.dead_bytes as f64 / run.meta.live_bytes().max(1) as f64;
    let (level, run) = part
        .tables()
        .filter(|(level, run)| !level.is_zero() && run.meta.dead_bytes > 0 && !facts.busy.has(run))
        .max_by(|a, b| share(a.1).total_cmp(&share(b.1)))?;
    Some(rewrite(id, level, run))
}

/// Rewrites one table in its place, or moves it down a level, because most of the space it could
/// free is held for read points that have ended. Otherwise no input from above might ever reach it,
/// least of all in the deepest level.
fn pick_by_versions(id: PartId, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    if let Some(rewrite) = pick_stale(id, part, facts) {
        return Some(rewrite);
    }
    // The entries that a table's tombstones hide are below, and are removed with them.
    let hides_much = |(level, run): &(Level, &Arc<TableRun>)| {
        let is_inner =
            *level < part.levels.last() && has_below(part, *level, run) && !facts.busy.has(run);
        is_inner && run.meta.seqno_max <= facts.oldest && run.meta.deletes * 4 > run.meta.entries
    };
    let (level, run) = part.tables().find(hides_much)?;
    let inputs = if level.is_zero() {
        oldest_of_level0(part, facts)
    } else {
        std::slice::from_ref(run)
    };
    plan_for(id, part, level, inputs, facts, Reason::Space)
}

/// Rewrites one table in its place, because most of the space it could free is held for read points
/// that have ended.
pub(super) fn pick_stale(id: PartId, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let is_due = |(level, run): &(Level, &Arc<TableRun>)| {
        // While tables grow they may have twice as many dead bytes.
        let dead_max = run.meta.live_bytes() as f64 * facts.dead_share_max / 2.0;
        let is_free = !level.is_zero() && !facts.busy.has(run);
        let has_much = || {
            run.meta
                .holds_much_that_may_go(facts.oldest, has_below(part, *level, run))
        };
        is_free && ((facts.idle && run.meta.dead_bytes as f64 > dead_max) || has_much())
    };
    let (level, run) = part.tables().find(is_due)?;
    Some(rewrite(id, level, run))
}

/// True if a level below `level` has keys in the range of `run`.
fn has_below(part: &Part, level: Level, run: &TableRun) -> bool {
    let meets = |deeper: &Arc<LevelRuns>| {
        !deeper
            .overlapping(&run.meta.smallest, &run.meta.largest)
            .is_empty()
    };
    part.levels.below(level).iter().any(meets)
}

/// The rewriting of one table in its place.
pub(super) fn rewrite(id: PartId, level: Level, run: &Arc<TableRun>) -> Plan {
    Plan::new(
        id,
        vec![(level, run.clone())],
        level,
        How::Copy,
        Reason::Space,
    )
}

/// The last step of a user's compaction: the next table in the range, after `after` by (level,
/// key), with entries that no read point sees.
pub(super) fn pick_manual_rewrite(
    state: &ReadState,
    id: PartId,
    range: (&[u8], Option<&[u8]>),
    after: Option<(Level, &[u8])>,
    facts: &Facts<'_>,
) -> Option<Plan> {
    let part = state.part_by_id(id)?;
    let meets = |run: &TableRun| {
        run.meta.largest.as_slice() >= range.0
            && range.1.is_none_or(|end| run.meta.smallest.as_slice() < end)
    };
    let is_next = |(level, run): &(Level, &Arc<TableRun>)| {
        let is_behind = after.is_none_or(|after| (*level, run.meta.smallest.as_slice()) > after);
        let holds = || {
            run.meta
                .holds_what_may_go(facts.oldest, has_below(part, *level, run))
        };
        !level.is_zero() && is_behind && meets(run) && !facts.busy.has(run) && holds()
    };
    part.tables()
        .find(is_next)
        .map(|(level, run)| rewrite(id, level, run))
}

/// Compacts the tables of `level` of a partition that overlap `range`: one at a time after `after`,
/// or the oldest of level 0 together.
pub(super) fn pick_manual(
    state: &ReadState,
    (id, level): (PartId, Level),
    range: (&[u8], Option<&[u8]>),
    after: Option<&[u8]>,
    facts: &Facts<'_>,
) -> Option<Plan> {
    let part = state.part_by_id(id)?;
    let in_range = |run: &&Arc<TableRun>| {
        run.meta.largest.as_slice() >= range.0
            && range.1.is_none_or(|end| run.meta.smallest.as_slice() < end)
    };
    let runs = &part.levels.get(level)?.runs;
    let inputs = match level {
        Level::ZERO if runs.iter().any(|run| in_range(&run)) => oldest_of_level0(part, facts),
        Level::ZERO => return None,
        _ => {
            let is_next = |run: &&Arc<TableRun>| {
                after.is_none_or(|after| run.meta.smallest.as_slice() > after)
            };
            std::slice::from_ref(runs.iter().filter(in_range).find(is_next)?)
        }
    };
    plan_for(id, part, level, inputs, facts, Reason::Manual)
}

/// A plan that moves `inputs` down one level and merges them with the tables that they overlap
/// there; `None` if any of these is busy.
pub(super) fn plan_for(
    id: PartId,
    part: &Part,
    level: Level,
    inputs: &[Arc<TableRun>],
    facts: &Facts<'_>,
    reason: Reason,
) -> Option<Plan> {
    let smallest = inputs
        .iter()
        .map(|run| run.meta.smallest.as_slice())
        .min()?;
    let largest = inputs.iter().map(|run| run.meta.largest.as_slice()).max()?;
    let overlapping = part
        .levels
        .get(level.below())?
        .overlapping(smallest, largest);
    if inputs
        .iter()
        .chain(overlapping)
        .any(|run| facts.busy.has(run))
    {
        return None;
    }
    let grandparents = part.levels.get(level.below().below()).map_or(0, |below| {
        below
            .overlapping(smallest, largest)
            .iter()
            .map(|run| run.meta.bytes())
            .sum()
    });
    let movable = inputs.len() == 1 && overlapping.is_empty();
    let cheap_later = grandparents <= GRANDPARENT_TABLES * facts.limits.table_bytes;
    // A user's compaction must drop entries, and neither a move nor an append drops all of them.
    let how = match reason {
        Reason::Manual => How::Copy,
        _ if movable && cheap_later && mechanisms::BLOCK_MOVE.is_on() => How::Move,
        // Level 0 overlaps all of level 1, so few of its blocks would stay clean.
        _ if facts.appends && !level.is_zero() && !overlapping.is_empty() => How::Append,
        _ => How::Copy,
    };
    let tables = inputs
        .iter()
        .map(|run| (level, run.clone()))
        .chain(overlapping.iter().map(|run| (level.below(), run.clone())))
        .collect();
    Some(Plan::new(id, tables, level.below(), how, reason))
}
