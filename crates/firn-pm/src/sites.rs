//! The sites of this crate, each with the failure it prevents.

firn_base::sites! {
    /// The partial lines at the ends of a copy past the cache, which go through it. Without it the
    /// first and last line may be lost.
    PM_EDGE_FLUSH = "pm.edge.flush";
    /// The length of a file under a pool, and its zeros. Without it a crash may leave the file
    /// short or with old contents.
    PM_SPACE_SYNC = "pm.space.sync";
    /// All of a new pool except its magic. Without it a pool with a magic may have no root.
    PM_CREATE_FLUSH = "pm.create.flush";
    /// Orders that before the magic.
    PM_CREATE_FENCE = "pm.create.fence";
    /// The same, if the pool is a file.
    PM_CREATE_SYNC = "pm.create.sync";
    /// The bytes that an open found and trusts, durable with the session word. Without it a power
    /// cut may lose what a killed process left.
    PM_REOPEN_FLUSH = "pm.reopen.flush";
    /// The bytes of an unfinished structure that is continued. Without it a power cut may lose
    /// what a killed process left.
    PM_CLAIM_FLUSH = "pm.claim.flush";
    /// A root record. Without it an acknowledged commit may be lost.
    PM_ROOT_FENCE = "pm.root.fence";
    /// The same, if the pool is a file.
    PM_ROOT_SYNC = "pm.root.sync";
    /// The word that says how the session ended. Without it a crash may look like a clean close.
    PM_SESSION_FLUSH = "pm.session.flush";
    /// The same.
    PM_SESSION_FENCE = "pm.session.fence";
    /// The same, if the pool is a file.
    PM_SESSION_SYNC = "pm.session.sync";
    /// Immutable extents, if the pool is a file. Without it a root may name missing bytes.
    PM_PERSIST_SYNC = "pm.persist.sync";
    /// The header line. Without it a damaged size or uuid is accepted.
    PM_HEADER_CHECK = "pm.header.check";
    /// The header line of a pool without magic. Without it a damaged pool is created again.
    PM_MAGIC_CHECK = "pm.magic.check";
    /// The session word. Without it a damaged one is accepted.
    PM_SESSION_CHECK = "pm.session.check";
    /// A root record. Without it half a record is accepted as a root.
    PM_ROOT_CHECK = "pm.root.check";
}
