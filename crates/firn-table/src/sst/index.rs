//! The index: both bounds of every data block, its location, and its checksum (bounds after
//! BlockDB, III-B).
//!
//! ```text
//! entry    shared with the largest key before: varint | rest: varint
//!          | rest of the largest user key
//!          | shared of the smallest with the largest: varint | rest: varint
//!          | rest of the smallest user key
//!          | offset: varint | stored length: varint | raw length: varint | codec: u8
//!          | CRC-32C of the stored bytes: u32
//! index    count: u32 | entry ...
//! ```
//! 1. Largest keys ascend, and a block's smallest key is not below the largest key of the previous
//!    block. (It may be equal: the versions of one user key can span blocks.)
//! 2. The bounds of a block are among its keys, and no two blocks share a byte, so the keys in
//!    memory are no larger than the data. Otherwise shared prefixes would let a small hostile index
//!    grow without limit.
//! 3. A key between two blocks is in none of them, which a get learns without a read.

use super::compress::Codec;
use firn_base::coding::{Reader, put_bytes, put_varint};
use firn_base::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX, shared_prefix_len};
use firn_base::key_prefixes::KeyPrefixes;

/// The size of the largest possible block, in bytes: one entry of the largest key and value, and
/// its framing.
pub(super) const BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX + 64;

/// A block's location and encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHandle {
    /// The offset in the file.
    pub offset: u64,
    /// Bytes as stored.
    pub stored_len: u32,
    /// Bytes before compression.
    pub raw_len: u32,
    /// The CRC-32C of the stored bytes.
    pub crc: u32,
    /// The encoding.
    pub codec: Codec,
}

impl BlockHandle {
    /// True if its lengths are those of a block, and the block ends by `data_end`.
    pub(crate) fn is_bounded(&self, data_end: u64) -> bool {
        let (stored, raw) = (self.stored_len as usize, self.raw_len as usize);
        let end = self.offset.checked_add(u64::from(self.stored_len));
        stored <= BLOCK_BYTES_MAX
            && raw <= BLOCK_BYTES_MAX
            && raw as u64 <= self.codec.raw_bytes_max(stored as u64)
            && end.is_some_and(|end| end <= data_end)
    }
}

/// Builds the stored index.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    bytes: Vec<u8>,
    raw_lens: Vec<u32>,
    last_largest: Vec<u8>,
}

impl IndexBuilder {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + 4
    }

    pub(super) fn add(&mut self, smallest: &[u8], largest: &[u8], handle: BlockHandle) {
        let shared = shared_prefix_len(&self.last_largest, largest);
        put_varint(&mut self.bytes, shared as u64);
        put_bytes(&mut self.bytes, &largest[shared..]);
        let shared = shared_prefix_len(smallest, largest);
        put_varint(&mut self.bytes, shared as u64);
        put_bytes(&mut self.bytes, &smallest[shared..]);
        put_varint(&mut self.bytes, handle.offset);
        put_varint(&mut self.bytes, u64::from(handle.stored_len));
        put_varint(&mut self.bytes, u64::from(handle.raw_len));
        self.bytes.push(handle.codec as u8);
        self.bytes.extend_from_slice(&handle.crc.to_le_bytes());
        self.last_largest.clear();
        self.last_largest.extend_from_slice(largest);
        self.raw_lens.push(handle.raw_len);
    }

    /// The number of blocks of fewer than `bytes` before compression.
    pub(super) fn blocks_below(&self, bytes: usize) -> u64 {
        self.raw_lens
            .iter()
            .filter(|&&len| (len as usize) < bytes)
            .count() as u64
    }

    /// Bytes of the largest block before compression.
    pub(super) fn block_bytes_max(&self) -> u64 {
        self.raw_lens.iter().copied().max().map_or(0, u64::from)
    }

    pub(super) fn finish(&self) -> Vec<u8> {
        let mut out = (self.raw_lens.len() as u32).to_le_bytes().to_vec();
        out.extend_from_slice(&self.bytes);
        out
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    handle: BlockHandle,
    key_at: u32,
    largest_len: u16,
    smallest_shared: u16,
    smallest_rest: u16,
}

impl Entry {
    /// Decodes the entry after `last` and appends its keys to `keys`.
    fn decode(
        reader: &mut Reader<'_>,
        keys: &mut Vec<u8>,
        last: Option<&Entry>,
        data_end: u64,
    ) -> Option<Entry> {
        let key_at = keys.len();
        let shared = reader.varint_max(last.map_or(0, |last| last.largest_len as usize))?;
        let rest = reader.bytes()?;
        if let Some(last) = last {
            let at = last.key_at as usize;
            keys.extend_from_within(at..at + shared);
        }
        keys.extend_from_slice(rest);
        let largest_len = keys.len() - key_at;
        let smallest_shared = reader.varint_max(largest_len)?;
        let smallest_rest = reader.bytes()?;
        keys.extend_from_slice(smallest_rest);
        let handle = decode_handle(reader, data_end)?;
        if keys.len() - key_at > handle.raw_len as usize {
            return None;
        }
        Some(Entry {
            handle,
            key_at: u32::try_from(key_at).ok()?,
            largest_len: u16::try_from(largest_len).ok()?,
            smallest_shared: smallest_shared as u16,
            smallest_rest: u16::try_from(smallest_rest.len()).ok()?,
        })
    }
}

/// The index in memory. It is flat, so a search touches one array and the keys it compares.
#[derive(Debug)]
pub struct Index {
    entries: Box<[Entry]>,
    keys: Box<[u8]>,
    /// Key prefixes of the largest keys.
    prefixes: KeyPrefixes,
}

impl Index {
    /// Decodes a stored index whose blocks must be below `data_end`.
    ///
    /// # Errors
    /// A description of the expectation that does not hold.
    pub fn decode(bytes: &[u8], data_end: u64) -> Result<Index, &'static str> {
        const ENTRIES: &str = "index entries within the file";
        const DISJOINT: &str = "blocks that do not overlap in the file";
        let mut reader = Reader::new(bytes);
        let count = reader.u32().ok_or(ENTRIES)? as usize;
        // Each entry takes at least this many bytes, which bounds the allocation for a hostile
        // count.
        const ENTRY_BYTES_MIN: usize = 12;
        if count > reader.remaining() / ENTRY_BYTES_MIN {
            return Err(ENTRIES);
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(count);
        let mut keys = Vec::with_capacity(reader.remaining());
        let mut data_left = data_end;
        for _ in 0..count {
            let entry =
                Entry::decode(&mut reader, &mut keys, entries.last(), data_end).ok_or(ENTRIES)?;
            data_left = data_left
                .checked_sub(u64::from(entry.handle.stored_len))
                .ok_or(DISJOINT)?;
            entries.push(entry);
        }
        if !reader.is_empty() {
            return Err(ENTRIES);
        }
        let mut index = Index {
            entries: entries.into(),
            keys: keys.into(),
            prefixes: KeyPrefixes::default(),
        };
        if !index.is_sorted() {
            return Err(
                "blocks in the order of their keys, each with its smallest not above its largest",
            );
        }
        index.prefixes = KeyPrefixes::new(index.len(), |block| index.largest(block));
        if index.is_disjoint() {
            Ok(index)
        } else {
            Err(DISJOINT)
        }
    }

    /// True if no two blocks share a byte of the file.
    fn is_disjoint(&self) -> bool {
        let apart =
            |a: &BlockHandle, b: &BlockHandle| a.offset + u64::from(a.stored_len) <= b.offset;
        if self
            .entries
            .windows(2)
            .all(|pair| apart(&pair[0].handle, &pair[1].handle))
        {
            return true;
        }
        // After appends, their order in the file differs from their key order.
        let mut handles: Vec<&BlockHandle> =
            self.entries.iter().map(|entry| &entry.handle).collect();
        handles.sort_unstable_by_key(|handle| handle.offset);
        handles.windows(2).all(|pair| apart(pair[0], pair[1]))
    }

    /// Bytes of all blocks as stored.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.entries
            .iter()
            .map(|entry| u64::from(entry.handle.stored_len))
            .sum()
    }

    fn is_sorted(&self) -> bool {
        (0..self.len()).all(|i| {
            let bounded = self.compare_smallest(i, self.largest(i)).is_le();
            let behind = i == 0 || self.compare_smallest(i, self.largest(i - 1)).is_ge();
            bounded && behind
        })
    }

    /// The number of blocks in the table.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the table has no block.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>() + self.keys.len() + self.prefixes.memory_bytes()
    }

    pub(super) fn handle(&self, block: usize) -> BlockHandle {
        self.entries[block].handle
    }

    /// The largest user key of a block.
    pub(super) fn largest(&self, block: usize) -> &[u8] {
        let entry = &self.entries[block];
        let at = entry.key_at as usize;
        &self.keys[at..at + entry.largest_len as usize]
    }

    /// The smallest user key of a block.
    pub(super) fn smallest(&self, block: usize) -> Vec<u8> {
        let entry = &self.entries[block];
        let at = entry.key_at as usize;
        let rest_at = at + entry.largest_len as usize;
        let mut key = self.keys[at..at + entry.smallest_shared as usize].to_vec();
        key.extend_from_slice(&self.keys[rest_at..rest_at + entry.smallest_rest as usize]);
        key
    }

    /// Compares a block's smallest user key with `key`, without building it.
    pub(super) fn compare_smallest(&self, block: usize, key: &[u8]) -> std::cmp::Ordering {
        let entry = &self.entries[block];
        let at = entry.key_at as usize;
        let shared = &self.keys[at..at + entry.smallest_shared as usize];
        let rest_at = at + entry.largest_len as usize;
        let rest = &self.keys[rest_at..rest_at + entry.smallest_rest as usize];
        match key.split_at_checked(shared.len()) {
            Some((head, tail)) => shared.cmp(head).then_with(|| rest.cmp(tail)),
            None => shared.cmp(key),
        }
    }

    /// The first block whose largest key is not below `key`, or `len()` if there is none. Only this
    /// block, and those after it that begin with the same key, can contain the key.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.prefixes
            .first_not_below(key, |block| self.largest(block))
    }
}

fn decode_handle(reader: &mut Reader<'_>, data_end: u64) -> Option<BlockHandle> {
    let offset = reader.varint()?;
    let stored_len = reader.varint_max(BLOCK_BYTES_MAX)? as u32;
    let raw_len = reader.varint_max(BLOCK_BYTES_MAX)? as u32;
    let codec = Codec::from_byte(reader.u8()?)?;
    let crc = reader.u32()?;
    let handle = BlockHandle {
        offset,
        stored_len,
        raw_len,
        crc,
        codec,
    };
    handle.is_bounded(data_end).then_some(handle)
}
