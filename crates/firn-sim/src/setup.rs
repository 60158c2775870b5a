//! How a run's database is set up: sizes, keys, durabilities, and whether a pool lies under its log.

use firn_base::clock::Clock;
use firn_base::exec::Inline;
use firn_base::seed::Seed;
use firn_fs::SimFs;
use firndb::{Backend, Codec, Durability, Environment, Options, PmConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The least that the tests need.
const POOL_BYTES: u64 = 1 << 20;

/// What stays the same over a run's crashes.
#[derive(Debug, Clone)]
pub struct Setup {
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
}

impl Setup {
    /// A setup by the seed.
    pub fn random(random: &mut Seed) -> Setup {
        let one_of = |random: &mut Seed, all: &[u64]| all[random.below(all.len() as u64) as usize];
        Setup {
            direct: random.one_in(2),
            power_percent: one_of(random, &[100, 100, 50, 10, 0]),
            keys: one_of(random, &[10, 60, 400]),
            value_bytes_max: one_of(random, &[8, 100, 600, 2000]),
            write_buffer_bytes: one_of(random, &[6 << 10, 12 << 10, 64 << 10]),
            compression: if random.one_in(2) { Codec::Lz4 } else { Codec::None },
            filter_bits: one_of(random, &[0, 10]) as u32,
            max_open_files: one_of(random, &[2, 1000]) as usize,
        }
    }

    /// A fixed one for small databases: everything acknowledged with `Durability::Power`.
    pub fn small() -> Setup {
        Setup {
            direct: true,
            power_percent: 100,
            keys: 60,
            value_bytes_max: 300,
            write_buffer_bytes: 6 << 10,
            compression: Codec::Lz4,
            filter_bits: 10,
            max_open_files: 1000,
        }
    }

    /// The file system to begin with.
    pub fn file_system(&self, seed: u64) -> SimFs {
        if self.direct { SimFs::direct(seed) } else { SimFs::new(seed) }
    }

    /// Options to open a database with, and the executor and clock in them.
    pub fn options(&self, fs: &SimFs, pool: Option<&Path>) -> (Options, Arc<Inline>, Clock) {
        let (inline, clock) = (Arc::new(Inline::new()), Clock::manual());
        let options = Options {
            write_buffer_bytes: Some(self.write_buffer_bytes),
            compression: self.compression,
            filter_bits: self.filter_bits,
            max_open_files: self.max_open_files,
            direct_io: self.direct,
            pm: pool.map(|path| PmConfig::at(path, Backend::Emulated, POOL_BYTES)),
            environment: Environment {
                fs: Some(Arc::new(fs.clone())),
                clock: Some(clock.clone()),
                executor: Some(inline.clone()),
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

/// An emulated pool: a real file, so that only the process can die, not the machine. What is there at death is copied.
#[derive(Debug)]
pub struct Pool {
    root: tempfile::TempDir,
    copies: u64,
}

impl Pool {
    /// A place for a pool; the first open creates it.
    ///
    /// # Panics
    /// If there is no room for temporary files.
    pub fn new() -> Pool {
        let shm = Path::new("/dev/shm");
        let root = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        Pool { root: root.expect("a temporary directory"), copies: 0 }
    }

    /// The pool's file.
    pub fn path(&self) -> PathBuf {
        self.root.path().join(format!("pool{}", self.copies))
    }

    /// The process ends: from now on the pool is a copy of what is there.
    ///
    /// # Panics
    /// If there is no room for the copy.
    pub fn kill(&mut self) {
        let before = self.path();
        self.copies += 1;
        if before.exists() {
            std::fs::copy(&before, self.path()).expect("room for a copy of the pool");
        }
    }

    /// Another pool with the same bytes.
    ///
    /// # Panics
    /// If there is no room for the copy.
    pub fn duplicate(&self) -> Pool {
        let other = Pool::new();
        if self.path().exists() {
            std::fs::copy(self.path(), other.path()).expect("room for a copy of the pool");
        }
        other
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}
