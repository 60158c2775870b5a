//! The table of suites, which tests, mutants and soak run. A suite is a function from a seed to a
//! tally. It panics if an invariant does not hold.

use crate::pm::{self, BTrees, Hot, LogBuffer, Placed, PoolSpace, Shelf};
use crate::suites::{copies, damage, io, joint, kill9, media, metamorphic, model, recovery};
use crate::tally::Tally;
use crate::tier::{Tier, each_seed};
use std::sync::{Arc, Mutex};

/// One suite.
#[derive(Debug)]
pub struct Suite {
    /// Its name, here and in `FIRN_SUITE`.
    pub name: &'static str,
    /// The property that it tests.
    pub about: &'static str,
    /// The number of seeds in a tier, starting from 0.
    pub seeds: fn(Tier) -> u64,
    /// Runs one seed.
    pub run: fn(u64) -> Tally,
}

/// All suites.
pub static SUITES: &[Suite] = &[
    Suite {
        name: "joint",
        about: "one cut through memory and files, anywhere in the whole engine, and again in its recovery",
        seeds: |tier| tier.scale(1600),
        run: joint::joint,
    },
    Suite {
        name: "partitions",
        about: "one cut of a database that is divided into partitions, and again in its recovery",
        seeds: |tier| if tier == Tier::Ci { 600 } else { 60 },
        run: joint::partitions,
    },
    Suite {
        name: "block_append",
        about: "one cut of a database with several levels whose tables grow, and again in its recovery",
        seeds: |tier| if tier == Tier::Ci { 500 } else { 24 },
        run: joint::block_append,
    },
    Suite {
        name: "block_io",
        about: "io_countdown, io_several, fsync_fail and disk_cap of a database whose tables grow",
        seeds: |tier| tier.scale(20),
        run: io::block_io,
    },
    Suite {
        name: "block_checkpoint_cut",
        about: "checkpoint_cut of a database whose tables grow",
        seeds: |tier| tier.scale(5),
        run: copies::block_checkpoint_cut,
    },
    Suite {
        name: "block_recovery_cut",
        about: "recovery_cut of a database whose tables grew",
        seeds: |_| 1,
        run: recovery::block_recovery_cut,
    },
    Suite {
        name: "lab_joint",
        about: "one cut through a database whose level 0 is a pair of trees over its logs, and again in its recovery",
        seeds: |_| 400,
        run: joint::lab_joint,
    },
    Suite {
        name: "lab_io",
        about: "io_countdown, io_several, fsync_fail and disk_cap of a database whose level 0 is a pair of trees",
        seeds: |tier| if tier == Tier::Ci { 1000 } else { 200 },
        run: io::lab_io,
    },
    Suite {
        name: "lab_checkpoint_cut",
        about: "checkpoint_cut of a database whose level 0 is a pair of trees",
        seeds: |tier| tier.scale(60),
        run: copies::lab_checkpoint_cut,
    },
    Suite {
        name: "lab_recovery_cut",
        about: "recovery_cut of a database whose level 0 is a pair of trees",
        seeds: |tier| tier.scale(4),
        run: recovery::lab_recovery_cut,
    },
    Suite {
        name: "lab_creation_cut",
        about: "creation_cut of a database whose level 0 is a pair of trees",
        seeds: |tier| tier.scale(60),
        run: recovery::lab_creation_cut,
    },
    Suite {
        name: "creation_cut",
        about: "creating a database, cut any number of times",
        seeds: |tier| tier.scale(200),
        run: recovery::creation_cut,
    },
    Suite {
        name: "recovery_cut",
        about: "a recovery, cut at every operation of its files and every store of its memory",
        seeds: |tier| tier.scale(12),
        run: recovery::recovery_cut,
    },
    Suite {
        name: "dir_exhaust",
        about: "every subset of the pending directory operations",
        seeds: |tier| tier.scale(150),
        run: recovery::dir_exhaust,
    },
    Suite {
        name: "unsynced_ends",
        about: "unsynced ends of logs, lost in any order",
        seeds: |tier| tier.scale(24),
        run: recovery::unsynced_ends,
    },
    Suite {
        name: "io_countdown",
        about: "the n-th operation fails, once or for ever",
        seeds: |tier| if tier == Tier::Ci { 5000 } else { 1300 },
        run: io::io_countdown,
    },
    Suite {
        name: "io_several",
        about: "several operations fail, none of them a sync: all goes on once the disk works",
        seeds: |tier| if tier == Tier::Ci { 5000 } else { 1300 },
        run: io::io_several,
    },
    Suite {
        name: "fsync_fail",
        about: "a failed sync poisons, and a reopen recovers",
        seeds: |tier| tier.scale(300),
        run: io::fsync_fail,
    },
    Suite {
        name: "disk_cap",
        about: "the disk is full in 4 KiB steps, then has room again",
        seeds: |tier| tier.scale(200),
        run: io::disk_cap,
    },
    Suite {
        name: "read_faults",
        about: "reads that fail or lie give an error or the right value",
        seeds: |tier| tier.scale(100),
        run: model::read_faults,
    },
    Suite {
        name: "bit_exhaust",
        about: "one bit of every byte of a golden database",
        seeds: damage::bit_exhaust_seeds,
        run: damage::bit_exhaust,
    },
    Suite {
        name: "cut_extend",
        about: "log and manifest cut at every byte, every file extended, blocks of 4 KiB in the wrong place",
        seeds: damage::cut_extend_seeds,
        run: damage::cut_extend,
    },
    Suite {
        name: "model",
        about: "random operations against a sorted map, with checkpoints, reopens and read-only opens",
        seeds: |tier| if tier == Tier::Ci { 3000 } else { 100 },
        run: model::model,
    },
    Suite {
        name: "pm_seq_pool",
        about: "every sequence of up to two operations, cut at every fence: pool",
        seeds: |tier| if tier == Tier::Ci { 200 } else { 73 },
        run: pm::sequence::<PoolSpace>,
    },
    Suite {
        name: "pm_torn_pool",
        about: "the same, each 8-byte word by itself: pool",
        seeds: |tier| if tier == Tier::Ci { 150 } else { 9 },
        run: pm::torn::<PoolSpace>,
    },
    Suite {
        name: "pm_eadr_pool",
        about: "the same with a durable cache, cut at every store: pool",
        seeds: |tier| if tier == Tier::Ci { 73 } else { 9 },
        run: pm::eadr::<PoolSpace>,
    },
    Suite {
        name: "pm_init_pool",
        about: "creation and single operations, cut at every store: pool",
        seeds: |tier| if tier == Tier::Ci { 27 } else { 6 },
        run: pm::init::<PoolSpace>,
    },
    Suite {
        name: "pm_double_pool",
        about: "recovery cut at every store, and the recovery of that: pool",
        seeds: |tier| if tier == Tier::Ci { 20 } else { 2 },
        run: pm::double::<PoolSpace>,
    },
    Suite {
        name: "pm_lint_pool",
        about: "nothing dirty at an acknowledgement: pool",
        seeds: |tier| if tier == Tier::Ci { 73 } else { 9 },
        run: pm::lint::<PoolSpace>,
    },
    Suite {
        name: "pm_seq_shelf",
        about: "every sequence of up to two operations, cut at every fence: shelf",
        seeds: |tier| if tier == Tier::Ci { 200 } else { 31 },
        run: pm::sequence::<Shelf<0>>,
    },
    Suite {
        name: "pm_torn_shelf",
        about: "the same, each 8-byte word by itself: shelf",
        seeds: |tier| if tier == Tier::Ci { 150 } else { 6 },
        run: pm::torn::<Shelf<0>>,
    },
    Suite {
        name: "pm_eadr_shelf",
        about: "the same with a durable cache, cut at every store: shelf",
        seeds: |tier| if tier == Tier::Ci { 100 } else { 31 },
        run: pm::eadr::<Shelf<0>>,
    },
    Suite {
        name: "pm_init_shelf",
        about: "creation and single operations, cut at every store: shelf",
        seeds: |tier| if tier == Tier::Ci { 18 } else { 6 },
        run: pm::init::<Shelf<0>>,
    },
    Suite {
        name: "pm_double_shelf",
        about: "recovery cut at every store, and the recovery of that: shelf",
        seeds: |tier| if tier == Tier::Ci { 6 } else { 2 },
        run: pm::double::<Shelf<0>>,
    },
    Suite {
        name: "pm_lint_shelf",
        about: "nothing dirty at an acknowledgement: shelf",
        seeds: |tier| if tier == Tier::Ci { 31 } else { 9 },
        run: pm::lint::<Shelf<0>>,
    },
    Suite {
        name: "pm_seq_trees",
        about: "every sequence of up to two operations, cut at every fence: B+ trees",
        seeds: |tier| if tier == Tier::Ci { 200 } else { 73 },
        run: pm::sequence::<BTrees>,
    },
    Suite {
        name: "pm_torn_trees",
        about: "the same, each 8-byte word by itself: B+ trees",
        seeds: |tier| if tier == Tier::Ci { 150 } else { 9 },
        run: pm::torn::<BTrees>,
    },
    Suite {
        name: "pm_eadr_trees",
        about: "the same with a durable cache, cut at every store: B+ trees",
        seeds: |tier| if tier == Tier::Ci { 73 } else { 9 },
        run: pm::eadr::<BTrees>,
    },
    Suite {
        name: "pm_init_trees",
        about: "creation and single operations, cut at every store: B+ trees",
        seeds: |tier| if tier == Tier::Ci { 27 } else { 6 },
        run: pm::init::<BTrees>,
    },
    Suite {
        name: "pm_double_trees",
        about: "recovery cut at every store, and the recovery of that: B+ trees",
        seeds: |tier| if tier == Tier::Ci { 20 } else { 2 },
        run: pm::double::<BTrees>,
    },
    Suite {
        name: "pm_lint_trees",
        about: "nothing dirty at an acknowledgement: B+ trees",
        seeds: |tier| if tier == Tier::Ci { 73 } else { 9 },
        run: pm::lint::<BTrees>,
    },
    Suite {
        name: "trees_damage",
        about: "one bit of every byte of a pool with B+ trees",
        seeds: |_| pm::DAMAGE_SEEDS,
        run: pm::trees_damage,
    },
    Suite {
        name: "pm_seq_log",
        about: "every sequence of up to two operations, cut at every fence: log",
        seeds: |tier| if tier == Tier::Ci { 43 } else { 7 },
        run: pm::sequence::<LogBuffer>,
    },
    Suite {
        name: "pm_torn_log",
        about: "the same, each 8-byte word by itself: log",
        seeds: |tier| if tier == Tier::Ci { 12 } else { 3 },
        run: pm::torn::<LogBuffer>,
    },
    Suite {
        name: "pm_eadr_log",
        about: "the same with a durable cache, cut at every store: log",
        seeds: |tier| if tier == Tier::Ci { 12 } else { 3 },
        run: pm::eadr::<LogBuffer>,
    },
    Suite {
        name: "pm_init_log",
        about: "creation and single operations, cut at every store: log",
        seeds: |tier| if tier == Tier::Ci { 9 } else { 3 },
        run: pm::init::<LogBuffer>,
    },
    Suite {
        name: "pm_double_log",
        about: "recovery cut at every store, and the recovery of that: log",
        seeds: |tier| if tier == Tier::Ci { 3 } else { 1 },
        run: pm::double::<LogBuffer>,
    },
    Suite {
        name: "pm_lint_log",
        about: "nothing dirty at an acknowledgement: log",
        seeds: |tier| if tier == Tier::Ci { 10 } else { 3 },
        run: pm::lint::<LogBuffer>,
    },
    Suite {
        name: "pm_seq_hot",
        about: "every sequence of up to two operations, cut at every fence: log and hot buffer",
        seeds: |tier| if tier == Tier::Ci { 57 } else { 8 },
        run: pm::sequence::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_torn_hot",
        about: "the same, each 8-byte word by itself: log and hot buffer",
        seeds: |tier| if tier == Tier::Ci { 12 } else { 3 },
        run: pm::torn::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_eadr_hot",
        about: "the same with a durable cache, cut at every store: log and hot buffer",
        seeds: |tier| if tier == Tier::Ci { 12 } else { 3 },
        run: pm::eadr::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_double_hot",
        about: "recovery cut at every store, and the recovery of that: log and hot buffer",
        seeds: |tier| if tier == Tier::Ci { 3 } else { 1 },
        run: pm::double::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_lint_hot",
        about: "nothing dirty at an acknowledgement: log and hot buffer",
        seeds: |tier| if tier == Tier::Ci { 10 } else { 3 },
        run: pm::lint::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_seq_placed",
        about: "every sequence of up to two operations, cut at every fence: logs in persistent memory",
        seeds: |tier| if tier == Tier::Ci { 20 } else { 7 },
        run: pm::sequence::<LogBuffer<Placed>>,
    },
    Suite {
        name: "pm_torn_placed",
        about: "the same, each 8-byte word by itself: logs in persistent memory",
        seeds: |tier| if tier == Tier::Ci { 4 } else { 2 },
        run: pm::torn::<LogBuffer<Placed>>,
    },
    Suite {
        name: "pm_double_placed",
        about: "recovery cut at every store, and the recovery of that: logs in persistent memory",
        seeds: |tier| if tier == Tier::Ci { 2 } else { 1 },
        run: pm::double::<LogBuffer<Placed>>,
    },
    Suite {
        name: "pm_lint_placed",
        about: "nothing dirty at an acknowledgement: logs in persistent memory",
        seeds: |tier| if tier == Tier::Ci { 10 } else { 3 },
        run: pm::lint::<LogBuffer<Placed>>,
    },
    Suite {
        name: "pm_align",
        about: "a durable copy at every alignment, of every length up to three lines",
        seeds: |tier| if tier == Tier::Ci { 64 } else { 8 },
        run: pm::align,
    },
    Suite {
        name: "checkpoint_cut",
        about: "a checkpoint and its source after a power cut, both written on",
        seeds: |tier| tier.scale(100),
        run: copies::checkpoint_cut,
    },
    Suite {
        name: "repair_cut",
        about: "repair, cut anywhere and made again",
        seeds: |tier| tier.scale(100),
        run: copies::repair_cut,
    },
    Suite {
        name: "two_media",
        about: "an old pool with newer files, and the reverse",
        seeds: |tier| tier.scale(1000),
        run: media::two_media,
    },
    Suite {
        name: "pm_cap",
        about: "memory of every size in 4 KiB steps, filled and given back",
        seeds: |tier| tier.scale(64),
        run: media::pm_cap,
    },
    Suite {
        name: "metamorphic",
        about: "the same operations under six option sets and every kind, with restarts and faults",
        seeds: |tier| if tier == Tier::Ci { 30 } else { 4 },
        run: metamorphic::metamorphic,
    },
    Suite {
        name: "pm_file",
        about: "a pool of the file backend, its machine dying at every operation of the file",
        seeds: |tier| tier.scale(60),
        run: pm::file_pool,
    },
    Suite {
        name: "kill9",
        about: "real processes with four writers, killed at random and at sites, also in recovery",
        seeds: |tier| if tier == Tier::Ci { 170 } else { 4 },
        run: kill9::kill9,
    },
];

impl Suite {
    /// The suite named `name`.
    pub fn named(name: &str) -> Option<&'static Suite> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    /// Runs the tier's seeds, spread over threads. Returns their number and their tally.
    ///
    /// # Panics
    /// If a seed fails, naming it and the command that replays it.
    pub fn test(&'static self) -> (u64, Tally) {
        let total = Arc::new(Mutex::new(Tally::default()));
        let into = total.clone();
        let seeds = (self.seeds)(Tier::get());
        each_seed(self.name, seeds, move |seed| {
            let tally = (self.run)(seed);
            into.lock().expect("no panic under the lock").add(tally);
        });
        let total = total.lock().expect("no panic under the lock");
        (seeds, total.clone())
    }
}
