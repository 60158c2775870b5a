//! The write buffers' part of the pool.
//!
//! Buffers and trees share the pool. Trees come first, because each get uses them: buffers leave
//! room for those that are there to grow by a quarter. So the buffers' part shrinks as data grows,
//! down to two buffers, for which room is set aside.

use crate::memtable::Memtable;
use crate::read::memtables::Memtables;
use crate::read::table_run::TableCache;
use firn_base::count::Counter;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_pm::{Extent, GRANULE_BYTES, Headroom, Owner, Pool};
use firn_table::pm_buffer::{BufferDirectory, Note, PmBuffer};
use std::sync::Arc;

/// The share of a buffer that its list may take in DRAM.
const LIST_SHARE: u64 = 4;
/// Memory for lists is taken from the block cache, and given back to it, in pieces of this size,
/// because each change of the cache's size costs it something.
const LISTS_PIECE_BYTES: u64 = 1 << 20;
/// A buffer of the usual size is at most this part of the pool,
const POOL_SHARE: u64 = 16;
/// and not larger than this (PMDB, 4.2).
const BUFFER_BYTES: u64 = 2 << 20;
/// The least buffer.
pub(crate) const BUFFER_BYTES_MIN: u64 = 16 << 10;

/// The facts about the buffers that a picker needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferFacts {
    /// Bytes that buffers take.
    pub(crate) used_bytes: u64,
    /// Bytes that they may take.
    pub(crate) most_bytes: u64,
    /// Bytes that a write waits for.
    pub(crate) wanted_bytes: u64,
    /// Bytes of the pool that nothing takes.
    pub(crate) free_bytes: u64,
    /// Bytes of a buffer of the usual size.
    pub(crate) buffer_bytes: u64,
}

impl BufferFacts {
    /// True if fewer than so many eighths of the room are free, or a write waits. What is free then
    /// may be in pieces that are too short for it.
    pub(crate) fn has_less_than(&self, eighths: u64) -> bool {
        let wanted = self.most_bytes * eighths / 8;
        self.wanted_bytes > 0 || self.used_bytes + wanted > self.most_bytes
    }
}

/// The write buffers' part of the pool.
pub(crate) struct BufferStore {
    directory: Arc<BufferDirectory>,
    buffer_bytes: u64,
    /// Bytes that a write waits for.
    wanted_bytes: AtomicU64,
    /// The missing part of the least room.
    set_aside: Mutex<Option<Headroom>>,
    /// The number with which buffers were noted last.
    noted: Mutex<SeqNo>,
    /// Bytes of the lists, and those taken from the block cache for them.
    lists: Mutex<(u64, u64)>,
    pub(crate) begun: Counter,
    pub(crate) begun_bytes: Counter,
    /// Times that a write found no room for a buffer, and waited.
    pub(crate) refused: Counter,
}

impl std::fmt::Debug for BufferStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferStore({} begun)", self.begun.get())
    }
}

/// The size of a buffer in `pool` if `asked` for one, or the usual one.
///
/// # Errors
/// `Invalid` if the pool has no room for two.
pub(crate) fn buffer_bytes(pool: &Pool, asked: Option<u64>) -> Result<u64> {
    let usual = (pool.size_bytes() / POOL_SHARE).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES);
    let bytes = asked.unwrap_or(usual).next_multiple_of(GRANULE_BYTES);
    let pool_bytes = pool.size_bytes();
    match 2 * bytes <= pool_bytes / 2 {
        true => Ok(bytes),
        false => Err(Error::invalid(format!(
            "half of a pool of {pool_bytes} bytes has no room for two write buffers of {bytes}; raise pm.size, or \
             lower tuning.pmdb.buffer_bytes"
        ))),
    }
}

/// The number of lines of a directory for buffers of `buffer_bytes` in `pool`.
pub(crate) fn lines_for(pool: &Pool, buffer_bytes: u64) -> u32 {
    let most = 2 * pool.size_bytes() / buffer_bytes;
    u32::try_from(most).unwrap_or(u32::MAX).max(16)
}

/// DRAM for the list of a buffer of `bytes`.
pub(crate) fn list_bytes(bytes: u64) -> u64 {
    (bytes / LIST_SHARE).next_multiple_of(64)
}

impl BufferStore {
    /// The buffers that `directory` names, noted with `noted`.
    pub(crate) fn new(
        directory: Arc<BufferDirectory>,
        buffer_bytes: u64,
        noted: SeqNo,
    ) -> BufferStore {
        let store = BufferStore {
            directory,
            buffer_bytes,
            wanted_bytes: AtomicU64::new(0),
            set_aside: Mutex::default(),
            noted: Mutex::new(noted),
            lists: Mutex::default(),
            begun: Counter::default(),
            begun_bytes: Counter::default(),
            refused: Counter::default(),
        };
        store.set_aside(&mut store.set_aside.lock());
        store
    }

    /// Sets aside what is missing of room for two buffers, as far as it is there.
    fn set_aside(&self, held: &mut Option<Headroom>) {
        drop(held.take());
        let pool = self.directory.pool();
        let facts = self.facts();
        let missing = (2 * self.buffer_bytes).saturating_sub(facts.used_bytes);
        // None if another took it at this moment.
        *held = pool.reserve(missing.min(facts.free_bytes)).ok();
    }

    /// The directory of the buffers.
    pub(crate) fn directory(&self) -> &Arc<BufferDirectory> {
        &self.directory
    }

    pub(crate) fn facts(&self) -> BufferFacts {
        let usage = self.directory.pool().usage();
        let trees = usage.live(Owner::IfTree);
        let least = 2 * self.buffer_bytes;
        let kept = usage.header_bytes + trees + trees / 4 + usage.pool_bytes / 64;
        BufferFacts {
            used_bytes: usage.live(Owner::WriteBuffer) - self.directory.bytes(),
            most_bytes: usage.pool_bytes.saturating_sub(kept).max(least),
            free_bytes: usage.free_bytes,
            wanted_bytes: self.wanted_bytes.load(Ordering::Relaxed),
            buffer_bytes: self.buffer_bytes,
        }
    }

    /// Says that a write waits for a buffer for `bytes`.
    pub(crate) fn want(&self, bytes: u64) {
        let bytes = bytes.max(self.buffer_bytes);
        self.wanted_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says that no write waits any more.
    pub(crate) fn want_none(&self) {
        self.wanted_bytes.store(0, Ordering::Relaxed);
    }

    /// A memtable for entries of `bytes` in a buffer, and for a list of `list` bytes, or more.
    /// `None` if there is no room for one more buffer.
    ///
    /// # Errors
    /// The error of the pool.
    pub(crate) fn begin(
        &self,
        id: FileId,
        (bytes, list): (u64, u64),
        tables: &TableCache,
    ) -> Result<Option<Memtable>> {
        let least = bytes.next_multiple_of(GRANULE_BYTES);
        let bytes = least.max(self.buffer_bytes);
        let facts = self.facts();
        // One that is larger than all of the room gets what there is, once no other takes any.
        if facts.used_bytes > 0 && facts.used_bytes + bytes > facts.most_bytes {
            self.refused.add(1);
            return Ok(None);
        }
        let mut set_aside = self.set_aside.lock();
        drop(set_aside.take());
        let extent = self.alloc((least, bytes), facts.used_bytes);
        self.set_aside(&mut set_aside);
        drop(set_aside);
        let Some(extent) = extent? else {
            self.refused.add(1);
            return Ok(None);
        };
        let pool = self.directory.pool();
        let noted = *self.noted.lock();
        let line = match self.directory.name(id, extent, noted) {
            Ok(Some(line)) => line,
            other => {
                pool.free(extent)?;
                self.refused.add(1);
                return other.map(|_| None);
            }
        };
        let buffer = PmBuffer::new(pool.clone(), id, line, extent, 0)?;
        self.begun.add(1);
        self.begun_bytes.add(extent.len);
        let memtable = Memtable::in_pm(buffer, list.max(list_bytes(bytes)) as usize);
        self.count_list(&memtable, memtable.dram_bytes() as u64, tables);
        Ok(Some(memtable))
    }

    /// An extent of the second of `bytes`, or of at least the first if there are few others; `None`
    /// if others have to go first.
    fn alloc(&self, (least, most): (u64, u64), used_bytes: u64) -> Result<Option<Extent>> {
        let pool = self.directory.pool();
        let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
        match pool.alloc(most, Owner::WriteBuffer) {
            Err(error) if is_full(&error) && used_bytes >= 2 * self.buffer_bytes => Ok(None),
            // Trees may leave only pieces.
            Err(error) if is_full(&error) => {
                match pool.alloc_up_to(least, most, Owner::WriteBuffer) {
                    Err(error) if is_full(&error) && used_bytes > 0 => Ok(None),
                    Err(error) => {
                        let why = "the write buffer of a batch; split it, or raise pm.size";
                        Err(error.context(why))
                    }
                    Ok(extent) => Ok(Some(extent)),
                }
            }
            allocated => allocated.map(Some),
        }
    }

    /// Counts `bytes` as the memory of the list of `memtable`.
    pub(crate) fn count_list(&self, memtable: &Memtable, bytes: u64, tables: &TableCache) {
        let before = memtable.count_list(bytes);
        let mut lists = self.lists.lock();
        lists.0 = lists.0 + bytes - before;
        let wanted = lists.0.next_multiple_of(LISTS_PIECE_BYTES);
        if wanted > lists.1 {
            tables.add_buffer(wanted - lists.1);
            lists.1 = wanted;
        } else if wanted + LISTS_PIECE_BYTES < lists.1 {
            tables.drop_buffer(lists.1 - wanted);
            lists.1 = wanted;
        }
    }

    /// Bytes of the lists.
    pub(crate) fn lists_bytes(&self) -> u64 {
        self.lists.lock().0
    }

    /// Notes how far the buffers of `memtables` were filled when `committed` was the last number
    /// that is. REQUIRES: no group is being appended.
    ///
    /// # Errors
    /// The error of the pool.
    pub(crate) fn note(&self, memtables: &Memtables, committed: SeqNo) -> Result<()> {
        let note = |memtable: &Arc<Memtable>| {
            let buffer = memtable.pm_buffer()?;
            Some(Note {
                line: buffer.line(),
                id: buffer.id(),
                through: committed,
                end: buffer.end(),
                is_final: memtable.frozen_at().is_some_and(|last| last <= committed),
            })
        };
        let notes: Vec<Note> = memtables.iter().filter_map(note).collect();
        self.directory.note(&notes)?;
        *self.noted.lock() = committed;
        Ok(())
    }

    /// Frees the buffer of a memtable. REQUIRES: its entries are in tables.
    pub(crate) fn release(&self, memtable: Memtable, tables: &TableCache) {
        self.count_list(&memtable, 0, tables);
        let Some(buffer) = memtable.into_pm_buffer() else {
            return;
        };
        let removed = self.directory.remove(&[buffer.line()]);
        if let Err(error) = removed.and_then(|()| buffer.free()) {
            // The next open frees it.
            tracing::warn!(%error, "the space of a write buffer stays taken");
        }
        self.set_aside(&mut self.set_aside.lock());
    }
}
