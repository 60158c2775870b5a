//! Everything of a damaged buffer that is whole.
//!
//! The checksum of an entry's header and key is salted with the entry's place, so the entries after
//! a damaged one are found by a look at each place where one may begin.

use super::directory::NamedBuffer;
use super::entries::{Pieces, WalkedEntry};
use super::layout::{ENTRY_ALIGN, ENTRY_HEADER_BYTES, EntryHeader, EntrySalt};
use firn_base::{Error, Result, SeqNo};
use firn_pm::Pool;
use std::ops::Range;

/// Bytes of a buffer that should be entries and are not.
#[derive(Debug, Clone)]
pub struct DamagedPart {
    /// Their place in the buffer. Entries begin at its start and end at its end.
    pub range: Range<u64>,
    /// The error, with the place in the pool: `Corruption`.
    pub error: Error,
}

impl NamedBuffer {
    /// The end of the bytes that may be entries.
    pub(super) fn limit(&self) -> u64 {
        match self.is_final {
            true => self.end.min(self.extent.len),
            false => self.extent.len,
        }
    }

    #[cold]
    pub(super) fn damaged(&self, at: u64, expected: &str) -> Error {
        let place = format!("write buffer {} in the pool", self.id);
        Error::corruption(place, self.extent.offset.get().saturating_add(at), expected)
    }

    /// Reads the value of an entry of this buffer.
    ///
    /// # Errors
    /// `Corruption` if it is damaged.
    pub fn read_value(&self, pool: &Pool, entry: &WalkedEntry<'_>) -> Result<Vec<u8>> {
        let damaged = || self.damaged(entry.value_at(), "a value with its checksum");
        let len = u64::from(entry.value_len);
        let end = entry.value_at().checked_add(len);
        if end.is_none_or(|end| end > self.extent.len) {
            return Err(damaged());
        }
        let place = self.extent.at(entry.value_at()).ok_or_else(damaged)?;
        let mut value = vec![0; entry.value_len as usize];
        pool.read(place, &mut value)?;
        match entry.has_value(&value) {
            true => Ok(value),
            false => Err(damaged()),
        }
    }
}

/// As [`walk`](super::walk) from the first entry on, but goes on after damage, with the next entry
/// that is whole. Calls `each` with entries and damaged parts, in the order of their places. Rot in
/// the last committed entries above the noted end still looks like the end of the buffer.
///
/// # Errors
/// The error of reading the pool, and that of `each`.
pub fn salvage(
    pool: &Pool,
    buffer: &NamedBuffer,
    committed: SeqNo,
    mut each: impl FnMut(Result<WalkedEntry<'_>, DamagedPart>) -> Result<()>,
) -> Result<()> {
    let salt = EntrySalt::new(&pool.uuid(), buffer.id);
    let limit = buffer.limit();
    let mut pieces = Pieces::new(pool, buffer.extent, limit);
    let damaged = |range: Range<u64>| DamagedPart {
        error: buffer.damaged(range.start, "a committed entry, of which there are more"),
        range,
    };
    // The end of the last entry, and its number.
    let (mut end, mut last) = (0, SeqNo(0));
    let mut at = 0;
    while let Some(bytes) = pieces.get(at, ENTRY_HEADER_BYTES)? {
        let header = EntryHeader::decode(bytes).filter(|header| {
            let seqno = header.tag.seqno();
            let is_inside = at + header.bytes() as u64 <= limit;
            header.is_sane() && seqno > last && seqno <= committed && is_inside
        });
        let head = match &header {
            Some(header) => pieces.get(at, header.head_bytes())?,
            None => None,
        };
        let head = head.filter(|head| salt.is_entry(at, head));
        let (Some(header), Some(head)) = (header, head) else {
            at += ENTRY_ALIGN as u64;
            continue;
        };
        if at > end {
            each(Err(damaged(end..at)))?;
        }
        let key = head.get(ENTRY_HEADER_BYTES..).unwrap_or_default();
        let value = (header.value_len, header.value_crc);
        each(Ok(WalkedEntry::of((at, header.tag, key), value)))?;
        last = header.tag.seqno();
        at += header.bytes() as u64;
        end = at;
    }
    match end < buffer.end {
        true => each(Err(damaged(end..buffer.end))),
        false => Ok(()),
    }
}
