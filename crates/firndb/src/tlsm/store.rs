//! The part of the pool that lists may take.
//!
//! 1. Everything that lists have in the pool belongs to one of two owners: nodes (`Skiplist`) or
//!    chunks of entries (`Payload`).
//! 2. Space is promised before a job writes, so it does not run out halfway. What a failed job
//!    wrote is freed at once, and what a crash left is free at the next open, because nothing
//!    names it.

use super::stats::ListCounters;
use crate::manifest::Level;
use crate::options::tuning::{Tiering, TlsmBuild, TlsmTuning};
use crate::write::write_stall::{Fullness, PM_FULL};
use firn_base::sync::{AtomicBool, Mutex, Ordering};
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_pm::{Headroom, Owner, Pool};
use firn_table::pm_skiplist::{ListJob, ListOptions, ListWriter, Persist, ResumePoint, Unfinished};
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes of a list for each entry: a node, and its share of refs and filter.
pub(crate) const LINK_BYTES: u64 = 20;
/// Bytes for each entry that is copied, beside its key and value.
pub(crate) const COPY_BYTES: u64 = LINK_BYTES + 28;

/// The lists' part of the pool.
pub(crate) struct ListStore {
    pool: Arc<Pool>,
    tuning: TlsmTuning,
    unit_bytes: u64,
    capacity_bytes: u64,
    filter_bits: u32,
    /// The anchors in use.
    pub(super) slots: Mutex<HashSet<u16>>,
    pub(crate) counters: ListCounters,
    /// False after a table left, or found no room, until something is flushed or compacted: if
    /// tables from files came in again meanwhile, they would go in and out forever.
    may_promote: AtomicBool,
}

/// A job that was installed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Done {
    /// Lists left, down a level or in their place.
    Eviction { in_place: bool },
    /// A table from a file came in.
    Promotion,
    /// Entries left chunks that were mostly garbage.
    Relocation,
    /// A flush, or another compaction.
    Other,
}

/// The facts about the lists' part of the pool that a picker needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListFacts {
    pub(crate) tuning: TlsmTuning,
    pub(crate) capacity_bytes: u64,
    /// The unit of allocation.
    pub(crate) unit_bytes: u64,
    /// Bytes of nodes.
    pub(crate) node_bytes: u64,
    /// Bytes of chunks.
    pub(crate) chunk_bytes: u64,
    /// True if tables from files may come in while nothing is written.
    pub(crate) may_promote: bool,
    /// True if puts are refused, because tables must be in persistent memory and it has room for
    /// little more than the write buffers.
    pub(crate) is_full: bool,
}

impl ListFacts {
    /// Room for the flush of write buffers of `bytes` and for the nodes of a compaction.
    fn reserve_bytes(&self, bytes: u64) -> u64 {
        self.capacity_bytes / 12 + 16 * self.unit_bytes + self.flush_bytes(bytes)
    }

    /// Bytes of the lists of write buffers of `bytes`: entries, nodes, and units that are not full.
    fn flush_bytes(&self, bytes: u64) -> u64 {
        bytes + bytes / 4 + 3 * self.unit_bytes
    }

    /// The used share of the capacity from which puts wait for room, while a few write buffers of
    /// `buffer_bytes` are in use.
    pub(crate) fn full_share(&self, buffer_bytes: u64) -> f64 {
        let reserve = self.reserve_bytes(3 * buffer_bytes);
        1.0 - reserve as f64 / self.capacity_bytes.max(1) as f64
    }

    /// The used share of the capacity.
    pub(crate) fn used_share(&self) -> f64 {
        (self.node_bytes + self.chunk_bytes) as f64 / self.capacity_bytes.max(1) as f64
    }

    /// True if `bytes` more leave the used share at `share` or less.
    pub(crate) fn has_room(&self, bytes: u64, share: f64) -> bool {
        let used = self.node_bytes + self.chunk_bytes + bytes;
        used as f64 <= self.capacity_bytes as f64 * share
    }
}

impl ListStore {
    /// The part of `pool` that lists may take beside `other_bytes` of other owners.
    ///
    /// # Errors
    /// `Invalid` if it has no room for one write buffer of `buffer_bytes`, or not as much as writes
    /// need where all tables are there.
    pub(crate) fn new(
        pool: Arc<Pool>,
        tuning: &TlsmTuning,
        filter_bits: u32,
        other_bytes: u64,
        buffer_bytes: u64,
    ) -> Result<ListStore> {
        let unit_bytes = tuning.unit_bytes_in(pool.size_bytes());
        let room = pool.size_bytes().saturating_sub(other_bytes);
        let capacity_bytes = tuning.capacity_bytes.map_or(room, |most| most.min(room));
        let least = buffer_bytes + 4 * unit_bytes;
        if capacity_bytes < least {
            return Err(Error::invalid(format!(
                "{capacity_bytes} bytes of persistent memory for lists are less than one write buffer ({least} \
                 with its nodes); raise pm.size, or lower write_buffer_bytes"
            )));
        }
        let store = ListStore {
            pool,
            tuning: tuning.clone(),
            unit_bytes,
            capacity_bytes,
            filter_bits,
            slots: Mutex::default(),
            counters: ListCounters::default(),
            may_promote: AtomicBool::new(true),
        };
        // A read-only open has no write buffer.
        if buffer_bytes > 0
            && store.facts().full_share(buffer_bytes) <= 0.0
            && tuning.tiering == Tiering::None
        {
            return Err(Error::invalid(format!(
                "{capacity_bytes} bytes of persistent memory for lists are too few for tuning.tlsm.tiering to keep \
                 all tables there beside write buffers of {buffer_bytes}; raise pm.size, lower \
                 write_buffer_bytes, or choose another tiering"
            )));
        }
        Ok(store)
    }

    /// The facts for a picker, which does not know yet if puts are refused.
    pub(crate) fn facts(&self) -> ListFacts {
        let usage = self.pool.usage();
        ListFacts {
            tuning: self.tuning.clone(),
            capacity_bytes: self.capacity_bytes,
            unit_bytes: self.unit_bytes,
            node_bytes: usage.live(Owner::Skiplist),
            chunk_bytes: usage.live(Owner::Payload),
            may_promote: self.may_promote.load(Ordering::Relaxed),
            is_full: false,
        }
    }

    /// True if tables of `level` may be lists.
    pub(crate) fn holds(&self, level: Level) -> bool {
        match self.tuning.tiering {
            Tiering::Leveled(deepest) => level.0 <= deepest,
            Tiering::None | Tiering::Lru => true,
        }
    }

    /// Counts a job that was installed.
    pub(crate) fn done(&self, job: Done) {
        let counters = &self.counters;
        match job {
            Done::Eviction { in_place } => {
                counters.evictions.add(1);
                counters.evictions_in_place.add(u64::from(in_place));
                self.may_promote.store(false, Ordering::Relaxed);
            }
            Done::Promotion => {}
            Done::Relocation => counters.relocations.add(1),
            Done::Other => self.may_promote.store(true, Ordering::Relaxed),
        }
    }

    /// The writes that must be refused, while write buffers of `buffers_bytes` wait for their
    /// flush. Room for these, for a buffer of deletes and for the nodes of a compaction is always
    /// left, so that a full pool can be emptied.
    pub(crate) fn fullness(&self, buffers_bytes: u64, buffer_bytes: u64) -> Fullness {
        if self.tuning.tiering != Tiering::None {
            return Fullness::Room;
        }
        let facts = self.facts();
        let needed = facts.reserve_bytes(buffers_bytes);
        match facts.has_room(needed, 1.0) {
            false => Fullness::Deletes,
            true if facts.has_room(needed + facts.flush_bytes(buffer_bytes), 1.0) => Fullness::Room,
            true => Fullness::Puts,
        }
    }

    /// Promises room for some `lists` with `bytes` of nodes and entries. `None` if there is no
    /// room and they may be files instead.
    ///
    /// # Errors
    /// `NoSpace` if there is no room and tables must be in persistent memory.
    pub(crate) fn promise(&self, lists: u64, bytes: u64) -> Result<Option<Headroom>> {
        // The last segment and the filter of a list are rarely full, nor is the last chunk of all.
        let wanted = bytes + (2 * lists + 1) * self.unit_bytes;
        let has_room = self.facts().has_room(wanted, 1.0);
        let promised = match has_room {
            true => self.pool.reserve(wanted),
            false => Err(Error::new(
                ErrorKind::NoSpace,
                format!("{wanted} bytes for a list do not fit"),
            )),
        };
        match promised {
            Ok(headroom) => Ok(Some(headroom)),
            Err(error) if self.spills(&error) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NoSpace => Err(error.context(PM_FULL)),
            Err(error) => Err(error),
        }
    }

    /// True if tables that find no room, as `error` says, become files. It is counted.
    pub(crate) fn spills(&self, error: &Error) -> bool {
        let spills = error.kind() == ErrorKind::NoSpace && self.tuning.tiering != Tiering::None;
        if spills {
            self.counters.spilled.add(1);
            self.may_promote.store(false, Ordering::Relaxed);
        }
        spills
    }

    /// True if compactions link entries.
    pub(crate) fn links(&self) -> bool {
        self.tuning.build != TlsmBuild::Skiplists
    }

    /// A writer of the list `id`, which allocates from `headroom` while that lasts.
    pub(crate) fn writer(
        &self,
        id: FileId,
        job: ListJob,
        headroom: Option<Arc<Mutex<Headroom>>>,
    ) -> ListWriter {
        let options = ListOptions {
            id,
            unit_bytes: self.unit_bytes,
            filter_bits: self.filter_bits,
            persist: match self.tuning.build {
                TlsmBuild::Skiplists => Persist::Fields,
                TlsmBuild::Linking => Persist::Entries,
                TlsmBuild::Full => Persist::Together,
            },
            job,
        };
        ListWriter::new(self.pool.clone(), options, headroom)
    }

    /// A writer that goes on with a list that a crash left unfinished.
    ///
    /// # Errors
    /// `Corruption` if what is there is damaged.
    pub(crate) fn resume(
        &self,
        begun: Unfinished,
        headroom: Option<Arc<Mutex<Headroom>>>,
    ) -> Result<(ListWriter, ResumePoint)> {
        ListWriter::resume(begun, self.unit_bytes, self.filter_bits, headroom)
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl std::fmt::Debug for ListStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ListStore({:?})", self.facts())
    }
}
