//! FirnDB: an embedded, ordered key-value store. It is an LSM-tree with a persistent-memory tier
//! between DRAM and SSD.
//!
//! ```
//! use firndb::{Db, Options, WriteBatch, WriteOptions};
//! # fn main() -> firndb::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Db::open(dir.path().join("glacier"), Options::default())?;
//! db.put(b"snow", b"white")?;
//! let mut batch = WriteBatch::new();
//! batch.put(b"firn", b"grey").delete(b"snow");
//! db.write(&batch, &WriteOptions::default())?;
//! assert!(db.get(b"snow")?.is_none());
//! for entry in db.prefix(b"f") {
//!     let (key, value) = entry?;
//!     assert_eq!((&key[..], &value[..]), (&b"firn"[..], &b"grey"[..]));
//! }
//! db.close()
//! # }
//! ```
//!
//! # Blocking calls
//!
//! Every call may block the thread. Gets, cursors and iterators wait for the device. Writes with
//! [`Durability::Power`] wait for a sync, and all writes may be delayed while flushes or
//! compactions are late. [`Db::open`] replays logs. [`Db::compact`], [`Db::wait_idle`] and
//! [`Db::verify`] may take minutes, and dropping the last handle closes the database. Async code
//! calls them on a thread that may block, such as one of `tokio::task::spawn_blocking`; a [`Db`]
//! is cheap to clone and can be moved there.
#![deny(unsafe_code)]

mod api;
mod blade;
mod compaction;
mod engine;
mod event;
mod files;
mod gate;
#[cfg(test)]
#[cfg(shuttle)]
mod interleave;
mod lab;
mod lifecycle;
mod log;
mod manifest;
#[cfg(not(feature = "proof"))]
mod mechanisms;
#[cfg(feature = "proof")]
pub mod mechanisms;
mod memtable;
mod options;
mod pmdb;
#[cfg(feature = "proof")]
pub mod proof;
mod read;
mod read_points;
#[cfg(not(feature = "proof"))]
mod sites;
#[cfg(feature = "proof")]
pub mod sites;
mod tlsm;
mod upper;
mod write;

pub use api::batch::WriteBatch;
pub use api::cursor::Cursor;
pub use api::db::Db;
pub use api::iter::Iter;
pub use api::snapshot::Snapshot;
pub use api::stats::{
    BackgroundStats, CauseStats, CompactionIoStats, DesignStats, GrainStats, GrowthStats,
    LevelStats, MemoryStats, PartitionStats, PmStats, RecoveryStats, StallStats, Stats, UserStats,
};
pub use blade::{BladeMerge, BladePartitionStats, BladeStats};
pub use event::{Event, EventListener, GrainRule, StallReason};
pub use firn_base::clock::Clock;
pub use firn_base::exec::Executor;
pub use firn_base::{Error, ErrorKind, FileId, Limits, Result};
pub use firn_fs::{Dir, File, Fs};
pub use firn_pm::{Backend, Latency, PmConfig};
pub use firn_table::Value;
pub use firn_table::pm_table::Arrangement;
pub use firn_table::sst::Codec;
pub use lab::LabStats;
pub use lifecycle::repair::{RepairReport, repair, repair_dry_run};
pub use lifecycle::stored::profile_at;
pub use lifecycle::verify::{Damage, VerifyReport};
pub use log::HotStats;
pub use options::tuning::{
    BladeModels, BladeTuning, BlockTuning, ByLevel, GrainLimits, LabTuning, LogPlacement,
    PmdbTuning, Seeks, Tiering, TlsmBuild, TlsmTuning, TlsmVictim, Tuning,
};
pub use options::{
    Concurrency, Durability, Environment, Options, Profile, ReadOptions, WriteOptions,
};
pub use pmdb::{BlockTreeStats, PartBufferStats, PmdbStats};
pub use tlsm::{ListSearches, TlsmStats};
