//! Reads a list.
//!
//! 1. Nothing of a list changes once it is complete, so readers need neither lock nor version.
//! 2. The towers of the skiplist are implicit: the node at index `i` has height `1 + (trailing zero
//!    bits of i) / 4`, and its successor at height `h` is the node at `i + 16^h`. The nodes
//!    themselves, level 0 of the skiplist, are all that is stored. The prefixes of the nodes of
//!    height 2 and the first keys of segments are kept in memory, so a search goes down to a group
//!    of sixteen nodes before it reads persistent memory.
//! 3. A reader beside a writing process has no claim to the list's space: the writer may free and
//!    reuse it. It keeps a copy of the nodes, and checks every entry that it looks at, so it
//!    notices.
//! 4. A key in persistent memory may rot. A search and a cursor of a user verify every entry by
//!    whose key they go on, or a rotted key would hide others, or itself. A merge that links
//!    entries does not read their values, so it verifies none.
//! 5. A value is copied out, because a pinned one would keep its chunk for as long as a user likes.

use super::layout::{ENTRY_BYTES, EntryHead, ListTotals, NODE_BYTES, Node, prefix_of};
use super::space::{Chunk, ListSpace};
use super::write::Linked;
use crate::Value;
use crate::context::{OpenBytes, PmGets, TableContext};
use crate::sites;
use crate::sst::{Filter, Got, Query};
use firn_base::checksum::{crc32c_salted, matches};
use firn_base::key::compare;
use firn_base::{Error, Result, Tag};
use std::cmp::Ordering;
use std::sync::Arc;

/// The distance of nodes whose prefixes are kept in memory.
const GROUP: usize = 16;
/// Bytes of an entry that are read first: its head, and the key if it is short.
const FIRST_BYTES: usize = 64;

/// The position of a node: its segment, and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) segment: usize,
    pub(super) index: usize,
}

/// A segment's search structure in memory.
#[derive(Debug)]
struct Guide {
    first: Box<[u8]>,
    first_tag: Tag,
    /// The prefix of every sixteenth node.
    prefixes: Box<[u64]>,
}

/// A list that is open for reading.
#[derive(Debug)]
pub struct List {
    space: Arc<ListSpace>,
    guides: Vec<Guide>,
    filter: Filter,
    totals: ListTotals,
    /// Where its gets and its memory are counted, if it belongs to a database that is open.
    counted: Option<(Arc<PmGets>, OpenBytes)>,
}

/// The entry that a search or a cursor read last.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// The entry's key.
    pub(super) key: Vec<u8>,
    /// The entry's value, if `is_whole`.
    pub(super) value: Vec<u8>,
    /// True if the entry was verified.
    is_whole: bool,
    /// True if every entry is.
    verifies: bool,
    found: Option<(Position, Found)>,
    /// Cache lines of persistent memory read so far.
    lines: u64,
}

impl Probe {
    /// A probe that verifies every entry.
    pub(super) fn verifying() -> Probe {
        Probe {
            verifies: true,
            ..Probe::default()
        }
    }

    /// The entry, if it was read.
    pub(super) fn found(&self) -> Option<Found> {
        self.found.map(|(_, found)| found)
    }

    fn count(&mut self, at: u64, bytes: usize) {
        self.lines += firn_pm::line_range(at, bytes as u64).count_lines();
    }
}

/// An entry's head and its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) head: EntryHead,
    pub(super) chunk: u32,
    pub(super) at: u32,
}

impl List {
    /// Opens the list in `space`, whose last segment has `totals`.
    ///
    /// # Errors
    /// `Corruption` if a node leads to no entry, or the first one of a segment or the filter is
    /// damaged.
    pub fn open(space: Arc<ListSpace>, totals: ListTotals) -> Result<List> {
        List::open_with(space, totals, Probe::verifying)
    }

    /// Opens a list of which some entries may be damaged, to salvage the others.
    ///
    /// # Errors
    /// `Corruption` if a node leads to no entry, or the filter is damaged.
    pub fn open_damaged(space: Arc<ListSpace>, totals: ListTotals) -> Result<List> {
        List::open_with(space, totals, Probe::default)
    }

    fn open_with(
        space: Arc<ListSpace>,
        totals: ListTotals,
        probe: impl Fn() -> Probe,
    ) -> Result<List> {
        let mut list = List {
            filter: open_filter(&space, &totals)?,
            space,
            guides: Vec::new(),
            totals,
            counted: None,
        };
        // Only the last segment may be empty.
        let is_filled = |segment: &usize| list.space.segments[*segment].nodes > 0;
        let filled: Vec<usize> = (0..list.space.segments.len()).filter(is_filled).collect();
        for segment in filled {
            let guide = list.guide(segment, probe())?;
            list.guides.push(guide);
        }
        Ok(list)
    }

    fn guide(&self, segment: usize, mut probe: Probe) -> Result<Guide> {
        let nodes = self.space.segments[segment].nodes as usize;
        let first_tag = self
            .entry(Position { segment, index: 0 }, &mut probe)?
            .head
            .tag;
        let first = std::mem::take(&mut probe.key).into();
        let mut of = |index| Ok(self.node(Position { segment, index }, &mut probe)?.prefix);
        let prefixes: Result<Box<[u64]>> = (0..nodes).step_by(GROUP).map(&mut of).collect();
        Ok(Guide {
            first,
            first_tag,
            prefixes: prefixes?,
        })
    }

    /// Counts its memory and its gets in `context`.
    #[must_use]
    pub fn counted_in(mut self, context: &TableContext) -> List {
        let memory = context.count_open(self.memory_bytes());
        self.counted = Some((context.pm_gets.clone(), memory));
        self
    }

    /// The extents of the list.
    pub fn space(&self) -> &Arc<ListSpace> {
        &self.space
    }

    /// Gives up the open list for its extents.
    pub fn into_space(self) -> Arc<ListSpace> {
        self.space
    }

    /// Its sums.
    pub fn totals(&self) -> &ListTotals {
        &self.totals
    }

    /// Bytes of memory that its search structure and its filter hold.
    pub fn memory_bytes(&self) -> usize {
        let of =
            |guide: &Guide| size_of::<Guide>() + guide.first.len() + size_of_val(&*guide.prefixes);
        self.guides.iter().map(of).sum::<usize>() + self.filter.as_bytes().len()
    }

    /// False if no entry has a key with this hash.
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The newest entry of a key at or below the read point.
    ///
    /// # Errors
    /// `Corruption` if a node leads to no entry.
    pub fn get(&self, query: &Query<'_>) -> Result<Got> {
        if !self.filter.may_contain(query.hash) {
            return Ok(Got::Excluded);
        }
        let mut probe = Probe::verifying();
        let got = self.search(query, &mut probe);
        if let Some((gets, _)) = &self.counted {
            gets.searched(probe.lines);
        }
        got
    }

    fn search(&self, query: &Query<'_>, probe: &mut Probe) -> Result<Got> {
        let missed = Got::Missed { read: false };
        let Some(at) = self.seek(query.key, Tag::seek(query.seqno), probe)? else {
            return Ok(missed);
        };
        let tag = self.entry(at, probe)?.head.tag;
        if probe.key != query.key {
            return Ok(missed);
        }
        Ok(Got::Found {
            tag,
            value: Value::owned(std::mem::take(&mut probe.value)),
            keeps_row: false,
        })
    }

    /// The first node that is not before (`key`, `tag`); `None` if there is none. It leaves the
    /// entry that it read last in `probe`, usually that node's.
    pub(super) fn seek(&self, key: &[u8], tag: Tag, probe: &mut Probe) -> Result<Option<Position>> {
        let is_before =
            |guide: &Guide| compare(&guide.first, guide.first_tag, key, tag) == Ordering::Less;
        let Some(segment) = self.guides.partition_point(is_before).checked_sub(1) else {
            return Ok(self.first());
        };
        let index = self.seek_in(segment, key, tag, probe)?;
        let nodes = self.space.segments[segment].nodes as usize;
        if index < nodes {
            return Ok(Some(Position { segment, index }));
        }
        let next = segment + 1;
        Ok((next < self.guides.len()).then_some(Position {
            segment: next,
            index: 0,
        }))
    }

    /// The index of the first node of `segment` that is not before (`key`, `tag`). REQUIRES: the
    /// segment's first node is.
    fn seek_in(&self, segment: usize, key: &[u8], tag: Tag, probe: &mut Probe) -> Result<usize> {
        let guide = &self.guides[segment];
        let (nodes, shared) = (
            self.space.segments[segment].nodes as usize,
            usize::from(self.space.segments[segment].prefix_bytes),
        );
        let prefix = guide.first.get(..shared).unwrap_or_default();
        if !key.starts_with(prefix) {
            // The first node is before it, so all nodes are: they share the prefix.
            return Ok(nodes);
        }
        let wanted = prefix_of(key, shared);
        let below = guide.prefixes.partition_point(|&prefix| prefix < wanted);
        let not_above = guide.prefixes.partition_point(|&prefix| prefix <= wanted);
        let mut start = below.saturating_sub(1) * GROUP;
        let mut end = (not_above * GROUP).min(nodes);
        let mut group = [0; GROUP * NODE_BYTES];
        let mut loaded = None;
        while start < end {
            if loaded.is_none() && end - start <= GROUP {
                let bytes = &mut group[..(end - start) * NODE_BYTES];
                let at = Position {
                    segment,
                    index: start,
                };
                self.nodes(at, bytes, probe)?;
                loaded = Some(start);
            }
            let index = start + (end - start) / 2;
            let at = Position { segment, index };
            let node = match loaded {
                Some(first) => Node::nth(&group, index - first),
                None => self.node(at, probe)?,
            };
            let order = match node.prefix.cmp(&wanted) {
                Ordering::Equal => {
                    let tag_there = self.entry_of(at, node, probe)?.head.tag;
                    compare(&probe.key, tag_there, key, tag)
                }
                order => order,
            };
            match order {
                Ordering::Less => start = index + 1,
                _ => end = index,
            }
        }
        Ok(start)
    }

    /// True if the node at `at` has the prefix of `key`, which shares that of its segment.
    pub(super) fn has_prefix(&self, at: Position, key: &[u8]) -> Result<bool> {
        let shared = usize::from(self.space.segments[at.segment].prefix_bytes);
        let first = &self.guides[at.segment].first;
        let is_shared = key.get(..shared) == first.get(..shared);
        let node = self.node(at, &mut Probe::default())?;
        Ok(is_shared && node.prefix == prefix_of(key, shared))
    }

    pub(super) fn first(&self) -> Option<Position> {
        let first = Position {
            segment: 0,
            index: 0,
        };
        (!self.guides.is_empty()).then_some(first)
    }

    pub(super) fn last(&self) -> Option<Position> {
        let segment = self.guides.len().checked_sub(1)?;
        let index = self.space.segments[segment].nodes as usize - 1;
        Some(Position { segment, index })
    }

    pub(super) fn after(&self, at: Position) -> Option<Position> {
        let Position { segment, index } = at;
        if index + 1 < self.space.segments[segment].nodes as usize {
            return Some(Position {
                segment,
                index: index + 1,
            });
        }
        (segment + 1 < self.guides.len()).then_some(Position {
            segment: segment + 1,
            index: 0,
        })
    }

    pub(super) fn before(&self, at: Position) -> Option<Position> {
        let Position { segment, index } = at;
        if let Some(index) = index.checked_sub(1) {
            return Some(Position { segment, index });
        }
        let segment = segment.checked_sub(1)?;
        let index = self.space.segments[segment].nodes as usize - 1;
        Some(Position { segment, index })
    }

    fn node(&self, at: Position, probe: &mut Probe) -> Result<Node> {
        let mut bytes = [0; NODE_BYTES];
        self.nodes(at, &mut bytes, probe)?;
        Ok(Node::nth(&bytes, 0))
    }

    /// Reads the bytes of nodes from `at` on. REQUIRES: they are in its segment.
    fn nodes(&self, at: Position, out: &mut [u8], probe: &mut Probe) -> Result<()> {
        let segment = &self.space.segments[at.segment];
        let from = segment.nodes_at + (at.index * NODE_BYTES) as u64;
        if let Some(held) = self.space.held.get() {
            let from = from as usize;
            let nodes = held.segments[at.segment].get(from..from + out.len());
            out.copy_from_slice(nodes.ok_or_else(|| self.damaged(at, "a node"))?);
            return Ok(());
        }
        let place = super::write::place(segment.extent, from)?;
        probe.count(place.get(), out.len());
        self.space.pool.read(place, out)
    }

    /// Reads the entry of the node at `at` into `probe`, unless it is there.
    pub(super) fn entry(&self, at: Position, probe: &mut Probe) -> Result<Found> {
        match probe.found {
            Some((there, found)) if there == at => Ok(found),
            _ => {
                let node = self.node(at, probe)?;
                self.entry_of(at, node, probe)
            }
        }
    }

    /// Reads the entry to which the node at `at` points into `probe`.
    fn entry_of(&self, at: Position, node: Node, probe: &mut Probe) -> Result<Found> {
        (probe.found, probe.is_whole) = (None, false);
        let segment = &self.space.segments[at.segment];
        let (number, _) = segment
            .refs
            .get(node.chunk as usize)
            .copied()
            .ok_or_else(|| self.damaged(at, "a node's chunk"))?;
        let chunk = &self.space.chunks[number as usize];
        // The head and a short key are read at once.
        let from = u64::from(node.at);
        let mut bytes = [0; FIRST_BYTES];
        let there = chunk
            .extent()
            .len
            .saturating_sub(from)
            .min(FIRST_BYTES as u64) as usize;
        if there < ENTRY_BYTES {
            return Err(self.damaged(at, "a node's entry"));
        }
        self.read(chunk, from, &mut bytes[..there], probe)
            .ok_or_else(|| self.damaged(at, "a node's entry"))??;
        let head = EntryHead::decode(&bytes).ok_or_else(|| self.damaged(at, "an entry"))?;
        let key_end = ENTRY_BYTES + usize::from(head.key_bytes);
        probe.key.clear();
        match bytes[..there].get(ENTRY_BYTES..key_end) {
            Some(key) => probe.key.extend_from_slice(key),
            None => {
                let mut key = std::mem::take(&mut probe.key);
                key.resize(usize::from(head.key_bytes), 0);
                let read = self.read(chunk, from + ENTRY_BYTES as u64, &mut key, probe);
                probe.key = key;
                read.ok_or_else(|| self.damaged(at, "an entry's key"))??;
            }
        }
        let found = Found {
            head,
            chunk: number,
            at: node.at,
        };
        probe.found = Some((at, found));
        if probe.verifies || self.space.held.get().is_some() {
            self.load(probe)?;
        }
        Ok(found)
    }

    /// Reads the value of the entry in `probe`, unless it is there. The entry's checksum is
    /// verified.
    pub(super) fn load(&self, probe: &mut Probe) -> Result<()> {
        if !probe.is_whole {
            let mut value = std::mem::take(&mut probe.value);
            let read = self.value_into(probe, &mut value);
            probe.value = value;
            probe.is_whole = read.is_ok();
            read?;
        }
        Ok(())
    }

    fn value_into(&self, probe: &mut Probe, value: &mut Vec<u8>) -> Result<()> {
        let Some(found) = probe.found() else {
            return Err(Error::invalid("no entry was read"));
        };
        let chunk = &self.space.chunks[found.chunk as usize];
        let offset = chunk.extent().offset.get();
        let head = &found.head;
        let from = u64::from(found.at) + ENTRY_BYTES as u64 + u64::from(head.key_bytes);
        let damaged = || {
            let place = format!("list {} in the pool", self.space.list);
            let error = Error::corruption(place, offset + u64::from(found.at), "a whole entry");
            self.told(error)
        };
        if from + u64::from(head.value_bytes) > chunk.extent().len {
            return Err(damaged());
        }
        value.resize(head.value_bytes as usize, 0);
        self.read(chunk, from, value, probe).ok_or_else(damaged)??;
        let place = offset + u64::from(found.at);
        let is_whole = head.is_whole(chunk.list, place, &probe.key, value);
        is_whole.then_some(()).ok_or_else(damaged)
    }

    /// An entry, to be linked into another list.
    pub(super) fn linked(&self, found: &Found) -> Linked {
        Linked {
            chunk: self.space.chunks[found.chunk as usize].clone(),
            at: found.at,
            bytes: found.head.bytes() as u32,
        }
    }

    /// Reads bytes of a chunk; `None` if they are not in it.
    fn read(
        &self,
        chunk: &Chunk,
        at: u64,
        out: &mut [u8],
        probe: &mut Probe,
    ) -> Option<Result<()>> {
        let extent = chunk.extent();
        let end = at + out.len() as u64;
        let place = extent.at(at).filter(|_| end <= extent.len)?;
        if let Some(copy) = chunk.copy.get() {
            out.copy_from_slice(&copy[at as usize..end as usize]);
            return Some(Ok(()));
        }
        probe.count(place.get(), out.len());
        Some(self.space.pool.read(place, out))
    }

    fn damaged(&self, at: Position, expected: &str) -> Error {
        let segment = &self.space.segments[at.segment];
        let offset =
            segment.extent.offset.get() + segment.nodes_at + (at.index * NODE_BYTES) as u64;
        let place = format!("list {} in the pool", self.space.list);
        self.told(Error::corruption(place, offset, expected))
    }

    /// The error as it is, or that the space was reused.
    fn told(&self, error: Error) -> Error {
        match self.space.held.get() {
            Some(_) => self.space.changed(error),
            None => error,
        }
    }
}

fn damaged_filter(space: &ListSpace) -> Error {
    let place = format!("list {} in the pool", space.list);
    let at = space.filter.map_or(0, |extent| extent.offset.get());
    Error::corruption(place, at, "a list's filter")
}

fn open_filter(space: &ListSpace, totals: &ListTotals) -> Result<Filter> {
    if space.filter.is_none() {
        return Ok(Filter::default());
    }
    let read;
    let bytes = match space.held.get() {
        Some(held) => &held.filter,
        None => {
            read = read_filter(space, totals)?;
            &read
        }
    };
    Filter::from_bytes(bytes).ok_or_else(|| damaged_filter(space))
}

/// The bytes of a list's filter, which are none if it has none.
pub(super) fn read_filter(space: &ListSpace, totals: &ListTotals) -> Result<Vec<u8>> {
    let Some(extent) = space.filter else {
        return Ok(Vec::new());
    };
    if u64::from(totals.filter_bytes) > extent.len {
        return Err(damaged_filter(space));
    }
    let mut bytes = vec![0; totals.filter_bytes as usize];
    space.pool.read(extent.offset, &mut bytes)?;
    let computed = || crc32c_salted(space.list.0, extent.offset.get(), &[&bytes]);
    let is_whole = matches(&sites::LIST_SEGMENT_CHECK, totals.filter_crc, computed);
    match is_whole {
        true => Ok(bytes),
        false => Err(damaged_filter(space)),
    }
}
