//! Finds the extents of lists in a pool that was opened, and claims them.
//!
//! What a crash left of a list that was being written is found by its anchor. Each of its segments
//! that another one or the anchor points to was fenced with its entries before, so it must be
//! whole. The process that wrote it may have been killed before a fence of the words between them,
//! so what it left is flushed once more.

use super::layout::{END, END_BYTES, HEAD_BYTES, Head, ListJob, ListTotals, NEXT_AT, Ref};
use super::space::{Chunk, ListPlace, ListSpace, Segment};
use super::write::store_next;
use firn_base::coding::{Reader, get_u64};
use firn_base::{Error, FileId, Result};
use firn_pm::{Extent, Fenced, GRANULE_BYTES, Owner, PmOffset, Pool};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// The chunks that were claimed, by their offsets, because lists share them.
#[derive(Debug, Default)]
pub struct Chunks(HashMap<u64, Arc<Chunk>>);

impl Chunks {
    /// The chunk that `one` names, which is claimed if no list has claimed it before.
    fn claim(&mut self, pool: &Pool, one: &Ref, claim: Claim) -> Result<Arc<Chunk>> {
        let extent = Extent::new(one.offset, u64::from(one.bytes));
        if let Some(chunk) = self.0.get(&one.offset) {
            if chunk.extent() == extent && chunk.list == one.list {
                return Ok(chunk.clone());
            }
            return Err(damaged(one.offset, "the same chunk in all lists"));
        }
        claim(pool, extent, Owner::Payload)?;
        let chunk = Chunk::new(pool.adopt(extent)?, one.list);
        self.0.insert(extent.offset.get(), chunk.clone());
        Ok(chunk)
    }

    /// Bytes of all chunks.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|chunk| chunk.extent().len).sum()
    }

    /// Copies all chunks, because another process may free and reuse them at any time.
    ///
    /// # Errors
    /// The error of reading the pool.
    pub fn hold(&self, pool: &Pool) -> Result<()> {
        for chunk in self.0.values() {
            let mut copy = vec![0; chunk.extent().len as usize];
            pool.read(chunk.extent().offset, &mut copy)?;
            let _first = chunk.copy.set(copy.into());
        }
        Ok(())
    }
}

/// Claims an extent: [`Pool::claim`], or [`Pool::claim_unfenced`].
type Claim = fn(&Pool, Extent, Owner) -> Result<()>;

/// A list that was found.
#[derive(Debug)]
pub struct FoundList {
    /// Its extents.
    pub space: ListSpace,
    /// Its sums.
    pub totals: ListTotals,
    /// The job that wrote it.
    pub job: ListJob,
}

/// The beginning of a list that a crash left.
#[derive(Debug)]
pub struct Unfinished {
    /// Its extents. The last segment can be written to.
    pub(super) space: ListSpace,
    pub(super) job: ListJob,
    /// For each chunk whether only this list points into it.
    pub(super) own_chunks: Vec<bool>,
}

/// The list that an anchor leads to.
#[derive(Debug)]
pub enum Anchored {
    /// A list with its terminal.
    Complete(FoundList),
    /// The beginning of a list.
    Unfinished(Unfinished),
}

fn damaged(offset: u64, expected: &str) -> Error {
    Error::corruption("the lists' pool", offset, expected)
}

/// A segment that was read and checked.
pub(super) struct ReadSegment {
    head: Head,
    next: u64,
    pub(super) bytes: Vec<u8>,
}

/// The segments of a list as far as they were found.
struct Walk {
    space: ListSpace,
    job: ListJob,
    /// The last segment.
    last: ReadSegment,
}

/// Claims the complete list `id` at `place`, and the chunks that it points into. REQUIRES: the
/// pool's recovery is not finished.
///
/// # Errors
/// `Corruption` if there is no such list, it has no terminal, or an extent of it is another's.
pub fn claim(
    pool: &Arc<Pool>,
    id: FileId,
    place: ListPlace,
    chunks: &mut Chunks,
) -> Result<FoundList> {
    let found = walk(pool, id, place, chunks, Pool::claim)?;
    if found.last.next != END {
        let at = found
            .space
            .segments
            .last()
            .map_or(0, |last| last.extent.offset.get());
        return Err(damaged(
            at + NEXT_AT,
            "the next segment of a list, or its terminal",
        ));
    }
    complete(found, Pool::claim)
}

/// The list whose first segment is at `offset`, its place and its job; `None` if no list is there.
///
/// # Errors
/// `Corruption` if `offset` is outside the pool.
pub fn peek(pool: &Pool, offset: PmOffset) -> Result<Option<(FileId, ListPlace, ListJob)>> {
    let mut head = [0; HEAD_BYTES];
    pool.read(offset, &mut head)?;
    let Some(head) = Head::peek(&head) else {
        return Ok(None);
    };
    let first = Extent::new(offset.get(), head.extent_bytes());
    let fits = first.end().is_some_and(|end| end <= pool.size_bytes());
    let read = fits.then(|| read_segment(pool, head.list, 0, first));
    let job = read.and_then(|read| job_of(&read.ok()?));
    Ok(job.map(|job| (head.list, ListPlace { first }, job)))
}

/// The places of all lists whose first segments are whole, newest first. For a pool whose manifest
/// is lost: lists that were replaced, or never completed, may be among them.
///
/// # Errors
/// The error of reading the pool.
pub fn find_lists(pool: &Pool) -> Result<Vec<(FileId, ListPlace)>> {
    let mut found = Vec::new();
    let mut at = GRANULE_BYTES;
    while at < pool.size_bytes() {
        if let Some((id, place, _)) = peek(pool, Extent::new(at, GRANULE_BYTES).offset)? {
            found.push((id, place));
        }
        at += GRANULE_BYTES;
    }
    found.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
    Ok(found)
}

/// Claims what an anchor leads to. REQUIRES: every list that the manifest names was claimed, and
/// [`peek`] found `id` there.
///
/// # Errors
/// `Corruption` if a segment that another one points to is damaged.
pub fn claim_anchored(
    pool: &Arc<Pool>,
    id: FileId,
    place: ListPlace,
    chunks: &mut Chunks,
) -> Result<Anchored> {
    let named: HashSet<u64> = chunks.0.keys().copied().collect();
    let mut found = walk(pool, id, place, chunks, Pool::claim_unfenced)?;
    if found.last.head.is_last {
        if let (0, Some(last)) = (found.last.next, found.space.segments.last()) {
            // Nothing but the terminal is missing.
            let frozen = store_next(pool, last.extent, END, &Fenced::nothing())?;
            found.space.own.push(frozen);
        }
        return complete(found, Pool::claim_unfenced).map(Anchored::Complete);
    }
    let Walk { space, job, .. } = found;
    let is_own = |chunk: &Arc<Chunk>| !named.contains(&chunk.extent().offset.get());
    let own_chunks = space.chunks.iter().map(is_own).collect();
    Ok(Anchored::Unfinished(Unfinished {
        space,
        job,
        own_chunks,
    }))
}

impl Unfinished {
    /// The list's id.
    pub fn id(&self) -> FileId {
        self.space.list
    }

    /// The job that was writing it.
    pub fn job(&self) -> &ListJob {
        &self.job
    }
}

fn job_of(first: &ReadSegment) -> Option<ListJob> {
    ListJob::decode(&first.bytes[HEAD_BYTES..first.head.nodes_at() as usize])
}

/// Claims the segments from `place` on, to the last one that another one points to. The handle of
/// that one is not taken, unless it has the terminal.
fn walk(
    pool: &Arc<Pool>,
    id: FileId,
    place: ListPlace,
    chunks: &mut Chunks,
    claim: Claim,
) -> Result<Walk> {
    let mut space = ListSpace {
        pool: pool.clone(),
        list: id,
        segments: Vec::new(),
        filter: None,
        own: Vec::new(),
        chunks: Vec::new(),
        held: OnceLock::new(),
    };
    let mut numbers = HashMap::new();
    let (mut extent, mut job) = (place.first, None);
    loop {
        // A cycle ends here, because no extent is claimed twice.
        claim(pool, extent, Owner::Skiplist)?;
        let number = space.segments.len() as u32;
        let read = read_segment(pool, id, number, extent)?;
        if number == 0 {
            job = job_of(&read);
        }
        let mut refs = Vec::new();
        for one in refs_of(&read).ok_or_else(|| damaged(extent.offset.get(), "refs"))? {
            let chunk = match numbers.get(&one.offset) {
                Some(&number) => number,
                None => {
                    let number = space.chunks.len() as u32;
                    space.chunks.push(chunks.claim(pool, &one, claim)?);
                    numbers.insert(one.offset, number);
                    number
                }
            };
            refs.push((chunk, one.live));
        }
        space.segments.push(Segment {
            extent,
            nodes: read.head.nodes,
            nodes_at: read.head.nodes_at(),
            prefix_bytes: read.head.prefix_bytes,
            refs: refs.into(),
        });
        if (read.next == END) != read.head.is_last && read.next != 0 {
            let at = extent.offset.get() + NEXT_AT;
            return Err(damaged(at, "the next segment of a list, or its terminal"));
        }
        if read.next != 0 {
            space.own.push(pool.adopt(extent)?);
        }
        if matches!(read.next, END | 0) {
            let job = job.ok_or_else(|| damaged(place.first.offset.get(), "a list's job"))?;
            return Ok(Walk {
                space,
                job,
                last: read,
            });
        }
        extent = Extent::new(read.next, place.first.len);
    }
}

fn complete(found: Walk, claim: Claim) -> Result<FoundList> {
    let Walk {
        mut space,
        job,
        last,
    } = found;
    let totals = claim_filter(&last, &mut space, claim)?;
    Ok(FoundList { space, totals, job })
}

pub(super) fn read_segment(
    pool: &Pool,
    id: FileId,
    number: u32,
    extent: Extent,
) -> Result<ReadSegment> {
    let offset = extent.offset.get();
    let is_its = || damaged(offset, &format!("segment {number} of list {id}"));
    let mut head_bytes = [0; HEAD_BYTES];
    pool.read(extent.offset, &mut head_bytes)?;
    let head = Head::peek(&head_bytes)
        .filter(|head| head.list == id && head.number == number)
        .filter(|head| head.used_bytes() <= extent.len && head.extent_bytes() == extent.len)
        .ok_or_else(is_its)?;
    let mut bytes = vec![0; head.used_bytes() as usize];
    pool.read(extent.offset, &mut bytes)?;
    let next = get_u64(&bytes, NEXT_AT as usize).unwrap_or_default();
    let is_whole = head.is_whole(&bytes, &pool.uuid(), offset);
    is_whole
        .then_some(ReadSegment { head, next, bytes })
        .ok_or_else(is_its)
}

fn refs_of(read: &ReadSegment) -> Option<Vec<Ref>> {
    let mut reader = Reader::new(read.bytes.get(read.head.refs_at() as usize..)?);
    (0..read.head.refs)
        .map(|_| Ref::decode(&mut reader))
        .collect()
}

fn claim_filter(read: &ReadSegment, space: &mut ListSpace, claim: Claim) -> Result<ListTotals> {
    let end = read.bytes.len() - END_BYTES;
    let at = space.segments.last();
    let at = at.map_or(0, |segment| segment.extent.offset.get());
    let totals = ListTotals::decode(&read.bytes[end..]);
    let totals = totals.ok_or_else(|| damaged(at, "the sums of a list"))?;
    if totals.filter_bytes > 0 {
        let whole = u64::from(totals.filter_bytes).next_multiple_of(firn_pm::GRANULE_BYTES);
        let extent = Extent::new(totals.filter_at, whole);
        claim(&space.pool, extent, Owner::Skiplist)?;
        space.own.push(space.pool.adopt(extent)?);
        space.filter = Some(extent);
    }
    Ok(totals)
}
