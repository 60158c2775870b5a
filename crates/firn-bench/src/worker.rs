//! One thread of a workload: takes the next operation, does it, checks what it read, counts it.
//!
//! Operations are numbered across threads. Under a rate, the number says when an operation should begin, and its
//! latency counts from there: a store that stands still delays all that should have come meanwhile, and is charged for
//! it.

use crate::key_space::{KeySpace, Permutation};
use crate::latency::{Latencies, Percentiles};
use crate::ledger::Ledger;
use crate::phase::Phase;
use crate::record::{check_value, claimed_id, write_value, wrong};
use crate::store::Store;
use crate::workload::{Action, Choice, Workload};
use firn_base::Result;
use firn_base::clock::Clock;
use firn_base::seed::{Seed, mix};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SCAN_ENTRIES_MAX: u64 = 100;

/// What the threads of a phase share.
pub(crate) struct Job {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: KeySpace,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) value_bytes: usize,
    pub(crate) choice: Choice,
    /// From ranks to records, so that the often chosen ones were not inserted one after the other.
    pub(crate) scramble: Permutation,
    pub(crate) phase: Phase,
    pub(crate) records: u64,
    pub(crate) inserted: Arc<AtomicU64>,
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    pub(crate) start_ns: u64,
    pub(crate) next: AtomicU64,
    pub(crate) failed: AtomicBool,
}

impl Job {
    /// Operations begun so far.
    pub(crate) fn begun(&self) -> u64 {
        self.next.load(Ordering::SeqCst).min(self.phase.operations)
    }

    /// The number of the next operation; nothing if operations, time or patience are at their end.
    fn next_operation(&self) -> Option<u64> {
        let elapsed_ns = self.clock.now_ns() - self.start_ns;
        let late = self.phase.seconds_max.is_some_and(|seconds| elapsed_ns >= seconds * 1_000_000_000);
        if late || self.failed.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        (number < self.phase.operations).then_some(number)
    }

    /// When operation `number` begins: now, or at its appointed time, for which this waits.
    fn begin(&self, number: u64) -> u64 {
        let Some(rate) = self.phase.rate else { return self.clock.now_ns() };
        let due = self.start_ns + (number as f64 * 1e9 / rate) as u64;
        let now = self.clock.now_ns();
        if due > now {
            self.clock.sleep(Duration::from_nanos(due - now));
        }
        due
    }

    /// A record that is there, chosen as the workload says.
    fn choose(&self, seed: &mut Seed) -> u64 {
        match &self.choice {
            Choice::Uniform => seed.below(self.records),
            Choice::Zipf(zipf) => self.scramble.get(zipf.rank(seed.unit())),
            Choice::Latest(zipf) => {
                let newest = self.records + self.inserted.load(Ordering::SeqCst) - 1;
                newest - zipf.rank(seed.unit())
            }
        }
    }
}

/// What a thread counted.
pub(crate) struct Tally {
    reads: Latencies,
    writes: Latencies,
    scans: Latencies,
    pub(crate) seconds: Vec<u64>,
    pub(crate) user_bytes: u64,
    pub(crate) last_ns: u64,
}

impl Tally {
    pub(crate) fn new() -> Result<Self> {
        let (reads, writes, scans) = (Latencies::new()?, Latencies::new()?, Latencies::new()?);
        Ok(Self { reads, writes, scans, seconds: Vec::new(), user_bytes: 0, last_ns: 0 })
    }

    fn record(&mut self, action: Action, begin_ns: u64, end_ns: u64, start_ns: u64) {
        let sort = match action {
            Action::Read => &mut self.reads,
            Action::Update | Action::Insert | Action::Modify => &mut self.writes,
            Action::Scan => &mut self.scans,
        };
        sort.record(end_ns.saturating_sub(begin_ns));
        let second = (end_ns.saturating_sub(start_ns) / 1_000_000_000) as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
        }
        self.seconds[second] += 1;
        self.last_ns = end_ns;
    }

    pub(crate) fn add(&mut self, other: &Tally) -> Result<()> {
        self.reads.add(&other.reads)?;
        self.writes.add(&other.writes)?;
        self.scans.add(&other.scans)?;
        self.seconds.resize(self.seconds.len().max(other.seconds.len()), 0);
        for (sum, more) in self.seconds.iter_mut().zip(&other.seconds) {
            *sum += more;
        }
        self.user_bytes += other.user_bytes;
        self.last_ns = self.last_ns.max(other.last_ns);
        Ok(())
    }

    pub(crate) fn all(&self) -> Result<Latencies> {
        let mut all = self.reads.clone();
        all.add(&self.writes)?;
        all.add(&self.scans)?;
        Ok(all)
    }

    pub(crate) fn by_sort(&self) -> BTreeMap<&'static str, Percentiles> {
        let sorts = [("read", &self.reads), ("write", &self.writes), ("scan", &self.scans)];
        sorts.into_iter().filter_map(|(name, latencies)| Some((name, latencies.percentiles()?))).collect()
    }
}

/// The life of thread `thread`.
pub(crate) fn work(job: &Job, thread: u64) -> Result<Tally> {
    let mut worker = Worker {
        job,
        seed: Seed::new(mix(job.seed ^ mix(thread + 1))),
        key: Vec::new(),
        value: Vec::new(),
        tally: Tally::new()?,
    };
    while let Some(number) = job.next_operation() {
        let done = worker.operate(number);
        if let Err(e) = done {
            job.failed.store(true, Ordering::SeqCst);
            return Err(e);
        }
    }
    Ok(worker.tally)
}

struct Worker<'a> {
    job: &'a Job,
    seed: Seed,
    key: Vec<u8>,
    value: Vec<u8>,
    tally: Tally,
}

impl Worker<'_> {
    fn operate(&mut self, number: u64) -> Result<()> {
        let action = self.job.phase.workload.action(&mut self.seed);
        let (action, record) = self.subject(action, number);
        let begin_ns = self.job.begin(number);
        match action {
            Action::Read => self.read(record)?,
            Action::Update | Action::Insert => self.write(record)?,
            Action::Modify => {
                self.read(record)?;
                self.write(record)?;
            }
            Action::Scan => self.scan(record)?,
        }
        self.tally.record(action, begin_ns, self.job.clock.now_ns(), self.job.start_ns);
        Ok(())
    }

    /// The record that `action` is about. An insert for which there is no room left becomes an update.
    fn subject(&mut self, action: Action, number: u64) -> (Action, u64) {
        let job = self.job;
        if action != Action::Insert {
            return (action, job.choose(&mut self.seed));
        }
        if job.phase.workload == Workload::Load {
            return (action, number);
        }
        let room = job.ledger.records() - job.records;
        let taken = job.inserted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n < room).then_some(n + 1));
        match taken {
            Ok(inserted) => (action, job.records + inserted),
            Err(_) => (Action::Update, job.choose(&mut self.seed)),
        }
    }

    fn write(&mut self, record: u64) -> Result<()> {
        let job = self.job;
        job.keys.write(record, &mut self.key);
        let version = job.ledger.begin(record);
        write_value(record, version, job.value_bytes, &mut self.value);
        job.store.put(&self.key, &self.value, job.phase.durability)?;
        job.ledger.end(record);
        self.tally.user_bytes += (self.key.len() + self.value.len()) as u64;
        Ok(())
    }

    fn read(&mut self, record: u64) -> Result<()> {
        let job = self.job;
        job.keys.write(record, &mut self.key);
        let before = job.ledger.before(record);
        let mut version = Ok(0);
        let found = job.store.get(&self.key, &mut |value| version = check_value(record, job.value_bytes, value))?;
        match found {
            true => job.ledger.seen(record, before, version?),
            false if record < job.records => Err(wrong(record, "not there: is the database loaded, with these sizes?")),
            false => job.ledger.missing(record, before),
        }
    }

    fn scan(&mut self, record: u64) -> Result<()> {
        let job = self.job;
        let count = 1 + self.seed.below(SCAN_ENTRIES_MAX) as usize;
        job.keys.write(record, &mut self.key);
        let (mut first_error, mut last_key, mut expected) = (None, Vec::new(), Vec::new());
        job.store.scan(&self.key, count, &mut |key, value| {
            let id = claimed_id(value).filter(|&id| id < job.records * 2);
            let mut check = || {
                let id = id.ok_or_else(|| wrong(record, "followed by a value that is none of this benchmark's"))?;
                check_value(id, job.value_bytes, value)?;
                job.keys.write(id, &mut expected);
                let in_order = last_key.as_slice() < key && self.key.as_slice() <= key;
                if expected == key && in_order { Ok(()) } else { Err(wrong(id, "out of place in a scan")) }
            };
            let checked = check();
            first_error = first_error.take().or(checked.err());
            last_key.clear();
            last_key.extend_from_slice(key);
        })?;
        first_error.map_or(Ok(()), Err)
    }
}
