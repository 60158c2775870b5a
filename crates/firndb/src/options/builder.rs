//! Builder methods of [`Options`], one for each field. The fields document meanings and defaults.

use super::tuning::Tuning;
use super::{Concurrency, Durability, Environment, Options, Profile};
use crate::event::EventListener;
use firn_base::Limits;
use firn_pm::PmConfig;
use firn_table::sst::Codec;
use std::sync::Arc;

impl Options {
    /// Sets the design.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Options {
        self.profile = profile;
        self
    }

    /// Sets whether a missing database is created.
    #[must_use]
    pub fn create_if_missing(mut self, create_if_missing: bool) -> Options {
        self.create_if_missing = create_if_missing;
        self
    }

    /// Sets whether missing parent directories are created.
    #[must_use]
    pub fn create_parents(mut self, create_parents: bool) -> Options {
        self.create_parents = create_parents;
        self
    }

    /// Sets the durability of writes whose [`crate::WriteOptions`] set none.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Sets the memory for buffers, caches, filters and indexes together, in bytes.
    #[must_use]
    pub fn memory_limit_bytes(mut self, memory_limit_bytes: u64) -> Options {
        self.memory_limit_bytes = memory_limit_bytes;
        self
    }

    /// Sets the size of one write buffer, in bytes.
    #[must_use]
    pub fn write_buffer_bytes(mut self, write_buffer_bytes: impl Into<Option<u64>>) -> Options {
        self.write_buffer_bytes = write_buffer_bytes.into();
        self
    }

    /// Sets the size of the block cache, in bytes.
    #[must_use]
    pub fn block_cache_bytes(mut self, block_cache_bytes: impl Into<Option<u64>>) -> Options {
        self.block_cache_bytes = block_cache_bytes.into();
        self
    }

    /// Sets whether gets cache single entries.
    #[must_use]
    pub fn row_cache(mut self, row_cache: bool) -> Options {
        self.row_cache = row_cache;
        self
    }

    /// Sets the compression of data blocks.
    #[must_use]
    pub fn compression(mut self, compression: Codec) -> Options {
        self.compression = compression;
        self
    }

    /// Sets the filter bits per key.
    #[must_use]
    pub fn filter_bits(mut self, filter_bits: u32) -> Options {
        self.filter_bits = filter_bits;
        self
    }

    /// Sets the number of tables kept open.
    #[must_use]
    pub fn max_open_files(mut self, max_open_files: usize) -> Options {
        self.max_open_files = max_open_files;
        self
    }

    /// Sets the number of background workers.
    #[must_use]
    pub fn background_workers(mut self, background_workers: usize) -> Options {
        self.background_workers = background_workers;
        self
    }

    /// Sets how a worker runs the parts of a compaction.
    #[must_use]
    pub fn compaction_concurrency(
        mut self,
        concurrency: impl Into<Option<Concurrency>>,
    ) -> Options {
        self.compaction_concurrency = concurrency.into();
        self
    }

    /// Sets the I/Os that compactions keep in flight.
    #[must_use]
    pub fn compaction_io_depth(mut self, depth: usize) -> Options {
        self.compaction_io_depth = depth;
        self
    }

    /// Sets whether tables bypass the page cache.
    #[must_use]
    pub fn direct_io(mut self, direct_io: bool) -> Options {
        self.direct_io = direct_io;
        self
    }

    /// Sets the persistent memory.
    #[must_use]
    pub fn pm(mut self, pm: impl Into<Option<PmConfig>>) -> Options {
        self.pm = pm.into();
        self
    }

    /// Sets the listener for events.
    #[must_use]
    pub fn listener(mut self, listener: Arc<dyn EventListener>) -> Options {
        self.listener = Some(listener);
        self
    }

    /// Sets the sizes and thresholds of the engine.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Options {
        self.limits = limits;
        self
    }

    /// Sets the parameters of the designs.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Options {
        self.tuning = tuning;
        self
    }

    /// Sets the source of files, time and threads.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Options {
        self.environment = environment;
        self
    }
}
