//! The root record, from which all structures of the pool are reached. Two slots, A and B, each on
//! its own page.
//!
//! 1. Generation g is in slot A if g is odd and in slot B if it is even, so a commit never touches
//!    the slot to fall back to.
//! 2. The valid record with the larger generation is the root. A record is valid if its checksum,
//!    salted with its slot and the pool's uuid, matches; so a misplaced or foreign record is not
//!    valid.
//! 3. Two valid records differ by one generation. Anything else is damage.
//!
//! A crash during a commit leaves the written slot torn (its checksum fails) or complete; the other
//! slot is untouched.

use crate::layout::{
    DATA_START, ENTRY_BYTES, EntryBytes, GRANULE_BYTES, MAX_ROOT_ENTRIES, MIN_POOL_BYTES,
    PAGE_BYTES, ROOT_CRC_AT, ROOT_HEAD_BYTES, ROOT_MAGIC, RootHead,
};
use crate::offset::Extent;
use crate::owner::Owner;
use crate::sites;
use firn_base::checksum::{crc32c_salted, matches};
use firn_base::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

/// One entry of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootEntry {
    /// The owner of the entry.
    pub owner: Owner,
    /// Distinguishes the owner's entries. The owner defines its meaning.
    pub kind: u16,
    /// A word for the owner's use.
    pub word: u64,
    /// The extent it names; `None` if the entry is only a word.
    pub extent: Option<Extent>,
}

/// The root from which all structures of the pool are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Number of commits. The pool sets it: a commit based on generation g makes g + 1.
    pub generation: u64,
    /// The last manifest edit that the pool contains.
    pub applied_edit: u64,
    /// Names everything reachable, directly or through the extents in it.
    pub entries: Vec<RootEntry>,
    pub(crate) pool_bytes: u64,
}

/// No pool makes this many commits. A record that claims more is damage, because its successors
/// could not be counted.
const GENERATION_MAX: u64 = 1 << 56;

/// The offset of the slot for generation `generation`.
pub(crate) fn slot_offset(generation: u64) -> u64 {
    if generation % 2 == 1 {
        PAGE_BYTES
    } else {
        2 * PAGE_BYTES
    }
}

impl Root {
    /// The root of an empty pool.
    pub(crate) fn empty(pool_bytes: u64) -> Self {
        Self {
            generation: 1,
            applied_edit: 0,
            entries: Vec::new(),
            pool_bytes,
        }
    }

    /// The first entry of `owner` and `kind`.
    pub fn find(&self, owner: Owner, kind: u16) -> Option<&RootEntry> {
        self.entries
            .iter()
            .find(|entry| entry.owner == owner && entry.kind == kind)
    }

    /// Replaces the entry with this owner and kind, or adds `entry`.
    pub fn set(&mut self, entry: RootEntry) {
        match self
            .entries
            .iter_mut()
            .find(|old| old.owner == entry.owner && old.kind == entry.kind)
        {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }

    /// Removes and returns the first entry of `owner` and `kind`.
    pub fn remove(&mut self, owner: Owner, kind: u16) -> Option<RootEntry> {
        let index = self
            .entries
            .iter()
            .position(|entry| entry.owner == owner && entry.kind == kind)?;
        Some(self.entries.remove(index))
    }

    /// The record as stored in its slot.
    pub(crate) fn encode(&self, uuid: &[u8; 16]) -> Result<Vec<u8>> {
        if self.entries.len() > MAX_ROOT_ENTRIES {
            return Err(Error::invalid(format!(
                "a pool root holds {MAX_ROOT_ENTRIES} entries, not {}: hang some from an extent",
                self.entries.len()
            )));
        }
        let mut bytes = Vec::with_capacity(ROOT_HEAD_BYTES + self.entries.len() * ENTRY_BYTES);
        let head = RootHead {
            magic: ROOT_MAGIC.into(),
            crc: 0.into(),
            entry_count: (self.entries.len() as u32).into(),
            generation: self.generation.into(),
            applied_edit: self.applied_edit.into(),
            pool_bytes: self.pool_bytes.into(),
            uuid: *uuid,
            reserved: [0; 72],
        };
        bytes.extend_from_slice(head.as_bytes());
        for entry in &self.entries {
            let extent = entry.extent.unwrap_or(Extent::new(0, 0));
            let entry = EntryBytes {
                owner: entry.owner.number().into(),
                kind: entry.kind.into(),
                reserved: 0.into(),
                word: entry.word.into(),
                offset: extent.offset.get().into(),
                len: extent.len.into(),
            };
            bytes.extend_from_slice(entry.as_bytes());
        }
        let crc = root_crc(&bytes, uuid, slot_offset(self.generation));
        bytes[ROOT_CRC_AT..ROOT_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }
}

/// The checksum of a record: all its bytes except those of the checksum.
fn root_crc(bytes: &[u8], uuid: &[u8; 16], slot_at: u64) -> u32 {
    crc32c_salted(
        ROOT_MAGIC,
        slot_at,
        &[uuid, &bytes[..ROOT_CRC_AT], &bytes[ROOT_CRC_AT + 4..]],
    )
}

/// The newest valid root of the two slots. `None` if neither slot holds one.
pub(crate) fn newest_root(
    slot_a: &[u8],
    slot_b: &[u8],
    uuid: &[u8; 16],
    place: &str,
) -> Result<Option<Root>> {
    let a = decode_root(slot_a, PAGE_BYTES, uuid, place)?;
    let b = decode_root(slot_b, 2 * PAGE_BYTES, uuid, place)?;
    let (Some(a), Some(b)) = (&a, &b) else {
        return Ok(a.or(b));
    };
    if a.generation.abs_diff(b.generation) != 1 {
        return Err(Error::corruption(
            place,
            PAGE_BYTES,
            format!(
                "root generations that follow each other, not {} and {}",
                a.generation, b.generation
            ),
        ));
    }
    Ok(Some(if a.generation > b.generation {
        a.clone()
    } else {
        b.clone()
    }))
}

/// The record in a slot; `None` if it is not valid. An error if a valid record contradicts itself.
fn decode_root(slot: &[u8], slot_at: u64, uuid: &[u8; 16], place: &str) -> Result<Option<Root>> {
    let Ok((head, rest)) = RootHead::ref_from_prefix(slot) else {
        return Ok(None);
    };
    let entries_len = (head.entry_count.get() as usize).checked_mul(ENTRY_BYTES);
    let Some(entries_bytes) = entries_len.and_then(|len| rest.get(..len)) else {
        return Ok(None);
    };
    let record = &slot[..ROOT_HEAD_BYTES + entries_bytes.len()];
    let computed = || root_crc(record, uuid, slot_at);
    let is_valid =
        head.magic.get() == ROOT_MAGIC && matches(&sites::PM_ROOT_CHECK, head.crc.get(), computed);
    if !is_valid {
        return Ok(None);
    }
    let damaged =
        |at: usize, expected: String| Error::corruption(place, slot_at + at as u64, expected);
    let generation = head.generation.get();
    if generation == 0 || generation > GENERATION_MAX || slot_offset(generation) != slot_at {
        return Err(damaged(
            16,
            format!("a root generation that belongs in this slot, not {generation}"),
        ));
    }
    let pool_bytes = head.pool_bytes.get();
    if pool_bytes < MIN_POOL_BYTES || !pool_bytes.is_multiple_of(GRANULE_BYTES) {
        return Err(damaged(32, format!("a pool size, not {pool_bytes}")));
    }
    if &head.uuid != uuid {
        return Err(damaged(40, "the pool's own uuid".to_owned()));
    }
    let mut entries = Vec::with_capacity(entries_bytes.len() / ENTRY_BYTES);
    for (index, chunk) in entries_bytes.chunks_exact(ENTRY_BYTES).enumerate() {
        let at = ROOT_HEAD_BYTES + index * ENTRY_BYTES;
        entries.push(
            decode_entry(chunk, pool_bytes)
                .ok_or_else(|| damaged(at, "a root entry".to_owned()))?,
        );
    }
    Ok(Some(Root {
        generation,
        applied_edit: head.applied_edit.get(),
        entries,
        pool_bytes,
    }))
}

fn decode_entry(chunk: &[u8], pool_bytes: u64) -> Option<RootEntry> {
    let entry = EntryBytes::ref_from_bytes(chunk).ok()?;
    let owner = Owner::from_number(entry.owner.get()).filter(|&owner| owner != Owner::Pool)?;
    let extent = Extent::new(entry.offset.get(), entry.len.get());
    let extent = match extent {
        Extent { len: 0, offset } if offset.get() == 0 => None,
        _ => Some(extent).filter(|extent| is_well_formed(*extent, pool_bytes)),
    };
    if extent.is_none() && (entry.offset.get() != 0 || entry.len.get() != 0) {
        return None;
    }
    Some(RootEntry {
        owner,
        kind: entry.kind.get(),
        word: entry.word.get(),
        extent,
    })
}

/// Recomputes the checksum of a damaged record, to test the checks after it.
#[cfg(test)]
pub(crate) fn refit_checksum(slot: &mut [u8], uuid: &[u8; 16], slot_at: u64) {
    let count = u32::from_le_bytes([slot[12], slot[13], slot[14], slot[15]]) as usize;
    let Some(record) = slot.get_mut(..ROOT_HEAD_BYTES + count.min(MAX_ROOT_ENTRIES) * ENTRY_BYTES)
    else {
        return;
    };
    let crc = root_crc(record, uuid, slot_at);
    record[ROOT_CRC_AT..ROOT_CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// True if this pool could have allocated `extent`.
pub(crate) fn is_well_formed(extent: Extent, pool_bytes: u64) -> bool {
    let offset = extent.offset.get();
    extent.len > 0
        && extent.len.is_multiple_of(GRANULE_BYTES)
        && offset.is_multiple_of(GRANULE_BYTES)
        && offset >= DATA_START
        && extent.end().is_some_and(|end| end <= pool_bytes)
}

#[cfg(test)]
mod tests;
