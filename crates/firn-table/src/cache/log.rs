//! Entries one behind the other in segments of memory that the cache owns, as queues: entries are
//! appended at the head and taken from the tail.
//!
//! ```text
//! entry      hash: u32 | kind: 2 bits, note: 7 bits, length: 23 bits | payload | padding to 4
//! place      segment: 9 bits | offset / 4: 14 bits
//! ```
//! 1. An entry does not cross segments. One larger than a segment's half has a segment of its own,
//!    of just its size. The rest of a full segment stays unused until the tail has passed it.
//! 2. Segments are numbered from 1, so no place is 0.
//! 3. An entry that is removed in the middle of a queue is marked, and its memory is free when the
//!    tail reaches it.
//! 4. A segment whose entries are all gone is used again. Memory goes back to the system only when
//!    the cache is made smaller.

use super::index::Hash;
use firn_base::coding::get_u32;
use firn_fs::give_back;
use std::collections::VecDeque;
use std::ops::Range;

/// The size of a segment in bytes: at most what a place can address.
pub(super) const SEGMENT_BYTES_MAX: usize = 1 << (OFFSET_BITS + 2);
const SEGMENT_BYTES_MIN: usize = 1 << 10;
/// The number of segments of a shard, if it is not smaller than that.
const SEGMENTS_USUAL: u64 = 256;
/// One more than the largest number of a segment.
const SEGMENTS_END: usize = 1 << 9;

const OFFSET_BITS: u32 = 14;
const ALIGN: usize = 4;
pub(super) const HEADER_BYTES: usize = 8;
const LEN_BITS: u32 = 23;
/// The longest payload.
pub(super) const PAYLOAD_BYTES_MAX: usize = (1 << LEN_BITS) - 1;
const NOTE_BITS: u32 = 7;
/// The largest note.
pub(super) const NOTE_MAX: u8 = (1 << NOTE_BITS) - 1;

/// A segment and an offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(pub(super) u32);

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Removed.
    Gone = 1,
    /// A row.
    Row = 2,
    /// A block or a value of a log.
    Block = 3,
}

/// The kind, note and payload of an entry that is to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'a> {
    pub(super) kind: Kind,
    /// A number up to [`NOTE_MAX`], whose meaning is the caller's.
    pub(super) note: u8,
    /// Lookups that the key had elsewhere.
    pub(super) lookups: u8,
    /// The parts of the payload.
    pub(super) parts: &'a [&'a [u8]],
}

/// The header of an entry, and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) hash: Hash,
    pub(super) kind: Kind,
    pub(super) note: u8,
    pub(super) len: usize,
}

/// A queue of entries.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The numbers of its segments, oldest first. Only the last one is not full.
    segments: VecDeque<u16>,
    /// The offset of the oldest entry in the first segment, and the end of the newest in the last.
    tail: usize,
    head: usize,
    /// Bytes between tail and head.
    bytes: u64,
    is_window: bool,
}

/// The segments of a shard.
#[derive(Debug)]
pub(super) struct Segments {
    /// By number. Those without a queue are empty.
    all: Vec<Box<[u8]>>,
    /// True for the numbers of the window's segments.
    in_window: Vec<bool>,
    unused_numbers: Vec<u16>,
    /// Segments of the usual size that no queue has.
    spare: Vec<Box<[u8]>>,
    segment_bytes: usize,
    bytes: u64,
}

impl Place {
    fn new(segment: u16, offset: usize) -> Place {
        Place(u32::from(segment) << OFFSET_BITS | (offset / ALIGN) as u32)
    }

    fn segment(self) -> u16 {
        (self.0 >> OFFSET_BITS) as u16
    }

    fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * ALIGN
    }
}

impl Content<'_> {
    /// The length of the payload.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

impl Entry {
    /// Bytes that an entry takes whose payload has `len` bytes.
    pub(super) fn size_of(len: usize) -> usize {
        (HEADER_BYTES + len).next_multiple_of(ALIGN)
    }

    pub(super) fn size(&self) -> usize {
        Entry::size_of(self.len)
    }

    fn payload(&self) -> Range<usize> {
        let at = self.place.offset() + HEADER_BYTES;
        at..at + self.len
    }
}

impl Queue {
    /// The window.
    pub(super) fn window() -> Queue {
        Queue {
            is_window: true,
            ..Queue::default()
        }
    }

    /// Bytes from its oldest entry to its newest, removed ones included.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Segments {
    /// No segments yet, for a shard of at most `bytes`.
    pub(super) fn new(bytes: u64) -> Segments {
        let usual = (bytes / SEGMENTS_USUAL).next_power_of_two() as usize;
        Segments {
            all: vec![Box::default()],
            in_window: vec![false],
            unused_numbers: Vec::new(),
            spare: Vec::new(),
            segment_bytes: usual.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
            bytes: 0,
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of a segment.
    pub(super) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// The entry at `place`.
    #[inline]
    pub(super) fn entry(&self, place: Place) -> Option<Entry> {
        let bytes = &*self.all[usize::from(place.segment())];
        let hash = Hash(get_u32(bytes, place.offset())?);
        let word = get_u32(bytes, place.offset() + 4)?;
        let kind = match word >> (LEN_BITS + NOTE_BITS) {
            1 => Kind::Gone,
            2 => Kind::Row,
            3 => Kind::Block,
            _ => return None,
        };
        let len = word as usize & PAYLOAD_BYTES_MAX;
        Some(Entry {
            place,
            hash,
            kind,
            note: (word >> LEN_BITS) as u8 & NOTE_MAX,
            len,
        })
    }

    /// True if the entry at `place` is in the window.
    #[inline]
    pub(super) fn is_in_window(&self, place: Place) -> bool {
        self.in_window[usize::from(place.segment())]
    }

    /// The payload of an entry.
    #[inline]
    pub(super) fn payload(&self, entry: &Entry) -> &[u8] {
        &self.all[usize::from(entry.place.segment())][entry.payload()]
    }

    /// Marks the entry as removed.
    pub(super) fn remove(&mut self, entry: &Entry) {
        self.put_header(Entry {
            kind: Kind::Gone,
            ..*entry
        });
    }

    fn put_header(&mut self, entry: Entry) {
        let word = (entry.kind as u32) << (LEN_BITS + NOTE_BITS)
            | u32::from(entry.note) << LEN_BITS
            | entry.len as u32;
        let bytes = &mut self.all[usize::from(entry.place.segment())];
        let header = &mut bytes[entry.place.offset()..][..HEADER_BYTES];
        header[..4].copy_from_slice(&entry.hash.0.to_le_bytes());
        header[4..].copy_from_slice(&word.to_le_bytes());
    }

    /// The bytes of memory that appending an entry of `size` bytes to `queue` takes.
    pub(super) fn needed(&self, queue: &Queue, size: usize) -> u64 {
        let last = queue.segments.back();
        let has_room =
            last.is_some_and(|last| queue.head + size <= self.all[usize::from(*last)].len());
        match self.is_alone(size) {
            true => size as u64,
            false if has_room || !self.spare.is_empty() => 0,
            false => self.segment_bytes as u64,
        }
    }

    /// True if an entry of `size` bytes has a segment of its own.
    fn is_alone(&self, size: usize) -> bool {
        size > self.segment_bytes / 2
    }

    /// Appends an entry. `None` if there are no more numbers for segments.
    pub(super) fn append(
        &mut self,
        queue: &mut Queue,
        hash: Hash,
        content: Content<'_>,
    ) -> Option<Place> {
        let len = content.len();
        let place = self.reserve(queue, Entry::size_of(len))?;
        let entry = Entry {
            place,
            hash,
            kind: content.kind,
            note: content.note,
            len,
        };
        self.put_header(entry);
        self.overwrite(&entry, content.parts);
        Some(place)
    }

    /// Replaces the payload of an entry with `parts`, which are as long.
    pub(super) fn overwrite(&mut self, entry: &Entry, parts: &[&[u8]]) {
        let segment = &mut self.all[usize::from(entry.place.segment())];
        let mut rest = &mut segment[entry.payload()];
        for part in parts {
            let (at, behind) = rest.split_at_mut(part.len());
            at.copy_from_slice(part);
            rest = behind;
        }
    }

    /// Copies an entry to the head of `queue`. It stays marked as removed where it was.
    pub(super) fn move_to(&mut self, queue: &mut Queue, entry: &Entry) -> Option<Place> {
        let place = self.reserve(queue, entry.size())?;
        let (from, to) = (entry.place, Entry { place, ..*entry });
        if from.segment() == place.segment() {
            let bytes = &mut self.all[usize::from(place.segment())];
            bytes.copy_within(entry.payload(), to.payload().start);
        } else {
            let source = std::mem::take(&mut self.all[usize::from(from.segment())]);
            let target = &mut self.all[usize::from(place.segment())][to.payload()];
            target.copy_from_slice(&source[entry.payload()]);
            self.all[usize::from(from.segment())] = source;
        }
        self.put_header(to);
        self.remove(entry);
        Some(place)
    }

    /// A place of `size` bytes at the head.
    fn reserve(&mut self, queue: &mut Queue, size: usize) -> Option<Place> {
        let last = queue.segments.back().copied();
        let has_room = |last: &u16| queue.head + size <= self.all[usize::from(*last)].len();
        let is_alone = self.is_alone(size);
        if let Some(last) = last.filter(has_room).filter(|_| !is_alone) {
            let place = Place::new(last, queue.head);
            queue.head += size;
            queue.bytes += size as u64;
            return Some(place);
        }
        let segment = self.open(if is_alone { size } else { self.segment_bytes })?;
        self.in_window[usize::from(segment)] = queue.is_window;
        queue.bytes += size as u64;
        match queue.segments.len() {
            // Behind the first segment, because the tail is an offset in it, but before the last
            // one, which has room for others.
            segments @ 2.. if is_alone => queue.segments.insert(segments - 1, segment),
            _ => {
                if let Some(last) = last {
                    self.close(queue, last);
                }
                queue.segments.push_back(segment);
                queue.head = size;
            }
        }
        Some(Place::new(segment, 0))
    }

    /// A segment of `bytes` bytes.
    fn open(&mut self, bytes: usize) -> Option<u16> {
        let number = match self.unused_numbers.pop() {
            Some(number) => number,
            None if self.all.len() == SEGMENTS_END => return None,
            None => {
                self.all.push(Box::default());
                self.in_window.push(false);
                (self.all.len() - 1) as u16
            }
        };
        let spare = self.spare.pop_if(|spare| spare.len() == bytes);
        self.bytes += if spare.is_some() { 0 } else { bytes as u64 };
        let memory = spare.unwrap_or_else(|| vec![0; bytes].into_boxed_slice());
        self.all[usize::from(number)] = memory;
        Some(number)
    }

    /// Marks the end of the entries in the segment `last` at the head.
    fn close(&mut self, queue: &mut Queue, last: u16) {
        let bytes = &mut self.all[usize::from(last)];
        if let Some(end) = bytes.get_mut(queue.head..queue.head + HEADER_BYTES) {
            end.fill(0);
        }
        queue.bytes += (bytes.len() - queue.head) as u64;
    }

    /// Takes the oldest entry off the queue. `None` if there is none. Its bytes stay in place until
    /// the next call of this or [`Segments::trim`] for this queue.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<Entry> {
        let entry = self.trim(queue)?;
        queue.tail += entry.size();
        queue.bytes -= entry.size() as u64;
        Some(entry)
    }

    /// Frees the segments whose entries were all taken off the queue. Returns the oldest entry.
    pub(super) fn trim(&mut self, queue: &mut Queue) -> Option<Entry> {
        loop {
            let first = *queue.segments.front()?;
            let is_last = queue.segments.len() == 1;
            let len = self.all[usize::from(first)].len();
            let end = if is_last { queue.head } else { len };
            let is_inside = queue.tail < end;
            let entry = is_inside.then(|| self.entry(Place::new(first, queue.tail)));
            if let Some(entry) = entry.flatten() {
                return Some(entry);
            }
            queue.bytes -= (end - queue.tail) as u64;
            queue.segments.pop_front();
            queue.tail = 0;
            self.free(first);
            if is_last {
                queue.head = 0;
                return None;
            }
        }
    }

    fn free(&mut self, number: u16) {
        let memory = std::mem::take(&mut self.all[usize::from(number)]);
        self.unused_numbers.push(number);
        if memory.len() == self.segment_bytes {
            self.spare.push(memory);
        } else {
            self.drop_memory(memory);
        }
    }

    fn drop_memory(&mut self, mut memory: Box<[u8]>) {
        self.bytes -= memory.len() as u64;
        give_back(&mut memory, || ());
    }

    /// Gives the system the segments that no queue has.
    pub(super) fn drop_spare(&mut self) {
        while let Some(memory) = self.spare.pop() {
            self.drop_memory(memory);
        }
    }

    /// The entries of a queue that were not removed, oldest first.
    pub(super) fn entries(&self, queue: &Queue) -> impl Iterator<Item = Entry> {
        let last = queue.segments.len().wrapping_sub(1);
        let of = move |(i, number): (usize, &u16)| {
            let end = if i == last { queue.head } else { usize::MAX };
            self.entries_of(*number, if i == 0 { queue.tail } else { 0 }, end)
        };
        queue.segments.iter().enumerate().flat_map(of)
    }

    fn entries_of(&self, number: u16, from: usize, end: usize) -> impl Iterator<Item = Entry> {
        let mut offset = from;
        let next = move || {
            let is_inside = offset < end.min(self.all[usize::from(number)].len());
            let entry = is_inside.then(|| self.entry(Place::new(number, offset)))??;
            offset += entry.size();
            Some(entry)
        };
        std::iter::from_fn(next).filter(|entry| entry.kind != Kind::Gone)
    }
}
