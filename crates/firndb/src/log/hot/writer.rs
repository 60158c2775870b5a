//! The log writer's side of the hot buffer: it selects the entries of a frame that go there and
//! frees the slots of their previous versions.

use super::keys::HotKeys;
use super::slots::{HotSlots, address};
use crate::log::layout::{VALUE_HEADER_BYTES, ValueAddress};
use crate::memtable::{LogEntry, Reservation};
use crate::read_points::{Snapshots, is_seen};
use firn_base::key::Kind;
use firn_base::sync::AtomicU64;
use firn_base::{FileId, Result, SeqNo};
use firn_table::sst::hash;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A value larger than this fraction (1/32) of the buffer does not go there.
const VALUES_MIN: u64 = 32;
/// A value shorter than this many bytes is hardly longer than the reference to its slot.
const VALUE_BYTES_MIN: usize = 32;
/// Bytes of the buffer per key whose writes are counted.
const BYTES_PER_KEY: u64 = 128;
/// While more than this share of the buffer is free, the threshold for hot keys falls back towards
/// the configured one.
const FREE_SHARE: f64 = 0.25;

/// An entry of a frame whose value is in the hot buffer.
#[derive(Debug, Clone, Copy)]
pub(in crate::log) struct HotPlace {
    /// Its index in the frame.
    pub(in crate::log) entry: u32,
    unit: u32,
}

impl HotPlace {
    pub(in crate::log) fn address(self, len: u32) -> ValueAddress {
        address(self.unit, len)
    }
}

/// The slot of a version that is no longer the newest in its log.
struct Superseded {
    log_id: FileId,
    unit: u32,
    seqno: SeqNo,
    /// The sequence number of the version that superseded it.
    until: SeqNo,
}

/// Writes values of hot keys to the hot buffer. Used by one thread at a time, like its log writer.
pub(crate) struct HotWriter {
    slots: Arc<HotSlots>,
    keys: HotKeys,
    /// The configured number of recent writes that make a key hot, and the current number, raised
    /// if the buffer lacks room.
    writes_min: u8,
    writes: u8,
    /// The slot of each hot key's newest version in the current log.
    newest: HashMap<Box<[u8]>, (u32, SeqNo)>,
    superseded: VecDeque<Superseded>,
    /// The entries of the current frame that are in the buffer.
    placed: Vec<HotPlace>,
    /// The read points in use, and the newest visible sequence number.
    snapshots: Arc<Snapshots>,
    visible: Arc<AtomicU64>,
}

/// The entries of `group` with their indexes in the frame.
fn entries(group: &[Reservation]) -> impl Iterator<Item = (u32, LogEntry<'_>)> {
    (0..).zip(group.iter().flat_map(Reservation::entries))
}

impl HotWriter {
    /// A writer for which a key is hot after `writes_min` recent writes. It keeps what readers at
    /// `snapshots` and at `visible` need.
    pub(crate) fn new(
        slots: Arc<HotSlots>,
        writes_min: u8,
        snapshots: Arc<Snapshots>,
        visible: Arc<AtomicU64>,
    ) -> HotWriter {
        HotWriter {
            keys: HotKeys::new((slots.bytes() / BYTES_PER_KEY) as usize),
            slots,
            writes_min,
            writes: writes_min,
            newest: HashMap::new(),
            superseded: VecDeque::new(),
            placed: Vec::new(),
            snapshots,
            visible,
        }
    }

    /// Writes the values of hot keys among the entries of `group`, numbered from `first` on, to the
    /// hot buffer, for a frame of log `log_id`. DURABLE AFTER: those values. Returns their places.
    pub(in crate::log) fn place(
        &mut self,
        log_id: FileId,
        group: &[Reservation],
        first: SeqNo,
    ) -> Result<&[HotPlace]> {
        self.release_superseded();
        self.placed.clear();
        let mut written = Vec::new();
        for (
            entry,
            LogEntry {
                kind,
                key,
                framed_value,
            },
        ) in entries(group)
        {
            let len = framed_value.len() - VALUE_HEADER_BYTES;
            let fits = len >= VALUE_BYTES_MIN && len as u64 * VALUES_MIN <= self.slots.bytes();
            if kind != Kind::Put as u8 || !fits || !self.is_hot(key) {
                continue;
            }
            let seqno = SeqNo(first.0 + u64::from(entry));
            let Some(unit) = self.slots.reserve(log_id, seqno, len as u32) else {
                self.slots.turned_away.add(1);
                self.writes = self.writes.saturating_add(1);
                continue;
            };
            self.placed.push(HotPlace { entry, unit });
            match self.slots.write(unit, seqno, framed_value) {
                Ok(flushed) => written.push(flushed),
                Err(error) => {
                    self.give_up(log_id);
                    return Err(error);
                }
            }
        }
        if !written.is_empty() {
            self.slots
                .fence(written, self.placed.iter().map(|place| place.unit));
        }
        Ok(&self.placed)
    }

    /// Counts a write of `key`. True if its value goes to the hot buffer.
    fn is_hot(&mut self, key: &[u8]) -> bool {
        let (count, halved) = self.keys.count(hash(key));
        if halved && self.slots.free_share() > FREE_SHARE {
            self.writes = self.writes_min.max(self.writes / 2);
        }
        count >= self.writes
    }

    /// Releases the slots of a frame that was not written.
    pub(in crate::log) fn give_up(&mut self, log_id: FileId) {
        self.placed
            .drain(..)
            .for_each(|place| self.slots.release(log_id, place.unit));
    }

    /// Records that the frame with the entries of `group` is in log `log_id`. Returns the entries
    /// whose values are in the hot buffer.
    pub(in crate::log) fn wrote(
        &mut self,
        log_id: FileId,
        group: &[Reservation],
        first: SeqNo,
    ) -> Vec<HotPlace> {
        let placed = std::mem::take(&mut self.placed);
        if placed.is_empty() && self.newest.is_empty() {
            return placed;
        }
        let mut places = placed.iter().peekable();
        for (entry, LogEntry { key, .. }) in entries(group) {
            let until = SeqNo(first.0 + u64::from(entry));
            let before = match places.next_if(|place| place.entry == entry) {
                None => self.newest.remove(key),
                Some(place) => match self.newest.get_mut(key) {
                    Some(newest) => Some(std::mem::replace(newest, (place.unit, until))),
                    None => self.newest.insert(key.into(), (place.unit, until)),
                },
            };
            let superseded = before.map(|(unit, seqno)| Superseded {
                log_id,
                unit,
                seqno,
                until,
            });
            self.superseded.extend(superseded);
        }
        placed
    }

    /// Begins another log. Its entries supersede nothing of the previous one.
    pub(in crate::log) fn rotate(&mut self) {
        self.newest.clear();
    }

    /// Releases the slots of superseded versions. Everything visible now was acknowledged, and no
    /// later read point is before it.
    fn release_superseded(&mut self) {
        if self.superseded.is_empty() {
            return;
        }
        let snapshots = &self.snapshots.list(&self.visible);
        let visible = snapshots.last().copied().unwrap_or_default();
        while self
            .superseded
            .front()
            .is_some_and(|version| version.until <= visible)
        {
            let Some(version) = self.superseded.pop_front() else {
                break;
            };
            // A version that a snapshot sees stays until its log is flushed.
            if !is_seen(snapshots, version.seqno, version.until) {
                self.slots.release(version.log_id, version.unit);
            }
        }
    }
}
