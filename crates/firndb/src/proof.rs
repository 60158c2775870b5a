//! Doors for the proof (`firn-sim`, `fuzz`) and the micro-benches: what no user needs and tests of the inside do. Not
//! part of the API; not there without the feature `proof`.
//!
//! Decoders: each function runs one decoder over any bytes and panics if its contract does not hold: what it takes it
//! would write again the same, and what it refuses it refuses by an error that says so.

use crate::memtable::Memtable;
use crate::write::commit::GroupRole;
use crate::{Db, Durability, Error, Result, WriteBatch};
use firn_pm::Pool;
use std::sync::Arc;

pub use crate::log::proof::{frame, frame_head, replay_log};
pub use crate::manifest::proof::{edit, read_manifest};
pub use crate::memtable::proof::{BareMemtable, Group};

/// A write that is in a commit group and not yet in the log. It must be finished, in the order in which writes began:
/// whoever began a group leads it.
#[must_use = "a group whose first write is not finished is never written"]
pub struct Begun {
    db: Db,
    /// `None` once it is finished.
    joined: Option<GroupRole>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(GroupRole::Leader(group)) = self.joined.take() {
            let refuse = || Err(Error::invalid("the first write of this group was given up"));
            let _given_up = self.db.engine.commit.lead(&group, |_, _, _| refuse());
        }
    }
}

/// The first half of [`Db::write`]. Several begun by one thread share a group, as those of several threads do.
///
/// # Errors
/// As [`Db::write`].
pub fn begin_write(db: &Db, batch: &WriteBatch, durability: Durability) -> Result<Begun> {
    let joined = db.engine.join(batch.entries(), durability)?;
    Ok(Begun { db: db.clone(), joined: Some(joined) })
}

/// Whether beginning this write may wait for a buffer to be flushed: by one thread only after what it began is
/// finished.
pub fn may_wait(db: &Db, batch: &WriteBatch) -> bool {
    // The height of an entry is drawn; this is the highest.
    const LINKS_BYTES_MAX: usize = 256;
    let active = db.engine.commit.active();
    let bytes = Memtable::bytes_for(batch.entries(), 0) + LINKS_BYTES_MAX * batch.len();
    active.used_bytes() + bytes > active.capacity_bytes() && !db.engine.may_add_buffer(bytes)
}

impl Begun {
    /// The second half: returns when the write is visible, and durable as asked.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn finish(mut self) -> Result<()> {
        self.joined.take().map_or(Ok(()), |joined| self.db.engine.complete(joined))
    }
}

/// The pool of a database that has one.
pub fn pool(db: &Db) -> Option<Arc<Pool>> {
    db.engine.pm.clone()
}
