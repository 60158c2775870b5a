//! How a run's database is set up: profile, sizes, keys, durabilities, and whether a pool lies under its log.
//!
//! A new profile joins every suite of the whole engine by a line in [`KINDS`].

use firn_base::clock::Clock;
use firn_base::exec::Inline;
use firn_base::seed::Seed;
use firn_fs::SimFs;
use firn_pm::sim::SimRegion;
use firndb::{
    ByLevel, Codec, Durability, Environment, GrainLimits, LabTuning, Limits, LogPlacement, Options, PmConfig, Profile,
    Tuning,
};
use std::sync::Arc;

/// What a database may be: its profile, and whether it has a pool. Suites draw from these, each as likely.
pub const KINDS: [(Profile, bool); 6] = [
    (Profile::Classic, false),
    (Profile::Classic, true),
    (Profile::Block, false),
    (Profile::Block, true),
    (Profile::Lab, false),
    (Profile::Lab, true),
];

/// What stays the same over a run's crashes.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The design.
    pub profile: Profile,
    /// Whether it has a pool.
    pub pool: bool,
    /// Logical writers, whose writes share commit groups.
    pub writers: u64,
    /// Whether direct files check alignment.
    pub direct: bool,
    /// Of a hundred writes, those with `Durability::Power`.
    pub power_percent: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Bytes of a common value, at most.
    pub value_bytes_max: u64,
    /// Bytes of a write buffer.
    pub write_buffer_bytes: u64,
    /// Whether blocks are compressed.
    pub compression: Codec,
    /// Filter bits per key.
    pub filter_bits: u32,
    /// Tables kept open.
    pub max_open_files: usize,
    /// Whether tables grow whenever they may, rather than when it pays.
    pub eager_appends: bool,
    /// Whether levels are so small, and appends so cheap, that tables of a few blocks grow.
    pub grows_small: bool,
    /// Where logs lie, in profile `lab` with a pool.
    pub log_placement: LogPlacement,
    /// Whether tables grow in profile `lab`.
    pub grows_below_trees: bool,
    /// From which share of keys written again on buffers go into empty trees, in profile `lab`.
    pub reuse_min: f64,
}

impl Setup {
    /// A setup by the seed.
    pub fn random(random: &mut Seed) -> Setup {
        let one_of = |random: &mut Seed, all: &[u64]| all[random.below(all.len() as u64) as usize];
        let pool = random.below(2) == 1;
        // Drawn aside, so that a seed that was worth keeping does the same with every profile that is added.
        let mut aside = random.clone();
        let profile = Profile::ALL[aside.below(Profile::ALL.len() as u64) as usize];
        Setup {
            profile,
            pool,
            writers: 1 + random.below(4),
            direct: random.one_in(2),
            power_percent: one_of(random, &[100, 100, 50, 10, 0]),
            keys: one_of(random, &[10, 60, 400]),
            value_bytes_max: one_of(random, &[8, 100, 600, 2000]),
            write_buffer_bytes: one_of(random, &[6 << 10, 12 << 10, 64 << 10]),
            compression: if random.one_in(2) { Codec::Lz4 } else { Codec::None },
            filter_bits: one_of(random, &[0, 10]) as u32,
            max_open_files: one_of(random, &[2, 1000]) as usize,
            eager_appends: profile == Profile::Block && aside.one_in(2),
            grows_small: false,
            log_placement: if aside.one_in(2) { LogPlacement::Rest } else { LogPlacement::Ssd },
            grows_below_trees: aside.one_in(2),
            reuse_min: one_of(&mut aside, &[0, 25, 60]) as f64 / 100.0,
        }
    }

    /// A fixed one for small databases: everything acknowledged with `Durability::Power`.
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
        }
    }

    fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        tuning.block.lazy_delete_bytes = 40 << 10;
        // For the sake of one scan no such small table would ever grow.
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
        if self.eager_appends || self.grows_small {
            let block = &mut tuning.block;
            block.live_tables_max = ByLevel { middle: 8.0, last: 8.0 };
            block.filter_reserve_percent = ByLevel { middle: 100, last: 100 };
            block.filter_reserve_share_max = 1.0;
            block.dead_share_max = 2.0;
            block.scan_bytes = 0;
        }
        if self.grows_small {
            // Each append writes nearly all of such a table.
            let block = &mut tuning.block;
            block.grain_limits = GrainLimits::Constants;
            block.live_share_min = ByLevel { middle: 0.1, last: 0.1 };
            block.dirty_share_max = ByLevel { middle: 1.0, last: 1.0 };
            (block.saving_min, block.dead_share_max) = (0.0, 10.0);
        }
        tuning
    }

    /// The file system to begin with.
    pub fn file_system(&self, seed: u64) -> SimFs {
        if self.direct { SimFs::direct(seed) } else { SimFs::new(seed) }
    }

    /// Options to open a database with, and the executor and clock in them.
    pub fn options(&self, fs: &SimFs, memory: Option<&SimRegion>) -> (Options, Arc<Inline>, Clock) {
        let (inline, clock) = (Arc::new(Inline::new()), Clock::manual());
        let mut limits = Limits::tiny();
        if self.grows_small {
            // Tables grow from level 2 on.
            (limits.level0_trigger, limits.level_base_bytes, limits.level_fan_out) = (1, 1 << 10, 100);
        }
        let options = Options {
            limits,
            write_buffer_bytes: Some(self.write_buffer_bytes),
            compression: self.compression,
            filter_bits: self.filter_bits,
            max_open_files: self.max_open_files,
            direct_io: self.direct,
            profile: self.profile,
            tuning: self.tuning(),
            // The memory stands in for whatever this names.
            pm: memory.map(|_| PmConfig::volatile(0)),
            environment: Environment {
                fs: Some(Arc::new(fs.clone())),
                clock: Some(clock.clone()),
                executor: Some(inline.clone()),
                memory: memory.cloned(),
            },
            ..Options::tiny()
        };
        (options, inline, clock)
    }

    /// Which durability the next write has.
    pub fn durability(&self, random: &mut Seed) -> Durability {
        if random.below(100) < self.power_percent { Durability::Power } else { Durability::Process }
    }

    /// A key; a few are long, a few are prefixes of others.
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

    /// A value; a few are empty, a few larger than a write buffer.
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
