//! The location of a benchmark's databases and results, and its repetitions. Every comparison of
//! engines takes these options.

use super::interrupt;
use crate::byte_size::ByteSize;
use crate::exit::Outcome;
use clap::Args;
use firn_bench::PmBudget;
use firndb::Error;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

#[derive(Debug, Args)]
pub(super) struct Place {
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(super) threads: usize,
    /// Minimum seconds of each workload except a load
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seconds: u64,
    /// Number of rounds in which each engine runs, in turn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) rounds: u32,
    /// Directory for the databases; they are removed at the end [default: the system's temporary
    /// directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the result of each engine in each round as a file in DIR, and skip those that exist
    #[arg(long, value_name = "DIR")]
    cells: Option<PathBuf>,
    /// A directory on persistent memory for engines that use it
    #[arg(long, value_name = "DIR", requires = "pm_bytes")]
    pm_dir: Option<PathBuf>,
    /// The amount of persistent memory to use
    #[arg(long, value_name = "SIZE", requires = "pm_dir")]
    pm_bytes: Option<ByteSize>,
}

impl Place {
    /// A directory for the databases, removed when dropped or when the program is interrupted.
    pub(super) fn scratch(&self) -> Outcome<TempDir> {
        scratch(self.dir.as_deref())
    }

    /// The directory for the result of each engine in each round.
    pub(super) fn cells(&self, scratch: &TempDir) -> PathBuf {
        self.cells
            .clone()
            .unwrap_or_else(|| scratch.path().join("cells"))
    }

    /// A new directory on persistent memory, removed like the other one, and the amount of memory
    /// to use.
    pub(super) fn pm(&self) -> Outcome<Option<(TempDir, PmBudget)>> {
        let Some((parent, size)) = self.pm_dir.as_deref().zip(self.pm_bytes) else {
            return Ok(None);
        };
        let made = scratch(Some(parent))?;
        let budget = PmBudget {
            directory: made.path().to_owned(),
            bytes: size.0,
        };
        Ok(Some((made, budget)))
    }
}

/// A directory in `parent` (created if missing), or in the system's temporary directory.
pub(super) fn scratch(parent: Option<&Path>) -> Outcome<TempDir> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    std::fs::create_dir_all(&parent).map_err(|e| Error::from_io("create", &parent, e))?;
    let made = tempfile::Builder::new()
        .prefix("firn-bench-")
        .tempdir_in(&parent);
    let scratch = made.map_err(|e| Error::from_io("make a temporary directory in", &parent, e))?;
    interrupt::remove_when_interrupted(scratch.path().to_owned())?;
    Ok(scratch)
}
