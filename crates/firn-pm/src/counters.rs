//! Counts of the operations on each owner's persistent memory. Counted where the bytes move.
//!
//! Thread safety: relaxed counters in stripes, so that readers on two cores do not contend for one
//! line.

use crate::owner::Owner;
use firn_base::count::Counter;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

const STRIPES: usize = 8;

/// The totals of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnerCounts {
    /// Cache lines stored to, by `store`, `publish` and non-temporal copies.
    pub lines_stored: u64,
    /// Cache lines flushed. A line copied past the cache is not flushed.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Bytes read, borrowed ones included.
    pub bytes_read: u64,
    /// Bytes stored.
    pub bytes_written: u64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([Row; Owner::SLOTS]);

#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) lines_stored: Counter,
    pub(crate) flushes: Counter,
    pub(crate) fences: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    stripes: [Stripe; STRIPES],
}

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static STRIPE: Cell<usize> = Cell::new(NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES);
}

impl Counters {
    /// This thread's row for the owner with this number. Row 0 counts reads of unowned bytes.
    #[inline]
    pub(crate) fn row(&self, owner: u8) -> &Row {
        let stripe = STRIPE.with(Cell::get);
        &self.stripes[stripe].0[usize::from(owner).min(Owner::SLOTS - 1)]
    }

    pub(crate) fn sum(&self, owner: Owner) -> OwnerCounts {
        let mut sum = OwnerCounts::default();
        for stripe in &self.stripes {
            let row = &stripe.0[owner as usize];
            sum.lines_stored += row.lines_stored.get();
            sum.flushes += row.flushes.get();
            sum.fences += row.fences.get();
            sum.bytes_read += row.bytes_read.get();
            sum.bytes_written += row.bytes_written.get();
        }
        sum
    }
}
