//! The durability and check sites of this crate, each with the failure that it prevents.

firn_base::sites! {
    /// Syncs an ended log before level 0 points into it. Otherwise entries of it may be evicted and
    /// older logs lost.
    LOG_FLUSH_SYNC = "log.flush.sync";
    /// Syncs the part of a log that the pool had, after it was written to the file. Otherwise
    /// leaves may point to bytes that a power cut took.
    LOG_SETTLE_SYNC = "log.settle.sync";
    /// Syncs the log for `Durability::Power`. Otherwise an acknowledged write may be lost.
    LOG_SYNC = "log.sync";
    /// Syncs earlier logs that ended without a sync. Otherwise acknowledged writes may be preceded
    /// by a hole.
    LOG_SEALED_SYNC = "log.sealed.sync";
    /// Syncs the names of logs before a record that needs them is durable. Otherwise acknowledged
    /// writes may be in a file without a name.
    LOG_NAMES_SYNC = "log.names.sync";
    /// Syncs the header of a log whose frames go to persistent memory. Otherwise recovery does not
    /// look for them.
    LOG_BUFFERED_HEADER_SYNC = "log.buffered_header.sync";
    /// As `LOG_BUFFERED_HEADER_SYNC`, for the next log.
    LOG_NEXT_HEADER_SYNC = "log.next_header.sync";
    /// Syncs the contents of a half after they were written to the file. Otherwise they may be in
    /// neither once the half is used again.
    LOG_DRAIN_SYNC = "log.drain.sync";
    /// Fences the header of a half that is used again. Otherwise frames may be read as if they were
    /// at another offset.
    LOG_HALF_FENCE = "log.half.fence";
    /// Fences a frame in persistent memory. Otherwise an acknowledged write may be lost.
    LOG_FRAME_FENCE = "log.frame.fence";
    /// As `LOG_FRAME_FENCE`, for a frame that is split between both halves.
    LOG_FRAME_PART_FENCE = "log.frame_part.fence";
    /// Fences a frame in an extent of its log. Otherwise an acknowledged write may be lost.
    LOG_PLACED_FENCE = "log.placed.fence";
    /// Fences the entries of a group in the write buffers of partitions before their numbers are
    /// committed. Otherwise an acknowledged write may be lost, or be there in part.
    BUFFER_ENTRIES_FENCE = "buffer.entries.fence";
    /// Fences values in the hot buffer before a frame names them. Otherwise the frame may outlive
    /// them.
    HOT_VALUE_FENCE = "hot.value.fence";
    /// Checks the sequence number of a value in a slot of the hot buffer. Otherwise an older
    /// version may return with another version's value.
    HOT_SEQNO_CHECK = "hot.seqno.check";
    /// Checks a half's header.
    LOG_HALF_CHECK = "log.half.check";
    /// Checks a log file's header. Otherwise another database's log may be replayed.
    LOG_HEADER_CHECK = "log.header.check";
    /// Checks a frame's header. Otherwise a torn or old frame may be replayed.
    LOG_FRAME_CHECK = "log.frame.check";
    /// Checks a frame's keys.
    LOG_KEYS_CHECK = "log.keys.check";
    /// Checks a value.
    LOG_VALUE_CHECK = "log.value.check";
    /// Syncs a record of the manifest, before which its change has not happened.
    MANIFEST_SYNC = "manifest.sync";
    /// Syncs the manifest that recovery found, before the pool acknowledges its records and before
    /// tables are built from the logs it names. Otherwise a power cut may leave a pool or a table
    /// newer than the manifest.
    MANIFEST_REOPEN_SYNC = "manifest.reopen.sync";
    /// Syncs CURRENT's name for the same reason, because the process that renamed it may have been
    /// killed before its own sync.
    CURRENT_REOPEN_SYNC = "current.reopen.sync";
    /// Checks a record of the manifest.
    MANIFEST_CHECK = "manifest.check";
    /// Syncs a new manifest before CURRENT names it.
    SNAPSHOT_SYNC = "snapshot.sync";
    /// Syncs the name of a new manifest before CURRENT names it.
    SNAPSHOT_NAME_SYNC = "snapshot.name.sync";
    /// Syncs the new contents of CURRENT before the rename.
    CURRENT_SYNC = "current.sync";
    /// Replaces CURRENT atomically.
    CURRENT_RENAME = "current.rename";
    /// Syncs CURRENT's name. Otherwise CURRENT may still name the previous manifest after that was
    /// removed.
    CURRENT_NAME_SYNC = "current.name.sync";
    /// Checks CURRENT's line.
    CURRENT_CHECK = "current.check";
    /// Syncs the uuid of a directory's owner before anything else is created in it. Otherwise the
    /// remains of an interrupted creation look like another database's.
    LOCK_SYNC = "lock.sync";
    /// Syncs the name of the file with the owner's uuid.
    LOCK_NAME_SYNC = "lock.name.sync";
    /// Replaces OPTIONS atomically.
    OPTIONS_RENAME = "options.rename";
    /// Syncs the names of new tables before the manifest names them.
    SST_NAMES_SYNC = "sst.names.sync";
    /// Syncs a table that was copied to a checkpoint.
    CHECKPOINT_COPY_SYNC = "checkpoint.copy.sync";
    /// Syncs a damaged file that was copied to `lost/`.
    REPAIR_COPY_SYNC = "repair.copy.sync";
    /// Replaces the cached rows of the keys in a flushed memtable. Otherwise gets may find
    /// overwritten values.
    ROWS_REPLACE = "rows.replace";
    /// Syncs the names in `lost/` before a manifest is written that no longer names the damaged
    /// files.
    REPAIR_LOST_SYNC = "repair.lost.sync";
}
