//! The read path. [`Engine::find`] is its ordered description.

pub(crate) mod gaps;
mod level;
mod lookup;
pub(crate) mod merge_iter;
mod parts_iter;
pub(crate) mod pins;
pub(crate) mod row_cache;
pub(crate) mod run;
pub(crate) mod run_iter;
pub(crate) mod sst_run;
pub(crate) mod state;

use self::lookup::Search;
pub(crate) use self::lookup::{Hits, Layer};
use crate::engine::Engine;
use crate::read::run::{Pending, Run, Step};
use crate::read::state::ReadState;
use firn_base::key::Kind;
use firn_base::{Error, Result, SeqNo, Tag};
use firn_table::Value;

impl Engine {
    /// The current value of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        // The state is loaded before the read point, so that it still has the entries that a later
        // compaction drops.
        let state = self.read_state()?;
        self.find(&state, key, self.commit.visible())
    }

    /// The value of `key` at `seqno`, a registered read point.
    pub(crate) fn get_at(&self, key: &[u8], seqno: SeqNo) -> Result<Option<Value>> {
        let state = self.read_state()?;
        self.find(&state, key, seqno)
    }

    /// Searches the memtables, the rows, and then each run that may hold the key, from the newest
    /// to the oldest. The first entry that is not above `seqno` ends the search, and a tombstone
    /// does so like a value.
    fn find(&self, state: &ReadState, key: &[u8], seqno: SeqNo) -> Result<Option<Value>> {
        self.counts.user.gets.add(1);
        let mut search = Search::new(state, key, seqno);
        while let Some((layer, run)) = search.next() {
            let got = run.get(&search.query)?;
            search.take((layer, run), got);
        }
        self.answer(search)
    }

    /// The values of several keys at one read point. Reads are issued together: each round issues
    /// the next read of every unfinished key, then completes them.
    pub(crate) fn multi_get(
        &self,
        keys: &[&[u8]],
        at: Option<SeqNo>,
    ) -> Result<Vec<Option<Value>>> {
        let state = self.read_state()?;
        let seqno = at.unwrap_or_else(|| self.commit.visible());
        self.counts.user.gets.add(keys.len() as u64);
        let mut searches: Vec<Search<'_>> = keys
            .iter()
            .map(|key| Search::new(&state, key, seqno))
            .collect();
        let mut unfinished: Vec<usize> = (0..searches.len()).collect();
        while !unfinished.is_empty() {
            let mut pending = Vec::new();
            for i in unfinished {
                let read = begin_read(&mut searches[i])?;
                pending.extend(read.map(|(at, read)| (i, at, read)));
            }
            unfinished = Vec::with_capacity(pending.len());
            for (i, at, read) in pending {
                let got = read.finish(&searches[i].query)?;
                searches[i].take(at, got);
                unfinished.push(i);
            }
        }
        searches
            .into_iter()
            .map(|search| self.answer(search))
            .collect()
    }

    /// Ends a search: counts its hit or its reads in vain.
    #[inline]
    fn answer(&self, search: Search<'_>) -> Result<Option<Value>> {
        if let Some((level, run)) = search.charged()
            && run.charge_seek()
        {
            self.due_for_seeks(level, run.meta.id);
        }
        let Some((layer, tag, value)) = search.found() else {
            return Ok(None);
        };
        let value = visible_value(tag, value)?;
        if value.is_some() {
            self.counts.user.hits.add(layer);
        }
        Ok(value)
    }
}

/// Continues a search until it ends or waits for a read, which is returned with its run.
fn begin_read<'a>(search: &mut Search<'a>) -> Result<Option<((Layer, Run<'a>), Pending<'a>)>> {
    while let Some((layer, run)) = search.next() {
        match run.begin_get(&search.query)? {
            Step::Done(got) => search.take((layer, run), got),
            Step::Pending(read) => return Ok(Some(((layer, run), read))),
        }
    }
    Ok(None)
}

/// The result of an entry for a reader: its value, or none for a tombstone.
#[inline]
fn visible_value(tag: Tag, value: Value) -> Result<Option<Value>> {
    match tag.kind() {
        Some(Kind::Put) => Ok(Some(value)),
        Some(Kind::Delete) => Ok(None),
        Some(Kind::Pointer) | None => {
            let kind = tag.kind_byte();
            Err(Error::corruption(
                "an entry",
                tag.seqno().0,
                format_args!("expected a put or delete, not kind {kind}"),
            ))
        }
    }
}
