//! Reads a whole tree and checks everything that it claims about itself.

use super::index::View;
use super::layout::Place;
use super::leaf::{Damaged, Entry, Leaf};
use super::store::TreeStore;
use firn_base::{Error, Result};

/// The totals of a verified tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeReport {
    /// Leaves.
    pub leaves: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of leaves, including headers and bounds.
    pub leaf_bytes: u64,
    /// Bytes of keys.
    pub key_bytes: u64,
}

impl Leaf {
    /// Passes every entry below `upper` to `see`. Checks that the entries are in order and not
    /// below the leaf's bound, and that no address names a log newer than the header does.
    pub(super) fn check(
        &self,
        upper: Option<&[u8]>,
        mut see: impl FnMut(&Entry<'_>),
    ) -> Result<(), Damaged> {
        let mut entries = self.entries();
        let mut last: Option<Vec<u8>> = None;
        let newest_log = self.header.newest_log;
        while let Some(entry) = entries.next()? {
            let in_order = match &last {
                Some(last) => last.as_slice() < entry.key,
                None => self.bound() <= entry.key,
            };
            if !in_order || entry.address.is_some_and(|at| at.log_id > newest_log) {
                return Err(Damaged);
            }
            if upper.is_none_or(|upper| entry.key < upper) {
                see(&entry);
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(entry.key);
        }
        Ok(())
    }
}

impl TreeStore {
    /// Passes the entries of one leaf to `see`, in key order.
    ///
    /// # Errors
    /// `Corruption` of the leaf.
    pub fn for_each_entry(&self, place: Place, see: impl FnMut(&Entry<'_>)) -> Result<()> {
        self.read(place)?
            .check(None, see)
            .map_err(|_damaged| self.damaged(place))
    }

    /// Reads every leaf of `view`. Errors go to `found`, one per leaf.
    pub fn verify(&self, view: &View, found: &mut dyn FnMut(Error)) -> TreeReport {
        let mut report = TreeReport::default();
        let mut next = view.first();
        while let Some(at) = next {
            let place = view.place(at);
            let checked = self.read(place).and_then(|leaf| {
                let count = |entry: &Entry<'_>| {
                    report.entries += 1;
                    report.key_bytes += entry.key.len() as u64;
                };
                leaf.check(view.upper(at), count)
                    .map_err(|_damaged| self.damaged(place))
            });
            report.leaves += 1;
            report.leaf_bytes += u64::from(place.bytes);
            if let Err(error) = checked {
                found(error);
            }
            next = view.after(at);
        }
        report
    }
}
