//! The pool: a header, two root slots, and extents. See `docs/format/pool.md`.
//!
//! Lifecycle: `open -> claim everything reachable -> finish_recovery -> alloc, verbs, commit, free
//! -> close`.
//!
//! 1. The roots define which extents are live. The free map is in DRAM and is rebuilt from them at
//!    every open, so nothing leaks and nothing is freed twice: live + free + the pool's own pages =
//!    pool, exactly.
//! 2. A root changes by a commit to the other slot. It names only live extents and, on the `file`
//!    backend, only persisted extents. An extent that the durable root names cannot be freed.
//! 3. No verb stores to free space, to a frozen extent or to the pool's own pages; to a growing
//!    extent only an append does, at its end.
//! 4. A request that a backend cannot meet is refused; a weaker backend is never chosen silently.
//!
//! Thread safety: `Send + Sync`, all by `&self`. A thread that writes owns the range it writes: the
//! pool hands an extent to one owner, and threads that share one (the log's leader and its readers)
//! agree between themselves which bytes are final. A read of bytes that are being written returns
//! some mix of old and new words, never anything worse.
//!
//! A crash leaves: the older root or the newer one, whole; of extents, everything that was fenced
//! (or persisted) and any part of the rest; possibly an unfinished creation, which the next open
//! creates again; after an interrupted `grow`, possibly a file longer than its pool, which is
//! harmless.

mod commit;
mod grow_extent;
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
    /// The part that this open created, if the pool is new.
    created: Option<Created>,
    /// The lock of the file, if it is open for writing. The last field: unless it is released
    /// earlier, it is released only after every other field is dropped.
    lock: Mutex<Option<FileLock>>,
}

/// The part that an open made in order to create a pool.
#[derive(Debug)]
pub(crate) enum Created {
    /// A file.
    File(std::path::PathBuf),
    /// The contents of a file that existed and was empty.
    Length(std::path::PathBuf),
    /// The contents of memory of a fixed size, such as a device.
    Contents,
}

impl Pool {
    /// The point at which bytes written through the verbs are durable.
    pub fn durable_at(&self) -> DurableAt {
        match self.region.kind() {
            Kind::Dax | Kind::Emulated | Kind::Simulated => DurableAt::Fence,
            Kind::File => DurableAt::Sync,
            Kind::Volatile => DurableAt::Never,
        }
    }

    /// The pool's backend, for reports.
    pub fn backend_name(&self) -> &'static str {
        match self.region.kind() {
            Kind::Dax => "dax",
            Kind::Emulated => "EMULATED",
            Kind::Volatile => "volatile",
            Kind::File => "file",
            Kind::Simulated => "sim",
        }
    }

    /// The size of the whole pool, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.map.pool_bytes()
    }

    /// The database this pool belongs to.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The number of times this pool was opened for writing and not closed. Saturates at 32,767.
    pub fn unsafe_shutdowns(&self) -> u16 {
        self.unsafe_shutdowns
    }

    /// True if the previous session ended with [`Pool::close`].
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// True if it was opened by [`Pool::open_read_only`].
    pub fn is_read_only(&self) -> bool {
        self.region.is_read_only()
    }

    /// The newest committed root.
    pub fn root(&self) -> Arc<Root> {
        self.root.read().clone()
    }

    /// Counts of the operations on `owner`'s extents since open.
    pub fn counts(&self, owner: Owner) -> OwnerCounts {
        self.counters.sum(owner)
    }
}

#[cfg(test)]
mod tests;
