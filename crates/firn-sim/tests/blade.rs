//! The rows of PM-Blade (docs/design/blade.md): the mechanisms of the design, each in a small
//! database that shows it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_pm::sim::{Mode, SimRegion};
use firndb::{
    Arrangement, BladePartitionStats, BladeStats, BladeTuning, ErrorKind, Options, PmConfig,
    Profile, mechanisms,
};
use rig::lists::cut_in_a_compaction;
use rig::{Rig, flush, row, row_of_option, tables_on_disk};

const POOL_BYTES: u64 = 4 << 20;

/// Tables of 32 KiB in a simulated pool of `bytes`.
fn tables(bytes: u64) -> impl FnOnce(&mut Options) {
    move |options| {
        options.tuning.blade = BladeTuning {
            table_bytes: Some(32 << 10),
            unsorted_max: 4,
            ..BladeTuning::default()
        };
        options.pm = Some(PmConfig::volatile(0));
        options.environment.memory = Some(SimRegion::new(bytes, Mode::Adr));
    }
}

fn blade(rig: &Rig) -> BladeStats {
    rig.stats().design.blade.unwrap()
}

/// Nobody holds persistent memory that no table of the state has.
fn check_space(rig: &Rig) {
    let found = blade(rig);
    assert_eq!(found.used_bytes, found.table_bytes, "{found:?}");
}

#[test]
fn blade_holds_what_a_map_holds() {
    for kib in [256, 640, 4096] {
        let mut rig = Rig::loaded(Profile::Blade, 6_000, tables(kib << 10));
        rig.check();
        rig.delete_some();
        rig.put(2_000, 1_000_000);
        rig.check();
        check_space(&rig);
        let rig = rig.reopened();
        rig.check();
        let rig = rig.killed();
        rig.check();
        rig.db.compact().unwrap();
        rig.check();
        check_space(&rig);
    }
}

#[test]
fn blade_without_persistent_memory_has_files() {
    let mut rig = Rig::loaded(Profile::Blade, 4_000, |options| {
        options.tuning.blade.unsorted_max = 4;
    });
    rig.check();
    rig.delete_some();
    rig.put(2_000, 1_000_000);
    rig.check();
    assert!(rig.stats().design.blade.is_none() && tables_on_disk(&rig.fs) > 0);
    let rig = rig.killed();
    rig.check();
    rig.db.compact().unwrap();
    rig.check();
}

#[test]
fn blade_01_a_merge_takes_one_partition() {
    row_of_option("bytes of a merge", |on| {
        let rig = Rig::loaded(Profile::Blade, 8_000, |options| {
            tables(POOL_BYTES)(options);
            if on {
                options.limits.partitions_max = 16;
                options.limits.partition_bytes = 200 << 10;
            }
        });
        let (found, stats) = (blade(&rig), rig.stats());
        let mean = found.internal_bytes / found.internal_compactions.max(1);
        assert!(mean < 200 << 10, "bytes of a merge: {mean}");
        assert!(stats.partitions.len() > 4, "{:?}", stats.partitions);
        assert_eq!(
            tables_on_disk(&rig.fs),
            0,
            "all of it is in persistent memory"
        );
        rig.check();
        // Borders outlive the process.
        let rig = rig.killed();
        assert_eq!(rig.stats().partitions.len(), stats.partitions.len());
        rig.check();
    });
}

/// Entries of an index: long keys that share most of their bytes.
fn index_entries(arrangement: Arrangement) -> Rig {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(POOL_BYTES)(options);
        options.tuning.blade.table_bytes = Some(256 << 10);
        options.tuning.blade.arrangement = arrangement;
        options.write_buffer_bytes = Some(256 << 10);
        options.row_cache = false;
    });
    for n in 0..800_u32 {
        let key = format!("table/orders/index/customer/{:012}/{n:08}", n / 3);
        rig.db.put(&key, [7; 8]).unwrap();
        rig.model.insert(key.into_bytes(), vec![7; 8]);
    }
    flush(&rig);
    rig
}

fn arrangement(is_grouped: bool) -> Arrangement {
    match is_grouped {
        true => Arrangement::Grouped,
        false => Arrangement::Array,
    }
}

#[test]
fn blade_02_groups_share_prefixes() {
    row_of_option("bytes of an entry", |on| {
        let rig = index_entries(arrangement(on));
        let bytes = blade(&rig).used_bytes / 800;
        // Less than the 57 of key and value.
        assert!(bytes < 55, "bytes of an entry: {bytes}");
        rig.check();
        rig.killed().check();
    });
}

#[test]
fn blade_03_a_search_reads_few_lines() {
    row_of_option("lines of a search", |on| {
        let rig = index_entries(arrangement(on));
        for key in rig.model.keys() {
            assert!(rig.db.get(key).unwrap().is_some());
        }
        let found = blade(&rig);
        assert_eq!(found.searches, 800, "{found:?}");
        let lines = found.search_lines as f64 / 800.0;
        // At most eight, and one or two of the value.
        assert!(lines <= 10.0, "lines of a search: {lines}");
        let before = found.searches;
        for n in 0..800 {
            let absent = format!("table/orders/index/customer/{n:012}/x");
            assert!(rig.db.get(absent.as_bytes()).unwrap().is_none());
        }
        let in_vain = blade(&rig).searches - before;
        assert!(in_vain < 40, "filters exclude absent keys: {in_vain}");
    });
}

/// A process that is killed inside a merge leaves free space, and the inputs are there.
#[test]
fn blade_11_a_cut_merge_leaves_nothing() {
    let mut cut = 0;
    for stores in [1, 3, 9, 20, 40, 80] {
        let rig = Rig::loaded(Profile::Blade, 3_000, tables(POOL_BYTES));
        let Some(rig) = cut_in_a_compaction(rig, stores) else {
            continue;
        };
        cut += 1;
        check_space(&rig);
        rig.check();
        rig.db.compact().unwrap();
        rig.check();
        check_space(&rig);
    }
    assert!(cut > 3, "{cut} merges were cut");
}

#[test]
fn blade_04_unsorted_tables_are_merged_in_persistent_memory() {
    let mut rig = Rig::loaded(Profile::Blade, 4_000, tables(POOL_BYTES));
    let found = blade(&rig);
    assert!(found.internal_compactions > 0, "{found:?}");
    assert!(found.sorted_tables > 1, "{found:?}");
    assert_eq!(tables_on_disk(&rig.fs), 0, "files in the directory");
    assert!(found.flushed_bytes > 4_000 * 120, "{found:?}");
    rig.delete_some();
    rig.put(2_000, 1_000_000);
    rig.check();
}

/// A deleted key stays deleted while a file has it.
#[test]
fn blade_04_a_merge_keeps_the_tombstones_of_files() {
    let mut rig = Rig::loaded(Profile::Blade, 8_000, tables(400 << 10));
    assert!(tables_on_disk(&rig.fs) > 0);
    rig.delete_some();
    let before = blade(&rig);
    rig.put(1_000, 1_000_000);
    let after = blade(&rig);
    assert!(
        after.internal_compactions > before.internal_compactions,
        "{after:?}"
    );
    rig.check();
}

/// Flushed tables over the same keys, which wait for a reason to be merged.
fn unsorted(flushes: u64, pool_bytes: u64, same_keys: bool) -> Rig {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(pool_bytes)(options);
        options.tuning.blade.unsorted_max = 64;
    });
    for flush_number in 0..flushes {
        for n in 0..150 {
            let key = if same_keys {
                n
            } else {
                n * 1_000 + flush_number
            };
            rig.put_one(format!("key{key:07}").into_bytes());
        }
        flush(&rig);
    }
    rig
}

#[test]
fn blade_05_searches_in_vain_merge_tables() {
    row(&mechanisms::BLADE_WASTE, "merges for reads", || {
        let rig = unsorted(8, POOL_BYTES, false);
        let before = blade(&rig);
        assert_eq!(
            (before.unsorted_tables, before.internal_compactions),
            (8, 0)
        );
        // Nothing is written, and the oldest table is asked after all others.
        for _ in 0..20 {
            for n in 0..150 {
                let key = format!("key{:07}", n * 1_000);
                assert!(rig.db.get(key.as_bytes()).unwrap().is_some());
            }
        }
        rig.settle();
        let after = blade(&rig);
        assert_eq!(after.internal_compactions, 1, "merges for reads");
        assert_eq!(after.unsorted_tables, 0, "{after:?}");
        rig.check();
    });
}

#[test]
fn blade_06_what_repeats_is_merged_before_it_leaves() {
    row(&mechanisms::BLADE_REPEATS, "merges for room", || {
        let rig = unsorted(12, 512 << 10, true);
        let found = blade(&rig);
        assert!(found.internal_compactions > 0, "merges for room");
        assert_eq!(found.major_compactions, 0, "{found:?}");
        rig.check();
        // New keys alone are not.
        let rig = unsorted(12, 512 << 10, false);
        assert_eq!(blade(&rig).internal_compactions, 0);
        rig.check();
    });
}

#[test]
fn blade_07_tables_leave_for_the_ssd_before_the_pool_is_full() {
    let rig = Rig::loaded(Profile::Blade, 12_000, tables(640 << 10));
    let found = blade(&rig);
    assert!(found.major_compactions > 0, "{found:?}");
    assert_eq!(found.spilled, 0, "{found:?}");
    let used = found.used_bytes as f64 / found.capacity_bytes as f64;
    assert!(used < 0.9, "{used} of the pool");
    rig.check();
    check_space(&rig);
}

/// Values that gets found on the SSD.
fn found_in_files(rig: &Rig) -> u64 {
    let stats = rig.stats();
    let deep = |name: &str| name.starts_with("level") && name > "level1";
    let hits = stats.user.hits.iter().filter(|(name, _)| deep(name));
    hits.map(|(_, count)| count).sum()
}

#[test]
fn blade_07_what_is_read_stays() {
    row(&mechanisms::BLADE_HEAT, "reads of the SSD", || {
        let mut rig = Rig::new(Profile::Blade, |options| {
            tables(640 << 10)(options);
            options.row_cache = false;
            options.limits.partitions_max = 8;
            options.limits.partition_bytes = 100 << 10;
        });
        let hot: Vec<Vec<u8>> = (0..300).map(|n| format!("a{n:05}").into_bytes()).collect();
        hot.iter().for_each(|key| rig.put_one(key.clone()));
        flush(&rig);
        let ask = |rig: &Rig| {
            for key in &hot {
                assert!(rig.db.get(key).unwrap().is_some());
            }
        };
        for _ in 0..40 {
            (0..5).for_each(|_| ask(&rig));
            rig.put(200, 1_000_000);
        }
        assert!(blade(&rig).major_compactions > 2, "{:?}", blade(&rig));
        let before = found_in_files(&rig);
        ask(&rig);
        assert_eq!(found_in_files(&rig) - before, 0, "reads of the SSD");
        let stats = blade(&rig);
        let parts = &stats.partitions;
        let memory: u64 = parts.iter().map(|part| part.memory_bytes).sum();
        assert_eq!(memory, stats.table_bytes);
        let cost = |part: &BladePartitionStats| part.leave_ns_per_byte;
        let parts: Vec<_> = parts.iter().filter(|part| part.memory_bytes > 0).collect();
        let most_read = parts.iter().max_by(|a, b| a.hits.total_cmp(&b.hits));
        let costliest = parts.iter().max_by(|a, b| cost(a).total_cmp(&cost(b)));
        assert_eq!(most_read.unwrap().id, costliest.unwrap().id, "{parts:#?}");
        let has_left = parts.iter().filter_map(|part| part.last_major);
        assert!(has_left.map(|merge| merge.bytes_in).sum::<u64>() > 0);
        rig.check();
    });
}

/// The mean used share of the pool while tables leave, beside `gets` for each put.
fn used_beside(gets: usize) -> f64 {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(POOL_BYTES)(options);
        options.row_cache = false;
        // So small that what leaves at a time is less than what the share of reads moves.
        options.limits.partitions_max = 32;
        options.limits.partition_bytes = 150 << 10;
    });
    let mut used = Vec::new();
    while used.len() < 25 {
        rig.put(300, 1_000_000);
        for _ in 0..300 * gets {
            let _absent = rig.db.get(b"key0500000x").unwrap();
        }
        let found = blade(&rig);
        if found.major_compactions > 0 {
            used.push(found.used_bytes as f64 / found.capacity_bytes as f64);
        }
    }
    rig.check();
    used.iter().sum::<f64>() / used.len() as f64
}

#[test]
fn blade_07_more_stays_where_reads_prevail() {
    row(&mechanisms::BLADE_READ_SHARE, "of the pool is used", || {
        let (written, read) = (used_beside(0), used_beside(5));
        assert!(
            read > written + 0.01,
            "{read:.2} of the pool is used beside reads, {written:.2} without"
        );
    });
}

/// Reads one key in twenty, all over the key space, while other keys are written, and counts the
/// gets of these keys that files answer in the end.
fn reads_of_hot_keys_in_files(sieve: bool) -> (Rig, u64) {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(1 << 20)(options);
        options.row_cache = false;
        options.tuning.blade.sieve = sieve;
        options.tuning.blade.group_entries = 1;
        // Few sub-tasks, of which each needs room for what it keeps.
        options.limits.table_bytes = 128 << 10;
    });
    let hot: Vec<Vec<u8>> = (0..50)
        .map(|n| format!("key{:07}h", n * 20_000).into_bytes())
        .collect();
    hot.iter().for_each(|key| rig.put_one(key.clone()));
    flush(&rig);
    for _ in 0..120 {
        for key in &hot {
            assert!(rig.db.get(key).unwrap().is_some());
        }
        rig.put(100, 1_000_000);
    }
    assert!(blade(&rig).major_compactions > 2, "{:?}", blade(&rig));
    let before = found_in_files(&rig);
    for key in &hot {
        assert!(rig.db.get(key).unwrap().is_some());
    }
    let found = found_in_files(&rig) - before;
    rig.check();
    (rig, found)
}

#[test]
fn blade_07_groups_that_are_read_stay() {
    row(&mechanisms::BLADE_SIEVE, "of 50 hot keys", || {
        let (rig, found) = reads_of_hot_keys_in_files(true);
        assert!(found < 10, "{found} of 50 hot keys are in files");
        let (kept, left) = (blade(&rig).table_bytes, blade(&rig).capacity_bytes);
        assert!(kept < left, "{kept} of {left}");
        rig.check();
    });
    let (_, found) = reads_of_hot_keys_in_files(false);
    assert!(found > 25, "{found} of 50 hot keys are in files without");
}

/// An old version that a snapshot reads is in a group that is read, and the newest one is not. The
/// old one must not stay above it.
#[test]
fn blade_07_no_version_stays_above_a_newer_one() {
    let mut rig = Rig::new(Profile::Blade, |options| {
        tables(640 << 10)(options);
        options.row_cache = false;
        options.tuning.blade.internal = false;
        options.limits.table_bytes = 128 << 10;
    });
    let keys: Vec<Vec<u8>> = (0..20)
        .map(|n| format!("key{:07}h", n * 50_000).into_bytes())
        .collect();
    let put = |rig: &mut Rig| {
        keys.iter().for_each(|key| rig.put_one(key.clone()));
        flush(rig);
    };
    put(&mut rig);
    let snapshot = rig.db.snapshot();
    let read = || -> Vec<Vec<u8>> {
        let values = keys.iter().map(|key| snapshot.get(key).unwrap().unwrap());
        values.map(|value| value.to_vec()).collect()
    };
    let old = read();
    put(&mut rig);
    while blade(&rig).major_compactions == 0 {
        rig.put(50, 1_000_000);
    }
    assert!(
        blade(&rig).sorted_tables == 0,
        "nothing stayed: {:?}",
        blade(&rig)
    );
    assert_eq!(read(), old);
    rig.check();
}

#[test]
fn blade_a_pool_of_less_than_two_buffers_is_refused() {
    let opened = std::panic::catch_unwind(|| Rig::new(Profile::Blade, tables(100 << 10)));
    let text = *opened.err().unwrap().downcast::<String>().unwrap();
    assert!(text.contains("two write buffers"), "{text}");
    assert!(
        text.contains(&format!("{:?}", ErrorKind::Invalid)),
        "{text}"
    );
}
