//! The index of a shard: where each entry is, and how often keys were asked for.
//!
//! ```text
//! bucket    slot: u32 x 15 | strays: u32         one cache line
//!           count: u4 x 15 | history: u4 x 112   the line beside it
//! slot      tag: 9 bits | place: 23 bits         0 if free
//! ```
//! 1. A hash has two buckets. Its entry is in the first one unless that was full. If both are full,
//!    another entry moves to its other bucket. The first bucket counts such strays, so most lookups
//!    of absent keys read one line.
//! 2. Each entry has a count of its lookups, up to 15. The history counts the lookups of keys that
//!    have no entry: it is a count-min sketch (Cormode and Muthukrishnan 2005) of one line for the
//!    keys of a bucket. A key has one count in each of four parts of the line, its frequency is at
//!    most the smallest of the four, and only the smallest are raised. An entry begins with the
//!    count that its key has in the history, and leaves it there.
//! 3. Counts age: [`Index::halve`] halves all of them.
//! 4. There are as many buckets as the entries need, and at least one for [`BYTES_A_BUCKET`]. When
//!    their number changes, a new bucket takes the larger of the counts of the old buckets that it
//!    covers, so those of the history stay upper bounds.

use super::log::Place;
use firn_base::sync::{AtomicU64, Ordering};

const SLOTS: usize = 15;
/// The entries for each bucket after a rebuild, and the numbers that cause one.
const USUAL: usize = 11;
const MANY: usize = 13;
const FEW: usize = 4;
/// The bytes of a shard for each bucket that it has at least. So the history has more room than
/// the number of large entries asks for. That costs 2 % of the memory, but with fewer counts more
/// keys share each of them, and look as if they were asked for more often than they are.
const BYTES_A_BUCKET: u64 = 6 << 10;

/// Counts age by the lookups for each entry, as if there were at least one for so many bytes of the
/// shard. So a shard with few entries keeps its counts for a while.
const BYTES_AN_ENTRY: u64 = 16 << 10;

const PLACE_BITS: u32 = 23;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

/// The counts of a word, the words of a history, and the counts in each of its four parts.
const COUNTS_A_WORD: usize = 16;
const HISTORY_WORDS: usize = 7;
const PART: u64 = (HISTORY_WORDS * COUNTS_A_WORD / 4) as u64;
/// The largest count.
const COUNT_MAX: u64 = 15;
const ALL_BUT_TOP_BITS: u64 = 0x7777_7777_7777_7777;

/// The hash of an entry within its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash(pub(super) u32);

/// Where the index has an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    bucket: usize,
    i: usize,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Bucket {
    slots: [u32; SLOTS],
    /// Entries whose first bucket this is, but which are in their second one.
    strays: u32,
    counts: AtomicU64,
    history: [AtomicU64; HISTORY_WORDS],
}

/// The places of a shard's entries, and the counts of its keys.
#[derive(Debug)]
pub(super) struct Index {
    buckets: Box<[Bucket]>,
    entries: usize,
    buckets_min: usize,
    entries_min: usize,
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

    /// The word and the position in it of the count in each part of a history.
    fn counts(self) -> [(usize, usize); 4] {
        let bits = u64::from(self.0 ^ 0x2545_f491).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [0, 1, 2, 3_u64].map(|part| {
            let at = ((bits >> (8 + 14 * part) & 0x3fff) * PART) >> 14;
            let at = (part * PART + at) as usize;
            (at / COUNTS_A_WORD, at % COUNTS_A_WORD)
        })
    }
}

#[cfg(test)]
impl Hash {
    /// True if its two buckets are the first one in each index of at most 64 buckets.
    pub(super) fn is_crowded(self) -> bool {
        self.first(64) == 0 && self.second(64) == 0
    }
}

fn count(word: &AtomicU64, i: usize) -> u64 {
    word.load(Ordering::Relaxed) >> (4 * i) & COUNT_MAX
}

/// Sets a count, to the largest one at most. Concurrent changes of the same word may be lost.
fn set_count(word: &AtomicU64, i: usize, to: u64) {
    let others = word.load(Ordering::Relaxed) & !(COUNT_MAX << (4 * i));
    word.store(others | to.min(COUNT_MAX) << (4 * i), Ordering::Relaxed);
}

impl Bucket {
    /// The first slot with the tag of `hash` for whose place `is_it` is true. A free slot may have
    /// that tag too, but nothing is at its place.
    #[inline(always)]
    fn find(&self, hash: Hash, is_it: &mut impl FnMut(Place) -> bool) -> Option<usize> {
        let tag = hash.tag();
        let mut slots = self.slots.iter();
        slots.position(|slot| (slot ^ tag) <= PLACE_MASK && is_it(Place(slot & PLACE_MASK)))
    }

    fn slot_of(&self, value: u32) -> Option<usize> {
        self.slots.iter().position(|slot| *slot == value)
    }

    /// Puts a value with its count into a free slot. False if there is none.
    fn put(&mut self, value: u32, its_count: u64) -> bool {
        let free = self.slot_of(0);
        if let Some(i) = free {
            self.slots[i] = value;
            set_count(&self.counts, i, its_count);
        }
        free.is_some()
    }

    #[inline]
    fn frequency(&self, counts: [(usize, usize); 4]) -> u64 {
        let of = |(word, i): (usize, usize)| count(&self.history[word], i);
        counts.map(of).into_iter().fold(COUNT_MAX, u64::min)
    }

    /// Raises the counts of a key in the history to at least `to`.
    fn raise(&self, counts: [(usize, usize); 4], to: u64) {
        for (word, i) in counts {
            if count(&self.history[word], i) < to {
                set_count(&self.history[word], i, to);
            }
        }
    }

    /// Raises each count of the history to that of `other`.
    fn take_larger(&mut self, other: &Bucket) {
        for (mine, other) in self.history.iter_mut().zip(&other.history) {
            let mine = mine.get_mut();
            *mine = larger_counts(*mine, other.load(Ordering::Relaxed));
        }
    }
}

/// The larger count at each position of two words.
fn larger_counts(a: u64, b: u64) -> u64 {
    const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    const ONES: u64 = 0x1010_1010_1010_1010;
    // A count in each byte, so the difference borrows from the one above it, not from a neighbour.
    let larger = |a: u64, b: u64| {
        let is_a = ((a | ONES) - b) & ONES;
        let mask = is_a - (is_a >> 4);
        a & mask | b & (LOW ^ mask)
    };
    larger(a & LOW, b & LOW) | larger(a >> 4 & LOW, b >> 4 & LOW) << 4
}

impl Index {
    /// An index without memory, for a shard of at most `bytes`.
    pub(super) fn new(bytes: u64) -> Index {
        let mut index = Index {
            buckets: Box::default(),
            entries: 0,
            buckets_min: 0,
            entries_min: 0,
        };
        index.resize(bytes);
        index
    }

    /// Notes that the shard has at most `bytes` now. The size changes with the next rebuild.
    pub(super) fn resize(&mut self, bytes: u64) {
        self.buckets_min = (bytes / BYTES_A_BUCKET).max(1) as usize;
        self.entries_min = (bytes / BYTES_AN_ENTRY).max(1) as usize;
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.buckets) as u64
    }

    /// The number of entries by which counts age: at least one for each [`BYTES_AN_ENTRY`].
    pub(super) fn entries(&self) -> usize {
        self.entries.max(self.entries_min)
    }

    fn first(&self, hash: Hash) -> usize {
        hash.first(self.buckets.len())
    }

    fn second(&self, hash: Hash) -> usize {
        hash.second(self.buckets.len())
    }

    /// The slot with the tag of `hash` for whose place `is_it` is true.
    #[inline]
    pub(super) fn find(&self, hash: Hash, mut is_it: impl FnMut(Place) -> bool) -> Option<Slot> {
        let number = self.first(hash);
        let first = self.buckets.get(number)?;
        if let Some(i) = first.find(hash, &mut is_it) {
            return Some(Slot { bucket: number, i });
        }
        if first.strays == 0 {
            return None;
        }
        let number = self.second(hash);
        let i = self.buckets[number].find(hash, &mut is_it)?;
        Some(Slot { bucket: number, i })
    }

    /// The slot of the entry with this hash at `place`.
    pub(super) fn slot_of(&self, hash: Hash, place: Place) -> Option<Slot> {
        self.find(hash, |its_place| its_place == place)
    }

    /// The place in a slot.
    pub(super) fn place(&self, slot: Slot) -> Place {
        Place(self.buckets[slot.bucket].slots[slot.i] & PLACE_MASK)
    }

    /// True if there are too many or too few buckets for one more entry.
    pub(super) fn is_to_be_rebuilt(&self) -> bool {
        let buckets = self.buckets.len();
        let too_many = buckets > 2 * self.buckets_min && self.entries < buckets * FEW;
        too_many || 2 * buckets < self.buckets_min || self.entries >= buckets * MANY
    }

    /// Frees the memory. The allocator might keep it, because the next index has another size.
    pub(super) fn free(self) {
        firn_fs::free(self.buckets);
    }

    /// An index of the right size, without entries, with the history of this one.
    pub(super) fn resized(&self) -> Index {
        let (old, new) = (
            self.buckets.len(),
            self.entries.div_ceil(USUAL).max(self.buckets_min),
        );
        let bucket = |i: usize| {
            let mut bucket = Bucket::default();
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
            entries_min: self.entries_min,
        }
    }

    /// Adds an entry that was looked up `count` times. False if there is no room for it. `hash_of`
    /// is the hash of the entry at a place.
    pub(super) fn insert(
        &mut self,
        hash: Hash,
        place: Place,
        count: u64,
        hash_of: impl Fn(Place) -> Option<Hash>,
    ) -> bool {
        let value = hash.tag() | place.0;
        let is_in = !self.buckets.is_empty()
            && (self.put(hash, value, count)
                || (self.make_room(self.first(hash), hash_of) && self.put(hash, value, count)));
        self.entries += usize::from(is_in);
        is_in
    }

    /// Puts an entry into one of its buckets, if one has a free slot.
    fn put(&mut self, hash: Hash, value: u32, count: u64) -> bool {
        let (first, second) = (self.first(hash), self.second(hash));
        if self.buckets[first].put(value, count) {
            return true;
        }
        let is_in = self.buckets[second].put(value, count);
        self.buckets[first].strays += u32::from(is_in && first != second);
        is_in
    }

    /// Moves an entry of a full bucket to its other bucket (Pagh and Rodler 2004). False if all of
    /// these are full.
    fn make_room(&mut self, full: usize, hash_of: impl Fn(Place) -> Option<Hash>) -> bool {
        for i in 0..SLOTS {
            let value = self.buckets[full].slots[i];
            let Some(hash) = hash_of(Place(value & PLACE_MASK)) else {
                continue;
            };
            let (first, second) = (self.first(hash), self.second(hash));
            let other = if first == full { second } else { first };
            let its_count = count(&self.buckets[full].counts, i);
            if other != full && self.buckets[other].put(value, its_count) {
                self.buckets[full].slots[i] = 0;
                let strays = &mut self.buckets[first].strays;
                *strays = strays.wrapping_add_signed(if first == full { 1 } else { -1 });
                return true;
            }
        }
        false
    }

    /// Records that the entry in a slot is at `to` now.
    pub(super) fn replace(&mut self, slot: Slot, hash: Hash, to: Place) {
        self.buckets[slot.bucket].slots[slot.i] = hash.tag() | to.0;
    }

    /// Removes the entry in a slot, and leaves its count in the history.
    pub(super) fn remove(&mut self, slot: Slot, hash: Hash) {
        let its_count = self.frequency(slot);
        let first = self.first(hash);
        self.buckets[first].raise(hash.counts(), its_count);
        self.buckets[slot.bucket].slots[slot.i] = 0;
        self.buckets[first].strays -= u32::from(slot.bucket != first);
        self.entries -= 1;
    }

    /// Counts a lookup that found the entry in this slot. Concurrent ones may count once.
    #[inline]
    pub(super) fn count_hit(&self, slot: Slot) {
        let counts = &self.buckets[slot.bucket].counts;
        let before = count(counts, slot.i);
        if before < COUNT_MAX {
            set_count(counts, slot.i, before + 1);
        }
    }

    /// Adds `more` to the count of the entry at `place`.
    pub(super) fn add_hits(&mut self, hash: Hash, place: Place, more: u8) {
        if let Some(slot) = self.slot_of(hash, place) {
            let counts = &self.buckets[slot.bucket].counts;
            let sum = count(counts, slot.i) + u64::from(more);
            set_count(counts, slot.i, sum);
        }
    }

    /// Counts a lookup of a key without entry. Concurrent ones may count once.
    #[inline]
    pub(super) fn count_miss(&self, hash: Hash) {
        if let Some(bucket) = self.buckets.get(self.first(hash)) {
            let counts = hash.counts();
            let frequency = bucket.frequency(counts);
            if frequency < COUNT_MAX {
                for (word, i) in counts {
                    let word = &bucket.history[word];
                    let before = word.load(Ordering::Relaxed);
                    let is_smallest = before >> (4 * i) & COUNT_MAX == frequency;
                    let more = u64::from(is_smallest) << (4 * i);
                    word.store(before + more, Ordering::Relaxed);
                }
            }
        }
    }

    /// How often the entry in a slot was looked up lately.
    pub(super) fn frequency(&self, slot: Slot) -> u64 {
        count(&self.buckets[slot.bucket].counts, slot.i)
    }

    /// How often a key without entry was looked up lately.
    pub(super) fn frequency_before(&self, hash: Hash) -> u64 {
        let bucket = self.buckets.get(self.first(hash));
        bucket.map_or(0, |bucket| bucket.frequency(hash.counts()))
    }

    /// Halves all counts.
    pub(super) fn halve(&mut self) {
        for bucket in &mut self.buckets {
            for word in bucket.history.iter().chain([&bucket.counts]) {
                let halves = word.load(Ordering::Relaxed) >> 1 & ALL_BUT_TOP_BITS;
                word.store(halves, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::seed::Seed;

    #[test]
    fn a_count_that_is_too_large_leaves_others_alone() {
        let mut index = Index::new(1).resized();
        let place = |i: u32| Place(4 * i + 4);
        for (i, count) in [(0, 3), (1, 200), (2, 0)] {
            assert!(index.insert(Hash(i), place(i), count, |_| None));
        }
        index.add_hits(Hash(0), place(0), 2);
        index.add_hits(Hash(2), place(2), 250);
        let count = |i| {
            index
                .slot_of(Hash(i), place(i))
                .map(|slot| index.frequency(slot))
        };
        assert_eq!([0, 1, 2].map(count), [5, COUNT_MAX, COUNT_MAX].map(Some));
    }

    #[test]
    fn the_larger_counts_of_two_words() {
        let mut seed = Seed::new(1);
        let mut word = || (0..16).fold(0, |word, _| word << 4 | seed.below(16));
        for _ in 0..2000 {
            let (a, b) = (word(), word());
            let counts = |word: u64| (0..16).map(move |i| word >> (4 * i) & COUNT_MAX);
            let expected: Vec<u64> = counts(a).zip(counts(b)).map(|(a, b)| a.max(b)).collect();
            assert!(counts(larger_counts(a, b)).eq(expected), "{a:x} {b:x}");
        }
        assert_eq!(larger_counts(u64::MAX, 0), u64::MAX);
    }
}
