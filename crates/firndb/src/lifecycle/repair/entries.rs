//! Entries that are not in tables: those of logs, and of the trees of profile `lab`. They go into
//! temporary tables.

use super::pool::{self, Age};
use super::{Repair, not_given};
use crate::compaction::{OverlapTracker, write_tables};
use crate::files::FileName;
use crate::log::{
    FLYING_MAX, HotSlots, LogSource, PlacedLogs, PmLogBuffer, Replay, Replayed, ValueAddress,
    ValueLogs, Wanted,
};
use crate::memtable::{Entry, Footprint, Memtable};
use crate::options::tuning::LogPlacement;
use crate::read::merge_iter::MergeIter;
use crate::read::run_iter::RunIter;
use firn_base::exec::block_on;
use firn_base::key::Kind;
use firn_base::{ErrorKind, FileId, Result, SeqNo, Tag};
use firn_fs::OpenMode;
use firn_pm::Pool;
use firn_table::pm_btree::{HOT_LOG, Seen, TreeIter, TreeStore, View};
use firn_table::sst::{Got, Query};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The number of tree entries whose values are read together.
const BATCH: usize = 1024;

/// An entry of a tree, with the address of its value.
type InTree = (Vec<u8>, Tag, Option<ValueAddress>);

impl Repair {
    /// The pool, if it is of the same moment as the manifest and has entries that are in no table.
    pub(super) fn judged_pool(&mut self) -> Option<Arc<Pool>> {
        let pool = self.pool.clone()?;
        match pool::age(&pool.root(), self.known.as_ref()) {
            Age::Same => Some(pool),
            // Everything in it is in tables.
            Age::CutRepair => None,
            Age::Other(why) => {
                // Its halves of logs are not the ends of these logs either.
                self.report.pool_lost = Some(why);
                let known = self.known.as_ref();
                self.report.newest_lost = known.is_some_and(|known| known.holds_entries);
                self.pool = None;
                None
            }
        }
    }

    /// Copies the entries of the trees. The report records whether all of them could be read.
    pub(super) fn read_trees(&mut self, pool: Arc<Pool>) -> Result<()> {
        let immutable = TreeStore::named(&pool).and_then(|trees| trees.immutable);
        let known = self.known.take();
        let is_evicted = |bound: &[u8]| {
            known
                .as_ref()
                .is_some_and(|known| known.leaf_is_evicted(immutable, bound))
        };
        let mut leaves_lost = 0;
        let mut damage = |_lost| {
            leaves_lost += 1;
            Ok(())
        };
        let seen = Seen {
            evicted: &is_evicted,
            entry: &mut |_, _| {},
            damage: &mut damage,
            hold: None,
        };
        self.hot = HotSlots::find(&pool).map(Arc::new);
        let recovered = TreeStore::recover(pool, self.options.tuning.lab.leaf_bytes, seen);
        self.known = known;
        self.report.leaves_lost = leaves_lost;
        let recovered = match recovered {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                self.report.pool_lost = Some(error.to_string());
                return Ok(());
            }
            recovered => recovered?,
        };
        let Some(recovered) = recovered else {
            return Ok(());
        };
        let counters = self.context.counters.clone();
        let values = ValueLogs::new(
            self.files.clone(),
            counters,
            self.context.cache.clone(),
            self.options.direct_io,
        )
        .with_hot(self.hot.clone())
        .with_placed(
            self.pool
                .clone()
                .map(|pool| Arc::new(PlacedLogs::open(pool, LogPlacement::Ssd, 0, false))),
        );
        let store = Arc::new(recovered.store);
        for view in recovered.immutable.into_iter().chain([recovered.mutable]) {
            self.copy_tree(TreeIter::new(store.clone(), View::clone(&view)), &values)?;
            // Ends the memtable, because the other tree may have the same versions.
            self.end_buffer()?;
        }
        Ok(())
    }

    fn copy_tree(&mut self, mut iter: TreeIter, values: &ValueLogs) -> Result<()> {
        let mut logs = BTreeSet::new();
        iter.first()?;
        while iter.entry().is_some() {
            let mut batch: Vec<InTree> = Vec::with_capacity(BATCH);
            let mut bytes = 0;
            while let Some(entry) = iter
                .entry()
                .filter(|_| batch.len() < BATCH && bytes < self.write_buffer_bytes)
            {
                bytes += entry.address.map_or(0, |at| at.len as usize);
                batch.push((entry.key.to_vec(), entry.tag, entry.address));
                iter.next()?;
            }
            let wanted = |(_, tag, address): &InTree| Some(((*address)?, tag.seqno()));
            let places: Vec<Wanted> = batch.iter().map(wanted).collect();
            logs.extend(
                places
                    .iter()
                    .flatten()
                    .map(|(at, _)| at.log_id)
                    .filter(|&id| id != HOT_LOG),
            );
            let mut read = vec![Vec::new(); batch.len()];
            let is_whole = values
                .for_each(
                    &places,
                    || Ok(FLYING_MAX),
                    |i, value| read[i] = value.to_vec(),
                )
                .is_ok();
            for ((key, tag, address), mut value) in batch.into_iter().zip(read) {
                if let (false, Some(at)) = (is_whole, address) {
                    // At least one value of the batch is damaged.
                    value = match values.get(at, tag.seqno()) {
                        Err(error)
                            if matches!(
                                error.kind(),
                                ErrorKind::Corruption | ErrorKind::NotFound
                            ) =>
                        {
                            self.report.values_lost += 1;
                            if at.log_id != HOT_LOG {
                                self.replaced.insert(FileName::Log(at.log_id), false);
                            }
                            continue;
                        }
                        found => found.map_err(not_given)?.to_vec(),
                    };
                }
                let kind = if address.is_some() {
                    Kind::Put
                } else {
                    Kind::Delete
                };
                self.keep(
                    Entry {
                        kind,
                        key: &key,
                        value: &value,
                    },
                    tag.seqno(),
                )?;
                self.report.tree_entries += 1;
            }
        }
        for log_id in logs {
            self.replaced.entry(FileName::Log(log_id)).or_insert(true);
        }
        Ok(())
    }

    /// Replays the readable part of the logs.
    pub(super) fn read_logs(&mut self) -> Result<()> {
        let is_pool_whole = self.report.pool_lost.is_none() && self.report.leaves_lost == 0;
        let logs = std::mem::take(if is_pool_whole {
            &mut self.logs
        } else {
            &mut self.all_logs
        });
        for log_id in logs {
            let whole = self.read_log(log_id)?;
            let Some(whole) = whole else { continue };
            if !whole {
                self.report.logs_damaged.push(format!("{log_id:06}.log"));
            }
            *self.replaced.entry(FileName::Log(log_id)).or_insert(true) &= whole;
        }
        self.end_buffer()?;
        self.count_lost_slots()
    }

    /// Counts the lost entries among those whose slots in the hot buffer were reused, or whose
    /// values are damaged: the ones for which neither they nor a newer version was recovered.
    fn count_lost_slots(&mut self) -> Result<()> {
        for (key, seqno) in std::mem::take(&mut self.superseded) {
            let query = Query::new(&key, SeqNo::MAX);
            let mut is_there = false;
            for table in &self.inputs {
                is_there |=
                    matches!(table.get(&query)?, Got::Found { tag, .. } if tag.seqno() >= seqno);
            }
            self.report.values_lost += u64::from(!is_there);
        }
        Ok(())
    }

    /// Keeps an entry of a log, if its value can be read.
    fn keep_logged(&mut self, replayed: &Replayed<'_>) -> Result<()> {
        let (Some(kind), seqno, key) = (replayed.tag.kind(), replayed.tag.seqno(), replayed.key)
        else {
            return Ok(());
        };
        if self
            .known
            .as_ref()
            .is_some_and(|known| known.is_evicted(key, seqno))
        {
            return Ok(());
        }
        self.report.log_entries += 1;
        if kind != Kind::Pointer {
            return self.keep(
                Entry {
                    kind,
                    key,
                    value: replayed.value,
                },
                seqno,
            );
        }
        match self
            .hot
            .as_ref()
            .and_then(|hot| hot.replayed(replayed.address, seqno).ok().flatten())
        {
            Some(value) => self.keep(
                Entry {
                    kind: Kind::Put,
                    key,
                    value: &value,
                },
                seqno,
            ),
            None => {
                let newest = self.superseded.entry(key.into()).or_default();
                *newest = seqno.max(*newest);
                Ok(())
            }
        }
    }

    /// Reads a log. Returns true if it is whole, and `None` if it does not exist.
    fn read_log(&mut self, log_id: FileId) -> Result<Option<bool>> {
        let file = match self.files.open(FileName::Log(log_id), OpenMode::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.report.logs_damaged.push(format!("{log_id:06}.log"));
                return Ok(None);
            }
            opened => opened.map_err(not_given)?,
        };
        let mut source = LogSource::new(file, self.context.counters.clone())?;
        let sealed = self
            .known
            .as_ref()
            .and_then(|known| known.logs.get(&log_id)?.end);
        let overlay = match &self.pool {
            Some(pool) => PmLogBuffer::overlay(pool, &self.files.uuid, log_id)?,
            None => Vec::new(),
        };
        // A half that begins after the end of the file is of another time, or the bytes before it
        // were lost. After the end of a sealed log are failed writes, whose sequence numbers were
        // assigned again.
        let mut whole = source.lay_over(overlay, sealed.map(|end| end.end)).is_ok();
        let mut replay = Replay::open_any(source, log_id, &self.files.uuid)?;
        loop {
            let mut full = Ok(());
            let next = replay.next(|replayed| {
                if full.is_ok() {
                    full = self.keep_logged(&replayed);
                }
                Ok(())
            });
            full?;
            match next {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    whole = false;
                    break;
                }
                Err(error) => return Err(not_given(error)),
            }
        }
        // After the last frame of a half are the half's earlier contents.
        let may_be_torn = !replay.overlay().is_empty();
        let end = replay.end(sealed.map_or(0, |end| end.synced_through));
        whole &= match end {
            Ok(end) => !end.torn || may_be_torn,
            Err(error) if error.kind() == ErrorKind::Corruption => false,
            Err(error) => return Err(not_given(error)),
        };
        Ok(Some(whole))
    }

    pub(super) fn keep(&mut self, entry: Entry<'_>, seqno: SeqNo) -> Result<()> {
        if self.report.dry_run {
            return Ok(());
        }
        let footprint = Footprint::of(std::iter::once(entry), seqno.0);
        loop {
            let capacity = self.write_buffer_bytes.max(footprint.bytes);
            let buffer = self
                .buffer
                .get_or_insert_with(|| Arc::new(Memtable::new(capacity, FileId(0))));
            if let Some(reservation) = buffer.reserve(std::iter::once(entry), footprint) {
                reservation.link(seqno);
                self.last_seqno = self.last_seqno.max(seqno);
                return Ok(());
            }
            self.end_buffer()?;
        }
    }

    /// Writes the entries kept so far into temporary tables.
    pub(super) fn end_buffer(&mut self) -> Result<()> {
        let Some(buffer) = self.buffer.take() else {
            return Ok(());
        };
        let merge = MergeIter::at_first(vec![RunIter::Memtable(buffer.iter())])?;
        // Tombstones are kept, because older entries may lie below.
        let metas = block_on(write_tables(
            merge,
            &[SeqNo(0)],
            OverlapTracker::nothing(),
            self.output(),
            &self.compaction,
        ))?;
        for meta in metas {
            self.temporary.push(meta.id);
            let table = self.open_table(meta.id, Some(meta.extent))?;
            self.inputs.push(Arc::new(table));
        }
        Ok(())
    }
}
