//! Repair: makes a database of everything that can still be read.
//!
//! 1. Tables: those that the manifest names, or all in the directory if it cannot be read or lost
//!    records. A table that verifies is used as it is. Of a damaged one, the blocks that verify are
//!    used.
//! 2. The pool: the ends of the logs in it and, in profile `lab`, the entries of leaves that
//!    verify, with the values from the logs that they point to (`repair/pool.rs`,
//!    `repair/entries.rs`). In profile `pmdb`, the whole entries of the write buffers, up to the
//!    committed number, that are in no table (`repair/buffers.rs`).
//! 3. Logs: each frame up to the first damage, of the logs that are not obsolete, named or not. If
//!    a leaf or the whole pool was lost, of all existing logs. Evicted entries stay left out.
//! 4. All entries are merged by key and sequence number into new tables, which a new manifest
//!    names.
//! 5. Damaged files are kept in `lost/`. No file is deleted that was not copied in full.
//!
//! Damage means that the bytes read are not the bytes written. If the system cannot deliver a file
//! (no permission to read, a failing disk), that is not damage: the repair ends with that error,
//! and removes what it wrote so far.
//!
//! An interrupted repair leaves the database either as it was or repaired. A damaged file is in its
//! place, in `lost/`, or in both. Only files whose contents say that they are of the database are
//! read, replaced or moved.
//!
//! If the manifest or a part of the pool was lost, an entry that was deleted long ago can come
//! back: its tombstone may be gone while an obsolete file that was not removed yet, an old log, or
//! a write buffer that was flushed, still holds the entry.

mod buffers;
mod entries;
mod own;
mod pm_tables;
mod pool;

use self::own::{Inputs, own_files};
use crate::compaction::{CompactionContext, Output, OverlapTracker, write_tables};
use crate::files::Owner;
use crate::files::{FileName, Files};
use crate::lifecycle::lost;
use crate::lifecycle::owner;
use crate::log::{HotSlots, PmLogBuffer};
use crate::manifest::{self, Edit, Level, PoolEdit, TableMeta, Version};
use crate::memtable::Memtable;
use crate::options::budget::Budget;
use crate::options::{Options, Profile};
use crate::read::merge_iter::MergeIter;
use crate::read::run_iter::RunIter;
use firn_base::count::{Cause, IoCounters};
use firn_base::exec::block_on;
use firn_base::seed::Seed;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_fs::{Dir, Lock, OpenMode, OsFs};
use firn_pm::Pool;
use firn_table::BlockCache;
use firn_table::TableContext;
use firn_table::pm_btree::TreeStore;
use firn_table::sst::{Access, Extent, Sst, SstWriter};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// The findings and actions of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// True if CURRENT and the manifest could be read.
    pub manifest_read: bool,
    /// The number of undamaged tables.
    pub tables_whole: u64,
    /// File names of tables of which some blocks were lost.
    pub tables_damaged: Vec<String>,
    /// File names of tables that are missing or of which nothing could be read.
    pub tables_lost: Vec<String>,
    /// The number of lost blocks.
    pub blocks_lost: u64,
    /// File names of logs that are missing, or that end before they should.
    pub logs_damaged: Vec<String>,
    /// Entries recovered from logs.
    pub log_entries: u64,
    /// The reason why the pool, or the trees in it, could not be read. Entries that are also in
    /// logs were recovered from there.
    pub pool_lost: Option<String>,
    /// Leaves of profile `lab` that could not be read. Entries that are also in logs were recovered
    /// from there. Others, whose values are in the hot buffer, are missing or have an older value.
    pub leaves_lost: u64,
    /// Entries whose values could not be read from a log, a write buffer or the pool's hot buffer,
    /// and of which no newer version was found.
    pub values_lost: u64,
    /// Entries recovered from leaves.
    pub tree_entries: u64,
    /// Entries that were found in write buffers in the pool.
    pub buffer_entries: u64,
    /// The parts of the write buffers in the pool, or of their directory, that are damaged.
    pub buffers_damaged: Vec<String>,
    /// Entries that were in write buffers and were not found, as far as sequence numbers tell.
    pub buffer_entries_lost: u64,
    /// True if the newest entries were in write buffers in a pool and all of them are lost.
    pub newest_lost: bool,
    /// Entries in the repaired database, including tombstones; 0 after a dry run.
    pub entries: u64,
    /// Names of files that were not copied in full and are in `lost/` now, or would be after a
    /// repair if this was a dry run.
    pub set_aside: Vec<String>,
    /// Names of files that the repaired database replaces, or would replace.
    pub replaced: Vec<String>,
    /// Names of files that look like a database's but belong to another one, or to none. They were
    /// left unchanged.
    pub not_ours: Vec<String>,
    /// True if this was a dry run, which changes nothing.
    pub dry_run: bool,
}

struct Repair {
    files: Arc<Files>,
    options: Options,
    write_buffer_bytes: usize,
    compaction: CompactionContext,
    context: TableContext,
    /// The state that the manifest describes, if it can be read.
    known: Option<Version>,
    pool: Option<Arc<Pool>>,
    /// The databases whose tables this one may hold.
    origins: Vec<[u8; 16]>,
    /// (file id, extent of the table in the file)
    tables: Vec<(FileId, Option<Extent>)>,
    /// The logs to be replayed, and all existing ones.
    logs: BTreeSet<FileId>,
    all_logs: BTreeSet<FileId>,
    last_seqno: SeqNo,
    report: RepairReport,
    /// The pool's hot buffer, and the keys whose slots in it were reused, or whose values in write
    /// buffers are damaged, with the highest sequence number of each.
    hot: Option<Arc<HotSlots>>,
    superseded: HashMap<Box<[u8]>, SeqNo>,
    /// Entries recovered from logs and trees, until they are in a temporary table.
    buffer: Option<Arc<Memtable>>,
    inputs: Vec<Arc<Sst>>,
    /// The files that the new tables replace, and whether each was whole.
    replaced: BTreeMap<FileName, bool>,
    temporary: Vec<FileId>,
}

/// Repairs the database at `path` in place. It must not be open. Blocks until the repair is
/// complete.
///
/// # Errors
/// `NotFound` if there is nothing to repair; `Invalid` if no file in the directory is of a
/// database; `Incompatible` if another version of FirnDB wrote the manifest; `Io` if a file cannot
/// be read, naming the file. In all these cases nothing was changed. `Locked` if the database is
/// open; `NoSpace` and `Io` from writing.
pub fn repair(path: impl AsRef<Path>, options: &Options) -> Result<RepairReport> {
    run(path.as_ref(), options, false)
}

/// Reports what [`repair`] would do, and changes nothing.
///
/// # Errors
/// As [`repair`], except for the errors of writing.
pub fn repair_dry_run(path: impl AsRef<Path>, options: &Options) -> Result<RepairReport> {
    run(path.as_ref(), options, true)
}

fn run(path: &Path, options: &Options, dry_run: bool) -> Result<RepairReport> {
    let budget = Budget::new(options)?;
    let fs = options
        .environment
        .fs
        .clone()
        .unwrap_or_else(|| Arc::new(OsFs::new()));
    let dir = fs.open_dir(path)?;
    let names = dir.list()?;
    let Some(owner) = owner::find(&*dir, &names)? else {
        return Err(if names.is_empty() {
            Error::new(
                ErrorKind::NotFound,
                format!("there is no database at {}", path.display()),
            )
        } else {
            owner::not_ours(&*dir, &names)
        });
    };
    if owner == Owner::OtherVersion {
        let message = format!(
            "the database at {} was written by another version of FirnDB; repair it with that version",
            path.display()
        );
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    // A dry run creates no file, not even the lock file.
    let is_there = names
        .iter()
        .any(|name| FileName::parse(name) == FileName::Lock);
    let lock: Option<Arc<dyn Lock>> = if is_there || !dry_run {
        Some(dir.lock(&FileName::Lock.to_string())?.into())
    } else {
        None
    };
    let counters = Arc::new(IoCounters::default());
    let mut repair = Repair::new(
        &dir,
        lock,
        owner.uuid().unwrap_or_default(),
        options,
        &budget,
        counters,
    )?;
    repair.report.dry_run = dry_run;
    let done = repair.read().and_then(|()| {
        if dry_run {
            repair.tell()
        } else {
            repair.write()
        }
    });
    if done.is_err() {
        repair.drop_temporary();
    }
    done.map(|()| repair.report)
}

/// Adds to an error that is not damage that nothing was changed because of it.
fn not_given(error: Error) -> Error {
    error.context(
        "nothing was changed, because what cannot be read is not lost; repair again once it can be",
    )
}

/// The pool that the options name, if it can be read and ever existed.
fn open_pool(
    options: &Options,
    uuid: [u8; 16],
    known: Option<&Version>,
    report: &mut RepairReport,
) -> Result<Option<Arc<Pool>>> {
    if let Some(version) = known.filter(|_| options.pm.is_none()) {
        pool::refuse_without(version)?;
    }
    let is_unpaired = known.is_some_and(|known| known.pm.is_none_or(|pm| pm.generation == 0));
    match pool::read(options, uuid)? {
        Some(Ok(pool)) => Ok(Some(Arc::new(pool))),
        Some(Err(error)) if error.kind() == ErrorKind::NotFound && is_unpaired => Ok(None),
        Some(Err(error)) => {
            report.pool_lost = Some(error.to_string());
            report.newest_lost = known.is_some_and(|known| known.holds_entries);
            Ok(None)
        }
        None => {
            known.map_or(Ok(()), pool::refuse_without_buffers)?;
            Ok(None)
        }
    }
}

/// The state that the manifest describes; `None` if it is lost or damaged.
fn known_version(dir: &dyn Dir, counters: &IoCounters) -> Result<Option<Version>> {
    match manifest::read(dir, counters) {
        Ok(read) => Ok(read.map(|(_, version)| version)),
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(None),
        // A manifest of another version is sound and must not be discarded. Neither must one on a
        // disk that may answer later.
        Err(error) if error.kind() == ErrorKind::Io => Err(error.context(
            "the manifest cannot be read; if that stays so, move CURRENT away and repair again, which takes all tables",
        )),
        Err(error) => Err(error),
    }
}

impl Repair {
    fn new(
        dir: &Arc<dyn Dir>,
        lock: Option<Arc<dyn Lock>>,
        uuid: [u8; 16],
        options: &Options,
        budget: &Budget,
        counters: Arc<IoCounters>,
    ) -> Result<Repair> {
        let known = known_version(&**dir, &counters)?;
        let uuid = known.as_ref().map_or(uuid, |known| known.uuid);
        let files = Arc::new(Files::new(dir.clone(), uuid, lock));
        let signed = owner::signature(&**dir)?.filter(|signature| signature.uuid == uuid);
        let origins = known
            .as_ref()
            .map(|known| known.origins.clone())
            .or(signed.map(|signature| signature.origins));
        let origins = origins.unwrap_or_default();
        let mut report = RepairReport {
            manifest_read: known.is_some(),
            ..RepairReport::default()
        };
        let own = own_files(&files, &origins, &mut report)?;
        let next = own
            .iter()
            .filter_map(|name| name.number())
            .max()
            .map_or(FileId(1), FileId::next);
        // The number of a file that is not ours must not be reused either.
        let others = files
            .list()?
            .iter()
            .filter_map(|name| FileName::parse(name).number())
            .max();
        let next = next.max(others.map_or(FileId(0), FileId::next));
        let pool = open_pool(options, uuid, known.as_ref(), &mut report)?;
        let in_buffers = buffers::whole_through(pool.as_ref(), known.as_ref());
        let Inputs {
            tables,
            logs,
            all_logs,
        } = own::inputs(&files, (known.as_ref(), in_buffers), &own, &counters)?;
        let last_log = all_logs.last().copied().unwrap_or(FileId(0));
        // Nor a number that only the manifest or the pool still has.
        let named = pool.as_ref().map_or(Ok(Vec::new()), |pool| {
            PmLogBuffer::logs_named(pool, &files.uuid)
        })?;
        let next = named.into_iter().fold(next, |next, id| next.max(id.next()));
        let next = buffers::next_id(pool.as_ref(), next, known.as_ref())?;
        let next = next.max(known.as_ref().map_or(FileId(0), |known| known.next_file_id));
        let mut compaction = CompactionContext::new(&files, &counters, options, budget, next);
        compaction.sst.owner.log_id = last_log;
        let cache = Arc::new(BlockCache::new(budget.block_cache_bytes));
        Ok(Repair {
            files,
            options: options.clone(),
            write_buffer_bytes: budget.write_buffer_bytes,
            compaction,
            context: TableContext::new(cache, counters),
            last_seqno: known
                .as_ref()
                .map_or(SeqNo(0), |version| version.last_seqno),
            known,
            pool,
            origins,
            tables,
            logs,
            all_logs,
            report,
            buffer: None,
            inputs: Vec::new(),
            replaced: BTreeMap::new(),
            hot: None,
            superseded: HashMap::new(),
            temporary: Vec::new(),
        })
    }

    /// Reads everything. Creates nothing but temporary tables.
    fn read(&mut self) -> Result<()> {
        if let Some(pool) = self.judged_pool() {
            self.read_buffers(&pool)?;
            self.read_trees(pool)?;
        }
        self.read_pm_tables()?;
        self.read_tables()?;
        self.read_logs()
    }

    fn read_tables(&mut self) -> Result<()> {
        for (id, extent) in std::mem::take(&mut self.tables) {
            let name = FileName::Table(id).to_string();
            let table = match self.open_table(id, extent) {
                Ok(table) => Arc::new(table),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.report.tables_lost.push(name);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    self.report.tables_lost.push(name);
                    self.replaced.insert(FileName::Table(id), false);
                    continue;
                }
                Err(error) => return Err(not_given(error)),
            };
            match table.verify() {
                Ok(_) => {
                    self.report.tables_whole += 1;
                    self.replaced.insert(FileName::Table(id), true);
                    self.inputs.push(table);
                }
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    self.salvage(&table, name)?;
                    self.replaced.insert(FileName::Table(id), false);
                }
                Err(error) => return Err(not_given(error)),
            }
        }
        Ok(())
    }

    /// Opens a table. The repaired database's last sequence number is at least that of each: a
    /// table that stays after a crash must not look newer than the manifest, which may have dropped
    /// its tombstones.
    fn open_table(&mut self, id: FileId, extent: Option<Extent>) -> Result<Sst> {
        let file = self.files.open(FileName::Table(id), OpenMode::Read)?;
        let extent = match extent {
            Some(extent) => extent,
            None => Sst::find_extent(&*file, id)?,
        };
        let table = Sst::open(file, id, extent, self.context.clone())?;
        self.last_seqno = self.last_seqno.max(table.properties().seqno_max);
        Ok(table)
    }

    /// Copies the readable blocks of a damaged table into a temporary one.
    fn salvage(&mut self, table: &Arc<Sst>, name: String) -> Result<()> {
        self.report.tables_damaged.push(name);
        if self.report.dry_run {
            self.report.blocks_lost += table.salvage(|_, _, _| Ok(())).map_err(not_given)?;
            return Ok(());
        }
        let id = self.compaction.file_ids.take();
        let file = self.files.create(FileName::Table(id))?;
        self.temporary.push(id);
        let counters = self.context.counters.clone();
        let mut writer = SstWriter::new(
            file,
            id,
            self.compaction.sst.clone(),
            counters,
            Cause::Maintenance,
        );
        self.report.blocks_lost += table
            .salvage(|key, tag, value| writer.add(key, tag, value))
            .map_err(not_given)?;
        if writer.entries() > 0 {
            let extent = writer.finish()?.extent;
            let table = self.open_table(id, Some(extent))?;
            self.inputs.push(Arc::new(table));
        }
        Ok(())
    }

    /// The settings for the new tables. Until the new manifest is durable, their entries are in
    /// older files, too, and a repeated repair must not take the new tables for ones that a lost
    /// record named. So they record that a log holds their entries.
    fn output(&self) -> Output {
        Output {
            log_id: self.compaction.sst.owner.log_id,
            ..Output::new(Cause::Maintenance, true)
        }
    }

    /// Lists the files that are replaced and those that are set aside.
    fn tell(&mut self) -> Result<()> {
        for name in self.files.list()? {
            let fate = match FileName::parse(&name) {
                // The old manifest is removed, and kept in `lost/` if it could not be read.
                manifest @ FileName::Manifest(_) => {
                    let is_ours = owner::owner_of(self.files.dir(), manifest)?.uuid()
                        == Some(self.files.uuid);
                    is_ours.then_some(self.known.is_some())
                }
                _ => self.fate(&name),
            };
            match fate {
                Some(true) => self.report.replaced.push(name),
                Some(false) => self.report.set_aside.push(name),
                None => {}
            }
        }
        Ok(())
    }

    /// Removes the temporary tables of a failed repair.
    fn drop_temporary(&mut self) {
        self.inputs.clear();
        for id in std::mem::take(&mut self.temporary) {
            // A table that stays is named by nothing, and the next open removes it.
            let _stays = self.files.remove(FileName::Table(id));
        }
    }

    /// Merges everything into new tables, names them in a new manifest, and removes the old files.
    fn write(&mut self) -> Result<()> {
        let access = Access::Streaming {
            bytes: self.compaction.stretch_bytes,
            cause: Cause::Maintenance,
        };
        let children = self
            .inputs
            .iter()
            .map(|table| RunIter::Sst(Box::new(table.iter(access))))
            .collect();
        let level = Level(self.options.levels() - 1);
        let merge = MergeIter::at_first(children)?;
        let metas = block_on(write_tables(
            merge,
            &[SeqNo::MAX],
            OverlapTracker::nothing(),
            self.output(),
            &self.compaction,
        ))?;
        // Temporary until the manifest names them, so that they are removed if anything fails.
        let made = metas.iter().map(|meta| meta.id);
        self.temporary.extend(made.clone());
        let made: BTreeSet<FileId> = made.collect();
        self.report.entries = metas.iter().map(|meta| meta.entries).sum();
        let version = self.version(metas, level)?;
        let manifest_id = self.compaction.file_ids.take();
        self.tell()?;
        let aside: Vec<FileName> = self
            .report
            .set_aside
            .iter()
            .map(|name| FileName::parse(name))
            .collect();
        // Before the new manifest, after which nothing else keeps these files.
        lost::keep(&self.files, &aside)?;
        let started = manifest::start(&self.files, &self.context.counters, manifest_id, &version);
        if started
            .as_ref()
            .err()
            .is_none_or(|error| error.kind() == ErrorKind::Poisoned)
        {
            // CURRENT names them, or may name them.
            self.temporary.retain(|id| !made.contains(id));
        }
        started?;
        owner::sign_again(self.files.dir(), &version.uuid, &version.origins)?;
        if self.pool.take().is_some() {
            pool::leave_without_trees(&self.options, version.uuid)?;
        }
        self.remove_replaced(manifest_id)
    }

    fn version(&self, metas: Vec<TableMeta>, level: Level) -> Result<Version> {
        let mut uuid = self.files.uuid;
        let paired = self
            .known
            .as_ref()
            .map(|known| known.pm.map_or(0, |pm| pm.generation));
        let mut origins = self.origins.clone();
        if self.pool.is_none() && (paired != Some(0) || self.report.pool_lost.is_some()) {
            // A pool that was left out no longer belongs to this database. Its tables still do.
            origins.push(uuid);
            Seed::from_entropy().fill(&mut uuid);
        }
        let has_trees = self
            .pool
            .as_ref()
            .is_some_and(|pool| TreeStore::named(pool).is_some());
        let has_buffers = self
            .pool
            .as_ref()
            .is_some_and(|pool| buffers::has_directory(pool));
        let profile = match &self.known {
            Some(known) => known.profile,
            None if has_trees => Profile::Lab.number(),
            None if has_buffers => Profile::Pmdb.number(),
            None => self.options.profile.number(),
        };
        let applied = self
            .pool
            .as_ref()
            .map_or(0, |pool| pool.root().applied_edit);
        let edit = Edit {
            // No pool may know a later edit.
            id: self
                .known
                .as_ref()
                .map_or(0, |known| known.edit_id)
                .max(applied)
                + 1,
            uuid: Some(uuid),
            origins,
            profile: Some(profile),
            next_file_id: Some(self.compaction.file_ids.next().next()),
            last_seqno: Some(self.last_seqno),
            // A repair that is interrupted after this and repeated must not bring entries back from
            // old logs.
            evicted_through: Some(self.last_seqno),
            // Logs that are obsolete or could not be read must not be replayed.
            log_floor: Some(self.compaction.file_ids.next()),
            add: metas.into_iter().map(|meta| (level, meta)).collect(),
            pool: PoolEdit {
                pairing: pool::pairing(self.pool.as_deref()),
                ..PoolEdit::default()
            },
            ..Edit::default()
        };
        let mut version = Version::default();
        version.apply(&edit).map_err(|broken| {
            firn_base::Error::corruption(
                self.files.path().display(),
                0,
                format_args!("the repair broke {broken}"),
            )
        })?;
        Ok(version)
    }

    /// True if the file of this name was copied in full; `None` if it is not one of the replaced
    /// files.
    fn fate(&self, name: &str) -> Option<bool> {
        self.replaced.get(&FileName::parse(name)).copied()
    }

    /// Removes the files that the new tables replace. The next open removes those that a crash
    /// leaves.
    fn remove_replaced(&mut self, manifest_id: FileId) -> Result<()> {
        for text in self.files.list()? {
            let name = FileName::parse(&text);
            let is_replaced = match name {
                FileName::Table(id) if self.temporary.contains(&id) => true,
                FileName::Manifest(id) => {
                    id != manifest_id
                        && owner::owner_of(self.files.dir(), name)?.uuid() == Some(self.files.uuid)
                }
                _ => self.fate(&text).is_some(),
            };
            if is_replaced {
                self.files.remove(name)?;
            }
        }
        self.temporary.clear();
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::{Db, Environment};
    use firn_base::clock::Clock;
    use firn_base::exec::Inline;
    use firn_fs::{Fault, FaultKind, OpKind, SimFs};

    /// A manifest that the disk cannot deliver is not lost. A repair without it would bring deleted
    /// entries back.
    #[test]
    fn a_manifest_that_cannot_be_read_is_no_lost_one() {
        let fs = SimFs::new(1);
        let options = || Options {
            environment: Environment {
                fs: Some(Arc::new(fs.clone())),
                clock: Some(Clock::manual()),
                executor: Some(Arc::new(Inline::new())),
                memory: None,
            },
            ..Options::tiny()
        };
        let db = Db::open("/db", options()).unwrap();
        db.put(b"k", b"v").unwrap();
        db.close().unwrap();
        let names = fs.list(Path::new("/db")).unwrap();
        let manifest = names
            .iter()
            .find(|name| name.starts_with("MANIFEST"))
            .unwrap();
        fs.inject(
            Fault::for_ever(FaultKind::Eio)
                .on(OpKind::Read)
                .at(manifest.as_str()),
        );
        let error = repair("/db", &options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("CURRENT"), "{error}");
        assert_eq!(
            fs.list(Path::new("/db")).unwrap(),
            names,
            "nothing was touched"
        );
        fs.heal();
        assert_eq!(
            Db::open("/db", options())
                .unwrap()
                .get(b"k")
                .unwrap()
                .unwrap(),
            b"v"
        );
    }
}
