//! FirnDB: an embedded, ordered key-value store - an LSM-tree with a persistent-memory tier between DRAM and SSD.
//!
//! ```
//! use firndb::{Db, Options, WriteBatch, WriteOptions};
//! # fn main() -> firndb::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Db::open(dir.path().join("glacier"), Options::default())?;
//! db.put(b"snow", b"white")?;
//! let mut batch = WriteBatch::new();
//! batch.put(b"firn", b"grey").delete(b"snow");
//! db.write(batch, &WriteOptions::default())?;
//! assert!(db.get(b"snow")?.is_none());
//! let mut iter = db.iter()?;
//! iter.first()?;
//! assert_eq!((iter.key(), iter.value()), (&b"firn"[..], &b"grey"[..]));
//! db.close()
//! # }
//! ```
#![deny(unsafe_code)]

mod background;
mod batch;
mod beside;
mod budget;
mod buffer;
mod checkpoint;
mod close;
mod commit;
mod db;
mod event;
mod files;
mod gaps;
mod gate;
mod install;
#[cfg(test)]
#[cfg(shuttle)]
mod interleave;
mod iter;
mod log;
mod lost;
mod manifest;
mod mill;
mod options;
mod owner;
mod pace;
mod plan;
mod prometheus;
#[cfg(feature = "proof")]
pub mod proof;
mod read;
mod recover;
mod repair;
mod row_cache;
pub mod rows;
mod run_iter;
mod shape;
pub mod sites;
mod snapshot;
mod sst_run;
mod stall;
mod state;
mod stats;
mod stored;
mod tier;
mod tuning;
mod verify;
mod write;

pub use batch::WriteBatch;
pub use db::Db;
pub use event::{Event, EventListener};
pub use firn_base::{Error, ErrorKind, Limits, Result};
pub use firn_pm::{Backend, Latency, PmConfig};
pub use firn_table::Value;
pub use firn_table::sst::Codec;
pub use iter::Iter;
pub use log::HotStats;
pub use options::{Durability, Environment, Options, Profile, ReadOptions, WriteOptions};
pub use repair::{RepairReport, repair, repair_dry_run};
pub use snapshot::Snapshot;
pub use stats::{
    BackgroundStats, CauseStats, GrainStats, LevelStats, MemoryStats, PmStats, RecoveryStats, StallStats, Stats,
    UserStats,
};
pub use stored::profile_at;
pub use tier::TierStats;
pub use tuning::{BlockTuning, ByLevel, GrainLimits, LabTuning, LogPlacement, Tuning};
pub use verify::{Damage, VerifyReport};
