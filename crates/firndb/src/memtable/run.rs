//! The memtable as used by the engine: reserve, fill, link, freeze, read.
//!
//! 1. A [`Reservation`] is a batch's place in one memtable. Its entries are stored there one after
//!    the other, filled but not linked, and not visible. If it is dropped unlinked, only its space
//!    is lost.
//! 2. After `link` the entries are in the list under consecutive sequence numbers. They are visible
//!    to readers whose read point has reached those; the commit queue raises it.

use super::arena::Space;
use super::skiplist::{Node, Skiplist, VALUE_HEADER_BYTES, height, node_bytes};
use firn_base::checksum::{crc32c, of_entry};
use firn_base::key::Kind;
use firn_base::sync::{AtomicU64, Ordering};
use firn_base::{FileId, SeqNo, Tag};
use firn_table::pm_btree::{HOT_LOG, ValueAddress};
use firn_table::{Pin, Value};
use std::sync::Arc;

/// Marks a noted offset as one in the hot buffer.
const HOT_BIT: u64 = 1 << 63;

/// One operation of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// The space that a batch takes in a memtable, at the heights that its entries were given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    pub(crate) bytes: usize,
    seed: u64,
}

impl Footprint {
    /// The footprint of `entries`, with heights drawn from `seed`.
    #[inline]
    pub(crate) fn of<'a>(entries: impl Iterator<Item = Entry<'a>>, seed: u64) -> Footprint {
        let bytes = entries
            .zip(0u64..)
            .map(|(e, i)| node_bytes(height(seed, i), e.key.len(), e.value.len()))
            .sum();
        Footprint { bytes, seed }
    }
}

/// A memtable, active or frozen.
pub(crate) struct Memtable {
    list: Skiplist,
    /// The id of the memtable, and of the log that takes its entries.
    pub(crate) log_id: FileId,
    /// The first log that holds entries of it. An earlier one if entries were replayed when the
    /// database was opened.
    pub(crate) first_log: FileId,
    /// The highest sequence number that belongs here, once frozen; `u64::MAX` before.
    last_seqno: AtomicU64,
}

/// A batch's filled entries in a memtable.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) buffer: Arc<Memtable>,
    space: Space,
    pub(crate) count: u64,
}

/// An entry as written to the log.
pub(crate) struct LogEntry<'a> {
    pub(crate) kind: u8,
    pub(crate) key: &'a [u8],
    /// Checksum and length, then the value.
    pub(crate) framed_value: &'a [u8],
}

impl LogEntry<'_> {
    pub(crate) fn is_delete(&self) -> bool {
        self.kind == Kind::Delete as u8
    }
}

impl Memtable {
    /// The [`Memtable::used_bytes`] of an empty memtable.
    pub(crate) const EMPTY_BYTES: usize = Skiplist::EMPTY_BYTES;

    /// An empty memtable of `capacity` bytes, whose entries are in log `log_id`.
    pub(crate) fn new(capacity: usize, log_id: FileId) -> Memtable {
        Memtable {
            list: Skiplist::new(capacity),
            log_id,
            first_log: log_id,
            last_seqno: AtomicU64::new(u64::MAX),
        }
    }

    /// This memtable, with its next entries going to log `log_id`.
    pub(crate) fn continued_in(self, log_id: FileId) -> Memtable {
        Memtable { log_id, ..self }
    }

    /// Empties this memtable for the entries of log `log_id`, reusing its memory.
    pub(crate) fn recycle(self, log_id: FileId) -> Memtable {
        Memtable {
            list: self.list.recycle(),
            log_id,
            first_log: log_id,
            last_seqno: AtomicU64::new(u64::MAX),
        }
    }

    /// Makes the system provide all memory now, and not during a write.
    pub(crate) fn touch(&mut self) {
        self.list.touch();
    }

    /// Copies `entries` in without making them visible. `None` if their footprint does not fit.
    pub(crate) fn reserve<'a>(
        self: &Arc<Self>,
        entries: impl Iterator<Item = Entry<'a>>,
        footprint: Footprint,
    ) -> Option<Reservation> {
        let space = self.list.arena.reserve(footprint.bytes)?;
        let mut at = space.start;
        let mut count = 0;
        for entry in entries {
            let crc = crc32c(entry.value);
            let node = (entry.kind as u8, entry.key, entry.value, crc);
            at = self
                .list
                .fill(&space, at, height(footprint.seed, count), node);
            count += 1;
        }
        debug_assert_eq!(at, space.end);
        Some(Reservation {
            buffer: self.clone(),
            space,
            count,
        })
    }

    /// Bytes used.
    pub(crate) fn used_bytes(&self) -> usize {
        self.list.arena.used()
    }

    /// Bytes of memory taken.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.list.arena.capacity()
    }

    /// Declares that nothing above `last` will be linked here.
    pub(crate) fn freeze(&self, last: SeqNo) {
        self.last_seqno.store(last.0, Ordering::Release);
    }

    /// The highest sequence number here, if frozen.
    pub(crate) fn frozen_at(&self) -> Option<SeqNo> {
        Some(self.last_seqno.load(Ordering::Acquire))
            .filter(|&last| last != u64::MAX)
            .map(SeqNo)
    }

    /// The lowest and the highest sequence number here, found by a full scan.
    pub(crate) fn seqnos(self: &Arc<Self>) -> Option<(SeqNo, SeqNo)> {
        let mut iter = self.iter();
        let mut found: Option<(SeqNo, SeqNo)> = None;
        iter.first();
        while iter.valid() {
            let seqno = iter.tag().seqno();
            found = Some(found.map_or((seqno, seqno), |(low, high)| {
                (low.min(seqno), high.max(seqno))
            }));
            iter.next();
        }
        found
    }

    /// The newest entry of `key` at or below `seqno`.
    pub(crate) fn get(self: &Arc<Self>, key: &[u8], seqno: SeqNo) -> Option<(Tag, Value)> {
        let node = self
            .list
            .seek(key, Tag::seek(seqno))
            .filter(|&node| self.list.key(node) == key)?;
        Some((self.list.note_read(node), self.value_of(node)))
    }

    fn value_of(self: &Arc<Self>, node: Node) -> Value {
        Value::pinned(self.clone(), node.value_at(), node.value_len)
    }

    /// A cursor over the linked entries.
    pub(crate) fn iter(self: &Arc<Self>) -> MemtableIter {
        MemtableIter {
            buffer: self.clone(),
            node: None,
        }
    }
}

impl Pin for Memtable {
    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        self.list.arena.bytes(at, len)
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memtable({}, {} bytes)", self.log_id, self.used_bytes())
    }
}

impl Reservation {
    /// Bytes of arena taken.
    pub(crate) fn bytes(&self) -> usize {
        (self.space.end - self.space.start) as usize
    }

    fn nodes(&self) -> impl Iterator<Item = Node> {
        let list = &self.buffer.list;
        let mut at = self.space.start;
        std::iter::from_fn(move || {
            (at < self.space.end).then(|| {
                let node = list.node(at);
                at = node.end();
                node
            })
        })
    }

    /// The entries, for the log.
    pub(crate) fn entries(&self) -> impl Iterator<Item = LogEntry<'_>> {
        let list = &self.buffer.list;
        self.nodes().map(move |node| LogEntry {
            kind: list.tag(node).kind_byte(),
            key: list.key(node),
            framed_value: list.arena.bytes(
                node.value_at() - VALUE_HEADER_BYTES,
                VALUE_HEADER_BYTES + node.value_len,
            ),
        })
    }

    /// Ties the values' checksums to the entries' sequence numbers, from `first` on. REQUIRES:
    /// called only once.
    pub(crate) fn tie_checksums(&self, first: SeqNo) {
        let list = &self.buffer.list;
        for (node, seqno) in self.nodes().zip(first.0..) {
            let crc = list.crc(node);
            list.set_crc(&self.space, node, of_entry(crc, SeqNo(seqno)));
        }
    }

    /// Notes the locations of the entries' values: in the log or in the hot buffer. `place` returns
    /// them one after the other, given each value's length. REQUIRES: the log has the values.
    pub(crate) fn note_addresses(&self, mut place: impl FnMut(u32) -> ValueAddress) {
        for node in self.nodes() {
            let ValueAddress { log_id, offset, .. } = place(node.value_len as u32);
            let is_hot = if log_id == HOT_LOG { HOT_BIT } else { 0 };
            self.buffer
                .list
                .set_log_offset(&self.space, node, offset | is_hot);
        }
    }

    /// Links the entries under the sequence numbers from `first` on.
    pub(crate) fn link(&self, first: SeqNo) {
        for (node, i) in self.nodes().zip(0u64..) {
            let kind = self.buffer.list.tag(node).0 & 0xff;
            self.buffer
                .list
                .link(node.at, Tag((first.0 + i) << 8 | kind));
        }
    }
}

/// A position in a memtable, or none.
pub(crate) struct MemtableIter {
    buffer: Arc<Memtable>,
    node: Option<Node>,
}

impl MemtableIter {
    pub(crate) fn valid(&self) -> bool {
        self.node.is_some()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.node.map_or(&[], |node| self.buffer.list.key(node))
    }

    pub(crate) fn tag(&self) -> Tag {
        self.node.map_or(Tag(0), |node| self.buffer.list.tag(node))
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.node.map_or(&[], |node| self.buffer.list.value(node))
    }

    /// Moves to the position of `other`. REQUIRES: both are cursors over the same memtable.
    pub(crate) fn move_to(&mut self, other: &MemtableIter) {
        self.node = other.node;
    }

    /// True if a get found the entry under the cursor.
    pub(crate) fn was_read(&self) -> bool {
        self.node
            .is_some_and(|node| self.buffer.list.was_read(node))
    }

    /// True if the value under the cursor is in the hot buffer too. If no offset was noted, the
    /// length is stored there, and no length has that bit.
    pub(crate) fn is_hot(&self) -> bool {
        self.node
            .is_some_and(|node| self.buffer.list.log_offset(node) & HOT_BIT != 0)
    }

    /// The location of the value under the cursor in the log. REQUIRES: `valid`, and that the
    /// location was noted.
    pub(crate) fn address(&self) -> ValueAddress {
        let (offset, len) = self.node.map_or((0, 0), |node| {
            (self.buffer.list.log_offset(node), node.value_len as u32)
        });
        let log_id = if offset & HOT_BIT == 0 {
            self.buffer.log_id
        } else {
            HOT_LOG
        };
        ValueAddress {
            log_id,
            offset: offset & !HOT_BIT,
            len,
        }
    }

    pub(crate) fn first(&mut self) {
        self.node = self.buffer.list.first();
    }

    pub(crate) fn last(&mut self) {
        self.node = self.buffer.list.last();
    }

    pub(crate) fn next(&mut self) {
        self.node = self.node.and_then(|node| self.buffer.list.after(node));
    }

    pub(crate) fn prev(&mut self) {
        self.node = self.node.and_then(|node| {
            self.buffer
                .list
                .seek_before(self.buffer.list.key(node), self.tag())
        });
    }

    pub(crate) fn seek(&mut self, key: &[u8], tag: Tag) {
        self.node = self.buffer.list.seek(key, tag);
    }

    pub(crate) fn seek_before(&mut self, key: &[u8], tag: Tag) {
        self.node = self.buffer.list.seek_before(key, tag);
    }
}
