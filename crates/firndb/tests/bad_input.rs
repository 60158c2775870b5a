//! Bad input: each case gives a specific error that says what to do, never a panic, and loses
//! nothing.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firndb::{
    Backend, Codec, Db, ErrorKind, Options, PmConfig, ReadOptions, WriteBatch, WriteOptions, repair,
};
use std::path::Path;

fn tiny(dir: &Path) -> Db {
    Db::open(dir, Options::tiny()).unwrap()
}

fn filled(dir: &Path) {
    let db = tiny(dir);
    for i in 0..2000u32 {
        db.put(i.to_be_bytes(), vec![i as u8; 100]).unwrap();
    }
    db.flush().unwrap();
    db.put(b"in the log", b"1").unwrap();
    db.close().unwrap();
}

fn kind<T: std::fmt::Debug>(result: firndb::Result<T>, says: &str) -> ErrorKind {
    let error = result.unwrap_err();
    assert!(
        error.to_string().contains(says),
        "`{error}` does not say `{says}`"
    );
    error.kind()
}

#[test]
fn keys_values_and_batches() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny(dir.path());
    assert_eq!(
        kind(db.put(b"", b"v"), "at least one byte"),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind(db.delete(b""), "at least one byte"),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind(db.put(vec![1; 65_536], b"v"), "65535"),
        ErrorKind::Invalid
    );
    db.put(vec![1; 65_535], b"v").unwrap();
    assert_eq!(
        kind(db.put(b"k", vec![0; (256 << 20) + 1]), "268435456"),
        ErrorKind::Invalid
    );
    let mut batch = WriteBatch::new();
    batch.put(b"good", b"1").put(b"", b"2");
    assert_eq!(
        kind(
            db.write(&batch, &WriteOptions::default()),
            "at least one byte"
        ),
        ErrorKind::Invalid
    );
    assert!(
        db.get(b"good").unwrap().is_none(),
        "a refused batch wrote something"
    );
    let mut batch = WriteBatch::new();
    for i in 0..300u32 {
        batch.put(i.to_be_bytes(), vec![0; 1000]);
    }
    assert_eq!(
        kind(
            db.write(&batch, &WriteOptions::default()),
            "a quarter of what memory_limit_bytes leaves for buffers and caches"
        ),
        ErrorKind::Invalid
    );
    assert!(db.get(0u32.to_be_bytes()).unwrap().is_none());
    db.write(&WriteBatch::new(), &WriteOptions::default())
        .unwrap();
    // A value larger than the memtable is not bad input.
    db.put(b"large", vec![7; 200_000]).unwrap();
    assert_eq!(db.get(b"large").unwrap().unwrap().len(), 200_000);
}

#[test]
fn options_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let open = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        Db::open(dir.path().join("db"), options)
    };
    assert_eq!(
        kind(
            open(|o| o.memory_limit_bytes = 1 << 10),
            "memory_limit_bytes"
        ),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind(
            open(|o| o.write_buffer_bytes = Some(1)),
            "write_buffer_bytes"
        ),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind(
            open(|o| o.write_buffer_bytes = Some(1 << 30)),
            "raise memory_limit_bytes"
        ),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind(
            open(|o| o.block_cache_bytes = Some(1 << 40)),
            "block_cache_bytes"
        ),
        ErrorKind::Invalid
    );
    if !cfg!(feature = "zstd") {
        assert_eq!(
            kind(open(|o| o.compression = Codec::Zstd), "feature `zstd`"),
            ErrorKind::Invalid
        );
    }
    assert_eq!(
        kind(open(|o| o.create_if_missing = false), "no database"),
        ErrorKind::NotFound
    );
    assert_eq!(
        kind("other".parse::<firndb::Profile>(), "classic"),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind("always".parse::<firndb::Durability>(), "power"),
        ErrorKind::Invalid
    );
}

#[test]
fn places_that_are_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"hello").unwrap();
    assert_eq!(
        kind(Db::open(&file, Options::tiny()), "directory"),
        ErrorKind::Invalid
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"hello");
    let missing = dir.path().join("missing");
    assert_eq!(
        kind(Db::open_read_only(&missing, Options::tiny()), "no database"),
        ErrorKind::NotFound
    );
    assert!(!missing.exists(), "a read-only open wrote something");
}

#[test]
fn the_second_opener_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny(dir.path());
    db.put(b"k", b"v").unwrap();
    assert_eq!(
        kind(Db::open(dir.path(), Options::tiny()), "read-only"),
        ErrorKind::Locked
    );
    assert_eq!(
        kind(repair(dir.path(), &Options::tiny()), "held"),
        ErrorKind::Locked
    );
    let reader = Db::open_read_only(dir.path(), Options::tiny()).unwrap();
    assert_eq!(reader.get(b"k").unwrap().unwrap(), b"v");
    assert_eq!(
        kind(reader.put(b"k", b"w"), "read-only"),
        ErrorKind::Invalid
    );
    assert_eq!(kind(reader.flush(), "read-only"), ErrorKind::Invalid);
    // A snapshot keeps the database open; the last handle closes it.
    let snapshot = db.snapshot();
    drop(db);
    assert_eq!(
        kind(Db::open(dir.path(), Options::tiny()), "held"),
        ErrorKind::Locked
    );
    drop(snapshot);
    tiny(dir.path());
}

#[test]
fn a_closed_database_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny(dir.path());
    let other = db.clone();
    db.close().unwrap();
    assert_eq!(kind(other.put(b"k", b"v"), "closed"), ErrorKind::Invalid);
    let snapshot = tiny(&dir.path().join("other")).snapshot();
    let options = ReadOptions {
        snapshot: Some(snapshot),
        ..ReadOptions::default()
    };
    assert_eq!(
        kind(tiny(dir.path()).cursor_with(options), "another database"),
        ErrorKind::Invalid
    );
}

#[test]
fn pools_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let open = |backend, size| {
        let pm = Some(PmConfig::at(&path, backend, size));
        Db::open(dir.path().join("db"), Options::tiny().pm(pm))
    };
    assert_eq!(
        open(Backend::Emulated, 4 << 10).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert!(!path.exists());
    kind(open(Backend::Dax, 1 << 20), "emulated");
    std::fs::write(&path, vec![9; 1 << 20]).unwrap();
    let error = open(Backend::Emulated, 1 << 20).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Corruption | ErrorKind::Incompatible | ErrorKind::Invalid
        ),
        "{error}"
    );
    assert_eq!(
        std::fs::read(&path).unwrap(),
        vec![9; 1 << 20],
        "a file that is no pool was written to"
    );
    // The smallest pool that opens has no room for the log's two halves: `NoSpace`, and the option
    // to raise.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        kind(open(Backend::Emulated, 20 << 10), "pm.size"),
        ErrorKind::NoSpace
    );
}

#[test]
fn a_pool_of_another_database_or_another_time() {
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("pool");
    let options = || Options::tiny().pm(Some(PmConfig::at(&pool, Backend::Emulated, 256 << 10)));
    let db = Db::open(dir.path().join("one"), options()).unwrap();
    let old = std::fs::read(&pool).unwrap();
    db.put(b"k", b"v").unwrap();
    db.close().unwrap();
    let error = Db::open(dir.path().join("two"), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    let db = Db::open(dir.path().join("one"), options()).unwrap();
    db.put(b"l", b"w").unwrap();
    drop(db);
    let new = std::fs::read(&pool).unwrap();
    std::fs::write(&pool, &old).unwrap();
    let error = Db::open(dir.path().join("one"), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    std::fs::write(&pool, &new).unwrap();
    let db = Db::open(dir.path().join("one"), options()).unwrap();
    assert_eq!(db.get(b"l").unwrap().unwrap(), b"w");
    db.close().unwrap();
    // After a clean close everything is in the files, and the database opens without its pool.
    let db = tiny(&dir.path().join("one"));
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"v");
}

/// A first open that is refused leaves nothing on disk and can be tried again.
#[test]
fn a_creation_that_is_refused_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let open = |backend| {
        let pm = Some(PmConfig::at(dir.path().join("pool"), backend, 256 << 10));
        Db::open(dir.path().join("db"), Options::tiny().pm(pm))
    };
    open(Backend::Dax).unwrap_err();
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "neither a pool nor a directory"
    );
    let db = open(Backend::Emulated).unwrap();
    db.put(b"k", b"v").unwrap();
    db.close().unwrap();
    assert_eq!(
        open(Backend::Emulated).unwrap().get(b"k").unwrap().unwrap(),
        b"v"
    );
}

#[test]
fn missing_files_are_corruption_and_repair_mends() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let names = |suffix: &str| {
        let mut names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|n| n.ends_with(suffix))
            .collect();
        names.sort();
        names
    };
    let log = dir.path().join(names(".log").pop().unwrap());
    let away = dir.path().join("away");
    std::fs::rename(&log, &away).unwrap();
    assert_eq!(
        kind(Db::open(dir.path(), Options::tiny()), "missing"),
        ErrorKind::Corruption
    );
    std::fs::rename(&away, &log).unwrap();
    let current = std::fs::read(dir.path().join("CURRENT")).unwrap();
    std::fs::remove_file(dir.path().join("CURRENT")).unwrap();
    assert_eq!(
        kind(Db::open(dir.path(), Options::tiny()), "firn repair"),
        ErrorKind::Corruption
    );
    std::fs::write(dir.path().join("CURRENT"), current).unwrap();

    // Damage one block of one table: reads of the rest work, verify names the table, repair keeps
    // the rest.
    let table = dir.path().join(&names(".sst")[0]);
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&table, &bytes).unwrap();
    let db = tiny(dir.path());
    assert_eq!(kind(db.verify(), ".sst"), ErrorKind::Corruption);
    drop(db);
    let report = repair(dir.path(), &Options::tiny()).unwrap();
    assert!(
        report.manifest_read && report.tables_damaged.len() == 1 && report.blocks_lost == 1,
        "{report:?}"
    );
    let db = tiny(dir.path());
    db.verify().unwrap();
    assert_eq!(db.get(b"in the log").unwrap().unwrap(), b"1");
    let left = db.iter().count();
    assert!((1950..2001).contains(&left), "{left}");
    drop(db);
    // The same without any manifest.
    for name in names("")
        .iter()
        .filter(|n| n.starts_with("MANIFEST") || *n == "CURRENT")
    {
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    let report = repair(dir.path(), &Options::tiny()).unwrap();
    assert!(!report.manifest_read, "{report:?}");
    let db = tiny(dir.path());
    assert_eq!(db.iter().count(), left);
}

#[test]
fn handles_used_up() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    // Two open tables at a time are enough for any number.
    let db = Db::open(dir.path(), Options::tiny().max_open_files(2)).unwrap();
    for i in 0..2000u32 {
        assert_eq!(db.get(i.to_be_bytes()).unwrap().unwrap().len(), 100);
    }
    assert!(db.stats().memory.open_tables <= 3);
}

const FEW_HANDLES: &str = "FIRN_FEW_HANDLES_DIR";

/// Not a test by itself: runs with very few file handles.
#[test]
fn few_handles_child() {
    let Ok(dir) = std::env::var(FEW_HANDLES) else {
        return;
    };
    use rustix::process::{Resource, Rlimit, setrlimit};
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(14),
            maximum: Some(14),
        },
    )
    .unwrap();
    let mut told = 0;
    match Db::open(&dir, Options::tiny()) {
        Err(error) => {
            assert!(error.to_string().contains("ulimit -n"), "{error}");
            told += 1;
        }
        Ok(db) => {
            for i in 0..2000u32 {
                match db.get(i.to_be_bytes()) {
                    Ok(value) => assert_eq!(value.unwrap().len(), 100),
                    Err(error) => {
                        assert!(error.to_string().contains("ulimit -n"), "{error}");
                        told += 1;
                    }
                }
            }
        }
    }
    assert!(told > 0, "14 handles were enough: the test shows nothing");
}

#[test]
fn handles_of_the_process_used_up() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::tiny().compression(Codec::None);
    let db = Db::open(dir.path(), options()).unwrap();
    for i in 0..2000u32 {
        db.put(i.to_be_bytes(), vec![i as u8; 100]).unwrap();
    }
    db.close().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let status = child
        .args(["few_handles_child", "--exact"])
        .env(FEW_HANDLES, dir.path())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let db = Db::open(dir.path(), options()).unwrap();
    assert_eq!(db.iter().count(), 2000, "nothing is lost");
}

#[test]
fn another_version_is_incompatible() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    // A log of another version has another header, so nothing in it is taken for our own.
    let names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let log = names
        .iter()
        .find(|path| path.extension().is_some_and(|e| e == "log"))
        .unwrap();
    let mut bytes = std::fs::read(log).unwrap();
    bytes[8] = 9;
    std::fs::write(log, &bytes).unwrap();
    assert_eq!(
        Db::open(dir.path(), Options::tiny()).unwrap_err().kind(),
        ErrorKind::Corruption
    );
}

/// A manifest that lost its end does not name the newest log, but the frames of that log say that
/// it was named. A repair reads that log, and the repaired database opens.
#[test]
fn repair_after_a_manifest_lost_its_end() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let manifest = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let manifest = manifest
        .into_iter()
        .find(|path| path.to_string_lossy().contains("MANIFEST-"))
        .unwrap();
    let bytes = std::fs::read(&manifest).unwrap();
    let snapshot = 16 + u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    std::fs::write(&manifest, &bytes[..snapshot]).unwrap();
    assert_eq!(
        kind(Db::open(dir.path(), Options::tiny()), "run `firn repair`"),
        ErrorKind::Corruption
    );
    repair(dir.path(), &Options::tiny()).unwrap();
    let db = tiny(dir.path());
    assert_eq!(db.get(b"in the log").unwrap().unwrap(), b"1");
    db.verify().unwrap();
}
