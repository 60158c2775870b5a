//! Memory for merges of values that are large beside the memory limit, lent by the block cache before they begin.
//!
//! 1. A merge's share of I/O covers a block and two stretches for each input, and two buffers of output. What a block
//!    takes that is larger than a stretch is lent: a merge has one such block in memory from above and one from below,
//!    and each once more on its way from the file, or to it where it is compressed.
//! 2. Where that does not fit, one merge goes on alone and the others wait for it. So each comes to its end.
//! 3. A flush does not wait, because writers wait for it: its values are in memory already, and only compressing one
//!    takes more.

use crate::compaction::plan::{Plan, Reason};
use crate::engine::Engine;
use crate::read::run::MemoryReservation;
use firn_base::Result;
use firn_base::sync::Mutex;
use std::time::Duration;

/// How many merges have a loan.
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

/// Blocks of the largest size that a merge has in memory: see 1.
const LARGE_BLOCKS: u64 = 3;

/// Bytes that a merge needs beside its share of I/O if its largest block has `block_bytes_max`.
fn bytes_for(block_bytes_max: u64, stretch_bytes: u64) -> u64 {
    if block_bytes_max > stretch_bytes { LARGE_BLOCKS * block_bytes_max } else { 0 }
}

impl Engine {
    /// Borrows what `plan` needs, which takes no more large blocks than a merge of one key range does, and values of up
    /// to `value_bytes_max` from logs; waits for other merges if need be.
    ///
    /// # Errors
    /// `Invalid` if the database is being closed.
    pub(crate) fn borrow_for(&self, plan: &Plan, value_bytes_max: u64) -> Result<Option<Loan<'_>>> {
        const WAIT: Duration = Duration::from_millis(20);
        let stretch = self.compaction.stretch_bytes as u64;
        let bytes = match (plan.reason, &plan.buffer) {
            // It was made for one large value, or a few.
            (Reason::Flush, Some(buffer)) if buffer.capacity_bytes() > 2 * self.budget.write_buffer_bytes => {
                buffer.capacity_bytes() as u64
            }
            _ => bytes_for(plan.block_bytes_max().max(value_bytes_max), stretch),
        };
        if bytes == 0 {
            return Ok(None);
        }
        let buffers = self.budget.write_buffer_bytes as u64 * self.options.limits.write_buffers as u64;
        loop {
            let seen = self.progress();
            let mut loans = self.jobs.loans.0.lock();
            if *loans == 0 || plan.reason == Reason::Flush || self.tables.lendable(buffers) >= bytes {
                *loans += 1;
                // With the lock: the next one sees what is left.
                let lent = self.tables.lend(bytes);
                return Ok(Some(Loan { _lent: lent, loans: &self.jobs.loans }));
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
        assert_eq!(bytes_for(64 << 10, 64 << 10), 0, "it has its place in a stretch");
        assert_eq!(bytes_for(1 << 20, 64 << 10), 3 << 20);
    }
}
