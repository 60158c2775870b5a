//! The trees over blocks that the manifest names. A tree is over the tables of some levels of a
//! range, and lives as long as these are the same: every edit that changes one of them, or the
//! borders of the range, drops the tree without saying so. So a tree that a version has is over
//! exactly the tables that it has there.

use super::Level;
use super::parts::Layout;
use firn_base::FileId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A tree over blocks as recorded in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockTreeMeta {
    pub(crate) id: FileId,
    /// The first and the last level whose tables it is over. Level 0 is alone.
    pub(crate) levels: (Level, Level),
    /// The first key of the range or, if it is over level 0, of the partition.
    pub(crate) from: Vec<u8>,
    pub(crate) extent: firn_pm::Extent,
}

impl BlockTreeMeta {
    /// True if it is over tables of `level`.
    pub(crate) fn has(&self, level: Level) -> bool {
        self.levels.0 <= level && level <= self.levels.1
    }

    fn key(&self) -> Place {
        (self.from.clone(), self.levels.0)
    }
}

/// The ranks of the runs of tables on these levels, which come from level 0 down: each table of
/// level 0 is a run of its own, and each other level is one.
pub(crate) fn ranks(levels: impl IntoIterator<Item = Level>) -> impl Iterator<Item = u32> {
    let next = |before: &mut (Option<Level>, u32), level: Level| {
        let (last, rank) = *before;
        let is_same = last == Some(level) && !level.is_zero();
        let rank = rank + u32::from(last.is_some() && !is_same);
        *before = (Some(level), rank);
        Some(rank)
    };
    levels.into_iter().scan((None, 0), next)
}

/// The trees of a version, by the first key of the range and the first level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BlockTrees(Arc<BTreeMap<Place, Arc<BlockTreeMeta>>>);

/// The first key of a tree's range, and its first level.
type Place = (Vec<u8>, Level);

/// The first key of the range, or on level 0 of the partition, that has `key`.
fn start_of<'a>(layout: &'a Layout, level: Level, key: &[u8]) -> &'a [u8] {
    let part = layout.part_of(key);
    match level {
        Level::ZERO => layout.range(part).0,
        _ => layout.range_of(part, key).0,
    }
}

impl BlockTrees {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if one is over these levels of the range that begins with `from`.
    pub(crate) fn has(&self, levels: (Level, Level), from: &[u8]) -> bool {
        let tree = self.0.get(&(from.to_vec(), levels.0));
        tree.is_some_and(|tree| tree.levels == levels)
    }

    /// The trees, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<BlockTreeMeta>> {
        self.0.values()
    }

    /// The trees of the ranges that begin in a range of keys.
    pub(crate) fn within<'a>(
        &'a self,
        (from, to): (&[u8], Option<&'a [u8]>),
    ) -> impl Iterator<Item = &'a Arc<BlockTreeMeta>> {
        let trees = self.0.range((from.to_vec(), Level::ZERO)..);
        let trees = trees.take_while(move |((key, _), _)| to.is_none_or(|to| **key < *to));
        trees.map(|(_, tree)| tree)
    }

    /// Drops the trees over the tables of `level` where `key` is.
    pub(super) fn drop_of(&mut self, layout: &Layout, level: Level, key: &[u8]) {
        if self.is_empty() {
            return;
        }
        let from = start_of(layout, level, key).to_vec();
        let of_range = self.0.range((from.clone(), Level::ZERO)..);
        let of_range = of_range.take_while(|((key, _), _)| *key == from);
        let dropped = of_range.filter(|(_, tree)| tree.has(level));
        let dropped: Vec<_> = dropped.map(|(key, _)| key.clone()).collect();
        self.remove(&dropped);
    }

    /// Drops the trees on both sides of a border that comes or goes, of level 0 too if it is one of
    /// partitions. Where the range before the border has none, those of another one go, which costs
    /// no more than making them again.
    pub(super) fn drop_at(&mut self, border: &[u8], of_partitions: bool) {
        if self.is_empty() {
            return;
        }
        let is_of = |is_level0: bool| move |key: &&Place| key.1.is_zero() == is_level0;
        let mut dropped = Vec::new();
        for is_level0 in [false, true]
            .into_iter()
            .filter(|zero| of_partitions || !zero)
        {
            let before = self.0.range(..(border.to_vec(), Level::ZERO)).rev();
            let mut before = before.map(|(key, _)| key).filter(is_of(is_level0));
            let before = before.next().map(|(from, _)| from.clone());
            for from in before.into_iter().chain([border.to_vec()]) {
                let of_range = self.0.range((from.clone(), Level::ZERO)..);
                let of_range = of_range.map(|(key, _)| key);
                let of_range = of_range.take_while(|(key, _)| *key == from);
                dropped.extend(of_range.filter(is_of(is_level0)).cloned());
            }
        }
        self.remove(&dropped);
    }

    /// Drops the tree with this id. False if there is none.
    pub(crate) fn drop_one(&mut self, id: FileId) -> bool {
        let dropped = self.0.iter().find(|(_, tree)| tree.id == id);
        let dropped = dropped.map(|(key, _)| key.clone());
        self.remove(dropped.as_slice());
        dropped.is_some()
    }

    fn remove(&mut self, keys: &[Place]) {
        if !keys.is_empty() {
            let trees = Arc::make_mut(&mut self.0);
            keys.iter().for_each(|key| drop(trees.remove(key)));
        }
    }

    /// Adds a tree. The error is the name of the invariant that it breaks.
    pub(super) fn add(
        &mut self,
        layout: &Layout,
        tree: &BlockTreeMeta,
    ) -> Result<(), &'static str> {
        let (first, last) = tree.levels;
        if start_of(layout, first, &tree.from) != tree.from || first.is_zero() != last.is_zero() {
            return Err("covering: a tree of a range that is not there");
        }
        // One over the same tables takes the place of a damaged one.
        let clashes = |other: &Arc<BlockTreeMeta>| {
            let overlaps = other.levels.0 <= last && first <= other.levels.1;
            other.from == tree.from && overlaps && other.levels != tree.levels
        };
        if self.within((&tree.from, None)).take(3).any(clashes) {
            return Err("covering: two trees over one table");
        }
        Arc::make_mut(&mut self.0).insert(tree.key(), Arc::new(tree.clone()));
        Ok(())
    }
}
