//! Entry points for the proof (`firn-sim`, `fuzz`) and the micro-benchmarks, which test internals
//! that no user needs. They are not part of the API, and exist only with the feature `proof`.
//!
//! Decoders: each function runs one decoder over arbitrary bytes and panics if its contract is
//! broken. Input that is accepted must encode to the same bytes again, and input that is rejected
//! must give a proper error.

use crate::memtable::Footprint;
use crate::write::commit::Group as CommitGroup;
use crate::{Db, Durability, Error, Result, WriteBatch};
use firn_pm::Pool;
use std::sync::Arc;

pub use crate::log::proof::{frame, frame_head, replay_log};
pub use crate::manifest::proof::{edit, read_manifest};
pub use crate::memtable::proof::{BareMemtable, Group};

/// A write that has joined a commit group and is not yet in the log. The first of a group to be
/// finished leads it.
#[must_use = "a group of which no write is finished is not written before a later one"]
pub struct Begun {
    db: Db,
    /// `None` once it is finished.
    joined: Option<Arc<CommitGroup>>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(group) = self.joined.take() {
            let refuse = || Err(Error::invalid("a write of this group was given up"));
            let commit = &self.db.engine.commit;
            let _given_up = commit.wait(&group, |_, _, _| refuse(), |_| ());
        }
    }
}

/// The first half of [`Db::write`]. Several writes begun by one thread share a group, as writes of
/// several threads do.
///
/// # Errors
/// As [`Db::write`].
pub fn begin_write(db: &Db, batch: &WriteBatch, durability: Durability) -> Result<Begun> {
    let engine = &db.engine;
    let footprint = engine.check(batch.entries())?;
    loop {
        let reservation = engine.reserve_any(batch.entries(), footprint)?;
        let joined = engine
            .commit
            .join(reservation, durability == Durability::Power)?;
        if joined.is_some() {
            let db = db.clone();
            return Ok(Begun { db, joined });
        }
    }
}

/// True if beginning this write may wait for a memtable to be flushed. In that case one thread must
/// first finish the writes it began.
pub fn may_wait(db: &Db, batch: &WriteBatch) -> bool {
    // The height of an entry is random; this is for the highest.
    const LINKS_BYTES_MAX: usize = 256;
    if db.engine.has_part_buffers() {
        return !db
            .engine
            .has_room_in_parts(batch.entries(), LINKS_BYTES_MAX);
    }
    let active = db.engine.active();
    let bytes = Footprint::of(batch.entries(), 0).bytes + LINKS_BYTES_MAX * batch.len();
    active.used_bytes() + bytes > active.capacity_bytes() && !db.engine.may_add_buffer(bytes)
}

impl Begun {
    /// The second half. Returns once the write is visible, and durable as requested.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn finish(mut self) -> Result<()> {
        match self.joined.take() {
            None => Ok(()),
            Some(group) => self.db.engine.wait_for_group(&group),
        }
    }
}

/// The pool of a database that has one.
pub fn pool(db: &Db) -> Option<Arc<Pool>> {
    db.engine.pm.clone()
}
