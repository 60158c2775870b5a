//! Mistakes that are easily made with lists in persistent memory (docs/design/tlsm.md, "Traps and
//! their tests"): each test fails if its mistake is made.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_fs::{Fault, FaultKind, OpKind};
use firndb::{Db, Durability, ErrorKind, Options, Profile, Stats, Tiering, TlsmBuild};
use rig::lists::{POOL_BYTES, count, cut_in_a_compaction, lists, tlsm};
use rig::{Rig, flush};

/// Bytes of lists that were read.
fn read_bytes(stats: &Stats) -> u64 {
    let of_lists = stats
        .pm
        .iter()
        .filter(|pm| ["skiplist", "payload"].contains(&pm.owner.as_str()));
    of_lists.map(|pm| pm.read_bytes).sum()
}

/// Checks that a checkpoint of `rig` has what `rig` has. It is a database without persistent
/// memory.
fn check_copy(rig: &Rig) {
    rig.db.checkpoint("/copy").unwrap();
    let mut options: Options = rig.options.clone();
    (options.pm, options.environment.memory) = (None, None);
    let copy = Db::open("/copy", options).unwrap();
    let mut iter = copy.cursor().unwrap();
    iter.first().unwrap();
    for (key, value) in &rig.model {
        assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
        assert_eq!(copy.get(key).unwrap().as_deref(), Some(&value[..]));
        iter.next().unwrap();
    }
    assert!(!iter.valid(), "{:?} comes back", iter.key());
    copy.verify().unwrap();
}

/// Old lists are below newer files, and have files between them; the newest lists, on level 0, have
/// tombstones of what is below. A copy has each of them on its level.
#[test]
fn tlsm_a_copy_has_lists_on_their_levels() {
    let mut rig = Rig::loaded(Profile::Tlsm, 2_000, lists(POOL_BYTES, Tiering::Lru));
    rig.db.compact().unwrap();
    rig.options.tuning.tlsm.tiering = Tiering::Leveled(0);
    rig.options.limits.level0_trigger = 2;
    let mut rig = rig.reopened();
    // Every second stretch of keys is written again.
    let keys: Vec<_> = rig.model.keys().cloned().collect();
    for stretch in keys.chunks(150).step_by(2) {
        stretch.iter().for_each(|key| rig.put_one(key.clone()));
    }
    flush(&rig);
    // And then some of all, which come no deeper than level 1.
    keys.iter()
        .step_by(9)
        .for_each(|key| rig.put_one(key.clone()));
    flush(&rig);
    rig.delete_some();
    rig.db.flush().unwrap();
    let (levels, lists) = (rig.stats().levels, tlsm(&rig).lists);
    let told = format!("{lists:?} of {levels:?}");
    let in_files = |level: usize| levels[level].tables - lists.get(level).copied().unwrap_or(0);
    assert!(lists[0] > 0, "tombstones in lists of level 0: {told}");
    let deepest = lists.len() - 1;
    assert!(lists[deepest] > 2, "lists of the deepest level: {told}");
    assert!(in_files(deepest - 1) > 0, "files above them: {told}");
    assert!(in_files(deepest) > 0, "files between them: {told}");
    check_copy(&rig);
}

/// Level 0 leaves persistent memory before it is due by its tables, with tombstones in one list and
/// what they hide in another, or in a file of level 1.
#[test]
fn tlsm_08_level0_victims_keep_deletes() {
    let mut rig = Rig::new(Profile::Tlsm, |options| {
        lists(480 << 10, Tiering::Lru)(options);
        options.tuning.tlsm.evict_share = 0.1;
        options.limits.level0_trigger = 100;
        options.limits.level0_slow = 200;
        options.limits.level0_stop = 300;
    });
    rig.put(2_000, 1_000_000);
    for _ in 0..3 {
        rig.delete_some();
        rig.put(100, 1_000_000);
        rig.check();
    }
    let lists = tlsm(&rig);
    assert!(lists.evictions > 3, "{lists:?}");
    let level0 = lists.lists.first().copied().unwrap_or(0);
    assert!(level0 <= 2, "level 0 leaves: {lists:?}");
    rig.killed().check();
}

/// The sync of the record that adds a list fails, so it may turn out to be durable: its memory is
/// not given to anything else.
#[test]
fn tlsm_06_an_unsure_record_keeps_its_list() {
    let mut rig = Rig::loaded(Profile::Tlsm, 500, lists(POOL_BYTES, Tiering::Lru));
    for n in 0..100_u8 {
        let (key, value) = (vec![b'x', n], vec![n; 100]);
        rig.db.put(&key, &value).unwrap();
        rig.model.insert(key, value);
    }
    let taken = |rig: &Rig| tlsm(rig).node_bytes + tlsm(rig).chunk_bytes;
    let before = taken(&rig);
    rig.fs.inject(Fault::once(FaultKind::Eio).on(OpKind::Sync));
    let error = rig.db.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert!(
        taken(&rig) >= before + 100 * 128,
        "its memory is free: {:?}",
        tlsm(&rig)
    );
    let rig = rig.killed();
    rig.check();
    rig.settle();
    assert_eq!(tlsm(&rig).buried_bytes, 0, "{:?}", tlsm(&rig));
}

/// A compaction is cut short, and the next process has other options. Nothing is lost, and what was
/// begun is either completed or freed.
#[test]
fn tlsm_10_a_cut_job_meets_other_options() {
    let mut went_on = 0;
    let changes: [fn(&mut Options); 5] = [
        |options| options.tuning.tlsm.tiering = Tiering::Leveled(0),
        |options| options.tuning.tlsm.tiering = Tiering::None,
        |options| options.tuning.tlsm.capacity_bytes = Some(160 << 10),
        |options| options.tuning.tlsm.unit_bytes = Some(8 << 10),
        |options| options.tuning.tlsm.build = TlsmBuild::Skiplists,
    ];
    for change in changes {
        for stores in [40, 80, 120] {
            let mut rig = Rig::loaded(Profile::Tlsm, 1_200, lists(POOL_BYTES, Tiering::Lru));
            rig.delete_some();
            let first = rig.options.clone();
            let Some(mut rig) = cut_in_a_compaction(rig, stores) else {
                panic!("the compaction was complete");
            };
            // The first process to come does nothing but open.
            change(&mut rig.options);
            let mut rig = rig.killed();
            rig.check();
            rig.settle();
            went_on += tlsm(&rig).resumed;
            rig.put(400, 1_000_000);
            rig.check();
            assert_eq!(tlsm(&rig).buried_bytes, 0, "{:?}", tlsm(&rig));
            rig.options.tuning = first.tuning;
            let rig = rig.reopened();
            rig.check();
        }
    }
    assert!(went_on > 0, "no job went on");
}

/// The lists of another process take more than the capacity, or almost all of it. All of them can
/// be read, and every entry can be written again.
#[test]
fn tlsm_06_a_pool_with_little_room_goes_on() {
    for percent in [30, 90, 105, 110, 130] {
        let rig = Rig::loaded(Profile::Tlsm, 2_000, lists(POOL_BYTES, Tiering::Lru));
        let held = tlsm(&rig);
        let mut rig = rig;
        rig.options.tuning.tlsm.capacity_bytes =
            Some((held.node_bytes + held.chunk_bytes) * percent / 100);
        let mut rig = rig.reopened();
        rig.check();
        for key in rig.model.keys().cloned().collect::<Vec<_>>() {
            rig.put_one(key);
        }
        rig.settle();
        rig.check();
        let lists = tlsm(&rig);
        assert!(
            lists.node_bytes + lists.chunk_bytes <= lists.capacity_bytes,
            "{percent}: {lists:?}"
        );
        rig.killed().check();
    }
}

/// An id that a list of a cut compaction has is not given to a list that comes before the
/// compaction goes on.
#[test]
fn tlsm_10_ids_of_a_cut_job_are_not_used_again() {
    let mut resumed = 0;
    for stores in [60, 90, 120, 150] {
        let mut rig = Rig::loaded(Profile::Tlsm, 1_200, lists(POOL_BYTES, Tiering::Lru));
        rig.delete_some();
        // Each process flushes what the last one left in its log, before anything else.
        let Some(mut rig) = cut_in_a_compaction(rig, stores) else {
            panic!("the compaction was complete");
        };
        for n in 0..50_u8 {
            let (key, value) = (vec![b'x', n], vec![n; 300]);
            rig.db.put(&key, &value).unwrap();
            rig.model.insert(key, value);
        }
        let rig = rig.killed();
        rig.settle();
        rig.check();
        resumed += tlsm(&rig).resumed;
        rig.killed().check();
    }
    assert!(resumed > 0, "no job went on");
}

/// Where writes are not durable at once the log is in a file alone: halves in persistent memory
/// would slow a load down.
#[test]
fn tlsm_a_log_takes_memory_only_for_durable_writes() {
    for (durability, takes) in [(Durability::Process, false), (Durability::Power, true)] {
        let rig = Rig::loaded(Profile::Tlsm, 200, |options| {
            lists(POOL_BYTES, Tiering::Lru)(options);
            options.durability = durability;
        });
        let stats = rig.stats();
        let of_log = stats.pm.iter().filter(|pm| pm.owner.starts_with("log"));
        let bytes: u64 = of_log.map(|pm| pm.live_bytes + pm.written_bytes).sum();
        assert_eq!(bytes > 0, takes, "{durability:?}: {:?}", stats.pm);
    }
}

/// Gets, steps of cursors and links read no more of persistent memory than they need.
#[test]
fn tlsm_reads_are_few() {
    let mut rig = Rig::loaded(Profile::Tlsm, 3_000, lists(POOL_BYTES, Tiering::Lru));
    rig.db.compact().unwrap();
    let cost = |what: &dyn Fn()| {
        let before = read_bytes(&rig.stats());
        what();
        read_bytes(&rig.stats()) - before
    };
    let entries = rig.model.len() as u64;
    let gets = cost(&|| {
        for key in rig.model.keys() {
            assert!(rig.db.get(key).unwrap().is_some());
        }
    });
    let steps = cost(&|| {
        let mut cursor = rig.db.cursor().unwrap();
        cursor.first().unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
    });
    let before = (read_bytes(&rig.stats()), tlsm(&rig).linked);
    rig.put(400, 1_000_000);
    rig.db.compact().unwrap();
    let linked = tlsm(&rig).linked - before.1;
    let links = read_bytes(&rig.stats()) - before.0;
    // An entry has 150 bytes, a node 16, and a search reads 16 nodes.
    let told = [gets / entries, steps / entries, links / linked];
    assert!(told[0] <= 450, "bytes per get, step and link: {told:?}");
    assert!(told[1] <= 210, "bytes per get, step and link: {told:?}");
    assert!(told[2] <= 90, "bytes per get, step and link: {told:?}");
}

/// Entries that come from files are counted as promoted, and those of lists as linked or copied. No
/// byte of a link counts as written to the SSD.
#[test]
fn tlsm_03_each_medium_is_counted_apart() {
    let written = |rig: &Rig| {
        let ssd = rig.stats().ssd;
        let of_jobs = ssd
            .iter()
            .filter(|one| ["compaction", "flush"].contains(&one.cause));
        of_jobs.map(|one| one.written_bytes).sum::<u64>()
    };
    for build in [TlsmBuild::Full, TlsmBuild::Skiplists] {
        let mut rig = Rig::new(Profile::Tlsm, |options| {
            lists(POOL_BYTES, Tiering::Lru)(options);
            options.tuning.tlsm.build = build;
        });
        rig.put(2_000, 1_000_000);
        rig.db.compact().unwrap();
        let lists = tlsm(&rig);
        assert_eq!(written(&rig), 0, "links write no file");
        assert_eq!(lists.promoted_bytes, 0, "nothing was in a file: {lists:?}");
        let links = build == TlsmBuild::Full;
        let seen = (lists.linked > 0, lists.copied_bytes > 0);
        assert_eq!(seen, (links, !links), "{lists:?}");
    }
    // Everything is in files, and then comes in.
    let mut rig = Rig::loaded(Profile::Tlsm, 1_000, lists(POOL_BYTES, Tiering::Leveled(0)));
    rig.db.compact().unwrap();
    assert_eq!(count(&tlsm(&rig).lists), 0, "{:?}", tlsm(&rig));
    rig.options.tuning.tlsm.tiering = Tiering::None;
    let mut rig = rig.reopened();
    for key in rig.model.keys().step_by(10).cloned().collect::<Vec<_>>() {
        rig.put_one(key);
    }
    rig.db.compact().unwrap();
    let lists = tlsm(&rig);
    // Each entry of up to 168 bytes comes in once, but for the hundred that were replaced.
    let promoted = 900 * 120..=1_000 * 168;
    assert!(promoted.contains(&lists.promoted_bytes), "{lists:?}");
    assert_eq!(lists.copied_bytes, 0, "{lists:?}");
    assert_eq!(written(&rig), 0, "lists are no files");
}

/// Keys are written once each, so the entries of all lists are as many as were written: none is in
/// two lists, whatever was linked, cut short or moved.
#[test]
fn tlsm_an_entry_is_in_one_list() {
    let check = |rig: &Rig| {
        flush(rig);
        rig.check();
        let entry =
            |(key, value): (&Vec<u8>, &Vec<u8>)| (20 + key.len() + value.len()).div_ceil(8) * 8;
        let bytes: usize = rig.model.iter().map(entry).sum();
        assert_eq!(tlsm(rig).live_bytes, bytes as u64, "{:?}", tlsm(rig));
    };
    let put = |rig: &mut Rig, numbers: std::ops::Range<u64>| {
        for n in numbers {
            rig.put_one(format!("key{:07}", n * 7919 % 1_000_003).into_bytes());
        }
        flush(rig);
    };
    let mut resumed = 0;
    for stores in [60, 90, 120, 150] {
        let mut rig = Rig::new(Profile::Tlsm, lists(POOL_BYTES, Tiering::Lru));
        put(&mut rig, 0..1_200);
        check(&rig);
        let Some(mut rig) = cut_in_a_compaction(rig, stores) else {
            panic!("the compaction was complete");
        };
        check(&rig);
        put(&mut rig, 1_200..2_000);
        check(&rig);
        resumed += tlsm(&rig).resumed;
        let rig = rig.killed();
        rig.db.compact().unwrap();
        check(&rig);
    }
    assert!(resumed > 0, "no job went on");
}

/// The memory of lists counts like indexes of files, and much of it is dropped again if only few
/// tables may be open.
#[test]
fn tlsm_memory_of_lists_is_counted() {
    let used = |tables: usize| {
        let rig = Rig::loaded(Profile::Tlsm, 3_000, |options| {
            lists(POOL_BYTES, Tiering::Lru)(options);
            options.max_open_files = tables;
        });
        rig.db.compact().unwrap();
        rig.check();
        let stats = rig.stats().memory;
        (stats.open_tables, stats.open_table_bytes)
    };
    let (all, few) = (used(1_000), used(2));
    assert_eq!(few.0, 2);
    // Filters are dropped, which have ten bits for each entry. The places of segments and chunks
    // stay.
    assert!(few.1 + 3_000 * 10 / 8 < all.1, "{few:?} of {all:?}");
    assert!(few.1 > 20_000, "{few:?} of {all:?}");
}
