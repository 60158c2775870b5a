//! Persistent memory: a pool of extents, the verbs that make bytes durable, the backends
//! underneath, and a simulator that cuts the power at every fence. The only crate of FirnDB with
//! `unsafe` for persistent memory.
//!
//! A [`Pool`] is opened with a [`PmConfig`]; its bytes are named by [`PmOffset`], its space is
//! handed out as [`Extent`]s. Writers go `store -> flush -> fence` ([`Dirty`], [`Flushed`],
//! [`Fenced`]) and end with [`Pool::commit`] or [`Pool::publish`]. The formats are in
//! `docs/format/pool.md`.
//!
//! ```
//! use firn_base::site::TEST;
//! use firn_pm::{Owner, PmConfig, Pool, RootEntry};
//!
//! let pool = Pool::open_or_create(&PmConfig::volatile(1 << 20), [7; 16])?;
//! // Here the owner of each structure claims the extents that its entry in `pool.root()` reaches.
//! pool.finish_recovery()?;
//! let extent = pool.alloc(64 << 10, Owner::LogBuffer)?;
//! let fenced = pool.write_durable(&TEST, extent.offset, &[b"frame header", b"frame body"])?;
//! pool.commit_with(fenced, |root| {
//!     root.set(RootEntry { owner: Owner::LogBuffer, kind: 0, word: 0, extent: Some(extent) });
//!     Ok(())
//! })?;
//! pool.close()?;
//! # Ok::<(), firn_base::Error>(())
//! ```
#![deny(unsafe_code)]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("firn-pm knows the cache instructions of x86-64 and aarch64 only");
#[cfg(target_endian = "big")]
compile_error!("firn-pm's formats are little-endian and read in place");

mod arch;
mod config;
mod counters;
mod extents;
mod frozen;
mod growing;
mod header;
mod headroom;
mod latency;
mod layout;
mod line;
mod offset;
mod owner;
mod pool;
mod region;
mod root;
pub mod sim;
pub mod sites;
mod tags;
mod token;
mod usage;

pub use config::{Backend, DurableAt, Latency, PmConfig};
pub use counters::OwnerCounts;
pub use frozen::Frozen;
pub use growing::{Appender, Growing};
pub use headroom::Headroom;
pub use layout::{DATA_START, GRANULE_BYTES, MAX_ROOT_ENTRIES, MIN_POOL_BYTES, VERSION};
pub use line::{LINE_BYTES, LineRange, line_range};
pub use offset::{Extent, PmOffset};
pub use owner::Owner;
pub use pool::Pool;
pub use region::Backing;
pub use root::{Root, RootEntry};
pub use token::{Dirty, Fenced, Flushed};
pub use usage::Usage;
