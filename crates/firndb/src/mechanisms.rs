//! The mechanisms of the designs, by the rows of their tables. No data is lost when one is switched
//! off, but the test that shows it must then fail.

firn_base::sites! {
    /// Compactions append to tables (block_02).
    BLOCK_APPEND = "block.append";
    /// A small block next to a rewritten one is rewritten with it (block_02).
    BLOCK_COALESCE = "block.coalesce";
    /// Dirty blocks are read concurrently (block_03).
    BLOCK_READS = "block.reads";
    /// Clean blocks stay cached (block_04).
    BLOCK_CACHED = "block.cached";
    /// Limits and cost decide for each table (block_05).
    BLOCK_SELECTIVE = "block.selective";
    /// Sub-tasks run on several workers (block_06).
    BLOCK_PARALLEL = "block.parallel";
    /// Filters of middle levels reserve more than those of the last (block_08).
    BLOCK_RESERVE_BY_LEVEL = "block.reserve_by_level";
    /// A table with too many reads without a result is compacted (block_09).
    BLOCK_SEEKS = "block.seeks";
    /// A table without overlap is moved (block_09).
    BLOCK_MOVE = "block.move";
    /// Dead bytes are limited over all tables (block_11).
    BLOCK_SPACE = "block.space";
    /// Memtables are flushed into trees (lab_01).
    LAB_TREES = "lab.trees";
    /// A tree has one entry per key: a replaced version that no snapshot sees is dropped (lab_03).
    LAB_IN_PLACE = "lab.in_place";
    /// Values in the log become level 0's data and are not written again (lab_05).
    LAB_VALUES = "lab.values";
    /// Memtable entries know the addresses of their values in the log, so that a flush writes
    /// pointers (lab_06).
    LAB_ADDRESSES = "lab.addresses";
    /// A flush inserts many entries at a time (lab_07).
    LAB_BULK = "lab.bulk";
    /// The immutable tree is evicted a chunk at a time (lab_08).
    LAB_CHUNKS = "lab.chunks";
    /// The size of the logs can make an eviction due (lab_10).
    LAB_LOGS = "lab.logs";
    /// Entries in leaves that outlive the process are not replayed (lab_13).
    LAB_RECOVERY = "lab.recovery";
    /// Only flushes start while an eviction is due (lab_14).
    LAB_FIRST = "lab.first";
    /// A value read from a log is cached (lab_12).
    LAB_CACHED = "lab.cached";
    /// Tables are lists in persistent memory (tlsm_01).
    TLSM_LISTS = "tlsm.lists";
    /// A compaction links entries instead of copying them (tlsm_03).
    TLSM_LINK = "tlsm.link";
    /// Lists end at a size (tlsm_04).
    TLSM_SPLIT = "tlsm.split";
    /// A list names the inputs of the job that makes it (tlsm_05).
    TLSM_INPUTS = "tlsm.inputs";
    /// The space of a list is freed once nothing refers to it (tlsm_06).
    TLSM_FREE = "tlsm.free";
    /// Entries move out of chunks that are mostly garbage (tlsm_06).
    TLSM_RELOCATE = "tlsm.relocate";
    /// A compaction that a crash cut short goes on (tlsm_10).
    TLSM_RESUME = "tlsm.resume";
    /// Searches in vain are weighed against a merge in persistent memory (blade_05).
    BLADE_WASTE = "blade.waste";
    /// Entries that a merge in persistent memory drops are weighed against its cost (blade_06).
    BLADE_REPEATS = "blade.repeats";
    /// Reads keep a partition in persistent memory (blade_07).
    BLADE_HEAT = "blade.heat";
    /// The share of persistent memory that stays in use follows the share of reads (blade_07).
    BLADE_READ_SHARE = "blade.read_share";
    /// Entries that are read stay in persistent memory when their partition leaves (blade_07).
    BLADE_SIEVE = "blade.sieve";
    /// Writes of compactions leave room for reads in flight (blade_09).
    BLADE_ADMISSION = "blade.admission";
    /// Flushed tables go on top of what their ranges have (pmdb_04).
    PMDB_STACKS = "pmdb.stacks";
    /// A range that is too large is divided (pmdb_05).
    PMDB_DIVIDE = "pmdb.divide";
    /// Each partition has a write buffer in persistent memory, and there is no log (pmdb_01).
    PMDB_BUFFERS = "pmdb.buffers";
    /// A tree has the blocks of the tables of a range (pmdb_07).
    PMDB_TREES = "pmdb.trees";
}
