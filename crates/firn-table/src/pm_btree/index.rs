//! The search structure over leaves: the lower bounds of a tree's leaves, in DRAM. A [`View`] never
//! changes; a view derived from another shares every unchanged segment with it.
//!
//! A view keeps nothing alive in persistent memory. The holder of a view must defer the release of
//! places that were replaced since.

use super::layout::Place;
use firn_base::key_prefixes::KeyPrefixes;
use std::sync::Arc;

/// The approximate number of leaves in a segment.
const SEGMENT_LEAVES: usize = 512;

/// A tree as it was at one moment.
#[derive(Debug, Clone, Default)]
pub struct View {
    segments: Arc<[Arc<Segment>]>,
    prefixes: KeyPrefixes,
    leaves: usize,
    entries: u64,
}

#[derive(Debug)]
struct Segment {
    /// The lower bounds, concatenated.
    bounds: Box<[u8]>,
    /// The end offset of each bound.
    ends: Box<[u32]>,
    places: Box<[Place]>,
    prefixes: KeyPrefixes,
}

/// The position of a leaf in a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    segment: usize,
    leaf: usize,
}

impl At {
    /// The position of the first leaf inserted into an empty view.
    pub(super) const START: At = At {
        segment: 0,
        leaf: 0,
    };
}

/// A leaf with its lower bound.
pub(super) type Bounded = (Vec<u8>, Place);

/// Leaves to insert before a leaf, or in its place.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) at: At,
    /// True if the leaf there is removed.
    pub(super) replaces: bool,
    pub(super) leaves: Vec<Bounded>,
}

impl Segment {
    fn new(leaves: &[Bounded]) -> Segment {
        let bounds: Vec<u8> = leaves
            .iter()
            .flat_map(|(bound, _)| bound)
            .copied()
            .collect();
        let mut end = 0;
        let ends: Box<[u32]> = leaves
            .iter()
            .map(|(bound, _)| {
                end += bound.len() as u32;
                end
            })
            .collect();
        let places = leaves.iter().map(|&(_, place)| place).collect();
        let prefixes = KeyPrefixes::new(leaves.len(), |i| &leaves[i].0);
        Segment {
            bounds: bounds.into(),
            ends,
            places,
            prefixes,
        }
    }

    fn bound(&self, leaf: usize) -> &[u8] {
        let start = leaf.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bounds[start as usize..self.ends[leaf] as usize]
    }

    fn leaves(&self) -> impl Iterator<Item = Bounded> + '_ {
        (0..self.places.len()).map(|leaf| (self.bound(leaf).to_vec(), self.places[leaf]))
    }

    fn memory_bytes(&self) -> usize {
        self.bounds.len()
            + size_of_val(&*self.ends)
            + size_of_val(&*self.places)
            + self.prefixes.memory_bytes()
    }
}

impl View {
    /// A view of `leaves`, which are in the order of their bounds.
    pub(super) fn new(leaves: &[Bounded]) -> View {
        Self::of(
            leaves
                .chunks(SEGMENT_LEAVES)
                .map(|leaves| Arc::new(Segment::new(leaves)))
                .collect(),
        )
    }

    fn of(segments: Vec<Arc<Segment>>) -> View {
        let prefixes = KeyPrefixes::new(segments.len(), |i| segments[i].bound(0));
        let places = || segments.iter().flat_map(|segment| &*segment.places);
        let (leaves, entries) = (
            places().count(),
            places().map(|place| u64::from(place.entries)).sum(),
        );
        View {
            segments: segments.into(),
            prefixes,
            leaves,
            entries,
        }
    }

    /// The number of leaves.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// The number of entries in all leaves.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes of DRAM used. Segments shared with other views count in each view.
    pub fn memory_bytes(&self) -> usize {
        self.prefixes.memory_bytes()
            + self
                .segments
                .iter()
                .map(|segment| segment.memory_bytes())
                .sum::<usize>()
    }

    /// The places of all leaves, in key order.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.segments
            .iter()
            .flat_map(|segment| segment.places.iter().copied())
    }

    /// The leaf whose range contains `key`; `None` if the key is below all leaves.
    pub(super) fn locate(&self, key: &[u8]) -> Option<At> {
        let segment = last_not_above(&self.prefixes, key, self.segments.len(), |i| {
            self.segments[i].bound(0)
        })?;
        let inner = &self.segments[segment];
        let leaf = last_not_above(&inner.prefixes, key, inner.places.len(), |i| inner.bound(i))?;
        Some(At { segment, leaf })
    }

    pub(super) fn first(&self) -> Option<At> {
        (!self.segments.is_empty()).then_some(At {
            segment: 0,
            leaf: 0,
        })
    }

    pub(super) fn last(&self) -> Option<At> {
        let segment = self.segments.len().checked_sub(1)?;
        Some(At {
            segment,
            leaf: self.segments[segment].places.len() - 1,
        })
    }

    pub(super) fn after(&self, at: At) -> Option<At> {
        match at.leaf + 1 < self.segments[at.segment].places.len() {
            true => Some(At {
                leaf: at.leaf + 1,
                ..at
            }),
            false => (at.segment + 1 < self.segments.len()).then_some(At {
                segment: at.segment + 1,
                leaf: 0,
            }),
        }
    }

    pub(super) fn before(&self, at: At) -> Option<At> {
        match at.leaf.checked_sub(1) {
            Some(leaf) => Some(At { leaf, ..at }),
            None => {
                let segment = at.segment.checked_sub(1)?;
                Some(At {
                    segment,
                    leaf: self.segments[segment].places.len() - 1,
                })
            }
        }
    }

    pub(super) fn place(&self, at: At) -> Place {
        self.segments[at.segment].places[at.leaf]
    }

    pub(super) fn bound(&self, at: At) -> &[u8] {
        self.segments[at.segment].bound(at.leaf)
    }

    /// The exclusive upper bound of the leaf's keys; `None` for the last leaf.
    pub(super) fn upper(&self, at: At) -> Option<&[u8]> {
        self.after(at).map(|next| self.bound(next))
    }

    /// This view with `changes` applied. They are in order, with at most one replacement of a leaf
    /// and one insertion before it.
    pub(super) fn with(&self, changes: Vec<Change>) -> View {
        if self.segments.is_empty() {
            let leaves: Vec<Bounded> = changes
                .into_iter()
                .flat_map(|change| change.leaves)
                .collect();
            return View::new(&leaves);
        }
        let mut segments = Vec::with_capacity(self.segments.len() + 1);
        let mut changes = changes.into_iter().peekable();
        for (number, segment) in self.segments.iter().enumerate() {
            if changes
                .peek()
                .is_none_or(|change| change.at.segment != number)
            {
                segments.push(segment.clone());
                continue;
            }
            let mut leaves = Vec::with_capacity(segment.places.len() + 16);
            for (leaf, old) in segment.leaves().enumerate() {
                let mut keeps = true;
                while let Some(change) = changes.next_if(|change| {
                    change.at
                        == At {
                            segment: number,
                            leaf,
                        }
                }) {
                    keeps &= !change.replaces;
                    leaves.extend(change.leaves);
                }
                leaves.extend(keeps.then_some(old));
            }
            let parts = leaves.len().div_ceil(2 * SEGMENT_LEAVES).max(1);
            let even = leaves.len().div_ceil(parts).max(1);
            segments.extend(
                leaves
                    .chunks(even)
                    .map(|leaves| Arc::new(Segment::new(leaves))),
            );
        }
        View::of(segments)
    }

    /// The range of the first leaves that together have at most `entries` entries, or of the first
    /// leaf alone if it has more: its lower bound, and the lower bound of the next leaf, `None` if
    /// there is none. `None` for an empty view.
    pub fn first_leaves(&self, entries: u64) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut at = self.first()?;
        let from = self.bound(at).to_vec();
        let mut taken = 0;
        loop {
            taken += u64::from(self.place(at).entries);
            match self.after(at) {
                None => return Some((from, None)),
                Some(next) if taken + u64::from(self.place(next).entries) > entries => {
                    return Some((from, Some(self.bound(next).to_vec())));
                }
                Some(next) => at = next,
            }
        }
    }

    /// This view without the leaves for whose lower bound `goes` is true, and the places of those
    /// leaves.
    pub fn without(&self, goes: impl Fn(&[u8]) -> bool) -> (View, Vec<Place>) {
        let mut changes = Vec::new();
        let mut next = self.first();
        while let Some(at) = next {
            if goes(self.bound(at)) {
                changes.push(Change {
                    at,
                    replaces: true,
                    leaves: Vec::new(),
                });
            }
            next = self.after(at);
        }
        let places = changes.iter().map(|change| self.place(change.at)).collect();
        (self.with(changes), places)
    }
}

/// The index of the last of `count` ascending keys that is not above `wanted`.
fn last_not_above<'a>(
    prefixes: &KeyPrefixes,
    wanted: &[u8],
    count: usize,
    key: impl Fn(usize) -> &'a [u8],
) -> Option<usize> {
    let at = prefixes.first_not_below(wanted, &key);
    if at < count && key(at) == wanted {
        Some(at)
    } else {
        at.checked_sub(1)
    }
}
