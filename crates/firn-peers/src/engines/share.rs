//! Divides one budget of memory among the settings of an engine, in the way FirnDB divides its own.
//!
//! 1. Memtables and cache together are the budget: `buffers * write_buffer_bytes + cache_bytes ==
//!    memory_bytes`.
//! 2. A memtable is an eighth of the budget, and at most 64 MiB.

use firn_base::{Error, Result};
use firn_bench::Setup;
use std::collections::BTreeMap;

const WRITE_BUFFER_BYTES_MAX: u64 = 64 << 20;

/// The memory of an engine with memtables and a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Bytes of one memtable.
    pub(crate) write_buffer_bytes: u64,
    /// Bytes of the cache of blocks, filters and indexes.
    pub(crate) cache_bytes: u64,
}

impl Share {
    /// Bytes of one of FirnDB's memtables.
    pub(crate) fn memtable_bytes(setup: &Setup) -> u64 {
        (setup.memory_bytes / 8).min(WRITE_BUFFER_BYTES_MAX)
    }

    /// The share of an engine with `buffers` memtables, of at most `write_buffer_bytes_max` bytes
    /// each. The options `write_buffer_bytes` and `block_cache_bytes` override it.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Invalid`] if the memtables leave nothing for a cache.
    pub(crate) fn of(setup: &Setup, buffers: u64, write_buffer_bytes_max: u64) -> Result<Self> {
        let own = Self::memtable_bytes(setup).min(write_buffer_bytes_max);
        let write_buffer_bytes = setup.extra("write_buffer_bytes")?.unwrap_or(own);
        let left = write_buffer_bytes
            .checked_mul(buffers)
            .and_then(|all| setup.memory_bytes.checked_sub(all));
        let left = left.filter(|&bytes| bytes > 0).ok_or_else(|| {
            Error::invalid(format!(
                "{buffers} write buffers of {write_buffer_bytes} bytes leave nothing of {} for a cache: give more \
                 memory, or a smaller write_buffer_bytes",
                setup.memory_bytes
            ))
        })?;
        Ok(Self {
            write_buffer_bytes,
            cache_bytes: setup.extra("block_cache_bytes")?.unwrap_or(left),
        })
    }
}

/// The number of threads for flushes and compactions: as requested, or one per processor and at
/// most four. Never below two, because a flush must not wait for a compaction.
pub(crate) fn background_threads(setup: &Setup) -> usize {
    let own = || std::thread::available_parallelism().map_or(2, |count| count.get().min(4));
    let told = setup.background_threads;
    (if told == 0 { own() } else { told }).max(2)
}

/// Settings in the form used by reports.
pub(crate) fn described<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_bench::Compression;
    use firndb::Durability;

    fn setup(memory_bytes: u64, extra: &[(&str, &str)]) -> Setup {
        let extra = extra
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Setup {
            directory: "nowhere".into(),
            memory_bytes,
            compression: Compression::None,
            direct_io: false,
            background_threads: 0,
            durability: Durability::Process,
            records_max: 0,
            key_bytes_max: 0,
            value_bytes_max: 0,
            pm: None,
            extra,
        }
    }

    #[test]
    fn shares_add_up_to_the_budget() {
        for memory_bytes in [32 << 20, 512 << 20, 4 << 30] {
            let share = Share::of(&setup(memory_bytes, &[]), 3, u64::MAX).unwrap();
            assert_eq!(
                share.write_buffer_bytes * 3 + share.cache_bytes,
                memory_bytes
            );
            assert!(share.write_buffer_bytes <= 64 << 20);
        }
    }

    #[test]
    fn options_overrule_and_too_much_is_refused() {
        let share = Share::of(&setup(64 << 20, &[("block_cache_bytes", "7")]), 3, 1 << 20).unwrap();
        assert_eq!(
            share,
            Share {
                write_buffer_bytes: 1 << 20,
                cache_bytes: 7
            }
        );
        assert!(
            Share::of(
                &setup(64 << 20, &[("write_buffer_bytes", "67108864")]),
                1,
                u64::MAX
            )
            .is_err()
        );
        assert!(
            Share::of(
                &setup(64 << 20, &[("write_buffer_bytes", "many")]),
                1,
                u64::MAX
            )
            .is_err()
        );
    }
}
