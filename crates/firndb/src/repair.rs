//! Repair: makes a database of what can still be read.
//!
//! 1. Tables: those that the manifest names, or all in the directory if it cannot be read. A table that verifies is
//!    taken as it is; of a damaged one the blocks that verify.
//! 2. The pool: what it has of the logs' ends, and in profile `lab` what the leaves hold that verify, with the values
//!    from the logs that they point to (`repair/pool.rs`, `repair/entries.rs`).
//! 3. Logs: each frame up to the first damage, of the logs that are not obsolete, whether they are named or not; of all
//!    that there are, if a leaf or the whole pool was lost. What was evicted stays left out.
//! 4. All entries are merged by key and sequence number into new tables, which a new manifest names.
//! 5. Damaged files are kept in `lost/`; nothing is deleted that was not copied in full.
//!
//! A repair that is cut leaves the database as it was, or repaired; a damaged file is in its place, in `lost/`, or
//! both.
//!
//! If the manifest or a part of the pool was lost, an entry that was deleted long ago can come back: its tombstone may
//! be gone while a file that waited to be removed still holds it, or an old log.

mod entries;
mod pool;

use crate::budget::Budget;
use crate::buffer::Buffer;
use crate::checkpoint::link_or_copy;
use crate::files::{self, FileName, Files};
use crate::log::{FILE_HEADER_BYTES, HotSlots, PmLogBuffer, header_uuid};
use crate::manifest::{self, Edit, TableMeta, Version};
use crate::mill::{Below, MillContext, Output, write_tables};
use crate::options::{Options, Profile};
use crate::run_iter::{MergeIter, RunIter};
use crate::sites;
use firn_base::count::{Cause, IoCounters};
use firn_base::exec::block_on;
use firn_base::seed::Seed;
use firn_base::sync::Ordering;
use firn_base::{ErrorKind, Result, SeqNo};
use firn_fs::{Fs, IoBuf, OpenMode, OsFs};
use firn_pm::Pool;
use firn_table::BlockCache;
use firn_table::pm_btree::TreeStore;
use firn_table::sst::{Access, Extent, Sst, SstWriter, TableContext};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// What a repair found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// Whether CURRENT and the manifest could be read.
    pub manifest_read: bool,
    /// Tables that were whole.
    pub tables_whole: u64,
    /// Tables of which some blocks were lost.
    pub tables_damaged: Vec<String>,
    /// Tables of which nothing could be read, or that are missing.
    pub tables_lost: Vec<String>,
    /// Blocks that were lost.
    pub blocks_lost: u64,
    /// Logs that end before they should.
    pub logs_damaged: Vec<String>,
    /// Entries that came back from logs.
    pub log_entries: u64,
    /// Why the pool, or the trees in it, could not be read. What the logs have of it came back from there.
    pub pool_lost: Option<String>,
    /// Leaves of profile `lab` that could not be read. What the logs have of them came back from there.
    pub leaves_lost: u64,
    /// Entries whose values could not be read, from a log or from the pool's hot buffer, and of which there was nothing
    /// newer.
    pub values_lost: u64,
    /// Entries that came back from leaves.
    pub tree_entries: u64,
    /// Entries in the repaired database, tombstones among them.
    pub entries: u64,
}

struct Repair {
    files: Arc<Files>,
    options: Options,
    write_buffer_bytes: usize,
    mill: MillContext,
    context: TableContext,
    /// What the manifest says, if it can be read.
    known: Option<Version>,
    pool: Option<Arc<Pool>>,
    /// (file id, where the table lies in it)
    tables: Vec<(u64, Option<Extent>)>,
    /// Logs to be replayed, and all that there are.
    logs: BTreeSet<u64>,
    all_logs: BTreeSet<u64>,
    last_seqno: SeqNo,
    report: RepairReport,
    /// The pool's hot buffer, and keys whose slots in it have other values now, with the number of the newest.
    hot: Option<Arc<HotSlots>>,
    superseded: HashMap<Box<[u8]>, SeqNo>,
    /// What came back from logs and trees, until it is a temporary table.
    buffer: Option<Arc<Buffer>>,
    inputs: Vec<Arc<Sst>>,
    /// Files that the new tables replace, and whether they were whole.
    replaced: BTreeMap<u64, bool>,
    temporary: Vec<u64>,
}

/// Repairs the database at `path` in place. It must not be open.
///
/// # Errors
/// `NotFound` if there is nothing to repair; `Incompatible`, with nothing touched, if another version of FirnDB wrote
/// the manifest; `Locked`; `Io`; `NoSpace` while writing.
pub fn repair(path: impl AsRef<Path>, options: &Options) -> Result<RepairReport> {
    let dir = path.as_ref();
    let budget = Budget::new(options)?;
    let fs = options.environment.fs.clone().unwrap_or_else(|| Arc::new(OsFs::new()));
    let names = fs.list(dir)?;
    let _lock = fs.lock(&files::lock(dir))?;
    let counters = Arc::new(IoCounters::default());
    let mut repair = Repair::new(fs, dir, options, &budget, counters, &names)?;
    repair.read_trees()?;
    repair.read_tables()?;
    repair.read_logs()?;
    repair.write()
}

/// What the manifest says; `None` if it is lost or damaged.
fn known_version(fs: &dyn Fs, dir: &Path, counters: &IoCounters) -> Result<Option<Version>> {
    match manifest::read(fs, dir, counters) {
        Ok(read) => Ok(read.map(|(_, version)| version)),
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(None),
        // Of another version it is sound, and what it says is not to be thrown away; nor is it for a disk that may yet
        // answer.
        Err(error) if error.kind() == ErrorKind::Io => Err(error.context(
            "the manifest cannot be read; if that stays so, move CURRENT away and repair again, which takes all tables",
        )),
        Err(error) => Err(error),
    }
}

/// The uuid that a log has in its header, or a manifest in its first record.
fn any_uuid(fs: &dyn Fs, dir: &Path, names: &[String], counters: &IoCounters) -> Option<[u8; 16]> {
    names.iter().find_map(|name| match files::parse(name) {
        FileName::Manifest(id) => manifest::uuid(fs, dir, id, counters),
        FileName::Log(id) => {
            let file = fs.open(&files::log(dir, id), OpenMode::Read).ok()?;
            let mut header = IoBuf::default();
            file.read(0, FILE_HEADER_BYTES, &mut header).ok()?;
            header_uuid(header.bytes(), id)
        }
        _ => None,
    })
}

impl Repair {
    fn new(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: &Options,
        budget: &Budget,
        counters: Arc<IoCounters>,
        names: &[String],
    ) -> Result<Repair> {
        let known = known_version(&*fs, dir, &counters)?;
        let of = |pick: fn(FileName) -> Option<u64>| names.iter().filter_map(move |name| pick(files::parse(name)));
        let table_ids = of(|name| if let FileName::Table(id) = name { Some(id) } else { None });
        let log_ids = of(|name| if let FileName::Log(id) = name { Some(id) } else { None });
        let any_id = of(|name| match name {
            FileName::Table(id) | FileName::Log(id) | FileName::Manifest(id) => Some(id),
            _ => None,
        });
        let next = any_id.max().unwrap_or(0) + 1;
        let mut report = RepairReport { manifest_read: known.is_some(), ..RepairReport::default() };
        let all_logs: BTreeSet<u64> = log_ids.collect();
        let (tables, logs, uuid) = match &known {
            Some(version) => {
                let named = version.tables().map(|table| (table.id, Some(table.extent))).collect();
                // Those too that are not named but not obsolete: a manifest that lost its end does not know them.
                let known = version.logs.keys().chain(all_logs.range(version.log_floor..));
                (named, known.copied().collect(), Some(version.uuid))
            }
            None => (table_ids.map(|id| (id, None)).collect(), all_logs.clone(), any_uuid(&*fs, dir, names, &counters)),
        };
        let files = Arc::new(Files { fs, dir: dir.to_path_buf(), uuid: uuid.unwrap_or_default() });
        if let Some(version) = known.as_ref().filter(|_| options.pm.is_none()) {
            pool::refuse_without(version)?;
        }
        let is_unpaired = known.as_ref().is_some_and(|known| known.pm.is_none_or(|pm| pm.generation == 0));
        let pool = match pool::read(options, files.uuid)? {
            Some(Ok(pool)) => Some(Arc::new(pool)),
            // There never was one.
            Some(Err(error)) if error.kind() == ErrorKind::NotFound && is_unpaired => None,
            Some(Err(error)) => {
                report.pool_lost = Some(error.to_string());
                None
            }
            None => None,
        };
        // Nor may a number come again that only the manifest or the pool still has.
        let named = pool.as_ref().map_or(Ok(Vec::new()), |pool| PmLogBuffer::logs_named(pool, &files.uuid))?;
        let next = named.into_iter().fold(next, |next, id| next.max(id.saturating_add(1)));
        let next = next.max(known.as_ref().map_or(0, |known| known.next_file_id));
        let mill = MillContext::new(&files, &counters, options, budget, next);
        let cache = Arc::new(BlockCache::new(budget.block_cache_bytes, options.limits.block_bytes));
        Ok(Repair {
            files,
            options: options.clone(),
            write_buffer_bytes: budget.write_buffer_bytes,
            mill,
            context: TableContext::new(cache, counters),
            last_seqno: known.as_ref().map_or(SeqNo(0), |version| version.last_seqno),
            known,
            pool,
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

    fn read_tables(&mut self) -> Result<()> {
        for (id, extent) in std::mem::take(&mut self.tables) {
            let name = format!("{id:06}.sst");
            match self.open_table(id, extent) {
                Ok(table) => {
                    let table = Arc::new(table);
                    if table.verify().is_ok() {
                        self.report.tables_whole += 1;
                        self.replaced.insert(id, true);
                        self.inputs.push(table);
                    } else {
                        self.salvage(&table, name)?;
                        self.replaced.insert(id, false);
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => self.report.tables_lost.push(name),
                Err(_) => {
                    self.report.tables_lost.push(name);
                    self.replaced.insert(id, false);
                }
            }
        }
        Ok(())
    }

    fn open_table(&self, id: u64, extent: Option<Extent>) -> Result<Sst> {
        let file = self.files.fs.open(&self.files.table(id), OpenMode::Read)?;
        let extent = match extent {
            Some(extent) => extent,
            None => Sst::find_extent(&*file, id)?,
        };
        Sst::open(file, id, extent, self.context.clone())
    }

    /// Copies the blocks of a damaged table that can be read into a temporary one.
    fn salvage(&mut self, table: &Arc<Sst>, name: String) -> Result<()> {
        let id = self.mill.next_file_id.fetch_add(1, Ordering::Relaxed);
        let file = self.files.fs.open(&self.files.table(id), OpenMode::Create)?;
        let counters = self.context.counters.clone();
        let mut writer = SstWriter::new(file, id, self.mill.sst.clone(), counters, Cause::Maintenance);
        self.report.blocks_lost += table.salvage(|key, tag, value| writer.add(key, tag, value))?;
        self.temporary.push(id);
        self.report.tables_damaged.push(name);
        if writer.entries() > 0 {
            let extent = writer.finish()?.extent;
            self.inputs.push(Arc::new(self.open_table(id, Some(extent))?));
        }
        Ok(())
    }

    /// Merges everything into new tables, names them in a new manifest, and puts the old files away.
    fn write(mut self) -> Result<RepairReport> {
        let access = Access::Streaming { bytes: self.mill.stretch_bytes, cause: Cause::Maintenance };
        let children = self.inputs.iter().map(|table| RunIter::Sst(Box::new(table.iter(access)))).collect();
        let level = self.options.limits.levels - 1;
        let output = Output::new(Cause::Maintenance, true);
        let merge = MergeIter::at_first(children)?;
        let metas = block_on(write_tables(merge, &[SeqNo::MAX], Below::nothing(), output, &self.mill))?;
        self.report.entries = metas.iter().map(|meta| meta.entries).sum();
        let newest = metas.iter().map(|meta| meta.seqno_max).max().unwrap_or_default();
        let version = self.version(metas, level, self.last_seqno.max(newest))?;
        let manifest_id = self.mill.next_file_id.fetch_add(1, Ordering::Relaxed);
        let files = Files { fs: self.files.fs.clone(), dir: self.files.dir.clone(), uuid: version.uuid };
        self.set_aside()?;
        manifest::start(&files, &self.context.counters, manifest_id, &version)?;
        if self.pool.take().is_some() {
            pool::leave_without_trees(&self.options, version.uuid)?;
        }
        self.remove_replaced(manifest_id)?;
        Ok(self.report)
    }

    fn version(&self, metas: Vec<TableMeta>, level: usize, last_seqno: SeqNo) -> Result<Version> {
        let mut uuid = self.files.uuid;
        let paired = self.known.as_ref().map(|known| known.pm.map_or(0, |pm| pm.generation));
        if self.pool.is_none() && (paired != Some(0) || self.report.pool_lost.is_some()) {
            // A pool that was left out is none of this database any more.
            Seed::from_entropy().fill(&mut uuid);
        }
        let has_trees = self.pool.as_ref().is_some_and(|pool| TreeStore::named(pool).is_some());
        let profile = match &self.known {
            Some(known) => known.profile,
            None if has_trees => Profile::Lab.number(),
            None => self.options.profile.number(),
        };
        let applied = self.pool.as_ref().map_or(0, |pool| pool.root().applied_edit);
        let edit = Edit {
            // No pool may know a later one.
            id: self.known.as_ref().map_or(0, |known| known.edit_id).max(applied) + 1,
            uuid: Some(uuid),
            profile: Some(profile),
            next_file_id: Some(self.mill.next_file_id.load(Ordering::Relaxed) + 1),
            last_seqno: Some(last_seqno),
            // A repair that is cut from here on and made again must bring nothing back from old logs.
            evicted_through: Some(last_seqno),
            // What waits to be removed, or could not be read, is not to be replayed.
            log_floor: Some(self.mill.next_file_id.load(Ordering::Relaxed)),
            add: metas.into_iter().map(|meta| (level, meta)).collect(),
            pm: pool::pairing(self.pool.as_deref()),
            ..Edit::default()
        };
        let mut version = Version::default();
        version.apply(&edit).map_err(|broken| {
            firn_base::Error::corruption(self.files.dir.display(), 0, format_args!("the repair broke {broken}"))
        })?;
        Ok(version)
    }

    /// Gives what was not copied in full a second name in `lost/`, durably: once the new manifest stands, nothing else
    /// keeps it.
    fn set_aside(&self) -> Result<()> {
        let lost = self.files.dir.join("lost");
        let names = self.files.fs.list(&self.files.dir)?;
        let damaged = names.iter().filter(|name| matches!(self.fate(name), Some(false))).collect::<Vec<_>>();
        if damaged.is_empty() {
            return Ok(());
        }
        self.files.fs.create_dir_all(&lost)?;
        for name in damaged {
            let (from, to) = (self.files.dir.join(name), lost.join(name));
            if self.files.fs.len(&to).is_ok() {
                // A repair that was cut left it, perhaps not all of it.
                self.files.fs.remove(&to)?;
            }
            link_or_copy(&sites::REPAIR_COPY_SYNC, &*self.files.fs, &from, &to)?;
        }
        self.files.fs.sync_dir(&sites::REPAIR_LOST_SYNC, &lost)
    }

    /// Whether a file of this name was copied in full; `None` if it was none of those that were replaced.
    fn fate(&self, name: &str) -> Option<bool> {
        let (FileName::Table(id) | FileName::Log(id)) = files::parse(name) else { return None };
        self.replaced.get(&id).copied()
    }

    /// Removes what the new tables replace. What a crash leaves the next open removes.
    fn remove_replaced(&self, manifest_id: u64) -> Result<()> {
        for name in self.files.fs.list(&self.files.dir)? {
            let is_replaced = match files::parse(&name) {
                FileName::Table(id) if self.temporary.contains(&id) => true,
                FileName::Manifest(id) => id != manifest_id,
                _ => self.fate(&name).is_some(),
            };
            if is_replaced {
                self.files.fs.remove(&self.files.dir.join(&name))?;
            }
        }
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

    /// A manifest that the disk does not give is not lost: without it, what was deleted would come back.
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
        let manifest = names.iter().find(|name| name.starts_with("MANIFEST")).unwrap();
        fs.inject(Fault::for_ever(FaultKind::Eio).on(OpKind::Read).at(manifest.as_str()));
        let error = repair("/db", &options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("CURRENT"), "{error}");
        assert_eq!(fs.list(Path::new("/db")).unwrap(), names, "nothing was touched");
        fs.heal();
        assert_eq!(Db::open("/db", options()).unwrap().get(b"k").unwrap().unwrap(), b"v");
    }
}
