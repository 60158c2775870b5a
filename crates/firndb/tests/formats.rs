//! Databases that older versions wrote are opened and upgraded. Those versions wrote the bytes in
//! `data/`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firndb::{Backend, Codec, Db, Options, PmConfig, Profile};
use std::collections::BTreeMap;
use std::path::Path;

/// Four databases of format version 3, written by commit 3be6380: one a profile, and one of `lab`
/// with a pool. Each was killed with its last writes in the log.
const FORMAT_3: &[u8] = include_bytes!("data/format-3.lz4");

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

fn kinds(root: &Path) -> [(&'static str, Options); 4] {
    let options = |profile| {
        let options = Options::tiny()
            .profile(profile)
            .write_buffer_bytes(Some(8 << 10));
        options.compression(Codec::Lz4).create_if_missing(false)
    };
    let pool = PmConfig::at(root.join("lab-pool/pool"), Backend::Emulated, 256 << 10);
    [
        ("classic", options(Profile::Classic)),
        ("block", options(Profile::Block)),
        ("lab", options(Profile::Lab)),
        ("lab-pool", options(Profile::Lab).pm(Some(pool))),
    ]
}

#[test]
fn format_3_is_upgraded() {
    let root = tempfile::tempdir().unwrap();
    unpack(FORMAT_3, root.path());
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
    let root = tempfile::tempdir().unwrap();
    unpack(FORMAT_3, root.path());
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
    unpack(FORMAT_3, root.path());
    let (name, options) = &kinds(root.path())[0];
    let dir = root.path().join("other");
    std::fs::rename(root.path().join(name).join("db"), &dir).unwrap();
    firndb::repair(&dir, options).unwrap();
    let db = Db::open(&dir, options.clone()).unwrap();
    assert!(read(&db) == contents(name), "repaired");
}
