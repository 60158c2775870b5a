//! The memtable as used by the engine: reserve, fill, link, freeze, read.
//!
//! 1. A [`Reservation`] is a batch's place in one memtable. Its entries are stored there one after
//!    the other, filled but not linked, and not visible. If it is dropped unlinked, only its space
//!    is lost.
//!    Where entries are in persistent memory, the arena has their keys, and the rest waits to be
//!    appended there.
//! 2. After `link` the entries are in the list under consecutive sequence numbers. They are visible
//!    to readers whose read point has reached those; the commit queue raises it.

use super::arena::Space;
use super::pm::PmPlace;
use super::skiplist::{Node, Skiplist, VALUE_HEADER_BYTES, height, node_bytes};
use firn_base::checksum::{crc32c, of_entry};
use firn_base::key::Kind;
use firn_base::sync::{AtomicU64, Ordering};
use firn_base::{FileId, Result, SeqNo, Tag};
use firn_pm::{Fenced, Flushed};
use firn_table::Value;
use firn_table::pm_btree::{HOT_LOG, ValueAddress};
use firn_table::pm_buffer::{PmBuffer, StagedEntries, entry_bytes};
use firn_table::sst::{SharedFilter, hash};
use std::sync::Arc;

/// The part of a memtable's capacity that its filter takes. Entries of 170 bytes get ten bits each.
const FILTER_SHARE: usize = 128;

/// An empty filter for a memtable of `capacity` bytes.
pub(super) fn filter_for(capacity: usize) -> SharedFilter {
    SharedFilter::with_bytes(capacity / FILTER_SHARE)
}

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
    pub(crate) seed: u64,
}

impl Footprint {
    /// The footprint of no entries.
    pub(crate) const NONE: Footprint = Footprint { bytes: 0, seed: 0 };

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
    pub(super) list: Skiplist,
    /// The keys that are or will be in the list, because few gets find theirs there, and a search
    /// of it costs more than all else that a get does in memory.
    pub(super) filter: SharedFilter,
    /// The id of the memtable, and of the log that takes its entries.
    pub(crate) log_id: FileId,
    /// The first log that holds entries of it. An earlier one if entries were replayed when the
    /// database was opened.
    pub(crate) first_log: FileId,
    /// The highest sequence number that belongs here, once frozen; `u64::MAX` before.
    last_seqno: AtomicU64,
    pub(super) home: Home,
}

/// Where a memtable has its entries.
pub(super) enum Home {
    /// In its arena.
    Arena,
    /// In persistent memory. The arena has their keys.
    Pm(PmPlace),
    /// It has none, and no room for any.
    Nowhere,
}

/// A batch's filled entries in a memtable.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) buffer: Arc<Memtable>,
    space: Space,
    pub(crate) count: u64,
    /// The entries, until they are appended to persistent memory.
    staged: Option<Box<StagedEntries>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let (Some(staged), Home::Pm(place)) = (&self.staged, &self.buffer.home) {
            place.take_back(staged.bytes() as u64);
        }
    }
}

/// An entry as written to the log.
pub(crate) struct LogEntry<'a> {
    pub(crate) kind: u8,
    pub(crate) key: &'a [u8],
    /// Checksum and length, then the value.
    pub(crate) framed_value: &'a [u8],
}

impl Memtable {
    /// The [`Memtable::used_bytes`] of an empty memtable.
    pub(crate) const EMPTY_BYTES: usize = Skiplist::EMPTY_BYTES;

    /// An empty memtable of `capacity` bytes, whose entries are in log `log_id`.
    pub(crate) fn new(capacity: usize, log_id: FileId) -> Memtable {
        Self::over(Skiplist::new(capacity), filter_for(capacity), log_id)
    }

    /// As [`Memtable::new`], with memory that is claimed when entries need it
    /// ([`Memtable::grow`]).
    pub(crate) fn unclaimed(capacity: usize, log_id: FileId) -> Memtable {
        Self::over(Skiplist::unclaimed(capacity), filter_for(capacity), log_id)
    }

    /// A memtable over `buffer` in persistent memory, with `list_bytes` for its list.
    pub(crate) fn in_pm(buffer: PmBuffer, list_bytes: usize) -> Memtable {
        let id = buffer.id();
        Memtable {
            list: Skiplist::without_values(list_bytes),
            filter: filter_for(buffer.capacity_bytes() as usize),
            home: Home::Pm(PmPlace::new(buffer)),
            ..Memtable::placeholder(id)
        }
    }

    /// A memtable without room, where the first write is yet to get one.
    pub(crate) fn placeholder(id: FileId) -> Memtable {
        Memtable {
            home: Home::Nowhere,
            ..Memtable::new(0, id)
        }
    }

    /// True for one without room.
    pub(crate) fn is_placeholder(&self) -> bool {
        matches!(self.home, Home::Nowhere)
    }

    /// The buffer in persistent memory, if it has its entries there.
    pub(crate) fn pm_buffer(&self) -> Option<&PmBuffer> {
        match &self.home {
            Home::Pm(place) => Some(&place.buffer),
            Home::Arena | Home::Nowhere => None,
        }
    }

    /// The buffer in persistent memory, of a memtable that is not needed any more.
    pub(crate) fn into_pm_buffer(self) -> Option<PmBuffer> {
        match self.home {
            Home::Pm(place) => Some(place.buffer),
            Home::Arena | Home::Nowhere => None,
        }
    }

    /// The number of entries, of a memtable with its entries in persistent memory.
    pub(crate) fn entries(&self) -> u64 {
        match &self.home {
            Home::Pm(place) => place.entries(),
            Home::Arena | Home::Nowhere => 0,
        }
    }

    /// This memtable, with its next entries going to log `log_id`.
    pub(crate) fn continued_in(self, log_id: FileId) -> Memtable {
        Memtable { log_id, ..self }
    }

    /// Empties this memtable for the entries of log `log_id`, reusing its memory.
    pub(crate) fn recycle(mut self, log_id: FileId) -> Memtable {
        self.filter.clear();
        Self::over(self.list.recycle(), self.filter, log_id)
    }

    fn over(list: Skiplist, filter: SharedFilter, log_id: FileId) -> Memtable {
        Memtable {
            list,
            filter,
            log_id,
            first_log: log_id,
            last_seqno: AtomicU64::new(u64::MAX),
            home: Home::Arena,
        }
    }

    /// Claims memory for `bytes` more. Calls `claim` with the number of bytes before they are used.
    /// False if there is no room for them.
    pub(crate) fn grow(&self, bytes: usize, claim: impl FnOnce(usize)) -> bool {
        self.list.arena.grow(bytes, claim)
    }

    /// Returns what was claimed and is not used to the system, and the number of bytes that are not
    /// claimed any more.
    pub(crate) fn give_back(&self) -> usize {
        self.list.arena.give_back()
    }

    /// Copies `entries` in without making them visible. `None` if their footprint does not fit what
    /// was claimed.
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
            self.filter.insert(hash(entry.key));
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
            staged: None,
        })
    }

    /// As [`Memtable::reserve`], for entries that are appended to persistent memory by the leader
    /// of their group. `None` if they do not fit, or it has its entries elsewhere. Entries that an
    /// open found may join the list later.
    pub(crate) fn stage<'a>(
        self: &Arc<Self>,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        seed: u64,
    ) -> Option<Reservation> {
        let Home::Pm(place) = &self.home else {
            return None;
        };
        let (bytes, list_bytes) = Self::staged_bytes(entries.clone(), seed);
        if !place.promise(bytes) {
            return None;
        }
        let Some(space) = self.list.arena.reserve(list_bytes as usize) else {
            place.take_back(bytes);
            return None;
        };
        let mut staged = StagedEntries::default();
        let (mut at, mut count) = (space.start, 0);
        for entry in entries {
            let height = height(seed, count);
            let node = (entry.kind as u8, entry.key, entry.value.len());
            at = self.list.end(self.list.fill_key(&space, at, height, node));
            self.filter.insert(hash(entry.key));
            staged.add(entry.kind, entry.key, entry.value);
            count += 1;
        }
        Some(Reservation {
            buffer: self.clone(),
            space,
            count,
            staged: Some(Box::new(staged)),
        })
    }

    /// Bytes used by entries.
    pub(crate) fn used_bytes(&self) -> usize {
        match &self.home {
            Home::Pm(place) => place.used_bytes(),
            Home::Arena => self.list.arena.used(),
            Home::Nowhere => 0,
        }
    }

    /// Bytes that entries may take, in DRAM or in persistent memory.
    pub(crate) fn capacity_bytes(&self) -> usize {
        match &self.home {
            Home::Pm(place) => place.buffer.capacity_bytes() as usize,
            Home::Arena => self.list.arena.capacity(),
            Home::Nowhere => 0,
        }
    }

    /// Counts `bytes` as the memory of the list of a memtable in persistent memory, and returns
    /// what was counted before.
    pub(crate) fn count_list(&self, bytes: u64) -> u64 {
        match &self.home {
            Home::Pm(place) => place.counted.swap(bytes, Ordering::Relaxed),
            Home::Arena | Home::Nowhere => 0,
        }
    }

    /// Bytes of DRAM in use.
    pub(crate) fn dram_used_bytes(&self) -> usize {
        self.list.arena.used() + self.filter.bytes()
    }

    /// True if there is room for `bytes` in persistent memory and `list` in the list.
    #[cfg(feature = "proof")]
    pub(crate) fn has_room(&self, (bytes, list): (u64, u64)) -> bool {
        let list_left = (self.dram_bytes() - self.dram_used_bytes()) as u64;
        let left = (self.capacity_bytes() - self.used_bytes()) as u64;
        self.pm_buffer().is_some() && bytes <= left && list <= list_left
    }

    /// The bytes that `entries` take in persistent memory and, at the heights that `seed` gives
    /// them, in a list.
    pub(crate) fn staged_bytes<'a>(
        entries: impl Iterator<Item = Entry<'a>>,
        seed: u64,
    ) -> (u64, u64) {
        entries.zip(0..).fold((0, 0), |(bytes, list), (entry, i)| {
            let (key_len, value_len) = (entry.key.len(), entry.value.len());
            let node = node_bytes(height(seed, i), key_len, 0) as u64;
            (bytes + entry_bytes(key_len, value_len) as u64, list + node)
        })
    }

    /// Bytes of DRAM claimed.
    pub(crate) fn dram_bytes(&self) -> usize {
        self.list.arena.claimed() + self.filter.bytes()
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

    /// The lowest and the highest sequence number here, found by a full scan. REQUIRES: its entries
    /// are not in persistent memory.
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

    /// The newest entry of `key` at or below `seqno`. `hash` is that of the key. REQUIRES: its
    /// entries are not in persistent memory.
    #[inline]
    pub(crate) fn get(
        self: &Arc<Self>,
        key: &[u8],
        hash: u64,
        seqno: SeqNo,
    ) -> Option<(Tag, Value)> {
        if !self.filter.may_contain(hash) {
            return None;
        }
        let node = self.newest(key, seqno)?;
        let value = self.list.arena.bytes(node.value_at(), node.value_len);
        Some((self.list.note_read(node), Value::copied(value)))
    }

    /// The node of the newest entry of `key` at or below `seqno`.
    // Not inlined, because the filter keeps most gets from coming here.
    #[inline(never)]
    fn newest(&self, key: &[u8], seqno: SeqNo) -> Option<Node> {
        let node = self.list.seek(key, Tag::seek(seqno))?;
        (self.list.key(node) == key).then_some(node)
    }

    /// The value of a node.
    fn value(&self, node: Node) -> &[u8] {
        let (at, len) = (self.value_at(node), node.value_len);
        match &self.home {
            Home::Pm(place) => place.bytes(at, len),
            Home::Arena | Home::Nowhere => self.list.arena.bytes(at, len),
        }
    }

    /// The place of a value.
    fn value_at(&self, node: Node) -> usize {
        match &self.home {
            Home::Pm(_) => PmPlace::value_at(self.list.log_offset(node), node.key_len),
            Home::Arena | Home::Nowhere => node.value_at(),
        }
    }

    /// Checks the value of a node, if it is in persistent memory.
    fn check(&self, node: Node) -> Result<()> {
        match &self.home {
            Home::Pm(place) => {
                let seqno = self.list.tag(node).seqno();
                place
                    .buffer
                    .value(self.list.log_offset(node), seqno)
                    .map(drop)
            }
            Home::Arena | Home::Nowhere => Ok(()),
        }
    }

    /// As [`Memtable::get`], of a memtable that may be in persistent memory.
    ///
    /// # Errors
    /// `Corruption` if the value is damaged there.
    pub(crate) fn find(
        self: &Arc<Self>,
        key: &[u8],
        hash: u64,
        seqno: SeqNo,
    ) -> Result<Option<(Tag, Value)>> {
        if !self.filter.may_contain(hash) {
            return Ok(None);
        }
        self.link_found()?;
        let Some(node) = self.newest(key, seqno) else {
            return Ok(None);
        };
        self.check(node)?;
        Ok(Some((
            self.list.note_read(node),
            Value::copied(self.value(node)),
        )))
    }

    /// A cursor over the linked entries. REQUIRES: `link_found`, unless its entries are in DRAM.
    pub(crate) fn iter(self: &Arc<Self>) -> MemtableIter {
        debug_assert!(self.is_linked());
        MemtableIter {
            buffer: self.clone(),
            node: None,
        }
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memtable({}, {} bytes)", self.log_id, self.used_bytes())
    }
}

impl Reservation {
    /// Bytes that the entries take.
    pub(crate) fn bytes(&self) -> usize {
        match &self.staged {
            Some(staged) => staged.bytes(),
            None => (self.space.end - self.space.start) as usize,
        }
    }

    /// Appends the entries to persistent memory, numbered from `first` on. DURABLE AFTER: a fence.
    ///
    /// # Errors
    /// The error of the pool.
    pub(crate) fn append(&mut self, first: SeqNo) -> Result<Option<Flushed>> {
        let (Some(staged), Home::Pm(place)) = (&mut self.staged, &self.buffer.home) else {
            return Ok(None);
        };
        let (mut at, flushed) = place.buffer.append(staged, first)?;
        self.staged = None;
        place.count(self.count);
        for node in self.nodes() {
            let list = &self.buffer.list;
            list.set_log_offset(&self.space, node, at);
            at += entry_bytes(node.key_len, node.value_len) as u64;
        }
        Ok(Some(flushed))
    }

    /// Lets readers have what was appended before the fence.
    pub(crate) fn reveal(&self, fenced: &Fenced) {
        if let Home::Pm(place) = &self.buffer.home {
            place.buffer.reveal(fenced);
        }
    }

    fn nodes(&self) -> impl Iterator<Item = Node> {
        let list = &self.buffer.list;
        let mut at = self.space.start;
        std::iter::from_fn(move || {
            (at < self.space.end).then(|| {
                let node = list.node(at);
                at = list.end(node);
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

    /// The keys of the puts.
    pub(crate) fn puts(&self) -> impl Iterator<Item = &[u8]> {
        let list = &self.buffer.list;
        let puts = self
            .nodes()
            .filter(|node| list.tag(*node).kind_byte() != Kind::Delete as u8);
        puts.map(|node| list.key(node))
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
        self.node.map_or(&[], |node| self.buffer.value(node))
    }

    /// True if the value is known to be whole without a look at it.
    pub(crate) fn is_at_hand(&self) -> bool {
        self.buffer.pm_buffer().is_none()
    }

    /// Checks the value under the cursor, if it is in persistent memory.
    ///
    /// # Errors
    /// `Corruption` if it is damaged.
    pub(crate) fn load(&self) -> Result<()> {
        self.node.map_or(Ok(()), |node| self.buffer.check(node))
    }

    /// Moves to the position of `other`. REQUIRES: both are cursors over the same memtable.
    pub(crate) fn move_to(&mut self, other: &MemtableIter) {
        self.node = other.node;
    }

    /// The number of gets that found the entry under the cursor, up to 15.
    pub(crate) fn reads(&self) -> u8 {
        self.node.map_or(0, |node| self.buffer.list.reads(node))
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
