//! Profile `lab`, row by row of the design: each test shows a mechanism by counters and structure,
//! and that its effect disappears when the mechanism is switched off.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{Rig, flush, hits, lab_stats, row, row_of_option, trees};
use firn_base::seed::Seed;
use firn_fs::{OpKind, Operation};
use firn_pm::sim::{Mode, SimRegion};
use firndb::mechanisms;
use firndb::{
    Db, Durability, Environment, Event, LabStats, LabTuning, LogPlacement, Options, Profile, Tuning,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn options(memory: Option<&SimRegion>) -> Options {
    Options::tiny()
        .profile(Profile::Lab)
        .pm(memory.map(|_| firn_pm::PmConfig::volatile(1 << 20)))
        .tuning(Tuning {
            lab: LabTuning {
                tree_bytes: Some(64 << 10),
                leaf_bytes: 512,
                reuse_min: 0.0,
                ..LabTuning::default()
            },
            ..Tuning::default()
        })
        .environment(Environment {
            memory: memory.cloned(),
            ..Environment::default()
        })
}

fn check(db: &Db, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let found: BTreeMap<Vec<u8>, Vec<u8>> = db
        .iter()
        .map(|entry| entry.unwrap())
        .map(|(k, v)| (k, v.to_vec()))
        .collect();
    assert_eq!(found.len(), model.len());
    assert!(found == *model);
    for (key, value) in model.iter().step_by(7) {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

fn run(dir: &Path, memory: Option<&SimRegion>) {
    let mut seed = Seed::new(1);
    let mut model = BTreeMap::new();
    for round in 0..6 {
        let db = Db::open(dir, options(memory)).unwrap();
        check(&db, &model);
        for i in 0..3000 {
            let key = format!("key{:06}", seed.below(20_000)).into_bytes();
            if seed.one_in(9) {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let mut value = vec![0; 20 + seed.below(200) as usize];
                seed.fill(&mut value);
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            if i % 1000 == 0 {
                check(&db, &model);
            }
        }
        if round % 2 == 0 {
            db.flush().unwrap();
            db.wait_idle().unwrap();
        }
        check(&db, &model);
        db.close().unwrap();
    }
}

#[test]
fn lab_holds_what_a_map_holds() {
    let dir = tempfile::tempdir().unwrap();
    run(
        &dir.path().join("db"),
        Some(&SimRegion::new(1 << 20, Mode::Adr)),
    );
    run(&dir.path().join("volatile"), None);
}

#[test]
fn lab_01_level_0_is_a_pair_of_trees() {
    row(
        &mechanisms::LAB_TREES,
        "entries of the mutable tree",
        || {
            let mut rig = Rig::loaded(Profile::Lab, 300, trees(true));
            flush(&rig);
            let stats = rig.stats();
            let found = lab_stats(&rig);
            assert_eq!(
                (found.mutable_entries, found.immutable_entries),
                (rig.model.len() as u64, 0),
                "entries of the mutable tree and of the immutable one"
            );
            assert!(
                stats.levels.iter().all(|level| level.tables == 0),
                "the values are where the log has them"
            );
            let in_pm: u64 = stats
                .pm
                .iter()
                .filter(|pm| pm.owner == "btree")
                .map(|pm| pm.live_bytes)
                .sum();
            assert!(
                in_pm >= found.leaf_bytes && found.index_bytes > 0,
                "{in_pm} bytes in persistent memory"
            );
            let mut both = 0;
            for _ in 0..40 {
                rig.put(50, 1_000_000);
                flush(&rig);
                let found = lab_stats(&rig);
                both += u64::from(found.mutable_entries > 0 && found.immutable_entries > 0);
            }
            assert!(both > 0, "one takes flushes while the other is evicted");
            rig.check();
        },
    );
}

#[test]
fn lab_02_an_entry_is_a_key_and_a_pointer() {
    row(
        &firn_table::mechanisms::LAB_PREFIX,
        "bytes of leaf for each entry",
        || {
            let mut rig = Rig::new(Profile::Lab, trees(true));
            let mut numbers: Vec<u32> = (0..300).collect();
            for i in (1..numbers.len()).rev() {
                numbers.swap(i, rig.random.below(i as u64 + 1) as usize);
            }
            let key = |number: u32| {
                format!("{}{number:010}", "a prefix that all keys share, ".repeat(2)).into_bytes()
            };
            numbers
                .into_iter()
                .for_each(|number| rig.put_one(key(number)));
            flush(&rig);
            let found = lab_stats(&rig);
            let bytes = found.leaf_bytes / found.mutable_entries;
            // 2 or 3 bytes of a key are unique, and every leaf has one whole key.
            assert!(
                bytes < 24 + 6,
                "{bytes} bytes of leaf for each entry, whose value takes more than 100"
            );
            rig.check();
        },
    );
}

#[test]
fn lab_04_the_log_goes_through_persistent_memory() {
    row_of_option("fences for 200 writes", |on| {
        let mut rig = Rig::new(Profile::Lab, |options| {
            trees(true)(options);
            options.durability = Durability::Power;
            if !on {
                options.limits.pm_log_buffer_bytes = 0;
            }
        });
        let fences = |rig: &Rig| {
            rig.stats()
                .pm
                .iter()
                .filter(|pm| pm.owner == "log_buffer")
                .map(|pm| pm.fences)
                .sum::<u64>()
        };
        let is_log_sync =
            |op: &Operation| op.kind == OpKind::Sync && op.path.to_string_lossy().ends_with(".log");
        let syncs = |rig: &Rig| rig.fs.log().iter().filter(|op| is_log_sync(op)).count();
        let before = (fences(&rig), syncs(&rig));
        (0..200_u32).for_each(|i| rig.put_one(i.to_be_bytes().to_vec()));
        let (fences, syncs) = (fences(&rig) - before.0, syncs(&rig) - before.1);
        assert!(
            (200..230).contains(&fences),
            "{fences} fences for 200 writes that survive a loss of power"
        );
        assert!(syncs < 10, "{syncs} syncs of logs");
        flush(&rig);
        let stats = rig.stats();
        let log = stats.ssd.iter().find(|cause| cause.cause == "log").unwrap();
        assert!(log.written_bytes > 20_000);
        let mean = log.written_bytes / log.writes;
        assert!(
            mean > 1_000,
            "halves of the buffer reach the file: {mean} bytes a write"
        );
        rig.check();
    });
}

#[test]
fn lab_05_values_stay_where_the_log_has_them() {
    row(&mechanisms::LAB_VALUES, "values were written again", || {
        let rig = Rig::loaded(Profile::Lab, 300, trees(true));
        flush(&rig);
        let written = |name| {
            rig.stats()
                .ssd
                .iter()
                .find(|cause| cause.cause == name)
                .unwrap()
                .written_bytes
        };
        assert_eq!(written("flush"), 0, "values were written again");
        let found = lab_stats(&rig);
        assert_eq!(found.log_entries, rig.model.len() as u64);
        assert_eq!(
            found.log_live_bytes,
            rig.model
                .values()
                .map(|value| value.len() as u64)
                .sum::<u64>()
        );
        rig.check();
    });
}

#[test]
fn lab_03_a_flush_leaves_one_entry_of_a_key() {
    row(
        &mechanisms::LAB_IN_PLACE,
        "versions that no snapshot sees",
        || {
            let mut rig = Rig::new(Profile::Lab, trees(true));
            let overwrite = |rig: &mut Rig| {
                (0..100).for_each(|i| rig.put_one(format!("key{i}").into_bytes()));
                flush(rig);
                let found = lab_stats(rig);
                let (entries, retained) = (found.mutable_entries, found.retained_versions);
                (entries, retained, found.chunks)
            };
            for _ in 0..5 {
                let found = overwrite(&mut rig);
                assert_eq!(
                    found,
                    (100, 0, 0),
                    "versions that no snapshot sees were kept"
                );
            }
            let (snapshot, then) = (rig.db.snapshot(), rig.model.clone());
            assert_eq!(
                (overwrite(&mut rig), overwrite(&mut rig)),
                ((100, 100, 0), (100, 100, 0)),
                "what the snapshot sees, and no more"
            );
            for (key, value) in &then {
                assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
            }
            drop(snapshot);
            assert_eq!(overwrite(&mut rig), (100, 0, 0));
            rig.check();
        },
    );
}

/// Versions seen by snapshots go to level 1 once they take much memory, and snapshots still see
/// them.
#[test]
fn lab_03_what_snapshots_see_is_bounded() {
    let mut rig = Rig::new(Profile::Lab, trees(true));
    let (mut seen, mut most) = (Vec::new(), 0);
    for _ in 0..60 {
        (0..100).for_each(|i| rig.put_one(format!("key{i}").into_bytes()));
        flush(&rig);
        rig.settle();
        most = most.max(lab_stats(&rig).retained_versions);
        seen.push((rig.db.snapshot(), rig.model.clone()));
    }
    let found = lab_stats(&rig);
    assert!(
        most < 1000 && found.chunks > 0 && found.occupancy < 0.5,
        "{most} of 5,900 that are seen: {found:?}"
    );
    for (snapshot, then) in &seen {
        for (key, value) in then.iter().step_by(7) {
            assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
        }
    }
    rig.check();
    drop(seen);
    rig.check();
}

#[test]
fn lab_06_a_flush_makes_pointers_without_reading() {
    row(
        &mechanisms::LAB_ADDRESSES,
        "the buffer knew where each value lies",
        || {
            let rig = Rig::loaded(Profile::Lab, 200, trees(true));
            flush(&rig);
            let stats = rig.stats();
            let reads: u64 = stats.ssd.iter().map(|cause| cause.read_bytes).sum();
            let pointers = lab_stats(&rig).log_entries;
            assert_eq!(
                (reads, pointers),
                (0, rig.model.len() as u64),
                "the buffer knew where each value lies"
            );
            rig.check();
        },
    );
}

#[test]
fn lab_07_a_flush_puts_many_entries_in_at_a_time() {
    row(&mechanisms::LAB_BULK, "fences for", || {
        let mut rig = Rig::new(Profile::Lab, trees(true));
        (0..200_u32).for_each(|i| rig.put_one(i.to_be_bytes().to_vec()));
        let fences = |rig: &Rig| {
            rig.stats()
                .pm
                .iter()
                .filter(|pm| pm.owner == "btree")
                .map(|pm| pm.fences)
                .sum::<u64>()
        };
        let before = fences(&rig);
        let iter = rig.db.cursor().unwrap();
        flush(&rig);
        let took = fences(&rig) - before;
        assert!(took < 60, "{took} fences for {} entries", rig.model.len());
        drop(iter);
        rig.check();
    });
}

/// A cursor that moves on would hold all leaves that were replaced since it began. Unless it
/// releases them the writer would wait forever.
#[test]
fn lab_07_writers_do_not_wait_for_a_scan_that_goes_on() {
    let (dir, memory) = (
        tempfile::tempdir().unwrap(),
        SimRegion::new(1 << 20, Mode::Adr),
    );
    let db = Db::open(dir.path().join("db"), options(Some(&memory))).unwrap();
    let key = |i: u32| format!("key{:05}", i * 7919 % 100_000).into_bytes();
    (0..300).for_each(|i| db.put(key(i), [1; 100]).unwrap());
    let (mut scan, is_over) = (db.cursor().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let scanner = scope.spawn(|| {
            let (mut seen, mut rounds) = (0, 0);
            while !is_over.load(Ordering::Relaxed) || rounds == 0 {
                if scan.valid() {
                    assert_eq!(scan.value(), [1; 100]);
                    seen += 1;
                    scan.next().unwrap();
                } else {
                    assert_eq!(seen, 300 * rounds);
                    rounds += 1;
                    scan.first().unwrap();
                }
            }
        });
        let written = (0..20_000).try_for_each(|i| db.put(key(i), [2; 100]));
        is_over.store(true, Ordering::Relaxed);
        written.unwrap();
        scanner.join().unwrap();
    });
    db.verify().unwrap();
}

/// Leaves of long keys may not fit although much space is free, because it is fragmented.
#[test]
fn lab_long_keys_make_room_for_each_other() {
    let mut rig = Rig::new(Profile::Lab, trees(true));
    for _ in 0..400 {
        let mut key = vec![0; 1 + rig.random.below(6_000) as usize];
        rig.random.fill(&mut key);
        rig.put_one(key);
    }
    flush(&rig);
    rig.check();
}

#[test]
fn lab_08_chunks_leave_the_rest_as_a_cache() {
    row(&mechanisms::LAB_CHUNKS, "chunks", || {
        let mut rig = Rig::new(Profile::Lab, trees(true));
        let mut rests = 0;
        for _ in 0..60 {
            rig.put(50, 1_000_000);
            let found = lab_stats(&rig);
            rests += u64::from(found.chunks > 0 && found.immutable_entries > 0);
        }
        let found = lab_stats(&rig);
        assert!(found.chunks > 3 && rests > 10, "{} chunks", found.chunks);
        let mean = found.chunk_entries / found.chunks;
        assert!(
            (100..350).contains(&mean),
            "values of a write buffer: {mean} entries"
        );
        rig.check();
    });
}

/// An eviction reads values in log order, and adjacent values in one read.
#[test]
fn lab_08_values_of_a_chunk_are_read_together() {
    let rig = Rig::loaded(Profile::Lab, 3_000, trees(true));
    let stats = rig.stats();
    let (reads, entries) = (
        stats
            .ssd
            .iter()
            .find(|cause| cause.cause == "evict")
            .unwrap()
            .reads,
        lab_stats(&rig).chunk_entries,
    );
    assert!(
        entries > 1000 && reads * 8 < entries,
        "{reads} reads for {entries} values"
    );
    rig.check();
}

/// A cursor that moves on requests the next values before it reaches them.
#[test]
fn lab_12_values_of_a_scan_are_asked_for_ahead() {
    let rig = Rig::loaded(Profile::Lab, 300, trees(true));
    flush(&rig);
    let reads = |rig: &Rig| {
        let log = rig.fs.log();
        let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
        log.iter()
            .filter(|operation| operation.kind == OpKind::Read && is_log(&operation.path))
            .count()
    };
    let before = reads(&rig);
    let mut iter = rig.db.cursor().unwrap();
    iter.first().unwrap();
    assert_eq!(
        (iter.value().len() > 90, reads(&rig) - before),
        (true, 1),
        "who stops there pays for one value"
    );
    let mut ahead = Vec::new();
    for seen in 2..=100 {
        iter.next().unwrap();
        assert!(iter.value().len() > 90);
        ahead.push(reads(&rig) - before - seen);
    }
    assert!(
        ahead.iter().all(|&ahead| ahead <= 16) && ahead[98] >= 8,
        "{ahead:?}"
    );
}

/// Neither a step back nor a checkpoint reads the values of versions that it skips.
#[test]
fn lab_12_what_is_passed_over_is_not_read() {
    let mut rig = Rig::new(Profile::Lab, |options| {
        trees(true)(options);
        options.tuning.lab.tree_bytes = Some(256 << 10);
        options.environment.memory = Some(SimRegion::new(1 << 20, Mode::Adr));
    });
    let mut seen = Vec::new();
    for _ in 0..4 {
        (0..100).for_each(|i| rig.put_one(format!("key{i:02}").into_bytes()));
        flush(&rig);
        seen.push((rig.db.snapshot(), rig.model.clone()));
    }
    let found = lab_stats(&rig);
    assert_eq!(
        (found.mutable_entries, found.retained_versions, found.chunks),
        (100, 300, 0)
    );
    let reads = |rig: &Rig| {
        rig.stats()
            .ssd
            .iter()
            .find(|cause| cause.cause == "user_read")
            .unwrap()
            .reads
    };
    let mut before = reads(&rig);
    let mut took = || {
        let since = before;
        before = reads(&rig);
        before - since
    };
    rig.db.checkpoint("/copy").unwrap();
    assert_eq!(took(), 100, "the values that the copy has");
    for (snapshot, then) in &seen[..3] {
        let mut iter = snapshot.cursor().unwrap();
        iter.last().unwrap();
        for (key, value) in then.iter().rev() {
            assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
            iter.prev().unwrap();
        }
        assert_eq!(
            (iter.valid(), took()),
            (false, 100),
            "the values that the snapshot shows"
        );
    }
}

#[test]
fn lab_09_the_last_leaves_go_by_log() {
    row_of_option("chunks by log", |on| {
        let mut rig = Rig::new(Profile::Lab, |options| {
            trees(true)(options);
            if !on {
                options.tuning.lab.by_log_share = 0.0;
            }
        });
        for _ in 0..60 {
            rig.put(50, 1_000_000);
        }
        let found = lab_stats(&rig);
        assert!(
            found.chunks_by_log > 0 && found.chunks_by_log * 2 < found.chunks,
            "{} chunks by log of {}",
            found.chunks_by_log,
            found.chunks
        );
        assert!(found.leaves_looked_into > 0, "the cost is told");
        assert_eq!(
            rig.stats().levels[0].compactions,
            found.chunks,
            "they are compactions out of level 0"
        );
        // A reopen during a by-log eviction of a tree brings nothing back.
        let mut between = 0;
        for round in 0..30 {
            rig.put(50, 1_000_000);
            let before = lab_stats(&rig);
            if before.chunks_by_log > 0 && before.immutable_entries > 0 {
                rig = rig.reopened();
                let after = lab_stats(&rig);
                assert_eq!(
                    before.immutable_entries, after.immutable_entries,
                    "round {round}"
                );
                between += 1;
            }
        }
        assert!(between > 0, "no tree was left half evicted");
        rig.check();
    });
}

#[test]
fn lab_09_how_much_goes_by_log_is_asked_for() {
    let chunks = |by_log_share| {
        let mut rig = Rig::new(Profile::Lab, |options| {
            trees(true)(options);
            options.tuning.lab.by_log_share = by_log_share;
        });
        for _ in 0..60 {
            rig.put(50, 1_000_000);
        }
        rig.check();
        let found = lab_stats(&rig);
        (found.chunks, found.chunks_by_log)
    };
    let (none, some, all) = (chunks(0.0), chunks(0.2), chunks(1.0));
    assert!(none.0 > 0 && none.1 == 0 && some.1 > 0, "{none:?} {some:?}");
    // The first chunk of each tree is evicted by leaves.
    assert!(all.1 > some.1 && all.1 * 2 > all.0, "{some:?} {all:?}");
}

#[test]
fn lab_10_logs_are_bounded() {
    row(&mechanisms::LAB_LOGS, "logs hold", || {
        let mut rig = Rig::new(Profile::Lab, |options| {
            trees(true)(options);
            options.tuning.lab.log_share_max = 0.25;
        });
        // A few keys that are never written again keep each log alive.
        for i in 0..12_000_u64 {
            let key = if i % 150 == 0 {
                format!("cold{i}")
            } else {
                format!("key{}", i % 90)
            };
            rig.put_one(key.into_bytes());
        }
        flush(&rig);
        let held = lab_stats(&rig).log_file_bytes;
        assert!(
            held < 400 << 10,
            "logs hold {held} bytes, eight buffers are 256 KiB"
        );
        rig.check();
    });
}

/// An open with much smaller trees repeatedly writes out entries that do not fit as tables. Later
/// opens still find everything.
#[test]
fn lab_13_smaller_trees_lose_nothing() {
    let mut rig = Rig::new(Profile::Lab, |options| {
        trees(false)(options);
        options.tuning.lab.tree_bytes = Some(256 << 10);
    });
    rig.put(2_000, 1_000_000);
    rig.options.tuning.lab.tree_bytes = Some(8 << 10);
    for round in 0..6 {
        rig = if round % 2 == 0 {
            rig.reopened()
        } else {
            rig.killed()
        };
        rig.check();
        (0..40).for_each(|_| {
            let key = format!("key{:07}", rig.random.below(1_000_000)).into_bytes();
            rig.put_one(key);
        });
        if round == 2 {
            rig.options.tuning.lab.tree_bytes = Some(4 << 10);
        }
    }
    rig.settle();
    rig.check();
}

#[test]
fn lab_12_a_value_is_read_from_its_log_once() {
    row(&mechanisms::LAB_CACHED, "reads of one value", || {
        let mut rig = Rig::new(Profile::Lab, trees(true));
        rig.put_one(b"key".to_vec());
        flush(&rig);
        let reads = |rig: &Rig| {
            rig.stats()
                .ssd
                .iter()
                .find(|cause| cause.cause == "user_read")
                .unwrap()
                .reads
        };
        let before = reads(&rig);
        (0..5).for_each(|_| assert!(rig.db.get(b"key").unwrap().is_some()));
        assert_eq!(reads(&rig) - before, 1, "reads of one value");
    });
}

#[test]
fn lab_12_each_layer_answers_for_the_ones_below() {
    let mut rig = Rig::new(Profile::Lab, trees(true));
    rig.put_one(b"key".to_vec());
    let get = |rig: &Rig| assert!(rig.db.get(b"key").unwrap().is_some());
    get(&rig);
    assert_eq!(hits(&rig), [1, 0, 0, 0, 0, 0, 0]);
    flush(&rig);
    let reads = |rig: &Rig| {
        rig.stats()
            .ssd
            .iter()
            .find(|cause| cause.cause == "user_read")
            .unwrap()
            .reads
    };
    let before = reads(&rig);
    get(&rig);
    assert_eq!(
        (hits(&rig), reads(&rig) - before),
        (vec![1, 0, 1, 0, 0, 0, 0], 1),
        "a level-0 hit is one read"
    );
    get(&rig);
    assert_eq!(
        (hits(&rig), reads(&rig) - before),
        (vec![1, 1, 1, 0, 0, 0, 0], 1),
        "then it is a row"
    );
    rig.put(3_300, 1_000_000);
    flush(&rig);
    let counted: u64 = hits(&rig).iter().sum();
    let keys: Vec<Vec<u8>> = rig.model.keys().cloned().collect();
    keys.iter()
        .for_each(|key| assert!(rig.db.get(key).unwrap().is_some()));
    let after = hits(&rig);
    assert_eq!(after.iter().sum::<u64>() - counted, keys.len() as u64);
    assert!(after[2] > 1 && after[4] > 0 && after[6] > 0, "{after:?}");
}

#[test]
fn lab_13_a_recovery_is_timed_step_by_step() {
    row(
        &mechanisms::LAB_RECOVERY,
        "without persistent memory from the logs",
        || {
            for with_memory in [true, false] {
                let mut rig = Rig::loaded(Profile::Lab, 2_000, trees(with_memory));
                rig.put_one(b"key".to_vec());
                flush(&rig);
                let before = lab_stats(&rig);
                let entries = |found: &LabStats| found.mutable_entries + found.immutable_entries;
                let rig = rig.reopened();
                let (recovery, after) = (rig.stats().recovery, lab_stats(&rig));
                let steps: Vec<&str> = recovery.steps.iter().map(|(step, _)| *step).collect();
                assert_eq!(
                    steps,
                    ["manifest", "pool", "trees", "tables", "logs", "record"]
                );
                assert!(entries(&after) >= entries(&before), "{after:?}");
                assert_eq!(
                    recovery.replayed_entries > 100,
                    !with_memory,
                    "without persistent memory from the logs"
                );
                rig.check();
            }
        },
    );
}

/// Without persistent memory a recovery replays the logs of the trees' entries, and the size of
/// those logs is bounded.
#[test]
fn lab_13_what_is_replayed_is_bounded() {
    row(&mechanisms::LAB_LOGS, "of 9,000 writes", || {
        let mut rig = Rig::new(Profile::Lab, |options| {
            trees(false)(options);
            (
                options.tuning.lab.log_share_max,
                options.tuning.lab.tree_bytes,
            ) = (0.25, Some(1 << 20));
        });
        for i in 0..9_000_u64 {
            rig.put_one(format!("key{}", i * 7919 % 3000).into_bytes());
        }
        let rig = rig.reopened();
        let replayed = rig.stats().recovery.replayed_entries;
        // Eight memtables of 32 KiB, half as much again before writers are slowed down, with values
        // of 100 bytes and more.
        assert!(
            (100..4_000).contains(&replayed),
            "{replayed} of 9,000 writes"
        );
        rig.check();
    });
}

#[test]
fn lab_14_evictions_come_first() {
    row(&mechanisms::LAB_FIRST, "while the trees were full", || {
        let mut rig = Rig::new(Profile::Lab, trees(true));
        rig.put(2_000, 1_000_000);
        let compactions = |rig: &Rig| {
            let events = rig.events.0.lock().unwrap();
            let into = |event: &Event| match event {
                Event::Compacted { level, .. } => Some(*level),
                _ => None,
            };
            events.iter().filter_map(into).collect::<Vec<usize>>()
        };
        let mut evictions = 0;
        for _ in 0..150 {
            (0..40).for_each(|_| {
                let key = format!("key{:07}", rig.random.below(1_000_000)).into_bytes();
                rig.db.put(&key, [7; 120]).unwrap();
                rig.model.insert(key, vec![7; 120]);
            });
            // Fewer steps than there is work.
            for _ in 0..2 {
                let (due, before) = (lab_stats(&rig).occupancy >= 0.75, compactions(&rig).len());
                rig.inline.step();
                for level in &compactions(&rig)[before..] {
                    evictions += u64::from(*level == 1);
                    assert!(
                        !due || *level == 1,
                        "something went to level {level} while the trees were full"
                    );
                }
            }
        }
        assert!(evictions > 5, "{evictions}");
        rig.settle();
        rig.check();
    });
}

#[test]
fn lab_15_logs_lie_where_they_are_to() {
    row_of_option("what there is room for", |on| {
        let filled = |placement, pool_kib: u64| {
            let mut rig = Rig::new(Profile::Lab, |options| {
                trees(true)(options);
                options.tuning.lab.log_placement = if on { placement } else { LogPlacement::Ssd };
                options.environment.memory = Some(SimRegion::new(pool_kib << 10, Mode::Adr));
            });
            rig.put(1_500, 1_000_000);
            flush(&rig);
            rig
        };
        let cause = |rig: &Rig, name| {
            rig.stats()
                .ssd
                .iter()
                .find(|cause| cause.cause == name)
                .unwrap()
                .clone()
        };
        let in_pool = |rig: &Rig| {
            rig.stats()
                .pm
                .iter()
                .filter(|pm| pm.owner == "log")
                .map(|pm| pm.live_bytes)
                .sum::<u64>()
        };
        let on_ssd = filled(LogPlacement::Ssd, 2048);
        assert_eq!(in_pool(&on_ssd), 0);
        assert!(cause(&on_ssd, "log").written_bytes > 200_000);
        let rest = filled(LogPlacement::Rest, 320);
        assert!(in_pool(&rest) > 32 << 10, "what there is room for");
        assert!(
            (20_000..180_000).contains(&cause(&rest, "log").written_bytes),
            "and what there is not"
        );
        let all = filled(LogPlacement::Pm, 2048);
        assert!(in_pool(&all) > 100 << 10);
        assert!(
            cause(&all, "log").written_bytes < 60_000,
            "names of logs, and what an extent has no room for"
        );
        // Readers and evictions read the values of the trees there.
        let reads = cause(&all, "user_read").reads;
        let found = all
            .model
            .keys()
            .filter(|key| all.db.get(key).unwrap().is_some())
            .count();
        assert_eq!(found, all.model.len());
        assert!(
            cause(&all, "user_read").reads - reads < found as u64 / 2,
            "only what was evicted is on the SSD"
        );
        assert!(cause(&all, "evict").read_bytes < cause(&on_ssd, "evict").read_bytes / 10);
        for rig in [on_ssd, rest, all] {
            rig.check();
            let mut rig = rig.reopened();
            rig.put(200, 1_000_000);
            let rig = rig.killed();
            rig.check();
            // Their space is reclaimed.
            let before = in_pool(&rig);
            rig.db.compact().unwrap();
            rig.settle();
            assert!(
                before == 0 || in_pool(&rig) <= 2 * (36 << 10),
                "{} bytes of logs are left",
                in_pool(&rig)
            );
            rig.check();
        }
    });
}

/// Logs placed in persistent memory make evictions due before the last space is used. Space left by
/// a death is reclaimed before an open needs it.
#[test]
fn lab_15_room_for_logs_does_not_run_out() {
    let mut rig = Rig::new(Profile::Lab, |options| {
        trees(true)(options);
        options.tuning.lab.log_placement = LogPlacement::Pm;
        options.environment.memory = Some(SimRegion::new(512 << 10, Mode::Adr));
    });
    for round in 0..150 {
        rig.put_one(format!("key{round}").into_bytes());
        flush(&rig);
        if round % 40 == 39 {
            rig = rig.killed();
        }
    }
    rig.put(3_000, 1_000_000);
    rig.check();
    rig.reopened().killed().check();
}

/// Trees with room make no eviction due, so writers use up the room for logs, and wait.
#[test]
fn lab_15_writers_wait_for_room_for_logs() {
    let mut rig = Rig::new(Profile::Lab, |options| {
        trees(true)(options);
        options.tuning.lab.tree_bytes = Some(256 << 10);
        options.tuning.lab.log_placement = LogPlacement::Pm;
        options.tuning.lab.log_share_max = 10.0;
        options.environment.memory = Some(SimRegion::new(1 << 20, Mode::Adr));
    });
    for i in 0..12_000_u32 {
        let (key, value) = (
            format!("key{:07}", rig.random.below(1_000_000)).into_bytes(),
            vec![i as u8; 120],
        );
        // `put_one` would retry an error; here there must be none.
        rig.db.put(&key, &value).unwrap();
        rig.model.insert(key, value);
    }
    let chunks = lab_stats(&rig).chunks;
    assert!(chunks > 2, "{chunks} evictions made room");
    rig.check();
    rig.reopened().killed().check();
}

/// Values of neighbouring keys are scattered over the logs, so repeated scans pay for moving them
/// to level 1.
#[test]
fn what_is_scanned_from_logs_moves_to_level_1() {
    let mut rig = Rig::new(Profile::Lab, |options| {
        trees(false)(options);
        options.tuning.lab.tree_bytes = Some(256 << 10);
        options.tuning.lab.log_share_max = 10.0;
        options.block_cache_bytes = Some(64 << 10);
    });
    rig.put(2_000, 1_000_000);
    flush(&rig);
    let in_trees = |rig: &Rig| lab_stats(rig).mutable_entries + lab_stats(rig).immutable_entries;
    let before = in_trees(&rig);
    assert!(before > 1_500, "{before}");
    rig.settle();
    assert_eq!(in_trees(&rig), before, "nobody asked for them");
    for _ in 0..12 {
        rig.check();
        rig.settle();
    }
    let after = in_trees(&rig);
    assert!(after < before / 2, "{after} of {before} are left");
}

/// As `block_nothing_is_lost_without_a_mechanism`, through a close and a kill, with persistent
/// memory and without.
#[test]
fn lab_nothing_is_lost_without_a_mechanism() {
    for with_memory in [true, false] {
        let count = rig::without_each("lab.", || {
            let mut rig = Rig::loaded(Profile::Lab, 2_000, trees(with_memory));
            let (snapshot, then) = (rig.db.snapshot(), rig.model.clone());
            rig.delete_some();
            rig.put(1_000, 1_000_000);
            rig.check();
            for (key, value) in then.iter().step_by(7) {
                assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
            }
            drop(snapshot);
            let mut rig = rig.reopened();
            rig.check();
            rig.put(500, 1_000_000);
            rig.killed().check();
        });
        assert!(count > 10);
    }
}

/// Tables below the trees may also be merged by appends.
#[test]
fn lab_tables_below_the_trees_may_grow() {
    let grown = |block_grained, with_memory| {
        let mut rig = Rig::new(Profile::Lab, |options| {
            trees(with_memory)(options);
            options.tuning.lab.block_grained = block_grained;
            options.tuning.block.scan_bytes = 0;
        });
        rig.put(12_000, 1_000_000);
        rig.put(6_000, 1_000_000);
        rig.check();
        let grown = rig
            .stats()
            .levels
            .iter()
            .map(|level| level.growth.block_grained)
            .sum::<u64>();
        let mut rig = rig.reopened();
        rig.put(500, 1_000_000);
        rig.killed().check();
        grown
    };
    assert!(grown(true, true) > 20 && grown(true, false) > 20);
    assert_eq!(grown(false, true), 0);
}

/// Level 1 is the better place for entries that are not rewritten. A wait for idle, or a pause in
/// writes, moves them there.
#[test]
fn at_rest_trees_are_evicted_early() {
    let left = |rest_share| {
        let mut rig = Rig::new(Profile::Lab, |options| {
            trees(true)(options);
            options.tuning.lab.tree_bytes = Some(128 << 10);
            options.tuning.lab.rest_share = rest_share;
        });
        rig.put(700, 1_000_000);
        flush(&rig);
        let left = lab_stats(&rig).mutable_entries + lab_stats(&rig).immutable_entries;
        rig.check();
        left
    };
    let (all, some, none) = (left(1.0), left(0.25), left(0.0));
    assert!(all > 600, "{all}: nothing is due");
    assert!(some < 400 && none == 0, "{some}, {none}");
}

/// A memtable that was never flushed may hold more entries than fit into the leaves.
#[test]
fn lab_13_what_finds_no_room_waits_for_an_eviction() {
    for with_memory in [true, false] {
        let mut rig = Rig::new(Profile::Lab, |options| {
            trees(with_memory)(options);
            options.tuning.lab.tree_bytes = Some(8 << 10);
        });
        for _ in 0..200 {
            let key = format!(
                "{:016x}{:016x}{:016x}",
                rig.random.next_u64(),
                rig.random.next_u64(),
                rig.random.next_u64()
            );
            rig.db.put(key.as_bytes(), b"v").unwrap();
            rig.model.insert(key.into_bytes(), b"v".to_vec());
        }
        let memory = rig
            .options
            .environment
            .memory
            .as_ref()
            .map(|memory| memory.cut().killed());
        let mut fs = rig.fs.kill();
        let mut options = rig.options.clone();
        options.environment.fs = Some(std::sync::Arc::new(fs.clone()));
        options.environment.memory = memory;
        // Twice, because entries that wait in memory are still in their log.
        for _ in 0..2 {
            let db = Db::open(rig::DIR, options.clone()).unwrap();
            let (found, level0) = (db.stats().design.lab.unwrap(), db.stats().levels[0].tables);
            assert!(
                found.mutable_entries + found.immutable_entries < 200,
                "{found:?}: all of it found room"
            );
            assert_eq!(
                level0 > 0,
                !with_memory,
                "what was rebuilt and finds no room is written out"
            );
            check(&db, &rig.model);
            drop(db);
        }
        // An eviction must not record these entries as being in level 1 either.
        for steps in [1, 2, 3, 5, 8] {
            let db = Db::open(rig::DIR, options.clone()).unwrap();
            for _ in 0..steps {
                rig.inline.step();
            }
            let memory = options
                .environment
                .memory
                .as_ref()
                .map(|memory| memory.cut().killed());
            fs = fs.kill();
            drop(db);
            options.environment.fs = Some(std::sync::Arc::new(fs.clone()));
            options.environment.memory = memory;
            check(&Db::open(rig::DIR, options.clone()).unwrap(), &rig.model);
        }
        let db = Db::open(rig::DIR, options.clone()).unwrap();
        db.flush().unwrap();
        db.wait_idle().unwrap();
        check(&db, &rig.model);
        db.close().unwrap();
        check(&Db::open(rig::DIR, options).unwrap(), &rig.model);
    }
}
