//! What all handles of one open database share: the parts of the engine, each in a room of its own, in one place.
//!
//! The rooms add what they do to it: `write` the write path, `read` the read path, `compaction` background work,
//! `lifecycle` what opens, copies, checks and closes a database.

use crate::compaction::CompactionContext;
use crate::compaction::JobCounters;
use crate::compaction::background::Jobs;
use crate::event::{Event, EventListener};
use crate::files::Files;
use crate::gate::Gate;
use crate::log::{PmLogBuffer, SealedLogs, ValueLogs};
use crate::manifest::{Edit, ManifestWriter};
use crate::options::Options;
use crate::options::budget::Budget;
use crate::read::pins::SharedPins;
use crate::read::run::TableCache;
use crate::read::state::ReadState;
use crate::read_points::Snapshots;
use crate::write::commit::Commit;
use crate::write::write_stall::WriteStall;
use firn_base::Result;
use firn_base::clock::Clock;
use firn_base::count::{Counter, IoCounters};
use firn_base::exec::{Executor, relax};
use firn_base::sync::{ArcSwap, AtomicBool, AtomicU64, Guard, Mutex, Ordering};
use firn_fs::{Fs, OsFs};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What the handles share.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) budget: Budget,
    pub(crate) files: Arc<Files>,
    pub(crate) clock: Clock,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) counts: Counts,
    pub(crate) tables: Arc<TableCache>,
    pub(crate) state: ArcSwap<ReadState>,
    pub(crate) commit: Commit,
    pub(crate) manifest: Mutex<ManifestWriter>,
    pub(crate) logs: Logs,
    pub(crate) readers: Readers,
    pub(crate) jobs: Jobs,
    pub(crate) compaction: CompactionContext,
    pub(crate) write_stall: WriteStall,
    pub(crate) read_only: bool,
    /// Calls that touch media and may last; closing waits for those inside.
    pub(crate) calls: Gate,
    /// Held while the database is closed; true once it was.
    pub(crate) closing: Mutex<bool>,
    pub(crate) recovery: OpenReport,
    pub(crate) pm: Option<Arc<firn_pm::Pool>>,
}

/// What the open did, step by step.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenReport {
    pub(crate) steps: Vec<(&'static str, Duration)>,
    pub(crate) replayed_entries: u64,
}

/// What is known of the logs beside the one that is written.
pub(crate) struct Logs {
    /// The end of the log before this one, if a full disk kept it from being recorded.
    pub(crate) unrecorded_end: Mutex<Option<Edit>>,
    /// Whether the ends that were recorded are durable.
    pub(crate) ends_synced: AtomicBool,
    pub(crate) sealed: Arc<SealedLogs>,
    /// What to call the log in stats.
    pub(crate) name: String,
    pub(crate) pm_buffer: Option<PmLogBuffer>,
    /// Logs whose values level 0 points to, in profile `lab`.
    pub(crate) values: Option<Arc<ValueLogs>>,
}

/// Who reads: what merges must respect, and what idle cursors hold.
#[derive(Default)]
pub(crate) struct Readers {
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) iters: Mutex<Vec<Weak<SharedPins>>>,
    pub(crate) idle_ticks: AtomicU64,
    /// How often cursors were told to let go of older states.
    pub(crate) revocations: AtomicU64,
}

/// Counters.
pub(crate) struct Counts {
    pub(crate) io: Arc<IoCounters>,
    pub(crate) user: UserCounters,
    pub(crate) jobs: JobCounters,
}

/// What users asked for.
#[derive(Debug, Default)]
pub(crate) struct UserCounters {
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) gets: Counter,
    pub(crate) found: Counter,
}

impl Engine {
    /// Where directories of copies are made; the database's own is `files`.
    pub(crate) fn fs(&self) -> Arc<dyn Fs> {
        // Set by the open.
        self.options.environment.fs.clone().unwrap_or_else(|| Arc::new(OsFs::new()))
    }

    pub(crate) fn next_file_id(&self) -> u64 {
        self.compaction.next_file_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn emit(&self, event: &Event) {
        emit(self.options.listener.as_ref(), event);
    }

    pub(crate) fn register_iter(&self, pins: &Arc<SharedPins>) {
        let mut iters = self.readers.iters.lock();
        if iters.len() == iters.capacity() {
            iters.retain(|iter| iter.strong_count() > 0);
        }
        iters.push(Arc::downgrade(pins));
    }

    /// Counts what background work has done, and what else may end a wait for it.
    pub(crate) fn progress(&self) -> u64 {
        *self.jobs.progress.0.lock()
    }

    /// Waits until background work moved on from `seen`, at most `timeout`; or makes it move, where it runs on the
    /// caller. REQUIRES: `seen` is older than the look at what is waited for, so that nothing is slept through.
    pub(crate) fn wait_for_background(&self, seen: u64, timeout: Duration) {
        self.executor.wake();
        if self.executor.help() {
            return;
        }
        if self.clock.is_manual() {
            self.clock.advance(timeout);
            // Whoever does the work may be another that asked for help.
            relax(u32::MAX);
            return;
        }
        let mut progress = self.jobs.progress.0.lock();
        if *progress == seen {
            let _timed_out = self.jobs.progress.1.wait_for(&mut progress, timeout);
        }
    }

    /// Wakes those who wait for background work.
    pub(crate) fn progressed(&self) {
        *self.jobs.progress.0.lock() += 1;
        self.jobs.progress.1.notify_all();
    }

    /// The state to read from.
    ///
    /// # Errors
    /// `Invalid` if the database was closed.
    #[inline]
    pub(crate) fn read_state(&self) -> Result<Guard<Arc<ReadState>>> {
        let state = self.state.load();
        // After the load: closing shuts the gate, then puts another state in place and waits for those that were read.
        self.calls.check()?;
        Ok(state)
    }
}

pub(crate) fn emit(listener: Option<&Arc<dyn EventListener>>, event: &Event) {
    tracing::debug!(?event);
    if let Some(listener) = listener {
        listener.on_event(event);
    }
}
