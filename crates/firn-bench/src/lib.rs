//! FirnDB's benchmark: workloads, the check of every read, and reports. Prints nothing: the `firn` command does.
//!
//! A workload runs against a [`Store`], so that another engine can stand in FirnDB's place.
#![forbid(unsafe_code)]

mod key_space;
mod latency;
mod ledger;
mod machine;
mod phase;
mod quick;
mod record;
mod report;
mod store;
mod worker;
mod workload;
mod ycsb;
mod zipf;

pub use key_space::{KeySpace, Permutation};
pub use latency::{Latencies, Percentiles};
pub use ledger::Ledger;
pub use machine::{free_bytes, sync_ns};
pub use phase::{Bench, Phase, Silent, Watch};
pub use quick::{QuickConfig, QuickReport, quick, quick_bytes_needed};
pub use report::{PhaseReport, Timeline};
pub use store::{Counters, FirnStore, Store};
pub use workload::Workload;
pub use ycsb::{YcsbConfig, YcsbReport, ycsb};
pub use zipf::Zipf;
