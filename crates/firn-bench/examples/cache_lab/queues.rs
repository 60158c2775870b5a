//! Queues of entries over one slab, the material of the policies.
//!
//! 1. An entry is in exactly one queue. A queue's byte count is the sum over its entries.
//! 2. The front of a queue is the entry that came last, its back the one that leaves next.
//! 3. A [`Place`] is valid until its entry is removed, and is then used again for another entry.

use firn_base::seed::mix;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher of a single word, the same in every run.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }
}

/// A map from keys, hashed by [`WordHasher`].
pub(crate) type KeyMap<T> = HashMap<u64, T, BuildHasherDefault<WordHasher>>;

/// The position of an entry in the slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u32);

/// The end of a queue.
const NONE: Place = Place(u32::MAX);

struct Entry {
    key: u64,
    bytes: u32,
    queue: u8,
    mark: u8,
    /// The neighbour that came later.
    newer: Place,
    /// The neighbour that came earlier.
    older: Place,
}

#[derive(Clone, Copy)]
struct Ends {
    front: Place,
    back: Place,
    bytes: u64,
}

/// `N` queues, numbered from 0, and an index over the entries of all of them.
pub(crate) struct Queues<const N: usize> {
    entries: Vec<Entry>,
    free: Vec<Place>,
    places: KeyMap<Place>,
    ends: [Ends; N],
}

impl<const N: usize> Queues<N> {
    /// Empty queues.
    pub(crate) fn new() -> Self {
        let ends = Ends {
            front: NONE,
            back: NONE,
            bytes: 0,
        };
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            places: KeyMap::default(),
            ends: [ends; N],
        }
    }

    /// The entry of `key`, in whatever queue.
    pub(crate) fn find(&self, key: u64) -> Option<Place> {
        self.places.get(&key).copied()
    }

    /// The queue of the entry at `place`.
    pub(crate) fn queue(&self, place: Place) -> usize {
        usize::from(self.entry(place).queue)
    }

    /// The key of the entry at `place`.
    pub(crate) fn key(&self, place: Place) -> u64 {
        self.entry(place).key
    }

    /// The size of the entry at `place`.
    pub(crate) fn entry_bytes(&self, place: Place) -> u64 {
        u64::from(self.entry(place).bytes)
    }

    /// A small number for the policy's own use, 0 in a new entry.
    pub(crate) fn mark(&mut self, place: Place) -> &mut u8 {
        &mut self.entry_mut(place).mark
    }

    /// The bytes of the entries in `queue`.
    pub(crate) fn bytes(&self, queue: usize) -> u64 {
        self.ends[queue].bytes
    }

    /// The oldest entry of `queue`.
    pub(crate) fn back(&self, queue: usize) -> Option<Place> {
        some(self.ends[queue].back)
    }

    /// The entry of the same queue that came next after the one at `place`.
    pub(crate) fn newer(&self, place: Place) -> Option<Place> {
        some(self.entry(place).newer)
    }

    /// Adds an entry at the front of `queue`.
    ///
    /// REQUIRES: no queue has an entry of `key`.
    pub(crate) fn push(&mut self, queue: usize, key: u64, bytes: u32) -> Place {
        let entry = Entry {
            key,
            bytes,
            queue: queue as u8,
            mark: 0,
            newer: NONE,
            older: NONE,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place.0 as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                Place(self.entries.len() as u32 - 1)
            }
        };
        let before = self.places.insert(key, place);
        debug_assert!(before.is_none(), "a second entry of a key");
        self.link(queue, place);
        place
    }

    /// Moves the entry at `place` to the front of `queue`.
    pub(crate) fn move_to(&mut self, queue: usize, place: Place) {
        self.unlink(place);
        self.link(queue, place);
    }

    /// Removes the entry at `place`.
    pub(crate) fn remove(&mut self, place: Place) {
        self.unlink(place);
        self.places.remove(&self.key(place));
        self.free.push(place);
    }

    fn link(&mut self, queue: usize, place: Place) {
        let front = std::mem::replace(&mut self.ends[queue].front, place);
        let entry = self.entry_mut(place);
        (entry.queue, entry.newer, entry.older) = (queue as u8, NONE, front);
        self.ends[queue].bytes += self.entry_bytes(place);
        match some(front) {
            Some(front) => self.entry_mut(front).newer = place,
            None => self.ends[queue].back = place,
        }
    }

    fn unlink(&mut self, place: Place) {
        let (queue, newer, older) = {
            let entry = self.entry(place);
            (usize::from(entry.queue), entry.newer, entry.older)
        };
        self.ends[queue].bytes -= self.entry_bytes(place);
        match some(newer) {
            Some(newer) => self.entry_mut(newer).older = older,
            None => self.ends[queue].front = older,
        }
        match some(older) {
            Some(older) => self.entry_mut(older).newer = newer,
            None => self.ends[queue].back = newer,
        }
    }

    fn entry(&self, place: Place) -> &Entry {
        &self.entries[place.0 as usize]
    }

    fn entry_mut(&mut self, place: Place) -> &mut Entry {
        &mut self.entries[place.0 as usize]
    }
}

fn some(place: Place) -> Option<Place> {
    (place != NONE).then_some(place)
}
