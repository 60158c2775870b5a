//! The configuration of a run's database: profile, sizes, keys, durabilities, and whether there is
//! a pool under its log.
//!
//! A new profile joins every suite of the whole engine by a line in [`KINDS`].

use firn_base::clock::Clock;
use firn_base::exec::Inline;
use firn_base::seed::Seed;
use firn_fs::SimFs;
use firn_pm::sim::SimRegion;
use firndb::{
    BladeTuning, ByLevel, Codec, Concurrency, Durability, Environment, GrainLimits, LabTuning,
    Limits, LogPlacement, Options, PmConfig, PmdbTuning, Profile, Seeks, Tiering, TlsmTuning,
    Tuning,
};
use std::sync::Arc;

/// The kinds of databases: profile, and whether there is a pool. Suites choose among these.
pub const KINDS: [(Profile, bool); 10] = [
    (Profile::Classic, false),
    (Profile::Classic, true),
    (Profile::Block, false),
    (Profile::Block, true),
    (Profile::Lab, false),
    (Profile::Lab, true),
    (Profile::Tlsm, true),
    (Profile::Blade, true),
    (Profile::Pmdb, false),
    (Profile::Pmdb, true),
];

/// The number of kinds when seeds began to be kept.
const KINDS_ONCE: u64 = 6;

/// A random kind. Most known seeds keep theirs when a kind is added.
pub(crate) fn kind(random: &mut Seed) -> (Profile, bool) {
    let mut aside = random.clone();
    let once = random.below(KINDS_ONCE) as usize;
    // Another number than the one that `once` is made of.
    let _same = aside.below(2);
    let now = aside.below(KINDS.len() as u64);
    KINDS[if now < KINDS_ONCE { once } else { now as usize }]
}

/// The number of profiles when seeds began to be kept.
const PROFILES_ONCE: u64 = 4;

/// A random profile. Most known seeds keep theirs when a profile is added.
fn profile(random: &mut Seed) -> Profile {
    let mut aside = random.clone();
    let once = random.below(PROFILES_ONCE);
    // Another number than the one that `once` is made of.
    let _same = aside.below(2);
    let now = aside.below(Profile::ALL.len() as u64);
    Profile::ALL[if now < PROFILES_ONCE { once } else { now } as usize]
}

/// The configuration, which stays the same over a run's crashes.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The profile.
    pub profile: Profile,
    /// True if it has a pool.
    pub pool: bool,
    /// Logical writers, whose writes share commit groups.
    pub writers: u64,
    /// True if direct files check alignment.
    pub direct: bool,
    /// The percentage of writes with `Durability::Power`.
    pub power_percent: u64,
    /// The number of distinct keys.
    pub keys: u64,
    /// The maximum length of an ordinary value, in bytes.
    pub value_bytes_max: u64,
    /// The size of a memtable, in bytes.
    pub write_buffer_bytes: u64,
    /// The compression of blocks.
    pub compression: Codec,
    /// Filter bits per key.
    pub filter_bits: u32,
    /// The number of tables kept open.
    pub max_open_files: usize,
    /// True if tables grow whenever they may, rather than when it pays.
    pub eager_appends: bool,
    /// True if levels are so small, and appends so cheap, that tables of a few blocks grow.
    pub grows_small: bool,
    /// The placement of logs, in profile `lab` with a pool.
    pub log_placement: LogPlacement,
    /// True if tables grow in profile `lab`.
    pub grows_below_trees: bool,
    /// The largest number of partitions, except in profile `lab`, which has one.
    pub partitions: u64,
    /// In profile `lab`: the minimum fraction of rewritten keys for a memtable to go into empty
    /// trees.
    pub reuse_min: f64,
    /// In profile `tlsm`: the tables that are in persistent memory.
    pub tiering: Tiering,
    /// How a worker runs the parts of a compaction. I/O of coroutines completes when the seed says
    /// so.
    pub concurrency: Concurrency,
}

impl Setup {
    /// A random setup.
    pub fn random(random: &mut Seed) -> Setup {
        let one_of = |random: &mut Seed, all: &[u64]| all[random.below(all.len() as u64) as usize];
        let pool = random.below(2) == 1;
        // Drawn from a copy of the generator, so that a known seed keeps its behaviour when a
        // profile is added.
        let mut aside = random.clone();
        let profile = profile(&mut aside);
        Setup {
            profile,
            pool,
            writers: 1 + random.below(4),
            direct: random.one_in(2),
            power_percent: one_of(random, &[100, 100, 50, 10, 0]),
            keys: one_of(random, &[10, 60, 400]),
            value_bytes_max: one_of(random, &[8, 100, 600, 2000]),
            write_buffer_bytes: one_of(random, &[6 << 10, 12 << 10, 64 << 10]),
            compression: if random.one_in(2) {
                Codec::Lz4
            } else {
                Codec::None
            },
            filter_bits: one_of(random, &[0, 10]) as u32,
            max_open_files: one_of(random, &[2, 1000]) as usize,
            eager_appends: profile == Profile::Block && aside.one_in(2),
            grows_small: false,
            log_placement: if aside.one_in(2) {
                LogPlacement::Rest
            } else {
                LogPlacement::Ssd
            },
            grows_below_trees: aside.one_in(2),
            reuse_min: one_of(&mut aside, &[0, 25, 60]) as f64 / 100.0,
            partitions: one_of(&mut aside, &[1, 4, 32]),
            tiering: match aside.below(4) {
                0 => Tiering::Leveled(1),
                1 => Tiering::Leveled(0),
                _ => Tiering::Lru,
            },
            concurrency: match aside.below(4) {
                0 => Concurrency::Coroutines,
                1 => Concurrency::FlushCoroutine,
                _ => Concurrency::Threads,
            },
        }
    }

    /// A fixed setup for small databases, with every write acknowledged with `Durability::Power`.
    pub fn small() -> Setup {
        Setup {
            profile: Profile::Classic,
            pool: false,
            writers: 1,
            direct: true,
            power_percent: 100,
            keys: 60,
            value_bytes_max: 300,
            write_buffer_bytes: 6 << 10,
            compression: Codec::Lz4,
            filter_bits: 10,
            max_open_files: 1000,
            eager_appends: false,
            grows_small: false,
            log_placement: LogPlacement::Ssd,
            grows_below_trees: false,
            reuse_min: 0.0,
            partitions: 1,
            tiering: Tiering::Lru,
            concurrency: Concurrency::Threads,
        }
    }

    fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        tuning.block.lazy_delete_bytes = 40 << 10;
        // With the default, the cost of a single scan would keep such small tables from ever
        // growing.
        tuning.block.scan_bytes = 100;
        tuning.lab = LabTuning {
            tree_bytes: Some(16 << 10),
            leaf_bytes: 256,
            hot_bytes: Some(16 << 10),
            hot_writes: 2,
            log_placement: self.log_placement,
            block_grained: self.grows_below_trees,
            reuse_min: self.reuse_min,
            ..LabTuning::default()
        };
        tuning.tlsm = TlsmTuning {
            tiering: self.tiering,
            unit_bytes: Some(4 << 10),
            ..TlsmTuning::default()
        };
        tuning.blade = BladeTuning {
            table_bytes: Some(16 << 10),
            unsorted_max: 3,
            ..BladeTuning::default()
        };
        // Ranges of one table, with stacks so low that each is merged many times in a run.
        tuning.pmdb = PmdbTuning {
            max_io: 1 + self.writers as usize,
            range_tables: 1,
            seeks: Seeks::Count(3),
            buffer_bytes: Some(16 << 10),
            ..PmdbTuning::default()
        };
        if self.eager_appends || self.grows_small {
            let block = &mut tuning.block;
            block.live_tables_max = ByLevel {
                middle: 8.0,
                last: 8.0,
            };
            block.filter_reserve_percent = ByLevel {
                middle: 100,
                last: 100,
            };
            block.filter_reserve_share_max = 1.0;
            block.dead_share_max = 2.0;
            block.scan_bytes = 0;
        }
        if self.grows_small {
            // Each append rewrites almost all of such a table.
            let block = &mut tuning.block;
            block.grain_limits = GrainLimits::Constants;
            block.live_share_min = ByLevel {
                middle: 0.1,
                last: 0.1,
            };
            block.dirty_share_max = ByLevel {
                middle: 1.0,
                last: 1.0,
            };
            (block.saving_min, block.dead_share_max) = (0.0, 10.0);
        }
        tuning
    }

    /// The initial file system.
    pub fn file_system(&self, seed: u64) -> SimFs {
        let fs = if self.direct {
            SimFs::direct(seed)
        } else {
            SimFs::new(seed)
        };
        if self.concurrency != Concurrency::Threads {
            fs.defer();
        }
        fs
    }

    /// Options for opening a database, and the executor and clock in them.
    pub fn options(&self, fs: &SimFs, memory: Option<&SimRegion>) -> (Options, Arc<Inline>, Clock) {
        let (inline, clock) = (Arc::new(Inline::new()), Clock::manual());
        let mut limits = Limits::tiny();
        if self.grows_small {
            // Makes tables grow from level 2 on.
            (
                limits.level0_trigger,
                limits.level_base_bytes,
                limits.level_fan_out,
            ) = (1, 1 << 10, 100);
        }
        if self.profile == Profile::Tlsm {
            // Several segments of the smallest size.
            limits.table_bytes = 24 << 10;
        }
        if self.partitions > 1 {
            // So small that partitions are divided and joined many times in a run.
            limits.partitions_max = self.partitions as usize;
            limits.partition_bytes = (64 << 10) / self.partitions;
            limits.table_bytes = 2 << 10;
        }
        let options = Options::tiny()
            .limits(limits)
            .write_buffer_bytes(Some(self.write_buffer_bytes))
            .compression(self.compression)
            .filter_bits(self.filter_bits)
            .max_open_files(self.max_open_files)
            .direct_io(self.direct)
            .profile(self.profile)
            .compaction_concurrency(self.concurrency)
            .tuning(self.tuning())
            // The memory is used instead of any pool that this names.
            .pm(memory.map(|_| PmConfig::volatile(0)))
            .environment(Environment {
                fs: Some(Arc::new(fs.clone())),
                clock: Some(clock.clone()),
                executor: Some(inline.clone()),
                memory: memory.cloned(),
            });
        (options, inline, clock)
    }

    /// The durability of the next write.
    pub fn durability(&self, random: &mut Seed) -> Durability {
        if random.below(100) < self.power_percent {
            Durability::Power
        } else {
            Durability::Process
        }
    }

    /// A random key. A few are long, and a few are prefixes of others.
    pub fn key(&self, random: &mut Seed) -> Vec<u8> {
        let n = random.below(self.keys);
        let mut key = format!("k{n:04}").into_bytes();
        match n % 9 {
            0 => key.truncate(4),
            1 => key.resize(200, b'x'),
            2 => key.extend([0, 0xff]),
            _ => {}
        }
        key
    }

    /// A random value. A few are empty, and a few larger than a memtable.
    pub fn value(&self, random: &mut Seed) -> Vec<u8> {
        let len = match random.below(60) {
            0 => 0,
            1 => 3000,
            2 if random.one_in(4) => 20_000,
            _ => random.below(self.value_bytes_max),
        };
        let mut value = vec![0; len as usize];
        random.fill(&mut value);
        if random.one_in(2) {
            let half = value.len() / 2;
            value[..half].fill(b'v');
        }
        value
    }
}
