//! Finds the extents of lists in a pool that was opened, and claims them.

use super::layout::{END, END_BYTES, HEAD_BYTES, Head, ListJob, ListTotals, NEXT_AT, Ref};
use super::space::{Chunk, ListPlace, ListSpace, Segment};
use firn_base::coding::Reader;
use firn_base::{Error, FileId, Result};
use firn_pm::{Extent, Owner, Pool};
use std::collections::HashMap;
use std::sync::Arc;

/// The chunks that were claimed, by their offsets, because lists share them.
#[derive(Debug, Default)]
pub struct Chunks(HashMap<u64, Arc<Chunk>>);

impl Chunks {
    /// The chunk at `extent`, which is claimed if no list has claimed it before.
    fn claim(&mut self, pool: &Pool, extent: Extent) -> Result<Arc<Chunk>> {
        if let Some(chunk) = self.0.get(&extent.offset.get()) {
            if chunk.extent() == extent {
                return Ok(chunk.clone());
            }
            return Err(damaged(
                extent.offset.get(),
                "one length of a chunk in all lists",
            ));
        }
        pool.claim(extent, Owner::Payload)?;
        let chunk = Chunk::new(pool.adopt(extent)?);
        self.0.insert(extent.offset.get(), chunk.clone());
        Ok(chunk)
    }
}

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

fn damaged(offset: u64, expected: &str) -> Error {
    Error::corruption("the lists' pool", offset, expected)
}

/// A segment that was read and checked.
struct ReadSegment {
    head: Head,
    next: u64,
    bytes: Vec<u8>,
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
    let mut space = ListSpace {
        pool: pool.clone(),
        list: id,
        segments: Vec::new(),
        filter: None,
        chunks: Vec::new(),
    };
    let mut numbers = HashMap::new();
    let (mut extent, mut job) = (place.first, None);
    loop {
        // A cycle ends here, because no extent is claimed twice.
        pool.claim(extent, Owner::Skiplist)?;
        let number = space.segments.len() as u32;
        let read = read_segment(pool, id, number, extent)?;
        if number == 0 {
            job = ListJob::decode(&read.bytes[HEAD_BYTES..read.head.nodes_at() as usize]);
        }
        let mut refs = Vec::new();
        for one in refs_of(&read).ok_or_else(|| damaged(extent.offset.get(), "refs"))? {
            let of = Extent::new(one.offset, u64::from(one.bytes));
            let chunk = match numbers.get(&one.offset) {
                Some(&number) => number,
                None => {
                    let number = space.chunks.len() as u32;
                    space.chunks.push(chunks.claim(pool, of)?);
                    numbers.insert(one.offset, number);
                    number
                }
            };
            refs.push((chunk, one.live));
        }
        space.segments.push(Segment {
            frozen: pool.adopt(extent)?,
            nodes: read.head.nodes,
            nodes_at: read.head.nodes_at(),
            prefix_bytes: read.head.prefix_bytes,
            refs: refs.into(),
        });
        match (read.head.is_last, read.next) {
            (true, END) => {
                let job = job.ok_or_else(|| damaged(place.first.offset.get(), "a list's job"))?;
                let totals = claim_filter(pool, &read, &mut space)?;
                return Ok(FoundList { space, totals, job });
            }
            (false, next) if next != END && next != 0 => {
                extent = Extent::new(next, place.first.len);
            }
            _ => {
                let at = extent.offset.get() + NEXT_AT;
                return Err(damaged(at, "the next segment of a list, or its terminal"));
            }
        }
    }
}

fn read_segment(pool: &Pool, id: FileId, number: u32, extent: Extent) -> Result<ReadSegment> {
    let offset = extent.offset.get();
    let is_its = || damaged(offset, &format!("segment {number} of list {id}"));
    let mut head_bytes = [0; HEAD_BYTES];
    pool.read(extent.offset, &mut head_bytes)?;
    let head = Head::peek(&head_bytes)
        .filter(|head| head.list == id && head.number == number)
        .filter(|head| head.used_bytes() <= extent.len)
        .ok_or_else(is_its)?;
    let mut bytes = vec![0; head.used_bytes() as usize];
    pool.read(extent.offset, &mut bytes)?;
    let next = firn_base::coding::get_u64(&bytes, NEXT_AT as usize).unwrap_or_default();
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

fn claim_filter(pool: &Pool, read: &ReadSegment, space: &mut ListSpace) -> Result<ListTotals> {
    let end = read.bytes.len() - END_BYTES;
    let at = space.segments.last();
    let at = at.map_or(0, |segment| segment.frozen.extent().offset.get());
    let totals = ListTotals::decode(&read.bytes[end..]);
    let totals = totals.ok_or_else(|| damaged(at, "the sums of a list"))?;
    if totals.filter_bytes > 0 {
        let whole = u64::from(totals.filter_bytes).next_multiple_of(firn_pm::GRANULE_BYTES);
        let extent = Extent::new(totals.filter_at, whole);
        pool.claim(extent, Owner::Skiplist)?;
        space.filter = Some(pool.adopt(extent)?);
    }
    Ok(totals)
}
