//! Cuts inside creating and recovering a database, at every operation, and with every subset of pending names.
//!
//! Found here: a creation that was cut twice left two logs without CURRENT, which no open would take; and a recovery
//! gave the pool's log buffer to the new log before the manifest named what the buffer held, so that a kill between
//! lost it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_base::seed::Seed;
use firn_fs::{CrashPlan, Keep, OpKind, Operation, SECTOR, SimFs};
use firn_sim::{Death, History, Pool, Session, Setup, Tier, each_seed, read_all};
use firndb::Durability;

/// Recovers `fs` and checks what came back.
fn recover(setup: &Setup, fs: &SimFs, pool: Option<&Pool>, history: &History, death: Death) -> Session {
    let mut session = Session::open(setup, fs, pool.map(Pool::path), history.clone()).expect("recovery");
    let got = read_all(session.db()).unwrap();
    history.check(&got, death).unwrap_or_else(|account| panic!("{account}"));
    session.history.restart(got);
    session
}

#[test]
fn a_creation_may_be_cut_any_number_of_times() {
    each_seed("recovery_cut", Tier::get().scale(200), |seed| {
        let (setup, mut random) = (Setup::small(), Seed::new(seed));
        let mut fs = setup.file_system(seed);
        for _ in 0..1 + random.below(4) {
            fs.crash_after(1 + random.below(14));
            let cut = Session::open(&setup, &fs, None, History::default());
            fs = if random.one_in(2) { fs.kill() } else { fs.power_cut(random.next_u64()) };
            drop(cut);
        }
        let mut session = recover(&setup, &fs, None, &History::default(), Death::Power);
        session.run(30, &mut random).unwrap();
        session.settle().unwrap();
    });
}

/// A database whose process was killed in the middle of things.
fn killed(setup: &Setup, seed: u64, operations: u64) -> (SimFs, Option<Pool>, History) {
    let mut random = Seed::new(seed);
    let fs = setup.file_system(seed);
    let mut pool = random.one_in(2).then(Pool::new);
    let mut session = Session::open(setup, &fs, pool.as_ref().map(Pool::path), History::default()).unwrap();
    session.run(operations, &mut random).unwrap();
    if let Some(pool) = &mut pool {
        pool.kill();
    }
    (fs.kill(), pool, session.history.clone())
}

#[test]
fn a_recovery_may_be_cut_at_every_operation() {
    each_seed("recovery_cut", Tier::get().scale(12), |seed| {
        let setup = Setup::small();
        let (image, pool, history) = killed(&setup, seed, 60);
        for count in 1.. {
            let (fs, mut pool) = (image.duplicate(), pool.as_ref().map(Pool::duplicate));
            fs.crash_after(count);
            let cut = Session::open(&setup, &fs, pool.as_ref().map(Pool::path), history.clone());
            let whole = !fs.crashed();
            pool.iter_mut().for_each(Pool::kill);
            recover(&setup, &fs.kill(), pool.as_ref(), &history, Death::Kill);
            for cut in (0..3).filter(|_| pool.is_none()) {
                recover(&setup, &fs.power_cut(cut), None, &history, Death::Power);
            }
            drop(cut);
            if whole {
                break;
            }
        }
    });
}

/// Every subset of the pending directory operations, at a random moment of a random run (`dir_exhaust`).
#[test]
fn any_subset_of_pending_names_may_hold() {
    each_seed("recovery_cut", Tier::get().scale(150), |seed| {
        let (setup, mut random) = (Setup::small(), Seed::new(seed));
        let fs = setup.file_system(seed);
        let mut session = Session::open(&setup, &fs, None, History::default()).unwrap();
        fs.crash_after(1 + random.below(400));
        let _crashed = session.run(500, &mut random);
        let pending = fs.pending_names().min(5);
        for mask in 0..1u64 << pending {
            for data in [Keep::Nothing, Keep::Some] {
                let after = fs.power_cut_with(CrashPlan { seed, data, names: Some(mask) });
                recover(&setup, &after, None, &session.history, Death::Power);
            }
        }
    });
}

/// The end of a log is an unsynced record of the manifest under process durability. Where it crossed a sector's border
/// and a second record followed, a power cut left the second without the first, and open called it Corruption.
#[test]
fn unsynced_log_ends_may_be_lost_in_any_order() {
    each_seed("recovery_cut", Tier::get().scale(24), |seed| {
        let (whole, _) = run_unsynced(seed, None);
        for count in syncs_behind_a_border(&whole.log()) {
            let (fs, history) = run_unsynced(seed, Some(count));
            assert!(fs.crashed(), "a run is a function of its seed");
            for cut in 0..20 {
                let plan = CrashPlan { seed: cut, data: Keep::Some, names: None };
                recover(&Setup::small(), &fs.power_cut_with(plan), None, &history, Death::Power);
            }
        }
    });
}

/// Fills buffers one after the other without a sync, until the mutation that is given.
fn run_unsynced(seed: u64, crash_at: Option<u64>) -> (SimFs, History) {
    let mut random = Seed::new(seed);
    let setup = Setup { power_percent: 0, write_buffer_bytes: 4 << 10, ..Setup::small() };
    let fs = setup.file_system(seed);
    crash_at.into_iter().for_each(|count| fs.crash_after(count));
    let mut session = Session::open(&setup, &fs, None, History::default()).unwrap();
    for _ in 0..seed % 7 {
        // Records of different lengths, to come upon borders everywhere.
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

/// Which mutations are syncs of the manifest behind a record that ends in another sector than it began.
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
