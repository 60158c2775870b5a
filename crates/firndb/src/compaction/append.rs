//! Compaction of a table's entries into the tables below it, one table at a time, by appends where
//! that is cheaper (How::Append; BlockDB, III and IV). The plan is cut into sub-tasks
//! (`sub_task.rs`), one for each table of the output's level.
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
use super::merge::{CompactionContext, LevelContext, Output, Steps, settle, write_unnamed};
use super::sub_task::{KeyBounds, Piece, Run, even_cut};
use super::visibility::Versions;
use crate::compaction::plan::Plan;
use crate::event::GrainRule;
use crate::files::FileName;
use crate::manifest::{Level, TableMeta};
use crate::mechanisms;
use crate::read::merge_iter::{Entries, MergeIter};
use crate::read::run_iter::{LevelIter, RunIter};
use crate::read::table_run::TableRun;
use firn_base::Result;
use firn_base::count::Cause;
use firn_base::exec::may_suspend;
use firn_fs::OpenMode;
use firn_table::sites::SST_APPEND_SYNC;
use firn_table::sst::{
    Access, BlocksIter, Dirty, DirtyFinder, Sst, SstAppender, SstMeta, SstOptions,
};
use std::sync::Arc;

/// One table of the output's level, and the keys that are merged into it.
#[derive(Debug, Clone)]
pub(crate) struct AppendTask {
    child: Arc<TableRun>,
    pub(super) keys: KeyBounds,
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

/// The sub-tasks of `plan`, in key order. Borders are user keys, so that a tombstone goes to the
/// same table as the entries that it hides. Keys between two tables go to the earlier one.
pub(super) fn append_tasks(plan: &Plan) -> Vec<AppendTask> {
    let children: Vec<&Arc<TableRun>> = plan.children().collect();
    let from = |i: usize| {
        (i > 0)
            .then(|| children.get(i))
            .flatten()
            .map(|run| run.meta.smallest.clone())
    };
    let task = |(i, child): (usize, &&Arc<TableRun>)| AppendTask {
        child: Arc::clone(child),
        keys: KeyBounds {
            from: from(i),
            to: from(i + 1),
        },
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

/// Runs one sub-task. If it fails, nothing that it wrote counts.
///
/// # Errors
/// The error of reading or writing.
pub(super) async fn run_append(
    task: &AppendTask,
    plan: &Plan,
    around: &LevelContext,
    run: Run<'_>,
) -> Result<Piece> {
    let context = run.context;
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
    let above = incoming.again(held).await?;
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
        run,
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
    task: &AppendTask,
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
    task: &'a AppendTask,
    plan: &'a Plan,
    context: &'a CompactionContext,
}

impl Incoming<'_> {
    /// The input, positioned on its first entry.
    async fn open(&self) -> Result<BoundedEntries<'_, MergeIter>> {
        let access = Access::Streaming {
            bytes: self.context.stretch_bytes,
            cause: Cause::Compaction,
        };
        // Input after the end is for another sub-task to read.
        let of = |run: &Arc<TableRun>| {
            LevelIter::of(vec![run.clone()], access).until(self.task.keys.to.as_deref())
        };
        let iter = |run: &Arc<TableRun>| RunIter::Level(Box::new(of(run)));
        let children = upper(self.plan).map(iter);
        let merge = MergeIter::starting(children.collect(), self.task.keys.from.as_deref());
        Ok(BoundedEntries {
            entries: merge.await?,
            end: self.task.keys.to.as_deref(),
        })
    }

    /// Finds the blocks of `child` that the input falls into, and buffers the input if there is
    /// room.
    async fn look_through(&self, child: &Arc<Sst>) -> Result<(Dirty, Option<BufferedEntries>)> {
        let mut finder = DirtyFinder::new(child.clone());
        let mut held = Some(BufferedEntries::default());
        let mut steps = Steps::new(self.context);
        let mut entries = self.open().await?;
        let suspends = may_suspend();
        while entries.valid() {
            entries.load()?;
            finder.note(entries.key(), entries.value().len());
            let bytes = entries.key().len() + entries.value().len();
            held = held.filter(|held| held.byte_size() + bytes <= self.context.hold_bytes);
            if let Some(held) = &mut held {
                held.push(&entries);
            }
            if suspends {
                settle(&mut entries).await;
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
    async fn again(&self, held: Option<BufferedEntries>) -> Result<UpperEntries<'_>> {
        Ok(match held {
            Some(held) => UpperEntries::Buffered(held),
            None => UpperEntries::Read(self.open().await?),
        })
    }
}

/// The context of a sub-task for both grains.
struct Merging<'a> {
    around: &'a LevelContext,
    level: Level,
    run: Run<'a>,
}

impl Merging<'_> {
    /// Table-grained: writes all of `child` into new tables.
    async fn rewrite(
        &self,
        child: &Arc<Sst>,
        above: UpperEntries<'_>,
        incoming_bytes: u64,
    ) -> Result<Piece> {
        let context = self.run.context;
        let access = Access::Streaming {
            bytes: context.stretch_bytes,
            cause: Cause::Compaction,
        };
        let below = vec![RunIter::Sst(Box::new(child.iter(access)))];
        let below = MergeIter::starting(below, None).await?;
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
            writes: self.run.writes.cloned(),
            ..Output::new(Cause::Compaction, true)
        };
        let deeper = self.around.below(self.level);
        let merge = MergePair::new(above, below);
        let snapshots = self.run.snapshots;
        let written = write_unnamed(merge, snapshots, deeper, output, None, context).await?;
        let add = written.metas;
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
        task: &AppendTask,
        child: &Arc<Sst>,
        dirty: &Dirty,
        above: UpperEntries<'_>,
        choice: &mut Choice,
    ) -> Result<Piece> {
        let context = self.run.context;
        let mode = if context.direct {
            OpenMode::AppendDirect
        } else {
            OpenMode::Append
        };
        let file = context.files.open(FileName::Table(child.id()), mode)?;
        let file_bytes = file.len()?;
        let start = SstAppender::start(child, file_bytes);
        let counters = context.counters.clone();
        let options = SstOptions {
            writes: self.run.writes.cloned(),
            ..context.sst.clone()
        };
        let appender = SstAppender::new(
            child.clone(),
            dirty,
            file,
            start,
            &options,
            counters,
            Cause::Compaction,
        )?;
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
        let context = self.run.context;
        let alone = !mechanisms::BLOCK_READS.is_on();
        let mut below = BlocksIter::new(
            child.clone(),
            dirty.blocks.clone(),
            context.stretch_bytes,
            Cause::Compaction,
            alone,
        );
        let suspends = may_suspend();
        while let Some(pending) = below.wants().filter(|_| suspends) {
            pending.ready().await;
        }
        below.first()?;
        let mut versions = Versions::new(self.run.snapshots);
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
                while let Some(pending) = appender.wants().filter(|_| suspends) {
                    pending.ready().await;
                }
                appender.add(merge.key(), merge.tag(), merge.value())?;
            }
            if suspends {
                settle(&mut merge).await;
            }
            merge.next()?;
            steps.step().await?;
        }
        choice.reads_most = below.reads_most();
        if appender.is_empty() {
            Ok(None)
        } else {
            appender.end(below.seen()).await.map(Some)
        }
    }
}
