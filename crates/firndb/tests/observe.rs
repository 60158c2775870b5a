//! Externally visible behaviour: events, statistics that add up, Prometheus text, files that come
//! and go, revoked pins.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::PROCESS;
use firn_base::clock::Clock;
use firn_base::exec::Inline;
use firndb::{Codec, Db, Environment, Event, EventListener, MemoryStats, Options, Profile};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Seen(Mutex<Vec<Event>>);

impl EventListener for Seen {
    fn on_event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Seen {
    fn count(&self, matches: impl Fn(&Event) -> bool) -> usize {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|event| matches(event))
            .count()
    }
}

fn tables(dir: &Path) -> usize {
    let is_table = |e: &std::fs::DirEntry| e.path().extension().is_some_and(|e| e == "sst");
    std::fs::read_dir(dir)
        .unwrap()
        .filter(|e| is_table(e.as_ref().unwrap()))
        .count()
}

fn fill(db: &Db, rounds: u32) {
    for round in 0..rounds {
        for i in 0..500u32 {
            db.put_with(i.to_be_bytes(), vec![round as u8; 200], &PROCESS)
                .unwrap();
        }
    }
}

#[test]
fn events_and_stats_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let inline = Arc::new(Inline::new());
    let environment = Environment {
        executor: Some(inline.clone()),
        ..Environment::default()
    };
    let options = Options::tiny()
        .listener(seen.clone())
        .environment(environment);
    let db = Db::open(dir.path(), options).unwrap();
    fill(&db, 20);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    inline.run();
    let stats = db.stats();
    assert_eq!(
        stats.background.flushes as usize,
        seen.count(|e| matches!(e, Event::Flushed { .. }))
    );
    let compactions: u64 = stats
        .levels
        .iter()
        .map(|level| level.compactions + level.moves)
        .sum();
    assert_eq!(
        compactions as usize,
        seen.count(|e| matches!(e, Event::Compacted { .. }))
    );
    assert!(compactions > 0);
    assert_eq!(seen.count(|e| matches!(e, Event::Recovered { .. })), 1);
    assert!(seen.count(|e| matches!(e, Event::LogRotated { .. })) > 3);
    assert!(seen.count(|e| matches!(e, Event::FileRemoved { .. })) > 3);
    assert_eq!(stats.user.writes, 10_000);
    assert_eq!(stats.user.written_bytes, 10_000 * 204);
    let by_cause: u64 = stats.ssd.iter().map(|cause| cause.written_bytes).sum();
    assert_eq!(by_cause, stats.ssd_written_bytes);
    // Each byte went to the log and, once flushed, to tables: at least twice.
    assert!(
        stats.write_amplification > 1.0,
        "{}",
        stats.write_amplification
    );
    let tables_now: usize = stats.levels.iter().map(|level| level.tables).sum();
    assert_eq!(
        tables_now,
        tables(dir.path()),
        "obsolete tables are removed once nobody reads them"
    );
    assert_eq!(stats.background.debt_bytes, 0);
    let text = stats.to_prometheus();
    assert!(text.contains("firn_writes_total 10000\n"), "{text}");
    check_prometheus(&text);
}

/// Checks that each sample belongs to the family above it, and that no family appears twice.
fn check_prometheus(text: &str) {
    let mut families = std::collections::BTreeSet::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(of) = line.strip_prefix("# TYPE ") {
            family = of.split(' ').next().unwrap();
            assert!(families.insert(family), "{line} comes twice");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(
                name.starts_with("firn_") && value.parse::<f64>().is_ok(),
                "{line}"
            );
            assert_eq!(name.split('{').next().unwrap(), family, "{line}");
        }
    }
}

/// The block cache gives way to values that readers hold, and takes their memory back.
#[test]
fn values_that_are_held_are_counted() {
    const BYTES: usize = 100 << 10;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().memory_limit_bytes(64 << 20);
    let db = Db::open(dir.path(), options).unwrap();
    let keys: Vec<[u8; 4]> = (0..200u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        db.put_with(key, vec![key[3]; BYTES], &PROCESS).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.stats().memory.held_value_bytes, 0);
    // Waits until the statistics of memory are as `is_right` says.
    let wait = |is_right: &dyn Fn(&MemoryStats) -> bool| {
        for _ in 0..1000 {
            if is_right(&db.stats().memory) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let memory = db.stats().memory;
        assert!(is_right(&memory), "{memory:?}");
        memory.cache_bytes_max
    };
    // What writes left idle goes to the cache first.
    let before = wait(&|memory| memory.buffer_dram_bytes < 1 << 20);
    let one_by_one = keys[..100].iter().map(|key| db.get(key).unwrap());
    let mut held: Vec<_> = one_by_one.collect();
    held.extend(db.multi_get(&keys[100..150]).unwrap());
    held.extend(db.iter().take(50).map(|entry| Some(entry.unwrap().1)));
    let bytes = db.stats().memory.held_value_bytes;
    assert!(
        held.iter()
            .all(|value| value.as_ref().is_some_and(|value| value.len() == BYTES))
    );
    assert!(
        (200 * BYTES as u64..=230 * BYTES as u64).contains(&bytes),
        "{bytes}"
    );
    wait(&|memory| memory.cache_bytes_max + (18 << 20) < before);
    std::thread::spawn(move || drop(held)).join().unwrap();
    assert_eq!(db.stats().memory.held_value_bytes, 0);
    // Tables were opened meanwhile.
    wait(&|memory| memory.cache_bytes_max + (1 << 20) >= before);
}

/// In profile `tlsm`, lists, their bytes and the searches in them are included.
#[test]
fn prometheus_has_the_lists() {
    let dir = tempfile::tempdir().unwrap();
    let pm = Some(firn_pm::PmConfig::at(
        dir.path().join("pool"),
        firn_pm::Backend::Emulated,
        4 << 20,
    ));
    let options = Options::tiny().profile(Profile::Tlsm).pm(pm);
    let db = Db::open(dir.path().join("db"), options).unwrap();
    let key = |i: u32| i.to_be_bytes();
    for half in 0..2 {
        (0..100).for_each(|i| db.put(key(2 * i + half), [1; 100]).unwrap());
        db.flush().unwrap();
    }
    db.compact().unwrap();
    (0..200).for_each(|i| assert!(db.get(key(i)).unwrap().is_some()));
    let stats = db.stats();
    let tlsm = stats.design.tlsm.as_ref().unwrap();
    // A group of nodes is four or five lines, and the entry two or three.
    let lines = tlsm.searches.lines as f64 / tlsm.searches.count as f64;
    assert!(
        tlsm.searches.count == 200 && (4.0..9.0).contains(&lines),
        "{tlsm:?}"
    );
    // What an open list needs is memory of the database.
    assert!(stats.memory.open_table_bytes > 200, "{:?}", stats.memory);
    assert!(tlsm.linked >= 200, "{tlsm:?}");
    let text = stats.to_prometheus();
    check_prometheus(&text);
    // Chunks so small may be relocated meanwhile, which links again.
    let linked = format!("firn_list_linked_total {}", tlsm.linked);
    let lists = format!("firn_lists{{level=\"1\"}} {}", tlsm.lists[1]);
    for sample in [
        &*linked,
        &lists,
        "firn_list_copied_bytes_total{cause=\"compaction\"} 0",
        "firn_list_searches_total 200",
        "firn_hits_total{layer=\"level1\"} 200",
    ] {
        assert!(
            text.lines().any(|line| line == sample),
            "{sample} in {text}"
        );
    }
}

/// In profile `lab`, trees, hits by layer, logs and the hot buffer are included.
#[test]
fn prometheus_has_the_tier() {
    let dir = tempfile::tempdir().unwrap();
    let memory = firn_pm::sim::SimRegion::new(4 << 20, firn_pm::sim::Mode::Adr);
    let environment = Environment {
        memory: Some(memory),
        ..Environment::default()
    };
    let pm = Some(firn_pm::PmConfig::volatile(4 << 20));
    let mut options = Options::tiny()
        .profile(Profile::Lab)
        .pm(pm)
        .environment(environment);
    // Everything goes into the trees.
    options.tuning.lab.reuse_min = 0.0;
    let db = Db::open(dir.path(), options).unwrap();
    (0..100_u32).for_each(|i| db.put(i.to_be_bytes(), [1; 100]).unwrap());
    db.flush().unwrap();
    (0..100_u32).for_each(|i| assert!(db.get(i.to_be_bytes()).unwrap().is_some()));
    let text = db.stats().to_prometheus();
    check_prometheus(&text);
    for sample in [
        "firn_tree_entries{tree=\"mutable\"} 100",
        "firn_lab_hits_total{structure=\"mutable_tree\"} 100",
        "firn_hits_total{layer=\"upper\"} 100",
        "firn_value_log_bytes{bytes=\"live\"} 10000",
        "firn_hot_values 0",
    ] {
        assert!(
            text.lines().any(|line| line == sample),
            "{sample} in {text}"
        );
    }
    assert!(
        text.contains("firn_pm_live_bytes{owner=\"btree\"}"),
        "{text}"
    );
}

/// The thread that makes a table also opens it, so its first reader does not have to.
#[test]
fn new_tables_are_opened_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let inline = Arc::new(Inline::new());
    let environment = Environment {
        executor: Some(inline.clone()),
        ..Environment::default()
    };
    let db = Db::open(dir.path(), Options::tiny().environment(environment)).unwrap();
    fill(&db, 20);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    inline.run();
    let before = db.stats();
    assert!(before.memory.open_tables > 0);
    assert_eq!(
        before.memory.open_tables,
        before
            .levels
            .iter()
            .map(|level| level.tables)
            .sum::<usize>()
    );
    (0..500u32).for_each(|i| assert!(db.get(i.to_be_bytes()).unwrap().is_some()));
    assert_eq!(db.stats().memory.table_opens, before.memory.table_opens);
}

/// An idle cursor on an old state releases it, and continues from the same position.
#[test]
fn idle_cursors_release_states() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, inline) = (Clock::manual(), Arc::new(Inline::new()));
    let environment = Environment {
        clock: Some(clock.clone()),
        executor: Some(inline.clone()),
        ..Environment::default()
    };
    let db = Db::open(dir.path(), Options::tiny().environment(environment)).unwrap();
    fill(&db, 3);
    db.flush().unwrap();
    inline.run();
    let mut iter = db.cursor().unwrap();
    iter.seek(100u32.to_be_bytes()).unwrap();
    let (key, value) = (iter.key().to_vec(), iter.value().to_vec());
    let before = tables(dir.path());
    assert!(before > 0);
    fill(&db, 20);
    db.flush().unwrap();
    db.compact().unwrap();
    inline.run();
    let live = |db: &Db| {
        db.stats()
            .levels
            .iter()
            .map(|level| level.tables)
            .sum::<usize>()
    };
    assert!(tables(dir.path()) > live(&db), "the cursor pins old tables");
    for _ in 0..4 {
        clock.advance(Duration::from_secs(1));
        inline.run();
    }
    inline.step();
    assert_eq!(
        tables(dir.path()),
        live(&db),
        "an idle cursor's pins were taken"
    );
    assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
    for i in 101..500u32 {
        iter.next().unwrap();
        assert_eq!(
            (iter.key(), iter.value()),
            (&i.to_be_bytes()[..], &[2; 200][..]),
            "the cursor's own moment"
        );
    }
    iter.next().unwrap();
    assert!(!iter.valid());
}

/// Deleted entries are gone from the files after a compaction.
#[test]
fn deletes_give_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment {
        executor: Some(Arc::new(Inline::new())),
        ..Environment::default()
    };
    let options = Options::tiny()
        .compression(Codec::None)
        .environment(environment);
    let db = Db::open(dir.path(), options).unwrap();
    fill(&db, 5);
    db.compact().unwrap();
    assert!(db.stats().table_bytes > 50_000);
    for i in 0..500u32 {
        db.delete(i.to_be_bytes()).unwrap();
    }
    db.compact().unwrap();
    let stats = db.stats();
    assert_eq!(stats.table_bytes, 0, "{:?}", stats.levels);
    assert_eq!(tables(dir.path()), 0);
    assert_eq!(db.iter().count(), 0);
}

/// Counts the compactions caused by `gets` reads of a key in a lower table that another table
/// covers, with a block cache of `block_cache_bytes`.
fn seek_compactions(gets: usize, block_cache_bytes: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    // Without filters every table that covers the key is searched.
    let options = Options::tiny()
        .filter_bits(0)
        .block_cache_bytes(Some(block_cache_bytes));
    let db = Db::open(dir.path(), options).unwrap();
    for i in (0..100u32).step_by(2) {
        db.put(i.to_be_bytes(), b"even").unwrap();
    }
    db.compact().unwrap();
    db.put(0u32.to_be_bytes(), b"new").unwrap();
    db.put(98u32.to_be_bytes(), b"new").unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.stats().background.seek_compactions, 0);
    for _ in 0..gets {
        assert_eq!(db.get(50u32.to_be_bytes()).unwrap().unwrap(), b"even");
    }
    db.wait_idle().unwrap();
    assert_eq!(db.get(0u32.to_be_bytes()).unwrap().unwrap(), b"new");
    db.stats().background.seek_compactions
}

/// A table that costs many fruitless reads is compacted although no level is too large. Reads
/// served by the cache do not count.
#[test]
fn fruitless_reads_cause_a_compaction() {
    assert!(seek_compactions(300, 0) > 0);
    assert_eq!(seek_compactions(300, 64 << 10), 0);
}

/// A compaction's first table once counted deeper tables before its first key as overlapping, and
/// was then cut after one entry.
#[test]
fn compactions_leave_no_tiny_tables() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment {
        executor: Some(Arc::new(Inline::new())),
        ..Environment::default()
    };
    let options = Options::tiny()
        .environment(environment)
        .compression(Codec::None);
    let db = Db::open(dir.path(), options.clone()).unwrap();
    for i in 0..12_000u32 {
        let key = i.wrapping_mul(2_654_435_761).to_be_bytes();
        db.put_with(key, vec![i as u8; 120], &PROCESS).unwrap();
        if i % 300 == 0 {
            db.wait_idle().unwrap();
        }
    }
    db.wait_idle().unwrap();
    for level in db
        .stats()
        .levels
        .iter()
        .skip(1)
        .filter(|level| level.tables > 4)
    {
        let mean = level.bytes / level.tables as u64;
        assert!(
            mean > options.limits.table_bytes / 2,
            "level {}: {mean} bytes a table",
            level.level
        );
    }
}

/// Everything that a user can hold crosses threads and can be printed.
#[test]
fn public_types_are_send_sync_and_debug() {
    fn holds<T: Send + Sync + std::fmt::Debug>() {}
    holds::<firndb::Db>();
    holds::<firndb::Snapshot>();
    holds::<firndb::Cursor>();
    holds::<firndb::Iter>();
    holds::<firndb::WriteBatch>();
    holds::<firndb::Value>();
    holds::<firndb::Options>();
    holds::<firndb::WriteOptions>();
    holds::<firndb::ReadOptions>();
    holds::<firndb::Environment>();
    holds::<firndb::PmConfig>();
    holds::<firndb::Limits>();
    holds::<firndb::Tuning>();
    holds::<firndb::Event>();
    holds::<firndb::Error>();
    holds::<firndb::Stats>();
    holds::<firndb::VerifyReport>();
    holds::<firndb::RepairReport>();
    holds::<firndb::Damage>();
}

/// An error keeps the operating system's error through all that is added to its message.
#[test]
fn errors_keep_their_source() {
    let source = std::io::Error::from_raw_os_error(5);
    let error =
        firndb::Error::from_io("read", std::path::Path::new("file"), source).context("the table");
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(
        source
            .downcast_ref::<std::io::Error>()
            .unwrap()
            .raw_os_error(),
        Some(5)
    );
}
