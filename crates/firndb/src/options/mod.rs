//! Options of a database, of a write and of a read.

pub(crate) mod budget;
mod builder;
pub(crate) mod tuning;

use crate::event::EventListener;
use crate::options::tuning::{BladeTuning, PmdbTuning, TlsmTuning, Tuning};
use firn_base::clock::Clock;
use firn_base::exec::Executor;
use firn_base::key::prefix_end;
use firn_base::{Error, Limits, Result};
use firn_fs::Fs;
use firn_pm::sim::SimRegion;
use firn_pm::{Backend, PmConfig};
use firn_table::sst::Codec;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;
use std::sync::Arc;

/// The design of a database. It is chosen when the database is created and cannot be changed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Profile {
    /// Log, DRAM skiplist, level-0 tables, leveled compaction. The baseline, which runs anywhere.
    #[default]
    Classic,
    /// Like `Classic`, but a compaction writes only the blocks that receive keys from the level
    /// above, and appends them to the existing table (BlockDB, ICDE 2022).
    Block,
    /// Level 0 is a pair of B+ trees in persistent memory that point to values in the log (LAB-DB,
    /// ACM TOS 2024). Without a pool that is durable at the fence, each open rebuilds the trees
    /// from the log.
    Lab,
    /// Tables of the upper levels are skiplists in persistent memory, and a compaction among them
    /// links entries instead of copying them (TLSM, IEEE Access 2020). Without a pool that is
    /// durable at the fence, all tables are files, as in `Classic`.
    Tlsm,
    /// Tables of the two upper levels are sorted tables in persistent memory, and the costs of
    /// each partition decide when they are merged there and when they leave for the SSD (PM-Blade,
    /// ICDE 2023). Without a pool that is durable at the fence, all tables are files.
    Blade,
    /// Flushed tables of a partition are merged and cut at the borders of its key ranges. Each
    /// range keeps a stack of tables that overlap, and is merged when that is too high (PMDB, IEEE
    /// TC 2022). The size of a merge does not depend on the database's.
    Pmdb,
}

impl Profile {
    pub(crate) fn number(self) -> u8 {
        match self {
            Profile::Classic => 0,
            Profile::Block => 1,
            Profile::Lab => 2,
            Profile::Tlsm => 3,
            Profile::Blade => 4,
            Profile::Pmdb => 5,
        }
    }

    /// All profiles of this version.
    pub const ALL: [Profile; 6] = [
        Profile::Classic,
        Profile::Block,
        Profile::Lab,
        Profile::Tlsm,
        Profile::Blade,
        Profile::Pmdb,
    ];

    fn name(self) -> &'static str {
        match self {
            Profile::Classic => "classic",
            Profile::Block => "block",
            Profile::Lab => "lab",
            Profile::Tlsm => "tlsm",
            Profile::Blade => "blade",
            Profile::Pmdb => "pmdb",
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Profile> {
        Profile::ALL
            .into_iter()
            .find(|profile| profile.number() == number)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Profile::ALL
            .into_iter()
            .find(|profile| profile.name() == text)
            .ok_or_else(|| {
                Error::invalid(format!(
                    "unknown profile `{text}`: this version has `classic`, `block`, `lab`, `tlsm`, `blade` and `pmdb`"
                ))
            })
    }
}

/// The failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Power loss, and everything less. Concurrent writers share one sync.
    #[default]
    Power,
    /// The death of the process (kill -9), but not of the machine. [`crate::Db::sync`] makes all
    /// earlier writes survive power loss.
    Process,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Power => "power",
            Durability::Process => "process",
        })
    }
}

impl FromStr for Durability {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "power" => Ok(Durability::Power),
            "process" => Ok(Durability::Process),
            _ => Err(Error::invalid(format!(
                "unknown durability `{text}`: choose `power` or `process`"
            ))),
        }
    }
}

/// How a background worker runs the parts of a compaction. The tables are the same, whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Concurrency {
    /// One part at a time; the worker sleeps while a part waits for its I/O.
    Threads,
    /// Several at a time: while one waits for its I/O, another merges.
    Coroutines,
    /// As `Coroutines`, and the writes of all of them are submitted by one more, as many as
    /// [`Options::compaction_io_depth`] and the reads in flight leave room for (PM-Blade, V).
    FlushCoroutine,
}

impl Concurrency {
    /// All of them.
    pub const ALL: [Concurrency; 3] = [
        Concurrency::Threads,
        Concurrency::Coroutines,
        Concurrency::FlushCoroutine,
    ];
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Concurrency::Threads => "threads",
            Concurrency::Coroutines => "coroutines",
            Concurrency::FlushCoroutine => "flush-coroutine",
        })
    }
}

impl FromStr for Concurrency {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let named = |concurrency: &Concurrency| concurrency.to_string() == text;
        Concurrency::ALL.into_iter().find(named).ok_or_else(|| {
            Error::invalid(format!(
                "unknown concurrency `{text}`: choose `threads`, `coroutines` or `flush-coroutine`"
            ))
        })
    }
}

/// Options of one write.
///
/// ```
/// use firndb::{Durability, WriteOptions};
/// let fast = WriteOptions::new().durability(Durability::Process);
/// # assert_eq!(fast.durability, Some(Durability::Process));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// The failures that the write survives once it is acknowledged. Default: `None`, which means
    /// [`Options::durability`] of the database.
    pub durability: Option<Durability>,
}

impl WriteOptions {
    /// The defaults of the database.
    pub const fn new() -> WriteOptions {
        WriteOptions { durability: None }
    }

    /// Sets the failures that the write survives once it is acknowledged.
    #[must_use]
    pub const fn durability(self, durability: Durability) -> WriteOptions {
        WriteOptions {
            durability: Some(durability),
        }
    }
}

/// Options for opening a database. Start from `Options::default()`; the method with a field's name
/// sets that field.
///
/// ```
/// use firndb::{Options, Profile};
/// let options = Options::default().profile(Profile::Block).memory_limit_bytes(256 << 20);
/// assert_eq!(options.profile, Profile::Block);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// The design. Default: `classic`.
    pub profile: Profile,
    /// True if the open creates the database when it does not exist. Default: true.
    pub create_if_missing: bool,
    /// True if the open also creates missing parent directories. Default: false, so that a mistyped
    /// path is an error.
    pub create_parents: bool,
    /// The durability of writes whose [`WriteOptions`] set none. Default: power.
    pub durability: Durability,
    /// The memory for buffers, caches, filters and indexes together, in bytes. Default: 512 MiB.
    /// Less than 64 blocks (256 KiB with default limits) is rejected, and at least 16 MiB is
    /// recommended. More memory means fewer reads and larger write buffers.
    pub memory_limit_bytes: u64,
    /// The size of one write buffer, in bytes; up to three exist. Default: an eighth of
    /// `memory_limit_bytes`, at most 64 MiB; in profile `blade` at most an eighth of the pool, too.
    pub write_buffer_bytes: Option<u64>,
    /// The size of the block cache, in bytes. Default: half of the memory that the write buffers
    /// leave.
    pub block_cache_bytes: Option<u64>,
    /// True if gets cache the single entries that they find, in the block cache, without their
    /// blocks. Default: true. Disable for workloads with spatial locality.
    pub row_cache: bool,
    /// The compression of data blocks. Default: LZ4. Choose none for values that do not compress.
    pub compression: Codec,
    /// Filter bits per key; 0 for no filter. Default: 10, with which 1 in 100 absent keys costs a
    /// read.
    pub filter_bits: u32,
    /// The number of tables kept open. Default: 1,000; never more than three quarters of
    /// `ulimit -n`.
    pub max_open_files: usize,
    /// The number of background workers. Default: 0, which means one per core, at most 4.
    pub background_workers: usize,
    /// How a worker runs the parts of a compaction. Default: `None`, which means with a flush
    /// coroutine in profile `blade`, and threads in all others.
    pub compaction_concurrency: Option<Concurrency>,
    /// The I/Os that compactions keep in flight, users' reads included. It is divided among the
    /// workers, which run that many parts of a compaction at a time, and bounds the writes of the
    /// flush coroutine. Default: 8. Unused with [`Concurrency::Threads`].
    pub compaction_io_depth: usize,
    /// True if tables are read and written with direct I/O, bypassing the page cache. Default:
    /// true.
    pub direct_io: bool,
    /// Persistent memory. Default: none. If set, the log is buffered there.
    pub pm: Option<firn_pm::PmConfig>,
    /// The listener for flushes, compactions, write stalls and errors. Default: none.
    pub listener: Option<Arc<dyn EventListener>>,
    /// Sizes and thresholds of the engine, for experiments and tests. Default: [`Limits::default`].
    pub limits: Limits,
    /// Parameters of the designs, for experiments. Default: mostly the values of the papers.
    pub tuning: Tuning,
    /// The source of files, time and threads. Default: the operating system.
    pub environment: Environment,
}

/// The source of files, time and background work. Tests replace them.
#[derive(Clone, Default)]
pub struct Environment {
    /// The file system. Default: the operating system's, with direct I/O.
    pub fs: Option<Arc<dyn Fs>>,
    /// The clock. Default: the system's.
    pub clock: Option<Clock>,
    /// The executor. Default: threads.
    pub executor: Option<Arc<dyn Executor>>,
    /// Simulated memory that replaces the memory of [`Options::pm`]. Default: none.
    pub memory: Option<SimRegion>,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("fs", &self.fs)
            .field("clock", &self.clock.is_some())
            .field("executor", &self.executor.is_some())
            .field("memory", &self.memory.is_some())
            .finish()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            create_if_missing: true,
            create_parents: false,
            durability: Durability::default(),
            memory_limit_bytes: 512 << 20,
            write_buffer_bytes: None,
            block_cache_bytes: None,
            row_cache: true,
            compression: Codec::Lz4,
            filter_bits: 10,
            max_open_files: 1000,
            background_workers: 0,
            compaction_concurrency: None,
            compaction_io_depth: 8,
            direct_io: true,
            pm: None,
            listener: None,
            limits: Limits::default(),
            tuning: Tuning::default(),
            environment: Environment::default(),
        }
    }
}

impl Options {
    /// The number of background workers.
    pub(crate) fn workers(&self) -> usize {
        match self.background_workers {
            // An executor of the caller runs its steps itself.
            0 if self.environment.executor.is_some() => 1,
            0 => std::thread::available_parallelism().map_or(1, |n| n.get().min(4)),
            n => n,
        }
    }

    pub(crate) fn concurrency(&self) -> Concurrency {
        self.compaction_concurrency.unwrap_or(match self.profile {
            Profile::Blade => Concurrency::FlushCoroutine,
            Profile::Classic | Profile::Block | Profile::Lab | Profile::Tlsm | Profile::Pmdb => {
                Concurrency::Threads
            }
        })
    }

    /// The parts of a compaction that a worker runs at a time.
    pub(crate) fn coroutines(&self) -> usize {
        match self.concurrency() {
            Concurrency::Threads => 1,
            Concurrency::Coroutines | Concurrency::FlushCoroutine => {
                (self.compaction_io_depth / self.workers()).max(1)
            }
        }
    }

    /// Bytes of the memory limit that level 0's trees take if they are not in persistent memory,
    /// else 0.
    pub(crate) fn tree_memory_bytes(&self) -> u64 {
        let is_durable = |pm: &PmConfig| {
            self.environment.memory.is_some()
                || matches!(pm.backend, Backend::Dax | Backend::Emulated)
        };
        let in_dram = self.profile == Profile::Lab && !self.pm.as_ref().is_some_and(is_durable);
        if in_dram {
            self.tuning.lab.pool_bytes(self.tree_bytes_in_dram())
        } else {
            0
        }
    }

    /// Bytes for leaves if they are not in persistent memory.
    pub(crate) fn tree_bytes_in_dram(&self) -> u64 {
        self.tuning
            .lab
            .tree_bytes
            .unwrap_or(self.memory_limit_bytes / 8)
    }

    /// Bytes of a write buffer unless the options set it, with memory of `limit` bytes. Where
    /// flushed tables wait in persistent memory, it has room for some.
    pub(crate) fn usual_buffer_bytes(&self, limit: u64) -> u64 {
        let pool = self.pm.as_ref().filter(|_| self.sorted().is_some());
        let pool_bytes = pool.map(|pm| pm.size_bytes).filter(|bytes| *bytes > 0);
        let least = 8 * self.limits.block_bytes as u64;
        let of_pool = pool_bytes.map_or(u64::MAX, |bytes| (bytes / 5 * 2).max(least));
        (limit / 8).min(of_pool)
    }

    /// True if compactions may append to tables, where that is cheaper.
    pub(crate) fn appends(&self) -> bool {
        match self.profile {
            Profile::Classic | Profile::Tlsm | Profile::Blade | Profile::Pmdb => false,
            Profile::Block => true,
            Profile::Lab => self.tuning.lab.block_grained,
        }
    }

    /// The parameters of lists in persistent memory, if the profile has them.
    pub(crate) fn lists(&self) -> Option<&TlsmTuning> {
        (self.profile == Profile::Tlsm).then_some(&self.tuning.tlsm)
    }

    /// The parameters of sorted tables in persistent memory, if the profile has them.
    pub(crate) fn sorted(&self) -> Option<&BladeTuning> {
        (self.profile == Profile::Blade).then_some(&self.tuning.blade)
    }

    /// The parameters of ranges with stacks of tables, if the profile has them.
    pub(crate) fn ranges(&self) -> Option<&PmdbTuning> {
        (self.profile == Profile::Pmdb).then_some(&self.tuning.pmdb)
    }

    /// The number of levels: as many as the limits name, or as stacks need.
    pub(crate) fn levels(&self) -> usize {
        match self.ranges() {
            Some(ranges) => ranges.levels(),
            None => self.limits.levels,
        }
    }

    /// The fewest levels: one whose tables overlap, and one below it; with sorted tables in
    /// persistent memory one more, because two are there.
    pub(crate) fn levels_min(&self) -> u64 {
        match self.sorted() {
            Some(_) => 3,
            None => 2,
        }
    }

    /// Small sizes everywhere, so that a test crosses every threshold in milliseconds.
    #[cfg(any(test, feature = "proof"))]
    pub fn tiny() -> Self {
        Self {
            memory_limit_bytes: 1 << 20,
            write_buffer_bytes: Some(64 << 10),
            block_cache_bytes: Some(64 << 10),
            limits: Limits::tiny(),
            ..Self::default()
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("profile", &self.profile)
            .field("durability", &self.durability)
            .field("memory_limit_bytes", &self.memory_limit_bytes)
            .field("write_buffer_bytes", &self.write_buffer_bytes)
            .field("block_cache_bytes", &self.block_cache_bytes)
            .field("row_cache", &self.row_cache)
            .field("compression", &self.compression)
            .field("filter_bits", &self.filter_bits)
            .finish_non_exhaustive()
    }
}

/// Options of a cursor or iterator.
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// The smallest key to visit. Default: no lower bound.
    pub lower: Option<Vec<u8>>,
    /// The exclusive upper bound: no key at or after it is visited. Default: no upper bound.
    pub upper: Option<Vec<u8>>,
    /// The snapshot to read. Default: the current state of the database.
    pub snapshot: Option<crate::Snapshot>,
}

impl ReadOptions {
    /// The keys in `range`, in the current state.
    pub fn range<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> ReadOptions {
        let after = |key: &K| [key.as_ref(), &[0]].concat();
        let lower = match range.start_bound() {
            Bound::Included(key) => Some(key.as_ref().to_vec()),
            Bound::Excluded(key) => Some(after(key)),
            Bound::Unbounded => None,
        };
        let upper = match range.end_bound() {
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        ReadOptions {
            lower,
            upper,
            snapshot: None,
        }
    }

    /// The keys that begin with `prefix`, in the current state.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> ReadOptions {
        let prefix = prefix.as_ref();
        ReadOptions {
            lower: Some(prefix.to_vec()),
            upper: prefix_end(prefix),
            snapshot: None,
        }
    }
}

impl fmt::Debug for ReadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seqno = self.snapshot.as_ref().map(crate::Snapshot::seqno);
        f.debug_struct("ReadOptions")
            .field("lower", &self.lower)
            .field("upper", &self.upper)
            .field("snapshot", &seqno)
            .finish()
    }
}
