//! Estimates which keys are hot: the number of recent writes per key, by hash, in a bounded table.
//!
//! A bucket holds eight keys. A key that is not in its bucket decrements the smallest count, and
//! takes that place once the count is 0. So keys written once displace each other, but not frequent
//! keys. All counts are halved from time to time, so that a key that was hot long ago is no longer
//! hot.

/// The number of keys in a bucket.
const WAYS: usize = 8;
/// Counts are halved after this many writes per place in the table.
const HALVED_AFTER: u64 = 16;

#[derive(Debug, Clone, Default)]
#[repr(align(64))]
struct Bucket {
    tags: [u32; WAYS],
    counts: [u8; WAYS],
}

/// The write counts.
#[derive(Debug)]
pub(super) struct HotKeys {
    buckets: Vec<Bucket>,
    writes: u64,
}

impl HotKeys {
    /// A table for about `keys` keys.
    pub(super) fn new(keys: usize) -> HotKeys {
        HotKeys {
            buckets: vec![Bucket::default(); keys.div_ceil(WAYS).max(1)],
            writes: 0,
        }
    }

    /// Counts a write of the key with `hash`. Returns the number of its recent writes, and true if
    /// all counts were halved.
    pub(super) fn count(&mut self, hash: u64) -> (u8, bool) {
        self.writes += 1;
        let halves = self
            .writes
            .is_multiple_of(HALVED_AFTER * (self.buckets.len() * WAYS) as u64);
        if halves {
            self.buckets
                .iter_mut()
                .flat_map(|bucket| &mut bucket.counts)
                .for_each(|count| *count /= 2);
        }
        let at = ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize;
        let Bucket { tags, counts } = &mut self.buckets[at];
        let tag = hash as u32;
        let found = (0..WAYS).find(|&way| counts[way] > 0 && tags[way] == tag);
        let count = match found {
            Some(way) => {
                counts[way] = counts[way].saturating_add(1);
                counts[way]
            }
            None => {
                let least = (0..WAYS).min_by_key(|&way| counts[way]).unwrap_or(0);
                if counts[least] > 0 {
                    counts[least] -= 1;
                }
                if counts[least] == 0 {
                    (tags[least], counts[least]) = (tag, 1);
                }
                1
            }
        };
        (count, halves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::seed::mix;

    #[test]
    fn what_comes_often_is_told_from_what_comes_once() {
        let mut keys = HotKeys::new(256);
        let mut last = [0; 20];
        for round in 0..2_000u64 {
            for hot in 0..20 {
                last[hot as usize] = keys.count(mix(hot)).0;
            }
            for once in 0..80 {
                let (count, _) = keys.count(mix(1_000 + round * 80 + once));
                assert!(count < 8, "a key that comes once was counted {count} times");
            }
        }
        assert!(last.iter().all(|&count| count > 20), "{last:?}");
        // Keys that are no longer written are forgotten.
        (0..200_000u64).for_each(|i| _ = keys.count(mix(1_000_000 + i)));
        assert!((0..20).all(|hot| keys.count(mix(hot)).0 < 20));
    }
}
