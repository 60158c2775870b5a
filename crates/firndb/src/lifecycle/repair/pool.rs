//! The pool of a database that is being repaired.
//!
//! The entries of a tree and a table made from a log must never be visible together, because an
//! entry of the tree would hide a newer one. So the new manifest names a future root of the pool,
//! the one without trees, which is committed next. If a repair is interrupted between the two, it
//! must be repeated: until then an open rejects the pool as an older one. It also rejects a pool
//! that was left out and returns later, because the database has another uuid by then. The same
//! root has no write buffers. Their entries are in the new tables, which the manifest names, or in
//! the buffers, which a repeated repair reads again: the new manifest tells which.

use crate::manifest::{PmPairing, Version};
use crate::options::{Options, Profile};
use firn_base::{Error, ErrorKind, Result};
use firn_pm::{Backend, Fenced, Owner, Pool, Root};

/// The pool that `options` name, as the last session left it, or the reason why it cannot be read;
/// `None` if the options name no pool that outlives a process.
///
/// # Errors
/// The errors of a pool that is sound, but is not this database's or does not match `options`.
pub(super) fn read(options: &Options, uuid: [u8; 16]) -> Result<Option<Result<Pool>>> {
    let Some(config) = &options.pm else {
        return Ok(None);
    };
    let opened = match &options.environment.memory {
        Some(memory) => Pool::open_simulated_read_only(memory, uuid),
        None if config.backend == Backend::Volatile => return Ok(None),
        None => Pool::open_read_only(config, uuid),
    };
    match opened {
        Err(error) if !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound) => {
            Err(error)
        }
        opened => Ok(Some(opened)),
    }
}

/// Rejects a repair without the pool if a part of the database is in it.
pub(super) fn refuse_without(known: &Version) -> Result<()> {
    let paired = known.pm.map_or(0, |pm| pm.generation);
    let has_tables = known.tables().any(|table| !table.is_file());
    let has_trees = Profile::from_number(known.profile) == Some(Profile::Lab);
    if paired > 0 && (known.log_ends_in_pool() || has_trees || has_tables) {
        let message = "a part of this database is in a persistent-memory pool: set `pm` to it; if that pool is lost, \
                       move CURRENT away and repair again, which makes the best of the logs (deleted keys may come \
                       back)";
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    refuse_without_buffers(known)
}

/// Rejects a repair without the pool if the newest entries are in write buffers there.
pub(super) fn refuse_without_buffers(known: &Version) -> Result<()> {
    let paired = known.pm.map_or(0, |pm| pm.generation);
    match paired > 0 && known.holds_entries {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::Incompatible,
            "the newest entries of this database are in write buffers in a persistent-memory pool: set `pm` to it; if \
             its file is gone, a repair then makes the best of the tables and reports that these entries are lost",
        )),
    }
}

/// The age of a pool relative to a manifest.
pub(super) enum Age {
    Same,
    /// A repair was interrupted after its manifest was durable and before the pool lost its trees.
    CutRepair,
    Other(String),
}

/// The age of the pool with `root` relative to the manifest, if that can be read.
pub(super) fn age(root: &Root, known: Option<&Version>) -> Age {
    let Some(known) = known else { return Age::Same };
    let paired = known.pm.map_or(0, |pm| pm.generation);
    // A repair's manifest says that everything so far is in tables, and names no tree.
    let is_of_repair = known.evicted.is_none() && known.evicted_through == known.last_seqno;
    if root.generation + 1 == paired && is_of_repair {
        return Age::CutRepair;
    }
    if root.generation < paired {
        return Age::Other(format!(
            "its root is of generation {}, older than {paired}",
            root.generation
        ));
    }
    match root.applied_edit > known.edit_id {
        true => Age::Other(format!(
            "it knows edit {}, the manifest is older",
            root.applied_edit
        )),
        false => Age::Same,
    }
}

/// The pairing with `pool` for the new manifest.
pub(super) fn pairing(pool: Option<&Pool>) -> Option<PmPairing> {
    pool.map(|pool| PmPairing {
        generation: pool.root().generation + 1,
    })
}

/// Commits the root that [`pairing`] announced. Space that it does not name is free from the next
/// open on.
pub(super) fn leave_without_trees(options: &Options, uuid: [u8; 16]) -> Result<()> {
    let Some(config) = &options.pm else {
        return Ok(());
    };
    let pool = match &options.environment.memory {
        Some(memory) => Pool::open_simulated(memory, uuid)?,
        None => Pool::open_or_create(config, uuid)?,
    };
    pool.finish_recovery()?;
    pool.commit_with(Fenced::nothing(), |root| {
        root.entries.retain(|entry| {
            !matches!(
                entry.owner,
                Owner::Btree | Owner::Hot | Owner::Log | Owner::Skiplist | Owner::WriteBuffer
            )
        });
        Ok(())
    })?;
    pool.close()
}
