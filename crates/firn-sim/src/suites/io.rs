//! Operations that fail: acknowledged writes remain, the error has the right kind, reads continue,
//! and writes resume or report that they will not.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::contents::read_all;
use crate::machine::{Machine, fingerprint};
use crate::model::{Death, History};
use crate::session::Session;
use crate::setup::Setup;
use crate::suites::start::Start;
use crate::tally::Tally;
use firn_base::seed::{Seed, mix};
use firn_fs::{Fault, FaultKind, OpKind};
use firndb::{Durability, Error, ErrorKind};
use std::time::Duration;

/// Runs `count` operations and returns their errors. Every read in between must be right.
fn run_on(session: &mut Session, count: u64, random: &mut Seed) -> Vec<Error> {
    let mut errors = Vec::new();
    for _ in 0..count {
        // Reads, snapshots and reopens belong to the other suites. Here only operations that change
        // something may fail.
        let setup = session.setup.clone();
        let outcome = match random.below(20) {
            0 => session.db().flush().inspect(|()| session.history.synced()),
            1 => session.db().sync().inspect(|()| session.history.synced()),
            // A compaction requested by a user never appends.
            2 if setup.eager_appends => session.db().wait_idle(),
            2 => session
                .db()
                .compact()
                .inspect(|()| session.history.synced()),
            3..6 => {
                session.clock.advance(Duration::from_millis(300));
                session.inline.step();
                Ok(())
            }
            6 | 7 => session.write(vec![(setup.key(random), None)], setup.durability(random)),
            _ => {
                // Tables that grow must contain so much that one more entry makes no compaction
                // due.
                let count = if setup.eager_appends { 12 } else { 1 };
                let changes = (0..count)
                    .map(|_| (setup.key(random), Some(setup.value(random))))
                    .collect();
                session.write(changes, setup.durability(random))
            }
        };
        if let Err(error) = outcome {
            if error.kind() == ErrorKind::Poisoned {
                session.history.doubt();
            }
            errors.push(error);
        }
        if random.one_in(10) {
            let got = read_all(session.db()).expect("reads go on");
            assert!(
                got == *session.history.now(),
                "contents differ while operations fail"
            );
        }
    }
    errors
}

fn recover_and_settle(
    setup: &Setup,
    machine: &Machine,
    history: &History,
    death: Death,
    random: &mut Seed,
) -> Tally {
    let mut tally = Tally::default();
    tally.recovered(fingerprint(machine));
    let mut session = Session::open(setup, machine, history.clone()).expect("recovery");
    let got = read_all(session.db()).unwrap();
    history
        .check(&got, death)
        .unwrap_or_else(|account| panic!("{account}"));
    session.history.restart(got);
    session.run(50, random).unwrap();
    session.settle().unwrap();
    tally
}

/// Kills the machine, either way, and recovers it. With a pool under the log a power cut is no
/// worse than a kill.
fn die_and_settle(session: &Session, random: &mut Seed) -> Tally {
    let death = if random.one_in(2) {
        Death::Kill
    } else {
        Death::Power
    };
    let after = session.machine.die(death, random);
    let promised = if session.setup.pool {
        Death::Kill
    } else {
        death
    };
    recover_and_settle(&session.setup, &after, &session.history, promised, random)
}

/// A setup for small databases, with or without a pool.
fn setup(random: &mut Seed) -> Setup {
    let setup = Setup {
        direct: random.one_in(2),
        pool: random.one_in(3),
        ..Setup::small()
    };
    if random.one_in(3) {
        Setup {
            power_percent: 20,
            ..setup
        }
    } else {
        setup
    }
}

/// `io_countdown`: the n-th operation of some kind fails, once or forever.
pub(crate) fn io_countdown(seed: u64) -> Tally {
    let mut random = Seed::new(seed);
    let setup = setup(&mut random);
    countdown(Start::empty(setup, seed), random)
}

fn countdown(start: Start, mut random: Seed) -> Tally {
    let Start {
        setup,
        machine,
        history,
    } = start;
    let fs = machine.fs.clone();
    let kind = [
        FaultKind::Eio,
        FaultKind::Enospc,
        FaultKind::Eintr,
        FaultKind::ShortWrite,
    ][random.below(4) as usize];
    let fault = if random.one_in(3) {
        Fault::for_ever(kind)
    } else {
        Fault::once(kind)
    };
    let reach = 8 << random.below(6);
    fs.inject(fault.on_mutations().after(random.below(reach)));
    let mut session = match Session::open(&setup, &machine, history.clone()) {
        Ok(session) => session,
        Err(error) => {
            assert!(
                matches!(
                    error.kind(),
                    ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Poisoned
                ),
                "{error:?}"
            );
            fs.heal();
            Session::open(&setup, &machine, history).expect("once the disk works")
        }
    };
    let errors = run_on(&mut session, 120, &mut random);
    for error in &errors {
        let kind = error.kind();
        assert!(
            matches!(
                kind,
                ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Poisoned
            ),
            "{error:?}"
        );
    }
    fs.heal();
    let poisoned = errors
        .iter()
        .any(|error| error.kind() == ErrorKind::Poisoned);
    if !poisoned {
        session.clock.advance(Duration::from_secs(2));
        session.inline.run();
        let late = run_on(&mut session, 30, &mut random);
        // A sync that failed in the background poisons the handle at the next use.
        assert!(
            late.iter().all(|error| error.kind() == ErrorKind::Poisoned),
            "{late:?}"
        );
    }
    die_and_settle(&session, &mut random)
}

/// Several operations fail, none of them a sync. Everything can continue once the disk works, and
/// nothing is lost.
pub(crate) fn io_several(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let setup = setup(&mut random);
    several(Start::empty(setup, seed), random)
}

fn several(start: Start, mut random: Seed) -> Tally {
    let Start {
        setup,
        machine,
        history,
    } = start;
    let fs = machine.fs.clone();
    let mut session = Session::open(&setup, &machine, history).unwrap();
    for _ in 0..2 {
        for _ in 0..1 + random.below(6) {
            let kinds = [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite];
            let ops = [OpKind::Write, OpKind::Write, OpKind::Create, OpKind::Remove];
            let suffixes = ["", ".log", ".sst", "MANIFEST-000002"];
            let fault =
                Fault::once(kinds[random.below(3) as usize]).on(ops[random.below(4) as usize]);
            let fault = fault
                .at(suffixes[random.below(4) as usize])
                .after(random.below(20));
            fs.inject(fault);
        }
        let errors = run_on(&mut session, 80, &mut random);
        let known = |error: &Error| matches!(error.kind(), ErrorKind::Io | ErrorKind::NoSpace);
        assert!(errors.iter().all(known), "{errors:?}");
        fs.heal();
        session.clock.advance(Duration::from_secs(2));
        session.inline.run();
        let late = run_on(&mut session, 20, &mut random);
        assert!(late.is_empty(), "the disk works again: {late:?}");
    }
    die_and_settle(&session, &mut random)
}

/// `fsync_fail`: a failed sync is never silently retried.
pub(crate) fn fsync_fail(seed: u64) -> Tally {
    failed_sync(Start::empty(Setup::small(), seed), Seed::new(seed))
}

fn failed_sync(start: Start, mut random: Seed) -> Tally {
    let Start {
        setup,
        machine,
        history,
    } = start;
    let fs = machine.fs.clone();
    let mut session = Session::open(&setup, &machine, history).unwrap();
    assert!(run_on(&mut session, 40, &mut random).is_empty());
    let log = random.one_in(2);
    let fault = Fault::once(FaultKind::Eio)
        .on(OpKind::Sync)
        .after(random.below(3));
    fs.inject(if log { fault.at(".log") } else { fault });
    let errors = run_on(&mut session, 80, &mut random);
    // With a pool a log is synced when it is flushed.
    assert!(
        !log || setup.pool || !errors.is_empty(),
        "80 operations without a sync of the log"
    );
    if let Some(at) = errors
        .iter()
        .position(|error| error.kind() == ErrorKind::Poisoned)
    {
        let write = session
            .db()
            .put(b"after", b"a failed sync")
            .map_err(|error| error.kind());
        assert!(
            !log || write == Err(ErrorKind::Poisoned),
            "{write:?} after {:?}",
            errors[at]
        );
        if write.is_ok() {
            let number = session
                .history
                .issue([vec![(b"after".to_vec(), Some(b"a failed sync".to_vec()))]]);
            session.history.acknowledge(number, Durability::Power);
        }
    }
    let now = read_all(session.db()).expect("reads go on");
    assert!(now == *session.history.now());
    match random.below(3) {
        0 => {
            // Closed and opened again in the same process. Where a pool lies under the log, hardly
            // anything is synced: the fault may still be due.
            let history = session.history.clone();
            drop(session);
            fs.heal();
            recover_and_settle(&setup, &machine, &history, Death::Kill, &mut random)
        }
        _ => die_and_settle(&session, &mut random),
    }
}

/// `disk_cap`: the disk fills up at any point, then has room again. Writes resume without a reopen.
pub(crate) fn disk_cap(seed: u64) -> Tally {
    let mut random = Seed::new(seed);
    let setup = setup(&mut random);
    full_disk(Start::empty(setup, seed), random)
}

fn full_disk(start: Start, mut random: Seed) -> Tally {
    let Start {
        setup,
        machine,
        history,
    } = start;
    let fs = machine.fs.clone();
    let mut session = Session::open(&setup, &machine, history).unwrap();
    assert!(run_on(&mut session, 30, &mut random).is_empty());
    for _ in 0..4 {
        fs.set_cap(Some(fs.used() + 4096 * random.below(12)));
        let errors = run_on(&mut session, 60, &mut random);
        assert!(
            errors
                .iter()
                .all(|error| error.kind() == ErrorKind::NoSpace),
            "{errors:?}"
        );
        fs.set_cap(None);
        session.clock.advance(Duration::from_secs(2));
        session.inline.run();
        let late = run_on(&mut session, 20, &mut random);
        assert!(late.is_empty(), "there is room again: {late:?}");
    }
    // A manifest that could not be replaced (seed 169) stays until the next open.
    session.come_to_rest().unwrap();
    die_and_settle(&session, &mut random)
}

/// `block_io`: the same for a database whose tables grow.
pub(crate) fn block_io(seed: u64) -> Tally {
    let (start, random) = (Start::grown(seed), Seed::new(mix(seed)));
    match seed % 5 {
        0 => countdown(start, random),
        1 => several(start, random),
        2 => failed_sync(start, random),
        3 => full_disk(start, random),
        _ => die_behind_a_failure(start, random),
    }
}

/// A fault, several, a failed sync or a full disk, of any database.
fn any_fault(start: Start, random: Seed, seed: u64) -> Tally {
    match seed % 4 {
        0 => countdown(start, random),
        1 => several(start, random),
        2 => failed_sync(start, random),
        _ => full_disk(start, random),
    }
}

/// `lab_io`: the same for a database whose level 0 is a pair of trees over its logs.
pub(crate) fn lab_io(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let start = Start::trees(&mut random, seed);
    any_fault(start, random, seed)
}

/// `tlsm_io`: the same for a database whose tables are lists in persistent memory.
pub(crate) fn tlsm_io(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let start = Start::lists(&mut random, seed);
    any_fault(start, random, seed)
}

/// `blade_io`: the same for a database whose upper tables are in persistent memory.
pub(crate) fn blade_io(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let start = Start::sorted(&mut random, seed);
    any_fault(start, random, seed)
}

/// `pmdb_io`: the same for a database of ranges with stacks of tables.
pub(crate) fn pmdb_io(seed: u64) -> Tally {
    let mut random = Seed::new(mix(seed));
    let start = Start::stacks(&mut random, seed);
    any_fault(start, random, seed)
}

/// A write or sync of a table fails, and the machine dies soon afterwards, before the failure is
/// resolved.
fn die_behind_a_failure(start: Start, mut random: Seed) -> Tally {
    let Start {
        setup,
        machine,
        history,
    } = start;
    let mut session = Session::open(&setup, &machine, history).unwrap();
    let kind = [FaultKind::Eio, FaultKind::ShortWrite, FaultKind::Enospc][random.below(3) as usize];
    let op = if random.one_in(4) {
        OpKind::Sync
    } else {
        OpKind::Write
    };
    machine
        .fs
        .inject(Fault::once(kind).on(op).at(".sst").after(random.below(40)));
    machine.crash_after(50 + random.below(400));
    for _ in 0..400 {
        let changes = (0..12)
            .map(|_| (setup.key(&mut random), Some(setup.value(&mut random))))
            .collect();
        if session
            .write(changes, setup.durability(&mut random))
            .is_err()
            && machine.fs.crashed()
        {
            break;
        }
        session.clock.advance(Duration::from_millis(300));
        session.inline.run();
    }
    die_and_settle(&session, &mut random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_grow_while_operations_fail() {
        let (
            Start {
                setup,
                machine,
                history,
            },
            mut random,
        ) = (Start::grown(1), Seed::new(1));
        let mut session = Session::open(&setup, &machine, history).unwrap();
        assert!(run_on(&mut session, 120, &mut random).is_empty());
        session.db().wait_idle().unwrap();
        let stats = session.db().stats();
        assert!(
            stats
                .levels
                .iter()
                .map(|level| level.growth.block_grained)
                .sum::<u64>()
                > 5,
            "{:?}",
            stats.levels
        );
    }
}
