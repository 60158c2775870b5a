//! Random operations against a sorted map, with no crash: reads every way, snapshots, cursors that live long, reopens,
//! read-only opens, checkpoints; with and without a pool under the log. And that a run is a function of its seed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_base::seed::{Seed, mix};
use firn_fs::{Fault, FaultKind, OpKind};
use firn_sim::{History, Pool, Session, Setup, Tier, each_seed, fingerprint, read_all};
use firndb::ErrorKind;

fn run(seed: u64, operations: u64, pool: Option<&Pool>) -> Session {
    let mut random = Seed::new(mix(seed));
    let setup = Setup::random(&mut random);
    let fs = setup.file_system(seed);
    let mut session = Session::open(&setup, &fs, pool.map(Pool::path), History::default()).unwrap();
    session.run(operations, &mut random).unwrap();
    session
}

#[test]
fn agrees_with_a_map() {
    each_seed("model", Tier::get().scale(100), |seed| {
        let pool = seed.is_multiple_of(3).then(Pool::new);
        let mut session = run(seed, 1000, pool.as_ref());
        session.settle().unwrap();
        session.check_checkpoints(&session.fs).unwrap();
        session.reopen(true).unwrap();
        session.settle().unwrap();
    });
}

#[test]
fn one_seed_one_run() {
    each_seed("model", Tier::get().scale(20), |seed| {
        let state = |session: &Session| (session.fs.trace_hash(), session.fs.operations(), fingerprint(&session.fs));
        let pools = [(); 2].map(|()| seed.is_multiple_of(2).then(Pool::new));
        let [first, second] = pools.each_ref().map(|pool| state(&run(seed, 400, pool.as_ref())));
        assert_eq!(first, second, "the run depends on more than its seed");
    });
}

/// Reads that fail: an error or the right value, and right values again once the device is well.
#[test]
fn reads_that_fail_are_errors() {
    each_seed("model", Tier::get().scale(100), |seed| {
        let mut random = Seed::new(mix(seed));
        let mut session = run(seed, 200, None);
        session.reopen(true).unwrap();
        let kinds =
            [FaultKind::Eio, FaultKind::Eintr, FaultKind::ShortRead, FaultKind::FlippedBit, FaultKind::MisplacedBlock];
        for _ in 0..30 {
            let kind = kinds[random.below(5) as usize];
            session.fs.inject(Fault::once(kind).on(OpKind::Read).at(".sst").after(random.below(6)));
            match read_all(session.db()) {
                Ok(got) => assert!(got == *session.history.now(), "{kind:?} gives wrong contents"),
                Err(error) => {
                    let known = matches!(error.kind(), ErrorKind::Io | ErrorKind::Corruption);
                    assert!(known, "{kind:?} gives {error:?}");
                }
            }
            session.fs.heal();
        }
        let got = read_all(session.db()).expect("reads are well again");
        assert!(got == *session.history.now());
        session.settle().unwrap();
    });
}
