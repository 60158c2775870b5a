//! Compactions that a crash cut short: the first compaction goes on with them, unless their inputs
//! have changed.

use super::JobState;
use crate::compaction::plan::{How, Medium, Plan, Reason};
use crate::engine::Engine;
use crate::manifest::Level;
use crate::mechanisms;
use crate::read::state::ReadState;
use crate::read::table_run::TableRun;
use crate::tlsm::CutJob;
use std::sync::Arc;

impl Engine {
    /// The continuation of a compaction, if there is one.
    pub(super) fn pick_cut(&self, state: &ReadState, jobs: &JobState) -> Option<Plan> {
        let waiting = self.jobs.cut.lock();
        waiting.iter().find_map(|cut| {
            let plan = plan(cut.lock().as_ref()?, state)?;
            let is_busy = plan.tables.iter().any(|(_, run)| jobs.busy.has(run));
            (!is_busy).then(|| Plan {
                resume: Some(cut.clone()),
                ..plan
            })
        })
    }

    /// Frees what is left of compactions whose inputs are not in `state`, or whose output may no
    /// longer be lists, because the options were changed.
    pub(super) fn discard_cut(&self, state: &ReadState, jobs: &JobState) {
        let Some(store) = self.compaction.lists() else {
            return;
        };
        self.jobs.cut.lock().retain(|waiting| {
            let mut cut = waiting.lock();
            let is_whole = cut.as_ref().is_some_and(|cut| {
                mechanisms::TLSM_RESUME.is_on()
                    && plan(cut, state).is_some_and(|plan| {
                        // A user's compaction that has an input will replace it.
                        store.holds(plan.level)
                            && !plan.tables.iter().any(|(_, run)| jobs.busy.has(run))
                    })
            });
            if let Some(stale) = cut.take_if(|_| !is_whole) {
                stale.discard(store);
                store.counters.discarded.add(1);
            }
            is_whole
        });
    }
}

/// The plan of a job whose inputs are all in `state`.
fn plan(cut: &CutJob, state: &ReadState) -> Option<Plan> {
    let is_input = |run: &TableRun| cut.job.inputs.contains(&run.meta.id);
    let (id, part) = state
        .parts()
        .find(|(_, part)| part.tables().any(|(_, run)| is_input(run)))?;
    let tables: Vec<(Level, Arc<TableRun>)> = part
        .tables()
        .filter(|(_, run)| is_input(run))
        .map(|(level, run)| (level, run.clone()))
        .collect();
    let level = Level(usize::from(cut.job.level));
    let is_above = |(of, _): &(Level, Arc<TableRun>)| *of == level || of.below() == level;
    let is_whole = tables.len() == cut.job.inputs.len() && tables.iter().all(is_above);
    (is_whole && level <= part.levels.last()).then(|| Plan {
        medium: Medium::Pm,
        ..Plan::new(id, tables, level, How::Copy, Reason::Size)
    })
}
