//! What a user chooses when opening a database, and per operation.

pub(crate) mod budget;
mod builder;
pub(crate) mod tuning;

use crate::event::EventListener;
use crate::options::tuning::Tuning;
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

/// Which of the designs a database is built by. It is chosen when the database is created and cannot change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Profile {
    /// Log, DRAM skiplist, level-0 tables, leveled compaction: the baseline that runs anywhere.
    #[default]
    Classic,
    /// As `Classic`, but compaction writes only the blocks that keys from above fall into, behind the table's old end
    /// (BlockDB, ICDE 2022).
    Block,
    /// Level 0 is a pair of B+ trees in persistent memory over the values in the log (LAB-DB, ACM TOS 2024). Without
    /// a pool that is durable at the fence the trees are rebuilt from the log by each open.
    Lab,
}

impl Profile {
    pub(crate) fn number(self) -> u8 {
        match self {
            Profile::Classic => 0,
            Profile::Block => 1,
            Profile::Lab => 2,
        }
    }

    /// All that this version has.
    pub const ALL: [Profile; 3] = [Profile::Classic, Profile::Block, Profile::Lab];

    fn name(self) -> &'static str {
        match self {
            Profile::Classic => "classic",
            Profile::Block => "block",
            Profile::Lab => "lab",
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.number() == number)
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
        Profile::ALL.into_iter().find(|profile| profile.name() == text).ok_or_else(|| {
            Error::invalid(format!("unknown profile `{text}`: this version has `classic`, `block` and `lab`"))
        })
    }
}

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Power loss and everything less. Concurrent writers share one sync.
    #[default]
    Power,
    /// The death of the process (kill -9), not that of the machine. [`crate::Db::sync`] makes all so far survive power
    /// loss.
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
            _ => Err(Error::invalid(format!("unknown durability `{text}`: choose `power` or `process`"))),
        }
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
        WriteOptions { durability: Some(durability) }
    }
}

/// How to open a database: the defaults, changed by the method of each field's name.
///
/// ```
/// use firndb::{Options, Profile};
/// let options = Options::default().profile(Profile::Block).memory_limit(256 << 20);
/// assert_eq!(options.profile, Profile::Block);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// The design. Default: `classic`.
    pub profile: Profile,
    /// Whether to create the database if it is not there. Default: true.
    pub create_if_missing: bool,
    /// Whether to create the directories above the database's own, too. Default: false, so that a mistyped path is an
    /// error.
    pub create_parents: bool,
    /// The durability of writes whose [`WriteOptions`] do not name one. Default: power.
    pub durability: Durability,
    /// Bytes of memory that buffers, caches, filters and indexes may take in all. Default: 512 MiB; least 16 MiB with
    /// default limits. More memory means fewer reads and larger buffers.
    pub memory_limit: u64,
    /// Bytes of one write buffer, of which up to three exist. Default: an eighth of `memory_limit`, at most 64 MiB.
    pub write_buffer_bytes: Option<u64>,
    /// Bytes of the block cache. Default: half of what the buffers leave.
    pub block_cache_bytes: Option<u64>,
    /// Whether gets keep the entries that they find in the block cache, without their blocks. Default: true; better
    /// false where what is read lies beside what was read before.
    pub row_cache: bool,
    /// Compression of data blocks. Default: LZ4; choose none for values that do not compress.
    pub compression: Codec,
    /// Filter bits per key, 0 for none. Default: 10, which lets 1 absent key in 100 cost a read.
    pub filter_bits: u32,
    /// Tables kept open. Default: 1,000; never more than three quarters of `ulimit -n`.
    pub max_open_files: usize,
    /// Background workers. Default: 0, which means one per core, at most 4.
    pub background_workers: usize,
    /// Whether tables pass the page cache by. Default: true.
    pub direct_io: bool,
    /// Persistent memory. Default: none. With it the log goes through a buffer there.
    pub pm: Option<firn_pm::PmConfig>,
    /// Who is told of flushes, compactions, stalls and errors. Default: nobody.
    pub listener: Option<Arc<dyn EventListener>>,
    /// Sizes that shape the engine, for experiments and tests. Default: [`Limits::default`].
    pub limits: Limits,
    /// Numbers of the designs, for experiments. Default: those of the papers.
    pub tuning: Tuning,
    /// Where files, time and threads come from. Default: the operating system.
    pub environment: Environment,
}

/// Where files, time and background work come from; tests replace them.
#[derive(Clone, Default)]
pub struct Environment {
    /// The file system. Default: the operating system's, with direct I/O.
    pub fs: Option<Arc<dyn Fs>>,
    /// The clock. Default: the system's.
    pub clock: Option<Clock>,
    /// The executor. Default: threads.
    pub executor: Option<Arc<dyn Executor>>,
    /// Simulated memory in place of what [`Options::pm`] names. Default: none.
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
            memory_limit: 512 << 20,
            write_buffer_bytes: None,
            block_cache_bytes: None,
            row_cache: true,
            compression: Codec::Lz4,
            filter_bits: 10,
            max_open_files: 1000,
            background_workers: 0,
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
    /// Bytes of the memory limit that level 0's trees take, where they do not lie in persistent memory.
    pub(crate) fn tree_memory_bytes(&self) -> u64 {
        let is_durable =
            |pm: &PmConfig| self.environment.memory.is_some() || matches!(pm.backend, Backend::Dax | Backend::Emulated);
        let in_dram = self.profile == Profile::Lab && !self.pm.as_ref().is_some_and(is_durable);
        if in_dram { self.tuning.lab.pool_bytes(self.tree_bytes_in_dram()) } else { 0 }
    }

    /// Bytes for leaves where they do not lie in persistent memory.
    pub(crate) fn tree_bytes_in_dram(&self) -> u64 {
        self.tuning.lab.tree_bytes.unwrap_or(self.memory_limit / 8)
    }

    /// Whether tables take what comes from above by appends, where that pays.
    pub(crate) fn appends(&self) -> bool {
        match self.profile {
            Profile::Classic => false,
            Profile::Block => true,
            Profile::Lab => self.tuning.lab.block_grained,
        }
    }

    /// Small sizes everywhere, so that a test crosses every border in milliseconds.
    #[cfg(any(test, feature = "proof"))]
    pub fn tiny() -> Self {
        Self {
            memory_limit: 1 << 20,
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
            .field("memory_limit", &self.memory_limit)
            .field("write_buffer_bytes", &self.write_buffer_bytes)
            .field("block_cache_bytes", &self.block_cache_bytes)
            .field("row_cache", &self.row_cache)
            .field("compression", &self.compression)
            .field("filter_bits", &self.filter_bits)
            .finish_non_exhaustive()
    }
}

/// Options of a cursor.
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// The smallest key to visit.
    pub lower: Option<Vec<u8>>,
    /// The first key after those to visit.
    pub upper: Option<Vec<u8>>,
    /// The snapshot to read. Default: the present.
    pub snapshot: Option<crate::Snapshot>,
}

impl ReadOptions {
    /// The keys in `range`, at the present.
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
        ReadOptions { lower, upper, snapshot: None }
    }

    /// The keys that begin with `prefix`, at the present.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> ReadOptions {
        let prefix = prefix.as_ref();
        ReadOptions { lower: Some(prefix.to_vec()), upper: prefix_end(prefix), snapshot: None }
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
