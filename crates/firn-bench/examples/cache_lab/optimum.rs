//! The fewest misses that a fixed choice of entries can reach.
//!
//! Entries are chosen by their gets per byte until the capacity is full; of the last one a fraction
//! counts, so that no other fixed choice is better.

use crate::queues::KeyMap;
use crate::trace::{Get, Optimum, Trace};

/// The misses per counted get of the optimum of `trace`, if it has one.
pub(crate) fn misses(trace: &Trace) -> Option<f64> {
    let counted = &trace.gets[trace.counted.clone()];
    match &trace.optimum {
        Optimum::Unknown => None,
        Optimum::Exact(misses) => Some(*misses),
        Optimum::Expected(frequencies) => Some(fixed(frequencies.clone(), trace.capacity, counted)),
        Optimum::Hindsight => {
            let mut counts: KeyMap<(Get, f64)> = KeyMap::default();
            for get in counted {
                counts.entry(get.key).or_insert((*get, 0.0)).1 += 1.0;
            }
            Some(fixed(
                counts.into_values().collect(),
                trace.capacity,
                counted,
            ))
        }
    }
}

/// The misses per get of `counted` if the cache holds the entries with the highest frequencies per
/// byte.
fn fixed(mut frequencies: Vec<(Get, f64)>, capacity: u64, counted: &[Get]) -> f64 {
    let density = |(get, frequency): &(Get, f64)| frequency / f64::from(get.bytes.max(1));
    frequencies.sort_unstable_by(|a, b| {
        let by_density = density(b).total_cmp(&density(a));
        by_density.then_with(|| a.0.key.cmp(&b.0.key))
    });
    let mut held: KeyMap<f64> = KeyMap::default();
    let mut left = capacity as f64;
    for (get, _) in &frequencies {
        let fraction = (left / f64::from(get.bytes.max(1))).min(1.0);
        held.insert(get.key, fraction);
        left -= f64::from(get.bytes);
        if left <= 0.0 {
            break;
        }
    }
    let hits = counted.iter().filter_map(|get| held.get(&get.key));
    1.0 - hits.sum::<f64>() / counted.len().max(1) as f64
}
