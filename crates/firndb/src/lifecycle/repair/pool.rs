//! The pool of a database that is repaired.
//!
//! What a tree holds and what went from a log into a table must not be seen together: an entry of the tree would stand
//! in front of a newer one. So the new manifest names a root of the pool that is yet to come, the one without trees,
//! and that is committed next. A repair that is cut between the two is made again: an open refuses the pool as an older
//! one, and so it does with one that was left out and comes back, whose database has another uuid by then.

use crate::manifest::{PmPairing, Version};
use crate::options::{Options, Profile};
use firn_base::{Error, ErrorKind, Result};
use firn_pm::{Backend, Fenced, Owner, Pool, Root};

/// The pool that `options` name as the last session left it, or why it cannot be read; `None` if it holds nothing.
///
/// # Errors
/// Those of a pool that is sound, but not this database's or not what `options` say.
pub(super) fn read(options: &Options, uuid: [u8; 16]) -> Result<Option<Result<Pool>>> {
    let Some(config) = &options.pm else { return Ok(None) };
    let opened = match &options.environment.memory {
        Some(memory) => Pool::open_simulated_read_only(memory, uuid),
        None if config.backend == Backend::Volatile => return Ok(None),
        None => Pool::open_read_only(config, uuid),
    };
    match opened {
        Err(error) if !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound) => Err(error),
        opened => Ok(Some(opened)),
    }
}

/// Refuses to leave out a pool that a part of the database is in.
pub(super) fn refuse_without(known: &Version) -> Result<()> {
    let paired = known.pm.map_or(0, |pm| pm.generation);
    if paired > 0 && (known.log_ends_in_pool() || Profile::from_number(known.profile) == Some(Profile::Lab)) {
        let message = "a part of this database is in a persistent-memory pool: set `pm` to it; if that pool is lost, \
                       move CURRENT away and repair again, which makes the best of the logs (deleted keys may come \
                       back)";
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    Ok(())
}

/// Whether a pool and a manifest are of one time.
pub(super) enum Age {
    Same,
    /// A repair was cut when its manifest stood and the pool still had its trees.
    CutRepair,
    Other(String),
}

/// How old the pool with `root` is beside what the manifest says, if it can be read.
pub(super) fn age(root: &Root, known: Option<&Version>) -> Age {
    let Some(known) = known else { return Age::Same };
    let paired = known.pm.map_or(0, |pm| pm.generation);
    // A repair's manifest says of everything so far that it is in tables, and of no tree.
    let is_of_repair = known.evicted.is_none() && known.evicted_through == known.last_seqno;
    if root.generation + 1 == paired && is_of_repair {
        return Age::CutRepair;
    }
    if root.generation < paired {
        return Age::Other(format!("its root is of generation {}, older than {paired}", root.generation));
    }
    match root.applied_edit > known.edit_id {
        true => Age::Other(format!("it knows edit {}, the manifest is older", root.applied_edit)),
        false => Age::Same,
    }
}

/// What the new manifest says of `pool`.
pub(super) fn pairing(pool: Option<&Pool>) -> Option<PmPairing> {
    pool.map(|pool| PmPairing { generation: pool.root().generation + 1 })
}

/// Commits the root that [`pairing`] spoke of. Space that it does not name is free from the next open on.
pub(super) fn leave_without_trees(options: &Options, uuid: [u8; 16]) -> Result<()> {
    let Some(config) = &options.pm else { return Ok(()) };
    let pool = match &options.environment.memory {
        Some(memory) => Pool::open_simulated(memory, uuid)?,
        None => Pool::open_or_create(config, uuid)?,
    };
    pool.finish_recovery()?;
    pool.commit_with(Fenced::nothing(), |root| {
        root.entries.retain(|entry| !matches!(entry.owner, Owner::Btree | Owner::Hot | Owner::Log));
        Ok(())
    })?;
    pool.close()
}
