//! Writes a list (TLSM, Alg. 1 and 2): entries are copied once, sequentially, into chunks, or are
//! already in chunks of other lists; nodes point to them.
//!
//! 1. A segment and the entries of its nodes are fenced before the segment before points to it, and
//!    all of the list before its terminal. So a list with a terminal is complete, and a list
//!    without one is complete up to the last segment that another points to.
//! 2. A writer that is dropped frees what it allocated, but for the chunks that it linked.
//! 3. The anchor that names an unfinished list (its [`ListWriter::place`]) is set once the second
//!    segment is there. So whatever a crash leaves of a list with an anchor is whole, and a writer
//!    of the next process can go on from there (`write/resume.rs`).

mod resume;

pub use self::resume::ResumePoint;
use super::layout::{
    END, END_BYTES, EntryHead, HEAD_BYTES, Head, ListJob, ListTotals, NEXT_AT, NODE_BYTES, Node,
    REF_BYTES, Ref, prefix_of,
};
use super::space::{Chunk, ListPlace, ListSpace, Segment};
use crate::sites;
use crate::sst::{Filter, hash};
use firn_base::checksum::crc32c_salted;
use firn_base::key::{Kind, shared_prefix_len};
use firn_base::sync::Mutex;
use firn_base::{Error, FileId, Result, Tag};
use firn_pm::{Extent, Fenced, Flushed, Frozen, GRANULE_BYTES, Headroom, Owner, PmOffset, Pool};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The most key bytes that a segment's nodes hold in memory while it is written.
const KEYS_BYTES_MAX: usize = 1 << 20;
const PADDING: [u8; 8] = [0; 8];

/// The parameters of a list to be written.
#[derive(Debug, Clone)]
pub struct ListOptions {
    /// The list's id.
    pub id: FileId,
    /// Bytes of a segment and of a chunk: a multiple of [`GRANULE_BYTES`].
    pub unit_bytes: u64,
    /// Bits of filter per entry; 0 for no filter.
    pub filter_bits: u32,
    /// How entries are persisted.
    pub persist: Persist,
    /// The job that writes it.
    pub job: ListJob,
}

/// How a writer persists entries (TLSM, V-C1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Persist {
    /// Each field of an entry by itself.
    Fields,
    /// Each entry by itself.
    Entries,
    /// Many entries together, as they are copied.
    #[default]
    Together,
}

/// An entry in a chunk.
#[derive(Debug, Clone)]
pub struct Linked {
    pub(super) chunk: Arc<Chunk>,
    pub(super) at: u32,
    pub(super) bytes: u32,
}

impl Linked {
    /// Bytes of the entry.
    pub fn bytes(&self) -> u64 {
        u64::from(self.bytes)
    }

    /// The offset of its chunk in the pool.
    pub fn chunk_offset(&self) -> u64 {
        self.chunk.extent().offset.get()
    }
}

/// A chunk that is being filled. Its bytes from `written` on are in memory only.
struct OpenChunk {
    extent: Extent,
    number: u32,
    written: usize,
    staged: Vec<u8>,
}

impl OpenChunk {
    fn len(&self) -> usize {
        self.written + self.staged.len()
    }
}

/// A node whose segment is not written yet.
struct Staged {
    key: Range<usize>,
    chunk: u32,
    at: u32,
    bytes: u32,
}

/// A chunk that the list points into.
struct Used {
    extent: Extent,
    /// The list that filled it.
    list: FileId,
    /// `None` while it is being filled.
    chunk: Option<Arc<Chunk>>,
    /// True if this writer allocated it.
    is_own: bool,
    /// Its index among the refs of the segment that is being filled.
    index: Option<u32>,
}

/// Writes a list, entry by entry, in order.
pub struct ListWriter {
    pool: Arc<Pool>,
    headroom: Option<Arc<Mutex<Headroom>>>,
    options: ListOptions,
    segments: Vec<Segment>,
    /// A segment that was written and waits for its `next`.
    unlinked: Option<Segment>,
    /// The handles of the segments before and of the filter.
    own: Vec<Frozen>,
    used: Vec<Used>,
    numbers: HashMap<u64, u32>,
    open: Option<OpenChunk>,
    keys: Vec<u8>,
    staged: Vec<Staged>,
    refs: Vec<u32>,
    hashes: Vec<u64>,
    totals: ListTotals,
    written_bytes: u64,
    filter: Option<Extent>,
    /// The job, as the first segment has it.
    job: Vec<u8>,
}

impl ListWriter {
    /// A writer of an empty list. It allocates from `headroom` while that lasts, then from the free
    /// space.
    pub fn new(
        pool: Arc<Pool>,
        options: ListOptions,
        headroom: Option<Arc<Mutex<Headroom>>>,
    ) -> ListWriter {
        ListWriter {
            job: options.job.encode(),
            pool,
            headroom,
            options,
            segments: Vec::new(),
            unlinked: None,
            own: Vec::new(),
            used: Vec::new(),
            numbers: HashMap::new(),
            open: None,
            keys: Vec::new(),
            staged: Vec::new(),
            refs: Vec::new(),
            hashes: Vec::new(),
            totals: ListTotals::default(),
            written_bytes: 0,
            filter: None,
        }
    }

    /// The place of the list, once what a crash leaves of it can be continued.
    pub fn place(&self) -> Option<ListPlace> {
        let first = self.segments.first()?.extent;
        Some(ListPlace { first })
    }

    /// The sums so far.
    pub fn totals(&self) -> &ListTotals {
        &self.totals
    }

    /// Bytes of memory that it holds for all its entries.
    pub fn held_bytes(&self) -> usize {
        self.hashes.len() * size_of::<u64>()
    }

    /// Bytes of entries that were copied so far.
    pub fn copied_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Appends an entry, which is copied. REQUIRES: it sorts after the entry before it.
    ///
    /// # Errors
    /// `NoSpace` if the pool is full.
    pub fn push(&mut self, key: &[u8], tag: Tag, value: &[u8]) -> Result<()> {
        let bytes = EntryHead::entry_bytes(key.len(), value.len());
        let (number, at) = if bytes as u64 > self.options.unit_bytes / 2 {
            (self.write_large(key, tag, value, bytes)?, 0)
        } else {
            self.stage(key, tag, value, bytes)?
        };
        self.written_bytes += bytes as u64;
        self.node(key, tag, number, at, bytes as u32)
    }

    /// Appends an entry of another list, to which the node points. REQUIRES: it sorts after the
    /// entry before it, and has this key and tag.
    ///
    /// # Errors
    /// `NoSpace` if the pool is full.
    pub fn link(&mut self, key: &[u8], tag: Tag, entry: &Linked) -> Result<()> {
        let extent = entry.chunk.extent();
        let known = self.numbers.get(&extent.offset.get()).copied();
        let number = known.unwrap_or_else(|| self.add_chunk(extent, Some(&entry.chunk), false));
        self.node(key, tag, number, entry.at, entry.bytes)
    }

    /// Completes the list. DURABLE AFTER, where the pool is durable at the fence: all of it.
    ///
    /// # Errors
    /// `NoSpace` if the pool is full; `Invalid` if the list is empty.
    pub fn finish(mut self) -> Result<(ListSpace, ListTotals)> {
        if self.totals.entries == 0 {
            return Err(Error::invalid("a list without entries is not written"));
        }
        self.close_chunk()?;
        self.write_filter()?;
        self.end_segment(true)?;
        let Some(last) = self.unlinked.take() else {
            return Err(Error::invalid("a list has a last segment"));
        };
        // The list is complete before its terminal is stored.
        self.publish_next(last, END, &Fenced::nothing())?;
        let used = std::mem::take(&mut self.used);
        let space = ListSpace {
            pool: self.pool.clone(),
            list: self.options.id,
            segments: std::mem::take(&mut self.segments),
            filter: self.filter.take(),
            own: std::mem::take(&mut self.own),
            chunks: used.into_iter().filter_map(|used| used.chunk).collect(),
            held: OnceLock::new(),
        };
        Ok((space, self.totals))
    }

    fn alloc(&mut self, bytes: u64, owner: Owner) -> Result<Extent> {
        if let Some(headroom) = &self.headroom {
            let mut headroom = headroom.lock();
            if headroom.left_bytes() >= bytes.next_multiple_of(GRANULE_BYTES) {
                return headroom.alloc(bytes, owner);
            }
        }
        self.pool.alloc(bytes, owner)
    }

    fn add_chunk(&mut self, extent: Extent, chunk: Option<&Arc<Chunk>>, is_own: bool) -> u32 {
        let number = self.used.len() as u32;
        self.used.push(Used {
            extent,
            list: chunk.map_or(self.options.id, |chunk| chunk.list),
            chunk: chunk.cloned(),
            is_own,
            index: None,
        });
        self.numbers.insert(extent.offset.get(), number);
        number
    }

    /// Puts an entry into the open chunk. Returns the chunk and the place there.
    fn stage(&mut self, key: &[u8], tag: Tag, value: &[u8], bytes: usize) -> Result<(u32, u32)> {
        let unit = self.options.unit_bytes as usize;
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.len() + bytes > unit)
        {
            self.close_chunk()?;
        }
        if self.open.is_none() {
            let extent = self.alloc(self.options.unit_bytes, Owner::Payload)?;
            let number = self.add_chunk(extent, None, true);
            self.open = Some(OpenChunk {
                extent,
                number,
                written: 0,
                staged: Vec::with_capacity(unit),
            });
        }
        let Some(open) = &mut self.open else {
            return Err(Error::invalid("a chunk is open"));
        };
        let at = open.len();
        let offset = open.extent.offset.get();
        let head = EntryHead::new(self.options.id, offset + at as u64, key, tag, value);
        let (number, end) = (open.number, open.staged.len() + bytes);
        for field in [&head.encode()[..], key, value] {
            open.staged.extend_from_slice(field);
            if self.options.persist == Persist::Fields {
                // Each field is persisted again with those before it.
                let place = place(open.extent, open.written as u64)?;
                let _durable =
                    self.pool
                        .write_durable(&sites::LIST_FENCE, place, &[&open.staged])?;
            }
        }
        open.staged.resize(end, 0);
        if self.options.persist != Persist::Together {
            let flushed = self.write_staged()?;
            let _durable = self.pool.fence(&sites::LIST_FENCE, flushed);
        }
        Ok((number, at as u32))
    }

    /// Copies the part of the open chunk that is in memory only. DURABLE AFTER: a fence.
    fn write_staged(&mut self) -> Result<Option<Flushed>> {
        let Some(open) = self.open.as_mut().filter(|open| !open.staged.is_empty()) else {
            return Ok(None);
        };
        let at = place(open.extent, open.written as u64)?;
        let flushed = self.pool.copy_nt(at, &open.staged)?;
        open.written += open.staged.len();
        open.staged.clear();
        Ok(Some(flushed))
    }

    fn close_chunk(&mut self) -> Result<()> {
        // The fence is here, because the job may go on on another thread after this.
        let fenced = match self.write_staged()? {
            Some(flushed) => self.pool.fence(&sites::LIST_FENCE, [flushed]),
            None => Fenced::nothing(),
        };
        if let Some(open) = self.open.take() {
            let frozen = self.pool.freeze(open.extent, &fenced)?;
            self.used[open.number as usize].chunk = Some(Chunk::new(frozen, self.options.id));
        }
        Ok(())
    }

    /// Writes an entry into a chunk of its own, straight from the caller's bytes.
    fn write_large(&mut self, key: &[u8], tag: Tag, value: &[u8], bytes: usize) -> Result<u32> {
        let whole = (bytes as u64).next_multiple_of(GRANULE_BYTES);
        let extent = self.alloc(whole, Owner::Payload)?;
        let number = self.add_chunk(extent, None, true);
        let list = self.options.id;
        let head = EntryHead::new(list, extent.offset.get(), key, tag, value).encode();
        let padding = &PADDING[..bytes - head.len() - key.len() - value.len()];
        let parts: [&[u8]; 4] = [&head, key, value, padding];
        let fenced = self
            .pool
            .write_durable(&sites::LIST_FENCE, extent.offset, &parts)?;
        let frozen = self.pool.freeze(extent, &fenced)?;
        self.used[number as usize].chunk = Some(Chunk::new(frozen, self.options.id));
        Ok(number)
    }

    fn node(&mut self, key: &[u8], tag: Tag, number: u32, at: u32, bytes: u32) -> Result<()> {
        let is_new = self.used[number as usize].index.is_none();
        let more = NODE_BYTES + if is_new { REF_BYTES } else { 0 };
        let is_full = self.segment_bytes() + more > self.options.unit_bytes as usize
            || self.keys.len() + key.len() > KEYS_BYTES_MAX;
        if is_full && !self.staged.is_empty() {
            self.end_segment(false)?;
        }
        let index = match self.used[number as usize].index {
            Some(index) => index,
            None => {
                let index = self.refs.len() as u32;
                self.refs.push(number);
                self.used[number as usize].index = Some(index);
                index
            }
        };
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.staged.push(Staged {
            key: start..self.keys.len(),
            chunk: index,
            at,
            bytes,
        });
        if self.options.filter_bits > 0 {
            self.hashes.push(hash(key));
        }
        count(&mut self.totals, tag, bytes);
        Ok(())
    }

    /// Bytes of the segment that is being filled, if it were the last.
    fn segment_bytes(&self) -> usize {
        let job = match self.segments.is_empty() && self.unlinked.is_none() {
            true => self.job.len(),
            false => 0,
        };
        HEAD_BYTES + job + self.staged.len() * NODE_BYTES + self.refs.len() * REF_BYTES + END_BYTES
    }

    /// Writes the segment of the staged nodes, and lets the one before point to it.
    fn end_segment(&mut self, is_last: bool) -> Result<()> {
        let entries = self.write_staged()?;
        let extent = self.alloc(self.options.unit_bytes, Owner::Skiplist)?;
        let (segment, bytes) = self.encode_segment(extent, is_last);
        let flushed = match self.pool.copy_nt(extent.offset, &bytes) {
            Ok(flushed) => flushed,
            Err(error) => {
                let _stays = self.pool.free(extent);
                return Err(error);
            }
        };
        let both = entries.into_iter().chain([flushed]);
        let fenced = self.pool.fence(&sites::LIST_FENCE, both);
        for number in self.refs.drain(..) {
            self.used[number as usize].index = None;
        }
        self.staged.clear();
        self.keys.clear();
        let before = self.unlinked.replace(segment);
        match before {
            Some(before) => self.publish_next(before, extent.offset.get(), &fenced),
            None => Ok(()),
        }
    }

    fn encode_segment(&self, extent: Extent, is_last: bool) -> (Segment, Vec<u8>) {
        let number = self.segments.len() as u32 + u32::from(self.unlinked.is_some());
        let job: &[u8] = match number {
            0 => &self.job,
            _ => &[],
        };
        let key = |staged: &Staged| &self.keys[staged.key.clone()];
        let (first, last) = (self.staged.first(), self.staged.last());
        let shared = first
            .zip(last)
            .map_or(0, |(first, last)| shared_prefix_len(key(first), key(last)));
        let head = Head {
            number,
            list: self.options.id,
            nodes: self.staged.len() as u32,
            refs: self.refs.len() as u32,
            job_bytes: job.len() as u32,
            prefix_bytes: shared as u16,
            is_last,
            granules_log2: (extent.len / GRANULE_BYTES).ilog2() as u8,
        };
        let mut bytes = vec![0; HEAD_BYTES];
        bytes.reserve(head.used_bytes() as usize);
        bytes.extend_from_slice(job);
        let mut live = vec![0; self.refs.len()];
        for staged in &self.staged {
            live[staged.chunk as usize] += staged.bytes;
            let node = Node {
                chunk: staged.chunk,
                at: staged.at,
                prefix: prefix_of(key(staged), shared),
            };
            node.put(&mut bytes);
        }
        let refs: Box<[(u32, u32)]> = self.refs.iter().copied().zip(live).collect();
        for &(number, live) in &refs {
            let used = &self.used[number as usize];
            let one = Ref {
                offset: used.extent.offset.get(),
                bytes: used.extent.len as u32,
                live,
                list: used.list,
            };
            one.put(&mut bytes);
        }
        if is_last {
            self.totals.put(&mut bytes);
        }
        head.seal(&mut bytes, &self.pool.uuid(), extent.offset.get());
        let segment = Segment {
            extent,
            nodes: head.nodes,
            nodes_at: head.nodes_at(),
            prefix_bytes: head.prefix_bytes,
            refs,
        };
        (segment, bytes)
    }

    /// Stores the word `next` of a segment, which ends its writing. `fenced` is the fence after the
    /// bytes that it points to.
    fn publish_next(&mut self, segment: Segment, next: u64, fenced: &Fenced) -> Result<()> {
        self.own
            .push(store_next(&self.pool, segment.extent, next, fenced)?);
        self.segments.push(segment);
        Ok(())
    }

    fn write_filter(&mut self) -> Result<()> {
        if self.options.filter_bits == 0 {
            return Ok(());
        }
        let mut filter = Filter::with_capacity(self.hashes.len(), self.options.filter_bits);
        self.hashes.iter().for_each(|hash| filter.insert(*hash));
        let bytes = filter.as_bytes();
        let whole = (bytes.len() as u64).next_multiple_of(GRANULE_BYTES);
        let extent = self.alloc(whole, Owner::Skiplist)?;
        let fenced = self
            .pool
            .write_durable(&sites::LIST_FENCE, extent.offset, &[bytes])?;
        self.own.push(self.pool.freeze(extent, &fenced)?);
        self.filter = Some(extent);
        self.totals.filter_at = extent.offset.get();
        self.totals.filter_bytes = bytes.len() as u32;
        self.totals.filter_crc = crc32c_salted(self.options.id.0, extent.offset.get(), &[bytes]);
        Ok(())
    }
}

impl Drop for ListWriter {
    fn drop(&mut self) {
        let chunks = std::mem::take(&mut self.used);
        let chunks = chunks
            .into_iter()
            .filter(|used| used.is_own)
            .map(|used| (used.extent, used.chunk.and_then(Arc::into_inner)));
        // What cannot be freed now is free at the next open, because nothing names it.
        for frozen in std::mem::take(&mut self.own) {
            let _stays = self.pool.free_frozen(frozen);
        }
        for (extent, chunk) in chunks {
            let _stays = match chunk {
                Some(chunk) => self
                    .pool
                    .free_frozen(chunk.frozen)
                    .map_err(|(_, error)| error),
                None => self.pool.free(extent),
            };
        }
        if let Some(unlinked) = self.unlinked.take() {
            let _stays = self.pool.free(unlinked.extent);
        }
    }
}

/// Adds an entry to the sums of a list.
fn count(totals: &mut ListTotals, tag: Tag, bytes: u32) {
    totals.entries += 1;
    totals.deletes += u64::from(tag.kind() == Some(Kind::Delete));
    totals.seqno_min = totals.seqno_min.min(tag.seqno());
    totals.seqno_max = totals.seqno_max.max(tag.seqno());
    totals.entry_bytes += u64::from(bytes);
}

/// Stores the word `next` of the segment at `extent`, which ends its writing. DURABLE AFTER.
pub(super) fn store_next(
    pool: &Pool,
    extent: Extent,
    next: u64,
    fenced: &Fenced,
) -> Result<Frozen> {
    let dirty = pool.publish(place(extent, NEXT_AT)?, next, fenced)?;
    let flushed = pool.flush(&sites::LIST_NEXT_FLUSH, dirty);
    let fenced = pool.fence(&sites::LIST_NEXT_FENCE, flushed);
    pool.freeze(extent, &fenced)
}

/// The offset of the byte `within` an extent.
pub(super) fn place(extent: Extent, within: u64) -> Result<PmOffset> {
    let outside = || Error::invalid(format!("byte {within} is outside {extent}"));
    extent.at(within).ok_or_else(outside)
}
