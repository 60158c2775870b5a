//! What a user chooses when opening a database, and per operation.

use crate::event::EventListener;
use crate::tuning::Tuning;
use firn_base::clock::Clock;
use firn_base::exec::Executor;
use firn_base::{Error, Limits, Result};
use firn_fs::Fs;
use firn_pm::sim::SimRegion;
use firn_pm::{Backend, PmConfig};
use firn_table::sst::Codec;
use std::fmt;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// What the write survives once it is acknowledged.
    pub durability: Durability,
}

/// How to open a database. Start from `Options::default()`.
#[derive(Clone)]
pub struct Options {
    /// The design. Default: `classic`.
    pub profile: Profile,
    /// Whether to create the database if it is not there. Default: true.
    pub create_if_missing: bool,
    /// Whether to create the directories above the database's own, too. Default: false, so that a mistyped path is an
    /// error.
    pub create_parents: bool,
    /// The durability of writes that do not say. Default: power.
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
    /// The first key behind those to visit.
    pub upper: Option<Vec<u8>>,
    /// The snapshot to read. Default: the present.
    pub snapshot: Option<crate::Snapshot>,
}
