//! Makes trees over the blocks of tables that have none, and installs them.
//!
//! 1. A tree is durable before a record names it. The record need not be: without it the extent is
//!    free at the next open, and the tree is made again.
//! 2. Tables may change while their tree is made. Then it is given up, because the manifest must
//!    not name a tree that is not over what is there.
//! 3. The record that changes tables drops their trees, and is durable. Only then, and behind the
//!    last reader, is the space of a tree free.
//! 4. If a write finds no piece of the pool for its buffer, trees are given up one by one, the last
//!    in the pool first, because it was buffers that took the end of the pool. They are made again.

use crate::compaction::background::Obsolete;
use crate::compaction::plan::Plan;
use crate::compaction::pm_store::PmStore;
use crate::engine::Engine;
use crate::manifest::{BlockTreeMeta, Edit, Level, PoolEdit, Version, ranks};
use crate::read::state::{ReadState, Touched};
use firn_base::{ErrorKind, FileId, Result};
use firn_table::if_tree::IfTree;
use std::collections::HashSet;
use std::sync::Arc;

/// The place of a tree to be made: its levels, and the first key of its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Indexed {
    pub(crate) levels: (Level, Level),
    pub(crate) from: Vec<u8>,
}

impl Indexed {
    /// True if `version` has exactly the tables of `plan` there.
    fn is_over(&self, plan: &Plan, version: &Version) -> bool {
        let found = version.tables_under(self.levels, &self.from);
        let planned = plan.tables.iter();
        let planned = planned.map(|(level, run)| (*level, run.meta.id, run.meta.extent));
        found.is_some_and(|found| {
            let found = found.iter();
            planned.eq(found.map(|(level, table)| (*level, table.id, table.extent)))
        })
    }
}

impl Engine {
    /// Makes the tree of `plan` and installs it, unless there is no room or the tables changed.
    pub(super) fn index(&self, plan: &Plan, indexed: &Indexed) -> Result<()> {
        let Some(PmStore::Trees(store)) = &self.compaction.pm else {
            return Ok(());
        };
        let id = self.next_file_id();
        let former = {
            let state = self.state.load();
            let trees = state.part(&indexed.from).trees.clone();
            trees.and_then(|trees| trees.former(indexed.levels, &indexed.from).cloned())
        };
        let ranks = ranks(plan.tables.iter().map(|(level, _)| *level));
        let tables = plan.tables.iter().map(|(_, run)| run.clone());
        let tables: Vec<_> = ranks.zip(tables).collect();
        let between = || {
            self.yield_point();
        };
        let make = |former| store.make(id, &tables, former, &self.tables, between);
        let made = match make(former.as_deref()) {
            // The one before may be what is damaged. If a table is, this says so again.
            Err(error) if former.is_some() && error.kind() == ErrorKind::Corruption => {
                tracing::warn!(%error, "a tree over blocks is made without the one before");
                make(None)?
            }
            made => made?,
        };
        let Some(new) = made else {
            self.drop_former_trees();
            return Ok(());
        };
        drop(former);
        let Some(extent) = new.extent() else {
            return Ok(());
        };
        let mut manifest = self.manifest.lock();
        if !indexed.is_over(plan, manifest.version()) {
            return Ok(());
        }
        let edit = Edit {
            pool: PoolEdit::with_tree(BlockTreeMeta {
                id,
                levels: indexed.levels,
                from: indexed.from.clone(),
                extent,
            }),
            next_file_id: Some(self.compaction.file_ids.next()),
            ..Edit::default()
        };
        // Otherwise a crash would bring back the name of a damaged one, whose space is free now.
        let durable = manifest.version().trees.has(indexed.levels, &indexed.from);
        if let Err(error) = manifest.append(edit, durable, || self.next_file_id()) {
            if error.kind() == ErrorKind::Poisoned {
                // The record may still turn out to be durable.
                let _kept = new.into_tree();
            }
            return Err(error);
        }
        if let Some(tree) = new.into_tree() {
            self.tables.add_tree(tree);
        }
        let before = self.state.load_full();
        self.swap_in_trees(manifest.version(), &indexed.from);
        let replaced = self.trees_gone(&before);
        drop(before);
        drop(manifest);
        self.retire(replaced);
        Ok(())
    }

    /// Gives up the tree that lies last in the pool, and all that only readers need. False if no
    /// record names one.
    ///
    /// # Errors
    /// The error of the manifest.
    pub(crate) fn give_up_last_tree(&self) -> Result<bool> {
        let mut manifest = self.manifest.lock();
        let trees = manifest.version().trees.iter();
        let last = trees.max_by_key(|tree| tree.extent.offset).cloned();
        if let Some(last) = &last {
            let edit = Edit {
                pool: PoolEdit {
                    trees_dropped: vec![last.id],
                    ..PoolEdit::default()
                },
                ..Edit::default()
            };
            manifest.append(edit, true, || self.next_file_id())?;
        }
        let before = self.state.load_full();
        self.state.rcu(|state| {
            let (version, levels) = (manifest.version(), self.options.levels());
            // A change of borders may have dropped one of a partition that it did not touch.
            let next = state.with_tables(version, Touched::All, &self.tables, levels);
            next.without_former_trees()
        });
        self.tables.placed_are_swapped_in();
        let gone = self.trees_gone(&before);
        drop(before);
        drop(manifest);
        self.retire(gone);
        Ok(last.is_some())
    }

    /// Gives up the trees from which the next were to be made, because there is no room for these.
    fn drop_former_trees(&self) {
        let manifest = self.manifest.lock();
        let before = self.state.load_full();
        self.state.rcu(|state| state.without_former_trees());
        let gone = self.trees_gone(&before);
        drop(before);
        drop(manifest);
        self.retire(gone);
    }

    /// The trees of `before` that the current state does not have. REQUIRES: the manifest's lock,
    /// since `before` was current, so that no other change finds the same ones.
    pub(crate) fn trees_gone(&self, before: &ReadState) -> Vec<Obsolete> {
        let had: Vec<&Arc<IfTree>> = before.trees_held().collect();
        if had.is_empty() {
            return Vec::new();
        }
        let now = self.state.load();
        let has: HashSet<FileId> = now.trees_held().map(|tree| tree.space().id()).collect();
        let gone = had.into_iter();
        let gone = gone.filter(|tree| !has.contains(&tree.space().id()));
        gone.map(|tree| Obsolete::Tree(tree.clone())).collect()
    }
}
