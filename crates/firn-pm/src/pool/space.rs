//! Space: claims during recovery, allocation, freezing, freeing, growing.

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
    /// Records during recovery that `extent` is reachable and belongs to `owner`. Claim an extent
    /// *before* reading it (on the `file` backend this loads it). The open has already claimed the
    /// extents that root entries name.
    ///
    /// # Errors
    /// `Corruption` if it lies outside the pool or overlaps another claim. `Invalid` after
    /// [`Pool::finish_recovery`].
    pub fn claim(&self, extent: Extent, owner: Owner) -> Result<()> {
        let is_in_file = self.durable_at() == DurableAt::Sync;
        self.map.claim(extent, owner, is_in_file)?;
        self.region.load_from_file(extent.offset.get(), extent.len)
    }

    /// Claims an extent that its writer, which was killed, may not have fenced. DURABLE AFTER a
    /// fence of this thread, such as that of the next commit, where [`Pool::durable_at`] is
    /// `Fence`: its contents.
    ///
    /// # Errors
    /// As [`Pool::claim`].
    pub fn claim_unfenced(&self, extent: Extent, owner: Owner) -> Result<()> {
        self.claim(extent, owner)?;
        self.region
            .flush(&sites::PM_CLAIM_FLUSH, extent.offset.get(), extent.len)?;
        Ok(())
    }

    /// Ends recovery: everything that was not claimed becomes free. Until then nothing can be
    /// allocated or freed.
    ///
    /// # Errors
    /// `Invalid` on the second call.
    pub fn finish_recovery(&self) -> Result<()> {
        self.map.finish()
    }

    /// Allocates `len` bytes (rounded up to whole granules) for `owner`. The contents are whatever
    /// was there before. The allocation is in DRAM only: after a crash it is free again unless a
    /// root reaches it.
    ///
    /// # Errors
    /// `NoSpace` if no free range is long enough, or the free space is reserved.
    pub fn alloc(&self, len: u64, owner: Owner) -> Result<Extent> {
        self.map.alloc(len, owner, false)
    }

    /// As [`Pool::alloc`], but of `most` bytes, or as many as there are in one piece, if these are
    /// at least `least`.
    ///
    /// # Errors
    /// `NoSpace` if no free range has `least` bytes, or the free space is reserved.
    pub fn alloc_up_to(&self, least: u64, most: u64, owner: Owner) -> Result<Extent> {
        self.map.alloc_up_to(least, most, owner, false)
    }

    /// Frees what `extent` has beyond its first `len` bytes, rounded up to whole granules. Returns
    /// the rest. REQUIRES: nothing durable names the extent.
    ///
    /// # Errors
    /// `Invalid` if it is not live, frozen, or shorter.
    pub fn trim(&self, extent: Extent, len: u64) -> Result<Extent> {
        let root = self.root.read();
        self.refuse_rooted(&root, extent)?;
        self.map.trim(extent, len)
    }

    /// Sets `bytes` of the free space aside.
    ///
    /// # Errors
    /// `NoSpace` if less is free.
    pub fn reserve(&self, bytes: u64) -> Result<Headroom> {
        Headroom::new(&self.map, bytes)
    }

    /// Frees `extent`. REQUIRES: nothing durable reaches it any more.
    ///
    /// # Errors
    /// `Invalid`, naming the extent, if it is not live (freed before), frozen, or named by the
    /// committed root.
    pub fn free(&self, extent: Extent) -> Result<()> {
        let root = self.root.read();
        self.refuse_rooted(&root, extent)?;
        self.map.free(extent, false)
    }

    /// Makes `extent` immutable. `fenced` is the fence after the last store to it.
    ///
    /// # Errors
    /// `Invalid` if it is not live or already frozen.
    pub fn freeze(&self, extent: Extent, fenced: &Fenced) -> Result<Frozen> {
        assert!(
            fenced.span.pool == self.id || fenced.span == Span::NOTHING,
            "a token of another pool"
        );
        self.map.with_live(extent, |live| match live.is_frozen {
            true => Err(Error::invalid(format!("{extent} is frozen already"))),
            false => {
                (live.is_frozen, live.is_adopted) = (true, true);
                Ok(())
            }
        })?;
        Ok(Frozen {
            extent,
            pool: self.id,
        })
    }

    /// Returns the handle of a claimed extent that its owner knows to be immutable. For use after
    /// an open.
    ///
    /// # Errors
    /// `Invalid` if it is not live, or its `Frozen` was already handed out.
    pub fn adopt(&self, extent: Extent) -> Result<Frozen> {
        self.map.with_live(extent, |live| match live.is_adopted {
            true => Err(Error::invalid(format!(
                "{extent} is adopted already: share its Frozen"
            ))),
            false => {
                (live.is_frozen, live.is_adopted) = (true, true);
                Ok(())
            }
        })?;
        Ok(Frozen {
            extent,
            pool: self.id,
        })
    }

    /// Makes immutable extents durable where the fence does not: on the `file` backend this writes
    /// them and syncs once. DURABLE AFTER, unless [`Pool::durable_at`] is `Never`: all of them.
    ///
    /// # Errors
    /// `Io` or `NoSpace` from the file; `Poisoned` after a failed sync.
    pub fn persist(&self, extents: &[&Frozen]) -> Result<()> {
        assert!(
            extents.iter().all(|frozen| frozen.pool == self.id),
            "a Frozen of another pool"
        );
        if self.durable_at() != DurableAt::Sync {
            return Ok(());
        }
        let ranges: Vec<_> = extents
            .iter()
            .map(|f| (f.extent.offset.get(), f.extent.len))
            .collect();
        self.region.sync(&sites::PM_PERSIST_SYNC, &ranges)?;
        for frozen in extents {
            self.map.with_live(frozen.extent, |live| {
                live.is_persisted = true;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Frees an immutable extent. Giving up its `Frozen` proves that no thread borrows it any more.
    ///
    /// # Errors
    /// The errors of [`Pool::free`]; the handle is returned with the error.
    pub fn free_frozen(&self, frozen: Frozen) -> Result<(), (Frozen, Error)> {
        assert_eq!(frozen.pool, self.id, "a Frozen of another pool");
        self.free_unborrowed(frozen.extent)
            .map_err(|error| (frozen, error))
    }

    /// Frees an extent whose handles the caller gave up.
    pub(super) fn free_unborrowed(&self, extent: Extent) -> Result<()> {
        let root = self.root.read();
        self.refuse_rooted(&root, extent)?;
        self.map.free(extent, true)
    }

    fn refuse_rooted(&self, root: &Root, extent: Extent) -> Result<()> {
        match root
            .entries
            .iter()
            .any(|entry| entry.extent == Some(extent))
        {
            true => Err(Error::invalid(format!(
                "{extent} is named by root generation {}: commit a root without it first",
                root.generation
            ))),
            false => Ok(()),
        }
    }

    /// The use of the pool's space.
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

    /// Extends the pool to `new_bytes` (rounded down to whole granules). Borrows and offsets stay
    /// valid.
    ///
    /// # Errors
    /// `Invalid` if that is not more than the current size; `NoSpace` or `Io` from the file.
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
