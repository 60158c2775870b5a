//! The numbers of a design that its paper sets or leaves open: one struct per profile.

use firn_base::{Error, Result};

/// All of them; a profile looks at its own.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    /// Of the profile `block`.
    pub block: BlockTuning,
    /// Of the profile `lab`.
    pub lab: LabTuning,
}

/// Level 0 in persistent memory (LAB-DB, 3.2).
#[derive(Debug, Clone, PartialEq)]
pub struct LabTuning {
    /// Bytes for the leaves of both trees, when they are created. Default: three quarters of what the log's buffer
    /// leaves of the pool; without one that is durable at the fence an eighth of `memory_limit`.
    pub tree_bytes: Option<u64>,
    /// Bytes at which a leaf is cut. Default: 1,024.
    pub leaf_bytes: u32,
    /// The share of `tree_bytes` in use at which entries are moved to level 1, 0.1 to 0.8. Default: 0.75, the paper's.
    pub evict_share: f64,
    /// Logs with values of level 0 may hold this share of the data's bytes before entries are moved to level 1 for
    /// their sake, 0.01 to 10. Default: 0.25, the paper's.
    pub log_share_max: f64,
    /// And so many bytes at most. Default: 20 GiB, the paper's.
    pub log_bytes_max: u64,
    /// Write buffers of which less than this share of the keys was written lately, as long ago as trees reach back, go
    /// past empty trees into tables of level 0, 0 to 1: what is not written again while it is in the trees is dearer
    /// there. With 0 all go into the trees, as in the paper. Where logs lie in persistent memory all do. Default: 0.25.
    pub reuse_min: f64,
    /// While nothing is written, for 10 seconds or since somebody began to wait for background work, entries are moved
    /// once logs hold this share of what they may, 0 to 1: neighbours are read together in level 1, and one by one from
    /// logs. But for trees of which it is known that they take what is written again (`reuse_min`). Default: 0.25.
    pub rest_share: f64,
    /// Once no more than this share of the immutable tree's leaves is left, entries of the oldest logs are moved first,
    /// before that those of neighbouring leaves, 0 for never to 1. Default: 0.2, the paper's (3.3).
    pub by_log_share: f64,
    /// Bytes of the hot buffer, when it is created: values of keys that are written again and again are kept there, not
    /// in the log. Needs a pool that is durable at the fence. Default: an eighth of what the log's buffer leaves of the
    /// pool, if there is room for it; 0 for none.
    pub hot_bytes: Option<u64>,
    /// Where logs lie. Needs a pool that is durable at the fence, and beside everything else room for a write buffer
    /// per log. Default: on the SSD.
    pub log_placement: LogPlacement,
    /// A key is hot once it was written so often lately, 1 to 200; more often if the buffer has no room. Default: 4.
    pub hot_writes: u8,
    /// Whether tables below level 0 take what comes from above by appends, as in profile `block` and with its numbers.
    /// Default: no.
    pub block_grained: bool,
}

impl Default for LabTuning {
    fn default() -> Self {
        Self {
            tree_bytes: None,
            leaf_bytes: 1024,
            evict_share: 0.75,
            log_share_max: 0.25,
            log_bytes_max: 20 << 30,
            reuse_min: 0.25,
            rest_share: 0.25,
            by_log_share: 0.2,
            hot_bytes: None,
            hot_writes: 4,
            log_placement: LogPlacement::Ssd,
            block_grained: false,
        }
    }
}

/// Where the logs of profile `lab` lie (LAB-DB, 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogPlacement {
    /// On the SSD, behind a buffer in persistent memory.
    #[default]
    Ssd,
    /// In what persistent memory has room for, and on the SSD what it has not.
    Rest,
    /// In persistent memory; a write that finds no room there fails.
    Pm,
}

impl LabTuning {
    /// # Errors
    /// `Invalid`, naming the number that is out of its range.
    pub(crate) fn check(&self) -> Result<()> {
        within("lab.evict_share", self.evict_share, 0.1, 0.8)?;
        within("lab.log_share_max", self.log_share_max, 0.01, 10.0)?;
        within("lab.rest_share", self.rest_share, 0.0, 1.0)?;
        within("lab.reuse_min", self.reuse_min, 0.0, 1.0)?;
        within("lab.by_log_share", self.by_log_share, 0.0, 1.0)?;
        within("lab.hot_writes", f64::from(self.hot_writes), 1.0, 200.0)
    }

    /// Entries with keys of about `key_bytes` that trees of `tree_bytes` hold until they are evicted.
    pub(crate) fn entries_max(&self, tree_bytes: u64, key_bytes: u64) -> u64 {
        /// A pointer, a number, and what leaves leave free.
        const BESIDE_KEY: u64 = 16;
        (tree_bytes as f64 * self.evict_share) as u64 / (key_bytes + BESIDE_KEY)
    }

    /// Bytes of a pool with room for trees of `tree_bytes` and nothing else.
    pub(crate) fn pool_bytes(&self, tree_bytes: u64) -> u64 {
        const ROOTS_AND_GRANULES: u64 = 64 << 10;
        // The directory has three words of eight bytes for each leaf of full size.
        tree_bytes + tree_bytes * 24 / u64::from(self.leaf_bytes.max(1)) + ROOTS_AND_GRANULES
    }

    /// Bytes for leaves in a pool of `pool_bytes` in which the log takes `log_buffer_bytes`.
    pub(crate) fn tree_bytes_in(&self, pool_bytes: u64, log_buffer_bytes: u64) -> u64 {
        self.tree_bytes.unwrap_or(pool_bytes.saturating_sub(log_buffer_bytes) / 4 * 3)
    }

    /// Bytes for the hot buffer in a pool of `pool_bytes` in which the log takes `log_buffer_bytes`.
    pub(crate) fn hot_bytes_in(&self, pool_bytes: u64, log_buffer_bytes: u64) -> u64 {
        self.hot_bytes.unwrap_or(pool_bytes.saturating_sub(log_buffer_bytes) / 8)
    }
}

/// A number for the levels in between and one for the last level, which holds most of the data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ByLevel<T> {
    /// For levels with a level below them.
    pub middle: T,
    /// For the last level that holds anything.
    pub last: T,
}

impl<T: Copy> ByLevel<T> {
    pub(crate) fn of(self, is_last: bool) -> T {
        if is_last { self.last } else { self.middle }
    }
}

/// Where the limits of block-grained compaction on dead and dirty bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GrainLimits {
    /// From what an append costs and saves, level by level: bytes written now against scans and space later.
    #[default]
    Cost,
    /// From `live_share_min`, `dirty_share_max` and `saving_min`.
    Constants,
}

/// When block-grained compaction gives way to table-grained (BlockDB, IV). The paper names the limits and no values,
/// except for the filter's (40 % and 10 %) and the deletion's; most others are those of its authors' code, of which
/// there are two states: these are of the later one. Filters reserve more than the paper's bits: under a load of new
/// keys they were what ended nearly every series of appends (`docs/perf.md`).
#[derive(Debug, Clone, PartialEq)]
pub struct BlockTuning {
    /// Where limits on dead and dirty bytes come from. Default: from cost.
    pub grain_limits: GrainLimits,
    /// A table with more live bytes than so many times the target size of a table is cut into several.
    pub live_tables_max: ByLevel<f64>,
    /// With constants: a table of which less than this share is live is written anew, 0 to 1.
    pub live_share_min: ByLevel<f64>,
    /// With constants: if more than this share of a table's live bytes would be written anyway, all is, 0 to 1.
    pub dirty_share_max: ByLevel<f64>,
    /// With constants: an append must save at least this share of the bytes that writing a table anew takes, 0 to 1.
    /// Default: 0.3.
    pub saving_min: f64,
    /// Bytes that one scan through a table that grew costs more than through one that did not: about what a device
    /// moves in the time of one more read. Default: 16 KiB; 0 counts no scans.
    pub scan_bytes: u64,
    /// Bits that filters reserve for keys to come, in percent of the keys that are there. Default: 300 and 20.
    pub filter_reserve_percent: ByLevel<u32>,
    /// The most bits that they reserve, as a share of a table's data, 0 to 1: where entries are small, room for many
    /// more would cost what it is to save. Default: a 128th.
    pub filter_reserve_share_max: f64,
    /// The most dead bytes per live byte, over all tables. Default: 0.18.
    pub dead_share_max: f64,
    /// Obsolete tables are removed once they come to so many bytes, or when there is nothing else to do. Default:
    /// 200 MB, as in the paper.
    pub lazy_delete_bytes: u64,
}

impl Default for BlockTuning {
    fn default() -> Self {
        Self {
            grain_limits: GrainLimits::default(),
            live_tables_max: ByLevel { middle: 4.0, last: 1.5 },
            live_share_min: ByLevel { middle: 0.4, last: 0.8 },
            dirty_share_max: ByLevel { middle: 0.8, last: 0.4 },
            saving_min: 0.3,
            scan_bytes: 16 << 10,
            filter_reserve_percent: ByLevel { middle: 300, last: 20 },
            filter_reserve_share_max: 1.0 / 128.0,
            dead_share_max: 0.18,
            lazy_delete_bytes: 200_000_000,
        }
    }
}

impl BlockTuning {
    /// # Errors
    /// `Invalid`, naming the number that is out of its range.
    pub(crate) fn check(&self) -> Result<()> {
        let both = |name: &str, pair: ByLevel<f64>, least, most| {
            within(&format!("block.{name}.middle"), pair.middle, least, most)?;
            within(&format!("block.{name}.last"), pair.last, least, most)
        };
        both("live_tables_max", self.live_tables_max, 1.0, 1000.0)?;
        both("live_share_min", self.live_share_min, 0.0, 1.0)?;
        both("dirty_share_max", self.dirty_share_max, 0.0, 1.0)?;
        within("block.saving_min", self.saving_min, 0.0, 1.0)?;
        let ByLevel { middle, last } = self.filter_reserve_percent;
        both("filter_reserve_percent", ByLevel { middle: f64::from(middle), last: f64::from(last) }, 0.0, 1000.0)?;
        within("block.filter_reserve_share_max", self.filter_reserve_share_max, 0.0, 1.0)?;
        within("block.dead_share_max", self.dead_share_max, 0.0, 10.0)
    }
}

fn within(name: &str, value: f64, least: f64, most: f64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("tuning.{name} is {value}; it must be from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        assert!(BlockTuning::default().check().is_ok());
        let wrong = BlockTuning { live_share_min: ByLevel { middle: 0.4, last: 1.5 }, ..BlockTuning::default() };
        let message = wrong.check().unwrap_err().to_string();
        assert!(message.contains("live_share_min.last") && message.contains("1.5"), "{message}");
        let wrong = BlockTuning { dead_share_max: f64::NAN, ..BlockTuning::default() };
        assert!(wrong.check().unwrap_err().to_string().contains("dead_share_max"));
        assert!(LabTuning::default().check().is_ok());
        for share in [-0.1, 1.1, f64::NAN] {
            let wrong = LabTuning { by_log_share: share, ..LabTuning::default() };
            assert!(wrong.check().unwrap_err().to_string().contains("tuning.lab.by_log_share"));
            let wrong = LabTuning { reuse_min: share, ..LabTuning::default() };
            assert!(wrong.check().unwrap_err().to_string().contains("tuning.lab.reuse_min"));
        }
    }
}
