//! Read-only opens beside a writing process. They show the state of one moment, or report that it
//! changed underneath. They never take that for damage.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firndb::{
    Backend, Db, Durability, Error, ErrorKind, LabTuning, Options, PmConfig, Profile, WriteOptions,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: u64 = 400;

/// Trees that fill up quickly and a hot buffer whose slots are reused at once.
fn options(dir: &Path, profile: Profile, pool: bool) -> Options {
    let mut options = Options::tiny().profile(profile);
    options.pm = pool.then(|| PmConfig::at(dir.join("pool"), Backend::Emulated, 2 << 20));
    options.tuning.lab = LabTuning {
        tree_bytes: Some(64 << 10),
        leaf_bytes: 512,
        hot_bytes: Some(64 << 10),
        hot_writes: 2,
        ..LabTuning::default()
    };
    options
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// A value that names its key.
fn value(number: u64, round: u64) -> Vec<u8> {
    let mut value = [number.to_be_bytes(), round.to_be_bytes()].concat();
    value.resize(60 + (number % 70) as usize, number as u8);
    value
}

fn check(number: u64, found: &[u8]) {
    assert_eq!(found[..8], number.to_be_bytes(), "the value of another key");
    assert!(
        found[16..].iter().all(|&byte| byte == number as u8)
            && found.len() as u64 == 60 + number % 70
    );
}

/// Reads everything in every possible way.
fn read(db: &Db, from: u64) -> Result<(), Error> {
    for number in (from..KEYS).step_by(7) {
        check(
            number,
            &db.get(key(number))?.expect("a key that was always there"),
        );
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).step_by(5).map(key).collect();
    for (number, found) in (0..KEYS).step_by(5).zip(db.multi_get(&keys)?) {
        check(number, &found.expect("a key that was always there"));
    }
    let mut iter = db.cursor()?;
    iter.first()?;
    for number in 0..KEYS {
        assert_eq!(iter.key(), key(number));
        check(number, iter.value());
        iter.next()?;
    }
    iter.last()?;
    for number in (0..KEYS).rev() {
        assert_eq!(iter.key(), key(number));
        check(number, iter.value());
        iter.prev()?;
    }
    Ok(())
}

fn beside(profile: Profile, pool: bool) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db"), options(dir.path(), profile, pool)).unwrap();
    let process = WriteOptions::new().durability(Durability::Process);
    (0..KEYS).for_each(|number| {
        db.put_with(key(number), value(number, 0), &process)
            .unwrap()
    });
    let (stop, whole, changed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let seconds = if std::env::var("FIRN_TESTS").is_ok_and(|tier| tier == "ci") {
        5
    } else {
        1
    };
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 1;
            while !stop.load(Ordering::Relaxed) {
                (0..KEYS).for_each(|i| {
                    // Some keys are hot.
                    let number = if i % 3 == 0 { i } else { i % 20 };
                    db.put_with(key(number), value(number, round), &process)
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
