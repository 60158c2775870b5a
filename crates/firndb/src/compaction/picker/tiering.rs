//! The picker of tables in two media (TLSM, IV-D): levels as in `leveled.rs`, some of whose tables
//! are lists in persistent memory.
//!
//! 1. What is due is decided by levels alone. Where the output is, is decided here.
//! 2. From a share of persistent memory on, lists leave for the SSD, those of the deepest level
//!    first. They go down a level, because a file in their place would be written again by that
//!    level's next compaction. Without room a flush becomes a file, so it never waits for that.
//! 3. If much of the chunks is garbage, entries move out of those with the most, and each byte
//!    that is copied frees at least as many.

use super::leveled::{self, pick_level0, plan_for, ramp, rewrite};
use super::{Facts, pick_flush};
use crate::compaction::plan::{How, Medium, Plan, Reason};
use crate::compaction::rate_limiter::{Pressure, URGENT};
use crate::event::StallReason;
use crate::manifest::{Level, PartId};
use crate::mechanisms;
use crate::options::tuning::{Tiering, TlsmVictim};
use crate::read::state::{Part, ReadState};
use crate::read::table_run::TableRun;
use crate::tlsm::{LINK_BYTES, ListFacts};
use firn_base::FileId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The share of persistent memory that level 0 may take before it is compacted, however few tables
/// it has. In a small pool nothing would ever be linked otherwise.
const LEVEL0_SHARE: f64 = 0.4;

/// Where no table may leave, writers are slowed from this share below the one at which they wait.
const SLOW_SHARE: f64 = 0.1;

/// The next action, if one is due.
pub(super) fn pick(state: &ReadState, facts: &Facts<'_>, lists: &ListFacts) -> Option<Plan> {
    let urgent = (1.0 + lists.tuning.evict_share) / 2.0;
    pick_flush(state, facts)
        .or_else(|| pick_eviction(state, facts, lists, urgent))
        .or_else(|| pick_full(state, facts, lists))
        .or_else(|| leveled::pick_due(state, facts).map(|plan| placed(plan, state, facts, lists)))
        .or_else(|| pick_level0_by_share(state, facts, lists))
        .or_else(|| pick_eviction(state, facts, lists, lists.tuning.evict_share))
        .or_else(|| pick_relocation(state, facts, lists))
        .or_else(|| pick_rest(state, facts).map(|plan| placed(plan, state, facts, lists)))
        .or_else(|| pick_promotion(state, facts, lists))
}

/// Where the flush of a write buffer is.
pub(super) fn flush_medium(facts: &Facts<'_>, lists: &ListFacts) -> Medium {
    match lists.tuning.tiering {
        Tiering::None => Medium::Pm,
        Tiering::Leveled(_) | Tiering::Lru if lists.has_room(facts.buffer_bytes, 1.0) => Medium::Pm,
        Tiering::Leveled(_) | Tiering::Lru => Medium::Ssd,
    }
}

/// `plan` with the place of its output.
pub(super) fn placed(plan: Plan, state: &ReadState, facts: &Facts<'_>, lists: &ListFacts) -> Plan {
    let is_list = |run: &Arc<TableRun>| !run.meta.is_file();
    let all_lists = plan.tables.iter().all(|(_, run)| is_list(run));
    let medium = match lists.tuning.tiering {
        Tiering::None => Medium::Pm,
        Tiering::Leveled(deepest) if plan.level.0 > deepest => Medium::Ssd,
        Tiering::Leveled(_) => Medium::Pm,
        // A table that is moved stays where it is.
        Tiering::Lru if plan.how == How::Move => match all_lists {
            true => Medium::Pm,
            false => Medium::Ssd,
        },
        Tiering::Lru => medium_with_room(&plan, state, facts, lists),
    };
    let stays = all_lists == (medium == Medium::Pm);
    let how = match plan.how {
        How::Move if !stays => How::Copy,
        how => how,
    };
    Plan {
        how,
        medium,
        ..plan
    }
}

/// Persistent memory, as far as there is room: entries that are there need a node each, and others
/// are copied there only while neither a list nor a newer table has to make way for them.
fn medium_with_room(
    plan: &Plan,
    state: &ReadState,
    facts: &Facts<'_>,
    lists: &ListFacts,
) -> Medium {
    let (mut linked, mut copied) = (0, 0);
    for (_, run) in &plan.tables {
        match run.meta.is_file() {
            false => linked += run.meta.entries * LINK_BYTES,
            true => copied += run.meta.live_bytes(),
        }
    }
    let has_room = match copied {
        0 => lists.has_room(linked, 1.0),
        _ => {
            let inputs: HashSet<_> = plan.tables.iter().map(|(_, run)| run.meta.id).collect();
            let newer = newer_bytes(state, facts, lists, plan.level, &inputs);
            lists.has_room(linked + copied + newer, lists.tuning.evict_share)
        }
    };
    match has_room {
        true => Medium::Pm,
        false => Medium::Ssd,
    }
}

/// Bytes of persistent memory that are left to tables above `level`: to files that may come, except
/// `inputs`, and to the usual number of flushes.
fn newer_bytes(
    state: &ReadState,
    facts: &Facts<'_>,
    lists: &ListFacts,
    level: Level,
    inputs: &HashSet<FileId>,
) -> u64 {
    let (mut level0, mut files) = (0, 0);
    for (at, run) in state.tables() {
        match run.meta.is_file() {
            false if at.is_zero() => level0 += run.meta.bytes(),
            true if !at.is_zero() && at < level && !inputs.contains(&run.meta.id) => {
                files += run.meta.live_bytes();
            }
            _ => {}
        }
    }
    let flushes = facts.limits.level0_trigger as u64 * facts.buffer_bytes;
    let most = (lists.capacity_bytes as f64 * LEVEL0_SHARE) as u64;
    flushes.min(most).saturating_sub(level0) + files
}

/// A table from a file that persistent memory has room for, of the highest level that has any,
/// because newest data is read most.
fn pick_promotion(state: &ReadState, facts: &Facts<'_>, lists: &ListFacts) -> Option<Plan> {
    let may_come = lists.may_promote && mechanisms::TLSM_LISTS.is_on();
    if lists.tuning.tiering != Tiering::Lru || !facts.at_rest || !may_come {
        return None;
    }
    let files = state.parts().flat_map(|(id, part)| {
        let due = |(level, run): &(Level, &Arc<TableRun>)| {
            run.meta.is_file() && !level.is_zero() && !facts.busy.has(run)
        };
        let due = part.tables().filter(due);
        due.map(move |(level, run)| (id, level, run))
    });
    let (id, level, run) = files.min_by_key(|(_, level, _)| *level)?;
    let plan = rewrite(id, level, run);
    let medium = medium_with_room(&plan, state, facts, lists);
    (medium == Medium::Pm).then_some(Plan {
        reason: Reason::Promote,
        medium,
        ..plan
    })
}

/// How far persistent memory is from the limits at which writers are slowed. Where a flush may be a
/// file they never are. Otherwise they are slowed before they have to wait.
pub(super) fn pressure(lists: &ListFacts, buffer_bytes: u64) -> Pressure {
    let used = lists.used_share();
    let full = lists.full_share(buffer_bytes);
    let slow = (full - SLOW_SHARE).max(full / 2.0);
    let hasty = match lists.tuning.tiering {
        Tiering::None => slow,
        Tiering::Leveled(_) | Tiering::Lru => lists.tuning.evict_share,
    };
    Pressure {
        reason: StallReason::PersistentMemory,
        stall: match lists.tuning.tiering {
            Tiering::None => ramp(used, slow, full),
            Tiering::Leveled(_) | Tiering::Lru => 0.0,
        },
        haste: f64::from(URGENT) * 2.0 * ramp(used, hasty, 1.0),
    }
}

/// The next step of deletes, and then of all entries, towards what they hide, while persistent
/// memory is full.
fn pick_full(state: &ReadState, facts: &Facts<'_>, lists: &ListFacts) -> Option<Plan> {
    if !lists.is_full {
        return None;
    }
    let level0 = state
        .parts()
        .filter(|(_, part)| part.level0_tables() > 0)
        .find_map(|(id, part)| pick_level0(id, part, facts));
    level0
        .or_else(|| leveled::pick_hiding(state, facts, |run| run.meta.deletes > 0))
        .or_else(|| pick_relocation(state, facts, lists))
        .or_else(|| leveled::pick_hiding(state, facts, |_| true))
        .map(|plan| match plan.relocate {
            Some(_) => plan,
            None => placed(plan, state, facts, lists),
        })
}

/// Level 0 once it takes much of persistent memory.
fn pick_level0_by_share(state: &ReadState, facts: &Facts<'_>, lists: &ListFacts) -> Option<Plan> {
    let bytes = |part: &Part| {
        let runs = part.levels.get(Level::ZERO).map(|level| &level.runs);
        let of_lists = runs.into_iter().flatten().filter(|run| !run.meta.is_file());
        of_lists.map(|run| run.meta.bytes()).sum::<u64>()
    };
    let least = lists.capacity_bytes as f64 * LEVEL0_SHARE;
    let mut due = state
        .parts()
        .filter(|(_, part)| part.level0_tables() > 1 && bytes(part) as f64 >= least);
    due.find_map(|(id, part)| pick_level0(id, part, facts))
        .map(|plan| placed(plan, state, facts, lists))
}

/// The move of a list to the SSD, if the used share of persistent memory is `share` or more.
fn pick_eviction(
    state: &ReadState,
    facts: &Facts<'_>,
    lists: &ListFacts,
    share: f64,
) -> Option<Plan> {
    let may_leave = lists.tuning.tiering != Tiering::None && !facts.evicting;
    if !may_leave || lists.used_share() < share {
        return None;
    }
    let deepest = state.parts().map(|(_, part)| part.levels.last()).max()?;
    (0..=deepest.0)
        .rev()
        .find_map(|level| evict_from(state, facts, lists, Level(level)))
}

/// The move of a list of `level` to the SSD.
fn evict_from(
    state: &ReadState,
    facts: &Facts<'_>,
    lists: &ListFacts,
    level: Level,
) -> Option<Plan> {
    let mut victims: Vec<(u64, PartId, &Part, &Arc<TableRun>)> = Vec::new();
    for (id, part) in state.parts() {
        let runs = part.levels.get(level).map(|level| &level.runs);
        let of_lists = runs.into_iter().flatten().filter(|run| !run.meta.is_file());
        let rank = |run: &Arc<TableRun>| match lists.tuning.victim {
            TlsmVictim::Oldest => run.meta.id.0,
            TlsmVictim::LeastUsed => run.last_used(),
        };
        victims.extend(of_lists.map(|run| (rank(run), id, part, run)));
    }
    victims.sort_by_key(|(rank, _, _, run)| (*rank, run.meta.id));
    let plan = |&(_, id, part, run): &(u64, PartId, &Part, &Arc<TableRun>)| {
        let is_last = level >= part.levels.last();
        match level {
            // The tables of level 0 that stay must be newer.
            Level::ZERO => pick_level0(id, part, facts),
            _ if is_last => (!facts.busy.has(run)).then(|| rewrite(id, level, run)),
            _ => {
                let inputs = std::slice::from_ref(run);
                plan_for(id, part, level, inputs, facts, Reason::Evict)
            }
        }
    };
    victims.iter().find_map(plan).map(|plan| Plan {
        how: How::Copy,
        reason: Reason::Evict,
        medium: Medium::Ssd,
        ..plan
    })
}

/// A list whose entries leave chunks that are mostly garbage, if there is too much of that.
fn pick_relocation(state: &ReadState, facts: &Facts<'_>, lists: &ListFacts) -> Option<Plan> {
    if !mechanisms::TLSM_RELOCATE.is_on() {
        return None;
    }
    let of_lists = || state.tables().filter(|(_, run)| !run.meta.is_file());
    let live: u64 = of_lists().map(|(_, run)| run.meta.data_bytes).sum();
    let garbage = lists.chunk_bytes.saturating_sub(live);
    // Writers wait for whatever can be gained once it is full.
    let most = match lists.is_full {
        true => 0,
        false => (live as f64 * lists.tuning.garbage_share_max) as u64,
    };
    let excess = garbage.checked_sub(most).filter(|&excess| excess > 0)?;
    let chunks = chunks_to_leave(state, lists, excess, garbage > most + most / 4);
    let idle = state.parts().flat_map(|(id, part)| {
        let free = part.tables().filter(|(_, run)| !facts.busy.has(run));
        free.map(move |(level, run)| (id, level, run))
    });
    let gains = idle.filter_map(|(id, level, run)| {
        let (bytes, gain) = gain(run, &chunks, lists.unit_bytes)?;
        Some((gain, bytes, id, level, run))
    });
    let (_, bytes, id, level, run) = gains.max_by_key(|(gain, ..)| *gain)?;
    if !lists.has_room(bytes + run.meta.entries * LINK_BYTES, 1.0) {
        return None;
    }
    Some(Plan {
        medium: Medium::Pm,
        relocate: Some(Arc::new(chunks)),
        ..rewrite(id, level, run)
    })
}

/// The bytes that the entries of `run` have in `chunks`, and the bytes of chunks that are gained if
/// they leave; `None` if that is less than a unit. A chunk is free once all lists have left it, so
/// each gets the part of it that its entries are of what is live there.
fn gain(run: &TableRun, chunks: &HashSet<u64>, unit_bytes: u64) -> Option<(u64, u64)> {
    let space = run.space()?.list()?;
    let (mut bytes, mut freed) = (0, 0.0);
    for (chunk, own) in space.chunks() {
        let extent = chunk.extent();
        if chunks.contains(&extent.offset.get()) {
            bytes += own;
            freed += extent.len as f64 * own as f64 / chunk.live_bytes().max(1) as f64;
        }
    }
    let gain = (freed as u64).checked_sub(bytes.next_multiple_of(unit_bytes))?;
    (bytes > 0 && gain >= unit_bytes).then_some((bytes, gain))
}

/// The chunks with the least live bytes, until `excess` bytes of garbage are in them. Those that
/// are mostly live only if `even_live` is true.
fn chunks_to_leave(
    state: &ReadState,
    lists: &ListFacts,
    excess: u64,
    even_live: bool,
) -> HashSet<u64> {
    let mut chunks: HashMap<u64, (u64, u64)> = HashMap::new();
    for space in state.tables().filter_map(|(_, run)| run.space()?.list()) {
        for (chunk, _) in space.chunks() {
            let extent = chunk.extent();
            chunks.insert(extent.offset.get(), (chunk.live_bytes(), extent.len));
        }
    }
    // By live bytes of a million, because a share is no key.
    let mut by_share: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for (offset, (live, len)) in chunks {
        let share = live.saturating_mul(1_000_000) / len.max(1);
        by_share.insert((share, offset), (live, len));
    }
    let most = (lists.tuning.relocate_live_max * 1e6) as u64;
    let (mut left, mut taken) = (excess, HashSet::new());
    for ((share, offset), (live, len)) in by_share {
        if left == 0 || (share > most && !(even_live && taken.is_empty())) {
            break;
        }
        if live > 0 {
            taken.insert(offset);
        }
        left = left.saturating_sub(len.saturating_sub(live));
    }
    taken
}

/// Work that is not urgent, if there is time for it. Lists of level 0 stay where they are: they
/// cost a scan little, and newest data is read most.
fn pick_rest(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    let files = |part: &Part| {
        let runs = part.levels.get(Level::ZERO).map(|level| &level.runs);
        let of_files = runs.into_iter().flatten().filter(|run| run.meta.is_file());
        of_files.count()
    };
    let is_due = |(_, part): &(PartId, &Part)| files(part) >= facts.limits.level0_rest.max(1);
    match state.parts().any(|part| is_due(&part)) {
        true => leveled::pick_rest(state, facts),
        false => leveled::pick_rest_below(state, facts),
    }
}
