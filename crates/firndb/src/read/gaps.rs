//! Key ranges known to hold no live key, so that no cursor walks over the same deleted keys twice.
//!
//! A queue is filled at one end and emptied at the other. Without gaps, each read of its head would
//! walk over the tombstones of all removed entries, and over the entries that they hide.
//!
//! 1. A cursor that walked over many deleted keys reports their range, with its read point `s`.
//!    Once the range is a gap, every cursor with a read point of at least `s` skips it, in either
//!    direction.
//! 2. A put ends a gap. The thread that publishes a group of writes first splits the gaps at its
//!    puts, under the lock that orders publications, and then raises `visible`. So a read point
//!    that sees the put finds the gap split around it.
//! 3. Reports take the same lock. If nothing was published since `s`, the range is a gap. Otherwise
//!    a put that the cursor did not see may have fallen into it, so the range is only watched: from
//!    now on puts split it as they split gaps, and the part that a later cursor finds deleted
//!    again, at a read point that saw all earlier writes, becomes a gap.
//! 4. Deletes, flushes and compactions change nothing, because a dead key stays dead for every
//!    later read point.
//!
//! Gaps are in memory only and few in number: the ones that save the most are kept.

#[cfg(test)]
#[cfg(shuttle)]
mod interleave;

use firn_base::SeqNo;
use firn_base::sync::ArcSwapOption;
use std::sync::Arc;

/// The number of deleted keys in a row that are worth a report.
pub(crate) const REPORT_MIN: u64 = 8;
/// The number of gaps that are kept.
const GAPS_MAX: usize = 32;
/// The longest borders that are kept, in bytes, both keys of a gap together.
const BORDER_BYTES_MAX: usize = 4 << 10;

/// The first key after `key`.
pub(crate) fn behind(key: &[u8]) -> Vec<u8> {
    let mut behind = Vec::with_capacity(key.len() + 1);
    behind.extend_from_slice(key);
    behind.push(0);
    behind
}

/// A range of keys without a live key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The first key in the range. The empty key is before all others.
    pub(crate) from: Vec<u8>,
    /// The first key after the range; `None` if it has no end.
    pub(crate) to: Option<Vec<u8>>,
    /// The first read point for which the gap holds.
    pub(crate) since: SeqNo,
    /// The approximate number of deleted keys in the range.
    pub(crate) dead: u64,
}

impl Gap {
    fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// True if both form one contiguous range.
    fn touches(&self, other: &Gap) -> bool {
        let reaches = |a: &Gap, b: &Gap| a.to.as_deref().is_none_or(|to| b.from.as_slice() <= to);
        reaches(self, other) && reaches(other, self)
    }

    fn is_empty(&self) -> bool {
        self.to
            .as_deref()
            .is_some_and(|to| to <= self.from.as_slice())
    }

    /// The range in both, dead since the later of their read points.
    fn common(&self, other: &Gap) -> Option<Gap> {
        let from = self.from.clone().max(other.from.clone());
        let to = match (&self.to, &other.to) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        let both = Gap {
            from,
            to,
            since: self.since.max(other.since),
            dead: self.dead.min(other.dead),
        };
        (!both.is_empty()).then_some(both)
    }

    /// The range in either. REQUIRES: they touch.
    fn joined(self, other: &Gap) -> Gap {
        let to = match (self.to, &other.to) {
            (Some(a), Some(b)) => Some(if a < *b { b.clone() } else { a }),
            _ => None,
        };
        let from = if other.from < self.from {
            other.from.clone()
        } else {
            self.from
        };
        Gap {
            from,
            to,
            since: self.since.max(other.since),
            dead: self.dead.max(other.dead),
        }
    }

    /// The ranges on both sides of `key`, without it.
    fn split(&self, key: &[u8]) -> [Gap; 2] {
        let half = Gap {
            dead: self.dead / 2,
            ..self.clone()
        };
        [
            Gap {
                to: Some(key.to_vec()),
                ..half.clone()
            },
            Gap {
                from: behind(key),
                ..half
            },
        ]
    }
}

/// The gaps, as readers see them.
#[derive(Default)]
pub(crate) struct Gaps {
    /// The gaps by key; none touches another. `None` for an empty list.
    list: ArcSwapOption<Vec<Gap>>,
}

/// The state that puts and reports change. Its lock orders the publication of writes.
#[derive(Default)]
pub(crate) struct Watch {
    watched: Option<Gap>,
    /// The gaps as readers see them.
    gaps: Vec<Gap>,
}

impl Gaps {
    /// The gap that contains `key`, for a cursor with read point `seqno`.
    #[inline]
    pub(crate) fn at(&self, key: &[u8], seqno: SeqNo) -> Option<Gap> {
        let list = self.list.load();
        let list = list.as_ref()?;
        let at = list
            .partition_point(|gap| gap.from.as_slice() <= key)
            .checked_sub(1)?;
        list.get(at)
            .filter(|gap| gap.contains(key) && gap.since <= seqno)
            .cloned()
    }

    /// The gap that begins before `border` and reaches it, or the end of all keys if there is no
    /// border, for a cursor with read point `seqno`.
    #[inline]
    pub(crate) fn before(&self, border: Option<&[u8]>, seqno: SeqNo) -> Option<Gap> {
        let list = self.list.load();
        let list = list.as_ref()?;
        let at = border.map_or(list.len(), |border| {
            list.partition_point(|gap| gap.from.as_slice() < border)
        });
        let gap = list.get(at.checked_sub(1)?)?;
        let reaches = match (&gap.to, border) {
            (Some(to), Some(border)) => border <= to.as_slice(),
            (to, _) => to.is_none(),
        };
        (reaches && gap.since <= seqno).then(|| gap.clone())
    }

    /// Takes the report of a walk. `visible` is the last published sequence number. REQUIRES: the
    /// lock on `watch`.
    pub(crate) fn report(&self, watch: &mut Watch, walked: Gap, visible: SeqNo) {
        let border_bytes = walked.from.len() + walked.to.as_ref().map_or(0, Vec::len);
        if walked.is_empty() || border_bytes > BORDER_BYTES_MAX {
            return;
        }
        if walked.since == visible {
            self.add(watch, walked);
            return;
        }
        if let Some(watched) = &watch.watched {
            if watched.since > walked.since {
                // The range of a later cursor is waiting to be confirmed.
                return;
            }
            if let Some(confirmed) = watched.common(&walked) {
                self.add(watch, confirmed);
            }
        }
        watch.watched = Some(Gap {
            since: visible,
            ..walked
        });
    }

    fn add(&self, watch: &mut Watch, mut gap: Gap) {
        watch.gaps.retain(|other| {
            let touches = gap.touches(other);
            if touches {
                gap = gap.clone().joined(other);
            }
            !touches
        });
        let at = watch.gaps.partition_point(|other| other.from < gap.from);
        watch.gaps.insert(at, gap);
        self.publish(watch);
    }

    fn publish(&self, watch: &mut Watch) {
        while watch.gaps.len() > GAPS_MAX {
            let least = watch
                .gaps
                .iter()
                .enumerate()
                .min_by_key(|(_, gap)| gap.dead)
                .map_or(0, |(i, _)| i);
            watch.gaps.remove(least);
        }
        self.list
            .store((!watch.gaps.is_empty()).then(|| Arc::new(watch.gaps.clone())));
    }

    /// Splits the gap around `key`, whose put is about to be published. REQUIRES: the lock on
    /// `watch`.
    pub(crate) fn put(&self, watch: &mut Watch, key: &[u8]) {
        if let Some(watched) = watch.watched.take_if(|watched| watched.contains(key)) {
            let [front, behind] = watched.split(key);
            watch.watched = Some(if front.is_empty() { behind } else { front });
        }
        let at = watch.gaps.partition_point(|gap| gap.from.as_slice() <= key);
        let Some(at) = at.checked_sub(1).filter(|&at| watch.gaps[at].contains(key)) else {
            return;
        };
        let halves = watch.gaps[at]
            .split(key)
            .into_iter()
            .filter(|half| !half.is_empty() && half.dead > 0);
        let halves: Vec<Gap> = halves.collect();
        watch.gaps.splice(at..=at, halves);
        self.publish(watch);
    }
}

impl Watch {
    /// True if puts need not be checked.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.gaps.is_empty() && self.watched.is_none()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn gap(from: &str, to: &str, since: u64, dead: u64) -> Gap {
        let to = (!to.is_empty()).then(|| to.as_bytes().to_vec());
        Gap {
            from: from.as_bytes().to_vec(),
            to,
            since: SeqNo(since),
            dead,
        }
    }

    fn borders(gaps: &Gaps) -> Vec<(String, String)> {
        let text = |key: &[u8]| key.escape_ascii().to_string();
        let list = gaps.list.load_full().unwrap_or_default();
        list.iter()
            .map(|gap| (text(&gap.from), text(gap.to.as_deref().unwrap_or_default())))
            .collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(from, to)| ((*from).to_owned(), (*to).to_owned()))
            .collect()
    }

    #[test]
    fn reports_join_and_puts_split() {
        let (gaps, mut watch) = <(Gaps, Watch)>::default();
        gaps.report(&mut watch, gap("b", "d", 5, 10), SeqNo(5));
        gaps.report(&mut watch, gap("x", "", 6, 10), SeqNo(6));
        gaps.report(&mut watch, gap("d", "f", 7, 10), SeqNo(7));
        assert_eq!(borders(&gaps), pairs(&[("b", "f"), ("x", "")]));
        // An older read point may see keys that were deleted since.
        assert_eq!(gaps.at(b"c", SeqNo(6)), None);
        assert_eq!(gaps.at(b"c", SeqNo(7)).unwrap().to.unwrap(), b"f");
        assert_eq!(gaps.at(b"f", SeqNo(9)), None);
        assert_eq!(gaps.before(Some(b"f"), SeqNo(9)).unwrap().from, b"b");
        assert_eq!(gaps.before(Some(b"g"), SeqNo(9)), None);
        assert_eq!(gaps.before(None, SeqNo(9)).unwrap().from, b"x");
        gaps.put(&mut watch, b"d");
        gaps.put(&mut watch, b"w");
        assert_eq!(
            borders(&gaps),
            pairs(&[("b", "d"), ("d\\x00", "f"), ("x", "")])
        );
    }

    #[test]
    fn what_a_put_may_have_met_must_be_found_dead_again() {
        let (gaps, mut watch) = <(Gaps, Watch)>::default();
        gaps.report(&mut watch, gap("a", "m", 5, 10), SeqNo(8));
        assert_eq!(borders(&gaps), []);
        assert!(!watch.is_empty(), "puts are looked at from now on");
        gaps.put(&mut watch, b"k");
        // This read point is from before the watch began, so it proves nothing.
        gaps.report(&mut watch, gap("a", "m", 7, 10), SeqNo(9));
        assert_eq!(borders(&gaps), []);
        gaps.report(&mut watch, gap("c", "z", 9, 10), SeqNo(10));
        assert_eq!(borders(&gaps), pairs(&[("c", "k")]));
    }

    #[test]
    fn the_gaps_that_save_most_stay() {
        let (gaps, mut watch) = <(Gaps, Watch)>::default();
        for i in 0..100_u64 {
            gaps.report(
                &mut watch,
                gap(&format!("{i:03}"), &format!("{i:03}x"), 1, 10 + i),
                SeqNo(1),
            );
        }
        assert_eq!(borders(&gaps).len(), GAPS_MAX);
        assert!(gaps.at(b"099", SeqNo(1)).is_some() && gaps.at(b"000", SeqNo(1)).is_none());
        let long = "k".repeat(BORDER_BYTES_MAX);
        gaps.report(&mut watch, gap(&long, "z", 1, 1000), SeqNo(1));
        assert!(
            gaps.at(long.as_bytes(), SeqNo(1)).is_none(),
            "borders take little memory"
        );
    }
}
