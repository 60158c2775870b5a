//! Loans of memory for compactions of values that are large compared with the memory limit. The
//! block cache lends it before they begin.
//!
//! 1. A compaction's share of I/O covers a block and two readaheads for each input, and two buffers
//!    of output. Memory for a block larger than a readahead is borrowed. A compaction has one such
//!    block in memory from above and one from below, and each once more on its way from the file,
//!    or to it if it is compressed.
//! 2. If that does not fit, one compaction continues alone and the others wait for it. So each one
//!    finishes.
//! 3. A flush does not wait, because writers wait for it. Its values are already in memory, and
//!    only compressing one takes more.

use crate::compaction::plan::{Plan, Reason};
use crate::engine::Engine;
use crate::read::table_run::MemoryReservation;
use firn_base::Result;
use firn_base::sync::Mutex;
use std::time::Duration;

/// The number of jobs that have a loan.
#[derive(Default)]
pub(crate) struct Loans(Mutex<usize>);

/// A loan, until it is dropped.
pub(crate) struct Loan<'a> {
    _lent: MemoryReservation<'a>,
    loans: &'a Loans,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        *self.loans.0.lock() -= 1;
    }
}

/// The number of blocks of the largest size that a compaction has in memory; see 1.
const LARGE_BLOCKS: u64 = 3;

/// Bytes that a compaction needs in addition to its share of I/O if its largest block has
/// `block_bytes_max`.
fn bytes_for(block_bytes_max: u64, stretch_bytes: u64) -> u64 {
    if block_bytes_max > stretch_bytes {
        LARGE_BLOCKS * block_bytes_max
    } else {
        0
    }
}

impl Engine {
    /// Borrows the memory that `plan` needs. It has no more large blocks in memory than a
    /// compaction of one key range does, and values of up to `value_bytes_max` from logs. Waits for
    /// other compactions if necessary.
    ///
    /// # Errors
    /// `Invalid` if the database is being closed.
    pub(crate) fn borrow_for(&self, plan: &Plan, value_bytes_max: u64) -> Result<Option<Loan<'_>>> {
        const WAIT: Duration = Duration::from_millis(20);
        let stretch = self.compaction.stretch_bytes as u64;
        let bytes = match (plan.reason, plan.buffers.first()) {
            // The memtable was created for one large value, or a few.
            (Reason::Flush, Some(buffer))
                if buffer.capacity_bytes() > 2 * self.budget.write_buffer_bytes =>
            {
                buffer.capacity_bytes() as u64
            }
            _ => bytes_for(plan.block_bytes_max().max(value_bytes_max), stretch),
        };
        if bytes == 0 {
            return Ok(None);
        }
        let buffers =
            self.budget.write_buffer_bytes as u64 * self.options.limits.write_buffers as u64;
        loop {
            let seen = self.progress();
            let mut loans = self.jobs.loans.0.lock();
            if *loans == 0 || plan.reason == Reason::Flush || self.tables.lendable(buffers) >= bytes
            {
                *loans += 1;
                // Lent under the lock, so that the next borrower sees the remainder.
                let lent = self.tables.lend(bytes);
                return Ok(Some(Loan {
                    _lent: lent,
                    loans: &self.jobs.loans,
                }));
            }
            drop(loans);
            self.compaction.check_open()?;
            self.flush_if_due();
            self.wait_for_background(seen, WAIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_blocks_are_borrowed_for() {
        assert_eq!(bytes_for(0, 64 << 10), 0);
        assert_eq!(
            bytes_for(64 << 10, 64 << 10),
            0,
            "it has its place in a stretch"
        );
        assert_eq!(bytes_for(1 << 20, 64 << 10), 3 << 20);
    }
}
