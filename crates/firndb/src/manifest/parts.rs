//! Partitions: key ranges whose tables are compacted on their own. In a profile that has them, a
//! partition is divided further into ranges: each table below level 0 lies within one.

use super::Level;
use std::sync::Arc;

/// The number of a partition. It stays the same while the borders around the partition change, and
/// is never used for another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartId(pub(crate) u32);

/// A partition border: the key, and the partition that begins there.
pub(crate) type Cut = (Vec<u8>, PartId);

/// The borders of the partitions, in key order. Without any there is one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    cuts: Arc<[Box<[u8]>]>,
    /// The partition before the first border, and those that begin at each.
    ids: Arc<[PartId]>,
    /// The borders of ranges inside partitions, in key order.
    ranges: Arc<[Box<[u8]>]>,
}

/// The keys of a partition: from the first, included, to the second, not included.
pub(crate) type PartRange<'a> = (&'a [u8], Option<&'a [u8]>);

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            cuts: Arc::default(),
            ids: Arc::new([PartId::default()]),
            ranges: Arc::default(),
        }
    }
}

/// The keys among the ascending `cuts` that are inside `range` and not at its ends.
pub(crate) fn within<'a>(cuts: &'a [Box<[u8]>], (from, to): PartRange<'_>) -> &'a [Box<[u8]>] {
    let begin = cuts.partition_point(|cut| **cut <= *from);
    let end = to.map_or(cuts.len(), |to| cuts.partition_point(|cut| **cut < *to));
    &cuts[begin..end.max(begin)]
}

/// The first keys of those among `tables`, by first key and bytes, that divide them into `pieces`
/// of about the same size. The first table is never one.
pub(crate) fn evenly<'a>(
    tables: impl Iterator<Item = (&'a [u8], u64)> + Clone,
    pieces: usize,
) -> Vec<Box<[u8]>> {
    let all: u64 = tables.clone().map(|(_, bytes)| bytes).sum();
    let piece = all.div_ceil(pieces as u64).max(1);
    let (mut cuts, mut before, mut next) = (Vec::<Box<[u8]>>::new(), 0, piece);
    for (i, (begin, bytes)) in tables.enumerate() {
        let is_due = before + bytes > next;
        before += bytes;
        if is_due && i > 0 {
            cuts.push(begin.into());
            next = before.div_ceil(piece) * piece;
        }
    }
    cuts
}

/// The first of the ascending `cuts` after `smallest` that is not after `largest`.
fn crossed<'a>(cuts: &'a [Box<[u8]>], smallest: &[u8], largest: &[u8]) -> Option<&'a [u8]> {
    let at = cuts.partition_point(|cut| **cut <= *smallest);
    cuts.get(at).map(|cut| &**cut).filter(|cut| *cut <= largest)
}

impl Layout {
    /// True if it has the same partitions as `other`, whatever their ranges are.
    pub(crate) fn has_parts_of(&self, other: &Layout) -> bool {
        Arc::ptr_eq(&self.ids, &other.ids) || (self.ids == other.ids && self.cuts == other.cuts)
    }

    /// The partitions, in key order.
    pub(crate) fn ids(&self) -> &[PartId] {
        &self.ids
    }

    /// The borders, in key order.
    pub(crate) fn cuts(&self) -> &Arc<[Box<[u8]>]> {
        &self.cuts
    }

    /// The borders of ranges, in key order.
    pub(crate) fn ranges(&self) -> &Arc<[Box<[u8]>]> {
        &self.ranges
    }

    /// The borders of ranges inside the partition with index `i`.
    pub(crate) fn ranges_of(&self, i: usize) -> &[Box<[u8]>] {
        within(&self.ranges, self.range(i))
    }

    /// The index of the partition that holds `key`.
    #[inline]
    pub(crate) fn part_of(&self, key: &[u8]) -> usize {
        if self.cuts.is_empty() {
            return 0;
        }
        self.cuts.partition_point(|cut| **cut <= *key)
    }

    /// The index of partition `id`, if it exists.
    pub(crate) fn index_of(&self, id: PartId) -> Option<usize> {
        self.ids.iter().position(|other| *other == id)
    }

    /// The keys of the partition with index `i`.
    pub(crate) fn range(&self, i: usize) -> PartRange<'_> {
        let from = i
            .checked_sub(1)
            .map_or(&[][..], |before| &self.cuts[before]);
        (from, self.cuts.get(i).map(|to| &**to))
    }

    /// The keys of the range that holds `key`, in the partition with index `i`.
    pub(crate) fn range_of(&self, i: usize, key: &[u8]) -> PartRange<'_> {
        let (from, to) = self.range(i);
        let cuts = self.ranges_of(i);
        let at = cuts.partition_point(|cut| **cut <= *key);
        let before = at.checked_sub(1).map(|before| &*cuts[before]);
        (
            before.unwrap_or(from),
            cuts.get(at).map(|cut| &**cut).or(to),
        )
    }

    /// The indexes of the partitions that have any of these keys.
    pub(crate) fn overlapping(&self, (from, to): PartRange<'_>) -> std::ops::Range<usize> {
        let last = to.map_or(self.cuts.len(), |to| {
            self.cuts.partition_point(|cut| **cut < *to)
        });
        self.part_of(from)..last + 1
    }

    /// The borders with the partitions that begin there.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = Cut> {
        let ids = self.ids.iter().skip(1).copied();
        self.cuts.iter().map(|cut| cut.to_vec()).zip(ids)
    }

    /// The next partition number.
    pub(crate) fn next_id(&self) -> PartId {
        PartId(self.ids.iter().map(|id| id.0).max().unwrap_or(0) + 1)
    }

    /// This layout without the borders `dropped`, and with `added`. The error is the name of the
    /// invariant that this would break.
    pub(crate) fn changed(
        &self,
        dropped: &[Vec<u8>],
        added: &[Cut],
    ) -> Result<Layout, &'static str> {
        let mut pairs: Vec<Cut> = self.pairs().collect();
        for cut in dropped {
            let at = pairs.iter().position(|(key, _)| key == cut);
            pairs.remove(at.ok_or("bordered: a border that is not there")?);
        }
        for (cut, id) in added {
            let at = pairs.partition_point(|(key, _)| key < cut);
            if cut.is_empty() || pairs.get(at).is_some_and(|(key, _)| key == cut) {
                return Err("bordered: a border that is there already");
            }
            if *id == self.ids[0] || pairs.iter().any(|(_, other)| other == id) {
                return Err("bordered: a partition that is there already");
            }
            pairs.insert(at, (cut.clone(), *id));
        }
        let ids = std::iter::once(self.ids[0]).chain(pairs.iter().map(|(_, id)| *id));
        Ok(Layout {
            ids: ids.collect(),
            cuts: pairs.iter().map(|(cut, _)| cut.as_slice().into()).collect(),
            ranges: self.ranges.clone(),
        })
    }

    /// This layout without the borders of ranges `dropped`, and with `added`. The error is the name
    /// of the invariant that this would break.
    pub(crate) fn with_ranges(
        &self,
        dropped: &[Vec<u8>],
        added: &[Vec<u8>],
    ) -> Result<Layout, &'static str> {
        let mut ranges = self.ranges.to_vec();
        for cut in dropped {
            let at = ranges.binary_search_by(|key| (**key).cmp(cut));
            ranges.remove(at.map_err(|_| "confined: a border of ranges that is not there")?);
        }
        for cut in added {
            let at = ranges.binary_search_by(|key| (**key).cmp(cut));
            let is_border = self.cuts.binary_search_by(|key| (**key).cmp(cut)).is_ok();
            match at {
                Err(at) if !cut.is_empty() && !is_border => {
                    ranges.insert(at, cut.as_slice().into());
                }
                _ => return Err("confined: a border that is there already"),
            }
        }
        Ok(Layout {
            ranges: ranges.into(),
            ..self.clone()
        })
    }

    /// The first border that a table of `level` with these bounds would cross.
    pub(crate) fn crossed_by(
        &self,
        level: Level,
        smallest: &[u8],
        largest: &[u8],
    ) -> Option<&[u8]> {
        let of_parts = crossed(&self.cuts, smallest, largest);
        let of_ranges = || crossed(&self.ranges, smallest, largest).filter(|_| !level.is_zero());
        of_parts.or_else(of_ranges)
    }
}
