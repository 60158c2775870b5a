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

/// A map that runs a hook after its next scan, and one in the middle of its next batch.
#[derive(Default)]
struct HookStore {
    map: Mutex<Map>,
    after_scan: Mutex<Option<Hook>>,
    amid_write: Mutex<Option<Hook>>,
}

impl HookStore {
    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap()
    }

    fn apply(&self, changes: &[Change<'_>]) {
        super::apply(&mut self.map(), changes);
    }
}

impl Store for HookStore {
    fn put(&self, key: &[u8], value: &[u8], _: Durability) -> Result<()> {
        self.apply(&[Change::Put { key, value }]);
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
        self.apply(&[Change::Delete { key }]);
        Ok(())
    }

    fn write(&self, batch: &[Change<'_>], _: Durability) -> Result<()> {
        let hook = self.amid_write.lock().unwrap().take();
        let middle = hook
            .as_ref()
            .map_or(batch.len(), |_| middle_of_lines(batch));
        let (first, second) = batch.split_at(middle);
        self.apply(first);
        if let Some(hook) = hook {
            hook();
        }
        self.apply(second);
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

/// The place in `batch` after the first half of its rows of lines.
fn middle_of_lines(batch: &[Change<'_>]) -> usize {
    let is_line = |change: &Change<'_>| super::key_of(change).starts_with(b"order_lines|0");
    let lines: Vec<usize> = (0..batch.len()).filter(|at| is_line(&batch[*at])).collect();
    lines[lines.len() / 2]
}

/// The changes of a batch that reach the store.
type ChangeFilter = fn(&Change<'_>) -> bool;

/// The order whose index is scanned.
const NUMBER: u64 = 0;

/// Does the next step of the order, of which the store gets what `kept` keeps.
fn step(shared: &Shared, kept: ChangeFilter) {
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
fn query_during(steps: &'static [ChangeFilter]) -> Result<()> {
    let store = Arc::new(HookStore::default());
    let shared = Arc::new(Shared::new(store.clone(), RETAIL, 2));
    step(&shared, |_| true);
    let theirs = shared.clone();
    let hook = move || steps.iter().for_each(|kept| step(&theirs, *kept));
    *store.after_scan.lock().unwrap() = Some(Box::new(hook));
    work(&shared, 1, |worker| worker.index_query(&query(true)))
}

/// A query for the order's shop and state at version 1; its row has left them unless it
/// `is_present`.
fn query(is_present: bool) -> IndexQuery {
    let mut fields = TABLES[ORDERS].indexes.iter();
    let column = fields.position(|field| *field == Field::ShopState).unwrap();
    let target = RowId {
        table: ORDERS,
        order: NUMBER,
        line: 0,
    };
    IndexQuery {
        index: Index {
            table: ORDERS,
            column,
        },
        target,
        version: 1,
        is_present,
        from: target,
        rows: 5,
    }
}

/// Does `work` as client `thread` of 2. The order is that of client 0.
fn work(
    shared: &Shared,
    thread: u64,
    work: impl FnOnce(&mut Worker<'_>) -> Result<()>,
) -> Result<()> {
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
    let mut client = Client::new(&shared.checker.market, thread, 2);
    let clock = Clock::system();
    let mut worker = Worker::new(shared, &phase, &mut client, Seed::new(1), &clock, 0)?;
    work(&mut worker)
}

#[track_caller]
fn assert_wrong(steps: &'static [ChangeFilter], expected: &str) {
    let error = query_during(steps).expect_err("a wrong answer");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let text = error.to_string();
    assert!(text.starts_with("a wrong answer: `orders|"), "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_change_after_the_scan_is_let_pass() {
    query_during(&[]).unwrap();
    query_during(&[|_| true]).unwrap();
    query_during(&[|_| true, |_| true, |_| true]).unwrap();
}

#[test]
fn an_entry_that_a_change_left_behind_is_stale() {
    static STEPS: [ChangeFilter; 1] = [|change| !matches!(change, Change::Delete { .. })];
    // The entry is still there when it is read again, and its row has moved on.
    let expected = "found a stale entry: version 2 of the row has `orders|shop_state|";
    assert_wrong(&STEPS, expected);
}

#[test]
fn a_row_that_a_change_left_behind_is_stale() {
    static STEPS: [ChangeFilter; 1] = [|change| !is_row_of_orders(change)];
    // The order stood still before and after the read, at the second step.
    assert_wrong(&STEPS, "expected version 2, found version 1");
}

#[test]
fn an_entry_before_its_row_is_wrong() {
    let store = Arc::new(HookStore::default());
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

/// Another client scans the lines of the order while a batch that writes them is half done.
#[test]
fn a_part_of_a_batch_in_one_scan_is_wrong() {
    let store = Arc::new(HookStore::default());
    let shared = Arc::new(Shared::new(store.clone(), RETAIL, 2));
    let lines = |shared: &Shared| work(shared, 1, |worker| worker.lines_query(NUMBER));
    lines(&shared).unwrap();
    let torn = Arc::new(Mutex::new(None));
    let (theirs, answer) = (shared.clone(), torn.clone());
    let hook = move || *answer.lock().unwrap() = Some(lines(&theirs));
    *store.amid_write.lock().unwrap() = Some(Box::new(hook));
    step(&shared, |_| true);
    let torn = torn.lock().unwrap().take().expect("a scan");
    let error = torn.expect_err("a wrong answer").to_string();
    assert!(
        error.contains("found a part of a batch: versions 1, 1, "),
        "{error}"
    );
    assert!(error.ends_with(", none"), "{error}");
    lines(&shared).unwrap();
}

/// A query for the value that the client's own order had at its first step, after its second.
#[test]
fn an_entry_of_a_value_that_its_row_has_left_is_stale() {
    let left = |kept: ChangeFilter| {
        let shared = Shared::new(Arc::new(HookStore::default()), RETAIL, 2);
        step(&shared, |_| true);
        step(&shared, kept);
        work(&shared, 0, |worker| worker.index_query(&query(false)))
    };
    left(|_| true).unwrap();
    let error =
        left(|change| !matches!(change, Change::Delete { .. })).expect_err("a wrong answer");
    let text = error.to_string();
    assert!(text.contains("its row has left this value"), "{text}");
    assert!(
        text.contains("found a stale entry in a scan of the index"),
        "{text}"
    );
}
