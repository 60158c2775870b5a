//! Short-lived processes: each opens a database, does little, and ends.
//!
//! Their writes stay in the log while it is small, so they do not accumulate tables or logs,
//! however many they are. A process that only looks something up uses almost no memory.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::is_ci;
use firndb::{Db, Options, Profile};
use std::path::Path;

/// The number of lives in a row; more in the CI tier.
fn lives() -> u32 {
    if is_ci() { 400 } else { 100 }
}

fn options(dir: &Path, profile: Profile, pool: bool) -> Options {
    let pm = rig::pool(dir, (profile, pool), 64 << 20);
    let options = Options::default().profile(profile).pm(pm);
    match profile {
        // A pool must have room for a write buffer.
        Profile::Tlsm | Profile::Blade => options.write_buffer_bytes(Some(16 << 20)),
        _ => options,
    }
}

/// The number of logs in the database's directory.
fn logs(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir.join("db"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    names
        .filter(|path| path.extension().is_some_and(|found| found == "log"))
        .count()
}

/// A thousand short writers once left 1,044 tables in level 0, where writes stop at 36.
fn live_shortly(profile: Profile, pool: bool) {
    let dir = tempfile::tempdir().unwrap();
    for life in 0..lives() {
        let db = Db::open(dir.path().join("db"), options(dir.path(), profile, pool)).unwrap();
        db.put(life.to_be_bytes(), [7; 100]).unwrap();
        if life % 3 == 0 {
            assert_eq!(db.get((life / 2).to_be_bytes()).unwrap().unwrap(), [7; 100]);
        }
        let level0 = db.stats().levels[0].tables;
        // Every second one ends without a close.
        if life % 2 == 0 {
            db.close().unwrap()
        } else {
            drop(db)
        }
        let logs = logs(dir.path());
        assert!(
            logs <= 17,
            "{profile:?}, pool {pool}: {logs} logs after {life} lives"
        );
        assert!(
            level0 <= 36,
            "{profile:?}, pool {pool}: {level0} tables in level 0 after {life} lives"
        );
    }
    let db = Db::open(dir.path().join("db"), options(dir.path(), profile, pool)).unwrap();
    for life in 0..lives() {
        assert_eq!(db.get(life.to_be_bytes()).unwrap().unwrap(), [7; 100]);
    }
    db.verify().unwrap();
}

#[test]
fn short_lives_leave_no_pile() {
    for profile in Profile::ALL {
        live_shortly(profile, false);
    }
}

#[test]
fn short_lives_leave_no_pile_where_the_log_ends_in_a_pool() {
    for profile in Profile::ALL {
        live_shortly(profile, true);
    }
}
