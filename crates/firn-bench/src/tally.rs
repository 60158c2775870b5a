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
    /// A scan of an index, for a transaction.
    IndexScan,
    /// A scan of the lines of an order, for a transaction.
    LinesScan,
    Compaction,
}

/// The class of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Step,
    IndexQuery,
    KeyQuery,
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
    steps: Latencies,
    index_queries: Latencies,
    key_queries: Latencies,
    /// The calls that scan an index.
    index_scans: Latencies,
    /// The calls that scan the lines of an order.
    lines_scans: Latencies,
}

impl Transactions {
    fn new() -> Result<Self> {
        let empty = Latencies::new()?;
        Ok(Self {
            all: empty.clone(),
            steps: empty.clone(),
            index_queries: empty.clone(),
            key_queries: empty.clone(),
            index_scans: empty.clone(),
            lines_scans: empty,
        })
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.all.add(&other.all)?;
        self.steps.add(&other.steps)?;
        self.index_queries.add(&other.index_queries)?;
        self.key_queries.add(&other.key_queries)?;
        self.index_scans.add(&other.index_scans)?;
        self.lines_scans.add(&other.lines_scans)
    }
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
        Ok(Self {
            transactions: Some(Transactions::new()?),
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
            Sort::Scan | Sort::IndexScan | Sort::LinesScan => &mut self.scans,
            Sort::Compaction => &mut self.compactions,
        };
        latencies.record(took_ns);
        match (sort, &mut self.transactions) {
            (Sort::IndexScan, Some(transactions)) => transactions.index_scans.record(took_ns),
            (Sort::LinesScan, Some(transactions)) => transactions.lines_scans.record(took_ns),
            _ => {}
        }
    }

    /// Records a transaction whose calls took `took_ns` in all.
    pub(crate) fn transaction(
        &mut self,
        class: Class,
        took_ns: u64,
        end_ns: u64,
        start_ns: u64,
    ) -> Result<()> {
        if let Some(transactions) = &mut self.transactions {
            transactions.all.record(took_ns);
            let of_class = match class {
                Class::Step => &mut transactions.steps,
                Class::IndexQuery => &mut transactions.index_queries,
                Class::KeyQuery => &mut transactions.key_queries,
            };
            of_class.record(took_ns);
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
            (Some(sum), Some(more)) => sum.add(more)?,
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
        let of =
            |latencies: fn(&Transactions) -> &Latencies| self.transactions.as_ref().map(latencies);
        let sorts = [
            ("read", Some(&self.reads)),
            ("write", Some(&self.writes)),
            ("scan", Some(&self.scans)),
            ("compaction", Some(&self.compactions)),
            ("scan of an index", of(|all| &all.index_scans)),
            ("scan of lines", of(|all| &all.lines_scans)),
            ("step", of(|all| &all.steps)),
            ("index query", of(|all| &all.index_queries)),
            ("key query", of(|all| &all.key_queries)),
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
