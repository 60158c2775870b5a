//! The sites of this crate: what would go wrong without each.

firn_base::sites! {
    /// An ended log, before level 0 has pointers into it: else it is evicted from, and older logs are lost.
    LOG_FLUSH_SYNC = "log.flush.sync";
    /// What a pool had of a log, in its file: else leaves point to what a power cut took.
    LOG_SETTLE_SYNC = "log.settle.sync";
    /// The log, for `Durability::Power`: else what was acknowledged may be lost.
    LOG_SYNC = "log.sync";
    /// Logs that ended before this one and were not synced: else what is acknowledged has a hole in front.
    LOG_SEALED_SYNC = "log.sealed.sync";
    /// The names of logs, before a record that needs them is durable: else what is acknowledged is in a file without a
    /// name.
    LOG_NAMES_SYNC = "log.names.sync";
    /// The header of a log whose frames go to persistent memory: else nobody looks for them.
    LOG_BUFFERED_HEADER_SYNC = "log.buffered_header.sync";
    /// The same, of the log that follows.
    LOG_NEXT_HEADER_SYNC = "log.next_header.sync";
    /// What a half held, in the file: else it is in neither once the half is used again.
    LOG_DRAIN_SYNC = "log.drain.sync";
    /// The header of a half that is used again: else frames are taken to lie elsewhere.
    LOG_HALF_FENCE = "log.half.fence";
    /// A frame in persistent memory: else what was acknowledged may be lost.
    LOG_FRAME_FENCE = "log.frame.fence";
    /// The same, of a frame that lies in both halves.
    LOG_FRAME_PART_FENCE = "log.frame_part.fence";
    /// A frame in an extent of its log: else what was acknowledged may be lost.
    LOG_PLACED_FENCE = "log.placed.fence";
    /// Values in the hot buffer, before a frame names them: else the frame outlives what it names.
    HOT_VALUE_FENCE = "hot.value.fence";
    /// Whose value is in a slot of the hot buffer: else an older version comes back with another's value.
    HOT_SEQNO_CHECK = "hot.seqno.check";
    /// A half's header.
    LOG_HALF_CHECK = "log.half.check";
    /// A log file's header: else another database's log is replayed.
    LOG_HEADER_CHECK = "log.header.check";
    /// A frame's header: else a torn or an old frame is replayed.
    LOG_FRAME_CHECK = "log.frame.check";
    /// A frame's keys.
    LOG_KEYS_CHECK = "log.keys.check";
    /// A value.
    LOG_VALUE_CHECK = "log.value.check";
    /// A record of the manifest: before it is durable nothing has happened.
    MANIFEST_SYNC = "manifest.sync";
    /// The manifest as recovery found it, before the pool says that it knows its records and tables are made of the
    /// logs that it names: else a power cut leaves a pool or a table that is newer than the manifest.
    MANIFEST_REOPEN_SYNC = "manifest.reopen.sync";
    /// That CURRENT names it, for the same reason: whoever renamed it may have been killed before its sync.
    CURRENT_REOPEN_SYNC = "current.reopen.sync";
    /// A record of the manifest.
    MANIFEST_CHECK = "manifest.check";
    /// A new manifest, before CURRENT names it.
    SNAPSHOT_SYNC = "snapshot.sync";
    /// Its name.
    SNAPSHOT_NAME_SYNC = "snapshot.name.sync";
    /// What CURRENT is going to hold.
    CURRENT_SYNC = "current.sync";
    /// CURRENT changes as a whole.
    CURRENT_RENAME = "current.rename";
    /// CURRENT's name: else the manifest that it named before is gone and it still names that.
    CURRENT_NAME_SYNC = "current.name.sync";
    /// CURRENT's line.
    CURRENT_CHECK = "current.check";
    /// Whose directory it is, before anything else is in it: else what a cut creation left is taken for a stranger's.
    LOCK_SYNC = "lock.sync";
    /// The name of the file that says so.
    LOCK_NAME_SYNC = "lock.name.sync";
    /// OPTIONS changes as a whole.
    OPTIONS_RENAME = "options.rename";
    /// The names of new tables, before the manifest names them.
    SST_NAMES_SYNC = "sst.names.sync";
    /// A table that is copied to a checkpoint.
    CHECKPOINT_COPY_SYNC = "checkpoint.copy.sync";
    /// A damaged file that is copied to `lost/`.
    REPAIR_COPY_SYNC = "repair.copy.sync";
    /// Rows of keys that a flushed buffer has: else gets find what was overwritten.
    ROWS_REPLACE = "rows.replace";
    /// The names in `lost/`, before a manifest stands that does not name the damaged files.
    REPAIR_LOST_SYNC = "repair.lost.sync";
}
