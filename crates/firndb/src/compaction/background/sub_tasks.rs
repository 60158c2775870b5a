//! The sub-tasks of one compaction, which any idle worker may run (BlockDB, IV-B), one after the
//! other or several at a time (`crew.rs`).
//!
//! 1. Each runs once. Its output is stored at its own index, so the order in which they end has no
//!    effect.
//! 2. After a failure none begins any more, and the output of the others is undone.
//! 3. The worker that started the compaction installs it, once all sub-tasks have ended and their
//!    workers have released it.

use super::Job;
use crate::compaction::plan::Plan;
use crate::compaction::{self, CompactionOutput, Piece, Run, SubTask};
use crate::engine::Engine;
use crate::mechanisms;
use crate::options::Concurrency;
use crate::sites;
use firn_base::exec::block_on_with;
use firn_base::sync::{Mutex, Ordering};
use firn_base::{Error, Limits, Result, SeqNo};
use firn_fs::{WriteQueue, thread_cpu_ns};
use std::sync::Arc;
use std::time::Duration;

/// The state that the workers of one compaction share.
pub(super) struct SubTasks {
    pub(super) tasks: Vec<SubTask>,
    snapshots: Vec<SeqNo>,
    progress: Mutex<Progress>,
}

struct Progress {
    /// `None` once the output was taken, after which no sub-task begins.
    job: Option<Arc<Job>>,
    next: usize,
    running: usize,
    pieces: Vec<Option<Piece>>,
    error: Option<Error>,
    /// The most that ran at the same time.
    most: usize,
}

impl SubTasks {
    fn new(job: Arc<Job>, snapshots: Vec<SeqNo>, limits: &Limits) -> SubTasks {
        let tasks = compaction::sub_tasks(&job.plan, limits);
        let pieces = tasks.iter().map(|_| None).collect();
        let progress = Mutex::new(Progress {
            job: Some(job),
            next: 0,
            running: 0,
            pieces,
            error: None,
            most: 0,
        });
        SubTasks {
            tasks,
            snapshots,
            progress,
        }
    }

    /// True if a sub-task can be started.
    fn has_next(&self) -> bool {
        let progress = self.progress.lock();
        progress.error.is_none() && progress.job.is_some() && progress.next < self.tasks.len()
    }

    pub(super) fn begin(&self) -> Option<(usize, Arc<Job>)> {
        let mut progress = self.progress.lock();
        if progress.error.is_some() || progress.next == self.tasks.len() {
            return None;
        }
        let job = progress.job.clone()?;
        progress.next += 1;
        progress.running += 1;
        progress.most = progress.most.max(progress.running);
        Some((progress.next - 1, job))
    }

    pub(super) fn end(&self, place: usize, result: Result<Piece>) {
        let mut progress = self.progress.lock();
        progress.running -= 1;
        match result {
            Ok(piece) => progress.pieces[place] = Some(piece),
            Err(error) => {
                progress.error.get_or_insert(error);
            }
        }
    }

    /// The compaction's plan, until the output was taken.
    pub(super) fn plan(&self) -> Option<Plan> {
        let progress = self.progress.lock();
        progress.job.as_ref().map(|job| job.plan.clone())
    }

    fn is_over(&self) -> bool {
        self.progress.lock().running == 0 && !self.has_next()
    }

    /// The output of all, in key order, or the first error and the output to be undone. REQUIRES:
    /// `is_over`.
    fn take(&self) -> Result<Vec<Piece>, (Error, Vec<Piece>)> {
        let mut progress = self.progress.lock();
        progress.job = None;
        let pieces = std::mem::take(&mut progress.pieces)
            .into_iter()
            .flatten()
            .collect();
        match progress.error.take() {
            Some(error) => Err((error, pieces)),
            None => Ok(pieces),
        }
    }
}

impl Engine {
    /// Runs the sub-tasks of `job`, together with other workers. Returns the combined output.
    pub(super) fn run_sub_tasks(
        &self,
        job: &Arc<Job>,
        snapshots: Vec<SeqNo>,
    ) -> Result<CompactionOutput> {
        const WAIT: Duration = Duration::from_millis(20);
        let tasks = SubTasks::new(job.clone(), snapshots, &self.options.limits);
        let shared = Arc::new(tasks);
        let parallel = shared.tasks.len() > 1 && mechanisms::BLOCK_PARALLEL.is_on();
        if parallel {
            self.jobs.shared.lock().push(shared.clone());
            self.executor.wake();
        }
        let (slept_ns, _) = self.run_as_many(&shared);
        if parallel {
            self.jobs
                .shared
                .lock()
                .retain(|other| !Arc::ptr_eq(other, &shared));
        }
        loop {
            let seen = self.progress();
            if shared.is_over() {
                break;
            }
            self.flush_if_due();
            self.wait_for_background(seen, WAIT);
        }
        let most = shared.progress.lock().most as u64;
        let counted = &self.counts.jobs.sub_tasks_most;
        counted.fetch_max(most, Ordering::Relaxed);
        let named = shared.take().and_then(|pieces| {
            let has_files = pieces.iter().any(Piece::has_files);
            if !has_files {
                return Ok(pieces);
            }
            match self.compaction.files.sync_dir(&sites::SST_NAMES_SYNC) {
                Ok(()) => Ok(pieces),
                Err(error) => Err((error, pieces)),
            }
        });
        match named {
            Ok(pieces) => Ok(CompactionOutput {
                slept_ns,
                ..compaction::collect(&job.plan, pieces)
            }),
            Err((error, pieces)) => {
                pieces.iter().for_each(|piece| piece.undo(&self.compaction));
                Err(error)
            }
        }
    }

    /// Runs sub-tasks until none is left to begin. Returns the nanoseconds that they slept, and
    /// their number.
    fn run_as_many(&self, shared: &SubTasks) -> (u64, u64) {
        let (begun_ns, cpu_ns) = (self.clock.now_ns(), thread_cpu_ns());
        let (mut slept_ns, mut count) = (0, 0);
        if self.options.concurrency() == Concurrency::Threads {
            while let Some(slept) = self.run_one(shared) {
                (slept_ns, count) = (slept_ns + slept, count + 1);
            }
        } else {
            (slept_ns, count) = self.run_at_once(shared);
        }
        let elapsed_ns = self.clock.now_ns().saturating_sub(begun_ns + slept_ns);
        self.counts.jobs.worker_ns.add(elapsed_ns);
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        self.counts.jobs.worker_cpu_ns.add(cpu_ns);
        (slept_ns, count)
    }

    /// Runs a sub-task of a compaction that another worker started. Returns false if there is none.
    pub(super) fn help_compaction(&self) -> bool {
        let found = self
            .jobs
            .shared
            .lock()
            .iter()
            .find(|shared| shared.has_next())
            .cloned();
        let Some(shared) = found else { return false };
        self.flush_if_due();
        let (_, count) = self.run_as_many(&shared);
        self.counts.jobs.helped.add(count);
        count > 0
    }

    /// Runs the next sub-task. Returns the nanoseconds that it slept, or `None` if there is none.
    fn run_one(&self, shared: &SubTasks) -> Option<u64> {
        let (place, job) = shared.begin()?;
        let mut slept_ns = 0;
        let work = self.sub_task(shared, place, &job, None);
        let result = self
            .borrow_for(&job.plan, 0)
            .and_then(|_loan| block_on_with(work, || slept_ns += self.yield_point()));
        drop(job);
        self.end_sub_task(shared, place, result);
        Some(slept_ns)
    }

    pub(super) async fn sub_task(
        &self,
        shared: &SubTasks,
        place: usize,
        job: &Job,
        writes: Option<&Arc<WriteQueue>>,
    ) -> Result<Piece> {
        let run = Run {
            snapshots: &shared.snapshots,
            context: &self.compaction,
            writes,
        };
        compaction::run_sub_task(&shared.tasks[place], &job.plan, &job.around, run).await
    }

    pub(super) fn end_sub_task(&self, shared: &SubTasks, place: usize, result: Result<Piece>) {
        self.counts.jobs.sub_tasks.add(1);
        shared.end(place, result);
        self.progressed();
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use firn_base::ErrorKind;

    /// Sub-tasks of a compaction without tables, all of them running.
    fn running(count: usize) -> SubTasks {
        let pieces = (0..count).map(|_| None).collect();
        let progress = Mutex::new(Progress {
            job: None,
            next: count,
            running: count,
            pieces,
            error: None,
            most: 0,
        });
        SubTasks {
            tasks: Vec::new(),
            snapshots: Vec::new(),
            progress,
        }
    }

    fn piece(bytes_in: u64) -> Result<Piece> {
        Ok(Piece {
            bytes_in,
            ..Piece::default()
        })
    }

    #[test]
    fn the_order_of_ends_shows_nowhere() {
        let shared = running(3);
        for place in [2, 0, 1] {
            assert!(!shared.is_over());
            shared.end(place, piece(place as u64));
        }
        assert!(shared.is_over());
        let places: Vec<u64> = shared
            .take()
            .unwrap()
            .iter()
            .map(|piece| piece.bytes_in)
            .collect();
        assert_eq!(places, [0, 1, 2]);
    }

    #[test]
    fn a_failure_gives_back_what_the_others_made() {
        let shared = running(3);
        shared.end(1, piece(7));
        shared.end(0, Err(Error::new(ErrorKind::Io, "first")));
        assert!(!shared.has_next() && !shared.is_over(), "one still runs");
        shared.end(2, Err(Error::new(ErrorKind::Io, "second")));
        let (error, made) = shared.take().unwrap_err();
        assert!(error.to_string().contains("first"));
        assert_eq!(
            made.iter().map(|piece| piece.bytes_in).collect::<Vec<_>>(),
            [7]
        );
    }
}
