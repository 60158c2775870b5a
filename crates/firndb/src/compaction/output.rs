//! The table that a compaction is writing, in a file or in persistent memory.

use super::merge::{CompactionContext, LevelContext, Output};
use crate::blade::SortedStore;
use crate::compaction::plan::{Medium, Plan};
use crate::compaction::pm_store::PmStore;
use crate::manifest::TableMeta;
use crate::mechanisms;
use crate::read::pm_space::{NewTable, PmSpace};
use crate::tlsm::{Anchor, COPY_BYTES, CutJob, LINK_BYTES, ListStore};
use firn_base::sync::Mutex;
use firn_base::{ErrorKind, FileId, Result, Tag};
use firn_fs::Pending;
use firn_pm::Headroom;
use firn_table::pm_skiplist::{Linked, ListCause, ListJob, ListPlace, ListWriter};
use firn_table::pm_table::PmTableWriter;
use firn_table::sst::{SstOptions, SstWriter, TableOwner};
use std::collections::HashSet;
use std::sync::Arc;

/// The making of tables in persistent memory instead of files.
pub(crate) enum PmTarget {
    Lists(Box<ListTarget>),
    Sorted(SortedTarget),
}

/// The making of sorted tables.
pub(crate) struct SortedTarget {
    store: Arc<SortedStore>,
    headroom: Arc<Mutex<Headroom>>,
}

/// The making of lists.
pub(crate) struct ListTarget {
    pub(crate) store: Arc<ListStore>,
    pub(crate) headroom: Arc<Mutex<Headroom>>,
    /// The job, as its lists tell it.
    pub(crate) job: ListJob,
    /// Chunks whose entries are copied instead of linked, by offset.
    pub(crate) relocate: Option<Arc<HashSet<u64>>>,
    /// The anchor of the job, if a crash that cuts it short leaves something to continue.
    anchor: Option<Anchor>,
    /// The last entry that an earlier process wrote, and what it wrote.
    through: Option<(Vec<u8>, Tag)>,
    begun: Option<ListOutput>,
    complete: Written,
    /// Bytes of entries of lists that the open list copied although it could have linked them.
    unlinked_bytes: u64,
}

/// The tables that were written. Those in persistent memory are freed when they are dropped.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) metas: Vec<TableMeta>,
    /// The ids of those that are files.
    pub(crate) files: Vec<FileId>,
    pub(crate) placed: Vec<NewTable>,
    pub(crate) anchor: Option<Anchor>,
}

/// A table that is being written.
pub(super) enum OpenOutput {
    Sst(FileId, Box<SstWriter>),
    List(Box<ListOutput>),
    Sorted(Box<PmTableWriter>),
}

pub(super) struct ListOutput {
    writer: ListWriter,
    /// True if the job's anchor names it.
    is_anchored: bool,
    smallest: Vec<u8>,
    largest: Vec<u8>,
    /// Bytes of the largest entry, and of those that a newer one of their key replaces.
    entry_bytes_max: u64,
    superseded_bytes: u64,
}

impl PmTarget {
    /// The making of tables in persistent memory, if `plan` wants them there and there is room.
    ///
    /// # Errors
    /// `NoSpace` if there is no room and tables must be in persistent memory.
    pub(super) fn of(
        plan: &Plan,
        around: &LevelContext,
        context: &CompactionContext,
    ) -> Result<Option<PmTarget>> {
        let store = context.pm.as_ref().filter(|_| plan.medium == Medium::Pm);
        Ok(match store {
            None | Some(PmStore::Trees(_)) => None,
            Some(PmStore::Lists(store)) => ListTarget::of(plan, around, context, store)?
                .map(|target| PmTarget::Lists(Box::new(target))),
            Some(PmStore::Sorted(store)) => {
                let tables = plan.tables.iter().map(|(_, run)| &run.meta);
                let entries = tables.clone().map(|meta| meta.entries).sum();
                let bytes: u64 = tables.map(|meta| meta.data_bytes).sum();
                let of_buffer = match plan.buffer_bytes() {
                    0 => 0,
                    bytes => SortedStore::of_memtable(bytes),
                };
                SortedTarget::of(store, entries, bytes + of_buffer, around.cuts.len() as u64)?
            }
        })
    }

    /// The making of tables from the log `log_id` that is replayed, if there is room for `bytes`
    /// in tables that end at `cuts` borders. An open does not fail for lack of it.
    ///
    /// # Errors
    /// The error of the pool.
    pub(crate) fn recovered(
        store: &PmStore,
        log_id: FileId,
        cuts: u64,
        bytes: u64,
    ) -> Result<Option<PmTarget>> {
        match store {
            PmStore::Lists(store) => {
                let target = ListTarget::recovered(store, log_id, 1 + cuts, bytes)?;
                Ok(target.map(|target| PmTarget::Lists(Box::new(target))))
            }
            PmStore::Sorted(store) => {
                SortedTarget::of(store, 0, SortedStore::of_memtable(bytes), cuts)
            }
            PmStore::Trees(_) => Ok(None),
        }
    }

    /// The making of sorted tables for `entries` with `bytes`, if there is room.
    ///
    /// # Errors
    /// The error of the pool.
    pub(super) fn sorted(
        store: &Arc<SortedStore>,
        entries: u64,
        bytes: u64,
    ) -> Result<Option<PmTarget>> {
        let headroom = store.promise_if_free(entries, bytes, 1)?;
        Ok(headroom.map(|headroom| SortedTarget::from(store, headroom)))
    }

    /// False if all of the output is one table.
    pub(super) fn splits(&self) -> bool {
        match self {
            PmTarget::Lists(_) => mechanisms::TLSM_SPLIT.is_on(),
            PmTarget::Sorted(_) => true,
        }
    }

    /// The last entry that an earlier process wrote.
    pub(super) fn through(&self) -> Option<(&[u8], Tag)> {
        match self {
            PmTarget::Lists(lists) => lists.through(),
            PmTarget::Sorted(_) => None,
        }
    }

    /// Takes the tables that an earlier process wrote: whole ones, and the beginning of one.
    pub(super) fn take_written(&mut self) -> (Written, Option<OpenOutput>) {
        match self {
            PmTarget::Lists(lists) => lists.take_written(),
            PmTarget::Sorted(_) => Default::default(),
        }
    }

    pub(super) fn take_anchor(&mut self) -> Option<Anchor> {
        match self {
            PmTarget::Lists(lists) => lists.anchor.take(),
            PmTarget::Sorted(_) => None,
        }
    }

    /// The lists, if the output is lists.
    fn lists(&mut self) -> Option<&mut ListTarget> {
        match self {
            PmTarget::Lists(lists) => Some(lists),
            PmTarget::Sorted(_) => None,
        }
    }

    fn begin(&self, id: FileId) -> OpenOutput {
        match self {
            PmTarget::Lists(lists) => lists.begin(id),
            PmTarget::Sorted(sorted) => {
                let writer = sorted.store.writer(id, sorted.headroom.clone());
                OpenOutput::Sorted(Box::new(writer))
            }
        }
    }
}

impl SortedTarget {
    /// The making of tables, if there is room for `entries` with `bytes`, which end at `cuts`
    /// borders.
    fn of(
        store: &Arc<SortedStore>,
        entries: u64,
        bytes: u64,
        cuts: u64,
    ) -> Result<Option<PmTarget>> {
        let headroom = store.promise(entries, bytes, cuts)?;
        Ok(headroom.map(|headroom| SortedTarget::from(store, headroom)))
    }

    fn from(store: &Arc<SortedStore>, headroom: Headroom) -> PmTarget {
        PmTarget::Sorted(SortedTarget {
            store: store.clone(),
            headroom: Arc::new(Mutex::new(headroom)),
        })
    }
}

impl ListTarget {
    /// The making of lists, if there is room.
    ///
    /// # Errors
    /// `NoSpace` if there is no room and tables must be in persistent memory.
    fn of(
        plan: &Plan,
        around: &LevelContext,
        context: &CompactionContext,
        store: &Arc<ListStore>,
    ) -> Result<Option<ListTarget>> {
        if !mechanisms::TLSM_LISTS.is_on() {
            return Ok(None);
        }
        // A memtable takes about as much for each entry as a list.
        let mut bytes = plan.buffer_bytes() + plan.buffer_bytes() / 8;
        for (_, run) in &plan.tables {
            bytes += run.meta.entries * LINK_BYTES;
            let space = run.space().and_then(PmSpace::list);
            bytes += match (space, &plan.relocate) {
                (None, _) => run.meta.live_bytes() + run.meta.entries * (COPY_BYTES - LINK_BYTES),
                // The entries of a list stay where they are.
                (Some(_), None) => 0,
                (Some(space), Some(relocate)) => space
                    .chunks()
                    .filter(|(chunk, _)| relocate.contains(&chunk.extent().offset.get()))
                    .map(|(_, live)| live)
                    .sum(),
            };
        }
        let tables = plan.input_bytes() / context.limits.table_bytes.max(1);
        let lists = 1 + around.cuts.len() as u64 + tables;
        let cut = plan.resume.as_ref().and_then(|cut| cut.lock().take());
        let headroom = match store.promise(lists, bytes) {
            Ok(Some(headroom)) => headroom,
            other => {
                if let Some(cut) = cut {
                    cut.discard(store);
                }
                return other.map(|_| None);
            }
        };
        let cause = match (plan.buffers.is_empty(), &plan.relocate) {
            (false, _) => ListCause::Flush,
            (true, Some(_)) => ListCause::Relocation,
            (true, None) => ListCause::Compaction,
        };
        let job = ListJob {
            cause,
            level: plan.level.0 as u8,
            log_id: plan.log_id(),
            previous: 0,
            inputs: match mechanisms::TLSM_INPUTS.is_on() {
                true => plan.tables.iter().map(|(_, run)| run.meta.id).collect(),
                false => Vec::new(),
            },
        };
        let mut target = ListTarget::new(store, headroom, job, plan.relocate.clone());
        match cut.map_or(Ok(()), |cut| target.resume(cut)) {
            // The inputs have everything.
            Err(error) if error.kind() == ErrorKind::Corruption => {
                tracing::warn!(%error, "a compaction that a crash cut short begins again");
                store.counters.discarded.add(1);
            }
            resumed => resumed?,
        }
        Ok(Some(target))
    }

    /// The making of some `lists` from a log that is replayed, if there is room for `bytes`. An
    /// open does not fail for lack of it.
    ///
    /// # Errors
    /// The error of the pool.
    fn recovered(
        store: &Arc<ListStore>,
        log_id: FileId,
        lists: u64,
        bytes: u64,
    ) -> Result<Option<ListTarget>> {
        let headroom = match store.promise(lists, bytes + bytes / 8) {
            Err(error) if error.kind() == ErrorKind::NoSpace => None,
            promised => promised?,
        };
        let job = ListJob::flush(log_id);
        Ok(headroom.map(|headroom| ListTarget::new(store, headroom, job, None)))
    }

    /// The making of lists by `job`, which allocates from `headroom`.
    pub(super) fn new(
        store: &Arc<ListStore>,
        headroom: Headroom,
        job: ListJob,
        relocate: Option<Arc<HashSet<u64>>>,
    ) -> ListTarget {
        let is_flush = job.cause == ListCause::Flush;
        ListTarget {
            store: store.clone(),
            headroom: Arc::new(Mutex::new(headroom)),
            job,
            relocate,
            // The log has what a flush did not complete.
            anchor: (!is_flush).then(|| Anchor::take(store)).flatten(),
            through: None,
            begun: None,
            complete: Written::default(),
            unlinked_bytes: 0,
        }
    }

    /// Goes on after what an earlier process wrote. The rest of a relocation is linked, because the
    /// chunks to be emptied are chosen anew.
    ///
    /// # Errors
    /// `Corruption` if that is damaged. It is freed, and the job begins with its first entry.
    fn resume(&mut self, cut: CutJob) -> Result<()> {
        let job = cut.job.clone();
        let resumed = cut.open(&self.store)?;
        let mut through = resumed.last;
        let mut begun = None;
        if let Some(list) = resumed.begun {
            let headroom = Some(self.headroom.clone());
            let (writer, point) = self.store.resume(list, headroom)?;
            through = Some((point.key.clone(), point.tag));
            begun = Some(ListOutput {
                writer,
                is_anchored: true,
                smallest: point.first,
                largest: point.key,
                // Of what follows alone: both are estimates.
                entry_bytes_max: 0,
                superseded_bytes: 0,
            });
        }
        (self.job, self.anchor) = (job, Some(resumed.anchor));
        (self.through, self.begun) = (through, begun);
        self.complete.metas = resumed.metas;
        self.complete.placed = resumed.lists;
        self.store.counters.resumed.add(1);
        Ok(())
    }

    /// The last entry that an earlier process wrote.
    pub(super) fn through(&self) -> Option<(&[u8], Tag)> {
        self.through
            .as_ref()
            .map(|(key, tag)| (key.as_slice(), *tag))
    }

    /// Takes the tables that an earlier process wrote: whole ones, and the beginning of one.
    pub(super) fn take_written(&mut self) -> (Written, Option<OpenOutput>) {
        let begun = self.begun.take().map(Box::new).map(OpenOutput::List);
        (std::mem::take(&mut self.complete), begun)
    }

    fn set_anchor(&mut self, place: ListPlace) -> Result<()> {
        if let Some(anchor) = &mut self.anchor {
            anchor.set(place)?;
            self.job.previous = place.first.offset.get();
        }
        Ok(())
    }

    /// True if the entry is to be linked.
    fn links(&mut self, entry: &Linked) -> bool {
        let chunk = entry.chunk_offset();
        let relocate = self.relocate.as_ref();
        if relocate.is_some_and(|relocate| relocate.contains(&chunk)) {
            return false;
        }
        let links = mechanisms::TLSM_LINK.is_on() && self.store.links();
        if !links {
            self.unlinked_bytes += entry.bytes();
        }
        links
    }

    fn begin(&self, id: FileId) -> OpenOutput {
        let writer = self
            .store
            .writer(id, self.job.clone(), Some(self.headroom.clone()));
        OpenOutput::List(Box::new(ListOutput {
            writer,
            is_anchored: self.anchor.is_none(),
            smallest: Vec::new(),
            largest: Vec::new(),
            entry_bytes_max: 0,
            superseded_bytes: 0,
        }))
    }

    /// Counts the bytes of entries that a list copied.
    fn count(&mut self, bytes: u64) {
        let counters = &self.store.counters;
        let unlinked_bytes = std::mem::take(&mut self.unlinked_bytes);
        counters.copied_bytes.add(unlinked_bytes);
        let copied_bytes = bytes.saturating_sub(unlinked_bytes);
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
        target: Option<&PmTarget>,
        written: &mut Written,
    ) -> Result<OpenOutput> {
        let id = context.file_ids.take();
        if let Some(target) = target {
            return Ok(target.begin(id));
        }
        let file = context.files.create_table(id, context.direct)?;
        written.files.push(id);
        let options = SstOptions {
            filter_reserve_percent: output.reserve_percent,
            writes: output.writes.clone(),
            owner: TableOwner {
                log_id: output.log_id,
                ..context.sst.owner
            },
            ..context.sst.clone()
        };
        let writer = SstWriter::new(file, id, options, context.counters.clone(), output.cause);
        Ok(OpenOutput::Sst(id, Box::new(writer)))
    }

    pub(super) fn add(
        &mut self,
        key: &[u8],
        tag: Tag,
        value: &[u8],
        target: Option<&mut PmTarget>,
    ) -> Result<()> {
        match self {
            OpenOutput::Sst(_, writer) => writer.add(key, tag, value),
            OpenOutput::List(list) => {
                list.note(key, (key.len() + value.len()) as u64);
                list.writer.push(key, tag, value)?;
                let lists = target.and_then(PmTarget::lists);
                lists.map_or(Ok(()), |lists| list.anchor(lists))
            }
            OpenOutput::Sorted(writer) => writer.add(key, tag, value),
        }
    }

    /// Lets the group of the last entry of a sorted table count as read.
    pub(super) fn mark_read(&mut self) {
        if let OpenOutput::Sorted(writer) = self {
            writer.mark_read();
        }
    }

    /// False if an entry does not fit, so that the table must end before it.
    pub(super) fn fits(&self, key: &[u8], value: &[u8]) -> bool {
        match self {
            OpenOutput::Sst(..) | OpenOutput::List(_) => true,
            OpenOutput::Sorted(writer) => writer.fits(key, value),
        }
    }

    /// Links `entry`, which has this key and tag, if it is to be linked. Returns false if it must
    /// be added.
    pub(super) fn link(
        &mut self,
        key: &[u8],
        tag: Tag,
        entry: &Linked,
        lists: &mut ListTarget,
    ) -> Result<bool> {
        match self {
            OpenOutput::List(list) if lists.links(entry) => {
                list.note(key, entry.bytes());
                lists.store.counters.linked.add(1);
                list.writer.link(key, tag, entry)?;
                list.anchor(lists)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    pub(super) fn estimated_bytes(&self) -> u64 {
        match self {
            OpenOutput::Sst(_, writer) => writer.estimated_bytes(),
            OpenOutput::List(list) => list.writer.totals().entry_bytes,
            OpenOutput::Sorted(writer) => writer.estimated_bytes(),
        }
    }

    /// Bytes of memory that it holds for all its keys.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            OpenOutput::Sst(_, writer) => writer.held_bytes(),
            OpenOutput::List(list) => list.writer.held_bytes(),
            OpenOutput::Sorted(writer) => writer.held_bytes(),
        }
    }

    pub(super) fn entries(&self) -> u64 {
        match self {
            OpenOutput::Sst(_, writer) => writer.entries(),
            OpenOutput::List(list) => list.writer.totals().entries,
            OpenOutput::Sorted(writer) => writer.totals().entries,
        }
    }

    pub(super) fn last_key(&self) -> &[u8] {
        match self {
            OpenOutput::Sst(_, writer) => writer.last_key(),
            OpenOutput::List(list) => &list.largest,
            OpenOutput::Sorted(writer) => writer.last_key(),
        }
    }

    /// The write that the next `add` waits for, if it is not known to have completed.
    #[inline]
    pub(super) fn wants(&mut self) -> Option<&mut Pending> {
        match self {
            OpenOutput::Sst(_, writer) => writer.wants(),
            OpenOutput::List(_) | OpenOutput::Sorted(_) => None,
        }
    }

    pub(super) async fn finish(
        self,
        target: Option<&mut PmTarget>,
        written: &mut Written,
    ) -> Result<()> {
        match self {
            OpenOutput::Sst(id, writer) => {
                written.metas.push(TableMeta::new(id, writer.end().await?));
            }
            OpenOutput::List(list) => {
                let ListOutput {
                    writer,
                    is_anchored,
                    smallest,
                    largest,
                    entry_bytes_max,
                    superseded_bytes,
                } = *list;
                let copied_bytes = writer.copied_bytes();
                let (space, totals) = writer.finish()?;
                let meta = TableMeta {
                    block_bytes_max: entry_bytes_max,
                    superseded_bytes,
                    ..TableMeta::of_list(&space, &totals, (smallest, largest))
                };
                let place = space.place();
                written.metas.push(meta);
                written.placed.push(NewTable::list(space, totals));
                let lists = target.and_then(PmTarget::lists);
                if let (Some(lists), Some(place)) = (lists, place) {
                    lists.count(copied_bytes);
                    if !is_anchored {
                        lists.set_anchor(place)?;
                    }
                }
            }
            OpenOutput::Sorted(writer) => {
                let keys = (writer.first_key().to_vec(), writer.last_key().to_vec());
                let (space, totals) = writer.finish()?;
                let meta = TableMeta::of_sorted(&space, &totals, keys);
                written.metas.push(meta);
                written.placed.push(NewTable::sorted(space));
            }
        }
        Ok(())
    }
}

impl ListOutput {
    /// Lets the job's anchor name the list, once what a crash leaves of it can be continued.
    fn anchor(&mut self, lists: &mut ListTarget) -> Result<()> {
        if self.is_anchored {
            return Ok(());
        }
        let Some(place) = self.writer.place() else {
            return Ok(());
        };
        lists.set_anchor(place)?;
        self.is_anchored = true;
        Ok(())
    }

    /// Notes an entry of `bytes`.
    fn note(&mut self, key: &[u8], bytes: u64) {
        self.entry_bytes_max = self.entry_bytes_max.max(bytes);
        if self.largest == key {
            self.superseded_bytes += bytes;
        }
        if self.smallest.is_empty() {
            self.smallest.extend_from_slice(key);
        }
        self.largest.clear();
        self.largest.extend_from_slice(key);
    }
}
