//! Writes into the buffers of partitions in persistent memory.
//!
//! 1. A write reserves room in each buffer that it needs before it joins a group. If one has none,
//!    it gives back what it has and begins again once there is another buffer, so writes never wait
//!    for each other's reservations.
//! 2. A partition has no buffer before its first write. Its first memtable is then a placeholder,
//!    which is full.
//! 3. A full buffer is frozen and waits in persistent memory until room gets short. Then those of
//!    the partition with the most are flushed.

use crate::engine::Engine;
use crate::event::StallReason;
use crate::memtable::{Entry, Footprint, Memtable};
use crate::pmdb::BufferStore;
use crate::write::commit::{Queue, Reserved};
use firn_base::{FileId, Result, SeqNo};
use std::sync::Arc;

/// A buffer is frozen before it is full once fewer eighths of the room are free, and none is being
/// flushed.
const FREEZE_BELOW: u64 = 1;

impl Engine {
    /// True if each partition has a write buffer of its own, in persistent memory.
    #[inline]
    pub(crate) fn has_part_buffers(&self) -> bool {
        self.buffers().is_some()
    }

    /// The used share of the room for buffers.
    pub(super) fn buffers_fill(&self) -> f64 {
        let facts = self.buffers().map(BufferStore::facts);
        facts.map_or(0.0, |facts| facts.used_bytes as f64 / facts.most_bytes.max(1) as f64)
    }

    /// Stages `entries` in the buffers of their partitions, making room where there is none.
    pub(crate) fn reserve_in_parts<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        footprint: Footprint,
    ) -> Result<Reserved> {
        loop {
            match self.stage(entries.clone(), footprint) {
                Ok(reserved) => return Ok(reserved),
                Err(full) => self.make_part_room(&full)?,
            }
        }
    }

    /// As [`Engine::reserve_in_parts`]. The error is the buffer that has no room.
    fn stage<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>> + Clone,
        footprint: Footprint,
    ) -> Result<Reserved, Full> {
        let state = self.state.load();
        let mut keys = entries.clone().map(|entry| state.layout.part_of(entry.key));
        let first = keys.next();
        let of_part = |part: usize, its: &mut dyn Iterator<Item = Entry<'a>>| {
            let its: Vec<Entry<'a>> = its.collect();
            let active = state.memtables.of_part(part).active();
            let reservation = active.stage(its.iter().copied(), footprint.seed);
            reservation.ok_or_else(|| Full::of(active, &its, footprint))
        };
        let Some(first) = first else {
            let active = state.memtables.of_part(0).active();
            let none = std::iter::empty();
            let reservation = active.reserve(none.clone(), Footprint::of(none, 0));
            return reservation.map(Reserved::from).ok_or_else(|| Full::of(active, &[], footprint));
        };
        if keys.all(|part| part == first) {
            let active = state.memtables.of_part(first).active();
            let reservation = active.stage(entries.clone(), footprint.seed);
            let full = || Full::of(active, &entries.collect::<Vec<_>>(), footprint);
            return reservation.map(Reserved::from).ok_or_else(full);
        }
        let part = |entry: &Entry<'_>| state.layout.part_of(entry.key);
        let mut by_part: Vec<(usize, Entry<'a>)> =
            entries.map(|entry| (part(&entry), entry)).collect();
        // Stable: versions of a key keep their order.
        by_part.sort_by_key(|(part, _)| *part);
        let mut reserved: Option<Reserved> = None;
        for its in by_part.chunk_by(|(a, _), (b, _)| a == b) {
            let mut entries = its.iter().map(|(_, entry)| *entry);
            let reservation = of_part(its[0].0, &mut entries)?;
            reserved = Some(match reserved {
                None => reservation.into(),
                Some(reserved) => reserved.and(reservation),
            });
        }
        reserved.ok_or_else(|| unreachable!("a batch with entries has a partition"))
    }

    /// Begins a buffer in the place of a full one, once there is room for it.
    fn make_part_room(&self, full: &Full) -> Result<()> {
        let Some(store) = self.buffers() else {
            return Ok(());
        };
        let _entered = self.calls.enter()?;
        let start_ns = self.clock.now_ns();
        let mut looks = 0;
        let begun = self.wait_for(|| {
            looks += 1;
            if full.memtable.frozen_at().is_some() {
                return Some(Ok(()));
            }
            match store.begin(self.next_file_id(), full.bytes, &self.tables) {
                Ok(Some(fresh)) => Some(Ok(self.take_writes(full, fresh))),
                Err(error) => Some(Err(error)),
                Ok(None) => {
                    store.want(full.bytes.0);
                    self.freeze_if_short();
                    self.remove_obsolete(true);
                    None
                }
            }
        });
        if looks > 1 {
            store.want_none();
            let waited_ns = self.clock.now_ns() - start_ns;
            self.write_stall.stalled(StallReason::Buffers, waited_ns);
        }
        begun??;
        self.update_stall();
        self.executor.wake();
        Ok(())
    }

    /// Makes `fresh` take the writes of a full memtable, unless another does already.
    fn take_writes(&self, full: &Full, fresh: Memtable) {
        let fresh = Arc::new(fresh);
        let mut queue = self.commit.lock();
        if full.memtable.frozen_at().is_none() {
            self.freeze_part(&mut queue, &full.key, &fresh);
            return;
        }
        drop(queue);
        if let (Some(store), Some(unused)) = (self.buffers(), Arc::into_inner(fresh)) {
            store.release(unused, &self.tables);
        }
    }

    /// Makes `fresh` take the writes of the partition of `key`, and freezes what took them.
    fn freeze_part(&self, queue: &mut Queue, key: &[u8], fresh: &Arc<Memtable>) {
        let before = self.state.rcu(|state| state.with_memtable(key, fresh));
        self.freeze_memtable(queue, before.unflushed(key).active());
    }

    fn freeze_memtable(&self, queue: &mut Queue, full: &Memtable) {
        queue.freeze(full);
        if let Some(store) = self.buffers() {
            store.count_list(full, full.dram_used_bytes() as u64, &self.tables);
        }
    }

    /// Freezes the buffers of all partitions that have entries. Returns the last number in them.
    pub(crate) fn freeze_all_parts(&self) -> SeqNo {
        let mut queue = self.commit.lock();
        let state = self.state.load_full();
        for i in 0..state.layout.ids().len() {
            let active = state.memtables.of_part(i).active();
            // One of several partitions was frozen with the first of them.
            if active.used_bytes() > 0 && active.frozen_at().is_none() && !active.is_placeholder() {
                self.freeze_early(&mut queue, state.layout.range(i).0);
            }
        }
        SeqNo(queue.next_seqno - 1)
    }

    /// True if the memtables of the partitions that meet at `cut` may become one list: none has an
    /// entry, because how far they are flushed differs. From then on, one placeholder takes the
    /// writes of both. REQUIRES: the manifest's lock, so that no flush ends meanwhile.
    pub(crate) fn may_join_memtables(&self, cut: &[u8]) -> bool {
        if !self.has_part_buffers() {
            return true;
        }
        let mut queue = self.commit.lock();
        let state = self.state.load_full();
        let right = state.layout.part_of(cut);
        let parts = right.saturating_sub(1)..right + 1;
        let lists = parts.clone().map(|part| state.memtables.of_part(part));
        let memtables = lists.flat_map(|list| &list.memtables);
        if !memtables.clone().all(|memtable| memtable.is_placeholder()) {
            return false;
        }
        let placeholder = Arc::new(Memtable::placeholder(FileId(0)));
        // Borders change only under the manifest's lock.
        self.state.rcu(|state| state.with_memtable_in(parts.clone(), &placeholder));
        for memtable in memtables {
            queue.freeze(memtable);
        }
        true
    }

    fn freeze_early(&self, queue: &mut Queue, key: &[u8]) {
        let placeholder = Arc::new(Memtable::placeholder(FileId(0)));
        self.freeze_part(queue, key, &placeholder);
    }

    /// Freezes the fullest buffers, before they are full, if room is short and nothing is frozen
    /// that can be flushed. Otherwise all of them would be full at about the same time, because
    /// writes to random keys fill them evenly.
    pub(crate) fn freeze_if_short(&self) {
        let Some(store) = self.buffers() else { return };
        let facts = store.facts();
        if !facts.has_less_than(FREEZE_BELOW) {
            return;
        }
        let mut queue = self.commit.lock();
        let state = self.state.load_full();
        let is_frozen = |memtable: &Arc<Memtable>| {
            memtable.frozen_at().is_some() && !memtable.is_placeholder()
        };
        if state.memtables.iter().any(is_frozen) {
            return;
        }
        let parts = 0..state.layout.ids().len();
        let mut actives: Vec<(usize, usize)> = parts
            .map(|i| (state.memtables.of_part(i).active().used_bytes(), i))
            .filter(|(used, _)| *used > 0)
            .collect();
        actives.sort_unstable_by(|a, b| b.cmp(a));
        let wanted = facts.wanted_bytes.max(facts.most_bytes * FREEZE_BELOW / 8);
        let mut frozen = 0;
        for (_, i) in actives {
            let active = state.memtables.of_part(i).active();
            if frozen >= wanted || active.is_placeholder() {
                break;
            }
            if active.frozen_at().is_none() {
                frozen += active.capacity_bytes() as u64;
                self.freeze_early(&mut queue, state.layout.range(i).0);
            }
        }
        drop(queue);
        self.executor.wake();
    }
}

/// A memtable that has no room.
struct Full {
    memtable: Arc<Memtable>,
    /// A key in its partition.
    key: Vec<u8>,
    /// The bytes for which there is no room: in persistent memory, and in the list.
    bytes: (u64, u64),
}

impl Full {
    fn of(memtable: &Arc<Memtable>, entries: &[Entry<'_>], footprint: Footprint) -> Full {
        Full {
            memtable: memtable.clone(),
            key: entries.first().map_or(Vec::new(), |entry| entry.key.to_vec()),
            bytes: Memtable::staged_bytes(entries.iter().copied(), footprint.seed),
        }
    }
}
