//! The resources that a job holds while it runs.

use crate::compaction::background::Obsolete;
use crate::compaction::plan::{Border, How, Plan, Reason};
use crate::manifest::{Level, PartId};
use crate::read::state::ReadState;
use crate::{Codec, Db, Environment, Options};
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

/// A memtable's memory is the block cache's while nothing is written. The writer that needs it must
/// not wait for it.
#[test]
fn a_spare_buffer_is_ready_before_it_is_needed() {
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
    let engine = &db.engine;
    let has_spare = || engine.jobs.obsolete.spare.lock().is_some();
    db.put(b"a", b"1").unwrap();
    engine.tend_spare(1);
    assert!(!has_spare(), "the active buffer is all but empty");
    let fill = |share: f64| {
        let active = engine.active();
        let is_short = || (active.used_bytes() as f64) < active.capacity_bytes() as f64 * share;
        (0_u32..)
            .take_while(|_| is_short())
            .for_each(|i| db.put(i.to_be_bytes(), [0; 100]).unwrap());
    };
    fill(0.33);
    engine.tend_spare(2);
    assert!(has_spare(), "it will be full in two ticks more");
    engine.tend_spare(3);
    assert!(has_spare(), "not at the first pause");
    engine.tend_spare(4);
    assert!(
        !has_spare(),
        "nobody writes any more: it is the block cache's"
    );
    // A memtable that is being flushed becomes the spare one soon.
    engine.switch_buffer(&mut engine.commit.lock(), 0);
    fill(0.35);
    engine.tend_spare(5);
    assert!(!has_spare(), "it will not be full in the next tick");
    fill(0.8);
    engine.tend_spare(6);
    assert!(
        has_spare(),
        "it will, and the other may not be flushed by then"
    );
    // It was flushed and is still being read: the next tick comes first.
    drop(engine.jobs.obsolete.spare.lock().take());
    let read = db.get(b"a").unwrap();
    let flushed = engine.state.load().memtables.of_part(0).memtables[1].clone();
    engine
        .state
        .rcu(|state| ReadState::clone(state).without_memtables(std::slice::from_ref(&flushed)));
    engine.retire([Obsolete::Memtable(flushed)]);
    engine.tend_spare(7);
    assert!(!has_spare(), "it comes back");
    drop(read);
    engine.remove_obsolete(false);
    assert!(has_spare());
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
