//! The table that a compaction is writing, in a file or in persistent memory.

use super::merge::{CompactionContext, Output};
use crate::manifest::TableMeta;
use crate::tlsm::{ListStore, NewList};
use firn_base::sync::Mutex;
use firn_base::{FileId, Result, Tag};
use firn_pm::Headroom;
use firn_table::pm_skiplist::{Linked, ListCause, ListJob, ListWriter};
use firn_table::sst::{SstOptions, SstWriter, TableOwner};
use std::collections::HashSet;
use std::sync::Arc;

/// The making of lists instead of files.
pub(crate) struct ListTarget {
    pub(crate) store: Arc<ListStore>,
    pub(crate) headroom: Arc<Mutex<Headroom>>,
    /// The job, as its lists tell it.
    pub(crate) job: ListJob,
    /// Chunks whose entries are copied instead of linked, by offset.
    pub(crate) relocate: Option<Arc<HashSet<u64>>>,
}

/// The tables that were written. Lists are freed when they are dropped.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) metas: Vec<TableMeta>,
    /// The ids of those that are files.
    pub(crate) files: Vec<FileId>,
    pub(crate) lists: Vec<NewList>,
}

/// A table that is being written.
pub(super) enum OpenOutput {
    Sst(FileId, Box<SstWriter>),
    List(Box<ListOutput>),
}

pub(super) struct ListOutput {
    writer: ListWriter,
    smallest: Vec<u8>,
    largest: Vec<u8>,
}

impl ListTarget {
    /// The making of a list from a log that is replayed, if there is room for `bytes`.
    ///
    /// # Errors
    /// `NoSpace` if there is no room and tables must be in persistent memory.
    pub(crate) fn recovered(
        store: &Arc<ListStore>,
        log_id: FileId,
        bytes: u64,
    ) -> Result<Option<ListTarget>> {
        let headroom = store.promise(bytes + bytes / 8, 0)?;
        Ok(headroom.map(|headroom| ListTarget {
            store: store.clone(),
            headroom: Arc::new(Mutex::new(headroom)),
            job: ListJob::flush(log_id),
            relocate: None,
        }))
    }

    /// True if the entry is to be linked.
    fn links(&self, entry: &Linked) -> bool {
        let chunk = entry.chunk_offset();
        self.relocate
            .as_ref()
            .is_none_or(|relocate| !relocate.contains(&chunk))
    }

    fn begin(&self, id: FileId) -> OpenOutput {
        let writer = self
            .store
            .writer(id, self.job.clone(), Some(self.headroom.clone()));
        OpenOutput::List(Box::new(ListOutput {
            writer,
            smallest: Vec::new(),
            largest: Vec::new(),
        }))
    }

    fn count(&self, copied_bytes: u64) {
        let counters = &self.store.counters;
        match (self.job.cause, &self.relocate) {
            (ListCause::Flush, _) => counters.flushed_bytes.add(copied_bytes),
            (_, Some(_)) => counters.relocated_bytes.add(copied_bytes),
            _ => counters.promoted_bytes.add(copied_bytes),
        }
    }
}

impl OpenOutput {
    pub(super) fn begin(
        context: &CompactionContext,
        output: &Output,
        lists: Option<&ListTarget>,
        written: &mut Written,
    ) -> Result<OpenOutput> {
        let id = context.file_ids.take();
        if let Some(lists) = lists {
            return Ok(lists.begin(id));
        }
        let file = context.files.create_table(id, context.direct)?;
        written.files.push(id);
        let options = SstOptions {
            filter_reserve_percent: output.reserve_percent,
            owner: TableOwner {
                log_id: output.log_id,
                ..context.sst.owner
            },
            ..context.sst.clone()
        };
        let writer = SstWriter::new(file, id, options, context.counters.clone(), output.cause);
        Ok(OpenOutput::Sst(id, Box::new(writer)))
    }

    pub(super) fn add(&mut self, key: &[u8], tag: Tag, value: &[u8]) -> Result<()> {
        match self {
            OpenOutput::Sst(_, writer) => writer.add(key, tag, value),
            OpenOutput::List(list) => {
                list.note(key);
                list.writer.push(key, tag, value)
            }
        }
    }

    /// Links `entry`, which has this key and tag, if it is to be linked. Returns false if it must be
    /// added.
    pub(super) fn link(
        &mut self,
        key: &[u8],
        tag: Tag,
        entry: &Linked,
        lists: &ListTarget,
    ) -> Result<bool> {
        match self {
            OpenOutput::List(list) if lists.links(entry) => {
                list.note(key);
                lists.store.counters.linked.add(1);
                list.writer.link(key, tag, entry)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    pub(super) fn estimated_bytes(&self) -> u64 {
        match self {
            OpenOutput::Sst(_, writer) => writer.estimated_bytes(),
            OpenOutput::List(list) => list.writer.totals().entry_bytes,
        }
    }

    /// Bytes of memory that it holds for all its keys.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            OpenOutput::Sst(_, writer) => writer.held_bytes(),
            OpenOutput::List(list) => list.writer.held_bytes(),
        }
    }

    pub(super) fn entries(&self) -> u64 {
        match self {
            OpenOutput::Sst(_, writer) => writer.entries(),
            OpenOutput::List(list) => list.writer.totals().entries,
        }
    }

    pub(super) fn last_key(&self) -> &[u8] {
        match self {
            OpenOutput::Sst(_, writer) => writer.last_key(),
            OpenOutput::List(list) => &list.largest,
        }
    }

    pub(super) fn finish(self, lists: Option<&ListTarget>, written: &mut Written) -> Result<()> {
        match self {
            OpenOutput::Sst(id, writer) => {
                written.metas.push(TableMeta::new(id, writer.finish()?));
            }
            OpenOutput::List(list) => {
                let ListOutput {
                    writer,
                    smallest,
                    largest,
                } = *list;
                if let Some(lists) = lists {
                    lists.count(writer.copied_bytes());
                }
                let (space, totals) = writer.finish()?;
                let meta = TableMeta::of_list(&space, &totals, (smallest, largest));
                written.metas.push(meta);
                written.lists.push(NewList::new(space, totals));
            }
        }
        Ok(())
    }
}

impl ListOutput {
    fn note(&mut self, key: &[u8]) {
        if self.smallest.is_empty() {
            self.smallest.extend_from_slice(key);
        }
        self.largest.clear();
        self.largest.extend_from_slice(key);
    }
}
