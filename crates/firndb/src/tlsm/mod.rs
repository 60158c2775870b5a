//! Tables in persistent memory, profile `tlsm` (TLSM, IEEE Access 2020). The format and the readers
//! of a list are in `firn-table`; the policy is `compaction/picker/tiering.rs`.

mod stats;
mod store;
mod unfinished;

pub use stats::{ListSearches, TlsmStats};
pub(crate) use store::{COPY_BYTES, Done, LINK_BYTES, ListFacts, ListStore};
pub(crate) use unfinished::{Anchor, CutJob, CutJobs};
