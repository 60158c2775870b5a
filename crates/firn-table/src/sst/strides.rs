//! How far cursors go on in a table from where they begin: who most often goes on reads more blocks by the first read.
//!
//! That differs from table to table more than from scan to scan. Of one scan the table of the last level gives most
//! entries, and those above it one block each.

use firn_base::sync::{AtomicU64, Ordering};

/// About so many strides count.
const MEMORY: u64 = 16;
/// Longer ones count as this.
const STRIDE_MAX: usize = 1 << 10;

/// The strides of a table's cursors, summed up: a hint, so what two cursors note at the same time may count once.
#[derive(Debug, Default)]
pub(super) struct Strides(AtomicU64);

impl Strides {
    /// A cursor began somewhere and went on until it had been in so many blocks.
    pub(super) fn note(&self, blocks: usize) {
        let sum = self.0.load(Ordering::Relaxed);
        self.0.store(sum - sum / MEMORY + blocks.min(STRIDE_MAX) as u64, Ordering::Relaxed);
    }

    /// Blocks of a stride, in the mean.
    pub(super) fn mean(&self) -> usize {
        (self.0.load(Ordering::Relaxed) / MEMORY) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows() {
        let strides = Strides::default();
        assert_eq!(strides.mean(), 0);
        (0..100).for_each(|_| strides.note(1));
        assert_eq!(strides.mean(), 1);
        (0..100).for_each(|_| strides.note(12));
        assert_eq!(strides.mean(), 12);
        (0..200).for_each(|_| strides.note(usize::MAX));
        assert!((900..=1024).contains(&strides.mean()), "{}", strides.mean());
        (0..200).for_each(|_| strides.note(1));
        assert_eq!(strides.mean(), 1);
    }
}
