//! Profile `block`: obsolete tables are removed together (block_07), and none of them is lost or
//! left forever.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{DIR, Rig, loose, row_of_option, tables_of, tables_on_disk};
use firn_base::exec::Inline;
use firn_fs::{Fault, FaultKind, OpKind};
use firndb::{Db, Durability, Profile};
use std::path::Path;
use std::sync::Arc;

#[test]
fn block_07_obsolete_tables_go_in_batches() {
    row_of_option("a batch", |on| {
        let mut rig = Rig::new(Profile::Block, |options| {
            options.tuning.block.lazy_delete_bytes = if on { 256 << 10 } else { 0 };
        });
        for _ in 0..12_000 {
            let key = format!("key{:07}", rig.random.below(1_000_000)).into_bytes();
            rig.put_one(key);
        }
        let background = rig.stats().background;
        assert!(background.removed_tables > 20);
        assert!(
            background.removed_tables >= 5 * background.removals,
            "{} tables, fewer than five a batch",
            background.removed_tables
        );
        // When there is nothing else to do, all are removed.
        rig.db.wait_idle().unwrap();
        assert_eq!(tables_on_disk(&rig.fs), tables_of(&rig.stats()));
    });
}

/// A database that is durable at each write and removes tables together, until it finishes, or
/// crashes at the `cut`-th change of its files. Also returns the numbers of the changes that
/// removed a table.
fn removing(cut: Option<u64>) -> (Rig, Vec<u64>) {
    let mut rig = Rig::loaded(Profile::Block, 3_000, |options| {
        loose(options);
        options.tuning.block.lazy_delete_bytes = 128 << 10;
        options.durability = Durability::Power;
    });
    let seen = rig.fs.operations() as usize;
    if let Some(cut) = cut {
        rig.fs.crash_after(cut);
    }
    for i in 0..3_000 {
        let (key, value) = (
            format!("key{:07}", rig.random.below(1_000_000)).into_bytes(),
            vec![i as u8; 110],
        );
        if rig.db.put(&key, &value).is_err() {
            break;
        }
        rig.model.insert(key, value);
        if i % 300 == 299 && rig.db.wait_idle().is_err() {
            break;
        }
    }
    let log = rig.fs.log();
    let changes = log
        .iter()
        .skip(seen)
        .filter(|operation| operation.kind.mutates())
        .zip(1..);
    let removes = |path: &Path, kind| {
        kind == OpKind::Remove && path.extension().is_some_and(|sst| sst == "sst")
    };
    let removals = changes
        .filter(|(change, _)| removes(&change.path, change.kind))
        .map(|(_, number)| number)
        .collect();
    (rig, removals)
}

#[test]
fn block_07_a_cut_at_any_removal_of_a_batch_loses_nothing() {
    let (whole, removals) = removing(None);
    whole.check();
    let batches = removals
        .windows(4)
        .filter(|four| four[3] - four[0] == 3)
        .count();
    assert!(batches > 3, "{removals:?}");
    for (cut, seed) in removals.into_iter().zip(0..) {
        let mut rig = removing(Some(cut)).0;
        assert!(rig.fs.crashed());
        rig.fs = if seed % 2 == 0 {
            rig.fs.power_cut(seed)
        } else {
            rig.fs.kill()
        };
        rig.options.environment.fs = Some(Arc::new(rig.fs.clone()));
        rig.inline = Arc::new(Inline::new());
        rig.options.environment.executor = Some(rig.inline.clone());
        rig.db = Db::open(DIR, rig.options.clone()).unwrap();
        // Writes in flight may exist.
        for (key, value) in &rig.model {
            assert_eq!(
                rig.db.get(key).unwrap().as_deref(),
                Some(&value[..]),
                "cut {cut}"
            );
        }
        rig.db.verify().unwrap();
        assert_eq!(
            tables_on_disk(&rig.fs),
            tables_of(&rig.stats()),
            "files of nobody"
        );
        rig.put(600, 1_000_000);
        rig.db.verify().unwrap();
    }
}

#[test]
fn block_07_a_write_that_finds_no_room_makes_some() {
    let mut rig = Rig::loaded(Profile::Block, 6_000, |options| {
        options.tuning.block.lazy_delete_bytes = u64::MAX
    });
    // The tables in an iterator's view are not removed while it may read them, and its end does not
    // trigger a removal either.
    let mut iter = rig.db.cursor().unwrap();
    iter.first().unwrap();
    rig.put(6_000, 1_000_000);
    assert!(tables_on_disk(&rig.fs) >= tables_of(&rig.stats()) + 5);
    drop(iter);
    rig.fs.set_cap(Some(rig.fs.used()));
    // The refused write has removed them, so another write succeeds.
    let full = (0..200).find_map(|i| rig.db.put(format!("more{i:03}"), [2; 2000]).err());
    assert_eq!(full.unwrap().kind(), firndb::ErrorKind::NoSpace);
    assert_eq!(tables_on_disk(&rig.fs), tables_of(&rig.stats()));
    rig.db.put("more", [3; 2000]).unwrap();
    rig.fs.set_cap(None);
    rig.settle();
    assert_eq!(rig.db.get("more").unwrap().as_deref(), Some(&[3; 2000][..]));
}

#[test]
fn block_07_a_table_that_cannot_be_removed_waits_for_the_next_open() {
    let mut rig = Rig::loaded(Profile::Block, 6_000, |options| {
        options.tuning.block.lazy_delete_bytes = 0
    });
    rig.fs.inject(
        Fault::for_ever(FaultKind::Eio)
            .on(OpKind::Remove)
            .at(".sst"),
    );
    rig.put(3_000, 1_000_000);
    assert!(tables_on_disk(&rig.fs) > tables_of(&rig.stats()) + 5);
    rig.fs.heal();
    rig.put(300, 1_000_000);
    rig.check();
    let rig = rig.reopened();
    assert_eq!(tables_on_disk(&rig.fs), tables_of(&rig.stats()));
    rig.check();
}

#[test]
fn block_07_all_obsolete_tables_go_at_close() {
    let mut rig = Rig::loaded(Profile::Block, 6_000, |options| {
        options.tuning.block.lazy_delete_bytes = u64::MAX
    });
    // Tables that a cursor may read stay, so the only thing left to do is to wait for it.
    let mut iter = rig.db.cursor().unwrap();
    iter.first().unwrap();
    rig.put(3_000, 1_000_000);
    let live = tables_of(&rig.stats());
    assert!(tables_on_disk(&rig.fs) >= live + 5);
    drop(iter);
    rig.db.close().unwrap();
    assert_eq!(tables_on_disk(&rig.fs), live);
}
