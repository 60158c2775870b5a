//! The entries of write buffers: staged in memory before an append, and walked after an open.
//!
//! 1. Staged entries are as they will be stored, except for numbers and the checksums that depend
//!    on number or place. An append completes them in place.
//! 2. A walk ends at the first header that is not whole. Everything below a noted end was
//!    committed, so a walk that ends below it met damage.

use super::directory::NamedBuffer;
use super::layout::{ENTRY_HEADER_BYTES, EntryHeader, EntrySalt, entry_bytes};
use crate::sites;
use firn_base::checksum::{crc32c, matches, of_entry};
use firn_base::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use firn_base::{Kind, Result, SeqNo, Tag};
use firn_pm::{Extent, Pool};
use std::iter;

/// The bytes that a walk reads at a time.
const PIECE_BYTES: u64 = 64 << 10;

const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize && VALUE_BYTES_MAX <= u32::MAX as usize);

/// Entries on their way to a buffer.
#[derive(Default, Debug)]
pub struct StagedEntries {
    /// Whole entries. The number of one that was not completed yet is 0.
    bytes: Vec<u8>,
    count: u64,
}

impl StagedEntries {
    /// Adds an entry behind the others. REQUIRES: key and value are within the limits of
    /// [`firn_base::key`].
    pub fn add(&mut self, kind: Kind, key: &[u8], value: &[u8]) {
        debug_assert!(key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX);
        let header = EntryHeader {
            value_crc: crc32c(value),
            tag: Tag::new(SeqNo(0), kind),
            value_len: value.len() as u32,
            key_len: key.len() as u16,
            zero: 0,
        };
        let end = self.bytes.len() + entry_bytes(key.len(), value.len());
        self.bytes.reserve(end - self.bytes.len());
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.bytes.resize(end, 0);
        self.count += 1;
    }

    /// The bytes that they take in a buffer.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The number of entries.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Removes all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// The kind, key and value of each entry, in order.
    pub fn entries(&self) -> impl Iterator<Item = (Kind, &[u8], &[u8])> {
        let mut rest = &self.bytes[..];
        iter::from_fn(move || {
            let header = EntryHeader::decode(rest)?;
            let (entry, next) = rest.split_at_checked(header.bytes())?;
            rest = next;
            let (key_end, kind) = (header.head_bytes(), header.tag.kind()?);
            let value_end = key_end + header.value_len as usize;
            Some((
                kind,
                entry.get(ENTRY_HEADER_BYTES..key_end)?,
                entry.get(key_end..value_end)?,
            ))
        })
    }

    /// Completes the entries for a place that begins `at` bytes into a buffer, with numbers from
    /// `first` on. Returns their bytes. May be repeated for another place.
    pub(super) fn complete(&mut self, salt: EntrySalt, at: u64, first: SeqNo) -> &[u8] {
        let (mut start, mut seqno) = (0, first);
        while let Some(header) = self.bytes.get(start..).and_then(EntryHeader::decode) {
            let entry = &mut self.bytes[start..start + header.bytes()];
            let head_bytes = header.head_bytes();
            let value_crc = match header.tag.seqno() {
                SeqNo(0) => header.value_crc,
                _ => crc32c(&entry[head_bytes..][..header.value_len as usize]),
            };
            let complete = EntryHeader {
                value_crc: of_entry(value_crc, seqno),
                tag: Tag(seqno.0 << 8 | u64::from(header.tag.kind_byte())),
                ..header
            };
            entry[..ENTRY_HEADER_BYTES].copy_from_slice(&complete.encode());
            salt.seal(at + start as u64, &mut entry[..head_bytes]);
            start += header.bytes();
            seqno = SeqNo(seqno.0 + 1);
        }
        &self.bytes
    }
}

/// An entry that a walk met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkedEntry<'a> {
    /// The entry's offset in the buffer, in bytes.
    pub at: u64,
    /// The sequence number and the kind.
    pub tag: Tag,
    /// The key.
    pub key: &'a [u8],
    /// Bytes of the value.
    pub value_len: u32,
    value_crc: u32,
}

impl WalkedEntry<'_> {
    /// The value's offset in the buffer, in bytes.
    pub fn value_at(&self) -> u64 {
        self.at + (ENTRY_HEADER_BYTES + self.key.len()) as u64
    }

    /// This entry, without a look at its buffer: its offset, tag, key, and the length and the
    /// checksum of its value, as a walk found them.
    pub fn of(
        (at, tag, key): (u64, Tag, &[u8]),
        (value_len, value_crc): (u32, u32),
    ) -> WalkedEntry<'_> {
        WalkedEntry {
            at,
            tag,
            key,
            value_len,
            value_crc,
        }
    }

    /// True if `value` has the checksum of its value.
    pub fn has_value(&self, value: &[u8]) -> bool {
        let computed = || of_entry(crc32c(value), self.tag.seqno());
        matches(&sites::PM_BUFFER_VALUE_CHECK, self.value_crc, computed)
    }
}

/// Walks the entries of a buffer from the one at `from` on, and calls `each` with those whose
/// numbers are at most `committed`. Returns the offset after the last of them.
///
/// A walk ends at the end of the extent, at a final end, at the first bytes that are no entry of
/// this buffer, or at a greater number. It reads no values. Rot in a committed entry above the
/// noted end looks like the end of the buffer; a caller that gives out every number once can tell,
/// because one is then missing.
///
/// # Errors
/// `Corruption` if it ends below the noted end, or for an entry that contradicts itself although
/// its checksum is right; the error of `each`.
pub fn walk(
    pool: &Pool,
    buffer: &NamedBuffer,
    from: u64,
    committed: SeqNo,
    mut each: impl FnMut(WalkedEntry<'_>) -> Result<()>,
) -> Result<u64> {
    let salt = EntrySalt::new(&pool.uuid(), buffer.id);
    let limit = buffer.limit();
    let mut pieces = Pieces::new(pool, buffer.extent, limit);
    let damaged = |at: u64, expected: &str| buffer.damaged(at, expected);
    let mut at = from;
    while let Some(bytes) = pieces.get(at, ENTRY_HEADER_BYTES)? {
        let Some(header) = EntryHeader::decode(bytes) else {
            break;
        };
        let Some(head) = pieces.get(at, header.head_bytes())? else {
            break;
        };
        if !salt.is_entry(at, head) || header.tag.seqno() > committed {
            break;
        }
        let end = at + header.bytes() as u64;
        if !header.is_sane() || end > limit {
            return Err(damaged(at, "an entry of a known kind inside its buffer"));
        }
        each(WalkedEntry {
            at,
            tag: header.tag,
            key: head.get(ENTRY_HEADER_BYTES..).unwrap_or_default(),
            value_len: header.value_len,
            value_crc: header.value_crc,
        })?;
        at = end;
    }
    match at < buffer.end {
        true => Err(damaged(at, "a committed entry, of which there are more")),
        false => Ok(at),
    }
}

/// The bytes of an extent, read piece by piece.
pub(super) struct Pieces<'a> {
    pool: &'a Pool,
    extent: Extent,
    /// The end of the bytes that are read.
    limit: u64,
    /// The place of `bytes` in the extent.
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(pool: &'a Pool, extent: Extent, limit: u64) -> Pieces<'a> {
        Pieces {
            pool,
            extent,
            limit,
            start: 0,
            bytes: Vec::new(),
        }
    }

    /// The `len` bytes at `at`; `None` if they pass the limit.
    pub(super) fn get(&mut self, at: u64, len: usize) -> Result<Option<&[u8]>> {
        let end = at.checked_add(len as u64).filter(|&end| end <= self.limit);
        let Some(end) = end else { return Ok(None) };
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            let piece = PIECE_BYTES.max(len as u64).min(self.limit - at);
            self.bytes.resize(piece as usize, 0);
            let Some(place) = self.extent.at(at) else {
                return Ok(None);
            };
            self.pool.read(place, &mut self.bytes)?;
            self.start = at;
        }
        let within = (at - self.start) as usize;
        Ok(self.bytes.get(within..within + len))
    }
}
