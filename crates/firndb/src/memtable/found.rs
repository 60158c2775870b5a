//! The entries of a buffer in persistent memory that an open found. They are in the list of their
//! memtable once something looks into it, so an open need not wait for all lists.

use super::arena::Space;
use super::pm::{PmPlace, Walked};
use super::run::{Home, Memtable, filter_for};
use super::skiplist::{height, node_bytes};
use firn_base::sync::{AtomicBool, Mutex, Ordering};
use firn_base::{Result, SeqNo};
use firn_pm::Pool;
use firn_table::pm_buffer::{NamedBuffer, PmBuffer, entry_bytes, walk};
use firn_table::sst::{SharedFilter, hash};
use std::ops::Range;

/// Entries that a walk of a buffer found.
#[derive(Debug)]
pub(crate) struct Found {
    named: NamedBuffer,
    committed: SeqNo,
    /// The bytes of the buffer that they take.
    ranges: Vec<Range<u64>>,
    entries: u64,
    /// Bytes that they take in a list.
    list_bytes: u64,
    filter: SharedFilter,
}

impl Found {
    /// No entries of `named`, in which those up to `committed` count.
    pub(crate) fn none(named: &NamedBuffer, committed: SeqNo) -> Found {
        Found {
            named: *named,
            committed,
            ranges: Vec::new(),
            entries: 0,
            list_bytes: 0,
            filter: filter_for(named.extent.len as usize),
        }
    }

    /// Adds an entry behind the others.
    pub(crate) fn add(&mut self, entry: &Walked<'_>) {
        let (at, key_len) = (entry.at, entry.key.len());
        let end = at + entry_bytes(key_len, entry.value_len as usize) as u64;
        match self.ranges.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => self.ranges.push(at..end),
        }
        self.entries += 1;
        self.list_bytes += list_bytes(entry);
        self.filter.insert(hash(entry.key));
    }

    /// Bytes that the entries take in a list with its filter.
    pub(crate) fn list_bytes(&self) -> u64 {
        self.list_bytes + self.filter.bytes() as u64
    }

    /// Calls `each` with the entries, in their order in the buffer.
    ///
    /// # Errors
    /// `Corruption` if they are not there any more; the error of `each`.
    pub(crate) fn walk(
        &self,
        pool: &Pool,
        mut each: impl FnMut(&Walked<'_>) -> Result<()>,
    ) -> Result<()> {
        for range in &self.ranges {
            let part = NamedBuffer {
                end: range.end,
                is_final: true,
                ..self.named
            };
            walk(pool, &part, range.start, self.committed, |entry| {
                each(&entry)
            })?;
        }
        Ok(())
    }
}

/// Bytes that an entry that an open found takes in a list.
fn list_bytes(entry: &Walked<'_>) -> u64 {
    node_bytes(height(entry.tag.seqno().0, 0), entry.key.len(), 0) as u64
}

/// The entries of a memtable that are not in its list.
#[derive(Debug)]
pub(super) struct Unlinked {
    is_none: AtomicBool,
    /// The error if linking them failed.
    found: Mutex<Result<Option<Box<ToLink>>>>,
}

/// The entries that an open found, and the space of the list that is kept for them.
#[derive(Debug)]
pub(super) struct ToLink {
    found: Found,
    space: Space,
}

impl Unlinked {
    pub(super) fn of(found: Option<Box<ToLink>>) -> Unlinked {
        Unlinked {
            is_none: AtomicBool::new(found.is_none()),
            found: Mutex::new(Ok(found)),
        }
    }

    /// True if all entries are in the list.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.is_none.load(Ordering::Acquire)
    }
}

impl Memtable {
    /// A memtable over `buffer` with the entries that an open found there, and with `list_bytes`
    /// for its list, or more.
    pub(crate) fn with_found(buffer: PmBuffer, mut found: Found, list_bytes: u64) -> Memtable {
        let list_bytes = found.list_bytes.max(list_bytes) as usize;
        let mut memtable = Memtable::in_pm(buffer, list_bytes);
        // Before writes that may come first.
        let Some(space) = memtable.list.arena.reserve(found.list_bytes as usize) else {
            unreachable!("the list has room for what was found");
        };
        std::mem::swap(&mut memtable.filter, &mut found.filter);
        if let Home::Pm(place) = &mut memtable.home {
            place.count(found.entries);
            place.unlinked = Unlinked::of(Some(Box::new(ToLink { found, space })));
        }
        memtable
    }

    /// Puts the entries that an open found into the list, unless they are there.
    ///
    /// # Errors
    /// `Corruption` if they were damaged since. It is returned again by each later call.
    #[inline]
    pub(crate) fn link_found(&self) -> Result<()> {
        match &self.home {
            Home::Pm(place) if !place.unlinked.is_none() => self.link_all(place),
            Home::Pm(_) | Home::Arena | Home::Nowhere => Ok(()),
        }
    }

    /// True if all entries that an open found are in the list.
    pub(super) fn is_linked(&self) -> bool {
        match &self.home {
            Home::Pm(place) => place.unlinked.is_none(),
            Home::Arena | Home::Nowhere => true,
        }
    }

    #[cold]
    fn link_all(&self, place: &PmPlace) -> Result<()> {
        let mut state = place.unlinked.found.lock();
        let found = match &mut *state {
            Ok(found) => found.take(),
            Err(error) => return Err(error.clone()),
        };
        let Some(found) = found else { return Ok(()) };
        let (space, mut at) = (&found.space, found.space.start);
        let linked = found.found.walk(place.buffer.pool(), |entry| {
            at = self.link_one((space, at), entry);
            Ok(())
        });
        if let Err(error) = &linked {
            *state = Err(error.clone());
            return linked;
        }
        place.unlinked.is_none.store(true, Ordering::Release);
        Ok(())
    }

    /// Links an entry, at this place of a reserved space. Returns the place behind it.
    pub(super) fn link_one(&self, (space, at): (&Space, u32), entry: &Walked<'_>) -> u32 {
        let height = height(entry.tag.seqno().0, 0);
        let node = (entry.tag.kind_byte(), entry.key, entry.value_len as usize);
        let node = self.list.fill_key(space, at, height, node);
        self.list.set_log_offset(space, node, entry.at);
        self.list.link(node.at, entry.tag);
        self.list.end(node)
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use firn_base::site::TEST;
    use firn_base::{ErrorKind, FileId, Kind};
    use firn_pm::Owner;
    use firn_pm::sim::{Mode, SimRegion};
    use firn_table::pm_buffer::StagedEntries;
    use std::sync::Arc;

    const KEYS: u64 = 40;

    fn key(i: u64) -> Vec<u8> {
        format!("key {i}").into_bytes()
    }

    /// A buffer with `KEYS` entries, and every other one of them, found.
    fn found() -> (PmBuffer, Found) {
        let pool = Pool::open_simulated(&SimRegion::new(64 << 10, Mode::Adr), [1; 16]).unwrap();
        pool.finish_recovery().unwrap();
        let pool = Arc::new(pool);
        let extent = pool.alloc(8192, Owner::WriteBuffer).unwrap();
        let buffer = PmBuffer::new(pool.clone(), FileId(1), 0, extent, 0).unwrap();
        let mut staged = StagedEntries::default();
        for i in 0..KEYS {
            staged.add(Kind::Put, &key(i), b"value");
        }
        let (_, flushed) = buffer.append(&mut staged, SeqNo(1)).unwrap();
        buffer.reveal(&pool.fence(&TEST, [flushed]));
        let named = NamedBuffer {
            line: 0,
            id: FileId(1),
            extent,
            through: SeqNo(0),
            end: 0,
            is_final: false,
        };
        let committed = SeqNo(KEYS);
        let mut found = Found::none(&named, committed);
        walk(&pool, &named, 0, committed, |entry| {
            if entry.tag.seqno().0 % 2 == 0 {
                found.add(&entry);
            }
            Ok(())
        })
        .unwrap();
        (buffer, found)
    }

    #[test]
    fn a_list_is_made_by_the_first_look() {
        let (buffer, found) = found();
        let memtable = Arc::new(Memtable::with_found(buffer, found, 0));
        assert_eq!(memtable.entries(), KEYS / 2);
        // None is needed to tell that a key is not there.
        let other = memtable.find(b"other", hash(b"other"), SeqNo::MAX);
        assert!(other.unwrap().is_none());
        assert_eq!(memtable.linked_up_to(SeqNo::MAX), 0);
        for i in 0..KEYS {
            let value = memtable.find(&key(i), hash(&key(i)), SeqNo::MAX).unwrap();
            assert_eq!(value.is_some(), i % 2 == 1, "{i}");
        }
        assert_eq!(memtable.linked_up_to(SeqNo::MAX), KEYS / 2);
    }

    #[test]
    fn an_entry_that_is_gone_at_the_first_look_is_missed_at_each() {
        let (buffer, mut found) = found();
        let end = buffer.end();
        found.ranges.push(end..end + 64);
        let memtable = Arc::new(Memtable::with_found(buffer, found, 0));
        for _ in 0..3 {
            let refused = memtable
                .find(&key(1), hash(&key(1)), SeqNo::MAX)
                .unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
        }
    }
}
