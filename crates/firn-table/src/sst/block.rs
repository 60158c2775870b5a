//! Data blocks: prefix-compressed entries with restart points. Built by [`BlockBuilder`], searched
//! by [`Block::get`].
//!
//! ```text
//! entry    shared: varint | rest: varint | value length: varint | tag: u64 | key rest | value
//! block    entry ... | restart offset: u32 ... | restart count: u32
//! ```
//! 1. Entries are in internal key order: user key ascending, tag descending.
//! 2. An entry at a restart point shares nothing, so its key can be read in place.
//! 3. A block whose checksum matched may still be hostile. Every length is checked, and a bad one
//!    means "damaged".

use firn_base::coding::{Reader, get_u32, put_varint};
use firn_base::key::{KEY_BYTES_MAX, Tag, shared_prefix_len};
use firn_fs::give_back_buffer;
use std::cmp::Ordering;
use std::ops::Range;

/// Builds one block at a time. After [`BlockBuilder::finish`], `reset` begins the next one.
#[derive(Debug)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    last_key: Vec<u8>,
    restart_interval: usize,
    since_restart: usize,
    entries: usize,
}

impl BlockBuilder {
    /// An empty builder. Every `restart_interval`th key is stored whole.
    pub fn new(restart_interval: usize) -> Self {
        Self {
            bytes: Vec::new(),
            restarts: Vec::new(),
            last_key: Vec::new(),
            restart_interval,
            since_restart: 0,
            entries: 0,
        }
    }

    /// Reserves room for one entry with `bytes` bytes of key and value.
    pub(super) fn reserve(&mut self, bytes: usize) {
        const HEADER_AND_RESTARTS: usize = 48;
        self.bytes.reserve_exact(bytes + HEADER_AND_RESTARTS);
    }

    /// True if no entry was added.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The block's size in bytes if it ended here.
    pub fn len(&self) -> usize {
        self.bytes.len() + (self.restarts.len() + 1) * 4
    }

    /// Adds an entry. REQUIRES: it is after the previous one in internal key order.
    pub fn add(&mut self, key: &[u8], tag: Tag, value: &[u8]) {
        let restart = self.entries == 0 || self.since_restart == self.restart_interval;
        let shared = if restart {
            0
        } else {
            shared_prefix_len(&self.last_key, key)
        };
        if restart {
            self.restarts.push(self.bytes.len() as u32);
            self.since_restart = 0;
        }
        put_entry_head(&mut self.bytes, shared, key, tag, value.len());
        self.bytes.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.since_restart += 1;
        self.entries += 1;
    }

    /// Ends the block and returns its bytes, valid until the next `reset`.
    pub fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        self.bytes
            .extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.bytes
    }

    /// The buffer that holds the bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Begins the next block.
    pub fn reset(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.last_key.clear();
        self.since_restart = 0;
        self.entries = 0;
    }
}

fn put_entry_head(out: &mut Vec<u8>, shared: usize, key: &[u8], tag: Tag, value_len: usize) {
    put_varint(out, shared as u64);
    put_varint(out, (key.len() - shared) as u64);
    put_varint(out, value_len as u64);
    out.extend_from_slice(&tag.0.to_le_bytes());
    out.extend_from_slice(&key[shared..]);
}

/// The bytes of a one-entry block before and after its value of `value_len` bytes. For a value too
/// large to be copied.
pub(super) fn around_value(key: &[u8], tag: Tag, value_len: usize) -> (Vec<u8>, [u8; 8]) {
    let mut head = Vec::new();
    put_entry_head(&mut head, 0, key, tag, value_len);
    // One restart point, at 0.
    (head, [0, 0, 0, 0, 1, 0, 0, 0])
}

/// A decoded block.
pub struct Block {
    bytes: Box<[u8]>,
    restarts_at: usize,
    restarts: usize,
}

/// A block in memory that someone else owns.
#[derive(Clone, Copy)]
pub(crate) struct BlockView<'a> {
    bytes: &'a [u8],
    restarts_at: usize,
    restarts: usize,
}

/// The result of a search in one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The newest entry of the key at or below the read point, and the range of its value.
    Found(Tag, Range<usize>),
    /// The key has no entry, or all its entries are above the read point, and the block continues
    /// after them.
    Absent,
    /// The block ended before the place where the entry would be.
    PastEnd,
}

/// The fields of an encoded entry.
pub(super) struct RawEntry<'a> {
    pub(super) shared: usize,
    pub(super) rest: &'a [u8],
    pub(super) tag: Tag,
    pub(super) value: Range<usize>,
}

impl Block {
    /// Takes `bytes` for a block; `None` if its restart array is not valid.
    pub fn new(bytes: Box<[u8]>) -> Option<Block> {
        let BlockView {
            restarts_at,
            restarts,
            ..
        } = BlockView::new(&bytes)?;
        Some(Block {
            bytes,
            restarts_at,
            restarts,
        })
    }

    /// Bytes held.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if it has no bytes. Never the case.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(crate) fn view(&self) -> BlockView<'_> {
        BlockView {
            bytes: &self.bytes,
            restarts_at: self.restarts_at,
            restarts: self.restarts,
        }
    }

    pub(crate) fn value(&self, range: &Range<usize>) -> &[u8] {
        &self.bytes[range.clone()]
    }

    /// The offset where the entries end.
    pub(super) fn entries_end(&self) -> usize {
        self.restarts_at
    }

    /// Searches for the newest entry of `key` at or below `tag`. `None` if the block is damaged.
    pub fn get(&self, key: &[u8], tag: Tag) -> Option<Lookup> {
        self.view().get(key, tag)
    }
}

impl<'a> BlockView<'a> {
    /// Takes `bytes` for a block; `None` if its restart array is not valid.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Option<BlockView<'a>> {
        let count_at = bytes.len().checked_sub(4)?;
        let restarts = get_u32(bytes, count_at)? as usize;
        let restarts_at = count_at.checked_sub(restarts.checked_mul(4)?)?;
        (restarts > 0 && get_u32(bytes, restarts_at)? == 0).then_some(BlockView {
            bytes,
            restarts_at,
            restarts,
        })
    }

    pub(crate) fn value(&self, range: &Range<usize>) -> &'a [u8] {
        &self.bytes[range.clone()]
    }

    pub(super) fn restarts(&self) -> usize {
        self.restarts
    }

    /// The offset of restart point `i`; `None` if it is out of bounds.
    pub(super) fn restart(&self, i: usize) -> Option<usize> {
        let at = get_u32(self.bytes, self.restarts_at + i * 4)? as usize;
        (at < self.restarts_at).then_some(at)
    }

    /// The entry at `at`; `None` if it does not fit the block.
    #[inline]
    pub(super) fn entry(&self, at: usize) -> Option<RawEntry<'a>> {
        let mut reader = Reader::new(self.bytes.get(at..self.restarts_at)?);
        let shared = reader.varint_max(KEY_BYTES_MAX)?;
        let rest_len = reader.varint_max(KEY_BYTES_MAX)?;
        let value_len = reader.varint_max(self.restarts_at)?;
        let tag = Tag(reader.u64()?);
        let rest = reader.take(rest_len)?;
        let value_at = self.restarts_at - reader.remaining();
        reader.take(value_len)?;
        Some(RawEntry {
            shared,
            rest,
            tag,
            value: value_at..value_at + value_len,
        })
    }

    /// The last restart point whose key is before (key, tag), or else the first. `None` if the
    /// block is damaged.
    pub(super) fn restart_before(&self, key: &[u8], tag: Tag) -> Option<usize> {
        let (mut low, mut high) = (0, self.restarts);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let entry = self.entry(self.restart(middle)?)?;
            if entry.shared != 0 {
                return None;
            }
            match firn_base::key::compare(entry.rest, entry.tag, key, tag) {
                Ordering::Less => low = middle,
                _ => high = middle,
            }
        }
        self.restart(low)
    }

    /// Searches for the newest entry of `key` at or below `tag`. `None` if the block is damaged.
    ///
    /// Compares prefix-compressed keys without building them. `matched` is the length of the common
    /// prefix of the target and the previous key, which is before the target. An entry that shares
    /// more than that with its predecessor is before the target too. One that shares less is after
    /// it. One that shares exactly that (or nothing, as at a restart point, where the key is whole)
    /// is decided by its own bytes.
    pub(crate) fn get(&self, key: &[u8], tag: Tag) -> Option<Lookup> {
        let mut at = self.restart_before(key, tag)?;
        let mut matched = 0;
        while at < self.restarts_at {
            let entry = self.entry(at)?;
            at = entry.value.end;
            if entry.shared > matched {
                continue;
            }
            if entry.shared < matched && entry.shared != 0 {
                return Some(Lookup::Absent);
            }
            let target = &key[entry.shared..];
            match entry.rest.cmp(target) {
                Ordering::Greater => return Some(Lookup::Absent),
                Ordering::Equal if entry.tag <= tag => {
                    return Some(Lookup::Found(entry.tag, entry.value));
                }
                _ => matched = entry.shared + shared_prefix_len(entry.rest, target),
            }
        }
        Some(Lookup::PastEnd)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        give_back_buffer(&mut self.bytes);
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Block({} bytes, {} restarts)",
            self.bytes.len(),
            self.restarts
        )
    }
}
