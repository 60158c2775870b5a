//! The memtable alone, for [`crate::proof`].

use super::{Entry, Footprint, Memtable, Reservation};
use firn_base::FileId;
use firn_base::SeqNo;
use firn_base::key::Kind;
use firn_table::sst::hash;
use std::sync::Arc;

/// A memtable without an engine around it.
pub struct BareMemtable(Arc<Memtable>);

/// A commit group: entries that are reserved in a memtable and not yet in its list.
pub struct Group(pub(crate) Vec<Reservation>);

impl BareMemtable {
    /// An empty memtable of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Memtable::new(capacity, FileId(1))))
    }

    /// Puts `key` with sequence number `seqno`. False if it does not fit.
    pub fn put(&self, seqno: u64, key: &[u8], value: &[u8]) -> bool {
        self.reserve(seqno, key, value)
            .map(|reservation| reservation.link(SeqNo(seqno)))
            .is_some()
    }

    /// A group of puts of these keys and values; `None` if they do not fit.
    pub fn group<'a>(&self, entries: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Group> {
        entries
            .zip(0..)
            .map(|((key, value), i)| self.reserve(i, key, value))
            .collect::<Option<_>>()
            .map(Group)
    }

    /// The length of the newest value of `key`.
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        Some(self.0.get(key, hash(key), SeqNo::MAX)?.1.len())
    }

    /// The number of entries, counted by a full scan.
    pub fn count(&self) -> usize {
        let mut iter = self.0.iter();
        iter.first();
        let mut count = 0;
        while iter.valid() {
            count += 1;
            iter.next();
        }
        count
    }

    fn reserve(&self, seed: u64, key: &[u8], value: &[u8]) -> Option<Reservation> {
        let entries = || {
            std::iter::once(Entry {
                kind: Kind::Put,
                key,
                value,
            })
        };
        self.0.reserve(entries(), Footprint::of(entries(), seed))
    }
}
