//! Scans of ranges with stacks of tables. A scan that begins in a range reads a block of each of
//! its tables over the key, where one would do after a merge. Once these reads have cost as much as
//! the merge would, the range is reported.
//!
//! Thread safety: `Sync`. One scan in a few takes a lock.

use crate::engine::Engine;
use crate::manifest::Level;
use crate::options::tuning::Seeks;
use crate::read::stack::Stack;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use std::collections::HashMap;

/// One scan in so many is looked at, if none has to be exact.
const SAMPLE: u64 = 8;

/// The scans since each range was last reported.
#[derive(Default)]
pub(crate) struct Scans {
    count: AtomicU64,
    /// By the first key of the range.
    ranges: Mutex<HashMap<Box<[u8]>, Scanned>>,
}

/// The scans that began in a range.
#[derive(Default)]
struct Scanned {
    scans: u64,
    /// Tables that they entered, except one each.
    entered: u64,
}

impl Engine {
    /// Counts a scan that begins at `key`, in profiles whose ranges have stacks of tables.
    #[inline]
    pub(crate) fn note_scan(&self, key: &[u8]) {
        if let Some(tuning) = self.options.ranges() {
            self.note_scan_in_range(key, tuning.seeks);
        }
    }

    #[cold]
    fn note_scan_in_range(&self, key: &[u8], seeks: Seeks) {
        let counts_for = match seeks {
            Seeks::Off => return,
            Seeks::Count(_) => 1,
            Seeks::Cost => SAMPLE,
        };
        let scans = &self.readers.scans;
        let number = scans.count.fetch_add(1, Ordering::Relaxed);
        if !number.is_multiple_of(counts_for) {
            return;
        }
        let state = self.state.load();
        let at = state.layout.part_of(key);
        let part = &state.parts[at];
        let stack = Stack::of(part, state.layout.range_of(at, key));
        let (stash, height) = (part.level0_tables(), stack.height());
        if stash + height < 2 {
            return;
        }
        let mut ranges = scans.ranges.lock();
        // Ranges come and go; those that went are forgotten with all others.
        if ranges.len() > state.layout.ranges().len() + state.parts.len() {
            ranges.clear();
        }
        let scanned = ranges.entry(stack.from.into()).or_default();
        scanned.scans += counts_for;
        scanned.entered += counts_for * (stash + height - 1) as u64;
        let is_due = match seeks {
            Seeks::Off => false,
            Seeks::Count(most) => scanned.scans >= most,
            Seeks::Cost => scanned.entered * self.options.limits.seek_charge_bytes >= stack.bytes(),
        };
        if !is_due {
            return;
        }
        ranges.remove(stack.from);
        drop(ranges);
        let flushed = part.levels.get(Level::ZERO);
        let newest = flushed.and_then(|stash| stash.runs.first());
        let top = stack.levels.first().filter(|_| height > 1);
        // Flushed tables are merged first, because their parts go on top of the ranges.
        match (newest, top) {
            (Some(run), _) => self.due_for_seeks(Level::ZERO, run.meta.id),
            (None, Some((level, runs))) => self.due_for_seeks(*level, runs[0].meta.id),
            (None, None) => {}
        }
    }
}
