//! The use of cursors: to look at single entries, or to scan.

use firn_base::sync::{AtomicU64, Ordering};

/// How the cursors of a database are used: the number of looks at single entries among the latest
/// seeks that found their key, each of the others being one less.
#[derive(Debug, Default)]
pub(crate) struct Looks(AtomicU64);

impl Looks {
    const MOST: u64 = 16;

    /// Counts a seek that found its key, and that no move followed, or one.
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
