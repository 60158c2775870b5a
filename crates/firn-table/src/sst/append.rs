//! Growing a table by an append (BlockDB, III-B). Blocks into which no key falls stay in place. The
//! others are rewritten after the old end, with an index that names both, and a footer.
//!
//! ```text
//! file  blocks | filter | index | properties | footer | ... | new blocks | filter | index | ..
//!                                             old end ^     ^ start
//!       .. properties | footer
//! ```
//! 1. Nothing before `start` is touched, so a reader that knows only the old footer reads on as
//!    before.
//! 2. `start` is after the remains of every earlier append, complete or not, except for remains
//!    that were truncated before any read. So (file, offset) identifies one block forever.
//! 3. Regions between clean blocks are cut into blocks of two thirds to one and a half of the
//!    target size. No small remainder becomes a block; a small block comes only from a region that
//!    is small itself.
//!
//! A crash before the manifest names the new footer leaves the table as it was, followed by bytes
//! that nothing names. DURABLE AFTER: `finish`; the file has its name already.

use super::block::BlockBuilder;
use super::dirty::Dirty;
use super::filter::{self, Filter};
use super::index::IndexBuilder;
use super::layout::FilterKind;
use super::out::Out;
use super::properties::Properties;
use super::read::Sst;
use super::write::{SstMeta, SstOptions};
use crate::mechanisms;
use crate::sites;
use firn_base::count::{Cause, IoCounters};
use firn_base::exec::{block_on, may_suspend};
use firn_base::{Error, Result, SeqNo, Tag};
use firn_fs::{BUFFER_ALIGN, File, Pending};
use std::ops::Range;
use std::sync::Arc;

/// An entry of the current region, as ranges of its bytes.
struct Gathered {
    key: Range<usize>,
    tag: Tag,
    value: Range<usize>,
}

/// The next state of a table under construction.
pub struct SstAppender {
    base: Arc<Sst>,
    dirty: Arc<[usize]>,
    /// The first block of the old state that was neither kept nor skipped, and the number of dirty
    /// blocks skipped.
    next: usize,
    passed: usize,
    out: Out,
    block_bytes: usize,
    block: BlockBuilder,
    index: IndexBuilder,
    filter: Filter,
    filter_keys: u64,
    /// Counts of the added entries.
    added: Properties,
    /// The entries that are in no block yet, with their bytes.
    region: Vec<Gathered>,
    bytes: Vec<u8>,
    data_bytes: u64,
    smallest: Option<Vec<u8>>,
    largest: Vec<u8>,
}

impl SstAppender {
    /// The offset at which an append to a file of `file_len` bytes begins.
    pub fn start(base: &Sst, file_len: u64) -> u64 {
        let end = base.extent().valid_len;
        let used = if mechanisms::BLOCK_BEHIND.is_on() {
            file_len.max(end)
        } else {
            end
        };
        used.next_multiple_of(BUFFER_ALIGN as u64)
    }

    /// Appends to `file`, which holds `base`, from `start` on. Every entry of the `dirty` blocks
    /// that is still wanted must be added.
    ///
    /// # Errors
    /// `Invalid` if `base` has a filter for each block: its section would be written again whole.
    pub fn new(
        base: Arc<Sst>,
        dirty: &Dirty,
        file: Arc<dyn File>,
        start: u64,
        options: &SstOptions,
        counters: Arc<IoCounters>,
        cause: Cause,
    ) -> Result<SstAppender> {
        let Some(filter) = base.filter() else {
            return Err(Error::invalid(
                "nothing can be appended to a table with a filter for each block",
            ));
        };
        Ok(SstAppender {
            filter: filter.clone(),
            out: Out::new(file, base.id(), start, options, counters, cause),
            dirty: dirty.blocks.clone(),
            next: 0,
            passed: 0,
            block_bytes: options.block_bytes,
            block: BlockBuilder::new(options.restart_interval),
            index: IndexBuilder::default(),
            filter_keys: base.properties().filter_keys,
            added: Properties {
                seqno_min: SeqNo::MAX,
                ..Properties::default()
            },
            region: Vec::new(),
            bytes: Vec::new(),
            data_bytes: 0,
            smallest: None,
            largest: Vec::new(),
            base,
        })
    }

    /// True if the next state of the table has no entry so far and no block to keep.
    pub fn is_empty(&self) -> bool {
        self.added.entries == 0 && self.dirty.len() == self.base.blocks()
    }

    /// Keeps the clean blocks before `key`, or all that remain.
    fn keep_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        while self.next < self.base.blocks() {
            let is_dirty = self.dirty.get(self.passed) == Some(&self.next);
            if is_dirty {
                self.passed += 1;
            } else if key
                .is_none_or(|key| self.base.index().compare_largest(self.next, key).is_lt())
            {
                self.keep(self.next)?;
            } else {
                break;
            }
            self.next += 1;
        }
        Ok(())
    }

    fn keep(&mut self, number: usize) -> Result<()> {
        self.end_region()?;
        let index = self.base.index();
        let handle = index.handle(number);
        let smallest = index.smallest(number);
        self.largest = index.largest(number);
        self.index.add(&smallest, &self.largest, handle);
        self.data_bytes += u64::from(handle.stored_len);
        self.smallest.get_or_insert(smallest);
        Ok(())
    }

    /// Adds an entry. REQUIRES: it is after the last one in internal key order, and in no clean
    /// block.
    ///
    /// # Errors
    /// The error of a write; the append must then be abandoned.
    pub fn add(&mut self, key: &[u8], tag: Tag, value: &[u8]) -> Result<()> {
        self.keep_before(Some(key))?;
        let hash = filter::hash(key);
        if !self.filter.may_contain(hash) {
            self.filter.insert(hash);
            self.filter_keys += 1;
        }
        self.added.count(key, tag, value);
        if self.out.is_large(value.len()) {
            self.end_region()?;
            let handle = self.out.large_block(key, tag, value)?;
            self.data_bytes += u64::from(handle.stored_len);
            self.index.add(key, key, handle);
            self.smallest.get_or_insert_with(|| key.to_vec());
            self.largest.clear();
            self.largest.extend_from_slice(key);
            return Ok(());
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.region.push(Gathered {
            key: at..at + key.len(),
            tag,
            value: at + key.len()..self.bytes.len(),
        });
        // Enough for a whole block, with enough after it that no small remainder can be left.
        if self.bytes.len() >= 2 * self.block_bytes {
            self.end_block(self.block_bytes)
        } else {
            Ok(())
        }
    }

    fn end_region(&mut self) -> Result<()> {
        if self.bytes.len() > self.block_bytes + self.block_bytes / 2 {
            self.end_block(self.bytes.len() / 2)?;
        }
        if self.region.is_empty() {
            Ok(())
        } else {
            self.end_block(usize::MAX)
        }
    }

    /// Writes the first entries of the region as a block of about `bytes`. REQUIRES: there is one.
    fn end_block(&mut self, bytes: usize) -> Result<()> {
        let mut count = 0;
        for entry in &self.region {
            let key = &self.bytes[entry.key.clone()];
            if count > 0 && self.block.len() + key.len() + entry.value.len() / 2 >= bytes {
                break;
            }
            self.block
                .add(key, entry.tag, &self.bytes[entry.value.clone()]);
            count += 1;
        }
        let handle = self.out.block(self.block.finish())?;
        self.block.reset();
        self.data_bytes += u64::from(handle.stored_len);
        let (first, last) = (&self.region[0], &self.region[count - 1]);
        let (smallest, largest) = (
            &self.bytes[first.key.clone()],
            &self.bytes[last.key.clone()],
        );
        self.index.add(smallest, largest, handle);
        self.smallest.get_or_insert_with(|| smallest.to_vec());
        self.largest.clear();
        self.largest.extend_from_slice(largest);
        let used = last.value.end;
        self.region.drain(..count);
        self.bytes.drain(..used);
        for entry in &mut self.region {
            entry.key = entry.key.start - used..entry.key.end - used;
            entry.value = entry.value.start - used..entry.value.end - used;
        }
        Ok(())
    }

    /// The write that the next `add` may wait for. As `SstWriter::wants`.
    #[inline]
    pub fn wants(&mut self) -> Option<&mut Pending> {
        self.out.wants(self.bytes.len() + 2 * self.block_bytes)
    }

    /// Ends the append and syncs the file. `replaced` counts the entries of the blocks that were
    /// not kept.
    ///
    /// # Errors
    /// The error of a write or sync; the append must then be abandoned.
    pub fn finish(self, replaced: &Properties) -> Result<SstMeta> {
        block_on(self.end(replaced))
    }

    /// As [`SstAppender::finish`], but suspends where a crew polls it.
    ///
    /// # Errors
    /// As `finish`.
    pub async fn end(mut self, replaced: &Properties) -> Result<SstMeta> {
        while let Some(pending) = self.wants().filter(|_| may_suspend()) {
            pending.ready().await;
        }
        self.keep_before(None)?;
        self.end_region()?;
        let (old, added) = (self.base.properties(), &self.added);
        let next = |pick: fn(&Properties) -> u64| {
            let left = pick(old).checked_sub(pick(replaced));
            left.map(|left| left + pick(added))
                .ok_or_else(|| self.base.wrong("counts that its blocks do not exceed"))
        };
        let properties = Properties {
            entries: next(|p| p.entries)?,
            deletes: next(|p| p.deletes)?,
            key_bytes: next(|p| p.key_bytes)?,
            value_bytes: next(|p| p.value_bytes)?,
            filter_capacity: old.filter_capacity,
            filter_keys: self.filter_keys,
            appends: old.appends + 1,
            superseded_bytes: old.superseded_bytes,
            seqno_min: old.seqno_min.min(added.seqno_min),
            seqno_max: old.seqno_max.max(added.seqno_max),
            smallest: self.smallest.unwrap_or_default(),
            largest: self.largest,
        };
        self.out
            .finish(
                &sites::SST_APPEND_SYNC,
                FilterKind::Table,
                self.filter.as_bytes(),
                &self.index,
                properties,
                self.data_bytes,
            )
            .await
    }
}
