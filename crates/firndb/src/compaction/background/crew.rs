//! Several sub-tasks of a compaction at a time on one worker (PM-Blade, V): while one waits for a
//! read or a write, another merges.
//!
//! With a flush coroutine the sub-tasks hand over full write buffers, and that one submits them
//! all, as many as are admitted (`admission.rs`). A merge then never waits for its own write, and
//! reads of users come before it.
//!
//! Tables are opened before their sub-task begins, while the others wait. Inside a sub-task only
//! three things block: the creation of a file, the opening of a table that was closed since for
//! want of memory, and the read of a value larger than a readahead.

use super::sub_tasks::SubTasks;
use crate::compaction::admission::{Admitted, PATIENCE_NS};
use crate::compaction::open_inputs;
use crate::engine::Engine;
use crate::options::Concurrency;
use firn_base::exec::{Crew, Task, run_crew};
use firn_fs::{Fs, Submitted, WriteQueue};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The sub-tasks of one compaction that this worker runs.
struct SubTaskCrew<'a> {
    engine: &'a Engine,
    shared: &'a SubTasks,
    /// The writes of the flush coroutine, if there is one.
    writes: Option<Arc<WriteQueue>>,
    fs: Arc<dyn Fs>,
    slept_ns: u64,
    count: u64,
}

impl<'a> Crew<'a> for SubTaskCrew<'a> {
    fn next(&mut self) -> Option<Task<'a>> {
        let (engine, shared) = (self.engine, self.shared);
        let (place, job) = shared.begin()?;
        self.count += 1;
        let writes = self.writes.clone();
        // An index of a megabyte is read at once, and all tasks wait for it. While it is open, no
        // task has to.
        let opened = open_inputs(&shared.tasks[place], &job.plan);
        Some(Box::pin(async move {
            let result = match opened {
                Ok(()) => engine.sub_task(shared, place, &job, writes.as_ref()).await,
                Err(error) => Err(error),
            };
            drop(job);
            engine.end_sub_task(shared, place, result);
        }))
    }

    fn service(&mut self) -> Option<Task<'a>> {
        let mut flusher = Flusher {
            engine: self.engine,
            queue: self.writes.clone()?,
            in_flight: Vec::new(),
            refused_since_ns: None,
        };
        Some(Box::pin(poll_fn(move |context| flusher.poll(context))))
    }

    fn between(&mut self) {
        self.slept_ns += self.engine.yield_point();
    }

    fn wait(&mut self, at_most: Duration) {
        self.fs.complete(at_most);
        if self.engine.clock.is_manual() {
            self.engine.clock.advance(at_most);
        }
    }
}

/// The flush coroutine: submits what is queued, as much as is admitted.
struct Flusher<'a> {
    engine: &'a Engine,
    queue: Arc<WriteQueue>,
    in_flight: Vec<(Submitted, Admitted<'a>)>,
    /// The time since which a write has waited for admission while none is in flight.
    refused_since_ns: Option<u64>,
}

impl Flusher<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.in_flight
            .retain(|(submitted, _)| !submitted.poll(context.waker()));
        let engine = self.engine;
        let (admission, counters) = (&engine.compaction.admission, &engine.compaction.counters);
        while !self.queue.is_empty() {
            let Some(admitted) = admission.admit(self.floor(), counters) else {
                let now_ns = self.engine.clock.now_ns();
                self.refused_since_ns.get_or_insert(now_ns);
                break;
            };
            self.refused_since_ns = None;
            let track = || counters.begin_compaction_io();
            match self.queue.submit(track) {
                Some(submitted) if !submitted.poll(context.waker()) => {
                    self.in_flight.push((submitted, admitted));
                }
                _ => {}
            }
        }
        Poll::Pending
    }

    /// The writes that are admitted whatever reads are in flight.
    fn floor(&self) -> usize {
        let now_ns = self.engine.clock.now_ns();
        let is_patient = |since_ns: u64| now_ns < since_ns + PATIENCE_NS;
        let least = usize::from(!self.refused_since_ns.is_none_or(is_patient));
        self.engine.jobs.rate_limiter.haste().max(least)
    }
}

impl Engine {
    /// Runs sub-tasks, several at a time, until none is left to begin. Returns the nanoseconds that
    /// they slept, and their number.
    pub(super) fn run_at_once(&self, shared: &SubTasks) -> (u64, u64) {
        // The plan must not pin its tables while the sub-tasks run.
        let Some(borrowed) = shared.plan().map(|plan| self.borrow_for(&plan, 0)) else {
            return (0, 0);
        };
        let loan = match borrowed {
            Ok(loan) => loan,
            Err(error) => {
                if let Some((place, _)) = shared.begin() {
                    self.end_sub_task(shared, place, Err(error));
                }
                return (0, 0);
            }
        };
        let width = match loan {
            Some(_) => 1,
            None => self.crew_width(shared.tasks.len()),
        };
        let is_queued = self.options.concurrency() == Concurrency::FlushCoroutine;
        let mut crew = SubTaskCrew {
            engine: self,
            shared,
            writes: is_queued.then(Arc::default),
            fs: self.fs(),
            slept_ns: 0,
            count: 0,
        };
        run_crew(width, &mut crew);
        (crew.slept_ns, crew.count)
    }

    /// The number of sub-tasks, of `tasks`, that a worker runs at a time. It leaves some to other
    /// workers.
    fn crew_width(&self, tasks: usize) -> usize {
        let fair = tasks.div_ceil(self.options.workers());
        self.options.coroutines().min(fair.max(2))
    }
}
