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
//! 3. Without a codec both lengths of a block are the same. An offset has at most 48 bits.
//! 4. A key between two blocks is in none of them, which a get learns without a read.

use super::compress::Codec;
use firn_base::coding::{Reader, put_bytes, put_varint};
use firn_base::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX, shared_prefix_len};
use firn_base::key_prefixes::{KeyPrefixes, WORD_BYTES, word};
use std::cmp::Ordering;
use std::ops::Range;

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
    /// True if its lengths are those of a block, and the block ends by `data_end`. Without a codec
    /// both lengths are the same.
    pub(crate) fn is_bounded(&self, data_end: u64) -> bool {
        let (stored, raw) = (self.stored_len as usize, self.raw_len as usize);
        let end = self.offset.checked_add(u64::from(self.stored_len));
        stored <= BLOCK_BYTES_MAX
            && raw <= BLOCK_BYTES_MAX
            && raw as u64 <= self.codec.raw_bytes_max(stored as u64)
            && (self.codec != Codec::None || stored == raw)
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

/// The stored entries, one after the other.
struct Stored<'a> {
    reader: Reader<'a>,
    data_end: u64,
    /// The largest key of the current entry.
    largest: Vec<u8>,
    /// Bytes at the start of the smallest key that are those of the largest.
    shared: usize,
    /// The rest of the smallest key.
    rest: &'a [u8],
    handle: BlockHandle,
}

impl<'a> Stored<'a> {
    /// Goes on to the next entry. `None` if it is malformed.
    fn advance(&mut self) -> Option<()> {
        let reader = &mut self.reader;
        let shared = reader.varint_max(self.largest.len())?;
        self.largest.truncate(shared);
        self.largest.extend_from_slice(reader.bytes()?);
        self.shared = reader.varint_max(self.largest.len())?;
        self.rest = reader.bytes()?;
        self.handle = decode_handle(reader, self.data_end)?;
        let is_short = |key: &[u8]| key.len() <= KEY_BYTES_MAX;
        let fits = self.largest.len() + self.rest.len() <= self.handle.raw_len as usize;
        (fits && is_short(&self.largest) && is_short(self.rest)).then_some(())
    }

    /// Compares the smallest key of the current entry with `key`.
    fn compare_smallest(&self, key: &[u8]) -> Ordering {
        compare([&self.largest[..self.shared], self.rest], key)
    }
}

/// Compares a key in pieces with a whole one.
#[inline]
fn compare<const N: usize>(pieces: [&[u8]; N], mut key: &[u8]) -> Ordering {
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        let Some((head, tail)) = key.split_at_checked(piece.len()) else {
            return piece.cmp(key);
        };
        match piece.cmp(head) {
            Ordering::Equal => key = tail,
            unequal => return unequal,
        }
    }
    match key {
        [] => Ordering::Equal,
        _ => Ordering::Less,
    }
}

/// A block in memory. Its keys are in [`Index::rests`].
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where its part of `rests` begins.
    at: u32,
    /// The low bits of the offset in the file.
    offset_low: u32,
    /// The high bits of it.
    offset_high: u16,
    codec: Codec,
    stored_len: u32,
    crc: u32,
}

const _: () = assert!(size_of::<Entry>() == 20);

/// The bounds of a block. Its largest key is `prefix`, `word` and `rest`; its smallest the first
/// `shared` bytes of that, and `own`.
struct Bounds<'a> {
    prefix: &'a [u8],
    word: [u8; 8],
    word_len: usize,
    rest: &'a [u8],
    shared: usize,
    own: &'a [u8],
}

impl Bounds<'_> {
    fn largest(&self) -> [&[u8]; 3] {
        [self.prefix, &self.word[..self.word_len], self.rest]
    }

    #[inline]
    fn smallest(&self) -> [&[u8]; 4] {
        let mut left = self.shared;
        let [prefix, word, rest] = self.largest().map(|piece| {
            let piece = &piece[..piece.len().min(left)];
            left -= piece.len();
            piece
        });
        [prefix, word, rest, self.own]
    }
}

/// The index in memory. A search touches the words of the largest keys, which are side by side, and
/// the block that it finds. The bytes of a key that its word holds are not stored again, to leave
/// memory to the cache: a block with keys of 16 bytes takes about 46 bytes.
#[derive(Debug)]
pub struct Index {
    entries: Box<[Entry]>,
    /// The rest of each block, one behind the other:
    ///
    /// ```text
    /// raw length: varint, if it is compressed
    /// length of the largest key without the prefix: varint | its bytes after the word
    /// shared of the smallest with the largest: varint | rest: varint | rest of the smallest key
    /// ```
    rests: Box<[u8]>,
    /// Key prefixes of the largest keys.
    prefixes: KeyPrefixes,
}

const ENTRIES: &str = "index entries within the file";
const SORTED: &str =
    "blocks in the order of their keys, each with its smallest not above its largest";
const DISJOINT: &str = "blocks that do not overlap in the file";

impl Index {
    /// Decodes a stored index whose blocks must be below `data_end`.
    ///
    /// # Errors
    /// A description of the expectation that does not hold.
    pub fn decode(bytes: &[u8], data_end: u64) -> Result<Index, &'static str> {
        let mut reader = Reader::new(bytes);
        let count = reader.u32().ok_or(ENTRIES)? as usize;
        // Each entry takes at least this many bytes, which bounds the allocation for a hostile
        // count.
        const ENTRY_BYTES_MIN: usize = 12;
        if count > reader.remaining() / ENTRY_BYTES_MIN {
            return Err(ENTRIES);
        }
        let stored = || Stored {
            reader: reader.clone(),
            data_end,
            largest: Vec::new(),
            shared: 0,
            rest: &[],
            handle: BlockHandle::default(),
        };
        let prefix = Self::check(stored(), count)?;
        let index = Self::pack(stored(), count, prefix).ok_or(ENTRIES)?;
        index.is_disjoint().then_some(index).ok_or(DISJOINT)
    }

    /// Checks what can be checked entry by entry. Returns the prefix of all largest keys.
    fn check(mut stored: Stored<'_>, count: usize) -> Result<Vec<u8>, &'static str> {
        let (mut prefix, mut last) = (Vec::new(), Vec::new());
        let mut data_left = stored.data_end;
        for number in 0..count {
            last.clone_from(&stored.largest);
            stored.advance().ok_or(ENTRIES)?;
            data_left = data_left
                .checked_sub(u64::from(stored.handle.stored_len))
                .ok_or(DISJOINT)?;
            let is_behind = number == 0 || stored.compare_smallest(&last).is_ge();
            if !is_behind || stored.compare_smallest(&stored.largest).is_gt() {
                return Err(SORTED);
            }
            if number == 0 {
                prefix.clone_from(&stored.largest);
            }
        }
        prefix.truncate(shared_prefix_len(&prefix, &stored.largest));
        match stored.reader.is_empty() {
            true => Ok(prefix),
            false => Err(ENTRIES),
        }
    }

    /// The index in memory. `None` if it would be too large.
    fn pack(mut stored: Stored<'_>, count: usize, prefix: Vec<u8>) -> Option<Index> {
        let mut entries = Vec::with_capacity(count);
        let mut rests = Vec::with_capacity(stored.reader.remaining());
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            stored.advance()?;
            let handle = stored.handle;
            entries.push(Entry {
                at: u32::try_from(rests.len()).ok()?,
                offset_low: handle.offset as u32,
                offset_high: u16::try_from(handle.offset >> 32).ok()?,
                codec: handle.codec,
                stored_len: handle.stored_len,
                crc: handle.crc,
            });
            if handle.codec != Codec::None {
                put_varint(&mut rests, u64::from(handle.raw_len));
            }
            let tail = &stored.largest[prefix.len()..];
            words.push(word(tail));
            put_varint(&mut rests, tail.len() as u64);
            rests.extend_from_slice(tail.get(WORD_BYTES..).unwrap_or_default());
            put_varint(&mut rests, stored.shared as u64);
            put_bytes(&mut rests, stored.rest);
        }
        Some(Index {
            entries: entries.into(),
            rests: rests.into(),
            prefixes: KeyPrefixes::of_words(prefix, words),
        })
    }

    /// True if no two blocks share a byte of the file.
    fn is_disjoint(&self) -> bool {
        let extent = |entry: &Entry| {
            let start = entry.offset();
            start..start + u64::from(entry.stored_len)
        };
        let apart = |a: &Range<u64>, b: &Range<u64>| a.end <= b.start;
        if self
            .entries
            .windows(2)
            .all(|pair| apart(&extent(&pair[0]), &extent(&pair[1])))
        {
            return true;
        }
        // After appends, their order in the file differs from their key order.
        let mut extents: Vec<Range<u64>> = self.entries.iter().map(extent).collect();
        extents.sort_unstable_by_key(|extent| extent.start);
        extents.windows(2).all(|pair| apart(&pair[0], &pair[1]))
    }

    /// Bytes of all blocks as stored.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.entries
            .iter()
            .map(|entry| u64::from(entry.stored_len))
            .sum()
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
        size_of_val(&*self.entries) + self.rests.len() + self.prefixes.memory_bytes()
    }

    /// The lengths of a block, and a reader of its keys.
    #[inline]
    fn rest(&self, block: usize) -> (u32, Reader<'_>) {
        let entry = &self.entries[block];
        let mut reader = Reader::new(&self.rests[entry.at as usize..]);
        let raw_len = match entry.codec {
            Codec::None => entry.stored_len,
            _ => packed(reader.varint()) as u32,
        };
        (raw_len, reader)
    }

    pub(super) fn handle(&self, block: usize) -> BlockHandle {
        let entry = &self.entries[block];
        BlockHandle {
            offset: entry.offset(),
            stored_len: entry.stored_len,
            raw_len: self.rest(block).0,
            crc: entry.crc,
            codec: entry.codec,
        }
    }

    #[inline]
    fn bounds(&self, block: usize) -> Bounds<'_> {
        let (_, mut reader) = self.rest(block);
        let tail_len = packed(reader.varint()) as usize;
        Bounds {
            prefix: self.prefixes.prefix(),
            word: self.prefixes.word(block),
            word_len: tail_len.min(WORD_BYTES),
            rest: packed(reader.take(tail_len.saturating_sub(WORD_BYTES))),
            shared: packed(reader.varint()) as usize,
            own: packed(reader.bytes()),
        }
    }

    /// The largest user key of a block.
    pub(super) fn largest(&self, block: usize) -> Vec<u8> {
        self.bounds(block).largest().concat()
    }

    /// The smallest user key of a block.
    pub(super) fn smallest(&self, block: usize) -> Vec<u8> {
        self.bounds(block).smallest().concat()
    }

    /// Compares a block's largest user key with `key`, without building it.
    pub(super) fn compare_largest(&self, block: usize, key: &[u8]) -> Ordering {
        compare(self.bounds(block).largest(), key)
    }

    /// Compares a block's smallest user key with `key`, without building it.
    #[inline]
    pub(super) fn compare_smallest(&self, block: usize, key: &[u8]) -> Ordering {
        compare(self.bounds(block).smallest(), key)
    }

    /// The first block whose largest key is not below `key`, or `len()` if there is none. Only this
    /// block, and those after it that begin with the same key, can contain the key.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        let is_below = |block| self.compare_largest(block, key).is_lt();
        self.prefixes.first_not(key, is_below)
    }
}

impl Entry {
    fn offset(&self) -> u64 {
        u64::from(self.offset_high) << 32 | u64::from(self.offset_low)
    }
}

/// Unwraps what [`Index::pack`] wrote.
#[inline]
fn packed<T>(part: Option<T>) -> T {
    part.unwrap_or_else(|| unreachable!("an index in memory is as it was packed"))
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
