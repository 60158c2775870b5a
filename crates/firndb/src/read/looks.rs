//! The use of cursors: to look at single entries, or to scan.

use firn_base::sync::{AtomicU64, Ordering};

/// How the cursors of a database are used, as a score. A seek that finds its key adds one if the
/// cursor does not move on from there, and takes one away if it does.
#[derive(Debug, Default)]
pub(crate) struct Looks(AtomicU64);

impl Looks {
    const MOST: u64 = 16;

    /// Counts a seek that found its key. `is_single` is true if no move followed.
    #[inline]
    pub(crate) fn note(&self, is_single: bool) {
        let now = self.0.load(Ordering::Relaxed);
        let next = match is_single {
            true => (now + 1).min(Self::MOST),
            false => now.saturating_sub(1),
        };
        // Mostly all are used alike, and then nothing is written. A lost count does no harm.
        if next != now {
            self.0.store(next, Ordering::Relaxed);
        }
    }

    /// True if most seeks are looks at single entries.
    #[inline]
    pub(crate) fn are_usual(&self) -> bool {
        self.0.load(Ordering::Relaxed) > Self::MOST / 2
    }
}
