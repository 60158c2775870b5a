//! The table of suites, which tests, mutants and soak run. A suite is a function from a seed to a
//! tally. It panics if an invariant does not hold.
//!
//! The seeds of most suites are random cases. `pm_seq`, `pm_torn`, `pm_eadr`, `pm_double` and
//! `pm_lint` first enumerate all sequences of up to two operations, and `pm_init` all of up to one,
//! in three modes: lists that several runs of CI finish together. For three structures a seed of
//! `pm_double` takes up to minutes, so CI runs only the floor. `pm_align`, `trees_damage` and
//! `lists_damage` have no cases beyond their lists. `bit_exhaust` and `cut_extend` enumerate the
//! bytes of a database, then those of another, without end. Their list would be the same few
//! databases in every run, so their fresh seeds are random: each run damages some bytes of
//! databases that no run has seen.

use crate::pm::{self, BTrees, Hot, Lists, LogBuffer, Placed, PoolSpace, Shelf};
use crate::seeds::Seeds;
use crate::suites::{copies, damage, io, joint, kill9, media, metamorphic, model, recovery};
use crate::tally::Tally;

/// One suite.
#[derive(Debug)]
pub struct Suite {
    /// Its name, which is that of its test too.
    pub name: &'static str,
    /// The property that it tests.
    pub about: &'static str,
    /// The seeds that it runs.
    pub seeds: Seeds,
    /// Its share of the time that CI has for all suites, more than its floor takes: about so many
    /// seconds of nine minutes.
    pub weight: u64,
    /// Runs one seed.
    pub run: fn(u64) -> Tally,
}

/// All suites.
pub static SUITES: &[Suite] = &[
    Suite {
        name: "joint",
        about: "one cut through memory and files, anywhere in the whole engine, and again in its recovery",
        seeds: Seeds::random(1600),
        weight: 70,
        run: joint::joint,
    },
    Suite {
        name: "partitions",
        about: "one cut of a database that is divided into partitions, and again in its recovery",
        seeds: Seeds::random(60),
        weight: 40,
        run: joint::partitions,
    },
    Suite {
        name: "block_append",
        about: "one cut of a database with several levels whose tables grow, and again in its recovery",
        seeds: Seeds::random(24),
        weight: 40,
        run: joint::block_append,
    },
    Suite {
        name: "block_io",
        about: "io_countdown, io_several, fsync_fail and disk_cap of a database whose tables grow",
        seeds: Seeds::random(20),
        weight: 15,
        run: io::block_io,
    },
    Suite {
        name: "block_checkpoint_cut",
        about: "checkpoint_cut of a database whose tables grow",
        seeds: Seeds::random(5),
        weight: 5,
        run: copies::block_checkpoint_cut,
    },
    Suite {
        name: "block_recovery_cut",
        about: "recovery_cut of a database whose tables grew",
        seeds: Seeds::random(1),
        weight: 4,
        run: recovery::block_recovery_cut,
    },
    Suite {
        name: "lab_joint",
        about: "one cut through a database whose level 0 is a pair of trees over its logs, and again in its recovery",
        seeds: Seeds::random(400),
        weight: 50,
        run: joint::lab_joint,
    },
    Suite {
        name: "lab_io",
        about: "io_countdown, io_several, fsync_fail and disk_cap of a database whose level 0 is a pair of trees",
        seeds: Seeds::random(200),
        weight: 12,
        run: io::lab_io,
    },
    Suite {
        name: "lab_checkpoint_cut",
        about: "checkpoint_cut of a database whose level 0 is a pair of trees",
        seeds: Seeds::random(60),
        weight: 6,
        run: copies::lab_checkpoint_cut,
    },
    Suite {
        name: "lab_recovery_cut",
        about: "recovery_cut of a database whose level 0 is a pair of trees",
        seeds: Seeds::random(4),
        weight: 6,
        run: recovery::lab_recovery_cut,
    },
    Suite {
        name: "lab_creation_cut",
        about: "creation_cut of a database whose level 0 is a pair of trees",
        seeds: Seeds::random(60),
        weight: 3,
        run: recovery::lab_creation_cut,
    },
    Suite {
        name: "creation_cut",
        about: "creating a database, cut any number of times",
        seeds: Seeds::random(200),
        weight: 3,
        run: recovery::creation_cut,
    },
    Suite {
        name: "recovery_cut",
        about: "a recovery, cut at every operation of its files and every store of its memory",
        seeds: Seeds::random(12),
        weight: 8,
        run: recovery::recovery_cut,
    },
    Suite {
        name: "dir_exhaust",
        about: "every subset of the pending directory operations",
        seeds: Seeds::random(150),
        weight: 4,
        run: recovery::dir_exhaust,
    },
    Suite {
        name: "unsynced_ends",
        about: "unsynced ends of logs, lost in any order",
        seeds: Seeds::random(24),
        weight: 12,
        run: recovery::unsynced_ends,
    },
    Suite {
        name: "io_countdown",
        about: "the n-th operation fails, once or for ever",
        seeds: Seeds::random(1300),
        weight: 8,
        run: io::io_countdown,
    },
    Suite {
        name: "io_several",
        about: "several operations fail, none of them a sync: all goes on once the disk works",
        seeds: Seeds::random(1300),
        weight: 8,
        run: io::io_several,
    },
    Suite {
        name: "fsync_fail",
        about: "a failed sync poisons, and a reopen recovers",
        seeds: Seeds::random(300),
        weight: 4,
        run: io::fsync_fail,
    },
    Suite {
        name: "disk_cap",
        about: "the disk is full in 4 KiB steps, then has room again",
        seeds: Seeds::random(200),
        weight: 6,
        run: io::disk_cap,
    },
    Suite {
        name: "read_faults",
        about: "reads that fail or lie give an error or the right value",
        seeds: Seeds::random(100),
        weight: 6,
        run: model::read_faults,
    },
    Suite {
        name: "bit_exhaust",
        about: "one bit of every byte of a golden database",
        seeds: Seeds::random(damage::ALL_SEEDS / 32),
        weight: 20,
        run: damage::bit_exhaust,
    },
    Suite {
        name: "cut_extend",
        about: "log and manifest cut at every byte, every file extended, blocks of 4 KiB in the wrong place",
        seeds: Seeds::random(damage::ALL_SEEDS / 8),
        weight: 8,
        run: damage::cut_extend,
    },
    Suite {
        name: "model",
        about: "random operations against a sorted map, with checkpoints, reopens and read-only opens",
        seeds: Seeds::random(100),
        weight: 30,
        run: model::model,
    },
    Suite {
        name: "pm_seq_pool",
        about: "every sequence of up to two operations, cut at every fence: pool",
        seeds: Seeds::list_then_random(73, 73),
        weight: 4,
        run: pm::sequence::<PoolSpace>,
    },
    Suite {
        name: "pm_torn_pool",
        about: "the same, each 8-byte word by itself: pool",
        seeds: Seeds::list_then_random(9, 73),
        weight: 4,
        run: pm::torn::<PoolSpace>,
    },
    Suite {
        name: "pm_eadr_pool",
        about: "the same with a durable cache, cut at every store: pool",
        seeds: Seeds::list_then_random(9, 73),
        weight: 1,
        run: pm::eadr::<PoolSpace>,
    },
    Suite {
        name: "pm_init_pool",
        about: "creation and single operations, cut at every store: pool",
        seeds: Seeds::list_then_random(6, 27),
        weight: 1,
        run: pm::init::<PoolSpace>,
    },
    Suite {
        name: "pm_double_pool",
        about: "recovery cut at every store, and the recovery of that: pool",
        seeds: Seeds::list_then_random(2, 73),
        weight: 1,
        run: pm::double::<PoolSpace>,
    },
    Suite {
        name: "pm_lint_pool",
        about: "nothing dirty at an acknowledgement: pool",
        seeds: Seeds::list_then_random(9, 73),
        weight: 1,
        run: pm::lint::<PoolSpace>,
    },
    Suite {
        name: "pm_seq_shelf",
        about: "every sequence of up to two operations, cut at every fence: shelf",
        seeds: Seeds::list_then_random(31, 31),
        weight: 1,
        run: pm::sequence::<Shelf<0>>,
    },
    Suite {
        name: "pm_torn_shelf",
        about: "the same, each 8-byte word by itself: shelf",
        seeds: Seeds::list_then_random(6, 31),
        weight: 1,
        run: pm::torn::<Shelf<0>>,
    },
    Suite {
        name: "pm_eadr_shelf",
        about: "the same with a durable cache, cut at every store: shelf",
        seeds: Seeds::list_then_random(31, 31),
        weight: 1,
        run: pm::eadr::<Shelf<0>>,
    },
    Suite {
        name: "pm_init_shelf",
        about: "creation and single operations, cut at every store: shelf",
        seeds: Seeds::list_then_random(6, 18),
        weight: 1,
        run: pm::init::<Shelf<0>>,
    },
    Suite {
        name: "pm_double_shelf",
        about: "recovery cut at every store, and the recovery of that: shelf",
        seeds: Seeds::list_then_random(2, 31),
        weight: 1,
        run: pm::double::<Shelf<0>>,
    },
    Suite {
        name: "pm_lint_shelf",
        about: "nothing dirty at an acknowledgement: shelf",
        seeds: Seeds::list_then_random(9, 31),
        weight: 1,
        run: pm::lint::<Shelf<0>>,
    },
    Suite {
        name: "pm_seq_trees",
        about: "every sequence of up to two operations, cut at every fence: B+ trees",
        seeds: Seeds::list_then_random(73, 73),
        weight: 4,
        run: pm::sequence::<BTrees>,
    },
    Suite {
        name: "pm_torn_trees",
        about: "the same, each 8-byte word by itself: B+ trees",
        seeds: Seeds::list_then_random(9, 73),
        weight: 5,
        run: pm::torn::<BTrees>,
    },
    Suite {
        name: "pm_eadr_trees",
        about: "the same with a durable cache, cut at every store: B+ trees",
        seeds: Seeds::list_then_random(9, 73),
        weight: 1,
        run: pm::eadr::<BTrees>,
    },
    Suite {
        name: "pm_init_trees",
        about: "creation and single operations, cut at every store: B+ trees",
        seeds: Seeds::list_then_random(6, 27),
        weight: 1,
        run: pm::init::<BTrees>,
    },
    Suite {
        name: "pm_double_trees",
        about: "recovery cut at every store, and the recovery of that: B+ trees",
        seeds: Seeds::list_then_random(2, 73).long(),
        weight: 1,
        run: pm::double::<BTrees>,
    },
    Suite {
        name: "pm_lint_trees",
        about: "nothing dirty at an acknowledgement: B+ trees",
        seeds: Seeds::list_then_random(9, 73),
        weight: 1,
        run: pm::lint::<BTrees>,
    },
    Suite {
        name: "trees_damage",
        about: "one bit of every byte of a pool with B+ trees",
        seeds: Seeds::list(pm::DAMAGE_SEEDS, pm::DAMAGE_SEEDS),
        weight: 2,
        run: pm::trees_damage,
    },
    Suite {
        name: "pm_seq_lists",
        about: "every sequence of up to two operations, cut at every fence: lists",
        seeds: Seeds::list_then_random(4, 31),
        weight: 4,
        run: pm::sequence::<Lists>,
    },
    Suite {
        name: "pm_torn_lists",
        about: "the same, each 8-byte word by itself: lists",
        seeds: Seeds::list_then_random(2, 31),
        weight: 4,
        run: pm::torn::<Lists>,
    },
    Suite {
        name: "pm_eadr_lists",
        about: "the same with a durable cache, cut at every store: lists",
        seeds: Seeds::list_then_random(2, 31),
        weight: 2,
        run: pm::eadr::<Lists>,
    },
    Suite {
        name: "pm_init_lists",
        about: "creation and single operations, cut at every store: lists",
        seeds: Seeds::list_then_random(2, 18),
        weight: 2,
        run: pm::init::<Lists>,
    },
    Suite {
        name: "pm_double_lists",
        about: "recovery cut at every store, and the recovery of that: lists",
        seeds: Seeds::list_then_random(2, 31),
        weight: 1,
        run: pm::double::<Lists>,
    },
    Suite {
        name: "pm_lint_lists",
        about: "nothing dirty at an acknowledgement: lists",
        seeds: Seeds::list_then_random(2, 31),
        weight: 1,
        run: pm::lint::<Lists>,
    },
    Suite {
        name: "lists_damage",
        about: "one bit of every byte of a pool with lists",
        seeds: Seeds::list(pm::LIST_DAMAGE_SEEDS, pm::LIST_DAMAGE_SEEDS),
        weight: 2,
        run: pm::lists_damage,
    },
    Suite {
        name: "pm_seq_log",
        about: "every sequence of up to two operations, cut at every fence: log",
        seeds: Seeds::list_then_random(7, 43),
        weight: 6,
        run: pm::sequence::<LogBuffer>,
    },
    Suite {
        name: "pm_torn_log",
        about: "the same, each 8-byte word by itself: log",
        seeds: Seeds::list_then_random(3, 43),
        weight: 7,
        run: pm::torn::<LogBuffer>,
    },
    Suite {
        name: "pm_eadr_log",
        about: "the same with a durable cache, cut at every store: log",
        seeds: Seeds::list_then_random(3, 43),
        weight: 1,
        run: pm::eadr::<LogBuffer>,
    },
    Suite {
        name: "pm_init_log",
        about: "creation and single operations, cut at every store: log",
        seeds: Seeds::list_then_random(3, 21),
        weight: 4,
        run: pm::init::<LogBuffer>,
    },
    Suite {
        name: "pm_double_log",
        about: "recovery cut at every store, and the recovery of that: log",
        seeds: Seeds::list_then_random(1, 43).long(),
        weight: 1,
        run: pm::double::<LogBuffer>,
    },
    Suite {
        name: "pm_lint_log",
        about: "nothing dirty at an acknowledgement: log",
        seeds: Seeds::list_then_random(3, 43),
        weight: 1,
        run: pm::lint::<LogBuffer>,
    },
    Suite {
        name: "pm_seq_hot",
        about: "every sequence of up to two operations, cut at every fence: log and hot buffer",
        seeds: Seeds::list_then_random(8, 57),
        weight: 4,
        run: pm::sequence::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_torn_hot",
        about: "the same, each 8-byte word by itself: log and hot buffer",
        seeds: Seeds::list_then_random(3, 57),
        weight: 10,
        run: pm::torn::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_eadr_hot",
        about: "the same with a durable cache, cut at every store: log and hot buffer",
        seeds: Seeds::list_then_random(3, 57),
        weight: 1,
        run: pm::eadr::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_double_hot",
        about: "recovery cut at every store, and the recovery of that: log and hot buffer",
        seeds: Seeds::list_then_random(1, 57),
        weight: 6,
        run: pm::double::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_lint_hot",
        about: "nothing dirty at an acknowledgement: log and hot buffer",
        seeds: Seeds::list_then_random(3, 57),
        weight: 1,
        run: pm::lint::<LogBuffer<Hot>>,
    },
    Suite {
        name: "pm_seq_placed",
        about: "every sequence of up to two operations, cut at every fence: logs in persistent memory",
        seeds: Seeds::list_then_random(7, 43),
        weight: 6,
        run: pm::sequence::<LogBuffer<Placed>>,
    },
    Suite {
        name: "pm_torn_placed",
        about: "the same, each 8-byte word by itself: logs in persistent memory",
        seeds: Seeds::list_then_random(2, 43),
        weight: 8,
        run: pm::torn::<LogBuffer<Placed>>,
    },
    Suite {
        name: "pm_double_placed",
        about: "recovery cut at every store, and the recovery of that: logs in persistent memory",
        seeds: Seeds::list_then_random(1, 43).long(),
        weight: 6,
        run: pm::double::<LogBuffer<Placed>>,
    },
    Suite {
        name: "pm_lint_placed",
        about: "nothing dirty at an acknowledgement: logs in persistent memory",
        seeds: Seeds::list_then_random(3, 43),
        weight: 1,
        run: pm::lint::<LogBuffer<Placed>>,
    },
    Suite {
        name: "pm_align",
        about: "a durable copy at every alignment, of every length up to three lines",
        seeds: Seeds::list(8, 64),
        weight: 12,
        run: pm::align,
    },
    Suite {
        name: "checkpoint_cut",
        about: "a checkpoint and its source after a power cut, both written on",
        seeds: Seeds::random(100),
        weight: 6,
        run: copies::checkpoint_cut,
    },
    Suite {
        name: "repair_cut",
        about: "repair, cut anywhere and made again",
        seeds: Seeds::random(100),
        weight: 6,
        run: copies::repair_cut,
    },
    Suite {
        name: "two_media",
        about: "an old pool with newer files, and the reverse",
        seeds: Seeds::random(1000),
        weight: 12,
        run: media::two_media,
    },
    Suite {
        name: "pm_cap",
        about: "memory of every size in 4 KiB steps, filled and given back",
        seeds: Seeds::random(64),
        weight: 2,
        run: media::pm_cap,
    },
    Suite {
        name: "metamorphic",
        about: "the same operations under six option sets and every kind, with restarts and faults",
        seeds: Seeds::random(4),
        weight: 12,
        run: metamorphic::metamorphic,
    },
    Suite {
        name: "pm_file",
        about: "a pool of the file backend, its machine dying at every operation of the file",
        seeds: Seeds::random(60),
        weight: 5,
        run: pm::file_pool,
    },
    Suite {
        name: "kill9",
        about: "real processes with four writers, killed at random and at sites, also in recovery",
        seeds: Seeds::random(4),
        weight: 40,
        run: kill9::kill9,
    },
];

impl Suite {
    /// The suite named `name`.
    pub fn named(name: &str) -> Option<&'static Suite> {
        SUITES.iter().find(|suite| suite.name == name)
    }
}
