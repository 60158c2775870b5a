//! Shared parts of the models that run the engine under every order of its threads. See
//! `docs/interleave.md`.

mod buffers;
mod engine;
mod files;
mod sorted;

use crate::files::Files;
use crate::{ByLevel, Db, Environment, Limits, Options, Profile};
use files::Watched;
use firn_base::clock::Clock;
use firn_base::exec::{Executor, Inline, Threads};
use firn_fs::SimFs;
use firn_pm::PmConfig;
use firn_pm::sim::SimRegion;
pub(crate) use shuttle::thread::{self, JoinHandle};
use std::path::Path;
use std::sync::Arc;

pub(crate) const UUID: [u8; 16] = [7; 16];

/// A directory in which every write and sync is a step of the scheduler.
pub(crate) fn files() -> Arc<Files> {
    Arc::new(Files::of_test(
        &Watched(SimFs::new(1)),
        Path::new("db"),
        UUID,
    ))
}

/// A small database in memory.
pub(crate) struct World {
    pub(crate) sim: SimFs,
    pub(crate) clock: Clock,
    pub(crate) background: Arc<Inline>,
}

impl World {
    pub(crate) fn new() -> World {
        World {
            sim: SimFs::new(1),
            clock: Clock::manual(),
            background: Arc::new(Inline::new()),
        }
    }

    /// Opens the database, on the same files each time. Background work runs on the threads that
    /// wait for it.
    pub(crate) fn open(&self) -> Db {
        self.open_with(self.clock.clone(), self.background.clone())
    }

    /// Opens the database read-only, while another handle may have it open.
    pub(crate) fn open_read_only(&self) -> Db {
        let options = self.options(self.clock.clone(), Arc::new(Inline::new()));
        // It holds the tables that it may keep open; a concurrent writer removes the others.
        Db::open_read_only(
            "db",
            Options {
                max_open_files: 100,
                ..options
            },
        )
        .unwrap()
    }

    /// As [`World::open`], in profile `lab`, with trees in `memory`.
    pub(crate) fn open_lab(&self, memory: &SimRegion) -> Db {
        Db::open("db", self.lab_options(memory, self.background.clone())).unwrap()
    }

    /// As [`World::open_lab`], with a hot buffer that takes the values of all keys.
    pub(crate) fn open_lab_hot(&self, memory: &SimRegion) -> Db {
        let mut options = self.lab_options(memory, self.background.clone());
        let lab = &mut options.tuning.lab;
        (lab.hot_bytes, lab.hot_writes) = (Some(32 << 10), 1);
        Db::open("db", options).unwrap()
    }

    /// As [`World::open_read_only`], for a database opened by [`World::open_lab`].
    pub(crate) fn open_lab_read_only(&self, memory: &SimRegion) -> Db {
        Db::open_read_only("db", self.lab_options(memory, Arc::new(Inline::new()))).unwrap()
    }

    fn lab_options(&self, memory: &SimRegion, executor: Arc<dyn Executor>) -> Options {
        let mut options = self.options(self.clock.clone(), executor);
        options.profile = Profile::Lab;
        options.pm = Some(PmConfig::volatile(0));
        // All writes go into the trees.
        let lab = &mut options.tuning.lab;
        (lab.tree_bytes, lab.leaf_bytes, lab.reuse_min) = (Some(16 << 10), 256, 0.0);
        options.environment.memory = Some(memory.clone());
        options
    }

    /// As [`World::open`], in profile `tlsm`, with lists in `memory`.
    pub(crate) fn open_tlsm(&self, memory: &SimRegion) -> Db {
        let mut options = self.options(self.clock.clone(), self.background.clone());
        options.profile = Profile::Tlsm;
        options.pm = Some(PmConfig::volatile(0));
        options.tuning.tlsm.unit_bytes = Some(4 << 10);
        options.environment.memory = Some(memory.clone());
        Db::open("db", options).unwrap()
    }

    /// As [`World::open`], in profile `blade`, with sorted tables in `memory`, of which few are
    /// open at a time.
    pub(crate) fn open_blade(&self, memory: &SimRegion) -> Db {
        Db::open("db", self.blade_options(memory, self.background.clone())).unwrap()
    }

    /// As [`World::open_read_only`], for a database opened by [`World::open_blade`].
    pub(crate) fn open_blade_read_only(&self, memory: &SimRegion) -> Db {
        Db::open_read_only("db", self.blade_options(memory, Arc::new(Inline::new()))).unwrap()
    }

    fn blade_options(&self, memory: &SimRegion, executor: Arc<dyn Executor>) -> Options {
        let mut options = self.options(self.clock.clone(), executor);
        options.profile = Profile::Blade;
        options.pm = Some(PmConfig::volatile(0));
        options.tuning.blade.table_bytes = Some(16 << 10);
        options.tuning.blade.unsorted_max = 2;
        options.environment.memory = Some(memory.clone());
        options
    }

    /// As [`World::open`], in profile `pmdb`, with write buffers and trees in `memory`, and with
    /// partitions of few entries.
    pub(crate) fn open_pmdb(&self, memory: &SimRegion) -> Db {
        let mut options = self.options(self.clock.clone(), self.background.clone());
        options.profile = Profile::Pmdb;
        options.pm = Some(PmConfig::volatile(0));
        let pmdb = &mut options.tuning.pmdb;
        (pmdb.table_bytes, pmdb.range_tables) = (16 << 10, 1);
        let limits = &mut options.limits;
        (limits.partitions_max, limits.partition_bytes) = (3, 16 << 10);
        options.environment.memory = Some(memory.clone());
        Db::open("db", options).unwrap()
    }

    /// Opens the database with a worker that sleeps and is woken. It uses the system's clock,
    /// because waits on a manual one do not sleep. No model depends on the time.
    pub(crate) fn open_with_worker(&self) -> Db {
        self.open_with(Clock::system(), Arc::new(Threads::new(1)))
    }

    /// Opens the database with tables that grow and two workers that share the work. Everything
    /// sinks into the last level.
    pub(crate) fn open_with_growing_tables(&self) -> Db {
        let mut options = self.options(Clock::system(), Arc::new(Threads::new(2)));
        options.profile = Profile::Block;
        options.max_open_files = 10;
        let limits = &mut options.limits;
        (
            limits.levels,
            limits.level0_trigger,
            limits.level_base_bytes,
            limits.table_bytes,
        ) = (3, 1, 1, 512);
        let block = &mut options.tuning.block;
        block.live_tables_max = ByLevel {
            middle: 100.0,
            last: 100.0,
        };
        block.live_share_min = ByLevel {
            middle: 0.0,
            last: 0.0,
        };
        block.dirty_share_max = ByLevel {
            middle: 1.0,
            last: 1.0,
        };
        Db::open("db", options).unwrap()
    }

    fn open_with(&self, clock: Clock, executor: Arc<dyn Executor>) -> Db {
        Db::open("db", self.options(clock, executor)).unwrap()
    }

    fn options(&self, clock: Clock, executor: Arc<dyn Executor>) -> Options {
        let mut limits = Limits::tiny();
        (limits.group_bytes, limits.level0_trigger) = (256, 2);
        Options {
            write_buffer_bytes: Some(8 * limits.block_bytes as u64),
            direct_io: false,
            max_open_files: 1,
            limits,
            environment: Environment {
                fs: Some(Arc::new(Watched(self.sim.clone()))),
                clock: Some(clock),
                executor: Some(executor),
                memory: None,
            },
            ..Options::tiny()
        }
    }
}

pub(crate) fn join<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

/// Returns a function that starts threads which share `what`.
pub(crate) fn spawner<T: Send + Sync + 'static>(
    what: &Arc<T>,
) -> impl Fn(fn(&T)) -> JoinHandle<()> + use<T> {
    let what = what.clone();
    move |body| {
        let what = what.clone();
        thread::spawn(move || body(&what))
    }
}
