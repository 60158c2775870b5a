//! One run that a lookup searches, of any kind, and one lookup in flight.

use crate::log::PendingValue;
use crate::read::block_trees::{PendingTree, TreeRun, TreeStep};
use crate::read::table::Table;
use crate::read::table_run::TableRun;
use crate::upper::{Lookup, Upper};
use firn_base::{Result, Tag};
use firn_table::sst::{GetStep, Got, PendingBlock, Query, Sst};
use std::sync::Arc;

/// A run: sorted entries with one lookup.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Run<'a> {
    Upper(&'a Upper),
    Table(&'a Arc<TableRun>),
    /// All tables that a tree is over.
    Tree(&'a TreeRun),
}

/// A read in flight that a lookup waits for.
pub(crate) enum Pending<'a> {
    Block(Arc<Sst>, PendingBlock),
    Value(&'a Upper, Tag, PendingValue),
    Tree(Box<PendingTree<'a>>),
}

/// The result of a lookup, or the read that it waits for.
pub(crate) enum Step<'a> {
    Done(Got),
    Pending(Pending<'a>),
}

impl<'a> Run<'a> {
    /// The newest entry of the query's key that its read point sees.
    #[inline(always)]
    pub(crate) fn get(self, query: &Query<'_>) -> Result<Got> {
        match self {
            Run::Upper(upper) => upper.get(query),
            Run::Table(run) => run.table()?.get(query),
            Run::Tree(tree) => tree.get(query),
        }
    }

    /// As [`Run::get`], but does not wait for a read.
    pub(crate) fn begin_get(self, query: &Query<'_>) -> Result<Step<'a>> {
        match self {
            Run::Upper(upper) => Ok(match upper.begin_get(query)? {
                Lookup::Done(got) => Step::Done(got),
                Lookup::Pending(tag, value) => Step::Pending(Pending::Value(upper, tag, value)),
            }),
            Run::Tree(tree) => Ok(match tree.begin_get(query)? {
                TreeStep::Done(got) => Step::Done(got),
                TreeStep::Pending(pending) => Step::Pending(Pending::Tree(pending)),
            }),
            Run::Table(run) => match &*run.table()? {
                Table::List(list) => list.get(query).map(Step::Done),
                Table::Sorted(table) => table.get(query).map(Step::Done),
                Table::Sst(sst) => Ok(match sst.begin_get(query)? {
                    GetStep::Done(got) => Step::Done(got),
                    GetStep::Pending(block) => Step::Pending(Pending::Block(sst.clone(), block)),
                }),
            },
        }
    }
}

impl Pending<'_> {
    /// Waits for the read and completes the lookup.
    pub(crate) fn finish(self, query: &Query<'_>) -> Result<Got> {
        match self {
            Pending::Block(table, block) => table.finish_get(block, query),
            Pending::Value(upper, tag, value) => upper.finish_get(query, tag, value),
            Pending::Tree(pending) => pending.finish(query),
        }
    }
}
