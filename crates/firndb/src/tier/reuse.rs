//! Whether what is written will be written again while the trees have it.
//!
//! The trees are for keys that are: an entry that is replaced there costs level 1 nothing. One that is not is read back
//! from its log, page by page, when it is evicted, which costs a device more than to have written it as a table of
//! level 0 in the first place. So the keys of each buffer are compared with those of the buffers before it, as many as
//! trees could hold; if few were among them and the trees are empty, the buffer becomes a table. LAB-DB has no such
//! rule: it is ours.
//!
//! Keys are sampled by their hashes, the same ones each time, so the share of a sample that was seen before is that of
//! all keys.

use crate::buffer::Buffer;
use firn_base::exec::give_way;
use firn_base::sync::Mutex;
use firn_table::sst::hash;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Keys that are remembered, about.
const SAMPLE_KEYS: u64 = 4096;

/// The sample, and what it says.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    sample: Mutex<Sample>,
    /// The log of the newest buffer and the share of its keys: a flush may be tried again. Apart, so that nobody waits
    /// while a buffer is gone through.
    newest: Mutex<Option<(u64, f64)>>,
}

#[derive(Debug, Default)]
struct Sample {
    /// The last buffer, by log, that had each.
    seen: HashMap<u64, u64>,
    /// Each with each buffer that had it, oldest first.
    order: VecDeque<(u64, u64)>,
}

impl Reuse {
    /// Whether less than `least` of the newest buffer's keys were seen before.
    pub(crate) fn is_below(&self, least: f64) -> bool {
        self.newest.lock().is_some_and(|(_, share)| share < least)
    }

    /// The share of the keys of `buffer` that were among those of the buffers before it, as many as `window` says for
    /// keys like one of them.
    pub(crate) fn share(&self, buffer: &Arc<Buffer>, window: impl Fn(&[u8]) -> u64) -> f64 {
        let known = *self.newest.lock();
        if let Some((_, share)) = known.filter(|(log, _)| *log == buffer.log_id) {
            return share;
        }
        let share = self.sample.lock().share(buffer, window);
        *self.newest.lock() = Some((buffer.log_id, share));
        share
    }
}

impl Sample {
    fn share(&mut self, buffer: &Arc<Buffer>, window: impl Fn(&[u8]) -> u64) -> f64 {
        let mut iter = buffer.iter();
        iter.first();
        let window = if iter.valid() { window(iter.key()) } else { 0 };
        let one_in = (window / SAMPLE_KEYS).max(1);
        let (mut keys, mut again, mut last) = (0, 0, None);
        while iter.valid() {
            let key = hash(iter.key());
            if last != Some(key) && key.is_multiple_of(one_in) {
                keys += 1;
                again += u64::from(self.see(key, buffer.log_id));
            }
            last = Some(key);
            iter.next();
            give_way();
        }
        self.forget((window / one_in) as usize);
        if keys == 0 { 0.0 } else { again as f64 / keys as f64 }
    }

    /// Whether `key` was seen before.
    fn see(&mut self, key: u64, log_id: u64) -> bool {
        self.order.push_back((key, log_id));
        self.seen.insert(key, log_id).is_some()
    }

    /// Keeps the newest `most` that were seen.
    fn forget(&mut self, most: usize) {
        while self.order.len() > most.max(1) {
            let Some((key, log_id)) = self.order.pop_front() else { return };
            if self.seen.get(&key) == Some(&log_id) {
                self.seen.remove(&key);
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::buffer::Entry;
    use firn_base::SeqNo;
    use firn_base::key::Kind;

    /// A buffer of log `log_id` with these keys, each twice.
    fn buffer(log_id: u64, keys: impl Iterator<Item = u32>) -> Arc<Buffer> {
        let buffer = Arc::new(Buffer::new(1 << 20, log_id));
        for (i, key) in keys.flat_map(|key| [key, key]).enumerate() {
            let key = key.to_be_bytes();
            let entry = || std::iter::once(Entry { kind: Kind::Put, key: &key, value: b"" });
            let ticket = buffer.reserve(entry(), Buffer::bytes_for(entry(), 0), 0).expect("room");
            ticket.link(SeqNo(i as u64 + 1));
        }
        buffer
    }

    #[test]
    fn tells_what_is_written_again_from_what_is_new() {
        let reuse = Reuse::default();
        let window = |_: &[u8]| 2 * SAMPLE_KEYS;
        let first = buffer(1, 0..4000);
        assert_eq!(reuse.share(&first, window), 0.0);
        assert!(reuse.is_below(0.1) && !reuse.is_below(0.0));
        assert_eq!(reuse.share(&first, window), 0.0, "a flush that is tried again");
        let half = reuse.share(&buffer(2, 2000..6000), window);
        assert!((0.45..0.55).contains(&half), "{half}");
        assert_eq!(reuse.share(&buffer(3, 2000..6000), window), 1.0);
        assert_eq!(reuse.share(&buffer(4, 0..2000), window), 0.0, "as long ago as trees do not reach");
        assert!(reuse.sample.lock().order.len() <= SAMPLE_KEYS as usize, "half of the keys are sampled");
    }
}
