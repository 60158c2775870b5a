//! What flushes and evictions do to each other, and what a failed one leaves.

use crate::plan::Reason;
use crate::shape::{self, Facts};
use crate::{Db, Environment, LabTuning, Options, Profile, Tuning};
use firn_base::clock::Clock;
use firn_base::exec::{Inline, Work};
use firn_base::{ErrorKind, SeqNo};
use firn_fs::SimFs;
use firn_table::sst::{Got, Query};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Trees in memory of `tree_bytes`.
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
    let environment = Environment { executor: Some(Arc::new(Inline::new())), ..environment };
    let tuning = Tuning { lab, ..Tuning::default() };
    Db::open(dir, Options { profile: Profile::Lab, tuning, environment, ..Options::tiny() }).unwrap()
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

/// The chunk is picked from one view of the mutable tree, and another is there when it becomes the immutable one.
#[test]
fn what_is_flushed_while_an_eviction_begins_is_evicted_too() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 64 << 10);
    (0..100).step_by(2).for_each(|i| db.put(key(i), b"first").unwrap());
    db.flush().unwrap();
    let inner = &db.inner;
    let mut jobs = inner.jobs.state.lock();
    let state = inner.state.load_full();
    let facts = Facts { chunk_bytes: 1 << 20, ..inner.manual_facts(&jobs) };
    let plan = shape::pick_manual_eviction(&state, true, &facts).expect("an eviction");
    let job = inner.mark(&mut jobs, plan, &state);
    drop((jobs, state));
    assert!(job.plan.chunk.as_ref().is_some_and(|chunk| chunk.rotates));
    (0..100).step_by(3).for_each(|i| db.put(key(i), b"second").unwrap());
    db.flush().unwrap();
    inner.perform(job);
    let check = |db: &Db| {
        for i in 0..100 {
            let expected = if i % 3 == 0 { Some(&b"second"[..]) } else { (i % 2 == 0).then_some(&b"first"[..]) };
            assert_eq!(db.get(key(i)).unwrap().as_deref(), expected, "{i}");
        }
    };
    check(&db);
    db.wait_idle().unwrap();
    check(&db);
    db.close().unwrap();
    check(&open(dir.path(), 64 << 10));
}

/// A full level 1 waits while the trees are full too.
#[test]
fn lab_14_a_due_eviction_comes_before_other_compactions() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 256 << 10);
    for round in 0..2 {
        (0..200).for_each(|i| db.put(key(i), [round; 100]).unwrap());
        db.compact_range(None, None).unwrap();
    }
    (0..200).for_each(|i| db.put(key(i), b"in the tree").unwrap());
    db.flush().unwrap();
    let inner = &db.inner;
    let state = inner.state.load_full();
    let mut limits = inner.options.limits.clone();
    limits.level_base_bytes = 1;
    let picked = |evict_share| {
        let lab = LabTuning { evict_share, ..LabTuning::default() };
        let jobs = inner.jobs.state.lock();
        let facts =
            Facts { evicting: false, chunk_bytes: 1 << 20, limits: &limits, lab: &lab, ..inner.manual_facts(&jobs) };
        shape::pick(&state, &facts).map(|plan| plan.reason)
    };
    assert_eq!(picked(0.8), Some(Reason::Size), "level 1 is over its target");
    assert_eq!(picked(0.0), Some(Reason::Evict));
}

/// A step that does not fit leaves the tree as it was, and with it what the tree points to.
#[test]
fn a_flush_that_finds_no_room_takes_no_pointer_away() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 8 << 10);
    (0..8).for_each(|i| db.put(key(i), b"first").unwrap());
    db.flush().unwrap();
    let uses = || db.inner.logs.values.as_ref().unwrap().uses();
    let before = uses();
    assert_eq!(before.iter().map(|used| used.entries).sum::<u64>(), 8);
    (0..8).for_each(|i| db.put(key(i), b"second").unwrap());
    (0..8).for_each(|i| db.put([key(i), vec![b'x'; 3000]].concat(), b"").unwrap());
    let buffer = db.inner.state.load().parts[0].buffers[0].clone();
    let mut queue = db.inner.commit.lock();
    db.inner.switch_buffer(&mut queue, 0);
    drop(queue);
    assert!(!db.inner.flush_to_trees(0, &buffer).unwrap(), "it waits for an eviction");
    let trees = db.inner.state.load().parts[0].trees.clone().unwrap();
    let is_left = |i: &u32| {
        let key = key(*i);
        let got = trees.get(&Query::new(&key, SeqNo::MAX)).unwrap();
        matches!(got, Got::Found { value, .. } if *value == *b"first")
    };
    let left = (0..8).filter(is_left).count() as u64;
    assert!(left > 0, "a step failed");
    drop(trees);
    db.inner.release_trees(0);
    assert_eq!(uses()[0].entries, left);
    (0..8).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), b"second"));
    db.flush().unwrap();
    (0..8).for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap(), b"second"));
}

/// An eviction holds up to three buffers' worth of what the block cache does not use, and one of what it does.
#[test]
fn an_eviction_takes_no_more_than_a_buffer_from_a_full_cache() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { profile: Profile::Lab, memory_limit: 16 << 20, block_cache_bytes: None, ..Options::tiny() };
    let db = Db::open(dir.path(), options).unwrap();
    let (inner, buffer) = (&db.inner, db.inner.budget.write_buffer_bytes as u64);
    assert_eq!(inner.chunk_bytes(), 3 * buffer, "it is empty");
    let cache = &inner.tables.context().cache;
    let lendable = inner.tables.lendable(3 * buffer);
    (0..u64::MAX).take_while(|_| cache.bytes() + buffer < lendable).for_each(|at| {
        cache.insert_value(1, at, &[0; 1000]);
    });
    assert_eq!(inner.chunk_bytes(), buffer, "it is nearly full");
}

/// It makes room with its next action, for which writers wait.
#[test]
fn a_users_compaction_is_not_idle_between_its_actions() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 64 << 10);
    let set = |manual| db.inner.jobs.state.lock().manual = manual;
    set(true);
    assert!(!db.inner.is_idle());
    set(false);
    assert!(db.inner.is_idle());
}

/// Another worker may let go of the last leaves between a step that found no room and this question.
#[test]
fn room_that_came_meanwhile_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 8 << 10);
    let trees = db.inner.state.load().parts[0].trees.clone().unwrap();
    assert!(trees.mutable.leaves() == 0 && trees.immutable.is_none() && !trees.store.is_short());
    assert!(db.inner.may_come_by_room(0).unwrap());
}

/// A leaf that no room could be made for: nobody may wait for that, and whoever flushes is told each time.
#[test]
fn a_leaf_that_is_larger_than_all_is_an_error_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual();
    let environment = Environment { clock: Some(clock.clone()), ..Environment::default() };
    let db = open_in(dir.path(), 8 << 10, environment);
    db.put(key(1), b"value").unwrap();
    db.flush().unwrap();
    db.put([7; 20_000], b"").unwrap();
    for time in 0..3 {
        assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::NoSpace, "time {time}");
        clock.advance(Duration::from_secs(1));
        db.inner.step();
        assert!(db.inner.background_error().is_some(), "it was tried again");
    }
    assert_eq!(db.get(key(1)).unwrap().unwrap(), b"value");
    assert_eq!(db.get([7; 20_000]).unwrap().unwrap(), b"");
}

/// A chunk by log is made of leaves of the oldest log, wherever they lie.
#[test]
fn lab_09_a_chunk_by_log_takes_from_the_oldest() {
    let environment = Environment { fs: Some(Arc::new(SimFs::new(1))), ..Environment::default() };
    let db = open_in(Path::new("/db"), 512 << 10, environment);
    let by_log = || db.stats().tier.unwrap().chunks_by_log;
    let entries = |id: u64| {
        let uses = db.inner.logs.values.as_ref().unwrap().uses();
        uses.iter().find(|used| used.log_id == id).map_or(0, |used| used.entries)
    };
    let oldest = || {
        let uses = db.inner.logs.values.as_ref().unwrap().uses();
        uses.iter().find(|used| used.entries > 0).map_or(0, |used| used.log_id)
    };
    let (mut chunks, mut taken) = (0, 0);
    for i in 0..60_000 {
        // The oldest log is that of the last leaves.
        db.put(key(90_000 - i), [1; 100]).unwrap();
        if i % 50 != 0 {
            continue;
        }
        loop {
            let (before, log) = (by_log(), oldest());
            let held = entries(log);
            if !db.inner.step() {
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

/// Trees that are rebuilt have the numbers of those of the session before, and the manifest may still say which keys of
/// these were evicted: all, up to the same entry.
#[test]
fn what_was_evicted_in_another_session_is_not_taken_along() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 8 << 10);
    (0..20).for_each(|i| db.put(key(i), b"first").unwrap());
    db.compact_range(None, None).unwrap();
    db.close().unwrap();
    let db = open(dir.path(), 8 << 10);
    let long = |i: u32| [key(i), vec![b'x'; 100]].concat();
    (0..100).for_each(|i| db.put(long(i), b"second").unwrap());
    let inner = &db.inner;
    let buffer = inner.state.load().parts[0].buffers[0].clone();
    let mut queue = inner.commit.lock();
    inner.switch_buffer(&mut queue, 0);
    drop(queue);
    assert!(!inner.flush_to_trees(0, &buffer).unwrap(), "it waits for an eviction");
    let mut jobs = inner.jobs.state.lock();
    let state = inner.state.load_full();
    let facts = Facts { chunk_bytes: 2000, ..inner.manual_facts(&jobs) };
    let plan = shape::pick_manual_eviction(&state, true, &facts).expect("an eviction");
    let job = inner.mark(&mut jobs, plan, &state);
    drop((jobs, state));
    inner.perform(job);
    let left = db.stats().tier.unwrap().immutable_entries;
    assert!(left > 0, "a part of the tree was evicted");
    db.flush().unwrap();
    (0..100).for_each(|i| assert_eq!(db.get(long(i)).unwrap().unwrap(), b"second", "{i}"));
}
