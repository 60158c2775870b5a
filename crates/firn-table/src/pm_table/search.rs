//! Finds the group of a key: in memory the segment and every eighth slot, in persistent memory one
//! line of slots.

use super::layout::{Header, SHARED_MAX, SLOT_BYTES_MAX, slot_of};
use firn_base::Result;
use firn_base::coding::Reader;
use std::ops::Range;

/// The distance of slots that are kept in memory.
const SAMPLE: usize = 8;

/// The part of a table that is kept in memory to find groups.
#[derive(Debug)]
pub(super) struct Guide {
    segments: Vec<Segment>,
    /// Every eighth slot.
    samples: Box<[u8]>,
    slot_bytes: usize,
    largest: Box<[u8]>,
}

/// Groups in a row whose first keys share a prefix.
#[derive(Debug)]
struct Segment {
    groups: Range<usize>,
    shared: usize,
    /// The first key of the first group.
    first: Box<[u8]>,
}

/// The groups that may hold a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidates {
    /// The last group that certainly begins before the key, if there is one.
    pub(super) before: Option<usize>,
    /// Groups whose slots do not tell.
    pub(super) equal: Range<usize>,
}

impl Guide {
    /// The guide in `bytes`, which are those from the slots on; `None` if they are damaged.
    pub(super) fn decode(header: &Header, bytes: &[u8]) -> Option<Guide> {
        let from = header.segments_at() - header.slots_at();
        let mut reader = Reader::new(bytes.get(from..from + header.segment_bytes)?);
        let mut segments: Vec<Segment> = Vec::new();
        for _ in 0..header.segments {
            let first = reader.varint_max(header.groups - 1)?;
            let shared = reader.varint_max(SHARED_MAX)?;
            let key = reader.bytes()?;
            let before = segments.last_mut();
            let is_next = match &before {
                Some(before) => first > before.groups.start && *key > *before.first,
                None => first == 0,
            };
            if !is_next || shared > key.len() {
                return None;
            }
            if let Some(before) = before {
                before.groups.end = first;
            }
            segments.push(Segment {
                groups: first..header.groups,
                shared,
                first: key.into(),
            });
        }
        let largest = reader.bytes()?.into();
        let slots = bytes.get(..header.groups * header.slot_bytes)?;
        let samples = match header.slot_bytes {
            0 => Vec::new(),
            size => slots
                .chunks(size)
                .step_by(SAMPLE)
                .flatten()
                .copied()
                .collect(),
        };
        reader.is_empty().then_some(Guide {
            segments,
            samples: samples.into(),
            slot_bytes: header.slot_bytes,
            largest,
        })
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        let segments = self.segments.iter();
        let keys: usize = segments.map(|segment| segment.first.len()).sum();
        size_of::<Guide>()
            + self.segments.len() * size_of::<Segment>()
            + keys
            + self.samples.len()
            + self.largest.len()
    }

    /// The smallest key.
    pub(super) fn smallest(&self) -> &[u8] {
        self.segments.first().map_or(&[], |segment| &segment.first)
    }

    /// The largest key.
    pub(super) fn largest(&self) -> &[u8] {
        &self.largest
    }

    /// The groups that may hold `key`. `read` reads slots from a group on.
    pub(super) fn candidates(
        &self,
        key: &[u8],
        read: impl FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<Candidates> {
        let begun = |segment: &Segment| *segment.first <= *key;
        let none = Candidates {
            before: None,
            equal: 0..0,
        };
        let Some(at) = self.segments.partition_point(begun).checked_sub(1) else {
            return Ok(none);
        };
        let segment = &self.segments[at];
        if self.slot_bytes == 0 {
            return Ok(Candidates {
                before: None,
                equal: segment.groups.clone(),
            });
        }
        if !key.starts_with(&segment.first[..segment.shared]) {
            // All first keys of the segment have the prefix, and the first one is below.
            return Ok(Candidates {
                before: Some(segment.groups.end - 1),
                equal: 0..0,
            });
        }
        let slot = slot_of(key, segment.shared);
        self.within(segment, &slot[..self.slot_bytes], read)
    }

    fn within(
        &self,
        segment: &Segment,
        slot: &[u8],
        mut read: impl FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<Candidates> {
        let (start, below) = self.bound(&segment.groups, slot, false, &mut read)?;
        // The line that was read tells most often whether the slots behind it are equal.
        let end = match start {
            Bound::Told(end) => end,
            Bound::Unknown => self.bound(&segment.groups, slot, true, &mut read)?.1,
        };
        let before = below
            .checked_sub(1)
            .filter(|at| segment.groups.contains(at));
        Ok(Candidates {
            before,
            equal: below..end.max(below),
        })
    }

    /// The first of `groups` whose slot is not below `slot`, or is above it if `above`; with the
    /// first above it, if what was read tells.
    fn bound(
        &self,
        groups: &Range<usize>,
        slot: &[u8],
        above: bool,
        read: &mut impl FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<(Bound, usize)> {
        let size = self.slot_bytes;
        let passes = |other: &[u8]| match above {
            true => other <= slot,
            false => other < slot,
        };
        let sample = |number: usize| &self.samples[number * size..(number + 1) * size];
        let first = groups.start.div_ceil(SAMPLE);
        let last = groups.end.div_ceil(SAMPLE).max(first);
        let (mut low, mut high) = (first, last);
        while low < high {
            let middle = low + (high - low) / 2;
            match passes(sample(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let from = match low > first {
            true => (low - 1) * SAMPLE + 1,
            false => groups.start,
        };
        let to = match low < last {
            true => low * SAMPLE,
            false => groups.end,
        };
        let mut line = [0; SAMPLE * SLOT_BYTES_MAX];
        let line = &mut line[..(to - from) * size];
        if from < to {
            read(from, line)?;
        }
        let slots = || line.chunks(size);
        let passed = slots().take_while(|other| passes(other)).count();
        let equal = slots().skip(passed).take_while(|other| *other == slot);
        let end = from + passed + equal.count();
        let told = match low < last {
            // All of the line is equal, and perhaps the sample behind it.
            true => end < to || sample(low) > slot,
            false => true,
        };
        let bound = match told {
            true => Bound::Told(end),
            false => Bound::Unknown,
        };
        Ok((bound, from + passed))
    }

    /// True if `slot` is that of `key`, the first of group `number`.
    pub(super) fn is_slot_of(&self, number: usize, slot: &[u8], key: &[u8]) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|segment| {
            let is_first = number != segment.groups.start || *segment.first == *key;
            segment.groups.contains(&number)
                && is_first
                && key.get(..segment.shared) == segment.first.get(..segment.shared)
                && *slot == slot_of(key, segment.shared)[..self.slot_bytes]
        })
    }
}

/// The end of a run of equal slots, if the line that was read tells it.
enum Bound {
    Told(usize),
    Unknown,
}
