//! The ends of logs. Two logs end while the manifest cannot be written: both ends must be recorded
//! once it can. The bug: the first end was forgotten when the second could not be recorded either.
//! An ended log that is no longer needed is also released. The bug: without a request for a sync
//! each was kept open, and so was its space.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_base::seed::Seed;
use firn_fs::{Fault, FaultKind, OpKind};
use firn_sim::{Death, History, Machine, Session, Setup, read_all};
use firndb::Durability;

#[test]
fn two_log_ends_wait_for_the_manifest() {
    for seed in 0..20 {
        let (setup, mut random) = (Setup::small(), Seed::new(seed));
        let machine = Machine::new(&setup, seed);
        let fs = machine.fs.clone();
        let mut session = Session::open(&setup, &machine, History::default()).unwrap();
        let mut write = |session: &mut Session| {
            let change = (setup.key(&mut random), Some(vec![7; 300]));
            session.write(vec![change], Durability::Power)
        };
        write(&mut session).unwrap();
        fs.inject(
            Fault::for_ever(FaultKind::Eio)
                .on(OpKind::Create)
                .at(".sst"),
        );
        fs.inject(
            Fault::once(FaultKind::ShortWrite)
                .on(OpKind::Write)
                .at(".log"),
        );
        write(&mut session).unwrap_err();
        session.db().flush().unwrap_err();
        fs.inject(
            Fault::once(FaultKind::Eio)
                .on(OpKind::Write)
                .at("MANIFEST-000002"),
        );
        write(&mut session).unwrap_err();
        session.db().flush().unwrap_err();
        write(&mut session).unwrap();
        let after = machine.die(Death::Kill, &mut random);
        let mut session = Session::open(&setup, &after, session.history.clone()).expect("recovery");
        let got = read_all(session.db()).unwrap();
        session
            .history
            .check(&got, Death::Kill)
            .unwrap_or_else(|account| panic!("{account}"));
        session.history.restart(got);
        session.settle().unwrap();
    }
}

#[test]
fn obsolete_logs_give_their_space_back() {
    let (setup, mut random) = (Setup::small(), Seed::new(1));
    let machine = Machine::new(&setup, 1);
    let fs = machine.fs.clone();
    let mut session = Session::open(&setup, &machine, History::default()).unwrap();
    let mut used = Vec::new();
    for _ in 0..8 {
        for _ in 0..200 {
            let change = (setup.key(&mut random), Some(vec![7; 300]));
            session.write(vec![change], Durability::Process).unwrap();
        }
        session.db().flush().unwrap();
        session.db().compact().unwrap();
        used.push(fs.used());
    }
    assert!(
        used[7] < used[1] * 3 / 2,
        "files of {used:?} bytes hold the same keys"
    );
}
