//! Doors for the proof (`firn-sim`, `fuzz`): what no user needs and tests of the inside do. Not part of the API; not
//! there without the feature `proof`.
//!
//! Decoders: each function runs one decoder over any bytes and panics if its contract does not hold: what it takes it
//! would write again the same, and what it refuses it refuses by an error that says so.

pub use crate::log::proof::{frame, replay_log};
pub use crate::manifest::proof::{edit, read_manifest};
