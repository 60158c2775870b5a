//! The part of a tree of level 0 that is in level 1 (profile `lab`).

use firn_base::SeqNo;
use firn_base::coding::{Reader, put_bytes, put_varint};
use firn_base::key::KEY_BYTES_MAX;

/// The keys from `from` up to but excluding `to`; all keys from `from` on if `to` is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Option<Vec<u8>>,
}

impl KeyRange {
    pub(crate) fn all() -> KeyRange {
        KeyRange {
            from: Vec::new(),
            to: None,
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// The intersection of this range and `other`; `None` if it is empty.
    pub(crate) fn within(&self, other: &KeyRange) -> Option<KeyRange> {
        let from = self.from.as_slice().max(&other.from).to_vec();
        let to = self.to.iter().chain(&other.to).min().cloned();
        to.as_ref()
            .is_none_or(|to| from < *to)
            .then_some(KeyRange { from, to })
    }

    /// The union of `ranges`, in order.
    pub(crate) fn union(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
        ranges.sort_by(|a, b| a.from.cmp(&b.from));
        let mut all: Vec<KeyRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match all
                .last_mut()
                .filter(|last| last.to.as_ref().is_none_or(|to| range.from <= *to))
            {
                // `None` is after every key.
                Some(last) if last.to.is_some() && (range.to.is_none() || range.to > last.to) => {
                    last.to = range.to
                }
                Some(_) => {}
                None => all.push(range),
            }
        }
        all
    }
}

/// The evicted part of the immutable tree of level 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// The tree's number.
    pub(crate) tree: u32,
    /// If the tree is rebuilt from logs: entries up to this number, in `ranges`, are in level 1 or
    /// below, or older than the entries there. 0 if the tree outlives the process.
    pub(crate) through: SeqNo,
    /// The evicted ranges, in order. Adjacent ranges are merged.
    pub(crate) ranges: Vec<KeyRange>,
}

impl Evicted {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let at = self
            .ranges
            .partition_point(|range| range.from.as_slice() <= key);
        at.checked_sub(1)
            .is_some_and(|at| self.ranges[at].contains(key))
    }

    /// True if the whole tree is evicted.
    pub(crate) fn is_all(&self) -> bool {
        matches!(&self.ranges[..], [only] if only.from.is_empty() && only.to.is_none())
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.tree));
        put_varint(out, self.through.0);
        put_varint(out, self.ranges.len() as u64);
        for range in &self.ranges {
            put_bytes(out, &range.from);
            put_varint(out, u64::from(range.to.is_some()));
            range.to.iter().for_each(|to| put_bytes(out, to));
        }
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Option<Evicted> {
        let tree = u32::try_from(reader.varint()?).ok()?;
        let through = Some(SeqNo(reader.varint()?)).filter(|&seqno| seqno <= SeqNo::MAX)?;
        let mut ranges: Vec<KeyRange> = Vec::new();
        for _ in 0..reader.varint()? {
            let key = |reader: &mut Reader<'_>| {
                Some(
                    reader
                        .bytes()
                        .filter(|key| key.len() <= KEY_BYTES_MAX)?
                        .to_vec(),
                )
            };
            let from = key(reader)?;
            let to = match reader.varint()? {
                0 => None,
                1 => Some(key(reader)?),
                _ => return None,
            };
            let before = ranges.last().map(|last| last.to.as_ref());
            let in_order = before.is_none_or(|to| to.is_some_and(|to| *to < from));
            if !in_order || to.as_ref().is_some_and(|to| *to <= from) {
                return None;
            }
            ranges.push(KeyRange { from, to });
        }
        Some(Evicted {
            tree,
            through,
            ranges,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, to: &str) -> KeyRange {
        KeyRange {
            from: from.into(),
            to: (to != "*").then(|| to.into()),
        }
    }

    #[test]
    fn what_two_ranges_have_in_common() {
        let within = |a: (&str, &str), b: (&str, &str)| range(a.0, a.1).within(&range(b.0, b.1));
        assert_eq!(within(("a", "d"), ("b", "f")), Some(range("b", "d")));
        assert_eq!(within(("", "*"), ("b", "f")), Some(range("b", "f")));
        assert_eq!(within(("c", "*"), ("b", "*")), Some(range("c", "*")));
        assert_eq!(within(("a", "b"), ("b", "f")), None);
        assert_eq!(within(("g", "*"), ("b", "f")), None);
    }

    #[test]
    fn a_union_has_each_key_once() {
        let union = |ranges: &[(&str, &str)]| {
            KeyRange::union(ranges.iter().map(|(a, b)| range(a, b)).collect())
        };
        assert_eq!(
            union(&[("d", "f"), ("a", "b"), ("b", "c")]),
            [range("a", "c"), range("d", "f")]
        );
        assert_eq!(
            union(&[("a", "z"), ("b", "c"), ("y", "*"), ("zz", "zzz")]),
            [range("a", "*")]
        );
        let evicted = Evicted {
            tree: 1,
            through: SeqNo(4),
            ranges: union(&[("", "c"), ("e", "g"), ("x", "*")]),
        };
        let found = |key: &str| evicted.contains(key.as_bytes());
        assert_eq!(
            ["", "b", "c", "d", "e", "f", "g", "w", "x", "zz"].map(found),
            [
                true, true, false, false, true, true, false, false, true, true
            ]
        );
        assert!(
            !evicted.is_all()
                && Evicted {
                    ranges: union(&[("x", "*"), ("", "x")]),
                    ..evicted
                }
                .is_all()
        );
    }
}
