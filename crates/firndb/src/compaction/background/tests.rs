//! The resources that a job holds while it runs.

use crate::compaction::background::obsolete::IDLE_TICKS;
use crate::compaction::plan::{Border, How, Plan, Reason};
use crate::manifest::{Level, PartId};
use crate::{Codec, Db, Durability, Environment, Options, WriteOptions};
use firn_base::clock::Clock;
use firn_base::exec::Inline;
use firn_base::{ErrorKind, FileId};
use firn_fs::SimFs;
use std::path::Path;
use std::sync::Arc;

/// A compaction may take long, so memtables that are flushed meanwhile must not stay in memory for
/// it.
#[test]
fn a_merge_holds_nothing_but_what_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment {
        executor: Some(Arc::new(Inline::new())),
        ..Environment::default()
    };
    let db = Db::open(
        dir.path(),
        Options {
            environment,
            ..Options::tiny()
        },
    )
    .unwrap();
    db.put(b"z", b"0").unwrap();
    db.compact().unwrap();
    db.put(b"a", b"1").unwrap();
    db.flush().unwrap();
    db.put(b"a", b"2").unwrap();
    let engine = &db.engine;
    let beside = engine.state.load().runs(Level(1)).remove(0);
    let held = Arc::strong_count(&beside);
    let merge = engine
        .start_manual((PartId(0), Level(0)), (b"", None), None)
        .expect("a table in level 0");
    assert_eq!(
        Arc::strong_count(&beside),
        held,
        "a table that it does not read"
    );
    let buffer = Arc::downgrade(&engine.active());
    db.flush().unwrap();
    engine.remove_obsolete(true);
    assert!(buffer.upgrade().is_none());
    engine.perform(merge);
    assert_eq!(db.get(b"a").unwrap().unwrap(), b"2");
}

/// The memory that write buffers do not use is the block cache's, and a writer takes it back piece
/// by piece.
#[test]
fn idle_memory_is_lent() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment {
        executor: Some(Arc::new(Inline::new())),
        ..Environment::default()
    };
    let options = Options {
        environment,
        memory_limit_bytes: 64 << 20,
        ..Options::default()
    };
    let db = Db::open(dir.path(), options).unwrap();
    let engine = &db.engine;
    let (cache, buffer) = (
        &engine.tables.context().cache,
        engine.budget.write_buffer_bytes,
    );
    let (all, piece) = (cache.bytes_max(), 256 << 10);
    let taken = || (all - cache.bytes_max()) as usize;
    let process = WriteOptions::new().durability(Durability::Process);
    let fill = |bytes: usize| {
        let value = vec![7; 1000];
        let mut largest = 0;
        for i in 0..bytes / 1000 {
            let before = taken();
            db.put_with((i as u32).to_be_bytes(), &value, &process)
                .unwrap();
            largest = largest.max(taken() - before);
        }
        largest
    };
    let largest = fill(buffer / 2);
    assert_eq!(largest, piece, "no write waits for more");
    let used = engine.active().used_bytes();
    assert!(
        (used..used + piece + piece / 8).contains(&taken()),
        "{used}"
    );
    // It is flushed, and the next one has its memory.
    db.flush().unwrap();
    engine.remove_obsolete(true);
    db.put(b"a", b"1").unwrap();
    db.flush().unwrap();
    engine.remove_obsolete(true);
    let active = engine.active();
    assert!(active.used_bytes() < piece && active.dram_bytes() > used);
    let tick = 100;
    engine.lend_idle_memory(tick);
    engine.lend_idle_memory(tick + IDLE_TICKS);
    assert!(taken() > used, "not at the first pause");
    engine.lend_idle_memory(tick + IDLE_TICKS + 1);
    assert!(
        taken() <= 2 * piece,
        "nobody writes: it is the block cache's"
    );
    let job_bytes = engine.budget.job_bytes;
    let buffers = || engine.tables.buffer_bytes() - active.dram_bytes() as u64;
    assert_eq!(buffers(), job_bytes);
    // So is that of background jobs, until one runs.
    engine.tables.set_second(tick);
    engine.lend_idle_memory(tick);
    assert_eq!(buffers(), 0);
    let running = engine.tables.begin_job();
    assert_eq!(buffers(), job_bytes);
    engine.tables.set_second(2 * tick);
    engine.lend_idle_memory(2 * tick);
    assert_eq!(buffers(), job_bytes, "it runs");
    drop(running);
    engine.lend_idle_memory(2 * tick);
    assert_eq!(buffers(), job_bytes, "another may follow");
    drop(active);
    assert_eq!(fill(buffer / 2), piece);
}

/// While another thread makes much room, a writer does not wait for it.
#[test]
fn a_writer_waits_for_no_other_claim() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let tables = &db.engine.tables;
    let before = tables.context().cache.bytes_max();
    tables.while_resizing(|| {
        tables.claim(1 << 20);
        assert_eq!(tables.context().cache.bytes_max(), before);
    });
    tables.leave_the_rest();
    assert_eq!(tables.context().cache.bytes_max(), before - (1 << 20));
    tables.drop_buffer(1 << 20);
}

/// Each process ends before any background work has run.
#[test]
fn short_lives_do_not_pile_up_tables() {
    let fs = SimFs::new(1);
    let options = || {
        let environment = Environment {
            fs: Some(Arc::new(fs.clone())),
            executor: Some(Arc::new(Inline::new())),
            ..Environment::default()
        };
        Options {
            environment,
            ..Options::tiny()
        }
    };
    let lives = 4 * options().limits.level0_stop as u32;
    for life in 0..lives {
        let db = Db::open(Path::new("/db"), options()).unwrap();
        assert!(db.stats().levels[0].tables < options().limits.level0_stop);
        db.put(life.to_be_bytes(), b"1").unwrap();
    }
    let db = Db::open(Path::new("/db"), options()).unwrap();
    assert!((0..lives).all(|life| db.get(life.to_be_bytes()).unwrap().is_some()));
}

/// A wait for background work does not report a full disk once there is room. The clock stands
/// still, so no retry is due by time.
#[test]
fn a_disk_that_has_room_again_is_noticed_at_once() {
    let fs = SimFs::new(1);
    let environment = Environment {
        fs: Some(Arc::new(fs.clone())),
        executor: Some(Arc::new(Inline::new())),
        clock: Some(Clock::manual()),
        ..Environment::default()
    };
    let db = Db::open(
        Path::new("/db"),
        Options {
            environment,
            ..Options::tiny()
        },
    )
    .unwrap();
    let fill = |count: u32| (0..count).try_for_each(|i| db.put(i.to_be_bytes(), [0; 100]));
    let no_space =
        |result: crate::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::NoSpace);
    fill(20).unwrap();
    fs.set_cap(Some(fs.used()));
    no_space(db.flush());
    no_space(db.wait_idle());
    fs.set_cap(None);
    db.flush().unwrap();
    // The same for a write that finds all memtables full.
    fs.set_cap(Some(fs.used() + 200_000));
    no_space(fill(100_000));
    fs.set_cap(None);
    fill(100_000).unwrap();
    db.wait_idle().unwrap();
}

/// A table that was reported for its reads, and that another job then replaced, does not keep
/// others from being reported.
#[test]
fn a_reported_table_that_is_gone_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment {
        executor: Some(Arc::new(Inline::new())),
        ..Environment::default()
    };
    let options = Options {
        environment,
        ..Options::tiny()
    };
    let db = Db::open(dir.path(), options).unwrap();
    db.put(b"a", b"1").unwrap();
    db.compact().unwrap();
    let reported = || *db.engine.jobs.seek.lock();
    db.engine.due_for_seeks(Level(1), FileId(1 << 40));
    assert!(reported().is_some());
    assert!(db.engine.start(true).is_none(), "a job for no table");
    assert!(reported().is_none());
}

/// A database whose partition has ranges, on an executor that does nothing by itself.
fn with_ranges(dir: &Path) -> Db {
    let mut options = Options {
        environment: Environment {
            executor: Some(Arc::new(Inline::new())),
            ..Environment::default()
        },
        compression: Codec::None,
        ..Options::tiny().profile(crate::Profile::Pmdb)
    };
    options.tuning.pmdb.range_tables = 1;
    let db = Db::open(dir, options).unwrap();
    (0..2000_u32).for_each(|i| db.put(i.to_be_bytes(), [7; 100]).unwrap());
    db.compact().unwrap();
    db.wait_idle().unwrap();
    assert!(db.engine.state.load().layout.ranges().len() > 2);
    db
}

/// A flush that runs while borders of ranges change is not begun again, because it does not depend
/// on these.
#[test]
fn borders_of_ranges_leave_a_flush_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = with_ranges(dir.path());
    let engine = &db.engine;
    db.put(b"a", b"1").unwrap();
    engine.switch_buffer(&mut engine.commit.lock(), 0);
    let flush = engine.start(false).expect("a flush");
    let state = engine.state.load_full();
    let cut = state.layout.ranges()[0].clone();
    let border = Plan {
        border: Some(Border::DropRanges(vec![cut])),
        ..Plan::new(
            PartId(0),
            Vec::new(),
            Level(0),
            How::Border,
            Reason::Partition,
        )
    };
    let job = engine.mark(&mut engine.jobs.state.lock(), border, &state);
    engine.perform(job);
    assert!(
        engine.start(false).is_none(),
        "a second flush of one memtable"
    );
    engine.perform(flush);
    assert_eq!(db.get(b"a").unwrap().unwrap(), b"1");
    db.verify().unwrap();
}

/// Two jobs that drop the same borders would break the manifest's invariants. A partition in which
/// everything was deleted has ranges and no table by which other jobs could know.
#[test]
fn borders_of_an_empty_partition_are_changed_by_one_job() {
    let dir = tempfile::tempdir().unwrap();
    let db = with_ranges(dir.path());
    let engine = &db.engine;
    (0..2000_u32).for_each(|i| db.delete(i.to_be_bytes()).unwrap());
    db.compact().unwrap();
    assert!(engine.state.load().parts[0].tables().next().is_none());
    assert!(!engine.state.load().layout.ranges().is_empty());
    let job = engine.start(true).expect("the ranges are joined");
    assert!(matches!(job.plan.border, Some(Border::DropRanges(_))));
    assert!(engine.start(true).is_none(), "the same borders again");
    engine.perform(job);
    assert!(engine.state.load().layout.ranges().is_empty());
    db.verify().unwrap();
}

/// The output of a job ends at a wanted border of partitions even if that is none of ranges, or its
/// partition would never be divided there.
#[test]
fn output_ends_at_wanted_borders_and_at_those_of_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let db = with_ranges(dir.path());
    let state = db.engine.state.load_full();
    let run = state.runs(
        db.engine
            .options
            .ranges()
            .map_or(Level(0), |r| Level(r.levels() - 1)),
    );
    let tables = vec![(Level(1), run[0].clone())];
    let plan = Plan::new(PartId(0), tables, Level(1), How::Copy, Reason::Partition);
    let wanted: Box<[u8]> = [&state.layout.ranges()[0][..], &[0]].concat().into();
    let cuts = super::cuts_for(&plan, &state, std::slice::from_ref(&wanted));
    assert_eq!(cuts.len(), state.layout.ranges().len() + 1);
    assert!(cuts.is_sorted() && cuts.contains(&wanted), "{cuts:?}");
}
