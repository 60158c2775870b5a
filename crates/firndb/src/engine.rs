//! The state that all handles of one open database share, one field a component.
//!
//! Other modules add methods to [`Engine`]: `write` the write path, `read` the read path,
//! `compaction` background work, and `lifecycle` opening, copying, checking and closing a database.

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
use crate::read::Hits;
use crate::read::looks::Looks;
use crate::read::pins::SharedPins;
use crate::read::scans::Scans;
use crate::read::state::ReadState;
use crate::read::table_run::TableCache;
use crate::read_points::Snapshots;
use crate::write::commit::Commit;
use crate::write::write_stall::WriteStall;
use firn_base::FileId;
use firn_base::Result;
use firn_base::clock::Clock;
use firn_base::count::{Counter, IoCounters};
use firn_base::exec::{Executor, relax};
use firn_base::sync::{ArcSwap, AtomicBool, AtomicU64, Guard, Mutex};
use firn_fs::{Fs, OsFs};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The state that the handles share.
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
    /// Calls that access media and may take long. Closing waits for those inside.
    pub(crate) calls: Gate,
    /// Held while the database is being closed; true once it is closed.
    pub(crate) closing: Mutex<bool>,
    pub(crate) recovery: OpenReport,
    pub(crate) pm: Option<Arc<firn_pm::Pool>>,
}

/// The steps of the open.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenReport {
    pub(crate) steps: Vec<(&'static str, Duration)>,
    pub(crate) replayed_entries: u64,
}

/// The state of the logs other than the one being written.
pub(crate) struct Logs {
    /// The end of the previous log, if a full disk kept it from being recorded.
    pub(crate) unrecorded_end: Mutex<Option<Edit>>,
    /// True if the recorded ends are durable.
    pub(crate) ends_synced: AtomicBool,
    pub(crate) sealed: Arc<SealedLogs>,
    /// The name of the log in statistics.
    pub(crate) name: String,
    pub(crate) pm_buffer: Option<PmLogBuffer>,
    /// The logs whose values level 0 points to, in profile `lab`.
    pub(crate) values: Option<Arc<ValueLogs>>,
}

impl Logs {
    /// True if background work must write a part of the log to its file.
    pub(crate) fn has_work(&self) -> bool {
        self.pm_buffer.as_ref().is_some_and(PmLogBuffer::has_full)
    }
}

/// The read points that compactions must respect, and the cursors, whose pins can be revoked.
#[derive(Default)]
pub(crate) struct Readers {
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) iters: Mutex<Vec<Weak<SharedPins>>>,
    pub(crate) idle_ticks: AtomicU64,
    /// The number of times cursors were told to release older states.
    pub(crate) revocations: AtomicU64,
    /// The scans of ranges with stacks of tables.
    pub(crate) scans: Scans,
    /// How cursors are used.
    pub(crate) looks: Looks,
}

/// Counters of the whole engine.
pub(crate) struct Counts {
    pub(crate) io: Arc<IoCounters>,
    pub(crate) user: UserCounters,
    pub(crate) jobs: JobCounters,
}

/// Counters of the users' operations.
#[derive(Debug, Default)]
pub(crate) struct UserCounters {
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) gets: Counter,
    /// Values found, by the layer that had them.
    pub(crate) hits: Hits,
}

impl Engine {
    /// The file system in which the directories of copies are created. The database's own is
    /// `files`.
    pub(crate) fn fs(&self) -> Arc<dyn Fs> {
        // Always set by the open.
        self.options
            .environment
            .fs
            .clone()
            .unwrap_or_else(|| Arc::new(OsFs::new()))
    }

    pub(crate) fn next_file_id(&self) -> FileId {
        self.compaction.file_ids.take()
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

    /// A counter that grows when background work makes progress, or when anything else may end a
    /// wait for it.
    pub(crate) fn progress(&self) -> u64 {
        *self.jobs.progress.0.lock()
    }

    /// Waits until the progress counter moves on from `seen`, at most for `timeout`. If background
    /// work runs on the calling thread, runs some instead. REQUIRES: `seen` was read before the
    /// awaited condition was checked, so that no progress is missed.
    pub(crate) fn wait_for_background(&self, seen: u64, timeout: Duration) {
        self.executor.wake();
        if self.executor.help() {
            return;
        }
        if self.clock.is_manual() {
            self.clock.advance(timeout);
            // Another thread that called `help` may be doing the work.
            relax(u32::MAX);
            return;
        }
        let mut progress = self.jobs.progress.0.lock();
        if *progress == seen {
            let _timed_out = self.jobs.progress.1.wait_for(&mut progress, timeout);
        }
    }

    /// Counts progress and wakes the threads that wait for background work.
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
        // Checked after the load, because closing shuts the gate, then replaces the state and waits
        // for the states that were loaded.
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
