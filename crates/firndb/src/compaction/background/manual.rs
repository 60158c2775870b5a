//! A user's compaction of a range: the trees of level 0, then level by level, on the caller's
//! thread. Other compactions wait meanwhile, but flushes do not.

use super::{Job, JobState};
use crate::compaction::picker::{self, Facts};
use crate::compaction::plan::Plan;
use crate::compaction::pm_store::PmFacts;
use crate::engine::Engine;
use crate::manifest::{Level, PartId};
use crate::read::state::ReadState;
use crate::read::table_run::TableRun;
use firn_base::Result;
use std::cell::Cell;
use std::sync::Arc;

impl Engine {
    /// Compacts the range level by level, on the caller's thread. Other compactions wait meanwhile.
    pub(crate) fn compact_range(&self, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        let _entered = self.calls.enter()?;
        self.check_writable()?;
        if to.is_some_and(|to| to <= from) {
            // The range is empty.
            return Ok(());
        }
        let _hurry = self.jobs.rate_limiter.hurry(self.commit.visible());
        self.flush()?;
        self.wait_for(|| {
            (!std::mem::replace(&mut self.jobs.state.lock().manual, true)).then_some(())
        })?;
        let result = self.compact_levels(from, to);
        self.jobs.state.lock().manual = false;
        self.executor.wake();
        self.progressed();
        result
    }

    fn compact_levels(&self, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        self.wait_for(|| (self.jobs.state.lock().compacting == 0).then_some(()))?;
        self.evict_all()?;
        // Borders do not change while this compaction runs.
        let layout = self.state.load().layout.clone();
        let first = layout.part_of(from);
        let meets = |i: &usize| to.is_none_or(|to| layout.range(*i).0 < to);
        for i in (first..layout.ids().len()).take_while(meets) {
            self.compact_part(layout.ids()[i], from, to)?;
        }
        self.update_stall();
        self.remove_obsolete(true);
        Ok(())
    }

    /// Compacts a partition level by level.
    fn compact_part(&self, id: PartId, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        let deepest = self.deepest_level(id, from, to);
        for level in (0..deepest.0.max(1)).map(Level) {
            let mut after: Option<Vec<u8>> = None;
            // From level 0, all current tables are compacted, however many steps that takes. Tables
            // that are flushed meanwhile stay.
            let mut left = self.level0_tables(id);
            loop {
                self.make_way()?;
                let job = self.start_manual((id, level), (from, to), after.as_deref());
                let Some(job) = job else { break };
                after = job
                    .plan
                    .tables
                    .first()
                    .map(|(_, run)| run.meta.smallest.clone());
                let is_level0 = |(of, _): &&(Level, Arc<TableRun>)| of.is_zero();
                left = left.saturating_sub(job.plan.tables.iter().filter(is_level0).count());
                let result = self.run_and_install(&job);
                self.unmark(job);
                result?;
                if level.is_zero() && left == 0 {
                    break;
                }
            }
        }
        self.rewrite_tables(id, from, to)
    }

    fn level0_tables(&self, id: PartId) -> usize {
        let state = self.state.load();
        state.part_by_id(id).map_or(0, |part| part.level0_tables())
    }

    /// Rewrites tables of the range that hold entries which no read point sees and that no
    /// compaction above met.
    fn rewrite_tables(&self, id: PartId, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        let mut after: Option<(Level, Vec<u8>)> = None;
        loop {
            self.make_way()?;
            let mut jobs = self.jobs.state.lock();
            let state = self.state.load_full();
            let place = after.as_ref().map(|(level, key)| (*level, key.as_slice()));
            let pm = self.pm_facts();
            let facts = self.manual_facts(&jobs, &state, pm.as_ref());
            let plan = picker::pick_manual_rewrite(&state, id, (from, to), place, &facts);
            let Some(plan) = plan else { return Ok(()) };
            after = plan
                .tables
                .first()
                .map(|(level, run)| (*level, run.meta.smallest.clone()));
            let job = self.mark(&mut jobs, plan, &state);
            drop(jobs);
            let result = self.run_and_install(&job);
            self.unmark(job);
            result?;
        }
    }

    /// Makes room for writers, one step at a time, because no other thread does so meanwhile. Their
    /// writes must not keep this compaction from finishing.
    fn make_way(&self) -> Result<()> {
        self.evict_now(picker::pick_eviction)?;
        let fullest = {
            let state = self.state.load();
            let tables = state.parts().map(|(id, part)| (part.level0_tables(), id));
            tables.max()
        };
        let is_due = |(tables, _): &(usize, PartId)| *tables >= self.options.limits.level0_trigger;
        let Some((_, id)) = fullest.filter(is_due) else {
            return Ok(());
        };
        let Some(job) = self.start_manual((id, Level::ZERO), (&[], None), None) else {
            return Ok(());
        };
        let result = self.run_and_install(&job);
        self.unmark(job);
        self.update_stall();
        result.map(drop)
    }

    /// Evicts the current contents of the trees. Entries that are flushed meanwhile stay.
    fn evict_all(&self) -> Result<()> {
        let may_rotate = Cell::new(true);
        let next = |state: &ReadState, facts: &Facts<'_>| {
            let plan = picker::pick_manual_eviction(state, may_rotate.get(), facts)?;
            let rotates = plan.chunk.as_ref().is_some_and(|chunk| chunk.rotates);
            may_rotate.set(may_rotate.get() && !rotates);
            Some(plan)
        };
        while self.evict_now(next)? {}
        Ok(())
    }

    /// Runs the eviction that `pick` returns, in a user's compaction. Returns false if there is
    /// none.
    fn evict_now(&self, pick: impl Fn(&ReadState, &Facts<'_>) -> Option<Plan>) -> Result<bool> {
        let mut jobs = self.jobs.state.lock();
        let state = self.state.load_full();
        let pm = self.pm_facts();
        let facts = Facts {
            chunk_bytes: self.chunk_bytes(),
            evicting: false,
            ..self.manual_facts(&jobs, &state, pm.as_ref())
        };
        let Some(plan) = pick(&state, &facts) else {
            return Ok(false);
        };
        let job = self.mark(&mut jobs, plan, &state);
        drop(jobs);
        let result = self.run_and_install(&job);
        self.unmark(job);
        result.map(|_| true)
    }

    fn deepest_level(&self, id: PartId, from: &[u8], to: Option<&[u8]>) -> Level {
        let state = self.state.load();
        let meets = |run: &TableRun| {
            run.meta.largest.as_slice() >= from
                && to.is_none_or(|to| run.meta.smallest.as_slice() < to)
        };
        let tables = state
            .part_by_id(id)
            .into_iter()
            .flat_map(|part| part.tables());
        tables
            .filter(|(_, run)| meets(run))
            .map(|(level, _)| level)
            .max()
            .unwrap_or_default()
    }

    pub(super) fn start_manual(
        &self,
        level: (PartId, Level),
        range: (&[u8], Option<&[u8]>),
        after: Option<&[u8]>,
    ) -> Option<Arc<Job>> {
        let mut jobs = self.jobs.state.lock();
        let state = self.state.load_full();
        let pm = self.pm_facts();
        let facts = self.manual_facts(&jobs, &state, pm.as_ref());
        let plan = picker::pick_manual(&state, level, range, after, &facts)?;
        Some(self.mark(&mut jobs, plan, &state))
    }

    pub(super) fn manual_facts<'a>(
        &'a self,
        jobs: &'a JobState,
        state: &ReadState,
        pm: Option<&'a PmFacts>,
    ) -> Facts<'a> {
        Facts {
            pm,
            limits: &self.options.limits,
            busy: &jobs.busy,
            flushes: self.flushes(jobs, state),
            visible: self.commit.visible(),
            oldest: self.oldest_read_point(),
            seek: None,
            appends: false,
            dead_share_max: f64::INFINITY,
            evicting: true,
            tuning: &self.options.tuning,
            ranges: self.options.ranges(),
            chunk_bytes: 0,
            wanted: &[],
            sizes: self.partition_sizes(state, pm),
            buffer_bytes: self.budget.write_buffer_bytes as u64,
            level0_inputs_max: self.budget.level0_inputs_max,
            at_rest: false,
            idle: false,
        }
    }
}
