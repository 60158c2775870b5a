//! Write buffers in persistent memory: walks what their directory names. Their lists are made by
//! what looks into them first.
//!
//! 1. Entries above the committed number are not there. After an unclean end such entries may lie
//!    behind the others, and their numbers are given to other entries from now on. So each buffer
//!    gets its final end before anything is committed, and takes no more writes.
//! 2. The manifest says how far each partition is flushed. Entries up to that are in tables, or
//!    were dropped with the tombstones that hid them, so they are left out, whatever the buffers
//!    have. A buffer without others is free.
//! 3. All numbers above the greatest of these, up to the committed one, are in buffers, once the
//!    manifest says that these may hold entries. If one is missing, it was damaged or is of another
//!    moment than the manifest.

use super::Recovery;
use crate::manifest::{self, Version};
use crate::memtable::{Entry, Footprint, Found, Memtable};
use crate::pmdb::{BufferStore, buffer_bytes, lines_for, list_bytes};
use crate::read::memtables::{Memtables, Unflushed};
use firn_base::key::Kind;
use firn_base::{Error, FileId, Result, SeqNo};
use firn_pm::{Owner, Pool};
use firn_table::pm_buffer::{BufferDirectory, NamedBuffer, Note, PmBuffer, walk};
use std::ops::Range;
use std::sync::Arc;

/// A buffer with less than this part of its room left takes no more writes after an open.
const ROOM_SHARE: usize = 8;

/// The write buffers that a pool names.
#[derive(Default)]
pub(super) struct FoundBuffers {
    directory: Option<Arc<BufferDirectory>>,
    named: Vec<NamedBuffer>,
}

/// A buffer with entries that are in no table.
pub(super) struct RecoveredBuffer {
    memtable: Arc<Memtable>,
    /// Bytes that its entries take in its list.
    list_bytes: u64,
    /// The indexes of the partitions that it has entries of.
    parts: Range<usize>,
    last: SeqNo,
    end: u64,
    is_final: bool,
}

/// The entries of a buffer that are in no table.
struct Walked {
    found: Found,
    /// The least and the greatest of their keys; `None` without entries.
    bounds: Option<(Vec<u8>, Vec<u8>)>,
    last: SeqNo,
    /// The number of those above the greatest number that a partition is flushed through.
    above: u64,
    /// The offset behind the last committed entry of the buffer.
    end: u64,
}

impl Walked {
    /// Walks the buffer up to the committed number.
    fn of(pool: &Pool, named: &NamedBuffer, committed: SeqNo, version: &Version) -> Result<Walked> {
        let flushed = version.flushed_most();
        let mut walked = Walked {
            found: Found::none(named, committed),
            bounds: None,
            last: SeqNo(0),
            above: 0,
            end: 0,
        };
        walked.end = walk(pool, named, 0, committed, |entry| {
            if entry.tag.seqno() > version.flushed_of(entry.key) {
                walked.found.add(&entry);
                walked.above += u64::from(entry.tag.seqno() > flushed);
                walked.last = walked.last.max(entry.tag.seqno());
                walked.widen(entry.key);
            }
            Ok(())
        })?;
        Ok(walked)
    }

    fn widen(&mut self, key: &[u8]) {
        match &mut self.bounds {
            None => self.bounds = Some((key.to_vec(), key.to_vec())),
            Some((least, _)) if *key < **least => *least = key.to_vec(),
            Some((_, most)) if *key > **most => *most = key.to_vec(),
            Some(_) => {}
        }
    }
}

impl Recovery {
    /// True if partitions have write buffers in the pool.
    pub(super) fn has_part_buffers(&self) -> bool {
        let store = self.compaction.pm.as_ref();
        store.is_some_and(|store| store.buffers().is_some())
    }

    /// Claims the buffers that the pool names, before anything else becomes free.
    pub(super) fn claim_buffers(&self, pool: &Arc<Pool>) -> Result<FoundBuffers> {
        let Some(directory) = BufferDirectory::find(pool)? else {
            return Ok(FoundBuffers::default());
        };
        let named = directory.named()?.into_iter().collect::<Result<Vec<_>>>()?;
        for buffer in &named {
            pool.claim(buffer.extent, Owner::WriteBuffer)?;
        }
        Ok(FoundBuffers {
            directory: Some(Arc::new(directory)),
            named,
        })
    }

    /// Recovers the buffers that were claimed, or makes the directory of a pool without any.
    pub(super) fn open_buffers(
        &mut self,
        pool: &Arc<Pool>,
        found: FoundBuffers,
    ) -> Result<BufferStore> {
        let asked = self.options.ranges().and_then(|ranges| ranges.buffer_bytes);
        let buffer_bytes = buffer_bytes(pool, asked)?;
        let last = self.version.last_seqno;
        let directory = match found.directory {
            Some(directory) => directory,
            None => {
                let lines = lines_for(pool, buffer_bytes);
                Arc::new(BufferDirectory::create(pool, lines, last)?)
            }
        };
        let committed = directory.committed()?;
        if self.version.holds_entries || !found.named.is_empty() {
            self.check_moment(pool, committed)?;
        }
        self.last_seqno = self.last_seqno.max(committed);
        let store = BufferStore::new(directory.clone(), buffer_bytes, committed);
        self.recovered.buffer_ids = found.named.iter().map(|named| named.id).collect();
        let (mut numbers, mut unused) = (0, Vec::new());
        for named in found.named {
            let walked = Walked::of(pool, &named, committed, &self.version)?;
            numbers += walked.above;
            match recovered(pool, &named, walked, &self.version)? {
                Some(buffer) => self.recovered.buffers.push(buffer),
                None => unused.push(named),
            }
        }
        let flushed = self.version.flushed_most();
        let expected = committed.0.saturating_sub(flushed.0);
        if self.version.holds_entries && numbers != expected {
            let expected =
                format!("{expected} entries above {flushed}, of which {numbers} are there");
            return Err(Error::corruption(
                "the write buffers in the pool",
                0,
                expected,
            ));
        }
        let lines: Vec<u32> = unused.iter().map(|named| named.line).collect();
        directory.remove(&lines)?;
        for named in unused {
            pool.free(named.extent)?;
        }
        self.end_buffers(pool, &directory, committed)?;
        Ok(store)
    }

    /// Rejects a pool of another moment than the manifest.
    fn check_moment(&self, pool: &Pool, committed: SeqNo) -> Result<()> {
        let last = self.version.last_seqno;
        if committed >= last {
            return Ok(());
        }
        let expected = format!(
            "the committed number {last} or a later one, as the manifest says, not {committed}; this is an older pool"
        );
        let place = format!("the write buffers of the {} pool", pool.backend_name());
        Err(Error::corruption(place, 0, expected))
    }

    /// Notes the ends of the recovered buffers: final ones, if they take no more writes.
    fn end_buffers(
        &mut self,
        pool: &Pool,
        directory: &BufferDirectory,
        committed: SeqNo,
    ) -> Result<()> {
        let buffers = &mut self.recovered.buffers;
        buffers.sort_by_key(|buffer| std::cmp::Reverse(buffer.last));
        let mut notes = Vec::new();
        for i in 0..buffers.len() {
            let (newer, rest) = buffers.split_at_mut(i);
            let buffer = &mut rest[0];
            let is_newest = newer.iter().all(|newer| {
                newer.parts.end <= buffer.parts.start || buffer.parts.end <= newer.parts.start
            });
            let left = buffer.memtable.capacity_bytes() - buffer.memtable.used_bytes();
            let has_room = left > buffer.memtable.capacity_bytes() / ROOM_SHARE;
            let takes_writes =
                pool.was_clean() && !buffer.is_final && is_newest && buffer.parts.len() == 1;
            if !takes_writes || !has_room {
                buffer.is_final = true;
                buffer.memtable.freeze(buffer.last);
            }
            notes.extend(buffer.memtable.pm_buffer().map(|of| Note {
                line: of.line(),
                id: of.id(),
                through: committed,
                end: buffer.end,
                is_final: buffer.is_final,
            }));
        }
        directory.note(&notes)
    }

    /// The memtables of each partition.
    pub(super) fn part_memtables(&mut self, version: &Version) -> Memtables {
        let buffers = std::mem::take(&mut self.recovered.buffers);
        if let Some(store) = self
            .compaction
            .pm
            .as_ref()
            .and_then(|store| store.buffers())
        {
            for buffer in &buffers {
                store.count_list(&buffer.memtable, buffer.list_bytes, &self.tables);
            }
        }
        let list = |(i, id)| {
            let of_part = buffers.iter().filter(|buffer| buffer.parts.contains(&i));
            let mut memtables: Vec<_> = of_part.map(|buffer| buffer.memtable.clone()).collect();
            if memtables
                .first()
                .is_none_or(|newest| newest.frozen_at().is_some())
            {
                memtables.insert(0, Arc::new(Memtable::placeholder(FileId(0))));
            }
            let flushed_through = version.flushed.get(id).copied().unwrap_or_default();
            Unflushed {
                memtables,
                flushed_through,
            }
        };
        Memtables::by_part(version.layout.ids().iter().enumerate().map(list))
    }
}

impl Recovery {
    /// The last number that is committed in the write buffers of the pool; 0 without any.
    pub(super) fn committed_now(&self) -> Result<SeqNo> {
        let has_buffers = self.options.ranges().is_some();
        let Some(pool) = self.durable_pool().filter(|_| has_buffers) else {
            return Ok(SeqNo(0));
        };
        let directory = BufferDirectory::find(&pool)?;
        directory.map_or(Ok(SeqNo(0)), |directory| directory.committed())
    }

    /// Copies what the write buffers have for a read-only open, because a writer beside it may free
    /// them at any time.
    ///
    /// # Errors
    /// `Changed` if one did meanwhile.
    pub(super) fn copy_buffers(&mut self) -> Result<()> {
        let has_buffers = self.read_only && self.options.ranges().is_some();
        let Some(pool) = self.durable_pool().filter(|_| has_buffers) else {
            return Ok(());
        };
        let Some(directory) = BufferDirectory::find(&pool)? else {
            return Ok(());
        };
        let committed = directory.committed()?;
        if self.version.holds_entries {
            self.check_moment(&pool, committed)?;
        }
        let named = directory.named()?.into_iter().collect::<Result<Vec<_>>>()?;
        let mut copied = Vec::new();
        let mut numbers = 0;
        for named in &named {
            let walked = Walked::of(&pool, named, committed, &self.version)?;
            numbers += walked.above;
            walked.found.walk(&pool, |entry| {
                let value = named.read_value(&pool, entry)?;
                if let Some(kind) = entry.tag.kind() {
                    copied.push((entry.tag.seqno(), kind, entry.key.to_vec(), value));
                }
                Ok(())
            })?;
        }
        // What was flushed since the manifest was read is in none of its tables.
        let now = manifest::read(self.files.dir(), &self.counters)?;
        let is_same = now.is_some_and(|(_, now)| now.flushed == self.version.flushed);
        let is_whole = numbers == committed.0.saturating_sub(self.version.flushed_most().0);
        if !is_same || (self.version.holds_entries && !is_whole) {
            return Err(Error::changed(self.files.path().display()));
        }
        self.end_buffer()?;
        self.last_seqno = self.last_seqno.max(committed);
        self.buffer = copied_memtable(&copied);
        Ok(())
    }
}

/// An entry that was copied: its number, its kind, key and value.
type Copied = (SeqNo, Kind, Vec<u8>, Vec<u8>);

/// A copied entry, and its footprint in a memtable.
fn footprint((seqno, kind, key, value): &Copied) -> (Entry<'_>, Footprint) {
    let entry = Entry {
        kind: *kind,
        key,
        value,
    };
    (entry, Footprint::of(std::iter::once(entry), seqno.0))
}

/// A memtable in DRAM with these entries; `None` if there are none.
fn copied_memtable(copied: &[Copied]) -> Option<Arc<Memtable>> {
    let bytes = |copied| footprint(copied).1.bytes;
    let memtable = Arc::new(Memtable::new(copied.iter().map(bytes).sum(), FileId(0)));
    for copied in copied {
        let (entry, footprint) = footprint(copied);
        let reservation = memtable.reserve(std::iter::once(entry), footprint)?;
        reservation.link(copied.0);
    }
    (!copied.is_empty()).then_some(memtable)
}

/// The buffer with the entries that were walked; `None` if there are none.
fn recovered(
    pool: &Arc<Pool>,
    named: &NamedBuffer,
    walked: Walked,
    version: &Version,
) -> Result<Option<RecoveredBuffer>> {
    let Some((least, most)) = &walked.bounds else {
        return Ok(None);
    };
    let layout = &version.layout;
    let parts = layout.part_of(least)..layout.part_of(most) + 1;
    let buffer = PmBuffer::new(pool.clone(), named.id, named.line, named.extent, walked.end)?;
    let list_bytes = list_bytes(buffer.capacity_bytes());
    Ok(Some(RecoveredBuffer {
        list_bytes: walked.found.list_bytes(),
        memtable: Arc::new(Memtable::with_found(buffer, walked.found, list_bytes)),
        parts,
        last: walked.last,
        end: walked.end,
        is_final: named.is_final,
    }))
}
