//! The types that users hold: the database, batches, cursors, iterators, snapshots and statistics.

pub(crate) mod batch;
pub(crate) mod cursor;
pub(crate) mod db;
pub(crate) mod iter;
mod prometheus;
pub(crate) mod snapshot;
pub(crate) mod stats;
