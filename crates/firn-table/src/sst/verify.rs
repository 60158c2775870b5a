//! Reads a whole table and checks all that it claims of itself.

use super::filter;
use super::iter::Access;
use super::read::Sst;
use firn_base::count::Cause;
use firn_base::key::compare;
use firn_base::{Error, Result, SeqNo, Tag};
use std::cmp::Ordering;
use std::sync::Arc;

/// What a clean table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SstReport {
    /// Data blocks.
    pub blocks: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

impl Sst {
    /// Reads every block: checksums, order, bounds, filter, counts.
    ///
    /// # Errors
    /// `Corruption` naming the first thing that does not hold.
    pub fn verify(self: &Arc<Self>) -> Result<SstReport> {
        const STRETCH_BYTES: usize = 256 << 10;
        let mut iter = self.iter(Access::Streaming { bytes: STRETCH_BYTES, cause: Cause::Maintenance });
        let mut report = SstReport { blocks: self.index().len() as u64, ..SstReport::default() };
        let mut last: Option<(Vec<u8>, Tag)> = None;
        let (mut seqno_min, mut seqno_max) = (SeqNo::MAX, SeqNo(0));
        let wrong = |what: &str| {
            Err(Error::corruption(self.file().path().display(), self.extent().footer_offset, format_args!("expected {what}")))
        };
        iter.first()?;
        while iter.valid() {
            let (key, tag) = (iter.key(), iter.tag());
            if let Some((last_key, last_tag)) = &last {
                if compare(last_key, *last_tag, key, tag) != Ordering::Less {
                    return wrong("entries in order across blocks");
                }
            }
            if tag.kind().is_none() {
                return wrong("a known kind in every entry");
            }
            if !self.filter().may_contain(filter::hash(key)) {
                return wrong("every key in the filter");
            }
            report.entries += 1;
            report.bytes += (key.len() + iter.value().len()) as u64;
            seqno_min = seqno_min.min(tag.seqno());
            seqno_max = seqno_max.max(tag.seqno());
            let (last_key, last_tag) = last.get_or_insert_with(|| (Vec::new(), tag));
            last_key.clear();
            last_key.extend_from_slice(key);
            *last_tag = tag;
            iter.next()?;
        }
        let properties = self.properties();
        let largest = last.map(|(key, _)| key).unwrap_or_default();
        let counted = report.entries == properties.entries && seqno_min == properties.seqno_min;
        if !counted || seqno_max != properties.seqno_max || largest != properties.largest {
            return wrong("the counts and bounds that the properties claim");
        }
        self.verify_bounds()?;
        Ok(report)
    }

    /// Each block's entries begin and end with the bounds that the index gives it.
    fn verify_bounds(self: &Arc<Self>) -> Result<()> {
        for block in 0..self.index().len() {
            let mut iter = self.iter(Access::Cached);
            let (smallest, largest) = (self.index().smallest(block), self.index().largest(block));
            iter.seek(&smallest, Tag::seek(SeqNo::MAX))?;
            if !iter.valid() || iter.key() != smallest {
                return Err(self.damaged(block, "the smallest key that the index names"));
            }
            iter.seek(largest, Tag::seek(SeqNo::MAX))?;
            if !iter.valid() || iter.key() != largest {
                return Err(self.damaged(block, "the largest key that the index names"));
            }
        }
        Ok(())
    }
}
