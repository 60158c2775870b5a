//! The end of a recovery: records what was recovered, and assembles the engine.

use super::Recovery;
use super::directory;
use crate::compaction::JobCounters;
use crate::compaction::background::Jobs;
use crate::compaction::pm_store::PmStore;
use crate::compaction::rate_limiter::RateLimiter;
use crate::engine::{Counts, Engine, Logs, Readers, emit};
use crate::event::Event;
use crate::files::FileName;
use crate::gate::Gate;
use crate::lifecycle::owner;
use crate::lifecycle::stored;
use crate::log::{HotWriter, LogWriter, PmLogBuffer, SealedLogs};
use crate::manifest::{Edit, Level, ManifestWriter, PmPairing, PoolEdit};
use crate::mechanisms;
use crate::memtable::Memtable;
use crate::options::Profile;
use crate::read::memtables::Memtables;
use crate::read::pm_space::NewTable;
use crate::read::row_cache::RowCache;
use crate::read::state::ReadState;
use crate::sites;
use crate::upper::Upper;
use crate::write::commit::Commit;
use crate::write::journal::{BufferJournal, Journal};
use crate::write::write_stall::WriteStall;
use firn_base::exec::{Executor, Threads};
use firn_base::sync::{ArcSwap, AtomicBool, AtomicU64, Mutex};
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_pm::Fenced;
use std::sync::{Arc, Weak};

impl Recovery {
    /// Records what was recovered, and assembles the engine.
    pub(super) fn finish(mut self) -> Result<Arc<Engine>> {
        let log_id = self.next_file_id();
        let replayed = self.buffer.take().and_then(Arc::into_inner);
        let oldest = self
            .kept
            .first()
            .map(|buffer| buffer.log_id)
            .filter(|_| !self.read_only);
        let kept = oldest.or(replayed.as_ref().map(|buffer| buffer.first_log));
        let floor = kept.unwrap_or(log_id);
        let sealed = Arc::new(SealedLogs::new(floor));
        let mut pm_buffer = None;
        let (journal, log_name, manifest) = if self.read_only {
            let version = self.version.clone();
            let (files, counters) = (self.files.clone(), self.counters.clone());
            let manifest = ManifestWriter::read_only(files, counters, version);
            (None, "none: read-only".to_owned(), manifest)
        } else if let Some(buffers) = self.buffer_journal()? {
            let name = format!("none: write buffers in pm ({})", buffers.backend_name());
            let manifest = self.record(None, log_id)?;
            self.sweep(&manifest);
            self.write_options();
            (Some(Journal::Buffers(buffers)), name, manifest)
        } else {
            let (pm, log_name) = self.pm_log_buffer()?;
            let mut log = LogWriter::create(
                self.files.clone(),
                self.counters.clone(),
                log_id,
                sealed.clone(),
            )?;
            let manifest = self.record(Some(log_id), floor)?;
            if let Some(trees) = self
                .trees
                .as_ref()
                .filter(|trees| !trees.store.is_durable())
            {
                trees.values.rebuild_from(manifest.version().log_floor);
            }
            // Only after the new manifest is durable: before that, the buffer held the only copy of
            // the old log's end. The sweep comes first, because a new log may need the room.
            self.sweep(&manifest);
            let placed = self
                .trees
                .as_ref()
                .and_then(|trees| trees.values.placed().cloned());
            pm.clone()
                .map_or(Ok(()), |buffer| log.go_through(buffer, placed))?;
            if self.trees.is_some() {
                log.note_addresses();
            }
            self.write_options();
            pm_buffer = pm;
            (Some(Journal::Log(Box::new(log))), log_name, manifest)
        };
        self.step("record");
        let memtables = match self.has_part_buffers() {
            true => self.part_memtables(manifest.version()),
            false => self.shared_memtables(replayed, log_id),
        };
        let state = self.read_state(&manifest, memtables)?;
        let logs = Logs {
            unrecorded_end: Mutex::new(None),
            ends_synced: AtomicBool::new(true),
            sealed,
            name: log_name,
            pm_buffer,
            values: self.trees.as_ref().map(|trees| trees.values.clone()),
        };
        let commit = Commit::new(journal, self.last_seqno, self.options.limits.group_bytes);
        let readers = Readers::default();
        commit.with_log(|log| {
            self.begin_hot(log, floor, &readers, &commit.visible);
            Ok(())
        })?;
        Ok(self.assemble(commit, manifest, state, logs, readers))
    }

    /// The journal of the write buffers in the pool, if there are any. DURABLE AFTER: everything
    /// that was recovered is committed.
    fn buffer_journal(&self) -> Result<Option<BufferJournal>> {
        let store = self.compaction.pm.as_ref().and_then(PmStore::buffers);
        let journal = store.map(|store| BufferJournal::begin(store.directory(), self.last_seqno));
        journal.transpose()
    }

    /// The memtables that all keys share: that of the newest log, with what was replayed, and those
    /// of a read-only open.
    fn shared_memtables(&mut self, replayed: Option<Memtable>, log_id: FileId) -> Memtables {
        let capacity = self.budget.write_buffer_bytes;
        let active = replayed.unwrap_or_else(|| Memtable::unclaimed(capacity, log_id));
        let active = Arc::new(active.continued_in(log_id));
        // The entries of kept memtables are not in trees or tables yet.
        let first_kept = self.kept.first().unwrap_or(&active).seqnos();
        let flushed_through = first_kept.map_or(self.last_seqno, |(first, _)| {
            SeqNo(first.0.saturating_sub(1))
        });
        let kept = self.kept.drain(..).rev();
        let memtables: Vec<_> = std::iter::once(active).chain(kept).collect();
        for memtable in &memtables {
            memtable.give_back();
            self.tables.add_buffer(memtable.dram_bytes() as u64);
        }
        Memtables::shared(memtables, flushed_through)
    }

    /// The first state for readers.
    fn read_state(&self, manifest: &ManifestWriter, memtables: Memtables) -> Result<ReadState> {
        let levels = self.options.levels();
        let flushed_through = memtables.lists().map(|list| list.flushed_through).max();
        let flushed_through = flushed_through.unwrap_or_default();
        let mut state = ReadState::new(memtables, manifest.version(), &self.tables, levels);
        self.tables.placed_are_swapped_in();
        if let Some(trees) = &self.trees {
            state = state.with_upper(Upper::Trees(trees.clone()));
        }
        if self
            .compaction
            .pm
            .as_ref()
            .is_some_and(PmStore::weighs_reads)
        {
            state = state.with_heat();
        }
        let keeps_found = self.options.profile != Profile::Lab || mechanisms::LAB_CACHED.is_on();
        let cache = self.tables.context().cache.clone();
        state.rows = self
            .options
            .row_cache
            .then(|| Arc::new(RowCache::new(cache, flushed_through, keeps_found)));
        if self.read_only {
            // Opens as many tables as permitted, so that a concurrent writer cannot remove them.
            for (_, run) in state.tables().take(super::tables_max(&self.options)) {
                match run.table().map(drop) {
                    // Damage is reported to the readers of the table.
                    Err(error) if error.kind() == ErrorKind::Corruption => {}
                    opened => opened?,
                }
            }
        }
        Ok(state)
    }

    /// Releases the slots of the hot buffer that no log from `floor` on needs, and makes `log`
    /// write values there.
    fn begin_hot(
        &self,
        log: &mut LogWriter,
        floor: FileId,
        readers: &Readers,
        visible: &Arc<AtomicU64>,
    ) {
        let Some(hot) = self.trees.as_ref().and_then(|trees| trees.values.hot()) else {
            return;
        };
        hot.release_below(floor);
        if log.durable_at_write() && mechanisms::LAB_ADDRESSES.is_on() {
            log.go_through_hot(HotWriter::new(
                hot.clone(),
                self.options.tuning.lab.hot_writes,
                readers.snapshots.clone(),
                visible.clone(),
            ));
        }
    }

    /// The log's buffer in the pool, and the name of the log in statistics.
    fn pm_log_buffer(&self) -> Result<(Option<PmLogBuffer>, String)> {
        let half_bytes = self.log_half_bytes();
        let Some(pool) = self.pm.as_ref().filter(|_| half_bytes > 0) else {
            return Ok((None, "file".to_owned()));
        };
        let buffer = PmLogBuffer::open(pool, self.files.uuid, half_bytes)?;
        let name = pool.backend_name();
        let log_name = match buffer {
            Some(_) => format!("pm buffer ({name})"),
            None => format!(
                "file (pm backend {name} is not durable at the fence, so the log is not buffered there)"
            ),
        };
        Ok((buffer, log_name))
    }

    /// Writes the new manifest: the state of the old one, the recovered tables, and the new log, if
    /// there is one. Logs from `floor` on stay needed.
    fn record(&mut self, log: Option<FileId>, floor: FileId) -> Result<ManifestWriter> {
        let is_rebuilt = self.is_rebuilt();
        let pairing = match &self.pm {
            Some(pool) => {
                let edit_id = self.version.edit_id;
                let root = pool.commit_with(Fenced::nothing(), |root| {
                    root.applied_edit = edit_id;
                    Ok(())
                })?;
                PmPairing {
                    generation: root.generation,
                }
            }
            None => PmPairing::default(),
        };
        let manifest_id = self.next_file_id();
        let edit = Edit {
            id: self.version.edit_id + 1,
            next_file_id: Some(self.compaction.file_ids.next()),
            last_seqno: Some(self.last_seqno),
            // Rebuilt trees need the logs from their floor on.
            log_floor: (!is_rebuilt)
                .then_some(floor)
                .or(self.spilled.map(|(_, log)| log)),
            evicted_through: self.spilled.map(|(through, _)| through),
            logs_added: log.into_iter().collect(),
            logs_sealed: std::mem::take(&mut self.replaying.settled),
            add: std::mem::take(&mut self.recovered.tables)
                .into_iter()
                .map(|table| (Level::ZERO, table))
                .collect(),
            pool: self.pool_edit(pairing),
            ..Edit::default()
        };
        let mut version = self.version.clone();
        version.apply(&edit).map_err(|broken| {
            Error::corruption(
                self.files.path().display(),
                0,
                format_args!("recovery broke the invariant {broken}"),
            )
        })?;
        let bytes_max = self.options.limits.manifest_bytes;
        let manifest = ManifestWriter::create(
            self.files.clone(),
            self.counters.clone(),
            manifest_id,
            version,
            bytes_max,
        )?;
        NewTable::install_all(std::mem::take(&mut self.recovered.placed), &self.tables);
        Ok(manifest)
    }

    /// The part of the new manifest that is about the pool.
    fn pool_edit(&self, pairing: PmPairing) -> PoolEdit {
        let has_buffers = self.has_part_buffers();
        let mut flushed = Vec::new();
        if has_buffers && self.recovered.buffers.is_empty() {
            // Everything is in tables, also what came from logs.
            let ids = self.version.layout.ids().iter();
            flushed.extend(ids.map(|&id| (id, self.last_seqno)));
        }
        PoolEdit {
            pairing: Some(pairing),
            flushed,
            holds_entries: Some(has_buffers),
            ..PoolEdit::default()
        }
    }

    /// Removes files that the manifest does not name. A failure does not fail the open.
    fn sweep(&self, manifest: &ManifestWriter) {
        let version = manifest.version();
        let uses = self.trees.as_ref().map(|trees| {
            // The sweep below removes these logs, with everything else that nothing names.
            let _unused = trees.values.take_unused(version.log_floor);
            trees.values.uses()
        });
        let pointed_to = |id| {
            uses.iter()
                .flatten()
                .any(|used| used.log_id == id && used.entries > 0)
        };
        let is_needed = |name: FileName| match name {
            FileName::Table(id) => version.tables().any(|table| table.id == id),
            FileName::Log(id) => version.logs.contains_key(&id) || pointed_to(id),
            FileName::Manifest(id) => id == manifest.id(),
            _ => false,
        };
        if let Err(error) = directory::sweep(&self.files, &version.origins, is_needed) {
            return tracing::warn!(%error, "cannot look for files to remove");
        }
        let placed = self.trees.as_ref().and_then(|trees| trees.values.placed());
        for (placed, id) in placed
            .iter()
            .flat_map(|placed| placed.ids().into_iter().map(move |id| (placed, id)))
        {
            if version.logs.contains_key(&id) || pointed_to(id) {
                continue;
            }
            if let Err(error) = placed.remove(id) {
                tracing::warn!(%error, "a log in persistent memory that nothing names stays");
            }
        }
    }

    /// Writes the options to a file, for people and for the `firn` command. The engine does not
    /// read them back.
    fn write_options(&self) {
        if let Err(error) = self.replace_options() {
            tracing::warn!(%error, "OPTIONS could not be written");
        }
    }

    fn replace_options(&self) -> Result<()> {
        const SIGN: &str = "# FirnDB ";
        match owner::head(self.files.dir(), FileName::Options, SIGN.len()) {
            // A power cut may leave zeros.
            Ok(head) if head.iter().any(|&byte| byte != 0) && head != SIGN.as_bytes() => {
                return Err(Error::invalid(
                    "there is an OPTIONS that FirnDB did not write; it stays",
                ));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let text = stored::options_text(&self.options, self.files.path());
        debug_assert!(text.starts_with(SIGN));
        let file = self.files.create(FileName::OptionsNew)?;
        file.write(0, &[text.as_bytes()])?;
        file.sync(&sites::OPTIONS_RENAME)?;
        self.files.rename(
            &sites::OPTIONS_RENAME,
            FileName::OptionsNew,
            FileName::Options,
        )
    }

    fn assemble(
        self,
        commit: Commit,
        manifest: ManifestWriter,
        state: ReadState,
        logs: Logs,
        readers: Readers,
    ) -> Arc<Engine> {
        let workers = self.options.workers();
        let executor: Arc<dyn Executor> = self
            .options
            .environment
            .executor
            .clone()
            .unwrap_or_else(|| Arc::new(Threads::new(workers)));
        let event = Event::Recovered {
            steps: self.report.steps.clone(),
            replayed_entries: self.report.replayed_entries,
        };
        emit(self.options.listener.as_ref(), &event);
        tracing::info!(
            fresh = self.creation.is_fresh,
            replayed = self.report.replayed_entries,
            log = logs.name,
            "opened"
        );
        let jobs = Jobs::new(RateLimiter::new(
            self.clock.clone(),
            self.compaction.counters.clone(),
        ));
        let cut = self.recovered.cut.jobs.into_iter();
        *jobs.cut.lock() = cut.map(|cut| Arc::new(Mutex::new(Some(cut)))).collect();
        let engine = Arc::new(Engine {
            counts: Counts {
                io: self.counters,
                user: Default::default(),
                jobs: JobCounters::new(self.options.levels()),
            },
            write_stall: WriteStall::new(self.clock.clone()),
            options: self.options,
            budget: self.budget,
            files: self.files,
            clock: self.clock,
            executor: executor.clone(),
            tables: self.tables,
            state: ArcSwap::from_pointee(state),
            commit,
            manifest: Mutex::new(manifest),
            logs,
            readers,
            jobs,
            compaction: self.compaction,
            read_only: self.read_only,
            calls: Gate::default(),
            closing: Mutex::new(false),
            recovery: self.report,
            pm: self.pm,
        });
        if !engine.read_only {
            let work: Weak<Engine> = Arc::downgrade(&engine);
            executor.attach(work);
            engine.lower_level0();
        }
        engine.update_stall();
        engine
    }
}
