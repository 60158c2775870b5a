//! Profile `lab` under real threads. Cursors and snapshots in both directions, gets, `verify` and
//! checkpoints run beside two writers, flushes, evictions and manual compactions, while leaves,
//! logs, extents of the pool and slots of the hot buffer are reused. The contents at a read point
//! never change or disappear.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{PROCESS, is_ci};
use firn_base::seed::Seed;
use firndb::{
    Backend, Cursor, Db, LabTuning, LogPlacement, Options, PmConfig, Profile, Snapshot, Tuning,
};
use firndb::{LabStats, WriteBatch};
use std::sync::atomic::{AtomicUsize, Ordering};

const WRITERS: u64 = 2;
/// The keys of a group are always written or deleted together. The written ones all have the same
/// version.
const GROUPS: u64 = 12;
const GROUP_KEYS: usize = 6;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Batches per writer: a minute of them in the CI tier.
fn batches() -> u64 {
    if is_ci() { 60_000 } else { 6_000 }
}

fn value(version: u64, i: usize) -> Vec<u8> {
    let mut value = version.to_be_bytes().to_vec();
    value.resize(60 + 40 * (i % 3), version as u8);
    value
}

/// Writes one version of a group. Every eleventh version deletes it.
fn write_group(db: &Db, writer: u64, group: u64, version: u64) {
    let mut batch = WriteBatch::new();
    for i in 0..GROUP_KEYS {
        let key = format!("{writer}/{group:02}/{i}");
        if version % 11 == 10 {
            batch.delete(key);
        } else {
            batch.put(key, value(version, i));
        }
    }
    db.write(&batch, &PROCESS).unwrap();
}

/// Checks that each key is found at most once, groups are complete, and each group has one version.
fn check(pairs: &[(Vec<u8>, Vec<u8>)]) {
    assert!(pairs.is_sorted_by(|a, b| a.0 < b.0));
    for group in pairs.chunk_by(|(a, _), (b, _)| a[..5] == b[..5]) {
        assert_eq!(group.len(), GROUP_KEYS);
        let version = u64::from_be_bytes(group[0].1[..8].try_into().unwrap());
        for ((key, found), i) in group.iter().zip(0..) {
            assert_eq!(*found, value(version, i), "{}", key.escape_ascii());
        }
    }
}

fn pair(iter: &Cursor) -> (Vec<u8>, Vec<u8>) {
    assert!(iter.valid());
    (iter.key().to_vec(), iter.value().to_vec())
}

fn forward(iter: &mut Cursor) -> Pairs {
    let mut pairs = Pairs::new();
    iter.first().unwrap();
    while iter.valid() {
        pairs.push(pair(iter));
        iter.next().unwrap();
    }
    pairs
}

fn backward(iter: &mut Cursor) -> Pairs {
    let mut pairs = Pairs::new();
    iter.last().unwrap();
    while iter.valid() {
        pairs.push(pair(iter));
        iter.prev().unwrap();
    }
    pairs.reverse();
    pairs
}

/// Checks that a snapshot shows the same by gets and by cursors of any age, in either direction.
fn read_snapshot(snapshot: &Snapshot, seed: &mut Seed) {
    let mut old = snapshot.cursor().unwrap();
    let pairs = backward(&mut old);
    check(&pairs);
    for (key, value) in &pairs {
        assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    let mut new = snapshot.cursor().unwrap();
    if seed.one_in(2) {
        assert!(forward(&mut new) == pairs && backward(&mut old) == pairs);
    } else {
        assert!(backward(&mut new) == pairs && forward(&mut old) == pairs);
    }
}

/// Checks that a cursor that moves at random always sees what it saw first.
fn wander(db: &Db, seed: &mut Seed) {
    let mut iter = db.cursor().unwrap();
    let pairs = forward(&mut iter);
    check(&pairs);
    for _ in 0..8 {
        let mut at = seed.below(pairs.len() as u64) as usize;
        iter.seek(&pairs[at].0).unwrap();
        for _ in 0..30 {
            assert_eq!(pair(&iter), pairs[at]);
            if at + 1 < pairs.len() && seed.one_in(3) {
                at += 1;
                iter.next().unwrap();
            } else if at > 0 {
                at -= 1;
                iter.prev().unwrap();
            }
        }
    }
}

/// Runs all readers and writers with trees so small that they rotate all the time. Returns the
/// final statistics of level 0.
fn what_is_read_stays(lab: LabTuning, with_pool: bool) -> LabStats {
    let dir = tempfile::tempdir().unwrap();
    let lab = LabTuning {
        tree_bytes: Some(64 << 10),
        leaf_bytes: 512,
        ..lab
    };
    let pool = || PmConfig::at(dir.path().join("pool"), Backend::Emulated, 2 << 20);
    let (pm, tuning) = (
        with_pool.then(pool),
        Tuning {
            lab,
            ..Tuning::default()
        },
    );
    let options = Options::tiny().profile(Profile::Lab).pm(pm).tuning(tuning);
    let db = Db::open(dir.path().join("db"), options).unwrap();
    (0..WRITERS)
        .for_each(|writer| (0..GROUPS).for_each(|group| write_group(&db, writer, group, 0)));
    let writing = AtomicUsize::new(WRITERS as usize);
    let while_written = |body: &mut dyn FnMut()| {
        while writing.load(Ordering::Relaxed) > 0 {
            body();
        }
        body();
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, writing) = (&db, &writing);
            scope.spawn(move || {
                // Runs however this thread ends, because the others wait for it.
                let _over = Over(writing);
                let mut seed = Seed::new(writer);
                for version in 1..=batches() {
                    let groups = if seed.one_in(4) { GROUPS } else { GROUPS / 2 };
                    write_group(db, writer, seed.below(groups), version);
                }
            });
        }
        let (db, dir, while_written) = (&db, dir.path(), &while_written);
        scope.spawn(move || {
            let mut seed = Seed::new(10);
            while_written(&mut || read_snapshot(&db.snapshot(), &mut seed));
        });
        scope.spawn(move || {
            let mut seed = Seed::new(11);
            while_written(&mut || wander(db, &mut seed));
        });
        scope.spawn(move || while_written(&mut || db.compact().unwrap()));
        scope.spawn(move || {
            let mut copies = 0;
            while_written(&mut || {
                db.verify().unwrap();
                let copy = dir.join(format!("copy{copies}"));
                db.checkpoint(&copy).unwrap();
                std::fs::remove_dir_all(copy).unwrap();
                copies += 1;
            });
        });
    });
    check(&forward(&mut db.cursor().unwrap()));
    db.verify().unwrap();
    db.stats().design.lab.unwrap()
}

#[test]
fn beside_slots_that_are_used_again() {
    let lab = LabTuning {
        reuse_min: 0.0,
        hot_bytes: Some(64 << 10),
        hot_writes: 2,
        ..LabTuning::default()
    };
    let tier = what_is_read_stays(lab, true);
    assert!(
        tier.chunks > 2 && tier.hot.as_ref().is_some_and(|hot| hot.written > 1_000),
        "{tier:?}"
    );
}

#[test]
fn beside_logs_whose_room_is_used_again() {
    let lab = LabTuning {
        hot_bytes: Some(0),
        log_placement: LogPlacement::Rest,
        ..LabTuning::default()
    };
    let tier = what_is_read_stays(lab, true);
    assert!(tier.chunks > 2, "{tier:?}");
}

#[test]
fn beside_trees_in_memory() {
    let tier = what_is_read_stays(
        LabTuning {
            reuse_min: 0.0,
            ..LabTuning::default()
        },
        false,
    );
    assert!(tier.chunks > 2, "{tier:?}");
}

struct Over<'a>(&'a AtomicUsize);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
