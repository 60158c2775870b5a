//! Options of the engine. Each comes from the command line, otherwise from FIRN_* in the
//! environment, otherwise from a TOML file, otherwise it has its default. One struct is the list
//! for all three sources, so they cannot diverge.

use crate::byte_size::ByteSize;
use crate::exit::{Failure, Outcome};
use crate::stored::Stored;
use clap::Args;
use firn_pm::{Backend, Latency, PmConfig};
use firndb::{Codec, Concurrency, Durability, Options, Profile};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The heading of the engine's options in help.
pub(crate) const HEADING: &str = "Options of the engine";
const FILE_BY_DEFAULT: &str = "firn.toml";
const FILE_BYTES_MAX: u64 = 1 << 20;
const POOL_BYTES_BY_DEFAULT: u64 = 1 << 30;

/// The available options. The names in a TOML file are the field names.
#[derive(Debug, Default, Args, Deserialize)]
#[command(next_help_heading = HEADING)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Design of the database: classic, block, lab, tlsm, blade or pmdb [default: that of the
    /// database; classic for a new one]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "FIRN_PROFILE",
        hide_env_values = true
    )]
    profile: Option<Word<Profile>>,
    /// Failure that an acknowledged write survives: power (power loss) or process (death of the
    /// process, as by kill -9) [default: power]
    #[arg(
        long,
        global = true,
        value_name = "WORD",
        env = "FIRN_DURABILITY",
        hide_env_values = true
    )]
    durability: Option<Word<Durability>>,
    /// Total memory for buffers, caches, filters and indexes [default: 512M]
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        env = "FIRN_MEMORY_LIMIT",
        hide_env_values = true
    )]
    memory_limit: Option<ByteSize>,
    /// Memory of one write buffer [default: derived from the memory limit]
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        env = "FIRN_WRITE_BUFFER",
        hide_env_values = true
    )]
    write_buffer: Option<ByteSize>,
    /// Memory of the block cache [default: derived from the memory limit]
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        env = "FIRN_BLOCK_CACHE",
        hide_env_values = true
    )]
    block_cache: Option<ByteSize>,
    /// Compression of tables: none, lz4 or zstd [default: lz4]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "FIRN_COMPRESSION",
        hide_env_values = true
    )]
    compression: Option<Word<Compression>>,
    /// Filter bits per key, 0 for no filters [default: 10]
    #[arg(
        long,
        global = true,
        value_name = "N",
        env = "FIRN_FILTER_BITS",
        hide_env_values = true
    )]
    filter_bits: Option<u32>,
    /// Tables kept open [default: 1000]
    #[arg(
        long,
        global = true,
        value_name = "N",
        env = "FIRN_MAX_OPEN_FILES",
        hide_env_values = true
    )]
    max_open_files: Option<usize>,
    /// Background workers, 0 for one per core up to 4 [default: 0]
    #[arg(
        long,
        global = true,
        value_name = "N",
        env = "FIRN_BACKGROUND_WORKERS",
        hide_env_values = true
    )]
    background_workers: Option<usize>,
    /// How a worker runs the parts of a compaction: threads, coroutines or flush-coroutine
    /// [default: flush-coroutine in profile blade, else threads]
    #[arg(
        long,
        global = true,
        value_name = "HOW",
        env = "FIRN_COMPACTION_CONCURRENCY",
        hide_env_values = true
    )]
    compaction_concurrency: Option<Word<Concurrency>>,
    /// I/Os that compactions keep in flight with coroutines [default: 8]
    #[arg(
        long,
        global = true,
        value_name = "N",
        env = "FIRN_COMPACTION_IO_DEPTH",
        hide_env_values = true
    )]
    compaction_io_depth: Option<usize>,
    /// Read and write tables past the page cache: true or false [default: true]
    #[arg(
        long,
        global = true,
        value_name = "BOOL",
        env = "FIRN_DIRECT_IO",
        hide_env_values = true
    )]
    direct_io: Option<bool>,
    /// File or device of the persistent-memory pool
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "FIRN_PM_PATH",
        hide_env_values = true
    )]
    pm_path: Option<PathBuf>,
    /// Kind of the pool: dax, file, volatile, emulated, or none [default: the pool that the
    /// database was opened with]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "FIRN_PM_BACKEND",
        hide_env_values = true
    )]
    pm_backend: Option<Word<PoolBackend>>,
    /// Size of a newly created pool [default: 1G]
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        env = "FIRN_PM_SIZE",
        hide_env_values = true
    )]
    pm_size: Option<ByteSize>,
    /// Nanoseconds to add for each cache line read from the pool; for experiments
    #[arg(
        long,
        global = true,
        value_name = "NS",
        env = "FIRN_PM_READ_NS",
        hide_env_values = true
    )]
    pm_read_ns: Option<u32>,
    /// Nanoseconds to add for each cache line written to the pool; for experiments
    #[arg(
        long,
        global = true,
        value_name = "NS",
        env = "FIRN_PM_WRITE_NS",
        hide_env_values = true
    )]
    pm_write_ns: Option<u32>,
}

/// A value written as a word, on the command line or in a file.
#[derive(Debug, Clone)]
pub(crate) struct Word<T>(pub(crate) T);

impl<T: FromStr<Err: Display>> FromStr for Word<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Word).map_err(|e: T::Err| e.to_string())
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// A backend by name, or no pool.
#[derive(Debug, Clone, Copy)]
struct PoolBackend(Option<Backend>);

impl FromStr for PoolBackend {
    type Err = firndb::Error;

    fn from_str(text: &str) -> firndb::Result<Self> {
        if text == "none" {
            Ok(PoolBackend(None))
        } else {
            text.parse().map(|backend| PoolBackend(Some(backend)))
        }
    }
}

/// A codec by name.
#[derive(Debug, Clone)]
struct Compression(Codec);

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Compression(Codec::None)),
            "lz4" => Ok(Compression(Codec::Lz4)),
            "zstd" => Ok(Compression(Codec::Zstd)),
            _ => Err(format!(
                "no compression is called {text}: there are none, lz4 and zstd"
            )),
        }
    }
}

impl Settings {
    /// Merges these settings (from command line and environment) with those of the file. These take
    /// precedence.
    pub(crate) fn over_file(self, file: Option<&Path>) -> Outcome<Self> {
        let in_file = match file {
            Some(path) => Self::read(path)?,
            None if Path::new(FILE_BY_DEFAULT).exists() => Self::read(FILE_BY_DEFAULT.as_ref())?,
            None => Self::default(),
        };
        Ok(self.or(in_file))
    }

    /// The options given to all engines of a comparison, which default to process durability and no
    /// compression. Options that only FirnDB knows are refused.
    pub(crate) fn for_bench(self) -> Outcome<Options> {
        let alone = [
            ("profile", self.profile.is_some()),
            ("write-buffer", self.write_buffer.is_some()),
            ("block-cache", self.block_cache.is_some()),
            ("filter-bits", self.filter_bits.is_some()),
            ("max-open-files", self.max_open_files.is_some()),
            ("pm-backend", self.pm_backend.is_some()),
        ];
        if let Some((name, _)) = alone.iter().find(|(_, is_set)| *is_set) {
            return Err(Failure::usage(format!(
                "--{name} is FirnDB's alone: name the profile in --engines, its options with --set, persistent memory \
                 with --pm-dir"
            )));
        }
        let own = Self {
            durability: Some(Word(Durability::Process)),
            compression: Some(Word(Compression(Codec::None))),
            ..Self::default()
        };
        self.or(own).into_options()
    }

    fn read(path: &Path) -> Outcome<Self> {
        let failed = |e| firndb::Error::from_io("read", path, e);
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        let invalid = |reason: &str| Failure::invalid(format!("{}: {reason}", path.display()));
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(invalid(
                "the file has more than 1 MiB: a TOML file with options of the engine was expected",
            ));
        }
        let text = String::from_utf8(bytes).map_err(|_| {
            invalid("the file is not UTF-8: a TOML file with options of the engine was expected")
        })?;
        Self::parse(&text)
            .map_err(|reason| Failure::invalid(format!("{}: {reason}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    fn or(self, other: Self) -> Self {
        Self {
            profile: self.profile.or(other.profile),
            durability: self.durability.or(other.durability),
            memory_limit: self.memory_limit.or(other.memory_limit),
            write_buffer: self.write_buffer.or(other.write_buffer),
            block_cache: self.block_cache.or(other.block_cache),
            compression: self.compression.or(other.compression),
            filter_bits: self.filter_bits.or(other.filter_bits),
            max_open_files: self.max_open_files.or(other.max_open_files),
            background_workers: self.background_workers.or(other.background_workers),
            compaction_concurrency: self.compaction_concurrency.or(other.compaction_concurrency),
            compaction_io_depth: self.compaction_io_depth.or(other.compaction_io_depth),
            direct_io: self.direct_io.or(other.direct_io),
            pm_path: self.pm_path.or(other.pm_path),
            pm_backend: self.pm_backend.or(other.pm_backend),
            pm_size: self.pm_size.or(other.pm_size),
            pm_read_ns: self.pm_read_ns.or(other.pm_read_ns),
            pm_write_ns: self.pm_write_ns.or(other.pm_write_ns),
        }
    }

    /// The options for the database at `db`. Profile and pool are those of the database unless
    /// others are given.
    pub(crate) fn into_options_for(mut self, db: &Path) -> Outcome<Options> {
        let is_database = || matches!(firndb::profile_at(db, &Options::default()), Ok(Some(_)));
        let stored = match Stored::read(db) {
            // The pool is given, or the file belongs to another program, which the verb reports.
            Err(_) if !self.names_no_pool() || !is_database() => Stored::default(),
            read => read?,
        };
        if self.profile.is_none() {
            // The verb reports a manifest that cannot be read; `repair` needs a profile even then.
            let known = firndb::profile_at(db, &Options::default()).unwrap_or(stored.profile());
            self.profile = known.map(Word);
        }
        let pool = if self.names_no_pool() {
            stored.pool(db)?
        } else {
            None
        };
        let mut options = self.into_options()?;
        options.pm = options.pm.or(pool);
        Ok(options)
    }

    /// True if no option about a pool was given.
    fn names_no_pool(&self) -> bool {
        self.pm_backend.is_none() && self.pm_path.is_none() && self.pm_size.is_none()
    }

    /// The options.
    pub(crate) fn into_options(self) -> Outcome<Options> {
        let default = Options::default();
        let pm = self.pm()?;
        Ok(Options::default()
            .profile(self.profile.map_or(default.profile, |word| word.0))
            .durability(self.durability.map_or(default.durability, |word| word.0))
            .memory_limit_bytes(
                self.memory_limit
                    .map_or(default.memory_limit_bytes, |size| size.0),
            )
            .write_buffer_bytes(self.write_buffer.map(|size| size.0))
            .block_cache_bytes(self.block_cache.map(|size| size.0))
            .compression(
                self.compression
                    .map_or(default.compression, |word| word.0.0),
            )
            .filter_bits(self.filter_bits.unwrap_or(default.filter_bits))
            .max_open_files(self.max_open_files.unwrap_or(default.max_open_files))
            .background_workers(
                self.background_workers
                    .unwrap_or(default.background_workers),
            )
            .compaction_concurrency(self.compaction_concurrency.map(|word| word.0))
            .compaction_io_depth(
                self.compaction_io_depth
                    .unwrap_or(default.compaction_io_depth),
            )
            .direct_io(self.direct_io.unwrap_or(default.direct_io))
            .pm(pm))
    }

    fn pm(&self) -> Outcome<Option<PmConfig>> {
        let Some(Word(PoolBackend(backend))) = self.pm_backend else {
            let asked = self.pm_path.is_some() || self.pm_size.is_some();
            let asked = asked || self.pm_read_ns.is_some() || self.pm_write_ns.is_some();
            let text = "persistent memory needs --pm-backend (pm_backend): dax, file, volatile, emulated or none";
            return if asked {
                Err(Failure::usage(text))
            } else {
                Ok(None)
            };
        };
        let Some(backend) = backend else {
            return Ok(None);
        };
        let size_bytes = self.pm_size.map_or(POOL_BYTES_BY_DEFAULT, |size| size.0);
        let delayed = self.pm_read_ns.is_some() || self.pm_write_ns.is_some();
        let latency = delayed.then(|| Latency {
            read_ns: self.pm_read_ns.unwrap_or(0),
            write_ns: self.pm_write_ns.unwrap_or(0),
        });
        Ok(Some(PmConfig {
            path: self.pm_path.clone(),
            backend,
            size_bytes,
            latency,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_fills_in_what_the_command_line_leaves_open() {
        let file =
            Settings::parse("memory_limit = \"64M\"\ndurability = \"process\"\nfilter_bits = 7\n")
                .unwrap();
        let flags = Settings {
            memory_limit: Some(ByteSize(1 << 30)),
            ..Settings::default()
        };
        let options = flags.or(file).into_options().unwrap();
        assert_eq!(options.memory_limit_bytes, 1 << 30);
        assert_eq!(options.durability, Durability::Process);
        assert_eq!(
            (options.filter_bits, options.max_open_files),
            (7, Options::default().max_open_files)
        );
    }

    #[test]
    fn what_a_file_may_not_say() {
        for (text, word) in [
            ("memory_limt = 1", "memory_limt"),
            ("memory_limit = \"many\"", "many"),
            ("durability = \"never\"", "never"),
            ("compression = \"rar\"", "rar"),
        ] {
            assert!(Settings::parse(text).unwrap_err().contains(word), "{text}");
        }
    }

    #[test]
    fn a_pool_needs_a_backend() {
        let settings = |text| Settings::parse(text).unwrap().into_options();
        assert!(settings("pm_path = \"/p\"").is_err());
        let pm = settings("pm_path = \"/p\"\npm_backend = \"file\"\npm_read_ns = 5")
            .unwrap()
            .pm
            .unwrap();
        assert_eq!(
            (pm.size_bytes, pm.latency),
            (
                1 << 30,
                Some(Latency {
                    read_ns: 5,
                    write_ns: 0
                })
            )
        );
        assert!(settings("").unwrap().pm.is_none());
    }
}
