//! The persistent memory of a memtable whose entries are there, and its share of it.
//!
//! Room is promised to a write before it is given a number, so no write of a group is refused, and
//! the leader of the group appends all of them in the order of their numbers.

use super::found::Unlinked;
use firn_base::sync::{AtomicU64, Ordering};
use firn_table::pm_buffer::{ENTRY_HEADER_BYTES, PmBuffer, WalkedEntry};

/// An entry that an open found.
pub(crate) type Walked<'a> = WalkedEntry<'a>;

/// A buffer in persistent memory.
#[derive(Debug)]
pub(super) struct PmPlace {
    pub(super) buffer: PmBuffer,
    /// Bytes that are appended, or promised to a write.
    promised: AtomicU64,
    entries: AtomicU64,
    /// Bytes of memory that were counted for the list.
    pub(super) counted: AtomicU64,
    pub(super) unlinked: Unlinked,
}

impl PmPlace {
    pub(super) fn new(buffer: PmBuffer) -> PmPlace {
        PmPlace {
            promised: AtomicU64::new(buffer.end()),
            entries: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            unlinked: Unlinked::of(None),
            buffer,
        }
    }

    /// The place of the value, as in [`PmPlace::bytes`], of the entry at `at`.
    pub(super) fn value_at(at: u64, key_len: usize) -> usize {
        at as usize + ENTRY_HEADER_BYTES + key_len
    }

    /// Promises room for `bytes`. False if there is none.
    pub(super) fn promise(&self, bytes: u64) -> bool {
        let most = self.buffer.capacity_bytes();
        let more = |promised: u64| promised.checked_add(bytes).filter(|&all| all <= most);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.promised.fetch_update(set, fetch, more).is_ok()
    }

    /// Takes back what was promised to a write that was given up.
    pub(super) fn take_back(&self, bytes: u64) {
        self.promised.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.promised.load(Ordering::Relaxed) as usize
    }

    pub(super) fn count(&self, entries: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        match self.buffer.bytes(at as u64, len) {
            Ok(bytes) => bytes,
            Err(error) => unreachable!("a linked entry was appended: {error}"),
        }
    }
}
