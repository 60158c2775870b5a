//! A database that is divided into partitions answers like one that is not: under writers, cursors
//! in both directions, snapshots and batches over all partitions, and in its copies. The suites of
//! `firn-sim` cut it at every step; here real threads and files are used.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{Model, PROCESS, key, value};
use firndb::{Db, Limits, Options, Profile, WriteBatch};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Options of a database that is divided into up to `partitions`, each of a few tables.
fn options(profile: Profile, partitions: usize) -> Options {
    let mut limits = Limits::tiny();
    (limits.partitions_max, limits.partition_bytes) = (partitions, 8 << 10);
    limits.table_bytes = 2 << 10;
    let options = Options::tiny().profile(profile).limits(limits);
    options
        .write_buffer_bytes(Some(16 << 10))
        .background_workers(2)
}

/// Checks every way to read `db` against `model`.
fn check(db: &Db, model: &Model) {
    let forward: Model = db
        .iter()
        .map(|entry| {
            entry
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .unwrap()
        })
        .collect();
    assert!(forward == *model, "forward");
    let backward = db.iter().rev().map(|entry| entry.unwrap().0.to_vec());
    assert!(backward.eq(model.keys().rev().cloned()), "backward");
    let keys: Vec<Vec<u8>> = (0..6_000).step_by(97).map(key).collect();
    for (key, got) in keys.iter().zip(db.multi_get(&keys).unwrap()) {
        assert_eq!(got.as_deref(), model.get(key).map(Vec::as_slice));
        assert_eq!(db.get(key).unwrap().as_deref(), got.as_deref());
    }
    db.verify().unwrap();
}

/// Partitions are divided while a database grows, joined while it shrinks, and a reopened one has
/// the same. Copies of it are divided like it.
#[test]
fn borders_come_and_go() {
    for (profile, partitions) in [
        (Profile::Classic, 4),
        (Profile::Classic, 32),
        (Profile::Block, 32),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let open = |path: &Path| Db::open(path, options(profile, partitions)).unwrap();
        let db = open(&path);
        let mut model = Model::new();
        for round in 0..2 {
            for number in 0..6_000 {
                db.put_with(key(number), value(number, round), &PROCESS)
                    .unwrap();
                model.insert(key(number), value(number, round));
            }
        }
        db.wait_idle().unwrap();
        let stats = db.stats();
        assert_eq!(stats.partitions.len(), partitions, "{profile}");
        let tables: usize = stats.partitions.iter().map(|one| one.tables).sum();
        assert_eq!(
            tables,
            stats.levels.iter().map(|level| level.tables).sum::<usize>()
        );
        check(&db, &model);
        let copy = dir.path().join("copy");
        db.checkpoint(&copy).unwrap();
        drop(db);
        for path in [&path, &copy] {
            let db = open(path);
            assert_eq!(db.stats().partitions.len(), partitions);
            check(&db, &model);
        }
        let reader = Db::open_read_only(&path, options(profile, partitions)).unwrap();
        check(&reader, &model);
        drop(reader);
        // Most of the keys go, and so do most borders.
        let db = open(&path);
        for number in 150..5_950 {
            db.delete_with(key(number), &PROCESS).unwrap();
            model.remove(&key(number));
        }
        db.compact_range(key(1_000)..key(1_100)).unwrap();
        db.compact().unwrap();
        db.wait_idle().unwrap();
        let (left, joined) = (
            db.stats().partitions.len(),
            db.stats().background.joined_partitions,
        );
        assert!(
            left <= 4 && (joined as usize) >= partitions - 4,
            "{left}, {joined}"
        );
        check(&db, &model);
        drop(db);
        // A database that no longer divides its keys takes over what was divided.
        let db = Db::open(&path, options(profile, 1)).unwrap();
        check(&db, &model);
        db.close().unwrap();
        // A repair puts everything into one partition.
        std::fs::remove_file(path.join("CURRENT")).unwrap();
        firndb::repair(&path, &options(profile, partitions)).unwrap();
        check(&open(&path), &model);
    }
}

/// Writers of batches over all partitions beside readers. A batch is seen whole or not at all, a
/// snapshot does not change, and a cursor sees one moment.
#[test]
fn batches_are_whole_while_borders_change() {
    const WIDTH: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options(Profile::Classic, 32)).unwrap();
    let (over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let row = |row: u64| (0..WIDTH).map(move |column| format!("{column}{row:05}").into_bytes());
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..4_u64 {
                for number in 0..500_u64 {
                    let mut batch = WriteBatch::new();
                    for key in row(number) {
                        batch.put(key, value(number, round));
                    }
                    db.write(&batch, &PROCESS).unwrap();
                    written.store(number + 1, Ordering::Release);
                }
                let partitions = db.stats().partitions.len() as u64;
                most.fetch_max(partitions, Ordering::Relaxed);
            }
            over.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut number = 0;
            while !over.load(Ordering::Acquire) {
                let rows = written.load(Ordering::Acquire);
                number = (number + 37) % rows.max(1);
                let keys: Vec<Vec<u8>> = row(number).collect();
                let snapshot = db.snapshot();
                let got = snapshot.multi_get(&keys).unwrap();
                assert!(
                    got.iter()
                        .all(|value| value.as_deref() == got[0].as_deref())
                );
                std::thread::yield_now();
                assert_eq!(
                    snapshot.get(&keys[3]).unwrap().as_deref(),
                    got[0].as_deref()
                );
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                // One entry a row and column, in each direction, from one moment.
                let snapshot = db.snapshot();
                let forward: Vec<_> = snapshot.iter().map(Result::unwrap).collect();
                assert_eq!(forward.len() as u64 % WIDTH, 0);
                assert!(forward.is_sorted_by(|a, b| a.0 < b.0));
                let backward = snapshot.iter().rev().map(Result::unwrap);
                assert!(backward.eq(forward.into_iter().rev()));
            }
        });
    });
    db.wait_idle().unwrap();
    let partitions = db.stats().partitions.len() as u64;
    assert!(partitions.max(most.into_inner()) > 4, "{partitions}");
    assert_eq!(db.iter().count() as u64, 500 * WIDTH);
    db.verify().unwrap();
}

/// Keys that only grow fill the last partition, and the others become small and are joined.
#[test]
fn a_queue_leaves_no_partitions_behind() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options(Profile::Classic, 32)).unwrap();
    for number in 0..20_000_u64 {
        db.put_with(key(number), value(number, 0), &PROCESS)
            .unwrap();
        if number >= 1_000 {
            db.delete_with(key(number - 1_000), &PROCESS).unwrap();
        }
    }
    db.compact().unwrap();
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert!(
        stats.background.divided_partitions > 3,
        "{:?}",
        stats.background
    );
    assert!(stats.partitions.len() <= 24, "{:?}", stats.partitions);
    assert_eq!(db.iter().count(), 1_000);
    db.verify().unwrap();
}
