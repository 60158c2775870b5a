//! Profile `block`, row by row of the design (block_01 to block_11): each test shows a mechanism by
//! counters and structure, and that its effect disappears when the mechanism is switched off.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{DIR, Rig, loose, looser, row, row_of_option, tables_of};
use firn_base::exec::{Executor, Inline, Work};
use firn_base::site;
use firn_fs::{Fault, FaultKind, OpKind, SimFs};
use firndb::mechanisms;
use firndb::{ByLevel, Db, Environment, Event, GrainLimits, GrainRule, Options, Profile, Stats};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The decision for a table.
struct Chosen {
    level: usize,
    block_grained: bool,
    rule: GrainRule,
}

/// The decisions so far.
fn chosen(rig: &Rig) -> Vec<Chosen> {
    let events = rig.events.0.lock().unwrap();
    let chosen = |event: &Event| match *event {
        Event::GrainChosen {
            level,
            block_grained,
            rule,
            ..
        } => Some(Chosen {
            level,
            block_grained,
            rule,
        }),
        _ => None,
    };
    events.iter().filter_map(chosen).collect()
}

/// Block reads by gets so far: from the cache, and not from the cache.
fn looks(rig: &Rig) -> (u64, u64) {
    let memory = rig.stats().memory;
    (memory.cache_hits, memory.cache_misses)
}

fn sum(stats: &Stats, pick: fn(&firndb::LevelStats) -> u64) -> u64 {
    stats.levels.iter().map(pick).sum()
}

fn compaction_bytes(stats: &Stats) -> u64 {
    stats
        .ssd
        .iter()
        .filter(|cause| cause.cause == "compaction")
        .map(|cause| cause.written_bytes)
        .sum()
}

#[test]
fn block_01_both_bounds_of_a_block_are_in_its_index_entry() {
    row(
        &firn_table::mechanisms::BLOCK_BOUNDS,
        "keys that are in none",
        || {
            let rig = Rig::loaded(Profile::Classic, 4_000, |options| options.filter_bits = 0);
            rig.db.compact().unwrap();
            let before = looks(&rig);
            let absent = rig.model.keys().map(|key| [key.as_slice(), b"+"].concat());
            let gets = absent
                .inspect(|key| assert!(rig.db.get(key).unwrap().is_none()))
                .count() as u64;
            let looked = looks(&rig).0 + looks(&rig).1 - before.0 - before.1;
            // A block holds three or four entries, and keys after its last entry are in no block.
            assert!(
                looked < gets * 85 / 100,
                "{looked} blocks were searched for {gets} keys that are in none"
            );
        },
    );
}

#[test]
fn block_02_only_blocks_that_keys_fall_into_are_written() {
    row(&mechanisms::BLOCK_APPEND, "tables grew", || {
        let rig = Rig::loaded(Profile::Block, 12_000, |_| {});
        let stats = rig.stats();
        let grown = sum(&stats, |level| level.growth.block_grained);
        assert!(grown > 20, "{grown} tables grew");
        assert!(sum(&stats, |level| level.growth.kept_blocks) > 200);
        let level = &stats.levels[2];
        assert!(
            level.growth.append_share > 0.1 && level.growth.append_share < 0.9,
            "{level:?}"
        );
        assert_eq!(level.live_bytes + level.dead_bytes, level.bytes);
        assert!(level.dead_bytes > 0);
        let classic = Rig::loaded(Profile::Classic, 12_000, |_| {});
        let (block, classic) = (compaction_bytes(&stats), compaction_bytes(&classic.stats()));
        assert!(block * 10 < classic * 9, "{block} bytes against {classic}");
        rig.check();
    });
}

/// Large entries have their own blocks, so that every other key falls into a gap.
#[test]
fn block_02_small_blocks_in_gaps_stay_few() {
    row(&mechanisms::BLOCK_COALESCE, "blocks are small", || {
        let mut rig = Rig::new(Profile::Block, |options| {
            looser(options);
            options.filter_bits = 0;
            // All but a few keys are on level 2, and few arrive at a time.
            options.limits.level_base_bytes = 4 << 10;
            options.limits.level_fan_out = 1000;
        });
        for i in 0..2_000u64 {
            let (key, value) = (
                format!("key{:07}", i * 500).into_bytes(),
                vec![i as u8; 600],
            );
            rig.db.put(&key, &value).unwrap();
            rig.model.insert(key, value);
            if i % 100 == 99 {
                rig.settle();
            }
        }
        rig.put(6_000, 1_000_000);
        let stats = rig.stats();
        assert!(sum(&stats, |level| level.growth.block_grained) > 40);
        rig.check();
        let report = rig.db.verify().unwrap();
        let small = sum(&stats, |level| level.small_blocks);
        assert!(
            small * 2 < report.blocks,
            "{small} of {} blocks are small",
            report.blocks
        );
    });
}

/// A new table with a gap overlaps tables that none of its keys falls into.
#[test]
fn block_02_tables_that_no_key_falls_into_stay_as_they_are() {
    let mut rig = Rig::loaded(Profile::Block, 2_500, |options| {
        looser(options);
        // Level 1 is one or two tables, so that each has keys of several bands.
        options.limits.level_base_bytes = 4 << 10;
        options.limits.level_fan_out = 1000;
    });
    rig.db.compact().unwrap();
    let tables = rig.stats().levels[2].tables;
    assert!(
        tables > 12 && tables == tables_of(&rig.stats()),
        "{:?}",
        rig.stats().levels
    );
    let seen = rig.fs.log().len();
    for i in 0..1_000 {
        // Four narrow bands, with about five tables between two of them.
        let n = i % 4 * 320_000 + rig.random.below(20_000);
        rig.put_one(format!("key{n:07}").into_bytes());
    }
    rig.settle();
    let stats = rig.stats();
    assert!(sum(&stats, |level| level.growth.block_grained) > 0);
    let is_table = |path: &Path| path.extension().is_some_and(|sst| sst == "sst");
    let log = rig.fs.log();
    let created = |path: &Arc<Path>| {
        log[seen..]
            .iter()
            .any(|operation| operation.kind == OpKind::Create && operation.path == *path)
    };
    let written = log[seen..]
        .iter()
        .filter(|operation| operation.kind == OpKind::Write && is_table(&operation.path));
    let grown: BTreeSet<&Arc<Path>> = written
        .map(|write| &write.path)
        .filter(|path| !created(path))
        .collect();
    assert!(
        !grown.is_empty() && grown.len() < tables * 2 / 3,
        "{} of {tables} tables grew",
        grown.len()
    );
    rig.check();
}

#[test]
fn block_03_dirty_blocks_are_read_at_the_same_time() {
    row(&mechanisms::BLOCK_READS, "reads at a time", || {
        let rig = Rig::loaded(Profile::Block, 12_000, |_| {});
        let most = rig.stats().background.append_reads_most;
        assert!(most > 4, "at most {most} reads at a time");
    });
}

#[test]
fn block_03_cached_blocks_are_not_read() {
    let read = |warm: bool| {
        let mut rig = Rig::loaded(Profile::Block, 12_000, |options| {
            loose(options);
            // The warming scans must not count as a reason to rewrite tables.
            options.tuning.block.scan_bytes = 0;
        });
        if warm {
            rig.check();
        }
        let bytes = |rig: &Rig| -> u64 {
            let stats = rig.stats();
            stats
                .ssd
                .iter()
                .filter(|cause| cause.cause == "compaction")
                .map(|cause| cause.read_bytes)
                .sum()
        };
        let before = bytes(&rig);
        rig.put(2_000, 1_000_000);
        bytes(&rig) - before
    };
    let (cold, warm) = (read(false), read(true));
    assert!(
        warm * 100 < cold * 95,
        "{warm} bytes were read with all blocks cached, {cold} without"
    );
}

/// Scans everything, puts a twentieth as many new records, and counts the blocks of the first scan
/// that must be read again, and the cached blocks that compactions made obsolete.
fn misses_behind_compactions(profile: Profile) -> (u64, u64) {
    let mut rig = Rig::loaded(profile, 14_000, looser);
    let read = |rig: &Rig| {
        let before = looks(rig).1;
        let mut iter = rig.db.cursor().unwrap();
        iter.last().unwrap();
        // Backward, because that reads nothing ahead.
        while iter.valid() {
            iter.prev().unwrap();
        }
        looks(rig).1 - before
    };
    read(&rig);
    assert_eq!(read(&rig), 0, "all of it fits the cache");
    let invalidated = rig.stats().background.invalidated_blocks;
    rig.put(700, 1_000_000);
    (
        read(&rig),
        rig.stats().background.invalidated_blocks - invalidated,
    )
}

#[test]
fn block_04_what_stays_clean_stays_cached() {
    row(&mechanisms::BLOCK_CACHED, "misses against", || {
        let (block, classic) = (
            misses_behind_compactions(Profile::Block),
            misses_behind_compactions(Profile::Classic),
        );
        assert!(
            block.0 * 5 < classic.0 * 3,
            "{} misses against {}",
            block.0,
            classic.0
        );
        assert!(
            block.1 * 5 < classic.1 * 3,
            "{} blocks became obsolete in the cache against {}",
            block.1,
            classic.1
        );
    });
}

#[test]
fn block_05_each_table_is_judged_by_itself() {
    row(
        &mechanisms::BLOCK_SELECTIVE,
        "tables with many dead bytes",
        || {
            let mut rig = Rig::loaded(Profile::Block, 12_000, |options| {
                options.tuning.block.grain_limits = GrainLimits::Constants;
            });
            rig.put(6_000, 1_000_000);
            let chosen = chosen(&rig);
            assert!(
                chosen.iter().all(|chosen| chosen.level > 1),
                "level 1 is written anew as a whole"
            );
            let by = |grain, rule| {
                chosen
                    .iter()
                    .filter(|chosen| chosen.block_grained == grain && chosen.rule == rule)
                    .count()
            };
            for grain in rig.stats().background.grains {
                assert_eq!(
                    by(grain.block_grained, grain.rule) as u64,
                    grain.count,
                    "{grain}"
                );
            }
            assert!(by(true, GrainRule::Cost) > 20);
            assert!(
                by(false, GrainRule::LiveShare) > 0,
                "tables with many dead bytes"
            );
            assert!(by(false, GrainRule::DirtyShare) + by(false, GrainRule::LiveBytes) > 0);
            rig.check();
        },
    );
}

/// Dead bytes become more expensive as they approach their limit, and are more expensive where they
/// stay longer. So on the last level tables are rewritten with fewer dead bytes.
#[test]
fn block_05_limits_by_level_come_from_cost() {
    row(
        &mechanisms::BLOCK_SELECTIVE,
        "rewritten for their dead bytes",
        || {
            let mut rig = Rig::loaded(Profile::Block, 12_000, |options| {
                options.limits.level_base_bytes = 32 << 10;
            });
            rig.put(12_000, 1_000_000);
            let stats = rig.stats();
            let (dead, all) = (
                sum(&stats, |level| level.dead_bytes),
                sum(&stats, |level| level.bytes),
            );
            assert!(
                dead as f64 <= 0.18 * (all - dead) as f64,
                "{dead} of {all} bytes are dead"
            );
            let chosen = chosen(&rig);
            let share = |level: usize| {
                let of: Vec<_> = chosen
                    .iter()
                    .filter(|chosen| chosen.level == level)
                    .collect();
                let grown = of.iter().filter(|chosen| chosen.block_grained).count();
                assert!(
                    of.len() > 20 && grown > 5,
                    "level {level}: {grown} of {}",
                    of.len()
                );
                grown as f64 / of.len() as f64
            };
            assert!(share(2) > 1.1 * share(3), "{} and {}", share(2), share(3));
            let rewritten = chosen
                .iter()
                .filter(|chosen| !chosen.block_grained && chosen.rule == GrainRule::Space)
                .count();
            assert!(rewritten > 0, "no tables rewritten for their dead bytes");
            rig.check();
        },
    );
}

#[test]
fn block_05_small_entries_choose_whole_tables_by_themselves() {
    for grain_limits in [GrainLimits::Cost, GrainLimits::Constants] {
        let mut rig = Rig::new(Profile::Block, |options| {
            loose(options);
            options.tuning.block.grain_limits = grain_limits;
        });
        for round in 0..40_000u64 {
            let key = format!("{:06}", rig.random.below(1_000_000)).into_bytes();
            rig.db.put(&key, [round as u8]).unwrap();
            rig.model.insert(key, vec![round as u8]);
            if round % 1000 == 999 {
                rig.settle();
            }
        }
        let chosen = chosen(&rig);
        let tables = chosen.iter().filter(|chosen| !chosen.block_grained).count();
        assert!(
            tables * 5 > chosen.len() * 4,
            "{grain_limits:?}: {tables} of {} were written anew",
            chosen.len()
        );
        rig.check();
    }
}

/// Scans are charged against the savings of appends: with many scans tables are rewritten, with
/// none they are not.
#[test]
fn block_05_tables_that_are_scanned_are_written_anew() {
    let decided = |scan_bytes, scans| {
        let mut rig = Rig::new(Profile::Block, |options| {
            options.tuning.block.scan_bytes = scan_bytes
        });
        rig.put(12_000, 1_000_000);
        for _ in 0..20 {
            for _ in 0..scans {
                let from = format!("key{:07}", rig.random.below(1_000_000));
                let mut iter = rig.db.cursor().unwrap();
                iter.seek(from).unwrap();
                (0..30).for_each(|_| iter.next().unwrap());
            }
            rig.put(300, 1_000_000);
        }
        rig.check();
        let chosen = chosen(&rig);
        let by = |rule| chosen.iter().filter(|chosen| chosen.rule == rule).count();
        let grown = chosen.iter().filter(|chosen| chosen.block_grained).count();
        (by(GrainRule::Scans), grown)
    };
    let (none, some, free) = (decided(4 << 10, 0), decided(4 << 10, 300), decided(0, 300));
    assert_eq!((none.0, free.0), (0, 0));
    assert!(some.0 > 20 && some.1 < none.1, "{none:?} {some:?} {free:?}");
}

/// Two workers of a test, with the same site switched off on each as on the test's thread.
#[derive(Default)]
struct Workers {
    work: Mutex<Option<Weak<dyn Work>>>,
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    parallel: bool,
}

impl Executor for Workers {
    fn attach(&self, work: Weak<dyn Work>) {
        for _ in 0..2 {
            let (work, stop, parallel) = (work.clone(), self.stop.clone(), self.parallel);
            let run = move || {
                while let Some(work) = work.upgrade().filter(|_| !stop.load(Ordering::Acquire)) {
                    if !work.step() {
                        std::thread::yield_now();
                    }
                }
            };
            let body = move || {
                if parallel {
                    run()
                } else {
                    site::without(&mechanisms::BLOCK_PARALLEL, run)
                }
            };
            self.threads.lock().unwrap().push(std::thread::spawn(body));
        }
        *self.work.lock().unwrap() = Some(work);
    }

    fn wake(&self) {}

    fn help(&self) -> bool {
        false
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.lock().unwrap().drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn block_06_sub_tasks_are_shared_out() {
    let load = |parallel| {
        let rig = Rig::loaded(Profile::Block, 12_000, |options| {
            let workers = Workers {
                parallel,
                ..Workers::default()
            };
            options.environment.executor = Some(Arc::new(workers));
            options.environment.clock = None;
        });
        rig.check();
        let background = rig.stats().background;
        rig.db.clone().close().unwrap();
        (background.sub_tasks, background.helped_sub_tasks)
    };
    let (tasks, helped) = load(true);
    assert!(
        tasks > 20 && helped > 0,
        "{helped} of {tasks} sub-tasks were taken by a second worker"
    );
    assert_eq!(load(false).1, 0);
}

#[test]
fn block_06_workers_side_by_side_hold_what_one_does() {
    for workers in [false, true] {
        let rig = Rig::loaded(Profile::Block, 8_000, |options| {
            if workers {
                options.environment.executor = Some(Arc::new(Workers {
                    parallel: true,
                    ..Workers::default()
                }));
                options.environment.clock = None;
            }
        });
        rig.check();
        rig.db.clone().close().unwrap();
    }
}

#[test]
fn block_08_filters_reserve_bits() {
    row_of_option("room for keys to come", |on| {
        let rig = Rig::loaded(Profile::Block, 12_000, |options| {
            if !on {
                options.tuning.block.filter_reserve_percent = ByLevel { middle: 0, last: 0 };
            }
        });
        let stats = rig.stats();
        let left = stats.levels[2].filter_left;
        assert!(left > 0, "filters have no room for keys to come");
        assert!(sum(&stats, |level| level.growth.block_grained) > 20);
        assert_eq!(
            stats.levels[0].filter_left + stats.levels[1].filter_left,
            0,
            "nothing is appended there"
        );
        rig.check();
    });
}

/// Tables that never grow keep all of the space reserved by their filters.
#[test]
fn block_08_middle_levels_reserve_more_than_the_last() {
    row(&mechanisms::BLOCK_RESERVE_BY_LEVEL, "room for", || {
        let rig = Rig::loaded(Profile::Block, 12_000, |options| {
            options.limits.level_base_bytes = 32 << 10;
            options.tuning.block.grain_limits = GrainLimits::Constants;
            options.tuning.block.dirty_share_max = ByLevel {
                middle: 0.0,
                last: 0.0,
            };
        });
        rig.check();
        let stats = rig.stats();
        let left = |level: usize| {
            stats.levels[level].filter_left as f64 / stats.levels[level].entries as f64
        };
        assert!(
            left(2) > 2.0 * left(3),
            "room for {} and {} of the keys",
            left(2),
            left(3)
        );
    });
}

#[test]
fn block_08_a_used_up_reserve_makes_a_table_due() {
    let rig = Rig::loaded(Profile::Block, 12_000, |options| {
        loose(options);
        options.tuning.block.filter_reserve_percent = ByLevel { middle: 3, last: 3 };
    });
    assert!(
        chosen(&rig)
            .iter()
            .any(|chosen| !chosen.block_grained && chosen.rule == GrainRule::Filter)
    );
    rig.check();
}

#[test]
fn block_09_tables_that_overlap_nothing_are_moved() {
    row(&mechanisms::BLOCK_MOVE, "tables moved", || {
        let mut rig = Rig::new(Profile::Block, |_| {});
        for i in 0..6_000 {
            rig.put_one(format!("key{i:07}").into_bytes());
        }
        rig.db.wait_idle().unwrap();
        let moves = sum(&rig.stats(), |level| level.moves);
        assert!(moves > 10, "{moves} tables moved");
        rig.check();
    });
}

#[test]
fn block_09_fruitless_reads_compact_a_table() {
    row(&mechanisms::BLOCK_SEEKS, "compactions for reads", || {
        let small = |of: &mut Options| (of.filter_bits, of.block_cache_bytes) = (0, Some(1 << 16));
        let mut rig = Rig::loaded(Profile::Block, 12_000, small);
        for _ in 0..60_000 {
            let number = rig.random.below(1_000_000);
            rig.db.get(format!("key{number:07}")).unwrap();
        }
        rig.db.wait_idle().unwrap();
        rig.check();
        let made = rig.stats().background.seek_compactions;
        assert!(made > 0, "{made} compactions for reads");
    });
}

/// The number of bytes of table files that were written twice without being truncated in between,
/// and the number of failed writes to tables.
fn rewrites(fs: &SimFs) -> (usize, usize) {
    let mut ends: BTreeMap<Arc<Path>, u64> = BTreeMap::new();
    let (mut again, mut failed) = (0, 0);
    for operation in fs
        .log()
        .iter()
        .filter(|operation| operation.path.extension().is_some_and(|sst| sst == "sst"))
    {
        match operation.kind {
            OpKind::Create => drop(ends.insert(operation.path.clone(), 0)),
            OpKind::Write => {
                let end = ends.entry(operation.path.clone()).or_default();
                again += usize::from(operation.offset < *end);
                failed += usize::from(!operation.ok);
                // A failed write may have written any part.
                *end = (*end).max(operation.offset + if operation.ok { operation.len } else { 0 });
            }
            OpKind::Truncate if operation.ok => {
                let end = ends.entry(operation.path.clone()).or_default();
                *end = (*end).min(operation.offset);
            }
            _ => {}
        }
    }
    (again, failed)
}

#[test]
fn block_10_an_append_begins_behind_all_that_was_ever_written() {
    row(
        &firn_table::mechanisms::BLOCK_BEHIND,
        "bytes of a table were written twice",
        || {
            let mut rig = Rig::loaded(Profile::Block, 10_000, loose);
            for round in 0..80 {
                // Some faults hit new tables, some hit appends; some leave the first part of a
                // write.
                let manifest = rig
                    .fs
                    .list(Path::new(DIR))
                    .unwrap()
                    .into_iter()
                    .find(|name| name.starts_with("MANIFEST"));
                let fault = match round % 3 {
                    0 => Fault::once(FaultKind::Eio).on(OpKind::Sync).at(".sst"),
                    1 => Fault::once(FaultKind::ShortWrite)
                        .on(OpKind::Write)
                        .at(".sst"),
                    _ => Fault::once(FaultKind::Enospc)
                        .on(OpKind::Write)
                        .at(manifest.unwrap()),
                };
                rig.fs.inject(fault.after(round % 11));
                // Bytes that cannot be truncated stay, and the next append starts after them.
                rig.fs
                    .inject(Fault::for_ever(FaultKind::Eio).on(OpKind::Truncate));
                rig.put(600, 1_000_000);
                rig.fs.heal();
            }
            let (again, failed) = rewrites(&rig.fs);
            assert!(failed > 5, "only {failed} writes failed");
            assert_eq!(again, 0, "bytes of a table were written twice");
            rig.check();
        },
    );
}

/// Bytes of the table files beyond the tables' own sizes.
fn bytes_of_nobody(rig: &Rig) -> u64 {
    let stats = rig.stats();
    let names = rig
        .fs
        .list(Path::new(DIR))
        .unwrap()
        .into_iter()
        .filter(|name| name.ends_with(".sst"));
    let files: u64 = names
        .map(|name| rig.fs.len(&Path::new(DIR).join(name)).unwrap())
        .sum();
    files - sum(&stats, |level| level.bytes)
}

/// The number of truncations of table files so far.
fn cuts(rig: &Rig) -> usize {
    rig.fs
        .log()
        .iter()
        .filter(|operation| operation.kind == OpKind::Truncate && operation.ok)
        .count()
}

/// An append is retried as long as the disk fails, and must not fill it.
#[test]
fn block_10_appends_that_fail_again_and_again_leave_nothing() {
    let mut rig = Rig::loaded(Profile::Block, 10_000, |options| {
        looser(options);
        options.tuning.block.lazy_delete_bytes = 0;
    });
    let before = cuts(&rig);
    for round in 0..30 {
        let (kind, op) = match round % 3 {
            0 => (FaultKind::Enospc, OpKind::Write),
            1 => (FaultKind::ShortWrite, OpKind::Write),
            _ => (FaultKind::Eio, OpKind::Read),
        };
        for _ in 0..20 {
            rig.fs
                .inject(Fault::once(kind).on(op).at(".sst").after(3 + round));
            for _ in 0..60 {
                let key = format!("key{:07}", rig.random.below(1_000_000)).into_bytes();
                if rig.db.put(&key, b"value").is_ok() {
                    rig.model.insert(key, b"value".to_vec());
                }
            }
            rig.options
                .environment
                .clock
                .as_ref()
                .unwrap()
                .advance(Duration::from_millis(300));
            rig.inline.run();
            rig.fs.heal();
            assert_eq!(bytes_of_nobody(&rig), 0, "round {round}");
        }
        rig.settle();
    }
    assert!(
        cuts(&rig) > before + 4,
        "{} appends failed",
        cuts(&rig) - before
    );
    rig.check();
}

/// The disk fills up during appends.
#[test]
fn block_10_appends_that_find_no_room_give_back_what_they_took() {
    let mut rig = Rig::loaded(Profile::Block, 10_000, |options| {
        looser(options);
        options.tuning.block.lazy_delete_bytes = 0;
    });
    let before = cuts(&rig);
    for round in 0..60u64 {
        rig.fs
            .set_cap(Some(rig.fs.used() + 1024 * (30 + 3 * round)));
        let full = (0..2_000).find_map(|_| {
            let key = format!("key{:07}", rig.random.below(1_000_000)).into_bytes();
            let put = rig.db.put(&key, [round as u8; 100]);
            rig.inline.run();
            match put {
                Ok(()) => drop(rig.model.insert(key, vec![round as u8; 100])),
                Err(error) => return Some(error),
            }
            None
        });
        assert_eq!(full.unwrap().kind(), firndb::ErrorKind::NoSpace);
        assert_eq!(bytes_of_nobody(&rig), 0, "round {round}");
        rig.fs.set_cap(None);
        rig.settle();
    }
    assert!(cuts(&rig) > before + 5, "hardly an append found no room");
    rig.check();
}

/// Updates leave no more dead bytes than the limit.
fn dead_bytes_are_bounded(grain_limits: GrainLimits) {
    let mut rig = Rig::loaded(Profile::Block, 6_000, |options| {
        loose(options);
        options.tuning.block.grain_limits = grain_limits;
        options.tuning.block.filter_reserve_percent = ByLevel {
            middle: 1000,
            last: 1000,
        };
    });
    let keys: Vec<Vec<u8>> = rig.model.keys().cloned().collect();
    for _ in 0..20_000 {
        let key = keys[rig.random.below(keys.len() as u64) as usize].clone();
        rig.put_one(key);
    }
    rig.db.wait_idle().unwrap();
    let stats = rig.stats();
    let (dead, all) = (
        sum(&stats, |level| level.dead_bytes),
        sum(&stats, |level| level.bytes),
    );
    assert!(sum(&stats, |level| level.growth.block_grained) > 40);
    assert!(
        dead as f64 <= 0.2 * (all - dead) as f64,
        "{dead} of {all} bytes are dead"
    );
    rig.check();
}

#[test]
fn block_11_dead_bytes_have_a_limit() {
    row(&mechanisms::BLOCK_SPACE, "bytes are dead", || {
        dead_bytes_are_bounded(GrainLimits::Constants)
    });
}

#[test]
fn block_11_dead_bytes_have_a_price() {
    row(&mechanisms::BLOCK_SPACE, "bytes are dead", || {
        dead_bytes_are_bounded(GrainLimits::Cost)
    });
}

/// The test of a row fails without its mechanism because the effect is missing. It cannot tell that
/// no data is lost; this test checks that.
#[test]
fn block_nothing_is_lost_without_a_mechanism() {
    let count = rig::without_each("block.", || {
        let mut rig = Rig::loaded(Profile::Block, 4_000, looser);
        rig.delete_some();
        rig.put(2_000, 1_000_000);
        rig.check();
        rig.reopened().check();
    });
    assert!(count > 10);
}

#[test]
fn block_a_checkpoint_and_its_source_both_go_on() {
    let mut rig = Rig::loaded(Profile::Block, 8_000, loose);
    rig.db.checkpoint("/copy").unwrap();
    let mut options = rig.options.clone();
    options.listener = None;
    options.environment.executor = Some(Arc::new(Inline::new()));
    let copy = Db::open("/copy", options.clone()).unwrap();
    let mut copied = rig.model.clone();
    for round in 0..6_000u64 {
        let key = format!("key{:07}", rig.random.below(1_000_000)).into_bytes();
        copy.put(&key, round.to_be_bytes()).unwrap();
        copied.insert(key, round.to_be_bytes().to_vec());
        if round % 2 == 0 {
            let key = format!("key{:07}", rig.random.below(1_000_000)).into_bytes();
            rig.put_one(key);
        }
    }
    copy.wait_idle().unwrap();
    rig.db.wait_idle().unwrap();
    rig.check();
    copy.verify().unwrap();
    copy.close().unwrap();
    let copy = Db::open("/copy", options).unwrap();
    for (key, value) in &copied {
        assert_eq!(copy.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

#[test]
fn block_snapshots_and_cursors_outlive_appends() {
    let mut rig = Rig::loaded(Profile::Block, 8_000, loose);
    let before = rig.model.clone();
    let snapshot = rig.db.snapshot();
    let mut iter = rig.db.cursor().unwrap();
    iter.first().unwrap();
    for key in before.keys().step_by(3) {
        rig.db.delete(key).unwrap();
        rig.model.remove(key);
    }
    let appends = sum(&rig.stats(), |level| level.growth.block_grained);
    rig.put(6_000, 1_000_000);
    assert!(sum(&rig.stats(), |level| level.growth.block_grained) > appends + 10);
    for (key, value) in &before {
        assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
        iter.next().unwrap();
        assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    assert!(!iter.valid());
    drop((iter, snapshot));
    rig.check();
}

/// A rewritten table's file is removed, but not while readers of an older end still use it.
#[test]
fn block_readers_of_an_older_end_outlive_the_table() {
    let mut rig = Rig::loaded(Profile::Block, 8_000, |options| {
        loose(options);
        options.max_open_files = 1;
        options.tuning.block.lazy_delete_bytes = 0;
    });
    let before = rig.model.clone();
    let snapshot = rig.db.snapshot();
    let mut iter = rig.db.cursor().unwrap();
    iter.first().unwrap();
    rig.put(2_000, 1_000_000);
    rig.db.compact().unwrap();
    for (key, value) in &before {
        assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
        iter.next().unwrap();
    }
    drop((iter, snapshot));
    rig.check();
}

/// A table with nothing left gets no append, even if the compaction fails: a checkpoint would wait
/// for the append to end.
#[test]
fn block_a_checkpoint_does_not_wait_for_an_append_that_was_none() {
    // All blocks of a table are dirty, which by cost would rewrite the table.
    site::without(&mechanisms::BLOCK_SELECTIVE, || {
        let mut rig = Rig::loaded(Profile::Block, 6_000, loose);
        let keys: Vec<Vec<u8>> = rig.model.keys().cloned().collect();
        for (i, key) in keys.iter().enumerate() {
            rig.db.delete(key).unwrap();
            rig.model.remove(key);
            if i % 200 == 0 {
                let manifest = rig
                    .fs
                    .list(Path::new(DIR))
                    .unwrap()
                    .into_iter()
                    .find(|name| name.starts_with("MANIFEST"));
                let fault = Fault::once(FaultKind::Enospc)
                    .on(OpKind::Write)
                    .at(manifest.unwrap());
                rig.fs.inject(fault.after(i as u64 / 200 % 9));
                rig.settle();
                rig.fs.heal();
                rig.db.checkpoint(format!("/copy{i}")).unwrap();
            }
        }
        rig.settle();
        rig.check();
    });
}

#[test]
fn block_numbers_out_of_range_are_refused() {
    let fs = SimFs::new(1);
    let mut options = Options::tiny()
        .profile(Profile::Block)
        .environment(Environment {
            fs: Some(Arc::new(fs)),
            ..Environment::default()
        });
    options.tuning.block.dead_share_max = -1.0;
    let error = Db::open("/db", options).unwrap_err();
    assert_eq!(error.kind(), firndb::ErrorKind::Invalid);
    assert!(error.to_string().contains("dead_share_max"));
}
