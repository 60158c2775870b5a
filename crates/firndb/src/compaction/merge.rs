//! Compaction of runs into new tables (How::Copy), for flushes, too:
//!
//! 1. merge the inputs by internal key;
//! 2. drop the versions that no reader needs (`visibility.rs`);
//! 3. write the rest to tables. A table ends between two user keys: at the target size, before it
//!    would overlap too much of the level below its own, or once the hashes and the index of its
//!    keys reach their memory limit;
//! 4. sync each table; the directory is synced once, before the edit is returned.
//!
//! A crash at any point leaves files that no manifest record names; the next open removes them.

use super::append::GrownTable;
use super::entries::{BoundedEntries, BufferedEntries, MergePair};
use super::grain::Choice;
use super::hidden::Below;
use super::overlap::OverlapTracker;
use super::sieve::Sieve;
use super::sub_task::{CopyTask, KeyBounds, Run};
use super::tables_writer::TablesWriter;
use crate::compaction::admission::Admission;
use crate::compaction::output::{PmTarget, Written};
use crate::compaction::plan::{How, Medium, Plan, Reason};
use crate::compaction::pm_store::PmStore;
use crate::compaction::upper::Evicted;
use crate::files::{FileIds, FileName, Files};
use crate::gate::was_closed;
use crate::manifest::{Edit, Level, TableMeta, Tables};
use crate::mechanisms;
use crate::options::Options;
use crate::options::budget::Budget;
use crate::options::tuning::BlockTuning;
use crate::read::merge_iter::{Entries, MergeIter};
use crate::read::pins::over_memtables;
use crate::read::pm_space::NewTable;
use crate::read::run_iter::{LevelIter, RunIter};
use crate::read::state::{LevelRuns, Part, ReadState};
use crate::read::table_run::TableRun;
use crate::sites;
use crate::tlsm::{Anchor, ListStore};
use crate::upper::Upper;
use firn_base::count::{Cause, IoCounters};
use firn_base::exec::yield_now;
use firn_base::sync::{AtomicBool, Ordering};
use firn_base::{Error, ErrorKind, FileId, Limits, Result, SeqNo, Tag};
use firn_fs::WriteQueue;
use firn_table::sst::{Access, SstOptions, TableOwner};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of entries between two yield points.
const ENTRIES_PER_STEP: u64 = 256;

/// The parts of the engine that a compaction needs.
pub(crate) struct CompactionContext {
    pub(crate) files: Arc<Files>,
    pub(crate) counters: Arc<IoCounters>,
    pub(crate) limits: Limits,
    pub(crate) sst: SstOptions,
    pub(crate) direct: bool,
    /// Bytes of one readahead from each input.
    pub(crate) stretch_bytes: usize,
    /// The most bytes of input that an append may hold while it finds the blocks that they fall
    /// into.
    pub(crate) hold_bytes: usize,
    /// The most bytes that a table builder may hold of its keys. The table ends before it exceeds
    /// them.
    pub(crate) keys_bytes: usize,
    /// The profile's parameters, if it appends.
    pub(crate) appends: Option<BlockTuning>,
    /// The tables' part of the pool, if the profile has one.
    pub(crate) pm: Option<PmStore>,
    pub(crate) file_ids: Arc<FileIds>,
    /// The writes that may be in flight, where a flush coroutine submits them.
    pub(crate) admission: Arc<Admission>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl CompactionContext {
    /// A context according to `options` and their `budget`, for files with ids from `next_file_id`
    /// on.
    pub(crate) fn new(
        files: &Arc<Files>,
        counters: &Arc<IoCounters>,
        options: &Options,
        budget: &Budget,
        next_file_id: FileId,
    ) -> CompactionContext {
        let sst = SstOptions {
            codec: options.compression,
            filter_bits: options.filter_bits,
            filter_reserve_share_max: options.tuning.block.filter_reserve_share_max,
            io_bytes: budget.io_bytes,
            owner: TableOwner {
                uuid: files.uuid,
                log_id: FileId(0),
            },
            ..SstOptions::new(&options.limits)
        };
        CompactionContext {
            files: files.clone(),
            counters: counters.clone(),
            limits: options.limits.clone(),
            sst,
            direct: options.direct_io,
            stretch_bytes: budget.stretch_bytes,
            hold_bytes: budget.hold_bytes,
            keys_bytes: budget.keys_bytes,
            appends: options.appends().then(|| options.tuning.block.clone()),
            pm: None,
            file_ids: Arc::new(FileIds::from(next_file_id)),
            admission: Arc::new(Admission::new(options.compaction_io_depth)),
            stop: Arc::default(),
        }
    }

    /// True if the output of `plan` may be tables in persistent memory.
    pub(crate) fn makes_pm_tables(&self, plan: &Plan) -> bool {
        self.pm.is_some() && plan.medium == Medium::Pm
    }

    /// True if a job that failed with `error` makes files instead, which is counted.
    fn spills(&self, error: &Error) -> bool {
        let store = self.pm.as_ref();
        store.is_some_and(|store| store.spills(error))
    }

    /// The lists' part of the pool, if the profile has one.
    pub(crate) fn lists(&self) -> Option<&Arc<ListStore>> {
        self.pm.as_ref().and_then(PmStore::lists)
    }

    /// # Errors
    /// `Invalid` if the database is being closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        check_open(&self.stop)
    }

    /// The percentage that filters of tables on `level` reserve; 0 if nothing is appended to them.
    pub(crate) fn reserve_percent(&self, around: &LevelContext, level: Level) -> u32 {
        let tuning = self.appends.as_ref().filter(|_| level > Level(1));
        let as_last = around.is_last || !mechanisms::BLOCK_RESERVE_BY_LEVEL.is_on();
        tuning.map_or(0, |tuning| tuning.filter_reserve_percent.of(as_last))
    }
}

fn check_open(stop: &AtomicBool) -> Result<()> {
    match stop.load(Ordering::Relaxed) {
        true => Err(was_closed()),
        false => Ok(()),
    }
}

/// The facts that a compaction must know about the state around its plan. It does not hold the
/// state itself, whose memtables and tables would stay for as long as the compaction runs.
#[derive(Debug)]
pub(crate) struct LevelContext {
    /// The tables of level 0 if the output is newer than these and older than nothing else, so that
    /// its tombstones need to hide only them and what is deeper.
    level0: Option<Tables>,
    /// The tables of each level below the output's.
    deeper: Vec<Tables>,
    /// The borders of partitions that no output crosses.
    pub(super) cuts: Arc<[Box<[u8]>]>,
    /// True if no level below the output's has tables.
    pub(super) is_last: bool,
    /// Live bytes of the output's level divided by those of the last level, at most 1.
    pub(super) level_share: f64,
    /// Dead bytes per live byte, over all tables.
    pub(super) dead_share: f64,
}

impl LevelContext {
    /// The context of `plan`. Its output ends at the borders in `cuts`.
    pub(crate) fn new(state: &ReadState, plan: &Plan, cuts: Arc<[Box<[u8]>]>) -> LevelContext {
        let level = plan.level;
        match plan.part.and_then(|id| state.part_by_id(id)) {
            Some(part) => LevelContext {
                // All that a range has is below what comes to it.
                deeper: part.metas_below(plan.by_range.as_ref().map_or(level, |_| Level::ZERO)),
                ..LevelContext::of_part(part, level, cuts)
            },
            None => LevelContext {
                level0: state
                    .upper()
                    .is_none_or(Upper::is_empty)
                    .then(|| state.metas_of(Level::ZERO)),
                deeper: state.metas_below(level),
                cuts,
                is_last: false,
                level_share: 0.0,
                dead_share: 0.0,
            },
        }
    }

    fn of_part(part: &Part, level: Level, cuts: Arc<[Box<[u8]>]>) -> LevelContext {
        let (dead, live) = part.dead_and_live();
        let last = part.last_level();
        let bytes = |level: Level| {
            part.levels
                .get(level)
                .map_or(0, |level| level.live_bytes())
                .max(1) as f64
        };
        LevelContext {
            level0: None,
            deeper: part.metas_below(level),
            cuts,
            is_last: level >= last,
            level_share: (bytes(level) / bytes(last)).min(1.0),
            dead_share: dead as f64 / live.max(1) as f64,
        }
    }

    /// The overlaps below an output on `level`, to be tracked along with a merge.
    pub(super) fn below(&self, level: Level) -> OverlapTracker {
        match &self.level0 {
            Some(level0) if level.is_zero() => {
                OverlapTracker::newest(level0.clone(), self.deeper.clone())
            }
            _ => OverlapTracker::new(level, self.deeper.clone()),
        }
    }
}

/// The output of a compaction: an edit, and the data to install or undo it.
#[derive(Debug, Default)]
pub(crate) struct CompactionOutput {
    pub(crate) edit: Edit,
    /// The files that were created, to be removed if the edit is not installed.
    pub(crate) created: Vec<FileId>,
    pub(crate) placed: Vec<NewTable>,
    /// The anchor of lists, to be cleared when they are installed or gone.
    pub(crate) anchor: Option<Anchor>,
    pub(crate) grown: Vec<GrownTable>,
    /// The choice for each table of the output's level, if there was one.
    pub(crate) choices: Vec<Choice>,
    /// The entries that are to leave the structure above the levels.
    pub(crate) evicted: Option<Evicted>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// The time that the rate limiter made the job sleep.
    pub(crate) slept_ns: u64,
}

/// Runs `plan`, which must not be an append. If it fails, none of its files stay.
///
/// # Errors
/// The error of reading or writing.
pub(crate) async fn run(
    plan: &Plan,
    around: &LevelContext,
    snapshots: &[SeqNo],
    context: &CompactionContext,
) -> Result<CompactionOutput> {
    let mut edit = Edit {
        drop: plan
            .tables
            .iter()
            .map(|(level, run)| (*level, run.meta.id))
            .collect(),
        ..Edit::default()
    };
    if plan.how == How::Move {
        edit.add = plan
            .tables
            .iter()
            .map(|(_, run)| (plan.level, TableMeta::clone(&run.meta)))
            .collect();
        let bytes = plan.input_bytes();
        return Ok(CompactionOutput {
            edit,
            bytes_in: bytes,
            bytes_out: bytes,
            ..CompactionOutput::default()
        });
    }
    let target = PmTarget::of(plan, around, context)?;
    let is_in_memory = target.is_some();
    let Written {
        metas,
        files,
        placed,
        anchor,
    } = match write(plan, around, snapshots, target, context).await {
        Err(error) if is_in_memory && context.spills(&error) => {
            write(plan, around, snapshots, None, context).await?
        }
        written => written?,
    };
    Ok(CompactionOutput {
        created: files,
        placed,
        anchor,
        bytes_in: plan.input_bytes(),
        bytes_out: metas.iter().map(TableMeta::bytes).sum(),
        edit: Edit {
            add: plan.leveled(metas),
            ..edit
        },
        ..CompactionOutput::default()
    })
}

/// Writes the output of `plan`: tables in persistent memory, if `target` is given, else files.
async fn write(
    plan: &Plan,
    around: &LevelContext,
    snapshots: &[SeqNo],
    target: Option<PmTarget>,
    context: &CompactionContext,
) -> Result<Written> {
    let cause = match plan.reason {
        Reason::Flush => Cause::Flush,
        _ => Cause::Compaction,
    };
    let inputs = inputs(plan, &KeyBounds::default(), context.stretch_bytes, cause)?;
    let mut merge = MergeIter::starting(inputs, None).await?;
    if let Some((key, _)) = target.as_ref().and_then(PmTarget::through) {
        // Its versions are judged again from the first one on.
        merge.seek(key, Tag::seek(SeqNo::MAX))?;
    }
    let reserve_percent = context.reserve_percent(around, plan.level);
    let output = Output {
        reserve_percent,
        log_id: plan.log_id(),
        cuts: around.cuts.clone(),
        ..Output::new(cause, plan.reason != Reason::Flush)
    };
    let below = around.below(plan.level);
    write_outputs(merge, snapshots, below, output, target, context).await
}

/// Copies the entries of `plan` within the keys of `task` into files, and those that stay in
/// persistent memory into tables there, which it returns as the second.
///
/// # Errors
/// As [`run`].
pub(super) async fn copy_range(
    task: &CopyTask,
    plan: &Plan,
    around: &LevelContext,
    run: Run<'_>,
) -> Result<(Written, Written)> {
    let (keys, context) = (&task.keys, run.context);
    match Sieve::of(plan, keys, context.pm.as_ref())? {
        None => copy(task, plan, around, run, None).await,
        sieve => match copy(task, plan, around, run, sieve).await {
            // What was to stay leaves as well.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                copy(task, plan, around, run, None).await
            }
            copied => copied,
        },
    }
}

async fn copy(
    task: &CopyTask,
    plan: &Plan,
    around: &LevelContext,
    run: Run<'_>,
    sieve: Option<(Sieve, PmTarget)>,
) -> Result<(Written, Written)> {
    let (keys, context) = (&task.keys, run.context);
    let cause = Cause::Compaction;
    let inputs = inputs(plan, keys, context.stretch_bytes, cause)?;
    let merge = MergeIter::starting(inputs, keys.from.as_deref()).await?;
    let bounded = BoundedEntries {
        entries: merge,
        end: keys.to.as_deref(),
    };
    let output = Output {
        reserve_percent: context.reserve_percent(around, plan.level),
        table_bytes: task.table_bytes,
        cuts: around.cuts.clone(),
        writes: run.writes.cloned(),
        hides: plan.by_range.as_ref().and_then(|by| by.below.clone()),
        ..Output::new(cause, true)
    };
    let below = around.below(plan.level);
    let sieve = sieve.map(|(sieve, target)| {
        let output = Output {
            writes: None,
            table_bytes: None,
            ..output.clone()
        };
        let kept = TablesWriter::of_kept(context, output, target);
        (sieve, Box::new(kept))
    });
    let mut writer = TablesWriter::new(context, output, None);
    writer.sieve = sieve;
    writer.run(bounded, run.snapshots, below).await?;
    let kept = writer.sieve.take().map(|(_, kept)| kept.written);
    Ok((writer.written, kept.unwrap_or_default()))
}

/// Runs `plan` with `above` as the input from above.
///
/// # Errors
/// As [`run`].
pub(crate) async fn run_above(
    above: BufferedEntries,
    plan: &Plan,
    around: &LevelContext,
    snapshots: &[SeqNo],
    context: &CompactionContext,
) -> Result<CompactionOutput> {
    let drop = plan
        .tables
        .iter()
        .map(|(level, run)| (*level, run.meta.id))
        .collect();
    let keys = KeyBounds::default();
    let inputs = inputs(plan, &keys, context.stretch_bytes, Cause::Evict)?;
    let below = MergeIter::starting(inputs, None).await?;
    let reserve_percent = context.reserve_percent(around, plan.level);
    let output = Output {
        reserve_percent,
        ..Output::new(Cause::Evict, true)
    };
    let metas = write_tables(
        MergePair::new(above, below),
        snapshots,
        around.below(plan.level),
        output,
        context,
    )
    .await?;
    Ok(CompactionOutput {
        created: metas.iter().map(|meta| meta.id).collect(),
        bytes_in: plan.input_bytes(),
        bytes_out: metas.iter().map(TableMeta::bytes).sum(),
        edit: Edit {
            add: metas.into_iter().map(|meta| (plan.level, meta)).collect(),
            drop,
            ..Edit::default()
        },
        ..CompactionOutput::default()
    })
}

/// Iterators over the inputs of `plan` that may have keys within `keys`. What follows those is not
/// read ahead.
fn inputs(plan: &Plan, keys: &KeyBounds, bytes: usize, cause: Cause) -> Result<Vec<RunIter>> {
    let access = Access::Streaming { bytes, cause };
    let mut children = over_memtables(&plan.buffers)?;
    // The tables of a level below 0 do not overlap, nor do some of level 0.
    let mut levels: BTreeMap<Level, Vec<Arc<TableRun>>> = BTreeMap::new();
    for (level, run) in plan.tables.iter().filter(|(_, run)| keys.meets(run)) {
        levels.entry(*level).or_default().push(run.clone());
    }
    let end = keys.to.as_deref();
    for (level, runs) in levels {
        if !level.is_zero() {
            let sorted = LevelIter::of(runs, access).until(end);
            children.push(RunIter::Level(Box::new(sorted)));
            continue;
        }
        for group in LevelRuns::new(false, runs).sorted_groups() {
            children.push(match end {
                None => RunIter::over_sorted(group, access)?,
                Some(_) => {
                    let sorted = LevelIter::new(group.clone(), access).until(end);
                    RunIter::Level(Box::new(sorted))
                }
            });
        }
    }
    Ok(children)
}

/// The settings for the output tables.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) cause: Cause,
    /// True if tables are cut at the target size. A flush writes one table.
    pub(crate) split: bool,
    /// Entries above this sequence number are left out.
    pub(crate) seqno_max: SeqNo,
    /// Bits that filters reserve for future keys, in percent of those for the current keys.
    pub(crate) reserve_percent: u32,
    /// The size at which a table is cut, if it is not the target size.
    pub(crate) table_bytes: Option<u64>,
    /// The log of the memtable that is flushed; 0 for other jobs.
    pub(crate) log_id: FileId,
    /// Keys, in order, before which a table always ends: the borders of partitions.
    pub(crate) cuts: Arc<[Box<[u8]>]>,
    /// The queue of writes that a flush coroutine submits, if there is one.
    pub(crate) writes: Option<Arc<WriteQueue>>,
    /// The levels in which entries may be hidden by the output's, if these are estimated.
    pub(crate) hides: Option<Below>,
}

impl Output {
    /// Output of all entries, with filters as large as needed.
    pub(crate) fn new(cause: Cause, split: bool) -> Output {
        Output {
            cause,
            split,
            seqno_max: SeqNo::MAX,
            reserve_percent: 0,
            table_bytes: None,
            log_id: FileId(0),
            cuts: Arc::default(),
            writes: None,
            hides: None,
        }
    }
}

/// Writes the entries of `merge`, from its position on, that some reader needs to new files, in key
/// order. On failure removes them.
///
/// # Errors
/// The error of reading or writing.
pub(crate) async fn write_tables(
    merge: impl Entries,
    snapshots: &[SeqNo],
    below: OverlapTracker,
    output: Output,
    context: &CompactionContext,
) -> Result<Vec<TableMeta>> {
    let written = write_outputs(merge, snapshots, below, output, None, context).await?;
    Ok(written.metas)
}

/// As [`write_tables`], but makes tables in persistent memory if `target` is given.
///
/// # Errors
/// As [`write_tables`].
pub(crate) async fn write_outputs(
    merge: impl Entries,
    snapshots: &[SeqNo],
    below: OverlapTracker,
    output: Output,
    target: Option<PmTarget>,
    context: &CompactionContext,
) -> Result<Written> {
    let written = write_unnamed(merge, snapshots, below, output, target, context).await?;
    if !written.files.is_empty()
        && let Err(error) = context.files.sync_dir(&sites::SST_NAMES_SYNC)
    {
        remove_files(&written.files, context);
        return Err(error);
    }
    Ok(written)
}

/// As [`write_outputs`], but leaves the sync of the files' names to the caller.
pub(super) async fn write_unnamed(
    merge: impl Entries,
    snapshots: &[SeqNo],
    below: OverlapTracker,
    output: Output,
    target: Option<PmTarget>,
    context: &CompactionContext,
) -> Result<Written> {
    let mut writer = TablesWriter::new(context, output, target);
    writer.run(merge, snapshots, below).await?;
    Ok(writer.written)
}

pub(super) fn remove_files(files: &[FileId], context: &CompactionContext) {
    for id in files {
        // A file that cannot be removed now is an orphan, which the next open removes.
        let _left = context.files.remove(FileName::Table(*id));
    }
}

/// Suspends until `entries` moves on without waiting. Called by a task of a crew alone.
pub(super) async fn settle(entries: &mut impl Entries) {
    while let Some(pending) = entries.wants() {
        pending.ready().await;
    }
}

/// The yield points of a compaction.
pub(super) struct Steps<'a> {
    entries: u64,
    stop: &'a AtomicBool,
}

impl<'a> Steps<'a> {
    pub(super) fn new(context: &'a CompactionContext) -> Steps<'a> {
        Steps {
            entries: 0,
            stop: &context.stop,
        }
    }

    /// Counts one entry, and yields every `ENTRIES_PER_STEP`.
    ///
    /// # Errors
    /// `Invalid` if the database is being closed.
    pub(super) async fn step(&mut self) -> Result<()> {
        self.entries += 1;
        if self.entries.is_multiple_of(ENTRIES_PER_STEP) {
            check_open(self.stop)?;
            yield_now().await;
        }
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use crate::{Codec, Db, Durability, Options, WriteOptions};
    use firn_base::seed::mix;

    #[test]
    fn many_small_entries_end_a_table_early() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            memory_limit_bytes: 4 << 20,
            compression: Codec::None,
            ..Options::default()
        };
        let (keys_bytes, table_bytes) = (4 << 20 >> 5, options.limits.table_bytes);
        let db = Db::open(dir.path(), options).unwrap();
        let records = 100_000_u64;
        let process = WriteOptions::new().durability(Durability::Process);
        (0..records).for_each(|i| db.put_with(mix(i).to_be_bytes(), b"", &process).unwrap());
        db.compact().unwrap();
        let levels = db.stats().levels;
        let bytes: u64 = levels.iter().map(|level| level.bytes).sum();
        assert!(bytes < table_bytes, "{bytes} would be one table");
        let tables: usize = levels.iter().map(|level| level.tables).sum();
        assert!(tables as u64 >= records * 8 / keys_bytes, "{tables} tables");
        assert_eq!(
            levels.iter().map(|level| level.entries).sum::<u64>(),
            records
        );
    }
}
