//! A benchmark must find a store that answers wrongly: here are some, each with one fault, and an honest one.

use firn_base::clock::Clock;
use firn_base::{ErrorKind, Result};
use firn_bench::{Counters, Silent, Store, Workload, YcsbConfig, YcsbReport, ycsb};
use firndb::Durability;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Every hundredth put is acknowledged and forgotten.
    LosesPuts,
    /// Every hundredth get has a flipped bit.
    FlipsBits,
    /// Every hundredth get is of the key before.
    MixesKeysUp,
    /// Every hundredth get finds nothing.
    FindsNothing,
    /// Scans go over the entries twice.
    RepeatsEntries,
}

#[derive(Default)]
struct Map {
    entries: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    calls: AtomicU64,
}

struct Faulty(Map, Fault);

impl Faulty {
    fn strikes(&self, fault: Fault) -> bool {
        self.1 == fault && self.0.calls.fetch_add(1, Ordering::Relaxed) % 100 == 99
    }
}

impl Store for Faulty {
    fn put(&self, key: &[u8], value: &[u8], _durability: Durability) -> Result<()> {
        if !self.strikes(Fault::LosesPuts) {
            self.0.entries.lock().expect("a lock").insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if self.strikes(Fault::FindsNothing) {
            return Ok(false);
        }
        let end = if self.strikes(Fault::MixesKeysUp) { Bound::Excluded(key) } else { Bound::Included(key) };
        let entries = self.0.entries.lock().expect("a lock");
        let found = entries.range::<[u8], _>((Bound::Unbounded, end)).next_back();
        let Some((_, value)) = found.filter(|(found, _)| *found == key || self.1 == Fault::MixesKeysUp) else {
            return Ok(false);
        };
        let mut value = value.clone();
        if self.strikes(Fault::FlipsBits) {
            value[50] ^= 4;
        }
        see(&value);
        Ok(true)
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let rounds = if self.1 == Fault::RepeatsEntries { 2 } else { 1 };
        let entries = self.0.entries.lock().expect("a lock");
        for _ in 0..rounds {
            let bounds = (Bound::Included(from), Bound::Unbounded);
            entries.range::<[u8], _>(bounds).take(count).for_each(|(key, value)| see(key, value));
        }
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

fn run(fault: Fault, workloads: &[Workload]) -> Result<YcsbReport> {
    let config = YcsbConfig {
        records: 2000,
        operations: 5000,
        threads: 4,
        key_bytes: 16,
        value_bytes: 100,
        workloads: workloads.to_vec(),
        durability: Durability::Process,
        seconds_max: None,
        rate: None,
        theta: 0.99,
    };
    ycsb(Arc::new(Faulty(Map::default(), fault)), &config, &Clock::system(), &Silent)
}

#[test]
fn an_honest_store_passes_every_workload() {
    let all = Workload::NAMES.map(|(_, workload)| workload);
    let report = run(Fault::None, &all).expect("right answers");
    assert_eq!(report.phases.len(), all.len());
    for phase in &report.phases {
        let expected = if phase.workload == "load" { 2000 } else { 5000 };
        assert_eq!(phase.operations, expected);
        assert_eq!(phase.timeline.seconds.iter().sum::<u64>(), expected);
        assert_eq!(phase.latency.operations, phase.latency_by_sort.values().map(|sort| sort.operations).sum::<u64>());
    }
    assert_eq!(report.phases[0].user_bytes, 2000 * 116);
}

#[test]
fn every_fault_is_found() {
    use Workload::{A, C, D, E, F, Load};
    for (fault, workload) in [
        (Fault::LosesPuts, C),
        (Fault::LosesPuts, A),
        (Fault::FlipsBits, C),
        (Fault::MixesKeysUp, C),
        (Fault::FindsNothing, D),
        (Fault::FindsNothing, F),
        (Fault::RepeatsEntries, E),
    ] {
        let error = run(fault, &[Load, workload]).expect_err("a wrong answer");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{fault:?}: {error}");
        assert!(error.to_string().contains("a wrong answer"), "{fault:?}: {error}");
    }
}

#[test]
fn a_database_that_was_not_loaded_is_said_to_be_so() {
    let error = run(Fault::None, &[Workload::C]).expect_err("nothing there");
    assert!(error.to_string().contains("is the database loaded"), "{error}");
}
