//! The transactions of one client: each makes its calls to the store, and checks the answers after
//! the clock of the call has stopped.

use super::batch::Batch;
use super::client::Client;
use super::job::Shared;
use super::key::RowId;
use super::market::Order;
use super::query::{IndexQuery, KeyQuery, line_of};
use super::scan_result::ScanResult;
use super::tables::ORDERS;
use crate::phase::Phase;
use crate::tally::{Class, Sort, Tally};
use crate::workload::Action;
use firn_base::Result;
use firn_base::clock::Clock;
use firn_base::seed::Seed;

/// A client at work in a phase.
pub(super) struct Worker<'a> {
    pub(super) shared: &'a Shared,
    phase: &'a Phase,
    pub(super) client: &'a mut Client,
    seed: Seed,
    clock: &'a Clock,
    start_ns: u64,
    pub(super) tally: Tally,
    /// Time in calls of the current transaction.
    spent_ns: u64,
    batch: Batch,
    /// The answer to the last get.
    value: Vec<u8>,
    /// The answer to the last scan.
    pub(super) scanned: ScanResult,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        phase: &'a Phase,
        client: &'a mut Client,
        seed: Seed,
        clock: &'a Clock,
        start_ns: u64,
    ) -> Result<Self> {
        Ok(Self {
            shared,
            phase,
            client,
            seed,
            clock,
            start_ns,
            tally: Tally::of_transactions()?,
            spent_ns: 0,
            batch: Batch::default(),
            value: Vec::new(),
            scanned: ScanResult::default(),
        })
    }

    /// Does the next transaction.
    pub(super) fn transaction(&mut self) -> Result<()> {
        self.spent_ns = 0;
        let (checker, thread) = (&self.shared.checker, self.client.thread);
        let action = self.phase.workload.action(thread, &mut self.seed);
        let class = match action {
            Action::Scan => {
                let query = IndexQuery::choose(
                    self.client,
                    &checker.market,
                    &checker.stages,
                    &mut self.seed,
                );
                self.index_query(&query)?;
                Class::IndexQuery
            }
            Action::Read => {
                match KeyQuery::choose(self.client, &checker.market, &mut self.seed) {
                    KeyQuery::Row(row) => self.row_query(row)?,
                    KeyQuery::Lines(number) => self.lines_query(number)?,
                }
                Class::KeyQuery
            }
            _ => {
                self.step(true)?;
                Class::Step
            }
        };
        self.end(class)
    }

    /// Does the next step of a load.
    pub(super) fn load_step(&mut self) -> Result<()> {
        self.spent_ns = 0;
        self.step(false)?;
        self.end(Class::Step)
    }

    fn end(&mut self, class: Class) -> Result<()> {
        let now = self.clock.now_ns();
        self.tally
            .transaction(class, self.spent_ns, now, self.start_ns)
    }

    /// Makes `call` and counts its time.
    fn timed<T>(&mut self, sort: Sort, call: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let begin_ns = self.clock.now_ns();
        let answer = call(self)?;
        let took_ns = self.clock.now_ns() - begin_ns;
        self.tally.call(sort, took_ns);
        self.spent_ns += took_ns;
        Ok(answer)
    }

    /// True if there is a value at `key`, which is then in `self.value`.
    fn get(&mut self, key: &[u8]) -> Result<bool> {
        self.value.clear();
        self.timed(Sort::Read, |this| this.get_into(key))
    }

    /// The same as a call of the harness, which has no part in the figures.
    pub(super) fn get_untimed(&mut self, key: &[u8]) -> Result<bool> {
        self.value.clear();
        self.get_into(key)
    }

    fn get_into(&mut self, key: &[u8]) -> Result<bool> {
        let value = &mut self.value;
        let store = &self.shared.store;
        store.get(key, &mut |found| value.extend_from_slice(found))
    }

    /// Finds the entries from `from` on, `count` at most.
    pub(super) fn scan(
        &mut self,
        sort: Sort,
        (from, count): (&[u8], usize),
        found: &mut ScanResult,
    ) -> Result<()> {
        found.clear();
        self.timed(sort, |this| {
            let store = &this.shared.store;
            store.scan(from, count, &mut |key, value| found.push(key, value))
        })
    }

    /// Reads `row` of `order`, checks it, and returns its version.
    pub(super) fn read(&mut self, order: &Order, row: RowId) -> Result<Option<u8>> {
        self.read_by(Self::get, order, row)
    }

    /// The same as a call of the harness, which has no part in the figures.
    pub(super) fn read_untimed(&mut self, order: &Order, row: RowId) -> Result<Option<u8>> {
        self.read_by(Self::get_untimed, order, row)
    }

    fn read_by(
        &mut self,
        get: fn(&mut Self, &[u8]) -> Result<bool>,
        order: &Order,
        row: RowId,
    ) -> Result<Option<u8>> {
        let checker = &self.shared.checker;
        let mut key = Vec::new();
        row.write(&mut key);
        let before = checker.stages.stage(order.number);
        let is_there = get(self, &key)?;
        let after = checker.stages.stage(order.number);
        let found = is_there.then_some(&*self.value);
        checker.row(order, (row, &key), found, (before, after))
    }

    /// The next step of one of the client's orders: one batch, after a read of the order's row if
    /// the step `updates`.
    fn step(&mut self, updates: bool) -> Result<()> {
        let checker = &self.shared.checker;
        let (number, is_new) = self.client.next(&mut self.seed);
        let order = checker.market.order(number);
        if updates && !is_new {
            let row = RowId {
                table: ORDERS,
                order: number,
                line: 0,
            };
            self.read(&order, row)?;
        }
        let version = checker.stages.begin(number)?;
        self.batch.fill(&order, version);
        let (store, durability) = (&self.shared.store, self.phase.durability);
        let batch = std::mem::take(&mut self.batch);
        let changes = batch.changes();
        self.timed(Sort::Write, |_| store.write(&changes, durability))?;
        checker.stages.end(number)?;
        self.tally.user_bytes += batch.byte_size();
        drop(changes);
        self.batch = batch;
        if version == order.life.len() {
            self.client.close(number);
        }
        Ok(())
    }

    fn row_query(&mut self, row: RowId) -> Result<()> {
        let order = self.shared.checker.market.order(row.order);
        self.read(&order, row).map(drop)
    }

    /// Scans all lines of order `number`, which are written by the same steps.
    pub(super) fn lines_query(&mut self, number: u64) -> Result<()> {
        let checker = &self.shared.checker;
        let order = checker.market.order(number);
        let mut first = Vec::new();
        line_of(number, 0).write(&mut first);
        let mut scanned = std::mem::take(&mut self.scanned);
        let before = checker.stages.stage(number);
        let range = (&*first, usize::from(order.lines));
        self.scan(Sort::LinesScan, range, &mut scanned)?;
        let after = checker.stages.stage(number);
        let (mut versions, mut key) = (Vec::new(), Vec::new());
        let mut found = scanned.iter().peekable();
        for line in 0..order.lines {
            let row = line_of(number, line);
            key.clear();
            row.write(&mut key);
            let value = found.next_if(|(at, _)| *at == key).map(|(_, value)| value);
            versions.push(checker.row(&order, (row, &key), value, (before, after))?);
        }
        drop(found);
        self.scanned = scanned;
        checker.same_batch(&first, &versions)
    }
}
