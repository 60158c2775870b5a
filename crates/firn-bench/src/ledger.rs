//! Determines which versions a read may see, from the writes to each record and from which of them
//! are certain.
//!
//! One word per record: the number of writes begun (32 bits); the number of writes begun since the
//! record was last at rest, not counting the first (16); and the number of writes in progress (16).
//! From the word before a read and the word after it:
//! 1. no version above the writes begun after the read may be seen;
//! 2. if no write was in progress before the read, no version below the first of the last burst may
//!    be seen, because that write began after all earlier ones had ended, and has itself ended;
//! 3. the record may be missing only if the last delete begun, as known after the read, is not
//!    older than the version of rule 2.
//!
//! So both a lost update and a stale read are found, without a lock around the write and without
//! assigning each key to one writer. Safe for any number of threads.

use crate::record::wrong;
use firn_base::Result;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const COUNT_MAX: u64 = 0xFFFF;

/// The versions of every record: the run's number in the upper 32 bits, and the number of the write
/// within the run.
#[derive(Debug)]
pub struct Ledger {
    run: u64,
    words: Vec<AtomicU64>,
    /// The number of the last delete begun; empty in a run without deletes.
    deletes: Vec<AtomicU32>,
}

#[derive(Debug, Clone, Copy)]
struct Word {
    begun: u64,
    burst: u64,
    under_way: u64,
}

impl Word {
    fn unpack(word: u64) -> Self {
        Self {
            begun: word >> 32,
            burst: word >> 16 & COUNT_MAX,
            under_way: word & COUNT_MAX,
        }
    }

    fn pack(self) -> u64 {
        self.begun << 32 | self.burst << 16 | self.under_way
    }

    fn begin(self) -> Self {
        let burst = if self.under_way == 0 {
            0
        } else {
            (self.burst + 1).min(COUNT_MAX)
        };
        Self {
            begun: self.begun + 1,
            burst,
            under_way: self.under_way + 1,
        }
    }

    /// The lowest version that a read starting now may see; 0 if nothing is certain.
    fn floor(self) -> u64 {
        let certain = self.under_way == 0 && self.burst < COUNT_MAX;
        if certain { self.begun - self.burst } else { 0 }
    }
}

/// The state of a record before a read of it.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    floor: u64,
}

impl Ledger {
    /// A ledger for `records`, none of them written in this run. `run` must differ from that of
    /// every earlier run.
    pub fn new(records: u64, run: u32, deletes: bool) -> Self {
        let words = (0..records).map(|_| AtomicU64::new(0)).collect();
        let deletes = (0..if deletes { records } else { 0 })
            .map(|_| AtomicU32::new(0))
            .collect();
        Self {
            run: u64::from(run),
            words,
            deletes,
        }
    }

    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        (self.words.len() * 8 + self.deletes.len() * 4) as u64
    }

    /// The number of records it covers.
    pub fn records(&self) -> u64 {
        self.words.len() as u64
    }

    /// Begins a write of `id` and returns its version. Every call must be followed by
    /// [`Ledger::end`].
    pub fn begin(&self, id: u64) -> u64 {
        let word = &self.words[id as usize];
        let mut seen = word.load(Ordering::SeqCst);
        loop {
            let next = Word::unpack(seen).begin();
            match word.compare_exchange_weak(seen, next.pack(), Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return self.run << 32 | next.begun,
                Err(other) => seen = other,
            }
        }
    }

    /// Begins a delete of `id`, which must be followed by [`Ledger::end`].
    pub fn begin_delete(&self, id: u64) {
        let version = self.begin(id);
        if let Some(last) = self.deletes.get(id as usize) {
            last.fetch_max(version as u32, Ordering::SeqCst);
        }
    }

    /// Ends a write of `id`, which was acknowledged.
    pub fn end(&self, id: u64) {
        self.words[id as usize].fetch_sub(1, Ordering::SeqCst);
    }

    /// The state of `id`. Call this before a read of it.
    pub fn before(&self, id: u64) -> Before {
        Before {
            floor: Word::unpack(self.words[id as usize].load(Ordering::SeqCst)).floor(),
        }
    }

    /// Checks that a read of `id` that began at `before` may have found nothing. `was_loaded` means
    /// that the record existed before any write recorded here.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Corruption`] if the record must exist.
    pub fn missing(&self, id: u64, before: Before, was_loaded: bool) -> Result<()> {
        let deleted = self
            .deletes
            .get(id as usize)
            .map_or(0, |last| u64::from(last.load(Ordering::SeqCst)));
        match () {
            () if deleted > 0 && deleted >= before.floor => Ok(()),
            () if before.floor > 0 => Err(wrong(id, "not there, and was written")),
            () if was_loaded => Err(wrong(
                id,
                "not there: is the database loaded, with these sizes?",
            )),
            () => Ok(()),
        }
    }

    /// Checks that a read of `id` that began at `before` may have seen `version`.
    ///
    /// # Errors
    /// [`firn_base::ErrorKind::Corruption`] if it may not.
    pub fn seen(&self, id: u64, before: Before, version: u64) -> Result<()> {
        let begun = Word::unpack(self.words[id as usize].load(Ordering::SeqCst)).begun;
        // A version of an earlier run is older than all of this one.
        let number = if version >> 32 == self.run {
            version & 0xFFFF_FFFF
        } else {
            0
        };
        if number > begun {
            return Err(wrong(
                id,
                format!("of write {number}, and only {begun} were made"),
            ));
        }
        if number < before.floor {
            return Err(wrong(
                id,
                format!(
                    "of write {number}, older than the acknowledged {}",
                    before.floor
                ),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_read_and_a_lost_write_are_found() {
        let ledger = Ledger::new(1, 9, false);
        let fresh = ledger.before(0);
        assert!(ledger.missing(0, fresh, false).is_ok());
        let first = ledger.begin(0);
        ledger.end(0);
        let second = ledger.begin(0);
        ledger.end(0);
        let (before, of_earlier_run) = (ledger.before(0), 10 << 32 | 77);
        assert!(ledger.missing(0, before, false).is_err());
        assert!(ledger.seen(0, before, first).is_err());
        assert!(ledger.seen(0, before, of_earlier_run).is_err());
        assert!(ledger.seen(0, before, second).is_ok());
        assert!(ledger.seen(0, before, second + 1).is_err());
        assert!(ledger.seen(0, fresh, of_earlier_run).is_ok());
    }

    #[test]
    fn writes_at_the_same_time_may_end_in_any_order() {
        let ledger = Ledger::new(1, 0, false);
        let (first, second) = (ledger.begin(0), ledger.begin(0));
        assert!(ledger.seen(0, ledger.before(0), first).is_ok());
        ledger.end(0);
        ledger.end(0);
        let before = ledger.before(0);
        assert!(ledger.seen(0, before, first).is_ok());
        assert!(ledger.seen(0, before, second).is_ok());
        assert!(ledger.missing(0, before, false).is_err());
    }

    #[test]
    fn what_was_deleted_is_gone_until_it_is_written_again() {
        let ledger = Ledger::new(1, 3, true);
        assert!(ledger.missing(0, ledger.before(0), true).is_err());
        let value = ledger.begin(0);
        ledger.end(0);
        let during = ledger.before(0);
        ledger.begin_delete(0);
        assert!(ledger.missing(0, during, true).is_ok());
        assert!(ledger.seen(0, ledger.before(0), value).is_ok());
        ledger.end(0);
        let deleted = ledger.before(0);
        assert!(ledger.missing(0, deleted, true).is_ok());
        assert!(ledger.seen(0, deleted, value).is_err(), "it came back");
        ledger.begin(0);
        ledger.end(0);
        assert!(ledger.missing(0, ledger.before(0), true).is_err());
    }
}
