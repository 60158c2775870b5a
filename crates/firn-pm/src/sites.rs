//! The sites of this crate: what would go wrong without each.

firn_base::sites! {
    /// The ragged ends of a copy past the cache, which go through it: else the first and last line may be lost.
    PM_EDGE_FLUSH = "pm.edge.flush";
    /// The length of a file under a pool, and its zeros: else a cut leaves it short, or with whatever was there.
    PM_SPACE_SYNC = "pm.space.sync";
    /// All of a new pool but its magic: else a pool that says it is one may have no root.
    PM_CREATE_FLUSH = "pm.create.flush";
    /// Orders that before the magic.
    PM_CREATE_FENCE = "pm.create.fence";
    /// The same, where the pool is a file.
    PM_CREATE_SYNC = "pm.create.sync";
    /// What an open found and trusts, durable with the session word: else a power cut takes what a killed process left.
    PM_REOPEN_FLUSH = "pm.reopen.flush";
    /// A root record: else a commit that was acknowledged may be gone.
    PM_ROOT_FENCE = "pm.root.fence";
    /// The same, where the pool is a file.
    PM_ROOT_SYNC = "pm.root.sync";
    /// The word that says how the session ended: else a crash may look like a clean close.
    PM_SESSION_FLUSH = "pm.session.flush";
    /// The same.
    PM_SESSION_FENCE = "pm.session.fence";
    /// The same, where the pool is a file.
    PM_SESSION_SYNC = "pm.session.sync";
    /// Immutable extents, where the pool is a file: else a root may name what is not there.
    PM_PERSIST_SYNC = "pm.persist.sync";
    /// The header line: else a damaged size or uuid is believed.
    PM_HEADER_CHECK = "pm.header.check";
    /// The header line of a pool without magic: else a damaged pool is created anew.
    PM_MAGIC_CHECK = "pm.magic.check";
    /// The session word: else a damaged one is believed.
    PM_SESSION_CHECK = "pm.session.check";
    /// A root record: else half of one is a root.
    PM_ROOT_CHECK = "pm.root.check";
}
