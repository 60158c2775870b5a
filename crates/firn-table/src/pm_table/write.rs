//! Writes a table: groups as they are filled, then what is searched, then the header.
//!
//! 1. Nothing in persistent memory leads to the table until a record of the manifest names it. So
//!    there is no order between its bytes; all are fenced before [`PmTableWriter::finish`] returns.
//! 2. A writer that is dropped frees what it allocated.

use super::layout::{
    Arrangement, GROUP_ALIGN, GROUP_BYTES, HEADER_BYTES, Header, OFFSET_BYTES, OFFSET_UNIT,
    PmTotals, SHARED_MAX, SLOT_BYTES, SLOT_BYTES_MAX, Staged, encode_group, slot_of, value_crc,
};
use super::sketch::Sketch;
use super::space::PmTableSpace;
use crate::sites;
use crate::sst::{Filter, hash};
use firn_base::coding::{put_bytes, put_varint};
use firn_base::key::{Kind, shared_prefix_len};
use firn_base::sync::Mutex;
use firn_base::{Error, FileId, Result, Tag};
use firn_pm::{Extent, Headroom, Owner, Pool};
use std::sync::Arc;

/// Bytes that are copied at once.
const STAGE_BYTES: usize = 64 << 10;
/// The most bytes of a group, but for the versions of one key.
const GROUP_BYTES_MAX: usize = 32 << 10;
/// The most segments, and the most bytes of them.
const SEGMENTS_MAX: usize = 64;
const SEGMENT_BYTES_MAX: usize = 4 << 10;
/// The most bytes of a segment beside its key.
const SEGMENT_HEAD_MAX: usize = 8;
/// The share of neighbouring slots that may be equal before slots become larger.
const EQUAL_SHARE_MAX: f64 = 0.01;

/// The parameters of a table to be written.
#[derive(Debug, Clone)]
pub struct PmTableOptions {
    /// The table's id.
    pub id: FileId,
    /// Keys of a group, at most.
    pub group_entries: usize,
    /// The arrangement of the entries.
    pub arrangement: Arrangement,
    /// Bits of filter per key; 0 for no filter.
    pub filter_bits: u32,
    /// Bytes of the table, at most; more only for a single large entry.
    pub table_bytes: u64,
}

/// Writes a table, entry by entry, in order.
pub struct PmTableWriter {
    pool: Arc<Pool>,
    headroom: Option<Arc<Mutex<Headroom>>>,
    options: PmTableOptions,
    extent: Option<Extent>,
    /// Bytes in the pool. Those after them are in `staged`.
    written: usize,
    staged: Vec<u8>,
    /// The group that is being filled, and the values of its entries.
    group: Vec<Staged>,
    values: Vec<u8>,
    /// Bytes of the heads of the group, at most.
    heads_bytes: usize,
    group_keys: usize,
    /// Groups that count as read.
    read_groups: Vec<usize>,
    firsts: Firsts,
    hashes: Vec<u64>,
    last_key: Vec<u8>,
    /// Bytes of the longest key.
    keys_max: usize,
    totals: PmTotals,
}

/// The first keys of the groups, and the groups' places in units of [`OFFSET_UNIT`].
#[derive(Default)]
struct Firsts {
    keys: Vec<u8>,
    ends: Vec<usize>,
    offsets: Vec<u32>,
}

impl Firsts {
    fn push(&mut self, key: &[u8], at: usize) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.offsets.push((at / OFFSET_UNIT) as u32);
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[start..self.ends[number]]
    }
}

/// Groups in a row, from `first` on, whose first keys share `shared` bytes.
struct SegmentOf {
    first: usize,
    shared: usize,
}

impl PmTableWriter {
    /// A writer of an empty table. It allocates from `headroom`, if that is given, else from the
    /// free space.
    pub fn new(
        pool: Arc<Pool>,
        options: PmTableOptions,
        headroom: Option<Arc<Mutex<Headroom>>>,
    ) -> PmTableWriter {
        PmTableWriter {
            pool,
            headroom,
            options,
            extent: None,
            written: 0,
            staged: Vec::new(),
            group: Vec::new(),
            values: Vec::new(),
            heads_bytes: 0,
            group_keys: 0,
            read_groups: Vec::new(),
            firsts: Firsts::default(),
            hashes: Vec::new(),
            last_key: Vec::new(),
            keys_max: 0,
            totals: PmTotals::default(),
        }
    }

    /// The sums so far.
    pub fn totals(&self) -> &PmTotals {
        &self.totals
    }

    /// The key of the last entry.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The key of the first entry.
    pub fn first_key(&self) -> &[u8] {
        match (self.firsts.len(), self.group.first()) {
            (0, first) => first.map_or(&[], |first| &first.key),
            _ => self.firsts.get(0),
        }
    }

    /// Bytes of memory that it holds for all its keys.
    pub fn held_bytes(&self) -> usize {
        let words = self.hashes.len() + self.firsts.len() * 2;
        self.firsts.keys.len() + words * size_of::<u64>()
    }

    /// Bytes of its entries so far.
    pub fn estimated_bytes(&self) -> u64 {
        let ended = self.written + self.staged.len();
        (ended + self.heads_bytes + self.values.len()) as u64
    }

    /// Marks the group of the last entry as read.
    pub fn mark_read(&mut self) {
        let group = self.firsts.len();
        if self.read_groups.last() != Some(&group) {
            self.read_groups.push(group);
        }
    }

    /// True if an entry fits into the extent as it is. If not, the table should end before it.
    pub fn fits(&self, key: &[u8], value: &[u8]) -> bool {
        let bytes = self.bytes_with(key.len(), value.len()) as u64;
        match self.extent {
            Some(extent) => bytes <= extent.len,
            None => true,
        }
    }

    /// Bytes of the table with another entry, at most.
    fn bytes_with(&self, key: usize, value: usize) -> usize {
        let groups = self.firsts.len() + 2;
        let segments = SEGMENT_BYTES_MAX.min(groups * (SEGMENT_HEAD_MAX + self.keys_max.max(key)));
        let hashes = Sketch::hashes_max().min(self.hashes.len() + 1);
        let group =
            GROUP_BYTES + self.heads_bytes + self.values.len() + entry_bytes_max(key, value);
        let filter = (self.hashes.len() + 1) * self.options.filter_bits as usize / 8;
        let ends = self.last_key.len().max(key) + self.first_key().len();
        self.written.max(HEADER_BYTES)
            + self.staged.len()
            + group
            + 3 * GROUP_ALIGN
            + groups * (SLOT_BYTES_MAX + OFFSET_BYTES)
            + segments
            + ends
            + filter
            + hashes * size_of::<u64>()
    }

    /// Appends an entry. REQUIRES: it sorts after the entry before it.
    ///
    /// # Errors
    /// `NoSpace` if the pool is full.
    pub fn add(&mut self, key: &[u8], tag: Tag, value: &[u8]) -> Result<()> {
        let is_new_key = self.totals.entries == 0 || self.last_key != key;
        if is_new_key && self.is_group_full(key, value) {
            self.end_group()?;
        }
        self.make_room(self.bytes_with(key.len(), value.len()))?;
        self.heads_bytes += entry_bytes_max(key.len(), 0);
        self.values.extend_from_slice(value);
        self.group.push(Staged {
            key: key.to_vec(),
            tag,
            value_bytes: value.len(),
            value_crc: value_crc(tag, value),
        });
        let bytes = key.len() + value.len();
        let totals = &mut self.totals;
        totals.entries += 1;
        totals.deletes += u64::from(tag.kind() == Some(Kind::Delete));
        totals.seqno_min = totals.seqno_min.min(tag.seqno());
        totals.seqno_max = totals.seqno_max.max(tag.seqno());
        totals.data_bytes += bytes as u64;
        totals.entry_bytes_max = totals.entry_bytes_max.max(bytes as u32);
        self.keys_max = self.keys_max.max(key.len());
        if is_new_key {
            self.group_keys += 1;
            self.hashes.push(hash(key));
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        } else {
            totals.superseded_bytes += bytes as u64;
        }
        Ok(())
    }

    fn is_group_full(&self, key: &[u8], value: &[u8]) -> bool {
        let most = match self.options.arrangement {
            Arrangement::Array => 1,
            Arrangement::Grouped => self.options.group_entries.max(1),
        };
        let bytes = self.heads_bytes + self.values.len() + key.len() + value.len();
        self.group_keys >= most || (!self.group.is_empty() && bytes > GROUP_BYTES_MAX)
    }

    /// Ends the group that is being filled.
    fn end_group(&mut self) -> Result<()> {
        let (Some(first), Some(last)) = (self.group.first(), self.group.last()) else {
            return Ok(());
        };
        let shared = shared_prefix_len(&first.key, &last.key);
        let align = match self.options.arrangement {
            Arrangement::Array => OFFSET_UNIT,
            Arrangement::Grouped => GROUP_ALIGN,
        };
        let end = self.written + self.staged.len();
        let at = end.next_multiple_of(align);
        self.staged.resize(at - self.written, 0);
        let (id, number) = (self.options.id, self.firsts.len());
        self.firsts.push(&first.key, at);
        encode_group(&self.group, shared, id, number, at, &mut self.staged);
        self.staged.extend_from_slice(&self.values);
        self.group.clear();
        self.values.clear();
        (self.heads_bytes, self.group_keys) = (0, 0);
        if self.staged.len() >= STAGE_BYTES {
            // Whole lines, so that none is written twice.
            self.write_staged(self.staged.len() / GROUP_ALIGN * GROUP_ALIGN)?;
        }
        Ok(())
    }

    /// Copies the first `len` staged bytes. They are fenced here, because the job may go on on
    /// another thread. DURABLE AFTER, where the pool is durable at the fence: those bytes.
    fn write_staged(&mut self, len: usize) -> Result<()> {
        let extent = self.extent()?;
        let at = extent.at(self.written as u64);
        let at = at.ok_or_else(|| Error::invalid("a table's bytes are in its extent"))?;
        let bytes = &self.staged[..len];
        let _durable = self
            .pool
            .write_durable(&sites::PM_TABLE_FENCE, at, &[bytes])?;
        self.written += len;
        self.staged.drain(..len);
        Ok(())
    }

    fn extent(&self) -> Result<Extent> {
        self.extent
            .ok_or_else(|| Error::invalid("a table without entries is not written"))
    }

    /// Sees to it that the extent has `bytes`. A table that began in a short one moves.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        let Some(extent) = self.extent else {
            let least = bytes as u64;
            let most = self.options.table_bytes.max(least);
            self.extent = Some(self.alloc(least, most)?);
            (self.written, self.staged) = (HEADER_BYTES, Vec::with_capacity(STAGE_BYTES));
            return Ok(());
        };
        if bytes as u64 <= extent.len {
            return Ok(());
        }
        // Versions of one key, or a large entry.
        let larger = self.alloc(bytes as u64, 2 * bytes as u64)?;
        let mut moved = vec![0; self.written];
        let copied = self.pool.read(extent.offset, &mut moved).and_then(|()| {
            let bytes = &moved[HEADER_BYTES..];
            let at = larger.at(HEADER_BYTES as u64);
            let at = at.ok_or_else(|| Error::invalid("an extent has room for a header"))?;
            self.pool
                .write_durable(&sites::PM_TABLE_FENCE, at, &[bytes])
        });
        let gone = match copied {
            Ok(_durable) => self.extent.replace(larger),
            Err(error) => {
                let _stays = self.pool.free(larger);
                return Err(error);
            }
        };
        gone.map_or(Ok(()), |gone| self.pool.free(gone))
    }

    fn alloc(&self, least: u64, most: u64) -> Result<Extent> {
        match &self.headroom {
            Some(headroom) => headroom.lock().alloc_up_to(least, most, Owner::Table),
            None => self.pool.alloc_up_to(least, most, Owner::Table),
        }
    }

    /// Completes the table. DURABLE AFTER, where the pool is durable at the fence: all of it.
    ///
    /// # Errors
    /// `NoSpace` if the pool is full; `Invalid` if the table is empty.
    pub fn finish(mut self) -> Result<(PmTableSpace, PmTotals)> {
        self.end_group()?;
        let groups_end = self.written + self.staged.len();
        let (segments, bytes) = self.segments();
        let slot_bytes = self.slot_bytes(&segments);
        let mut filter = Filter::with_capacity(self.hashes.len(), self.options.filter_bits);
        let mut sketch = Sketch::default();
        for hash in &self.hashes {
            filter.insert(*hash);
            sketch.insert(*hash);
        }
        let mut header = Header {
            arrangement: self.options.arrangement,
            slot_bytes,
            id: self.options.id,
            totals: self.totals,
            groups_end,
            groups: self.firsts.len(),
            segments: segments.len(),
            segment_bytes: bytes.len(),
            filter_bytes: filter.as_bytes().len(),
            hashes: sketch.hashes().len(),
            search_crc: 0,
        };
        self.make_room(header.end())?;
        self.staged.resize(header.slots_at() - self.written, 0);
        let search_at = self.staged.len();
        self.put_slots(&segments, slot_bytes);
        for offset in &self.firsts.offsets {
            self.staged.extend_from_slice(&offset.to_le_bytes());
        }
        self.staged.extend_from_slice(&bytes);
        self.staged.extend_from_slice(filter.as_bytes());
        for hash in sketch.hashes() {
            self.staged.extend_from_slice(&hash.to_le_bytes());
        }
        header.search_crc = header.crc_of_search(&self.staged[search_at..]);
        self.write_staged(self.staged.len())?;
        let extent = self.trim()?;
        let encoded = header.encode(&self.pool.uuid(), extent.offset.get());
        let fenced = self
            .pool
            .write_durable(&sites::PM_TABLE_FENCE, extent.offset, &[&encoded])?;
        let frozen = self.pool.freeze(extent, &fenced)?;
        self.extent = None;
        let space = PmTableSpace::new(self.pool.clone(), self.options.id, frozen);
        for group in &self.read_groups {
            space.read_groups.add(*group, self.firsts.len());
        }
        Ok((space, self.totals))
    }

    /// Gives back what the extent has beyond the table.
    fn trim(&mut self) -> Result<Extent> {
        let (extent, len) = (self.extent()?, self.written as u64);
        let kept = match &self.headroom {
            Some(headroom) => headroom.lock().trim(extent, len),
            None => self.pool.trim(extent, len),
        }?;
        self.extent = Some(kept);
        Ok(kept)
    }

    /// The segments: cut where neighbouring first keys share least, as long as all such cuts can be
    /// made, because then each lengthens what a segment shares. With their bytes.
    fn segments(&self) -> (Vec<SegmentOf>, Vec<u8>) {
        let groups = self.firsts.len();
        let shared = |a: usize, b: usize| {
            shared_prefix_len(self.firsts.get(a), self.firsts.get(b)).min(SHARED_MAX)
        };
        let mut borders: Vec<(usize, usize)> = (1..groups)
            .map(|group| (shared(group - 1, group), group))
            .collect();
        borders.sort_unstable();
        let mut bytes = 0;
        let within = |&&(_, group): &&(usize, usize)| {
            bytes += SEGMENT_HEAD_MAX + self.firsts.get(group).len();
            bytes <= SEGMENT_BYTES_MAX
        };
        let most = borders.iter().take(SEGMENTS_MAX).take_while(within).count();
        // Only whole levels of borders.
        let cuts = match (
            most.checked_sub(1).map(|last| borders[last].0),
            borders.get(most),
        ) {
            (Some(last), Some(next)) if next.0 == last => {
                borders.partition_point(|&(shared, _)| shared < last)
            }
            _ => most,
        };
        let mut firsts: Vec<usize> = borders[..cuts].iter().map(|&(_, group)| group).collect();
        if self.options.arrangement == Arrangement::Array {
            firsts.clear();
        }
        firsts.push(0);
        firsts.sort_unstable();
        let ends = firsts.iter().skip(1).copied().chain([groups]);
        let segments: Vec<SegmentOf> = firsts
            .iter()
            .zip(ends)
            .map(|(&first, end)| SegmentOf {
                first,
                shared: shared(first, end.max(first + 1) - 1),
            })
            .collect();
        let mut out = Vec::new();
        for segment in &segments {
            put_varint(&mut out, segment.first as u64);
            put_varint(&mut out, segment.shared as u64);
            put_bytes(&mut out, self.firsts.get(segment.first));
        }
        put_bytes(&mut out, &self.last_key);
        (segments, out)
    }

    /// Calls `each` with every group and what its segment shares.
    fn for_each_group(&self, segments: &[SegmentOf], mut each: impl FnMut(usize, usize)) {
        let ends = segments.iter().skip(1).map(|next| next.first);
        for (segment, end) in segments.iter().zip(ends.chain([self.firsts.len()])) {
            (segment.first..end).for_each(|group| each(group, segment.shared));
        }
    }

    /// The size of slots: the least at which hardly any neighbours are equal.
    fn slot_bytes(&self, segments: &[SegmentOf]) -> usize {
        if self.options.arrangement == Arrangement::Array {
            return 0;
        }
        let mut equal = [0u32; SLOT_BYTES.len()];
        let mut before: Option<([u8; SLOT_BYTES_MAX], usize)> = None;
        self.for_each_group(segments, |group, shared| {
            let slot = slot_of(self.firsts.get(group), shared);
            if let Some((last, _)) = before.filter(|(_, of)| *of == shared) {
                for (equal, bytes) in equal.iter_mut().zip(SLOT_BYTES) {
                    *equal += u32::from(last[..bytes] == slot[..bytes]);
                }
            }
            before = Some((slot, shared));
        });
        let most = self.firsts.len() as f64 * EQUAL_SHARE_MAX;
        let fits = SLOT_BYTES.iter().zip(equal);
        let mut fits = fits.filter(|(_, equal)| f64::from(*equal) <= most);
        fits.next().map_or(SLOT_BYTES_MAX, |(bytes, _)| *bytes)
    }

    fn put_slots(&mut self, segments: &[SegmentOf], slot_bytes: usize) {
        let mut slots = Vec::with_capacity(self.firsts.len() * slot_bytes);
        self.for_each_group(segments, |group, shared| {
            let slot = slot_of(self.firsts.get(group), shared);
            slots.extend_from_slice(&slot[..slot_bytes]);
        });
        self.staged.extend_from_slice(&slots);
    }
}

impl Drop for PmTableWriter {
    fn drop(&mut self) {
        if let Some(extent) = self.extent.take() {
            // What cannot be freed now is free at the next open, because nothing names it.
            let _stays = self.pool.free(extent);
        }
    }
}

/// Bytes of an entry in a group, at most.
fn entry_bytes_max(key: usize, value: usize) -> usize {
    const VARINTS: usize = 5 + 10 + 5;
    key + value + VARINTS + size_of::<u32>()
}
