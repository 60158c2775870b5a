//! The tables of a compaction's output, one after another: where each ends, and which entries go
//! into it.

use super::hidden::Hidden;
use super::merge::{CompactionContext, Output, Steps, remove_files, settle};
use super::output::{OpenOutput, PmTarget, Written};
use super::overlap::OverlapTracker;
use super::sieve::Sieve;
use super::visibility::Versions;
use crate::read::merge_iter::Entries;
use firn_base::exec::may_suspend;
use firn_base::key::compare;
use firn_base::{Result, SeqNo, Tag};

/// The most that an output may overlap of the level below its own, in tables of the target size.
const GRANDPARENT_TABLES: u64 = 10;

/// The writer of a compaction's output.
pub(super) struct TablesWriter<'a> {
    context: &'a CompactionContext,
    output: Output,
    /// The making of tables in persistent memory; `None` if the output is files.
    target: Option<PmTarget>,
    pub(super) written: Written,
    open: Option<OpenOutput>,
    /// The number of cuts at or before the last key.
    cuts_passed: usize,
    /// The entries below that those of the open table hide.
    hidden: Hidden,
    /// True if groups of entries that were read count as read in the output.
    keeps_marks: bool,
    /// The choice of entries that go elsewhere, and their writer.
    pub(super) sieve: Option<(Sieve, Box<TablesWriter<'a>>)>,
}

impl<'a> TablesWriter<'a> {
    pub(super) fn new(
        context: &'a CompactionContext,
        output: Output,
        mut target: Option<PmTarget>,
    ) -> TablesWriter<'a> {
        let (written, open) = target
            .as_mut()
            .map(PmTarget::take_written)
            .unwrap_or_default();
        let is_sorted = matches!(target, Some(PmTarget::Sorted(_)));
        TablesWriter {
            context,
            output,
            target,
            written,
            open,
            cuts_passed: 0,
            hidden: Hidden::default(),
            keeps_marks: is_sorted,
            sieve: None,
        }
    }

    /// A writer of what a sieve keeps, which must be read again before it is kept once more.
    pub(super) fn of_kept(
        context: &'a CompactionContext,
        output: Output,
        target: PmTarget,
    ) -> TablesWriter<'a> {
        TablesWriter {
            keeps_marks: false,
            ..TablesWriter::new(context, output, Some(target))
        }
    }

    /// Writes all tables. If it fails, none of their files stay.
    pub(super) async fn run(
        &mut self,
        merge: impl Entries,
        snapshots: &[SeqNo],
        below: OverlapTracker,
    ) -> Result<()> {
        if let Err(error) = self.write(merge, snapshots, below).await {
            // Its writes must have ended before the file is removed.
            self.open = None;
            remove_files(&self.written.files, self.context);
            return Err(error);
        }
        self.written.anchor = self.target.as_mut().and_then(PmTarget::take_anchor);
        Ok(())
    }

    async fn write(
        &mut self,
        mut merge: impl Entries,
        snapshots: &[SeqNo],
        mut below: OverlapTracker,
    ) -> Result<()> {
        let mut versions = Versions::new(snapshots);
        let mut steps = Steps::new(self.context);
        let suspends = may_suspend();
        // What stays above lies over the output, which ends where it likes.
        let mut nothing = OverlapTracker::nothing();
        if merge.valid() {
            // The tables before all outputs are overlapped by none of them.
            below.begin_at(merge.key());
        }
        while merge.valid() {
            let (key, tag) = (merge.key(), merge.tag());
            below.walk(key);
            if tag.seqno() <= self.output.seqno_max
                && versions.keep(key, tag, || below.is_bottom(key))
                && !self.is_written(key, tag)
            {
                let stays = match &mut self.sieve {
                    Some((sieve, _)) => sieve.keeps(&mut merge)?,
                    None => false,
                };
                match &mut self.sieve {
                    Some((_, kept)) if stays => {
                        kept.take(&mut merge, &mut nothing, false).await?;
                    }
                    _ => self.take(&mut merge, &mut below, suspends).await?,
                }
            }
            if suspends {
                settle(&mut merge).await;
            }
            merge.next()?;
            steps.step().await?;
        }
        if let Some((_, kept)) = &mut self.sieve {
            kept.end_table().await?;
        }
        self.end_table().await
    }

    /// Takes the current entry of `merge`.
    async fn take(
        &mut self,
        merge: &mut impl Entries,
        below: &mut OverlapTracker,
        suspends: bool,
    ) -> Result<()> {
        if self.pass_cuts(merge.key()) || self.is_due(merge.key(), below) {
            self.end_table().await?;
            below.begin_at(merge.key());
        }
        if self.link(merge)? {
            return Ok(());
        }
        // Only now, because a version that is dropped need not be read.
        merge.load()?;
        if self.is_full(merge) {
            self.end_table().await?;
            below.begin_at(merge.key());
        }
        if suspends {
            self.settle().await;
        }
        self.add(merge)
    }

    /// Suspends until the open table takes an entry without waiting.
    async fn settle(&mut self) {
        if let Some(open) = &mut self.open {
            while let Some(pending) = open.wants() {
                pending.ready().await;
            }
        }
    }

    /// True if a cut lies between the last key and `key`.
    fn pass_cuts(&mut self, key: &[u8]) -> bool {
        let left = &self.output.cuts[self.cuts_passed..];
        if left.first().is_none_or(|cut| key < &**cut) {
            return false;
        }
        self.cuts_passed += left.partition_point(|cut| **cut <= *key);
        true
    }

    /// True if the open table must end before `key`. Never between two versions of one key.
    fn is_due(&self, key: &[u8], below: &OverlapTracker) -> bool {
        let Some(writer) = self.open.as_ref().filter(|_| self.output.split) else {
            return false;
        };
        let limits = &self.context.limits;
        if self.target.as_ref().is_some_and(|target| !target.splits()) {
            return false;
        }
        let full = writer.estimated_bytes()
            >= self.output.table_bytes.unwrap_or(limits.table_bytes)
            || writer.held_bytes() >= self.context.keys_bytes;
        let wide = below.overlapped > GRANDPARENT_TABLES * limits.table_bytes;
        (full || wide) && writer.entries() > 0 && writer.last_key() != key
    }

    /// Links the current entry of `merge` if it is in persistent memory and the output is, too.
    /// Returns false if it must be copied.
    fn link(&mut self, merge: &impl Entries) -> Result<bool> {
        let Some(PmTarget::Lists(_)) = self.target else {
            return Ok(false);
        };
        let Some(entry) = merge.linked() else {
            return Ok(false);
        };
        self.table()?;
        match (&mut self.open, &mut self.target) {
            (Some(open), Some(PmTarget::Lists(lists))) => {
                open.link(merge.key(), merge.tag(), &entry, lists)
            }
            _ => Ok(false),
        }
    }

    /// True if the open table has no room for the current entry of `merge`, and may end before it.
    fn is_full(&self, merge: &impl Entries) -> bool {
        self.open.as_ref().is_some_and(|open| {
            open.last_key() != merge.key() && !open.fits(merge.key(), merge.value())
        })
    }

    /// Copies the current entry of `merge`.
    fn add(&mut self, merge: &impl Entries) -> Result<()> {
        self.table()?;
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let (key, tag, value) = (merge.key(), merge.tag(), merge.value());
        if let Some(below) = &self.output.hides {
            below.look_up(key, &mut self.hidden);
        }
        open.add(key, tag, value, self.target.as_mut())?;
        if self.keeps_marks && merge.read_group().is_some() {
            open.mark_read();
        }
        Ok(())
    }

    /// True if an earlier process wrote the entry.
    fn is_written(&self, key: &[u8], tag: Tag) -> bool {
        let through = self.target.as_ref().and_then(PmTarget::through);
        through.is_some_and(|(last, last_tag)| {
            compare(key, tag, last, last_tag) != std::cmp::Ordering::Greater
        })
    }

    /// Begins a table, unless one is open.
    fn table(&mut self) -> Result<()> {
        if self.open.is_none() {
            let target = self.target.as_ref();
            let open = OpenOutput::begin(self.context, &self.output, target, &mut self.written)?;
            self.open = Some(open);
        }
        Ok(())
    }

    async fn end_table(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let made = open.finish(self.target.as_mut(), &mut self.written);
        made.await?;
        let hidden = std::mem::take(&mut self.hidden);
        if let (Some(_), Some(meta)) = (&self.output.hides, self.written.metas.last_mut()) {
            meta.hides = hidden.estimate();
        }
        Ok(())
    }
}
