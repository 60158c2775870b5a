//! The whole engine under crashes and faults, driven by a seed: a reference that determines what
//! may come back, a session that runs random operations on a simulated file system, and the joint
//! suite that cuts it anywhere.
//!
//! A failure prints its seed and the command that replays it. Docs: `testing.md`.
#![forbid(unsafe_code)]

mod budget;
mod contents;
pub mod decoders;
mod machine;
mod model;
mod mutants;
mod pm;
mod run;
mod seeds;
mod session;
mod setup;
mod suite;
mod suites;
mod tally;
mod tier;

pub use contents::{CheckedCursor, check_cursor, read_all};
pub use machine::{Machine, fingerprint};
pub use model::{Change, Death, History, Map};
pub use mutants::{Verdict, hunt, sites};
pub use pm::{Bug, Shelf, Structure, explore_sequence};
pub use run::Report;
pub use seeds::{Draw, Seeds};
pub use session::{Session, orphans};
pub use setup::{KINDS, Setup};
pub use suite::{SUITES, Suite};
pub use suites::kill9::{kill9_child, set_child};
pub use suites::model::trace;
pub use tally::Tally;
pub use tier::{Test, Tier, each_seed, replay};
