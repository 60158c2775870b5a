//! Goes on with a list that a crash cut short, or frees what is there of it.

use super::{ListOptions, ListWriter, Persist, count};
use crate::pm_skiplist::iter::ListIter;
use crate::pm_skiplist::layout::ListTotals;
use crate::pm_skiplist::read::List;
use crate::pm_skiplist::recover::Unfinished;
use crate::pm_skiplist::space::ListSpace;
use crate::sst::hash;
use firn_base::sync::Mutex;
use firn_base::{Error, Result, Tag};
use firn_pm::Headroom;
use std::sync::Arc;

/// The entry after which a list is continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumePoint {
    /// The key of the first entry.
    pub first: Vec<u8>,
    /// The key of the last entry that is there.
    pub key: Vec<u8>,
    /// Its tag.
    pub tag: Tag,
}

impl ListWriter {
    /// Goes on with a list that another process left unfinished, after the entry that is returned.
    ///
    /// # Errors
    /// `Corruption` if an entry or a node is damaged; what was there is freed.
    pub fn resume(
        unfinished: Unfinished,
        unit_bytes: u64,
        filter_bits: u32,
        headroom: Option<Arc<Mutex<Headroom>>>,
    ) -> Result<(ListWriter, ResumePoint)> {
        let is_ours = || Error::invalid("an unfinished list has one owner and an entry");
        let Unfinished {
            space,
            job,
            own_chunks,
        } = unfinished;
        let space = Arc::new(space);
        let written = Written::read(&space, filter_bits > 0);
        let space = Arc::into_inner(space).ok_or_else(is_ours)?;
        let options = ListOptions {
            id: space.list,
            unit_bytes,
            filter_bits,
            persist: Persist::Together,
            job,
        };
        let mut writer = ListWriter::over(space, &own_chunks, options, headroom);
        let written = written?;
        (writer.totals, writer.hashes) = (written.totals, written.hashes);
        Ok((writer, written.last.ok_or_else(is_ours)?))
    }

    /// A writer that has what is there of an unfinished list.
    fn over(
        mut space: ListSpace,
        own_chunks: &[bool],
        options: ListOptions,
        headroom: Option<Arc<Mutex<Headroom>>>,
    ) -> ListWriter {
        let mut writer = ListWriter::new(space.pool, options, headroom);
        writer.unlinked = space.segments.pop();
        (writer.segments, writer.own) = (space.segments, space.own);
        for (chunk, &is_own) in space.chunks.iter().zip(own_chunks) {
            writer.add_chunk(chunk.extent(), Some(chunk), is_own);
        }
        writer
    }
}

impl Unfinished {
    /// Frees it.
    pub fn discard(self) {
        let options = ListOptions {
            id: self.space.list,
            unit_bytes: 0,
            filter_bits: 0,
            persist: Persist::Together,
            job: self.job,
        };
        drop(ListWriter::over(
            self.space,
            &self.own_chunks,
            options,
            None,
        ));
    }
}

/// The entries of an unfinished list.
#[derive(Default)]
struct Written {
    totals: ListTotals,
    hashes: Vec<u64>,
    last: Option<ResumePoint>,
}

impl Written {
    fn read(space: &Arc<ListSpace>, has_filter: bool) -> Result<Written> {
        let (mut written, mut key, mut last) = (Written::default(), Vec::new(), None);
        let mut first = Vec::new();
        let list = List::open(space.clone(), ListTotals::default())?;
        let mut iter = ListIter::new(Arc::new(list));
        iter.first()?;
        while iter.valid() {
            iter.load()?;
            let bytes = iter.linked().map_or(0, |linked| linked.bytes);
            count(&mut written.totals, iter.tag(), bytes);
            if has_filter {
                written.hashes.push(hash(iter.key()));
            }
            if last.is_none() {
                first.extend_from_slice(iter.key());
            }
            last = Some(iter.tag());
            key.clear();
            key.extend_from_slice(iter.key());
            iter.next()?;
        }
        written.last = last.map(|tag| ResumePoint { first, key, tag });
        Ok(written)
    }
}
