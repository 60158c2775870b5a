//! The state described by a manifest: the tables of each level, the logs, the counters.
//!
//! Invariants, checked by name before a record is accepted ([`Version::apply`]):
//! 1. `known`: an edit drops only existing tables, from the level that they are in.
//! 2. `fresh`: an edit adds only file ids that do not exist yet.
//! 3. `disjoint`: tables of a level below 0 do not overlap, and are in key order.
//! 4. `bordered`: partition borders are distinct, and no table crosses one.
//! 5. `confined`: borders of ranges are distinct, and no table below level 0 crosses one.
//! 6. `covering`: a tree over blocks is of a range that is there, and no other is over its tables.
//! 7. `rising`: edit ids and sequence numbers do not fall.

use super::block_trees::BlockTrees;
use super::edit::{Edit, FORMAT_VERSION, PmPairing, PoolEdit, RangeBorders, TableMeta};
use super::evicted::Evicted;
use super::parts::{Layout, PartId, PartRange};
use super::{Level, Levels};
use crate::log::LogEnd;
use firn_base::FileId;
use firn_base::SeqNo;
use firn_table::sst::Extent;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The state of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogState {
    /// The end of the log, once it was sealed.
    pub(crate) end: Option<LogEnd>,
    /// True if its name is durable. If not, it may be missing after a power cut, and nothing in it
    /// was promised to survive.
    pub(crate) named: bool,
}

/// The tables of a level. Shared by versions, read states and compactions, and copied on change.
pub(crate) type Tables = Arc<Vec<Arc<TableMeta>>>;

/// The state described by the records so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    pub(crate) edit_id: u64,
    /// The format version of the manifest that it was read from; 0 for a new one.
    pub(crate) format: u64,
    pub(crate) uuid: [u8; 16],
    /// The databases whose tables this one may hold, because it began as a checkpoint.
    pub(crate) origins: Vec<[u8; 16]>,
    pub(crate) profile: u8,
    pub(crate) next_file_id: FileId,
    pub(crate) last_seqno: SeqNo,
    pub(crate) log_floor: FileId,
    /// Logs at or above the floor.
    pub(crate) logs: BTreeMap<FileId, LogState>,
    /// Tables of each level; level 0 newest first, others by key.
    pub(crate) levels: Levels<Tables>,
    pub(crate) layout: Layout,
    /// Trees over the blocks of tables, each over the tables that are there.
    pub(crate) trees: BlockTrees,
    /// Partitions so far, so that no number is used twice.
    pub(crate) parts_made: u32,
    pub(crate) pm: Option<PmPairing>,
    /// The number up to which all entries of a partition are in tables, whatever the write buffers
    /// in the pool have; 0 for one that is not named.
    pub(crate) flushed: BTreeMap<PartId, SeqNo>,
    /// True if write buffers in the pool may have entries that are in no table.
    pub(crate) holds_entries: bool,
    /// The evicted part of a tree, as last recorded.
    pub(crate) evicted: Option<Evicted>,
    /// Everything up to this sequence number is in level 1 or below, or older than the entries
    /// there.
    pub(crate) evicted_through: SeqNo,
}

impl Version {
    /// Applies `edit`. The error is the name of the invariant that it breaks.
    pub(crate) fn apply(&mut self, edit: &Edit) -> Result<(), &'static str> {
        if edit.id < self.edit_id {
            return Err("rising: an edit's number is below the one before");
        }
        // Before this edit raises it.
        let id_bound = self.next_file_id;
        self.edit_id = edit.id;
        self.uuid = edit.uuid.unwrap_or(self.uuid);
        self.origins.extend(&edit.origins);
        self.profile = edit.profile.unwrap_or(self.profile);
        self.next_file_id = self.next_file_id.max(edit.next_file_id.unwrap_or_default());
        self.last_seqno = self.last_seqno.max(edit.last_seqno.unwrap_or_default());
        self.pm = edit.pool.pairing.or(self.pm);
        self.holds_entries = edit.pool.holds_entries.unwrap_or(self.holds_entries);
        self.evicted = edit.evicted.clone().or(self.evicted.take());
        let whole = edit
            .evicted
            .as_ref()
            .filter(|evicted| evicted.is_all())
            .map(|evicted| evicted.through);
        self.evicted_through = self
            .evicted_through
            .max(whole.or(edit.evicted_through).unwrap_or_default());
        self.apply_logs(edit)?;
        let kept = self.drop_tables(edit)?;
        self.move_borders(edit)?;
        self.check_fresh(&edit.add, id_bound)?;
        for (level, table) in &edit.add {
            self.add(*level, table)?;
            if !kept.contains(&table.id) {
                self.trees.drop_of(&self.layout, *level, &table.smallest);
            }
        }
        self.raise_flushed(edit)?;
        for id in &edit.pool.trees_dropped {
            if !self.trees.drop_one(*id) {
                return Err("known: a tree that is dropped is not there");
            }
        }
        edit.pool
            .trees_added
            .iter()
            .try_for_each(|tree| self.trees.add(&self.layout, tree))
    }

    fn raise_flushed(&mut self, edit: &Edit) -> Result<(), &'static str> {
        for &(part, through) in &edit.pool.flushed {
            if self.layout.index_of(part).is_none() {
                return Err("bordered: a partition that is not there");
            }
            let flushed = self.flushed.entry(part).or_default();
            *flushed = through.max(*flushed);
        }
        Ok(())
    }

    /// The greatest number through which a partition is flushed.
    pub(crate) fn flushed_most(&self) -> SeqNo {
        self.flushed.values().copied().max().unwrap_or_default()
    }

    /// The number up to which all entries of the partition of `key` are in tables, as far as the
    /// write buffers in a pool are concerned.
    pub(crate) fn flushed_of(&self, key: &[u8]) -> SeqNo {
        let part = self.layout.ids()[self.layout.part_of(key)];
        self.flushed.get(&part).copied().unwrap_or_default()
    }

    /// Drops tables, and the trees over them. Each level is scanned once, however many of its
    /// tables are dropped. Returns the tables that come back the same, which keep their trees.
    fn drop_tables(&mut self, edit: &Edit) -> Result<HashSet<FileId>, &'static str> {
        let mut by_level: BTreeMap<Level, HashSet<FileId>> = BTreeMap::new();
        for &(level, id) in &edit.drop {
            if !by_level.entry(level).or_default().insert(id) {
                return Err("known: a table that is dropped twice");
            }
        }
        let again: HashMap<FileId, (Level, Extent)> = match self.trees.is_empty() {
            true => HashMap::new(),
            false => {
                let added = edit.add.iter();
                added
                    .map(|(level, table)| (table.id, (*level, table.extent)))
                    .collect()
            }
        };
        let mut kept = HashSet::new();
        for (level, mut ids) in by_level {
            let tables = self
                .levels
                .get_mut(level)
                .ok_or("known: a level that is not there")?;
            Arc::make_mut(tables).retain(|table| {
                let is_dropped = ids.remove(&table.id);
                if is_dropped && again.get(&table.id) == Some(&(level, table.extent)) {
                    kept.insert(table.id);
                } else if is_dropped {
                    self.trees.drop_of(&self.layout, level, &table.smallest);
                }
                !is_dropped
            });
            if !ids.is_empty() {
                return Err("known: a table that is not there");
            }
        }
        Ok(kept)
    }

    fn move_borders(&mut self, edit: &Edit) -> Result<(), &'static str> {
        let added = edit.cuts_added.iter().map(|(cut, _)| cut);
        for cut in added.chain(&edit.cuts_dropped) {
            self.trees.drop_at(cut, true);
        }
        for border in edit.ranges.added.iter().chain(&edit.ranges.dropped) {
            self.trees.drop_at(border, false);
        }
        if !edit.cuts_added.is_empty() || !edit.cuts_dropped.is_empty() {
            let before = self.layout.clone();
            self.layout = before.changed(&edit.cuts_dropped, &edit.cuts_added)?;
            self.flushed = self.flushed_as(&before);
            self.parts_made = self.parts_made.max(self.layout.next_id().0);
        }
        if !edit.ranges.added.is_empty() || !edit.ranges.dropped.is_empty() {
            let (dropped, added) = (&edit.ranges.dropped, &edit.ranges.added);
            self.layout = self.layout.with_ranges(dropped, added)?;
        }
        let cuts = edit.cuts_added.iter().map(|(cut, _)| (cut, Level::ZERO));
        let ranges = edit.ranges.added.iter().map(|cut| (cut, Level(1)));
        match cuts
            .chain(ranges)
            .any(|(cut, from)| self.crosses(cut, from))
        {
            true => Err("bordered: a table that crosses a border"),
            false => Ok(()),
        }
    }

    /// How far the partitions are flushed. Where several were joined, one of them had no entry
    /// above the number of another that was not in tables.
    fn flushed_as(&self, before: &Layout) -> BTreeMap<PartId, SeqNo> {
        let of = |id: &PartId| self.flushed.get(id).copied();
        let parts = self.layout.ids().iter().enumerate();
        let flushed = parts.filter_map(|(i, &id)| {
            let was = before.overlapping(self.layout.range(i));
            let through = before.ids()[was].iter().filter_map(of).max();
            through.map(|through| (id, through))
        });
        flushed.collect()
    }

    /// True if a table of level `from` or below crosses `cut`.
    fn crosses(&self, cut: &[u8], from: Level) -> bool {
        let of_level = |(level, tables): (Level, &Tables)| match level {
            Level::ZERO => tables
                .iter()
                .any(|table| *table.smallest < *cut && *table.largest >= *cut),
            _ => {
                let at = tables.partition_point(|table| *table.smallest < *cut);
                at > 0 && *tables[at - 1].largest >= *cut
            }
        };
        let levels = self.levels.iter().filter(|(level, _)| *level >= from);
        levels.into_iter().any(of_level)
    }

    /// The number of the next partition.
    pub(crate) fn next_part(&self) -> PartId {
        self.layout.next_id().max(PartId(self.parts_made))
    }

    /// The tables of each level with keys in `range`, the keys of a partition.
    pub(crate) fn tables_of(&self, range: PartRange<'_>) -> Levels<Tables> {
        let (from, to) = range;
        if from.is_empty() && to.is_none() {
            return self.levels.clone();
        }
        let is_in = |table: &Arc<TableMeta>| {
            *table.smallest >= *from && to.is_none_or(|to| *table.smallest < *to)
        };
        let of_level = |(level, tables): (Level, &Tables)| -> Tables {
            if level.is_zero() {
                return Arc::new(
                    tables
                        .iter()
                        .filter(|table| is_in(table))
                        .cloned()
                        .collect(),
                );
            }
            let first = tables.partition_point(|table| *table.smallest < *from);
            let end = to.map_or(tables.len(), |to| {
                tables.partition_point(|table| *table.smallest < *to)
            });
            Arc::new(tables[first..end.max(first)].to_vec())
        };
        self.levels.iter().map(of_level).collect()
    }

    /// The tables that a tree over these levels of the range that begins with `from` is over: the
    /// newest run first and in key order in a run. `None` if no range begins there.
    pub(crate) fn tables_under(
        &self,
        (first, last): (Level, Level),
        from: &[u8],
    ) -> Option<Vec<(Level, Arc<TableMeta>)>> {
        let part = self.layout.part_of(from);
        let range = match first {
            Level::ZERO => self.layout.range(part),
            _ => self.layout.range_of(part, from),
        };
        if range.0 != from {
            return None;
        }
        let mut found = Vec::new();
        for (level, tables) in self.tables_of(range).iter() {
            if first <= level && level <= last {
                found.extend(tables.iter().map(|table| (level, table.clone())));
            }
        }
        Some(found)
    }

    /// Checks that none of the added tables exists or appears twice. No existing table has an id of
    /// `id_bound` or above.
    fn check_fresh(
        &self,
        add: &[(Level, TableMeta)],
        id_bound: FileId,
    ) -> Result<(), &'static str> {
        let ids: HashSet<FileId> = add.iter().map(|(_, table)| table.id).collect();
        let may_be_there = ids.iter().any(|&id| id < id_bound);
        if ids.len() < add.len()
            || (may_be_there && self.tables().any(|table| ids.contains(&table.id)))
        {
            return Err("fresh: a table that is there already");
        }
        Ok(())
    }

    /// True if level 0's entry was evicted, so a log that still has it must not restore it.
    pub(crate) fn is_evicted(&self, key: &[u8], seqno: SeqNo) -> bool {
        let is_gone = |evicted: &Evicted| seqno <= evicted.through && evicted.contains(key);
        seqno <= self.evicted_through || self.evicted.as_ref().is_some_and(is_gone)
    }

    /// True if the leaf of tree `tree` in a pool that begins at `bound` was evicted. False for tree
    /// `None`, and for a tree that was in DRAM, because its number means nothing in a pool.
    pub(crate) fn leaf_is_evicted(&self, tree: Option<u32>, bound: &[u8]) -> bool {
        let is_of = |evicted: &Evicted| Some(evicted.tree) == tree && evicted.through == SeqNo(0);
        self.evicted
            .as_ref()
            .is_some_and(|evicted| is_of(evicted) && evicted.contains(bound))
    }

    /// True if the end of a log may exist only in a pool.
    pub(crate) fn log_ends_in_pool(&self) -> bool {
        self.logs
            .values()
            .any(|log| log.end.is_none_or(|end| end.synced_through < end.end))
    }

    /// Records that the names of these logs are durable.
    pub(crate) fn name_logs(&mut self, logs: &[FileId]) {
        for log in logs {
            if let Some(log) = self.logs.get_mut(log) {
                log.named = true;
            }
        }
    }

    /// Records that the names of all logs are durable.
    pub(crate) fn name_all_logs(&mut self) {
        self.logs.values_mut().for_each(|log| log.named = true);
    }

    fn apply_logs(&mut self, edit: &Edit) -> Result<(), &'static str> {
        for &log in &edit.logs_added {
            self.logs.insert(log, LogState::default());
        }
        for &end in &edit.logs_sealed {
            if end.synced_through > end.end {
                return Err("rising: a log synced past its end");
            }
            if let Some(log) = self.logs.get_mut(&end.log_id) {
                log.end = Some(end);
            }
        }
        self.name_logs(&edit.logs_named);
        self.log_floor = self.log_floor.max(edit.log_floor.unwrap_or_default());
        // For every edit, because a delayed edit may add a log that is obsolete by now.
        self.logs = self.logs.split_off(&self.log_floor);
        Ok(())
    }

    fn add(&mut self, level: Level, table: &TableMeta) -> Result<(), &'static str> {
        let crossed = self
            .layout
            .crossed_by(level, &table.smallest, &table.largest);
        if crossed.is_some() {
            return Err("bordered: a table that crosses a border");
        }
        let tables = Arc::make_mut(self.levels.get_or_add(level));
        let at = if level.is_zero() {
            tables
                .partition_point(|other| (other.seqno_max, other.id) > (table.seqno_max, table.id))
        } else {
            tables.partition_point(|other| other.smallest < table.smallest)
        };
        if !level.is_zero() {
            let before = at.checked_sub(1).and_then(|i| tables.get(i));
            if before.is_some_and(|before| before.largest >= table.smallest)
                || tables
                    .get(at)
                    .is_some_and(|behind| behind.smallest <= table.largest)
            {
                return Err("disjoint: tables of a level that overlap");
            }
        }
        tables.insert(at, Arc::new(table.clone()));
        self.next_file_id = self.next_file_id.max(table.id.next());
        Ok(())
    }

    /// Marks the tables that `edit` drops and adds again as shared if a checkpoint has linked them
    /// since the edit's author read them.
    pub(crate) fn keep_shared(&self, edit: &mut Edit) {
        let dropped: HashSet<FileId> = edit.drop.iter().map(|(_, id)| *id).collect();
        let kept: HashSet<FileId> = edit
            .add
            .iter()
            .map(|(_, table)| table.id)
            .filter(|id| dropped.contains(id))
            .collect();
        if kept.is_empty() {
            return;
        }
        let shared: HashSet<FileId> = self
            .tables()
            .filter(|table| table.shared && kept.contains(&table.id))
            .map(|table| table.id)
            .collect();
        edit.add
            .iter_mut()
            .for_each(|(_, table)| table.shared |= shared.contains(&table.id));
    }

    /// All tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableMeta>> {
        self.levels.values().flat_map(|tables| tables.iter())
    }

    /// One edit that replaces all edits so far.
    pub(crate) fn snapshot(&self) -> Edit {
        let tables = |(level, tables): (Level, &Tables)| {
            tables
                .iter()
                .map(move |table| (level, TableMeta::clone(table)))
                .collect::<Vec<_>>()
        };
        Edit {
            id: self.edit_id,
            uuid: Some(self.uuid),
            origins: self.origins.clone(),
            format: Some(FORMAT_VERSION),
            profile: Some(self.profile),
            next_file_id: Some(self.next_file_id),
            last_seqno: Some(self.last_seqno),
            log_floor: Some(self.log_floor),
            logs_added: self.logs.keys().copied().collect(),
            logs_sealed: self.logs.values().filter_map(|log| log.end).collect(),
            logs_named: self
                .logs
                .iter()
                .filter(|(_, log)| log.named)
                .map(|(&id, _)| id)
                .collect(),
            add: self.levels.iter().flat_map(tables).collect(),
            drop: Vec::new(),
            cuts_added: self.layout.pairs().collect(),
            cuts_dropped: Vec::new(),
            ranges: RangeBorders::of(self.layout.ranges()),
            pool: PoolEdit {
                pairing: self.pm,
                trees_added: self.trees.iter().map(|tree| (**tree).clone()).collect(),
                trees_dropped: Vec::new(),
                flushed: self
                    .flushed
                    .iter()
                    .map(|(&id, &seqno)| (id, seqno))
                    .collect(),
                holds_entries: self.holds_entries.then_some(true),
            },
            evicted: self.evicted.clone(),
            evicted_through: Some(self.evicted_through),
        }
    }
}
