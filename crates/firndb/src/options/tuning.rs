//! The parameters that a design's paper sets or leaves open: one struct per profile.

use firn_base::{Error, Result};
use firn_table::pm_table::Arrangement;

/// The parameters of all profiles. Each profile reads its own.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    /// Parameters of profile `block`.
    pub block: BlockTuning,
    /// Parameters of profile `lab`.
    pub lab: LabTuning,
    /// Parameters of profile `tlsm`.
    pub tlsm: TlsmTuning,
    /// Parameters of profile `blade`.
    pub blade: BladeTuning,
    /// Parameters of profile `pmdb`.
    pub pmdb: PmdbTuning,
}

/// Parameters of level 0 in persistent memory, in profile `lab` (LAB-DB, 3.2).
#[derive(Debug, Clone, PartialEq)]
pub struct LabTuning {
    /// Bytes for the leaves of both trees, used when the trees are created. Default: three quarters
    /// of the pool without the log's buffer, or an eighth of `memory_limit_bytes` without a pool
    /// that is durable at the fence.
    pub tree_bytes: Option<u64>,
    /// The size of a leaf, in bytes. Default: 1,024.
    pub leaf_bytes: u32,
    /// The fraction of `tree_bytes` in use at which entries are moved to level 1, 0.1 to 0.8.
    /// Default: 0.75, as in the paper.
    pub evict_share: f64,
    /// The size of the logs that hold values of level 0, as a fraction of the data's size, at which
    /// entries are moved to level 1 to free logs, 0.01 to 10. Default: 0.25, as in the paper.
    pub log_share_max: f64,
    /// The upper bound of the same threshold, in bytes. Default: 20 GiB, as in the paper.
    pub log_bytes_max: u64,
    /// Flush a write buffer straight to a level-0 table, bypassing the empty trees, if fewer than
    /// this fraction of its keys was written recently, 0 to 1. "Recently" is as long as entries
    /// stay in the trees. An entry that is not overwritten while it is in the trees costs more
    /// there than in a table. With 0, all write buffers go into the trees, as in the paper, and so
    /// do those whose logs are in persistent memory. Default: 0.25.
    pub reuse_min: f64,
    /// The fraction of the logs' threshold at which entries are moved to level 1 while the database
    /// is at rest, 0 to 1. It is at rest after 10 seconds without a write, or without a write since
    /// a call began to wait for background work. Level 1 stores neighbours together, whereas from
    /// logs each value is read on its own. Trees whose entries are known to be overwritten there
    /// (`reuse_min`) are left alone. Default: 0.25.
    pub rest_share: f64,
    /// The fraction of the immutable tree's leaves, 0 (never) to 1, at or below which entries of
    /// the oldest logs are moved first. Above it, entries of neighbouring leaves are moved
    /// together. Default: 0.2, as in the paper (3.3).
    pub by_log_share: f64,
    /// Bytes of the hot buffer, used when it is created. It keeps the values of frequently written
    /// keys, instead of the log. Needs a pool that is durable at the fence. 0 for none. Default: an
    /// eighth of the pool without the log's buffer, if there is room for it.
    pub hot_bytes: Option<u64>,
    /// The placement of the logs. Placement in persistent memory needs a pool that is durable at
    /// the fence, with room for one write buffer per log in addition to everything else. Default:
    /// on the SSD.
    pub log_placement: LogPlacement,
    /// The number of recent writes that makes a key hot, 1 to 200. It is higher while the hot
    /// buffer has no room. Default: 4.
    pub hot_writes: u8,
    /// True if compactions may append to tables below level 0, as in profile `block` and with its
    /// parameters. Default: false.
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

/// The placement of the logs of profile `lab` (LAB-DB, 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogPlacement {
    /// On the SSD, through a buffer in persistent memory.
    #[default]
    Ssd,
    /// In persistent memory as far as there is room, and the rest on the SSD.
    Rest,
    /// In persistent memory. A write that finds no room there fails.
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

    /// The number of entries with keys of about `key_bytes` that trees of `tree_bytes` hold before
    /// they are evicted.
    pub(crate) fn entries_max(&self, tree_bytes: u64, key_bytes: u64) -> u64 {
        /// A pointer, a sequence number, and the free space of leaves.
        const BESIDE_KEY: u64 = 16;
        (tree_bytes as f64 * self.evict_share) as u64 / (key_bytes + BESIDE_KEY)
    }

    /// Bytes of a pool that has room for trees of `tree_bytes` and nothing else.
    pub(crate) fn pool_bytes(&self, tree_bytes: u64) -> u64 {
        const ROOTS_AND_GRANULES: u64 = 64 << 10;
        // The directory has three words of eight bytes for each leaf of full size.
        tree_bytes + tree_bytes * 24 / u64::from(self.leaf_bytes.max(1)) + ROOTS_AND_GRANULES
    }

    /// Bytes for leaves in a pool of `pool_bytes` of which the log takes `log_buffer_bytes`.
    pub(crate) fn tree_bytes_in(&self, pool_bytes: u64, log_buffer_bytes: u64) -> u64 {
        self.tree_bytes
            .unwrap_or(pool_bytes.saturating_sub(log_buffer_bytes) / 4 * 3)
    }

    /// Bytes for the hot buffer in a pool of `pool_bytes` of which the log takes
    /// `log_buffer_bytes`.
    pub(crate) fn hot_bytes_in(&self, pool_bytes: u64, log_buffer_bytes: u64) -> u64 {
        self.hot_bytes
            .unwrap_or(pool_bytes.saturating_sub(log_buffer_bytes) / 8)
    }
}

/// The tables that are in persistent memory, in profile `tlsm` (TLSM, IV-D).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tiering {
    /// All of them. A write that finds no room there fails.
    None,
    /// The tables of level 0 to this one, as far as there is room.
    Leveled(usize),
    /// All, as far as there is room; then tables leave for the SSD, from the deepest level up.
    #[default]
    Lru,
}

/// The table that leaves persistent memory first, among those of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsmVictim {
    /// The one that was written first.
    #[default]
    Oldest,
    /// The one that was read least recently.
    LeastUsed,
}

/// The parts of the design that are at work, in profile `tlsm` (TLSM, V-C1). For experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsmBuild {
    /// Skiplists alone: compactions copy entries, and each field is persisted by itself (`ps`).
    Skiplists,
    /// The same, but compactions link entries, and each entry is persisted by itself (`ps+bac`).
    Linking,
    /// All of it: entries are persisted together (`ps+bac+pb`).
    #[default]
    Full,
}

/// Parameters of lists in persistent memory, in profile `tlsm`.
#[derive(Debug, Clone, PartialEq)]
pub struct TlsmTuning {
    /// The tables that are in persistent memory. Default: as many as there is room for.
    pub tiering: Tiering,
    /// The table that leaves first. Default: the oldest.
    pub victim: TlsmVictim,
    /// The parts of the design that are at work. Default: all.
    pub build: TlsmBuild,
    /// Bytes for lists. Default: the pool without the log's buffer.
    pub capacity_bytes: Option<u64>,
    /// The unit of allocation, in bytes: a power of two, 4 KiB to 1 MiB. Default: 64 KiB, less in a
    /// pool of less than 256 MiB, and more in one of more than 4 GiB.
    pub unit_bytes: Option<u64>,
    /// The used share of the capacity from which tables leave for the SSD, 0.1 to 0.95. Default:
    /// 0.9.
    pub evict_share: f64,
    /// Garbage per live byte of entries from which entries are moved out of chunks that are mostly
    /// garbage, 0.05 to 10. Default: 0.1.
    pub garbage_share_max: f64,
    /// The live share of a chunk up to which its entries are moved, 0 to 1. Default: 0.5.
    pub relocate_live_max: f64,
}

impl Default for TlsmTuning {
    fn default() -> Self {
        Self {
            tiering: Tiering::default(),
            victim: TlsmVictim::default(),
            build: TlsmBuild::default(),
            capacity_bytes: None,
            unit_bytes: None,
            evict_share: 0.9,
            garbage_share_max: 0.1,
            relocate_live_max: 0.5,
        }
    }
}

impl TlsmTuning {
    /// # Errors
    /// `Invalid`, naming the number that is out of its range.
    pub(crate) fn check(&self) -> Result<()> {
        within("tlsm.evict_share", self.evict_share, 0.1, 0.95)?;
        within("tlsm.garbage_share_max", self.garbage_share_max, 0.05, 10.0)?;
        within("tlsm.relocate_live_max", self.relocate_live_max, 0.0, 1.0)?;
        if let Tiering::Leveled(level) = self.tiering {
            within("tlsm.tiering's level", level as f64, 0.0, 64.0)?;
        }
        let unit = self.unit_bytes.unwrap_or(UNIT_BYTES_MAX);
        match unit.is_power_of_two() && (4096..=UNIT_BYTES_MAX).contains(&unit) {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "tuning.tlsm.unit_bytes is {unit}; it must be a power of two from 4,096 to {UNIT_BYTES_MAX}"
            ))),
        }
    }

    /// The unit of allocation in a pool of `pool_bytes`.
    pub(crate) fn unit_bytes_in(&self, pool_bytes: u64) -> u64 {
        let usual = (pool_bytes >> 12).min(64 << 10).max(pool_bytes >> 16);
        self.unit_bytes
            .unwrap_or(usual.next_power_of_two().clamp(4096, UNIT_BYTES_MAX))
    }
}

/// The largest unit of allocation of lists.
const UNIT_BYTES_MAX: u64 = 1 << 20;

/// The models that decide when tables are merged within persistent memory, and which leave it, in
/// profile `blade` (PM-Blade, IV-C).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BladeModels {
    /// None: tables are merged once they are too many, and all of them leave at once.
    Off,
    /// The paper's, as printed, with the time and the constants that it leaves open. For
    /// experiments.
    Paper,
    /// Measured costs of what was read in vain, of what is written twice, and of what is read.
    #[default]
    Costs,
}

/// Parameters of sorted tables in persistent memory, in profile `blade` (PM-Blade, IV).
#[derive(Debug, Clone, PartialEq)]
pub struct BladeTuning {
    /// Keys of a group, whose prefix is stored once, 1 to 64. Default: 8.
    pub group_entries: u32,
    /// The arrangement of a table's entries. Default: groups.
    pub arrangement: Arrangement,
    /// Bytes of a table, 16 KiB to 64 MiB. Default: 8 MiB, less in a pool of less than 1 GiB.
    pub table_bytes: Option<u64>,
    /// Bytes for tables. Default: the pool without the log's buffer.
    pub capacity_bytes: Option<u64>,
    /// The number of flushed tables over one key, 2 to 256, from which the tables of a partition
    /// are merged within persistent memory. Default: 16.
    pub unsorted_max: usize,
    /// The used share of the capacity from which tables leave for the SSD, 0.1 to 0.95. Default:
    /// 0.85.
    pub evict_share: f64,
    /// True if tables are merged within persistent memory. Default: true.
    pub internal: bool,
    /// True if entries that gets found lately stay in persistent memory when their partition
    /// leaves it, up to a quarter of its bytes. Default: true.
    pub sieve: bool,
    /// The models that decide. Default: costs.
    pub models: BladeModels,
}

impl Default for BladeTuning {
    fn default() -> Self {
        Self {
            group_entries: 8,
            arrangement: Arrangement::default(),
            table_bytes: None,
            capacity_bytes: None,
            unsorted_max: 16,
            evict_share: 0.85,
            internal: true,
            sieve: true,
            models: BladeModels::default(),
        }
    }
}

impl BladeTuning {
    /// # Errors
    /// `Invalid`, naming the number that is out of its range.
    pub(crate) fn check(&self) -> Result<()> {
        let group = f64::from(self.group_entries);
        within("blade.group_entries", group, 1.0, 64.0)?;
        within("blade.unsorted_max", self.unsorted_max as f64, 2.0, 256.0)?;
        within("blade.evict_share", self.evict_share, 0.1, 0.95)?;
        let table = self.table_bytes.unwrap_or(TABLE_BYTES_MIN) as f64;
        let (least, most) = (TABLE_BYTES_MIN as f64, TABLE_BYTES_MAX as f64);
        within("blade.table_bytes", table, least, most)
    }

    /// Bytes of a table in a pool of `pool_bytes`.
    pub(crate) fn table_bytes_in(&self, pool_bytes: u64) -> u64 {
        let usual = (pool_bytes / 128).clamp(TABLE_BYTES_MIN, 8 << 20);
        self.table_bytes.unwrap_or(usual)
    }
}

const TABLE_BYTES_MIN: u64 = 16 << 10;
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// Parameters of partitions whose ranges have stacks of tables, in profile `pmdb` (PMDB, 3.2).
#[derive(Debug, Clone, PartialEq)]
pub struct PmdbTuning {
    /// The flushed tables of a partition from which they are merged into its ranges, and the tables
    /// over one key of a range from which it is merged, 1 to 60. Default: 10, as in the paper.
    pub max_io: usize,
    /// The tables' worth of bytes of a range that was merged from which it is divided, 1 to 1,000.
    /// Default: 20, as in the paper.
    pub range_tables: u64,
    /// The largest table, in bytes, 16 KiB to 64 MiB, if `Limits::table_bytes` is not less.
    /// Default: 8 MiB. The paper's 2 MiB need four times the file handles.
    pub table_bytes: u64,
    /// Bytes of the write buffer of a partition in persistent memory, 16 KiB to 64 MiB. A larger
    /// batch gets a larger one. Default: 2 MiB, as in the paper, or a sixteenth of the pool.
    pub buffer_bytes: Option<u64>,
    /// The share of a range's entries that newer ones in the range hide from which it is merged, 0
    /// to 1; with 1 never. Default: 0.3, as in the paper.
    pub invalid_share: f64,
    /// The scans from which a range is merged. Default: by cost.
    pub seeks: Seeks,
}

/// The scans that begin in a range, and enter several tables there, from which it is merged, in
/// profile `pmdb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seeks {
    /// Merge when the tables that scans entered, beyond one each, have cost as much as the merge.
    Cost,
    /// Merge after so many scans. The paper uses 3, which rewrites a range for each three scans.
    Count(u64),
    /// Never merge because of scans.
    Off,
}

impl Default for PmdbTuning {
    fn default() -> Self {
        Self {
            max_io: 10,
            range_tables: 20,
            table_bytes: 8 << 20,
            buffer_bytes: None,
            invalid_share: 0.3,
            seeks: Seeks::Cost,
        }
    }
}

impl PmdbTuning {
    /// # Errors
    /// `Invalid`, naming the number that is out of its range.
    pub(crate) fn check(&self) -> Result<()> {
        within("pmdb.max_io", self.max_io as f64, 1.0, 60.0)?;
        within("pmdb.range_tables", self.range_tables as f64, 1.0, 1000.0)?;
        let (least, most) = (TABLE_BYTES_MIN as f64, TABLE_BYTES_MAX as f64);
        within("pmdb.table_bytes", self.table_bytes as f64, least, most)?;
        if let Some(bytes) = self.buffer_bytes {
            within("pmdb.buffer_bytes", bytes as f64, least, most)?;
        }
        within("pmdb.invalid_share", self.invalid_share, 0.0, 1.0)
    }

    /// The number of levels: the flushed tables, the levels of a stack, and below them that of what
    /// a merge of a whole range makes.
    pub(crate) fn levels(&self) -> usize {
        self.max_io + 2
    }
}

/// A parameter with one value for middle levels and one for the last level, which holds most of the
/// data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ByLevel<T> {
    /// The value for levels that have a level below them.
    pub middle: T,
    /// The value for the last level that holds anything.
    pub last: T,
}

impl<T: Copy> ByLevel<T> {
    pub(crate) fn of(self, is_last: bool) -> T {
        if is_last { self.last } else { self.middle }
    }
}

/// The source of block-grained compaction's limits on dead and dirty bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GrainLimits {
    /// The cost and benefit of an append, level by level: bytes written now against later scans and
    /// space.
    #[default]
    Cost,
    /// The constants `live_share_min`, `dirty_share_max` and `saving_min`.
    Constants,
}

/// The limits at which block-grained compaction gives way to table-grained (BlockDB, IV). The paper
/// names the limits but gives no values, except for the filter's (40 % and 10 %) and the
/// deletion's. Most others are from its authors' code, of which there are two states; these are
/// from the later one. Filters reserve more bits than in the paper, because under a load of new
/// keys full filters ended nearly every series of appends (`docs/decisions.md`).
#[derive(Debug, Clone, PartialEq)]
pub struct BlockTuning {
    /// The source of the limits on dead and dirty bytes. Default: cost.
    pub grain_limits: GrainLimits,
    /// A table with more live bytes than this multiple of the target table size is rewritten as
    /// several. Default: 4 and 1.5.
    pub live_tables_max: ByLevel<f64>,
    /// With `Constants`: a table is rewritten if less than this fraction of it is live, 0 to 1.
    /// Default: 0.4 and 0.8.
    pub live_share_min: ByLevel<f64>,
    /// With `Constants`: a table is rewritten if an append would write more than this fraction of
    /// its live bytes, 0 to 1. Default: 0.8 and 0.4.
    pub dirty_share_max: ByLevel<f64>,
    /// With `Constants`: the fraction of the bytes of a rewrite that an append must save, 0 to 1.
    /// Default: 0.3.
    pub saving_min: f64,
    /// The extra cost of one scan through a table with appended blocks, in bytes: about as much as
    /// a device moves in the time of one more read. 0 ignores scans. Default: 16 KiB.
    pub scan_bytes: u64,
    /// Bits that filters reserve for future keys, in percent of those for the current keys.
    /// Default: 300 and 20.
    pub filter_reserve_percent: ByLevel<u32>,
    /// The most bits that filters reserve, as a fraction of the table's data, 0 to 1. With small
    /// entries, room for many more would cost as much as it saves. Default: 1/128.
    pub filter_reserve_share_max: f64,
    /// The most dead bytes per live byte, over all tables, 0 to 10. Default: 0.18.
    pub dead_share_max: f64,
    /// Obsolete tables are removed once their total size reaches this many bytes, or when there is
    /// nothing else to do. Default: 200 MB, as in the paper.
    pub lazy_delete_bytes: u64,
}

impl Default for BlockTuning {
    fn default() -> Self {
        Self {
            grain_limits: GrainLimits::default(),
            live_tables_max: ByLevel {
                middle: 4.0,
                last: 1.5,
            },
            live_share_min: ByLevel {
                middle: 0.4,
                last: 0.8,
            },
            dirty_share_max: ByLevel {
                middle: 0.8,
                last: 0.4,
            },
            saving_min: 0.3,
            scan_bytes: 16 << 10,
            filter_reserve_percent: ByLevel {
                middle: 300,
                last: 20,
            },
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
        both(
            "filter_reserve_percent",
            ByLevel {
                middle: f64::from(middle),
                last: f64::from(last),
            },
            0.0,
            1000.0,
        )?;
        within(
            "block.filter_reserve_share_max",
            self.filter_reserve_share_max,
            0.0,
            1.0,
        )?;
        within("block.dead_share_max", self.dead_share_max, 0.0, 10.0)
    }
}

fn within(name: &str, value: f64, least: f64, most: f64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "tuning.{name} is {value}; it must be from {least} to {most}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_sorted_tables_have_ranges() {
        type Set = fn(&mut BladeTuning, f64);
        let parameters: [(&str, Set, f64, f64); 4] = [
            (
                "group_entries",
                |t, v| t.group_entries = v as u32,
                1.0,
                64.0,
            ),
            (
                "unsorted_max",
                |t, v| t.unsorted_max = v as usize,
                2.0,
                256.0,
            ),
            ("evict_share", |t, v| t.evict_share = v, 0.1, 0.95),
            (
                "table_bytes",
                |t, v| t.table_bytes = Some(v as u64),
                TABLE_BYTES_MIN as f64,
                TABLE_BYTES_MAX as f64,
            ),
        ];
        for (name, set, least, most) in parameters {
            let check = |value: f64| {
                let mut tuning = BladeTuning::default();
                set(&mut tuning, value);
                tuning.check()
            };
            assert!(check(least).is_ok() && check(most).is_ok(), "{name}");
            let step = if most < 1.0 { 0.01 } else { 1.0 };
            for value in [least - step, most + step, f64::NAN] {
                let message = check(value).unwrap_err().to_string();
                assert!(
                    message.contains(&format!("tuning.blade.{name} is")),
                    "{message}"
                );
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        assert!(BlockTuning::default().check().is_ok());
        let wrong = BlockTuning {
            live_share_min: ByLevel {
                middle: 0.4,
                last: 1.5,
            },
            ..BlockTuning::default()
        };
        let message = wrong.check().unwrap_err().to_string();
        assert!(
            message.contains("live_share_min.last") && message.contains("1.5"),
            "{message}"
        );
        let wrong = BlockTuning {
            dead_share_max: f64::NAN,
            ..BlockTuning::default()
        };
        assert!(
            wrong
                .check()
                .unwrap_err()
                .to_string()
                .contains("dead_share_max")
        );
        assert!(LabTuning::default().check().is_ok());
        for share in [-0.1, 1.1, f64::NAN] {
            let wrong = LabTuning {
                by_log_share: share,
                ..LabTuning::default()
            };
            assert!(
                wrong
                    .check()
                    .unwrap_err()
                    .to_string()
                    .contains("tuning.lab.by_log_share")
            );
            let wrong = LabTuning {
                reuse_min: share,
                ..LabTuning::default()
            };
            assert!(
                wrong
                    .check()
                    .unwrap_err()
                    .to_string()
                    .contains("tuning.lab.reuse_min")
            );
        }
    }
}
