//! The leveled picker: level 0 collects flushed memtables. Every level below is one sorted run of
//! tables, and each level is larger than the one above by a fixed factor (O'Neil et al. 1996;
//! LevelDB's arrangement).
//!
//! In order of urgency: flush the oldest full memtable; compact the level that exceeds its target
//! the most; compact a table that costs too many reads without a result, or is mostly tombstones;
//! rewrite the table with the largest share of dead bytes, if there are too many; and while nothing
//! is written, do the work that would soon be due. Pure: reads the state and the facts, changes
//! nothing.

use crate::compaction::plan::{BusyTables, How, Plan, Reason};
use crate::lab::{Chunk, Trees};
use crate::manifest::KeyRange;
use crate::mechanisms;
use crate::options::tuning::LabTuning;
use crate::read::run::SstRun;
use crate::read::state::{Part, ReadState};
use crate::write::write_stall::Debt;
use firn_base::{Limits, SeqNo};
use std::sync::Arc;

/// A table is moved down only if it overlaps at most this many tables' worth of the level below the
/// next. Otherwise its own compaction would be a large one.
const GRANDPARENT_TABLES: u64 = 10;

/// The facts that a pick needs in addition to the state.
pub(crate) struct Facts<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) busy: &'a BusyTables,
    /// True if a flush is running.
    pub(crate) flushing: bool,
    /// The highest visible sequence number. A memtable may be flushed once all its entries are
    /// visible.
    pub(crate) visible: SeqNo,
    /// The oldest read point. Versions that neither it nor any later one sees may be dropped.
    pub(crate) oldest: SeqNo,
    /// A table with too many reads without a result, and its level.
    pub(crate) seek: Option<(usize, u64)>,
    /// True if compactions may append to tables.
    pub(crate) appends: bool,
    /// The most dead bytes per live byte.
    pub(crate) dead_share_max: f64,
    /// True if an eviction is running; the parameters by which one is due; bytes of values that it
    /// takes.
    pub(crate) evicting: bool,
    pub(crate) lab: &'a LabTuning,
    pub(crate) chunk_bytes: u64,
    /// Bytes of a write buffer.
    pub(crate) buffer_bytes: u64,
    /// The most level-0 tables that one compaction may take.
    pub(crate) level0_inputs_max: usize,
    /// True if there is time for work that is not urgent.
    pub(crate) at_rest: bool,
    /// True if nothing was written for a long time, so that there is time for work that only saves
    /// space.
    pub(crate) idle: bool,
}

/// The target size of a level below 0, in bytes.
pub(crate) fn level_target(limits: &Limits, level: usize) -> u64 {
    (1..level).fold(limits.level_base_bytes, |target, _| {
        target.saturating_mul(limits.level_fan_out)
    })
}

/// The next action, if one is due.
pub(crate) fn pick(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    let parts = || state.parts.iter().enumerate();
    // Trees that fill up come first (LAB-DB, 3.4), because another job might take the tables that
    // their entries must be merged into.
    if mechanisms::LAB_FIRST.is_on() && parts().any(|(_, part)| due_chunk(part, facts).is_some()) {
        return pick_eviction(state, facts).or_else(|| pick_flush(state, facts));
    }
    pick_flush(state, facts)
        .or_else(|| parts().find_map(|(i, part)| pick_by_size(i, part, facts)))
        .or_else(|| parts().find_map(|(i, part)| pick_by_seeks(i, part, facts)))
        .or_else(|| parts().find_map(|(i, part)| pick_by_tombstones(i, part, facts)))
        .or_else(|| parts().find_map(|(i, part)| pick_by_space(i, part, facts)))
        .or_else(|| pick_eviction(state, facts))
        .or_else(|| pick_rest(state, facts))
}

/// The amount of outstanding compaction work.
pub(crate) fn debt(state: &ReadState, limits: &Limits, lab: &LabTuning, buffer_bytes: u64) -> Debt {
    let logs = |part: &Part| {
        let share = |trees: &Trees| {
            trees.values.held_bytes() as f64 / log_bytes_max(part, lab, buffer_bytes) as f64
        };
        part.trees.as_ref().map_or(0.0, share)
    };
    let trees = |part: &Part| {
        part.trees
            .as_ref()
            .map_or(0.0, |trees| trees.fullness(lab.evict_share))
    };
    state.parts.iter().fold(Debt::default(), |sum, part| Debt {
        buffers: sum.buffers + part.buffers.len().saturating_sub(1),
        level0_tables: sum.level0_tables + part.levels.first().map_or(0, |level| level.runs.len()),
        bytes: sum.bytes + excess_bytes(part, limits),
        logs: sum.logs.max(logs(part)),
        trees: sum.trees.max(trees(part)),
    })
}

fn excess_bytes(part: &Part, limits: &Limits) -> u64 {
    let level0 = part
        .levels
        .first()
        .filter(|level| level.runs.len() >= limits.level0_trigger);
    let below = part.levels.iter().enumerate().skip(1);
    let last = part.levels.len().saturating_sub(1);
    level0.map_or(0, |level| level.bytes())
        + below
            .filter(|(i, _)| *i < last)
            .map(|(i, level)| level.live_bytes().saturating_sub(level_target(limits, i)))
            .sum::<u64>()
}

/// The next eviction, if one is due.
pub(crate) fn pick_eviction(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    let mut parts = state.parts.iter().enumerate();
    parts.find_map(|(i, part)| plan_eviction(i, part, due_chunk(part, facts)?, facts))
}

/// The chunk to be evicted, if one is due and no eviction is running.
fn due_chunk(part: &Part, facts: &Facts<'_>) -> Option<Chunk> {
    let trees = part.trees.as_ref().filter(|_| !facts.evicting)?;
    let log_bytes_max = log_bytes_max(part, facts.lab, facts.buffer_bytes);
    trees.chunk_if_due(
        facts.lab.evict_share,
        facts.lab.by_log_share,
        log_bytes_max,
        facts.chunk_bytes,
    )
}

/// A job that is not urgent, if there is time for it: a compaction of level 0 with fewer tables,
/// because each costs a scan one read, or an eviction.
fn pick_rest(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    if !facts.at_rest {
        return None;
    }
    let mut parts = state.parts.iter().enumerate();
    parts.find_map(|(i, part)| {
        if part
            .levels
            .first()
            .is_some_and(|level| level.runs.len() >= facts.limits.level0_rest.max(1))
        {
            return pick_level0(i, part, facts);
        }
        if let Some(plan) = pick_by_versions(i, part, facts) {
            return Some(plan);
        }
        if facts.evicting {
            return None;
        }
        let trees = part.trees.as_ref()?;
        let lab = facts.lab;
        let evict_share = match trees.reuse.newest().filter(|_| lab.reuse_min > 0.0) {
            // Incoming keys are not written again. Once the trees are empty, memtables can bypass
            // them.
            Some(share) if share < lab.reuse_min => 0.0,
            // Incoming keys are written again and replace entries in the trees. Evicting these now
            // would write them one more time.
            Some(_) => return None,
            None => lab.evict_share,
        };
        let log_bytes = log_bytes_max(part, lab, facts.buffer_bytes) as f64 * lab.rest_share;
        let chunk = trees.chunk_if_due(
            evict_share,
            lab.by_log_share,
            log_bytes as u64,
            facts.chunk_bytes,
        )?;
        plan_eviction(i, part, chunk, facts)
    })
}

/// The next leaves for a user's compaction, due or not. If there is no immutable tree, the mutable
/// one becomes it, provided that `may_rotate` is true.
pub(crate) fn pick_manual_eviction(
    state: &ReadState,
    may_rotate: bool,
    facts: &Facts<'_>,
) -> Option<Plan> {
    let part = state.parts.first()?;
    let chunk = part.trees.as_ref()?.chunk_if_due(
        0.0,
        facts.lab.by_log_share,
        u64::MAX,
        facts.chunk_bytes,
    )?;
    (may_rotate || !chunk.rotates)
        .then(|| plan_eviction(0, part, chunk, facts))
        .flatten()
}

/// The eviction of `chunk` with the tables of level 1 that it overlaps. If there is no immutable
/// tree, the mutable one becomes it.
fn plan_eviction(i: usize, part: &Part, chunk: Chunk, facts: &Facts<'_>) -> Option<Plan> {
    // Tables of level 0 are older than the trees, and are searched before level 1.
    if part
        .levels
        .first()
        .is_some_and(|level| !level.runs.is_empty())
    {
        return pick_level0(i, part, facts);
    }
    let trees = part.trees.as_ref()?;
    let below = &part.levels.get(1)?.runs;
    let chunk = chunk.aligned(
        trees.immutable.as_ref().unwrap_or(&trees.mutable),
        &part.metas_of(1),
    );
    let KeyRange { from, to } = chunk.within();
    let meets = |run: &&Arc<SstRun>| {
        run.meta.largest >= *from && to.as_ref().is_none_or(|to| run.meta.smallest < *to)
    };
    let tables: Vec<(usize, Arc<SstRun>)> = below
        .iter()
        .filter(meets)
        .map(|run| (1, run.clone()))
        .collect();
    if tables.iter().any(|(_, run)| facts.busy.has(run)) {
        return None;
    }
    Some(Plan {
        part: i,
        buffer: None,
        chunk: Some(chunk),
        tables,
        level: 1,
        how: How::Copy,
        reason: Reason::Evict,
    })
}

/// The size of the logs at which level 0 is evicted to free them, in bytes: a fraction of the data,
/// but at least some write buffers.
fn log_bytes_max(part: &Part, tuning: &LabTuning, buffer_bytes: u64) -> u64 {
    const BUFFERS_LEAST: u64 = 8;
    let data: u64 = part.levels.iter().map(|level| level.live_bytes()).sum();
    let share = (data as f64 * tuning.log_share_max) as u64;
    share.clamp(
        BUFFERS_LEAST * buffer_bytes,
        tuning.log_bytes_max.max(BUFFERS_LEAST * buffer_bytes),
    )
}

/// The next flush, if one is due.
pub(crate) fn pick_flush(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    state
        .parts
        .iter()
        .enumerate()
        .find_map(|(i, part)| plan_flush(i, part, facts))
}

fn plan_flush(i: usize, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let has_room = part.trees.as_ref().is_none_or(Trees::has_room);
    let buffer = part
        .flushable(facts.visible)
        .filter(|_| !facts.flushing && has_room)?;
    Some(Plan {
        part: i,
        buffer: Some(buffer.clone()),
        chunk: None,
        tables: Vec::new(),
        level: 0,
        how: How::Copy,
        reason: Reason::Flush,
    })
}

fn pick_by_size(i: usize, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let last = part.levels.len().checked_sub(1)?;
    let score = |level: usize| match level {
        0 => part.levels[0].runs.len() as f64 / facts.limits.level0_trigger as f64,
        _ => {
            let idle = part.levels[level]
                .live_bytes()
                .saturating_sub(facts.busy.live_bytes(level));
            idle as f64 / level_target(facts.limits, level) as f64
        }
    };
    let mut levels: Vec<(f64, usize)> = (0..last)
        .map(|level| (score(level), level))
        .filter(|s| s.0 >= 1.0)
        .collect();
    levels.sort_by(|a, b| b.0.total_cmp(&a.0));
    levels.iter().find_map(|&(_, level)| match level {
        0 => pick_level0(i, part, facts),
        _ => pick_table(i, part, level, facts),
    })
}

/// All of level 0, or as much of it as one compaction may take, with the tables of level 1 that it
/// overlaps.
fn pick_level0(i: usize, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    plan_for(
        i,
        part,
        0,
        oldest_of_level0(part, facts),
        facts,
        Reason::Size,
    )
}

/// The oldest tables of level 0, which one compaction may take. The tables that stay must be newer,
/// because level 0 is searched first.
fn oldest_of_level0<'a>(part: &'a Part, facts: &Facts<'_>) -> &'a [Arc<SstRun>] {
    let runs = &part.levels[0].runs;
    &runs[runs.len().saturating_sub(facts.level0_inputs_max)..]
}

/// The table that costs least per byte moved down.
fn pick_table(i: usize, part: &Part, level: usize, facts: &Facts<'_>) -> Option<Plan> {
    let below = &part.levels[level + 1];
    let mut choices: Vec<(f64, &Arc<SstRun>)> = part.levels[level]
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
            i,
            part,
            level,
            std::slice::from_ref(*run),
            facts,
            Reason::Size,
        )
    })
}

fn pick_by_seeks(i: usize, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let (level, id) = facts.seek?;
    let runs = &part
        .levels
        .get(level)
        .filter(|_| level + 1 < part.levels.len())?
        .runs;
    let run = runs.iter().find(|run| run.meta.id == id)?;
    let inputs = if level == 0 {
        oldest_of_level0(part, facts)
    } else {
        std::slice::from_ref(run)
    };
    plan_for(i, part, level, inputs, facts, Reason::Seeks)
}

/// Compacts a table that is mostly tombstones. Reads walk over them and over the entries that they
/// hide, which are below and are removed with them. Tables of level 0 wait until it is full.
fn pick_by_tombstones(i: usize, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let inner = 1..part.levels.len().saturating_sub(1);
    inner
        .filter(|&level| part.levels[level].has_tombstone_tables())
        .find_map(|level| {
            let is_due = |run: &&Arc<SstRun>| {
                let is_free = run.meta.is_mostly_tombstones()
                    && !facts.busy.has(run)
                    && run.meta.seqno_max <= facts.oldest;
                is_free && has_below(part, level, run)
            };
            let mut due = part.levels[level].runs.iter().filter(is_due);
            due.find_map(|run| {
                plan_for(
                    i,
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
fn pick_by_space(i: usize, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let (dead, live) = part.dead_and_live();
    if dead as f64 <= live as f64 * facts.dead_share_max || !mechanisms::BLOCK_SPACE.is_on() {
        return None;
    }
    let share = |run: &SstRun| run.meta.dead_bytes as f64 / run.meta.live_bytes().max(1) as f64;
    let (level, run) = part
        .tables()
        .filter(|(level, run)| *level > 0 && run.meta.dead_bytes > 0 && !facts.busy.has(run))
        .max_by(|a, b| share(a.1).total_cmp(&share(b.1)))?;
    Some(rewrite(i, level, run))
}

/// Rewrites one table in its place, or moves it down a level, because most of the space it could
/// free is held for read points that have ended. Otherwise no input from above might ever reach it,
/// least of all in the deepest level.
fn pick_by_versions(i: usize, part: &Part, facts: &Facts<'_>) -> Option<Plan> {
    let is_due = |(level, run): &(usize, &Arc<SstRun>)| {
        // While tables grow they may have twice as many dead bytes.
        let dead_max = run.meta.live_bytes() as f64 * facts.dead_share_max / 2.0;
        let is_free = *level > 0 && !facts.busy.has(run);
        let has_much = || {
            run.meta
                .holds_much_that_may_go(facts.oldest, has_below(part, *level, run))
        };
        is_free && ((facts.idle && run.meta.dead_bytes as f64 > dead_max) || has_much())
    };
    if let Some((level, run)) = part.tables().find(is_due) {
        return Some(rewrite(i, level, run));
    }
    // The entries that a table's tombstones hide are below, and are removed with them.
    let hides_much = |(level, run): &(usize, &Arc<SstRun>)| {
        let is_inner =
            level + 1 < part.levels.len() && has_below(part, *level, run) && !facts.busy.has(run);
        is_inner && run.meta.seqno_max <= facts.oldest && run.meta.deletes * 4 > run.meta.entries
    };
    let (level, run) = part.tables().find(hides_much)?;
    let inputs = if level == 0 {
        oldest_of_level0(part, facts)
    } else {
        std::slice::from_ref(run)
    };
    plan_for(i, part, level, inputs, facts, Reason::Space)
}

/// True if a level below `level` has keys in the range of `run`.
fn has_below(part: &Part, level: usize, run: &SstRun) -> bool {
    let meets = |deeper: &Arc<crate::read::state::Level>| {
        !deeper
            .overlapping(&run.meta.smallest, &run.meta.largest)
            .is_empty()
    };
    part.levels.iter().skip(level + 1).any(meets)
}

fn rewrite(i: usize, level: usize, run: &Arc<SstRun>) -> Plan {
    let tables = vec![(level, run.clone())];
    Plan {
        part: i,
        buffer: None,
        chunk: None,
        tables,
        level,
        how: How::Copy,
        reason: Reason::Space,
    }
}

/// The last step of a user's compaction: the next table in the range, after `after` by (level,
/// key), with entries that no read point sees.
pub(crate) fn pick_manual_rewrite(
    state: &ReadState,
    range: (&[u8], Option<&[u8]>),
    after: Option<(usize, &[u8])>,
    facts: &Facts<'_>,
) -> Option<Plan> {
    let part = state.parts.first()?;
    let meets = |run: &SstRun| {
        run.meta.largest.as_slice() >= range.0
            && range.1.is_none_or(|end| run.meta.smallest.as_slice() < end)
    };
    let is_next = |(level, run): &(usize, &Arc<SstRun>)| {
        let is_behind = after.is_none_or(|after| (*level, run.meta.smallest.as_slice()) > after);
        let holds = || {
            run.meta
                .holds_what_may_go(facts.oldest, has_below(part, *level, run))
        };
        *level > 0 && is_behind && meets(run) && !facts.busy.has(run) && holds()
    };
    part.tables()
        .find(is_next)
        .map(|(level, run)| rewrite(0, level, run))
}

/// Compacts the tables of `level` that overlap `range`: one at a time after `after`, or the oldest
/// of level 0 together.
pub(crate) fn pick_manual(
    state: &ReadState,
    level: usize,
    range: (&[u8], Option<&[u8]>),
    after: Option<&[u8]>,
    facts: &Facts<'_>,
) -> Option<Plan> {
    let part = state.parts.first()?;
    let in_range = |run: &&Arc<SstRun>| {
        run.meta.largest.as_slice() >= range.0
            && range.1.is_none_or(|end| run.meta.smallest.as_slice() < end)
    };
    let runs = &part.levels.get(level)?.runs;
    if level == 0 {
        let meets = runs.iter().any(|run| in_range(&run));
        return meets
            .then(|| {
                plan_for(
                    0,
                    part,
                    0,
                    oldest_of_level0(part, facts),
                    facts,
                    Reason::Manual,
                )
            })
            .flatten();
    }
    let run = runs
        .iter()
        .filter(in_range)
        .find(|run| after.is_none_or(|after| run.meta.smallest.as_slice() > after))?;
    plan_for(
        0,
        part,
        level,
        std::slice::from_ref(run),
        facts,
        Reason::Manual,
    )
}

/// A plan that moves `inputs` down one level and merges them with the tables that they overlap
/// there; `None` if any of these is busy.
fn plan_for(
    i: usize,
    part: &Part,
    level: usize,
    inputs: &[Arc<SstRun>],
    facts: &Facts<'_>,
    reason: Reason,
) -> Option<Plan> {
    let smallest = inputs
        .iter()
        .map(|run| run.meta.smallest.as_slice())
        .min()?;
    let largest = inputs.iter().map(|run| run.meta.largest.as_slice()).max()?;
    let overlapping = part.levels.get(level + 1)?.overlapping(smallest, largest);
    if inputs
        .iter()
        .chain(overlapping)
        .any(|run| facts.busy.has(run))
    {
        return None;
    }
    let grandparents = part.levels.get(level + 2).map_or(0, |below| {
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
        _ if facts.appends && level > 0 && !overlapping.is_empty() => How::Append,
        _ => How::Copy,
    };
    let tables = inputs
        .iter()
        .map(|run| (level, run.clone()))
        .chain(overlapping.iter().map(|run| (level + 1, run.clone())))
        .collect();
    Some(Plan {
        part: i,
        buffer: None,
        chunk: None,
        tables,
        level: level + 1,
        how,
        reason,
    })
}
