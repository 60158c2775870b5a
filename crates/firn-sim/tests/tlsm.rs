//! The rows of TLSM (docs/design/tlsm.md): the mechanisms of the design, each in a small database
//! that shows it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_pm::sim::{Cut, Mode, SimRegion};
use firndb::{ErrorKind, Event, Options, Profile, Tiering, TlsmBuild, TlsmVictim, mechanisms};
use rig::lists::{POOL_BYTES, count, cut_in_a_compaction, killed_in_a_compaction, lists, tlsm};
use rig::{Rig, flush, row, row_of_option, tables_of, tables_on_disk, without_each};

#[test]
fn tlsm_holds_what_a_map_holds() {
    for tiering in [Tiering::Lru, Tiering::Leveled(1), Tiering::None] {
        let mut rig = Rig::loaded(Profile::Tlsm, 6_000, lists(POOL_BYTES, tiering));
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
        let last = tlsm(&rig);
        assert_eq!(last.buried_bytes, 0, "{last:?}");
    }
}

#[test]
fn tlsm_small_pools_lose_nothing() {
    for kib in [192, 320, 640] {
        for tiering in [Tiering::Lru, Tiering::Leveled(2)] {
            let mut rig = Rig::loaded(Profile::Tlsm, 6_000, lists(kib << 10, tiering));
            rig.check();
            rig.delete_some();
            rig.put(3_000, 5_000);
            rig.check();
            rig.killed().check();
        }
    }
}

#[test]
fn tlsm_01_tables_are_lists_in_persistent_memory() {
    row(&mechanisms::TLSM_LISTS, "files in the directory", || {
        let rig = Rig::loaded(Profile::Tlsm, 3_000, lists(POOL_BYTES, Tiering::Lru));
        let (stats, lists) = (rig.stats(), tlsm(&rig));
        assert_eq!(tables_on_disk(&rig.fs), 0, "files in the directory");
        assert_eq!(count(&lists.lists), tables_of(&stats), "{lists:?}");
        assert!(lists.lists.len() > 2, "lists on several levels: {lists:?}");
        rig.check();
    });
}

#[test]
fn tlsm_02_a_flush_copies_entries_together() {
    row_of_option("fences of a flush", |on| {
        let rig = Rig::new(Profile::Tlsm, |options| {
            lists(POOL_BYTES, Tiering::Lru)(options);
            if !on {
                options.tuning.tlsm.build = TlsmBuild::Linking;
            }
        });
        let fences = || {
            let of_lists = |owner: &str| owner == "skiplist" || owner == "payload";
            let pm = rig.stats().pm;
            let pm = pm.iter().filter(|pm| of_lists(&pm.owner));
            pm.map(|pm| pm.fences).sum::<u64>()
        };
        for n in 0..200_u32 {
            rig.db.put(n.to_be_bytes(), [n as u8; 100]).unwrap();
        }
        let before = fences();
        flush(&rig);
        let lists = tlsm(&rig);
        // 200 entries of 128 bytes are in seven chunks; one segment and one filter.
        assert!(
            fences() - before <= 12,
            "fences of a flush: {}",
            fences() - before
        );
        assert_eq!(lists.flushed_bytes, 200 * 128, "each entry is copied once");
        assert_eq!(lists.live_bytes, lists.flushed_bytes, "nodes hold places");
    });
}

#[test]
fn tlsm_03_a_compaction_links_entries() {
    row(&mechanisms::TLSM_LINK, "bytes of entries copied", || {
        let mut rig = Rig::loaded(Profile::Tlsm, 6_000, lists(POOL_BYTES, Tiering::Lru));
        rig.delete_some();
        rig.settle();
        let lists = tlsm(&rig);
        assert_eq!(lists.copied_bytes, 0, "bytes of entries copied");
        assert!(lists.linked > 6_000, "{lists:?}");
        assert_eq!(lists.promoted_bytes, 0, "no table is in a file: {lists:?}");
        rig.check();
    });
}

#[test]
fn tlsm_04_lists_end_at_a_size() {
    row(&mechanisms::TLSM_SPLIT, "lists of one compaction", || {
        let rig = Rig::loaded(Profile::Tlsm, 3_000, lists(POOL_BYTES, Tiering::Lru));
        rig.db.compact().unwrap();
        let lists = tlsm(&rig);
        assert!(
            count(&lists.lists) > 10,
            "lists of one compaction: {lists:?}"
        );
        rig.check();
    });
}

/// A snapshot after each of many writes of a key keeps its versions, which stay in one list.
#[test]
fn tlsm_04_versions_stay_together() {
    let mut rig = Rig::new(Profile::Tlsm, lists(POOL_BYTES, Tiering::Lru));
    let mut snapshots = Vec::new();
    for n in 0..500_u32 {
        rig.db.put(b"key", [n as u8; 100]).unwrap();
        snapshots.push(rig.db.snapshot());
    }
    rig.model.insert(b"key".to_vec(), vec![243; 100]);
    rig.db.compact().unwrap();
    for (n, snapshot) in snapshots.iter().enumerate() {
        assert_eq!(snapshot.get(b"key").unwrap().unwrap(), [n as u8; 100]);
    }
    let lists = tlsm(&rig);
    assert_eq!(count(&lists.lists), 1, "{lists:?}");
    drop(snapshots);
    rig.check();
}

/// (compactions that were cut, those that went on)
fn cut_everywhere() -> (u64, u64) {
    let (mut resumed, mut cuts) = (0, 0);
    for stores in (3..4000).step_by(11) {
        let mut rig = Rig::loaded(Profile::Tlsm, 1_200, lists(POOL_BYTES, Tiering::Lru));
        rig.delete_some();
        let Some(rig) = cut_in_a_compaction(rig, stores) else {
            break;
        };
        cuts += 1;
        rig.check();
        rig.settle();
        rig.check();
        let lists = tlsm(&rig);
        assert_eq!(lists.buried_bytes, 0, "{lists:?}");
        resumed += lists.resumed;
    }
    assert!(cuts > 5, "{cuts} cuts");
    (cuts, resumed)
}

#[test]
fn tlsm_05_a_list_names_the_inputs_of_its_job() {
    row(&mechanisms::TLSM_INPUTS, "found by their inputs", || {
        let (cuts, resumed) = cut_everywhere();
        assert!(resumed > 0, "of {cuts} jobs none was found by their inputs");
    });
}

#[test]
fn tlsm_09_full_pool_clears_itself() {
    row_of_option("refused", |on| {
        let tiering = if on { Tiering::None } else { Tiering::Lru };
        let mut rig = Rig::new(Profile::Tlsm, lists(1 << 20, tiering));
        let put = |rig: &mut Rig| {
            let key = format!("key{:07}", rig.random.below(1_000_000)).into_bytes();
            let put = rig.db.put(&key, [1; 100]);
            if put.is_ok() {
                rig.model.insert(key, vec![1; 100]);
                rig.inline.run();
            }
            put
        };
        let refused = (0..12_000).find_map(|_| put(&mut rig).err());
        let error = refused.expect("a put is refused");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("delete something"), "{error}");
        rig.check();
        // Deletes are taken, and make room again without anything else.
        let rest = |rig: &Rig| {
            let clock = rig.options.environment.clock.clone().unwrap();
            for _ in 0..5 {
                clock.advance(std::time::Duration::from_secs(1));
                rig.inline.run();
            }
        };
        let keys: Vec<_> = rig.model.keys().step_by(2).cloned().collect();
        for (taken, key) in keys.into_iter().enumerate() {
            while rig.db.delete(&key).is_err() {
                assert!(taken > 100, "{taken} deletes were taken at once");
                rest(&rig);
            }
            rig.model.remove(&key);
        }
        rest(&rig);
        rig.check();
        for _ in 0..1_000 {
            put(&mut rig).expect("room again");
        }
        rig.check();
    });
}

/// Updates in place of new keys leave garbage, so writers wait until it was collected, and none is
/// refused. At rest nothing is copied in and out without end.
#[test]
fn tlsm_09_updates_wait_for_room() {
    let mut rig = Rig::new(Profile::Tlsm, lists(1 << 20, Tiering::None));
    for i in 0..30_000_u64 {
        let key = format!("key{:07}", rig.random.below(2_500)).into_bytes();
        let value = vec![i as u8; 100];
        rig.db.put(&key, &value).expect("a put is not refused");
        rig.model.insert(key, value);
        if i % 7 == 0 {
            rig.inline.run();
        }
    }
    rig.settle();
    let lists = tlsm(&rig);
    // Three times the pool was written at least.
    assert!(lists.flushed_bytes > 3 << 20, "{lists:?}");
    rig.check();
}

/// Values that compress take much more room in a list than in a file, which is how their room is
/// estimated. What comes in at rest and finds none, or drives others out, does so once.
#[test]
fn tlsm_rest_ends() {
    for pool_kib in [512, 768, 1024, 1536] {
        let mut rig = Rig::new(Profile::Tlsm, |options| {
            lists(pool_kib << 10, Tiering::Lru)(options);
            options.compression = firndb::Codec::Lz4;
        });
        for i in 0..3_000_u64 {
            let key = format!("key{:07}", rig.random.below(1_000_000)).into_bytes();
            rig.db.put(&key, [7; 1000]).unwrap();
            rig.model.insert(key, vec![7; 1000]);
            if i % 20 == 0 {
                rig.inline.run();
            }
        }
        let clock = rig.options.environment.clock.clone().unwrap();
        let mut steps = 0;
        for _ in 0..60 {
            clock.advance(std::time::Duration::from_secs(1));
            while rig.inline.step() {
                steps += 1;
                assert!(steps < 2_000, "{pool_kib}: no end: {:?}", tlsm(&rig));
            }
        }
        assert!(tlsm(&rig).promoted_bytes > 0, "{:?}", tlsm(&rig));
        rig.check();
    }
}

#[test]
fn tlsm_10_a_cut_compaction_goes_on() {
    row(&mechanisms::TLSM_RESUME, "went on", || {
        let (cuts, resumed) = cut_everywhere();
        assert!(resumed > 0, "none of {cuts} compactions went on");
    });
}

/// A byte that a cut compaction wrote is changed. The inputs have everything.
#[test]
fn tlsm_10_damage_to_its_lists_costs_nothing() {
    /// The pool's header and roots end before this byte.
    const LISTS_AT: usize = 64 << 10;
    let (mut again, mut resumed) = (0, 0);
    for stores in (3..4000).step_by(61) {
        let rig = Rig::loaded(Profile::Tlsm, 1_200, |options| {
            lists(POOL_BYTES, Tiering::Lru)(options);
            // Entries are copied, so that there are some to damage.
            options.tuning.tlsm.build = TlsmBuild::Skiplists;
        });
        flush(&rig);
        rig.settle();
        let before = rig.options.environment.memory.as_ref().unwrap().cut();
        let before = before.image(1);
        let events = rig.events.clone();
        events.0.lock().unwrap().clear();
        let damage = |cut: Cut| {
            let mut image = cut.image(1);
            let is_new = |at: &usize| image[*at] != before[*at];
            let new: Vec<usize> = (LISTS_AT..image.len()).filter(is_new).collect();
            if let Some(at) = new.get(stores as usize * 7919 % new.len().max(1)) {
                image[*at] ^= 1;
            }
            SimRegion::from_image(image, Mode::Adr)
        };
        let Some(rig) = killed_in_a_compaction(rig, stores, damage) else {
            break;
        };
        let of_job = |event: &Event| matches!(event, Event::Compacted { .. });
        if events.0.lock().unwrap().iter().any(of_job) {
            // The lists of a whole job are in use, and their damage is not harmless.
            break;
        }
        rig.check();
        rig.settle();
        rig.check();
        let lists = tlsm(&rig);
        again += lists.discarded;
        resumed += lists.resumed;
    }
    assert!(again > 0, "no damage was seen, and {resumed} jobs went on");
}

/// The lists of a compaction that was cut are freed if its inputs change before it goes on.
#[test]
fn tlsm_10_stale_jobs_are_freed() {
    let mut discarded = 0;
    for stores in (3..400).step_by(11) {
        let rig = Rig::loaded(Profile::Tlsm, 1_200, lists(POOL_BYTES, Tiering::Lru));
        let Some(rig) = cut_in_a_compaction(rig, stores) else {
            break;
        };
        // A user's compaction goes first.
        rig.db.compact().unwrap();
        rig.settle();
        rig.check();
        let lists = tlsm(&rig);
        assert_eq!(lists.buried_bytes, 0, "{lists:?}");
        discarded += lists.discarded;
    }
    assert!(discarded > 0);
}

#[test]
fn tlsm_06_space_is_freed_behind_the_last_reader() {
    row(&mechanisms::TLSM_FREE, "bytes that nothing has", || {
        let rig = Rig::loaded(Profile::Tlsm, 3_000, lists(POOL_BYTES, Tiering::Lru));
        let mut cursor = rig.db.cursor().unwrap();
        cursor.first().unwrap();
        rig.db.compact().unwrap();
        let held = tlsm(&rig);
        assert!(
            held.buried_bytes > 0,
            "a cursor keeps what it reads: {held:?}"
        );
        for (key, value) in &rig.model {
            assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
            cursor.next().unwrap();
        }
        drop(cursor);
        rig.settle();
        let left = tlsm(&rig).buried_bytes;
        assert_eq!(left, 0, "bytes that nothing has");
    });
}

#[test]
fn tlsm_06_garbage_is_bounded() {
    row(&mechanisms::TLSM_RELOCATE, "garbage per live byte", || {
        let mut rig = Rig::loaded(Profile::Tlsm, 3_000, lists(POOL_BYTES, Tiering::Lru));
        for _ in 0..8 {
            rig.put(1_500, 4_000);
            rig.db.compact().unwrap();
            rig.settle();
        }
        let lists = tlsm(&rig);
        let share = lists.chunk_bytes as f64 / lists.live_bytes as f64;
        assert!(share <= 1.35, "garbage per live byte: {share:.2} {lists:?}");
        assert!(lists.relocated_bytes > 0, "{lists:?}");
        rig.check();
    });
}

#[test]
fn tlsm_07_levels_are_in_their_media() {
    row_of_option("tables of deeper levels", |on| {
        let tiering = if on {
            Tiering::Leveled(1)
        } else {
            Tiering::Lru
        };
        let mut rig = Rig::new(Profile::Tlsm, lists(POOL_BYTES, tiering));
        for _ in 0..10 {
            rig.put(800, 1_000_000);
            let (stats, lists) = (rig.stats(), tlsm(&rig));
            let deeper = lists.lists.iter().skip(2).sum::<usize>();
            assert_eq!(deeper, 0, "tables of deeper levels in persistent memory");
            let upper: usize = stats.levels[..2].iter().map(|level| level.tables).sum();
            assert_eq!(upper, count(&lists.lists), "tables of level 0 and 1");
        }
        assert!(rig.stats().levels[2].tables > 0, "{:?}", rig.stats().levels);
        rig.check();
    });
}

#[test]
fn tlsm_08_the_deepest_lists_leave() {
    row_of_option("levels with files", |on| {
        let tiering = if on { Tiering::Lru } else { Tiering::None };
        let bytes = if on { 640 << 10 } else { POOL_BYTES };
        let mut rig = Rig::new(Profile::Tlsm, lists(bytes, tiering));
        rig.put(6_000, 1_000_000);
        let (stats, lists) = (rig.stats(), tlsm(&rig));
        let in_files = |level: usize| {
            let of_lists = lists.lists.get(level).copied().unwrap_or(0);
            stats.levels[level].tables - of_lists
        };
        let levels: Vec<usize> = (0..stats.levels.len())
            .filter(|&level| in_files(level) > 0)
            .collect();
        assert!(!levels.is_empty(), "levels with files: {levels:?}");
        assert!(levels[0] > 0, "level 0 stays: {levels:?}");
        assert!(lists.evictions > 0, "{lists:?}");
        let used = (lists.node_bytes + lists.chunk_bytes) as f64 / lists.capacity_bytes as f64;
        assert!(used <= 0.81, "{used:.2} of the capacity is used: {lists:?}");
        rig.check();
    });
}

#[test]
fn tlsm_08_the_victim_is_chosen_by_age_or_by_use() {
    for victim in [TlsmVictim::Oldest, TlsmVictim::LeastUsed] {
        let mut rig = Rig::new(Profile::Tlsm, |options| {
            lists(640 << 10, Tiering::Lru)(options);
            options.tuning.tlsm.victim = victim;
        });
        rig.put(6_000, 1_000_000);
        rig.check();
        assert!(tlsm(&rig).evictions > 0);
    }
}

#[test]
fn tlsm_08_small_pool_still_links() {
    let mut rig = Rig::new(Profile::Tlsm, |options| {
        lists(416 << 10, Tiering::Lru)(options);
        options.limits.level0_trigger = 100;
        options.limits.level0_slow = 200;
        options.limits.level0_stop = 300;
    });
    rig.put(5_000, 1_000);
    let lists = tlsm(&rig);
    assert!(lists.linked > 1_000, "{lists:?}");
    rig.check();
}

#[test]
fn tlsm_11_builds_can_be_chosen() {
    row_of_option("bytes copied by the first build", |on| {
        let build = |build: TlsmBuild| {
            let mut rig = Rig::new(Profile::Tlsm, |options| {
                lists(POOL_BYTES, Tiering::Lru)(options);
                options.tuning.tlsm.build = build;
            });
            rig.put(2_000, 1_000);
            rig.check();
            let fences: u64 = rig.stats().pm.iter().map(|pm| pm.fences).sum();
            (tlsm(&rig).copied_bytes, fences)
        };
        let first = if on {
            TlsmBuild::Skiplists
        } else {
            TlsmBuild::Full
        };
        let (copied, fields) = build(first);
        let (linked, entries) = build(TlsmBuild::Linking);
        let (_, together) = build(TlsmBuild::Full);
        assert!(copied > 0, "bytes copied by the first build");
        assert_eq!(linked, 0, "the second one links");
        assert!(
            fields > 2 * entries && entries > 2 * together,
            "fences: {fields}, {entries}, {together}"
        );
    });
}

#[test]
fn tlsm_any_tiering_opens() {
    let mut rig = Rig::loaded(Profile::Tlsm, 3_000, lists(POOL_BYTES, Tiering::Lru));
    for tiering in [
        Tiering::Leveled(0),
        Tiering::None,
        Tiering::Leveled(3),
        Tiering::Lru,
    ] {
        rig.options.tuning.tlsm.tiering = tiering;
        rig = rig.reopened();
        rig.check();
        rig.put(1_000, 1_000_000);
        rig.check();
    }
}

#[test]
fn tlsm_bad_options_are_refused() {
    let open = |change: fn(&mut Options)| {
        let rig = Rig::new(Profile::Classic, |_| {});
        let mut options = rig.options.clone().profile(Profile::Tlsm);
        lists(POOL_BYTES, Tiering::None)(&mut options);
        change(&mut options);
        let error = firndb::Db::open("/other", options).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = open(|options| options.pm = None);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("tiering"), "{text}");
    let (kind, text) = open(|options| options.tuning.tlsm.unit_bytes = Some(5000));
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("unit_bytes"), "{text}");
    let (kind, text) = open(|options| options.tuning.tlsm.evict_share = 2.0);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("evict_share"), "{text}");
    let (kind, text) = open(|options| options.tuning.tlsm.capacity_bytes = Some(20 << 10));
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("write buffer"), "{text}");
    // One buffer fits, but not what writes need where no table may leave.
    let (kind, text) = open(|options| options.tuning.tlsm.capacity_bytes = Some(100 << 10));
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("choose another tiering"), "{text}");
}

#[test]
fn tlsm_nothing_is_lost_without_a_mechanism() {
    let count = without_each("tlsm.", || {
        let mut rig = Rig::loaded(Profile::Tlsm, 2_000, lists(POOL_BYTES, Tiering::Lru));
        rig.delete_some();
        rig.put(500, 2_000);
        rig.check();
        rig.killed().check();
    });
    assert_eq!(count, 7);
}
