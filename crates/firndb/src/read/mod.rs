//! The read path. [`Engine::find`] is its ordered description.

pub(crate) mod block_trees;
pub(crate) mod gaps;
pub(crate) mod heat;
mod level;
pub(crate) mod looks;
mod lookup;
pub(crate) mod memtables;
pub(crate) mod merge_iter;
mod parts_iter;
pub(crate) mod pins;
pub(crate) mod pm_space;
pub(crate) mod row_cache;
pub(crate) mod run;
pub(crate) mod run_iter;
pub(crate) mod scans;
pub(crate) mod stack;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod table_run;

pub(crate) use self::lookup::{Hits, Layer};
use self::lookup::{Search, look_in_memory, look_in_part};
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
        if state.memtables.are_by_part()
            && let Some(found) = look_in_part(state, key, seqno)?
        {
            return self.hit(found);
        }
        let query = match look_in_memory(state, key, seqno) {
            Ok(found) => return self.hit(found),
            Err(query) => query,
        };
        let search = Search::new(state, query);
        match search.has_trees() {
            false => self.search_all::<false>(search),
            true => self.search_trees(search),
        }
    }

    // Not inlined, because most databases have no trees.
    #[inline(never)]
    fn search_trees(&self, search: Search<'_>) -> Result<Option<Value>> {
        self.search_all::<true>(search)
    }

    #[inline(always)]
    fn search_all<const TREES: bool>(&self, mut search: Search<'_>) -> Result<Option<Value>> {
        while let Some((layer, run)) = search.next::<TREES>() {
            let got = run.get(&search.query)?;
            if let Some(found) = search.take((layer, run), got) {
                return self.answer(&search, Some(found));
            }
        }
        self.answer(&search, None)
    }

    /// The values of several keys at one read point. Reads are issued together: each round issues
    /// the next read of every unfinished key, then completes them.
    pub(crate) fn multi_get(
        &self,
        keys: &[&[u8]],
        at: Option<SeqNo>,
    ) -> Result<Vec<Option<Value>>> {
        let state = self.read_state()?;
        let seqno = at.unwrap_or_else(|| state.memtables.complete_through(self.commit.visible()));
        self.counts.user.gets.add(keys.len() as u64);
        let mut values: Vec<Option<Value>> = Vec::with_capacity(keys.len());
        let mut searches: Vec<(usize, Search<'_>)> = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            if state.memtables.are_by_part()
                && let Some(found) = look_in_part(&state, key, seqno)?
            {
                values.push(self.hit(found)?);
                continue;
            }
            match look_in_memory(&state, key, seqno) {
                Ok(found) => values.push(self.hit(found)?),
                Err(query) => {
                    values.push(None);
                    searches.push((i, Search::new(&state, query)));
                }
            }
        }
        while !searches.is_empty() {
            let mut pending = Vec::new();
            for (i, mut search) in searches {
                match begin_read(&mut search)? {
                    Progress::Ended(found) => values[i] = self.answer(&search, found)?,
                    Progress::Reads(run, read) => pending.push((i, search, run, read)),
                }
            }
            searches = Vec::with_capacity(pending.len());
            for (i, mut search, run, read) in pending {
                let got = read.finish(&search.query)?;
                match search.take(run, got) {
                    None => searches.push((i, search)),
                    found => values[i] = self.answer(&search, found)?,
                }
            }
        }
        Ok(values)
    }

    /// Ends a search: counts its hit, or its reads in vain.
    #[inline]
    fn answer(
        &self,
        search: &Search<'_>,
        found: Option<(Layer, Tag, Value)>,
    ) -> Result<Option<Value>> {
        search.note_heat(found.is_some());
        if let Some((level, run)) = search.charged()
            && run.charge_seek()
        {
            self.due_for_seeks(level, run.meta.id);
        }
        match found {
            Some(found) => self.hit(found),
            None => {
                search.keep_absent();
                Ok(None)
            }
        }
    }

    /// The answer of an entry that was found: its value, or none for a tombstone.
    #[inline(always)]
    fn hit(&self, (layer, tag, value): (Layer, Tag, Value)) -> Result<Option<Value>> {
        let Some(value) = visible_value(tag, value)? else {
            return Ok(None);
        };
        self.counts.user.hits.add(layer);
        Ok(Some(value.counted(self.tables.held())))
    }
}

/// The outcome of a search that does not wait.
enum Progress<'a> {
    Ended(Option<(Layer, Tag, Value)>),
    /// It waits for a read of this run.
    Reads((Layer, Run<'a>), Pending<'a>),
}

/// Continues a search until it ends or waits for a read.
fn begin_read<'a>(search: &mut Search<'a>) -> Result<Progress<'a>> {
    while let Some((layer, run)) = search.next::<true>() {
        match run.begin_get(&search.query)? {
            Step::Pending(read) => return Ok(Progress::Reads((layer, run), read)),
            Step::Done(got) => {
                if let Some(found) = search.take((layer, run), got) {
                    return Ok(Progress::Ended(Some(found)));
                }
            }
        }
    }
    Ok(Progress::Ended(None))
}

/// The result of an entry for a reader: its value, or none for a tombstone.
#[inline(always)]
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
