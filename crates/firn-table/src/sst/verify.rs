//! Reads a whole table and checks everything that it claims about itself.

use super::filter;
use super::iter::Access;
use super::layout::{FOOTER_BYTES, Footer, HEADER_BYTES, TableOwner};
use super::properties::Properties;
use super::read::{Extent, Sst};
use firn_base::count::Cause;
use firn_base::key::compare;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo, Tag};
use std::cmp::Ordering;
use std::sync::Arc;

/// The totals of a verified table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SstReport {
    /// Data blocks.
    pub blocks: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// A block that cannot be read.
#[derive(Debug, Clone)]
pub struct DamagedBlock {
    /// The error of reading it.
    pub error: Error,
    /// The smallest key in it.
    pub smallest: Vec<u8>,
    /// The largest key in it.
    pub largest: Vec<u8>,
}

impl Sst {
    /// Reads every block and checks checksums, order, bounds, filter and counts.
    ///
    /// # Errors
    /// `Corruption` naming the first violation.
    pub fn verify(self: &Arc<Self>) -> Result<SstReport> {
        const STRETCH_BYTES: usize = 256 << 10;
        let mut iter = self.iter(Access::Streaming {
            bytes: STRETCH_BYTES,
            cause: Cause::Maintenance,
        });
        let mut found = Properties {
            seqno_min: SeqNo::MAX,
            ..Properties::default()
        };
        let mut last: Option<(Vec<u8>, Tag)> = None;
        // The number of blocks begun.
        let mut blocks = 0;
        let wrong = |what: &str| Err(self.wrong(what));
        self.verify_header()?;
        iter.first()?;
        while iter.valid() {
            let (key, tag) = (iter.key(), iter.tag());
            if last
                .as_ref()
                .is_some_and(|(k, t)| compare(k, *t, key, tag) != Ordering::Less)
            {
                return wrong("entries in order across blocks");
            }
            if tag.kind().is_none() {
                return wrong("a known kind in every entry");
            }
            if !self.may_contain(iter.block, filter::hash(key)) {
                return wrong("every key in the filter");
            }
            if iter.block >= blocks {
                self.verify_border(
                    blocks,
                    last.as_ref().map(|(key, _)| key.as_slice()),
                    Some((iter.block, key)),
                )?;
                blocks = iter.block + 1;
            }
            found.count(key, tag, iter.value());
            if last.as_ref().is_some_and(|(last_key, _)| last_key == key) {
                found.superseded_bytes += (key.len() + iter.value().len()) as u64;
            }
            let (last_key, last_tag) = last.get_or_insert_with(|| (Vec::new(), tag));
            last_key.clear();
            last_key.extend_from_slice(key);
            *last_tag = tag;
            iter.next()?;
        }
        let last_key = last.map(|(key, _)| key);
        self.verify_border(blocks, last_key.as_deref(), None)?;
        if blocks > 0 {
            found.smallest = self.index().smallest(0);
        }
        found.largest = last_key.unwrap_or_default();
        self.verify_properties(&found)?;
        Ok(SstReport {
            blocks: blocks as u64,
            entries: found.entries,
            bytes: found.key_bytes + found.value_bytes,
        })
    }

    fn verify_header(&self) -> Result<()> {
        if self.header_bytes == 0 {
            return Ok(());
        }
        let mut buf = firn_fs::IoBuf::default();
        self.file().read(0, HEADER_BYTES, &mut buf)?;
        match TableOwner::decode(buf.bytes(), self.id()) {
            Some(_) => Ok(()),
            None => Err(Error::corruption(
                self.file().path().display(),
                0,
                "the header of this table",
            )),
        }
    }

    /// Checks the border between two blocks. The last of the first `blocks` blocks must end with
    /// `before`. The next one, given by number and first key in `behind`, must be the next block of
    /// the index and begin with that key; if `behind` is `None`, there must be no further block.
    fn verify_border(
        &self,
        blocks: usize,
        before: Option<&[u8]>,
        behind: Option<(usize, &[u8])>,
    ) -> Result<()> {
        let is_largest = |key: &[u8]| self.index().compare_largest(blocks - 1, key).is_eq();
        if before.is_some_and(|before| !is_largest(before)) {
            return Err(self.damaged(
                blocks - 1,
                "the largest key that the index names at its end",
            ));
        }
        if behind.map_or(self.index().len(), |(block, _)| block) != blocks {
            return Err(self.damaged(blocks, "an entry in each block"));
        }
        match behind {
            Some((block, key)) if self.index().compare_smallest(block, key) != Ordering::Equal => {
                Err(self.damaged(
                    block,
                    "the smallest key that the index names at its beginning",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the properties match those that were `found`.
    fn verify_properties(&self, found: &Properties) -> Result<()> {
        let properties = self.properties();
        // The entries with the lowest and highest sequence number may have been dropped by an
        // append.
        let numbered = match properties.appends {
            0 => found.seqno_min == properties.seqno_min && found.seqno_max == properties.seqno_max,
            _ => found.seqno_min >= properties.seqno_min && found.seqno_max <= properties.seqno_max,
        };
        let counts = |p: &Properties| [p.entries, p.deletes, p.key_bytes, p.value_bytes];
        if counts(found) != counts(properties) {
            return Err(self.wrong("as many entries, tombstones and bytes as the properties claim"));
        }
        if (&found.smallest, &found.largest) != (&properties.smallest, &properties.largest) {
            return Err(self.wrong("the smallest and largest key that the properties claim"));
        }
        if properties.appends == 0 && found.superseded_bytes != properties.superseded_bytes {
            return Err(self.wrong("as many superseded bytes as the properties claim"));
        }
        if !numbered {
            return Err(self.wrong("sequence numbers within the properties' bounds"));
        }
        Ok(())
    }

    /// The blocks that cannot be read.
    ///
    /// # Errors
    /// The error of a read, except for damage.
    pub fn damaged_blocks(self: &Arc<Self>) -> Result<Vec<DamagedBlock>> {
        let mut damaged = Vec::new();
        for block in 0..self.index().len() {
            match self.load(block, Cause::Maintenance) {
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    let (smallest, largest) =
                        (self.index().smallest(block), self.index().largest(block));
                    damaged.push(DamagedBlock {
                        error,
                        smallest,
                        largest,
                    });
                }
                read => drop(read?),
            }
        }
        Ok(damaged)
    }

    /// Passes every entry of the readable blocks to `visit`, in order. Returns the number of
    /// damaged blocks.
    ///
    /// # Errors
    /// The error of `visit`, and of a read except for damage.
    pub fn salvage(
        self: &Arc<Self>,
        mut visit: impl FnMut(&[u8], Tag, &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let mut lost = 0;
        let mut last: Option<(Vec<u8>, Tag)> = None;
        for block in 0..self.index().len() {
            let loaded = match self.load(block, Cause::Maintenance) {
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    lost += 1;
                    continue;
                }
                loaded => loaded?,
            };
            let mut iter = super::block_iter::BlockIter::new(loaded);
            let mut moved = iter.first();
            while moved.is_ok() && iter.valid() {
                let behind = last
                    .as_ref()
                    .is_none_or(|(key, tag)| compare(key, *tag, iter.key(), iter.tag()).is_lt());
                if !behind || iter.tag().kind().is_none() {
                    moved = Err(super::block_iter::Damaged);
                    break;
                }
                visit(
                    iter.key(),
                    iter.tag(),
                    iter.block().value(&iter.value_range()),
                )?;
                last = Some((iter.key().to_vec(), iter.tag()));
                moved = iter.next();
            }
            lost += u64::from(moved.is_err());
        }
        Ok(lost)
    }

    /// Finds the table in `file` without the manifest: the last footer in the file is taken.
    ///
    /// # Errors
    /// `Corruption` if there is none; `Io`.
    pub fn find_extent(file: &dyn firn_fs::File, id: FileId) -> Result<Extent> {
        const WINDOW: u64 = 256 << 10;
        let len = file.len()?;
        let mut buf = firn_fs::IoBuf::default();
        let mut end = len;
        // The last whole footer may be followed by the remains of an incomplete append.
        while end >= FOOTER_BYTES as u64 {
            let start = end.saturating_sub(WINDOW);
            file.read(start, (end - start) as usize, &mut buf)?;
            for at in (0..=buf.len().saturating_sub(FOOTER_BYTES)).rev() {
                let footer_offset = start + at as u64;
                let bytes = buf.bytes().get(at..at + FOOTER_BYTES).unwrap_or(&[]);
                if Footer::may_begin(bytes) && Footer::decode(bytes, id, footer_offset).is_ok() {
                    return Ok(Extent {
                        valid_len: footer_offset + FOOTER_BYTES as u64,
                        footer_offset,
                    });
                }
            }
            if start == 0 {
                break;
            }
            end = start + FOOTER_BYTES as u64 - 1;
        }
        Err(Error::corruption(
            file.path().display(),
            len,
            "expected a footer",
        ))
    }
}
