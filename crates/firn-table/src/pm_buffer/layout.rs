//! The bytes of write buffers in a pool: the directory, and the entries of a buffer.
//!
//! ```text
//! directory  lines of 64 bytes in one extent, which the root names:
//!            committed, twice | line of a buffer ...
//! committed  word of a sequence number | 0: 56 bytes
//! line       id << 8 | 0xa7: u64, or 0 if the line is free | offset of the extent: u64
//!            | its length: u64 | CRC-32C: u32 | 0: u32 | through: word of a sequence number
//!            | end: word of (end: 48 bits << 8 | flags: u8) | 0: 16 bytes
//! word       56 bits << 8 | CRC-8
//! flags      1: the end is final
//! buffer     entry ..., each at a multiple of 8, in one extent
//! entry      CRC-32C of the rest of the header and the key: u32 | CRC-32C of the value, tied to
//!            the sequence number: u32 | tag: u64 | bytes of the value: u32
//!            | bytes of the key: u16 | 0: u16 | key | value | zeros
//! ```
//! 1. A word is 8 aligned bytes, so a cut leaves the old one or the new one.
//! 2. A CRC-8 is salted with the pool's uuid, the number of the line, which of its words it is and
//!    the buffer's id. It detects every single rotten bit. Words that others depend on are stored
//!    twice, or have a meaning that an older word of the same buffer has too.
//! 3. The first word of a line is 0 or ends with a mark of five bits, so no single rotten bit makes
//!    a free line of a taken one, or the reverse. The CRC-32C of a line covers id, offset and
//!    length, and is salted with the line's number and the pool's uuid.
//! 4. An entry's first CRC-32C is salted with its place in the buffer, the buffer's id and the
//!    pool's uuid. No id is used twice in a database. So bytes that another buffer left in the
//!    extent are never an entry.

use crate::sites;
use firn_base::checksum::{crc32c_salted, matches};
use firn_base::coding::{Reader, get_u64};
use firn_base::seed::mix;
use firn_base::{FileId, SeqNo, Tag};
use firn_pm::{Extent, LINE_BYTES};

/// The version of this format, which the root's word holds.
pub(super) const VERSION: u64 = 1;
/// The lines that hold the committed word.
pub(super) const COMMITTED_LINES: u32 = 2;
/// The alignment of entries, in bytes.
pub(super) const ENTRY_ALIGN: usize = 8;
/// Bytes of an entry before its key.
pub const ENTRY_HEADER_BYTES: usize = 24;
/// The end of the ids that a line can hold.
pub(super) const ID_END: u64 = 1 << 56;
/// The end of the lengths that an extent of a buffer can have, and of the ends of one.
pub(super) const END_END: u64 = 1 << 48;

pub(super) const ID_AT: u64 = 0;
/// The part of a line that is stored before its id.
pub(super) const PAYLOAD_AT: u64 = 8;
pub(super) const THROUGH_AT: u64 = 32;
pub(super) const END_AT: u64 = 40;
pub(super) const LINE_WORDS: usize = 8;
pub(super) const PAYLOAD_BYTES: usize = 56;

/// The low byte of the first word of a line that names a buffer.
const TAKEN: u64 = 0xa7;
const FLAG_FINAL: u64 = 1;

const _: () = assert!(8 + 8 + 8 + 4 + 4 + 8 + 8 + 16 == LINE_BYTES);
const _: () = assert!(LINE_WORDS as u64 * 8 == LINE_BYTES);
const _: () = assert!(PAYLOAD_AT + PAYLOAD_BYTES as u64 == LINE_BYTES);
const _: () = assert!(THROUGH_AT == 8 + 8 + 8 + 4 + 4 && END_AT == THROUGH_AT + 8);
const _: () = assert!(4 + 4 + 8 + 4 + 2 + 2 == ENTRY_HEADER_BYTES);
const _: () = assert!(ENTRY_HEADER_BYTES.is_multiple_of(ENTRY_ALIGN));
const _: () = assert!(SeqNo::MAX.0 < 1 << 56 && END_END << 8 <= 1 << 56);
const _: () = assert!(TAKEN.count_ones() == 5 && TAKEN < 1 << 8);

/// The table of the CRC-8 with the polynomial 0x2f.
const CRC8: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u8, 0);
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x80 != 0 { 0x2f } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc8(from: u8, bytes: &[u8]) -> u8 {
    bytes
        .iter()
        .fold(from, |crc, &byte| CRC8[usize::from(crc ^ byte)])
}

/// The words that have a CRC-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordKind {
    Committed = 1,
    Through = 2,
    End = 3,
}

/// The checksum of a word's place. The word's own continues it.
#[derive(Debug, Clone, Copy)]
pub(super) struct WordSalt(u8);

impl WordSalt {
    /// The salt of a word of line `line`, which names buffer `id`.
    pub(super) fn new(uuid: &[u8; 16], line: u32, kind: WordKind, id: FileId) -> WordSalt {
        let place = crc8(crc8(0xff, uuid), &line.to_le_bytes());
        let word = crc8(crc8(place, &[kind as u8]), &id.0.to_le_bytes());
        WordSalt(word)
    }

    /// The word that holds `value`, of 56 bits.
    pub(super) fn seal(self, value: u64) -> u64 {
        debug_assert!(value < 1 << 56);
        value << 8 | u64::from(self.crc(value))
    }

    /// The value of a word; `None` if the word is damaged.
    pub(super) fn open(self, word: u64) -> Option<u64> {
        let value = word >> 8;
        let computed = || u32::from(self.crc(value));
        let stored = u32::from(word as u8);
        matches(&sites::PM_BUFFER_WORD_CHECK, stored, computed).then_some(value)
    }

    fn crc(self, value: u64) -> u8 {
        crc8(self.0, &value.to_le_bytes()[..7])
    }
}

/// The line of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) id: FileId,
    pub(super) extent: Extent,
    pub(super) through: SeqNo,
    pub(super) end: u64,
    pub(super) is_final: bool,
}

/// The first word of a line that names buffer `id`.
pub(super) fn id_word(id: FileId) -> u64 {
    debug_assert!(id.0 > 0 && id.0 < ID_END);
    id.0 << 8 | TAKEN
}

/// The word by which line `line` of buffer `id` says where the buffer ends.
pub(super) fn end_word(
    uuid: &[u8; 16],
    line: u32,
    id: FileId,
    (end, is_final): (u64, bool),
) -> u64 {
    let flags = if is_final { FLAG_FINAL } else { 0 };
    WordSalt::new(uuid, line, WordKind::End, id).seal(end << 8 | flags)
}

/// The word by which line `line` of buffer `id` says up to which number all entries are below the
/// end.
pub(super) fn through_word(uuid: &[u8; 16], line: u32, id: FileId, through: SeqNo) -> u64 {
    WordSalt::new(uuid, line, WordKind::Through, id).seal(through.0)
}

impl Line {
    /// The bytes of line `line` after its id.
    pub(super) fn payload(&self, uuid: &[u8; 16], line: u32) -> [u8; PAYLOAD_BYTES] {
        let words = [
            self.extent.offset.get(),
            self.extent.len,
            u64::from(self.crc(uuid, line)),
            through_word(uuid, line, self.id, self.through),
            end_word(uuid, line, self.id, (self.end, self.is_final)),
        ];
        let mut bytes = [0; PAYLOAD_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The buffer that the words of line `line` name; `Ok(None)` if they name none.
    ///
    /// # Errors
    /// A description of the bytes that should have been there.
    pub(super) fn decode(
        words: &[u64; LINE_WORDS],
        uuid: &[u8; 16],
        line: u32,
    ) -> Result<Option<Line>, &'static str> {
        let [first, offset, len, crc, through, end, ..] = *words;
        if first == 0 {
            return Ok(None);
        }
        let id = FileId(first >> 8);
        if first as u8 != TAKEN as u8 || id.0 == 0 || crc >> 32 != 0 {
            return Err("a free line, or one that names a buffer");
        }
        let mut found = Line {
            id,
            extent: Extent::new(offset, len),
            through: SeqNo(0),
            end: 0,
            is_final: false,
        };
        let computed = || found.crc(uuid, line);
        if !matches(&sites::PM_BUFFER_LINE_CHECK, crc as u32, computed) {
            return Err("the extent of a buffer with its checksum");
        }
        let through = WordSalt::new(uuid, line, WordKind::Through, id).open(through);
        found.through = SeqNo(through.ok_or("the number that a buffer was noted with")?);
        let end = WordSalt::new(uuid, line, WordKind::End, id).open(end);
        let end = end.ok_or("the end that a buffer was noted with")?;
        (found.end, found.is_final) = (end >> 8, end & FLAG_FINAL != 0);
        let is_inside = found.end <= len && found.end.is_multiple_of(ENTRY_ALIGN as u64);
        if !is_inside || end & 0xff & !FLAG_FINAL != 0 {
            return Err("the end of a buffer inside its extent");
        }
        Ok(Some(found))
    }

    /// The buffer that the words of a damaged line name, and true if its noted end is whole. A note
    /// that is damaged is replaced with that of a new buffer. `None` if its extent is unknown.
    pub(super) fn salvage(
        words: &[u64; LINE_WORDS],
        uuid: &[u8; 16],
        line: u32,
    ) -> Option<(Line, bool)> {
        let id = FileId(words[0] >> 8);
        if id == FileId(0) {
            return None;
        }
        let mut words = *words;
        words[0] = id_word(id);
        words[THROUGH_AT as usize / 8] = through_word(uuid, line, id, SeqNo(0));
        if let Ok(Some(found)) = Line::decode(&words, uuid, line) {
            return Some((found, true));
        }
        words[END_AT as usize / 8] = end_word(uuid, line, id, (0, false));
        let found = Line::decode(&words, uuid, line).ok()?;
        found.map(|found| (found, false))
    }

    fn crc(&self, uuid: &[u8; 16], line: u32) -> u32 {
        let (offset, len) = (self.extent.offset.get(), self.extent.len);
        let parts: [&[u8]; 3] = [uuid, &offset.to_le_bytes(), &len.to_le_bytes()];
        crc32c_salted(self.id.0, u64::from(line), &parts)
    }
}

/// Bytes of an entry in a buffer.
pub fn entry_bytes(key_len: usize, value_len: usize) -> usize {
    (ENTRY_HEADER_BYTES + key_len + value_len).next_multiple_of(ENTRY_ALIGN)
}

/// The salt of a buffer's entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntrySalt(u64);

impl EntrySalt {
    /// The salt of the entries of buffer `id` in the pool of the database `uuid`.
    pub(super) fn new(uuid: &[u8; 16], id: FileId) -> EntrySalt {
        let half = |at| get_u64(uuid, at).unwrap_or(0);
        EntrySalt(id.0 ^ mix(half(0) ^ mix(half(8))))
    }

    /// The checksum of an entry at `at`, of which `head` is the header and the key.
    fn crc(self, at: u64, head: &[u8]) -> u32 {
        crc32c_salted(self.0, at, &[head.get(4..).unwrap_or_default()])
    }

    /// Puts the checksum of an entry at `at` at the beginning of `head`, its header and key.
    pub(super) fn seal(self, at: u64, head: &mut [u8]) {
        let crc = self.crc(at, head);
        if let Some(place) = head.first_chunk_mut() {
            *place = crc.to_le_bytes();
        }
    }

    /// True if `head` is the header and the key of an entry at `at`.
    pub(super) fn is_entry(self, at: u64, head: &[u8]) -> bool {
        let Some(stored) = head.first_chunk() else {
            return false;
        };
        let computed = || self.crc(at, head);
        let stored = u32::from_le_bytes(*stored);
        matches(&sites::PM_BUFFER_ENTRY_CHECK, stored, computed)
    }
}

/// The header of an entry without the checksum of header and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryHeader {
    pub(super) value_crc: u32,
    pub(super) tag: Tag,
    pub(super) value_len: u32,
    pub(super) key_len: u16,
    /// The last field of the header, which is 0.
    pub(super) zero: u16,
}

impl EntryHeader {
    pub(super) fn encode(&self) -> [u8; ENTRY_HEADER_BYTES] {
        let mut bytes = [0; ENTRY_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.value_crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.value_len.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.key_len.to_le_bytes());
        bytes[22..24].copy_from_slice(&self.zero.to_le_bytes());
        bytes
    }

    /// The header at the beginning of `bytes`; `None` if they are too few.
    pub(super) fn decode(bytes: &[u8]) -> Option<EntryHeader> {
        let mut reader = Reader::new(bytes);
        let _crc = reader.u32()?;
        Some(EntryHeader {
            value_crc: reader.u32()?,
            tag: Tag(reader.u64()?),
            value_len: reader.u32()?,
            key_len: reader.u16()?,
            zero: reader.u16()?,
        })
    }

    /// Bytes of header and key.
    pub(super) fn head_bytes(&self) -> usize {
        ENTRY_HEADER_BYTES + usize::from(self.key_len)
    }

    /// Bytes of the entry.
    pub(super) fn bytes(&self) -> usize {
        entry_bytes(usize::from(self.key_len), self.value_len as usize)
    }

    /// True if an entry can have this header. Its lengths may still lead out of the extent.
    pub(super) fn is_sane(&self) -> bool {
        self.tag.kind().is_some() && self.tag.seqno() > SeqNo(0) && self.zero == 0
    }
}
