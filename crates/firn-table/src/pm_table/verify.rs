//! Checks a table: every group and value, their order, and what is searched.

use super::iter::PmTableIter;
use super::layout::{PmTotals, SLOT_BYTES_MAX};
use super::read::PmTable;
use super::sketch::Sketch;
use crate::sst::hash;
use firn_base::key::{Kind, compare};
use firn_base::{Error, ErrorKind, Result, Tag};
use std::cmp::Ordering;
use std::sync::Arc;

/// The counts of a table that was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PmTableReport {
    /// Entries.
    pub entries: u64,
    /// Bytes of keys and values.
    pub data_bytes: u64,
}

/// Checks that the entries are whole and in order, that slots, filter and sketch have their keys,
/// and that they are what the header says.
///
/// # Errors
/// `Corruption`, naming the first place that is wrong.
pub fn verify(table: &Arc<PmTable>) -> Result<PmTableReport> {
    let mut totals = PmTotals::default();
    let mut sketch = Sketch::default();
    let mut last: Option<(Vec<u8>, Tag)> = None;
    let mut group = None;
    let place = format!("table {} in the pool", table.space().id());
    let wrong = |expected: &str| Err(Error::corruption(&place, 0, expected));
    let mut iter = PmTableIter::new(table.clone());
    iter.first()?;
    while iter.valid() {
        iter.load()?;
        let (key, tag) = (iter.key(), iter.tag());
        let is_version = last.as_ref().is_some_and(|(before, _)| *before == key);
        if let Some((before, before_tag)) = &last
            && compare(before, *before_tag, key, tag) != Ordering::Less
        {
            return wrong("entries in order");
        }
        if iter.group() != group {
            group = iter.group();
            if is_version {
                return wrong("all versions of a key in one group");
            }
            if !has_slot(table, group.unwrap_or(0), key)? {
                return wrong("the beginning of each group's first key in its slot");
            }
        }
        if !table.may_contain(hash(key)) {
            return wrong("every key in the filter");
        }
        sketch.insert(hash(key));
        let bytes = (key.len() + iter.value().len()) as u64;
        totals.entries += 1;
        totals.deletes += u64::from(tag.kind() == Some(Kind::Delete));
        totals.seqno_min = totals.seqno_min.min(tag.seqno());
        totals.seqno_max = totals.seqno_max.max(tag.seqno());
        totals.data_bytes += bytes;
        totals.superseded_bytes += if is_version { bytes } else { 0 };
        totals.entry_bytes_max = totals.entry_bytes_max.max(bytes as u32);
        last = Some((key.to_vec(), tag));
        iter.next()?;
    }
    let largest = last.map(|(key, _)| key).unwrap_or_default();
    if table.bounds().1 != largest {
        return wrong("the largest key");
    }
    if totals != *table.totals() || group.map(|last| last + 1) != Some(table.groups()) {
        return wrong("the sums of the table");
    }
    if sketch != *table.sketch() {
        return wrong("the least hashes of its keys in the sketch");
    }
    Ok(PmTableReport {
        entries: totals.entries,
        data_bytes: totals.data_bytes,
    })
}

/// True if the slot of group `number` is that of `key`.
fn has_slot(table: &PmTable, number: usize, key: &[u8]) -> Result<bool> {
    let mut slot = [0; SLOT_BYTES_MAX];
    let slot = table.read_slot(number, &mut slot)?;
    Ok(table.guide().is_slot_of(number, slot, key))
}

/// Passes every entry that is whole to `keep`, in order. Returns the number of groups and values
/// that are not.
///
/// # Errors
/// The error that `keep` returns.
pub fn salvage(
    table: &Arc<PmTable>,
    mut keep: impl FnMut(&[u8], Tag, &[u8]) -> Result<()>,
) -> Result<u64> {
    let mut lost = 0;
    let mut iter = PmTableIter::new(table.clone());
    for group in 0..table.groups() {
        match iter.enter(group) {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                lost += 1;
                continue;
            }
            entered => entered?,
        }
        iter.go(0);
        while iter.valid() {
            match iter.load() {
                Ok(()) => keep(iter.key(), iter.tag(), iter.value())?,
                Err(error) if error.kind() == ErrorKind::Corruption => lost += 1,
                Err(error) => return Err(error),
            }
            if !iter.step() {
                break;
            }
        }
    }
    Ok(lost)
}
