//! A shard of the cache: two queues of entries, and the policy that decides what stays.
//!
//! ```text
//!   insert --> window --> contest --> main --+
//!                            |         ^     | oldest
//!                            v         +-----+ more often asked for, a byte
//!                          gone              +--> gone
//! ```
//! 1. A new entry is appended to the window, a twentieth of the memory. There it can be found again
//!    although nothing is known of it.
//! 2. The oldest entry of a full window contests its place with the oldest of main. The one that
//!    was asked for less often, for each byte, goes. Main's oldest entries that win are moved to
//!    its head, so main is a clock (Corbato 1968), and the contest is that of TinyLFU (Einziger,
//!    Friedman and Manes 2017). A candidate has lost once [`SPARED`] times its bytes have won, and
//!    at once if it was never asked for, because then it wins against nothing.
//! 3. Lookups count, whether they find an entry or not. Counts are halved after [`ACCESSES`]
//!    lookups an entry. A window with more than its share of the hits shows that readers want
//!    something else than before: then they are halved [`CHECKS`] times in each lookup an entry.
//! 4. Made smaller, a shard drops what is hardly asked for, and spares four times as much.
//!
//! Thread safety: a lookup takes the shard's lock for reading, and counts with relaxed atomics.

use super::index::{Hash, Index, Slot};
use super::log::{Content, Entry, Kind, Place, Queue, Segments};
use firn_base::sync::{AtomicU64, Ordering, RwLock};

#[cfg(test)]
mod tests;

/// The window's part of a shard's memory.
const WINDOW: u64 = 20;
/// The lookups for each entry after which counts are halved.
const ACCESSES: u64 = 64;
/// The checks in the time of one lookup for each entry.
const CHECKS: u64 = 8;
/// The bytes that main's oldest entries may win against a candidate, in the candidate's bytes. With
/// more of them it is likelier to meet one that was asked for less often.
const SPARED: u64 = 8;
/// The bytes that are spared when the shard is made smaller, in bytes to go.
const SPARED_MAX: u64 = 4;

/// The number of inserts that find the lock taken of which one waits.
const WAITS_ONE_IN: u64 = 16;

/// Segments that the limits of the queues leave free. A queue of whole segments may have one more,
/// between the rest at its head and what its tail has passed, and main may be larger than its
/// limit by the rests of segments that were closed.
const SEGMENTS_FREE: u64 = 3;

/// A shard.
pub(super) struct Shard {
    state: RwLock<State>,
    /// Lookups that were counted, and in the upper half those of them that found an entry.
    lookups: AtomicU64,
    /// The lookups that found it in the window.
    window_hits: AtomicU64,
}

struct State {
    index: Index,
    segments: Segments,
    window: Queue,
    main: Queue,
    bytes_max: u64,
    /// The bytes that the queues may take, and the window of them: whole segments.
    queues_max: u64,
    window_max: u64,
    /// The counters of the shard at the last check, and lookups since the counts were halved.
    checked: Lookups,
    since_halved: u64,
    /// The running mean of the frequencies for each MiB of what contests dropped from main.
    dropped: u64,
    /// True once a contest dropped an entry, because there is no more room.
    is_full: bool,
}

/// Counted lookups.
#[derive(Debug, Clone, Copy, Default)]
struct Lookups {
    all: u64,
    hits: u64,
    window_hits: u64,
}

const HIT: u64 = 1 << 32;

impl Shard {
    /// An empty shard of at most `bytes`.
    pub(super) fn new(bytes: u64) -> Shard {
        Shard {
            state: RwLock::new(State::new(bytes)),
            lookups: AtomicU64::new(0),
            window_hits: AtomicU64::new(0),
        }
    }

    /// Calls `read` with the notes and payloads of entries with this hash until it returns
    /// something. If `counts`, this is an access.
    #[inline]
    pub(super) fn read<R>(
        &self,
        hash: Hash,
        kind: Kind,
        counts: bool,
        mut read: impl FnMut(u8, &[u8]) -> Option<R>,
    ) -> Option<R> {
        let state = self.state.read();
        let mut found = None;
        let slot = state.index.find(hash, |place| {
            let entry = state.entry_at(place, hash, kind);
            found = entry.and_then(|entry| read(entry.note, state.segments.payload(&entry)));
            found.is_some()
        });
        if counts {
            let add = if slot.is_some() { HIT + 1 } else { 1 };
            self.lookups.fetch_add(add, Ordering::Relaxed);
            match slot {
                Some(slot) => state.index.count_hit(slot),
                None => state.index.count_miss(hash),
            }
            if slot.is_some_and(|slot| state.segments.is_in_window(state.index.place(slot))) {
                self.window_hits.fetch_add(1, Ordering::Relaxed);
            }
        }
        drop(state);
        found
    }

    /// How often the entry with this hash was looked up lately.
    pub(super) fn frequency(&self, hash: Hash, kind: Kind) -> u64 {
        let state = self.state.read();
        let slot = state
            .index
            .find(hash, |place| state.entry_at(place, hash, kind).is_some());
        slot.map_or_else(
            || state.index.frequency_before(hash),
            |slot| state.index.frequency(slot),
        )
    }

    /// Inserts an entry in place of the one with the same hash. True if the shard is full, so that
    /// others have to go for it. Most inserts that would have to wait are left out: who has the
    /// lock may be preempted, and lookups wait behind an insert that waits. Some wait, because
    /// there may always be a lookup.
    pub(super) fn insert(&self, hash: Hash, content: Content<'_>) -> bool {
        let lookups = self.lookups();
        let mut state = match self.state.try_write() {
            Some(state) => state,
            None if lookups.all.is_multiple_of(WAITS_ONE_IN) => self.state.write(),
            None => return false,
        };
        state.age(lookups);
        state.remove(hash, content.kind);
        state.insert(hash, content);
        state.is_full
    }

    /// Replaces the entry with the same hash, if there is one, and leaves it where it is in its
    /// queue if it has the same note and length. Lookups elsewhere are added to its own.
    pub(super) fn replace(&self, hash: Hash, content: Content<'_>) {
        let mut state = self.state.write();
        if let Some(entry) = state.find(hash, content.kind) {
            state.index.add_hits(hash, entry.place, content.lookups);
            match (entry.note, entry.len) == (content.note, content.len()) {
                true => state.segments.overwrite(&entry, content.parts),
                false => {
                    state.drop_entry(&entry);
                    state.insert(hash, content);
                }
            }
        }
    }

    /// Removes the entry with this hash. True if there was one.
    pub(super) fn remove(&self, hash: Hash, kind: Kind) -> bool {
        self.state.write().remove(hash, kind)
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.state.read().bytes()
    }

    /// Bytes held, and the most that it may hold at that moment.
    pub(super) fn bytes_of_max(&self) -> (u64, u64) {
        let state = self.state.read();
        (state.bytes(), state.bytes_max)
    }

    /// Changes the most bytes that it may hold, or, if it holds more, comes closer to that by
    /// `step`. False if it must be called again.
    pub(super) fn resize(&self, bytes: u64, step: u64) -> bool {
        let mut state = self.state.write();
        let now = state.bytes().min(state.bytes_max);
        state.is_full &= bytes <= state.bytes_max;
        let bytes_max = bytes.max(now.saturating_sub(step));
        state.bytes_max = bytes_max;
        state.index.resize(bytes_max);
        state.limit_queues();
        state.fit(0);
        if state.index.is_to_be_rebuilt() {
            state.rebuild_index();
        }
        state.bytes_max == bytes
    }

    fn lookups(&self) -> Lookups {
        let both = self.lookups.load(Ordering::Relaxed);
        Lookups {
            all: both % HIT,
            hits: both / HIT,
            window_hits: self.window_hits.load(Ordering::Relaxed),
        }
    }
}

impl Lookups {
    fn since(self, before: Lookups) -> Lookups {
        // Each half may have wrapped around.
        let since = |now: u64, before: u64| now.wrapping_sub(before) % HIT;
        Lookups {
            all: since(self.all, before.all),
            hits: since(self.hits, before.hits),
            window_hits: self.window_hits.wrapping_sub(before.window_hits),
        }
    }

    /// True if the window, with this share of the memory, has more of the hits than chance
    /// explains.
    fn window_has_more_than(self, share: f64) -> bool {
        const DEVIATIONS: f64 = 4.0;
        let expected = self.hits as f64 * share;
        let deviation = (expected * (1.0 - share)).sqrt();
        self.window_hits as f64 > expected + DEVIATIONS * deviation
    }
}

impl State {
    fn new(bytes_max: u64) -> State {
        let mut state = State {
            index: Index::new(bytes_max),
            segments: Segments::new(bytes_max),
            window: Queue::window(),
            main: Queue::default(),
            bytes_max,
            queues_max: 0,
            window_max: 0,
            checked: Lookups::default(),
            since_halved: 0,
            dropped: 0,
            is_full: false,
        };
        state.limit_queues();
        state
    }

    fn bytes(&self) -> u64 {
        self.segments.bytes() + self.index.bytes()
    }

    /// Sets the limits of the queues anew, because the size of the shard or of its index changed.
    fn limit_queues(&mut self) {
        let segment = self.segments.segment_bytes() as u64;
        let bytes = self.bytes_max.saturating_sub(self.index.bytes());
        self.queues_max = (bytes / segment).saturating_sub(SEGMENTS_FREE) * segment;
        self.window_max = (self.queues_max / WINDOW).next_multiple_of(segment);
    }

    #[inline]
    fn entry_at(&self, place: Place, hash: Hash, kind: Kind) -> Option<Entry> {
        let entry = self.segments.entry(place);
        entry.filter(|entry| entry.hash == hash && entry.kind == kind)
    }

    fn find(&self, hash: Hash, kind: Kind) -> Option<Entry> {
        let is_it = |place| self.entry_at(place, hash, kind).is_some();
        let slot = self.index.find(hash, is_it)?;
        self.segments.entry(self.index.place(slot))
    }

    fn remove(&mut self, hash: Hash, kind: Kind) -> bool {
        let found = self.find(hash, kind);
        found.inspect(|entry| self.drop_entry(entry)).is_some()
    }

    fn drop_entry(&mut self, entry: &Entry) {
        if let Some(slot) = self.live_slot(entry) {
            self.drop_in(slot, entry);
        }
    }

    /// Drops an entry that the index has in `slot`.
    fn drop_in(&mut self, slot: Slot, entry: &Entry) {
        self.index.remove(slot, entry.hash);
        self.segments.remove(entry);
    }

    /// Where the index has an entry, unless that was removed.
    fn live_slot(&self, entry: &Entry) -> Option<Slot> {
        match entry.kind {
            Kind::Gone => None,
            Kind::Row | Kind::Block => self.index.slot_of(entry.hash, entry.place),
        }
    }

    /// Halves the counts if it is time.
    fn age(&mut self, now: Lookups) {
        let since = now.since(self.checked);
        let entries = self.index.entries() as u64;
        if since.all * CHECKS < entries {
            return;
        }
        self.checked = now;
        self.since_halved += since.all;
        let held = self.window.bytes() + self.main.bytes();
        let share = self.window.bytes() as f64 / held.max(1) as f64;
        if since.window_has_more_than(share) || self.since_halved >= ACCESSES * entries {
            self.index.halve();
            self.since_halved = 0;
        }
    }

    /// Inserts an entry, of which there is none yet.
    fn insert(&mut self, hash: Hash, content: Content<'_>) {
        if self.index.is_to_be_rebuilt() {
            self.rebuild_index();
        }
        let size = Entry::size_of(content.len());
        if size as u64 > self.queues_max {
            return;
        }
        self.fit(size as u64);
        let place = self.segments.append(&mut self.window, hash, content);
        self.enter(hash, place, content.lookups.into());
    }

    /// Puts an entry that was appended at `place` into the index.
    fn enter(&mut self, hash: Hash, place: Option<Place>, lookups: u64) {
        let Some(place) = place else { return };
        let hash_of = |place| self.segments.entry(place).map(|entry| entry.hash);
        let count = self.index.frequency_before(hash).max(lookups);
        if !self.index.insert(hash, place, count, hash_of)
            && let Some(entry) = self.segments.entry(place)
        {
            self.segments.remove(&entry);
        }
    }

    /// Replaces the index by one of the right size. An entry that finds no room is removed, because
    /// another rebuild would bring it back when it is no longer valid.
    fn rebuild_index(&mut self) {
        let (mut index, mut removed) = (self.index.resized(), Vec::new());
        let queues = [&self.window, &self.main];
        let hash_of = |place| self.segments.entry(place).map(|entry| entry.hash);
        for entry in queues
            .into_iter()
            .flat_map(|queue| self.segments.entries(queue))
        {
            let slot = self.live_slot(&entry);
            let count = slot.map_or(0, |slot| self.index.frequency(slot));
            if !index.insert(entry.hash, entry.place, count, hash_of) {
                removed.push(entry);
            }
        }
        removed.iter().for_each(|entry| self.segments.remove(entry));
        std::mem::replace(&mut self.index, index).free();
        self.limit_queues();
    }

    /// Makes room for `size` bytes in the window, and everything fit into the limits.
    fn fit(&mut self, size: u64) {
        while self.window.bytes() + size > self.window_max.max(size)
            && let Some(candidate) = self.segments.pop(&mut self.window)
        {
            self.contest(&candidate);
        }
        let window = self.window_max.max(self.window.bytes() + size);
        let main_max = self.queues_max.saturating_sub(window);
        let slack = main_max.min(self.segments.segment_bytes() as u64);
        if self.main.bytes() > main_max + slack {
            self.shrink(main_max);
        }
        if self.excess(size) > 0 {
            self.segments.trim(&mut self.window);
            self.drop_unused();
        }
        // Beside entries with segments of their own, the others may leave more of theirs unused.
        let excess = self.excess(size);
        if excess > 0 {
            let segment = self.segments.segment_bytes() as u64;
            self.shrink(self.main.bytes().saturating_sub(excess + segment));
            self.drop_unused();
        }
    }

    /// The bytes above the limit once an entry of `size` bytes is appended to the window.
    fn excess(&self, size: u64) -> u64 {
        let needed = self.segments.needed(&self.window, size as usize);
        (self.bytes() + needed).saturating_sub(self.bytes_max)
    }

    /// Gives the system the segments that main's tail has passed, and all others without a queue.
    fn drop_unused(&mut self) {
        self.segments.trim(&mut self.main);
        self.segments.drop_spare();
    }

    /// Decides between an entry that leaves the window and the oldest ones of main.
    fn contest(&mut self, candidate: &Entry) {
        let size = candidate.size() as u64;
        let Some(slot) = self.live_slot(candidate) else {
            return;
        };
        let frequency = self.index.frequency(slot);
        let main_max = self.queues_max - self.window_max;
        // A candidate that was never asked for wins against nothing, so more moves are in vain.
        let mut may_spare = match frequency {
            0 => 0,
            _ => SPARED * size,
        };
        while self.main.bytes() + size > main_max
            && let Some(oldest) = self.segments.pop(&mut self.main)
        {
            let Some(its_slot) = self.live_slot(&oldest) else {
                continue;
            };
            let its_frequency = self.index.frequency(its_slot);
            let its_size = oldest.size() as u64;
            if frequency * its_size > its_frequency * size {
                let for_a_mib = (its_frequency << 20) / its_size;
                self.dropped = (15 * self.dropped + for_a_mib) / 16;
                self.is_full = true;
                self.drop_in(its_slot, &oldest);
                continue;
            }
            self.move_to_main(its_slot, &oldest);
            may_spare = may_spare.saturating_sub(its_size);
            if may_spare == 0 {
                self.is_full = true;
                self.drop_in(slot, candidate);
                return;
            }
        }
        self.move_to_main(slot, candidate);
    }

    /// Moves an entry, which the index has in `slot`, to the head of main.
    fn move_to_main(&mut self, slot: Slot, entry: &Entry) {
        match self.segments.move_to(&mut self.main, entry) {
            Some(place) => self.index.replace(slot, entry.hash, place),
            None => self.drop_in(slot, entry),
        }
    }

    /// Drops entries of main until it has at most `bytes`.
    fn shrink(&mut self, bytes: u64) {
        let mut may_spare = SPARED_MAX * (self.main.bytes() - bytes);
        while self.main.bytes() > bytes
            && let Some(oldest) = self.segments.pop(&mut self.main)
        {
            let Some(slot) = self.live_slot(&oldest) else {
                continue;
            };
            let size = oldest.size() as u64;
            if may_spare >= size && (self.index.frequency(slot) << 20) / size > self.dropped {
                may_spare -= size;
                self.move_to_main(slot, &oldest);
            } else {
                self.drop_in(slot, &oldest);
            }
        }
    }
}
