//! The groups of a table in which gets found entries, as a policy wants to know them.

use firn_base::sync::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// A set of groups, a bit for each, which takes memory once it has one.
#[derive(Debug, Default)]
pub(super) struct ReadGroups(OnceLock<Box<[AtomicU64]>>);

const WORD_BITS: usize = u64::BITS as usize;

impl ReadGroups {
    /// Adds one of `groups`.
    #[inline]
    pub(super) fn add(&self, group: usize, groups: usize) {
        let words = self.0.get_or_init(|| {
            let words = 0..groups.div_ceil(WORD_BITS);
            words.map(|_| AtomicU64::new(0)).collect()
        });
        let bit = 1 << (group % WORD_BITS);
        if let Some(word) = words.get(group / WORD_BITS)
            // Most often it is there, and the line stays shared.
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.get().map_or(0, |words| size_of_val(&**words))
    }

    pub(super) fn has(&self, group: usize) -> bool {
        let words = self.0.get().map_or(&[][..], |words| words);
        let word = words.get(group / WORD_BITS);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (group % WORD_BITS) != 0)
    }

    pub(super) fn count(&self) -> u32 {
        let words = self.0.get().map_or(&[][..], |words| words).iter();
        words
            .map(|word| word.load(Ordering::Relaxed).count_ones())
            .sum()
    }
}
