//! The read path. [`Engine::get_at`] is its ordered description.

pub(crate) mod gaps;
pub(crate) mod pins;
pub(crate) mod row_cache;
pub(crate) mod run;
pub(crate) mod run_iter;
pub(crate) mod state;

use crate::engine::Engine;
use crate::lab::Begun;
use crate::log::{PendingValue, ValueLogs};
use crate::read::run::SstRun;
use crate::read::state::{Level, Part};
use firn_base::key::Kind;
use firn_base::{Error, Result, SeqNo, Tag};
use firn_table::Value;
use firn_table::sst::{GetStep, Got, PendingBlock, Query, hash};
use std::sync::Arc;

impl Engine {
    /// The current value of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        // The state is loaded before the read point, so that it still has the entries that a later
        // compaction drops.
        let state = self.read_state()?;
        self.find(&state.parts[state.part_of(key)], key, self.commit.visible())
    }

    /// The value of `key` at `seqno`, a registered read point.
    pub(crate) fn get_at(&self, key: &[u8], seqno: SeqNo) -> Result<Option<Value>> {
        let state = self.read_state()?;
        self.find(&state.parts[state.part_of(key)], key, seqno)
    }

    fn find(&self, part: &Part, key: &[u8], seqno: SeqNo) -> Result<Option<Value>> {
        for buffer in &part.buffers {
            if let Some((tag, value)) = buffer.get(key, seqno) {
                part.trees
                    .iter()
                    .for_each(|trees| trees.counters.buffers.add(1));
                return visible_value(tag, value);
            }
        }
        let hash = hash(key);
        if let Some((tag, value)) = part.row(key, hash, seqno) {
            part.trees
                .iter()
                .for_each(|trees| trees.counters.rows.add(1));
            return visible_value(tag, value);
        }
        let query = Query {
            key,
            hash,
            seqno,
            rows: part.takes_rows(seqno),
        };
        if let Some(trees) = &part.trees
            && let Got::Found { tag, value, row } = trees.get(&query)?
        {
            part.keep_row(&query, row);
            return visible_value(tag, value);
        }
        let mut charged = None;
        for (depth, level) in part.levels.iter().enumerate() {
            for run in candidates(level, key) {
                match run.table()?.get(&query)? {
                    Got::Excluded => {}
                    // A block from the cache cost nothing that a compaction could save.
                    Got::Missed { read } if read => self.charge(&mut charged, depth, run),
                    Got::Missed { .. } => {}
                    Got::Found { tag, value, row } => {
                        self.settle(charged);
                        part.keep_row(&query, row);
                        part.trees
                            .iter()
                            .for_each(|trees| trees.counters.levels.add(1));
                        return visible_value(tag, value);
                    }
                }
            }
        }
        if charged.is_some() {
            part.keep_absent(&query);
        }
        self.settle(charged);
        Ok(None)
    }

    /// Notes the first table that was searched without finding the key, because compacting it would
    /// have saved that search (LevelDB's rule).
    fn charge<'a>(
        &self,
        charged: &mut Option<(usize, &'a Arc<SstRun>)>,
        depth: usize,
        run: &'a Arc<SstRun>,
    ) {
        charged.get_or_insert((depth, run));
    }

    fn settle(&self, charged: Option<(usize, &Arc<SstRun>)>) {
        if let Some((depth, run)) = charged.filter(|(_, run)| run.charge_seek()) {
            self.due_for_seeks(depth, run.meta.id);
        }
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
        let mut searches: Vec<Search<'_>> = keys
            .iter()
            .map(|key| Search::new(&state.parts[state.part_of(key)], key, seqno))
            .collect::<Result<_>>()?;
        loop {
            let mut waiting = false;
            for search in &mut searches {
                search.advance()?;
                waiting |= search.pending.is_some();
            }
            if !waiting {
                break;
            }
            for search in &mut searches {
                search.take_in()?;
            }
        }
        searches
            .into_iter()
            .map(|search| {
                search
                    .found
                    .map_or(Ok(None), |(tag, value)| visible_value(tag, value))
            })
            .collect()
    }
}

/// The runs of a level that may hold `key`, newest first.
fn candidates<'a>(level: &'a Level, key: &'a [u8]) -> impl Iterator<Item = &'a Arc<SstRun>> {
    let one = if level.sorted {
        level.run_for(key)
    } else {
        None
    };
    let all = if level.sorted {
        [].iter()
    } else {
        level.runs.iter()
    };
    let holds = move |run: &&Arc<SstRun>| {
        run.meta.smallest.as_slice() <= key && key <= run.meta.largest.as_slice()
    };
    one.into_iter().chain(all.filter(holds))
}

/// The result of an entry for a reader: its value, or none for a tombstone.
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

/// A read in flight.
enum Pending<'a> {
    Block(Arc<firn_table::sst::Sst>, PendingBlock),
    /// The read of a value in a log.
    Value(&'a ValueLogs, Tag, PendingValue),
}

/// The search for one key through the levels.
struct Search<'a> {
    part: &'a Part,
    query: Query<'a>,
    runs: Box<dyn Iterator<Item = &'a Arc<SstRun>> + 'a>,
    pending: Option<Pending<'a>>,
    found: Option<(Tag, Value)>,
    read_in_vain: bool,
    over: bool,
}

impl<'a> Search<'a> {
    fn new(part: &'a Part, key: &'a [u8], seqno: SeqNo) -> Result<Self> {
        let hash = hash(key);
        let buffered = part
            .buffers
            .iter()
            .find_map(|buffer| buffer.get(key, seqno));
        let mut found = buffered.or_else(|| part.row(key, hash, seqno));
        let mut pending = None;
        if let (None, Some(trees)) = (&found, &part.trees) {
            match trees.begin_get(key, seqno)? {
                Some((tag, Begun::Here(value))) => found = Some((tag, value)),
                Some((tag, Begun::Asked(asked))) => {
                    pending = Some(Pending::Value(&trees.values, tag, asked))
                }
                None => {}
            }
        }
        let runs = Box::new(
            part.levels
                .iter()
                .flat_map(move |level| candidates(level, key)),
        );
        let query = Query {
            key,
            hash,
            seqno,
            rows: part.takes_rows(seqno),
        };
        Ok(Search {
            part,
            query,
            runs,
            pending,
            over: found.is_some(),
            found,
            read_in_vain: false,
        })
    }

    /// Continues until the key is found, its runs are exhausted, or a read is in flight.
    fn advance(&mut self) -> Result<()> {
        while !self.over && self.pending.is_none() {
            let Some(run) = self.runs.next() else {
                self.over = true;
                if self.read_in_vain {
                    self.part.keep_absent(&self.query);
                }
                return Ok(());
            };
            let table = Arc::clone(&*run.table()?);
            match table.begin_get(&self.query)? {
                GetStep::Done(got) => self.settle(got),
                GetStep::Pending(pending) => self.pending = Some(Pending::Block(table, pending)),
            }
        }
        Ok(())
    }

    fn take_in(&mut self) -> Result<()> {
        match self.pending.take() {
            None => {}
            Some(Pending::Block(table, pending)) => {
                let got = table.finish_get(pending, &self.query)?;
                self.settle(got);
            }
            Some(Pending::Value(values, tag, asked)) => {
                self.found = Some((tag, values.finish(asked)?));
                self.over = true;
            }
        }
        Ok(())
    }

    fn settle(&mut self, got: Got) {
        match got {
            Got::Excluded => {}
            Got::Missed { read } => self.read_in_vain |= read,
            Got::Found { tag, value, row } => {
                self.part.keep_row(&self.query, row);
                self.found = Some((tag, value));
                self.over = true;
            }
        }
    }
}
