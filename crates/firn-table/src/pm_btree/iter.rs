//! Iterates over a view's entries in key order, in both directions, with one leaf in memory at a
//! time.

use super::index::{At, View};
use super::leaf::{Entry, ValueAddress};
use super::store::TreeStore;
use firn_base::{Result, Tag};
use std::ops::Range;
use std::sync::Arc;

/// A cursor over one tree, on an entry or on none.
#[derive(Debug)]
pub struct TreeIter {
    store: Arc<TreeStore>,
    view: View,
    at: Option<At>,
    keys: Vec<u8>,
    entries: Vec<(Range<usize>, Tag, Option<ValueAddress>)>,
    /// The index of the current entry; the number of entries if there is none.
    current: usize,
}

impl TreeIter {
    /// A cursor on no entry.
    pub fn new(store: Arc<TreeStore>, view: View) -> Self {
        Self {
            store,
            view,
            at: None,
            keys: Vec::new(),
            entries: Vec::new(),
            current: 0,
        }
    }

    /// The current entry.
    pub fn entry(&self) -> Option<Entry<'_>> {
        let (key, tag, address) = self.entries.get(self.current)?;
        Some(Entry {
            key: &self.keys[key.clone()],
            tag: *tag,
            address: *address,
        })
    }

    /// The tags and value addresses of the entries after the current one, within its leaf.
    pub fn addresses_behind(&self) -> impl Iterator<Item = (Tag, ValueAddress)> + '_ {
        self.entries
            .iter()
            .skip(self.current + 1)
            .filter_map(|(_, tag, address)| Some((*tag, (*address)?)))
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// `Corruption` of a leaf, here and below; the cursor is then on no entry.
    pub fn first(&mut self) -> Result<()> {
        self.load(self.view.first())?;
        self.current = 0;
        self.skip_empty_forward()
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// As [`TreeIter::first`].
    pub fn last(&mut self) -> Result<()> {
        self.load(self.view.last())?;
        self.stop_at_end()
    }

    /// Moves to the first entry that is not below `key`.
    ///
    /// # Errors
    /// As [`TreeIter::first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let at = self.view.locate(key).or(self.view.first());
        if at != self.at || at.is_none() {
            self.load(at)?;
        }
        self.current = self
            .entries
            .partition_point(|(range, ..)| self.keys[range.clone()] < *key);
        self.skip_empty_forward()
    }

    /// Moves to the last entry that is not above `key`.
    ///
    /// # Errors
    /// As [`TreeIter::first`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let at = self.view.locate(key);
        if at != self.at || at.is_none() {
            self.load(at)?;
        }
        match self
            .entries
            .partition_point(|(range, ..)| self.keys[range.clone()] <= *key)
            .checked_sub(1)
        {
            Some(current) => {
                self.current = current;
                Ok(())
            }
            None => self.leaf_before(),
        }
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    /// As [`TreeIter::first`].
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor's `next` borrows its entry"
    )]
    pub fn next(&mut self) -> Result<()> {
        self.current = (self.current + 1).min(self.entries.len());
        self.skip_empty_forward()
    }

    /// Moves to the previous entry.
    ///
    /// # Errors
    /// As [`TreeIter::first`].
    pub fn prev(&mut self) -> Result<()> {
        match self.current.checked_sub(1) {
            Some(current) if self.at.is_some() => {
                self.current = current;
                Ok(())
            }
            _ => self.leaf_before(),
        }
    }

    fn skip_empty_forward(&mut self) -> Result<()> {
        while self.current >= self.entries.len() {
            let Some(at) = self.at else { return Ok(()) };
            self.load(self.view.after(at))?;
            self.current = 0;
        }
        Ok(())
    }

    fn leaf_before(&mut self) -> Result<()> {
        let before = self.at.and_then(|at| self.view.before(at));
        self.load(before)?;
        self.stop_at_end()
    }

    /// Moves to the last entry of this leaf, or of the nearest earlier leaf that has any.
    fn stop_at_end(&mut self) -> Result<()> {
        while self.entries.is_empty() {
            let Some(at) = self.at else { return Ok(()) };
            self.load(self.view.before(at))?;
        }
        self.current = self.entries.len() - 1;
        Ok(())
    }

    /// Reads the leaf at `at`, up to the lower bound of the next one.
    fn load(&mut self, at: Option<At>) -> Result<()> {
        (self.at, self.current) = (None, 0);
        self.keys.clear();
        self.entries.clear();
        let Some(at) = at else { return Ok(()) };
        let (place, upper) = (self.view.place(at), self.view.upper(at));
        let leaf = self.store.read(place)?;
        let mut entries = leaf.entries();
        loop {
            match entries.next() {
                Ok(Some(entry)) if upper.is_none_or(|upper| entry.key < upper) => {
                    let start = self.keys.len();
                    self.keys.extend_from_slice(entry.key);
                    self.entries
                        .push((start..self.keys.len(), entry.tag, entry.address));
                }
                Ok(_) => break,
                Err(_damaged) => {
                    self.entries.clear();
                    return Err(self.store.damaged(place));
                }
            }
        }
        self.at = Some(at);
        Ok(())
    }
}

impl TreeStore {
    /// Looks up `key` in the tree of `view`. The address is `None` for a delete.
    ///
    /// # Errors
    /// `Corruption` of the leaf.
    pub fn get(&self, view: &View, key: &[u8]) -> Result<Option<(Tag, Option<ValueAddress>)>> {
        let Some(at) = view.locate(key) else {
            return Ok(None);
        };
        let place = view.place(at);
        self.read(place)?
            .find(key)
            .map_err(|_damaged| self.damaged(place))
    }
}
