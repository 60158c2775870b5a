//! The state of one client thread between its transactions: its orders.
//!
//! The orders of thread t of n have the numbers t, t + n, t + 2n and so on, so that all threads
//! together number them in about the order in which they are placed.

use super::market::Market;
use firn_base::seed::Seed;

/// Percent of the queries for hot orders, which are the newest twentieth.
const HOT_PERCENT: u64 = 60;
/// Percent of the queries for warm orders.
const WARM_PERCENT: u64 = 30;
/// The newest one in this many orders are warm.
const WARM_SHARE: u64 = 5;

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) thread: u64,
    pub(super) threads: u64,
    /// Orders placed.
    pub(super) placed: u64,
    /// Numbers of the orders that have steps left.
    pub(super) open: Vec<u64>,
    /// The number of orders to keep open.
    open_max: usize,
}

impl Client {
    pub(super) fn new(market: &Market, thread: u64, threads: u64) -> Self {
        Self {
            thread,
            threads,
            placed: 0,
            open: Vec::new(),
            open_max: market.open.div_ceil(threads) as usize,
        }
    }

    /// An equal share of `all`.
    pub(super) fn share_of(&self, all: u64) -> u64 {
        all / self.threads + u64::from(self.thread < all % self.threads)
    }

    /// The order whose step is next: a new one if too few are open, otherwise any of the open ones.
    /// True if it is new.
    pub(super) fn next(&mut self, seed: &mut Seed) -> (u64, bool) {
        if self.open.len() < self.open_max {
            let number = self.placed * self.threads + self.thread;
            self.placed += 1;
            self.open.push(number);
            return (number, true);
        }
        (
            self.open[seed.below(self.open.len() as u64) as usize],
            false,
        )
    }

    /// Takes note that order `number` has no steps left.
    pub(super) fn close(&mut self, number: u64) {
        self.open.retain(|open| *open != number);
    }

    /// The number of its newest order.
    pub(super) fn newest(&self) -> u64 {
        self.placed.saturating_sub(1) * self.threads + self.thread
    }

    /// The number of orders that count as warm or hot.
    pub(super) fn warm(&self) -> u64 {
        (self.newest() + 1) / WARM_SHARE
    }

    /// True if order `number` is this client's.
    pub(super) fn owns(&self, number: u64) -> bool {
        number % self.threads == self.thread
    }

    /// The numbers of this client's orders from `number` on, without an end.
    pub(super) fn own_from(&self, number: u64) -> impl Iterator<Item = u64> {
        let (thread, threads) = (self.thread, self.threads);
        let first = number.saturating_sub(thread).div_ceil(threads) * threads + thread;
        (0..).map(move |at| first + at * threads)
    }

    /// The order that a query is about. Every second one is this client's own.
    pub(super) fn target(&self, market: &Market, seed: &mut Seed) -> u64 {
        let all = self.newest() + 1;
        let span = match seed.below(100) {
            at if at < HOT_PERCENT => market.open,
            at if at < HOT_PERCENT + WARM_PERCENT => self.warm(),
            _ => all,
        };
        let number = all - 1 - seed.below(span.clamp(1, all));
        match seed.one_in(2) {
            true => number / self.threads * self.threads + self.thread,
            false => number,
        }
    }
}
