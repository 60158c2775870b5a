//! A cursor over one tree or over the retained versions, in internal key order. Values are read on
//! demand.

use super::release::Generation;
use super::retained::RetainedVersions;
use super::view::{Trees, as_put};
use crate::log::{FLYING_MAX, PendingValue, ValueLogs};
use firn_base::{Result, SeqNo, Tag};
use firn_fs::LARGE_BYTES;
use firn_table::Value;
use firn_table::pm_btree::{TreeIter, ValueAddress, View};
use std::collections::VecDeque;
use std::sync::Arc;

/// A position in level 0, or none.
pub(crate) struct TreesIter {
    source: Source,
    values: Arc<ValueLogs>,
    /// Keeps everything that `source` can reach.
    _generation: Arc<Generation>,
    value: Option<Value>,
    /// Values of later entries that are being read ahead, in order.
    ahead: VecDeque<PendingValue>,
    /// The number of entries to read ahead, doubled each time; 0 while the cursor does not move
    /// forward.
    reach: usize,
}

/// The maximum number of values read ahead.
const REACH_MAX: usize = 16;
/// The maximum bytes of values read ahead.
const AHEAD_BYTES_MAX: usize = 512 << 10;

enum Source {
    Tree(TreeIter),
    RetainedVersions {
        retained: Arc<RetainedVersions>,
        at: usize,
    },
}

impl TreesIter {
    /// One cursor for each part of `trees`.
    pub(crate) fn all(trees: &Trees) -> impl Iterator<Item = TreesIter> {
        let tree =
            |view: &Arc<View>| Source::Tree(TreeIter::new(trees.store.clone(), (**view).clone()));
        let retained = Source::RetainedVersions {
            retained: trees.retained.clone(),
            at: usize::MAX,
        };
        let beside = (!trees.retained.versions().is_empty()).then_some(retained);
        let sources = std::iter::once(tree(&trees.mutable))
            .chain(beside)
            .chain(trees.immutable.as_ref().map(tree));
        sources.map(|source| TreesIter {
            source,
            values: trees.values.clone(),
            _generation: trees.generation.clone(),
            value: None,
            ahead: VecDeque::new(),
            reach: 0,
        })
    }

    fn entry(&self) -> Option<(&[u8], Tag, Option<ValueAddress>)> {
        match &self.source {
            Source::Tree(iter) => iter
                .entry()
                .map(|entry| (entry.key, as_put(entry.tag), entry.address)),
            Source::RetainedVersions { retained, at } => retained
                .versions()
                .get(*at)
                .map(|version| (&*version.key, as_put(version.tag), version.address)),
        }
    }

    pub(crate) fn valid(&self) -> bool {
        self.entry().is_some()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.entry().map_or(&[], |(key, ..)| key)
    }

    pub(crate) fn tag(&self) -> Tag {
        self.entry().map_or(Tag(0), |(_, tag, _)| tag)
    }

    /// The value under the cursor. REQUIRES: `load`.
    pub(crate) fn value(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }

    /// The address of the value under the cursor and the sequence number of its entry. `None` for a
    /// delete.
    pub(crate) fn place(&self) -> Option<(ValueAddress, SeqNo)> {
        let (_, tag, address) = self.entry()?;
        Some((address?, tag.seqno()))
    }

    /// Reads the value under the cursor.
    pub(crate) fn load(&mut self) -> Result<()> {
        let (None, Some((_, tag, Some(address)))) = (&self.value, self.entry()) else {
            return Ok(());
        };
        let asked = self.take_asked(address);
        self.ask_ahead()?;
        self.value = Some(match asked {
            Some(asked) => self.values.finish(asked)?,
            None => self.values.get(address, tag.seqno())?,
        });
        Ok(())
    }

    /// Starts reading the values of the next entries, which are scattered over the logs and cost a
    /// read each.
    fn ask_ahead(&mut self) -> Result<()> {
        let Source::Tree(tree) = &self.source else {
            return Ok(());
        };
        let mut behind = tree.addresses_behind().take(self.reach);
        if let Some(last) = self.ahead.back() {
            let _asked = behind.find(|(_, address)| *address == last.at);
        }
        let mut bytes: usize = self.ahead.iter().map(|asked| asked.at.len as usize).sum();
        for (tag, address) in behind {
            bytes += address.len as usize;
            if bytes > AHEAD_BYTES_MAX {
                break;
            }
            // A guess: the value may never be needed. If it is, `load` meets the error again and
            // reports it.
            let Ok(asked) = self.values.submit(address, tag.seqno()) else {
                break;
            };
            asked.iter().for_each(|_| self.values.ask());
            self.ahead.extend(asked);
        }
        Ok(())
    }

    fn take_asked(&mut self, address: ValueAddress) -> Option<PendingValue> {
        let is_next = self.ahead.front().is_some_and(|asked| asked.at == address);
        is_next.then(|| self.ahead.pop_front()).flatten()
    }

    /// Drops a large value from memory. [`TreesIter::load`] reads it again.
    pub(crate) fn shed(&mut self) {
        self.value.take_if(|value| value.len() >= LARGE_BYTES);
    }

    /// Discards the value under the cursor and all readahead.
    fn turn(&mut self) {
        self.value = None;
        self.ahead.clear();
        self.reach = 0;
    }

    /// Reads the value under the cursor from its log, bypassing the cache.
    pub(crate) fn check_value(&self) -> Result<()> {
        self.values
            .for_each(&[self.place()], || Ok(FLYING_MAX), |_, _| {})
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.turn();
        match &mut self.source {
            Source::Tree(iter) => iter.first(),
            Source::RetainedVersions { at, .. } => {
                *at = 0;
                Ok(())
            }
        }
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.turn();
        match &mut self.source {
            Source::Tree(iter) => iter.last(),
            Source::RetainedVersions { retained, at } => {
                *at = retained.versions().len().wrapping_sub(1);
                Ok(())
            }
        }
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        // If another run had the key, the value read ahead was not used.
        if let Some((_, _, Some(address))) = self.entry() {
            let _unwanted = self.take_asked(address);
        }
        self.value = None;
        self.reach = (2 * self.reach).clamp(2, REACH_MAX);
        match &mut self.source {
            Source::Tree(iter) => iter.next(),
            Source::RetainedVersions { at, .. } => {
                *at = at.saturating_add(1);
                Ok(())
            }
        }
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        self.turn();
        match &mut self.source {
            Source::Tree(iter) => iter.prev(),
            Source::RetainedVersions { at, .. } => {
                *at = at.wrapping_sub(1);
                Ok(())
            }
        }
    }

    /// Moves to the first entry at or after (key, tag).
    pub(crate) fn seek(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.turn();
        match &mut self.source {
            Source::Tree(iter) => {
                iter.seek(key)?;
                // A tree has one entry per key. If it is newer than `tag`, it is before the target.
                match iter
                    .entry()
                    .is_some_and(|entry| entry.key == key && as_put(entry.tag) > tag)
                {
                    true => iter.next(),
                    false => Ok(()),
                }
            }
            Source::RetainedVersions { retained, at } => {
                *at = retained.seek(key, tag);
                Ok(())
            }
        }
    }

    /// Moves to the last entry before (key, tag).
    pub(crate) fn seek_before(&mut self, key: &[u8], tag: Tag) -> Result<()> {
        self.turn();
        match &mut self.source {
            Source::Tree(iter) => {
                iter.seek_for_prev(key)?;
                match iter
                    .entry()
                    .is_some_and(|entry| entry.key == key && as_put(entry.tag) <= tag)
                {
                    true => iter.prev(),
                    false => Ok(()),
                }
            }
            Source::RetainedVersions { retained, at } => {
                *at = retained.seek(key, tag).wrapping_sub(1);
                Ok(())
            }
        }
    }
}
