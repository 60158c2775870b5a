//! The list of candidates, by name.

use crate::libraries::{Engine, Foyer, Library, Moka, Quick, Replayed};
use crate::policies::{Arc, Lru, Policy, S3Fifo, Sieve, WTinyLfu};
use foyer_memory::{LfuConfig, S3FifoConfig};

/// The room of a cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// The bytes that it may hold.
    pub(crate) bytes: u64,
    /// The number of entries that fit, roughly.
    pub(crate) entries: usize,
}

#[derive(Clone, Copy)]
enum Make {
    Policy(fn(Room) -> Box<dyn Policy>),
    Library(fn(Room) -> Box<dyn Library>),
}

/// A cache to be compared.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    make: Make,
}

/// The bytes that the engine adds to an entry of `quick_cache`.
const QUICK_OVERHEAD: u64 = 192;

/// All candidates, in the order of the tables.
pub(crate) const CANDIDATES: [Candidate; 11] = [
    policy("LRU", |room| Box::new(Lru::new(room.bytes))),
    policy("SIEVE", |room| Box::new(Sieve::new(room.bytes))),
    policy("S3-FIFO", |room| Box::new(S3Fifo::new(room.bytes))),
    policy("W-TinyLFU", |room| {
        Box::new(WTinyLfu::new(room.bytes, room.entries))
    }),
    policy("ARC", |room| Box::new(Arc::new(room.bytes))),
    library("quick_cache", |room| {
        Box::new(Quick::new(room.bytes, room.entries, 0))
    }),
    library("quick_cache+192", |room| {
        Box::new(Quick::new(room.bytes, room.entries, QUICK_OVERHEAD))
    }),
    library("moka", |room| Box::new(Moka::new(room.bytes))),
    library("foyer LFU", |room| {
        Box::new(Foyer::new(room.bytes, LfuConfig::default()))
    }),
    library("foyer S3-FIFO", |room| {
        Box::new(Foyer::new(room.bytes, S3FifoConfig::default()))
    }),
    library("BlockCache", |room| Box::new(Engine::new(room.bytes))),
];

const fn policy(name: &'static str, make: fn(Room) -> Box<dyn Policy>) -> Candidate {
    let make = Make::Policy(make);
    Candidate { name, make }
}

const fn library(name: &'static str, make: fn(Room) -> Box<dyn Library>) -> Candidate {
    let make = Make::Library(make);
    Candidate { name, make }
}

impl Candidate {
    /// An empty cache, to replay a trace.
    pub(crate) fn policy(&self, room: Room) -> Box<dyn Policy> {
        match self.make {
            Make::Policy(make) => make(room),
            Make::Library(make) => Box::new(Replayed::new(make(room))),
        }
    }

    /// An empty cache with real entries, to measure its costs. `None` for a mere policy.
    pub(crate) fn library(&self, room: Room) -> Option<Box<dyn Library>> {
        match self.make {
            Make::Policy(_) => None,
            Make::Library(make) => Some(make(room)),
        }
    }

    /// True if [`Candidate::library`] gives one.
    pub(crate) fn is_library(&self) -> bool {
        matches!(self.make, Make::Library(_))
    }
}
