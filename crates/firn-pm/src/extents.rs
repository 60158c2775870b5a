//! The extent map: which extents are live, who owns them, and which space is free. It lives in DRAM
//! only and is rebuilt at every open.
//!
//! 1. Live extents, free ranges and the pool's own pages are disjoint and fill the pool exactly.
//! 2. Before `finish` nothing is free: extents are only claimed. Everything that was not claimed is
//!    free afterwards.
//! 3. Adjacent free ranges are merged into one. Allocation is first fit.
//! 4. `promised` (headroom) is at most the free space, and only its holders allocate from it.
//!
//! Thread safety: one lock around the map, with no I/O under it.

use crate::layout::{DATA_START, GRANULE_BYTES};
use crate::offset::Extent;
use crate::owner::Owner;
use crate::root::is_well_formed;
use crate::tags::Tags;
use crate::usage::Usage;
use firn_base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct ExtentMap {
    inner: Mutex<Inner>,
    pub(crate) tags: Tags,
    place: String,
}

#[derive(Debug)]
struct Inner {
    pool_bytes: u64,
    is_recovering: bool,
    /// Start to length, in bytes.
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    promised_bytes: u64,
    live: BTreeMap<u64, Live>,
    live_bytes: [u64; Owner::SLOTS],
}

/// The state of a live extent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Live {
    pub(crate) len: u64,
    pub(crate) owner: Owner,
    /// True if no verb may store to it, except for an append at the end of a growing extent.
    pub(crate) is_frozen: bool,
    /// True if its `Frozen`, or the handles to grow it, were handed out.
    pub(crate) is_adopted: bool,
    /// True if its bytes are in the file (backend `file`).
    pub(crate) is_persisted: bool,
}

impl ExtentMap {
    pub(crate) fn new(pool_bytes: u64, place: &str) -> Self {
        let tags = Tags::new();
        tags.set(0, DATA_START, Some(Owner::Pool), false);
        let inner = Inner {
            pool_bytes,
            is_recovering: true,
            free: BTreeMap::new(),
            free_bytes: 0,
            promised_bytes: 0,
            live: BTreeMap::new(),
            live_bytes: [0; Owner::SLOTS],
        };
        Self {
            inner: Mutex::new(inner),
            tags,
            place: place.to_owned(),
        }
    }

    pub(crate) fn pool_bytes(&self) -> u64 {
        self.inner.lock().pool_bytes
    }

    /// Records during recovery that `extent` is reachable. With `in_file` it is immutable and came
    /// from the file.
    pub(crate) fn claim(&self, extent: Extent, owner: Owner, in_file: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        if !inner.is_recovering {
            return Err(Error::invalid(
                "claims are made before finish_recovery: allocate instead",
            ));
        }
        let at = extent.offset.get();
        if owner == Owner::Pool || !is_well_formed(extent, inner.pool_bytes) {
            return Err(Error::corruption(
                &self.place,
                at,
                format!("{} to have an extent, not {extent}", owner.name()),
            ));
        }
        if let Some(other) = inner.overlapping(extent) {
            return Err(Error::corruption(
                &self.place,
                at,
                format!(
                    "one owner for each byte, but {extent} of {} overlaps {other}",
                    owner.name()
                ),
            ));
        }
        let live = Live {
            len: extent.len,
            owner,
            is_frozen: in_file,
            is_adopted: false,
            is_persisted: in_file,
        };
        inner.live.insert(at, live);
        inner.live_bytes[owner as usize] += extent.len;
        self.tags.set(at, extent.len, Some(owner), in_file);
        Ok(())
    }

    /// Ends recovery: everything that was not claimed becomes free.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        if !inner.is_recovering {
            return Err(Error::invalid("recovery of this pool is finished already"));
        }
        let mut next = DATA_START;
        let gaps: Vec<(u64, u64)> = inner
            .live
            .iter()
            .map(|(&start, live)| (start, start + live.len))
            .chain([(inner.pool_bytes, inner.pool_bytes)])
            .map(|(start, end)| (std::mem::replace(&mut next, end), start))
            .filter(|(from, to)| from < to)
            .collect();
        for (from, to) in gaps {
            inner.add_free(from, to - from);
        }
        inner.is_recovering = false;
        Ok(())
    }

    /// Allocates the first free range that holds `len` bytes; from the promised space if
    /// `promised`.
    pub(crate) fn alloc(&self, len: u64, owner: Owner, promised: bool) -> Result<Extent> {
        self.alloc_up_to(len, len, owner, promised)
    }

    /// Allocates the first free range that holds `most` bytes, or else the longest one, if it holds
    /// `least`; from the promised space if `promised`. Write buffers come and go, and are large, so
    /// they take the end of the last such range: what stays lies together at the other end of the
    /// pool, and they find long pieces.
    pub(crate) fn alloc_up_to(
        &self,
        least: u64,
        most: u64,
        owner: Owner,
        promised: bool,
    ) -> Result<Extent> {
        let mut inner = self.inner.lock();
        inner.refuse_while_recovering()?;
        if least == 0 || most < least || owner == Owner::Pool {
            return Err(Error::invalid(format!(
                "an extent of {least} to {most} bytes for {} cannot be allocated",
                owner.name()
            )));
        }
        let whole = |len: u64| len.checked_next_multiple_of(GRANULE_BYTES);
        let (Some(least), Some(most)) = (whole(least), whole(most)) else {
            return Err(self.full(&inner, least));
        };
        let open_bytes = if promised {
            inner.free_bytes
        } else {
            inner.free_bytes - inner.promised_bytes
        };
        let is_from_end = owner == Owner::WriteBuffer;
        let Some((start, free)) = inner.fit(most, is_from_end) else {
            return Err(self.full(&inner, least));
        };
        let len = free
            .min(most)
            .min(open_bytes / GRANULE_BYTES * GRANULE_BYTES);
        if len < least {
            return Err(self.full(&inner, least));
        }
        let at = if is_from_end {
            start + free - len
        } else {
            start
        };
        inner.free.remove(&start);
        if free > len {
            let left = if is_from_end { start } else { at + len };
            inner.free.insert(left, free - len);
        }
        inner.free_bytes -= len;
        if promised {
            inner.promised_bytes -= len;
        }
        let live = Live {
            len,
            owner,
            is_frozen: false,
            is_adopted: false,
            is_persisted: false,
        };
        inner.live.insert(at, live);
        inner.live_bytes[owner as usize] += len;
        self.tags.set(at, len, Some(owner), false);
        Ok(Extent::new(at, len))
    }

    /// Frees what `extent` has beyond its first `len` bytes, rounded up to whole granules. Returns
    /// the rest.
    pub(crate) fn trim(&self, extent: Extent, len: u64) -> Result<Extent> {
        let mut inner = self.inner.lock();
        let live = inner.exact(extent)?;
        let kept = len.next_multiple_of(GRANULE_BYTES).max(GRANULE_BYTES);
        if live.is_frozen || kept > extent.len {
            return Err(Error::invalid(format!(
                "{extent} cannot be cut to {len} bytes: it is frozen, or shorter"
            )));
        }
        if kept == extent.len {
            return Ok(extent);
        }
        let (at, gone) = (extent.offset.get(), extent.len - kept);
        inner.live.insert(at, Live { len: kept, ..live });
        inner.live_bytes[live.owner as usize] -= gone;
        self.tags.set(at + kept, gone, None, false);
        inner.add_free(at + kept, gone);
        Ok(Extent::new(at, kept))
    }

    fn full(&self, inner: &Inner, len: u64) -> Error {
        let longest = inner.free.values().copied().max().unwrap_or(0);
        Error::new(
            ErrorKind::NoSpace,
            format!(
                "{} has no room for {len} bytes: {} free, {} of them reserved, the longest piece {longest}; compact or \
                 grow the pool",
                self.place, inner.free_bytes, inner.promised_bytes
            ),
        )
    }

    /// Sets `bytes` of the free space aside. Returns the size of the promise, in whole granules.
    pub(crate) fn promise(&self, bytes: u64) -> Result<u64> {
        let mut inner = self.inner.lock();
        inner.refuse_while_recovering()?;
        let whole = bytes.checked_next_multiple_of(GRANULE_BYTES);
        match whole.filter(|whole| *whole <= inner.free_bytes - inner.promised_bytes) {
            Some(whole) => {
                inner.promised_bytes += whole;
                Ok(whole)
            }
            None => Err(self.full(&inner, bytes)),
        }
    }

    /// Returns the unused rest of a promise.
    pub(crate) fn unpromise(&self, bytes: u64) {
        let mut inner = self.inner.lock();
        debug_assert!(
            bytes <= inner.promised_bytes,
            "no more is given back than was promised"
        );
        inner.promised_bytes -= bytes;
    }

    /// Frees `extent`. With `frozen`, the caller gave up its handles to free it.
    pub(crate) fn free(&self, extent: Extent, frozen: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.refuse_while_recovering()?;
        let live = inner.exact(extent)?;
        if live.is_frozen && !frozen {
            return Err(Error::invalid(format!(
                "{extent} is frozen or grows: free it by its handles, so that nobody still reads it"
            )));
        }
        inner.live.remove(&extent.offset.get());
        inner.live_bytes[live.owner as usize] -= extent.len;
        self.tags.set(extent.offset.get(), extent.len, None, false);
        inner.add_free(extent.offset.get(), extent.len);
        Ok(())
    }

    /// Calls `look` on a live extent, which may change its state. The tags follow.
    pub(crate) fn with_live<T>(
        &self,
        extent: Extent,
        look: impl FnOnce(&mut Live) -> Result<T>,
    ) -> Result<T> {
        let mut inner = self.inner.lock();
        inner.exact(extent)?;
        let Some(live) = inner.live.get_mut(&extent.offset.get()) else {
            unreachable!("exact found it")
        };
        let was_frozen = live.is_frozen;
        let result = look(live)?;
        if live.is_frozen != was_frozen {
            self.tags.set(
                extent.offset.get(),
                extent.len,
                Some(live.owner),
                live.is_frozen,
            );
        }
        Ok(result)
    }

    /// Extends the pool. The new space is free once recovery is over.
    pub(crate) fn grow(&self, new_bytes: u64) {
        let mut inner = self.inner.lock();
        let old = std::mem::replace(&mut inner.pool_bytes, new_bytes);
        debug_assert!(old < new_bytes, "a pool only grows");
        if !inner.is_recovering {
            inner.add_free(old, new_bytes - old);
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        let inner = self.inner.lock();
        Usage {
            pool_bytes: inner.pool_bytes,
            header_bytes: DATA_START,
            free_bytes: inner.free_bytes,
            headroom_bytes: inner.promised_bytes,
            unclaimed_bytes: match inner.is_recovering {
                true => inner.pool_bytes - DATA_START - inner.live_bytes.iter().sum::<u64>(),
                false => 0,
            },
            live_bytes: inner.live_bytes,
        }
    }

    /// Checks invariants 1, 3 and 4 by walking every extent.
    pub(crate) fn check(&self) -> Result<()> {
        let inner = self.inner.lock();
        let broken = |at: u64, what: String| Err(Error::corruption(&self.place, at, what));
        let live = inner.live.iter().map(|(&at, live)| (at, live.len, true));
        let mut pieces: Vec<_> = live
            .chain(inner.free.iter().map(|(&at, &len)| (at, len, false)))
            .collect();
        pieces.sort_unstable();
        let mut next = (DATA_START, true);
        for (at, len, is_live) in pieces {
            let is_gap_allowed = inner.is_recovering && at > next.0;
            if at != next.0 && !is_gap_allowed {
                return broken(
                    at,
                    format!("the extents to follow each other at {:#x}", next.0),
                );
            }
            if !is_live && !next.1 {
                return broken(at, "free ranges that touch to be one".to_owned());
            }
            let tag = self.tags.range(at, len);
            if tag.has_free == is_live {
                return broken(
                    at,
                    "the granules' tags to agree with the extent map".to_owned(),
                );
            }
            next = (at + len, is_live);
        }
        if next.0 != inner.pool_bytes && !inner.is_recovering {
            return broken(
                next.0,
                format!(
                    "the extents to end with the pool at {:#x}",
                    inner.pool_bytes
                ),
            );
        }
        if inner.free.values().sum::<u64>() != inner.free_bytes
            || inner.promised_bytes > inner.free_bytes
        {
            return broken(
                0,
                "the sum of the free ranges to be what is counted free".to_owned(),
            );
        }
        drop(inner);
        self.usage().check()
    }
}

impl Inner {
    fn refuse_while_recovering(&self) -> Result<()> {
        match self.is_recovering {
            true => Err(Error::invalid(
                "this pool is being recovered: claim what is reachable, then finish_recovery",
            )),
            false => Ok(()),
        }
    }

    /// The first free range that holds `len` bytes, or the last one with `from_end`, or else the
    /// longest one.
    fn fit(&self, len: u64, from_end: bool) -> Option<(u64, u64)> {
        let ranges = || self.free.iter().map(|(&at, &free)| (at, free));
        let holds = |&(_, free): &(u64, u64)| free >= len;
        let first = match from_end {
            false => ranges().find(holds),
            true => ranges().rfind(holds),
        };
        first.or_else(|| ranges().max_by_key(|&(_, free)| free))
    }

    fn overlapping(&self, extent: Extent) -> Option<Extent> {
        let end = extent.end()?;
        let (&at, live) = self.live.range(..end).next_back()?;
        (at + live.len > extent.offset.get()).then(|| Extent::new(at, live.len))
    }

    /// The live extent that equals `extent` exactly.
    fn exact(&self, extent: Extent) -> Result<Live> {
        match self.live.get(&extent.offset.get()) {
            Some(live) if live.len == extent.len => Ok(*live),
            Some(live) => Err(Error::invalid(format!(
                "{extent} is not an extent: the live one there is {} bytes",
                live.len
            ))),
            None => Err(Error::invalid(format!(
                "{extent} is not live: it was freed before, or never allocated"
            ))),
        }
    }

    fn add_free(&mut self, at: u64, len: u64) {
        self.free_bytes += len;
        let (mut start, mut end) = (at, at + len);
        if let Some((&before, &before_len)) = self.free.range(..at).next_back()
            && before + before_len == at
        {
            start = before;
        }
        if let Some(after_len) = self.free.remove(&end) {
            end += after_len;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests;
