//! FirnDB's benchmark: workloads, the check of every read, and reports. It prints nothing; the
//! `firn` command does.
//!
//! A workload runs against a [`Store`], which an [`Engine`] opens, so that other engines can be
//! compared with FirnDB. A [`Matrix`] runs several engines, each in its own process, and a
//! [`Summary`] compares them.
#![forbid(unsafe_code)]

mod as_word;
mod cell;
mod counters;
mod engine;
mod firn;
mod gets;
mod html;
mod key_space;
mod latency;
mod ledger;
mod machine;
mod matrix;
mod measure;
mod paper;
mod phase;
mod quick;
mod record;
mod report;
mod retail;
mod run;
#[cfg(test)]
mod sample;
mod size;
mod store;
mod structure;
mod summary;
mod tally;
mod worker;
mod workload;
mod zipf;

pub use cell::{Cell, CellSpec, Engines, run_cell};
pub use counters::{CompactionIo, Counters, Traffic};
pub use engine::{Compression, Engine, PmBudget, Setup};
pub use firn::{Firn, FirnStore};
pub use html::{html, svg};
pub use key_space::{KeySpace, Permutation};
pub use latency::{Latencies, Percentiles};
pub use ledger::Ledger;
pub use machine::{Machine, device_bytes, directory_bytes, free_bytes, sync_ns};
pub use matrix::{EngineReport, Matrix, MatrixReport, SCHEMA};
pub use paper::{
    Against, Experiment, Figure, Paper, PaperRow, Place, Shape, Side, TableExperiment, TableRun,
    Variant,
};
pub use phase::{Bench, Phase, Silent, Watch};
pub use quick::{QuickConfig, QuickReport, Verdict, quick, quick_bytes_needed};
pub use record::Values;
pub use report::{Counted, Harness, Moved, PhaseReport, Timeline};
pub use retail::Retail;
pub use run::{RunConfig, run};
pub use size::Sizes;
pub use store::{Change, Opening, OpeningStep, Store};
pub use structure::{Built, Entries, Structure, index_keys, short_keys};
pub use summary::{Ratios, SortLatency, Spread, Summary, WorkloadSummary};
pub use workload::Workload;
pub use zipf::Zipf;
