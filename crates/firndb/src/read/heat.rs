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

/// The recent part of a count that only grows. Half of it is forgotten every [`HALF_LIFE_NS`].
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Recent {
    at_ns: u64,
    /// The count at that time.
    seen: u64,
    /// The part of it that is not forgotten.
    left: f64,
}

impl Recent {
    /// The recent part of `count`, as of `now_ns`.
    pub(crate) fn of(&mut self, count: u64, now_ns: u64) -> f64 {
        let lives = now_ns.saturating_sub(self.at_ns) / HALF_LIFE_NS;
        if lives > 0 {
            *self = Recent {
                at_ns: self.at_ns + lives * HALF_LIFE_NS,
                seen: count,
                left: self.of_all(count) * 0.5_f64.powi(lives.min(1000) as i32),
            };
        }
        self.of_all(count)
    }

    /// The same, with nothing forgotten since the last time.
    fn of_all(&self, count: u64) -> f64 {
        self.left + (count - self.seen) as f64
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    hits: Recent,
    /// The searches in vain at the last merge of unsorted tables.
    wasted_at_merge: u64,
    /// The last merges within persistent memory, and out of it.
    last_internal: Option<Merged>,
    last_major: Option<Merged>,
}

/// A merge of a partition that was installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merged {
    pub(crate) at_ns: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
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
        // Read under the lock, so that the count does not fall.
        let hits = self.hits.get();
        seen.hits.of(hits, now_ns)
    }

    /// Tables searched in vain since the last merge.
    pub(crate) fn wasted(&self) -> u64 {
        let seen = self.seen.lock();
        // Read under the lock: a merge that ends meanwhile would be ahead of an earlier sum.
        self.wasted.get() - seen.wasted_at_merge
    }

    /// Notes a merge. `stays` says that its output is in persistent memory. If unsorted tables were
    /// merged, searches in vain count anew.
    pub(crate) fn merged(&self, merged: Merged, stays: bool, is_unsorted: bool) {
        let mut seen = self.seen.lock();
        if is_unsorted {
            seen.wasted_at_merge = self.wasted.get();
        }
        match stays {
            true => seen.last_internal = Some(merged),
            false => seen.last_major = Some(merged),
        }
    }

    /// The last merges within persistent memory, and out of it.
    pub(crate) fn last_merges(&self) -> (Option<Merged>, Option<Merged>) {
        let seen = self.seen.lock();
        (seen.last_internal, seen.last_major)
    }

    /// The reads of a partition whose keys were in partitions with the reads `before`, each of
    /// which is divided among so many partitions now: equal parts of them, because it is not known
    /// which keys were read.
    pub(crate) fn of<'a>(before: impl Iterator<Item = (&'a Heat, usize)>) -> Heat {
        let (mut seen, heat) = (Seen::default(), Heat::default());
        for (before, parts) in before {
            let other = *before.seen.lock();
            let recent = other.hits.of_all(before.hits.get());
            let wasted = before.wasted.get().saturating_sub(other.wasted_at_merge);
            heat.wasted.add(wasted / parts as u64);
            let (all, at_ns) = (seen.hits, seen.hits.at_ns.max(other.hits.at_ns));
            let left = |at: u64| 0.5_f64.powf((at_ns - at) as f64 / HALF_LIFE_NS as f64);
            let of_other = recent / parts as f64 * left(other.hits.at_ns);
            seen.hits = Recent {
                at_ns,
                seen: 0,
                left: all.left * left(all.at_ns) + of_other,
            };
            let later = |a: Option<Merged>, b: Option<Merged>| {
                a.into_iter().chain(b).max_by_key(|merged| merged.at_ns)
            };
            seen.last_internal = later(seen.last_internal, other.last_internal);
            seen.last_major = later(seen.last_major, other.last_major);
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

    fn merged(at_ns: u64) -> Merged {
        Merged {
            at_ns,
            bytes_in: 2,
            bytes_out: 1,
        }
    }

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
        one.merged(merged(3), true, false);
        other.merged(merged(4), true, false);
        other.merged(merged(5), false, false);
        let union = Heat::of([(&one, 1), (&other, 1)].into_iter());
        assert_eq!((union.hits(2 * HALF_LIFE_NS), union.wasted()), (90.0, 280));
        assert_eq!(union.last_merges(), (Some(merged(4)), Some(merged(5))));
        union.merged(merged(9), true, true);
        union.searched(2, false);
        assert_eq!((union.hits(3 * HALF_LIFE_NS), union.wasted()), (45.0, 1));
    }

    #[test]
    fn searches_in_vain_count_from_the_last_merge_on() {
        let heat = Heat::default();
        heat.searched(4, true);
        heat.searched(3, false);
        assert_eq!(heat.wasted(), 5);
        heat.merged(merged(1), false, false);
        assert_eq!(heat.wasted(), 5, "a merge of sorted tables saves no search");
        heat.merged(merged(2), true, true);
        heat.searched(2, true);
        assert_eq!(heat.wasted(), 1);
    }
}
