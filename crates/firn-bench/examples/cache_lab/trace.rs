//! Traces of gets: which key is asked for, how large its entry is, and which gets count.
//!
//! 1. A key has the same size in all gets of a trace.
//! 2. Misses are counted over the second half of the gets, after the caches have filled. The traces
//!    `moved` count from the move on, for ten times as many gets as the cache has entries, and
//!    `behind a scan` counts from the end of the scan on.
//! 3. The capacity is a tenth of the bytes of all keys. `loop` goes round over half as much again
//!    as the capacity.
//!
//! A trace depends on nothing but its name and its scale.

use crate::queues::KeyMap;
use firn_base::seed::{Seed, mix};
use firn_base::{Error, Result};
use firn_bench::{Permutation, Zipf};
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::path::Path;

/// The bytes of a key.
pub(crate) const KEY_BYTES: u32 = 24;
/// The fraction of all bytes that fits into the cache: one in so many.
const CAPACITY_ONE_IN: u64 = 10;
/// Gets that count after a move, for each entry of the cache.
const GETS_AFTER_MOVE: u64 = 10;
/// In `beside scans`, one get in so many belongs to a scan.
const SCAN_ONE_IN: u64 = 4;
/// In `latest`, a key is inserted with one get in so many.
const INSERT_ONE_IN: u64 = 20;
const SEED: u64 = 20;
/// The longest of short scans, in entries, and the entries in a block that they read.
const SCAN_MAX: u64 = 100;
const ENTRIES_A_BLOCK: u64 = 4;
/// The orders of the keys before and after a move.
const ORDERS: [u64; 2] = [1, 2];

/// A get.
#[derive(Clone, Copy)]
pub(crate) struct Get {
    pub(crate) key: u64,
    /// The bytes of key and value.
    pub(crate) bytes: u32,
}

/// The basis of the fewest misses that any choice of entries could reach.
pub(crate) enum Optimum {
    /// None is known.
    Unknown,
    /// It is known exactly: misses per get.
    Exact(f64),
    /// The keys of the most expected gets per byte: all keys with their frequencies.
    Expected(Vec<(Get, f64)>),
    /// The keys of the most counted gets per byte. No cache can know them, so it is a loose bound.
    Hindsight,
}

/// A sequence of gets, for a cache of `capacity` bytes.
pub(crate) struct Trace {
    pub(crate) gets: Vec<Get>,
    pub(crate) counted: Range<usize>,
    pub(crate) capacity: u64,
    pub(crate) optimum: Optimum,
}

impl Trace {
    /// The mean size of the gets' entries, in bytes.
    fn mean_bytes(&self) -> u64 {
        let sum: u64 = self.gets.iter().map(|get| u64::from(get.bytes)).sum();
        (sum / self.gets.len().max(1) as u64).max(1)
    }

    /// The number of entries that fit, roughly.
    pub(crate) fn entries(&self) -> usize {
        (self.capacity / self.mean_bytes()).max(1) as usize
    }
}

/// The extent of a trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) keys: u64,
    pub(crate) gets: u64,
}

/// A trace that can be made.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    make: Box<dyn Fn(Scale) -> Trace>,
}

impl Plan {
    fn new(name: &'static str, make: impl Fn(Scale) -> Trace + 'static) -> Self {
        let make = Box::new(make);
        Self { name, make }
    }

    pub(crate) fn make(&self, scale: Scale) -> Trace {
        (self.make)(scale)
    }
}

/// All traces that are made rather than recorded.
pub(crate) fn plans() -> Vec<Plan> {
    use Values::{Kibibyte, Mixed, Small};
    vec![
        Plan::new("zipf 0.7", |scale| stationary(scale, 0.7, Kibibyte)),
        Plan::new("zipf 0.8", |scale| stationary(scale, 0.8, Kibibyte)),
        Plan::new("zipf 0.9", |scale| stationary(scale, 0.9, Kibibyte)),
        Plan::new("zipf 0.99", |scale| stationary(scale, 0.99, Kibibyte)),
        Plan::new("zipf 0.99 of 100 B", |scale| stationary(scale, 0.99, Small)),
        Plan::new("zipf 0.9 of mixed sizes", |scale| {
            stationary(scale, 0.9, Mixed)
        }),
        Plan::new("moved 0.8", |scale| moved(scale, 0.8)),
        Plan::new("moved 0.99", |scale| moved(scale, 0.99)),
        Plan::new("zipf 0.99 beside scans", |scale| beside_scans(scale, 0.99)),
        Plan::new("zipf 0.99 behind a scan", |scale| {
            behind_a_scan(scale, 0.99)
        }),
        Plan::new("scans of blocks", |scale| scans_of_blocks(scale, 0.99)),
        Plan::new("latest", |scale| latest(scale, 0.99)),
        Plan::new("uniform", |scale| stationary(scale, 0.0, Kibibyte)),
        Plan::new("loop", cyclic),
    ]
}

/// The sizes of values.
#[derive(Clone, Copy)]
enum Values {
    Small,
    Kibibyte,
    /// 64 B to 16 KiB, uniform in the logarithm.
    Mixed,
}

impl Values {
    fn get(self, key: u64) -> Get {
        let value = match self {
            Values::Small => 100,
            Values::Kibibyte => 1024,
            Values::Mixed => (64.0 * 256f64.powf(Seed::new(mix(key)).unit())) as u32,
        };
        let bytes = value + KEY_BYTES;
        Get { key, bytes }
    }
}

/// The capacity for a database of these keys.
fn capacity(values: Values, keys: u64) -> u64 {
    let all = (0..keys).map(|key| u64::from(values.get(key).bytes));
    all.sum::<u64>() / CAPACITY_ONE_IN
}

/// Keys by a scrambled Zipf distribution.
struct Skewed {
    zipf: Zipf,
    theta: f64,
    order: Permutation,
    values: Values,
}

impl Skewed {
    fn new(keys: u64, theta: f64, values: Values) -> Self {
        Self {
            zipf: Zipf::new(keys, theta),
            theta,
            order: Permutation::new(keys, ORDERS[0]),
            values,
        }
    }

    /// The same distribution with all ranks at other keys.
    fn moved(mut self, keys: u64) -> Self {
        self.order = Permutation::new(keys, ORDERS[1]);
        self
    }

    fn at(&self, rank: u64) -> Get {
        self.values.get(self.order.get(rank))
    }

    fn get(&self, seed: &mut Seed) -> Get {
        self.at(self.zipf.rank(seed.unit()))
    }

    fn optimum(&self, keys: u64) -> Optimum {
        let frequency = |rank: u64| (rank as f64 + 1.0).powf(-self.theta);
        Optimum::Expected(
            (0..keys)
                .map(|rank| (self.at(rank), frequency(rank)))
                .collect(),
        )
    }
}

fn second_half(gets: u64) -> Range<usize> {
    gets as usize / 2..gets as usize
}

fn stationary(scale: Scale, theta: f64, values: Values) -> Trace {
    let (skewed, mut seed) = (Skewed::new(scale.keys, theta, values), Seed::new(SEED));
    Trace {
        gets: (0..scale.gets).map(|_| skewed.get(&mut seed)).collect(),
        counted: second_half(scale.gets),
        capacity: capacity(values, scale.keys),
        optimum: skewed.optimum(scale.keys),
    }
}

/// All ranks get other keys at half of the gets.
fn moved(scale: Scale, theta: f64) -> Trace {
    let before = Skewed::new(scale.keys, theta, Values::Kibibyte);
    let mut seed = Seed::new(SEED);
    let half = scale.gets / 2;
    let mut gets: Vec<Get> = (0..half).map(|_| before.get(&mut seed)).collect();
    let after = before.moved(scale.keys);
    gets.extend((half..scale.gets).map(|_| after.get(&mut seed)));
    let optimum = after.optimum(scale.keys);
    let counted = scale.keys / CAPACITY_ONE_IN * GETS_AFTER_MOVE;
    Trace {
        gets,
        counted: half as usize..(half + counted).min(scale.gets) as usize,
        capacity: capacity(Values::Kibibyte, scale.keys),
        optimum,
    }
}

/// Every fourth get is the next one of a scan. A scan is of 100 to 1000 keys in a row, from a
/// random one on; the next scan follows at once.
fn beside_scans(scale: Scale, theta: f64) -> Trace {
    let skewed = Skewed::new(scale.keys, theta, Values::Kibibyte);
    let mut seed = Seed::new(SEED);
    let (mut next, mut left) = (0, 0);
    let mut get = |number: u64| {
        if !number.is_multiple_of(SCAN_ONE_IN) {
            return skewed.get(&mut seed);
        }
        if left == 0 {
            (next, left) = (seed.below(scale.keys), 100 + seed.below(901));
        }
        let key = next % scale.keys;
        (next, left) = (next + 1, left - 1);
        Values::Kibibyte.get(key)
    };
    Trace {
        gets: (0..scale.gets).map(&mut get).collect(),
        counted: second_half(scale.gets),
        capacity: capacity(Values::Kibibyte, scale.keys),
        optimum: skewed.optimum(scale.keys),
    }
}

/// A scan over all keys in the middle, in addition to the gets.
fn behind_a_scan(scale: Scale, theta: f64) -> Trace {
    let mut trace = stationary(scale, theta, Values::Kibibyte);
    let middle = trace.counted.start;
    let scan = (0..scale.keys).map(|key| Values::Kibibyte.get(key));
    trace.gets.splice(middle..middle, scan);
    trace.counted = middle + scale.keys as usize..trace.gets.len();
    trace
}

/// Scans of 1 to [`SCAN_MAX`] entries of 1 KiB from Zipf-distributed keys on. A get is of a block
/// of [`ENTRIES_A_BLOCK`] entries.
fn scans_of_blocks(scale: Scale, theta: f64) -> Trace {
    let skewed = Skewed::new(scale.keys, theta, Values::Kibibyte);
    let block = |number: u64| Get {
        key: number,
        bytes: ENTRIES_A_BLOCK as u32 * Values::Kibibyte.get(0).bytes,
    };
    let (blocks, mut seed) = (scale.keys / ENTRIES_A_BLOCK, Seed::new(SEED));
    let mut gets = Vec::new();
    while (gets.len() as u64) < scale.gets {
        let first = skewed.get(&mut seed).key;
        let last = first + seed.below(SCAN_MAX);
        let passed = first / ENTRIES_A_BLOCK..last / ENTRIES_A_BLOCK + 1;
        gets.extend(passed.map(|number| block(number % blocks)));
    }
    let mut frequencies: Vec<(Get, f64)> = (0..blocks).map(|at| (block(at), 0.0)).collect();
    for rank in 0..scale.keys {
        let first = skewed.at(rank).key;
        let frequency = (rank as f64 + 1.0).powf(-theta);
        for ahead in (0..SCAN_MAX).step_by(ENTRIES_A_BLOCK as usize) {
            let reached = 1.0 - ahead as f64 / SCAN_MAX as f64;
            let at = (first + ahead) / ENTRIES_A_BLOCK % blocks;
            frequencies[at as usize].1 += frequency * reached;
        }
    }
    Trace {
        gets,
        counted: second_half(scale.gets),
        capacity: capacity(Values::Kibibyte, scale.keys),
        optimum: Optimum::Expected(frequencies),
    }
}

/// Keys by how recently they were inserted. The insertions themselves do not go through the cache.
fn latest(scale: Scale, theta: f64) -> Trace {
    let (zipf, mut seed) = (Zipf::new(scale.keys, theta), Seed::new(SEED));
    let get = |number: u64| {
        let newest = scale.keys - 1 + number / INSERT_ONE_IN;
        Values::Kibibyte.get(newest - zipf.rank(seed.unit()))
    };
    Trace {
        gets: (0..scale.gets).map(get).collect(),
        counted: second_half(scale.gets),
        capacity: capacity(Values::Kibibyte, scale.keys),
        optimum: Optimum::Unknown,
    }
}

/// The same keys again and again, more than fit. No cache can hit more often than by keeping the
/// same ones.
fn cyclic(scale: Scale) -> Trace {
    let capacity = capacity(Values::Kibibyte, scale.keys);
    let length = (scale.keys * 3 / (CAPACITY_ONE_IN * 2)).max(1);
    let fits = capacity / u64::from(Values::Kibibyte.get(0).bytes);
    let get = |number: u64| Values::Kibibyte.get(number % length);
    Trace {
        gets: (0..scale.gets).map(get).collect(),
        counted: second_half(scale.gets),
        capacity,
        optimum: Optimum::Exact(1.0 - (fits as f64 / length as f64).min(1.0)),
    }
}

/// The trace in the file at `path`: a get in each line, as a hexadecimal hash of the key and the
/// decimal bytes of key and value. A key keeps the size of its first get.
///
/// # Errors
/// If the file cannot be read, or the first line that is not a get.
pub(crate) fn recorded(path: &Path) -> Result<Trace> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::from_io("read", path, e))?;
    let (mut gets, mut sizes, mut all) = (Vec::new(), KeyMap::default(), 0);
    for (index, line) in text.lines().enumerate() {
        let mut get = parse(line).ok_or_else(|| {
            Error::invalid(format!(
                "{} line {}: `{line}` is not a get: expected the hash of a key in hexadecimal \
                 digits, a space, and the bytes of key and value as a decimal number",
                path.display(),
                index + 1
            ))
        })?;
        match sizes.entry(get.key) {
            Entry::Occupied(size) => get.bytes = *size.get(),
            Entry::Vacant(size) => {
                size.insert(get.bytes);
                all += u64::from(get.bytes);
            }
        }
        gets.push(get);
    }
    if gets.is_empty() {
        let message = format!("{} has no gets: expected one in each line", path.display());
        return Err(Error::invalid(message));
    }
    Ok(Trace {
        counted: second_half(gets.len() as u64),
        capacity: all / CAPACITY_ONE_IN,
        gets,
        optimum: Optimum::Hindsight,
    })
}

fn parse(line: &str) -> Option<Get> {
    let (hash, bytes) = line.trim().split_once(' ')?;
    let key = u64::from_str_radix(hash, 16).ok()?;
    let bytes = bytes.trim().parse().ok()?;
    Some(Get { key, bytes })
}
