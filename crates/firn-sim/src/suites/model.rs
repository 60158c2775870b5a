//! Random operations compared with a sorted map, without crashes: every kind of read, snapshots,
//! long-lived cursors, reopens, read-only opens, checkpoints. Also reads that fail or return wrong
//! bytes.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::contents::read_all;
use crate::machine::{Machine, fingerprint};
use crate::model::History;
use crate::session::Session;
use crate::setup::Setup;
use crate::tally::Tally;
use firn_base::seed::{Seed, mix};
use firn_fs::{Fault, FaultKind, OpKind};
use firndb::ErrorKind;

/// A session after `operations` random operations, fully determined by the seed.
pub(crate) fn run(seed: u64, operations: u64) -> Session {
    let mut random = Seed::new(mix(seed));
    let setup = Setup::random(&mut random);
    let machine = Machine::new(&setup, seed);
    let mut session = Session::open(&setup, &machine, History::default()).unwrap();
    session.run(operations, &mut random).unwrap();
    session
}

/// Compares with a map.
pub(crate) fn model(seed: u64) -> Tally {
    let mut tally = Tally::default();
    let mut session = run(seed, 1000);
    session.settle().unwrap();
    session.check_checkpoints(session.fs()).unwrap();
    session.reopen(true).unwrap();
    session.settle().unwrap();
    tally.recovered(fingerprint(&session.machine));
    tally
}

/// Reads that fail return an error or the right value, and right values again once the device
/// works.
pub(crate) fn read_faults(seed: u64) -> Tally {
    let mut tally = Tally::default();
    let mut random = Seed::new(mix(seed));
    let mut session = run(seed, 200);
    session.reopen(true).unwrap();
    let kinds = [
        FaultKind::Eio,
        FaultKind::Eintr,
        FaultKind::ShortRead,
        FaultKind::FlippedBit,
        FaultKind::MisplacedBlock,
    ];
    for _ in 0..30 {
        let kind = kinds[random.below(5) as usize];
        session.fs().inject(
            Fault::once(kind)
                .on(OpKind::Read)
                .at(".sst")
                .after(random.below(6)),
        );
        match read_all(session.db()) {
            Ok(got) => assert!(
                got == *session.history.now(),
                "{kind:?} gives wrong contents"
            ),
            Err(error) => {
                let known = matches!(error.kind(), ErrorKind::Io | ErrorKind::Corruption);
                assert!(known, "{kind:?} gives {error:?}");
            }
        }
        session.fs().heal();
        assert!(read_all(session.db()).unwrap() == *session.history.now());
    }
    tally.recovered(fingerprint(&session.machine));
    tally
}

/// A run summarized by two numbers: the trace of its file operations, and a hash of the resulting
/// machine.
pub fn trace(seed: u64) -> (u64, u64) {
    let session = run(seed, 400);
    (session.fs().trace_hash(), fingerprint(&session.machine))
}
