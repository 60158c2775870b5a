//! Repair: makes a database of what can still be read.
//!
//! 1. Tables: those that the manifest names, or all in the directory if it cannot be read. A table that verifies is
//!    taken as it is; of a damaged one the blocks that verify.
//! 2. Logs: each frame up to the first damage, of the logs that are not obsolete, whether they are named or not.
//! 3. All entries are merged by key and sequence number into new tables, which a new manifest names.
//! 4. Damaged files are kept in `lost/`; nothing is deleted that was not copied in full.
//!
//! A repair that is cut leaves the database as it was, or repaired; a damaged file is in its place, in `lost/`, or
//! both.
//!
//! If the manifest was lost, an entry that was deleted long ago can come back: its tombstone may be gone while a file
//! that waited to be removed still holds it.

use crate::budget::Budget;
use crate::buffer::{Buffer, Entry};
use crate::checkpoint::link_or_copy;
use crate::files::{self, FileName, Files};
use crate::log::{LogSource, Replay};
use crate::manifest::{self, Edit, TableMeta, Version};
use crate::mill::{Below, MillContext, Output, write_tables};
use crate::options::{Options, Profile};
use crate::run_iter::{MergeIter, RunIter};
use crate::sites;
use firn_base::count::{Cause, IoCounters};
use firn_base::exec::block_on;
use firn_base::seed::Seed;
use firn_base::sync::Ordering;
use firn_base::{Error, ErrorKind, Result, SeqNo};
use firn_fs::{Fs, OpenMode, OsFs};
use firn_table::BlockCache;
use firn_table::sst::{Access, Extent, Sst, SstWriter, TableContext};
use serde::Serialize;
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
    /// Entries in the repaired database, tombstones among them.
    pub entries: u64,
}

struct Repair {
    files: Arc<Files>,
    options: Options,
    mill: MillContext,
    context: TableContext,
    /// (file id, where the table lies in it)
    tables: Vec<(u64, Option<Extent>)>,
    logs: Vec<u64>,
    last_seqno: SeqNo,
    report: RepairReport,
    inputs: Vec<Arc<Sst>>,
    /// Files that the new tables replace, and whether they were whole.
    replaced: Vec<(u64, bool)>,
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
    repair.read_tables()?;
    repair.read_logs(&budget)?;
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
        let has_trees = known.as_ref().and_then(|version| Profile::from_number(version.profile)) == Some(Profile::Lab);
        if has_trees || options.profile == Profile::Lab {
            return Err(Error::invalid("profile `lab` cannot be repaired yet: its pool holds a part of it"));
        }
        let of = |pick: fn(FileName) -> Option<u64>| names.iter().filter_map(move |name| pick(files::parse(name)));
        let table_ids = of(|name| if let FileName::Table(id) = name { Some(id) } else { None });
        let log_ids = of(|name| if let FileName::Log(id) = name { Some(id) } else { None });
        let any_id = of(|name| match name {
            FileName::Table(id) | FileName::Log(id) | FileName::Manifest(id) => Some(id),
            _ => None,
        });
        let next = any_id.max().unwrap_or(0) + 1;
        let report = RepairReport { manifest_read: known.is_some(), ..RepairReport::default() };
        let mut uuid = [0; 16];
        let (tables, mut logs) = match &known {
            Some(version) => {
                uuid = version.uuid;
                let named = version.levels.iter().flatten().map(|table| (table.id, Some(table.extent))).collect();
                // Those too that are not named but not obsolete: a manifest that lost its end does not know them.
                let known = version.logs.keys().copied().chain(log_ids.filter(|id| *id >= version.log_floor));
                (named, known.collect::<Vec<_>>())
            }
            None => (table_ids.map(|id| (id, None)).collect(), log_ids.collect()),
        };
        logs.sort_unstable();
        logs.dedup();
        let files = Arc::new(Files { fs, dir: dir.to_path_buf(), uuid });
        let mill = MillContext::new(&files, &counters, options, budget, next);
        let cache = Arc::new(BlockCache::new(budget.block_cache_bytes, options.limits.block_bytes));
        Ok(Repair {
            files,
            options: options.clone(),
            mill,
            context: TableContext::new(cache, counters),
            tables,
            logs,
            last_seqno: known.map_or(SeqNo(0), |version| version.last_seqno),
            report,
            inputs: Vec::new(),
            replaced: Vec::new(),
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
                        self.replaced.push((id, true));
                        self.inputs.push(table);
                    } else {
                        self.salvage(&table, name)?;
                        self.replaced.push((id, false));
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => self.report.tables_lost.push(name),
                Err(_) => {
                    self.report.tables_lost.push(name);
                    self.replaced.push((id, false));
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

    /// Replays what of the logs can be read into temporary tables.
    fn read_logs(&mut self, budget: &Budget) -> Result<()> {
        let mut buffer = Arc::new(Buffer::new(budget.write_buffer_bytes, 0));
        for log_id in std::mem::take(&mut self.logs) {
            let name = format!("{log_id:06}.log");
            let opened = self.files.fs.open(&self.files.log(log_id), OpenMode::Read);
            let Ok(file) = opened else {
                self.report.logs_damaged.push(name);
                continue;
            };
            let source = LogSource::new(file, self.context.counters.clone())?;
            let mut replay = Replay::open_any(source, log_id, &self.files.uuid)?;
            let mut full = Ok(());
            loop {
                let next = replay.next(|replayed| {
                    let Some(kind) = replayed.tag.kind() else { return Ok(()) };
                    let seqno = replayed.tag.seqno();
                    let entry = Entry { kind, key: replayed.key, value: replayed.value };
                    let bytes = Buffer::bytes_for(std::iter::once(entry), seqno.0);
                    let mut ticket = buffer.reserve(std::iter::once(entry), bytes, seqno.0);
                    if ticket.is_none() {
                        full = self.keep_buffer(&buffer);
                        buffer = Arc::new(Buffer::new(budget.write_buffer_bytes.max(bytes), 0));
                        ticket = buffer.reserve(std::iter::once(entry), bytes, seqno.0);
                    }
                    if let Some(ticket) = ticket {
                        ticket.link(seqno);
                        self.report.log_entries += 1;
                        self.last_seqno = self.last_seqno.max(seqno);
                    }
                    Ok(())
                });
                std::mem::replace(&mut full, Ok(()))?;
                if !matches!(next, Ok(true)) {
                    break;
                }
            }
            let whole = replay.end(0).is_ok_and(|end| !end.torn);
            if !whole {
                self.report.logs_damaged.push(name);
            }
            self.replaced.push((log_id, whole));
        }
        self.keep_buffer(&buffer)
    }

    fn keep_buffer(&mut self, buffer: &Arc<Buffer>) -> Result<()> {
        let merge = MergeIter::at_first(vec![RunIter::Buffer(buffer.iter())])?;
        let output = Output::new(Cause::Maintenance, true);
        // Something may lie below: tombstones stay.
        let metas = block_on(write_tables(merge, &[SeqNo(0)], Below::nothing(), output, &self.mill))?;
        for meta in metas {
            self.temporary.push(meta.id);
            self.inputs.push(Arc::new(self.open_table(meta.id, Some(meta.extent))?));
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
        self.remove_replaced(manifest_id)?;
        Ok(self.report)
    }

    fn version(&self, metas: Vec<TableMeta>, level: usize, last_seqno: SeqNo) -> Result<Version> {
        let mut uuid = self.files.uuid;
        if uuid == [0; 16] {
            Seed::from_entropy().fill(&mut uuid);
        }
        let edit = Edit {
            id: 1,
            uuid: Some(uuid),
            profile: Some(self.options.profile.number()),
            next_file_id: Some(self.mill.next_file_id.load(Ordering::Relaxed) + 1),
            last_seqno: Some(last_seqno),
            // What waits to be removed, or could not be read, is not to be replayed.
            log_floor: Some(self.mill.next_file_id.load(Ordering::Relaxed)),
            add: metas.into_iter().map(|meta| (level, meta)).collect(),
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
        self.replaced.iter().find(|(replaced, _)| *replaced == id).map(|(_, whole)| *whole)
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
