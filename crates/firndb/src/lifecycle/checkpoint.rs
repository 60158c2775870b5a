//! A copy of the database in another directory:
//!
//! 1. take the directory, which is new or empty, and lock it until the copy is complete;
//! 2. fix a read point and a state;
//! 3. link each table of the state (copy it if the file system cannot link);
//! 4. write the entries of the memtables and trees that the read point sees into a table of the
//!    copy;
//! 5. write the copy's manifest, and last its CURRENT.
//!
//! A crash leaves a directory without CURRENT, which is not a database. A failure removes
//! everything that was created. The source loses nothing at any time. Linked tables are marked
//! shared in both manifests, and nothing is ever appended to them.

use crate::compaction::{CompactionContext, Output, OverlapTracker, write_tables};
use crate::engine::Engine;
use crate::files::{FileName, Files};
use crate::lifecycle::owner;
use crate::manifest::{self, Edit, Level, RangeBorders, TableMeta, Version};
use crate::read::merge_iter::MergeIter;
use crate::read::pins::over_memtables;
use crate::read::run_iter::RunIter;
use crate::read::state::ReadState;
use crate::read::table_run::TableRun;
use crate::read_points::Point;
use crate::sites;
use crate::upper::Upper;
use firn_base::count::Cause;
use firn_base::exec::block_on;
use firn_base::seed::Seed;
use firn_base::site::Site;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_fs::{File, Fs, IoBuf, OpenMode, cannot_link};
use firn_table::sst::Access;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// The number of bytes copied at a time when a table cannot be linked.
const COPY_BYTES: usize = 1 << 20;

impl Engine {
    pub(crate) fn checkpoint(&self, dir: &Path) -> Result<()> {
        self.checkpoint_of(dir, || self.share_tables())
    }

    /// Copies a state returned by `shared`, whose tables it has shared ([`Engine::share_tables`]).
    pub(crate) fn checkpoint_of(
        &self,
        dir: &Path,
        shared: impl FnMut() -> Result<Arc<ReadState>>,
    ) -> Result<()> {
        let _entered = self.calls.enter()?;
        let mut uuid = [0; 16];
        self.fresh_uuid(&mut uuid);
        let target = Target::take(&self.fs(), dir, uuid)?;
        let copied = self.copy_into(&target.files, shared);
        // The origins go into `LOCK` only after CURRENT is durable: a power cut during this write
        // may leave garbage in `LOCK`, and before CURRENT no other file identifies the directory.
        let sign = |()| owner::sign_again(target.files.dir(), &uuid, &self.origins_and_own());
        let copied = copied.and_then(sign);
        if copied.is_err() {
            target.undo();
        }
        target.files.close();
        copied
    }

    fn copy_into(
        &self,
        files: &Arc<Files>,
        shared: impl FnMut() -> Result<Arc<ReadState>>,
    ) -> Result<()> {
        let (point, state) = self.fix_point(shared)?;
        let (in_files, in_memory): (Vec<_>, Vec<_>) =
            state.tables().partition(|(_, run)| run.meta.is_file());
        for (_, run) in in_files {
            self.calls.check()?;
            let name = FileName::Table(run.meta.id);
            if self.read_only {
                // A concurrent writer does not know of a second name, and may append to the file.
                copy(
                    &sites::CHECKPOINT_COPY_SYNC,
                    &**run.table()?.sst()?.file(),
                    run.meta.bytes(),
                    &*files.create(name)?,
                )?;
            } else {
                link_or_copy(&sites::CHECKPOINT_COPY_SYNC, &self.files, files, name)?;
            }
        }
        let id = self.next_file_id();
        let context =
            CompactionContext::new(files, &self.counts.io, &self.options, &self.budget, id);
        let mut written = Vec::new();
        for (level, run) in in_memory {
            let tables = self.write_table(run, point.seqno, &context)?;
            written.extend(tables.into_iter().map(|table| (level, table)));
        }
        let buffered = self.write_buffers(&state, point.seqno, &context)?;
        written.extend(buffered.into_iter().map(|table| (Level::ZERO, table)));
        self.mark_shared(&state)?;
        self.write_manifest(&state, point.seqno, written, files)
    }

    /// Writes a table in persistent memory as files of the copy, which are on its level: it and its
    /// neighbours have tables of other media between them.
    fn write_table(
        &self,
        run: &Arc<TableRun>,
        seqno: SeqNo,
        context: &CompactionContext,
    ) -> Result<Vec<TableMeta>> {
        self.calls.check()?;
        let output = Output {
            seqno_max: seqno,
            ..Output::new(Cause::Maintenance, true)
        };
        let access = Access::Streaming {
            bytes: context.stretch_bytes,
            cause: Cause::Maintenance,
        };
        // Tombstones stay, because older entries may be in any table below.
        let below = OverlapTracker::new(Level::ZERO, Vec::new());
        block_on(write_tables(
            MergeIter::at_first(vec![RunIter::over(run, access)?])?,
            &[seqno],
            below,
            output,
            context,
        ))
    }

    /// A read point, and a state that has everything it sees. Tables are linked as a whole, so none
    /// may hold entries above the point. A table with such entries was compacted without regard for
    /// the point, so older versions that the point sees may have been dropped elsewhere.
    fn fix_point(
        &self,
        mut shared: impl FnMut() -> Result<Arc<ReadState>>,
    ) -> Result<(Arc<Point>, Arc<ReadState>)> {
        let mut before = None;
        loop {
            let point = self.readers.snapshots.register(&self.commit.visible);
            let state = shared()?;
            let flushed = state.tables().map(|(_, run)| run.meta.seqno_max).max();
            if flushed.is_none_or(|flushed| flushed <= point.seqno) {
                return Ok((point, state));
            }
            // Flushed entries are visible, so a newer point sees more.
            if before.replace(point.seqno) == Some(point.seqno) {
                return Err(Error::corruption(
                    self.files.path().display(),
                    0,
                    "tables of what was written",
                ));
            }
        }
    }

    /// A state whose tables no longer grow. An append to a linked file would write after the end
    /// that the copy knows, where the copy's own appends go.
    pub(crate) fn share_tables(&self) -> Result<Arc<ReadState>> {
        self.wait_for(|| {
            let state = self.state.load_full();
            let is_shared = state.tables().all(|(_, run)| run.share());
            is_shared.then_some(state)
        })
    }

    /// The databases that tables of this one, and so of its copies, may come from.
    fn origins_and_own(&self) -> Vec<[u8; 16]> {
        let mut origins = self.manifest.lock().version().origins.clone();
        origins.push(self.files.uuid);
        origins
    }

    fn fresh_uuid(&self, uuid: &mut [u8; 16]) {
        let mut seed = if self.clock.is_manual() {
            Seed::new(self.next_file_id().0)
        } else {
            Seed::from_entropy()
        };
        seed.fill(uuid);
    }

    /// Writes the entries of the memtables and trees as tables of the copy.
    fn write_buffers(
        &self,
        state: &ReadState,
        seqno: SeqNo,
        context: &CompactionContext,
    ) -> Result<Vec<TableMeta>> {
        let memtables = over_memtables(state.memtables.iter())?.into_iter();
        let upper = state.upper().into_iter().flat_map(Upper::iters);
        let children = memtables
            .chain(upper.map(|iter| RunIter::Upper(Box::new(iter))))
            .collect();
        let output = Output {
            seqno_max: seqno,
            cuts: state.layout.cuts().clone(),
            ..Output::new(Cause::Maintenance, false)
        };
        let below = OverlapTracker::new(Level::ZERO, state.metas_below(Level::ZERO));
        block_on(write_tables(
            MergeIter::at_first(children)?,
            &[seqno],
            below,
            output,
            context,
        ))
    }

    /// Records in the source's manifest that the linked tables have a second name.
    fn mark_shared(&self, state: &ReadState) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let mut edit = Edit::default();
        let tables = state.tables();
        let linked: HashSet<FileId> = tables.map(|(_, run)| run.meta.id).collect();
        for (level, tables) in manifest.version().levels.iter() {
            let is_own = |table: &&Arc<TableMeta>| !table.shared && table.is_file();
            for table in tables.iter().filter(is_own) {
                if linked.contains(&table.id) {
                    edit.drop.push((level, table.id));
                    edit.add.push((
                        level,
                        TableMeta {
                            shared: true,
                            ..TableMeta::clone(table)
                        },
                    ));
                }
            }
        }
        if edit.add.is_empty() || self.read_only {
            return Ok(());
        }
        manifest.append(edit, true, || self.next_file_id())
    }

    fn write_manifest(
        &self,
        state: &ReadState,
        seqno: SeqNo,
        written: Vec<(Level, TableMeta)>,
        files: &Arc<Files>,
    ) -> Result<()> {
        let manifest_id = self.next_file_id();
        // What was written for the copy has ids of its own.
        let next = written.iter().map(|(_, table)| table.id.next()).max();
        let next = next.unwrap_or_default();
        let linked = state.tables().filter(|(_, run)| run.meta.is_file());
        let edit = Edit {
            id: 1,
            uuid: Some(files.uuid),
            origins: self.origins_and_own(),
            profile: Some(self.options.profile.number()),
            next_file_id: Some(self.compaction.file_ids.next().max(next).next()),
            last_seqno: Some(seqno),
            cuts_added: state.layout.pairs().collect(),
            ranges: RangeBorders::of(state.layout.ranges()),
            add: linked
                .map(|(level, run)| {
                    (
                        level,
                        TableMeta {
                            shared: true,
                            ..TableMeta::clone(&run.meta)
                        },
                    )
                })
                .chain(written)
                .collect(),
            ..Edit::default()
        };
        let mut version = Version::default();
        version.apply(&edit).map_err(|broken| {
            Error::corruption(
                files.path().display(),
                0,
                format_args!("the checkpoint broke the invariant {broken}"),
            )
        })?;
        // Makes the names of the tables durable together with the manifest's own, before CURRENT's.
        manifest::start(files, &self.counts.io, manifest_id, &version).map(drop)
    }
}

/// The directory of a copy, locked for it.
struct Target {
    fs: Arc<dyn Fs>,
    files: Arc<Files>,
    made_directory: bool,
    made_lock: bool,
}

impl Target {
    /// Takes the new or empty directory `path`.
    ///
    /// # Errors
    /// `Invalid` if it is not empty, or another copy is being written there.
    fn take(fs: &Arc<dyn Fs>, path: &Path, uuid: [u8; 16]) -> Result<Target> {
        let made_directory = match fs.open_dir(path) {
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs.create_dir(path, true)?;
                true
            }
            Err(error) => return Err(error),
        };
        let dir = fs.open_dir(path)?;
        let refuse = |names: &[String]| match names
            .iter()
            .find(|name| FileName::parse(name) != FileName::Lock)
        {
            Some(name) => Err(Error::invalid(format!(
                "{} is not empty (it holds {name}); a checkpoint needs a new directory",
                path.display()
            ))),
            None => Ok(()),
        };
        let names = dir.list()?;
        refuse(&names)?;
        if !owner::may_be_lock(&*dir)? {
            return Err(owner::not_ours(&*dir, &names));
        }
        let lock = dir
            .lock(&FileName::Lock.to_string())
            .map_err(|error| match error.kind() {
                ErrorKind::Locked => Error::invalid(format!(
                    "another checkpoint is being written to {}",
                    path.display()
                )),
                _ => error,
            })?;
        // Another checkpoint may have run between the check and the lock.
        refuse(&dir.list()?)?;
        let signed = owner::sign(&*dir, &uuid);
        let files = Arc::new(Files::new(dir, uuid, Some(lock.into())));
        let target = Target {
            fs: fs.clone(),
            files,
            made_directory,
            made_lock: names.is_empty(),
        };
        match signed {
            Ok(()) => Ok(target),
            Err(error) => {
                target.undo();
                Err(error)
            }
        }
    }

    /// Removes everything that was written, and the directory if it was created for the copy.
    fn undo(&self) {
        // Removed first: without CURRENT it is not a database, whatever fails after that.
        let _stays = self.files.remove(FileName::Current);
        for name in self.files.list().unwrap_or_default() {
            if FileName::parse(&name).number().is_some()
                || FileName::parse(&name) == FileName::CurrentNew
            {
                let _stays = self.files.remove(FileName::parse(&name));
            }
        }
        if self.made_lock {
            let _stays = self.files.remove(FileName::Lock);
        }
        if self.made_directory {
            let _stays = self.fs.remove_dir(self.files.path());
        }
    }
}

/// Links a file of `from` into `to`. If the file system cannot link, makes a copy that is durable
/// on return.
fn link_or_copy(site: &'static Site, from: &Files, to: &Files, name: FileName) -> Result<()> {
    match to.link(from, name) {
        Err(error) if cannot_link(&error) => {
            tracing::info!(%error, "a file is copied because it cannot be linked");
            let source = from.open(name, OpenMode::Read)?;
            copy(site, &*source, source.len()?, &*to.create(name)?)
        }
        other => other,
    }
}

/// Copies the first `len` bytes of a file into a new one, durably.
pub(crate) fn copy(
    site: &'static Site,
    source: &dyn File,
    len: u64,
    target: &dyn File,
) -> Result<()> {
    let mut at = 0;
    let mut buf = IoBuf::default();
    while at < len {
        source.read(at, COPY_BYTES.min((len - at) as usize), &mut buf)?;
        if buf.is_empty() {
            break;
        }
        target.write(at, &[buf.bytes()])?;
        at += buf.len() as u64;
    }
    target.sync(site)
}
