//! Pickers: pure policies that choose the next job. They read the state and the facts, and change
//! nothing.

mod costs;
mod leveled;
mod partitions;
mod ranges;
#[cfg(test)]
mod tests;
mod tiering;
mod trees;

pub(crate) use self::costs::weigh;
#[cfg(test)]
pub(crate) use self::leveled::{debt_pressure, level0_pressure};
pub(crate) use self::partitions::{Sizes, WantedCuts, wanted};
pub(crate) use self::ranges::{FLUSH_BELOW, measure};
pub(crate) use self::trees::{pick_eviction, pick_manual_eviction};
use crate::compaction::plan::{BusyTables, How, Medium, Plan};
use crate::compaction::pm_store::PmFacts;
use crate::compaction::rate_limiter::Debt;
use crate::manifest::{Level, PartId};
use crate::options::tuning::{PmdbTuning, Tuning};
use crate::pmdb::BufferFacts;
use crate::read::state::ReadState;
use crate::upper::Upper;
use firn_base::{FileId, Limits, SeqNo};

/// The flushes that run, and that are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flushes {
    /// True if one is running.
    pub(crate) running: bool,
    /// True if the flush of the oldest memtable was interrupted, so that some of its entries are in
    /// the structure above the levels.
    pub(crate) begun: bool,
    /// True if a user waits until all frozen memtables are flushed.
    pub(crate) all: bool,
}

/// The facts that a pick needs in addition to the state.
pub(crate) struct Facts<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) busy: &'a BusyTables,
    pub(crate) flushes: Flushes,
    /// The highest visible sequence number. A memtable may be flushed once all its entries are
    /// visible.
    pub(crate) visible: SeqNo,
    /// The oldest read point. Versions that neither it nor any later one sees may be dropped.
    pub(crate) oldest: SeqNo,
    /// A table with too many reads without a result, and its level.
    pub(crate) seek: Option<(Level, FileId)>,
    /// True if compactions may append to tables.
    pub(crate) appends: bool,
    /// The most dead bytes per live byte.
    pub(crate) dead_share_max: f64,
    /// The tables' part of persistent memory, in profiles that have one.
    pub(crate) pm: Option<&'a PmFacts>,
    /// True if an eviction is running.
    pub(crate) evicting: bool,
    /// The parameters of the profiles.
    pub(crate) tuning: &'a Tuning,
    /// The parameters of ranges with stacks of tables, in profiles that have them.
    pub(crate) ranges: Option<&'a PmdbTuning>,
    /// Bytes of values that an eviction takes.
    pub(crate) chunk_bytes: u64,
    /// Keys at which partitions are to be divided, ascending.
    pub(crate) wanted: &'a [Box<[u8]>],
    /// The sizes at which partitions are divided and joined.
    pub(crate) sizes: Sizes,
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

/// The next action, if one is due.
pub(crate) fn pick(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    if let Some(border) = partitions::pick_ready(state, facts) {
        return Some(border);
    }
    let picked = match (state.upper(), facts.pm) {
        (None, None | Some(PmFacts::Trees(_))) => match facts.ranges {
            Some(tuning) => ranges::pick(state, facts, tuning),
            None => leveled::pick(state, facts),
        },
        (None, Some(PmFacts::Lists(lists))) => tiering::pick(state, facts, lists),
        (None, Some(PmFacts::Sorted(tables))) => costs::pick(state, facts, tables),
        (Some(Upper::Trees(_)), _) => return trees::pick(state, facts),
    };
    picked.or_else(|| partitions::pick(state, facts).map(|plan| placed(plan, state, facts)))
}

/// The write buffers of partitions in persistent memory, if they have any.
fn buffers(pm: Option<&PmFacts>) -> Option<BufferFacts> {
    match pm {
        Some(PmFacts::Trees(trees)) => trees.buffers,
        _ => None,
    }
}

/// The sizes at which partitions are divided and joined.
pub(crate) fn sizes(
    state: &ReadState,
    limits: &Limits,
    pm: Option<&PmFacts>,
    ranges: Option<&PmdbTuning>,
    buffer_bytes: u64,
) -> Sizes {
    match pm {
        None | Some(PmFacts::Lists(_) | PmFacts::Trees(_)) => match ranges {
            Some(tuning) => ranges::sizes(limits, tuning, buffer_bytes, buffers(pm)),
            None => Sizes::of(limits),
        },
        Some(PmFacts::Sorted(tables)) => costs::sizes(state, limits, tables, buffer_bytes),
    }
}

/// `plan` with the medium of its output.
fn placed(plan: Plan, state: &ReadState, facts: &Facts<'_>) -> Plan {
    match facts.pm {
        None | Some(PmFacts::Trees(_)) => plan,
        Some(PmFacts::Lists(lists)) => tiering::placed(plan, state, facts, lists),
        Some(PmFacts::Sorted(_)) => costs::placed(plan),
    }
}

/// As [`leveled::pick_manual`].
pub(crate) fn pick_manual(
    state: &ReadState,
    level: (PartId, Level),
    range: (&[u8], Option<&[u8]>),
    after: Option<&[u8]>,
    facts: &Facts<'_>,
) -> Option<Plan> {
    if let Some(tuning) = facts.ranges {
        return ranges::pick_manual(state, level, range, after, facts, tuning);
    }
    let plan = leveled::pick_manual(state, level, range, after, facts)?;
    Some(placed(plan, state, facts))
}

/// As [`leveled::pick_manual_rewrite`].
pub(crate) fn pick_manual_rewrite(
    state: &ReadState,
    id: PartId,
    range: (&[u8], Option<&[u8]>),
    after: Option<(Level, &[u8])>,
    facts: &Facts<'_>,
) -> Option<Plan> {
    let plan = leveled::pick_manual_rewrite(state, id, range, after, facts)?;
    Some(placed(plan, state, facts))
}

/// The next flush, if one is due.
pub(crate) fn pick_flush(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    if state.memtables.are_by_part() {
        return ranges::pick_flush(state, facts);
    }
    let buffer = state
        .flushable(facts.visible)
        .filter(|_| !facts.flushes.running)?;
    let how = match state.upper() {
        None => How::Copy,
        Some(Upper::Trees(trees)) => trees::flush_how(trees, buffer, facts)?,
    };
    let medium = match facts.pm {
        None | Some(PmFacts::Trees(_)) => Medium::Ssd,
        Some(PmFacts::Lists(lists)) => tiering::flush_medium(facts, lists),
        Some(PmFacts::Sorted(tables)) => costs::flush_medium(facts, tables),
    };
    Some(Plan {
        medium,
        ..Plan::flush(vec![buffer.clone()], how)
    })
}

/// The amount of outstanding work.
pub(crate) fn debt(
    state: &ReadState,
    limits: &Limits,
    tuning: &Tuning,
    ranges: Option<&PmdbTuning>,
    buffer_bytes: u64,
    pm: Option<&PmFacts>,
) -> Debt {
    let mut debt = Debt::default();
    debt.buffers = match buffers(pm) {
        // Writers are slowed while flushes lag behind them.
        Some(buffers) if buffers.has_less_than(FLUSH_BELOW) => limits.write_buffers - 1,
        Some(_) => 0,
        None => state.memtables.of_part(0).memtables.len() - 1,
    };
    match pm {
        None | Some(PmFacts::Trees(_)) => {}
        Some(PmFacts::Lists(lists)) => debt.add(&[tiering::pressure(lists, buffer_bytes)]),
        Some(PmFacts::Sorted(tables)) => return costs::debt(state, limits, tables),
    }
    if let Some(tuning) = ranges {
        ranges::add_debt(&mut debt, state, limits, tuning);
        return debt;
    }
    for part in state.parts.iter() {
        debt.bytes += leveled::excess_bytes(part, limits);
        debt.add(&leveled::pressures(part, limits));
        match &part.upper {
            None => {}
            Some(Upper::Trees(trees)) => {
                debt.add(&trees::pressures(part, trees, &tuning.lab, buffer_bytes));
            }
        }
    }
    debt
}
