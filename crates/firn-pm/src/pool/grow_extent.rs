//! The verbs of an extent that grows at its end. See [`crate::growing`].

use super::Pool;
use crate::growing::{Appender, Growing};
use crate::offset::Extent;
use crate::token::{Fenced, Flushed, Span};
use firn_base::{Error, Result};
use std::ops::Range;

impl Pool {
    /// Begins to grow `extent`, which is live and not frozen. Its first `end` bytes are final:
    /// they were fenced before, or found in an extent that was claimed after an open.
    ///
    /// # Errors
    /// `Invalid` if it is not live, frozen, growing already, or shorter than `end`.
    pub fn begin_growing(&self, extent: Extent, end: u64) -> Result<(Growing, Appender)> {
        if end > extent.len {
            return Err(Error::invalid(format!(
                "{extent} cannot grow from byte {end}, which is outside"
            )));
        }
        self.map.with_live(extent, |live| match live.is_frozen {
            true => Err(Error::invalid(format!(
                "{extent} cannot grow: it is frozen, or grows already"
            ))),
            false => {
                (live.is_frozen, live.is_adopted) = (true, true);
                Ok(())
            }
        })?;
        let pool = self.id;
        let growing = Growing::new(extent, pool, end);
        Ok((growing, Appender { extent, pool, end }))
    }

    /// Copies `slices`, one after the other, past the cache to the appender's end, which then rises
    /// by their length. Durable after a fence. One pass, no allocation.
    ///
    /// # Errors
    /// `Invalid` if they do not fit in the extent, or the pool is read-only. Nothing was appended
    /// then.
    pub fn append(&self, appender: &mut Appender, slices: &[&[u8]]) -> Result<Flushed> {
        assert_eq!(appender.pool, self.id, "an Appender of another pool");
        let len = slices.iter().map(|slice| slice.len() as u64).sum::<u64>();
        let (extent, end) = (appender.extent, appender.end);
        if len > extent.len - end {
            let room = extent.len - end;
            return Err(Error::invalid(format!(
                "{len} bytes do not fit in the last {room} of {extent}: append to another extent"
            )));
        }
        let start = extent.offset.get() + end;
        let span = Span {
            start,
            end: start + len,
            owner: self.map.tags.owner_at(extent.offset.get()),
            pool: self.id,
        };
        let flushed = self.stream(span, slices)?;
        appender.end = end + len;
        Ok(flushed)
    }

    /// Lets readers borrow everything appended so far. REQUIRES: `fenced` is a fence after the last
    /// append.
    ///
    /// # Panics
    /// If one belongs to another pool, or the handles to two extents.
    pub fn reveal(&self, growing: &Growing, appender: &Appender, fenced: &Fenced) {
        assert!(
            fenced.span.pool == self.id || fenced.span == Span::NOTHING,
            "a token of another pool"
        );
        self.assert_pair(growing, appender);
        growing.reveal(appender.end);
    }

    /// Borrows bytes of a growing extent. `range` is relative to the start of the extent.
    ///
    /// # Errors
    /// `Corruption` if `range` leaves the revealed bytes.
    pub fn borrow_grown<'a>(&'a self, growing: &'a Growing, range: Range<u64>) -> Result<&'a [u8]> {
        assert_eq!(growing.pool, self.id, "a Growing of another pool");
        let (at, end) = (growing.extent.offset.get(), growing.end());
        if range.start > range.end || range.end > end {
            let (from, to, extent) = (range.start, range.end, growing.extent);
            let expected = format!("bytes {from}..{to} below the end {end} of {extent}");
            return Err(Error::corruption(self.region.place(), at, expected));
        }
        let len = range.end - range.start;
        let bytes = self.region.borrow(at + range.start, len)?;
        self.count_read(at + range.start, len);
        Ok(bytes)
    }

    /// Frees a growing extent. Giving up both handles proves that no thread borrows it or writes to
    /// it any more.
    ///
    /// # Errors
    /// The errors of [`Pool::free`]; the handles are returned with the error.
    pub fn free_grown(
        &self,
        growing: Growing,
        appender: Appender,
    ) -> Result<(), (Growing, Appender, Error)> {
        self.assert_pair(&growing, &appender);
        self.free_unborrowed(growing.extent)
            .map_err(|error| (growing, appender, error))
    }

    fn assert_pair(&self, growing: &Growing, appender: &Appender) {
        assert_eq!(growing.pool, self.id, "a Growing of another pool");
        assert_eq!(appender.pool, self.id, "an Appender of another pool");
        assert_eq!(
            growing.extent, appender.extent,
            "the Appender of another extent"
        );
    }
}
