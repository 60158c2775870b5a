//! Commits and the end of a session.
//!
//! 1. A commit writes the slot that does not hold the current root, then fences (and on `file`
//!    syncs). Until then the old root is current, afterwards the new one.
//! 2. Roots are written one at a time.

use super::Pool;
use crate::config::DurableAt;
use crate::header::Session;
use crate::layout::{PAGE_BYTES, SESSION_AT};
use crate::owner::Owner;
use crate::region::Region;
use crate::root::{Root, slot_offset};
use crate::sites;
use crate::token::{Fenced, Span};
use firn_base::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Pool {
    /// Commits `next`, which was derived from the current root: its generation says which root that
    /// was. `fenced` proves that everything it reaches is durable. DURABLE AFTER, unless
    /// [`Pool::durable_at`] is `Never`: the new root, which is returned.
    ///
    /// # Errors
    /// `Invalid` if another commit came in between, or an entry names an extent that is not live,
    /// belongs to another owner, or (backend `file`) was not persisted. In these cases nothing was
    /// written.
    pub fn commit(&self, next: Root, fenced: Fenced) -> Result<Arc<Root>> {
        let _one_at_a_time = self.committing.lock();
        self.commit_locked(next, fenced)
    }

    /// Applies `edit` to the current root and commits it, with no other commit in between.
    ///
    /// # Errors
    /// The errors of [`Pool::commit`], or the error that `edit` returns.
    pub fn commit_with(
        &self,
        fenced: Fenced,
        edit: impl FnOnce(&mut Root) -> Result<()>,
    ) -> Result<Arc<Root>> {
        let _one_at_a_time = self.committing.lock();
        let mut next = Root::clone(&self.root());
        let generation = next.generation;
        edit(&mut next)?;
        next.generation = generation;
        self.commit_locked(next, fenced)
    }

    fn commit_locked(&self, mut next: Root, fenced: Fenced) -> Result<Arc<Root>> {
        assert!(
            fenced.span.pool == self.id || fenced.span == Span::NOTHING,
            "a token of another pool"
        );
        let current = self.root();
        if next.generation != current.generation {
            return Err(Error::invalid(format!(
                "this root was made from generation {}, the current one is {}: make it again from that",
                next.generation, current.generation
            )));
        }
        self.check_entries(&next)?;
        next.pool_bytes = current.pool_bytes;
        self.write_root_locked(next)
    }

    /// Checks that every entry names a live extent of its owner, and that no two name the same.
    fn check_entries(&self, next: &Root) -> Result<()> {
        let mut seen = Vec::with_capacity(next.entries.len());
        for entry in &next.entries {
            if entry.owner == Owner::Pool {
                return Err(Error::invalid(
                    "a root entry belongs to a structure, not to the pool",
                ));
            }
            let Some(extent) = entry.extent else { continue };
            self.map.with_live(extent, |live| {
                if live.owner != entry.owner {
                    let (is, said) = (live.owner.name(), entry.owner.name());
                    return Err(Error::invalid(format!("{extent} is held by {is}, the root entry says {said}")));
                }
                if self.durable_at() == DurableAt::Sync && !live.is_persisted {
                    return Err(Error::invalid(format!(
                        "{extent} is not in the file: on backend \"file\" freeze and persist what a root names"
                    )));
                }
                Ok(())
            })?;
            seen.push(extent);
        }
        seen.sort_unstable();
        match seen.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::invalid(format!(
                "{} is named by two root entries",
                pair[0]
            ))),
            None => Ok(()),
        }
    }

    /// Writes `next` with the next generation number. REQUIRES: `committing` is held.
    pub(super) fn write_root_locked(&self, mut next: Root) -> Result<Arc<Root>> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::invalid(
                "this pool is closed: open it again to commit",
            ));
        }
        next.generation += 1;
        let slot = slot_offset(next.generation);
        let record = next.encode(&self.uuid)?;
        self.region.stream(slot, &[&record])?;
        self.region.fence(&sites::PM_ROOT_FENCE);
        if let Err(error) = self
            .region
            .sync(&sites::PM_ROOT_SYNC, &[(slot, PAGE_BYTES)])
        {
            // The file may or may not hold this root. If the pool stayed in use, an extent that
            // only this root names could be allocated to another owner, and a later open would find
            // both.
            self.region.poison();
            return Err(error);
        }
        let row = self.counters.row(Owner::Pool as u8);
        row.bytes_written.add(record.len() as u64);
        row.lines_stored
            .add(crate::line::line_range(slot, record.len() as u64).count_lines());
        row.fences.add(1);
        let next = Arc::new(next);
        *self.root.write() = next.clone();
        Ok(next)
    }

    /// Ends the session, so that the next open sees a clean pool. Without it (or after a crash) the
    /// next open counts an unsafe shutdown. Later commits are refused.
    ///
    /// # Errors
    /// The errors of the file.
    pub fn close(&self) -> Result<()> {
        let _one_at_a_time = self.committing.lock();
        if self.region.is_read_only() || self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let generation_low = self.root().generation as u16;
        let session = Session {
            clean: true,
            unsafe_shutdowns: self.unsafe_shutdowns,
            generation_low,
        };
        write_session(&self.region, session, &self.uuid)
    }
}

/// Stores the session word with one atomic store. DURABLE AFTER: the word.
pub(super) fn write_session(region: &Region, session: Session, uuid: &[u8; 16]) -> Result<()> {
    region.store_u64(SESSION_AT, session.encode(uuid))?;
    region.flush(&sites::PM_SESSION_FLUSH, SESSION_AT, 8)?;
    region.fence(&sites::PM_SESSION_FENCE);
    region.sync(&sites::PM_SESSION_SYNC, &[(0, PAGE_BYTES)])
}
