//! The simulator: memory that remembers what a power cut could leave of it.
//!
//! The model is `testing.md` section 1: a line (64 bytes) holds its durable bytes or any version stored since; lines
//! are independent; a flush pins a version, a fence makes what its thread flushed durable; copies past the cache are
//! free until the fence. [`Explorer`] runs a script over it, takes every crash image the model allows (or a bounded
//! sample, by seed) and gives each to a check.

mod explore;
mod images;
mod region;
mod stage;
mod story;
mod tracker;

pub use explore::{CrashImage, Explorer, Failure, Report, explore};
pub use region::{Cut, SimRegion};
pub(crate) use tracker::Tracker;
pub use tracker::{Instruction, Mode, act_as};
