//! The measurements of one client thread: latencies by kind of call, by second, and bytes written.

use crate::latency::{Latencies, Percentiles};
use crate::report::Timeline;
use firn_base::Result;
use std::collections::BTreeMap;

/// The kind of a call to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Read,
    Write,
    Scan,
    Compaction,
}

/// The measurements of a thread. Its operations are single calls, or transactions of several.
pub(crate) struct Tally {
    reads: Latencies,
    writes: Latencies,
    scans: Latencies,
    compactions: Latencies,
    /// `None` if every operation is one call.
    transactions: Option<Transactions>,
    /// Latencies of operations by second.
    seconds: Vec<Latencies>,
    pub(crate) user_bytes: u64,
    pub(crate) last_ns: u64,
    /// The sum of the latencies of all operations.
    pub(crate) call_ns: u64,
}

/// Latencies of operations that are made of several calls.
#[derive(Clone)]
struct Transactions {
    all: Latencies,
    /// The transactions that are queries by an index.
    index_queries: Latencies,
}

impl Tally {
    /// A tally of operations that are one call each.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            reads: Latencies::new()?,
            writes: Latencies::new()?,
            scans: Latencies::new()?,
            compactions: Latencies::new()?,
            transactions: None,
            seconds: Vec::new(),
            user_bytes: 0,
            last_ns: 0,
            call_ns: 0,
        })
    }

    /// A tally of operations that make several calls.
    pub(crate) fn of_transactions() -> Result<Self> {
        let (all, index_queries) = (Latencies::new()?, Latencies::new()?);
        Ok(Self {
            transactions: Some(Transactions { all, index_queries }),
            ..Self::new()?
        })
    }

    /// Records an operation that is one call.
    pub(crate) fn record(
        &mut self,
        sort: Sort,
        begin_ns: u64,
        end_ns: u64,
        start_ns: u64,
    ) -> Result<()> {
        let took_ns = end_ns.saturating_sub(begin_ns);
        self.call(sort, took_ns);
        self.end(took_ns, end_ns, start_ns)
    }

    /// Records a call that is a part of a transaction.
    pub(crate) fn call(&mut self, sort: Sort, took_ns: u64) {
        let latencies = match sort {
            Sort::Read => &mut self.reads,
            Sort::Write => &mut self.writes,
            Sort::Scan => &mut self.scans,
            Sort::Compaction => &mut self.compactions,
        };
        latencies.record(took_ns);
    }

    /// Records a transaction whose calls took `took_ns` in all.
    pub(crate) fn transaction(
        &mut self,
        is_index_query: bool,
        took_ns: u64,
        end_ns: u64,
        start_ns: u64,
    ) -> Result<()> {
        if let Some(transactions) = &mut self.transactions {
            transactions.all.record(took_ns);
            if is_index_query {
                transactions.index_queries.record(took_ns);
            }
        }
        self.end(took_ns, end_ns, start_ns)
    }

    fn end(&mut self, took_ns: u64, end_ns: u64, start_ns: u64) -> Result<()> {
        let second = (end_ns.saturating_sub(start_ns) / 1_000_000_000) as usize;
        while self.seconds.len() <= second {
            self.seconds.push(Latencies::coarse()?);
        }
        self.seconds[second].record(took_ns);
        self.last_ns = end_ns;
        self.call_ns += took_ns;
        Ok(())
    }

    pub(crate) fn add(&mut self, other: &Tally) -> Result<()> {
        self.reads.add(&other.reads)?;
        self.writes.add(&other.writes)?;
        self.scans.add(&other.scans)?;
        self.compactions.add(&other.compactions)?;
        match (&mut self.transactions, &other.transactions) {
            (Some(sum), Some(more)) => {
                sum.all.add(&more.all)?;
                sum.index_queries.add(&more.index_queries)?;
            }
            (sum @ None, more) => sum.clone_from(more),
            (Some(_), None) => {}
        }
        while self.seconds.len() < other.seconds.len() {
            self.seconds.push(Latencies::coarse()?);
        }
        for (sum, more) in self.seconds.iter_mut().zip(&other.seconds) {
            sum.add(more)?;
        }
        self.user_bytes += other.user_bytes;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.call_ns += other.call_ns;
        Ok(())
    }

    /// Latencies of all operations.
    pub(crate) fn all(&self) -> Result<Latencies> {
        if let Some(transactions) = &self.transactions {
            return Ok(transactions.all.clone());
        }
        let mut all = self.reads.clone();
        all.add(&self.writes)?;
        all.add(&self.scans)?;
        all.add(&self.compactions)?;
        Ok(all)
    }

    pub(crate) fn by_sort(&self) -> BTreeMap<String, Percentiles> {
        let index_queries = self.transactions.as_ref().map(|of| &of.index_queries);
        let sorts = [
            ("read", Some(&self.reads)),
            ("write", Some(&self.writes)),
            ("scan", Some(&self.scans)),
            ("compaction", Some(&self.compactions)),
            ("index query", index_queries),
        ];
        sorts
            .into_iter()
            .filter_map(|(name, latencies)| Some((name.to_owned(), latencies?.percentiles()?)))
            .collect()
    }

    pub(crate) fn timeline(&self) -> Timeline {
        let of = |figure: fn(&Latencies) -> f64| self.seconds.iter().map(figure).collect();
        let counts = self.seconds.iter().map(Latencies::count).collect();
        Timeline::new(
            counts,
            of(|second| second.at(0.99)),
            of(|second| second.at(1.0)),
        )
    }
}
