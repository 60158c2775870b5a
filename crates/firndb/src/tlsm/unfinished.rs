//! Compactions that link entries and that a crash may cut (TLSM, Alg. 3).
//!
//! 1. A job that makes lists keeps an anchor in the pool's root: the place of its newest list. Each
//!    list names the one before it and the job's inputs. An anchor is never the truth: the manifest
//!    names either all of the inputs or all of the outputs.
//! 2. An open whose manifest still has the inputs claims what the anchor leads to, and the first
//!    compaction goes on with it. Otherwise the anchor is stale, and is cleared before any space is
//!    used again.

use super::store::ListStore;
use crate::manifest::{TableMeta, Version};
use crate::read::pm_space::{NewTable, PmSpace};
use firn_base::{Error, ErrorKind, FileId, Result, Tag};
use firn_pm::{Extent, Fenced, GRANULE_BYTES, Owner, Pool, RootEntry};
use firn_table::pm_skiplist::{
    Anchored, Chunks, FoundList, List, ListCause, ListIter, ListJob, ListPlace, ListSpace,
    ListTotals, Unfinished, claim_anchored, peek, verify,
};
use std::collections::HashSet;
use std::sync::Arc;

/// The most jobs that make lists at the same time.
const SLOTS: u16 = 16;

/// An anchor in the pool's root. Dropping it clears it.
pub(crate) struct Anchor {
    store: Arc<ListStore>,
    slot: u16,
    is_set: bool,
}

impl Anchor {
    /// An anchor that is not set yet; `None` if all are in use.
    pub(crate) fn take(store: &Arc<ListStore>) -> Option<Anchor> {
        let mut slots = store.slots.lock();
        let slot = (0..SLOTS).find(|slot| !slots.contains(slot))?;
        slots.insert(slot);
        Some(Anchor {
            store: store.clone(),
            slot,
            is_set: false,
        })
    }

    /// Lets it name the list at `place`. DURABLE AFTER.
    ///
    /// # Errors
    /// The error of the commit.
    pub(crate) fn set(&mut self, place: ListPlace) -> Result<()> {
        let entry = RootEntry {
            owner: Owner::Skiplist,
            kind: self.slot,
            word: place.first.offset.get(),
            extent: None,
        };
        self.is_set = true;
        let committed = self.store.pool().commit_with(Fenced::nothing(), |root| {
            root.set(entry);
            Ok(())
        });
        committed.map(drop)
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        if self.is_set
            && let Err(error) = clear(self.store.pool(), self.slot)
        {
            // It is stale, which the next open sees.
            tracing::warn!(%error, "the anchor of a compaction stays");
        }
        self.store.slots.lock().remove(&self.slot);
    }
}

impl std::fmt::Debug for Anchor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Anchor({}, {})", self.slot, self.is_set)
    }
}

fn anchors(pool: &Pool) -> Vec<RootEntry> {
    let root = pool.root();
    let entries = root.entries.iter();
    entries
        .filter(|entry| entry.owner == Owner::Skiplist)
        .cloned()
        .collect()
}

fn clear(pool: &Pool, slot: u16) -> Result<()> {
    let committed = pool.commit_with(Fenced::nothing(), |root| {
        let _gone = root.remove(Owner::Skiplist, slot);
        Ok(())
    });
    committed.map(drop)
}

/// A job that a crash cut short, as far as it came.
#[derive(Debug)]
pub(crate) struct CutJob {
    slot: u16,
    pub(crate) job: ListJob,
    /// Its complete lists, in key order.
    complete: Vec<FoundList>,
    /// The beginning of the next one.
    begun: Option<Unfinished>,
}

/// The jobs that an open found behind the anchors.
#[derive(Debug, Default)]
pub(crate) struct CutJobs {
    pub(crate) jobs: Vec<CutJob>,
    stale: Vec<u16>,
}

impl CutJobs {
    /// Claims what the anchors in the root of `pool` lead to. REQUIRES: the lists of `version` were
    /// claimed, with these chunks.
    ///
    /// # Errors
    /// `Io` from the pool. Damage makes an anchor stale, because the inputs have everything. What
    /// was claimed before the damage was met stays taken until the next open.
    pub(crate) fn claim(
        pool: &Arc<Pool>,
        version: &Version,
        chunks: &mut Chunks,
    ) -> Result<CutJobs> {
        let mut found = CutJobs::default();
        for anchor in &anchors(pool) {
            match CutJob::claim(pool, version, anchor, chunks) {
                Ok(Some(job)) => found.jobs.push(job),
                Ok(None) => found.stale.push(anchor.kind),
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    tracing::warn!(%error, "a compaction that a crash cut short begins again");
                    found.stale.push(anchor.kind);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// No jobs, because the options have no lists: every anchor is stale.
    pub(crate) fn stale(pool: &Pool) -> CutJobs {
        CutJobs {
            jobs: Vec::new(),
            stale: anchors(pool).iter().map(|anchor| anchor.kind).collect(),
        }
    }

    /// Clears the stale anchors, and takes the others' slots in `store`.
    ///
    /// # Errors
    /// The error of the commit.
    pub(crate) fn settle(&mut self, pool: &Pool, store: Option<&ListStore>) -> Result<()> {
        for slot in self.stale.drain(..) {
            clear(pool, slot)?;
        }
        if let Some(store) = store {
            let taken = self.jobs.iter().map(|job| job.slot);
            store.slots.lock().extend(taken);
        }
        Ok(())
    }

    /// The ids of the lists, which no other file may get.
    pub(crate) fn ids(&self) -> impl Iterator<Item = FileId> {
        self.jobs.iter().flat_map(|job| {
            let complete = job.complete.iter().map(|list| list.space.id());
            complete.chain(job.begun.iter().map(Unfinished::id))
        })
    }
}

impl CutJob {
    fn claim(
        pool: &Arc<Pool>,
        version: &Version,
        anchor: &RootEntry,
        chunks: &mut Chunks,
    ) -> Result<Option<CutJob>> {
        let Some(places) = chain(pool, version, anchor.word)? else {
            return Ok(None);
        };
        let mut found: Option<CutJob> = None;
        for (id, place, job) in places.into_iter().rev() {
            let cut = found.get_or_insert(CutJob {
                slot: anchor.kind,
                job,
                complete: Vec::new(),
                begun: None,
            });
            match claim_anchored(pool, id, place, chunks)? {
                Anchored::Complete(list) if cut.begun.is_none() => cut.complete.push(list),
                Anchored::Unfinished(begun) if cut.begun.is_none() => cut.begun = Some(begun),
                _ => {
                    let at = place.first.offset.get();
                    return Err(Error::corruption("the lists' pool", at, "a complete list"));
                }
            }
        }
        Ok(found)
    }

    /// Frees what is there of it.
    pub(crate) fn discard(self, store: &Arc<ListStore>) {
        drop(self.anchor(store));
        for list in self.complete {
            drop(NewTable::list(list.space, list.totals));
        }
        if let Some(begun) = self.begun {
            begun.discard();
        }
    }

    fn anchor(&self, store: &Arc<ListStore>) -> Anchor {
        Anchor {
            store: store.clone(),
            slot: self.slot,
            is_set: true,
        }
    }

    /// Takes it apart, to go on with it.
    ///
    /// # Errors
    /// `Corruption` if a list is damaged.
    pub(crate) fn open(self, store: &Arc<ListStore>) -> Result<Resumed> {
        let anchor = self.anchor(store);
        let mut resumed = Resumed {
            anchor,
            metas: Vec::new(),
            lists: Vec::new(),
            begun: self.begun,
            last: None,
        };
        for list in self.complete {
            if let Err(error) = resumed.take(list) {
                resumed.begun.into_iter().for_each(Unfinished::discard);
                return Err(error);
            }
        }
        Ok(resumed)
    }
}

/// A job that is continued.
pub(crate) struct Resumed {
    pub(crate) anchor: Anchor,
    pub(crate) metas: Vec<TableMeta>,
    pub(crate) lists: Vec<NewTable>,
    pub(crate) begun: Option<Unfinished>,
    /// The last entry of the complete lists.
    pub(crate) last: Option<(Vec<u8>, Tag)>,
}

impl Resumed {
    /// Adds a complete list. If it is damaged, it is freed. All of it is read, because it will
    /// replace the inputs.
    fn take(&mut self, list: FoundList) -> Result<()> {
        let FoundList { space, totals, .. } = list;
        let space = Arc::new(space);
        let ends = ends(&space, totals);
        let space = Arc::into_inner(space)
            .ok_or_else(|| Error::invalid("a list that is continued has one owner"))?;
        let list = NewTable::list(space, totals);
        let (smallest, largest, tag) = ends?;
        if let Some(PmSpace::List(space, totals)) = list.get() {
            let keys = (smallest, largest.clone());
            self.metas.push(TableMeta::of_list(space, totals, keys));
        }
        self.last = Some((largest, tag));
        self.lists.push(list);
        Ok(())
    }
}

/// The smallest key of a list, its largest, and the last tag. Checks the list.
fn ends(space: &Arc<ListSpace>, totals: ListTotals) -> Result<(Vec<u8>, Vec<u8>, Tag)> {
    let list = Arc::new(List::open(space.clone(), totals)?);
    verify(&list)?;
    let mut iter = ListIter::new(list);
    iter.first()?;
    let smallest = iter.key().to_vec();
    iter.last()?;
    Ok((smallest, iter.key().to_vec(), iter.tag()))
}

/// The lists that the anchor `word` leads to, the newest first; `None` if it is stale.
fn chain(
    pool: &Arc<Pool>,
    version: &Version,
    word: u64,
) -> Result<Option<Vec<(FileId, ListPlace, ListJob)>>> {
    let known: HashSet<FileId> = version.tables().map(|table| table.id).collect();
    let (mut chain, mut next) = (Vec::new(), word);
    while next != 0 {
        let Some((id, place, job)) = peek(pool, Extent::new(next, GRANULE_BYTES).offset)? else {
            return Ok(None);
        };
        let is_ours = |(_, _, newest): &(FileId, ListPlace, ListJob)| {
            newest.inputs == job.inputs && newest.level == job.level
        };
        let is_stale = job.cause == ListCause::Flush
            || known.contains(&id)
            || !job.inputs.iter().all(|input| known.contains(input))
            || chain.first().is_some_and(|newest| !is_ours(newest))
            || chain.iter().any(|(other, _, _)| *other == id);
        if is_stale {
            return Ok(None);
        }
        next = job.previous;
        chain.push((id, place, job));
    }
    Ok((!chain.is_empty()).then_some(chain))
}
