//! Small implementations of known policies, by bytes: LRU, SIEVE, S3-FIFO, W-TinyLFU and ARC.
//!
//! 1. After each get, a policy holds at most its capacity.
//! 2. A miss brings its entry in, unless it is larger than the whole cache or the policy turns it
//!    away.
//!
//! One thread at a time, no data: a policy only decides.

use crate::queues::{Place, Queues};
use crate::sketch::Sketch;

/// A cache under test, with the sizes of entries but not their data.
pub(crate) trait Policy {
    /// Looks up `key`, and brings it in on a miss with `bytes` for key and value. True on a hit.
    fn get(&mut self, key: u64, bytes: u32) -> bool;

    /// The bytes held now, as the policy counts them.
    fn bytes(&self) -> u64;
}

/// Evicts the entry that was used least recently.
pub(crate) struct Lru {
    capacity: u64,
    queues: Queues<1>,
}

impl Lru {
    pub(crate) fn new(capacity: u64) -> Self {
        let queues = Queues::new();
        Self { capacity, queues }
    }
}

impl Policy for Lru {
    fn get(&mut self, key: u64, bytes: u32) -> bool {
        if let Some(place) = self.queues.find(key) {
            self.queues.move_to(0, place);
            return true;
        }
        if u64::from(bytes) <= self.capacity {
            self.queues.push(0, key, bytes);
        }
        while self.queues.bytes(0) > self.capacity
            && let Some(place) = self.queues.back(0)
        {
            self.queues.remove(place);
        }
        false
    }

    fn bytes(&self) -> u64 {
        self.queues.bytes(0)
    }
}

/// Evicts the next entry without a mark, in the order of arrival; the hand that looks for it takes
/// marks away and stays where it stopped (Zhang et al., NSDI 2024, section 3).
pub(crate) struct Sieve {
    capacity: u64,
    queues: Queues<1>,
    hand: Option<Place>,
}

impl Sieve {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            queues: Queues::new(),
            hand: None,
        }
    }

    fn evict(&mut self) {
        while let Some(place) = self.hand.or_else(|| self.queues.back(0)) {
            self.hand = self.queues.newer(place);
            if std::mem::take(self.queues.mark(place)) == 0 {
                return self.queues.remove(place);
            }
        }
    }
}

impl Policy for Sieve {
    fn get(&mut self, key: u64, bytes: u32) -> bool {
        if let Some(place) = self.queues.find(key) {
            *self.queues.mark(place) = 1;
            return true;
        }
        if u64::from(bytes) <= self.capacity {
            // Room first, so that the hand never takes the new entry.
            while self.queues.bytes(0) + u64::from(bytes) > self.capacity {
                self.evict();
            }
            self.queues.push(0, key, bytes);
        }
        false
    }

    fn bytes(&self) -> u64 {
        self.queues.bytes(0)
    }
}

/// A small queue in front of a main one, and a ghost queue of keys that left the small one (Yang
/// et al., SOSP 2023, section 4). The ghosts stand for as many bytes as the main queue may hold.
pub(crate) struct S3Fifo {
    capacity: u64,
    small_max: u64,
    queues: Queues<3>,
}

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;
const USES_MAX: u8 = 3;
/// The uses after which an entry of the small queue goes to the main one.
const USES_TO_STAY: u8 = 2;

impl S3Fifo {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            small_max: capacity / 10,
            queues: Queues::new(),
        }
    }

    /// Evicts one entry, or moves one to where it is not evicted next.
    fn evict(&mut self) {
        let small = self.queues.back(SMALL);
        let main = self.queues.back(MAIN);
        match (small, main) {
            (Some(small), main) if main.is_none() || self.queues.bytes(SMALL) > self.small_max => {
                let uses = std::mem::take(self.queues.mark(small));
                let queue = if uses >= USES_TO_STAY { MAIN } else { GHOST };
                self.queues.move_to(queue, small);
                self.forget();
            }
            (_, Some(main)) => match self.queues.mark(main) {
                0 => self.queues.remove(main),
                uses => {
                    *uses -= 1;
                    self.queues.move_to(MAIN, main);
                }
            },
            _ => {}
        }
    }

    fn forget(&mut self) {
        while self.queues.bytes(GHOST) > self.capacity - self.small_max
            && let Some(place) = self.queues.back(GHOST)
        {
            self.queues.remove(place);
        }
    }
}

impl Policy for S3Fifo {
    fn get(&mut self, key: u64, bytes: u32) -> bool {
        let mut queue = SMALL;
        if let Some(place) = self.queues.find(key) {
            if self.queues.queue(place) != GHOST {
                let uses = self.queues.mark(place);
                *uses = (*uses + 1).min(USES_MAX);
                return true;
            }
            self.queues.remove(place);
            queue = MAIN;
        }
        if u64::from(bytes) <= self.capacity {
            while self.bytes() + u64::from(bytes) > self.capacity {
                self.evict();
            }
            self.queues.push(queue, key, bytes);
        }
        false
    }

    fn bytes(&self) -> u64 {
        self.queues.bytes(SMALL) + self.queues.bytes(MAIN)
    }
}

/// A window of 1 % in front of a segmented LRU of 20 % on probation and 80 % protected (Einziger
/// et al., "TinyLFU", ACM TOS 2017). An entry that leaves the window stays only if it was asked for
/// more often than all entries together that it would displace (Einziger et al., "Lightweight
/// Robust Size Aware Cache Management", ACM TOS 2022).
pub(crate) struct WTinyLfu {
    window_max: u64,
    main_max: u64,
    protected_max: u64,
    queues: Queues<3>,
    sketch: Sketch,
}

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

impl WTinyLfu {
    /// A cache of `capacity` bytes, which are about `entries` entries.
    pub(crate) fn new(capacity: u64, entries: usize) -> Self {
        let window_max = capacity / 100;
        let main_max = capacity - window_max;
        Self {
            window_max,
            main_max,
            protected_max: main_max / 5 * 4,
            queues: Queues::new(),
            sketch: Sketch::new(entries),
        }
    }

    fn main_bytes(&self) -> u64 {
        self.queues.bytes(PROBATION) + self.queues.bytes(PROTECTED)
    }

    fn protect(&mut self, place: Place) {
        self.queues.move_to(PROTECTED, place);
        while self.queues.bytes(PROTECTED) > self.protected_max
            && let Some(place) = self.queues.back(PROTECTED)
        {
            self.queues.move_to(PROBATION, place);
        }
    }

    /// The entries that would have to leave for `bytes` more in the main part, if they are worth
    /// less than `count` gets.
    fn victims(&self, bytes: u64, count: u64) -> Option<Vec<Place>> {
        let (mut victims, mut worth) = (Vec::new(), 0);
        let mut left = (self.main_bytes() + bytes).saturating_sub(self.main_max);
        let mut next = self.queues.back(PROBATION);
        let mut is_protected = false;
        while left > 0 {
            let Some(place) = next else {
                if std::mem::replace(&mut is_protected, true) {
                    return None;
                }
                next = self.queues.back(PROTECTED);
                continue;
            };
            worth += self.sketch.count(self.queues.key(place));
            if worth >= count {
                return None;
            }
            left = left.saturating_sub(self.queues.entry_bytes(place));
            victims.push(place);
            next = self.queues.newer(place);
        }
        Some(victims)
    }

    fn leave_window(&mut self, place: Place) {
        let bytes = self.queues.entry_bytes(place);
        let count = self.sketch.count(self.queues.key(place));
        match self.victims(bytes, count) {
            Some(victims) => {
                for victim in victims {
                    self.queues.remove(victim);
                }
                self.queues.move_to(PROBATION, place);
            }
            None => self.queues.remove(place),
        }
    }
}

impl Policy for WTinyLfu {
    fn get(&mut self, key: u64, bytes: u32) -> bool {
        self.sketch.note(key);
        if let Some(place) = self.queues.find(key) {
            match self.queues.queue(place) {
                WINDOW => self.queues.move_to(WINDOW, place),
                _ => self.protect(place),
            }
            return true;
        }
        if u64::from(bytes) <= self.main_max {
            self.queues.push(WINDOW, key, bytes);
        }
        while self.queues.bytes(WINDOW) > self.window_max
            && let Some(place) = self.queues.back(WINDOW)
        {
            self.leave_window(place);
        }
        false
    }

    fn bytes(&self) -> u64 {
        self.queues.bytes(WINDOW) + self.main_bytes()
    }
}

/// Entries used once and entries used again, each with its ghosts, which shift the target between
/// the two (Megiddo and Modha, FAST 2003, figure 4), with bytes in the place of pages.
pub(crate) struct Arc {
    capacity: u64,
    /// The bytes that entries used once should have.
    target: u64,
    queues: Queues<4>,
}

const ONCE: usize = 0;
const AGAIN: usize = 1;
const ONCE_GHOST: usize = 2;
const AGAIN_GHOST: usize = 3;

impl Arc {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            target: 0,
            queues: Queues::new(),
        }
    }

    /// Makes room for `bytes`. Evicted entries become ghosts.
    fn make_room(&mut self, bytes: u64, is_again: bool) {
        while self.bytes() + bytes > self.capacity {
            let once = self.queues.bytes(ONCE);
            let is_over = once > self.target || is_again && once == self.target;
            let (first, second) = if is_over {
                (ONCE, AGAIN)
            } else {
                (AGAIN, ONCE)
            };
            let Some(place) = self.queues.back(first).or(self.queues.back(second)) else {
                return;
            };
            let ghost = self.queues.queue(place) + ONCE_GHOST;
            self.queues.move_to(ghost, place);
        }
    }

    /// Removes ghosts until the entries used once and their ghosts have at most the capacity, and
    /// all entries and ghosts twice the capacity.
    fn forget(&mut self) {
        while self.queues.bytes(ONCE) + self.queues.bytes(ONCE_GHOST) > self.capacity
            && let Some(place) = self.queues.back(ONCE_GHOST)
        {
            self.queues.remove(place);
        }
        let all = |queues: &Queues<4>| (0..4).map(|queue| queues.bytes(queue)).sum::<u64>();
        while all(&self.queues) > 2 * self.capacity
            && let Some(place) = self.queues.back(AGAIN_GHOST)
        {
            self.queues.remove(place);
        }
    }

    /// Shifts the target by what a ghost of `queue` says.
    fn learn(&mut self, queue: usize, bytes: u64) {
        let [once, again] = [ONCE_GHOST, AGAIN_GHOST].map(|queue| self.queues.bytes(queue).max(1));
        let step = |mine: u64, other: u64| bytes as f64 * (other as f64 / mine as f64).max(1.0);
        if queue == ONCE_GHOST {
            let target = self.target as f64 + step(once, again);
            self.target = (target as u64).min(self.capacity);
        } else {
            self.target = self.target.saturating_sub(step(again, once) as u64);
        }
    }
}

impl Policy for Arc {
    fn get(&mut self, key: u64, bytes: u32) -> bool {
        let size = u64::from(bytes);
        if let Some(place) = self.queues.find(key) {
            let queue = self.queues.queue(place);
            if queue == ONCE || queue == AGAIN {
                self.queues.move_to(AGAIN, place);
                return true;
            }
            self.learn(queue, size);
            self.queues.remove(place);
            self.make_room(size, queue == AGAIN_GHOST);
            self.queues.push(AGAIN, key, bytes);
        } else if size <= self.capacity {
            self.make_room(size, false);
            self.queues.push(ONCE, key, bytes);
        }
        self.forget();
        false
    }

    fn bytes(&self) -> u64 {
        self.queues.bytes(ONCE) + self.queues.bytes(AGAIN)
    }
}
