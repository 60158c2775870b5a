//! Examination of a memtable whose entries are in persistent memory: its list, beside what a walk
//! of the buffer finds.

use super::pm::Walked;
use super::run::Memtable;
use firn_base::SeqNo;
use std::ops::Range;

impl Memtable {
    /// Compares an entry that a walk found with the list. True if the list has it. The error is
    /// what the buffer should have had there, as the list says. REQUIRES: `link_found`.
    pub(crate) fn has_linked(&self, found: &Walked<'_>) -> Result<bool, &'static str> {
        let node = self.list.seek(found.key, found.tag);
        let node = node.filter(|&node| self.list.key(node) == found.key);
        let Some(node) = node.filter(|&node| self.list.tag(node) == found.tag) else {
            return Ok(false);
        };
        if self.list.log_offset(node) != found.at {
            return Err("no other entry with the same key and number");
        }
        match node.value_len == found.value_len as usize {
            true => Ok(true),
            false => Err("an entry with a value of another length"),
        }
    }

    /// The number of linked entries with numbers up to `last`.
    pub(crate) fn linked_up_to(&self, last: SeqNo) -> u64 {
        let nodes = std::iter::successors(self.list.first(), |&node| self.list.after(node));
        let up_to = nodes.filter(|&node| self.list.tag(node).seqno() <= last);
        up_to.count() as u64
    }

    /// The least and the greatest key of the entries in `range` of the buffer.
    pub(crate) fn keys_within(&self, range: &Range<u64>) -> Option<(Vec<u8>, Vec<u8>)> {
        let nodes = std::iter::successors(self.list.first(), |&node| self.list.after(node));
        let mut within = nodes.filter(|&node| range.contains(&self.list.log_offset(node)));
        let least = within.next()?;
        let most = within.last().unwrap_or(least);
        Some((self.list.key(least).to_vec(), self.list.key(most).to_vec()))
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use firn_base::{FileId, Kind, Tag};
    use firn_pm::sim::{Mode, SimRegion};
    use firn_pm::{Owner, Pool};
    use firn_table::pm_buffer::PmBuffer;
    use std::sync::Arc;

    #[test]
    fn a_list_that_differs_from_its_buffer_is_found() {
        let pool = Pool::open_simulated(&SimRegion::new(64 << 10, Mode::Adr), [1; 16]).unwrap();
        pool.finish_recovery().unwrap();
        let extent = pool.alloc(4096, Owner::WriteBuffer).unwrap();
        let buffer = PmBuffer::new(Arc::new(pool), FileId(1), 0, extent, 0).unwrap();
        let memtable = Memtable::in_pm(buffer, 4096);
        let found = |at, seqno, key| {
            let tag = Tag::new(SeqNo(seqno), Kind::Put);
            Walked::of((at, tag, key), (5, 0))
        };
        let link = |found: &Walked<'_>| {
            let space = memtable.list.arena.reserve(256).unwrap();
            memtable.link_one((&space, space.start), found);
        };
        link(&found(0, 3, b"a"));
        link(&found(32, 4, b"b"));
        link(&found(64, 5, b"c"));
        assert_eq!(memtable.has_linked(&found(32, 4, b"b")), Ok(true));
        assert_eq!(memtable.has_linked(&found(32, 5, b"b")), Ok(false));
        assert_eq!(memtable.has_linked(&found(32, 4, b"bb")), Ok(false));
        assert!(memtable.has_linked(&found(40, 4, b"b")).is_err());
        let tag = Tag::new(SeqNo(4), Kind::Put);
        let longer = Walked::of((32, tag, b"b"), (6, 0));
        assert!(memtable.has_linked(&longer).is_err());
        let linked = [2, 3, 4, 9].map(|last| memtable.linked_up_to(SeqNo(last)));
        assert_eq!(linked, [0, 1, 2, 3]);
        let keys = |range| memtable.keys_within(&range);
        assert_eq!(keys(32..80), Some((b"b".to_vec(), b"c".to_vec())));
        assert_eq!(keys(33..64), None);
    }
}
