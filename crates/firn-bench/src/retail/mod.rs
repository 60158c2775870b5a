//! The retail workload of the PM-Blade paper (ICDE 2023, sections I and VI-D): orders of a shop
//! with tables, secondary indexes and a life cycle, over any [`crate::Store`].
//!
//! From the paper: 10 tables of about 10 columns, 3 indexes a table on average; an order is rows
//! of several tables and writes about 100 KB over its life; its state changes many times; most
//! queries are index queries, which scan an index for row ids and then read the rows; recent orders
//! are read most (hot while they are open, then warm, then cold); 200 GB are loaded and one million
//! transactions follow.
//!
//! Chosen here, because the paper does not say:
//!
//! | choice | value |
//! |---|---|
//! | scale | 40,000 orders, 20,000 transactions: a fiftieth |
//! | an order's batches | 8 to 12, 10 on average: `Step` |
//! | an order's rows | about 32 in the end, 7 to 12 of them its lines |
//! | a row | 768 to 1280 bytes; compression removes half of its data |
//! | orders open at a time | a twentieth of those loaded |
//! | transactions | 50 % steps of orders, 35 % index queries, 15 % queries by primary key |
//! | a step | a read of the order's row, then one batch; a load has no reads |
//! | targets of queries | 60 % newest twentieth, 30 % newest fifth, 10 % any |
//! | value of an index query | a quarter of those that change: one that the row has left |
//! | rows of an index query | 1 to 10; up to 20 of a customer |
//!
//! 1. All contents are a function of (seed, order, step), so every row and index entry that was
//!    read is compared with the one that was written.
//! 2. An order belongs to one thread, which knows its state exactly. Threads interleave the numbers
//!    of orders, so a thread's transactions depend on the seed and the number of threads alone.
//! 3. A row comes before its index entries in a batch, so that an entry that was seen names a row
//!    that is at least as new.
//! 4. After the run, outside of every figure, the whole database is compared with what was written,
//!    and once more after it was closed and opened.

mod batch;
mod check;
mod client;
mod hits;
mod job;
mod key;
mod life;
mod market;
mod query;
mod row;
mod scan_result;
mod stages;
mod sweep;
mod tables;
#[cfg(test)]
mod tests;
mod transaction;

use crate::measure::Place;
use crate::phase::Watch;
use crate::record::Values;
use crate::report::PhaseReport;
use crate::run::RunConfig;
use crate::store::Store;
use crate::workload::Workload;
use firn_base::clock::Clock;
use firn_base::{Error, Result};
use firndb::Durability;
use job::{Job, Shared};
use market::Market;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// Orders whose sizes stand for those of all.
const SAMPLED_ORDERS: u64 = 256;
/// Most orders of a load.
const ORDERS_MAX: u64 = 1 << 24;
/// Transactions by which one order is added: half are steps, and an order has 10 on average.
const TRANSACTIONS_AN_ORDER: u64 = 20;

/// The parameters of the retail workload, beside those of every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retail {
    /// Orders that are loaded.
    pub orders: u64,
    /// The seed of all contents and choices.
    pub seed: u64,
}

impl Retail {
    /// A run that loads these orders and then does `transactions`, each of `threads` an equal
    /// share, for at least `seconds_min`.
    pub fn config(
        self,
        transactions: u64,
        threads: usize,
        seconds_min: u64,
        durability: Durability,
    ) -> RunConfig {
        RunConfig {
            records: self.sizes().entries,
            operations: transactions,
            seconds_min,
            threads,
            key_sizes: key::sizes(),
            values: Values::new(row::sizes()),
            workloads: Workload::retail(),
            durability,
            rate: None,
            theta: 0.0,
            reopened_with: Default::default(),
            retail: Some(self),
            gets_file: None,
        }
    }

    /// Refuses a run that is not possible.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] stating what is wrong.
    pub(crate) fn check(&self, config: &RunConfig) -> Result<()> {
        let least = config.threads.max(1) as u64;
        if !(least..=ORDERS_MAX).contains(&self.orders) {
            return Err(Error::invalid(format!(
                "the number of orders must be {least} (one a thread) to {ORDERS_MAX}"
            )));
        }
        if config.workloads != Workload::retail() {
            return Err(Error::invalid("retail loads and then runs, nothing else"));
        }
        Ok(())
    }

    /// Rows and index entries in the database after the load.
    pub(crate) fn loaded_rows(&self) -> (u64, u64) {
        let sizes = self.sizes();
        (sizes.rows, sizes.entries - sizes.rows)
    }

    /// Bytes of keys and values in the database after the load.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.sizes().bytes
    }

    /// Bytes of keys and values in the database after the load and `transactions`.
    pub(crate) fn bytes_after(&self, transactions: u64) -> u64 {
        self.grown(self.sizes().bytes, transactions)
    }

    /// Rows and index entries in the database after the load and `transactions`.
    pub(crate) fn entries_after(&self, transactions: u64) -> u64 {
        self.grown(self.sizes().entries, transactions)
    }

    /// The sum over the orders loaded and those that `transactions` add, of which the loaded ones
    /// have `loaded`.
    fn grown(&self, loaded: u64, transactions: u64) -> u64 {
        let of_one = loaded / self.orders.clamp(1, ORDERS_MAX);
        let placed = transactions / TRANSACTIONS_AN_ORDER;
        loaded.saturating_add(of_one.saturating_mul(placed))
    }

    /// The sizes of the loaded database, from those of the first orders at the end of their lives.
    fn sizes(&self) -> market::Contents {
        let market = Market::new(*self);
        // More are refused later, with a clear error.
        let orders = self.orders.min(ORDERS_MAX);
        let sampled = orders.clamp(1, SAMPLED_ORDERS);
        let mut sum = market::Contents::default();
        for number in 0..sampled {
            let order = market.order(number);
            sum = sum + market.contents(&order, order.life.len());
        }
        let all = |of: u64| of * orders / sampled;
        market::Contents {
            rows: all(sum.rows),
            entries: all(sum.entries),
            bytes: all(sum.bytes),
        }
    }
}

/// Runs the load and the transactions of `config` on an empty `store`. After each it waits until
/// the store is at rest. Each report is passed to `done` as soon as it is available. Then all of
/// the database is compared with what was written, and once more after it was closed and opened
/// with `open`.
///
/// # Errors
/// The first error of the store, or [`firn_base::ErrorKind::Corruption`] for the first wrong
/// answer.
pub(crate) fn run(
    store: Arc<dyn Store>,
    open: &dyn Fn() -> Result<Arc<dyn Store>>,
    directory: &Path,
    (retail, config): (Retail, &RunConfig),
    clock: &Clock,
    watch: &dyn Watch,
    done: &mut dyn FnMut(PhaseReport),
) -> Result<()> {
    let shared = Arc::new(Shared::new(store.clone(), retail, config.threads));
    let place = Place {
        store: &*store,
        directory,
        clock,
    };
    for workload in &config.workloads {
        let phase = config.phase(workload);
        let job = || Job::new(shared.clone(), phase.clone(), clock.clone());
        let (mut report, _) = place.measure(&phase, job, watch)?;
        report.harness.kept_bytes = Some(shared.kept_bytes());
        done(report);
    }
    let (checker, orders) = (shared.checker.clone(), shared.orders());
    sweep::sweep(&*store, (&checker, orders), "sweep", watch)?;
    // These are the only handles, because no phase is running.
    drop((shared, store));
    watch.begin("open", 0);
    let store = open();
    watch.end();
    sweep::sweep(&*store?, (&checker, orders), "sweep-opened", watch)
}
