//! The parts of a compaction, by key range. They share nothing, so they may run concurrently;
//! [`collect`] combines their outputs in key order, whatever the order in which they ended.
//!
//! An append is cut at each table of the output's level (`append.rs`). A copy is cut into parts of
//! several tables, by what the plan and the limits say alone. So its tables are the same bytes,
//! except for their ids, whoever runs the parts.

use super::append::{AppendTask, GrownTable, append_tasks, run_append};
use super::grain::Choice;
use super::merge::{CompactionContext, CompactionOutput, LevelContext, copy_range};
use crate::compaction::plan::{How, Plan};
use crate::files::FileName;
use crate::manifest::{Edit, Level, TableMeta};
use crate::read::pm_space::NewTable;
use crate::read::table_run::TableRun;
use firn_base::{FileId, Limits, Result, SeqNo};
use firn_fs::WriteQueue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The least size of a part of a copy, in output tables, so that tables of even size can be near
/// the target.
const COPY_TABLES_MIN: u64 = 2;
/// The most parts of a copy.
const COPY_PARTS_MAX: u64 = 16;

/// A part of a compaction.
#[derive(Debug, Clone)]
pub(crate) enum SubTask {
    Append(AppendTask),
    Copy(CopyTask),
}

/// Keys from the first to before the last; `None` for no bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyBounds {
    pub(super) from: Option<Vec<u8>>,
    pub(super) to: Option<Vec<u8>>,
}

impl KeyBounds {
    /// True if a table may have keys within the bounds.
    pub(super) fn meets(&self, run: &TableRun) -> bool {
        let from = self.from.as_deref();
        let to = self.to.as_deref();
        from.is_none_or(|from| from <= run.meta.largest.as_slice())
            && to.is_none_or(|to| run.meta.smallest.as_slice() < to)
    }
}

/// A range of keys that is copied.
#[derive(Debug, Clone, Default)]
pub(crate) struct CopyTask {
    pub(super) keys: KeyBounds,
    /// The size at which a table is cut, if it is not the target size.
    pub(super) table_bytes: Option<u64>,
}

/// The surroundings of a sub-task.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) snapshots: &'a [SeqNo],
    pub(crate) context: &'a CompactionContext,
    /// The queue of writes that a flush coroutine submits, if there is one.
    pub(crate) writes: Option<&'a Arc<WriteQueue>>,
}

/// The output of a sub-task.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(super) add: Vec<TableMeta>,
    /// Tables of the level above the output's, in persistent memory.
    pub(super) kept: Vec<TableMeta>,
    pub(super) placed: Vec<NewTable>,
    pub(super) created: Vec<FileId>,
    pub(super) grown: Option<GrownTable>,
    pub(super) choice: Option<Choice>,
    pub(crate) bytes_in: u64,
    pub(super) bytes_out: u64,
}

impl Piece {
    /// True if it made files, whose names are not durable yet.
    pub(crate) fn has_files(&self) -> bool {
        !self.created.is_empty()
    }

    /// Removes the output.
    pub(crate) fn undo(&self, context: &CompactionContext) {
        for id in &self.created {
            // A file that cannot be removed now is an orphan, which the next open removes.
            let _left = context.files.remove(FileName::Table(*id));
        }
        self.grown.iter().for_each(|grown| grown.undo(context));
    }
}

/// The sub-tasks of `plan`, in key order.
pub(crate) fn sub_tasks(plan: &Plan, limits: &Limits) -> Vec<SubTask> {
    match plan.how {
        How::Append => append_tasks(plan)
            .into_iter()
            .map(SubTask::Append)
            .collect(),
        _ => copy_tasks(plan, limits)
            .into_iter()
            .map(SubTask::Copy)
            .collect(),
    }
}

/// The parts of a copy: as many as have enough tables, with borders where a table of the lowest
/// sorted level begins.
fn copy_tasks(plan: &Plan, limits: &Limits) -> Vec<CopyTask> {
    let bytes = plan.input_bytes();
    let parts = (bytes / (COPY_TABLES_MIN * limits.table_bytes)).min(COPY_PARTS_MAX);
    let mut sorted: BTreeMap<_, Vec<&TableRun>> = BTreeMap::new();
    for (level, run) in plan.tables.iter().filter(|(level, _)| !level.is_zero()) {
        sorted.entry(*level).or_default().push(run);
    }
    let Some((_, mut tables)) = sorted.pop_last().filter(|_| parts > 1) else {
        return vec![CopyTask::default()];
    };
    tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let of = |run: &TableRun| run.meta.live_bytes();
    let all: u64 = tables.iter().map(|run| of(run)).sum();
    // (first key, bytes of the tables in it)
    let mut ranges: Vec<(Option<Vec<u8>>, u64)> = vec![(None, 0)];
    let mut before = 0;
    for run in tables {
        let is_due = before * parts >= all * ranges.len() as u64;
        match ranges.last_mut() {
            Some((_, held)) if !(is_due && *held > 0) => *held += of(run),
            _ => ranges.push((Some(run.meta.smallest.clone()), of(run))),
        }
        before += of(run);
    }
    if ranges.len() == 1 {
        return vec![CopyTask::default()];
    }
    let ends = ranges.iter().skip(1).map(|(from, _)| from.clone());
    let ends: Vec<_> = ends.chain([None]).collect();
    let task = |((from, held), to): ((_, u64), _)| {
        // The tables above are taken to lie as these do.
        let part = u128::from(bytes) * u128::from(held) / u128::from(all.max(1));
        CopyTask {
            keys: KeyBounds { from, to },
            table_bytes: Some(even_cut(part as u64, limits.table_bytes)),
        }
    };
    ranges.into_iter().zip(ends).map(task).collect()
}

/// The size at which to cut `bytes` into tables of about `target`, so that none is a small
/// remainder. A sub-task ends where its table ended, so nothing would ever merge the remainders.
pub(super) fn even_cut(bytes: u64, target: u64) -> u64 {
    let tables = ((bytes + target / 2) / target).max(1);
    // The bytes are not known exactly, so each table may be a little larger, rather than there
    // being one more.
    bytes / tables + bytes / tables / 8
}

/// Opens the tables that `task` reads. Its caller may block, and the task must not.
///
/// # Errors
/// The error of opening one.
pub(crate) fn open_inputs(task: &SubTask, plan: &Plan) -> Result<()> {
    let keys = match task {
        SubTask::Append(task) => &task.keys,
        SubTask::Copy(task) => &task.keys,
    };
    let tables = plan.tables.iter().map(|(_, run)| run);
    tables
        .filter(|run| keys.meets(run))
        .try_for_each(|run| run.table().map(drop))
}

/// Runs one sub-task. If it fails, nothing that it wrote counts.
///
/// # Errors
/// The error of reading or writing.
pub(crate) async fn run_sub_task(
    task: &SubTask,
    plan: &Plan,
    around: &LevelContext,
    run: Run<'_>,
) -> Result<Piece> {
    match task {
        SubTask::Append(task) => run_append(task, plan, around, run).await,
        SubTask::Copy(task) => {
            let (written, kept) = copy_range(task, plan, around, run).await?;
            let add = written.metas;
            Ok(Piece {
                created: written.files,
                bytes_out: add.iter().chain(&kept.metas).map(TableMeta::bytes).sum(),
                add,
                kept: kept.metas,
                placed: kept.placed,
                ..Piece::default()
            })
        }
    }
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
    if plan.how == How::Copy {
        made.bytes_in = plan.input_bytes();
    }
    for piece in pieces {
        made.edit.add.extend(plan.leveled(piece.add));
        let above = Level(plan.level.0.saturating_sub(1));
        made.edit
            .add
            .extend(piece.kept.into_iter().map(|meta| (above, meta)));
        made.placed.extend(piece.placed);
        made.created.extend(piece.created);
        made.grown.extend(piece.grown);
        made.choices.extend(piece.choice);
        made.bytes_in += piece.bytes_in;
        made.bytes_out += piece.bytes_out;
    }
    made
}
