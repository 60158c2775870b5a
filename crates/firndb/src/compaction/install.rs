//! The only place that changes the tables of the state:
//!
//! 1. record the edit in the manifest, durably;
//! 2. swap in a state made from the manifest's new version;
//! 3. retire the files of the old state that the new one does not have.
//!
//! `upper.rs` has the part that concerns the structure above the levels, if there is one.
//!
//! A crash before 1 is complete leaves the old state and files that nothing names yet. A crash
//! after it leaves the new state and files that nothing names any more. The next open removes
//! either.

use crate::compaction::background::Obsolete;
use crate::compaction::grain::Choice;
use crate::compaction::plan::{Border, How, Medium, Plan, Reason};
use crate::compaction::pm_store::Installed;
use crate::compaction::{CompactionOutput, Grain};
use crate::engine::Engine;
use crate::event::Event;
use crate::files::FileName;
use crate::manifest::{Edit, Level, PartId, TableMeta, Version};
use crate::memtable::Memtable;
use crate::read::pm_space::NewTable;
use crate::read::state::Touched;
use crate::read::table_run::TableRun;
use crate::write::journal::Journal;
use firn_base::sync::Ordering;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use std::sync::Arc;
use std::time::Duration;

impl Engine {
    /// Installs the output of `plan` in the state, and returns its tables. Removes the output if it
    /// cannot be recorded.
    pub(crate) fn install(
        &self,
        plan: &Plan,
        made: CompactionOutput,
        start_ns: u64,
    ) -> Result<Vec<Arc<TableRun>>> {
        let CompactionOutput {
            mut edit,
            created,
            placed,
            anchor,
            grown,
            choices,
            evicted,
            bytes_in,
            bytes_out,
            slept_ns,
        } = made;
        let start_ns = start_ns + slept_ns;
        let added = edit.add.clone();
        let is_added = |run: &TableRun| added.iter().any(|(_, table)| table.id == run.meta.id);
        for buffer in plan.buffers.iter().rev() {
            self.follow(buffer);
        }
        let mut manifest = self.manifest.lock();
        self.complete_buffers(plan, &mut edit)
            .inspect_err(|error| self.undo_tables(error, &created))?;
        let floor = edit.log_floor;
        self.complete_flush(plan, manifest.version(), &mut edit);
        edit.ranges.added = plan.divided_at(&added);
        let recorded_floor = edit.log_floor;
        manifest.version().keep_shared(&mut edit);
        edit.next_file_id = Some(self.compaction.file_ids.next());
        let logs_before: Vec<FileId> = manifest.version().logs.keys().copied().collect();
        if let Err(error) = manifest.append(edit, true, || self.next_file_id()) {
            drop(manifest);
            self.undo_tables(&error, &created);
            match error.kind() {
                // The record may still turn out to be durable.
                ErrorKind::Poisoned => placed.into_iter().for_each(NewTable::keep),
                _ => grown.iter().for_each(|grown| grown.undo(&self.compaction)),
            }
            return Err(error);
        }
        NewTable::install_all(placed, &self.tables);
        // The manifest names the lists now, so their anchor is stale.
        drop(anchor);
        let trees = self.swap_tables(manifest.version(), plan, &added);
        drop(manifest);
        let logs = match floor.filter(|_| !plan.buffers.is_empty()) {
            Some(floor) => {
                self.logs.sealed.raise_floor(floor);
                self.obsolete_logs(plan, logs_before, floor)
            }
            None => Vec::new(),
        };
        // A table that was moved or grew keeps its file.
        let gone = plan.tables.iter().filter(|(_, run)| !is_added(run));
        let tables = gone.map(|(_, run)| Obsolete::of(run));
        let blocks = grown
            .into_iter()
            .map(|grown| Obsolete::Blocks(grown.run, grown.blocks));
        self.retire(
            logs.into_iter()
                .map(Obsolete::Log)
                .chain(tables)
                .chain(blocks)
                .chain(trees)
                .chain(plan.buffers.iter().cloned().map(Obsolete::Memtable)),
        );
        if let Some(evicted) = evicted {
            let elapsed_ns = self.clock.now_ns() - start_ns;
            self.end_eviction(plan, evicted, recorded_floor, elapsed_ns)?;
        }
        self.report_choices(plan.level, &choices);
        self.report(plan, &added, (bytes_in, bytes_out), start_ns);
        Ok(self.runs_of(&added))
    }

    /// Swaps in a state with the tables of `version`, which `plan` made by adding `added`. Returns
    /// the trees over blocks that it does not have. REQUIRES: the manifest's lock.
    #[must_use]
    pub(crate) fn swap_tables(
        &self,
        version: &Version,
        plan: &Plan,
        added: &[(Level, TableMeta)],
    ) -> Vec<Obsolete> {
        let before = self.state.load_full();
        self.state.rcu(|state| {
            let inputs = plan
                .tables
                .iter()
                .map(|(_, run)| run.meta.smallest.as_slice());
            let outputs = added.iter().map(|(_, table)| table.smallest.as_slice());
            let touched = Touched::Keys(&mut inputs.chain(outputs));
            let levels = self.options.levels();
            let next = state.with_tables(version, touched, &self.tables, levels);
            match plan.buffers.is_empty() {
                false => next.without_memtables(&plan.buffers),
                true => next,
            }
        });
        self.tables.placed_are_swapped_in();
        self.trees_gone(&before)
    }

    /// Swaps in a state with the trees of `version` in the partition of `key`. REQUIRES: the
    /// manifest's lock.
    pub(crate) fn swap_in_trees(&self, version: &Version, key: &[u8]) {
        self.state.rcu(|state| {
            let touched = Touched::Keys(&mut std::iter::once(key));
            state.with_tables(version, touched, &self.tables, self.options.levels())
        });
        self.tables.placed_are_swapped_in();
    }

    /// Records a change of partition borders and swaps in a state with it. REQUIRES: no flush and
    /// no compaction of the partitions of `plan` is running, and no table crosses a new border.
    pub(crate) fn install_border(&self, plan: &Plan, border: &Border) -> Result<()> {
        let mut manifest = self.manifest.lock();
        if let Border::Drop(cut) = border {
            // No flush ends while the manifest is locked.
            let state = self.state.load();
            if !state.memtables.may_join(state.layout.part_of(cut) - 1) {
                return Ok(());
            }
        }
        let mut edit = Edit::default();
        match border {
            Border::Add(cut) => {
                let version = manifest.version();
                edit.cuts_added.push((cut.clone(), version.next_part()));
                let is_range = version.layout.ranges().iter().any(|range| **range == **cut);
                edit.ranges.dropped.extend(is_range.then(|| cut.clone()));
            }
            Border::Drop(cut) => {
                edit.cuts_dropped.push(cut.clone());
                // What the two have stays in stacks of its own.
                let has_ranges = self.options.ranges().is_some();
                edit.ranges.added.extend(has_ranges.then(|| cut.clone()));
            }
            Border::AddRanges(cuts) => {
                edit.ranges.added = cuts.iter().map(|cut| cut.to_vec()).collect();
            }
            Border::DropRanges(cuts) => {
                edit.ranges.dropped = cuts.iter().map(|cut| cut.to_vec()).collect();
            }
        }
        manifest.append(edit, true, || self.next_file_id())?;
        let trees = self.swap_borders(|| self.swap_tables(manifest.version(), plan, &[]));
        self.retire(trees);
        let partitions = manifest.version().layout.ids().len();
        drop(manifest);
        let jobs = &self.counts.jobs;
        match border {
            Border::Add(_) => jobs.divided.add(1),
            Border::Drop(_) => jobs.joined.add(1),
            Border::AddRanges(_) | Border::DropRanges(_) => return Ok(()),
        }
        self.emit(&Event::Partitioned { partitions });
        Ok(())
    }

    /// The runs of these tables, if the state still has them.
    pub(crate) fn runs_of(&self, tables: &[(Level, TableMeta)]) -> Vec<Arc<TableRun>> {
        let state = self.state.load();
        let run = |(level, table): &(Level, TableMeta)| {
            let part = state.part(&table.smallest);
            part.levels.get(*level)?.run_of(table).cloned()
        };
        tables.iter().filter_map(run).collect()
    }

    /// Replaces rows with the entries of `flushed`. REQUIRES: no state without `flushed` exists
    /// yet.
    pub(crate) fn follow(&self, flushed: &Arc<Memtable>) {
        if let Some(rows) = &self.state.load().rows {
            rows.follow(flushed);
        }
    }

    /// Removes tables that could not be recorded because of `error`.
    pub(crate) fn undo_tables(&self, error: &Error, created: &[FileId]) {
        // After a failed sync the record may still turn out to be durable, and then its files must
        // exist.
        if error.kind() != ErrorKind::Poisoned {
            for id in created {
                let _left = self.files.remove(FileName::Table(*id));
            }
        }
    }

    /// Opens tables while there is room: those that were just installed, so that few readers wait
    /// for an index, and those whose filters a job asks.
    pub(crate) fn open_ahead<'a>(&self, tables: impl IntoIterator<Item = &'a Arc<TableRun>>) {
        for run in tables {
            if self.compaction.stop.load(Ordering::Acquire) || !self.tables.has_room() {
                return;
            }
            // The next reader of the table finds and reports any error.
            let _open = run.table();
        }
    }

    /// Adds to the edit of `plan` what it says of the memtables that it flushes, before it is
    /// recorded. REQUIRES: the manifest's lock.
    fn complete_buffers(&self, plan: &Plan, edit: &mut Edit) -> Result<()> {
        let Some(newest) = plan.buffers.first() else {
            return Ok(());
        };
        edit.log_floor = self.log_after(newest);
        edit.last_seqno = plan.flushes_through();
        edit.pool.flushed = self.flushed_by(plan);
        self.note_buffers()
    }

    /// The partitions whose memtables `plan` flushes, where each has its own, and how far.
    fn flushed_by(&self, plan: &Plan) -> Vec<(PartId, SeqNo)> {
        let state = self.state.load();
        if !state.memtables.are_by_part() {
            return Vec::new();
        }
        let after = state.memtables.without(&plan.buffers);
        let before = state.memtables.lists().map(|list| list.flushed_through);
        let after = after.lists().map(|list| list.flushed_through);
        let parts = state.layout.ids().iter().zip(before.zip(after));
        let raised = parts.filter(|(_, (before, after))| before < after);
        raised.map(|(&id, (_, after))| (id, after)).collect()
    }

    /// Notes in persistent memory how far the write buffers of partitions are filled, so that an
    /// open notices if an entry of one is damaged.
    fn note_buffers(&self) -> Result<()> {
        let Some(store) = self.buffers() else {
            return Ok(());
        };
        self.commit.with_journal(|journal| match journal {
            Journal::Log(_) => Ok(()),
            Journal::Buffers(buffers) => {
                store.note(&self.state.load().memtables, buffers.committed())
            }
        })
    }

    /// The first log of the next newer memtable after `flushed`. Logs below it are not needed once
    /// `flushed` is a table.
    pub(crate) fn log_after(&self, flushed: &Arc<Memtable>) -> Option<FileId> {
        let state = self.state.load();
        if state.memtables.are_by_part() {
            return None;
        }
        let buffers = &state.memtables.of_part(0).memtables;
        let at = buffers
            .iter()
            .position(|buffer| Arc::ptr_eq(buffer, flushed))?;
        buffers.get(at.checked_sub(1)?).map(|newer| newer.first_log)
    }

    fn report_choices(&self, level: Level, choices: &[Choice]) {
        self.counts.jobs.chose(level, choices);
        for choice in choices {
            self.emit(&Event::GrainChosen {
                level: level.0,
                table: choice.table,
                block_grained: choice.grain == Grain::Block,
                rule: choice.rule,
                dirty_blocks: choice.dirty_blocks,
                blocks: choice.blocks,
            });
        }
    }

    fn report(
        &self,
        plan: &Plan,
        added: &[(Level, TableMeta)],
        (bytes_in, bytes_out): (u64, u64),
        start_ns: u64,
    ) {
        let elapsed_ns = self.clock.now_ns() - start_ns;
        let elapsed = Duration::from_nanos(elapsed_ns);
        if let Some(store) = &self.compaction.pm {
            let state = self.state.load();
            let part = plan.part.and_then(|id| state.part_by_id(id));
            let in_memory = added
                .iter()
                .any(|(level, table)| *level == plan.level && !table.is_file());
            let output = Installed {
                bytes: bytes_out,
                medium: match added.is_empty() {
                    true => plan.medium,
                    false if in_memory => Medium::Pm,
                    false => Medium::Ssd,
                },
                now_ns: self.clock.now_ns(),
                elapsed_ns,
            };
            store.installed(plan, part.map(|part| &**part), &output);
        }
        if plan.reason == Reason::Flush {
            let bytes = plan.buffer_bytes();
            self.write_stall.flushed(bytes, elapsed_ns);
            self.jobs.rate_limiter.flushed(bytes);
            self.counts.jobs.flushes.add(1);
            self.emit(&Event::Flushed {
                bytes: bytes_out,
                elapsed,
            });
            return;
        }
        let from_level = plan.source_level().unwrap_or(plan.level);
        if from_level.is_zero() {
            let level0 = plan.tables.iter().filter(|(level, _)| level.is_zero());
            self.write_stall
                .drained(level0.map(|(_, run)| run.meta.bytes()).sum(), elapsed_ns);
        }
        let moved = plan.how == How::Move;
        self.counts
            .jobs
            .compacted(plan, moved, (bytes_in, bytes_out), elapsed_ns);
        self.emit(&Event::Compacted {
            from_level: from_level.0,
            level: plan.level.0,
            tables_in: plan.tables.len(),
            tables_out: added.len(),
            bytes_in,
            bytes_out,
            moved,
            elapsed,
        });
    }
}
