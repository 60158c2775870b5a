//! Space: recovery's claims, allocation, freezing, freeing, growing.

use super::Pool;
use crate::config::DurableAt;
use crate::frozen::Frozen;
use crate::headroom::Headroom;
use crate::offset::Extent;
use crate::owner::Owner;
use crate::region::whole_granules;
use crate::root::Root;
use crate::sites;
use crate::token::{Fenced, Span};
use crate::usage::Usage;
use firn_base::{Error, Result};

impl Pool {
    /// Recovery: says that `extent` is reachable, and whose it is. Claim an extent *before* reading it (on the `file`
    /// backend this loads it). What root entries name is claimed already, by the open.
    ///
    /// # Errors
    /// `Corruption` if it leaves the pool or overlaps another claim. `Invalid` after [`Pool::finish_recovery`].
    pub fn claim(&self, extent: Extent, owner: Owner) -> Result<()> {
        let is_in_file = self.durable_at() == DurableAt::Sync;
        self.map.claim(extent, owner, is_in_file)?;
        self.region.load_from_file(extent.offset.get(), extent.len)
    }

    /// Ends recovery: what was not claimed is free. Until then nothing is allocated or freed.
    ///
    /// # Errors
    /// `Invalid` the second time.
    pub fn finish_recovery(&self) -> Result<()> {
        self.map.finish()
    }

    /// Allocates `len` bytes (rounded up to whole granules) for `owner`. Its bytes are whatever was there before.
    /// In DRAM only: after a crash it is free again unless a root reaches it.
    ///
    /// # Errors
    /// `NoSpace` if no free piece is long enough, or what is free is reserved.
    pub fn alloc(&self, len: u64, owner: Owner) -> Result<Extent> {
        self.map.alloc(len, owner, false)
    }

    /// Sets `bytes` of free space aside.
    ///
    /// # Errors
    /// `NoSpace` if less is free.
    pub fn reserve(&self, bytes: u64) -> Result<Headroom> {
        Headroom::new(&self.map, bytes)
    }

    /// Frees `extent`. REQUIRES: nothing durable reaches it any more.
    ///
    /// # Errors
    /// `Invalid`, naming the extent, if it is not live (freed before), frozen, or named by the committed root.
    pub fn free(&self, extent: Extent) -> Result<()> {
        let root = self.root.read();
        self.refuse_rooted(&root, extent)?;
        self.map.free(extent, false)
    }

    /// Makes `extent` immutable. `fenced` is the fence after its last store.
    ///
    /// # Errors
    /// `Invalid` if it is not live, or frozen already.
    pub fn freeze(&self, extent: Extent, fenced: &Fenced) -> Result<Frozen> {
        assert!(fenced.span.pool == self.id || fenced.span == Span::NOTHING, "a token of another pool");
        self.map.with_live(extent, |live| match live.is_frozen {
            true => Err(Error::invalid(format!("{extent} is frozen already"))),
            false => {
                (live.is_frozen, live.is_adopted) = (true, true);
                Ok(())
            }
        })?;
        Ok(Frozen { extent, pool: self.id })
    }

    /// After an open: the handle of a claimed extent that its owner knows to be immutable.
    ///
    /// # Errors
    /// `Invalid` if it is not live, or its `Frozen` was handed out before.
    pub fn adopt(&self, extent: Extent) -> Result<Frozen> {
        self.map.with_live(extent, |live| match live.is_adopted {
            true => Err(Error::invalid(format!("{extent} is adopted already: share its Frozen"))),
            false => {
                (live.is_frozen, live.is_adopted) = (true, true);
                Ok(())
            }
        })?;
        Ok(Frozen { extent, pool: self.id })
    }

    /// Makes immutable extents durable where the fence does not: on the `file` backend writes them and syncs once.
    /// DURABLE AFTER, unless [`Pool::durable_at`] is `Never`: all of them.
    ///
    /// # Errors
    /// `Io` or `NoSpace` of the file; `Poisoned` after a failed sync.
    pub fn persist(&self, extents: &[&Frozen]) -> Result<()> {
        assert!(extents.iter().all(|frozen| frozen.pool == self.id), "a Frozen of another pool");
        if self.durable_at() != DurableAt::Sync {
            return Ok(());
        }
        let ranges: Vec<_> = extents.iter().map(|f| (f.extent.offset.get(), f.extent.len)).collect();
        self.region.sync(&sites::PM_PERSIST_SYNC, &ranges)?;
        for frozen in extents {
            self.map.with_live(frozen.extent, |live| {
                live.is_persisted = true;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Frees an immutable extent; that nobody borrows it any more is proved by giving up its `Frozen`.
    ///
    /// # Errors
    /// As [`Pool::free`]; the handle comes back with the error.
    pub fn free_frozen(&self, frozen: Frozen) -> Result<(), (Frozen, Error)> {
        assert_eq!(frozen.pool, self.id, "a Frozen of another pool");
        let root = self.root.read();
        let freed = self.refuse_rooted(&root, frozen.extent).and_then(|()| self.map.free(frozen.extent, true));
        freed.map_err(|error| (frozen, error))
    }

    fn refuse_rooted(&self, root: &Root, extent: Extent) -> Result<()> {
        match root.entries.iter().any(|entry| entry.extent == Some(extent)) {
            true => Err(Error::invalid(format!(
                "{extent} is named by root generation {}: commit a root without it first",
                root.generation
            ))),
            false => Ok(()),
        }
    }

    /// Who uses the pool.
    pub fn usage(&self) -> Usage {
        self.map.usage()
    }

    /// Checks that live + free + the pool's own pages = pool, and that they are disjoint.
    ///
    /// # Errors
    /// `Corruption` if not.
    pub fn check(&self) -> Result<()> {
        self.map.check()
    }

    /// Makes the pool `new_bytes` long (rounded down to whole granules). Borrows and offsets stay valid.
    ///
    /// # Errors
    /// `Invalid` if that is not more than now; `NoSpace` or `Io` of the file.
    pub fn grow(&self, new_bytes: u64) -> Result<()> {
        let whole = whole_granules(new_bytes)?;
        let _one_at_a_time = self.committing.lock();
        let old = self.map.pool_bytes();
        if whole <= old {
            return Err(Error::invalid(format!(
                "the pool has {old} bytes: it grows to more than that, not to {whole}"
            )));
        }
        self.region.grow(whole)?;
        let mut next = Root::clone(&self.root());
        next.pool_bytes = whole;
        self.write_root_locked(next)?;
        self.map.grow(whole);
        Ok(())
    }
}
