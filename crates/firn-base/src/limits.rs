//! Every size in the engine that a test wants small, in one struct.

/// Sizes and counts that shape the engine, apart from the user's tuning. [`Limits::default`] is for
/// production. [`Limits::tiny`] runs the same code at 64 KiB, so that a test crosses every boundary
/// within milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Target size of a data block before compression, in bytes.
    pub block_bytes: usize,
    /// Entries between two restart points of a data block.
    pub restart_interval: usize,
    /// Target size of a table made by compaction, in bytes.
    pub table_bytes: u64,
    /// Target size of level 1, in bytes.
    pub level_base_bytes: u64,
    /// The size ratio of each level to the level above it.
    pub level_fan_out: u64,
    /// Number of levels, including level 0.
    pub levels: usize,
    /// Number of level-0 tables at which compaction into level 1 starts.
    pub level0_trigger: usize,
    /// Number of level-0 tables at which it starts while there are no writes, or while a thread
    /// waits for background work; at least 1.
    pub level0_rest: usize,
    /// Number of level-0 tables at which writes begin to be slowed.
    pub level0_slow: usize,
    /// Number of level-0 tables at which writes are slowed the most.
    pub level0_stop: usize,
    /// Number of memtables, the active one included, at which writers wait for a flush.
    pub write_buffers: usize,
    /// Size of a commit group past which it takes no further member, in bytes.
    pub group_bytes: usize,
    /// Size of each half of the persistent-memory log buffer, in bytes; 0 for no such buffer.
    pub pm_log_buffer_bytes: usize,
    /// Size of one read or write of flush and compaction, in bytes.
    pub io_bytes: usize,
    /// Size of MANIFEST past which it is rewritten as a snapshot, in bytes.
    pub manifest_bytes: u64,
    /// For seek compaction: the bytes of a table per fruitless read that it may cost before it is
    /// compacted. Compacting a byte moves some 25 bytes (LevelDB's estimate). Reading a block costs
    /// an SSD of 95,000 reads or 530 MB a second as much as moving 6 KiB.
    pub seek_charge_bytes: u64,
    /// Largest number of partitions. With 1, a profile divides the keys as it sees fit, and most do
    /// not.
    pub partitions_max: usize,
    /// Size of a partition past which it is divided in two, in bytes. Two neighbours that have less
    /// than half of it together become one.
    pub partition_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            block_bytes: 4 << 10,
            restart_interval: 16,
            table_bytes: 64 << 20,
            level_base_bytes: 512 << 20,
            level_fan_out: 10,
            levels: 7,
            level0_trigger: 8,
            level0_rest: 4,
            level0_slow: 20,
            level0_stop: 36,
            write_buffers: 3,
            group_bytes: 1 << 20,
            pm_log_buffer_bytes: 1 << 20,
            io_bytes: 1 << 20,
            manifest_bytes: 4 << 20,
            seek_charge_bytes: 256,
            partitions_max: 1,
            partition_bytes: u64::MAX,
        }
    }
}

impl Limits {
    /// The smallest sizes at which every mechanism still runs: buffers and tables of 16 to 64 KiB.
    pub fn tiny() -> Self {
        Self {
            block_bytes: 512,
            restart_interval: 4,
            table_bytes: 16 << 10,
            level_base_bytes: 64 << 10,
            level_fan_out: 4,
            levels: 5,
            level0_trigger: 3,
            level0_rest: 3,
            level0_slow: 5,
            level0_stop: 10,
            write_buffers: 3,
            group_bytes: 4 << 10,
            pm_log_buffer_bytes: 8 << 10,
            io_bytes: 8 << 10,
            manifest_bytes: 4 << 10,
            seek_charge_bytes: 256,
            partitions_max: 1,
            partition_bytes: u64::MAX,
        }
    }
}
