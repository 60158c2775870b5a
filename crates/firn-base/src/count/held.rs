//! The bytes that readers of a database hold, summed without a cache line that they share.
//!
//! 1. A thread adds to a shard of its own. Whoever drops what is held, on whatever thread,
//!    subtracts where it was added.
//! 2. A slot outlives its database, because what readers hold may. It is given to another database
//!    once the sum is zero.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 16;
/// The number of databases of a process that have a sum of their own. All others share one.
const SLOTS: usize = 64;

static SLOTS_OF_DATABASES: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
static SHARED: Slot = Slot::new();
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The shard of this thread.
    static SHARD: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
}

#[derive(Debug)]
struct Slot {
    is_taken: AtomicBool,
    shards: [Shard; SHARDS],
}

/// A part of a sum, in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Shard(AtomicU64);

impl Slot {
    const fn new() -> Slot {
        Slot {
            is_taken: AtomicBool::new(false),
            shards: [const { Shard(AtomicU64::new(0)) }; SHARDS],
        }
    }

    /// Takes the slot for a database. False if another one has it, or left something held.
    fn take(&self) -> bool {
        if self.is_taken.swap(true, Ordering::AcqRel) {
            return false;
        }
        let is_empty = self.bytes() == 0;
        self.is_taken.store(is_empty, Ordering::Release);
        is_empty
    }

    fn bytes(&self) -> u64 {
        let shards = self.shards.iter();
        shards.map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}

/// The bytes that readers of one database hold.
#[derive(Debug)]
pub struct HeldBytes(&'static Slot);

impl HeldBytes {
    /// A sum of zero. The 65th database of a process and those after it have one in common.
    pub fn begin() -> HeldBytes {
        let free = SLOTS_OF_DATABASES.iter().find(|slot| slot.take());
        HeldBytes(free.unwrap_or(&SHARED))
    }

    /// The sum now.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Adds `bytes` until the answer is dropped.
    #[inline]
    pub fn hold(&self, bytes: usize) -> Held {
        // A thread that ends may have no shard anymore.
        let shard = SHARD.try_with(Cell::get).unwrap_or(0);
        let held = Held {
            shard: &self.0.shards[shard],
            bytes,
        };
        held.shard.0.fetch_add(bytes as u64, Ordering::Relaxed);
        held
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub struct Held {
    shard: &'static Shard,
    bytes: usize,
}

impl Held {
    /// Adds `bytes` to the same sum.
    pub fn and(&self, bytes: usize) -> Held {
        self.shard.0.fetch_add(bytes as u64, Ordering::Relaxed);
        Held {
            shard: self.shard,
            bytes,
        }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.shard.0.fetch_sub(self.bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_until_it_is_dropped() {
        let (one, other) = (HeldBytes::begin(), HeldBytes::begin());
        let held: Vec<Held> = (0..10).map(|_| one.hold(100)).collect();
        let more = held[0].and(50);
        assert_eq!((one.bytes(), other.bytes()), (1050, 0));
        std::thread::scope(|scope| {
            scope.spawn(move || drop(held));
        });
        assert_eq!(one.bytes(), 50);
        drop(more);
        assert_eq!(one.bytes(), 0);
        drop((one, other));
        // In the same test, because it takes all slots.
        let first = HeldBytes::begin();
        let slot: *const Slot = first.0;
        let held = first.hold(7);
        drop(first);
        let others: Vec<HeldBytes> = (0..SLOTS + 2).map(|_| HeldBytes::begin()).collect();
        assert!(others.iter().all(|other| !std::ptr::eq(other.0, slot)));
        assert!(others.iter().any(|other| std::ptr::eq(other.0, &SHARED)));
        assert!(others.iter().all(|other| other.bytes() == 0));
        drop((held, others));
    }
}
