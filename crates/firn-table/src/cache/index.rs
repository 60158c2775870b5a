//! The index of a shard: where each entry is, and how often keys were asked for.
//!
//! ```text
//! bucket    slot: u32 x 15 | strays: u32    one cache line
//!           count: u4 x 128                 the line beside it
//! slot      tag: 9 bits | place: 23 bits    0 if free
//! ```
//! 1. A hash has two buckets. Its entry is in the first one unless that was full. If both are full,
//!    another entry moves to its other bucket. The first bucket
//!    counts such strays, so most lookups of absent keys read one line.
//! 2. The counts of all keys of a bucket, cached or not, share its second line. A key has one count
//!    in each quarter of the line, and its frequency is at most the smallest of the four: a
//!    count-min sketch (Cormode and Muthukrishnan 2005), blocked by cache lines. An access raises
//!    only the smallest ones, up to 15.
//! 3. Counts age: [`Index::halve`] halves all of them.
//! 4. There are as many buckets as the entries need. When their number changes, a new bucket takes
//!    the larger of the counts of the old buckets that it covers. They stay upper bounds.

use super::log::Place;
use firn_base::sync::{AtomicU64, Ordering};

const SLOTS: usize = 15;
/// The entries for each bucket after a rebuild, and the numbers that cause one.
const USUAL: usize = 11;
const MANY: usize = 13;
const FEW: usize = 4;
/// The bytes of a shard for each bucket that it has at least.
const BYTES_A_BUCKET: u64 = 64 << 10;

const PLACE_BITS: u32 = 23;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

const COUNT_WORDS: usize = 8;
const COUNTS_A_QUARTER: u64 = 32;
/// The largest count.
pub(super) const COUNT_MAX: u64 = 15;
const ALL_BUT_TOP_BITS: u64 = 0x7777_7777_7777_7777;

/// The hash of an entry within its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash(pub(super) u32);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Bucket {
    slots: [u32; SLOTS],
    /// Entries whose first bucket this is, but which are in their second one.
    strays: u32,
    counts: [AtomicU64; COUNT_WORDS],
}

/// The places of a shard's entries, and the counts of its keys.
#[derive(Debug)]
pub(super) struct Index {
    buckets: Box<[Bucket]>,
    entries: usize,
    buckets_min: usize,
}

impl Hash {
    fn tag(self) -> u32 {
        self.0 << PLACE_BITS
    }

    /// The position of the hash in `0..of`.
    fn first(self, of: usize) -> usize {
        ((u64::from(self.0) * of as u64) >> 32) as usize
    }

    fn second(self, of: usize) -> usize {
        Hash((self.0 ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b1)).first(of)
    }

    /// The word and the shift of the count in each quarter of a line.
    fn counts(self) -> [(usize, u32); 4] {
        let bits = u64::from(self.0 ^ 0x2545_f491).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        [0, 1, 2, 3].map(|quarter| {
            let at = (bits >> (5 * quarter)) % COUNTS_A_QUARTER;
            (2 * quarter + (at / 16) as usize, (at % 16) as u32 * 4)
        })
    }
}

impl Bucket {
    /// The places in the slots with the tag of `hash`.
    #[inline]
    fn places(&self, hash: Hash) -> impl Iterator<Item = Place> {
        let slots = self.slots;
        let tag = hash.tag();
        let mut same = 0_u32;
        for (i, slot) in slots.iter().enumerate() {
            let is_same = *slot & PLACE_MASK != 0 && (slot ^ tag) & !PLACE_MASK == 0;
            same |= u32::from(is_same) << i;
        }
        std::iter::from_fn(move || {
            let i = same.trailing_zeros() as usize;
            same &= same.wrapping_sub(1);
            (i < SLOTS).then(|| Place(slots[i] & PLACE_MASK))
        })
    }

    fn replace(&mut self, from: u32, to: u32) -> bool {
        let slot = self.slots.iter_mut().find(|slot| **slot == from);
        slot.map(|slot| *slot = to).is_some()
    }
}

impl Index {
    /// An index without memory, for a shard of at most `bytes`.
    pub(super) fn new(bytes: u64) -> Index {
        Index {
            buckets: Box::default(),
            entries: 0,
            buckets_min: (bytes / BYTES_A_BUCKET).max(1) as usize,
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.buckets) as u64
    }

    /// The number of entries, or the fewest for which it has this size.
    pub(super) fn entries(&self) -> usize {
        self.entries.max(self.buckets.len() * FEW)
    }

    /// The place that may be that of the entry with this hash, for which `is_it` is true.
    #[inline]
    pub(super) fn find(&self, hash: Hash, mut is_it: impl FnMut(Place) -> bool) -> Option<Place> {
        let first = self.buckets.get(hash.first(self.buckets.len()))?;
        if let Some(place) = first.places(hash).find(|place| is_it(*place)) {
            return Some(place);
        }
        if first.strays == 0 {
            return None;
        }
        let second = &self.buckets[hash.second(self.buckets.len())];
        second.places(hash).find(|place| is_it(*place))
    }

    /// True if there are too many or too few buckets for one more entry.
    pub(super) fn is_to_be_rebuilt(&self) -> bool {
        let buckets = self.buckets.len();
        let too_few = buckets > self.buckets_min && self.entries < buckets * FEW;
        too_few || self.entries >= buckets * MANY
    }

    /// An index of the right size, without entries, with the counts of this one.
    pub(super) fn resized(&self) -> Index {
        let (old, new) = (
            self.buckets.len(),
            self.entries.div_ceil(USUAL).max(self.buckets_min),
        );
        let bucket = |i: usize| {
            let bucket = Bucket::default();
            let covered = i * old / new..((i + 1) * old).div_ceil(new);
            for old in &self.buckets[covered] {
                bucket.take_larger(old);
            }
            bucket
        };
        Index {
            buckets: (0..new).map(bucket).collect(),
            entries: 0,
            buckets_min: self.buckets_min,
        }
    }

    /// Adds an entry. False if there is no room for it. `hash_of` is the hash of the entry at a
    /// place.
    pub(super) fn insert(
        &mut self,
        hash: Hash,
        place: Place,
        hash_of: impl Fn(Place) -> Option<Hash>,
    ) -> bool {
        let is_in = !self.buckets.is_empty()
            && (self.put(hash, place)
                || (self.make_room(hash.first(self.buckets.len()), hash_of)
                    && self.put(hash, place)));
        self.entries += usize::from(is_in);
        is_in
    }

    /// Puts an entry into one of its buckets, if one has a free slot.
    fn put(&mut self, hash: Hash, place: Place) -> bool {
        let (slot, buckets) = (hash.tag() | place.0, self.buckets.len());
        let (first, second) = (hash.first(buckets), hash.second(buckets));
        if self.buckets[first].replace(0, slot) {
            return true;
        }
        let is_in = self.buckets[second].replace(0, slot);
        self.buckets[first].strays += u32::from(is_in);
        is_in
    }

    /// Moves an entry of a full bucket to its other bucket (Pagh and Rodler 2004). False if all of
    /// these are full.
    fn make_room(&mut self, full: usize, hash_of: impl Fn(Place) -> Option<Hash>) -> bool {
        for slot in self.buckets[full].slots {
            let Some(hash) = hash_of(Place(slot & PLACE_MASK)) else {
                continue;
            };
            let buckets = self.buckets.len();
            let (first, second) = (hash.first(buckets), hash.second(buckets));
            let other = if first == full { second } else { first };
            if other != full && self.buckets[other].replace(0, slot) {
                self.buckets[full].replace(slot, 0);
                let strays = &mut self.buckets[first].strays;
                *strays = strays.wrapping_add_signed(if first == full { 1 } else { -1 });
                return true;
            }
        }
        false
    }

    /// Records that the entry at `from` is now at `to`.
    pub(super) fn replace(&mut self, hash: Hash, from: Place, to: Place) {
        let (from, to) = (hash.tag() | from.0, hash.tag() | to.0);
        let buckets = self.buckets.len();
        let _is_there = self.buckets[hash.first(buckets)].replace(from, to)
            || self.buckets[hash.second(buckets)].replace(from, to);
    }

    /// Removes the entry at `place`.
    pub(super) fn remove(&mut self, hash: Hash, place: Place) {
        let slot = hash.tag() | place.0;
        let buckets = self.buckets.len();
        if self.buckets[hash.first(buckets)].replace(slot, 0) {
            self.entries -= 1;
        } else if self.buckets[hash.second(buckets)].replace(slot, 0) {
            self.buckets[hash.first(buckets)].strays -= 1;
            self.entries -= 1;
        }
    }

    /// Counts an access. Concurrent ones may count once.
    #[inline]
    pub(super) fn count(&self, hash: Hash) {
        let Some(bucket) = self.buckets.get(hash.first(self.buckets.len())) else {
            return;
        };
        let counts = hash.counts();
        let least = bucket.frequency(counts);
        if least == COUNT_MAX {
            return;
        }
        for (word, shift) in counts {
            let before = bucket.counts[word].load(Ordering::Relaxed);
            if before >> shift & COUNT_MAX == least {
                bucket.counts[word].store(before + (1 << shift), Ordering::Relaxed);
            }
        }
    }

    /// How often a key was asked for lately, at most [`COUNT_MAX`].
    pub(super) fn frequency(&self, hash: Hash) -> u64 {
        let bucket = self.buckets.get(hash.first(self.buckets.len()));
        bucket.map_or(0, |bucket| bucket.frequency(hash.counts()))
    }

    /// Halves all counts.
    pub(super) fn halve(&mut self) {
        for bucket in &mut self.buckets {
            for word in &bucket.counts {
                let halves = word.load(Ordering::Relaxed) >> 1 & ALL_BUT_TOP_BITS;
                word.store(halves, Ordering::Relaxed);
            }
        }
    }
}

impl Bucket {
    #[inline]
    fn frequency(&self, counts: [(usize, u32); 4]) -> u64 {
        let of = |(word, shift): (usize, u32)| {
            self.counts[word].load(Ordering::Relaxed) >> shift & COUNT_MAX
        };
        counts.map(of).into_iter().fold(COUNT_MAX, u64::min)
    }

    /// Raises each count to that of `other`.
    fn take_larger(&self, other: &Bucket) {
        for (mine, other) in self.counts.iter().zip(&other.counts) {
            let (a, b) = (mine.load(Ordering::Relaxed), other.load(Ordering::Relaxed));
            let larger = |shift: u32| (a >> shift & COUNT_MAX).max(b >> shift & COUNT_MAX) << shift;
            let merged = (0..u64::BITS).step_by(4).map(larger).sum();
            mine.store(merged, Ordering::Relaxed);
        }
    }
}
