//! Sources of entries for compactions: input that is buffered or read again, up to the key where
//! the next sub-task begins, and its merge with a table.

use crate::log::{ValueAddress, ValueLogs};
use crate::read::merge_iter::{Entries, MergeIter};
use firn_base::exec::give_way;
use firn_base::key::compare;
use firn_base::{Result, Tag};
use firn_fs::{Pending, give_back};
use firn_table::Value;
use firn_table::sst::BlocksIter;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// Input from the upper level, for its second pass.
pub(super) enum UpperEntries<'a> {
    Buffered(BufferedEntries),
    Read(BoundedEntries<'a, MergeIter>),
}

/// The entries before a key.
pub(super) struct BoundedEntries<'a, E> {
    pub(super) entries: E,
    pub(super) end: Option<&'a [u8]>,
}

impl<E: Entries> Entries for BoundedEntries<'_, E> {
    fn valid(&self) -> bool {
        self.entries.valid() && self.end.is_none_or(|end| self.entries.key() < end)
    }

    fn key(&self) -> &[u8] {
        self.entries.key()
    }

    fn tag(&self) -> Tag {
        self.entries.tag()
    }

    fn value(&self) -> &[u8] {
        self.entries.value()
    }

    fn wants(&mut self) -> Option<&mut Pending> {
        self.entries.wants()
    }

    fn next(&mut self) -> Result<()> {
        self.entries.next()
    }

    fn load(&mut self) -> Result<()> {
        self.entries.load()
    }

    fn read_group(&self) -> Option<u64> {
        self.entries.read_group()
    }
}

/// Entries in memory, except for large values in logs, which are read one at a time when the merge
/// comes to them.
#[derive(Default)]
pub(crate) struct BufferedEntries {
    bytes: Vec<u8>,
    /// (end of the key, end of the value, which begins there, tag)
    entries: Vec<(usize, usize, Tag)>,
    at: usize,
    /// The addresses of the values that are not in memory, by index of their entry.
    in_logs: HashMap<usize, ValueAddress>,
    logs: Option<Arc<ValueLogs>>,
    /// The current entry's value, if it was read from a log.
    read: Option<Value>,
}

impl Drop for BufferedEntries {
    fn drop(&mut self) {
        give_back(&mut self.bytes, give_way);
    }
}

impl BufferedEntries {
    /// A buffer with room for `entries`, with `bytes` of keys and values.
    pub(crate) fn with_capacity(entries: usize, bytes: usize) -> BufferedEntries {
        let mut held = BufferedEntries::default();
        held.bytes.reserve_exact(bytes);
        held.entries.reserve_exact(entries);
        held
    }

    /// Adds the next entry, whose value is read from `logs` when the merge comes to it.
    ///
    /// REQUIRES: something else keeps the value in its log until this is dropped.
    pub(crate) fn push_in_log(
        &mut self,
        key: &[u8],
        tag: Tag,
        at: ValueAddress,
        logs: &Arc<ValueLogs>,
    ) {
        self.in_logs.insert(self.entries.len(), at);
        self.logs.get_or_insert_with(|| logs.clone());
        self.push_key(key, tag, 0);
    }

    /// Bytes of memory for `entries` entries with `bytes` of keys and values.
    pub(crate) fn memory_bytes(entries: usize, bytes: usize) -> usize {
        bytes + entries * size_of::<(usize, usize, Tag)>()
    }

    /// Adds the next entry, whose value of `len` bytes is set later.
    pub(crate) fn push_key(&mut self, key: &[u8], tag: Tag, len: usize) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.resize(key_end + len, 0);
        self.entries.push((key_end, self.bytes.len(), tag));
    }

    /// Sets the value of entry `i`, which has the length given before.
    pub(crate) fn set_value(&mut self, i: usize, value: &[u8]) {
        let (key_end, end, _) = self.entries[i];
        self.bytes[key_end..end].copy_from_slice(value);
    }

    pub(super) fn push(&mut self, entry: &impl Entries) {
        let value = entry.value();
        self.push_key(entry.key(), entry.tag(), value.len());
        self.set_value(self.entries.len() - 1, value);
    }

    /// The number of entries that were added.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The first and the last key, if there are entries.
    pub(crate) fn keys(&self) -> Option<(&[u8], &[u8])> {
        let start = self
            .entries
            .len()
            .checked_sub(2)
            .map_or(0, |before| self.entries[before].1);
        let (first, last) = (self.entries.first()?, self.entries.last()?);
        Some((&self.bytes[..first.0], &self.bytes[start..last.0]))
    }

    /// Bytes of the keys and values.
    pub(crate) fn byte_size(&self) -> usize {
        self.bytes.len()
    }

    fn start(&self) -> usize {
        self.at
            .checked_sub(1)
            .map_or(0, |before| self.entries[before].1)
    }
}

impl Entries for BufferedEntries {
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }

    fn key(&self) -> &[u8] {
        &self.bytes[self.start()..self.entries[self.at].0]
    }

    fn tag(&self) -> Tag {
        self.entries[self.at].2
    }

    fn value(&self) -> &[u8] {
        let (key_end, end, _) = self.entries[self.at];
        self.read.as_deref().unwrap_or(&self.bytes[key_end..end])
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        self.read = None;
        Ok(())
    }

    fn load(&mut self) -> Result<()> {
        if let (Some(&at), Some(logs), None) = (self.in_logs.get(&self.at), &self.logs, &self.read)
        {
            self.read = Some(logs.get_for_eviction(at, self.tag().seqno())?);
        }
        Ok(())
    }
}

impl Entries for UpperEntries<'_> {
    fn valid(&self) -> bool {
        match self {
            UpperEntries::Buffered(held) => held.valid(),
            UpperEntries::Read(read) => read.valid(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            UpperEntries::Buffered(held) => held.key(),
            UpperEntries::Read(read) => read.key(),
        }
    }

    fn tag(&self) -> Tag {
        match self {
            UpperEntries::Buffered(held) => held.tag(),
            UpperEntries::Read(read) => read.tag(),
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            UpperEntries::Buffered(held) => held.value(),
            UpperEntries::Read(read) => read.value(),
        }
    }

    fn wants(&mut self) -> Option<&mut Pending> {
        match self {
            UpperEntries::Buffered(held) => held.wants(),
            UpperEntries::Read(read) => read.wants(),
        }
    }

    fn next(&mut self) -> Result<()> {
        match self {
            UpperEntries::Buffered(held) => held.next(),
            UpperEntries::Read(read) => read.next(),
        }
    }

    fn load(&mut self) -> Result<()> {
        match self {
            UpperEntries::Buffered(held) => held.load(),
            UpperEntries::Read(read) => read.load(),
        }
    }
}

impl Entries for BlocksIter {
    fn valid(&self) -> bool {
        BlocksIter::valid(self)
    }

    fn key(&self) -> &[u8] {
        BlocksIter::key(self)
    }

    fn tag(&self) -> Tag {
        BlocksIter::tag(self)
    }

    fn value(&self) -> &[u8] {
        BlocksIter::value(self)
    }

    fn wants(&mut self) -> Option<&mut Pending> {
        BlocksIter::wants(self)
    }

    fn next(&mut self) -> Result<()> {
        BlocksIter::next(self)
    }
}

impl<E: Entries> Entries for &mut E {
    fn valid(&self) -> bool {
        (**self).valid()
    }

    fn key(&self) -> &[u8] {
        (**self).key()
    }

    fn tag(&self) -> Tag {
        (**self).tag()
    }

    fn value(&self) -> &[u8] {
        (**self).value()
    }

    fn wants(&mut self) -> Option<&mut Pending> {
        (**self).wants()
    }

    fn next(&mut self) -> Result<()> {
        (**self).next()
    }

    fn load(&mut self) -> Result<()> {
        (**self).load()
    }

    fn read_group(&self) -> Option<u64> {
        (**self).read_group()
    }
}

/// The merge of input from above with a table, or with some of its blocks.
pub(super) struct MergePair<A, B> {
    above: A,
    below: B,
    /// True if the current entry is from `above`.
    takes_above: bool,
}

impl<A: Entries, B: Entries> MergePair<A, B> {
    pub(super) fn new(above: A, below: B) -> MergePair<A, B> {
        let mut two = MergePair {
            above,
            below,
            takes_above: false,
        };
        two.decide();
        two
    }

    fn decide(&mut self) {
        let (a, b) = (&self.above, &self.below);
        self.takes_above = a.valid()
            && (!b.valid() || compare(a.key(), a.tag(), b.key(), b.tag()) == Ordering::Less);
    }
}

impl<A: Entries, B: Entries> Entries for MergePair<A, B> {
    fn valid(&self) -> bool {
        self.takes_above || self.below.valid()
    }

    fn key(&self) -> &[u8] {
        if self.takes_above {
            self.above.key()
        } else {
            self.below.key()
        }
    }

    fn tag(&self) -> Tag {
        if self.takes_above {
            self.above.tag()
        } else {
            self.below.tag()
        }
    }

    fn value(&self) -> &[u8] {
        if self.takes_above {
            self.above.value()
        } else {
            self.below.value()
        }
    }

    fn wants(&mut self) -> Option<&mut Pending> {
        match self.takes_above {
            true => self.above.wants(),
            false => self.below.wants(),
        }
    }

    fn next(&mut self) -> Result<()> {
        if self.takes_above {
            self.above.next()?
        } else {
            self.below.next()?
        }
        self.decide();
        Ok(())
    }

    fn load(&mut self) -> Result<()> {
        if self.takes_above {
            self.above.load()
        } else {
            self.below.load()
        }
    }
}
