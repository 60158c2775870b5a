//! A part of the immutable tree that is evicted at a time (LAB-DB, 3.2, Fig. 8): leaves from the left, whose values
//! come to about a write buffer.

use super::view::Trees;
use crate::rows;

/// Which keys, and whether the tree that they are in is to become the immutable one.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// The tree is still the mutable one.
    pub(crate) rotates: bool,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl Chunk {
    /// No key is below.
    pub(crate) fn from(&self) -> &[u8] {
        &self.from
    }

    /// All keys are below; `None` if it has the tree's last.
    pub(crate) fn to(&self) -> Option<&[u8]> {
        self.to.as_deref()
    }
}

/// The share of the memory in use up to which buffers are flushed: the rest is for leaves that replace others.
const FLUSH_SHARE_MAX: f64 = 0.85;

impl Trees {
    /// Whether a flush may begin or go on.
    pub(crate) fn has_room(&self) -> bool {
        self.store.usage().share() < FLUSH_SHARE_MAX
    }

    /// What is to be evicted next, if more than `share` of the memory is used or logs hold more than `log_bytes_max`:
    /// values of about `bytes`.
    pub(crate) fn chunk_if_due(&self, share: f64, log_bytes_max: u64, bytes: u64) -> Option<Chunk> {
        let logs_are_full = rows::LAB_LOGS.is_on() && self.values.held_bytes() > log_bytes_max;
        if self.store.usage().share() < share && !logs_are_full {
            return None;
        }
        let rotates = self.immutable.is_none();
        let view = self.immutable.as_ref().unwrap_or(&self.mutable);
        let entries_max = match rows::LAB_CHUNKS.is_on() {
            true => bytes / self.values.mean_bytes().max(1),
            false => u64::MAX,
        };
        let (from, to) = view.first_leaves(entries_max)?;
        Some(Chunk { rotates, from, to })
    }
}
