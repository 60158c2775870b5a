//! Makes trees over the blocks of tables that have none, and installs them.
//!
//! 1. A tree is durable before a record names it. The record need not be: without it the extent is
//!    free at the next open, and the tree is made again.
//! 2. Tables may change while their tree is made. Then it is given up, because the manifest must not
//!    name a tree that is not over what is there.
//! 3. The record that changes tables drops their trees, and is durable. Only then, and behind the
//!    last reader, is the space of a tree free.

use crate::compaction::background::Obsolete;
use crate::compaction::plan::Plan;
use crate::compaction::pm_store::PmStore;
use crate::engine::Engine;
use crate::manifest::{BlockTreeMeta, Edit, Level, Version};
use crate::read::block_trees::TreeRun;
use crate::read::state::ReadState;
use firn_base::{ErrorKind, FileId, Result};
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
            planned.eq(found.map(|(_, level, table)| (*level, table.id, table.extent)))
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
        let mut rank = 0;
        let mut before = None;
        let ranked = plan.tables.iter().map(|(level, run)| {
            if before.is_some_and(|before| before != *level || level.is_zero()) {
                rank += 1;
            }
            before = Some(*level);
            (rank, run.clone())
        });
        let ranked: Vec<_> = ranked.collect();
        let Some(new) = store.make(id, &ranked, self.tables.context())? else {
            return Ok(());
        };
        let Some(extent) = new.extent() else {
            return Ok(());
        };
        let mut manifest = self.manifest.lock();
        if !indexed.is_over(plan, manifest.version()) {
            return Ok(());
        }
        let edit = Edit {
            trees_added: vec![BlockTreeMeta {
                id,
                levels: indexed.levels,
                from: indexed.from.clone(),
                extent,
            }],
            next_file_id: Some(self.compaction.file_ids.next()),
            ..Edit::default()
        };
        let before = self.state.load_full();
        if let Err(error) = manifest.append(edit, false, || self.next_file_id()) {
            if error.kind() == ErrorKind::Poisoned {
                // The record may still turn out to be durable.
                let _kept = new.into_tree();
            }
            return Err(error);
        }
        if let Some(tree) = new.into_tree() {
            self.tables.add_tree(tree);
        }
        self.swap_in_trees(manifest.version(), &indexed.from);
        // A damaged one that this replaces is named until the next durable record.
        let replaced = self.trees_gone(&before);
        if !replaced.is_empty() {
            manifest.make_durable(|| self.next_file_id())?;
        }
        drop(manifest);
        self.retire(replaced);
        Ok(())
    }

    /// The trees of `before` that the current state does not have.
    pub(crate) fn trees_gone(&self, before: &ReadState) -> Vec<Obsolete> {
        let had: Vec<&Arc<TreeRun>> = before.trees().collect();
        if had.is_empty() {
            return Vec::new();
        }
        let now = self.state.load();
        let has: HashSet<FileId> = now.trees().map(|tree| tree.id()).collect();
        let gone = had.into_iter().filter(|tree| !has.contains(&tree.id()));
        gone.map(|tree| Obsolete::Tree(tree.clone())).collect()
    }
}
