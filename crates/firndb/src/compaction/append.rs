//! Compaction of a table's entries into the tables below it, one table at a time, by appends where
//! that is cheaper (How::Append; BlockDB, III and IV). The plan is cut into sub-tasks, one for each
//! table of the output's level. They share nothing, so they may run concurrently; [`collect`]
//! combines their outputs in key order, whatever the order in which they ended.
//!
//! A sub-task:
//! 1. scans its input to find the blocks that it falls into (`Dirty`), and buffers it if it is
//!    small;
//! 2. chooses the grain (`grain.rs`);
//! 3. merges the input with the dirty blocks, and appends the result to the table; or merges it
//!    with the whole table into new ones.
//!
//! A table without any input stays as it is.
//!
//! A crash before the manifest names the new footer leaves the old one in force, and bytes after it
//! that the next append skips. If a sub-task fails, its new files are removed and its appended
//! bytes are cut off, because it is retried as long as the failure lasts, and may have failed for
//! want of room. No reader has read the bytes that are cut off, so no cache has them under an
//! offset that is reused.

use super::entries::{BoundedEntries, BufferedEntries, MergePair, UpperEntries};
use super::grain::{self, Choice, Grain};
use super::merge::{
    CompactionContext, CompactionOutput, LevelContext, Output, Steps, write_tables,
};
use super::visibility::Versions;
use crate::compaction::plan::Plan;
use crate::event::GrainRule;
use crate::files::FileName;
use crate::manifest::{Edit, Level, TableMeta};
use crate::mechanisms;
use crate::read::merge_iter::{Entries, MergeIter};
use crate::read::run_iter::{LevelIter, RunIter};
use crate::read::table_run::TableRun;
use firn_base::count::Cause;
use firn_base::{FileId, Result, SeqNo, Tag};
use firn_fs::OpenMode;
use firn_table::sites::SST_APPEND_SYNC;
use firn_table::sst::{Access, BlocksIter, Dirty, DirtyFinder, Sst, SstAppender, SstMeta};
use std::sync::Arc;

/// One table of the output's level, and the keys that are merged into it.
#[derive(Debug, Clone)]
pub(crate) struct SubTask {
    child: Arc<TableRun>,
    /// The first user key; the first sub-task has no lower bound.
    from: Option<Vec<u8>>,
    /// The user key after the last; the last sub-task has no upper bound.
    to: Option<Vec<u8>>,
}

/// The output of a sub-task.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    add: Vec<TableMeta>,
    created: Vec<FileId>,
    grown: Option<GrownTable>,
    choice: Option<Choice>,
    pub(crate) bytes_in: u64,
    bytes_out: u64,
}

/// A table with appended blocks, once they are installed.
#[derive(Debug)]
pub(crate) struct GrownTable {
    pub(crate) run: Arc<TableRun>,
    /// Blocks of the table that its new state does not have.
    pub(crate) blocks: Arc<[usize]>,
    /// Bytes of the file before the append.
    file_bytes: u64,
}

impl GrownTable {
    /// Removes the appended blocks.
    pub(crate) fn undo(&self, context: &CompactionContext) {
        cut_back(&self.run, self.file_bytes, context);
        self.run.end_append();
    }
}

/// Truncates the file of `run` to its earlier length.
fn cut_back(run: &TableRun, file_bytes: u64, context: &CompactionContext) {
    let file = context
        .files
        .open(FileName::Table(run.meta.id), OpenMode::Append);
    // Synced, because otherwise a power cut could bring back its footer after the bytes that the
    // next append writes there, and a repair without a manifest would trust it. Bytes that cannot
    // be cut off now are dead: the next append begins after them.
    let _left = file.and_then(|file| {
        file.truncate(file_bytes)
            .and_then(|()| file.sync(&SST_APPEND_SYNC))
    });
}

impl Piece {
    /// Removes the output.
    pub(crate) fn undo(&self, context: &CompactionContext) {
        for id in &self.created {
            // A file that cannot be removed now is an orphan, which the next open removes.
            let _left = context.files.remove(FileName::Table(*id));
        }
        self.grown.iter().for_each(|grown| grown.undo(context));
    }
}

/// The sub-tasks of `plan`, in key order. Borders are user keys, so that a tombstone goes to the
/// same table as the entries that it hides. Keys between two tables go to the earlier one.
pub(crate) fn sub_tasks(plan: &Plan) -> Vec<SubTask> {
    let children: Vec<&Arc<TableRun>> = plan.children().collect();
    let from = |i: usize| {
        (i > 0)
            .then(|| children.get(i))
            .flatten()
            .map(|run| run.meta.smallest.clone())
    };
    let task = |(i, child): (usize, &&Arc<TableRun>)| SubTask {
        child: Arc::clone(child),
        from: from(i),
        to: from(i + 1),
    };
    children.iter().enumerate().map(task).collect()
}

/// The tables of the upper level.
fn upper(plan: &Plan) -> impl Iterator<Item = &Arc<TableRun>> {
    plan.tables
        .iter()
        .filter(|(level, _)| *level != plan.level)
        .map(|(_, run)| run)
}

/// The output of all sub-tasks of `plan`, in the order of [`sub_tasks`], as one edit.
pub(crate) fn collect(plan: &Plan, pieces: Vec<Piece>) -> CompactionOutput {
    let drop = plan
        .tables
        .iter()
        .map(|(level, run)| (*level, run.meta.id))
        .collect();
    let mut made = CompactionOutput {
        edit: Edit {
            drop,
            ..Edit::default()
        },
        ..CompactionOutput::default()
    };
    for piece in pieces {
        made.edit
            .add
            .extend(piece.add.into_iter().map(|meta| (plan.level, meta)));
        made.created.extend(piece.created);
        made.grown.extend(piece.grown);
        made.choices.extend(piece.choice);
        made.bytes_in += piece.bytes_in;
        made.bytes_out += piece.bytes_out;
    }
    made
}

/// Runs one sub-task. If it fails, nothing that it wrote counts.
///
/// # Errors
/// The error of reading or writing.
pub(crate) async fn run_sub_task(
    task: &SubTask,
    plan: &Plan,
    around: &LevelContext,
    snapshots: &[SeqNo],
    context: &CompactionContext,
) -> Result<Piece> {
    let child = task.child.table()?.sst()?.clone();
    let incoming = Incoming {
        task,
        plan,
        context,
    };
    let (dirty, held) = incoming.look_through(&child).await?;
    if dirty.incoming == 0 {
        return Ok(Piece {
            add: vec![TableMeta::clone(&task.child.meta)],
            ..Piece::default()
        });
    }
    let above = incoming.again(held)?;
    let (mut grain, mut rule) = choose(&child, task, &dirty, around, context);
    // From here to the end of the append, every failure must release the right to append.
    if grain == Grain::Block && !task.child.begin_append() {
        (grain, rule) = (Grain::Table, GrainRule::MayNotGrow);
    }
    let mut choice = Choice {
        table: child.id(),
        grain,
        rule,
        blocks: child.blocks(),
        dirty_blocks: dirty.blocks.len(),
        reads_most: 0,
    };
    let merge = Merging {
        around,
        level: plan.level,
        snapshots,
        context,
    };
    let mut piece = match grain {
        Grain::Table => merge.rewrite(&child, above, dirty.incoming_bytes).await?,
        Grain::Block => match merge.append(task, &child, &dirty, above, &mut choice).await {
            Ok(piece) => piece,
            Err(error) => {
                task.child.end_append();
                return Err(error);
            }
        },
    };
    piece.bytes_in += dirty.incoming_bytes;
    piece.choice = Some(choice);
    Ok(piece)
}

fn choose(
    child: &Sst,
    task: &SubTask,
    dirty: &Dirty,
    around: &LevelContext,
    context: &CompactionContext,
) -> (Grain, GrainRule) {
    let Some(tuning) = context
        .appends
        .as_ref()
        .filter(|_| mechanisms::BLOCK_APPEND.is_on())
    else {
        return (Grain::Table, GrainRule::MayNotGrow);
    };
    let meta = &task.child.meta;
    let facts = grain::Facts {
        dirty,
        data_bytes: meta.data_bytes,
        section_bytes: meta.live_bytes().saturating_sub(meta.data_bytes),
        dead_bytes: meta.dead_bytes,
        scans: child.scans(),
        filter_left: child.properties().filter_left(),
        has_filter: child.has_filter(),
        table_bytes: context.limits.table_bytes,
        is_last: around.is_last,
        level_share: around.level_share,
        dead_share: around.dead_share,
    };
    grain::choose(facts, tuning)
}

/// The input of a sub-task, from the upper level.
struct Incoming<'a> {
    task: &'a SubTask,
    plan: &'a Plan,
    context: &'a CompactionContext,
}

impl Incoming<'_> {
    /// The input, positioned on its first entry.
    fn open(&self) -> Result<BoundedEntries<'_, MergeIter>> {
        let access = Access::Streaming {
            bytes: self.context.stretch_bytes,
            cause: Cause::Compaction,
        };
        // Input after the end is for another sub-task to read.
        let of = |run: &Arc<TableRun>| {
            LevelIter::of(vec![run.clone()], access).until(self.task.to.as_deref())
        };
        let iter = |run: &Arc<TableRun>| RunIter::Level(Box::new(of(run)));
        let children = upper(self.plan).map(iter);
        let mut merge = MergeIter::new(children.collect());
        match &self.task.from {
            Some(from) => merge.seek(from, Tag::seek(SeqNo::MAX))?,
            None => merge.first()?,
        }
        Ok(BoundedEntries {
            entries: merge,
            end: self.task.to.as_deref(),
        })
    }

    /// Finds the blocks of `child` that the input falls into, and buffers the input if there is
    /// room.
    async fn look_through(&self, child: &Arc<Sst>) -> Result<(Dirty, Option<BufferedEntries>)> {
        let mut finder = DirtyFinder::new(child.clone());
        let mut held = Some(BufferedEntries::default());
        let mut steps = Steps::new(self.context);
        let mut entries = self.open()?;
        while entries.valid() {
            entries.load()?;
            finder.note(entries.key(), entries.value().len());
            let bytes = entries.key().len() + entries.value().len();
            held = held.filter(|held| held.byte_size() + bytes <= self.context.hold_bytes);
            if let Some(held) = &mut held {
                held.push(&entries);
            }
            entries.next()?;
            steps.step().await?;
        }
        // A block of up to half the target size is small, because two of them make a whole one.
        let small_bytes = if mechanisms::BLOCK_COALESCE.is_on() {
            self.context.sst.block_bytes / 2
        } else {
            0
        };
        Ok((finder.finish(small_bytes), held))
    }

    /// The input for a second time, from its first entry.
    fn again(&self, held: Option<BufferedEntries>) -> Result<UpperEntries<'_>> {
        Ok(match held {
            Some(held) => UpperEntries::Buffered(held),
            None => UpperEntries::Read(self.open()?),
        })
    }
}

/// The size at which to cut `bytes` into tables of about `target`, so that none is a small
/// remainder. A sub-task ends where its table ended, so nothing would ever merge the remainders.
fn even_cut(bytes: u64, target: u64) -> u64 {
    let tables = ((bytes + target / 2) / target).max(1);
    // The bytes are not known exactly, so each table may be a little larger, rather than there
    // being one more.
    bytes / tables + bytes / tables / 8
}

/// The context of a sub-task for both grains.
struct Merging<'a> {
    around: &'a LevelContext,
    level: Level,
    snapshots: &'a [SeqNo],
    context: &'a CompactionContext,
}

impl Merging<'_> {
    /// Table-grained: writes all of `child` into new tables.
    async fn rewrite(
        &self,
        child: &Arc<Sst>,
        above: UpperEntries<'_>,
        incoming_bytes: u64,
    ) -> Result<Piece> {
        let context = self.context;
        let access = Access::Streaming {
            bytes: context.stretch_bytes,
            cause: Cause::Compaction,
        };
        let below = MergeIter::at_first(vec![RunIter::Sst(Box::new(child.iter(access)))])?;
        let reserve_percent = context.reserve_percent(self.around, self.level);
        let live_bytes = child.extent().valid_len - child.dead_bytes();
        let table_bytes = Some(even_cut(
            live_bytes + incoming_bytes,
            context.limits.table_bytes,
        ));
        let output = Output {
            reserve_percent,
            table_bytes,
            cuts: self.around.cuts.clone(),
            ..Output::new(Cause::Compaction, true)
        };
        let deeper = self.around.below(self.level);
        let add = write_tables(
            MergePair::new(above, below),
            self.snapshots,
            deeper,
            output,
            context,
        )
        .await?;
        Ok(Piece {
            created: add.iter().map(|meta| meta.id).collect(),
            bytes_in: live_bytes,
            bytes_out: add.iter().map(TableMeta::bytes).sum(),
            add,
            ..Piece::default()
        })
    }

    /// Block-grained: appends the dirty blocks of `child` after its end.
    async fn append(
        &self,
        task: &SubTask,
        child: &Arc<Sst>,
        dirty: &Dirty,
        above: UpperEntries<'_>,
        choice: &mut Choice,
    ) -> Result<Piece> {
        let context = self.context;
        let mode = if context.direct {
            OpenMode::AppendDirect
        } else {
            OpenMode::Append
        };
        let file = context.files.open(FileName::Table(child.id()), mode)?;
        let file_bytes = file.len()?;
        let start = SstAppender::start(child, file_bytes);
        let counters = context.counters.clone();
        let appender = SstAppender::new(
            child.clone(),
            dirty,
            file,
            start,
            &context.sst,
            counters,
            Cause::Compaction,
        );
        let appended = self.fill(appender, child, dirty, above, choice).await;
        if appended.is_err() {
            cut_back(&task.child, file_bytes, context);
        }
        let mut piece = Piece {
            bytes_in: dirty.bytes,
            ..Piece::default()
        };
        match appended? {
            Some(meta) => {
                piece.bytes_out = meta.extent.valid_len - start;
                piece.add.push(TableMeta::new(child.id(), meta));
                piece.grown = Some(GrownTable {
                    run: task.child.clone(),
                    blocks: dirty.blocks.clone(),
                    file_bytes,
                });
            }
            // Nothing of the table is left, and nothing was appended. It is removed, or stays as it
            // is if another sub-task fails.
            None => task.child.end_append(),
        }
        Ok(piece)
    }

    /// Fills `appender` with the dirty blocks of `child` and the input, and finishes it. `None` if
    /// nothing is left of the table.
    async fn fill(
        &self,
        mut appender: SstAppender,
        child: &Arc<Sst>,
        dirty: &Dirty,
        above: UpperEntries<'_>,
        choice: &mut Choice,
    ) -> Result<Option<SstMeta>> {
        let context = self.context;
        let alone = !mechanisms::BLOCK_READS.is_on();
        let mut below = BlocksIter::new(
            child.clone(),
            dirty.blocks.clone(),
            context.stretch_bytes,
            Cause::Compaction,
            alone,
        )?;
        let mut versions = Versions::new(self.snapshots);
        let mut deeper = self.around.below(self.level);
        let mut steps = Steps::new(context);
        let mut merge = MergePair::new(above, &mut below);
        if merge.valid() {
            deeper.begin_at(merge.key());
        }
        while merge.valid() {
            let (key, tag) = (merge.key(), merge.tag());
            deeper.walk(key);
            if versions.keep(key, tag, || deeper.is_bottom(key)) {
                merge.load()?;
                appender.add(merge.key(), merge.tag(), merge.value())?;
            }
            merge.next()?;
            steps.step().await?;
        }
        choice.reads_most = below.reads_most();
        if appender.is_empty() {
            Ok(None)
        } else {
            appender.finish(below.seen()).map(Some)
        }
    }
}
