//! Suites two_media and pm_cap: files and memory from different times, and memory that is full.
#![allow(clippy::unwrap_used, reason = "a suite stops at the first surprise")]

use crate::contents::read_all;
use crate::machine::{Machine, fingerprint};
use crate::model::{Death, History};
use crate::pm::{PoolOp, PoolSpace, Structure};
use crate::session::Session;
use crate::setup::Setup;
use crate::tally::Tally;
use firn_base::seed::{Seed, mix};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{DATA_START, GRANULE_BYTES, MIN_POOL_BYTES};
use firndb::{Db, ErrorKind, Profile};

/// An old pool with newer files, and the reverse, from two sessions: always an error. (Two moments
/// of one session cannot be distinguished in all cases: see `docs/crash_model.md`.)
pub(crate) fn two_media(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let setup = Setup {
        pool: true,
        profile: of_seed(seed),
        ..Setup::small()
    };
    let machine = Machine::new(&setup, seed);
    let mut session = Session::open(&setup, &machine, History::default()).unwrap();
    session.run(10 + random.below(80), &mut random).unwrap();
    let (early, then) = (machine.duplicate(), session.history.now().clone());
    for _ in 0..1 + random.below(2) {
        let close = random.one_in(2);
        session.reopen(close).unwrap();
        session.run(random.below(60), &mut random).unwrap();
    }
    let now = session.history.now().clone();
    let late = machine.die(Death::Kill, &mut random);
    for (files, memory) in [(&early, &late), (&late, &early)] {
        let mixed = Machine::of(files.fs.duplicate(), memory.duplicate().memory);
        tally.recovered(fingerprint(&mixed));
        let (options, _inline, _clock) = setup.options(&mixed.fs, mixed.memory.as_ref());
        match Db::open(Session::dir(), options) {
            Err(error) => assert_eq!(
                error.kind(),
                ErrorKind::Corruption,
                "files and pool of two sessions: {error:?}"
            ),
            Ok(_) => panic!("files and pool of two sessions were taken for a pair"),
        }
    }
    // Each pair from the same time is accepted.
    for (whole, map) in [(&early, then), (&late, now)] {
        let session = Session::open(&setup, &whole.duplicate(), History::default())
            .expect("a pair of one time");
        assert!(read_all(session.db()).unwrap() == map, "a pair of one time");
    }
    tally
}

/// Memory of every size in steps of 4 KiB. An operation that does not fit is an error that leaves
/// everything unchanged, and once there is room operations continue.
pub(crate) fn pm_cap(seed: u64) -> Tally {
    let (mut tally, mut random) = (Tally::default(), Seed::new(mix(seed)));
    let bytes = MIN_POOL_BYTES + seed % 16 * GRANULE_BYTES;
    let sim = SimRegion::new(bytes, Mode::Adr);
    let mut pool = PoolSpace::open(&sim, &()).unwrap();
    let mut state = pool.state().unwrap();
    for _ in 0..40 {
        let op = match random.below(3) {
            0 => PoolOp::Remove(random.below(4) as u16),
            1 => PoolOp::Put {
                kind: random.below(4) as u16,
                len: 1 + random.below(9000),
            },
            _ => PoolOp::Store {
                kind: random.below(4) as u16,
                len: 1 + random.below(9000),
            },
        };
        match pool.apply(&op) {
            Ok(()) => PoolSpace::model(&mut state, &op),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{op:?}: {error}"),
        }
        assert_eq!(pool.state().unwrap(), state, "after {op:?}");
        assert_eq!(
            pool.live().unwrap(),
            PoolSpace::live_bytes(&state),
            "I5 after {op:?}"
        );
    }
    // All of it can be freed, and allocated again.
    (0..4).for_each(|kind| pool.apply(&PoolOp::Remove(kind)).unwrap());
    pool.apply(&PoolOp::Put {
        kind: 1,
        len: bytes - DATA_START,
    })
    .unwrap();
    drop(pool);
    let again = PoolSpace::open(&SimRegion::from_image(sim.durable(), Mode::Adr), &()).unwrap();
    assert_eq!(again.live().unwrap(), bytes - DATA_START);
    for profile in [Profile::Classic, Profile::Lab] {
        open_database(profile, bytes, &mut tally);
    }
    tally
}

/// A profile with only the log's buffer and one with trees, alternating.
fn of_seed(seed: u64) -> Profile {
    if seed.is_multiple_of(2) {
        Profile::Classic
    } else {
        Profile::Lab
    }
}

/// A database whose pool has no room for its log's buffer, or its trees, reports it; with enough
/// room it works.
fn open_database(profile: Profile, bytes: u64, tally: &mut Tally) {
    let setup = Setup {
        pool: true,
        profile,
        ..Setup::small()
    };
    let fs = setup.file_system(1);
    let small = Machine::of(fs, Some(SimRegion::new(bytes, Mode::Adr)));
    match Session::open(&setup, &small, History::default()) {
        Ok(mut session) => session.run(200, &mut Seed::new(bytes)).unwrap(),
        Err(error) => {
            assert_eq!(
                error.kind(),
                ErrorKind::NoSpace,
                "a pool of {bytes} bytes: {error}"
            );
            assert!(
                error.to_string().contains("pm.size"),
                "says what to raise: {error}"
            );
        }
    }
    tally.recovered(mix(bytes));
}
