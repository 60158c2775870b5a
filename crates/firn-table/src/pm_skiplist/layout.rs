//! The bytes of a list in a pool: segments of nodes, and chunks with the entries to which nodes
//! point.
//!
//! ```text
//! segment  head (64 bytes) | job | node ... | ref ... | end, in an extent of the list's unit
//! head     magic: u64 | CRC-32C: u32 | number in the list: u32 | list: u64 | nodes: u32
//!          | refs: u32 | job bytes: u32 | prefix bytes: u16 | is last: u8
//!          | length of the segment's extent: u8, the binary logarithm of its granules | next: u64
//!          | 0: 16 bytes
//! job      of the first segment: cause: u8 | level: u8 | 0: u16 | inputs: u32 | log: u64
//!          | previous output: u64 | input: u64 ...
//! node     index of its ref: u32 | entry's place in the chunk: u32 | key prefix: u64
//! ref      chunk's offset: u64 | its bytes: u32 | bytes of this segment's entries in it: u32
//!          | list that filled the chunk: u64
//! end      of the last segment: entries: u64 | deletes: u64 | lowest sequence number: u64
//!          | highest: u64 | entry bytes: u64 | filter's offset: u64 | its bytes: u32
//!          | its CRC-32C: u32
//! chunk    entry ...
//! entry    CRC-32C: u32 | value bytes: u32 | tag: u64 | key bytes: u16 | 0: u16 | key | value
//!          | padding to 8 bytes
//! ```
//! 1. A segment's checksum covers everything but `next`, salted with the database, the list and the
//!    segment's offset. `next` is stored later, as one word: the offset of the next segment, or
//!    [`END`], the list's terminal.
//! 2. A node's key prefix is the eight bytes of its key after the bytes that all keys of the
//!    segment share, as a big-endian number, padded with zeros.
//! 3. An entry's checksum is salted with its place in the pool and the list that filled its chunk,
//!    so no other entry that was or will be there passes for it.

use crate::sites;
use firn_base::checksum::{crc32c_salted, matches};
use firn_base::coding::{Reader, get_u64};
use firn_base::{FileId, SeqNo, Tag};
use firn_pm::GRANULE_BYTES;

/// `firnlist` as a little-endian number.
const MAGIC: u64 = u64::from_le_bytes(*b"firnlist");
pub(super) const HEAD_BYTES: usize = 64;
/// The place of `next` in a head.
pub(super) const NEXT_AT: u64 = 40;
pub(super) const NODE_BYTES: usize = 16;
pub(super) const REF_BYTES: usize = 24;
pub(super) const END_BYTES: usize = 56;
const JOB_BYTES: usize = 24;
/// The longest segment: 1 GiB.
const GRANULES_LOG2_MAX: u8 = 18;
/// The most inputs that a job names.
const INPUTS_MAX: u32 = 1 << 16;
/// The value of `next` in a list's last segment. No extent has this offset.
pub(super) const END: u64 = 1;
pub(super) const ENTRY_BYTES: usize = 20;

const _: () = assert!(8 + 4 + 4 + 8 + 4 + 4 + 4 + 2 + 2 == NEXT_AT as usize);
const _: () = assert!(NEXT_AT as usize + 8 + 16 == HEAD_BYTES);
const _: () = assert!(1 + 1 + 2 + 4 + 8 + 8 == JOB_BYTES);
const _: () = assert!(5 * 8 + 8 + 4 + 4 == END_BYTES);
const _: () = assert!(4 + 4 + 8 + 2 + 2 == ENTRY_BYTES);

/// The job that writes a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ListCause {
    /// A memtable is flushed.
    Flush = 0,
    /// Lists or tables are merged.
    Compaction = 1,
    /// Entries leave chunks that are mostly garbage.
    Relocation = 2,
}

impl ListCause {
    fn from_byte(byte: u8) -> Option<ListCause> {
        match byte {
            0 => Some(ListCause::Flush),
            1 => Some(ListCause::Compaction),
            2 => Some(ListCause::Relocation),
            _ => None,
        }
    }
}

/// The job that writes a list, as its first segment tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListJob {
    /// The kind of the job.
    pub cause: ListCause,
    /// The level of its output.
    pub level: u8,
    /// The log of the flushed memtable; 0 if there is none.
    pub log_id: FileId,
    /// The offset of the first segment of the job's previous output; 0 if this is the first.
    pub previous: u64,
    /// The lists and tables that are merged.
    pub inputs: Vec<FileId>,
}

impl ListJob {
    /// The flush of the memtable of log `log_id`.
    pub fn flush(log_id: FileId) -> ListJob {
        ListJob {
            cause: ListCause::Flush,
            level: 0,
            log_id,
            previous: 0,
            inputs: Vec::new(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.cause as u8, self.level, 0, 0];
        out.extend_from_slice(&(self.inputs.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.log_id.0.to_le_bytes());
        out.extend_from_slice(&self.previous.to_le_bytes());
        for input in &self.inputs {
            out.extend_from_slice(&input.0.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<ListJob> {
        let mut reader = Reader::new(bytes);
        let cause = ListCause::from_byte(reader.u8()?)?;
        let level = reader.u8()?;
        if reader.u16()? != 0 {
            return None;
        }
        let count = reader.u32().filter(|&count| count <= INPUTS_MAX)?;
        let (log_id, previous) = (FileId(reader.u64()?), reader.u64()?);
        let mut inputs = Vec::new();
        for _ in 0..count {
            inputs.push(FileId(reader.u64()?));
        }
        reader.is_empty().then_some(ListJob {
            cause,
            level,
            log_id,
            previous,
            inputs,
        })
    }
}

/// The fixed part of a segment, without `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u32,
    pub(super) list: FileId,
    pub(super) nodes: u32,
    pub(super) refs: u32,
    pub(super) job_bytes: u32,
    pub(super) prefix_bytes: u16,
    pub(super) is_last: bool,
    /// The length of the segment's extent: the binary logarithm of its granules.
    pub(super) granules_log2: u8,
}

impl Head {
    /// Bytes of the segment's extent.
    pub(super) fn extent_bytes(&self) -> u64 {
        GRANULE_BYTES << self.granules_log2
    }

    /// Bytes of the segment that are in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.refs_at() + u64::from(self.refs) * REF_BYTES as u64 + self.end_bytes()
    }

    /// The place of the first node.
    pub(super) fn nodes_at(&self) -> u64 {
        HEAD_BYTES as u64 + u64::from(self.job_bytes)
    }

    /// The place of the first ref.
    pub(super) fn refs_at(&self) -> u64 {
        self.nodes_at() + u64::from(self.nodes) * NODE_BYTES as u64
    }

    fn end_bytes(&self) -> u64 {
        if self.is_last { END_BYTES as u64 } else { 0 }
    }

    /// Writes the head into the first bytes of `segment`, whose remaining bytes are complete.
    pub(super) fn seal(&self, segment: &mut [u8], uuid: &[u8; 16], offset: u64) {
        debug_assert_eq!(segment.len() as u64, self.used_bytes());
        segment[..8].copy_from_slice(&MAGIC.to_le_bytes());
        segment[12..16].copy_from_slice(&self.number.to_le_bytes());
        segment[16..24].copy_from_slice(&self.list.0.to_le_bytes());
        segment[24..28].copy_from_slice(&self.nodes.to_le_bytes());
        segment[28..32].copy_from_slice(&self.refs.to_le_bytes());
        segment[32..36].copy_from_slice(&self.job_bytes.to_le_bytes());
        segment[36..38].copy_from_slice(&self.prefix_bytes.to_le_bytes());
        segment[38] = u8::from(self.is_last);
        segment[39] = self.granules_log2;
        segment[NEXT_AT as usize..HEAD_BYTES].fill(0);
        let crc = checksum(segment, uuid, self.list, offset);
        segment[8..12].copy_from_slice(&crc.to_le_bytes());
    }

    /// The head that `bytes` begin with; `None` if they are none. Its checksum, which covers the
    /// whole segment, is not verified yet.
    pub(super) fn peek(bytes: &[u8]) -> Option<Head> {
        let mut reader = Reader::new(bytes);
        let is_head = reader.u64()? == MAGIC;
        let _crc = reader.u32()?;
        let number = reader.u32()?;
        let list = FileId(reader.u64()?);
        let (nodes, refs, job_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (prefix_bytes, is_last, granules_log2) = (reader.u16()?, reader.u8()?, reader.u8()?);
        // A list that was continued may have nothing more to say.
        let has_nodes = nodes > 0 || (is_last == 1 && number > 0);
        let is_first = (number == 0) == (job_bytes > 0);
        let is_sound = is_head && is_last <= 1 && has_nodes && is_first;
        let is_sound = is_sound && granules_log2 <= GRANULES_LOG2_MAX;
        is_sound.then_some(Head {
            number,
            list,
            nodes,
            refs,
            job_bytes,
            prefix_bytes,
            is_last: is_last == 1,
            granules_log2,
        })
    }

    /// True if the checksum of the whole `segment`, which begins with this head, is right.
    pub(super) fn is_whole(&self, segment: &[u8], uuid: &[u8; 16], offset: u64) -> bool {
        let stored = |at: usize| segment.get(at..at + 4)?.try_into().ok();
        segment.len() as u64 == self.used_bytes()
            && stored(8).is_some_and(|stored| {
                matches(
                    &sites::LIST_SEGMENT_CHECK,
                    u32::from_le_bytes(stored),
                    || checksum(segment, uuid, self.list, offset),
                )
            })
    }
}

fn checksum(segment: &[u8], uuid: &[u8; 16], list: FileId, offset: u64) -> u32 {
    let parts = [uuid, &segment[12..NEXT_AT as usize], &segment[HEAD_BYTES..]];
    crc32c_salted(list.0, offset, &parts)
}

/// A pointer of a list to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    /// The index of the chunk among the refs of the segment.
    pub(super) chunk: u32,
    pub(super) at: u32,
    pub(super) prefix: u64,
}

impl Node {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.chunk.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
        out.extend_from_slice(&self.prefix.to_le_bytes());
    }

    /// The node with this index among `nodes`. REQUIRES: it is there.
    pub(super) fn nth(nodes: &[u8], index: usize) -> Node {
        let word = |at| get_u64(nodes, index * NODE_BYTES + at).unwrap_or_default();
        let places = word(0);
        Node {
            chunk: places as u32,
            at: (places >> 32) as u32,
            prefix: word(8),
        }
    }
}

/// The part of a chunk that a segment's entries take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ref {
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) live: u32,
    /// The list that filled the chunk.
    pub(super) list: FileId,
}

impl Ref {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.live.to_le_bytes());
        out.extend_from_slice(&self.list.0.to_le_bytes());
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Ref> {
        Some(Ref {
            offset: reader.u64()?,
            bytes: reader.u32()?,
            live: reader.u32()?,
            list: FileId(reader.u64()?),
        })
    }
}

/// The sums of a list, in its last segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListTotals {
    /// Entries.
    pub entries: u64,
    /// Deletes among them.
    pub deletes: u64,
    /// The lowest sequence number.
    pub seqno_min: SeqNo,
    /// The highest sequence number.
    pub seqno_max: SeqNo,
    /// Bytes of the entries in chunks.
    pub entry_bytes: u64,
    pub(super) filter_at: u64,
    pub(super) filter_bytes: u32,
    pub(super) filter_crc: u32,
}

impl Default for ListTotals {
    fn default() -> ListTotals {
        ListTotals {
            entries: 0,
            deletes: 0,
            seqno_min: SeqNo::MAX,
            seqno_max: SeqNo(0),
            entry_bytes: 0,
            filter_at: 0,
            filter_bytes: 0,
            filter_crc: 0,
        }
    }
}

impl ListTotals {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        for number in [
            self.entries,
            self.deletes,
            self.seqno_min.0,
            self.seqno_max.0,
            self.entry_bytes,
            self.filter_at,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.filter_bytes.to_le_bytes());
        out.extend_from_slice(&self.filter_crc.to_le_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<ListTotals> {
        let mut reader = Reader::new(bytes);
        let totals = ListTotals {
            entries: reader.u64()?,
            deletes: reader.u64()?,
            seqno_min: SeqNo(reader.u64()?),
            seqno_max: SeqNo(reader.u64()?),
            entry_bytes: reader.u64()?,
            filter_at: reader.u64()?,
            filter_bytes: reader.u32()?,
            filter_crc: reader.u32()?,
        };
        let is_sound = totals.deletes <= totals.entries && totals.seqno_min <= totals.seqno_max;
        (reader.is_empty() && is_sound).then_some(totals)
    }
}

/// The fixed part of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryHead {
    crc: u32,
    pub(super) value_bytes: u32,
    pub(super) tag: Tag,
    pub(super) key_bytes: u16,
}

impl EntryHead {
    /// The head of an entry at byte `at` of the pool, in a chunk that `list` fills.
    pub(super) fn new(list: FileId, at: u64, key: &[u8], tag: Tag, value: &[u8]) -> EntryHead {
        let head = EntryHead {
            crc: 0,
            value_bytes: value.len() as u32,
            tag,
            key_bytes: key.len() as u16,
        };
        EntryHead {
            crc: head.checksum(list, at, key, value),
            ..head
        }
    }

    /// Bytes of an entry with its padding.
    pub(super) fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
        (ENTRY_BYTES + key_bytes + value_bytes).next_multiple_of(8)
    }

    /// Bytes of this entry with its padding.
    pub(super) fn bytes(&self) -> usize {
        EntryHead::entry_bytes(usize::from(self.key_bytes), self.value_bytes as usize)
    }

    pub(super) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[..4].copy_from_slice(&self.crc.to_le_bytes());
        self.fields(&mut out[4..]);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<EntryHead> {
        let mut reader = Reader::new(bytes);
        let (crc, value_bytes) = (reader.u32()?, reader.u32()?);
        let tag = Tag(reader.u64()?);
        let (key_bytes, zero) = (reader.u16()?, reader.u16()?);
        let is_sound = key_bytes > 0 && zero == 0 && tag.kind().is_some();
        is_sound.then_some(EntryHead {
            crc,
            value_bytes,
            tag,
            key_bytes,
        })
    }

    /// True if the checksum of an entry with this head is right.
    pub(super) fn is_whole(&self, list: FileId, at: u64, key: &[u8], value: &[u8]) -> bool {
        matches(&sites::LIST_ENTRY_CHECK, self.crc, || {
            self.checksum(list, at, key, value)
        })
    }

    fn checksum(&self, list: FileId, at: u64, key: &[u8], value: &[u8]) -> u32 {
        let mut fields = [0; ENTRY_BYTES - 4];
        self.fields(&mut fields);
        crc32c_salted(list.0, at, &[&fields, key, value])
    }

    fn fields(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.value_bytes.to_le_bytes());
        out[4..12].copy_from_slice(&self.tag.0.to_le_bytes());
        out[12..14].copy_from_slice(&self.key_bytes.to_le_bytes());
        out[14..16].fill(0);
    }
}

/// The eight bytes of `key` after its first `shared`, as a number that sorts like them.
pub(super) fn prefix_of(key: &[u8], shared: usize) -> u64 {
    let rest = key.get(shared..).unwrap_or_default();
    let mut word = [0; 8];
    let len = rest.len().min(8);
    word[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(word)
}
