//! What users hold: the database, batches, cursors, snapshots, and what they are told of it.

pub(crate) mod batch;
pub(crate) mod cursor;
pub(crate) mod db;
pub(crate) mod iter;
mod prometheus;
pub(crate) mod snapshot;
pub(crate) mod stats;
