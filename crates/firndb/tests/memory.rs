//! `memory_limit_bytes` is a cap: with a counting allocator, a load, 32 cursors and random reads
//! stay within it and a tenth.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::memory::{ALLOCATED, Counting};
use self::rig::{Kind, PROCESS, is_ci, pool};

use firn_base::seed::mix;
use firndb::{Codec, Db, Options, Profile};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: usize = 64 << 20;

/// The peak bytes in use while `work` runs on a database of `records` records under the limit.
fn peak(kind: Kind, records: u64, value: &[u8], work: impl FnOnce(&Db)) -> usize {
    let profile = kind.0;
    let dir = tempfile::tempdir().unwrap();
    let base = ALLOCATED.now();
    ALLOCATED.reset_peak();
    let mut options = Options::default()
        .profile(profile)
        .memory_limit_bytes(LIMIT as u64)
        // The pool is no memory of the process.
        .pm(pool(dir.path(), kind, 256 << 20))
        .compression(Codec::None);
    if profile == Profile::Block {
        // With the usual sizes this few records fit one level, and no table would grow.
        (options.limits.table_bytes, options.limits.level_base_bytes) = (2 << 20, 8 << 20);
    }
    // Of the two runs of each that use coroutines, one has a single operation in flight.
    if value.len() < 100 {
        options.compaction_io_depth = 1;
    }
    let db = Db::open(dir.path().join("db"), options).unwrap();
    put(&db, 0..records, value);
    work(&db);
    db.wait_idle().unwrap();
    let appends: u64 = db
        .stats()
        .levels
        .iter()
        .map(|level| level.growth.block_grained)
        .sum();
    assert_eq!(appends > 5, profile == Profile::Block, "{appends} appends");
    db.close().unwrap();
    let peak = ALLOCATED.peak() - base;
    println!(
        "{profile}: peak {} MiB of {} MiB, {records} x {}",
        peak >> 20,
        LIMIT >> 20,
        value.len()
    );
    peak
}

fn put(db: &Db, numbers: std::ops::Range<u64>, value: &[u8]) {
    numbers.for_each(|i| db.put_with(mix(i).to_be_bytes(), value, &PROCESS).unwrap());
}

fn get(db: &Db, number: u64, value: &[u8]) {
    assert_eq!(db.get(mix(number).to_be_bytes()).unwrap().unwrap(), value);
}

#[test]
fn stays_within_the_limit() {
    let ci = is_ci();
    let (records, value) = (if ci { 600_000 } else { 240_000 }, [7u8; 1024]);
    let cursors = Profile::ALL.map(|profile| {
        peak((profile, false), records, &value, |db| {
            let mut iters: Vec<_> = (0..32).map(|_| db.cursor().unwrap()).collect();
            for (i, iter) in iters.iter_mut().enumerate() {
                iter.seek(mix(i as u64).to_be_bytes()).unwrap();
            }
            for i in 0..records / 20 {
                let iter = &mut iters[i as usize % 32];
                iter.next().unwrap();
                if !iter.valid() {
                    iter.first().unwrap();
                }
                get(db, i * 7 % records, &value);
            }
        })
    });
    // Entries so small and so often read that the cache is full of rows, and memtables that then
    // need its memory.
    let (records, value) = (if ci { 800_000 } else { 300_000 }, [7u8; 24]);
    let rows = peak((Profile::Classic, false), records, &value, |db| {
        db.wait_idle().unwrap();
        for _ in 0..6 {
            (0..records / 4).for_each(|i| get(db, i, &value));
        }
        put(db, records..records + records / 2, &value);
    });
    // Lists of small entries, whose nodes, filters and chunks need most memory.
    let lists = peak((Profile::Tlsm, true), records, &value, |db| {
        put(db, 0..records, &value);
        db.compact().unwrap();
        (0..records).step_by(3).for_each(|i| get(db, i, &value));
        put(db, 0..records / 2, &value);
        let stats = db.stats();
        let lists = stats.design.tlsm.as_ref().unwrap();
        assert!(lists.linked > records && lists.spilled == 0, "{lists:?}");
        (0..records).step_by(3).for_each(|i| get(db, i, &value));
    });
    // One operation at a time, so that full write buffers wait beside all coroutines.
    let queued = peak((Profile::Blade, false), records, &value, |db| {
        put(db, 0..records, &value);
        db.compact().unwrap();
    });
    for peak in cursors.into_iter().chain([rows, lists, queued]) {
        assert!(
            peak <= LIMIT + LIMIT / 10,
            "{peak} bytes were in use under a limit of {LIMIT}"
        );
    }
}
