//! Tests every engine of this build against a model: random puts, gets, deletes and scans, with
//! reopens in between.
//!
//! A mistake of an adapter (an option that loses writes, a scan that begins too late, a handle that
//! stays open) shows here and not in a benchmark. A failure names the engine and the operation; the
//! seed is fixed.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_base::clock::Clock;
use firn_base::seed::Seed;
use firn_bench::{Change, Compression, Engine, PmBudget, Retail, Setup, Silent, Store};
use firndb::Durability;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OPERATIONS: u64 = 4000;
const KEYS: u64 = 700;
const REOPEN_ONE_IN: u64 = 800;
const VALUE_BYTES_MAX: usize = 3000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small database whose buffers fill many times during the test. Without direct I/O, because not
/// every temporary directory allows it.
fn setup(place: &Path, compression: Compression) -> Setup {
    let (directory, pm) = (place.join("db"), place.join("pm"));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::create_dir_all(&pm).unwrap();
    Setup {
        directory,
        memory_bytes: 32 << 20,
        compression,
        direct_io: false,
        background_threads: 2,
        durability: Durability::Process,
        records_max: KEYS * 2,
        key_bytes_max: 16,
        value_bytes_max: VALUE_BYTES_MAX,
        pm: Some(PmBudget {
            directory: pm,
            bytes: 64 << 20,
        }),
        extra: BTreeMap::new(),
    }
}

/// The engines of this build. An engine that is not in this build says so in its description.
fn engines() -> Vec<Box<dyn Engine>> {
    let missing = |engine: &dyn Engine| engine.about().contains("is not in this build");
    firn_peers::all()
        .into_iter()
        .filter(|engine| !missing(&**engine))
        .collect()
}

fn setup_of(engine: &dyn Engine, place: &Path, compression: Compression) -> Setup {
    let mut setup = setup(place, compression);
    if engine.name().starts_with("firn:") {
        // FirnDB's own suites test pools, and not every profile takes one.
        setup.pm = None;
    }
    setup
}

/// Opens a store; `None` if the engine rejects the compression, which must be a clear `Invalid`.
fn open(engine: &dyn Engine, setup: &Setup) -> Option<Arc<dyn Store>> {
    match engine.open(setup) {
        Ok(store) => Some(store),
        Err(error) if setup.compression != Compression::None => {
            assert_eq!(
                error.kind(),
                firn_base::ErrorKind::Invalid,
                "{}: {error}",
                engine.name()
            );
            None
        }
        Err(error) => panic!("{}: {error}", engine.name()),
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{:06}", number * 7).into_bytes()
}

fn value(seed: &mut Seed) -> Vec<u8> {
    let mut value = vec![0; seed.below(VALUE_BYTES_MAX as u64) as usize];
    seed.fill(&mut value);
    value
}

fn check_get(store: &dyn Store, model: &Model, key: &[u8]) {
    let mut seen = None;
    let found = store
        .get(key, &mut |value| seen = Some(value.to_vec()))
        .unwrap();
    assert_eq!(found, seen.is_some());
    assert!(
        seen.as_ref() == model.get(key),
        "{}: get {}",
        store.describe(),
        String::from_utf8_lossy(key)
    );
}

fn check_scan(store: &dyn Store, model: &Model, from: &[u8], count: usize) {
    let mut seen = Vec::new();
    store
        .scan(from, count, &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()))
        })
        .unwrap();
    let expected: Vec<_> = model
        .range(from.to_vec()..)
        .take(count)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    assert!(
        seen == expected,
        "{}: scan from {} of {count}",
        store.describe(),
        String::from_utf8_lossy(from)
    );
}

/// Writes a batch of puts and deletes.
fn write_batch(store: &dyn Store, model: &mut Model, seed: &mut Seed, durability: Durability) {
    let count = 1 + seed.below(20);
    let mut batch: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    for _ in 0..count {
        let value = Some(value(seed)).filter(|_| !seed.one_in(3));
        batch.insert(key(seed.below(KEYS)), value);
    }
    let mut changes: Vec<Change<'_>> = Vec::new();
    for (key, value) in &batch {
        changes.push(match value {
            Some(value) => Change::Put { key, value },
            None => Change::Delete { key },
        });
    }
    store.write(&changes, durability).unwrap();
    for (key, value) in batch {
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
}

fn run(engine: &dyn Engine, compression: Compression) {
    let place = tempfile::tempdir().unwrap();
    let setup = setup_of(engine, place.path(), compression);
    let Some(mut store) = open(engine, &setup) else {
        return;
    };
    let (mut model, mut seed) = (Model::new(), Seed::new(7));
    for _ in 0..OPERATIONS {
        let key = key(seed.below(KEYS));
        let durability = if seed.one_in(50) {
            Durability::Power
        } else {
            Durability::Process
        };
        match seed.below(11) {
            10 => write_batch(&*store, &mut model, &mut seed, durability),
            0..5 => {
                let value = value(&mut seed);
                store.put(&key, &value, durability).unwrap();
                model.insert(key, value);
            }
            5 => {
                store.delete(&key, durability).unwrap();
                model.remove(&key);
            }
            6..=8 => check_get(&*store, &model, &key),
            // Between two keys, so that it begins at the next.
            _ => check_scan(
                &*store,
                &model,
                &[&key[..], b"x"].concat(),
                seed.below(60) as usize,
            ),
        }
        if seed.one_in(REOPEN_ONE_IN) {
            drop(store);
            store = engine.open(&setup).unwrap();
        }
    }
    check_scan(&*store, &model, b"", usize::MAX);
    store.settle().unwrap();
    (0..KEYS).for_each(|number| check_get(&*store, &model, &key(number)));
    check_scan(&*store, &model, b"", 10);
    drop(store);
    check_scan(&*engine.open(&setup).unwrap(), &model, b"", usize::MAX);
}

#[test]
fn engines_do_as_the_model() {
    for engine in engines() {
        for compression in [Compression::None, Compression::Lz4] {
            println!("{}, compression {compression}", engine.name());
            run(&*engine, compression);
        }
    }
}

#[test]
fn counters_count_and_settings_are_told() {
    for engine in engines() {
        let place = tempfile::tempdir().unwrap();
        let setup = setup_of(&*engine, place.path(), Compression::None);
        assert!(!engine.settings(&setup).is_empty(), "{}", engine.name());
        let store = engine.open(&setup).unwrap();
        let mut seed = Seed::new(3);
        let before = store.counters();
        let mut put_bytes = 0;
        for number in 0..16_000 {
            let value = value(&mut seed);
            put_bytes += value.len() as u64;
            store
                .put(&key(number % 3000), &value, Durability::Process)
                .unwrap();
        }
        store.settle().unwrap();
        let counted = store.counters().since(&before);
        println!("{}: {put_bytes} bytes put; {counted:?}", store.describe());
        assert!(counted.space_bytes > 0, "{}", engine.name());
        let written = |cause: &str| -> u64 {
            counted
                .traffic
                .iter()
                .filter(|traffic| traffic.cause == cause)
                .map(|traffic| traffic.written_bytes)
                .sum()
        };
        if engine.name().starts_with("rocksdb") {
            assert!(
                written("log") > put_bytes && written("flush") > 0 && written("compaction") > 0
            );
        }
    }
}

#[test]
fn writers_and_readers_at_once() {
    for engine in engines() {
        let place = tempfile::tempdir().unwrap();
        let store = engine
            .open(&setup_of(&*engine, place.path(), Compression::None))
            .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for number in (0..200).map(|n| n * 4 + thread) {
                        let durability = if number % 64 == 0 {
                            Durability::Power
                        } else {
                            Durability::Process
                        };
                        store
                            .put(&key(number), &number.to_le_bytes(), durability)
                            .unwrap();
                        let mut seen = false;
                        store
                            .get(&key(number), &mut |value| {
                                seen = value == number.to_le_bytes()
                            })
                            .unwrap();
                        assert!(seen, "{}: {number}", store.describe());
                    }
                });
            }
        });
        let mut count = 0;
        store.scan(b"", usize::MAX, &mut |_, _| count += 1).unwrap();
        assert_eq!(count, 800, "{}", engine.name());
    }
}

/// Two threads write batches that set the same keys to one number each, and two scan them.
#[test]
fn a_scan_sees_a_batch_whole() {
    const SAME_KEYS: u64 = 20;
    const BATCHES: u64 = 300;
    for engine in engines() {
        let place = tempfile::tempdir().unwrap();
        let setup = setup_of(&*engine, place.path(), Compression::None);
        let store = engine.open(&setup).unwrap();
        let keys: Vec<Vec<u8>> = (0..SAME_KEYS).map(key).collect();
        let write = |number: u64| {
            let value = number.to_le_bytes();
            let changes = keys.iter().map(|key| Change::Put { key, value: &value });
            let changes: Vec<Change<'_>> = changes.collect();
            store.write(&changes, Durability::Process).unwrap();
        };
        write(0);
        let (left, scans) = (AtomicU64::new(2), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 1..=2 {
                let (left, write) = (&left, &write);
                scope.spawn(move || {
                    (0..BATCHES).for_each(|batch| write(batch * 2 + thread));
                    left.fetch_sub(1, Ordering::SeqCst);
                });
                let (store, keys, scans) = (&store, &keys, &scans);
                scope.spawn(move || {
                    // One scan at least, even if the writers are done.
                    loop {
                        let is_last = left.load(Ordering::SeqCst) == 0;
                        let mut numbers = Vec::new();
                        store
                            .scan(&keys[0], keys.len(), &mut |_, value| {
                                numbers.push(value.to_vec());
                            })
                            .unwrap();
                        let name = store.describe();
                        assert_eq!(numbers.len(), keys.len(), "{name}");
                        let is_whole = numbers.windows(2).all(|pair| pair[0] == pair[1]);
                        assert!(is_whole, "{name}: a part of a batch: {numbers:?}");
                        scans.fetch_add(1, Ordering::SeqCst);
                        if is_last {
                            return;
                        }
                    }
                });
            }
        });
        println!("{}: {} scans", engine.name(), scans.into_inner());
    }
}

/// The variable in which a child of this program finds the name of its engine and its directory.
const CRASH: &str = "FIRN_PEERS_CRASH";
const CRASH_KEYS: u64 = 3000;

/// A child puts keys with [`Durability::Process`] and aborts. redb is exempt: without a sync it
/// promises nothing that outlives its process.
#[test]
fn what_is_acknowledged_outlives_the_process() {
    if let Ok(told) = std::env::var(CRASH) {
        let (name, place) = told.split_once(' ').unwrap();
        let engine = engines()
            .into_iter()
            .find(|engine| engine.name() == name)
            .unwrap();
        let store = engine
            .open(&setup_of(&*engine, Path::new(place), Compression::None))
            .unwrap();
        for number in 0..CRASH_KEYS {
            let value = vec![number as u8; (number % VALUE_BYTES_MAX as u64) as usize];
            store
                .put(&key(number), &value, Durability::Process)
                .unwrap();
        }
        std::process::abort();
    }
    for engine in engines().iter().filter(|engine| engine.name() != "redb") {
        let place = tempfile::tempdir().unwrap();
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "what_is_acknowledged_outlives_the_process"])
            .env(
                CRASH,
                format!("{} {}", engine.name(), place.path().display()),
            )
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr).into_owned();
        // It aborted, and did not panic before.
        assert!(child.status.code().is_none(), "{}: {said}", engine.name());
        let setup = setup_of(&**engine, place.path(), Compression::None);
        let store = engine.open(&setup).unwrap();
        for number in 0..CRASH_KEYS {
            let value = vec![number as u8; (number % VALUE_BYTES_MAX as u64) as usize];
            let mut is_same = false;
            let found = store.get(&key(number), &mut |seen| is_same = seen == value);
            assert!(found.unwrap() && is_same, "{}: key {number}", engine.name());
        }
    }
}

#[test]
fn retail_runs_on_every_engine() {
    let retail = Retail {
        orders: 60,
        seed: 3,
    };
    let config = retail.config(3000, 2, 0, Durability::Process);
    for engine in engines() {
        let place = tempfile::tempdir().unwrap();
        let mut setup = setup_of(&*engine, place.path(), Compression::None);
        config.describe_run(&mut setup);
        let mut phases = 0;
        firn_bench::run(
            engine.open(&setup).unwrap(),
            &|setup| engine.open(setup),
            &setup,
            &config,
            &Clock::system(),
            &Silent,
            &mut |_| phases += 1,
        )
        .unwrap_or_else(|error| panic!("{}: {error}", engine.name()));
        assert_eq!(phases, 2, "{}", engine.name());
    }
}

#[test]
fn what_cannot_be_followed_is_refused_before_anything_is_written() {
    for engine in engines() {
        let place = tempfile::tempdir().unwrap();
        let mut setup = setup_of(&*engine, place.path(), Compression::None);
        setup
            .extra
            .insert("no_such_option".to_owned(), "1".to_owned());
        let refused = engine.open(&setup).err().map(|error| error.kind());
        assert_eq!(
            refused,
            Some(firn_base::ErrorKind::Invalid),
            "{}",
            engine.name()
        );
        assert_eq!(
            std::fs::read_dir(&setup.directory).unwrap().count(),
            0,
            "{}",
            engine.name()
        );
    }
}

#[test]
fn a_missing_engine_is_known_by_name() {
    let names: Vec<String> = firn_peers::all()
        .iter()
        .map(|engine| engine.name())
        .collect();
    for name in [
        "firn:classic",
        "rocksdb",
        "rocksdb-tuned",
        "rocksdb-pm",
        "leveldb",
        "tidesdb",
        "fjall",
        "redb",
        "lmdb",
    ] {
        assert!(
            names.iter().any(|n| n == name),
            "{name} is not in {names:?}"
        );
    }
}
