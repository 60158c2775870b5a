//! The retail workload (row blade_12): the same operations from a seed, on every profile, and no
//! wrong answer passes.

use firn_base::clock::Clock;
use firn_base::{ErrorKind, Result};
use firn_bench::{
    Change, Compression, Counters, Firn, PhaseReport, PmBudget, Retail, Setup, Silent, Store,
};
use firndb::Durability;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const ORDERS: u64 = 60;
const TRANSACTIONS: u64 = 3000;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A correct store, with batches that are atomic or not.
#[derive(Default)]
struct Map {
    entries: Mutex<Entries>,
    is_atomic: bool,
}

impl Map {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().expect("a lock")
    }
}

fn apply(entries: &mut Entries, change: &Change<'_>) {
    match *change {
        Change::Put { key, value } => drop(entries.insert(key.to_vec(), value.to_vec())),
        Change::Delete { key } => drop(entries.remove(key)),
    }
}

impl Store for Map {
    fn put(&self, key: &[u8], value: &[u8], _durability: Durability) -> Result<()> {
        apply(&mut self.lock(), &Change::Put { key, value });
        Ok(())
    }

    fn delete(&self, key: &[u8], _durability: Durability) -> Result<()> {
        apply(&mut self.lock(), &Change::Delete { key });
        Ok(())
    }

    fn write(&self, batch: &[Change<'_>], _durability: Durability) -> Result<()> {
        if self.is_atomic {
            let mut entries = self.lock();
            batch.iter().for_each(|change| apply(&mut entries, change));
        } else {
            batch
                .iter()
                .for_each(|change| apply(&mut self.lock(), change));
        }
        Ok(())
    }

    fn is_atomic(&self) -> bool {
        self.is_atomic
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let entries = self.lock();
        let value = entries.get(key);
        value.into_iter().for_each(|value| see(value));
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let entries = self.lock();
        let found = entries.range(from.to_vec()..).take(count);
        found.for_each(|(key, value)| see(key, value));
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        "a map".to_owned()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A get does not find a row.
    DropsRow,
    /// A get finds the version of a row before the last.
    OldRow,
    /// A get finds a row with a flipped bit.
    FlipsBit,
    /// A scan of an index finds an entry that was removed.
    StaleEntry,
    /// A scan of an index misses its first entry.
    DropsEntry,
    /// A scan of the lines of an order misses one.
    DropsLine,
}

/// A store with one fault, which happens once in the transactions after the load, and a record of
/// the operations by thread.
struct Faulty {
    inner: Arc<dyn Store>,
    fault: Fault,
    /// Calls that could have the fault.
    calls: AtomicU64,
    /// The version of each row before the last.
    old: Mutex<Entries>,
    /// Index entries that were removed.
    removed: Mutex<Entries>,
    /// A digest of each call, by thread.
    calls_of: Mutex<BTreeMap<String, Vec<u32>>>,
}

/// True if `key` is of an index: `table|index|value|pk`.
fn is_of_index(key: &[u8]) -> bool {
    key.iter().filter(|byte| **byte == b'|').count() == 3
}

/// The part of an index entry's key before the pk.
fn value_of(key: &[u8]) -> &[u8] {
    let end = key.iter().rposition(|byte| *byte == b'|');
    &key[..end.unwrap_or(0)]
}

impl Faulty {
    fn new(inner: Arc<dyn Store>, fault: Fault) -> Arc<Self> {
        Arc::new(Self {
            inner,
            fault,
            calls: AtomicU64::new(0),
            old: Mutex::default(),
            removed: Mutex::default(),
            calls_of: Mutex::default(),
        })
    }

    /// True at the tenth call that could have `fault`.
    fn strikes(&self, fault: Fault) -> bool {
        self.fault == fault && self.calls.fetch_add(1, Ordering::Relaxed) == 9
    }

    fn record(&self, call: &str, parts: &[&[u8]]) {
        let thread = std::thread::current().name().unwrap_or("").to_owned();
        let digest = firn_base::checksum::crc32c_salted(0, call.len() as u64, parts);
        let mut calls_of = self.calls_of.lock().expect("a lock");
        calls_of.entry(thread).or_default().push(digest);
    }
}

impl Store for Faulty {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.inner.put(key, value, durability)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.inner.delete(key, durability)
    }

    fn write(&self, batch: &[Change<'_>], durability: Durability) -> Result<()> {
        for change in batch {
            match *change {
                Change::Put { key, value } => {
                    self.record("put", &[key, value]);
                    let mut old = self.old.lock().expect("a lock");
                    self.inner.get(key, &mut |before| {
                        old.insert(key.to_vec(), before.to_vec());
                    })?;
                }
                Change::Delete { key } => {
                    self.record("delete", &[key]);
                    let mut removed = self.removed.lock().expect("a lock");
                    self.inner.get(key, &mut |value| {
                        removed.insert(key.to_vec(), value.to_vec());
                    })?;
                }
            }
        }
        self.inner.write(batch, durability)
    }

    fn is_atomic(&self) -> bool {
        self.inner.is_atomic()
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (mut value, old) = (
            Vec::new(),
            self.old.lock().expect("a lock").get(key).cloned(),
        );
        let found = self.inner.get(key, &mut |found| value = found.to_vec())?;
        match old {
            _ if !found || self.strikes(Fault::DropsRow) => return Ok(false),
            Some(old) if self.strikes(Fault::OldRow) => value = old,
            _ if self.strikes(Fault::FlipsBit) => *value.last_mut().expect("a row") ^= 1,
            _ => {}
        }
        see(&value);
        Ok(true)
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.record("scan", &[from, &count.to_le_bytes()]);
        let mut found = Entries::new();
        self.inner.scan(from, count, &mut |key, value| {
            found.insert(key.to_vec(), value.to_vec());
        })?;
        let removed = self.removed.lock().expect("a lock");
        let mut stale = removed.range(from.to_vec()..);
        if self.fault == Fault::StaleEntry
            && let Some((key, value)) = stale.find(|(key, _)| !found.contains_key(*key))
            && value_of(key) == value_of(from)
            && self.strikes(Fault::StaleEntry)
        {
            found.insert(key.clone(), value.clone());
        }
        let first = found.first_key_value().map(|(key, _)| key.clone());
        let fault = match is_of_index(from) {
            true => Fault::DropsEntry,
            false => Fault::DropsLine,
        };
        // The row that a scan of an index is about may be a later one, unless it begins there.
        if let Some(first) = first.filter(|key| key == from)
            && self.strikes(fault)
        {
            found.remove(&first);
        }
        found
            .iter()
            .take(count)
            .for_each(|(key, value)| see(key, value));
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

fn setup(place: &Path) -> Setup {
    let (directory, pm) = (place.join("db"), place.join("pm"));
    for made in [&directory, &pm] {
        std::fs::create_dir_all(made).expect("a directory");
    }
    Setup {
        directory,
        memory_bytes: 32 << 20,
        compression: Compression::None,
        direct_io: false,
        background_threads: 1,
        durability: Durability::Process,
        records_max: 0,
        key_bytes_max: 0,
        value_bytes_max: 0,
        pm: Some(PmBudget {
            directory: pm,
            bytes: 32 << 20,
        }),
        extra: [("write_buffer_bytes".to_owned(), (256 << 10).to_string())].into(),
    }
}

/// Runs load and transactions on `store`, with `seed` and `threads`.
fn run(store: Arc<dyn Store>, seed: u64, threads: usize) -> Result<Vec<PhaseReport>> {
    let place = tempfile::tempdir().expect("a directory");
    let mut reports = Vec::new();
    let retail = Retail {
        orders: ORDERS,
        seed,
    };
    let again = store.clone();
    firn_bench::run(
        store,
        &move |_| Ok(again.clone()),
        &setup(place.path()),
        &retail.config(TRANSACTIONS, threads, 0, Durability::Process),
        &Clock::system(),
        &Silent,
        &mut |report| reports.push(report),
    )?;
    Ok(reports)
}

fn map() -> Arc<Map> {
    Arc::new(Map {
        is_atomic: true,
        ..Map::default()
    })
}

fn contents(store: &dyn Store) -> Entries {
    let mut entries = Entries::new();
    let scanned = store.scan(b"", usize::MAX, &mut |key, value| {
        entries.insert(key.to_vec(), value.to_vec());
    });
    scanned.expect("entries");
    entries
}

/// The error of a run on `store` with `fault`.
fn error_of(store: Arc<dyn Store>, fault: Fault) -> String {
    let ran = run(Faulty::new(store, fault), 1, 1).map(drop);
    let Err(error) = ran else {
        panic!("{fault:?} was not found");
    };
    assert_eq!(error.kind(), ErrorKind::Corruption, "{fault:?}: {error}");
    error.to_string()
}

#[test]
fn an_honest_store_passes_with_any_number_of_threads() {
    for threads in [1, 2, 4, 7] {
        let reports = run(map(), 5, threads).expect("right answers");
        let [load, transactions] = &reports[..] else {
            panic!("{} phases", reports.len());
        };
        // Some of the last orders are still open.
        assert!((ORDERS * 7..ORDERS * 11).contains(&load.operations));
        assert_eq!(transactions.operations, TRANSACTIONS);
        assert_eq!(
            transactions.timeline.seconds.iter().sum::<u64>(),
            TRANSACTIONS
        );
        let count = |sort: &str| transactions.latency_by_sort[sort].operations;
        let (writes, queries) = (count("write"), count("index query"));
        assert!(writes.abs_diff(TRANSACTIONS / 2) < 150, "{writes} writes");
        assert!(queries.abs_diff(TRANSACTIONS * 35 / 100) < 150, "{queries}");
        assert!(count("scan") > queries && count("read") > writes);
        assert!(load.latency_by_sort.keys().eq(["write"]));
        assert!(load.checker_bytes > 0 && load.user_bytes > ORDERS * 60_000);
    }
}

#[test]
fn an_engine_without_batches_passes() {
    run(Arc::new(Map::default()), 5, 4).expect("right answers");
}

/// With one thread the whole run repeats. With more, each thread's own batches and scans do;
/// the rows that a scan finds depend on the other threads.
#[test]
fn a_seed_gives_the_same_operations_per_thread() {
    let calls = |seed: u64, threads: usize| {
        let store = Faulty::new(map(), Fault::None);
        run(store.clone(), seed, threads).expect("right answers");
        let calls_of = store.calls_of.lock().expect("a lock").clone();
        assert_eq!(calls_of.len(), threads);
        (calls_of, contents(&*store))
    };
    assert!(calls(1, 1) == calls(1, 1));
    assert!(calls(1, 3) == calls(1, 3));
    let (of_one, of_other) = (calls(1, 3).0, calls(2, 3).0);
    let distinct: HashSet<&Vec<u32>> = of_one.values().chain(of_other.values()).collect();
    assert_eq!(distinct.len(), 6, "threads or seeds repeat each other");
}

#[test]
fn every_fault_is_found_and_named() {
    for (fault, expected) in [
        (Fault::DropsRow, "found nothing"),
        (Fault::OldRow, "found version"),
        (Fault::FlipsBit, "found others"),
        (Fault::StaleEntry, "found a stale entry: version"),
        (Fault::DropsEntry, "found none in a scan of the index"),
        (Fault::DropsLine, "expected version"),
    ] {
        let error = error_of(map(), fault);
        assert!(
            error.starts_with("a wrong answer: `") && error.contains(expected),
            "{fault:?}: {error}"
        );
    }
}

/// The row of the paper's table: every profile answers as the map does, and one row or one entry
/// that goes wrong ends the run.
#[test]
fn blade_12_every_profile_answers_and_none_may_be_wrong() {
    let expected = map();
    run(expected.clone(), 3, 2).expect("right answers");
    let expected = expected.lock().clone();
    for engine in Firn::all() {
        let place = tempfile::tempdir().expect("a directory");
        let open = |name: &str| {
            let store = engine.open(&setup(&place.path().join(name)));
            store.unwrap_or_else(|error| panic!("{}: {error}", engine.name()))
        };
        let store = open("right");
        let reports = run(store.clone(), 3, 2);
        let reports = reports.unwrap_or_else(|error| panic!("{}: {error}", engine.name()));
        assert!(contents(&*store) == expected, "{}", engine.name());
        assert!(was_compacted(&reports[0]), "{}", engine.name());
        drop(store);
        // What was written is there after the next open.
        assert!(contents(&*open("right")) == expected, "{}", engine.name());
        for (fault, text) in [
            (Fault::DropsRow, "found nothing"),
            (Fault::StaleEntry, "found a stale entry"),
        ] {
            let error = error_of(open(&format!("{fault:?}")), fault);
            assert!(error.contains(text), "{}: {error}", engine.name());
        }
    }
}

/// True if the engine wrote tables, wherever it has them.
fn was_compacted(report: &PhaseReport) -> bool {
    let traffic = &report.engine.traffic;
    let tables = traffic.iter().filter(|of| !of.cause.starts_with("log"));
    tables.map(|of| of.written_bytes).sum::<u64>() > 1 << 20
}
