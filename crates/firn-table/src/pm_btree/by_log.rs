//! The logs to which the leaves of a tree point (LAB-DB, 3.3, Fig. 10). No map from logs to leaves
//! is maintained; the leaves are read instead.

use super::index::View;
use super::leaf::HOT_LOG;
use super::store::TreeStore;
use firn_base::FileId;
use firn_base::Result;

/// A leaf's bounds and the oldest log it points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafLog {
    /// Its lower bound.
    pub from: Vec<u8>,
    /// The next leaf's lower bound; `None` for the last leaf.
    pub to: Option<Vec<u8>>,
    /// The number of its entries.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub entry_bytes: u64,
    /// The oldest log it points to; `None` if it points to none.
    pub oldest_log: Option<FileId>,
}

impl TreeStore {
    /// Passes the leaves of `view` to `see` in key order, until `see` returns false.
    ///
    /// # Errors
    /// `Corruption` of a leaf.
    pub fn for_each_leaf(&self, view: &View, mut see: impl FnMut(LeafLog) -> bool) -> Result<()> {
        let mut next = view.first();
        while let Some(at) = next {
            let (mut oldest_log, mut entry_bytes) = (None::<FileId>, 0);
            self.for_each_entry(view.place(at), |entry| {
                let value_bytes = entry.address.map_or(0, |address| u64::from(address.len));
                entry_bytes += entry.key.len() as u64 + value_bytes;
                if let Some(address) = entry.address.filter(|address| address.log_id != HOT_LOG) {
                    oldest_log = Some(
                        oldest_log.map_or(address.log_id, |oldest| oldest.min(address.log_id)),
                    );
                }
            })?;
            let to = view.upper(at).map(<[u8]>::to_vec);
            let entries = u64::from(view.place(at).entries);
            if !see(LeafLog {
                from: view.bound(at).to_vec(),
                to,
                entries,
                entry_bytes,
                oldest_log,
            }) {
                break;
            }
            next = view.after(at);
        }
        Ok(())
    }
}
