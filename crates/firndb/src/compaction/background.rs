//! Background work, one step at a time: pick (pure), run (does the I/O, changes no state), install
//! (`install.rs`).
//!
//! 1. The tables of a running job are `busy`: no other job takes them.
//! 2. Flushes run one at a time, oldest memtable first, and before anything else. A worker in the
//!    middle of a compaction stops at its next yield point to run one.
//! 3. A failed job leaves nothing and is retried after a pause, except for `Corruption` and
//!    `Poisoned`, which only a reopen can fix.

mod crew;
mod cut;
#[cfg(test)]
#[cfg(shuttle)]
mod interleave;
#[cfg(test)]
#[cfg(not(shuttle))]
mod lab_tests;
mod loans;
mod manual;
mod obsolete;
mod sub_tasks;
#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use self::loans::Loans;
pub(crate) use self::obsolete::Obsolete;
use self::obsolete::ObsoleteFiles;
use self::sub_tasks::SubTasks;
use crate::compaction::picker::{self, FLUSH_BELOW, Facts, Flushes, Sizes, WantedCuts};
use crate::compaction::plan::{BusyTables, How, Plan, Reason};
use crate::compaction::pm_store::PmFacts;
use crate::compaction::rate_limiter::{Debt, RateLimiter};
use crate::compaction::{self, CompactionOutput, LevelContext};
use crate::engine::Engine;
use crate::event::{Event, StallReason};
use crate::lab::Releases;
use crate::manifest::{Level, within};
use crate::mechanisms;
use crate::memtable::Memtable;
use crate::read::state::ReadState;
use crate::read::table_run::TableRun;
use crate::tlsm::CutJob;
use firn_base::exec::{Work, block_on, block_on_with, give_way};
use firn_base::sync::{ArcSwapOption, AtomicU64, Condvar, Mutex, Ordering};
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use std::sync::Arc;
use std::time::Duration;

/// The pause before a failed job is retried, in nanoseconds.
const RETRY_NS: u64 = 250_000_000;
/// The most that an eviction takes, in write buffers, because leaves fill up while it runs.
const CHUNK_BUFFERS_MAX: u64 = 3;
const TICK_NS: u64 = 1_000_000_000;

/// The running jobs, and the items that wait to be cleaned up.
pub(crate) struct Jobs {
    state: Mutex<JobState>,
    /// The error that keeps background work from continuing. Changed under the state's lock; every
    /// write reads it without.
    error: ArcSwapOption<Error>,
    /// A table with too many reads without a result, and its level.
    seek: Mutex<Option<(Level, FileId)>>,
    obsolete: ObsoleteFiles,
    /// Items that newer views of level 0 do not have.
    pub(crate) releases: Releases,
    loans: Loans,
    /// Compactions that a crash cut short.
    pub(crate) cut: Mutex<Vec<Arc<Mutex<Option<CutJob>>>>>,
    /// Compactions whose sub-tasks any worker may run.
    shared: Mutex<Vec<Arc<SubTasks>>>,
    pub(crate) rate_limiter: RateLimiter,
    /// Calls that wait until all frozen memtables are flushed, also those that could stay where
    /// they are.
    flush_all: AtomicU64,
    /// The number of finished jobs, and a condition that wakes the threads waiting for one.
    pub(crate) progress: (Mutex<u64>, Condvar),
}

#[derive(Default)]
struct JobState {
    busy: BusyTables,
    flushing: bool,
    evicting: bool,
    compacting: usize,
    /// True while a user's compaction is running, when no other may start.
    manual: bool,
    /// True if nothing was running and nothing was due when a worker last looked.
    all_done: bool,
    /// Keys at which partitions are to be divided.
    wanted: WantedCuts,
    /// The time of the next retry after a failure; 0 for an immediate one.
    retry_at_ns: u64,
}

/// A job that was picked, with the context that it needs from the state.
struct Job {
    plan: Plan,
    around: LevelContext,
}

impl Jobs {
    /// No jobs. Compactions will be limited by `rate_limiter`.
    pub(crate) fn new(rate_limiter: RateLimiter) -> Jobs {
        Jobs {
            state: Mutex::default(),
            error: ArcSwapOption::default(),
            seek: Mutex::default(),
            obsolete: ObsoleteFiles::default(),
            releases: Releases::default(),
            loans: Loans::default(),
            cut: Mutex::default(),
            shared: Mutex::default(),
            rate_limiter,
            flush_all: AtomicU64::new(0),
            progress: Default::default(),
        }
    }

    /// Has all frozen memtables flushed until the result is dropped.
    fn flush_all(&self) -> FlushAll<'_> {
        self.flush_all.fetch_add(1, Ordering::AcqRel);
        FlushAll(self)
    }

    fn is_flushing_all(&self) -> bool {
        self.flush_all.load(Ordering::Acquire) > 0
    }
}

/// A call that waits until all frozen memtables are flushed.
struct FlushAll<'a>(&'a Jobs);

impl Drop for FlushAll<'_> {
    fn drop(&mut self) {
        self.0.flush_all.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The keys at which the output of `plan` ends: the borders of the partitions or, below level 0 of
/// one, of its ranges, and those that are wanted.
fn cuts_for(plan: &Plan, state: &ReadState, wanted: &[Box<[u8]>]) -> Arc<[Box<[u8]>]> {
    let borders = state.layout.cuts();
    match plan.part.and_then(|id| state.layout.index_of(id)) {
        // The inputs lie within a partition.
        Some(part) => {
            let wanted = within(wanted, state.layout.range(part));
            match plan.level {
                Level::ZERO => wanted.into(),
                _ => union(state.layout.ranges_of(part), wanted),
            }
        }
        None if wanted.is_empty() => borders.clone(),
        None => union(borders, wanted),
    }
}

/// Both, ascending, each key once.
fn union(cuts: &[Box<[u8]>], others: &[Box<[u8]>]) -> Arc<[Box<[u8]>]> {
    let mut all = [cuts, others].concat();
    all.sort_unstable();
    all.dedup();
    all.into()
}

impl Work for Engine {
    fn step(&self) -> bool {
        self.tick();
        self.freeze_if_short();
        let cleaned = self.drain_log() | self.remove_obsolete(false);
        if self.help_compaction() {
            return true;
        }
        match self.start(true) {
            Some(job) => {
                self.perform(job);
                true
            }
            // There is time for work that was deferred.
            None => cleaned | self.remove_obsolete(true),
        }
    }

    fn idle_wait(&self) -> Duration {
        if self.background_error().is_some() {
            Duration::from_nanos(RETRY_NS)
        } else {
            Duration::from_secs(1)
        }
    }
}

impl Engine {
    /// Writes a full half of the persistent-memory log buffer to its file. Returns true if there
    /// was one.
    fn drain_log(&self) -> bool {
        let Some(buffer) = self
            .logs
            .pm_buffer
            .as_ref()
            .filter(|buffer| buffer.has_full())
        else {
            return false;
        };
        match buffer.drain_full() {
            Ok(drained) => drained,
            Err(error) => {
                // The next writer that needs the half tries again and returns the error.
                tracing::warn!(%error, "the log buffer could not be drained");
                false
            }
        }
    }

    /// Picks the next job and marks its tables. If `compactions` is false, picks only flushes.
    fn start(&self, compactions: bool) -> Option<Arc<Job>> {
        if self.read_only || self.calls.is_closed() {
            return None;
        }
        self.sample_reuse();
        let mut jobs = self.jobs.state.lock();
        if self.jobs.error.load().is_some() && self.clock.now_ns() < jobs.retry_at_ns {
            return None;
        }
        let state = self.state.load_full();
        self.want_borders(&mut jobs, &state);
        self.discard_cut(&state, &jobs);
        self.discard_seek(&state);
        let plan = self.pick(&state, &jobs, compactions);
        if plan.is_none() && compactions && !jobs.manual {
            // The failed job is no longer wanted (a compaction for reads, or a user's), so nothing
            // else would clear its error.
            self.jobs.error.store(None);
        }
        let may_compact = compactions && !jobs.manual && self.jobs.rate_limiter.may_begin();
        let is_running = jobs.flushing || jobs.compacting > 0;
        let all_done = plan.is_none() && may_compact && !is_running;
        if all_done && !std::mem::replace(&mut jobs.all_done, true) {
            // Writers may wait for room that nothing will make.
            self.progressed();
        }
        plan.map(|plan| self.mark(&mut jobs, plan, &state))
    }

    /// True if no background work is running or due, so that none will make room.
    pub(crate) fn is_all_done(&self) -> bool {
        self.jobs.state.lock().all_done
    }

    /// The tables' part of persistent memory, in profiles that have one.
    pub(super) fn pm_facts(&self) -> Option<PmFacts> {
        let store = self.compaction.pm.as_ref()?;
        let (is_full, now_ns) = (self.write_stall.is_full(), self.clock.now_ns());
        let user = &self.counts.user;
        store.note_operations(user.gets.get(), user.writes.get(), now_ns);
        let facts = store.facts(is_full, now_ns);
        // On a manual clock all follows from the seed, and the machine's times do not.
        Some(match self.clock.is_manual() {
            true => facts,
            false => facts.with_reads(&self.compaction.counters),
        })
    }

    /// The sizes at which partitions are divided and joined.
    pub(super) fn partition_sizes(&self, state: &ReadState, pm: Option<&PmFacts>) -> Sizes {
        let buffer_bytes = self.budget.write_buffer_bytes as u64;
        let ranges = self.options.ranges();
        picker::sizes(state, &self.options.limits, pm, ranges, buffer_bytes)
    }

    fn want_borders(&self, jobs: &mut JobState, state: &ReadState) {
        let sizes = self.partition_sizes(state, self.pm_facts().as_ref());
        jobs.wanted = picker::wanted(state, &sizes, &jobs.wanted);
    }

    fn pick(&self, state: &ReadState, jobs: &JobState, compactions: bool) -> Option<Plan> {
        let pm = self.pm_facts();
        let facts = Facts {
            limits: &self.options.limits,
            busy: &jobs.busy,
            flushes: self.flushes(jobs, state),
            visible: self.commit.visible(),
            oldest: self.oldest_read_point(),
            seek: *self.jobs.seek.lock(),
            appends: self.compaction.appends.is_some(),
            dead_share_max: self.options.tuning.block.dead_share_max,
            pm: pm.as_ref(),
            evicting: jobs.evicting,
            tuning: &self.options.tuning,
            ranges: self.options.ranges(),
            chunk_bytes: self.chunk_bytes(),
            wanted: &jobs.wanted,
            sizes: self.partition_sizes(state, pm.as_ref()),
            buffer_bytes: self.budget.write_buffer_bytes as u64,
            level0_inputs_max: self.budget.level0_inputs_max,
            at_rest: self.jobs.rate_limiter.is_at_rest(self.commit.visible()),
            idle: self.jobs.rate_limiter.is_idle(),
        };
        match compactions && !jobs.manual && self.jobs.rate_limiter.may_begin() {
            // First what a crash cut short, because another job would take its inputs.
            true => self
                .pick_cut(state, jobs)
                .or_else(|| picker::pick(state, &facts)),
            // Even if other work is due.
            false => picker::pick_flush(state, &facts),
        }
    }

    fn flushes(&self, jobs: &JobState, state: &ReadState) -> Flushes {
        Flushes {
            running: jobs.flushing,
            begun: self.is_flush_begun(state),
            all: self.jobs.is_flushing_all(),
        }
    }

    /// True if the flush of the oldest memtable was interrupted.
    pub(super) fn is_flush_begun(&self, state: &ReadState) -> bool {
        let oldest = state.memtables.of_part(0).memtables.last();
        oldest.is_some_and(|buffer| self.jobs.releases.is_begun(buffer))
    }

    /// The oldest read point in use, or the current one.
    pub(super) fn oldest_read_point(&self) -> SeqNo {
        self.readers.snapshots.oldest(&self.commit.visible)
    }

    /// Bytes of values that one eviction takes. With more of them, the values are closer together
    /// in the logs. The eviction holds them in memory that the block cache lends: the part that the
    /// cache does not use, which is most of it while a database is loaded, but at least the size of
    /// a write buffer.
    pub(super) fn chunk_bytes(&self) -> u64 {
        let buffer = self.budget.write_buffer_bytes as u64;
        // Writers need all their memtables meanwhile, or may at any time.
        let lendable = self
            .tables
            .lendable(buffer * self.options.limits.write_buffers as u64);
        let unused = lendable.saturating_sub(self.tables.context().cache.bytes());
        unused.clamp(buffer, CHUNK_BUFFERS_MAX * buffer)
    }

    fn mark(&self, jobs: &mut JobState, plan: Plan, state: &ReadState) -> Arc<Job> {
        if let Some(resume) = &plan.resume {
            self.jobs.cut.lock().retain(|cut| !Arc::ptr_eq(cut, resume));
        }
        jobs.all_done = false;
        // No flush may begin while borders of partitions change, because its output ends at those
        // that it knows.
        jobs.flushing |= plan.reason == Reason::Flush || plan.moves_partitions();
        jobs.compacting += usize::from(plan.reason != Reason::Flush);
        jobs.evicting |= plan.reason == Reason::Evict;
        if plan.reason == Reason::Seeks {
            *self.jobs.seek.lock() = None;
        }
        plan.tables
            .iter()
            .for_each(|(level, run)| jobs.busy.take(*level, run));
        jobs.busy.take_part(&plan);
        let cuts = cuts_for(&plan, state, &jobs.wanted);
        let around = LevelContext::new(state, &plan, cuts);
        Arc::new(Job { plan, around })
    }

    /// Releases the tables of `job`. Its own pins on tables are dropped first, so that a thread
    /// that sees it ended can clean up after it.
    fn unmark(&self, job: Arc<Job>) {
        let (reason, moves_partitions) = (job.plan.reason, job.plan.moves_partitions());
        let bordered = job.plan.bordered();
        let ids: Vec<FileId> = job.plan.tables.iter().map(|(_, run)| run.meta.id).collect();
        // A job that failed before it went on with it leaves it to the next.
        let cut = job.plan.resume.clone();
        let cut = cut.filter(|cut| cut.lock().is_some());
        drop(job);
        let mut jobs = self.jobs.state.lock();
        jobs.flushing &= reason != Reason::Flush && !moves_partitions;
        jobs.compacting -= usize::from(reason != Reason::Flush);
        jobs.evicting &= reason != Reason::Evict;
        self.jobs.cut.lock().extend(cut);
        for id in ids {
            jobs.busy.give_back(id);
        }
        if let Some(id) = bordered {
            jobs.busy.give_back_part(id);
        }
    }

    /// Runs a job and installs its output.
    fn perform(&self, job: Arc<Job>) {
        let result = self.run_and_install(&job);
        self.unmark(job);
        let (installed, error) =
            result.map_or_else(|error| (Vec::new(), Some(error)), |runs| (runs, None));
        self.note(error);
        self.update_stall();
        self.executor.wake();
        self.progressed();
        self.open_ahead(&installed);
    }

    fn run_and_install(&self, job: &Arc<Job>) -> Result<Vec<Arc<TableRun>>> {
        let start_ns = self.clock.now_ns();
        let _running = self.tables.begin_job();
        if let Some(border) = &job.plan.border {
            self.install_border(&job.plan, border)?;
            return Ok(Vec::new());
        }
        if let Some(indexed) = &job.plan.indexed {
            self.index(&job.plan, indexed)?;
            return Ok(Vec::new());
        }
        match self.run(job)? {
            Some((plan, output)) => self.install(&plan, output, start_ns),
            None => Ok(Vec::new()),
        }
    }

    /// Runs a job. Returns its output, and its plan without the tables that no entry falls into;
    /// `None` if there is nothing to install yet.
    fn run(&self, job: &Arc<Job>) -> Result<Option<(Plan, CompactionOutput)>> {
        let plan = &job.plan;
        if let Some(chunk) = &plan.chunk {
            return self.evict(chunk, plan, &job.around);
        }
        if let Some(below) = plan.by_range.as_ref().and_then(|by| by.below.as_ref()) {
            self.open_ahead(below.tables());
        }
        let snapshots = self.readers.snapshots.list(&self.commit.visible);
        let output = match (plan.how, plan.buffers.first()) {
            (How::Insert, Some(buffer)) => match self.flush_to_trees(buffer)? {
                true => CompactionOutput::default(),
                false => return Ok(None),
            },
            (How::Append, _) => self.run_sub_tasks(job, snapshots)?,
            (How::Copy, None) if !self.compaction.makes_pm_tables(plan) => {
                self.run_sub_tasks(job, snapshots)?
            }
            (how, buffer) => {
                if buffer.is_some() {
                    // With this, a whole table proves that the manifest knew its log
                    // (`lifecycle/open/unnamed.rs`).
                    self.sync_log_ends()?;
                }
                let _loan = match how {
                    How::Move => None,
                    _ => self.borrow_for(plan, 0)?,
                };
                let work = compaction::run(plan, &job.around, &snapshots, &self.compaction);
                match plan.reason {
                    Reason::Flush => block_on(work)?,
                    _ => self.run_limited(work)?,
                }
            }
        };
        Ok(Some((plan.clone(), output)))
    }

    /// Runs `work`, which the rate limiter slows down.
    pub(super) fn run_limited(
        &self,
        work: impl Future<Output = Result<CompactionOutput>>,
    ) -> Result<CompactionOutput> {
        let mut slept_ns = 0;
        let output = block_on_with(work, || slept_ns += self.yield_point())?;
        Ok(CompactionOutput { slept_ns, ..output })
    }

    /// The yield point of a compaction, called every few entries. Returns the nanoseconds that the
    /// rate limiter made it sleep.
    pub(crate) fn yield_point(&self) -> u64 {
        give_way();
        self.tick();
        self.flush_if_due();
        self.jobs.rate_limiter.wait(|| {
            self.flush_if_due();
            !self.compaction.stop.load(Ordering::Relaxed)
        })
    }

    fn flush_if_due(&self) {
        self.drain_log();
        let due = match self.buffers() {
            None => self.state.load().flushable(self.commit.visible()).is_some(),
            Some(store) => self.jobs.is_flushing_all() || store.facts().has_less_than(FLUSH_BELOW),
        };
        if let Some(job) = due.then(|| self.start(false)).flatten() {
            self.perform(job);
            // The surrounding compaction may go on for long.
            self.remove_obsolete(false);
        }
    }

    /// Records the error of a job, or clears that of an earlier one.
    fn note(&self, error: Option<Error>) {
        if self.compaction.stop.load(Ordering::Acquire) {
            return;
        }
        let lasts =
            |error: &Error| matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Poisoned);
        let mut jobs = self.jobs.state.lock();
        let had = self.background_error();
        if had.as_ref().is_some_and(lasts) {
            // Another job that succeeded, or failed in another way, does not fix it.
            return;
        }
        self.jobs.error.store(error.clone().map(Arc::new));
        let event = match error {
            Some(error) => {
                jobs.retry_at_ns = if lasts(&error) {
                    u64::MAX
                } else {
                    self.clock.now_ns() + RETRY_NS
                };
                Event::BackgroundError { error }
            }
            None if had.is_some() => Event::Resumed,
            None => return,
        };
        drop(jobs);
        if matches!(&event, Event::BackgroundError { error } if error.kind() == ErrorKind::NoSpace)
        {
            self.remove_obsolete(true);
        }
        self.emit(&event);
    }

    /// The error that keeps background work from continuing.
    pub(crate) fn background_error(&self) -> Option<Error> {
        self.jobs.error.load().as_deref().cloned()
    }

    /// Reports a table with too many reads without a result.
    pub(crate) fn due_for_seeks(&self, level: Level, id: FileId) {
        let mut seek = self.jobs.seek.lock();
        if mechanisms::BLOCK_SEEKS.is_on() && seek.is_none() && level.0 + 1 < self.options.levels()
        {
            *seek = Some((level, id));
            drop(seek);
            self.executor.wake();
        }
    }

    /// Forgets a reported table that another job has replaced, so that others are heard.
    fn discard_seek(&self, state: &ReadState) {
        let is_gone = |&mut (level, id): &mut (Level, FileId)| {
            let mut tables = state.tables();
            !tables.any(|(of, run)| of == level && run.meta.id == id)
        };
        let _gone = self.jobs.seek.lock().take_if(is_gone);
    }

    /// The amount of outstanding compaction and flush work.
    pub(crate) fn debt(&self) -> Debt {
        picker::debt(
            &self.state.load(),
            &self.options.limits,
            &self.options.tuning,
            self.options.ranges(),
            self.budget.write_buffer_bytes as u64,
            self.pm_facts().as_ref(),
        )
    }

    /// Sets the rates of writers and of compactions according to the debt.
    pub(crate) fn update_stall(&self) {
        if let Some(store) = &self.compaction.pm {
            let buffer_bytes = self.budget.write_buffer_bytes as u64;
            let state = self.state.load();
            let buffers = state.memtables.iter();
            let buffers_bytes: u64 = buffers.map(|buffer| buffer.capacity_bytes() as u64).sum();
            let fullness = store.fullness(buffers_bytes, buffer_bytes);
            if self.write_stall.set_fullness(fullness) < fullness {
                // Work that makes room may have become due by this.
                self.jobs.state.lock().all_done = false;
                self.executor.wake();
            }
        }
        let debt = self.debt();
        self.jobs.rate_limiter.update(&debt);
        if let Some(change) = self.write_stall.update(&debt, &self.options.limits) {
            self.emit(&Event::Stall { reason: change });
        }
    }

    /// Runs once a second: revokes the pins of cursors that are idle on an old state, lends memory
    /// that writes left idle to the block cache, and prunes the versions that snapshots kept.
    fn tick(&self) {
        let tick = self.clock.now_ns() / TICK_NS;
        let last = &self.readers.idle_ticks;
        if last.load(Ordering::Relaxed) == tick || last.swap(tick, Ordering::Relaxed) == tick {
            return;
        }
        self.tables.set_second(tick);
        self.flush_if_full();
        self.lend_idle_memory(tick);
        self.prune_retained();
        // Cursors that ended have released tables that were already closed.
        self.tables.leave_the_rest();
        self.revoke_cursors(tick.saturating_sub(1));
    }

    /// Freezes the active memtable if persistent memory is full and it has deletes, because their
    /// compaction makes room. The flush of anything else would only take some.
    fn flush_if_full(&self) {
        let may_flush = self.write_stall.is_full() && self.next_log_may_begin();
        if may_flush && self.may_add_buffer(0) && self.write_stall.has_deletes() {
            let mut queue = self.commit.lock();
            if self.active().used_bytes() > Memtable::EMPTY_BYTES {
                self.switch_buffer(&mut queue, 0);
            }
        }
    }

    /// Freezes the active memtable if it holds anything, and waits until all frozen ones are
    /// flushed.
    pub(crate) fn flush(&self) -> Result<()> {
        let _entered = self.calls.enter()?;
        self.check_writable()?;
        if self.has_part_buffers() {
            return self.flush_parts();
        }
        self.wait_for(|| {
            let may_begin = self.next_log_may_begin();
            let mut queue = self.commit.lock();
            let is_empty = self.active().used_bytes() <= Memtable::EMPTY_BYTES;
            let may_switch = may_begin && self.may_add_buffer(0);
            if !is_empty && may_switch {
                self.switch_buffer(&mut queue, 0);
            }
            (is_empty || may_switch).then_some(())
        })?;
        let newest = self.active().log_id;
        let waits = |state: &ReadState| {
            state
                .memtables
                .iter()
                .any(|memtable| memtable.log_id < newest)
        };
        self.wait_for(|| (!waits(&self.state.load())).then_some(()))
    }

    /// As [`Engine::flush`], where each partition has its own memtables.
    fn flush_parts(&self) -> Result<()> {
        let last = self.freeze_all_parts();
        let _all = self.jobs.flush_all();
        self.executor.wake();
        let waits = |memtable: &Arc<Memtable>| {
            let frozen = memtable.frozen_at();
            !memtable.is_placeholder() && frozen.is_some_and(|frozen| frozen <= last)
        };
        self.wait_for(|| {
            let state = self.state.load();
            (!state.memtables.iter().any(waits)).then_some(())
        })
    }

    /// Waits until `look` returns a value, while background work goes on.
    ///
    /// # Errors
    /// The error that stops background work, because waiting longer would hang. `NoSpace` is
    /// returned only after one more try, because the disk may have room by now.
    pub(crate) fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> Result<T> {
        const WAIT: Duration = Duration::from_millis(20);
        let mut asked_ns = None;
        loop {
            let seen = self.progress();
            if let Some(found) = look() {
                return Ok(found);
            }
            self.calls.check()?;
            self.ask_for_merges();
            match self.background_error() {
                Some(error)
                    if error.kind() != ErrorKind::NoSpace
                        || !self.is_trying_again(&mut asked_ns) =>
                {
                    return Err(error);
                }
                _ => self.wait_for_background(seen, WAIT),
            }
        }
    }

    /// Starts compactions that are waiting because the database was just opened.
    pub(crate) fn ask_for_merges(&self) {
        if self.jobs.rate_limiter.wake() {
            self.executor.wake();
        }
    }

    /// Schedules an immediate retry of the failed job on the first call with the same `asked_ns`.
    /// Returns true until that retry ends, for `RETRY_NS` at most.
    fn is_trying_again(&self, asked_ns: &mut Option<u64>) -> bool {
        let now_ns = self.clock.now_ns();
        let mut jobs = self.jobs.state.lock();
        match *asked_ns {
            None => {
                *asked_ns = Some(now_ns);
                jobs.retry_at_ns = 0;
                true
            }
            Some(asked_ns) => jobs.retry_at_ns == 0 && now_ns < asked_ns + RETRY_NS,
        }
    }

    /// Waits until no job is running and none is due.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let _entered = self.calls.enter()?;
        if self.read_only {
            return Ok(());
        }
        let _hurry = self.jobs.rate_limiter.hurry(self.commit.visible());
        // Work that could wait is due now.
        self.executor.wake();
        self.wait_for(|| self.is_idle().then_some(()))?;
        self.remove_obsolete(true);
        Ok(())
    }

    /// Waits until level 0 has fewer tables than those at which writers wait. An open may add one,
    /// and a process that exits soon compacts none, so many short-lived ones would grow level 0
    /// without bound. An open whose buffers are in persistent memory adds none, and does not wait.
    pub(crate) fn lower_level0(&self) {
        let is_low = || self.debt().stall_of(StallReason::Level0) < 1.0;
        if self.has_part_buffers() || is_low() {
            return;
        }
        self.ask_for_merges();
        // An error here does not fail the open: it stays the background error, which writes report.
        let _reported = self.wait_for(|| (is_low() || self.is_idle()).then_some(()));
        self.remove_obsolete(true);
    }

    /// True if no job is running and none is due, and no user's compaction is running.
    pub(crate) fn is_idle(&self) -> bool {
        let mut jobs = self.jobs.state.lock();
        if jobs.flushing || jobs.compacting > 0 || jobs.manual {
            return false;
        }
        let state = self.state.load();
        self.want_borders(&mut jobs, &state);
        self.discard_cut(&state, &jobs);
        self.pick(&state, &jobs, true).is_none()
    }

    /// (flushes running, compactions running)
    pub(crate) fn running(&self) -> (usize, usize) {
        let jobs = self.jobs.state.lock();
        (usize::from(jobs.flushing), jobs.compacting)
    }
}
