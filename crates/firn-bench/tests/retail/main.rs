//! The retail workload (row blade_12): the same operations from a seed, on every profile, and no
//! wrong answer passes.

mod faulty;
mod map;

use faulty::{Fault, Faulty, Part, is_of_index, value_of};
use firn_base::clock::Clock;
use firn_base::{ErrorKind, Result};
use firn_bench::{Compression, Firn, PhaseReport, PmBudget, Retail, Setup, Silent, Store};
use firndb::Durability;
use map::{Entries, Map};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ORDERS: u64 = 60;
const TRANSACTIONS: u64 = 3000;
/// A run whose database has every table and index: orders, transactions and threads.
const SHORT: (Retail, u64, usize) = (
    Retail {
        orders: 20,
        seed: 1,
    },
    20,
    1,
);

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

/// Runs load and transactions of `retail` on the store from `open`, which is closed and opened
/// again at the end.
fn run_opened(
    open: &dyn Fn(&Setup) -> Result<Arc<dyn Store>>,
    place: &Path,
    (retail, transactions, threads): (Retail, u64, usize),
) -> Result<Vec<PhaseReport>> {
    let (setup, mut reports) = (setup(place), Vec::new());
    firn_bench::run(
        open(&setup)?,
        open,
        &setup,
        &retail.config(transactions, threads, 0, Durability::Process),
        &Clock::system(),
        &Silent,
        &mut |report| reports.push(report),
    )?;
    Ok(reports)
}

fn orders(seed: u64) -> Retail {
    Retail {
        orders: ORDERS,
        seed,
    }
}

/// Runs load and transactions on `store`, with `seed` and `threads`.
fn run(store: Arc<dyn Store>, seed: u64, threads: usize) -> Result<Vec<PhaseReport>> {
    let place = tempfile::tempdir().expect("a directory");
    let open = move |_: &Setup| Ok(store.clone());
    run_opened(&open, place.path(), (orders(seed), TRANSACTIONS, threads))
}

fn contents(store: &dyn Store) -> Entries {
    let mut entries = Entries::new();
    let scanned = store.scan(b"", usize::MAX, &mut |key, value| {
        entries.insert(key.to_vec(), value.to_vec());
    });
    scanned.expect("entries");
    entries
}

/// The error of a run of `transactions` on `store` with `fault`.
fn error_after(store: Arc<dyn Store>, fault: Fault, transactions: u64) -> String {
    let place = tempfile::tempdir().expect("a directory");
    let store = Faulty::new(store, fault);
    let open = move |_: &Setup| Ok(store.clone() as Arc<dyn Store>);
    let ran = run_opened(&open, place.path(), (orders(1), transactions, 1)).map(drop);
    let Err(error) = ran else {
        panic!("{fault:?} was not found");
    };
    assert_eq!(error.kind(), ErrorKind::Corruption, "{fault:?}: {error}");
    let text = error.to_string();
    assert!(text.starts_with("a wrong answer: `"), "{fault:?}: {text}");
    text
}

fn error_of(store: Arc<dyn Store>, fault: Fault) -> String {
    error_after(store, fault, TRANSACTIONS)
}

#[test]
fn an_honest_store_passes_with_any_number_of_threads() {
    for threads in [1, 2, 4, 7] {
        let store = Arc::new(Map::default());
        let reports = run(store.clone(), 5, threads).expect("right answers");
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
        assert_eq!(count("step"), writes);
        assert_eq!(count("step") + queries + count("key query"), TRANSACTIONS);
        assert_eq!(count("scan of an index"), queries);
        assert_eq!(count("scan"), queries + count("scan of lines"));
        assert!(writes.abs_diff(TRANSACTIONS / 2) < 150, "{writes} writes");
        assert!(queries.abs_diff(TRANSACTIONS * 35 / 100) < 150, "{queries}");
        assert!(count("scan") > queries && count("read") > writes);
        assert!(load.latency_by_sort.keys().eq(["step", "write"]));
        for report in &reports {
            let calls = report.harness.call_seconds;
            assert!(calls > 0.0 && calls <= report.seconds, "{calls}");
        }
        let kept = |report: &PhaseReport| report.harness.kept_bytes.expect("bytes");
        let entries = contents(&*store);
        let bytes = entries.iter().map(|(key, value)| key.len() + value.len());
        assert_eq!(kept(transactions), bytes.sum::<usize>() as u64);
        assert!(kept(load) < kept(transactions));
        assert!(load.harness.checker_bytes > 0 && load.user_bytes > ORDERS * 60_000);
    }
}

/// With one thread the whole run repeats. With more, each thread's own batches and scans do;
/// the rows that a scan finds depend on the other threads.
#[test]
fn a_seed_gives_the_same_operations_per_thread() {
    let calls = |seed: u64, threads: usize| {
        let store = Faulty::new(Arc::new(Map::default()), Fault::None);
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
        (Fault::FlipsBit, "found different bytes"),
        (Fault::StaleEntry, "found a stale entry"),
        (Fault::DropsEntry, "found none in a scan of the index"),
        (Fault::DropsLine, "expected version"),
        (Fault::SkipsEntry, "found none in a scan of the index"),
        (Fault::EndsScan, "found none in a scan of the index"),
        (Fault::LosesPut(Part::Transactions), "`events"),
        (
            Fault::LosesDelete(Part::Transactions),
            "found a stale entry",
        ),
    ] {
        let error = error_of(Arc::new(Map::default()), fault);
        assert!(error.contains(expected), "{fault:?}: {error}");
    }
}

/// One transaction reads next to nothing, so only the sweep can find these.
#[test]
fn a_change_lost_in_the_load_is_found_by_the_sweep() {
    for (fault, expected) in [
        (
            Fault::LosesPut(Part::Load),
            "a wrong answer: `events`: expected ",
        ),
        (Fault::LosesDelete(Part::Load), "expected only the entry `"),
    ] {
        let error = error_after(Arc::new(Map::default()), fault, 1);
        assert!(error.contains(expected), "{fault:?}: {error}");
    }
}

/// The sweep of the database that was opened again finds a difference in any table and index.
#[test]
fn a_change_lost_by_closing_is_found() {
    type Damage = fn(&mut Entries, &[u8]);
    let damages: [(Damage, &str); 3] = [
        (|entries, key| drop(entries.remove(key)), "`: expected "),
        (
            |entries, key| drop(entries.insert(key.to_vec(), b"other".to_vec())),
            "found a",
        ),
        (
            |entries, key| drop(entries.insert([key, b"x"].concat(), b"more".to_vec())),
            "found neither",
        ),
    ];
    let right = Arc::new(Map::default());
    let (store, place) = (right.clone(), tempfile::tempdir().expect("a directory"));
    let open = move |_: &Setup| Ok(store.clone() as Arc<dyn Store>);
    run_opened(&open, place.path(), SHORT).expect("right answers");
    let entries = right.lock().clone();
    // The last key of each table and index.
    let prefix = |key: &[u8]| match is_of_index(key) {
        true => key
            .splitn(3, |byte| *byte == b'|')
            .take(2)
            .map(<[u8]>::to_vec)
            .collect(),
        false => vec![value_of(key).to_vec()],
    };
    let keys: BTreeMap<Vec<Vec<u8>>, &Vec<u8>> =
        entries.keys().map(|key| (prefix(key), key)).collect();
    assert_eq!(keys.len(), 40);
    for (at, key) in keys.values().enumerate() {
        // The first two keys, a row and an index entry, have all damages.
        for (damage, expected) in &damages[..if at < 2 { 3 } else { 1 }] {
            let mut damaged = entries.clone();
            damage(&mut damaged, key);
            let error = error_of_opened(damaged);
            assert!(error.contains(expected), "{}: {error}", key.escape_ascii());
        }
    }
}

/// The error of a run that is right, and after which the store is opened with `entries`.
fn error_of_opened(entries: Entries) -> String {
    let place = tempfile::tempdir().expect("a directory");
    let (opens, damaged) = (AtomicU64::new(0), Arc::new(Map::new(entries)));
    let open = |_: &Setup| -> Result<Arc<dyn Store>> {
        match opens.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Arc::new(Map::default())),
            _ => Ok(damaged.clone()),
        }
    };
    let ran = run_opened(&open, place.path(), SHORT);
    ran.expect_err("a wrong answer").to_string()
}

/// The row of the paper's table: every profile answers as the map does, and one row or one entry
/// that goes wrong ends the run.
#[test]
fn blade_12_every_profile_answers_and_none_may_be_wrong() {
    let expected = Arc::new(Map::default());
    run(expected.clone(), 3, 2).expect("right answers");
    let expected = expected.lock().clone();
    for engine in Firn::all() {
        let place = tempfile::tempdir().expect("a directory");
        let open = |name: &str| {
            let store = engine.open(&setup(&place.path().join(name)));
            store.unwrap_or_else(|error| panic!("{}: {error}", engine.name()))
        };
        let right = place.path().join("right");
        let reopened = |setup: &Setup| engine.open(setup);
        let reports = run_opened(&reopened, &right, (orders(3), TRANSACTIONS, 2));
        let reports = reports.unwrap_or_else(|error| panic!("{}: {error}", engine.name()));
        assert!(was_compacted(&reports[0]), "{}", engine.name());
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
