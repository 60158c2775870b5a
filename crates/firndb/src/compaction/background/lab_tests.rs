//! The interaction of flushes and evictions, and the state after a failed one.

use super::Job;
use crate::compaction::picker::{self, Facts};
use crate::compaction::plan::Reason;
use crate::files::FileName;
use crate::manifest::Level;
use crate::{Db, Environment, LabTuning, Options, PmConfig, Profile, Tuning};
use firn_base::clock::Clock;
use firn_base::exec::{Inline, Work};
use firn_base::{ErrorKind, FileId, SeqNo};
use firn_fs::SimFs;
use firn_pm::sim::{Mode, SimRegion};
use firn_table::sst::{Got, Query};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A database with trees of `tree_bytes` in memory.
fn open(dir: &Path, tree_bytes: u64) -> Db {
    open_in(dir, tree_bytes, Environment::default())
}

fn open_in(dir: &Path, tree_bytes: u64, environment: Environment) -> Db {
    let tree_bytes = Some(tree_bytes);
    let lab = LabTuning {
        tree_bytes,
        leaf_bytes: 256,
        log_share_max: 10.0,
        reuse_min: 0.0,
        rest_share: 1.0,
        ..LabTuning::default()
    };
    let environment = Environment {
        executor: Some(Arc::new(Inline::new())),
        ..environment
    };
    let tuning = Tuning {
        lab,
        ..Tuning::default()
    };
    Db::open(
        dir,
        Options {
            profile: Profile::Lab,
            tuning,
            environment,
            ..Options::tiny()
        },
    )
    .unwrap()
}

/// A database with trees in a pool that is durable at the fence, and a hot buffer of `hot_bytes`
/// that takes the values of all keys.
fn open_in_pool(fs: &SimFs, hot_bytes: u64) -> Db {
    let lab = LabTuning {
        tree_bytes: Some(64 << 10),
        leaf_bytes: 256,
        log_share_max: 10.0,
        reuse_min: 0.0,
        rest_share: 1.0,
        hot_bytes: Some(hot_bytes),
        hot_writes: 1,
        ..LabTuning::default()
    };
    let environment = Environment {
        fs: Some(Arc::new(fs.clone())),
        executor: Some(Arc::new(Inline::new())),
        memory: Some(SimRegion::new(1 << 20, Mode::Adr)),
        ..Environment::default()
    };
    let tuning = Tuning {
        lab,
        ..Tuning::default()
    };
    let pm = Some(PmConfig::volatile(0));
    Db::open(
        "/db",
        Options {
            profile: Profile::Lab,
            pm,
            tuning,
            environment,
            ..Options::tiny()
        },
    )
    .unwrap()
}

fn freeze_active_buffer(db: &Db) {
    db.engine.switch_buffer(&mut db.engine.commit.lock(), 0);
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

/// Evicts the next chunk from the left, of about `chunk_bytes` if level 0 has as many. Returns the
/// ids of the tables that it replaced.
fn evict_chunk(db: &Db, chunk_bytes: u64) -> Option<Vec<FileId>> {
    let job = mark_chunk(db, chunk_bytes)?;
    let replaced = job.plan.tables.iter().map(|(_, run)| run.meta.id).collect();
    db.engine.perform(job);
    Some(replaced)
}

/// Starts such an eviction.
fn mark_chunk(db: &Db, chunk_bytes: u64) -> Option<Arc<Job>> {
    let engine = &db.engine;
    let mut jobs = engine.jobs.state.lock();
    let state = engine.state.load_full();
    let tuning = Tuning {
        lab: LabTuning {
            by_log_share: 0.0,
            ..LabTuning::default()
        },
        ..Tuning::default()
    };
    let facts = Facts {
        chunk_bytes,
        tuning: &tuning,
        evicting: false,
        ..engine.manual_facts(&jobs, &state, None)
    };
    let plan = picker::pick_manual_eviction(&state, true, &facts)?;
    Some(engine.mark(&mut jobs, plan, &state))
}

/// A write that is larger than a memtable freezes an empty one, for which no log was started.
#[test]
fn a_buffer_without_a_log_is_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 64 << 10);
    db.put(key(0), [0; 100]).unwrap();
    db.flush().unwrap();
    assert!(db.stats().design.lab.unwrap().mutable_entries > 0);
    db.put(key(1), [1; 100]).unwrap();
    let switch = || db.engine.switch_buffer(&mut db.engine.commit.lock(), 0);
    switch();
    let without = db.engine.active().log_id;
    switch();
    db.put(key(2), [2; 100]).unwrap();
    assert!(!db.engine.files.path_of(FileName::Log(without)).exists());
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().memory.buffers, 1);
    (0..3).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), [i as u8; 100]));
}

/// The chunk is picked from one view of the mutable tree, which has another when it becomes the
/// immutable tree.
#[test]
fn what_is_flushed_while_an_eviction_begins_is_evicted_too() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 64 << 10);
    (0..100)
        .step_by(2)
        .for_each(|i| db.put(key(i), b"first").unwrap());
    db.flush().unwrap();
    let job = mark_chunk(&db, 1 << 20).expect("an eviction");
    assert!(job.plan.chunk.as_ref().is_some_and(|chunk| chunk.rotates));
    (0..100)
        .step_by(3)
        .for_each(|i| db.put(key(i), b"second").unwrap());
    db.flush().unwrap();
    db.engine.perform(job);
    let check = |db: &Db| {
        for i in 0..100 {
            let expected = if i % 3 == 0 {
                Some(&b"second"[..])
            } else {
                (i % 2 == 0).then_some(&b"first"[..])
            };
            assert_eq!(db.get(key(i)).unwrap().as_deref(), expected, "{i}");
        }
    };
    check(&db);
    db.wait_idle().unwrap();
    check(&db);
    db.close().unwrap();
    check(&open(dir.path(), 64 << 10));
}

/// A full level 1 waits while the trees are full, too.
#[test]
fn lab_14_a_due_eviction_comes_before_other_compactions() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 256 << 10);
    for round in 0..2 {
        (0..200).for_each(|i| db.put(key(i), [round; 100]).unwrap());
        db.compact().unwrap();
    }
    (0..200).for_each(|i| db.put(key(i), b"in the tree").unwrap());
    db.flush().unwrap();
    let engine = &db.engine;
    let state = engine.state.load_full();
    let mut limits = engine.options.limits.clone();
    limits.level_base_bytes = 1;
    let picked = |evict_share| {
        let tuning = Tuning {
            lab: LabTuning {
                evict_share,
                ..LabTuning::default()
            },
            ..Tuning::default()
        };
        let jobs = engine.jobs.state.lock();
        let facts = Facts {
            evicting: false,
            chunk_bytes: 1 << 20,
            limits: &limits,
            tuning: &tuning,
            ..engine.manual_facts(&jobs, &state, None)
        };
        picker::pick(&state, &facts).map(|plan| plan.reason)
    };
    assert_eq!(
        picked(0.8),
        Some(Reason::Size),
        "level 1 is over its target"
    );
    assert_eq!(picked(0.0), Some(Reason::Evict));
}

/// A step that does not fit leaves the tree unchanged, and the values that the tree points to.
#[test]
fn a_flush_that_finds_no_room_takes_no_pointer_away() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 8 << 10);
    (0..8).for_each(|i| db.put(key(i), b"first").unwrap());
    db.flush().unwrap();
    let uses = || db.engine.logs.values.as_ref().unwrap().uses();
    let before = uses();
    assert_eq!(before.iter().map(|used| used.entries).sum::<u64>(), 8);
    (0..8).for_each(|i| db.put(key(i), b"second").unwrap());
    (0..8).for_each(|i| db.put([key(i), vec![b'x'; 3000]].concat(), b"").unwrap());
    let buffer = db.engine.active();
    let mut queue = db.engine.commit.lock();
    db.engine.switch_buffer(&mut queue, 0);
    drop(queue);
    assert!(
        !db.engine.flush_to_trees(&buffer).unwrap(),
        "it waits for an eviction"
    );
    let trees = db.engine.trees().unwrap();
    let is_left = |i: &u32| {
        let key = key(*i);
        let got = trees.get(&Query::new(&key, SeqNo::MAX)).unwrap();
        matches!(got, Got::Found { value, .. } if *value == *b"first")
    };
    let left = (0..8).filter(is_left).count() as u64;
    assert!(left > 0, "a step failed");
    drop(trees);
    db.engine.release_trees();
    assert_eq!(uses()[0].entries, left);
    (0..8).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), b"second"));
    db.flush().unwrap();
    (0..8).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), b"second"));
}

/// An eviction holds up to three write buffers' worth of memory that the block cache does not use,
/// and one of memory that it does.
#[test]
fn an_eviction_takes_no_more_than_a_buffer_from_a_full_cache() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        profile: Profile::Lab,
        memory_limit_bytes: 16 << 20,
        block_cache_bytes: None,
        ..Options::tiny()
    };
    let db = Db::open(dir.path(), options).unwrap();
    let (engine, buffer) = (&db.engine, db.engine.budget.write_buffer_bytes as u64);
    assert_eq!(engine.chunk_bytes(), 3 * buffer, "it is empty");
    let cache = &engine.tables.context().cache;
    let lendable = engine.tables.lendable(3 * buffer);
    (0..u64::MAX)
        .take_while(|_| cache.bytes() + buffer < lendable)
        .for_each(|at| {
            cache.insert_value(FileId(1), at, &[0; 1000]);
        });
    assert_eq!(engine.chunk_bytes(), buffer, "it is nearly full");
}

/// A user's compaction makes room with its next job, for which writers wait.
#[test]
fn a_users_compaction_is_not_idle_between_its_actions() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 64 << 10);
    let set = |manual| db.engine.jobs.state.lock().manual = manual;
    set(true);
    assert!(!db.engine.is_idle());
    set(false);
    assert!(db.engine.is_idle());
}

/// Another worker may release the last leaves between a step that found no room and this check.
#[test]
fn room_that_came_meanwhile_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 8 << 10);
    let trees = db.engine.trees().unwrap();
    assert!(trees.mutable.leaves() == 0 && trees.immutable.is_none() && !trees.store.is_short());
    assert!(db.engine.may_come_by_room().unwrap());
}

/// No room can be made for a leaf: no thread may wait for that, and each flush returns the error.
#[test]
fn a_leaf_that_is_larger_than_all_is_an_error_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual();
    let environment = Environment {
        clock: Some(clock.clone()),
        ..Environment::default()
    };
    let db = open_in(dir.path(), 8 << 10, environment);
    db.put(key(1), b"value").unwrap();
    db.flush().unwrap();
    db.put([7; 20_000], b"").unwrap();
    for time in 0..3 {
        assert_eq!(
            db.flush().unwrap_err().kind(),
            ErrorKind::NoSpace,
            "time {time}"
        );
        clock.advance(Duration::from_secs(1));
        db.engine.step();
        assert!(db.engine.background_error().is_some(), "it was tried again");
    }
    assert_eq!(db.get(key(1)).unwrap().unwrap(), b"value");
    assert_eq!(db.get([7; 20_000]).unwrap().unwrap(), b"");
}

/// A chunk by log is made of leaves of the oldest log, wherever they are.
#[test]
fn lab_09_a_chunk_by_log_takes_from_the_oldest() {
    let environment = Environment {
        fs: Some(Arc::new(SimFs::new(1))),
        ..Environment::default()
    };
    let db = open_in(Path::new("/db"), 512 << 10, environment);
    let by_log = || db.stats().design.lab.unwrap().chunks_by_log;
    let entries = |id: FileId| {
        let uses = db.engine.logs.values.as_ref().unwrap().uses();
        uses.iter()
            .find(|used| used.log_id == id)
            .map_or(0, |used| used.entries)
    };
    let oldest = || {
        let uses = db.engine.logs.values.as_ref().unwrap().uses();
        uses.iter()
            .find(|used| used.entries > 0)
            .map_or(FileId(0), |used| used.log_id)
    };
    let (mut chunks, mut taken) = (0, 0);
    for i in 0..60_000 {
        // The oldest log is the one of the last leaves.
        db.put(key(90_000 - i), [1; 100]).unwrap();
        if i % 50 != 0 {
            continue;
        }
        loop {
            let (before, log) = (by_log(), oldest());
            let held = entries(log);
            if !db.engine.step() {
                break;
            }
            if by_log() > before {
                chunks += 1;
                taken += u64::from(held - entries(log) >= held.min(100));
            }
        }
    }
    assert!(chunks > 3 && taken == chunks, "{taken} of {chunks} chunks");
}

/// Tables of level 1 begin and end at keys where leaves do not. No table written by one chunk is
/// rewritten by the next, and the leaf across the edge is seen by all readers that should see it.
#[test]
fn a_chunk_ends_where_a_table_of_level_1_does() {
    let environment = Environment {
        fs: Some(Arc::new(SimFs::new(1))),
        ..Environment::default()
    };
    let db = open_in(Path::new("/db"), 512 << 10, environment);
    let value = |round: u32, i: u32| [&round.to_be_bytes()[..], &[i as u8; 100]].concat();
    let engine = &db.engine;
    let level1 = || -> Vec<FileId> {
        let runs = engine.state.load().runs(Level(1));
        runs.iter().map(|run| run.meta.id).collect()
    };
    let (mut edges, mut replaced) = (0, 0);
    for round in 0..3 {
        // Keys between existing ones, so that leaves are cut at keys where tables are not.
        let of_round = |i: &u32| !(i + round).is_multiple_of(3);
        (0..2000)
            .filter(of_round)
            .for_each(|i| db.put(key(i), value(round, i)).unwrap());
        let snapshot = db.snapshot();
        db.flush().unwrap();
        (0..2000)
            .filter(of_round)
            .for_each(|i| db.put(key(i), value(round + 10, i)).unwrap());
        db.flush().unwrap();
        let newest = |i: u32, round: u32| {
            (0..=round)
                .rev()
                .find(|round| !(i + round).is_multiple_of(3))
        };
        let before = level1();
        while let Some(ids) = evict_chunk(&db, 24_000) {
            let again: Vec<FileId> = ids
                .iter()
                .copied()
                .filter(|id| !before.contains(id))
                .collect();
            assert_eq!(again, [], "round {round}: written by the chunk before");
            replaced += ids.len();
            edges += usize::from(!engine.trees().unwrap().immutable_from.is_empty());
            for i in (0..2000).filter(|i| newest(*i, round).is_some()) {
                let of = newest(i, round).unwrap();
                let at = |of: u32| {
                    if of == round {
                        value(of, i)
                    } else {
                        value(of + 10, i)
                    }
                };
                assert_eq!(
                    db.get(key(i)).unwrap().unwrap(),
                    value(of + 10, i),
                    "round {round}, {i}"
                );
                assert_eq!(
                    snapshot.get(key(i)).unwrap().unwrap(),
                    at(of),
                    "round {round}, {i}, as it was"
                );
            }
            let mut iter = db.cursor().unwrap();
            iter.first().unwrap();
            let mut seen = 0;
            while iter.valid() {
                seen += 1;
                iter.next().unwrap();
            }
            assert_eq!(
                seen,
                (0..2000).filter(|i| newest(*i, round).is_some()).count()
            );
        }
        assert!(engine.trees().unwrap().are_empty());
    }
    assert!(
        edges > 10 && replaced > 20,
        "{edges} edges, {replaced} tables"
    );
}

/// An entry that was overwritten after the trees rotated is in the newer tree. The older version in
/// the older tree is dropped unless a snapshot sees it.
#[test]
fn a_chunk_leaves_out_what_was_written_again() {
    let open = |fs: &SimFs| {
        let environment = Environment {
            fs: Some(Arc::new(fs.clone())),
            ..Environment::default()
        };
        open_in(Path::new("/db"), 512 << 10, environment)
    };
    let value = |round: Option<u8>| round.map(|round| vec![round; 100]);
    let then = |i: u32| Some(1 + u8::from((1000..2000).contains(&i)));
    let now = |i: u32| (i < 2500).then_some(1 + (i / 1000) as u8);
    for chunks in 1.. {
        let fs = SimFs::new(1);
        let db = open(&fs);
        let write = |i: u32, round: u8| db.put(key(i), [round; 100]).unwrap();
        (0..3000).for_each(|i| write(i, 1));
        db.flush().unwrap();
        evict_chunk(&db, 24_000).expect("the trees change places");
        (1000..2000).for_each(|i| write(i, 2));
        let snapshot = db.snapshot();
        (2000..2500).for_each(|i| write(i, 3));
        (2500..3000).for_each(|i| db.delete(key(i)).unwrap());
        db.flush().unwrap();
        (0..chunks).for_each(|_| assert!(evict_chunk(&db, 24_000).is_some(), "there is more"));
        for i in 0..3000 {
            assert_eq!(
                db.get(key(i)).unwrap().map(|found| found.to_vec()),
                value(now(i)),
                "{i}"
            );
            assert_eq!(
                snapshot.get(key(i)).unwrap().map(|found| found.to_vec()),
                value(then(i)),
                "{i}, as it was"
            );
        }
        let lab = db.stats().design.lab.unwrap();
        let after = open(&fs.power_cut(chunks));
        for i in 0..3000 {
            let found = after.get(key(i)).unwrap().map(|found| found.to_vec());
            assert_eq!(
                found,
                value(now(i)),
                "{i}, after {chunks} chunks and a power cut"
            );
        }
        if lab.immutable_entries == 0 {
            assert_eq!(
                (lab.chunk_entries, lab.chunk_entries_replaced),
                (3000, 1000)
            );
            assert!(chunks > 5);
            break;
        }
    }
}

/// Leaves store less than their keys at the ends of a tree, whose first and last leaf may be the
/// only ones.
#[test]
fn a_chunk_replaces_no_table_that_it_has_nothing_for() {
    let environment = Environment {
        fs: Some(Arc::new(SimFs::new(1))),
        ..Environment::default()
    };
    let db = open_in(Path::new("/db"), 512 << 10, environment);
    (0..3000).for_each(|i| db.put(key(i), [1; 100]).unwrap());
    db.flush().unwrap();
    while evict_chunk(&db, 1 << 20).is_some() {}
    let level1 = || -> Vec<_> {
        let state = db.engine.state.load();
        state
            .runs(Level(1))
            .iter()
            .map(|run| run.meta.clone())
            .collect()
    };
    let (first, last) = (key(1400), key(1499));
    (1400..1500).for_each(|i| db.put(key(i), [2; 100]).unwrap());
    db.flush().unwrap();
    let before = level1();
    assert_eq!(
        evict_chunk(&db, 1 << 20).unwrap().len(),
        before.len(),
        "the leaves have no other bounds"
    );
    let after: Vec<FileId> = level1().iter().map(|table| table.id).collect();
    let met = before
        .iter()
        .filter(|table| *table.largest >= *first && *table.smallest <= *last)
        .count();
    let gone = before
        .iter()
        .filter(|table| !after.contains(&table.id))
        .count();
    assert!(
        gone == met && met < before.len() / 2,
        "{gone} of {} tables replaced, {met} met",
        before.len()
    );
    (0..3000).for_each(|i| {
        let round = 1 + u8::from((1400..1500).contains(&i));
        assert_eq!(db.get(key(i)).unwrap().unwrap(), [round; 100], "{i}");
    });
}

/// A chunk leaves out entries of which the mutable tree has newer ones. Tables that a checkpoint
/// links may be newer than its first read point, which does not see the newer entry.
#[test]
fn a_checkpoint_has_what_was_replaced_behind_its_read_point() {
    let fs = SimFs::new(1);
    let environment = || Environment {
        fs: Some(Arc::new(fs.clone())),
        ..Environment::default()
    };
    let db = open_in(Path::new("/db"), 512 << 10, environment());
    let mut states = 0;
    let shared = || {
        states += 1;
        if states == 1 {
            (0..3000).for_each(|i| db.put(key(i), [1; 100]).unwrap());
            db.flush().unwrap();
            evict_chunk(&db, 24_000).expect("the trees change places");
            (1000..2000).for_each(|i| db.put(key(i), [2; 100]).unwrap());
            db.flush().unwrap();
            while db.stats().design.lab.unwrap().immutable_entries > 0 {
                evict_chunk(&db, 24_000).expect("there is more");
            }
            assert_eq!(db.stats().design.lab.unwrap().chunk_entries_replaced, 1000);
        }
        db.engine.share_tables()
    };
    db.engine.checkpoint_of(Path::new("/copy"), shared).unwrap();
    let copy = open_in(Path::new("/copy"), 512 << 10, environment());
    for i in 0..3000 {
        let round = 1 + u8::from((1000..2000).contains(&i));
        assert_eq!(
            copy.get(key(i)).unwrap().map(|value| value.to_vec()),
            Some(vec![round; 100]),
            "{i}"
        );
    }
    assert_eq!(states, 2);
}

/// A reader from before the rotation of the trees keeps everything it can reach, even a version
/// that no read point sees any more, alone in its log or in a slot of the hot buffer that would be
/// reused at once. After the reader, the version is removed.
#[test]
fn a_change_of_trees_keeps_what_readers_from_before_it_reach() {
    for hot_bytes in [0, 256 << 10] {
        let fs = SimFs::new(1);
        let db = open_in_pool(&fs, hot_bytes);
        let engine = &db.engine;
        let write = |keys: std::ops::Range<u32>, round| {
            keys.for_each(|i| db.put(key(i), [round; 100]).unwrap())
        };
        let log = engine.files.path_of(FileName::Log(engine.active().log_id));
        write(50..51, 1);
        db.flush().unwrap();
        let snapshot = db.snapshot();
        write(0..100, 2);
        db.flush().unwrap();
        let before = engine.trees().unwrap();
        assert_eq!(
            before.retained.versions().len(),
            1,
            "what the snapshot sees"
        );
        drop(snapshot);
        write(0..100, 3);
        freeze_active_buffer(&db);
        evict_chunk(&db, 1 << 20)
            .expect("the trees change places, and the buffer is flushed beside that");
        let (lab, buffers) = (db.stats().design.lab.unwrap(), db.stats().memory.buffers);
        assert_eq!(
            (lab.mutable_entries, lab.retained_versions, buffers),
            (100, 0, 1),
            "nobody sees the first version"
        );
        for round in 4..6 {
            write(0..100, round);
            db.flush().unwrap();
            while evict_chunk(&db, 1 << 20).is_some() {}
        }
        engine.remove_obsolete(true);
        let values = || {
            db.stats()
                .design
                .lab
                .unwrap()
                .hot
                .map_or(0, |hot| hot.values)
        };
        let (is_held, held) = (fs.len(&log).is_ok(), values());
        before.verify(|_, _| ()).unwrap();
        assert!(
            is_held != (hot_bytes > 0),
            "the log has the version, or a slot does"
        );
        drop(before);
        engine.remove_obsolete(true);
        assert!(
            fs.len(&log).is_err() && (hot_bytes == 0 || values() < held),
            "{held} values, then {}",
            values()
        );
        (0..100).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), [5; 100]));
        db.verify().unwrap();
    }
}

/// As above, for a cursor that steps back over such a version.
#[test]
fn a_cursor_steps_back_from_before_a_change_of_trees() {
    for hot_bytes in [0, 256 << 10] {
        let db = open_in_pool(&SimFs::new(1), hot_bytes);
        let write = |keys: std::ops::Range<u32>, round| {
            keys.for_each(|i| db.put(key(i), [round; 100]).unwrap())
        };
        write(50..51, 1);
        db.flush().unwrap();
        let snapshot = db.snapshot();
        write(0..100, 2);
        db.flush().unwrap();
        let mut iter = db.cursor().unwrap();
        iter.last().unwrap();
        drop(snapshot);
        write(0..100, 3);
        freeze_active_buffer(&db);
        evict_chunk(&db, 1 << 20)
            .expect("the trees change places, and the buffer is flushed beside that");
        db.engine.remove_obsolete(true);
        write(0..100, 4);
        for i in (0..100).rev() {
            assert_eq!((iter.key(), iter.value()), (&key(i)[..], &[2; 100][..]));
            iter.prev().unwrap();
        }
        assert!(!iter.valid());
    }
}

/// Rebuilt trees have the same numbers as those of the previous session, and the manifest may still
/// say which keys of those were evicted: all, up to the same entry.
#[test]
fn what_was_evicted_in_another_session_is_not_taken_along() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 8 << 10);
    (0..20).for_each(|i| db.put(key(i), b"first").unwrap());
    db.compact().unwrap();
    db.close().unwrap();
    let db = open(dir.path(), 8 << 10);
    let long = |i: u32| [key(i), vec![b'x'; 100]].concat();
    (0..100).for_each(|i| db.put(long(i), b"second").unwrap());
    let engine = &db.engine;
    let buffer = engine.active();
    let mut queue = engine.commit.lock();
    engine.switch_buffer(&mut queue, 0);
    drop(queue);
    assert!(
        !engine.flush_to_trees(&buffer).unwrap(),
        "it waits for an eviction"
    );
    evict_chunk(&db, 2000).expect("an eviction");
    let left = db.stats().design.lab.unwrap().immutable_entries;
    assert!(left > 0, "a part of the tree was evicted");
    db.flush().unwrap();
    (0..100).for_each(|i| assert_eq!(db.get(long(i)).unwrap().unwrap(), b"second", "{i}"));
}
