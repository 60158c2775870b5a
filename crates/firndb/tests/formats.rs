//! Databases that older versions wrote are opened and upgraded. Those versions wrote the bytes in
//! `data/`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firndb::{Backend, Codec, Db, Options, PmConfig, Profile};
use std::collections::BTreeMap;
use std::path::Path;

/// Four databases of format version 3, written by commit 3be6380: one a profile, and one of `lab`
/// with a pool. Each was killed with its last writes in the log.
const FORMAT_3: &[u8] = include_bytes!("data/format-3.lz4");

/// Three databases of format version 6, with logs of version 3, written by commit 97f4ec81: as
/// those above, without `block`.
const FORMAT_6: &[u8] = include_bytes!("data/format-6.lz4");

/// Unpacks files: for each the length of its path, the path, its length, its bytes.
fn unpack(packed: &[u8], root: &Path) {
    let all = lz4_flex::decompress_size_prepended(packed).unwrap();
    let mut rest = &all[..];
    let mut take = |len: usize| {
        let (taken, left) = rest.split_at(len);
        rest = left;
        taken.to_vec()
    };
    let mut written = 0;
    while written < all.len() {
        let len = |bytes: Vec<u8>| u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
        let name_len = len(take(4));
        let name = String::from_utf8(take(name_len)).unwrap();
        let file_len = len(take(4));
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, take(file_len)).unwrap();
        written += 8 + name_len + file_len;
    }
}

/// The contents of the database `name`, as the program that wrote it had put them.
fn contents(name: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for round in 0..3 {
        for i in (0..400).filter(|i| i % (round + 2) == 0) {
            all.insert(
                format!("key{i:04}"),
                format!("{name} {round} {i} ").repeat(3),
            );
        }
    }
    for i in (0..400).step_by(7) {
        all.remove(&format!("key{i:04}"));
    }
    for i in 0..30 {
        all.insert(format!("late{i:02}"), format!("{name} in the log {i}"));
    }
    all
}

fn read(db: &Db) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    db.iter()
        .map(|entry| {
            entry
                .map(|(key, value)| (text(&key), text(&value)))
                .unwrap()
        })
        .collect()
}

/// The databases that were unpacked to `root`, and their options.
fn kinds(root: &Path) -> Vec<(&'static str, Options)> {
    let options = |profile| {
        let options = Options::tiny()
            .profile(profile)
            .write_buffer_bytes(Some(8 << 10));
        options.compression(Codec::Lz4).create_if_missing(false)
    };
    let pool = PmConfig::at(root.join("lab-pool/pool"), Backend::Emulated, 256 << 10);
    let mut all = vec![
        ("classic", options(Profile::Classic)),
        ("block", options(Profile::Block)),
        ("lab", options(Profile::Lab)),
        ("lab-pool", options(Profile::Lab).pm(Some(pool))),
    ];
    all.retain(|(name, _)| root.join(name).exists());
    all
}

#[test]
fn format_3_is_upgraded() {
    is_upgraded(FORMAT_3);
}

#[test]
fn format_6_is_upgraded() {
    is_upgraded(FORMAT_6);
}

fn is_upgraded(packed: &[u8]) {
    let root = tempfile::tempdir().unwrap();
    unpack(packed, root.path());
    for (name, options) in kinds(root.path()) {
        let dir = root.path().join(name).join("db");
        let mut expected = contents(name);
        assert_eq!(expected.len(), 258);
        let reader = Db::open_read_only(&dir, options.clone()).unwrap();
        assert!(read(&reader) == expected, "{name}, read-only");
        drop(reader);
        for round in 0..3 {
            let db = Db::open(&dir, options.clone()).unwrap();
            assert!(read(&db) == expected, "{name}, round {round}");
            db.verify().unwrap();
            let value = format!("{name} {round}").repeat(200);
            for i in 0..20 {
                db.put(format!("new{round}{i:02}"), &value).unwrap();
                expected.insert(format!("new{round}{i:02}"), value.clone());
            }
            match round {
                0 => db.flush().unwrap(),
                1 => db.compact().unwrap(),
                _ => {}
            }
            assert!(read(&db) == expected, "{name}, after round {round}");
        }
    }
}

/// The copy of an upgraded database is of the current format, and a repair takes over old files.
#[test]
fn format_3_is_copied_and_repaired() {
    is_copied_and_repaired(FORMAT_3);
}

#[test]
fn format_6_is_copied_and_repaired() {
    is_copied_and_repaired(FORMAT_6);
}

fn is_copied_and_repaired(packed: &[u8]) {
    let root = tempfile::tempdir().unwrap();
    unpack(packed, root.path());
    for (name, options) in kinds(root.path()) {
        let dir = root.path().join(name).join("db");
        let expected = contents(name);
        let db = Db::open(&dir, options.clone()).unwrap();
        let copy = root.path().join(name).join("copy");
        db.checkpoint(&copy).unwrap();
        drop(db);
        let copied = Db::open(&copy, options.clone().pm(None)).unwrap();
        assert!(read(&copied) == expected, "{name}, copied");
    }
    unpack(packed, root.path());
    let (name, options) = &kinds(root.path())[0];
    let dir = root.path().join("other");
    std::fs::rename(root.path().join(name).join("db"), &dir).unwrap();
    firndb::repair(&dir, options).unwrap();
    let db = Db::open(&dir, options.clone()).unwrap();
    assert!(read(&db) == contents(name), "repaired");
}

/// The version and the contents of each log in `dir`.
fn logs(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut logs = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let bytes = std::fs::read(&path).unwrap();
            let version = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            logs.insert(name, (version, bytes));
        }
    }
    logs
}

/// Nothing is appended to a log of an older version. An open begins a new one.
#[test]
fn an_old_log_stays_as_it_is() {
    for (packed, version) in [(FORMAT_3, 2), (FORMAT_6, 3)] {
        let root = tempfile::tempdir().unwrap();
        unpack(packed, root.path());
        let (name, options) = kinds(root.path()).remove(0);
        // So that an open keeps a log of this size.
        let options = options.write_buffer_bytes(Some(64 << 10));
        let dir = root.path().join(name).join("db");
        let before = logs(&dir);
        assert!(!before.is_empty() && before.values().all(|log| log.0 == version));
        let db = Db::open(&dir, options.clone()).unwrap();
        db.put("new", "in a new log").unwrap();
        let after = logs(&dir);
        let mut still_there = 0;
        for (log, contents) in &after {
            if let Some(old) = before.get(log) {
                assert!(old == contents, "{log} of version {version} was written to");
                still_there += 1;
            } else {
                assert_eq!(contents.0, 4, "{log}");
            }
        }
        assert!(still_there > 0 && after.len() > still_there);
        // A copy, as if the process had been killed: both logs are replayed.
        let copy = root.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
        }
        let mut expected = contents(name);
        expected.insert("new".into(), "in a new log".into());
        assert!(read(&db) == expected);
        assert!(read(&Db::open(&copy, options).unwrap()) == expected);
    }
}
