//! Random operations against a sorted map: every read, both ways, across flushes, compactions, snapshots and reopens.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_base::seed::Seed;
use firndb::{Backend, Db, Durability, Options, PmConfig, ReadOptions, Snapshot, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::path::Path;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(seed: &mut Seed) -> Vec<u8> {
    let n = seed.below(400);
    let mut key = format!("k{n:03}").into_bytes();
    key.resize(4 + (n % 7) as usize * 3, b'x');
    key
}

fn value(seed: &mut Seed) -> Vec<u8> {
    let len = if seed.one_in(200) { 30_000 } else { seed.below(300) };
    let mut value = vec![0; len as usize];
    seed.fill(&mut value);
    value
}

fn check_scans(db: &Db, snapshot: Option<&Snapshot>, model: &Model, seed: &mut Seed) {
    let (mut from, mut to) = (key(seed), key(seed));
    if from > to {
        std::mem::swap(&mut from, &mut to);
    }
    let options = ReadOptions { lower: Some(from.clone()), upper: Some(to.clone()), snapshot: snapshot.cloned() };
    let want: Vec<_> = model.range(from.clone()..to.clone()).collect();
    let mut iter = db.iter_with(options).unwrap();
    iter.first().unwrap();
    for (key, value) in &want {
        assert!(iter.valid());
        assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    iter.last().unwrap();
    for (key, value) in want.iter().rev() {
        assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
    let probe = key(seed);
    iter.seek(&probe).unwrap();
    let at = want.partition_point(|(key, _)| **key < probe);
    assert_eq!(iter.valid().then(|| iter.key().to_vec()), want.get(at).map(|(key, _)| key.to_vec()));
    // Turn round in the middle, twice.
    if iter.valid() && at > 0 {
        iter.prev().unwrap();
        assert_eq!(iter.key(), want[at - 1].0);
        iter.next().unwrap();
        assert_eq!(iter.key(), want[at].0);
    }
    iter.seek_for_prev(&probe).unwrap();
    let at = want.partition_point(|(key, _)| **key <= probe);
    assert_eq!(iter.valid().then(|| iter.key().to_vec()), at.checked_sub(1).map(|at| want[at].0.to_vec()));
}

fn open(dir: &Path, pm: bool) -> Db {
    let mut options = Options::tiny();
    if pm {
        options.pm = Some(PmConfig::at(dir.with_extension("pool"), Backend::Emulated, 256 << 10));
    }
    Db::open(dir, options).unwrap()
}

fn run(number: u64, operations: u64, pm: bool) {
    let mut seed = Seed::new(number);
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let mut db = open(&dir, pm);
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for _ in 0..operations {
        let durability = if seed.one_in(10) { Durability::Power } else { Durability::Process };
        let options = WriteOptions { durability };
        match seed.below(100) {
            0..50 => {
                let (key, value) = (key(&mut seed), value(&mut seed));
                db.put_with(&key, &value, &options).unwrap();
                model.insert(key, value);
            }
            50..60 => {
                let key = key(&mut seed);
                db.delete_with(&key, &options).unwrap();
                model.remove(&key);
            }
            60..65 => {
                let mut batch = WriteBatch::new();
                for _ in 0..seed.below(20) {
                    let (key, value) = (key(&mut seed), value(&mut seed));
                    if seed.one_in(3) {
                        batch.delete(&key);
                        model.remove(&key);
                    } else {
                        batch.put(&key, &value);
                        model.insert(key, value);
                    }
                }
                db.write(batch, &options).unwrap();
            }
            65..85 => {
                let key = key(&mut seed);
                assert_eq!(db.get(&key).unwrap().map(|v| v.to_vec()), model.get(&key).cloned());
            }
            85..88 => {
                let keys: Vec<_> = (0..seed.below(30)).map(|_| key(&mut seed)).collect();
                let got = db.multi_get(&keys).unwrap();
                for (key, value) in keys.iter().zip(got) {
                    assert_eq!(value.map(|v| v.to_vec()), model.get(key).cloned());
                }
            }
            88..94 => check_scans(&db, None, &model, &mut seed),
            94 => snapshots.push((db.snapshot(), model.clone())),
            95 => {
                if !snapshots.is_empty() {
                    let at = seed.below(snapshots.len() as u64) as usize;
                    let (snapshot, model) = snapshots.swap_remove(at);
                    check_scans(&db, Some(&snapshot), &model, &mut seed);
                    let key = key(&mut seed);
                    assert_eq!(snapshot.get(&key).unwrap().map(|v| v.to_vec()), model.get(&key).cloned());
                }
            }
            96 => match seed.below(4) {
                0 => db.flush().unwrap(),
                1 => db.compact_range(None, None).unwrap(),
                2 => db.compact_range(Some(&key(&mut seed)), None).unwrap(),
                _ => db.sync().unwrap(),
            },
            97 => {
                let copy = root.path().join(format!("copy{}", seed.next_u64()));
                db.checkpoint(&copy).unwrap();
                let copy = Db::open(&copy, Options::tiny()).unwrap();
                check_scans(&copy, None, &model, &mut seed);
                copy.verify().unwrap();
                copy.put(b"only here", b"1").unwrap();
                assert!(db.get(b"only here").unwrap().is_none());
            }
            98 => {
                let mut options = Options::tiny();
                if pm {
                    options.pm = Some(PmConfig::at(dir.with_extension("pool"), Backend::Emulated, 256 << 10));
                }
                let reader = Db::open_read_only(&dir, options).unwrap();
                check_scans(&reader, None, &model, &mut seed);
                assert!(reader.put(b"k", b"v").is_err());
            }
            _ => {
                snapshots.clear();
                if seed.one_in(2) {
                    db.close().unwrap();
                } else {
                    drop(db);
                }
                db = open(&dir, pm);
                db.verify().unwrap();
            }
        }
    }
    db.wait_idle().unwrap();
    db.verify().unwrap();
    let got: Vec<_> = db.iter().unwrap().entries().map(|e| e.map(|(k, v)| (k, v.to_vec())).unwrap()).collect();
    assert_eq!(got, model.into_iter().collect::<Vec<_>>());
}

#[test]
fn agrees_with_a_map() {
    for number in 0..6 {
        run(number, 1500, false);
    }
}

#[test]
fn agrees_with_a_map_with_a_pool_under_the_log() {
    for number in 100..104 {
        run(number, 1500, true);
    }
}
