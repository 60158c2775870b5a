//! Random operations against a sorted map: every kind of read, in both directions, across flushes,
//! compactions, snapshots and reopens.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::is_ci;
use firn_base::seed::Seed;
use firndb::{
    Backend, Db, Durability, Options, PmConfig, ReadOptions, Snapshot, WriteBatch, WriteOptions,
};
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
    let len = if seed.one_in(200) {
        30_000
    } else {
        seed.below(300)
    };
    let mut value = vec![0; len as usize];
    seed.fill(&mut value);
    value
}

fn check_scans(db: &Db, snapshot: Option<&Snapshot>, model: &Model, seed: &mut Seed) {
    let (mut from, mut to) = (key(seed), key(seed));
    if from > to {
        std::mem::swap(&mut from, &mut to);
    }
    let options = ReadOptions {
        lower: Some(from.clone()),
        upper: Some(to.clone()),
        snapshot: snapshot.cloned(),
    };
    let want: Vec<_> = model.range(from.clone()..to.clone()).collect();
    let mut iter = db.cursor_with(options).unwrap();
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
    assert_eq!(
        iter.valid().then(|| iter.key().to_vec()),
        want.get(at).map(|(key, _)| key.to_vec())
    );
    // Reverse direction twice, in the middle.
    if iter.valid() && at > 0 {
        iter.prev().unwrap();
        assert_eq!(iter.key(), want[at - 1].0);
        iter.next().unwrap();
        assert_eq!(iter.key(), want[at].0);
    }
    iter.seek_for_prev(&probe).unwrap();
    let at = want.partition_point(|(key, _)| **key <= probe);
    assert_eq!(
        iter.valid().then(|| iter.key().to_vec()),
        at.checked_sub(1).map(|at| want[at].0.to_vec())
    );
}

fn options(dir: &Path, pm: bool) -> Options {
    let pm = pm.then(|| PmConfig::at(dir.with_extension("pool"), Backend::Emulated, 256 << 10));
    Options::tiny().pm(pm)
}

fn open(dir: &Path, pm: bool) -> Db {
    Db::open(dir, options(dir, pm)).unwrap()
}

/// A database and its expected contents.
struct Session {
    root: tempfile::TempDir,
    pm: bool,
    db: Option<Db>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    seed: Seed,
}

impl Session {
    fn new(number: u64, pm: bool) -> Session {
        let root = tempfile::tempdir().unwrap();
        let db = Some(open(&root.path().join("db"), pm));
        Session {
            root,
            pm,
            db,
            model: Model::new(),
            snapshots: Vec::new(),
            seed: Seed::new(number),
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn step(&mut self) {
        match self.seed.below(100) {
            0..65 => self.write(),
            65..88 => self.read(),
            88..94 => check_scans(self.db.as_ref().unwrap(), None, &self.model, &mut self.seed),
            94 => self
                .snapshots
                .push((self.db().snapshot(), self.model.clone())),
            95 => self.read_snapshot(),
            96 => self.compact(),
            97 => self.checkpoint(),
            98 => self.read_only(),
            _ => self.reopen(),
        }
    }

    fn write(&mut self) {
        let durability = if self.seed.one_in(10) {
            Durability::Power
        } else {
            Durability::Process
        };
        let options = WriteOptions::new().durability(durability);
        let mut batch = WriteBatch::new();
        let count = if self.seed.one_in(13) {
            self.seed.below(20)
        } else {
            1
        };
        for _ in 0..count {
            let (key, value) = (key(&mut self.seed), value(&mut self.seed));
            if self.seed.one_in(5) {
                batch.delete(&key);
                self.model.remove(&key);
            } else {
                batch.put(&key, &value);
                self.model.insert(key, value);
            }
        }
        self.db().write(&batch, &options).unwrap();
    }

    fn read(&mut self) {
        if self.seed.one_in(6) {
            let keys: Vec<_> = (0..self.seed.below(30))
                .map(|_| key(&mut self.seed))
                .collect();
            let got = self.db().multi_get(&keys).unwrap();
            for (key, value) in keys.iter().zip(got) {
                assert_eq!(value.map(|v| v.to_vec()), self.model.get(key).cloned());
            }
            return;
        }
        let key = key(&mut self.seed);
        assert_eq!(
            self.db().get(&key).unwrap().map(|v| v.to_vec()),
            self.model.get(&key).cloned()
        );
    }

    fn read_snapshot(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let at = self.seed.below(self.snapshots.len() as u64) as usize;
        let (snapshot, model) = self.snapshots.swap_remove(at);
        check_scans(
            self.db.as_ref().unwrap(),
            Some(&snapshot),
            &model,
            &mut self.seed,
        );
        let key = key(&mut self.seed);
        assert_eq!(
            snapshot.get(&key).unwrap().map(|v| v.to_vec()),
            model.get(&key).cloned()
        );
    }

    fn compact(&mut self) {
        let from = key(&mut self.seed);
        match self.seed.below(4) {
            0 => self.db().flush().unwrap(),
            1 => self.db().compact().unwrap(),
            2 => self.db().compact_range::<&[u8]>(from.as_slice()..).unwrap(),
            _ => self.db().sync().unwrap(),
        }
    }

    fn checkpoint(&mut self) {
        let copy = self
            .root
            .path()
            .join(format!("copy{}", self.seed.next_u64()));
        self.db().checkpoint(&copy).unwrap();
        let copy = Db::open(&copy, Options::tiny()).unwrap();
        check_scans(&copy, None, &self.model, &mut self.seed);
        copy.verify().unwrap();
        copy.put(b"only here", b"1").unwrap();
        assert!(self.db().get(b"only here").unwrap().is_none());
    }

    fn read_only(&mut self) {
        let dir = self.root.path().join("db");
        let reader = Db::open_read_only(&dir, options(&dir, self.pm)).unwrap();
        check_scans(&reader, None, &self.model, &mut self.seed);
        assert!(reader.put(b"k", b"v").is_err());
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        let db = self.db.take().unwrap();
        if self.seed.one_in(2) {
            db.close().unwrap();
        } else {
            drop(db);
        }
        self.db = Some(open(&self.root.path().join("db"), self.pm));
        self.db().verify().unwrap();
    }

    fn finish(self) {
        let db = self.db();
        db.wait_idle().unwrap();
        db.verify().unwrap();
        let got: Vec<_> = db
            .iter()
            .map(|e| e.map(|(k, v)| (k, v.to_vec())).unwrap())
            .collect();
        assert_eq!(
            got,
            self.model
                .iter()
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect::<Vec<_>>()
        );
    }
}

fn run(number: u64, operations: u64, pm: bool) {
    let mut session = Session::new(number, pm);
    for _ in 0..operations {
        session.step();
    }
    session.finish();
}

fn scale() -> u64 {
    if is_ci() { 10 } else { 1 }
}

#[test]
fn agrees_with_a_map() {
    for number in 0..6 * scale() {
        run(number, 1500, false);
    }
}

#[test]
fn agrees_with_a_map_with_a_pool_under_the_log() {
    for number in 100..100 + 4 * scale() {
        run(number, 1500, true);
    }
}
