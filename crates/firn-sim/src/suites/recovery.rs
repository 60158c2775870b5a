//! Cuts during the creation and recovery of a database, at every operation, and with every subset
//! of pending names.
//!
//! Bugs found here: a creation that was cut twice left two logs without CURRENT, which no open
//! accepted; and a recovery gave the pool's log buffer to the new log before the manifest named the
//! buffer's contents, so that a kill in between lost them.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::contents::read_all;
use crate::machine::{Machine, fingerprint};
use crate::model::{Death, History};
use crate::session::Session;
use crate::setup::Setup;
use crate::suites::start::Start;
use crate::tally::Tally;
use firn_base::seed::{Seed, mix};
use firn_fs::{CrashPlan, Keep, OpKind, Operation, SECTOR, SimFs};
use firndb::Durability;

/// Recovers a machine and checks its contents.
fn recover(
    setup: &Setup,
    machine: &Machine,
    history: &History,
    death: Death,
    tally: &mut Tally,
) -> Session {
    tally.recovered(fingerprint(machine));
    let mut session = Session::open(setup, machine, history.clone()).expect("recovery");
    let got = read_all(session.db()).unwrap();
    history
        .check(&got, death)
        .unwrap_or_else(|account| panic!("{account}"));
    session.history.restart(got);
    session
}

/// The creation of a database is cut, any number of times.
pub(crate) fn creation_cut(seed: u64) -> Tally {
    let mut random = Seed::new(seed);
    let setup = Setup {
        pool: random.one_in(2),
        ..Setup::small()
    };
    cut_creations(Start::empty(setup, seed), random)
}

/// `lab_creation_cut`: the same with trees.
pub(crate) fn lab_creation_cut(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    cut_creations(Start::trees(&mut random, seed), random)
}

/// `tlsm_creation_cut`: the same for a database whose tables are lists in persistent memory.
pub(crate) fn tlsm_creation_cut(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    cut_creations(Start::lists(&mut random, seed), random)
}

/// `blade_creation_cut`: the same for a database whose upper tables are in persistent memory.
pub(crate) fn blade_creation_cut(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    cut_creations(Start::sorted(&mut random, seed), random)
}

fn cut_creations(start: Start, mut random: Seed) -> Tally {
    let mut tally = Tally::default();
    let Start {
        setup, mut machine, ..
    } = start;
    for _ in 0..1 + random.below(4) {
        match setup.pool && random.one_in(2) {
            true => machine.crash_after_stores(1 + random.below(40)),
            false => machine.crash_after(1 + random.below(14)),
        }
        let cut = Session::open(&setup, &machine, History::default());
        machine = machine.die(
            if random.one_in(2) {
                Death::Kill
            } else {
                Death::Power
            },
            &mut random,
        );
        drop(cut);
    }
    let mut session = recover(
        &setup,
        &machine,
        &History::default(),
        Death::Power,
        &mut tally,
    );
    session.run(30, &mut random).unwrap();
    session.settle().unwrap();
    tally
}

/// A database whose process was killed while it was running.
fn killed(start: Start, seed: u64, operations: u64) -> (Machine, History) {
    let mut random = Seed::new(seed);
    let Start {
        setup,
        machine,
        history,
    } = start;
    let mut session = Session::open(&setup, &machine, history).unwrap();
    session.run(operations, &mut random).unwrap();
    (
        machine.die(Death::Kill, &mut random),
        session.history.clone(),
    )
}

/// A recovery is cut at every operation of its files, and at every store and fence of its memory.
pub(crate) fn recovery_cut(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(seed));
    let setup = Setup {
        pool: random.one_in(2),
        ..Setup::small()
    };
    let start = Start::empty(setup, seed);
    cut_recoveries(start, seed, &mut random, &mut tally);
    tally
}

/// `block_recovery_cut`: the same for a database whose tables grew.
pub(crate) fn block_recovery_cut(seed: u64) -> Tally {
    let mut tally = Tally::default();
    cut_recoveries(
        Start::grown(seed),
        seed,
        &mut Seed::new(mix(seed)),
        &mut tally,
    );
    tally
}

/// `lab_recovery_cut`: the same for a database whose level 0 is a pair of trees over its logs.
pub(crate) fn lab_recovery_cut(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    cut_recoveries(
        Start::trees(&mut random, seed),
        seed,
        &mut random,
        &mut tally,
    );
    tally
}

/// `tlsm_recovery_cut`: the same for a database whose tables are lists in persistent memory.
pub(crate) fn tlsm_recovery_cut(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let start = Start::lists(&mut random, seed);
    cut_recoveries(start, seed, &mut random, &mut tally);
    tally
}

/// `blade_recovery_cut`: the same for a database whose upper tables are in persistent memory.
pub(crate) fn blade_recovery_cut(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let start = Start::sorted(&mut random, seed);
    cut_recoveries(start, seed, &mut random, &mut tally);
    tally
}

/// `pmdb_recovery_cut`: the same for a database of ranges with stacks of tables.
pub(crate) fn pmdb_recovery_cut(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let start = Start::stacks(&mut random, seed);
    cut_recoveries(start, seed, &mut random, &mut tally);
    tally
}

fn cut_recoveries(start: Start, seed: u64, random: &mut Seed, tally: &mut Tally) {
    let setup = start.setup.clone();
    let (image, history) = killed(start, seed, 60);
    for in_memory in [false, true] {
        for count in (1..).take(if in_memory && !setup.pool {
            0
        } else {
            usize::MAX
        }) {
            let machine = image.duplicate();
            if in_memory {
                machine.crash_after_stores(count)
            } else {
                machine.crash_after(count)
            }
            let cut = Session::open(&setup, &machine, history.clone());
            let whole = !machine.fs.crashed();
            let power = if setup.pool {
                Death::Kill
            } else {
                Death::Power
            };
            let again = machine.duplicate();
            recover(
                &setup,
                &machine.die(Death::Kill, random),
                &history,
                Death::Kill,
                tally,
            );
            for _ in 0..3 {
                recover(
                    &setup,
                    &again.duplicate().die(Death::Power, random),
                    &history,
                    power,
                    tally,
                );
            }
            drop(cut);
            if whole {
                break;
            }
        }
    }
}

/// Every subset of the pending directory operations, at a random moment of a random run.
pub(crate) fn dir_exhaust(seed: u64) -> Tally {
    let (mut tally, setup, mut random) = (Tally::default(), Setup::small(), Seed::new(seed));
    let machine = Machine::new(&setup, seed);
    let fs = machine.fs.clone();
    let mut session = Session::open(&setup, &machine, History::default()).unwrap();
    fs.crash_after(1 + random.below(400));
    let _crashed = session.run(500, &mut random);
    let pending = fs.pending_names().min(5);
    for mask in 0..1u64 << pending {
        for data in [Keep::Nothing, Keep::Some] {
            let after = fs.power_cut_with(CrashPlan {
                seed,
                data,
                names: Some(mask),
            });
            recover(
                &setup,
                &Machine::of(after, None),
                &session.history,
                Death::Power,
                &mut tally,
            );
        }
    }
    tally
}

/// Under process durability the end of a log is an unsynced record of the manifest. If that record
/// crossed a sector boundary and a second record followed, a power cut left the second without the
/// first, and open reported Corruption.
pub(crate) fn unsynced_ends(seed: u64) -> Tally {
    let mut tally = Tally::default();
    let (whole, _) = run_unsynced(seed, None);
    for count in syncs_behind_a_border(&whole.log()) {
        let (fs, history) = run_unsynced(seed, Some(count));
        assert!(fs.crashed(), "a run is a function of its seed");
        for cut in 0..20 {
            let plan = CrashPlan {
                seed: cut,
                data: Keep::Some,
                names: None,
            };
            let machine = Machine::of(fs.power_cut_with(plan), None);
            recover(
                &Setup::small(),
                &machine,
                &history,
                Death::Power,
                &mut tally,
            );
        }
    }
    tally
}

/// Fills memtables one after the other without a sync, up to the mutation `crash_at`.
fn run_unsynced(seed: u64, crash_at: Option<u64>) -> (SimFs, History) {
    let mut random = Seed::new(seed);
    let setup = Setup {
        power_percent: 0,
        write_buffer_bytes: 4 << 10,
        ..Setup::small()
    };
    let fs = setup.file_system(seed);
    crash_at.into_iter().for_each(|count| fs.crash_after(count));
    let mut session =
        Session::open(&setup, &Machine::of(fs.clone(), None), History::default()).unwrap();
    for _ in 0..seed % 7 {
        // Gives records different lengths, so that boundaries are hit everywhere.
        session.db().flush().unwrap();
    }
    for _ in 0..600 {
        let change = (setup.key(&mut random), Some(setup.value(&mut random)));
        if session.write(vec![change], Durability::Process).is_err() {
            break;
        }
    }
    (fs, session.history)
}

/// The mutations that sync the manifest after a record that ends in a different sector from its
/// start.
fn syncs_behind_a_border(log: &[Operation]) -> Vec<u64> {
    let (mut counts, mut unsynced) = (Vec::new(), Vec::new());
    for (count, op) in (1..).zip(log.iter().filter(|op| op.kind.mutates())) {
        if !op.path.to_string_lossy().contains("MANIFEST") {
            continue;
        }
        match op.kind {
            OpKind::Write => unsynced.push((op.offset, op.offset + op.len)),
            OpKind::Sync => {
                let crosses = |(from, to): &(u64, u64)| from / SECTOR as u64 != to / SECTOR as u64;
                if unsynced.first().is_some_and(crosses) {
                    counts.push(count);
                }
                unsynced.clear();
            }
            _ => {}
        }
    }
    counts
}
