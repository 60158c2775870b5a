//! A benchmark must detect a store that answers wrongly. Here are some, each with one fault, and a
//! correct one.

use firn_base::clock::Clock;
use firn_base::{Error, ErrorKind, Result};
use firn_bench::{
    Change, Compression, Counters, PhaseReport, RunConfig, Setup, Silent, Store, Values, Workload,
};
use firndb::Durability;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Every hundredth put is acknowledged and forgotten.
    LosesPuts,
    /// Every hundredth get has a flipped bit.
    FlipsBits,
    /// Every hundredth get returns the value of the previous key.
    MixesKeysUp,
    /// Every hundredth get finds nothing.
    FindsNothing,
    /// Scans return the entries twice.
    RepeatsEntries,
    /// Scans omit every fifth entry.
    SkipsEntries,
    /// Scans end early.
    EndsScans,
    /// Scans return the first value of each key.
    ScansThePast,
    /// Every tenth delete is acknowledged and forgotten. With every hundredth, one in fifty runs
    /// would delete each such key again or find it gone.
    LosesDeletes,
}

#[derive(Default)]
struct Map {
    entries: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Each key's first value.
    past: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The number of puts of each key.
    puts: Mutex<BTreeMap<Vec<u8>, u64>>,
    calls: AtomicU64,
}

struct Faulty(Map, Fault);

impl Faulty {
    fn strikes(&self, fault: Fault) -> bool {
        let each = if fault == Fault::LosesDeletes {
            10
        } else {
            100
        };
        self.1 == fault && self.0.calls.fetch_add(1, Ordering::Relaxed) % each == each - 1
    }
}

impl Store for Faulty {
    fn put(&self, key: &[u8], value: &[u8], _durability: Durability) -> Result<()> {
        *self
            .0
            .puts
            .lock()
            .expect("a lock")
            .entry(key.to_vec())
            .or_default() += 1;
        if !self.strikes(Fault::LosesPuts) {
            self.0
                .entries
                .lock()
                .expect("a lock")
                .insert(key.to_vec(), value.to_vec());
            self.0
                .past
                .lock()
                .expect("a lock")
                .entry(key.to_vec())
                .or_insert(value.to_vec());
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], _durability: Durability) -> Result<()> {
        if !self.strikes(Fault::LosesDeletes) {
            self.0.entries.lock().expect("a lock").remove(key);
        }
        Ok(())
    }

    /// None of these workloads has batches.
    fn write(&self, _batch: &[Change<'_>], _durability: Durability) -> Result<()> {
        Err(Error::invalid("a batch"))
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if self.strikes(Fault::FindsNothing) {
            return Ok(false);
        }
        let end = if self.strikes(Fault::MixesKeysUp) {
            Bound::Excluded(key)
        } else {
            Bound::Included(key)
        };
        let entries = self.0.entries.lock().expect("a lock");
        let found = entries
            .range::<[u8], _>((Bound::Unbounded, end))
            .next_back();
        let Some((_, value)) =
            found.filter(|(found, _)| *found == key || self.1 == Fault::MixesKeysUp)
        else {
            return Ok(false);
        };
        let mut value = value.clone();
        if self.strikes(Fault::FlipsBits) {
            let middle = value.len() / 2;
            value[middle] ^= 4;
        }
        see(&value);
        Ok(true)
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let of = if self.1 == Fault::ScansThePast {
            &self.0.past
        } else {
            &self.0.entries
        };
        let entries = of.lock().expect("a lock");
        let (rounds, count) = match self.1 {
            Fault::RepeatsEntries => (2, count),
            Fault::EndsScans => (1, count / 2),
            _ => (1, count),
        };
        for _ in 0..rounds {
            let bounds = (Bound::Included(from), Bound::Unbounded);
            let all = entries.range::<[u8], _>(bounds).take(count).enumerate();
            let left_out = |index: usize| self.1 == Fault::SkipsEntries && index % 5 == 4;
            all.filter(|(index, _)| !left_out(*index))
                .for_each(|(_, (key, value))| see(key, value));
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Does nothing, and takes long enough for reads beside it.
    fn compact(&self) -> Result<()> {
        Clock::system().sleep(Duration::from_millis(20));
        Ok(())
    }

    fn describe(&self) -> String {
        "a map".to_owned()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn run(fault: Fault, workloads: &[&str]) -> Result<Vec<PhaseReport>> {
    run_at(None, fault, workloads)
}

fn run_at(rate: Option<f64>, fault: Fault, workloads: &[&str]) -> Result<Vec<PhaseReport>> {
    run_on(Arc::new(Faulty(Map::default(), fault)), rate, workloads)
}

fn run_on(store: Arc<Faulty>, rate: Option<f64>, workloads: &[&str]) -> Result<Vec<PhaseReport>> {
    let config = RunConfig {
        records: 2000,
        operations: 5000,
        seconds_min: 0,
        threads: 4,
        key_sizes: "16-20".parse()?,
        values: Values::new("40-200".parse()?),
        workloads: workloads
            .iter()
            .map(|name| name.parse())
            .collect::<Result<_>>()?,
        durability: Durability::Process,
        rate,
        theta: 0.99,
        reopened_with: Default::default(),
        retail: None,
        gets_file: None,
    };
    let directory = std::env::temp_dir();
    let setup = Setup {
        directory,
        memory_bytes: 0,
        compression: Compression::None,
        direct_io: false,
        background_threads: 0,
        durability: Durability::Process,
        records_max: 0,
        key_bytes_max: 0,
        value_bytes_max: 0,
        pm: None,
        extra: BTreeMap::new(),
    };
    let mut reports = Vec::new();
    let again = store.clone();
    let open = move |_: &firn_bench::Setup| Ok(again.clone() as Arc<dyn firn_bench::Store>);
    firn_bench::run(
        store,
        &open,
        &setup,
        &config,
        &Clock::system(),
        &Silent,
        &mut |report| reports.push(report),
    )?;
    Ok(reports)
}

#[test]
fn an_honest_store_passes_every_workload() {
    let mut all: Vec<&str> = Workload::names()
        .map(|(name, _)| name)
        .filter(|name| !name.contains(':'))
        .collect();
    all.push("mixed:40/40/20");
    let reports = run(Fault::None, &all).expect("right answers");
    assert_eq!(reports.len(), all.len());
    for report in &reports {
        let workload: Workload = report.workload.parse().expect("a workload");
        // A workload of one act has as many reads as there is time for.
        let acts = report.latency_by_sort.get("compaction");
        let expected = match acts.map(|acts| acts.operations) {
            Some(acts) => {
                assert_eq!(acts, 1, "{workload}");
                report.operations
            }
            None if workload.fills() && !workload.fills_some() => 2000,
            None => 5000,
        };
        assert_eq!(report.operations, expected, "{}", report.workload);
        assert_eq!(report.timeline.seconds.iter().sum::<u64>(), expected);
        assert_eq!(
            report.latency.operations,
            report
                .latency_by_sort
                .values()
                .map(|sort| sort.operations)
                .sum::<u64>()
        );
        assert!(report.quantiles.is_sorted());
        assert!(report.harness.checker_bytes >= 2000 * 8);
    }
}

#[test]
fn reads_go_on_beside_a_compaction_and_are_checked() {
    let reports = run(Fault::None, &["load", "compact"]).expect("right answers");
    assert!(reports[1].latency_by_sort["read"].operations > 3);
    assert!(reports[1].seconds >= 0.02);
    assert!(run(Fault::MixesKeysUp, &["fillzipf", "compact"]).is_err());
}

#[test]
fn records_that_were_never_written_may_be_missing() {
    let reports = run(Fault::None, &["fillzipf", "u", "scan100", "compact"]);
    assert_eq!(reports.expect("right answers")[0].operations, 5000);
    let error = run(Fault::FindsNothing, &["fillzipf", "u"]).expect_err("a lost write");
    assert!(error.to_string().contains("not there"), "{error}");
    // Each is there after a load, even if the other comes later.
    assert!(run(Fault::None, &["u"]).is_err());
    run(Fault::None, &["load", "fillzipf", "u"]).expect("right answers");
}

#[test]
fn updates_in_the_order_of_keys_go_round() {
    let store = Arc::new(Faulty(Map::default(), Fault::None));
    run_on(store.clone(), None, &["load", "overwriteseq"]).expect("right answers");
    let puts: Vec<u64> = store
        .0
        .puts
        .lock()
        .expect("a lock")
        .values()
        .copied()
        .collect();
    // 5,000 operations are two and a half times 2,000 records.
    assert_eq!(puts, [[4; 1000], [3; 1000]].concat());
}

#[test]
fn a_phase_does_not_repeat_the_one_before() {
    let untouched = |workloads: &[&str]| {
        let store = Arc::new(Faulty(Map::default(), Fault::None));
        run_on(store.clone(), None, workloads).expect("right answers");
        store
            .0
            .puts
            .lock()
            .expect("a lock")
            .values()
            .filter(|&&puts| puts == 1)
            .count()
    };
    // Of 2,000 records, 5,000 updates leave 164 untouched, and 10,000 leave 13.
    assert!((110..230).contains(&untouched(&["load", "o"])));
    assert!(untouched(&["load", "o", "o"]) < 50);
}

#[test]
fn an_open_loop_begins_behind_the_load() {
    let rates = |workloads: &[&str]| -> Vec<Option<f64>> {
        let reports = run_at(Some(1e6), Fault::None, workloads).expect("right answers");
        reports.iter().map(|report| report.rate).collect()
    };
    assert_eq!(rates(&["load", "a"]), [None, Some(1e6)]);
    assert_eq!(rates(&["load"]), [Some(1e6)]);
}

#[test]
fn every_fault_is_found() {
    for (fault, workloads) in [
        (Fault::LosesPuts, "load,c"),
        (Fault::LosesPuts, "load,a"),
        (Fault::FlipsBits, "load,c"),
        (Fault::MixesKeysUp, "load,c"),
        (Fault::MixesKeysUp, "load,readmissing"),
        (Fault::FindsNothing, "load,d"),
        (Fault::FindsNothing, "load,f"),
        (Fault::RepeatsEntries, "load,e"),
        (Fault::SkipsEntries, "load,e"),
        (Fault::EndsScans, "load,readseq"),
        (Fault::ScansThePast, "load,o,e"),
        (Fault::LosesDeletes, "load,deleterandom,scanafterdelete"),
        (Fault::LosesDeletes, "load,deleterandom,u"),
    ] {
        let workloads: Vec<&str> = workloads.split(',').collect();
        let error = run(fault, &workloads).expect_err("a wrong answer");
        assert_eq!(
            error.kind(),
            ErrorKind::Corruption,
            "{fault:?} {workloads:?}: {error}"
        );
        assert!(
            error.to_string().contains("a wrong answer"),
            "{fault:?}: {error}"
        );
    }
}

#[test]
fn a_database_that_was_not_loaded_is_said_to_be_so() {
    let error = run(Fault::None, &["c"]).expect_err("nothing there");
    assert!(
        error.to_string().contains("is the database loaded"),
        "{error}"
    );
}
