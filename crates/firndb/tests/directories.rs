//! Directories that are moved, removed, shared with other programs or copied to. A database stays
//! in its own directory and touches only its own files.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firndb::{Backend, Db, ErrorKind, Options, PmConfig, Profile, repair, repair_dry_run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn tiny(dir: &Path) -> Db {
    Db::open(dir, Options::tiny()).unwrap()
}

fn fill(db: &Db, from: u32, to: u32) {
    (from..to).for_each(|i| db.put(i.to_be_bytes(), [i as u8; 300]).unwrap());
}

fn check(db: &Db, to: u32) {
    (0..to).for_each(|i| {
        assert_eq!(
            db.get(i.to_be_bytes()).unwrap().unwrap(),
            [i as u8; 300],
            "{i}"
        )
    });
    db.verify().unwrap();
}

/// Every file below `dir`, with its bytes.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(contents(&entry.path())),
            false => drop(found.insert(entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    found
}

#[test]
fn a_directory_that_is_moved_takes_its_database_along() {
    let root = tempfile::tempdir().unwrap();
    let (path, moved) = (root.path().join("db"), root.path().join("moved"));
    let db = tiny(&path);
    fill(&db, 0, 200);
    std::fs::rename(&path, &moved).unwrap();
    let other = tiny(&path);
    fill(&other, 0, 100);
    fill(&db, 200, 600);
    db.compact().unwrap();
    db.checkpoint(root.path().join("copy")).unwrap();
    fill(&other, 100, 300);
    other.compact().unwrap();
    check(&db, 600);
    check(&other, 300);
    db.close().unwrap();
    other.close().unwrap();
    check(&tiny(&moved), 600);
    check(&tiny(&path), 300);
    check(&tiny(&root.path().join("copy")), 600);
}

#[test]
fn a_directory_that_is_removed_ends_the_database_and_not_the_next_one() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = tiny(&path);
    fill(&db, 0, 100);
    std::fs::remove_dir_all(&path).unwrap();
    let other = tiny(&path);
    fill(&other, 0, 300);
    let failed = (100..2000_u32)
        .find_map(|i| db.put(i.to_be_bytes(), [0; 300]).err())
        .expect("it has no directory");
    assert!(!failed.to_string().is_empty());
    drop(db);
    check(&other, 300);
    other.close().unwrap();
    check(&tiny(&path), 300);
}

#[test]
fn a_lock_that_was_removed_is_noticed_before_a_file_is_made() {
    let root = tempfile::tempdir().unwrap();
    let db = tiny(root.path());
    fill(&db, 0, 50);
    db.flush().unwrap();
    std::fs::remove_file(root.path().join("LOCK")).unwrap();
    let other = tiny(root.path());
    let before = contents(root.path());
    let error = db.put(b"k", b"v").and_then(|()| db.flush()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert!(error.to_string().contains("LOCK"), "{error}");
    assert!(
        before.keys().eq(contents(root.path()).keys()),
        "nothing was made or removed"
    );
    check(&other, 50);
}

/// Two checkpoints into one new directory: one succeeds and one is refused, and the source's
/// tables do not change. (In a past bug the loser took its failed links as a reason to copy, onto
/// hard links to the very same files.)
#[test]
fn two_checkpoints_into_one_directory() {
    let root = tempfile::tempdir().unwrap();
    let db = tiny(&root.path().join("db"));
    fill(&db, 0, 500);
    db.flush().unwrap();
    for round in 0..20 {
        let target = root.path().join(format!("copy{round}"));
        let copy = || db.checkpoint(&target);
        let results = std::thread::scope(|scope| {
            [scope.spawn(copy), scope.spawn(copy)].map(|made| made.join().unwrap())
        });
        let refused: Vec<_> = results
            .iter()
            .filter_map(|made| made.as_ref().err())
            .collect();
        assert_eq!(refused.len(), 1, "{results:?}");
        assert_eq!(refused[0].kind(), ErrorKind::Invalid, "{results:?}");
        check(&tiny(&target), 500);
    }
    check(&db, 500);
    db.close().unwrap();
    check(&tiny(&root.path().join("db")), 500);
}

#[test]
fn a_checkpoint_that_is_refused_leaves_everything_and_can_be_tried_again() {
    let root = tempfile::tempdir().unwrap();
    let db = tiny(&root.path().join("db"));
    fill(&db, 0, 100);
    let target = root.path().join("copy");
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("000123.sst"), "theirs").unwrap();
    let before = contents(&target);
    assert_eq!(
        db.checkpoint(&target).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(contents(&target), before);
    std::fs::remove_file(target.join("000123.sst")).unwrap();
    db.checkpoint(&target).unwrap();
    check(&tiny(&target), 100);
}

/// Files of other stores, and foreign files with names like ours. No operation may touch them.
#[test]
fn a_directory_of_something_else_is_refused_and_left_alone() {
    type Files = [(&'static str, &'static str)];
    let others: [&Files; 5] = [
        &[
            ("CURRENT", "MANIFEST-000003\n"),
            ("MANIFEST-000003", "leveldb"),
            ("LOCK", ""),
            ("000005.ldb", "t"),
            ("LOG", "l"),
        ],
        &[
            ("CURRENT", "MANIFEST-000005\n"),
            ("OPTIONS-000007", "[Version]"),
            ("IDENTITY", "id"),
            ("000009.sst", "table"),
        ],
        &[("000123.log", "short")],
        &[("notes.txt", "mine")],
        &[
            ("OPTIONS", "mine"),
            ("LOCK", "a lock of another program, of some length"),
        ],
    ];
    for files in others {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let before = contents(dir.path());
        let errors = [
            Db::open(dir.path(), Options::tiny()).map(drop).unwrap_err(),
            Db::open_read_only(dir.path(), Options::tiny())
                .map(drop)
                .unwrap_err(),
            repair(dir.path(), &Options::tiny()).map(drop).unwrap_err(),
            repair_dry_run(dir.path(), &Options::tiny())
                .map(drop)
                .unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(
                error.to_string().contains(files[0].0) || files.len() > 4,
                "it says what is there: {error}"
            );
            assert!(!error.to_string().contains("firn repair"), "{error}");
        }
        assert_eq!(contents(dir.path()), before);
    }
}

/// Foreign files in a database's directory survive opens, compactions, checkpoints and repairs.
#[test]
fn strangers_in_a_directory_of_ours_stay() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = tiny(&path);
    fill(&db, 0, 100);
    db.close().unwrap();
    let theirs = [
        ("000777.log", "short"),
        ("000778.sst", "no table"),
        ("MANIFEST-000003", "theirs"),
        ("7.log", "x"),
    ];
    std::fs::remove_file(path.join("OPTIONS")).unwrap();
    for (name, text) in theirs.iter().chain(&[("OPTIONS", "theirs")]) {
        std::fs::write(path.join(name), text).unwrap();
    }
    let are_there = || {
        for (name, text) in theirs.iter().chain(&[("OPTIONS", "theirs")]) {
            assert_eq!(
                std::fs::read_to_string(path.join(name)).unwrap(),
                *text,
                "{name}"
            );
        }
    };
    for round in 0..3 {
        let db = tiny(&path);
        fill(&db, 100 + round * 300, 400 + round * 300);
        db.compact().unwrap();
        db.close().unwrap();
        are_there();
    }
    std::fs::remove_file(path.join("CURRENT")).unwrap();
    repair(&path, &Options::tiny()).unwrap();
    are_there();
    check(&tiny(&path), 1000);
    are_there();
}

#[test]
fn a_database_is_made_in_a_new_directory_alone_and_parents_on_demand() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/b/db");
    let error = Db::open(&path, Options::tiny()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("create_parents"), "{error}");
    assert_eq!(contents(root.path()).len(), 0);
    Db::open(&path, Options::tiny().create_parents(true))
        .unwrap()
        .put(b"k", b"v")
        .unwrap();
    assert_eq!(tiny(&path).get(b"k").unwrap().unwrap(), b"v");
}

/// A user's own empty file stays, still empty, if creating a pool in it is refused.
#[test]
fn a_file_that_a_pool_is_refused_in_stays() {
    let root = tempfile::tempdir().unwrap();
    let (pool, path) = (root.path().join("pool"), root.path().join("db"));
    std::fs::write(&pool, "").unwrap();
    // No DAX here, and too small for `lab`: one is refused before anything is created, the other
    // afterwards.
    for (backend, bytes) in [(Backend::Dax, 4 << 20), (Backend::Emulated, 20 << 10)] {
        let pm = Some(PmConfig::at(&pool, backend, bytes));
        Db::open(&path, Options::tiny().profile(Profile::Lab).pm(pm)).unwrap_err();
        assert_eq!(std::fs::metadata(&pool).unwrap().len(), 0);
        assert!(
            !path.exists(),
            "a first open that fails leaves nothing behind"
        );
    }
    let pm = Some(PmConfig::at(&pool, Backend::Emulated, 2 << 20));
    Db::open(&path, Options::tiny().profile(Profile::Lab).pm(pm))
        .unwrap()
        .put(b"k", b"v")
        .unwrap();
}

/// Flips one bit or truncates the manifest of a killed database, at every place. Either all data is
/// found, or the open is refused and every log and table is unchanged.
#[test]
fn no_damage_to_a_manifest_deletes_a_log_or_a_table() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let process = firndb::WriteOptions::new().durability(firndb::Durability::Process);
    let db = tiny(&path);
    // Some entries in tables, some in a sealed log, some in the current one; synced, then killed.
    let put = |from: u32, to: u32| {
        (from..to).for_each(|i| {
            db.put_with(i.to_be_bytes(), [i as u8; 300], &process)
                .unwrap()
        })
    };
    put(0, 100);
    db.flush().unwrap();
    put(100, 300);
    db.wait_idle().unwrap();
    put(300, 320);
    db.sync().unwrap();
    let killed = contents(&path);
    drop(db);
    let (manifest, bytes) = killed
        .iter()
        .find(|(path, _)| path.to_string_lossy().contains("MANIFEST"))
        .unwrap();
    let is_data = |path: &&PathBuf| {
        path.extension()
            .is_some_and(|kind| kind == "log" || kind == "sst")
    };
    let copy = root.path().join("copy");
    let flips = (0..bytes.len()).map(|at| {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        flipped
    });
    let cuts = (0..bytes.len()).step_by(3).map(|len| bytes[..len].to_vec());
    for (case, damaged) in flips.chain(cuts).enumerate() {
        let _fresh = std::fs::remove_dir_all(&copy);
        std::fs::create_dir(&copy).unwrap();
        for (path, bytes) in &killed {
            let bytes = if path == manifest { &damaged } else { bytes };
            std::fs::write(copy.join(path.file_name().unwrap()), bytes).unwrap();
        }
        let before = contents(&copy);
        match Db::open(&copy, Options::tiny().background_workers(1)) {
            Ok(db) => check(&db, 320),
            Err(error) => {
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Corruption | ErrorKind::Incompatible
                    ),
                    "{case}: {error}"
                );
                let after = contents(&copy);
                for path in before.keys().filter(is_data) {
                    assert_eq!(
                        after.get(path),
                        before.get(path),
                        "case {case}: {}",
                        path.display()
                    );
                }
                // The same for a read-only open, which must not present a part of the data as all
                // of it.
                let looked = Db::open_read_only(&copy, Options::tiny());
                assert!(
                    looked.is_err(),
                    "case {case}: refused to write, but not to read"
                );
            }
        }
    }
}

/// A repair without a manifest, of a database and of a checkpoint (whose linked tables belong to
/// its source), recovers everything, even if repeated. A foreign file with the number of one of
/// ours stays.
#[test]
fn repairs_without_a_manifest_bring_all_back() {
    let root = tempfile::tempdir().unwrap();
    let (path, copy, copy_of_copy) = (
        root.path().join("db"),
        root.path().join("copy"),
        root.path().join("copy2"),
    );
    let db = tiny(&path);
    fill(&db, 0, 400);
    db.flush().unwrap();
    db.checkpoint(&copy).unwrap();
    db.close().unwrap();
    let db = tiny(&copy);
    db.checkpoint(&copy_of_copy).unwrap();
    db.close().unwrap();
    for dir in [&path, &copy, &copy_of_copy] {
        for round in 0..3 {
            let of_kind = |kind: &str| {
                contents(dir)
                    .into_keys()
                    .find(|path| path.to_string_lossy().contains(kind))
                    .unwrap()
            };
            let theirs = of_kind(".sst").with_extension("log");
            std::fs::write(&theirs, "theirs").unwrap();
            std::fs::remove_file(dir.join("CURRENT")).unwrap();
            std::fs::remove_file(of_kind("MANIFEST")).unwrap();
            let told = repair_dry_run(dir, &Options::tiny()).unwrap();
            let report = repair(dir, &Options::tiny()).unwrap();
            assert_eq!(told.tables_whole, report.tables_whole);
            assert_eq!(
                report.not_ours,
                [theirs.file_name().unwrap().to_string_lossy()]
            );
            assert_eq!(std::fs::read(&theirs).unwrap(), b"theirs");
            std::fs::remove_file(&theirs).unwrap();
            let db = tiny(dir);
            check(&db, 400);
            // Obsolete tables of the source, or from before a repair, are removed like any others.
            (0..400_u32).for_each(|i| db.put(i.to_be_bytes(), [i as u8; 300]).unwrap());
            db.compact().unwrap();
            db.close().unwrap();
            drop(tiny(dir));
            let tables = contents(dir)
                .keys()
                .filter(|path| path.extension().is_some_and(|kind| kind == "sst"))
                .count();
            assert!(tables < 30, "round {round}: {tables} tables");
        }
    }
}

/// A FIFO or directory with a name like ours is foreign. It stays, and no thread waits for the
/// other end of a FIFO.
#[test]
fn a_fifo_or_a_directory_with_a_name_of_ours_stays() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("db");
    let db = tiny(&path);
    fill(&db, 0, 100);
    db.close().unwrap();
    for name in ["000901.log", "000902.sst", "MANIFEST-000903"] {
        let made = std::process::Command::new("mkfifo")
            .arg(path.join(name))
            .status()
            .unwrap();
        assert!(made.success());
    }
    std::fs::create_dir(path.join("000904.log")).unwrap();
    let db = tiny(&path);
    check(&db, 100);
    db.close().unwrap();
    for name in ["000901.log", "000902.sst", "MANIFEST-000903", "000904.log"] {
        assert!(path.join(name).exists(), "{name} is gone");
    }
    std::fs::rename(path.join("CURRENT"), path.join("CURRENT.away")).unwrap();
    std::fs::create_dir(path.join("CURRENT")).unwrap();
    let error = Db::open(&path, Options::tiny()).map(drop).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}
