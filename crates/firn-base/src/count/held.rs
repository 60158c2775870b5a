//! The bytes that readers of a database hold, summed without a cache line that they share.
//!
//! 1. A thread adds to a shard of its own. Whoever drops what is held, on whatever thread,
//!    subtracts where it was added.
//! 2. A slot outlives its database, because what readers hold may. It is given to another database
//!    once the sum is zero.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

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
struct Shard(AtomicI64);

impl Slot {
    const fn new() -> Slot {
        Slot {
            is_taken: AtomicBool::new(false),
            shards: [const { Shard(AtomicI64::new(0)) }; SHARDS],
        }
    }

    fn bytes(&self) -> i64 {
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
        let take = |slot: &&Slot| {
            slot.bytes() == 0
                && slot
                    .is_taken
                    .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        };
        HeldBytes(SLOTS_OF_DATABASES.iter().find(take).unwrap_or(&SHARED))
    }

    /// The sum now.
    pub fn bytes(&self) -> u64 {
        self.0.bytes().max(0) as u64
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
        held.shard.0.fetch_add(bytes as i64, Ordering::Relaxed);
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
        self.shard.0.fetch_add(bytes as i64, Ordering::Relaxed);
        Held {
            shard: self.shard,
            bytes,
        }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.shard.0.fetch_sub(self.bytes as i64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_until_it_is_dropped_anywhere() {
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
    }

    #[test]
    fn a_slot_is_not_used_again_while_something_is_held() {
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
