//! Reads a table.
//!
//! 1. Nothing of a table changes once it is complete, so readers need neither lock nor version.
//! 2. The filter is in memory, because a line of it that rotted in persistent memory would hide
//!    keys in silence. Slots are not: a get checks what they led to. The group must begin at or
//!    before the key, and if it ends before it, the next group must begin after it.
//! 3. A reader beside a writing process has no claim to the table's space: the writer may free and
//!    reuse it. Every group that it reads has the table's id in its checksum, so it notices.
//! 4. A value is copied out, because a pinned one would keep its table for as long as a user likes.

use super::layout::{
    EntryHead, GROUP_BYTES, GroupHead, HEADER_BYTES, Header, Heads, OFFSET_BYTES, OFFSET_UNIT,
    PmTotals, value_crc,
};
use super::search::Guide;
use super::sketch::Sketch;
use super::space::PmTableSpace;
use crate::Value;
use crate::context::{OpenBytes, PmGets, TableContext};
use crate::sites;
use crate::sst::{Filter, Got, Query};
use firn_base::checksum::matches;
use firn_base::coding::get_u32;
use firn_base::{Result, Tag};
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes of a group that are read first: its heads, most often.
const FIRST_BYTES: usize = 192;

/// A table that is open for reading.
#[derive(Debug)]
pub struct PmTable {
    space: Arc<PmTableSpace>,
    header: Header,
    guide: Guide,
    filter: Filter,
    sketch: Sketch,
    /// Where its gets and its memory are counted, if it belongs to a database that is open.
    counted: Option<(Arc<PmGets>, OpenBytes)>,
}

/// The group that a search or a cursor read last.
#[derive(Debug, Default)]
pub(super) struct Probe {
    number: Option<usize>,
    head: GroupHead,
    /// The fixed part and the heads, and perhaps some values.
    bytes: Vec<u8>,
    /// The place of the group in the table.
    at: usize,
    /// Cache lines of persistent memory read so far.
    lines: u64,
}

impl Probe {
    /// The prefix that the keys share, and the heads; `None` if they are damaged.
    #[inline]
    pub(super) fn heads(&self) -> Option<(&[u8], Heads<'_>)> {
        Heads::of(&self.head, self.bytes.get(GROUP_BYTES..)?)
    }

    /// The place of the values.
    pub(super) fn values_at(&self) -> usize {
        self.at + GROUP_BYTES + self.head.heads
    }

    /// The bytes of the group that were read.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl PmTable {
    /// Opens the table in `space`.
    ///
    /// # Errors
    /// `Corruption` if its header or what is searched is damaged; `Changed` if another process
    /// reused the space.
    pub fn open(space: Arc<PmTableSpace>) -> Result<PmTable> {
        let header = space.header()?;
        let damaged = |what| space.damaged(header.slots_at(), what);
        let mut bytes = vec![0; header.end() - header.slots_at()];
        space.read(header.slots_at(), &mut bytes)?;
        let is_whole = matches(&sites::PM_TABLE_SEARCH_CHECK, header.search_crc, || {
            header.crc_of_search(&bytes)
        });
        if !is_whole {
            return Err(damaged("what is searched"));
        }
        let sketch_at = header.sketch_at() - header.slots_at();
        let words = bytes[sketch_at..].as_chunks().0.iter();
        let sketch = words.map(|word| u64::from_le_bytes(*word)).collect();
        let filter = &bytes[header.filter_at() - header.slots_at()..sketch_at];
        let filter = Filter::from_bytes(filter).ok_or_else(|| damaged("a filter"))?;
        let guide = Guide::decode(&header, &bytes).ok_or_else(|| damaged("segments"))?;
        Ok(PmTable {
            header,
            guide,
            filter,
            sketch,
            space,
            counted: None,
        })
    }

    /// Counts its memory and its gets in `context`.
    #[must_use]
    pub fn counted_in(mut self, context: &TableContext) -> PmTable {
        let memory = context.count_open(self.memory_bytes());
        self.counted = Some((context.pm_gets.clone(), memory));
        self
    }

    /// The extent of the table.
    pub fn space(&self) -> &Arc<PmTableSpace> {
        &self.space
    }

    /// Gives up the open table for its extent.
    pub fn into_space(self) -> Arc<PmTableSpace> {
        self.space
    }

    /// Its sums.
    pub fn totals(&self) -> &PmTotals {
        &self.header.totals
    }

    /// The smallest and the largest key.
    pub fn bounds(&self) -> (&[u8], &[u8]) {
        (self.guide.smallest(), self.guide.largest())
    }

    /// The sketch of its keys.
    pub fn sketch(&self) -> &Sketch {
        &self.sketch
    }

    /// Bytes of memory that its guide, its filter and its sketch hold.
    pub fn memory_bytes(&self) -> usize {
        let sketch = self.sketch.hashes().len() * 2 * size_of::<u64>();
        size_of::<PmTable>() + self.guide.memory_bytes() + self.filter.as_bytes().len() + sketch
    }

    /// False if no entry has a key with this hash.
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The number of groups.
    pub(super) fn groups(&self) -> usize {
        self.header.groups
    }

    /// The place of the slots and of the groups' offsets.
    #[cfg(test)]
    pub(super) fn places(&self) -> std::ops::Range<usize> {
        self.header.slots_at()..self.header.segments_at()
    }

    /// Reads the slot of group `number` into `out`.
    pub(super) fn read_slot<'a>(&self, number: usize, out: &'a mut [u8]) -> Result<&'a [u8]> {
        let size = self.header.slot_bytes;
        let slot = &mut out[..size];
        self.space
            .read(self.header.slots_at() + number * size, slot)?;
        Ok(slot)
    }

    pub(super) fn guide(&self) -> &Guide {
        &self.guide
    }

    /// The newest entry of a key at or below the read point.
    ///
    /// # Errors
    /// `Corruption` if a group or the value is damaged; `Changed` if another process reused the
    /// space.
    pub fn get(&self, query: &Query<'_>) -> Result<Got> {
        if !self.filter.may_contain(query.hash) {
            return Ok(Got::Excluded);
        }
        let mut probe = Probe::default();
        let got = self.search(query, &mut probe);
        if let Some((gets, _)) = &self.counted {
            gets.searched(probe.lines);
        }
        got.map_err(|error| self.space.told(error))
    }

    fn search(&self, query: &Query<'_>, probe: &mut Probe) -> Result<Got> {
        let missed = Got::Missed { read: false };
        let Some(number) = self.group_of(query.key, probe)? else {
            return Ok(missed);
        };
        self.read_group(number, probe)?;
        let Some(found) = find(probe, query.key, Tag::seek(query.seqno)) else {
            return Err(self.damaged_group(probe));
        };
        match found {
            Found::Entry(entry) => {
                let (tag, at) = (entry.tag, probe.values_at() + entry.value_at);
                let (bytes, crc) = (entry.value_bytes, entry.value_crc);
                let mut value = Vec::new();
                self.value(tag, at, bytes, crc, &mut value, probe)?;
                self.space.read_groups.add(number, self.groups());
                Ok(Got::Found {
                    tag,
                    value: Value::owned(value),
                    keeps_row: false,
                })
            }
            Found::Absent => Ok(missed),
            Found::Behind => {
                self.check_next(number, query.key, probe)?;
                Ok(missed)
            }
        }
    }

    /// The last group that begins at or before `key`.
    pub(super) fn group_of(&self, key: &[u8], probe: &mut Probe) -> Result<Option<usize>> {
        let (size, slots_at) = (self.header.slot_bytes, self.header.slots_at());
        let mut lines = 0;
        let found = self.guide.candidates(key, |group, out| {
            let at = slots_at + group * size;
            lines += line_count(at, out.len());
            self.space.read(at, out)
        })?;
        probe.lines += lines;
        let (mut low, mut high) = (found.equal.start, found.equal.end);
        // Whole first keys decide between groups with the key's slot.
        while low < high {
            let middle = low + (high - low) / 2;
            self.read_group(middle, probe)?;
            match self.first_key_is_above(key, probe)? {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let last = (low > found.equal.start).then(|| low - 1);
        let group = last.or(found.before);
        if group.is_none() && *key >= *self.guide.smallest() {
            return Err(self
                .space
                .damaged(slots_at, "a group that begins before a key"));
        }
        Ok(group)
    }

    /// True if the group in `probe` begins after `key`.
    fn first_key_is_above(&self, key: &[u8], probe: &Probe) -> Result<bool> {
        let first = probe.heads().and_then(|(shared, mut heads)| {
            let first = heads.next()?;
            Some(compare_parts(shared, first.rest, key))
        });
        let order = first.ok_or_else(|| self.damaged_group(probe))?;
        Ok(order == Ordering::Greater)
    }

    /// Checks that the group behind `number`, if there is one, begins after `key`, because a slot
    /// or an offset that lies would hide the key.
    fn check_next(&self, number: usize, key: &[u8], probe: &mut Probe) -> Result<()> {
        if number + 1 == self.groups() {
            return Ok(());
        }
        self.read_group(number + 1, probe)?;
        match self.first_key_is_above(key, probe)? {
            true => Ok(()),
            false => Err(self.damaged_group(probe)),
        }
    }

    /// Reads the heads of a group into `probe`, unless they are there, and checks them.
    pub(super) fn read_group(&self, number: usize, probe: &mut Probe) -> Result<()> {
        if probe.number == Some(number) {
            return Ok(());
        }
        probe.number = None;
        let mut offset = [0; OFFSET_BYTES];
        let offset_at = self.header.offsets_at() + number * OFFSET_BYTES;
        self.space.read(offset_at, &mut offset)?;
        probe.lines += 1;
        let at = get_u32(&offset, 0).unwrap_or(0) as usize * OFFSET_UNIT;
        let damaged = || self.space.damaged(at, "a group of entries");
        let there = self.header.groups_end.saturating_sub(at);
        if at < HEADER_BYTES || there < GROUP_BYTES {
            return Err(self.space.damaged(offset_at, "the place of a group"));
        }
        let first = there.min(FIRST_BYTES);
        probe.bytes.resize(first, 0);
        self.space.read(at, &mut probe.bytes)?;
        let head = GroupHead::decode(&probe.bytes).ok_or_else(damaged)?;
        let whole = GROUP_BYTES + head.heads;
        if whole > there {
            return Err(damaged());
        }
        if whole > first {
            probe.bytes.resize(whole, 0);
            self.space.read(at + first, &mut probe.bytes[first..])?;
        }
        probe.lines += line_count(at, first.max(whole));
        if !head.is_whole(&probe.bytes, self.space.id(), number, at) {
            return Err(damaged());
        }
        (probe.number, probe.head, probe.at) = (Some(number), head, at);
        Ok(())
    }

    /// Replaces the bytes of `value` by those at `at`, the value of the entry with this tag and
    /// checksum.
    pub(super) fn value(
        &self,
        tag: Tag,
        at: usize,
        bytes: usize,
        crc: u32,
        value: &mut Vec<u8>,
        probe: &mut Probe,
    ) -> Result<()> {
        if at
            .checked_add(bytes)
            .is_none_or(|end| end > self.header.groups_end)
        {
            return Err(self.damaged_group(probe));
        }
        value.resize(bytes, 0);
        self.space.read(at, value)?;
        probe.lines += line_count(at, bytes);
        let is_whole = matches(&sites::PM_TABLE_VALUE_CHECK, crc, || value_crc(tag, value));
        match is_whole {
            true => Ok(()),
            false => Err(self.space.damaged(at, "a whole value")),
        }
    }

    /// The error for a group whose heads lie.
    pub(super) fn damaged_group(&self, probe: &Probe) -> firn_base::Error {
        self.space.damaged(probe.at, "a group in order")
    }
}

/// The result of a search in a group.
enum Found<'a> {
    /// The newest entry that the tag sees.
    Entry(EntryHead<'a>),
    /// No such entry, and the group has a later key.
    Absent,
    /// All keys of the group are before it.
    Behind,
}

/// Searches the group in `probe`; `None` if it is damaged, or begins after the key.
fn find<'a>(probe: &'a Probe, key: &[u8], tag: Tag) -> Option<Found<'a>> {
    let (shared, mut heads) = probe.heads()?;
    let mut is_first = true;
    let mut found = Found::Behind;
    while heads.left() > 0 {
        let entry = heads.next()?;
        match compare_parts(shared, entry.rest, key) {
            Ordering::Less => {}
            Ordering::Equal if entry.tag <= tag => return Some(Found::Entry(entry)),
            Ordering::Equal => found = Found::Absent,
            Ordering::Greater if is_first => return None,
            Ordering::Greater => return Some(Found::Absent),
        }
        is_first = false;
    }
    Some(found)
}

/// Compares the key `shared | rest` with `key`.
#[inline]
pub(super) fn compare_parts(shared: &[u8], rest: &[u8], key: &[u8]) -> Ordering {
    let len = shared.len().min(key.len());
    shared.cmp(&key[..len]).then_with(|| rest.cmp(&key[len..]))
}

/// The cache lines of `bytes` at `at` of a table.
fn line_count(at: usize, bytes: usize) -> u64 {
    firn_pm::line_range(at as u64, bytes as u64).count_lines()
}
