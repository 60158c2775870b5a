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
use crate::read::state::ReadState;
use crate::write::commit::{Queue, Reserved};
use firn_base::{ErrorKind, FileId, Result, SeqNo};
use std::sync::Arc;

/// A buffer is frozen before it is full once fewer eighths of the room are free, and none is being
/// flushed.
const FREEZE_BELOW: u64 = 1;
/// A write looks for room so many times more once there are no trees, whose readers keep it.
const LOOKS_WITHOUT_TREES: u32 = 5;

impl Engine {
    /// True if each partition has a write buffer of its own, in persistent memory.
    #[inline]
    pub(crate) fn has_part_buffers(&self) -> bool {
        self.buffers().is_some()
    }

    /// The used part of the last quarter of the room for buffers, in which flushes lag behind.
    pub(super) fn buffers_fill(&self) -> f64 {
        let Some(facts) = self.buffers().map(|store| store.facts()) else {
            return 0.0;
        };
        let free = facts.most_bytes.saturating_sub(facts.used_bytes);
        1.0 - (4.0 * free as f64 / facts.most_bytes.max(1) as f64).min(1.0)
    }

    /// Stages `entries` in the buffers of their partitions, making room where there is none.
    // Not inlined, because most databases have none.
    #[inline(never)]
    pub(super) fn reserve_in_parts<'a>(
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
        let active = |key: &[u8]| state.memtables.of(&state.layout, key).active();
        let Some(first) = entries.clone().next().map(|entry| active(entry.key)) else {
            let none = std::iter::empty();
            let reservation = state
                .memtables
                .of_part(0)
                .active()
                .reserve(none, Footprint::NONE);
            return match reservation {
                Some(reservation) => Ok(reservation.into()),
                None => unreachable!("nothing always has room"),
            };
        };
        let full = |memtable: &Arc<Memtable>, key: &[u8], its: (u64, u64)| Full {
            memtable: memtable.clone(),
            key: key.to_vec(),
            bytes: its,
            batch: Batch::of(entries.clone(), footprint),
        };
        let mut rest = entries.clone();
        if rest.all(|entry| Arc::ptr_eq(active(entry.key), first)) {
            let reservation = first.stage(entries.clone(), footprint.seed);
            let batch = || Batch::of(entries.clone(), footprint);
            return reservation.map(Reserved::from).ok_or_else(|| {
                let Batch {
                    first: key, bytes, ..
                } = batch();
                full(first, &key, bytes)
            });
        }
        let mut sorted: Vec<Entry<'a>> = entries.clone().collect();
        // Stable: versions of a key keep their order.
        sorted.sort_by(|a, b| a.key.cmp(b.key));
        let mut reserved: Option<Reserved> = None;
        for its in sorted.chunk_by(|a, b| Arc::ptr_eq(active(a.key), active(b.key))) {
            let memtable = active(its[0].key);
            let Some(reservation) = memtable.stage(its.iter().copied(), footprint.seed) else {
                let bytes = Memtable::staged_bytes(its.iter().copied(), footprint.seed);
                return Err(full(memtable, its[0].key, bytes));
            };
            reserved = Some(match reserved {
                None => reservation.into(),
                Some(reserved) => reserved.and(reservation),
            });
        }
        reserved.ok_or_else(|| unreachable!("a batch with entries has a partition"))
    }

    /// True if the buffers of their partitions have room for `entries`, each with links of up to
    /// `links_bytes_max`.
    #[cfg(feature = "proof")]
    pub(crate) fn has_room_in_parts<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>>,
        links_bytes_max: usize,
    ) -> bool {
        let state = self.state.load();
        // One memtable may take the writes of several partitions.
        let mut sums: Vec<(&Arc<Memtable>, (u64, u64))> = Vec::new();
        for entry in entries {
            let (bytes, list) = Memtable::staged_bytes(std::iter::once(entry), 0);
            let list = list + links_bytes_max as u64;
            let memtable = state.memtables.of(&state.layout, entry.key).active();
            match sums.iter_mut().find(|of| Arc::ptr_eq(of.0, memtable)) {
                Some((_, sum)) => *sum = (sum.0 + bytes, sum.1 + list),
                None => sums.push((memtable, (bytes, list))),
            }
        }
        sums.iter().all(|(memtable, sum)| memtable.has_room(*sum))
    }

    /// Begins a buffer in the place of a full one, once there is room for it.
    fn make_part_room(&self, full: &Full) -> Result<()> {
        let Some(store) = self.buffers() else {
            return Ok(());
        };
        let _entered = self.calls.enter()?;
        let start_ns = self.clock.now_ns();
        let mut looks = 0;
        let mut looks_left = LOOKS_WITHOUT_TREES;
        let begun = self.wait_for(|| {
            looks += 1;
            if full.memtable.frozen_at().is_some() {
                return Some(Ok(()));
            }
            // If room is short, one buffer takes the writes of all partitions that the batch is in.
            let is_short = looks > 1;
            let bytes = if is_short {
                full.batch.bytes
            } else {
                full.bytes
            };
            match store.begin(self.next_file_id(), bytes, &self.tables) {
                Ok(Some(fresh)) => {
                    self.take_writes(full, is_short, fresh);
                    Some(Ok(()))
                }
                Err(error) if error.kind() == ErrorKind::NoSpace && looks_left > 0 => {
                    store.want(full.batch.bytes.0);
                    match self.give_up_last_tree() {
                        Ok(true) => (),
                        // Their readers may take a moment.
                        Ok(false) => looks_left -= 1,
                        Err(error) => return Some(Err(error)),
                    }
                    self.remove_obsolete(true);
                    None
                }
                Err(error) => Some(Err(error)),
                Ok(None) => {
                    store.want(full.batch.bytes.0);
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

    /// Makes `fresh` take the writes of a full memtable, or of all partitions of its batch, unless
    /// another does already.
    fn take_writes(&self, full: &Full, of_batch: bool, fresh: Memtable) {
        let fresh = Arc::new(fresh);
        let mut queue = self.commit.lock();
        if full.memtable.frozen_at().is_none() {
            match of_batch {
                false => self.freeze_parts(&mut queue, (&full.key, &full.key), &fresh),
                true => {
                    let Batch { first, last, .. } = &full.batch;
                    self.freeze_parts(&mut queue, (first, last), &fresh);
                }
            }
            return;
        }
        drop(queue);
        if let (Some(store), Some(unused)) = (self.buffers(), Arc::into_inner(fresh)) {
            store.release(unused, &self.tables);
        }
    }

    /// Makes `fresh` take the writes of the partitions from that of the first to that of the second
    /// key, and freezes what took them.
    fn freeze_parts(
        &self,
        queue: &mut Queue,
        (first, last): (&[u8], &[u8]),
        fresh: &Arc<Memtable>,
    ) {
        let parts = |state: &ReadState| state.layout.part_of(first)..state.layout.part_of(last) + 1;
        let before = self
            .state
            .rcu(|state| state.with_memtable_in(parts(state), fresh));
        for part in parts(&before) {
            let full = before.memtables.of_part(part).active();
            if full.frozen_at().is_none() {
                self.freeze_memtable(queue, full);
            }
        }
        let after = self.state.load();
        let mut gone: Vec<Arc<Memtable>> = Vec::new();
        for part in parts(&before) {
            let full = before.memtables.of_part(part).active();
            let is_known = gone.iter().any(|known| Arc::ptr_eq(known, full));
            if full.pm_buffer().is_some() && !is_known && !after.memtables.has(full) {
                gone.push(full.clone());
            }
        }
        drop(before);
        self.retire_memtables(gone);
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

    /// Runs `swap`, which swaps in a state with other borders of partitions, and freezes the
    /// memtables that took writes before and do not any more. No write joins a group meanwhile.
    pub(crate) fn swap_borders<T>(&self, swap: impl FnOnce() -> T) -> T {
        if !self.has_part_buffers() {
            return swap();
        }
        let mut queue = self.commit.lock();
        let before = self.state.load_full();
        let swapped = swap();
        let after = self.state.load();
        for list in before.memtables.lists() {
            let stays = after
                .memtables
                .lists()
                .any(|of| Arc::ptr_eq(of.active(), list.active()));
            if !stays && list.active().frozen_at().is_none() {
                self.freeze_memtable(&mut queue, list.active());
            }
        }
        let active = before.memtables.lists().map(|list| list.active());
        let gone = active.filter(|of| of.pm_buffer().is_some() && !after.memtables.has(of));
        let gone: Vec<Arc<Memtable>> = gone.cloned().collect();
        drop(before);
        self.retire_memtables(gone);
        swapped
    }

    fn freeze_early(&self, queue: &mut Queue, key: &[u8]) {
        let placeholder = Arc::new(Memtable::placeholder(FileId(0)));
        self.freeze_parts(queue, (key, key), &placeholder);
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
        let is_frozen =
            |memtable: &Arc<Memtable>| memtable.frozen_at().is_some() && !memtable.is_placeholder();
        if state.memtables.iter().any(is_frozen) {
            return;
        }
        let parts = 0..state.layout.ids().len();
        let mut actives: Vec<(usize, usize)> = parts
            .filter(|i| state.memtables.of_part(*i).active().pm_buffer().is_some())
            .map(|i| (state.memtables.of_part(i).active().used_bytes(), i))
            .collect();
        // Those without entries first, because they need no flush.
        actives.sort_unstable_by_key(|&(used, i)| (used > 0, std::cmp::Reverse(used), i));
        let wanted = facts.wanted_bytes.max(facts.most_bytes * FREEZE_BELOW / 8);
        let mut frozen = 0;
        for (_, i) in actives {
            let active = state.memtables.of_part(i).active();
            if frozen >= wanted {
                break;
            }
            // One of several partitions was frozen with the first of them.
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
    batch: Batch,
}

/// The batch that needs the room.
struct Batch {
    /// Its least key, and its greatest.
    first: Vec<u8>,
    last: Vec<u8>,
    /// The bytes that it takes in persistent memory, and in a list.
    bytes: (u64, u64),
}

impl Batch {
    fn of<'a>(entries: impl Iterator<Item = Entry<'a>> + Clone, footprint: Footprint) -> Batch {
        let keys = || entries.clone().map(|entry| entry.key);
        Batch {
            first: keys().min().unwrap_or_default().to_vec(),
            last: keys().max().unwrap_or_default().to_vec(),
            bytes: Memtable::staged_bytes(entries.clone(), footprint.seed),
        }
    }
}
