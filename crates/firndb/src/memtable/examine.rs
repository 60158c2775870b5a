//! Examination of a memtable whose entries are in persistent memory: its list, beside what a walk
//! of the buffer finds.

use super::pm::Walked;
use super::run::Memtable;
use firn_base::SeqNo;
use std::ops::Range;

impl Memtable {
    /// Compares an entry that a walk found with the list. True if the list has it. The error is
    /// what the buffer should have had there, as the list says.
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
