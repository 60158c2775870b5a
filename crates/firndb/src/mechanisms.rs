//! The mechanisms of the designs, row by row of their tables: nothing is lost without one, but a test that shows the
//! mechanism must then fail.

firn_base::sites! {
    /// Tables take what comes from above by appends (block_02).
    BLOCK_APPEND = "block.append";
    /// A small block beside what is written is taken along (block_02).
    BLOCK_COALESCE = "block.coalesce";
    /// Reads of dirty blocks go on at the same time (block_03).
    BLOCK_READS = "block.reads";
    /// What stays clean stays cached (block_04).
    BLOCK_CACHED = "block.cached";
    /// Limits and cost decide table by table (block_05).
    BLOCK_SELECTIVE = "block.selective";
    /// Sub-tasks run on several workers (block_06).
    BLOCK_PARALLEL = "block.parallel";
    /// Obsolete tables are removed in batches (block_07).
    BLOCK_LAZY = "block.lazy";
    /// Filters reserve bits (block_08).
    BLOCK_RESERVE = "block.reserve";
    /// On middle levels they reserve more than on the last (block_08).
    BLOCK_RESERVE_BY_LEVEL = "block.reserve_by_level";
    /// A table that is read in vain too often is compacted (block_09).
    BLOCK_SEEKS = "block.seeks";
    /// A table that overlaps nothing is moved (block_09).
    BLOCK_MOVE = "block.move";
    /// Dead bytes have a limit over all tables (block_11).
    BLOCK_SPACE = "block.space";
    /// Flushes go into trees (lab_01).
    LAB_TREES = "lab.trees";
    /// One entry a key: what no snapshot sees is let go of (lab_03).
    LAB_IN_PLACE = "lab.in_place";
    /// The log goes through persistent memory (lab_04).
    LAB_LOG_BUFFER = "lab.log_buffer";
    /// The log's values live on as level 0's data, and are not written again (lab_05).
    LAB_VALUES = "lab.values";
    /// Buffered entries know where the log has their values, so that a flush makes pointers (lab_06).
    LAB_ADDRESSES = "lab.addresses";
    /// A flush puts many entries in at a time (lab_07).
    LAB_BULK = "lab.bulk";
    /// The immutable tree is evicted a chunk at a time (lab_08).
    LAB_CHUNKS = "lab.chunks";
    /// The last fifth of a tree is evicted by log (lab_09).
    LAB_BY_LOG = "lab.by_log";
    /// Values of hot keys go to persistent memory (lab_11).
    LAB_HOT = "lab.hot";
    /// What logs hold makes an eviction due (lab_10).
    LAB_LOGS = "lab.logs";
    /// What is in leaves that outlive the process is not replayed (lab_13).
    LAB_RECOVERY = "lab.recovery";
    /// Nothing but flushes begins while an eviction is due (lab_14).
    LAB_FIRST = "lab.first";
    /// Logs lie where `log_placement` says (lab_15).
    LAB_PLACEMENT = "lab.placement";
    /// A value that was read from a log is cached (lab_12).
    LAB_CACHED = "lab.cached";
}
