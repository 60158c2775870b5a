//! The versions of a key that a compaction may drop.
//!
//! Entries come in internal key order, so the versions of a key come newest first. A version is
//! needed if it is the newest at some read point: the current one (every later one sees this
//! version or a newer one) or a live snapshot.
//! 1. A version with a newer one at or below the same read point is not needed by any.
//! 2. A tombstone is not needed if every snapshot sees it and there is nothing of its key below.

use firn_base::key::Kind;
use firn_base::{SeqNo, Tag};

/// Decides for each entry.
pub(super) struct Versions<'a> {
    /// Read points of live snapshots, ascending.
    snapshots: &'a [SeqNo],
    key: Vec<u8>,
    /// The read point that the last kept version of `key` serves.
    served: Option<SeqNo>,
}

impl<'a> Versions<'a> {
    pub(super) fn new(snapshots: &'a [SeqNo]) -> Self {
        Self {
            snapshots,
            key: Vec::new(),
            served: None,
        }
    }

    /// The lowest read point that sees an entry with `seqno`.
    fn first_reader(&self, seqno: SeqNo) -> SeqNo {
        let at = self.snapshots.partition_point(|&snapshot| snapshot < seqno);
        self.snapshots.get(at).copied().unwrap_or(SeqNo::MAX)
    }

    /// True if the entry must be kept. `is_bottom` returns true if there is nothing of the key
    /// below the compaction's output.
    pub(super) fn keep(&mut self, key: &[u8], tag: Tag, is_bottom: impl FnOnce() -> bool) -> bool {
        if self.served.is_none() || self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.served = None;
        }
        let reader = self.first_reader(tag.seqno());
        if self.served == Some(reader) {
            return false;
        }
        self.served = Some(reader);
        let seen_by_all = self
            .snapshots
            .first()
            .is_none_or(|&oldest| tag.seqno() <= oldest);
        !(tag.kind() == Some(Kind::Delete) && seen_by_all && is_bottom())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(snapshots: &[u64], entries: &[(&str, u64, Kind)], bottom: bool) -> Vec<u64> {
        let snapshots: Vec<SeqNo> = snapshots.iter().map(|&s| SeqNo(s)).collect();
        let mut versions = Versions::new(&snapshots);
        entries
            .iter()
            .filter(|(key, seqno, kind)| {
                versions.keep(key.as_bytes(), Tag::new(SeqNo(*seqno), *kind), || bottom)
            })
            .map(|e| e.1)
            .collect()
    }

    #[test]
    fn keeps_what_some_reader_sees() {
        use Kind::{Delete, Put};
        let entries = [
            ("a", 9, Put),
            ("a", 7, Put),
            ("a", 5, Delete),
            ("a", 2, Put),
            ("b", 8, Delete),
            ("b", 1, Put),
        ];
        assert_eq!(kept(&[], &entries, false), [9, 8]);
        assert_eq!(kept(&[], &entries, true), [9]);
        assert_eq!(kept(&[6], &entries, false), [9, 5, 8, 1]);
        // At 6 the tombstone 5 hides nothing that is needed. Tombstone 8 is still needed above the
        // put that 6 sees.
        assert_eq!(kept(&[6], &entries, true), [9, 8, 1]);
        assert_eq!(kept(&[2, 7, 8], &entries, false), [9, 7, 2, 8, 1]);
    }
}
