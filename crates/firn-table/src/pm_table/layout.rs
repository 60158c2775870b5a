//! The bytes of a table in a pool.
//!
//! ```text
//! table    header (128 bytes) | group ... | slot ... | offset ... | segment ... | largest key
//!          | filter | sketch, in one extent
//! header   magic: u64 | CRC-32C: u32 | version: u8 | arrangement: u8 | bytes of a slot: u8
//!          | 0: u8 | id: u64 | database: 16 bytes | entries: u64 | deletes: u64
//!          | lowest sequence number: u64 | highest: u64 | bytes of keys and values: u64
//!          | superseded bytes: u64 | largest entry: u32 | end of the groups: u32 | groups: u32
//!          | segments: u32 | their bytes: u32 | filter bytes: u32 | hashes of the sketch: u32
//!          | CRC-32C of all from the slots on: u32 | 0: 8 bytes
//! group    CRC-32C: u32 | bytes of the heads: u32 | entries: u32 | shared bytes: u32
//!          | base tag: u64 | shared bytes of all keys | head ... | value ...,
//!          at a multiple of 64
//! head     rest of the key: varint | tag above the base: varint | value bytes: varint
//!          | value's CRC-32C: u32 | rest of the key
//! slot     bytes of the group's first key after those that its segment shares, padded with zeros
//! offset   of the group: u32, in units of 8 bytes
//! segment  first group: varint | shared bytes: varint | the group's first key, with its length
//! sketch   hash: u64 ...
//! ```
//! 1. All versions of a key are in one group, so the order of groups is that of keys alone.
//! 2. A group's checksum covers its heads, salted with the table's id, the group's number and its
//!    place in the table. A value's checksum is tied to its sequence number. So a table may be
//!    copied within its pool, and neither bytes of another table nor another group pass for those
//!    that were asked for.
//! 3. The header's checksum is salted with the place in the pool: a copy of a table is none.

use crate::sites;
use firn_base::checksum::{crc32c, crc32c_salted, matches, of_entry};
use firn_base::coding::{Reader, put_varint};
use firn_base::{FileId, SeqNo, Tag};

/// `firntabl` as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"firntabl");
const VERSION: u8 = 1;
pub(super) const HEADER_BYTES: usize = 128;
pub(super) const GROUP_BYTES: usize = 24;
/// Groups begin at multiples of this, a cache line.
pub(super) const GROUP_ALIGN: usize = 64;
pub(super) const OFFSET_UNIT: usize = 8;
pub(super) const OFFSET_BYTES: usize = 4;
/// The sizes of slots.
pub(super) const SLOT_BYTES: [usize; 3] = [8, 16, 24];
/// The largest size of a slot.
pub(super) const SLOT_BYTES_MAX: usize = 24;
/// The most bytes of a segment's key that its slots leave out.
pub(super) const SHARED_MAX: usize = 1 << 12;

const _: () = assert!(8 + 4 + 4 + 8 + 16 + 6 * 8 + 8 * 4 + 8 == HEADER_BYTES);
const _: () = assert!(4 * 4 + 8 == GROUP_BYTES);

/// The arrangement of a table's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Arrangement {
    /// Entries one by one under an array of offsets, searched by whole keys: what PM-Blade is
    /// compared with.
    Array = 0,
    /// Groups under slots and segments.
    #[default]
    Grouped = 1,
}

impl Arrangement {
    fn from_byte(byte: u8) -> Option<Arrangement> {
        match byte {
            0 => Some(Arrangement::Array),
            1 => Some(Arrangement::Grouped),
            _ => None,
        }
    }
}

/// Sums over the entries of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PmTotals {
    /// Entries.
    pub entries: u64,
    /// The deletes among them.
    pub deletes: u64,
    /// The lowest sequence number.
    pub seqno_min: SeqNo,
    /// The highest sequence number.
    pub seqno_max: SeqNo,
    /// Bytes of keys and values.
    pub data_bytes: u64,
    /// Bytes of the entries that follow a newer one of the same key.
    pub superseded_bytes: u64,
    /// Bytes of the largest entry.
    pub entry_bytes_max: u32,
}

impl Default for PmTotals {
    fn default() -> PmTotals {
        PmTotals {
            entries: 0,
            deletes: 0,
            seqno_min: SeqNo::MAX,
            seqno_max: SeqNo(0),
            data_bytes: 0,
            superseded_bytes: 0,
            entry_bytes_max: 0,
        }
    }
}

/// A table's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) arrangement: Arrangement,
    pub(super) slot_bytes: usize,
    pub(super) id: FileId,
    pub(super) totals: PmTotals,
    pub(super) groups_end: usize,
    pub(super) groups: usize,
    pub(super) segments: usize,
    /// Bytes of the segments and the largest key.
    pub(super) segment_bytes: usize,
    pub(super) filter_bytes: usize,
    /// Hashes of the sketch.
    pub(super) hashes: usize,
    pub(super) search_crc: u32,
}

impl Header {
    /// The place of the slots: the end of the groups, rounded up to a line.
    pub(super) fn slots_at(&self) -> usize {
        self.groups_end.next_multiple_of(GROUP_ALIGN)
    }

    pub(super) fn offsets_at(&self) -> usize {
        self.slots_at() + self.groups * self.slot_bytes
    }

    pub(super) fn segments_at(&self) -> usize {
        self.offsets_at() + self.groups * OFFSET_BYTES
    }

    pub(super) fn filter_at(&self) -> usize {
        self.segments_at() + self.segment_bytes
    }

    pub(super) fn sketch_at(&self) -> usize {
        self.filter_at() + self.filter_bytes
    }

    /// The bytes of the table.
    pub(super) fn end(&self) -> usize {
        self.sketch_at() + self.hashes * size_of::<u64>()
    }

    /// The checksum of the bytes after the groups.
    pub(super) fn crc_of_search(&self, bytes: &[u8]) -> u32 {
        crc32c_salted(self.id.0, self.slots_at() as u64, &[bytes])
    }

    /// The header's bytes, for a table at `offset` in the pool of the database `uuid`.
    pub(super) fn encode(&self, uuid: &[u8; 16], offset: u64) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        let totals = &self.totals;
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[VERSION, self.arrangement as u8, self.slot_bytes as u8, 0]);
        out.extend_from_slice(&self.id.0.to_le_bytes());
        out.extend_from_slice(uuid);
        let words = [
            totals.entries,
            totals.deletes,
            totals.seqno_min.0,
            totals.seqno_max.0,
            totals.data_bytes,
            totals.superseded_bytes,
        ];
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let halves = [
            totals.entry_bytes_max,
            self.groups_end as u32,
            self.groups as u32,
            self.segments as u32,
            self.segment_bytes as u32,
            self.filter_bytes as u32,
            self.hashes as u32,
            self.search_crc,
        ];
        for half in halves {
            out.extend_from_slice(&half.to_le_bytes());
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[..out.len()].copy_from_slice(&out);
        let crc = header_crc(&bytes, self.id, offset);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header in `bytes`, which are at `offset` in the pool of the database `uuid`; `None` if
    /// there is none.
    pub(super) fn decode(
        bytes: &[u8; HEADER_BYTES],
        uuid: &[u8; 16],
        offset: u64,
    ) -> Option<Header> {
        let mut reader = Reader::new(bytes);
        if reader.u64()? != MAGIC {
            return None;
        }
        let crc = reader.u32()?;
        let (version, arrangement) = (reader.u8()?, reader.u8()?);
        let slot_bytes = usize::from(reader.u8()?);
        let _zero = reader.u8()?;
        let id = FileId(reader.u64()?);
        let of_uuid = reader.take(16)?;
        let whole = matches(&sites::PM_TABLE_HEADER_CHECK, crc, || {
            header_crc(bytes, id, offset)
        });
        if version != VERSION || of_uuid != uuid || !whole {
            return None;
        }
        let totals = PmTotals {
            entries: reader.u64()?,
            deletes: reader.u64()?,
            seqno_min: SeqNo(reader.u64()?),
            seqno_max: SeqNo(reader.u64()?),
            data_bytes: reader.u64()?,
            superseded_bytes: reader.u64()?,
            entry_bytes_max: reader.u32()?,
        };
        let mut half = || reader.u32().map(|half| half as usize);
        let header = Header {
            arrangement: Arrangement::from_byte(arrangement)?,
            slot_bytes,
            id,
            totals,
            groups_end: half()?,
            groups: half()?,
            segments: half()?,
            segment_bytes: half()?,
            filter_bytes: half()?,
            hashes: half()?,
            search_crc: half()? as u32,
        };
        header.is_sane().then_some(header)
    }

    fn is_sane(&self) -> bool {
        let slots = match self.arrangement {
            Arrangement::Array => self.slot_bytes == 0,
            Arrangement::Grouped => SLOT_BYTES.contains(&self.slot_bytes),
        };
        slots
            && self.groups > 0
            && self.segments > 0
            && self.groups <= self.groups_end / GROUP_BYTES
            && self.segments <= self.groups
            && self.groups_end > HEADER_BYTES
            && self.totals.entries >= self.groups as u64
            && self.totals.deletes <= self.totals.entries
    }
}

fn header_crc(bytes: &[u8; HEADER_BYTES], id: FileId, offset: u64) -> u32 {
    crc32c_salted(id.0, offset, &[&bytes[..8], &bytes[12..]])
}

/// The fixed part of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct GroupHead {
    crc: u32,
    /// Bytes of the shared prefix and of the entries' heads.
    pub(super) heads: usize,
    pub(super) entries: usize,
    pub(super) shared: usize,
    base: u64,
}

impl GroupHead {
    pub(super) fn decode(bytes: &[u8]) -> Option<GroupHead> {
        let mut reader = Reader::new(bytes);
        let head = GroupHead {
            crc: reader.u32()?,
            heads: reader.u32()? as usize,
            entries: reader.u32()? as usize,
            shared: reader.u32()? as usize,
            base: reader.u64()?,
        };
        (head.entries > 0 && head.shared <= head.heads).then_some(head)
    }

    /// True if `bytes`, the fixed part and the heads of group `number` at `at` of table `id`, are
    /// whole.
    pub(super) fn is_whole(&self, bytes: &[u8], id: FileId, number: usize, at: usize) -> bool {
        let computed = || group_crc(id, number, at, &bytes[4..GROUP_BYTES + self.heads]);
        matches(&sites::PM_TABLE_GROUP_CHECK, self.crc, computed)
    }
}

/// The checksum of the heads of group `number` at `at` of table `id`.
fn group_crc(id: FileId, number: usize, at: usize, bytes: &[u8]) -> u32 {
    crc32c_salted(id.0, (number as u64) << 32 | at as u64, &[bytes])
}

/// The head of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryHead<'a> {
    /// The key without what its group shares.
    pub(super) rest: &'a [u8],
    pub(super) tag: Tag,
    pub(super) value_bytes: usize,
    pub(super) value_crc: u32,
    /// The place of the value behind the group's heads.
    pub(super) value_at: usize,
}

/// The heads of a group, one after another.
pub(super) struct Heads<'a> {
    reader: Reader<'a>,
    base: u64,
    left: usize,
    value_at: usize,
}

impl<'a> Heads<'a> {
    /// The heads in `bytes`, which begin with the shared prefix.
    pub(super) fn of(head: &GroupHead, bytes: &'a [u8]) -> Option<(&'a [u8], Heads<'a>)> {
        let mut reader = Reader::new(bytes.get(..head.heads)?);
        let shared = reader.take(head.shared)?;
        let heads = Heads {
            reader,
            base: head.base,
            left: head.entries,
            value_at: 0,
        };
        Some((shared, heads))
    }

    /// The next head; `None` if they are damaged. REQUIRES: `left` is not 0.
    #[inline]
    pub(super) fn next(&mut self) -> Option<EntryHead<'a>> {
        let rest = self.reader.varint_max(self.reader.remaining())?;
        let tag = Tag(self.base.checked_add(self.reader.varint()?)?);
        let value_bytes = self.reader.varint_max(u32::MAX as usize)?;
        let value_crc = self.reader.u32()?;
        let rest = self.reader.take(rest)?;
        let value_at = self.value_at;
        self.value_at = value_at.checked_add(value_bytes)?;
        self.left = self.left.checked_sub(1)?;
        Some(EntryHead {
            rest,
            tag,
            value_bytes,
            value_crc,
            value_at,
        })
    }

    /// Bytes of the heads that are left.
    pub(super) fn remaining(&self) -> usize {
        self.reader.remaining()
    }

    /// The number of heads that are left.
    pub(super) fn left(&self) -> usize {
        self.left
    }
}

/// The checksum of a value, tied to its entry.
pub(super) fn value_crc(tag: Tag, value: &[u8]) -> u32 {
    of_entry(crc32c(value), tag.seqno())
}

/// An entry of a group that is being filled.
pub(super) struct Staged {
    pub(super) key: Vec<u8>,
    pub(super) tag: Tag,
    pub(super) value_bytes: usize,
    pub(super) value_crc: u32,
}

/// The fixed part and the heads of group `number` of `entries`, which share `shared` bytes, at `at`
/// of table `id`.
pub(super) fn encode_group(
    entries: &[Staged],
    shared: usize,
    id: FileId,
    number: usize,
    at: usize,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let base = entries.iter().map(|entry| entry.tag.0).min().unwrap_or(0);
    out.extend_from_slice(&[0; GROUP_BYTES]);
    if let Some(first) = entries.first() {
        out.extend_from_slice(&first.key[..shared]);
    }
    for entry in entries {
        let rest = &entry.key[shared..];
        put_varint(out, rest.len() as u64);
        put_varint(out, entry.tag.0 - base);
        put_varint(out, entry.value_bytes as u64);
        out.extend_from_slice(&entry.value_crc.to_le_bytes());
        out.extend_from_slice(rest);
    }
    let heads = out.len() - start - GROUP_BYTES;
    for (place, half) in [(4, heads), (8, entries.len()), (12, shared)] {
        out[start + place..start + place + 4].copy_from_slice(&(half as u32).to_le_bytes());
    }
    out[start + 16..start + 24].copy_from_slice(&base.to_le_bytes());
    let crc = group_crc(id, number, at, &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The slot of a key whose segment shares `shared` bytes: [`SLOT_BYTES_MAX`] bytes, of which a
/// table's slots have the first.
#[inline]
pub(super) fn slot_of(key: &[u8], shared: usize) -> [u8; SLOT_BYTES_MAX] {
    let mut slot = [0; SLOT_BYTES_MAX];
    let rest = key.get(shared..).unwrap_or_default();
    let len = rest.len().min(SLOT_BYTES_MAX);
    slot[..len].copy_from_slice(&rest[..len]);
    slot
}
