//! The transactions of one client: each makes its calls to the store, and checks the answers after
//! the clock of the call has stopped.

use super::batch::Batch;
use super::client::Client;
use super::job::Shared;
use super::key::RowId;
use super::market::Order;
use super::query::{IndexQuery, KeyQuery, line_of};
use super::tables::ORDERS;
use crate::phase::Phase;
use crate::tally::{Sort, Tally};
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
}

/// The entries that a scan found, in one buffer.
#[derive(Debug, Default)]
pub(super) struct Found {
    bytes: Vec<u8>,
    /// The end of each key and of each value.
    ends: Vec<(usize, usize)>,
}

impl Found {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Keys and values, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        let entry = |(at, (key_end, end)): (usize, &(usize, usize))| {
            (&self.bytes[at..*key_end], &self.bytes[*key_end..*end])
        };
        starts.zip(&self.ends).map(entry)
    }
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
        })
    }

    /// Does the next transaction.
    pub(super) fn transaction(&mut self) -> Result<()> {
        self.spent_ns = 0;
        let (checker, thread) = (&self.shared.checker, self.client.thread);
        let action = self.phase.workload.action(thread, &mut self.seed);
        match action {
            Action::Scan => {
                let query = IndexQuery::choose(
                    self.client,
                    &checker.market,
                    &checker.stages,
                    &mut self.seed,
                );
                self.index_query(&query)?;
            }
            Action::Read => match KeyQuery::choose(self.client, &checker.market, &mut self.seed) {
                KeyQuery::Row(row) => self.row_query(row)?,
                KeyQuery::Lines(number) => self.lines_query(number)?,
            },
            _ => self.step(true)?,
        }
        self.end(action == Action::Scan)
    }

    /// Does the next step of a load.
    pub(super) fn load_step(&mut self) -> Result<()> {
        self.spent_ns = 0;
        self.step(false)?;
        self.end(false)
    }

    fn end(&mut self, is_index_query: bool) -> Result<()> {
        let now = self.clock.now_ns();
        self.tally
            .transaction(is_index_query, self.spent_ns, now, self.start_ns)
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
    pub(super) fn get(&mut self, key: &[u8]) -> Result<bool> {
        self.timed(Sort::Read, |this| {
            let value = &mut this.value;
            value.clear();
            this.shared
                .store
                .get(key, &mut |found| value.extend_from_slice(found))
        })
    }

    /// The entries from `from` on, `count` at most.
    pub(super) fn scan(&mut self, from: &[u8], count: usize) -> Result<Found> {
        self.timed(Sort::Scan, |this| {
            let mut found = Found::default();
            this.shared
                .store
                .scan(from, count, &mut |key, value| found.push(key, value))?;
            Ok(found)
        })
    }

    /// Reads `row` of `order`, checks it, and returns its version.
    pub(super) fn read(&mut self, order: &Order, row: RowId) -> Result<Option<u8>> {
        let checker = &self.shared.checker;
        let mut key = Vec::new();
        row.write(&mut key);
        let before = checker.stages.stage(order.number);
        let is_there = self.get(&key)?;
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
        let durability = self.phase.durability;
        self.timed(Sort::Write, |this| {
            this.shared.store.write(&this.batch.changes(), durability)
        })?;
        checker.stages.end(number)?;
        self.tally.user_bytes += self.batch.byte_size();
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
    fn lines_query(&mut self, number: u64) -> Result<()> {
        let checker = &self.shared.checker;
        let order = checker.market.order(number);
        let mut first = Vec::new();
        line_of(number, 0).write(&mut first);
        let before = checker.stages.stage(number);
        let found = self.scan(&first, usize::from(order.lines))?;
        let after = checker.stages.stage(number);
        let (mut versions, mut key) = (Vec::new(), Vec::new());
        let mut found = found.iter().peekable();
        for line in 0..order.lines {
            let row = line_of(number, line);
            key.clear();
            row.write(&mut key);
            let value = found.next_if(|(at, _)| *at == key).map(|(_, value)| value);
            versions.push(checker.row(&order, (row, &key), value, (before, after))?);
        }
        checker.same_batch(&first, &versions)
    }
}
