//! One thread of a workload: takes the next operation, does it, checks the values read, and counts
//! it.
//!
//! Operations are numbered across threads. With a rate, the number determines when an operation
//! should begin, and its latency counts from then. A store that stalls therefore delays all
//! operations due meanwhile, and is charged for the delay.

use crate::key_space::{KeySpace, Permutation};
use crate::ledger::Before;
use crate::ledger::Ledger;
use crate::measure::Clients;
use crate::phase::Phase;
use crate::record::{Values, claimed_id, wrong};
use crate::store::Store;
use crate::tally::{Sort, Tally};
use crate::workload::{Action, Choice};
use firn_base::Result;
use firn_base::clock::Clock;
use firn_base::seed::{Seed, mix};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The state shared by the threads of a phase.
pub(crate) struct Job {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: KeySpace,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) values: Values,
    pub(crate) choice: Choice,
    /// Maps ranks to records, so that the frequently chosen records were not inserted
    /// consecutively.
    pub(crate) scramble: Permutation,
    pub(crate) phase: Phase,
    pub(crate) records: u64,
    /// True if all `records` exist, because they were loaded.
    pub(crate) is_whole: bool,
    pub(crate) inserted: Arc<AtomicU64>,
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    pub(crate) start_ns: u64,
    pub(crate) next: AtomicU64,
    pub(crate) failed: AtomicBool,
    /// True once the first thread has done its one act, if the workload has one.
    pub(crate) acted: AtomicBool,
}

impl Job {
    /// The number of the next operation of `thread`; `None` at the end of the phase. A load ends
    /// when all records are loaded, a workload of one act with that, and any other workload when
    /// both its operations are done and its time is over.
    fn next_operation(&self, thread: u64) -> Option<u64> {
        if self.failed.load(Ordering::Relaxed) {
            return None;
        }
        if self.phase.workload.is_one_act() {
            let is_over = self.acted.load(Ordering::SeqCst);
            let number = || {
                self.next
                    .fetch_add(u64::from(thread == 0), Ordering::SeqCst)
            };
            return (!is_over).then(number);
        }
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        if number < self.phase.operations {
            return Some(number);
        }
        let time_is_up = || self.phase.time_is_up(self.clock.now_ns() - self.start_ns);
        if self.phase.workload.fills() || time_is_up() {
            self.next.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        Some(number)
    }

    /// The start time of operation `number`: now, or its scheduled time, for which this waits.
    fn begin(&self, number: u64) -> u64 {
        let Some(rate) = self.phase.rate else {
            return self.clock.now_ns();
        };
        let due = self.start_ns + (number as f64 * 1e9 / rate) as u64;
        let now = self.clock.now_ns();
        if due > now {
            self.clock.sleep(Duration::from_nanos(due - now));
        }
        due
    }

    /// An existing record, chosen by the workload's distribution.
    fn choose(&self, seed: &mut Seed) -> u64 {
        match &self.choice {
            Choice::Uniform | Choice::Ascending => seed.below(self.records),
            Choice::Hot { records, percent } => {
                let hot = seed.below(100) < *percent || *records == self.records;
                let rank = if hot {
                    seed.below(*records)
                } else {
                    records + seed.below(self.records - records)
                };
                self.scramble.get(rank)
            }
            Choice::Zipf(zipf) => self.scramble.get(zipf.rank(seed.unit())),
            Choice::Latest(zipf) => {
                let newest = self.records + self.inserted.load(Ordering::SeqCst) - 1;
                newest - zipf.rank(seed.unit())
            }
        }
    }
}

impl Clients for Job {
    fn run(&self, thread: u64) -> Result<Tally> {
        work(self, thread)
    }

    fn begun(&self) -> u64 {
        let begun = self.next.load(Ordering::SeqCst);
        if self.phase.workload.fills() {
            begun.min(self.phase.operations)
        } else {
            begun
        }
    }

    fn stop(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    fn start_ns(&self) -> u64 {
        self.start_ns
    }

    fn checker_bytes(&self) -> u64 {
        self.ledger.bytes()
    }
}

/// The main function of thread `thread`.
fn work(job: &Job, thread: u64) -> Result<Tally> {
    let mut worker = Worker {
        job,
        thread,
        seed: Seed::new(mix(job.seed ^ mix(thread + 1))),
        key: Vec::new(),
        value: Vec::new(),
        scan: Scan::default(),
        next_rank: job.records / job.phase.threads as u64 * thread,
        tally: Tally::new()?,
    };
    while let Some(number) = job.next_operation(thread) {
        worker.operate(number)?;
    }
    Ok(worker.tally)
}

struct Worker<'a> {
    job: &'a Job,
    thread: u64,
    seed: Seed,
    key: Vec<u8>,
    value: Vec<u8>,
    scan: Scan,
    /// The rank at which the next scan continues.
    next_rank: u64,
    tally: Tally,
}

fn sort_of(action: Action) -> Sort {
    match action {
        Action::Read | Action::ReadMissing => Sort::Read,
        Action::Load | Action::Update | Action::Insert | Action::Modify | Action::Delete => {
            Sort::Write
        }
        Action::Scan | Action::ScanOn => Sort::Scan,
        Action::Compact | Action::Settle => Sort::Compaction,
    }
}

/// The buffers of a scan, kept for the next one.
#[derive(Default)]
struct Scan {
    /// The ledger's state, before the scan, of the loaded records from its start on.
    known: Vec<(u64, Before)>,
    last_key: Vec<u8>,
    expected: Vec<u8>,
}

impl Worker<'_> {
    fn operate(&mut self, number: u64) -> Result<()> {
        let action = self.job.phase.workload.action(self.thread, &mut self.seed);
        let (action, record) = self.subject(action, number);
        let entries = self.job.phase.workload.scan_entries(&mut self.seed);
        // The ledger is read before the clock starts, because that is not the engine's work.
        if matches!(action, Action::Scan | Action::ScanOn) {
            self.look_up(record, entries);
        }
        let begin_ns = self.job.begin(number);
        match action {
            Action::Read => self.read(record)?,
            Action::ReadMissing => self.read_missing(record)?,
            Action::Load | Action::Update | Action::Insert => self.write(record)?,
            Action::Modify => {
                self.read(record)?;
                self.write(record)?;
            }
            Action::Scan | Action::ScanOn => self.scan(record, entries)?,
            Action::Delete => self.delete(record)?,
            Action::Compact => self.act(|store| store.compact())?,
            Action::Settle => self.act(|store| store.settle())?,
        }
        self.tally.record(
            sort_of(action),
            begin_ns,
            self.job.clock.now_ns(),
            self.job.start_ns,
        )
    }

    /// The record for `action`. An insert for which there is no room becomes an update.
    fn subject(&mut self, action: Action, number: u64) -> (Action, u64) {
        let job = self.job;
        match action {
            Action::Load if matches!(job.choice, Choice::Ascending) => {
                (action, job.keys.loaded_at(number))
            }
            Action::Update if matches!(job.choice, Choice::Ascending) => {
                (action, job.keys.loaded_at(number % job.keys.records()))
            }
            Action::Load if job.phase.workload.fills_some() => (action, job.choose(&mut self.seed)),
            Action::Load => (action, number),
            Action::ScanOn => (action, job.keys.loaded_at(self.next_rank)),
            Action::Insert => {
                let room = job.ledger.records() - job.records;
                let take = |n| (n < room).then_some(n + 1);
                match job
                    .inserted
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                {
                    Ok(inserted) => (action, job.records + inserted),
                    Err(_) => (Action::Update, job.choose(&mut self.seed)),
                }
            }
            _ => (action, job.choose(&mut self.seed)),
        }
    }

    fn write(&mut self, record: u64) -> Result<()> {
        let job = self.job;
        job.keys.write(record, &mut self.key);
        let version = job.ledger.begin(record);
        job.values.write(record, version, &mut self.value);
        job.store
            .put(&self.key, &self.value, job.phase.durability)?;
        job.ledger.end(record);
        self.tally.user_bytes += (self.key.len() + self.value.len()) as u64;
        Ok(())
    }

    /// The one act of the phase, after which it ends.
    fn act(&self, act: impl Fn(&dyn Store) -> Result<()>) -> Result<()> {
        let result = act(&*self.job.store);
        self.job.acted.store(true, Ordering::SeqCst);
        result
    }

    fn delete(&mut self, record: u64) -> Result<()> {
        let job = self.job;
        job.keys.write(record, &mut self.key);
        job.ledger.begin_delete(record);
        job.store.delete(&self.key, job.phase.durability)?;
        job.ledger.end(record);
        self.tally.user_bytes += self.key.len() as u64;
        Ok(())
    }

    fn read(&mut self, record: u64) -> Result<()> {
        let job = self.job;
        job.keys.write(record, &mut self.key);
        let before = job.ledger.before(record);
        let mut version = Ok(0);
        let found = job.store.get(&self.key, &mut |value| {
            version = job.values.check_value(record, value)
        })?;
        match found {
            true => job.ledger.seen(record, before, version?),
            false => {
                let is_loaded = job.is_whole && record < job.records;
                job.ledger.missing(record, before, is_loaded)
            }
        }
    }

    /// Reads the key next to loaded record `record` that an insert would use, if none has.
    fn read_missing(&mut self, record: u64) -> Result<()> {
        let job = self.job;
        let free_from = job.ledger.records() - job.records;
        let beside = job.records + record.clamp(free_from.min(job.records - 1), job.records - 1);
        job.keys.write(beside, &mut self.key);
        match job.store.get(&self.key, &mut |_| ())? {
            true => Err(wrong(beside, "there, and was never written")),
            false => Ok(()),
        }
    }

    /// Records the ledger's state of the loaded records that a scan of up to `entries` from
    /// `record` must find.
    fn look_up(&mut self, record: u64, entries: u64) {
        let job = self.job;
        let from = job.keys.rank(record);
        self.scan.known.clear();
        // An inserted record comes after the loaded one of the same rank.
        let first = if record < job.records { from } else { from + 1 };
        for rank in first..(first + entries).min(job.records) {
            let id = job.keys.loaded_at(rank);
            self.scan.known.push((id, job.ledger.before(id)));
        }
        let next = from + entries;
        self.next_rank = if next < job.records { next } else { 0 };
    }

    /// Scans and checks the result. Every loaded record from the start on must be among the
    /// entries, in order, in a permitted version, until the entries end. Inserted records may come
    /// between them.
    fn scan(&mut self, record: u64, entries: u64) -> Result<()> {
        let job = self.job;
        let Scan {
            known,
            last_key,
            expected,
        } = &mut self.scan;
        job.keys.write(record, &mut self.key);
        last_key.clear();
        let (mut wrong_answer, mut found, mut passed) = (None, 0, 0);
        job.store
            .scan(&self.key, entries as usize, &mut |key, value| {
                let mut check = || {
                    let id = claimed_id(value).filter(|&id| id < job.records * 2);
                    let id = id.ok_or_else(|| {
                        wrong(
                            record,
                            "followed by a value that is none of this benchmark's",
                        )
                    })?;
                    let version = job.values.check_value(id, value)?;
                    job.keys.write(id, expected);
                    if expected != key || key <= last_key.as_slice() || key < self.key.as_slice() {
                        return Err(wrong(id, "out of place in a scan"));
                    }
                    if id >= job.records {
                        return Ok(());
                    }
                    // Loaded records that the scan skipped must have been missing.
                    while let Some(&(next, before)) = known.get(passed) {
                        passed += 1;
                        if next == id {
                            return job.ledger.seen(id, before, version);
                        }
                        job.ledger.missing(next, before, job.is_whole)?;
                    }
                    Ok(())
                };
                wrong_answer = wrong_answer.take().or(check().err());
                found += 1;
                last_key.clear();
                last_key.extend_from_slice(key);
            })?;
        if let Some(error) = wrong_answer {
            return Err(error);
        }
        // With fewer entries than requested the scan reached the last key.
        let unseen = if found < entries {
            &known[passed..]
        } else {
            &[]
        };
        unseen
            .iter()
            .try_for_each(|&(id, before)| job.ledger.missing(id, before, job.is_whole))
    }
}
