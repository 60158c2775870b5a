//! One phase: the client threads, and one thread's loop.

use super::Retail;
use super::check::Checker;
use super::client::Client;
use super::market::Market;
use super::stages::Stages;
use super::transaction::Worker;
use crate::measure::Clients;
use crate::phase::Phase;
use crate::store::Store;
use crate::tally::Tally;
use firn_base::Result;
use firn_base::clock::Clock;
use firn_base::seed::{Seed, mix};
use firn_base::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state that the phases of a run share.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) checker: Arc<Checker>,
    /// One for each thread.
    clients: Vec<Mutex<Client>>,
    seed: u64,
}

impl Shared {
    pub(super) fn new(store: Arc<dyn Store>, retail: Retail, threads: usize) -> Self {
        let market = Market::new(retail);
        let client = |thread| Mutex::new(Client::new(&market, thread, threads as u64));
        let checker = Arc::new(Checker {
            market,
            stages: Stages::new(),
        });
        Self {
            store,
            checker,
            clients: (0..threads as u64).map(client).collect(),
            seed: retail.seed,
        }
    }

    /// Bytes of keys and values in the database, if no step is under way.
    pub(super) fn kept_bytes(&self) -> u64 {
        let Checker { market, stages } = &*self.checker;
        let bytes = |number| {
            let order = market.order(number);
            market.contents(&order, stages.stage(number).ended).bytes
        };
        (0..self.orders()).map(bytes).sum()
    }

    /// The number after that of the newest order of any client.
    pub(super) fn orders(&self) -> u64 {
        let newest = self.clients.iter().map(|client| client.lock().newest());
        newest.max().map_or(0, |newest| newest + 1)
    }
}

/// A phase under way.
pub(super) struct Job {
    shared: Arc<Shared>,
    phase: Phase,
    clock: Clock,
    start_ns: u64,
    /// Orders placed by a load; otherwise transactions.
    begun: AtomicU64,
    is_stopped: AtomicBool,
}

impl Job {
    pub(super) fn new(shared: Arc<Shared>, phase: Phase, clock: Clock) -> Self {
        Self {
            shared,
            phase,
            start_ns: clock.now_ns(),
            clock,
            begun: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Places the client's share of the orders and goes on with those that are open meanwhile. The
    /// last ones stay open.
    fn load(&self, worker: &mut Worker<'_>) -> Result<()> {
        let share = worker.client.share_of(self.phase.operations);
        while worker.client.placed < share && !self.is_stopped() {
            let placed = worker.client.placed;
            worker.load_step()?;
            let is_new = worker.client.placed > placed;
            self.begun.fetch_add(u64::from(is_new), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Does the client's share of the transactions, and more until the time is up.
    fn transact(&self, worker: &mut Worker<'_>) -> Result<()> {
        let share = worker.client.share_of(self.phase.operations);
        let time_is_up = || self.phase.time_is_up(self.clock.now_ns() - self.start_ns);
        let mut done = 0;
        while (done < share || !time_is_up()) && !self.is_stopped() {
            self.begun.fetch_add(1, Ordering::Relaxed);
            worker.transaction()?;
            done += 1;
        }
        Ok(())
    }
}

impl Clients for Job {
    fn run(&self, thread: u64) -> Result<Tally> {
        let mut client = self.shared.clients[thread as usize].lock();
        let phase = u64::from(self.phase.workload.fills());
        let seed = Seed::new(mix(self.shared.seed ^ mix(thread * 2 + phase)));
        let (shared, clock) = (&*self.shared, &self.clock);
        let mut worker = Worker::new(shared, &self.phase, &mut client, seed, clock, self.start_ns)?;
        match self.phase.workload.fills() {
            true => self.load(&mut worker)?,
            false => self.transact(&mut worker)?,
        }
        Ok(worker.tally)
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn checker_bytes(&self) -> u64 {
        self.shared.checker.stages.bytes()
    }
}
