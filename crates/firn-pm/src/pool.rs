//! The pool: a header, two root slots, and extents. See `docs/format/pool.md`.
//!
//! Life: `open -> claim what is reachable -> finish_recovery -> alloc, verbs, commit, free -> close`.
//!
//! 1. What the roots reach is the truth. The free map is in DRAM, rebuilt from it at every open, so nothing leaks and
//!    nothing is freed twice: live + free + the pool's own pages = pool, exactly.
//! 2. A root changes by a commit to the other slot; it names only live extents, and on the `file` backend only
//!    extents that are persisted. An extent that the durable root names cannot be freed.
//! 3. No verb stores to free space, to a frozen extent or to the pool's own pages.
//! 4. What a backend cannot give is refused; a weaker one is never chosen silently.
//!
//! Thread safety: `Send + Sync`, all by `&self`. Threads that write own the ranges they write: the pool hands an extent
//! to one owner, and who shares one (the log's leader and its readers) agrees between themselves which bytes are final.
//! Reads of bytes that are being written give some mix of old and new words, never anything worse.
//!
//! A crash leaves: the older root or the newer one, whole; of extents, whatever was fenced (or persisted) and any part
//! of what was not; an unfinished creation, which the next open creates again; a file longer than its pool after a cut
//! `grow`, which is harmless.

mod commit;
mod open;
mod space;
mod verbs;

use crate::config::DurableAt;
use crate::counters::{Counters, OwnerCounts};
use crate::extents::ExtentMap;
use crate::latency::Delays;
use crate::owner::Owner;
use crate::region::{FileLock, Kind, Region};
use crate::root::Root;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A pool of persistent memory.
#[derive(Debug)]
pub struct Pool {
    id: u64,
    uuid: [u8; 16],
    region: Arc<Region>,
    map: Arc<ExtentMap>,
    root: RwLock<Arc<Root>>,
    /// Held while a root is written.
    committing: Mutex<()>,
    unsafe_shutdowns: u16,
    was_clean: bool,
    is_closed: AtomicBool,
    counters: Counters,
    delays: Option<Delays>,
    /// What this open made, if the pool is new.
    created: Option<Created>,
    /// Of the file, if it is open for writing. Last: if nobody releases it before, it is given back once nothing else
    /// is left.
    lock: Mutex<Option<FileLock>>,
}

/// What an open made to create a pool.
#[derive(Debug)]
pub(crate) enum Created {
    /// A file.
    File(std::path::PathBuf),
    /// What is in a file that was there and had no byte.
    Length(std::path::PathBuf),
    /// What is in memory of a fixed size: a device's.
    Contents,
}

impl Pool {
    /// When what was written through the verbs is durable.
    pub fn durable_at(&self) -> DurableAt {
        match self.region.kind() {
            Kind::Dax | Kind::Emulated | Kind::Simulated => DurableAt::Fence,
            Kind::File => DurableAt::Sync,
            Kind::Volatile => DurableAt::Never,
        }
    }

    /// What the pool lies on, for reports.
    pub fn backend_name(&self) -> &'static str {
        match self.region.kind() {
            Kind::Dax => "dax",
            Kind::Emulated => "EMULATED",
            Kind::Volatile => "volatile",
            Kind::File => "file",
            Kind::Simulated => "sim",
        }
    }

    /// The whole pool, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.map.pool_bytes()
    }

    /// The database this pool belongs to.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// How often this pool was opened for writing and not closed. Stops at 32,767.
    pub fn unsafe_shutdowns(&self) -> u16 {
        self.unsafe_shutdowns
    }

    /// Whether the session before this one ended by [`Pool::close`].
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Whether it was opened by [`Pool::open_read_only`].
    pub fn is_read_only(&self) -> bool {
        self.region.is_read_only()
    }

    /// The newest committed root.
    pub fn root(&self) -> Arc<Root> {
        self.root.read().clone()
    }

    /// What `owner`'s extents were made to do since open.
    pub fn counts(&self, owner: Owner) -> OwnerCounts {
        self.counters.sum(owner)
    }
}

#[cfg(test)]
mod tests;
