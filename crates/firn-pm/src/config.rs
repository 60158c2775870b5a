//! The user's choice of persistent memory, [`PmConfig`], and the durability that a pool provides,
//! [`DurableAt`].
//!
//! A backend is always named explicitly. A request that cannot be met is an error that names the
//! alternatives; a weaker backend is never chosen silently.

use firn_base::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The memory under a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// A file on a DAX file system or a `/dev/dax` device, mapped with `MAP_SYNC`. Durable at the
    /// fence.
    Dax,
    /// Any other file. The pool is an image in DRAM; immutable extents and roots are written to the
    /// file and synced.
    File,
    /// No persistent memory at all. Nothing survives, and every open starts empty.
    Volatile,
    /// Any file (such as one on tmpfs), treated as if it were DAX. For experiments; every report
    /// says EMULATED.
    Emulated,
}

impl Backend {
    /// The name used in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Dax => "dax",
            Backend::File => "file",
            Backend::Volatile => "volatile",
            Backend::Emulated => "emulated",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "dax" => Ok(Backend::Dax),
            "file" => Ok(Backend::File),
            "volatile" => Ok(Backend::Volatile),
            "emulated" => Ok(Backend::Emulated),
            _ => Err(Error::invalid(format!(
                "no persistent-memory backend is called \"{name}\": use \"dax\", \"file\", \"volatile\" or \"emulated\""
            ))),
        }
    }
}

/// The point at which bytes written through the verbs are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DurableAt {
    /// At the fence that covers it (`dax`). `emulated` behaves the same but survives only the death
    /// of the process.
    Fence,
    /// At the sync of the file: [`crate::Pool::persist`] for extents, [`crate::Pool::commit`] for
    /// roots (`file`).
    Sync,
    /// Never (`volatile`).
    Never,
}

/// Delays injected for each cache line, to model slower memory. For experiments only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// Nanoseconds added for each 64-byte line read.
    pub read_ns: u32,
    /// Nanoseconds added for each 64-byte line flushed or copied past the cache.
    pub write_ns: u32,
}

/// The pool's location and backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PmConfig {
    /// The pool's file or device. Required by every backend except `volatile`, which rejects one.
    pub path: Option<PathBuf>,
    /// The backend to use it with.
    pub backend: Backend,
    /// Size of a newly created pool in bytes, rounded down to whole granules. An existing pool
    /// keeps its own size until [`crate::Pool::grow`]. On a device, at most the size of the device.
    pub size_bytes: u64,
    /// Delays to inject. For experiments.
    pub latency: Option<Latency>,
}

impl PmConfig {
    /// A pool in plain memory.
    pub fn volatile(size_bytes: u64) -> Self {
        Self {
            path: None,
            backend: Backend::Volatile,
            size_bytes,
            latency: None,
        }
    }

    /// A pool in the file at `path`.
    pub fn at(path: impl Into<PathBuf>, backend: Backend, size_bytes: u64) -> Self {
        Self {
            path: Some(path.into()),
            backend,
            size_bytes,
            latency: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_names_round_trip() {
        for backend in [
            Backend::Dax,
            Backend::File,
            Backend::Volatile,
            Backend::Emulated,
        ] {
            assert_eq!(backend.to_string().parse::<Backend>().unwrap(), backend);
        }
        let refused = "EMULATED?".parse::<Backend>().unwrap_err();
        assert!(refused.to_string().contains("\"emulated\""), "{refused}");
    }
}
