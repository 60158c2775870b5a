//! Which logs the leaves of a tree point into (LAB-DB, 3.3, Fig. 10). There is no map from logs to leaves to be kept:
//! who wants to know reads the leaves.

use super::index::View;
use super::store::TreeStore;
use firn_base::Result;

/// A leaf by its bounds, and the oldest log that it points into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafLog {
    /// Where it begins.
    pub from: Vec<u8>,
    /// Where the next one begins; `None` for the last.
    pub to: Option<Vec<u8>>,
    /// Its entries.
    pub entries: u64,
    /// `None` if it points into none.
    pub oldest_log: Option<u64>,
}

impl TreeStore {
    /// The leaves of `view`, in key order.
    ///
    /// # Errors
    /// `Corruption` of a leaf.
    pub fn leaf_logs(&self, view: &View) -> Result<Vec<LeafLog>> {
        let mut leaves = Vec::with_capacity(view.leaves());
        let mut next = view.first();
        while let Some(at) = next {
            let mut oldest_log: Option<u64> = None;
            self.for_each_entry(view.place(at), |entry| {
                if let Some(address) = entry.address {
                    oldest_log = Some(oldest_log.map_or(address.log_id, |oldest| oldest.min(address.log_id)));
                }
            })?;
            let to = view.upper(at).map(<[u8]>::to_vec);
            let entries = u64::from(view.place(at).entries);
            leaves.push(LeafLog { from: view.bound(at).to_vec(), to, entries, oldest_log });
            next = view.after(at);
        }
        Ok(leaves)
    }
}
