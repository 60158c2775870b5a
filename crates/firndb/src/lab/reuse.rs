//! Predicts whether flushed keys will be written again while they are in the trees.
//!
//! The trees are for keys that are written again, because an entry replaced there costs level 1
//! nothing. Any other entry is read back from its log, page by page, when it is evicted, which
//! costs the device more than writing it as a table of level 0 in the first place. So the keys of
//! each memtable are compared with those of the memtables before it, as many as the trees could
//! hold. If few were among them and the trees are empty, the memtable becomes a table. LAB-DB has
//! no such rule: it is ours.
//!
//! Keys are sampled by their hashes, the same ones each time, so the share of the sample that was
//! seen before is that of all keys.

use crate::memtable::Memtable;
use firn_base::SeqNo;
use firn_base::exec::give_way;
use firn_base::sync::Mutex;
use firn_table::sst::hash;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The approximate number of keys that are remembered.
const SAMPLE_KEYS: u64 = 4096;
/// The number of sampled keys needed for a result, gathered over as many memtables as that takes.
const TELLING_KEYS: u64 = 64;

/// The sample and its result.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    sample: Mutex<Sample>,
    /// The newest memtable, by its last entry, and its result, because a flush may be retried. In a
    /// lock of its own, so that no reader waits while a memtable is scanned.
    newest: Mutex<Option<(SeqNo, Option<f64>)>>,
}

#[derive(Debug, Default)]
struct Sample {
    /// One key in this many is sampled. Chosen with the first memtable, so that the same keys are
    /// sampled ever after.
    one_in: Option<u64>,
    /// The last memtable that had each key.
    seen: HashMap<u64, SeqNo>,
    /// Each key with each memtable that had it, oldest first.
    order: VecDeque<(u64, SeqNo)>,
    /// Keys since the share was last computed, and the number of these that were seen before.
    since: (u64, u64),
    /// The share among the last `TELLING_KEYS` or more keys.
    share: Option<f64>,
}

impl Reuse {
    /// The share of the newest keys that were seen before, if known.
    pub(crate) fn newest(&self) -> Option<f64> {
        self.newest.lock().and_then(|(_, share)| share)
    }

    /// The share of the keys of `buffer` that were in the memtables before it. `None` while too
    /// little is known, or if `buffer` is not the newest that was sampled.
    pub(crate) fn share_of(&self, buffer: &Memtable) -> Option<f64> {
        self.known(buffer).flatten()
    }

    /// Samples `buffer`, which is compared with the memtables before it: as many as have the number
    /// of keys that `window` returns for a key like these. Keys are gathered over several memtables
    /// if `buffer` has too few.
    pub(crate) fn sample(&self, buffer: &Arc<Memtable>, window: impl Fn(&[u8]) -> u64) {
        if self.known(buffer).is_some() {
            return;
        }
        let mut sample = self.sample.lock();
        // Another thread may have sampled it meanwhile.
        if self.known(buffer).is_none() {
            let last = buffer.frozen_at().unwrap_or_default();
            let share = sample.share(buffer, last, window);
            *self.newest.lock() = Some((last, share));
        }
    }

    fn known(&self, buffer: &Memtable) -> Option<Option<f64>> {
        let last = buffer.frozen_at().unwrap_or_default();
        let known = self.newest.lock().filter(|(newest, _)| *newest == last);
        known.map(|(_, share)| share)
    }
}

impl Sample {
    fn share(
        &mut self,
        buffer: &Arc<Memtable>,
        last: SeqNo,
        window: impl Fn(&[u8]) -> u64,
    ) -> Option<f64> {
        let mut iter = buffer.iter();
        iter.first();
        let window = if iter.valid() {
            window(iter.key())
        } else {
            return self.share;
        };
        let one_in = *self.one_in.get_or_insert((window / SAMPLE_KEYS).max(1));
        let (is_first, mut before) = (self.order.is_empty(), None);
        while iter.valid() {
            let key = hash(iter.key());
            if before != Some(key) && key.is_multiple_of(one_in) {
                let again = self.see(key, last);
                self.since = (self.since.0 + 1, self.since.1 + u64::from(again));
            }
            before = Some(key);
            iter.next();
            give_way();
        }
        self.forget((window / one_in) as usize);
        if is_first {
            // There was nothing to compare it with.
            self.since = (0, 0);
        } else if self.since.0 >= TELLING_KEYS {
            let (keys, again) = std::mem::take(&mut self.since);
            self.share = Some(again as f64 / keys as f64);
        }
        self.share
    }

    /// Records `key`. True if it was seen before.
    fn see(&mut self, key: u64, buffer: SeqNo) -> bool {
        self.order.push_back((key, buffer));
        self.seen.insert(key, buffer).is_some()
    }

    /// Keeps the newest `most` records.
    fn forget(&mut self, most: usize) {
        while self.order.len() > most.max(1) {
            let Some((key, buffer)) = self.order.pop_front() else {
                return;
            };
            if self.seen.get(&key) == Some(&buffer) {
                self.seen.remove(&key);
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::memtable::{Entry, Footprint};
    use firn_base::FileId;
    use firn_base::key::Kind;

    fn share(reuse: &Reuse, buffer: &Arc<Memtable>, window: impl Fn(&[u8]) -> u64) -> Option<f64> {
        reuse.sample(buffer, window);
        reuse.share_of(buffer)
    }

    /// A memtable that ended with entry `last`, with these keys, each twice.
    fn buffer(last: u64, keys: impl Iterator<Item = u32>) -> Arc<Memtable> {
        let buffer = Arc::new(Memtable::new(1 << 20, FileId(1)));
        for (i, key) in keys.flat_map(|key| [key, key]).enumerate() {
            let key = key.to_be_bytes();
            let entry = || {
                std::iter::once(Entry {
                    kind: Kind::Put,
                    key: &key,
                    value: b"",
                })
            };
            let reservation = buffer
                .reserve(entry(), Footprint::of(entry(), 0))
                .expect("room");
            reservation.link(SeqNo(i as u64 + 1));
        }
        buffer.freeze(SeqNo(last));
        buffer
    }

    #[test]
    fn tells_what_is_written_again_from_what_is_new() {
        let reuse = Reuse::default();
        let window = |_: &[u8]| 2 * SAMPLE_KEYS;
        assert_eq!(
            share(&reuse, &buffer(1, 0..4000), window),
            None,
            "nothing to compare it with"
        );
        assert_eq!(reuse.newest(), None);
        let second = buffer(2, 2000..6000);
        let half = share(&reuse, &second, window).expect("a share");
        assert!(
            (0.45..0.55).contains(&half) && reuse.newest() == Some(half),
            "{half}"
        );
        assert_eq!(
            share(&reuse, &second, window),
            Some(half),
            "a flush that is tried again"
        );
        assert_eq!(share(&reuse, &buffer(3, 2000..6000), window), Some(1.0));
        assert_eq!(
            share(&reuse, &buffer(4, 0..2000), window),
            Some(0.0),
            "as long ago as trees do not reach"
        );
        assert!(
            reuse.sample.lock().order.len() <= SAMPLE_KEYS as usize,
            "half of the keys are sampled"
        );
    }

    #[test]
    fn a_few_keys_say_nothing_by_themselves() {
        let reuse = Reuse::default();
        let window = |_: &[u8]| SAMPLE_KEYS;
        share(&reuse, &buffer(1, 0..100), window);
        assert_eq!(share(&reuse, &buffer(2, 0..40), window), None);
        assert_eq!(
            share(&reuse, &buffer(3, 1000..1040), window),
            Some(0.5),
            "of both"
        );
        assert_eq!(
            share(&reuse, &buffer(4, 2000..2010), window),
            Some(0.5),
            "as before"
        );
    }
}
