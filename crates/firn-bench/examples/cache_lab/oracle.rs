//! The fewest misses that a fixed choice of entries can reach.
//!
//! An oracle knows the frequencies, and takes entries in its order until the capacity is full; of
//! the last one a fraction counts. By gets per byte no other fixed choice is better: the optimum.

use crate::queues::KeyMap;
use crate::trace::{Get, Optimum, Trace};

/// A fixed choice of entries by what no cache can know.
#[derive(Clone, Copy)]
pub(crate) struct Oracle {
    pub(crate) name: &'static str,
    /// True if the size of an entry counts, false if its gets alone do.
    by_bytes: bool,
    /// The bytes that an entry takes beside key and value.
    overhead: u32,
}

/// The best fixed choice.
pub(crate) const OPTIMUM: Oracle = Oracle {
    name: "optimum",
    by_bytes: true,
    overhead: 0,
};

/// The oracles of the report. `BlockCache` may take 32 bytes beside key and value of a row.
pub(crate) const ORACLES: [Oracle; 3] = [
    OPTIMUM,
    Oracle {
        name: "optimum +32",
        overhead: 32,
        ..OPTIMUM
    },
    Oracle {
        name: "most frequent",
        by_bytes: false,
        ..OPTIMUM
    },
];

impl Oracle {
    /// The misses per counted get of this choice in `trace`, if they are known.
    pub(crate) fn misses(self, trace: &Trace) -> Option<f64> {
        let counted = &trace.gets[trace.counted.clone()];
        match &trace.optimum {
            Optimum::Unknown => None,
            Optimum::Exact(misses) => (self.name == OPTIMUM.name).then_some(*misses),
            Optimum::Expected(frequencies) => {
                Some(self.fixed(frequencies.clone(), trace.capacity, counted))
            }
            Optimum::Hindsight => {
                let mut counts: KeyMap<(Get, f64)> = KeyMap::default();
                for get in counted {
                    counts.entry(get.key).or_insert((*get, 0.0)).1 += 1.0;
                }
                let frequencies = counts.into_values().collect();
                Some(self.fixed(frequencies, trace.capacity, counted))
            }
        }
    }

    /// The misses per get of `counted` if the cache holds the first entries in this order.
    fn fixed(self, mut frequencies: Vec<(Get, f64)>, capacity: u64, counted: &[Get]) -> f64 {
        let bytes = |get: &Get| f64::from((get.bytes + self.overhead).max(1));
        let rank = |(get, frequency): &(Get, f64)| match self.by_bytes {
            true => frequency / bytes(get),
            false => *frequency,
        };
        frequencies.sort_unstable_by(|a, b| {
            let by_rank = rank(b).total_cmp(&rank(a));
            by_rank.then_with(|| a.0.key.cmp(&b.0.key))
        });
        let mut held: KeyMap<f64> = KeyMap::default();
        let mut left = capacity as f64;
        for (get, _) in &frequencies {
            held.insert(get.key, (left / bytes(get)).min(1.0));
            left -= bytes(get);
            if left <= 0.0 {
                break;
            }
        }
        let hits = counted.iter().filter_map(|get| held.get(&get.key));
        1.0 - hits.sum::<f64>() / counted.len().max(1) as f64
    }
}
