//! The picker of a level 0 in trees (LAB-DB): flushes go into the trees, evictions out of them, and
//! the levels below are leveled.

use super::leveled::{pick_due, pick_level0, pick_rest, ramp};
use super::{Facts, pick_flush};
use crate::compaction::plan::{How, Plan, Reason};
use crate::compaction::rate_limiter::{Pressure, URGENT};
use crate::event::StallReason;
use crate::lab::{Chunk, Trees};
use crate::manifest::{KeyRange, Level, PartId};
use crate::mechanisms;
use crate::memtable::Memtable;
use crate::options::tuning::LabTuning;
use crate::read::state::{Part, ReadState};
use crate::read::table_run::TableRun;
use crate::upper::Upper;
use std::sync::Arc;

/// The partition and the trees in it.
fn trees_of(state: &ReadState) -> Option<(PartId, &Part, &Trees)> {
    let (id, part) = state.parts().next()?;
    let trees = part.upper.as_ref().and_then(Upper::trees)?;
    Some((id, part, trees))
}

/// The next action, if one is due.
pub(super) fn pick(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    // Trees that fill up come first (LAB-DB, 3.4), because another job might take the tables that
    // their entries must be merged into.
    if mechanisms::LAB_FIRST.is_on() && due_chunk(state, facts).is_some() {
        return pick_eviction(state, facts).or_else(|| pick_flush(state, facts));
    }
    pick_flush(state, facts)
        .or_else(|| pick_due(state, facts))
        .or_else(|| pick_eviction(state, facts))
        .or_else(|| pick_rest(state, facts))
        .or_else(|| pick_eviction_at_rest(state, facts))
}

/// The way in which `buffer` is flushed: into the trees, or as a table of level 0 if few of its
/// keys are expected to be written again and the trees are empty. They are searched first, so they
/// must have nothing older. `None` if the trees have no room.
pub(super) fn flush_how(trees: &Trees, buffer: &Memtable, facts: &Facts<'_>) -> Option<How> {
    let needed = [
        &mechanisms::LAB_TREES,
        &mechanisms::LAB_VALUES,
        &mechanisms::LAB_ADDRESSES,
    ];
    let works = needed.iter().all(|mechanism| mechanism.is_on());
    let reuse_min = facts.tuning.lab.reuse_min;
    let is_reused = |share: Option<f64>| share.is_some_and(|share| share >= reuse_min);
    let stays = reuse_min == 0.0
        || facts.flushes.begun
        || trees.values.is_placed(buffer.log_id)
        || is_reused(trees.reuse.share_of(buffer));
    let how = match trees.are_empty() && (!works || !stays) {
        true => How::Copy,
        false => How::Insert,
    };
    trees.has_room().then_some(how)
}

/// How far the trees and the logs that they point into are from the limits at which they slow
/// writers.
pub(super) fn pressures(
    part: &Part,
    trees: &Trees,
    lab: &LabTuning,
    buffer_bytes: u64,
) -> [Pressure; 2] {
    let logs = trees.values.held_bytes() as f64 / log_bytes_max(part, lab, buffer_bytes) as f64;
    let fullness = trees.fullness(lab.evict_share);
    // Compactions are not limited any more long before a flush finds no room, or when the logs are
    // twice as large as the size at which an eviction is due.
    [
        Pressure {
            reason: StallReason::Logs,
            stall: ramp(logs, 1.5, 4.0),
            haste: f64::from(URGENT) * (logs - 1.0),
        },
        Pressure {
            reason: StallReason::Trees,
            stall: ramp(fullness, 0.1, 1.0),
            haste: f64::from(URGENT) * 2.0 * fullness,
        },
    ]
}

/// The next eviction, if one is due.
pub(crate) fn pick_eviction(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    plan_eviction(state, due_chunk(state, facts)?, facts)
}

/// The chunk to be evicted, if one is due and no eviction is running.
fn due_chunk(state: &ReadState, facts: &Facts<'_>) -> Option<Chunk> {
    let (_, part, trees) = trees_of(state).filter(|_| !facts.evicting)?;
    let lab = &facts.tuning.lab;
    trees.chunk_if_due(
        lab.evict_share,
        lab.by_log_share,
        log_bytes_max(part, lab, facts.buffer_bytes),
        facts.chunk_bytes,
    )
}

/// An eviction that is not urgent, if there is time for it.
fn pick_eviction_at_rest(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    let (_, part, trees) = trees_of(state).filter(|_| facts.at_rest && !facts.evicting)?;
    let lab = &facts.tuning.lab;
    let evict_share = match trees.reuse.newest().filter(|_| lab.reuse_min > 0.0) {
        // Incoming keys are not written again. Once the trees are empty, memtables can bypass them.
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
    plan_eviction(state, chunk, facts)
}

/// The next leaves for a user's compaction, due or not. If there is no immutable tree, the mutable
/// one becomes it, provided that `may_rotate` is true.
pub(crate) fn pick_manual_eviction(
    state: &ReadState,
    may_rotate: bool,
    facts: &Facts<'_>,
) -> Option<Plan> {
    let (_, _, trees) = trees_of(state)?;
    let by_log_share = facts.tuning.lab.by_log_share;
    let chunk = trees.chunk_if_due(0.0, by_log_share, u64::MAX, facts.chunk_bytes)?;
    (may_rotate || !chunk.rotates)
        .then(|| plan_eviction(state, chunk, facts))
        .flatten()
}

/// The eviction of `chunk` with the tables of level 1 that it overlaps. If there is no immutable
/// tree, the mutable one becomes it.
fn plan_eviction(state: &ReadState, chunk: Chunk, facts: &Facts<'_>) -> Option<Plan> {
    let (id, part, trees) = trees_of(state)?;
    // Tables of level 0 are older than the trees, and are searched before level 1.
    if part.level0_tables() > 0 {
        return pick_level0(id, part, facts);
    }
    let below = &part.levels.get(Level(1))?.runs;
    let chunk = chunk.aligned(
        trees.immutable.as_ref().unwrap_or(&trees.mutable),
        &part.metas_of(Level(1)),
    );
    let KeyRange { from, to } = chunk.within();
    let meets = |run: &&Arc<TableRun>| {
        run.meta.largest >= *from && to.as_ref().is_none_or(|to| run.meta.smallest < *to)
    };
    let tables: Vec<(Level, Arc<TableRun>)> = below
        .iter()
        .filter(meets)
        .map(|run| (Level(1), run.clone()))
        .collect();
    if tables.iter().any(|(_, run)| facts.busy.has(run)) {
        return None;
    }
    Some(Plan {
        chunk: Some(chunk),
        ..Plan::new(id, tables, Level(1), How::Copy, Reason::Evict)
    })
}

/// The size of the logs at which level 0 is evicted to free them, in bytes: a fraction of the data,
/// but at least some write buffers.
fn log_bytes_max(part: &Part, tuning: &LabTuning, buffer_bytes: u64) -> u64 {
    const BUFFERS_LEAST: u64 = 8;
    let data: u64 = part.levels.values().map(|level| level.live_bytes()).sum();
    let share = (data as f64 * tuning.log_share_max) as u64;
    share.clamp(
        BUFFERS_LEAST * buffer_bytes,
        tuning.log_bytes_max.max(BUFFERS_LEAST * buffer_bytes),
    )
}
