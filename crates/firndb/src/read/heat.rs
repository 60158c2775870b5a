//! The reads of a partition, which a policy weighs against the cost of compactions.
//!
//! Hits are forgotten by half every [`HALF_LIFE_NS`], never at once, so a partition that was just
//! compacted does not look cold.

use firn_base::count::Counter;
use firn_base::sync::Mutex;

/// The time in which half of the hits are forgotten.
const HALF_LIFE_NS: u64 = 10_000_000_000;

/// The reads of a partition below the memtables and the rows.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    /// Entries found in tables.
    hits: Counter,
    /// Tables searched in vain before an entry was found, or the search ended.
    wasted: Counter,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    at_ns: u64,
    hits: u64,
    /// Hits that are not forgotten.
    recent: f64,
    /// The searches in vain at the last merge of unsorted tables.
    wasted_at_merge: u64,
}

impl Heat {
    /// Counts a search that visited `tables`.
    #[inline]
    pub(crate) fn searched(&self, tables: u64, found: bool) {
        if found {
            self.hits.add(1);
        }
        if tables > 1 {
            self.wasted.add(tables - 1);
        }
    }

    /// Recent hits, as of `now_ns`.
    pub(crate) fn hits(&self, now_ns: u64) -> f64 {
        let mut seen = self.seen.lock();
        let lives = now_ns.saturating_sub(seen.at_ns) / HALF_LIFE_NS;
        if lives > 0 {
            let hits = self.hits.get();
            let new = (hits - seen.hits) as f64;
            let left = 0.5_f64.powi(lives.min(1000) as i32);
            *seen = Seen {
                at_ns: seen.at_ns + lives * HALF_LIFE_NS,
                hits,
                recent: (seen.recent + new) * left,
                ..*seen
            };
        }
        seen.recent + (self.hits.get() - seen.hits) as f64
    }

    /// Tables searched in vain since the last merge.
    pub(crate) fn wasted(&self) -> u64 {
        let seen = self.seen.lock();
        // Read under the lock: a merge that ends meanwhile would be ahead of an earlier sum.
        self.wasted.get() - seen.wasted_at_merge
    }

    /// Begins to count searches in vain anew, because unsorted tables were merged.
    pub(crate) fn merged(&self) {
        let mut seen = self.seen.lock();
        seen.wasted_at_merge = self.wasted.get();
    }

    /// The reads of a partition whose keys were in partitions with the reads `before`, each of
    /// which is divided among so many partitions now: equal parts of them, because it is not known
    /// which keys were read.
    pub(crate) fn of<'a>(before: impl Iterator<Item = (&'a Heat, usize)>) -> Heat {
        let (mut seen, heat) = (Seen::default(), Heat::default());
        for (before, parts) in before {
            let other = *before.seen.lock();
            let recent = other.recent + (before.hits.get() - other.hits) as f64;
            let wasted = before.wasted.get().saturating_sub(other.wasted_at_merge);
            heat.wasted.add(wasted / parts as u64);
            let at_ns = seen.at_ns.max(other.at_ns);
            let left = |at: u64| 0.5_f64.powf((at_ns - at) as f64 / HALF_LIFE_NS as f64);
            seen.recent =
                seen.recent * left(seen.at_ns) + recent / parts as f64 * left(other.at_ns);
            seen.at_ns = at_ns;
        }
        Heat {
            seen: Mutex::new(seen),
            ..heat
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn hits_are_forgotten_by_half() {
        let heat = Heat::default();
        (0..100).for_each(|_| heat.searched(1, true));
        assert_eq!(heat.hits(1), 100.0);
        assert_eq!(heat.hits(HALF_LIFE_NS), 50.0);
        (0..10).for_each(|_| heat.searched(1, true));
        assert_eq!(heat.hits(HALF_LIFE_NS + 5), 60.0);
        assert_eq!(heat.hits(3 * HALF_LIFE_NS), 15.0);
        assert!(heat.hits(2000 * HALF_LIFE_NS) < 1e-9);
    }

    #[test]
    fn reads_follow_the_borders() {
        let heat = |hits: u64, at_ns: u64| {
            let heat = Heat::default();
            heat.hits(at_ns);
            (0..hits).for_each(|_| heat.searched(3, true));
            heat
        };
        let (one, other) = (heat(100, HALF_LIFE_NS), heat(40, 2 * HALF_LIFE_NS));
        let half = Heat::of([(&one, 2)].into_iter());
        assert_eq!((half.hits(HALF_LIFE_NS), half.wasted()), (50.0, 100));
        let union = Heat::of([(&one, 1), (&other, 1)].into_iter());
        assert_eq!((union.hits(2 * HALF_LIFE_NS), union.wasted()), (90.0, 280));
        union.merged();
        union.searched(2, false);
        assert_eq!((union.hits(3 * HALF_LIFE_NS), union.wasted()), (45.0, 1));
    }

    #[test]
    fn searches_in_vain_count_from_the_last_merge_on() {
        let heat = Heat::default();
        heat.searched(4, true);
        heat.searched(3, false);
        assert_eq!(heat.wasted(), 5);
        heat.merged();
        heat.searched(2, true);
        assert_eq!(heat.wasted(), 1);
    }
}
