//! The part of the pool that sorted tables may take.
//!
//! Space is promised before a job writes, so it does not run out halfway. What a failed job wrote
//! is freed at once, and what a crash left is free at the next open, because nothing names it.

use super::stats::SortedCounters;
use crate::mechanisms;
use crate::options::tuning::{BladeModels, BladeTuning};
use crate::read::heat::Recent;
use firn_base::count::IoCounters;
use firn_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Error, ErrorKind, FileId, Result};
use firn_pm::{Headroom, Owner, Pool};
use firn_table::pm_table::{Arrangement, PmTableOptions, PmTableWriter};
use std::sync::Arc;

/// Bytes of a table for each entry, beside its key and value,
const ENTRY_BYTES: u64 = 24;
/// and for each group.
const GROUP_BYTES: u64 = 96;
/// Bytes of a table beside its entries: its header, its segments and its sketch.
const TABLE_BYTES: u64 = 8 << 10;

/// The sorted tables' part of the pool.
pub(crate) struct SortedStore {
    pool: Arc<Pool>,
    tuning: BladeTuning,
    table_bytes: u64,
    capacity_bytes: u64,
    filter_bits: u32,
    pub(crate) counters: SortedCounters,
    /// True while tables leave, until there is some room again.
    is_evicting: AtomicBool,
    costs: Mutex<Costs>,
    last_major_ns: AtomicU64,
    operations: Mutex<Operations>,
}

/// The recent operations of users.
#[derive(Debug)]
struct Operations {
    gets: Recent,
    writes: Recent,
    /// The part of them that are gets.
    read_share: f64,
}

impl Default for Operations {
    fn default() -> Operations {
        Operations {
            gets: Recent::default(),
            writes: Recent::default(),
            read_share: 1.0,
        }
    }
}

/// Measured costs, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Costs {
    /// The cost of a byte that an internal compaction reads.
    pub(crate) internal_byte: f64,
    /// The cost of a byte that a major compaction reads.
    pub(crate) major_byte: f64,
    /// The time between two major compactions.
    pub(crate) between_majors: f64,
}

/// Guesses, until something was measured: memory at 1 GB/s, and an SSD at 100 MB/s.
const GUESSED: Costs = Costs {
    internal_byte: 1.0,
    major_byte: 10.0,
    between_majors: 1e9,
};
/// The mean time of a read from the SSD until enough were measured, in nanoseconds.
const SSD_READ_NS: f64 = 100_000.0;
/// The number of reads from which their mean time counts.
const SSD_READS_MIN: u64 = 1000;
/// The least that a byte costs: no memory is faster than 20 GB/s.
const BYTE_NS_MIN: f64 = 0.05;
/// The weight of a new measurement.
const NEW_SHARE: f64 = 0.25;
/// When eviction ends: the share of `evict_share` that is used then where nobody reads, and what is
/// added to it where nobody writes.
const EVICT_UNTIL: (f64, f64) = (0.9, 0.08);
/// The same for the paper's models. The paper does not say how its threshold follows the reads.
const EVICT_UNTIL_IN_PAPER: (f64, f64) = (0.5, 0.4);

/// The facts about the sorted tables' part of the pool that a picker needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SortedFacts {
    pub(crate) tuning: BladeTuning,
    pub(crate) capacity_bytes: u64,
    /// Bytes of a table.
    pub(crate) table_bytes: u64,
    /// Bytes of tables.
    pub(crate) used_bytes: u64,
    pub(crate) now_ns: u64,
    /// The mean time of a read from the SSD that a user waits for, in nanoseconds.
    pub(crate) ssd_read_ns: f64,
    /// True while tables leave.
    pub(crate) is_evicting: bool,
    pub(crate) costs: Costs,
}

/// A merge of tables that was installed, by where its output is (PM-Blade, IV).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// In persistent memory.
    Internal,
    /// On the SSD.
    Major,
}

impl SortedFacts {
    /// The used share of the capacity.
    pub(crate) fn used_share(&self) -> f64 {
        self.used_bytes as f64 / self.capacity_bytes.max(1) as f64
    }

    /// Bytes that `entries` whose keys and values have `bytes` take, in tables that end at `cuts`
    /// borders and where they are full.
    pub(crate) fn room_for(&self, entries: u64, bytes: u64, cuts: u64) -> u64 {
        let of_group = match self.tuning.arrangement {
            Arrangement::Array => 1,
            Arrangement::Grouped => u64::from(self.tuning.group_entries),
        };
        let groups = entries.div_ceil(of_group);
        let bytes = bytes + entries * ENTRY_BYTES + groups * GROUP_BYTES;
        let full_bytes = self
            .table_bytes
            .saturating_sub(TABLE_BYTES)
            .max(TABLE_BYTES);
        let tables = 1 + cuts + bytes.div_ceil(full_bytes);
        bytes + tables * TABLE_BYTES
    }

    /// These facts with the mean time of the reads that users waited for, as `counters` have it.
    pub(crate) fn with_reads(self, counters: &IoCounters) -> SortedFacts {
        let (reads, sum_ns) = counters.users.ended();
        let mean_ns = match reads < SSD_READS_MIN {
            true => SSD_READ_NS,
            false => sum_ns as f64 / reads as f64,
        };
        SortedFacts {
            ssd_read_ns: mean_ns,
            ..self
        }
    }

    /// True if `bytes` more leave the used share at `share` or less.
    pub(crate) fn has_room(&self, bytes: u64, share: f64) -> bool {
        (self.used_bytes + bytes) as f64 <= self.capacity_bytes as f64 * share
    }
}

impl SortedStore {
    /// The part of `pool` that tables may take beside `other_bytes` of other owners.
    ///
    /// # Errors
    /// `Invalid` if it has no room for two write buffers of `buffer_bytes`.
    pub(crate) fn new(
        pool: Arc<Pool>,
        tuning: &BladeTuning,
        filter_bits: u32,
        other_bytes: u64,
        buffer_bytes: u64,
    ) -> Result<SortedStore> {
        let room = pool.size_bytes().saturating_sub(other_bytes);
        let capacity_bytes = tuning.capacity_bytes.map_or(room, |most| most.min(room));
        let least = 2 * (buffer_bytes + TABLE_BYTES);
        if buffer_bytes > 0 && capacity_bytes < least {
            return Err(Error::invalid(format!(
                "{capacity_bytes} bytes of persistent memory for tables are less than two write buffers ({least}); \
                 raise pm.size, or lower write_buffer_bytes"
            )));
        }
        Ok(SortedStore {
            table_bytes: tuning.table_bytes_in(pool.size_bytes()),
            pool,
            tuning: tuning.clone(),
            capacity_bytes,
            filter_bits,
            counters: SortedCounters::default(),
            is_evicting: AtomicBool::new(false),
            costs: Mutex::new(GUESSED),
            last_major_ns: AtomicU64::new(0),
            operations: Mutex::default(),
        })
    }

    /// Notes that users have made `gets` and `writes` in all by `now_ns`.
    pub(crate) fn note_operations(&self, gets: u64, writes: u64, now_ns: u64) {
        let mut operations = self.operations.lock();
        let gets = operations.gets.of(gets, now_ns);
        let all = gets + operations.writes.of(writes, now_ns);
        if all > 0.0 {
            operations.read_share = gets / all;
        }
    }

    /// The facts for a picker at `now_ns`.
    pub(crate) fn facts(&self, now_ns: u64) -> SortedFacts {
        let mut facts = SortedFacts {
            tuning: self.tuning.clone(),
            capacity_bytes: self.capacity_bytes,
            table_bytes: self.table_bytes,
            used_bytes: self.pool.usage().live(Owner::Table),
            now_ns,
            ssd_read_ns: SSD_READ_NS,
            is_evicting: false,
            costs: *self.costs.lock(),
        };
        let (used, due) = (facts.used_share(), self.tuning.evict_share);
        let was_evicting = self.is_evicting.load(Ordering::Relaxed);
        let until = due * self.evict_until();
        facts.is_evicting = used >= due || (was_evicting && used > until);
        self.is_evicting.store(facts.is_evicting, Ordering::Relaxed);
        facts
    }

    /// The share of `evict_share` at which eviction ends. It grows with the share of reads among
    /// users' operations (PM-Blade, IV-C).
    fn evict_until(&self) -> f64 {
        let (least, more) = match self.tuning.models {
            BladeModels::Off => return 0.0,
            BladeModels::Paper => EVICT_UNTIL_IN_PAPER,
            BladeModels::Costs => EVICT_UNTIL,
        };
        match mechanisms::BLADE_READ_SHARE.is_on() {
            true => least + more * self.operations.lock().read_share,
            false => least,
        }
    }

    /// Bytes for the entries of a memtable of `bytes`, which takes about as much for each as a
    /// table.
    pub(crate) fn of_memtable(bytes: u64) -> u64 {
        bytes + bytes / 8
    }

    /// Promises room for `entries` whose keys and values have `bytes`, in tables that end at `cuts`
    /// borders and where they are full. `None` if there is no room, so that they must be files.
    ///
    /// # Errors
    /// The error of the pool.
    pub(crate) fn promise(&self, entries: u64, bytes: u64, cuts: u64) -> Result<Option<Headroom>> {
        let promised = self.promise_if_free(entries, bytes, cuts)?;
        self.counters.spilled.add(u64::from(promised.is_none()));
        Ok(promised)
    }

    /// As [`SortedStore::promise`], for tables that are not made at all if there is no room.
    ///
    /// # Errors
    /// The error of the pool.
    pub(crate) fn promise_if_free(
        &self,
        entries: u64,
        bytes: u64,
        cuts: u64,
    ) -> Result<Option<Headroom>> {
        let facts = self.facts(0);
        let wanted = facts.room_for(entries, bytes, cuts);
        if !facts.has_room(wanted, 1.0) {
            return Ok(None);
        }
        match self.pool.reserve(wanted) {
            Ok(headroom) => Ok(Some(headroom)),
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True if tables that find no room, as `error` says, become files. It is counted.
    pub(crate) fn spills(&self, error: &Error) -> bool {
        let spills = error.kind() == ErrorKind::NoSpace;
        self.counters.spilled.add(u64::from(spills));
        spills
    }

    /// Counts a merge of `bytes_in` to `bytes_out`, which was installed at the first of `times` and
    /// took the second.
    pub(crate) fn merged(
        &self,
        merge: Merge,
        bytes_in: u64,
        bytes_out: u64,
        (now_ns, elapsed_ns): (u64, u64),
    ) {
        let counters = &self.counters;
        let mut costs = self.costs.lock();
        let blend = |cost: &mut f64, new: f64| *cost += (new - *cost) * NEW_SHARE;
        let per_byte = (elapsed_ns as f64 / bytes_in.max(1) as f64).max(BYTE_NS_MIN);
        let (count, sum) = match merge {
            Merge::Internal => {
                blend(&mut costs.internal_byte, per_byte);
                (&counters.internal, &counters.internal_bytes)
            }
            Merge::Major => {
                blend(&mut costs.major_byte, per_byte);
                let last = self.last_major_ns.swap(now_ns, Ordering::Relaxed);
                if last > 0 {
                    let between = now_ns.saturating_sub(last);
                    blend(&mut costs.between_majors, between as f64);
                }
                (&counters.major, &counters.major_bytes)
            }
        };
        count.add(1);
        sum.add(bytes_out);
    }

    /// Keys of a group of a table.
    pub(crate) fn group_entries(&self) -> u32 {
        self.tuning.group_entries
    }

    /// A writer of the table `id`, which allocates from `headroom`.
    pub(crate) fn writer(&self, id: FileId, headroom: Arc<Mutex<Headroom>>) -> PmTableWriter {
        let options = PmTableOptions {
            id,
            group_entries: self.tuning.group_entries as usize,
            arrangement: self.tuning.arrangement,
            filter_bits: self.filter_bits,
            table_bytes: self.table_bytes,
        };
        PmTableWriter::new(self.pool.clone(), options, Some(headroom))
    }
}

impl std::fmt::Debug for SortedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SortedStore({:?})", self.facts(0))
    }
}
