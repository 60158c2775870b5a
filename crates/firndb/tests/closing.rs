//! A database is closed while other threads use it, and opened again at once. Acknowledged writes
//! exist, the new database is sound, and calls on an old handle fail only because it was closed.
//!
//! Uses real threads and files. Two bugs led to this test. With eight writers and `Power`,
//! acknowledged writes were lost in a quarter of the rounds, because calls past their check went on
//! to use files by name after the lock was released. And a `compact_range` during close and open
//! removed the new database's tables.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{is_ci, kinds, open, value};
use firndb::{Db, Durability, ErrorKind, Result, WriteOptions};
use std::sync::atomic::{AtomicU64, Ordering};

const WRITERS: usize = 8;

/// Rounds for each kind of database: some seconds in total, four times as many in the CI tier.
fn rounds() -> u64 {
    if is_ci() { 12 } else { 3 }
}

fn key(writer: usize, number: u64) -> Vec<u8> {
    format!("{writer}/{number:06}").into_bytes()
}

type Call = Box<dyn Fn(&Db) -> Result<()> + Send>;

/// Checks that the only error of a call is that the database was closed.
fn assert_closed<T>(result: Result<T>) {
    let Err(error) = result else { return };
    let is_it =
        error.kind() == ErrorKind::Invalid && error.to_string().contains("the database was closed");
    assert!(is_it, "{error:?}");
}

/// Writes until the database is closed, and counts the acknowledged writes.
fn write(db: &Db, writer: usize, from: u64, acknowledged: &AtomicU64) {
    let durability = if writer.is_multiple_of(4) {
        Durability::Process
    } else {
        Durability::Power
    };
    for number in from.. {
        match db.put_with(
            key(writer, number),
            value(number, 0),
            &WriteOptions::new().durability(durability),
        ) {
            Ok(()) => acknowledged.store(number + 1, Ordering::SeqCst),
            closed => return assert_closed(closed),
        }
    }
}

fn await_writes(acknowledged: &[AtomicU64], at_least: u64) {
    while acknowledged
        .iter()
        .any(|count| count.load(Ordering::SeqCst) < at_least)
    {
        std::thread::yield_now();
    }
}

#[test]
fn acknowledged_writes_outlive_a_close_beside_writers() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let acknowledged: [AtomicU64; WRITERS] = Default::default();
        for round in 0..rounds() {
            let db = open(dir.path(), kind);
            let from: Vec<u64> = acknowledged
                .iter()
                .map(|count| count.load(Ordering::SeqCst))
                .collect();
            for (writer, &count) in from.iter().enumerate() {
                for number in (0..count).rev().take(40) {
                    let found = db.get(key(writer, number)).unwrap();
                    assert!(
                        found.is_some_and(|found| found == value(number, 0)),
                        "{kind:?} {round} {writer} {number}"
                    );
                }
            }
            std::thread::scope(|scope| {
                for (writer, &from) in from.iter().enumerate() {
                    let (db, acknowledged) = (db.clone(), &acknowledged[writer]);
                    scope.spawn(move || write(&db, writer, from, acknowledged));
                }
                await_writes(&acknowledged, from.iter().min().unwrap() + 1 + round % 7);
                db.close().unwrap();
                // The other threads may not have noticed the close yet.
                let again = open(dir.path(), kind);
                again.put(b"again", round.to_be_bytes()).unwrap();
                again.close().unwrap();
            });
        }
        let db = open(dir.path(), kind);
        for (writer, count) in acknowledged.iter().enumerate() {
            for number in 0..count.load(Ordering::SeqCst) {
                let found = db.get(key(writer, number)).unwrap();
                assert!(
                    found.is_some_and(|found| found == value(number, 0)),
                    "{kind:?} {writer} {number}"
                );
            }
        }
        db.verify().unwrap();
    }
}

/// Every long-running operation, on handles, snapshots and cursors that outlive their database.
#[test]
fn whatever_is_under_way_ends_with_the_database() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let acknowledged: [AtomicU64; 2] = Default::default();
        for round in 0..rounds() {
            let db = open(dir.path(), kind);
            let from: Vec<u64> = acknowledged
                .iter()
                .map(|count| count.load(Ordering::SeqCst))
                .collect();
            let copy = dir.path().join(format!("copy{round}"));
            let while_open = |call: &dyn Fn(&Db) -> Result<()>, db: &Db| loop {
                if let Err(error) = call(db) {
                    return assert_closed::<()>(Err(error));
                }
            };
            std::thread::scope(|scope| {
                for (writer, &from) in from.iter().enumerate() {
                    let (db, acknowledged) = (db.clone(), &acknowledged[writer]);
                    scope.spawn(move || write(&db, writer, from, acknowledged));
                }
                let spawn = |call: Call| {
                    let db = db.clone();
                    scope.spawn(move || while_open(&*call, &db));
                };
                spawn(Box::new(|db| db.compact()));
                spawn(Box::new(Db::flush));
                spawn(Box::new(|db| db.verify().map(drop)));
                spawn(Box::new(|db| db.wait_idle().and_then(|()| db.sync())));
                spawn(Box::new(|db| {
                    db.multi_get(&[key(0, 0), key(1, 3)]).map(drop)
                }));
                let copies = std::cell::Cell::new(0);
                spawn(Box::new(move |db| {
                    copies.set(copies.get() + 1);
                    db.checkpoint(copy.with_extension(copies.get().to_string()))
                }));
                let snapshot = db.snapshot();
                spawn(Box::new(move |_| snapshot.get(key(0, 0)).map(drop)));
                for backward in [false, true] {
                    let cursor = std::cell::RefCell::new(db.cursor().unwrap());
                    spawn(Box::new(move |_| {
                        let mut cursor = cursor.borrow_mut();
                        match (cursor.valid(), backward) {
                            (false, false) => cursor.first(),
                            (false, true) => cursor.last(),
                            (true, false) => cursor.next(),
                            (true, true) => cursor.prev(),
                        }
                    }));
                }
                await_writes(&acknowledged, from.iter().min().unwrap() + 20 + round % 13);
                db.close().unwrap();
                let again = open(dir.path(), kind);
                again.put(b"again", round.to_be_bytes()).unwrap();
                again.flush().unwrap();
                again.verify().unwrap();
                again.close().unwrap();
            });
        }
        let db = open(dir.path(), kind);
        db.verify().unwrap();
        for (writer, count) in acknowledged.iter().enumerate() {
            for number in 0..count.load(Ordering::SeqCst) {
                assert!(
                    db.get(key(writer, number)).unwrap().is_some(),
                    "{kind:?} {writer} {number}"
                );
            }
        }
    }
}

/// Handles, snapshots and cursors that outlive a close keep neither the directory nor the pool in
/// use.
#[test]
fn what_is_kept_of_a_closed_database_keeps_nothing() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), kind);
        (0..50).for_each(|number| db.put(key(0, number), value(number, 0)).unwrap());
        let (handle, snapshot, mut cursor) = (db.clone(), db.snapshot(), db.cursor().unwrap());
        cursor.seek(key(0, 20)).unwrap();
        let pinned = db.get(key(0, 7)).unwrap().unwrap();
        db.close().unwrap();
        let again = open(dir.path(), kind);
        assert_closed(cursor.next());
        assert_closed(snapshot.get(key(0, 1)));
        assert_closed(snapshot.cursor());
        assert_closed(snapshot.iter().next().unwrap());
        assert_closed(handle.get(key(0, 1)));
        assert_closed(handle.put(b"k", b"v"));
        assert_closed(handle.checkpoint(dir.path().join("copy")));
        assert!(!dir.path().join("copy").exists());
        assert!(
            handle.get(key(0, 1)).is_err()
                && snapshot.get(key(0, 1)).is_err()
                && cursor.first().is_err()
        );
        assert_eq!(pinned, value(7, 0)[..], "what was read before stays");
        handle.close().unwrap();
        assert_eq!(again.get(key(0, 49)).unwrap().unwrap(), value(49, 0)[..]);
    }
}
