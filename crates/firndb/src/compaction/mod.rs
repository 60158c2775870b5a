//! Flushes and compactions. Each job runs a plan, does the I/O and returns an edit, and
//! `install.rs` puts it into the state.

mod admission;
mod append;
pub(crate) mod background;
mod counters;
mod entries;
mod eviction;
mod grain;
pub(crate) mod hidden;
pub(crate) mod index;
mod install;
mod merge;
mod output;
mod overlap;
pub(crate) mod picker;
pub(crate) mod plan;
pub(crate) mod pm_store;
pub(crate) mod rate_limiter;
mod sieve;
mod sub_task;
mod tables_writer;
mod tree_flush;
mod upper;
mod visibility;

pub(crate) use counters::{JobCounters, LevelCounters};
pub(crate) use entries::BufferedEntries;
pub(crate) use grain::Grain;
pub(crate) use merge::{
    CompactionContext, CompactionOutput, LevelContext, Output, run, run_above, write_outputs,
    write_tables,
};
pub(crate) use output::{PmTarget, Written};
pub(crate) use overlap::OverlapTracker;
pub(crate) use sub_task::{Piece, Run, SubTask, collect, open_inputs, run_sub_task, sub_tasks};
