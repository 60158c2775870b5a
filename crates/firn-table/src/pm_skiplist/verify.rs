//! Checks a list: every segment, node and entry, their order, and the sums.

use super::iter::ListIter;
use super::read::{List, Probe};
use super::space::ListSpace;
use crate::sst::hash;
use firn_base::key::{Kind, compare};
use firn_base::{Error, ErrorKind, Result, Tag};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// The counts of a list that was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListReport {
    /// Entries.
    pub entries: u64,
    /// Bytes of the entries.
    pub entry_bytes: u64,
}

/// Checks that the entries are whole and in order, that the filter has their keys, and that they
/// are what the refs and the sums say.
///
/// # Errors
/// `Corruption`, naming the first place that is wrong.
pub fn verify(list: &Arc<List>) -> Result<ListReport> {
    let mut report = ListReport::default();
    let mut deletes = 0;
    let mut live: HashMap<u64, u64> = HashMap::new();
    let mut last: Option<(Vec<u8>, Tag)> = None;
    let wrong = |expected: &str| Err(Error::corruption("a list in the pool", 0, expected));
    let mut iter = ListIter::new(list.clone());
    iter.first()?;
    while iter.valid() {
        iter.load()?;
        let (key, tag) = (iter.key(), iter.tag());
        if let Some((before, before_tag)) = &last
            && compare(before, *before_tag, key, tag) != Ordering::Less
        {
            return wrong("entries in order");
        }
        if !iter.is_found_by_prefix()? {
            return wrong("the beginning of a key in its node");
        }
        if !list.may_contain(hash(key)) {
            return wrong("every key in the filter");
        }
        if let Some(linked) = iter.linked() {
            report.entry_bytes += u64::from(linked.bytes);
            *live.entry(linked.chunk.extent().offset.get()).or_default() += u64::from(linked.bytes);
        }
        report.entries += 1;
        deletes += u64::from(tag.kind() == Some(Kind::Delete));
        last = Some((key.to_vec(), tag));
        iter.next()?;
    }
    for (chunk, bytes) in list.space().chunks() {
        if live.get(&chunk.extent().offset.get()).copied() != Some(bytes) {
            return wrong("the bytes of its entries in each chunk");
        }
    }
    let totals = list.totals();
    let found = (report.entries, deletes, report.entry_bytes);
    if found != (totals.entries, totals.deletes, totals.entry_bytes) {
        return wrong("the sums of the list");
    }
    Ok(report)
}

/// The bytes of each chunk that belong to lists of one version. An entry belongs to one list, so
/// they are never more than the chunk has.
#[derive(Debug, Default)]
pub struct ChunkSums(HashMap<u64, u64>);

impl ChunkSums {
    /// Adds the entries of a list.
    ///
    /// # Errors
    /// `Corruption` if a chunk has fewer bytes than its lists together.
    pub fn add(&mut self, space: &ListSpace) -> Result<()> {
        for (chunk, bytes) in space.chunks() {
            let extent = chunk.extent();
            let sum = self.0.entry(extent.offset.get()).or_default();
            *sum += bytes;
            if *sum > extent.len {
                let place = format!("list {} in the pool", space.id());
                let expected = "entries that belong to no other list";
                return Err(Error::corruption(place, extent.offset.get(), expected));
            }
        }
        Ok(())
    }
}

/// Passes every entry that is whole to `keep`, in order. Returns the number of the others.
///
/// # Errors
/// The error that `keep` returns.
pub fn salvage(list: &List, mut keep: impl FnMut(&[u8], Tag, &[u8]) -> Result<()>) -> Result<u64> {
    let (mut lost, mut probe) = (0, Probe::default());
    let mut at = list.first();
    while let Some(here) = at {
        let read = list.entry(here, &mut probe).and_then(|found| {
            list.load(&mut probe)?;
            Ok(found.head.tag)
        });
        match read {
            Ok(tag) => keep(&probe.key, tag, &probe.value)?,
            Err(error) if error.kind() == ErrorKind::Corruption => lost += 1,
            Err(error) => return Err(error),
        }
        at = list.after(here);
    }
    Ok(lost)
}
