//! The verbs: reading and writing. Every offset and length is checked; a range outside the pool is
//! `Corruption`.

use super::Pool;
use crate::frozen::Frozen;
use crate::line::{LINE_BYTES, line_range};
use crate::offset::PmOffset;
use crate::owner::Owner;
use crate::token::{Dirty, Fenced, Flushed, Span};
use firn_base::site::Site;
use firn_base::{Error, Result};
use std::ops::Range;

impl Pool {
    /// Stores `bytes` at `offset` through the cache. Not durable until the returned token is passed
    /// to [`Pool::flush`] and fenced.
    ///
    /// # Errors
    /// `Invalid` if a byte lies in free space, a frozen extent or the pool's own pages, or the pool
    /// is read-only.
    #[inline]
    pub fn store(&self, offset: PmOffset, bytes: &[u8]) -> Result<Dirty> {
        let span = self.writable_span(offset.get(), bytes.len() as u64)?;
        self.region.store(offset.get(), bytes)?;
        self.count_stored(span);
        Ok(Dirty::new(span))
    }

    /// Copies `bytes` to `offset` past the cache. Partial lines at the ends go through the cache
    /// and are flushed. Durable after a fence.
    ///
    /// # Errors
    /// The errors of [`Pool::store`].
    pub fn copy_nt(&self, offset: PmOffset, bytes: &[u8]) -> Result<Flushed> {
        self.copy_all_nt(offset, &[bytes])
    }

    /// Like [`Pool::copy_nt`], for `slices` one after the other.
    ///
    /// # Errors
    /// The errors of [`Pool::store`].
    pub fn copy_all_nt(&self, offset: PmOffset, slices: &[&[u8]]) -> Result<Flushed> {
        self.stream_to(offset.get(), slices)
    }

    /// Starts writing stored bytes back to the medium.
    ///
    /// # Panics
    /// If `dirty` belongs to another pool.
    #[inline]
    pub fn flush(&self, site: &'static Site, dirty: Dirty) -> Flushed {
        let span = dirty.span;
        assert_eq!(span.pool, self.id, "a token of another pool");
        match self.region.flush(site, span.start, span.end - span.start) {
            Ok(lines) => {
                self.counters.row(span.owner).flushes.add(lines);
                if let Some(delays) = &self.delays {
                    delays.write(lines);
                }
            }
            Err(error) => unreachable!("what was stored to can be flushed: {error}"),
        }
        Flushed::new(span)
    }

    /// Issues one fence for all of `flushed`: a [`Flushed`], or an array or `Vec` of them. DURABLE
    /// AFTER, where [`Pool::durable_at`] is `Fence`: everything they cover.
    ///
    /// # Panics
    /// If one belongs to another pool.
    #[inline]
    pub fn fence(&self, site: &'static Site, flushed: impl IntoIterator<Item = Flushed>) -> Fenced {
        let mut span = Span::NOTHING;
        for one in flushed {
            assert_eq!(one.span.pool, self.id, "a token of another pool");
            span = span.hull(one.span);
        }
        self.region.fence(site);
        self.counters.row(span.owner).fences.add(1);
        Fenced { span }
    }

    /// Copies `slices`, one after the other, to `offset` past the cache, and fences once. One pass,
    /// no allocation. DURABLE AFTER, where [`Pool::durable_at`] is `Fence`: all of them.
    ///
    /// # Errors
    /// The errors of [`Pool::store`].
    pub fn write_durable(
        &self,
        site: &'static Site,
        offset: PmOffset,
        slices: &[&[u8]],
    ) -> Result<Fenced> {
        Ok(self.fence(site, self.stream_to(offset.get(), slices)?))
    }

    /// Stores the aligned word at `offset` with one atomic store, which makes the `fenced` bytes
    /// reachable. The word itself is durable only after its own flush and fence.
    ///
    /// # Errors
    /// The errors of [`Pool::store`]; `Invalid` if `offset` is not a multiple of 8.
    #[inline]
    pub fn publish(&self, offset: PmOffset, word: u64, fenced: &Fenced) -> Result<Dirty> {
        assert!(
            fenced.span.pool == self.id || fenced.span == Span::NOTHING,
            "a token of another pool"
        );
        if !offset.get().is_multiple_of(8) {
            return Err(Error::invalid(format!(
                "{offset} is not aligned: only a word at a multiple of 8 is published"
            )));
        }
        let span = self.writable_span(offset.get(), 8)?;
        self.region.store_u64(offset.get(), word)?;
        self.count_stored(span);
        Ok(Dirty::new(span))
    }

    /// Copies the bytes at `offset` into `out`. Of bytes that are being written, each word is
    /// either old or new.
    ///
    /// # Errors
    /// `Corruption` if the range lies outside the pool.
    #[inline]
    pub fn read(&self, offset: PmOffset, out: &mut [u8]) -> Result<()> {
        self.region.read(offset.get(), out)?;
        self.count_read(offset.get(), out.len() as u64);
        Ok(())
    }

    /// Loads the aligned word at `offset` with one atomic load. The caller then also sees
    /// everything stored before the word was published.
    ///
    /// # Errors
    /// `Corruption` outside the pool, or if `offset` is not a multiple of 8.
    #[inline]
    pub fn load_u64(&self, offset: PmOffset) -> Result<u64> {
        let word = self.region.load_u64(offset.get())?;
        self.count_read(offset.get(), 8);
        Ok(word)
    }

    /// Borrows bytes of an immutable extent. `range` is relative to the start of the extent.
    ///
    /// # Errors
    /// `Corruption` if `range` leaves the extent.
    pub fn borrow<'a>(&'a self, frozen: &'a Frozen, range: Range<u64>) -> Result<&'a [u8]> {
        assert_eq!(frozen.pool, self.id, "a Frozen of another pool");
        let extent = frozen.extent;
        let at = extent.offset.get();
        if range.start > range.end || range.end > extent.len {
            let expected = format!("bytes {}..{} inside {extent}", range.start, range.end);
            return Err(Error::corruption(self.region.place(), at, expected));
        }
        let bytes = self
            .region
            .borrow(at + range.start, range.end - range.start)?;
        self.count_read(at + range.start, range.end - range.start);
        Ok(bytes)
    }

    fn stream_to(&self, at: u64, slices: &[&[u8]]) -> Result<Flushed> {
        let len = slices.iter().map(|slice| slice.len() as u64).sum();
        self.stream(self.writable_span(at, len)?, slices)
    }

    /// Copies `slices` to `span`, which has their length and may be written.
    pub(super) fn stream(&self, span: Span, slices: &[&[u8]]) -> Result<Flushed> {
        let (at, len) = (span.start, span.end - span.start);
        self.region.stream(at, slices)?;
        self.count_stored(span);
        let ragged = [span.start, span.end]
            .iter()
            .filter(|end| !end.is_multiple_of(LINE_BYTES))
            .count() as u64;
        self.counters
            .row(span.owner)
            .flushes
            .add(ragged.min(line_range(at, len).count_lines()));
        if let Some(delays) = &self.delays {
            delays.write(line_range(at, len).count_lines());
        }
        Ok(Flushed::new(span))
    }

    /// The span of a write. An error unless every byte of it may be written.
    #[inline]
    fn writable_span(&self, at: u64, len: u64) -> Result<Span> {
        let end = at.checked_add(len).filter(|&end| end <= self.region.len());
        let Some(end) = end else {
            let expected = format!("{len} bytes inside the pool of {} bytes", self.region.len());
            return Err(Error::corruption(self.region.place(), at, expected));
        };
        let tag = self.map.tags.range(at, len);
        if tag.has_free || tag.has_frozen || tag.owner == Owner::Pool as u8 {
            return Err(self.refused_write(at, len, tag.has_free, tag.has_frozen));
        }
        Ok(Span {
            start: at,
            end,
            owner: tag.owner,
            pool: self.id,
        })
    }

    #[cold]
    fn refused_write(&self, at: u64, len: u64, has_free: bool, has_frozen: bool) -> Error {
        let why = match (has_free, has_frozen) {
            (true, _) => "in free space: allocate or claim it first",
            (_, true) => "in an extent that is frozen, or that only its Appender writes to",
            _ => "in the pool's own pages",
        };
        Error::invalid(format!(
            "{len} bytes at {at:#x} of {} cannot be stored: they lie {why}",
            self.region.place()
        ))
    }

    #[inline]
    fn count_stored(&self, span: Span) {
        let row = self.counters.row(span.owner);
        let len = span.end - span.start;
        row.bytes_written.add(len);
        row.lines_stored
            .add(line_range(span.start, len).count_lines());
    }

    #[inline]
    pub(super) fn count_read(&self, at: u64, len: u64) {
        self.counters
            .row(self.map.tags.owner_at(at))
            .bytes_read
            .add(len);
        if let Some(delays) = &self.delays {
            delays.read(line_range(at, len).count_lines());
        }
    }
}
