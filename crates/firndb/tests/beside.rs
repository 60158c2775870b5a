//! Read-only opens beside a writing process. They show the state of one moment, or report that it
//! changed underneath. They never take that for damage.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{PROCESS, is_ci, key, round_of, value};
use firndb::{Db, Error, ErrorKind, LabTuning, Options, Profile};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: u64 = 400;

/// Trees that fill up quickly and a hot buffer whose slots are reused at once.
fn options(dir: &Path, profile: Profile, pool: bool) -> Options {
    let mut options = rig::options(dir, (profile, pool));
    options.tuning.lab = LabTuning {
        tree_bytes: Some(64 << 10),
        leaf_bytes: 512,
        hot_bytes: Some(64 << 10),
        hot_writes: 2,
        ..LabTuning::default()
    };
    if matches!(profile, Profile::Tlsm | Profile::Blade) {
        // A reader copies entries up to an eighth of this.
        options.memory_limit_bytes = 32 << 20;
    }
    options
}

/// Reads everything in every possible way.
fn read(db: &Db, from: u64) -> Result<(), Error> {
    for number in (from..KEYS).step_by(7) {
        round_of(
            number,
            &db.get(key(number))?.expect("a key that was always there"),
        );
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).step_by(5).map(key).collect();
    for (number, found) in (0..KEYS).step_by(5).zip(db.multi_get(&keys)?) {
        round_of(number, &found.expect("a key that was always there"));
    }
    let mut iter = db.cursor()?;
    iter.first()?;
    for number in 0..KEYS {
        assert_eq!(iter.key(), key(number));
        round_of(number, iter.value());
        iter.next()?;
    }
    iter.last()?;
    for number in (0..KEYS).rev() {
        assert_eq!(iter.key(), key(number));
        round_of(number, iter.value());
        iter.prev()?;
    }
    Ok(())
}

fn beside(profile: Profile, pool: bool) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db"), options(dir.path(), profile, pool)).unwrap();
    (0..KEYS).for_each(|number| {
        db.put_with(key(number), value(number, 0), &PROCESS)
            .unwrap()
    });
    let (stop, whole, changed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let seconds = if is_ci() { 5 } else { 1 };
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 1;
            while !stop.load(Ordering::Relaxed) {
                (0..KEYS).for_each(|i| {
                    // Some keys are hot.
                    let number = if i % 3 == 0 { i } else { i % 20 };
                    db.put_with(key(number), value(number, round), &PROCESS)
                        .unwrap();
                });
                round += 1;
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (dir, whole, changed) = (dir.path(), &whole, &changed);
                scope.spawn(move || {
                    while Instant::now() < until {
                        let opened =
                            Db::open_read_only(dir.join("db"), options(dir, profile, pool));
                        // A state that is held does not change. `verify` reads the pool itself.
                        let verified = opened.and_then(|db| {
                            read(&db, reader).unwrap();
                            db.verify()
                        });
                        match verified {
                            Ok(_) => whole.fetch_add(1, Ordering::Relaxed),
                            // In a pool that reuses its places both may come at a bad moment.
                            Err(error) => {
                                assert_eq!(
                                    error.kind(),
                                    ErrorKind::Changed,
                                    "{profile:?}, pool {pool}: {error}"
                                );
                                changed.fetch_add(1, Ordering::Relaxed)
                            }
                        };
                    }
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(Result::unwrap);
    });
    let (whole, changed) = (whole.into_inner(), changed.into_inner());
    println!("{profile:?}, pool {pool}: {whole} whole, {changed} changed");
    assert!(whole > 0, "{profile:?}, pool {pool}: {changed} changed");
}

#[test]
fn readers_beside_a_writer_see_one_moment() {
    for profile in Profile::ALL {
        beside(profile, false);
        beside(profile, true);
    }
}
