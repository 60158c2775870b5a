//! The part of persistent memory that tables may take, by the kind of its tables. A profile has one
//! kind.

use crate::blade::{Merge, SortedFacts, SortedStore};
use crate::compaction::plan::{How, Medium, Plan, Reason};
use crate::engine::Engine;
use crate::manifest::Level;
use crate::pmdb::{BufferStore, TreeFacts, TreeStore};
use crate::read::heat::Merged;
use crate::read::state::Part;
use crate::read::table_run::TableRun;
use crate::tlsm::{Done, ListFacts, ListStore};
use crate::write::write_stall::Fullness;
use firn_base::Error;
use firn_base::count::IoCounters;
use std::sync::Arc;

/// The tables' part of the pool.
#[derive(Debug, Clone)]
pub(crate) enum PmStore {
    Lists(Arc<ListStore>),
    Sorted(Arc<SortedStore>),
    /// Tables are files; the pool has trees over their blocks.
    Trees(Arc<TreeStore>),
}

/// The facts about it that a picker needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PmFacts {
    Lists(ListFacts),
    Sorted(SortedFacts),
    Trees(TreeFacts),
}

impl PmFacts {
    /// These facts with the times of the reads that users waited for, as `counters` have them.
    pub(crate) fn with_reads(self, counters: &IoCounters) -> PmFacts {
        match self {
            PmFacts::Lists(_) | PmFacts::Trees(_) => self,
            PmFacts::Sorted(tables) => PmFacts::Sorted(tables.with_reads(counters)),
        }
    }
}

impl PmStore {
    /// The lists' part, if it has lists.
    pub(crate) fn lists(&self) -> Option<&Arc<ListStore>> {
        match self {
            PmStore::Lists(store) => Some(store),
            PmStore::Sorted(_) | PmStore::Trees(_) => None,
        }
    }

    /// The sorted tables' part, if it has sorted tables.
    pub(crate) fn sorted(&self) -> Option<&Arc<SortedStore>> {
        match self {
            PmStore::Lists(_) | PmStore::Trees(_) => None,
            PmStore::Sorted(store) => Some(store),
        }
    }

    /// The trees' part, if it has trees over the blocks of files.
    pub(crate) fn trees(&self) -> Option<&Arc<TreeStore>> {
        match self {
            PmStore::Lists(_) | PmStore::Sorted(_) => None,
            PmStore::Trees(store) => Some(store),
        }
    }

    /// The write buffers' part, if partitions have write buffers there.
    pub(crate) fn buffers(&self) -> Option<&BufferStore> {
        self.trees().and_then(|store| store.buffers.as_ref())
    }

    /// True if the policy weighs the reads of partitions.
    pub(crate) fn weighs_reads(&self) -> bool {
        self.sorted().is_some()
    }

    /// The facts for a picker at `now_ns`. `is_full` says that puts are refused.
    pub(crate) fn facts(&self, is_full: bool, now_ns: u64) -> PmFacts {
        match self {
            PmStore::Lists(store) => PmFacts::Lists(ListFacts {
                is_full,
                ..store.facts()
            }),
            PmStore::Sorted(store) => PmFacts::Sorted(store.facts(now_ns)),
            PmStore::Trees(store) => PmFacts::Trees(store.facts()),
        }
    }

    /// Notes that users have made `gets` and `writes` in all by `now_ns`.
    pub(crate) fn note_operations(&self, gets: u64, writes: u64, now_ns: u64) {
        match self {
            PmStore::Lists(_) | PmStore::Trees(_) => {}
            PmStore::Sorted(store) => store.note_operations(gets, writes, now_ns),
        }
    }

    /// True if a job that failed with `error` makes files instead, which is counted.
    pub(crate) fn spills(&self, error: &Error) -> bool {
        match self {
            PmStore::Lists(store) => store.spills(error),
            PmStore::Sorted(store) => store.spills(error),
            PmStore::Trees(_) => false,
        }
    }

    /// True if tables have to leave.
    pub(crate) fn is_short(&self) -> bool {
        match self {
            PmStore::Lists(store) => {
                let facts = store.facts();
                facts.used_share() >= facts.tuning.evict_share
            }
            PmStore::Sorted(store) => store.facts(0).is_evicting,
            PmStore::Trees(store) => {
                let buffers = store.buffers.as_ref().map(BufferStore::facts);
                buffers.is_some_and(|buffers| buffers.has_less_than(1))
            }
        }
    }

    /// The writes that must be refused.
    pub(crate) fn fullness(&self, buffers_bytes: u64, buffer_bytes: u64) -> Fullness {
        match self {
            PmStore::Lists(store) => store.fullness(buffers_bytes, buffer_bytes),
            // What finds no room becomes files.
            PmStore::Sorted(_) | PmStore::Trees(_) => Fullness::Room,
        }
    }

    /// Counts a job of `part` that was installed.
    pub(crate) fn installed(&self, plan: &Plan, part: Option<&Part>, output: &Installed) {
        match self {
            PmStore::Lists(store) => store.done(done(plan)),
            PmStore::Trees(_) => {}
            PmStore::Sorted(store) => {
                let from_memory = plan.tables.iter().any(|(_, run)| !run.meta.is_file());
                let merge = match (plan.reason, plan.how, output.medium) {
                    (Reason::Flush, _, Medium::Pm) => {
                        return store.counters.flushed_bytes.add(output.bytes);
                    }
                    (Reason::Flush, ..) | (_, How::Move, _) => return,
                    (_, _, Medium::Pm) => Merge::Internal,
                    (_, _, Medium::Ssd) if from_memory => Merge::Major,
                    (_, _, Medium::Ssd) => return,
                };
                let times = (output.now_ns, output.elapsed_ns);
                store.merged(merge, plan.input_bytes(), output.bytes, times);
                let is_unsorted = |(level, _): &(Level, Arc<TableRun>)| level.is_zero();
                if let Some(heat) = part.and_then(|part| part.heat.as_ref()) {
                    let merged = Merged {
                        at_ns: output.now_ns,
                        bytes_in: plan.input_bytes(),
                        bytes_out: output.bytes,
                    };
                    let stays = output.medium == Medium::Pm;
                    heat.merged(merged, stays, plan.tables.iter().any(is_unsorted));
                }
            }
        }
    }
}

impl Engine {
    /// The write buffers' part of the pool, if partitions have write buffers there.
    #[inline]
    pub(crate) fn buffers(&self) -> Option<&BufferStore> {
        self.compaction.pm.as_ref().and_then(PmStore::buffers)
    }
}

/// The output of a job that was installed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Installed {
    pub(crate) bytes: u64,
    /// Where it is. Tables that found no room are files, whatever the plan said.
    pub(crate) medium: Medium,
    pub(crate) now_ns: u64,
    pub(crate) elapsed_ns: u64,
}

/// The job as lists count it.
fn done(plan: &Plan) -> Done {
    match plan.reason {
        Reason::Evict => Done::Eviction {
            in_place: plan.source_level() == Some(plan.level),
        },
        Reason::Promote => Done::Promotion,
        _ if plan.relocate.is_some() => Done::Relocation,
        _ => Done::Other,
    }
}
