//! The rows of PMDB (docs/design/pmdb.md): the mechanisms of the design, each in a small database
//! that shows it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_pm::sim::{Mode, SimRegion};
use firndb::{BlockTreeStats, ErrorKind, Profile, Seeks, mechanisms};
use rig::ranges::{pmdb, stacks, with_pool};
use rig::{Rig, flush, row, row_of_option};

/// Checks the contents of `rig` while it is changed, opened again, killed and compacted.
fn check_all_its_life(mut rig: Rig) -> Rig {
    rig.check();
    rig.delete_some();
    rig.put(2_000, 1_000_000);
    rig.check();
    let rig = rig.reopened();
    rig.check();
    let rig = rig.killed();
    rig.check();
    rig.db.compact().unwrap();
    rig.check();
    rig
}

#[test]
fn pmdb_holds_what_a_map_holds() {
    for max_io in [1, 2, 4, 10] {
        let rig = check_all_its_life(Rig::loaded(Profile::Pmdb, 6_000, |options| {
            stacks(options);
            options.tuning.pmdb.max_io = max_io;
            options.limits.partitions_max = 8;
            options.limits.partition_bytes = 100 << 10;
        }));
        assert_eq!(pmdb(&rig).height_most, 1, "{:?}", pmdb(&rig));
    }
}

#[test]
fn pmdb_02_partitions_are_divided_at_borders_of_ranges() {
    row_of_option("partitions", |on| {
        let rig = Rig::loaded(Profile::Pmdb, 10_000, |options| {
            stacks(options);
            if on {
                options.limits.partitions_max = 16;
                options.limits.partition_bytes = 150 << 10;
            }
        });
        let found = pmdb(&rig);
        assert!(found.partitions > 2, "{} partitions", found.partitions);
        assert!(found.ranges > found.partitions, "{found:?}");
        rig.check();
        // Both kinds of borders outlive the process.
        let rig = rig.killed();
        let again = pmdb(&rig);
        assert_eq!(
            (again.partitions, again.ranges),
            (found.partitions, found.ranges)
        );
        rig.check();
    });
}

#[test]
fn pmdb_03_a_flush_makes_a_table_of_the_stash() {
    let mut rig = Rig::new(Profile::Pmdb, stacks);
    for tables in 1..=3 {
        rig.put(20, 1_000_000);
        flush(&rig);
        assert_eq!(pmdb(&rig).stash_tables, tables);
    }
    assert_eq!((pmdb(&rig).stash_merges, pmdb(&rig).height_most), (0, 0));
    rig.check();
}

#[test]
fn pmdb_04_a_merge_of_the_stash_rewrites_no_range() {
    row(&mechanisms::PMDB_STACKS, "bytes of a merge", || {
        let mut rig = Rig::loaded(Profile::Pmdb, 6_000, stacks);
        rig.db.compact().unwrap();
        let before = rig.stats();
        let base: u64 = before.levels.iter().map(|level| level.bytes).sum();
        for _ in 0..3 {
            rig.put(20, 1_000_000);
            flush(&rig);
        }
        assert_eq!(pmdb(&rig).stash_tables, 3);
        let merged = |rig: &Rig| rig.stats().levels[0].compaction_read_bytes;
        let read = merged(&rig);
        rig.put(20, 1_000_000);
        flush(&rig);
        rig.db.wait_idle().unwrap();
        let bytes = merged(&rig) - read;
        assert!(
            bytes > 0 && bytes < base / 4,
            "bytes of a merge: {bytes} beside {base}"
        );
        assert_eq!(pmdb(&rig).height_most, 2, "{:?}", pmdb(&rig));
        rig.check();
    });
}

#[test]
fn pmdb_05_a_large_range_is_divided() {
    row(&mechanisms::PMDB_DIVIDE, "ranges", || {
        let mut rig = Rig::loaded(Profile::Pmdb, 8_000, stacks);
        let found = pmdb(&rig);
        assert!(found.ranges > 3, "{} ranges", found.ranges);
        rig.check();
        // A merge of one reads no other.
        rig.put(500, 1_000_000);
        let (merges, read) = (pmdb(&rig).range_merges, rig.stats().levels);
        let all: u64 = read.iter().map(|level| level.bytes).sum();
        rig.db.compact().unwrap();
        let after = rig.stats().levels;
        let bytes = |levels: &[firndb::LevelStats]| -> u64 {
            levels.iter().map(|level| level.compaction_read_bytes).sum()
        };
        let count = pmdb(&rig).range_merges - merges;
        assert!((bytes(&after) - bytes(&read)) / count.max(1) < all / 2);
        rig.check();
    });
}

#[test]
fn pmdb_05_ascending_keys_are_written_once() {
    let mut rig = Rig::new(Profile::Pmdb, stacks);
    for n in 0..6_000 {
        rig.put_one(format!("key{n:08}").into_bytes());
    }
    flush(&rig);
    rig.db.wait_idle().unwrap();
    let stats = rig.stats();
    let written: u64 = stats
        .levels
        .iter()
        .map(|level| level.compaction_written_bytes)
        .sum();
    let bytes: u64 = stats.levels.iter().map(|level| level.bytes).sum();
    assert!(written < bytes / 5, "{written} bytes merged of {bytes}");
    assert!(pmdb(&rig).ranges > 2, "{:?}", pmdb(&rig));
    rig.check();
}

#[test]
fn pmdb_06_a_stack_is_merged_when_it_is_full() {
    for max_io in [2, 6] {
        let mut rig = Rig::new(Profile::Pmdb, |options| {
            stacks(options);
            options.tuning.pmdb.max_io = max_io;
        });
        let mut most = 0;
        for _ in 0..60 {
            rig.put(100, 1_000_000);
            most = most.max(pmdb(&rig).height_most);
        }
        let found = pmdb(&rig);
        // The base, and so many over it.
        assert!(
            most <= max_io + 1 && most > max_io / 2,
            "{most} levels of {max_io}"
        );
        assert!(found.range_merges > 0, "{found:?}");
        // Once for many merges of the stash, not for each of its tables.
        assert!(
            found.range_merges
                <= found.stash_merges * found.ranges as u64 / max_io as u64 + found.ranges as u64,
            "{found:?}"
        );
        rig.check();
    }
}

/// Merges of ranges for reason `name`.
fn merges_for(rig: &Rig, name: &str) -> u64 {
    pmdb(rig).merges_for.get(name).copied().unwrap_or(0)
}

#[test]
fn pmdb_06_a_range_in_which_much_is_hidden_is_merged() {
    row_of_option("ranges merged for what is hidden", |on| {
        let mut rig = Rig::loaded(Profile::Pmdb, 3_000, |options| {
            stacks(options);
            options.limits.level0_rest = 3;
            options.tuning.pmdb.max_io = 20;
            options.tuning.pmdb.invalid_share = if on { 0.3 } else { 1.0 };
        });
        rig.db.compact().unwrap();
        let keys: Vec<Vec<u8>> = rig.model.keys().cloned().collect();
        for round in 0..2 {
            for key in keys.iter().skip(round).step_by(2) {
                rig.put_one(key.clone());
            }
        }
        rig.check();
        let merges = merges_for(&rig, "space");
        assert!(
            merges > 0,
            "ranges merged for what is hidden: {:?}",
            pmdb(&rig)
        );
        rig.db.verify().unwrap();
    });
}

/// Trap 7: filters also have keys that their tables have not.
#[test]
fn pmdb_06_new_keys_hide_nothing() {
    let mut rig = Rig::new(Profile::Pmdb, |options| {
        stacks(options);
        options.tuning.pmdb.max_io = 20;
    });
    for n in 0..8_000_u64 {
        rig.put_one(n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec());
    }
    assert!(pmdb(&rig).stash_merges > 0, "{:?}", pmdb(&rig));
    assert_eq!(merges_for(&rig, "space"), 0, "{:?}", pmdb(&rig));
}

#[test]
fn pmdb_06_scans_have_their_range_merged() {
    row_of_option("ranges merged for scans", |on| {
        let mut rig = Rig::loaded(Profile::Pmdb, 3_000, |options| {
            stacks(options);
            options.tuning.pmdb.seeks = if on { Seeks::Count(3) } else { Seeks::Off };
        });
        rig.db.compact().unwrap();
        while pmdb(&rig).height_most < 3 {
            rig.put(20, 1_000_000);
            flush(&rig);
        }
        let keys: Vec<Vec<u8>> = rig.model.keys().cloned().collect();
        for _ in 0..9 {
            for key in keys.iter().step_by(50) {
                let mut cursor = rig.db.cursor().unwrap();
                cursor.seek(key).unwrap();
                assert_eq!(cursor.key(), key);
            }
            rig.db.wait_idle().unwrap();
        }
        let merges = merges_for(&rig, "seeks");
        assert!(merges > 0, "ranges merged for scans: {:?}", pmdb(&rig));
        rig.check();
    });
}

/// Trap 8: scans of merged ranges rewrite nothing.
#[test]
fn pmdb_06_scans_of_merged_ranges_merge_nothing() {
    let rig = Rig::loaded(Profile::Pmdb, 3_000, |options| {
        stacks(options);
        options.tuning.pmdb.seeks = Seeks::Count(3);
    });
    rig.db.compact().unwrap();
    let bytes = |rig: &Rig| -> u64 {
        let levels = rig.stats().levels;
        levels.iter().map(|level| level.compaction_read_bytes).sum()
    };
    let before = bytes(&rig);
    for round in 0..10_000_u64 {
        let mut cursor = rig.db.cursor().unwrap();
        cursor.seek(round.to_be_bytes()).unwrap();
    }
    rig.db.wait_idle().unwrap();
    assert_eq!(bytes(&rig), before);
}

#[test]
fn pmdb_05_ranges_that_become_small_are_joined() {
    let mut rig = Rig::loaded(Profile::Pmdb, 8_000, stacks);
    rig.db.compact().unwrap();
    let before = pmdb(&rig).ranges;
    assert!(before > 6, "{:?}", pmdb(&rig));
    let keys: Vec<Vec<u8>> = rig.model.keys().cloned().collect();
    for key in keys
        .iter()
        .filter(|key| !key.last().unwrap().is_multiple_of(16))
    {
        rig.db.delete(key).unwrap();
        rig.model.remove(key);
    }
    rig.db.compact().unwrap();
    rig.db.wait_idle().unwrap();
    let after = pmdb(&rig).ranges;
    assert!(after < before / 2, "{after} of {before} ranges");
    rig.check();
    let rig = rig.killed();
    assert_eq!(pmdb(&rig).ranges, after);
    rig.check();
    rig.db.verify().unwrap();
}

/// Tables stay where another height of stacks put them, and everything goes on.
#[test]
fn pmdb_06_the_height_of_stacks_may_change() {
    let mut rig = Rig::loaded(Profile::Pmdb, 4_000, stacks);
    for max_io in [12, 1, 6, 2] {
        rig.options.tuning.pmdb.max_io = max_io;
        rig = rig.reopened();
        rig.check();
        rig.put(1_500, 1_000_000);
        rig.delete_some();
        rig.check();
    }
    let mut rig = rig.killed();
    rig.check();
    rig.db.compact().unwrap();
    assert_eq!(pmdb(&rig).height_most, 1, "{:?}", pmdb(&rig));
    rig.put(500, 1_000_000);
    rig.check();
    rig.db.verify().unwrap();
}

/// Trap 7 again: filters of few bits have many keys that their tables have not.
#[test]
fn pmdb_06_new_keys_hide_nothing_under_small_filters() {
    let mut rig = Rig::new(Profile::Pmdb, |options| {
        stacks(options);
        options.filter_bits = 3;
        options.tuning.pmdb.max_io = 20;
    });
    for n in 0..8_000_u64 {
        rig.put_one(n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec());
    }
    assert!(pmdb(&rig).stash_merges > 0, "{:?}", pmdb(&rig));
    assert_eq!(merges_for(&rig, "space"), 0, "{:?}", pmdb(&rig));
}

fn trees(rig: &Rig) -> BlockTreeStats {
    pmdb(rig).trees.unwrap()
}

#[test]
fn pmdb_with_persistent_memory_holds_what_a_map_holds() {
    for (max_io, kib) in [(1, 4096), (2, 4096), (4, 1024), (4, 160), (10, 4096)] {
        let rig = Rig::loaded(Profile::Pmdb, 6_000, |options| {
            with_pool(kib << 10)(options);
            options.tuning.pmdb.max_io = max_io;
            options.limits.partitions_max = 8;
            options.limits.partition_bytes = 100 << 10;
        });
        let found = trees(&rig);
        assert_eq!(found.refused > 0, kib == 160, "{kib} KiB: {found:?}");
        let rig = check_all_its_life(rig);
        rig.settle();
        assert!(trees(&rig).trees > 0, "{:?}", trees(&rig));
        rig.db.verify().unwrap();
    }
}

#[test]
fn pmdb_07_a_get_asks_trees_in_the_place_of_tables() {
    row(&mechanisms::PMDB_TREES, "trees", || {
        let mut rig = Rig::loaded(Profile::Pmdb, 6_000, with_pool(4 << 20));
        rig.delete_some();
        rig.put(1_000, 1_000_000);
        flush(&rig);
        rig.db.wait_idle().unwrap();
        let found = trees(&rig);
        assert!(found.trees > pmdb(&rig).ranges, "trees: {found:?}");
        let before = trees(&rig).searches;
        rig.check();
        assert!(trees(&rig).searches > before);
        rig.db.verify().unwrap();
        // What an open finds is not made again.
        let rig = rig.reopened();
        rig.db.wait_idle().unwrap();
        let again = trees(&rig);
        assert_eq!((again.trees, again.made), (found.trees, 0), "{again:?}");
        rig.check();
    });
}

#[test]
fn pmdb_08_a_get_opens_no_table() {
    row(&mechanisms::PMDB_TREES, "tables were opened", || {
        let mut rig = Rig::loaded(Profile::Pmdb, 6_000, |options| {
            with_pool(4 << 20)(options);
            options.max_open_files = 2;
            options.row_cache = false;
        });
        rig.put(400, 1_000_000);
        let opens = |rig: &Rig| rig.stats().memory.table_opens;
        let before = opens(&rig);
        for (key, value) in rig.model.iter().step_by(7) {
            assert_eq!(rig.db.get(key).unwrap().unwrap(), value[..]);
        }
        let keys: Vec<Vec<u8>> = rig.model.keys().step_by(11).cloned().collect();
        let found = rig.db.multi_get(&keys).unwrap();
        for (key, value) in keys.iter().zip(found) {
            assert_eq!(value.unwrap(), rig.model[key][..]);
        }
        let opened = opens(&rig) - before;
        assert!(opened < 10, "tables were opened: {opened}");
    });
}

fn check_gets(rig: &Rig) {
    for (key, value) in &rig.model {
        assert_eq!(rig.db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

/// Changes a byte of each tree in the pool, past its header and its files.
fn damage_trees(rig: &mut Rig) -> usize {
    let region = rig.options.environment.memory.take().unwrap();
    let mut image = region.durable();
    let heads = (0..image.len()).step_by(64);
    let heads = heads.filter(|&at| image[at..].starts_with(b"firniftr"));
    let heads: Vec<usize> = heads.collect();
    for head in &heads {
        image[head + 1000] ^= 4;
    }
    rig.options.environment.memory = Some(SimRegion::from_image(image, Mode::Adr));
    heads.len()
}

#[test]
fn pmdb_07_a_damaged_tree_is_made_again() {
    let mut rig = Rig::loaded(Profile::Pmdb, 6_000, |options| {
        with_pool(4 << 20)(options);
        options.row_cache = false;
    });
    flush(&rig);
    rig.settle();
    let damaged = damage_trees(&mut rig);
    assert!(damaged > 2, "{damaged} trees");
    let rig = rig.killed();
    assert_eq!(rig.db.verify().unwrap_err().kind(), ErrorKind::Corruption);
    // Gets that meet the damage go to the tables.
    check_gets(&rig);
    rig.settle();
    assert!(trees(&rig).made > 0, "{:?}", trees(&rig));
    rig.db.verify().unwrap();
    check_gets(&rig);
}

#[test]
fn pmdb_07_a_damaged_tree_has_no_part_in_the_next() {
    let mut rig = Rig::loaded(Profile::Pmdb, 6_000, with_pool(4 << 20));
    flush(&rig);
    rig.settle();
    assert!(damage_trees(&mut rig) > 2);
    let mut rig = rig.killed();
    // No get finds the damage before the trees are made again, from those that have it.
    rig.put(1_000, 1_000_000);
    flush(&rig);
    rig.settle();
    rig.db.compact().unwrap();
    rig.settle();
    rig.check();
}

#[test]
fn pmdb_07_trees_of_another_pool_are_none() {
    let mut rig = Rig::loaded(Profile::Pmdb, 4_000, with_pool(4 << 20));
    rig.delete_some();
    flush(&rig);
    rig.settle();
    // Without a pool, and then with it again, which has trees that nothing names.
    let pool = rig.options.environment.memory.take();
    let pm = rig.options.pm.take();
    let mut rig = rig.reopened();
    rig.check();
    rig.put(500, 1_000_000);
    (rig.options.environment.memory, rig.options.pm) = (pool, pm);
    let rig = rig.reopened();
    rig.check();
    rig.settle();
    assert!(trees(&rig).trees > 0);
    rig.db.verify().unwrap();
}
