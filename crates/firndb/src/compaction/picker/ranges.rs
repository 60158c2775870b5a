//! The picker of ranges with stacks of tables (PMDB, 3.1 and 3.2). A partition has a stash, which
//! is level 0, and is divided into ranges. A merge of the stash is cut at the borders of the
//! ranges, and each part goes on top of what its range has, which is not rewritten: to the level
//! above the highest that the range has. A merge of a whole range goes to the base, the deepest
//! level, and divides a range that is too large.
//!
//! In order of urgency, of the partition with the most flushed tables first: flush; merge a range
//! whose stack is full; merge the stash; divide a range, or join small ones; merge a range in which
//! much is hidden, or one whose tables have cost scans much; and while nothing is written, merge
//! stashes and stacks that are not full.
//!
//! Nothing relies on the levels that old tables are on, because `max_io`, and with it the base, may
//! have been another one when they were written.
//!
//! A byte is written by its flush, by the merge of the stash, and as part of a merge of its range.
//! How often that is does not depend on the database's size, because the number of ranges does, and
//! the size of one does not.

use super::leveled::{level0_pressure, pick_stale};
use super::{Facts, Sizes};
use crate::compaction::hidden::Below;
use crate::compaction::index::Indexed;
use crate::compaction::plan::{Border, How, Plan, RangeLevels, Reason};
use crate::compaction::pm_store::PmFacts;
use crate::compaction::rate_limiter::Debt;
use crate::manifest::{Level, PartId, PartRange, TableMeta, evenly};
use crate::mechanisms;
use crate::memtable::Memtable;
use crate::options::tuning::PmdbTuning;
use crate::pmdb::{BufferFacts, PmdbStats, TreeFacts};
use crate::read::block_trees::{Scope, tables_of};
use crate::read::stack::Stack;
use crate::read::state::{Part, ReadState};
use crate::read::table_run::TableRun;
use firn_base::Limits;
use std::sync::Arc;

/// The ranges of a partition from which it is divided (PMDB, 4.2: about ten are usual).
const RANGES_OF_PARTITION: u64 = 20;
/// A range is divided once it has so many times the bytes at which a merge divides it.
const EXCESS: u64 = 2;
/// Frozen memtables are flushed once fewer eighths of the room for buffers are free.
pub(crate) const FLUSH_BELOW: u64 = 2;
/// The frozen memtables of a partition from which they are flushed, because each scan merges them.
const FROZEN_MAX: usize = 8;
/// Bytes of memtables that are flushed together, by one record.
const FLUSH_BYTES: u64 = 16 << 20;
/// The least mean part of a flush that goes into a partition.
const SLICE_BYTES_MIN: u64 = 256 << 10;
/// The most partitions.
const PARTITIONS_MAX: usize = 1024;
/// The height of a stack from which it is merged while there is nothing else to do.
const HEIGHT_AT_REST: usize = 3;

/// The level of what a merge of a whole range makes. Those from 1 on above it have what came since.
fn base(tuning: &PmdbTuning) -> Level {
    Level(tuning.levels() - 1)
}

impl Stack<'_> {
    /// The level above its highest; `None` if there is none but level 0.
    fn free_level(&self, tuning: &PmdbTuning) -> Option<Level> {
        let top = self.levels.first().map(|(level, _)| *level);
        let free = top.map_or(base(tuning), |top| Level(top.0 - 1));
        (!free.is_zero()).then_some(free)
    }

    /// The tables above its lowest level, which hide entries of others.
    fn upper(&self) -> impl Iterator<Item = &TableMeta> {
        let upper = &self.levels[..self.height().saturating_sub(1)];
        let runs = upper.iter().flat_map(|(_, runs)| *runs);
        runs.map(|run| &*run.meta)
    }

    /// True if much of what is above the lowest level is tombstones, which every reader sees.
    fn hides_much(&self, facts: &Facts<'_>) -> bool {
        let is_due =
            |meta: &TableMeta| meta.seqno_max <= facts.oldest && meta.deletes * 4 > meta.entries;
        self.upper().any(is_due)
    }

    /// True if newer entries of the range hide so many others that a merge gains a table's worth.
    fn is_mostly_hidden(&self, facts: &Facts<'_>, tuning: &PmdbTuning) -> bool {
        // A tombstone goes with what it hides.
        let hidden: u64 = self.upper().map(|meta| meta.hides + meta.deletes).sum();
        let runs = self.levels.iter().flat_map(|(_, runs)| *runs);
        let entries: u64 = runs.map(|run| run.meta.entries).sum();
        let share = hidden as f64 / entries.max(1) as f64;
        tuning.invalid_share < 1.0
            && share >= tuning.invalid_share
            && share * self.bytes() as f64 >= facts.limits.table_bytes as f64
    }

    /// The tables of its lowest level.
    fn lowest(&self) -> &[Arc<TableRun>] {
        self.levels.last().map_or(&[], |(_, runs)| runs)
    }

    /// True if it is to be divided into ranges of up to `most` bytes. A table that is larger than
    /// that counts as so many bytes, because it cannot be divided.
    fn is_larger_than(&self, most: u64) -> bool {
        let runs = self.levels.iter().flat_map(|(_, runs)| *runs);
        let bytes = runs.map(|run| run.meta.live_bytes().min(most));
        bytes.sum::<u64>() > EXCESS * most
    }
}

/// The stacks of a partition's ranges, in key order: of the keys in `range`, divided at `cuts`.
pub(super) fn stacks<'a>(
    part: &'a Part,
    range: PartRange<'a>,
    cuts: &'a [Box<[u8]>],
) -> Vec<Stack<'a>> {
    let begins = std::iter::once(range.0).chain(cuts.iter().map(|cut| &**cut));
    let ends = cuts.iter().map(|cut| Some(&**cut)).chain([range.1]);
    begins
        .zip(ends)
        .map(|range| Stack::of(part, range))
        .collect()
}

/// A partition, with its stacks.
struct Ranged<'a> {
    id: PartId,
    part: &'a Part,
    stacks: Vec<Stack<'a>>,
}

impl<'a> Ranged<'a> {
    /// The partition with index `at`.
    fn at(state: &'a ReadState, at: usize) -> Ranged<'a> {
        let (layout, part) = (&state.layout, &state.parts[at]);
        Ranged {
            id: layout.ids()[at],
            part,
            stacks: stacks(part, layout.range(at), layout.ranges_of(at)),
        }
    }

    /// True if a job has a table of it or changes its borders: the levels that a merge of the stash
    /// chose must stay free until it ends.
    fn is_busy(&self, facts: &Facts<'_>) -> bool {
        facts.busy.has_any_of(self.id, self.part)
    }

    /// A merge of all that a range has.
    fn merge(&self, stack: &Stack<'_>, facts: &Facts<'_>, tuning: &PmdbTuning) -> Plan {
        let plan = Plan::new(
            self.id,
            stack.tables(),
            base(tuning),
            How::Copy,
            Reason::Size,
        );
        Plan {
            range_bytes: Some(capacity(facts.limits, tuning)),
            ..plan
        }
    }

    /// The stacks that take no more.
    fn full(&self, tuning: &PmdbTuning) -> impl Iterator<Item = &Stack<'a>> {
        self.stacks
            .iter()
            .filter(|stack| stack.free_level(tuning).is_none())
    }

    /// The next step of a merge of the stash: a merge of a range whose stack is full, or that of
    /// the stash.
    fn merge_stash(&self, facts: &Facts<'_>, tuning: &PmdbTuning) -> Option<Plan> {
        if self.is_busy(facts) {
            return None;
        }
        if let Some(full) = self.full(tuning).next() {
            return Some(self.merge(full, facts, tuning));
        }
        if !mechanisms::PMDB_STACKS.is_on() {
            return self.merge_all(tuning);
        }
        let runs = &self.part.levels.get(Level::ZERO)?.runs;
        // Those that stay must be newer, because the stash is searched first.
        let oldest = &runs[runs.len().saturating_sub(facts.level0_inputs_max)..];
        if let Some(level) = oldest.last().and_then(|run| self.sinks_to(run, tuning)) {
            let table = vec![(Level::ZERO, oldest[oldest.len() - 1].clone())];
            return Some(Plan::new(self.id, table, level, How::Move, Reason::Size));
        }
        let tables = oldest.iter().map(|run| (Level::ZERO, run.clone()));
        let levels: Vec<Level> = self
            .stacks
            .iter()
            .filter_map(|stack| stack.free_level(tuning))
            .collect();
        let top = levels.iter().min().copied()?;
        let cuts = self.stacks.iter().skip(1).map(|stack| stack.from.into());
        Some(Plan {
            by_range: Some(Arc::new(RangeLevels {
                cuts: cuts.collect(),
                levels,
                below: (tuning.invalid_share < 1.0)
                    .then(|| Below::of(self.part, filter_bits(facts))),
            })),
            ..Plan::new(self.id, tables.collect(), top, How::Copy, Reason::Size)
        })
        .filter(|plan| !plan.tables.is_empty())
    }

    /// A merge of the stash with all that its ranges have.
    fn merge_all(&self, tuning: &PmdbTuning) -> Option<Plan> {
        let tables = self.part.tables().map(|(level, run)| (level, run.clone()));
        let tables: Vec<_> = tables.collect();
        let plan = Plan::new(self.id, tables, base(tuning), How::Copy, Reason::Size);
        (!plan.tables.is_empty()).then_some(plan)
    }

    /// The base, if `run` lies within a range and overlaps nothing there, as in a load of ascending
    /// keys. It is moved then, not merged.
    fn sinks_to(&self, run: &TableRun, tuning: &PmdbTuning) -> Option<Level> {
        let (smallest, largest) = (&*run.meta.smallest, &*run.meta.largest);
        let at = self
            .stacks
            .partition_point(|stack| stack.from <= smallest)
            .checked_sub(1)?;
        let stack = &self.stacks[at];
        let is_within = stack.to.is_none_or(|to| largest < to);
        let meets = |other: &Arc<TableRun>| {
            *other.meta.smallest <= *largest && *other.meta.largest >= *smallest
        };
        let mut others = stack.levels.iter().flat_map(|(_, runs)| *runs);
        (is_within && !others.any(meets)).then(|| base(tuning))
    }

    /// The merge of a range in which much is hidden.
    fn pick_hidden(&self, facts: &Facts<'_>, tuning: &PmdbTuning) -> Option<Plan> {
        let is_due = |stack: &&Stack<'_>| stack.is_mostly_hidden(facts, tuning);
        let stack = self.stacks.iter().find(is_due)?;
        (!self.is_busy(facts)).then(|| Plan {
            reason: Reason::Space,
            ..self.merge(stack, facts, tuning)
        })
    }

    /// The merge of what cost readers most: the stash, or a range with several levels.
    fn pick_by_seeks(&self, facts: &Facts<'_>, tuning: &PmdbTuning) -> Option<Plan> {
        let (level, table) = facts.seek?;
        let is_it = |run: &Arc<TableRun>| run.meta.id == table;
        if !self.part.levels.get(level)?.runs.iter().any(is_it) || self.is_busy(facts) {
            return None;
        }
        let has_it = |stack: &&Stack<'_>| {
            let mut levels = stack.levels.iter().filter(|(of, _)| *of == level);
            levels.any(|(_, runs)| runs.iter().any(is_it))
        };
        let plan = match level {
            Level::ZERO => self.merge_stash(facts, tuning)?,
            _ => self.merge(self.stacks.iter().find(has_it)?, facts, tuning),
        };
        Some(Plan {
            reason: Reason::Seeks,
            ..plan
        })
    }

    /// The division of a range that is too large: by its borders alone if all is in the base.
    fn divide(&self, facts: &Facts<'_>, tuning: &PmdbTuning) -> Option<Plan> {
        let most = capacity(facts.limits, tuning);
        let is_large = |stack: &&Stack<'_>| stack.is_larger_than(most);
        let stack = self.stacks.iter().find(is_large)?;
        if self.is_busy(facts) {
            return None;
        }
        if stack.height() > 1 {
            return Some(Plan {
                reason: Reason::Partition,
                ..self.merge(stack, facts, tuning)
            });
        }
        let tables = stack
            .lowest()
            .iter()
            .map(|run| (&*run.meta.smallest, run.meta.live_bytes()));
        let cuts = evenly(tables, stack.bytes().div_ceil(most) as usize);
        let plan = Plan::new(
            self.id,
            stack.tables(),
            Level::ZERO,
            How::Border,
            Reason::Partition,
        );
        (!cuts.is_empty()).then(|| Plan {
            border: Some(Border::AddRanges(cuts)),
            ..plan
        })
    }

    /// The borders between ranges that are so small that several are no larger than half of one.
    /// They are joined by the borders alone, because their tables lie side by side.
    fn join(&self, facts: &Facts<'_>, tuning: &PmdbTuning) -> Option<Plan> {
        let most = capacity(facts.limits, tuning) / 2;
        let mut joined = self.stacks.first()?.bytes();
        let mut cuts: Vec<Box<[u8]>> = Vec::new();
        for stack in &self.stacks[1..] {
            let bytes = stack.bytes();
            if joined + bytes < most {
                cuts.push(stack.from.into());
                joined += bytes;
            } else {
                joined = bytes;
            }
        }
        if cuts.is_empty() || self.is_busy(facts) {
            return None;
        }
        // All of them, so that no job of the partition begins.
        let tables = self.part.tables().map(|(level, run)| (level, run.clone()));
        let tables = tables.collect();
        let reason = Reason::Partition;
        Some(Plan {
            border: Some(Border::DropRanges(cuts)),
            ..Plan::new(self.id, tables, Level::ZERO, How::Border, reason)
        })
    }
}

/// Bytes of a merged range from which it is divided.
fn capacity(limits: &Limits, tuning: &PmdbTuning) -> u64 {
    match mechanisms::PMDB_DIVIDE.is_on() {
        true => tuning.range_tables * limits.table_bytes,
        false => u64::MAX / (EXCESS * RANGES_OF_PARTITION),
    }
}

/// The sizes at which partitions are divided and joined, unless the limits name some.
pub(super) fn sizes(
    limits: &Limits,
    tuning: &PmdbTuning,
    buffer_bytes: u64,
    buffers: Option<BufferFacts>,
) -> Sizes {
    if limits.partitions_max > 1 {
        return Sizes::of(limits);
    }
    if let Some(buffers) = buffers {
        // Half of the room is for full ones.
        let most = buffers.most_bytes / buffers.buffer_bytes / 2;
        return Sizes {
            count_max: PARTITIONS_MAX.min(most as usize).max(1),
            bytes: capacity(limits, tuning),
            memory_bytes: u64::MAX,
        };
    }
    Sizes {
        count_max: PARTITIONS_MAX
            .min((buffer_bytes / SLICE_BYTES_MIN) as usize)
            .max(1),
        bytes: RANGES_OF_PARTITION * capacity(limits, tuning),
        memory_bytes: u64::MAX,
    }
}

/// The next action, if one is due.
pub(super) fn pick(state: &ReadState, facts: &Facts<'_>, tuning: &PmdbTuning) -> Option<Plan> {
    super::pick_flush(state, facts)
        .or_else(|| pick_index(state, facts, tuning))
        .or_else(|| pick_due(state, facts, tuning))
        .or_else(|| pick_rest(state, facts, tuning))
}

/// The flush of the memtables of the partitions with the most bytes in frozen ones, if room is
/// short, a partition has many, or a user asks. Until then they stay, because what is written again
/// meanwhile is then written once.
pub(super) fn pick_flush(state: &ReadState, facts: &Facts<'_>) -> Option<Plan> {
    let Some(PmFacts::Trees(TreeFacts {
        buffers: Some(buffers),
        ..
    })) = facts.pm
    else {
        return None;
    };
    if facts.flushes.running {
        return None;
    }
    // So that a write that waits for room gets some soon.
    let most = FLUSH_BYTES.min(buffers.most_bytes / 2);
    let bytes = |memtables: &[Arc<Memtable>]| -> u64 {
        memtables
            .iter()
            .map(|memtable| memtable.used_bytes() as u64)
            .sum()
    };
    let flushed_of = |part, most| state.memtables.flushed_with(part, facts.visible, most);
    let mut due: Vec<(usize, Vec<Arc<Memtable>>)> = (0..state.layout.ids().len())
        .map(|part| (part, flushed_of(part, u64::MAX)))
        .filter(|(_, frozen)| !frozen.is_empty())
        .collect();
    due.sort_by_key(|(_, frozen)| std::cmp::Reverse(bytes(frozen)));
    let is_due = facts.flushes.all || buffers.has_less_than(FLUSH_BELOW);
    if !is_due {
        due.retain(|(_, frozen)| frozen.len() >= FROZEN_MAX);
    }
    let mut flushed: Vec<Arc<Memtable>> = Vec::new();
    for (part, _) in due {
        let left = most.saturating_sub(bytes(&flushed));
        if left == 0 {
            break;
        }
        // One of several partitions comes with the first of them.
        let is_new = |memtable: &Arc<Memtable>| !flushed.iter().any(|of| Arc::ptr_eq(of, memtable));
        let new: Vec<_> = flushed_of(part, left).into_iter().filter(is_new).collect();
        flushed.extend(new);
    }
    flushed.sort_by_key(|memtable| std::cmp::Reverse(memtable.frozen_at()));
    (!flushed.is_empty()).then(|| Plan::flush(flushed, How::Copy))
}

/// The partitions, those with the most flushed tables first.
fn ranged(state: &ReadState) -> Vec<Ranged<'_>> {
    let parts = 0..state.parts.len();
    let mut parts: Vec<Ranged<'_>> = parts.map(|at| Ranged::at(state, at)).collect();
    parts.sort_by_key(|ranged| std::cmp::Reverse(ranged.part.level0_tables()));
    parts
}

/// Bits for each key of the filters that trees have; 0 if there are no trees.
fn filter_bits(facts: &Facts<'_>) -> u32 {
    match facts.pm {
        Some(PmFacts::Trees(trees)) => trees.filter_bits,
        _ => 0,
    }
}

/// The tables whose blocks are to get a tree, because they have none.
fn pick_index(state: &ReadState, facts: &Facts<'_>, tuning: &PmdbTuning) -> Option<Plan> {
    let has_room = matches!(facts.pm, Some(PmFacts::Trees(trees)) if trees.may_grow());
    if !has_room || !mechanisms::PMDB_TREES.is_on() {
        return None;
    }
    let base = base(tuning);
    let mut parts = state.parts.iter().enumerate();
    parts.find_map(|(at, part)| {
        let layout = &state.layout;
        let of_part = (layout.range(at), &[Scope::Level0][..]);
        let scopes = [Scope::Added { base }, Scope::Base { base }];
        let cuts = layout.ranges_of(at);
        let (from, to) = layout.range(at);
        let begins = std::iter::once(from).chain(cuts.iter().map(|cut| &**cut));
        let ends = cuts.iter().map(|cut| Some(&**cut)).chain([to]);
        let of_ranges = begins.zip(ends).map(|range| (range, &scopes[..]));
        let mut places = std::iter::once(of_part).chain(of_ranges);
        places.find_map(|(range, scopes)| {
            scopes.iter().find_map(|scope| {
                let levels = scope.levels();
                let has = part.trees.as_ref();
                if levels.0 > levels.1 || has.is_some_and(|trees| trees.has(levels, range.0)) {
                    return None;
                }
                let tables = tables_of(&part.levels, levels, range);
                let is_busy = tables.iter().any(|(_, run)| facts.busy.has(run));
                if tables.is_empty() || is_busy {
                    return None;
                }
                let tables = tables.into_iter();
                let tables = tables.map(|(level, run)| (level, run.clone()));
                let id = layout.ids()[at];
                let plan = Plan::new(id, tables.collect(), levels.0, How::Index, Reason::Index);
                Some(Plan {
                    indexed: Some(Arc::new(Indexed {
                        levels,
                        from: range.0.to_vec(),
                    })),
                    ..plan
                })
            })
        })
    })
}

fn pick_due(state: &ReadState, facts: &Facts<'_>, tuning: &PmdbTuning) -> Option<Plan> {
    let parts = ranged(state);
    let stash = |ranged: &&Ranged<'_>| {
        ranged.part.level0_tables() >= tuning.max_io || ranged.full(tuning).next().is_some()
    };
    let merges = parts.iter().filter(stash);
    merges
        .filter_map(|ranged| ranged.merge_stash(facts, tuning))
        .next()
        .or_else(|| parts.iter().find_map(|ranged| ranged.divide(facts, tuning)))
        .or_else(|| parts.iter().find_map(|ranged| ranged.join(facts, tuning)))
        .or_else(|| {
            parts
                .iter()
                .find_map(|ranged| ranged.pick_hidden(facts, tuning))
        })
        .or_else(|| {
            parts
                .iter()
                .find_map(|ranged| ranged.pick_by_seeks(facts, tuning))
        })
}

/// A job that is not urgent, if there is time for it, because each flushed table, and each level of
/// a stack, costs a scan one read.
fn pick_rest(state: &ReadState, facts: &Facts<'_>, tuning: &PmdbTuning) -> Option<Plan> {
    if !facts.at_rest {
        return None;
    }
    let parts = ranged(state);
    let is_due =
        |ranged: &&Ranged<'_>| ranged.part.level0_tables() >= facts.limits.level0_rest.max(1);
    let mut stashes = parts.iter().filter(is_due);
    if let Some(plan) = stashes.find_map(|ranged| ranged.merge_stash(facts, tuning)) {
        return Some(plan);
    }
    let mut free = parts.iter().filter(|ranged| !ranged.is_busy(facts));
    free.find_map(|ranged| {
        let is_due = |stack: &&Stack<'_>| {
            (facts.idle && stack.height() > HEIGHT_AT_REST) || stack.hides_much(facts)
        };
        match ranged.stacks.iter().find(is_due) {
            Some(stack) => Some(ranged.merge(stack, facts, tuning)),
            None => pick_stale(ranged.id, ranged.part, facts),
        }
    })
}

/// The next step of a merge of partition `id`'s stash, however few tables that has.
pub(super) fn pick_partition(
    state: &ReadState,
    id: PartId,
    facts: &Facts<'_>,
    tuning: &PmdbTuning,
) -> Option<Plan> {
    let at = state.layout.index_of(id)?;
    Ranged::at(state, at).merge_stash(facts, tuning)
}

/// The next step of a user's compaction of `level`: of the stash, or of a range with tables there
/// that meet the keys, whole, of those behind `after`. Ranges with one level are merged already.
pub(super) fn pick_manual(
    state: &ReadState,
    (id, level): (PartId, Level),
    (from, to): (&[u8], Option<&[u8]>),
    after: Option<&[u8]>,
    facts: &Facts<'_>,
    tuning: &PmdbTuning,
) -> Option<Plan> {
    let ranged = Ranged::at(state, state.layout.index_of(id)?);
    let meets = |run: &Arc<TableRun>| {
        *run.meta.largest >= *from && to.is_none_or(|to| *run.meta.smallest < *to)
    };
    let plan = match level {
        Level::ZERO => {
            let stash = &ranged.part.levels.get(level)?.runs;
            match stash.iter().any(meets) {
                true => ranged.merge_stash(facts, tuning)?,
                false => return None,
            }
        }
        _ if ranged.is_busy(facts) => return None,
        _ => {
            let has_some = |stack: &&Stack<'_>| {
                let mut levels = stack.levels.iter().filter(|(of, _)| *of == level);
                stack.height() > 1 && levels.any(|(_, runs)| runs.iter().any(meets))
            };
            // No range twice, however much is written meanwhile.
            let is_behind = |stack: &&Stack<'_>| after.is_none_or(|after| stack.from > after);
            let mut stacks = ranged.stacks.iter().filter(is_behind);
            ranged.merge(stacks.find(has_some)?, facts, tuning)
        }
    };
    Some(Plan {
        reason: Reason::Manual,
        // A user's compaction must drop entries, and a move does not.
        how: match plan.how {
            How::Move => How::Copy,
            how => how,
        },
        ..plan
    })
}

/// The partitions and ranges of `state`.
pub(crate) fn measure(state: &ReadState) -> PmdbStats {
    let mut stats = PmdbStats {
        partitions: state.parts.len(),
        ..PmdbStats::default()
    };
    for ranged in ranged(state) {
        let stash = ranged.part.level0_tables();
        stats.stash_tables += stash;
        stats.stash_tables_most = stats.stash_tables_most.max(stash);
        for height in ranged.stacks.iter().map(Stack::height) {
            stats.ranges += 1;
            stats.height_mean += height as f64;
            stats.height_most = stats.height_most.max(height);
        }
    }
    stats.height_mean /= stats.ranges.max(1) as f64;
    stats
}

/// Adds the flushed tables of each partition to `debt`: their bytes, once they are to be merged.
pub(super) fn add_debt(debt: &mut Debt, state: &ReadState, limits: &Limits, tuning: &PmdbTuning) {
    for part in state.parts.iter() {
        let tables = part.level0_tables();
        if tables >= tuning.max_io {
            let stash = part.levels.get(Level::ZERO);
            debt.bytes += stash.map_or(0, |stash| stash.live_bytes());
        }
        // As far from their merge as so many would be on another level 0.
        let tables = tables * limits.level0_trigger / tuning.max_io.max(1);
        debt.add(&[level0_pressure(tables, limits)]);
    }
}
