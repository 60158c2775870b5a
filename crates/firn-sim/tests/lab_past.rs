//! Profile `lab`: memtables with few rewritten keys are flushed past the trees, the others into
//! them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{Rig, flush, lab_stats, tables_of, tables_on_disk, trees};
use firn_fs::{Fault, FaultKind};
use firndb::{Options, Profile};

/// Memtables bypass empty trees unless a quarter of their keys was written recently.
fn selective(with_memory: bool) -> impl FnOnce(&mut Options) {
    move |options| {
        trees(with_memory)(options);
        options.tuning.lab.reuse_min = 0.25;
    }
}

fn entries(rig: &Rig) -> u64 {
    let found = lab_stats(rig);
    found.mutable_entries + found.immutable_entries + found.retained_versions as u64
}

/// The number of logs: the active one, and those still needed.
fn logs(rig: &Rig) -> usize {
    rig.fs
        .files()
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|end| end == "log"))
        .count()
}

/// Puts new keys, one by one.
fn put_new(rig: &mut Rig, from: u32, count: u32) {
    (from..from + count)
        .for_each(|i| rig.put_one(format!("new{:08}", i.wrapping_mul(2_654_435_761)).into_bytes()));
}

/// Puts a few keys repeatedly.
fn put_again(rig: &mut Rig, count: u32) {
    (0..count).for_each(|i| rig.put_one(format!("hot{:03}", i % 100).into_bytes()));
}

#[test]
fn what_is_new_becomes_tables_and_leaves_no_log() {
    for with_memory in [true, false] {
        let mut rig = Rig::new(Profile::Lab, selective(with_memory));
        put_new(&mut rig, 0, 3000);
        flush(&rig);
        let found = lab_stats(&rig);
        assert_eq!(entries(&rig), 0, "{found:?}");
        assert!(
            found.buffers_past > 10 && found.chunks == 0 && tables_of(&rig.stats()) > 3,
            "{found:?}"
        );
        assert!(found.log_file_bytes == 0 && logs(&rig) <= 1, "{found:?}");
        rig.check();
        // A recovery treats replayed entries the same way.
        put_new(&mut rig, 3000, 50);
        let mut rig = rig.killed();
        assert_eq!((entries(&rig), tables_of(&rig.stats()) > 3), (0, true));
        put_new(&mut rig, 3050, 1000);
        flush(&rig);
        assert!(entries(&rig) == 0 && lab_stats(&rig).buffers_past > 2);
        rig.check();
        let mut paper = Rig::new(Profile::Lab, trees(with_memory));
        put_new(&mut paper, 0, 3000);
        flush(&paper);
        assert!(lab_stats(&paper).buffers_past == 0 && entries(&paper) > 0 && logs(&paper) > 1);
    }
}

#[test]
fn what_is_written_again_goes_into_the_trees() {
    for with_memory in [true, false] {
        let mut rig = Rig::new(Profile::Lab, selective(with_memory));
        put_new(&mut rig, 0, 1000);
        flush(&rig);
        let past = lab_stats(&rig).buffers_past;
        let snapshot = rig.db.snapshot();
        let before = rig.model.clone();
        put_again(&mut rig, 2000);
        rig.db.flush().unwrap();
        let found = lab_stats(&rig);
        assert!(
            found.mutable_entries >= 100 && found.buffers_past <= past + 2,
            "{found:?}, {past}"
        );
        // Tables of level 0 are older than the trees, and must be in level 1 before entries evicted
        // from the trees.
        (0..100).for_each(|i| rig.put_one(format!("hot{i:03}").into_bytes()));
        rig.db.compact().unwrap();
        rig.check();
        for (key, value) in &before {
            assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        let seen = snapshot.iter().map(|entry| entry.unwrap().0);
        assert!(seen.eq(before.keys().cloned()));
        drop(snapshot);
        rig.killed().check();
    }
}

/// Trees that are not empty take every memtable, because their contents must not be older than a
/// table that is searched after them. Once writes pause for a while they are emptied.
#[test]
fn trees_take_what_is_new_until_they_are_empty() {
    for with_memory in [true, false] {
        let mut rig = Rig::new(Profile::Lab, selective(with_memory));
        put_again(&mut rig, 1000);
        rig.db.flush().unwrap();
        let past = lab_stats(&rig).buffers_past;
        // Few enough that the rig does not wait until nothing is due.
        for i in 0..3 {
            put_new(&mut rig, 50 * i, 50);
            rig.db.flush().unwrap();
            assert_eq!(lab_stats(&rig).buffers_past, past);
        }
        rig.check();
        flush(&rig);
        assert_eq!(entries(&rig), 0, "{:?}", lab_stats(&rig));
        put_new(&mut rig, 500, 500);
        flush(&rig);
        assert!(lab_stats(&rig).buffers_past > past && entries(&rig) == 0);
        rig.check();
        rig.killed().check();
    }
}

/// Rewritten entries stay where they are replaced, however long the pause; new ones do not.
#[test]
fn at_rest_trees_keep_what_is_written_again() {
    let left = |reuse_min| {
        let mut rig = Rig::new(Profile::Lab, |options| {
            trees(true)(options);
            options.tuning.lab.tree_bytes = Some(128 << 10);
            (options.tuning.lab.reuse_min, options.tuning.lab.rest_share) = (reuse_min, 0.0);
        });
        for _ in 0..4 {
            put_again(&mut rig, 250);
            rig.db.flush().unwrap();
        }
        flush(&rig);
        let kept = entries(&rig);
        put_new(&mut rig, 0, 400);
        flush(&rig);
        rig.check();
        (kept, entries(&rig))
    };
    let (kept, then) = left(0.25);
    assert!(kept >= 100 && then == 0, "{kept}, {then}");
    assert_eq!(left(0.0), (0, 0), "as the paper has it");
}

/// A table contains the values of hot keys, so their slots are free.
#[test]
fn values_of_hot_keys_leave_their_slots() {
    let mut rig = Rig::new(Profile::Lab, |options| {
        selective(true)(options);
        options.tuning.lab.hot_bytes = Some(16 << 10);
        options.tuning.lab.hot_writes = 2;
        options.environment.memory = Some(firn_pm::sim::SimRegion::new(
            512 << 10,
            firn_pm::sim::Mode::Adr,
        ));
    });
    put_new(&mut rig, 0, 100);
    (0..50).for_each(|i| rig.put_one(format!("few{}", i % 5).into_bytes()));
    put_new(&mut rig, 100, 50);
    let hot = |rig: &Rig| lab_stats(rig).hot.unwrap();
    assert!(hot(&rig).values > 0, "{:?}", hot(&rig));
    rig.db.flush().unwrap();
    let found = lab_stats(&rig);
    assert!(
        found.buffers_past > 0 && found.mutable_entries == 0,
        "{found:?}"
    );
    assert_eq!(hot(&rig).values, 0, "{:?}", hot(&rig));
    rig.check();
    rig.killed().check();
}

/// A failed flush leaves no table, and is retried.
#[test]
fn a_flush_past_the_trees_that_fails_is_made_again() {
    for with_memory in [true, false] {
        let mut rig = Rig::new(Profile::Lab, selective(with_memory));
        put_new(&mut rig, 0, 100);
        for kind in [FaultKind::Eio, FaultKind::Enospc] {
            for after in 0..6 {
                rig.fs
                    .inject(Fault::once(kind).on_mutations().at(".sst").after(after));
                let failed = rig.db.flush().is_err();
                rig.fs.heal();
                rig.settle();
                rig.db.flush().unwrap();
                rig.check();
                assert_eq!(
                    tables_on_disk(&rig.fs),
                    tables_of(&rig.stats()),
                    "files of nobody"
                );
                let next = rig.puts as u32;
                put_new(&mut rig, next, 100);
                // The flush retries after `NoSpace` and succeeds, because the fault strikes once.
                let is_reported = matches!(kind, FaultKind::Eio);
                assert!(failed || after > 0 || !is_reported, "a table is written");
            }
        }
        assert!(entries(&rig) == 0 && lab_stats(&rig).buffers_past > 0);
        rig.killed().check();
    }
}

/// A single flush after an open says nothing about the contents of the trees.
#[test]
fn trees_stay_until_something_is_known() {
    let mut rig = Rig::new(Profile::Lab, |options| {
        selective(true)(options);
        options.tuning.lab.tree_bytes = Some(128 << 10);
    });
    for _ in 0..3 {
        put_again(&mut rig, 250);
        rig.db.flush().unwrap();
    }
    rig.settle();
    let held = entries(&rig);
    assert!(held > 0, "{:?}", lab_stats(&rig));
    let mut rig = rig.reopened();
    put_new(&mut rig, 0, 5);
    flush(&rig);
    assert!(entries(&rig) >= held, "{:?}", lab_stats(&rig));
    rig.check();
}
