//! An order changes between the scan of an index and the read of a row: a whole batch is let pass,
//! a part of one is not.

use super::RETAIL;
use crate::counters::Counters;
use crate::phase::Phase;
use crate::retail::batch::Batch;
use crate::retail::client::Client;
use crate::retail::job::Shared;
use crate::retail::key::{Index, RowId};
use crate::retail::query::IndexQuery;
use crate::retail::tables::{Field, ORDERS, TABLES};
use crate::retail::transaction::Worker;
use crate::store::{Change, Store};
use crate::workload::Workload;
use firn_base::clock::Clock;
use firn_base::seed::Seed;
use firn_base::{ErrorKind, Result};
use firndb::Durability;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Hook = Box<dyn FnOnce() + Send>;

/// A map that runs a hook after its next scan.
#[derive(Default)]
struct Hooked {
    map: Mutex<Map>,
    after_scan: Mutex<Option<Hook>>,
}

impl Hooked {
    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap()
    }
}

impl Store for Hooked {
    fn put(&self, key: &[u8], value: &[u8], _: Durability) -> Result<()> {
        self.map().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.map().get(key).cloned();
        if let Some(value) = &value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, from: &[u8], count: usize, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let entries = self.map().clone();
        let entries = entries.range(from.to_vec()..).take(count);
        entries.for_each(|(key, value)| see(key, value));
        let hook = self.after_scan.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        Ok(())
    }

    fn delete(&self, key: &[u8], _: Durability) -> Result<()> {
        self.map().remove(key);
        Ok(())
    }

    fn is_atomic(&self) -> bool {
        true
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

/// The changes of a batch that reach the store.
type Kept = fn(&Change<'_>) -> bool;

/// The order whose index is scanned.
const NUMBER: u64 = 0;

/// Does the next step of the order, of which the store gets what `kept` keeps.
fn step(shared: &Shared, kept: Kept) {
    let checker = &shared.checker;
    let version = checker.stages.begin(NUMBER).unwrap();
    let mut batch = Batch::default();
    batch.fill(&checker.market.order(NUMBER), version);
    let mut changes = batch.changes();
    changes.retain(kept);
    shared.store.write(&changes, Durability::Process).unwrap();
    checker.stages.end(NUMBER).unwrap();
}

fn is_row_of_orders(change: &Change<'_>) -> bool {
    matches!(change, Change::Put { key, .. } if key.starts_with(b"orders|0"))
}

/// Scans the index of orders by shop and state for an order that was placed, while its next steps
/// happen after the scan, each with what `kept` keeps of it.
fn query_beside(steps: &'static [Kept]) -> Result<()> {
    let store = Arc::new(Hooked::default());
    let shared = Arc::new(Shared::new(store.clone(), RETAIL, 2));
    step(&shared, |_| true);
    let theirs = shared.clone();
    let hook = move || steps.iter().for_each(|kept| step(&theirs, *kept));
    *store.after_scan.lock().unwrap() = Some(Box::new(hook));
    let mut fields = TABLES[ORDERS].indexes.iter();
    let column = fields.position(|field| *field == Field::ShopState).unwrap();
    let target = RowId {
        table: ORDERS,
        order: NUMBER,
        line: 0,
    };
    let query = IndexQuery {
        index: Index {
            table: ORDERS,
            column,
        },
        target,
        version: 1,
        from: target,
        rows: 5,
    };
    let phase = Phase {
        workload: Workload::retail().remove(1),
        operations: 1,
        threads: 2,
        durability: Durability::Process,
        seconds_min: 0,
        rate: None,
        theta: 0.0,
        settle: false,
    };
    // The order is another client's.
    let mut client = Client::new(&shared.checker.market, 1, 2);
    let clock = Clock::system();
    let mut worker = Worker::new(&shared, &phase, &mut client, Seed::new(1), &clock, 0)?;
    worker.index_query(&query)
}

#[track_caller]
fn assert_wrong(steps: &'static [Kept], expected: &str) {
    let error = query_beside(steps).expect_err("a wrong answer");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let text = error.to_string();
    assert!(text.starts_with("a wrong answer: `orders|"), "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_change_after_the_scan_is_let_pass() {
    query_beside(&[]).unwrap();
    query_beside(&[|_| true]).unwrap();
    query_beside(&[|_| true, |_| true, |_| true]).unwrap();
}

#[test]
fn an_entry_that_a_change_left_behind_is_stale() {
    static STEPS: [Kept; 1] = [|change| !matches!(change, Change::Delete { .. })];
    // The entry is still there when it is read again, and its row has moved on.
    let expected = "found a stale entry: version 2 of the row has `orders|shop_state|";
    assert_wrong(&STEPS, expected);
}

#[test]
fn a_row_that_a_change_left_behind_is_stale() {
    static STEPS: [Kept; 1] = [|change| !is_row_of_orders(change)];
    // The order stood still before and after the read, at the second step.
    assert_wrong(&STEPS, "expected version 2, found version 1");
}

#[test]
fn an_entry_before_its_row_is_wrong() {
    let store = Arc::new(Hooked::default());
    let shared = Shared::new(store, RETAIL, 2);
    let order = shared.checker.market.order(NUMBER);
    let column = 1;
    let index = Index {
        table: ORDERS,
        column,
    };
    let row = RowId {
        table: ORDERS,
        order: NUMBER,
        line: 0,
    };
    let mut prefix = Vec::new();
    index.write_prefix(&order, 0, 3, &mut prefix);
    let reached = (1..=4).map(|version| order.has_had(&prefix, index, row, version));
    assert_eq!(reached.collect::<Vec<_>>(), [false, false, true, true]);
}

#[test]
fn a_part_of_a_batch_in_one_scan_is_wrong() {
    let store = Arc::new(Hooked::default());
    let mut shared = Shared::new(store, RETAIL, 1);
    let same = |shared: &Shared, versions: &[Option<u8>]| {
        shared.checker.same_batch(b"order_lines|0", versions)
    };
    same(&shared, &[Some(3), Some(3)]).unwrap();
    same(&shared, &[None, None]).unwrap();
    for torn in [[Some(3), Some(5)], [None, Some(1)]] {
        let error = same(&shared, &torn).expect_err("a wrong answer");
        assert!(error.to_string().contains("a part of a batch"), "{error}");
    }
    // An engine without batches may show a part.
    shared.checker.is_atomic = false;
    same(&shared, &[Some(3), Some(5)]).unwrap();
}
