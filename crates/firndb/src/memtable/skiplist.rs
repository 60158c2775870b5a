//! A skiplist of entries in an arena: concurrent inserts, lock-free reads, no removal.
//!
//! ```text
//! node     tag: u64 | value length: u32 | key length: u16 | height: u16 | next: u32 x height | key
//!          | value's checksum: u32 | value length: u32 | value | padding to 8
//! ```
//! The value follows the same eight bytes that precede it in the log, so the log writes both from
//! here as one slice. The arena holds the only copy of the value that a write makes. Once the log
//! has them, the eight bytes may hold the value's location in the log instead
//! ([`Skiplist::set_log_offset`]), because nothing else reads them. The upper half of the tag's
//! kind counts the gets that found the entry ([`Skiplist::note_read`]), and is not visible
//! elsewhere.
//!
//! A list may have its values elsewhere ([`Skiplist::without_values`]). Its nodes then end after
//! the eight bytes, which hold the place of the entry.
//!
//! 1. Nodes are in internal key order at every level. A node is at level i only if it is at every
//!    level below.
//! 2. All of a node except its links and that count is written before the release store that links
//!    it at level 0.
//! 3. A node is found by every reader that acquires a link to it. Readers never wait.

use super::arena::{Arena, Space};
use firn_base::Tag;
use firn_base::coding::{get_u32, get_u64};
use firn_base::key::compare;
use firn_base::seed::mix;
use firn_base::sync::{AtomicUsize, Ordering};
use std::cmp::Ordering as Order;

/// The maximum number of levels: enough for four billion entries at one in four. A model of a few
/// entries needs fewer, and is then small enough to be explored completely.
pub(super) const HEIGHT_MAX: usize = if cfg!(shuttle) { 2 } else { 16 };
const TOWER_AT: usize = 16;
/// Bytes of the checksum and length before a value.
pub(super) const VALUE_HEADER_BYTES: usize = 8;
/// The bits of a linked node's tag that count the gets that found it, and one get.
const READS: u64 = 0xf0;
const READ: u64 = 0x10;
/// The link that ends a level.
const END: u32 = 0;

/// A sorted set of nodes.
pub(super) struct Skiplist {
    pub(super) arena: Arena,
    head: u32,
    /// The number of levels that nodes have reached. A hint.
    levels: AtomicUsize,
    has_values: bool,
}

/// The offsets of the parts of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) at: u32,
    pub(super) height: usize,
    pub(super) key_len: usize,
    pub(super) value_len: usize,
}

impl Node {
    fn key_at(self) -> usize {
        self.at as usize + TOWER_AT + 4 * self.height
    }

    pub(super) fn value_at(self) -> usize {
        self.key_at() + self.key_len + VALUE_HEADER_BYTES
    }
}

/// Bytes that a node takes.
pub(super) fn node_bytes(height: usize, key_len: usize, value_len: usize) -> usize {
    (TOWER_AT + 4 * height + key_len + VALUE_HEADER_BYTES + value_len).next_multiple_of(8)
}

/// A height for the `i`-th entry drawn from `seed`: one in four nodes reaches each next level.
pub(super) fn height(seed: u64, i: u64) -> usize {
    let bits = mix(seed.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    (1 + bits.trailing_zeros() as usize / 2).min(HEIGHT_MAX)
}

impl Skiplist {
    /// Arena bytes that an empty list uses.
    pub(super) const EMPTY_BYTES: usize = Arena::RESERVED_BYTES
        + (TOWER_AT + 4 * HEIGHT_MAX + VALUE_HEADER_BYTES).next_multiple_of(8);

    /// An empty list over `capacity` bytes.
    pub(super) fn new(capacity: usize) -> Skiplist {
        Self::over(Arena::new(capacity + Self::EMPTY_BYTES))
    }

    /// As [`Skiplist::new`], over memory that is claimed when entries need it.
    pub(super) fn unclaimed(capacity: usize) -> Skiplist {
        let (capacity, claimed) = (capacity + Self::EMPTY_BYTES, Self::EMPTY_BYTES);
        Self::over(Arena::unclaimed(capacity, claimed))
    }

    /// An empty list over `capacity` bytes, whose values are elsewhere.
    pub(super) fn without_values(capacity: usize) -> Skiplist {
        Skiplist {
            has_values: false,
            ..Self::new(capacity)
        }
    }

    /// An empty list over the memory of one without readers. Its pages are provided already.
    pub(super) fn recycle(mut self) -> Skiplist {
        self.arena.reset();
        Self::over(self.arena)
    }

    fn over(arena: Arena) -> Skiplist {
        let space = arena.reserve(node_bytes(HEIGHT_MAX, 0, 0));
        let head = space.map_or(0, |space| {
            arena.zero(&space);
            space.start
        });
        Skiplist {
            arena,
            head,
            levels: AtomicUsize::new(1),
            has_values: true,
        }
    }

    /// The offset of the node behind `node` in the same space.
    pub(super) fn end(&self, node: Node) -> u32 {
        let held = if self.has_values { node.value_len } else { 0 };
        (node.value_at() + held).next_multiple_of(8) as u32
    }

    /// Writes a node at `at` of `space`, except its links, its sequence number and its value.
    #[inline(always)]
    pub(super) fn fill_key(
        &self,
        space: &Space,
        at: u32,
        height: usize,
        (kind, key, value_len): (u8, &[u8], usize),
    ) -> Node {
        let node = Node {
            at,
            height,
            key_len: key.len(),
            value_len,
        };
        let mut head = [0u8; TOWER_AT];
        head[..8].copy_from_slice(&u64::from(kind).to_le_bytes());
        head[8..12].copy_from_slice(&(value_len as u32).to_le_bytes());
        head[12..14].copy_from_slice(&(key.len() as u16).to_le_bytes());
        head[14..16].copy_from_slice(&(height as u16).to_le_bytes());
        self.arena.write(space, at as usize, &head);
        self.arena.write(space, node.key_at(), key);
        node
    }

    /// Writes a node at `at` of `space`, except its links and its sequence number. Returns the
    /// node's end.
    pub(super) fn fill(
        &self,
        space: &Space,
        at: u32,
        height: usize,
        (kind, key, value, crc): (u8, &[u8], &[u8], u32),
    ) -> u32 {
        let node = self.fill_key(space, at, height, (kind, key, value.len()));
        let mut header = [0u8; VALUE_HEADER_BYTES];
        header[..4].copy_from_slice(&crc.to_le_bytes());
        header[4..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        self.arena
            .write(space, node.value_at() - VALUE_HEADER_BYTES, &header);
        self.arena.write(space, node.value_at(), value);
        self.end(node)
    }

    /// The checksum before the value. REQUIRES: no offset was noted there.
    pub(super) fn crc(&self, node: Node) -> u32 {
        get_u32(self.arena.bytes(node.value_at() - VALUE_HEADER_BYTES, 4), 0).unwrap_or(0)
    }

    /// Changes the checksum before the value. REQUIRES: the node is not linked.
    pub(super) fn set_crc(&self, space: &Space, node: Node, crc: u32) {
        self.arena.write(
            space,
            node.value_at() - VALUE_HEADER_BYTES,
            &crc.to_le_bytes(),
        );
    }

    /// Notes the location of the value in the log, or of the entry in persistent memory. REQUIRES:
    /// it is there, and the node is not linked.
    pub(super) fn set_log_offset(&self, space: &Space, node: Node, offset: u64) {
        self.arena.write(
            space,
            node.value_at() - VALUE_HEADER_BYTES,
            &offset.to_le_bytes(),
        );
    }

    /// The location noted by [`Skiplist::set_log_offset`].
    pub(super) fn log_offset(&self, node: Node) -> u64 {
        get_u64(
            self.arena
                .bytes(node.value_at() - VALUE_HEADER_BYTES, VALUE_HEADER_BYTES),
            0,
        )
        .unwrap_or(0)
    }

    /// The node at `at`. REQUIRES: it was filled, and published to this thread.
    #[inline]
    pub(super) fn node(&self, at: u32) -> Node {
        let head = self.arena.bytes(at as usize + 8, 8);
        let sizes = get_u64(head, 0).unwrap_or(0);
        Node {
            at,
            value_len: get_u32(head, 0).unwrap_or(0) as usize,
            key_len: (sizes >> 32) as u16 as usize,
            height: (sizes >> 48) as usize,
        }
    }

    #[inline]
    pub(super) fn key(&self, node: Node) -> &[u8] {
        self.arena.bytes(node.key_at(), node.key_len)
    }

    #[inline]
    pub(super) fn tag(&self, node: Node) -> Tag {
        Tag(self.arena.word64(node.at as usize).load(Ordering::Relaxed) & !READS)
    }

    /// Counts a get that found a linked node, and returns its tag. Concurrent ones may count once.
    #[inline]
    pub(super) fn note_read(&self, node: Node) -> Tag {
        let word = self.arena.word64(node.at as usize);
        let tag = word.load(Ordering::Relaxed);
        // Nothing else in the word changes. Once the count is full, all cores share the cache line.
        if tag & READS != READS {
            word.store(tag + READ, Ordering::Relaxed);
        }
        Tag(tag & !READS)
    }

    /// The number of gets that found a linked node, up to 15.
    pub(super) fn reads(&self, node: Node) -> u8 {
        let tag = self.arena.word64(node.at as usize).load(Ordering::Relaxed);
        ((tag & READS) / READ) as u8
    }

    #[inline]
    fn next(&self, at: u32, level: usize) -> u32 {
        self.arena
            .word32(at as usize + TOWER_AT + 4 * level)
            .load(Ordering::Acquire)
    }

    #[inline]
    fn is_before(&self, at: u32, key: &[u8], tag: Tag) -> bool {
        let node = self.node(at);
        compare(self.key(node), self.tag(node), key, tag) == Order::Less
    }

    /// Links the filled node at `at` under `tag`.
    pub(super) fn link(&self, at: u32, tag: Tag) {
        // Published by the release stores below.
        self.arena
            .word64(at as usize)
            .store(tag.0, Ordering::Relaxed);
        let node = self.node(at);
        if node.height > self.levels() {
            self.levels.fetch_max(node.height, Ordering::Relaxed);
        }
        let key = self.key(node);
        // Right for the levels above those that are in use, too.
        let mut before = [self.head; HEIGHT_MAX];
        let mut after = [END; HEIGHT_MAX];
        self.descend(key, tag, |level, at, next| {
            (before[level], after[level]) = (at, next)
        });
        for level in 0..node.height {
            loop {
                let own = self.arena.word32(at as usize + TOWER_AT + 4 * level);
                own.store(after[level], Ordering::Relaxed);
                let link = self
                    .arena
                    .word32(before[level] as usize + TOWER_AT + 4 * level);
                if link
                    .compare_exchange(after[level], at, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
                {
                    break;
                }
                // Another insert came between. Continue from the last known neighbour.
                (before[level], after[level]) = self.neighbours(before[level], level, key, tag);
            }
        }
    }

    /// Walks down to (key, tag) and passes the neighbours at each level to `visit`: the last node
    /// before the place and the first at or after it. Returns those of level 0.
    #[inline]
    fn descend(&self, key: &[u8], tag: Tag, mut visit: impl FnMut(usize, u32, u32)) -> (u32, u32) {
        let mut at = self.head;
        let mut known_after = END;
        for level in (0..self.levels()).rev() {
            loop {
                let next = self.next(at, level);
                // A node that was after the target one level up is after it here too.
                if next == END || next == known_after || !self.is_before(next, key, tag) {
                    visit(level, at, next);
                    known_after = next;
                    break;
                }
                at = next;
            }
        }
        (at, known_after)
    }

    /// The number of levels in use. A search that does not know of a new one yet finds the same on
    /// the levels below it. The models have two levels anyway, and fewer steps without this word.
    #[inline]
    fn levels(&self) -> usize {
        match cfg!(shuttle) {
            true => HEIGHT_MAX,
            false => self.levels.load(Ordering::Relaxed),
        }
    }

    fn neighbours(&self, mut at: u32, level: usize, key: &[u8], tag: Tag) -> (u32, u32) {
        loop {
            let next = self.next(at, level);
            if next == END || !self.is_before(next, key, tag) {
                return (at, next);
            }
            at = next;
        }
    }

    fn some(&self, at: u32) -> Option<Node> {
        (at != END && at != self.head).then(|| self.node(at))
    }

    /// The first node at or after (key, tag).
    pub(super) fn seek(&self, key: &[u8], tag: Tag) -> Option<Node> {
        self.some(self.descend(key, tag, |_, _, _| ()).1)
    }

    /// The last node before (key, tag).
    pub(super) fn seek_before(&self, key: &[u8], tag: Tag) -> Option<Node> {
        self.some(self.descend(key, tag, |_, _, _| ()).0)
    }

    pub(super) fn first(&self) -> Option<Node> {
        self.some(self.next(self.head, 0))
    }

    pub(super) fn after(&self, node: Node) -> Option<Node> {
        self.some(self.next(node.at, 0))
    }

    pub(super) fn last(&self) -> Option<Node> {
        let mut at = self.head;
        for level in (0..self.levels()).rev() {
            loop {
                let next = self.next(at, level);
                if next == END {
                    break;
                }
                at = next;
            }
        }
        self.some(at)
    }
}
