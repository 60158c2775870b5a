//! The division of `memory_limit_bytes`: write buffers first, then I/O and compaction, then caches.
//!
//! ```text
//! limit  = readers in flight (a 32nd) + what the allocator keeps (an eighth, or 8 MiB and a 32nd)
//!          + shared
//! shared = flushes and compactions (3/32) + write buffers (up to 3) + open tables + block cache
//! ```
//! The block cache has the part of `shared` that the others do not use at the moment. A database
//! that is only read gives it the memory of idle write buffers and compactions, and takes that back
//! as they need it. Each part is bounded, so the sum is a hard limit. Compactions borrow from the
//! block cache for values larger than one readahead (`compaction/background/loans.rs`).

use crate::options::Options;
use firn_base::{Error, Limits, Result};

/// The number of bytes for each user of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) write_buffer_bytes: usize,
    /// The size of the block cache while all write buffers are in use and the largest permitted
    /// number of tables is open.
    pub(crate) block_cache_bytes: u64,
    pub(crate) open_tables_bytes: u64,
    /// The bytes that write buffers, open tables and the block cache share. `None` if the options
    /// set the cache's size.
    pub(crate) shared_bytes: Option<u64>,
    /// The part of these bytes that flushes and compactions need, while one runs.
    pub(crate) job_bytes: u64,
    /// Bytes of one readahead from each input of a compaction.
    pub(crate) stretch_bytes: usize,
    /// The most level-0 tables that one compaction may take. Each has a block and two readaheads in
    /// memory.
    pub(crate) level0_inputs_max: usize,
    /// The most bytes of input that an append may hold in memory while it finds the blocks that
    /// they fall into.
    pub(crate) hold_bytes: usize,
    /// The most bytes that a table builder may hold of its keys, which it keeps until the table
    /// ends.
    pub(crate) keys_bytes: usize,
    /// Bytes of one write.
    pub(crate) io_bytes: usize,
    /// The largest batch, in bytes.
    pub(crate) batch_bytes_max: usize,
}

const WRITE_BUFFER_BYTES_MAX: u64 = 64 << 20;
const WRITE_BUFFER_BYTES_LIMIT: u64 = 2 << 30;
/// A reader's block waits on the device for the readahead of a compaction. One of this size takes a
/// quarter of a millisecond at 530 MB/s.
const STRETCH_BYTES_MAX: u64 = 128 << 10;
/// The number of inputs of all running compactions together, with two readaheads each.
const INPUTS: u64 = 64;

/// The bytes that an allocator keeps of memory that threads freed, whatever the limit.
const ALLOCATOR_BYTES: u64 = 8 << 20;

/// A device gains nothing from more, and each coroutine takes memory.
const IO_DEPTH_MAX: usize = 64;

/// Rejects limits that do not work together.
fn check_limits(limits: &Limits, levels_min: u64) -> Result<()> {
    let within =
        |name: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "limits.{name} is {value}; it must be from {least} to {most}"
            ))),
        };
    let (levels, most) = (limits.levels as u64, u64::MAX >> 8);
    within(
        "block_bytes",
        limits.block_bytes as u64,
        64,
        STRETCH_BYTES_MAX / 4,
    )?;
    within(
        "io_bytes",
        limits.io_bytes as u64,
        4 * limits.block_bytes as u64,
        1 << 30,
    )?;
    within(
        "restart_interval",
        limits.restart_interval as u64,
        1,
        1 << 16,
    )?;
    within(
        "table_bytes",
        limits.table_bytes,
        limits.block_bytes as u64,
        1 << 40,
    )?;
    within("level_base_bytes", limits.level_base_bytes, 1, most)?;
    within("level_fan_out", limits.level_fan_out, 2, 1 << 20)?;
    within("levels", levels, levels_min, 64)?;
    within("level0_rest", limits.level0_rest as u64, 1, most)?;
    within("level0_trigger", limits.level0_trigger as u64, 1, most)?;
    within(
        "level0_slow",
        limits.level0_slow as u64,
        limits.level0_trigger as u64,
        most,
    )?;
    within(
        "level0_stop",
        limits.level0_stop as u64,
        limits.level0_slow as u64 + 1,
        most,
    )?;
    within("write_buffers", limits.write_buffers as u64, 2, 1 << 10)?;
    within("group_bytes", limits.group_bytes as u64, 1, 1 << 30)?;
    within(
        "pm_log_buffer_bytes",
        limits.pm_log_buffer_bytes as u64,
        0,
        1 << 32,
    )?;
    within("manifest_bytes", limits.manifest_bytes, 1, most)?;
    within("seek_charge_bytes", limits.seek_charge_bytes, 1, most)
}

impl Budget {
    /// Divides `options.memory_limit_bytes`.
    ///
    /// # Errors
    /// `Invalid` if the parts that the options set exceed it.
    pub(crate) fn new(options: &Options) -> Result<Budget> {
        check_limits(&options.limits, options.levels_min())?;
        if !(1..=IO_DEPTH_MAX).contains(&options.compaction_io_depth) {
            return Err(Error::invalid(format!(
                "compaction_io_depth is {}; it must be from 1 to {IO_DEPTH_MAX}",
                options.compaction_io_depth
            )));
        }
        let trees = options.tree_memory_bytes();
        let limit = options.memory_limit_bytes.checked_sub(trees).ok_or_else(|| {
            Error::invalid(format!(
                "without persistent memory the trees of profile `lab` take {trees} bytes, and memory_limit_bytes \
                 is {}: lower tuning.lab.tree_bytes or raise memory_limit_bytes",
                options.memory_limit_bytes
            ))
        })?;
        let buffers = options.limits.write_buffers as u64;
        let write_buffer = options.write_buffer_bytes.unwrap_or(
            options
                .usual_buffer_bytes(limit)
                .min(WRITE_BUFFER_BYTES_MAX),
        );
        let block = options.limits.block_bytes as u64;
        if options.write_buffer_bytes.is_none() && write_buffer < 8 * block {
            return Err(Error::invalid(format!(
                "memory_limit_bytes is {limit} bytes; it must be at least {} (64 of the blocks that it buffers)",
                64 * block
            )));
        }
        if !(8 * block..=WRITE_BUFFER_BYTES_LIMIT).contains(&write_buffer) {
            return Err(Error::invalid(format!(
                "write_buffer_bytes is {write_buffer}; it must be from {} to {WRITE_BUFFER_BYTES_LIMIT}",
                8 * block
            )));
        }
        let io = limit / 8;
        let taken = write_buffer.saturating_mul(buffers).saturating_add(io);
        let left = limit.checked_sub(taken).filter(|&left| left >= limit / 8).ok_or_else(|| {
            Error::invalid(format!(
                "memory_limit_bytes is {limit}, too few for {buffers} write buffers of {write_buffer} bytes, their I/O \
                 and any cache; raise memory_limit_bytes or lower write_buffer_bytes"
            ))
        })?;
        let block_cache = options.block_cache_bytes.unwrap_or(left / 2);
        let open_tables = left.checked_sub(block_cache).ok_or_else(|| {
            Error::invalid(format!(
                "block_cache_bytes of {block_cache} does not fit memory_limit_bytes: {left} bytes are left beside the \
                 write buffers; raise memory_limit_bytes or lower block_cache_bytes"
            ))
        })?;
        let kept = (limit / 8).min(limit / 32 + ALLOCATOR_BYTES);
        // A quarter is for what readers have in flight, and is never lent.
        let job_bytes = io / 4 * 3;
        let shared = limit - (io - job_bytes) - kept;
        // Each coroutine of a worker is a compaction of its own.
        let io_each = io / options.coroutines() as u64;
        let stretch = (io_each / 2 / INPUTS).clamp(
            4 * block,
            (options.limits.io_bytes as u64).min(STRETCH_BYTES_MAX),
        );
        Ok(Budget {
            write_buffer_bytes: write_buffer as usize,
            block_cache_bytes: block_cache,
            open_tables_bytes: open_tables,
            shared_bytes: options.block_cache_bytes.is_none().then_some(shared),
            job_bytes,
            stretch_bytes: stretch as usize,
            level0_inputs_max: (io / (3 * stretch)).max(2) as usize,
            hold_bytes: (io_each / 8) as usize,
            keys_bytes: (io_each / 4) as usize,
            io_bytes: (io_each / 16).clamp(4 * block, options.limits.io_bytes as u64) as usize,
            batch_bytes_max: (limit / 4) as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inputs_of_a_merge_fit_its_share_of_io() {
        for memory_limit_bytes in [16 << 20, 64 << 20, 512 << 20, 16 << 30] {
            let budget = Budget::new(&Options {
                memory_limit_bytes,
                ..Options::default()
            })
            .unwrap();
            let io = memory_limit_bytes as usize / 8;
            assert!(
                budget.level0_inputs_max * 3 * budget.stretch_bytes <= io,
                "{memory_limit_bytes}"
            );
            assert!(
                budget.level0_inputs_max >= Limits::default().level0_stop,
                "no merge is cut as long as writers wait"
            );
        }
        let tiny = Budget::new(&Options::tiny()).unwrap();
        assert!(tiny.level0_inputs_max > Limits::tiny().level0_stop);
    }

    #[test]
    fn sorted_tables_need_a_level_of_files_below_theirs() {
        let mut options = Options::tiny().profile(crate::Profile::Blade);
        options.limits.levels = 2;
        let message = Budget::new(&options).err().unwrap().to_string();
        assert!(
            message.contains("limits.levels is 2; it must be from 3"),
            "{message}"
        );
        options.limits.levels = 3;
        assert!(Budget::new(&options).is_ok());
    }
}
