//! Mistakes that are easily made with sorted tables in persistent memory (docs/design/blade.md,
//! "Traps and their tests"): each test fails if its mistake is made.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_fs::{Fault, FaultKind, OpKind};
use firn_pm::sim::{Mode, SimRegion};
use firndb::{
    BladeStats, BladeTuning, Db, Durability, Options, PmConfig, Profile, WriteBatch, WriteOptions,
};
use rig::{Rig, flush, hits};

/// Tables of 16 KiB in a simulated pool of `bytes`, up to `parts` partitions.
fn tables(bytes: u64, parts: usize) -> impl FnOnce(&mut Options) {
    move |options| {
        options.tuning.blade = BladeTuning {
            table_bytes: Some(16 << 10),
            ..BladeTuning::default()
        };
        options.row_cache = false;
        options.limits.partitions_max = parts;
        options.limits.partition_bytes = 24 << 10;
        options.pm = Some(PmConfig::volatile(0));
        options.environment.memory = Some(SimRegion::new(bytes, Mode::Adr));
    }
}

fn blade(rig: &Rig) -> BladeStats {
    rig.stats().design.blade.unwrap()
}

/// Trap 6: forty versions of one key, each read by a snapshot, stay in one group of one table.
#[test]
fn blade_versions_of_a_key_stay_together() {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(2 << 20, 1)(options);
        options.tuning.blade.group_entries = 1;
        options.tuning.blade.unsorted_max = 4;
    });
    rig.put(200, 1_000);
    let key = b"key0000500".to_vec();
    let mut seen = Vec::new();
    for version in 0..40 {
        rig.put_one(key.clone());
        seen.push((rig.db.snapshot(), rig.model[&key].clone()));
        if version % 3 == 0 {
            flush(&rig);
        }
        rig.put(20, 1_000);
    }
    rig.settle();
    assert!(blade(&rig).internal_compactions > 0, "{:?}", blade(&rig));
    for (snapshot, value) in &seen {
        assert_eq!(snapshot.get(&key).unwrap().as_deref(), Some(&value[..]));
    }
    rig.db.compact().unwrap();
    for (snapshot, value) in &seen {
        assert_eq!(snapshot.get(&key).unwrap().as_deref(), Some(&value[..]));
    }
    rig.check();
}

/// Trap 8: many partitions, each with a few files on level 0, slow no writer, although they are
/// more together than one may have. There is no persistent memory, because tables there slow none
/// anyway.
#[test]
fn blade_debt_is_not_summed_over_partitions() {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(8 << 20, 32)(options);
        (options.pm, options.environment.memory) = (None, None);
    });
    rig.put(6_000, 1_000_000);
    for _ in 0..2 {
        rig.put(600, 1_000_000);
        flush(&rig);
    }
    let stats = rig.stats();
    let files: usize = stats.partitions.iter().map(|part| part.level0_tables).sum();
    let told = format!("{} partitions, {files} files", stats.partitions.len());
    assert!(stats.partitions.len() > 8, "{told}");
    let stop = rig.options.limits.level0_stop;
    assert!(files > stop, "more than the {stop} of one: {told}");
    assert_eq!(stats.stalls.rate, 0, "{told}: {:?}", stats.stalls);
    rig.check();
}

/// Trap 9: a partition with unsorted tables that is only read is merged, without any flush.
#[test]
fn blade_reads_alone_lead_to_a_merge() {
    let mut rig = Rig::new(Profile::Blade, tables(4 << 20, 1));
    let keys: Vec<Vec<u8>> = (0..100)
        .map(|n| format!("key{n:04}").into_bytes())
        .collect();
    for _ in 0..8 {
        keys.iter().for_each(|key| rig.put_one(key.clone()));
        flush(&rig);
    }
    let before = blade(&rig);
    assert!(before.unsorted_tables >= 8, "{before:?}");
    for _ in 0..200 {
        for (number, key) in keys.iter().enumerate() {
            // The filters let some through, and the rest is found in the newest of eight.
            let _maybe = rig.db.get(key).unwrap();
            let _absent = rig.db.get(format!("key{number:04}x")).unwrap();
        }
    }
    rig.settle();
    let after = blade(&rig);
    assert_eq!(after.flushed_bytes, before.flushed_bytes);
    let merged = after.internal_compactions - before.internal_compactions;
    assert_eq!((merged, after.unsorted_tables), (1, 0), "{after:?}");
    rig.check();
}

/// Trap 16: a cursor that stands still and a value that is kept hold no merge back, and the space
/// of what they read is free once they are gone.
#[test]
fn blade_cursors_and_values_hold_no_merge_back() {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(1 << 20, 1)(options);
        options.tuning.blade.unsorted_max = 3;
    });
    rig.put(500, 2_000);
    let mut idle = rig.db.cursor().unwrap();
    idle.first().unwrap();
    let first = (idle.key().to_vec(), idle.value().to_vec());
    let kept: Vec<_> = rig.model.keys().take(20).collect();
    let kept: Vec<_> = kept
        .iter()
        .map(|key| rig.db.get(key).unwrap().unwrap())
        .collect();
    let before = blade(&rig);
    let mut moving = rig.db.cursor().unwrap();
    moving.first().unwrap();
    for _ in 0..30 {
        rig.put(200, 2_000);
        moving.next().unwrap();
    }
    let after = blade(&rig);
    let merges = |stats: &BladeStats| stats.internal_compactions + stats.major_compactions;
    assert!(merges(&after) > merges(&before) + 3, "{after:?}");
    assert_eq!((idle.key().to_vec(), idle.value().to_vec()), first);
    assert!(kept.iter().all(|value| value.len() >= 100));
    drop((idle, moving));
    rig.settle();
    let after = blade(&rig);
    assert_eq!(after.used_bytes, after.table_bytes, "{after:?}");
    drop(kept);
    rig.check();
}

/// Trap 18: the record of a merge may or may not be durable after its sync failed. Reopened either
/// way, everything is there.
#[test]
fn blade_a_record_that_may_be_durable_keeps_both() {
    let mut failed = 0;
    for (nth, is_killed) in (1..9).flat_map(|nth| [(nth, true), (nth, false)]) {
        let mut rig = Rig::loaded(Profile::Blade, 400, tables(1 << 20, 1));
        let files = rig.fs.files();
        let mut names = files.iter().map(|(path, _)| path.display().to_string());
        let manifest = names.rfind(|name| name.contains("MANIFEST"));
        let fault = Fault::once(FaultKind::Eio)
            .on(OpKind::Sync)
            .at(manifest.unwrap());
        rig.fs.inject(fault.after(nth));
        for n in 0..1_500_u64 {
            let key = format!("key{:07}", n * 577 % 1_000_000).into_bytes();
            if rig.db.put(&key, [7; 120]).is_err() {
                failed += 1;
                break;
            }
            rig.model.insert(key, vec![7; 120]);
            if n % 100 == 0 && rig.db.flush().is_err() {
                failed += 1;
                break;
            }
        }
        rig.fs.heal();
        if !is_killed {
            // The error is the sync's.
            let _poisoned = rig.db.clone().close();
        }
        let rig = rig.killed();
        rig.settle();
        rig.check();
    }
    assert!(failed > 0, "no record failed");
}

/// Trap 19: a cursor over many partitions has one child open at a time, backwards over their
/// borders, too.
#[test]
fn blade_a_cursor_crosses_borders_in_both_directions() {
    let mut rig = Rig::new(Profile::Blade, tables(8 << 20, 64));
    rig.put(10_000, 1_000_000);
    rig.delete_some();
    rig.put(2_000, 1_000_000);
    let parts = blade(&rig).partitions.len();
    assert!(parts > 16, "{parts} partitions");
    let mut iter = rig.db.cursor().unwrap();
    iter.last().unwrap();
    for (key, value) in rig.model.iter().rev() {
        assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
    // Back and forth around each border that a step may cross.
    let keys: Vec<&Vec<u8>> = rig.model.keys().collect();
    for at in (1..keys.len()).step_by(7) {
        iter.seek(keys[at]).unwrap();
        iter.prev().unwrap();
        assert_eq!(iter.key(), &keys[at - 1][..]);
        iter.next().unwrap();
        assert_eq!(iter.key(), &keys[at][..]);
    }
    drop(iter);
    rig.check();
}

/// Trap 20: a checkpoint of more in persistent memory than some tables has it in files of the usual
/// size, and opens without any.
#[test]
fn blade_a_copy_has_files_of_the_usual_size() {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(4 << 20, 1)(options);
        options.limits.table_bytes = 64 << 10;
    });
    rig.put(4_000, 1_000_000);
    let stats = blade(&rig);
    assert!(stats.table_bytes > 4 * (64 << 10), "{stats:?}");
    rig.db.checkpoint("/copy").unwrap();
    let mut options: Options = rig.options.clone();
    (options.pm, options.environment.memory) = (None, None);
    let copy = Db::open("/copy", options).unwrap();
    let levels = copy.stats().levels;
    let (tables, bytes): (usize, u64) = levels.iter().fold((0, 0), |(tables, bytes), level| {
        (tables + level.tables, bytes + level.bytes)
    });
    let mean = bytes / tables as u64;
    assert!(
        tables > 4 && mean < 2 * (64 << 10),
        "{tables} files of {mean} bytes"
    );
    for (key, value) in &rig.model {
        assert_eq!(copy.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    copy.verify().unwrap();
}

/// Trap 22: what is found in persistent memory is not kept as rows in DRAM as well.
#[test]
fn blade_no_row_is_kept_of_what_is_in_memory() {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(4 << 20, 1)(options);
        options.row_cache = true;
    });
    rig.put(300, 1_000_000);
    flush(&rig);
    for _ in 0..4 {
        for key in rig.model.keys() {
            assert!(rig.db.get(key).unwrap().is_some());
        }
    }
    let stats = rig.stats();
    let rows = stats.user.hits.iter().find(|(layer, _)| layer == "rows");
    assert_eq!(
        rows.map(|(_, hits)| *hits),
        Some(0),
        "{:?}",
        stats.user.hits
    );
    assert!(hits(&rig).iter().sum::<u64>() > 0);
}

/// Trap 23: a value larger than a table, and one larger than the pool, are stored and read; the
/// latter is in a file.
#[test]
fn blade_values_larger_than_tables_and_pool_are_kept() {
    for durability in [Durability::Process, Durability::Power] {
        let mut rig = Rig::new(Profile::Blade, |options| {
            tables(512 << 10, 1)(options);
            options.durability = durability;
        });
        rig.put(200, 1_000_000);
        for (n, bytes) in [20 << 10, 100 << 10, 700 << 10].into_iter().enumerate() {
            let (key, value) = (format!("large{n}").into_bytes(), vec![n as u8; bytes]);
            while rig.db.put(&key, &value).is_err() {
                rig.settle();
            }
            rig.model.insert(key, value);
            flush(&rig);
            rig.put(100, 1_000_000);
        }
        rig.settle();
        rig.check();
        let rig = rig.killed();
        rig.settle();
        rig.check();
    }
}

/// Keys in ascending order, deleted in ranges behind the writer, one range of which is written
/// most: partitions are divided and joined, and everything is right, with cursors, snapshots and
/// batches over all of them.
#[test]
fn blade_partitions_follow_the_keys() {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(2 << 20, 1024)(options);
        options.limits.partition_bytes = 20 << 10;
    });
    let key = |n: u64| format!("key{n:07}").into_bytes();
    let mut most = 0;
    for round in 0..24_u64 {
        (0..400).for_each(|n| rig.put_one(key(round * 400 + n)));
        // The hot one.
        (0..60).for_each(|n| rig.put_one(key(100 + n)));
        let snapshot = rig.db.snapshot();
        let seen = rig.model.clone();
        if round >= 4 {
            for n in (round - 4) * 400..(round - 3) * 400 {
                if n % 400 > 20 && n > 200 {
                    rig.db.delete(key(n)).unwrap();
                    rig.model.remove(&key(n));
                }
            }
        }
        let mut batch = WriteBatch::new();
        for n in (0..(round + 1) * 400).step_by(97) {
            batch.put(key(n), [round as u8; 120]);
            rig.model.insert(key(n), vec![round as u8; 120]);
        }
        while rig.db.write(&batch, &WriteOptions::new()).is_err() {
            rig.settle();
        }
        rig.settle();
        for (key, value) in seen.iter().step_by(11) {
            assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        drop(snapshot);
        most = most.max(blade(&rig).partitions.len());
    }
    assert!(most > 12, "{most} partitions at most");
    rig.db.compact().unwrap();
    rig.settle();
    let joined = rig.stats().background.joined_partitions;
    assert!(
        joined > 0,
        "none was joined of {}",
        blade(&rig).partitions.len()
    );
    rig.check();
    let rig = rig.killed();
    rig.settle();
    rig.check();
}
