//! The simulator: memory that records everything a power cut could leave in it.
//!
//! The model is in `docs/testing.md` ("The two media"). A line (64 bytes) holds its durable bytes
//! or any version stored since. Lines are independent. A flush pins a version, and a fence makes
//! durable what its thread flushed. Copies past the cache may or may not persist until the fence.
//! [`Explorer`] runs a script, enumerates every crash image that the model allows (or a bounded
//! sample, by seed) and passes each to a check.

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
