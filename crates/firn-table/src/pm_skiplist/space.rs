//! The space of lists: chunks, which lists share, and the extents of a list.
//!
//! 1. A chunk is free once no list points into it: no list of the durable manifest, no list that a
//!    reader or a job still has. Each of these holds the chunk's `Arc`.
//! 2. Dropping a [`ListSpace`] frees nothing, so no reader ever does. [`ListSpace::release`] does.

use super::layout::ListTotals;
use super::read::read_filter;
use super::recover::read_segment;
use firn_base::sync::{AtomicU64, Ordering};
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_pm::{Extent, Frozen, Pool};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// An extent of entries, immutable.
#[derive(Debug)]
pub struct Chunk {
    pub(super) frozen: Frozen,
    /// The list that filled it.
    pub(super) list: FileId,
    /// Bytes of the entries to which lists of the current version point.
    live: AtomicU64,
    /// A copy, if another process may reuse the space.
    pub(super) copy: OnceLock<Box<[u8]>>,
}

impl Chunk {
    pub(super) fn new(frozen: Frozen, list: FileId) -> Arc<Chunk> {
        let (live, copy) = (AtomicU64::new(0), OnceLock::new());
        Arc::new(Chunk {
            frozen,
            list,
            live,
            copy,
        })
    }

    /// Its place in the pool.
    pub fn extent(&self) -> Extent {
        self.frozen.extent()
    }

    /// Bytes of the entries to which lists of the current version point.
    pub fn live_bytes(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }
}

/// The first segment of a list, by which the manifest names it. All segments have its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListPlace {
    /// The extent of the first segment.
    pub first: Extent,
}

/// A segment of a list, and the chunks of its nodes.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) extent: Extent,
    pub(super) nodes: u32,
    /// The place of the first node in the extent.
    pub(super) nodes_at: u64,
    pub(super) prefix_bytes: u16,
    /// Per ref: the chunk among the list's, and the bytes of this segment's entries there.
    pub(super) refs: Box<[(u32, u32)]>,
}

/// The extents of a list.
pub struct ListSpace {
    pub(super) pool: Arc<Pool>,
    pub(super) list: FileId,
    pub(super) segments: Vec<Segment>,
    pub(super) filter: Option<Extent>,
    /// The handles of segments and filter.
    pub(super) own: Vec<Frozen>,
    pub(super) chunks: Vec<Arc<Chunk>>,
    /// A copy of segments and filter, if another process may reuse the space.
    pub(super) held: OnceLock<Held>,
}

/// A copy of a list without its entries.
pub(super) struct Held {
    pub(super) segments: Vec<Box<[u8]>>,
    pub(super) filter: Vec<u8>,
}

impl ListSpace {
    /// The list's id.
    pub fn id(&self) -> FileId {
        self.list
    }

    /// The place by which the manifest names it.
    pub fn place(&self) -> Option<ListPlace> {
        let first = self.segments.first()?.extent;
        Some(ListPlace { first })
    }

    /// The chunks that its nodes point into, with the bytes of its entries in each.
    pub fn chunks(&self) -> impl Iterator<Item = (&Arc<Chunk>, u64)> {
        let mut live = vec![0; self.chunks.len()];
        for (chunk, bytes) in self.segments.iter().flat_map(|segment| &segment.refs) {
            live[*chunk as usize] += u64::from(*bytes);
        }
        self.chunks.iter().zip(live)
    }

    /// Bytes of its segments and its filter.
    pub fn node_bytes(&self) -> u64 {
        self.own.iter().map(|frozen| frozen.extent().len).sum()
    }

    /// Bytes of memory that it takes, with its share of the chunks'.
    pub fn memory_bytes(&self) -> usize {
        let of = |segment: &Segment| size_of::<Segment>() + size_of_val(&*segment.refs);
        let segments: usize = self.segments.iter().map(of).sum();
        let chunks = self.chunks.len() * (size_of::<Arc<Chunk>>() + size_of::<Chunk>());
        let own = self.own.len() * size_of::<Frozen>();
        let held = self.held.get().map_or(0, |held| {
            held.filter.len() + held.segments.iter().map(|bytes| bytes.len()).sum::<usize>()
        });
        size_of::<ListSpace>() + segments + chunks + own + held
    }

    /// Copies segments and filter, because another process may free and reuse the space at any
    /// time. Readers of the list then check every entry that they look at.
    ///
    /// # Errors
    /// `Changed` if that has happened already.
    pub fn hold(&self, totals: &ListTotals) -> Result<()> {
        let of = |(number, segment): (usize, &Segment)| {
            let read = read_segment(&self.pool, self.list, number as u32, segment.extent)?;
            Ok(read.bytes.into())
        };
        let segments: Result<_> = self.segments.iter().enumerate().map(of).collect();
        let copied = segments.and_then(|segments| {
            let filter = read_filter(self, totals)?;
            Ok(Held { segments, filter })
        });
        let copied = copied.map_err(|error| self.changed(error))?;
        let _first = self.held.set(copied);
        Ok(())
    }

    /// The error of a reader that met damage where another process may write.
    pub(super) fn changed(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Corruption => Error::changed(format_args!("list {} in the pool", self.list)),
            _ => error,
        }
    }

    /// Counts its entries as live: it is in the current version.
    pub fn count_live(&self) {
        for (chunk, bytes) in self.chunks() {
            chunk.live.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Takes its entries off the count: it left the current version.
    pub fn count_dead(&self) {
        for (chunk, bytes) in self.chunks() {
            chunk.live.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Frees the list's own extents, and the chunks to which no other list points. REQUIRES: no
    /// durable record names it, and no reader has it.
    ///
    /// # Errors
    /// The error of the pool. The remaining extents stay allocated until the next open.
    pub fn release(self) -> Result<()> {
        let chunks = self.chunks.into_iter().filter_map(Arc::into_inner);
        let chunks = chunks.map(|chunk| chunk.frozen);
        for frozen in self.own.into_iter().chain(chunks) {
            self.pool.free_frozen(frozen).map_err(|(_, error)| error)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ListSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListSpace")
            .field("list", &self.list)
            .field("segments", &self.segments.len())
            .field("chunks", &self.chunks.len())
            .finish_non_exhaustive()
    }
}
