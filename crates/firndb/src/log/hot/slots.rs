//! The slots in the pool, and the users of each.
//!
//! Thread safety: `Send + Sync`. A slot is read without a lock, because its reader counts as a
//! user, so it stays.

use crate::log::layout::{VALUE_HEADER_BYTES, ValueAddress, check_value};
use crate::sites;
use firn_base::coding::get_u64;
use firn_base::count::Counter;
use firn_base::sync::{ArcSwapOption, Mutex};
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo};
use firn_pm::{Extent, Fenced, Flushed, Owner, PmOffset, Pool, RootEntry};
use firn_table::pm_btree::{HOT_LOG, Space};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The alignment of slots in bytes: a cache line.
const UNIT_BYTES: u64 = 64;
const SEQNO_BYTES: usize = 8;
const HEADER_BYTES: usize = SEQNO_BYTES + VALUE_HEADER_BYTES;
/// The kind of the only extent of its owner.
const KIND: u16 = 0;
/// The minimum size of a buffer in bytes. A smaller one holds too little to be worthwhile.
const BYTES_MIN: u64 = 4 << 10;

/// The hot buffer.
pub(crate) struct HotSlots {
    pool: Arc<Pool>,
    extent: Extent,
    state: Mutex<State>,
    /// The copy made by a read-only open.
    copy: ArcSwapOption<Vec<u8>>,
    written: Counter,
    written_bytes: Counter,
    pub(super) turned_away: Counter,
}

struct State {
    space: Space,
    /// The slots by their first unit.
    slots: HashMap<u32, Slot>,
    /// The slots needed by logs, by log.
    held: BTreeMap<FileId, HashSet<u32>>,
}

/// A slot in use.
#[derive(Debug, Clone, Copy)]
struct Slot {
    seqno: SeqNo,
    len: u32,
    /// The number of its users.
    users: u32,
    /// True if its value is durable.
    is_written: bool,
}

/// The hot buffer of profile `lab`.
#[derive(Debug, Clone, Serialize)]
pub struct HotStats {
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Values in it.
    pub values: usize,
    /// Values written to it since the open, instead of to the log.
    pub written: u64,
    /// Bytes of these values.
    pub written_bytes: u64,
    /// Values of hot keys that went to the log, because there was no room.
    pub turned_away: u64,
}

/// Bytes of the slot for a value of `len` bytes.
fn slot_bytes(len: u32) -> usize {
    (HEADER_BYTES + len as usize).next_multiple_of(UNIT_BYTES as usize)
}

fn units(len: u32) -> u32 {
    (slot_bytes(len) as u64 / UNIT_BYTES) as u32
}

impl State {
    fn use_once_more(&mut self, unit: u32, seqno: SeqNo, len: u32) -> bool {
        match self.slots.get_mut(&unit) {
            Some(slot) if (slot.seqno, slot.len) == (seqno, len) => slot.users += 1,
            None if self.space.claim(unit, units(len)) => {
                self.slots.insert(
                    unit,
                    Slot {
                        seqno,
                        len,
                        users: 1,
                        is_written: true,
                    },
                );
            }
            _ => return false,
        }
        true
    }

    fn use_once_less(&mut self, unit: u32) {
        let Some(slot) = self.slots.get_mut(&unit) else {
            return debug_assert!(false, "a free slot is let go of");
        };
        slot.users -= 1;
        if slot.users == 0 {
            self.space.free(unit, units(slot.len));
            self.slots.remove(&unit);
        }
    }
}

impl HotSlots {
    /// The hot buffer that the root of `pool` names. The slots needed by leaves and logs must be
    /// [used](HotSlots::use_again) and [held](HotSlots::hold) before anything is written.
    pub(crate) fn find(pool: &Arc<Pool>) -> Option<HotSlots> {
        let extent = pool
            .root()
            .find(Owner::Hot, KIND)
            .and_then(|entry| entry.extent)?;
        Some(HotSlots::over(pool.clone(), extent))
    }

    /// Creates a buffer of `bytes` in `pool`, which has none. `None` if it would be too small, or
    /// if there is no room and it was not explicitly requested.
    ///
    /// # Errors
    /// `NoSpace` if there is no room for a requested buffer; the errors of the commit.
    pub(crate) fn create(pool: &Arc<Pool>, bytes: u64, is_asked: bool) -> Result<Option<HotSlots>> {
        if bytes < BYTES_MIN {
            return Ok(None);
        }
        let extent = match pool.alloc(bytes, Owner::Hot) {
            Err(error) if error.kind() == ErrorKind::NoSpace && !is_asked => return Ok(None),
            Err(error) => {
                return Err(
                    error.context("the hot buffer; raise pm.size or lower tuning.lab.hot_bytes")
                );
            }
            Ok(extent) => extent,
        };
        let entry = RootEntry {
            owner: Owner::Hot,
            kind: KIND,
            word: 0,
            extent: Some(extent),
        };
        pool.commit_with(Fenced::nothing(), |root| {
            root.set(entry);
            Ok(())
        })?;
        Ok(Some(HotSlots::over(pool.clone(), extent)))
    }

    fn over(pool: Arc<Pool>, extent: Extent) -> HotSlots {
        let units = u32::try_from(extent.len / UNIT_BYTES).unwrap_or(u32::MAX);
        let state = State {
            space: Space::new(units),
            slots: HashMap::new(),
            held: BTreeMap::new(),
        };
        let (written, written_bytes, turned_away) = Default::default();
        let copy = ArcSwapOption::empty();
        HotSlots {
            pool,
            extent,
            state: Mutex::new(state),
            copy,
            written,
            written_bytes,
            turned_away,
        }
    }

    /// Copies the current contents, if they are at most `bytes_max`, because a writer beside this
    /// reuses the slots.
    ///
    /// # Errors
    /// The error of reading the pool.
    pub(crate) fn take_along(&self, bytes_max: u64) -> Result<()> {
        if self.extent.len <= bytes_max {
            let mut bytes = vec![0; self.extent.len as usize];
            self.pool.read(self.extent.offset, &mut bytes)?;
            self.copy.store(Some(Arc::new(bytes)));
        }
        Ok(())
    }

    /// The size of the buffer in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.extent.len
    }

    /// The free share of the buffer: 0 to 1.
    pub(super) fn free_share(&self) -> f64 {
        let state = self.state.lock();
        f64::from(state.space.free_units()) / f64::from(state.space.units().max(1))
    }

    fn wrong(&self, unit: u32, expected: &str) -> Error {
        let at = self.extent.offset.get() + u64::from(unit) * UNIT_BYTES;
        Error::corruption(
            format!("the hot buffer of the {} pool", self.pool.backend_name()),
            at,
            expected,
        )
    }

    /// The place of the slot at `unit` with a value of `len` bytes.
    fn offset(&self, unit: u32, len: u32) -> Result<PmOffset> {
        let at = u64::from(unit) * UNIT_BYTES;
        let fits = at + slot_bytes(len) as u64 <= self.extent.len;
        let offset = if fits { self.extent.at(at) } else { None };
        offset.ok_or_else(|| self.wrong(unit, "a value inside the buffer"))
    }

    fn unit(&self, at: ValueAddress) -> Result<u32> {
        let unit = u32::try_from(at.offset / UNIT_BYTES)
            .ok()
            .filter(|_| at.offset.is_multiple_of(UNIT_BYTES));
        unit.ok_or_else(|| self.wrong(u32::MAX, "a slot at a multiple of 64 bytes"))
    }

    /// Reserves a slot for the value of `len` bytes of entry `seqno`, needed by log `log_id`;
    /// `None` if there is no room.
    pub(super) fn reserve(&self, log_id: FileId, seqno: SeqNo, len: u32) -> Option<u32> {
        let mut state = self.state.lock();
        let unit = state.space.alloc(units(len))?;
        state.slots.insert(
            unit,
            Slot {
                seqno,
                len,
                users: 1,
                is_written: false,
            },
        );
        state.held.entry(log_id).or_default().insert(unit);
        Some(unit)
    }

    /// Copies entry `seqno`'s value, preceded by checksum and length, to the slot at `unit`.
    /// DURABLE AFTER: a fence.
    pub(super) fn write(&self, unit: u32, seqno: SeqNo, framed: &[u8]) -> Result<Flushed> {
        let len = (framed.len() - VALUE_HEADER_BYTES) as u32;
        self.written.add(1);
        self.written_bytes.add(u64::from(len));
        // Whole cache lines, which bypass the cache. The zeros prove that no other slot has reused
        // a part of the last line.
        let zeros = &[0; UNIT_BYTES as usize][..slot_bytes(len) - SEQNO_BYTES - framed.len()];
        self.pool.copy_all_nt(
            self.offset(unit, len)?,
            &[&seqno.0.to_le_bytes(), framed, zeros],
        )
    }

    /// DURABLE AFTER: the values written to the slots at `units`.
    pub(super) fn fence(&self, written: Vec<Flushed>, units: impl Iterator<Item = u32>) {
        let _durable = self.pool.fence(&sites::HOT_VALUE_FENCE, written);
        let mut state = self.state.lock();
        for unit in units {
            state
                .slots
                .entry(unit)
                .and_modify(|slot| slot.is_written = true);
        }
    }

    /// The value of `len` bytes in the slot at `unit`, with its entry's sequence number; `None` if
    /// the slot has no such value.
    fn read_slot(&self, unit: u32, len: u32) -> Result<Option<(SeqNo, Vec<u8>)>> {
        let mut bytes = vec![0; slot_bytes(len)];
        self.pool.read(self.offset(unit, len)?, &mut bytes)?;
        Ok(Self::decode_slot(bytes, len))
    }

    /// Like [`HotSlots::read_slot`], for entry `seqno`. Reads the copy first, if there is one.
    fn read_its(&self, unit: u32, len: u32, seqno: SeqNo) -> Result<Option<(SeqNo, Vec<u8>)>> {
        let copy = self.copy.load_full();
        let at = unit as usize * UNIT_BYTES as usize;
        let slot = copy
            .as_ref()
            .and_then(|copy| copy.get(at..at + slot_bytes(len)));
        match slot
            .and_then(|slot| Self::decode_slot(slot.to_vec(), len))
            .filter(|(its, _)| *its == seqno)
        {
            Some(found) => Ok(Some(found)),
            None => self.read_slot(unit, len),
        }
    }

    fn decode_slot(mut bytes: Vec<u8>, len: u32) -> Option<(SeqNo, Vec<u8>)> {
        let seqno = SeqNo(get_u64(&bytes, 0).unwrap_or(0));
        let (slot, zeros) = bytes.split_at(HEADER_BYTES + len as usize);
        if check_value(&slot[SEQNO_BYTES..], len, seqno).is_none()
            || zeros.iter().any(|&byte| byte != 0)
        {
            return None;
        }
        bytes.truncate(HEADER_BYTES + len as usize);
        bytes.drain(..HEADER_BYTES);
        Some((seqno, bytes))
    }

    /// Reads entry `seqno`'s value at `at`, which the reader needs.
    ///
    /// # Errors
    /// `Corruption` if it is not there: it is damaged, or this open is read-only and a writer
    /// beside it reused the slot.
    pub(crate) fn read(&self, at: ValueAddress, seqno: SeqNo) -> Result<Vec<u8>> {
        let unit = self.unit(at)?;
        let found = self
            .read_its(unit, at.len, seqno)?
            .filter(|(its, _)| *its == seqno);
        let expected = || format!("the value of entry {} with its checksum", seqno.0);
        found
            .map(|(_, value)| value)
            .ok_or_else(|| self.wrong(unit, &expected()))
    }

    /// Reads the value of entry `seqno` that a log says is at `at`. `None` if it is not there
    /// completely; then the log must have a newer version of its key.
    ///
    /// # Errors
    /// `Corruption` if it would be outside the buffer.
    pub(crate) fn replayed(&self, at: ValueAddress, seqno: SeqNo) -> Result<Option<Vec<u8>>> {
        let found = self.read_its(self.unit(at)?, at.len, seqno)?;
        let is_its = |found: &(SeqNo, _)| found.0 == seqno || !sites::HOT_SEQNO_CHECK.is_on();
        Ok(found.filter(is_its).map(|(_, value)| value))
    }

    /// Counts the pointer of a recovered leaf to entry `seqno`'s value at `at`.
    ///
    /// # Errors
    /// `Corruption` if another value's slot overlaps.
    pub(crate) fn use_again(&self, at: ValueAddress, seqno: SeqNo) -> Result<()> {
        let unit = self.unit(at)?;
        self.offset(unit, at.len)?;
        match self.state.lock().use_once_more(unit, seqno, at.len) {
            true => Ok(()),
            false => Err(self.wrong(unit, "a slot that no other value overlaps")),
        }
    }

    /// Counts the replayed log `log_id` as a user of entry `seqno`'s value at `at`.
    ///
    /// # Errors
    /// As [`HotSlots::use_again`].
    pub(crate) fn hold(&self, log_id: FileId, at: ValueAddress, seqno: SeqNo) -> Result<()> {
        self.use_again(at, seqno)?;
        let unit = self.unit(at)?;
        let mut state = self.state.lock();
        if !state.held.entry(log_id).or_default().insert(unit) {
            state.use_once_less(unit);
        }
        Ok(())
    }

    /// Counts one more pointer to the value at `at`.
    pub(crate) fn add(&self, at: ValueAddress) {
        let slot = (at.offset / UNIT_BYTES) as u32;
        match self.state.lock().slots.get_mut(&slot) {
            Some(slot) => slot.users += 1,
            None => debug_assert!(false, "a pointer to a free slot"),
        }
    }

    /// Like [`HotSlots::add`], if the slot at `at` still belongs to entry `seqno`. True if it does.
    pub(crate) fn add_if_its(&self, at: ValueAddress, seqno: SeqNo) -> bool {
        let slot = (at.offset / UNIT_BYTES) as u32;
        let mut state = self.state.lock();
        let its = state
            .slots
            .get_mut(&slot)
            .filter(|slot| slot.seqno == seqno);
        its.map(|slot| slot.users += 1).is_some()
    }

    /// Removes one pointer to the value at `at` from the count.
    pub(crate) fn remove(&self, at: ValueAddress) {
        self.state
            .lock()
            .use_once_less((at.offset / UNIT_BYTES) as u32);
    }

    /// Releases log `log_id`'s use of the slot at `unit`.
    pub(super) fn release(&self, log_id: FileId, unit: u32) {
        let mut state = self.state.lock();
        if state
            .held
            .get_mut(&log_id)
            .is_some_and(|held| held.remove(&unit))
        {
            state.use_once_less(unit);
        }
    }

    /// Releases all slots held by logs below `floor`.
    pub(crate) fn release_below(&self, floor: FileId) {
        let mut state = self.state.lock();
        let from_floor = state.held.split_off(&floor);
        let below = std::mem::replace(&mut state.held, from_floor);
        below
            .into_values()
            .flatten()
            .for_each(|unit| state.use_once_less(unit));
    }

    /// Reads every value in the buffer.
    ///
    /// # Errors
    /// `Corruption` of the first damaged value.
    pub(crate) fn verify(&self) -> Result<()> {
        let units: Vec<u32> = self.state.lock().slots.keys().copied().collect();
        for unit in units {
            // Under the lock, so that the slot is not reused meanwhile.
            let state = self.state.lock();
            let Some(slot) = state.slots.get(&unit).filter(|slot| slot.is_written) else {
                continue;
            };
            if self
                .read_its(unit, slot.len, slot.seqno)?
                .is_none_or(|(seqno, _)| seqno != slot.seqno)
            {
                return Err(self.wrong(
                    unit,
                    &format!("the value of entry {} with its checksum", slot.seqno.0),
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn stats(&self) -> HotStats {
        let state = self.state.lock();
        HotStats {
            bytes: self.extent.len,
            used_bytes: u64::from(state.space.units() - state.space.free_units()) * UNIT_BYTES,
            values: state.slots.len(),
            written: self.written.get(),
            written_bytes: self.written_bytes.get(),
            turned_away: self.turned_away.get(),
        }
    }
}

/// The address of the slot that begins at `unit`.
pub(super) fn address(unit: u32, len: u32) -> ValueAddress {
    ValueAddress {
        log_id: HOT_LOG,
        offset: u64::from(unit) * UNIT_BYTES,
        len,
    }
}
