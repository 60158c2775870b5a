//! Lists: flushes write them, links merge them without copying an entry, relocations with copies,
//! and what nothing names any more is freed.
//!
//! The root stands for the manifest: an entry per list, whose word is the list's place. One commit
//! replaces the inputs of a merge with its output.

use super::structure::{Structure, live, pattern};
use crate::tally::Tally;
use firn_base::ErrorKind::{Corruption, Incompatible};
use firn_base::key::{Kind, compare};
use firn_base::{Error, FileId, Result, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Extent, Fenced, GRANULE_BYTES, Owner, Pool, RootEntry};
use firn_table::pm_skiplist::{
    Chunks, FoundList, List, ListCause, ListIter, ListJob, ListOptions, ListPlace, ListSpace,
    ListTotals, ListWriter, claim, verify,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const UUID: [u8; 16] = [9; 16];
const UNIT: u64 = GRANULE_BYTES;
/// The filter of any list here fits in a granule.
const FILTER_BITS: u32 = 10;
/// The kind of the root entry whose word is the next list's id. Those of lists are their ids.
const NEXT: u16 = 0;
/// Bytes of a value that has a chunk of its own.
const LARGE: usize = 5_000;

/// The entries of a flush: their number, and whether one is large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    entries: u16,
    has_large: bool,
}

impl Shape {
    fn value(self, version: u64, key: u16) -> Vec<u8> {
        let len = match key {
            0 if self.has_large => LARGE,
            _ => 8 + usize::from(key % 16),
        };
        pattern(version << 16 | u64::from(key), len as u64)
    }

    /// The chunk of each entry, and the bytes of each chunk.
    fn chunks(self) -> (Vec<usize>, Vec<u64>) {
        let (mut of, mut bytes, mut open) = (Vec::new(), Vec::new(), None);
        for key in 0..self.entries {
            let more = entry_bytes(self.value(0, key).len());
            if more > UNIT / 2 {
                of.push(bytes.len());
                bytes.push(more.next_multiple_of(GRANULE_BYTES));
                continue;
            }
            // Entries do not cross chunks.
            let (chunk, len) = match open {
                Some((chunk, len)) if len + more <= UNIT => (chunk, len),
                _ => {
                    bytes.push(UNIT);
                    (bytes.len() - 1, 0)
                }
            };
            of.push(chunk);
            open = Some((chunk, len + more));
        }
        (of, bytes)
    }
}

/// Bytes of an entry with a key of two bytes.
fn entry_bytes(value: usize) -> u64 {
    (20 + 2 + value as u64).next_multiple_of(8)
}

/// One operation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Writes a list of new entries.
    Flush(Shape),
    /// Merges the two oldest lists by links.
    Link,
    /// Drops the oldest list.
    Drop,
}

/// The lists, oldest first: the flushes whose entries each has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    /// The number of lists that were written.
    made: u64,
    lists: Vec<Flushes>,
}

/// The flushes whose entries a list has, by their versions.
type Flushes = BTreeMap<u64, Shape>;

/// Bytes of the segments of a list, and of its filter.
fn node_bytes(list: &Flushes) -> u64 {
    let chunks: BTreeMap<u64, Vec<usize>> = list
        .iter()
        .map(|(&version, shape)| (version, shape.chunks().0))
        .collect();
    let job = |segment: u64| match (segment, list.len()) {
        (0, 1) => 24,
        (0, _) => 24 + 2 * 8,
        _ => 0,
    };
    let (mut segments, mut nodes, mut refs) = (1, 0, BTreeSet::new());
    let keys = list.values().map(|shape| shape.entries).max().unwrap_or(0);
    for key in 0..keys {
        for (&version, of) in chunks
            .iter()
            .rev()
            .filter(|(_, of)| of.len() > usize::from(key))
        {
            let chunk = (version, of[usize::from(key)]);
            let more = if refs.contains(&chunk) { 16 } else { 32 };
            let used = 64 + job(segments - 1) + 16 * (nodes + refs.len() as u64) + 56;
            if used + more > UNIT {
                (segments, nodes) = (segments + 1, 0);
                refs.clear();
            }
            nodes += 1;
            refs.insert(chunk);
        }
    }
    segments * UNIT + GRANULE_BYTES
}

/// The lists in a pool.
pub(crate) struct Lists {
    pool: Arc<Pool>,
    lists: Vec<(FileId, Arc<List>)>,
    next: u64,
}

fn opened(space: ListSpace, totals: ListTotals) -> Result<Arc<List>> {
    space.count_live();
    List::open(Arc::new(space), totals).map(Arc::new)
}

fn closed(list: Arc<List>) -> Result<()> {
    let held = || Error::invalid("a list that nobody reads");
    let space = Arc::into_inner(list).ok_or_else(held)?.into_space();
    space.count_dead();
    Arc::into_inner(space).ok_or_else(held)?.release()
}

impl Lists {
    fn options(&self, job: ListJob) -> ListOptions {
        ListOptions {
            id: FileId(self.next),
            unit_bytes: UNIT,
            filter_bits: FILTER_BITS,
            job,
        }
    }

    /// Names a new list in the root, in the place of the `replaced` oldest ones, and frees those.
    fn install(&mut self, new: Option<(ListSpace, ListTotals)>, replaced: usize) -> Result<()> {
        let old: Vec<(FileId, Arc<List>)> = self.lists.drain(..replaced).collect();
        let place = new.as_ref().and_then(|(space, _)| space.place());
        self.pool.commit_with(Fenced::nothing(), |root| {
            for (id, _) in &old {
                let _gone = root.remove(Owner::Test, id.0 as u16);
            }
            let mut set = |kind, word| {
                root.set(RootEntry {
                    owner: Owner::Test,
                    kind,
                    word,
                    extent: None,
                });
            };
            if let Some(place) = place {
                set(self.next as u16, place.first.offset.get());
                set(NEXT, self.next + 1);
            }
            Ok(())
        })?;
        if let Some((space, totals)) = new {
            let list = opened(space, totals)?;
            // A merged list has the oldest entries.
            let at = if replaced > 0 { 0 } else { self.lists.len() };
            self.lists.insert(at, (FileId(self.next), list));
            self.next += 1;
        }
        old.into_iter().try_for_each(|(_, list)| closed(list))
    }

    fn flush(&mut self, shape: Shape) -> Result<()> {
        let version = self.next;
        let options = self.options(ListJob::flush(FileId(version)));
        let mut writer = ListWriter::new(self.pool.clone(), options, None);
        let tag = Tag::new(SeqNo(version), Kind::Put);
        for key in 0..shape.entries {
            writer.push(&key.to_be_bytes(), tag, &shape.value(version, key))?;
        }
        let new = writer.finish()?;
        self.install(Some(new), 0)
    }

    fn link(&mut self) -> Result<()> {
        if self.lists.len() < 2 {
            return Ok(());
        }
        let job = ListJob {
            cause: ListCause::Compaction,
            level: 1,
            log_id: FileId(0),
            previous: 0,
            inputs: self.lists[..2].iter().map(|(id, _)| *id).collect(),
        };
        let mut writer = ListWriter::new(self.pool.clone(), self.options(job), None);
        let mut iters = Vec::new();
        for (_, list) in &self.lists[..2] {
            let mut iter = ListIter::new(list.clone());
            iter.first()?;
            iters.push(iter);
        }
        loop {
            let left = iters.iter_mut().filter(|iter| iter.valid());
            let next = left.min_by(|a, b| compare(a.key(), a.tag(), b.key(), b.tag()));
            let Some(iter) = next else { break };
            if let Some(linked) = iter.linked() {
                writer.link(iter.key(), iter.tag(), &linked)?;
            }
            iter.next()?;
        }
        drop(iters);
        let new = writer.finish()?;
        self.install(Some(new), 2)
    }

    /// The entries of a list: the number of keys of each version, checked.
    fn flushes(list: &Arc<List>) -> Result<Flushes> {
        verify(list)?;
        let mut counts: BTreeMap<u64, Shape> = BTreeMap::new();
        let mut iter = ListIter::new(list.clone());
        iter.first()?;
        while iter.valid() {
            iter.load()?;
            let version = iter.tag().seqno().0;
            let shape = counts.entry(version).or_insert(Shape {
                entries: 0,
                has_large: iter.value().len() == LARGE,
            });
            let key = shape.entries;
            let expected = shape.value(version, key);
            if *iter.key() != key.to_be_bytes() || *iter.value() != expected[..] {
                // Not `Corruption`: a list that is damaged must say so before this.
                return Err(Error::invalid(format!(
                    "an entry of flush {version} is another"
                )));
            }
            shape.entries += 1;
            iter.next()?;
        }
        Ok(counts)
    }
}

impl Structure for Lists {
    const NAME: &'static str = "lists";
    const POOL_BYTES: u64 = 512 << 10;
    type Op = Op;
    type State = State;
    type Beside = ();

    fn alphabet() -> Vec<Op> {
        let flush = |entries, has_large| Op::Flush(Shape { entries, has_large });
        vec![
            flush(1, false),
            flush(3, true),
            flush(260, false),
            Op::Link,
            Op::Drop,
        ]
    }

    fn model(state: &mut State, op: &Op) {
        match op {
            Op::Flush(shape) => {
                state.made += 1;
                state.lists.push([(state.made, *shape)].into());
            }
            Op::Link if state.lists.len() > 1 => {
                state.made += 1;
                let mut merged = state.lists.remove(0);
                merged.extend(state.lists.remove(0));
                state.lists.insert(0, merged);
            }
            Op::Drop if !state.lists.is_empty() => drop(state.lists.remove(0)),
            Op::Link | Op::Drop => {}
        }
    }

    fn live_bytes(state: &State) -> u64 {
        let nodes: u64 = state.lists.iter().map(node_bytes).sum();
        let flushes: BTreeMap<&u64, &Shape> = state.lists.iter().flatten().collect();
        let chunks = flushes.values().flat_map(|shape| shape.chunks().1);
        nodes + chunks.sum::<u64>()
    }

    fn beside() {}

    fn duplicate((): &()) {}

    fn after_power_cut((): &(), _: u64) {}

    fn open(sim: &SimRegion, (): &()) -> Result<Self> {
        let pool = Arc::new(Pool::open_simulated(sim, UUID)?);
        let root = pool.root();
        let next = root.find(Owner::Test, NEXT).map_or(1, |entry| entry.word);
        let lists = root.entries.iter().filter(|entry| entry.kind != NEXT);
        let named = lists.map(|entry| (u64::from(entry.kind), entry.word));
        let (mut chunks, mut found) = (Chunks::default(), Vec::new());
        for (id, offset) in named {
            let first = Extent::new(offset, UNIT);
            found.push(claim(&pool, FileId(id), ListPlace { first }, &mut chunks)?);
        }
        pool.finish_recovery()?;
        let mut lists = Vec::new();
        for FoundList { space, totals, .. } in found {
            let id = space.id();
            lists.push((id, opened(space, totals)?));
        }
        // A merged list has a higher id than lists that are newer.
        lists.sort_by_key(|(_, list)| list.totals().seqno_min);
        Ok(Lists { pool, lists, next })
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Flush(shape) => self.flush(*shape),
            Op::Link => self.link(),
            Op::Drop if self.lists.is_empty() => Ok(()),
            Op::Drop => self.install(None, 1),
        }
    }

    fn state(&self) -> Result<State> {
        let lists = self.lists.iter().map(|(_, list)| Self::flushes(list));
        Ok(State {
            made: self.next - 1,
            lists: lists.collect::<Result<_>>()?,
        })
    }

    fn live(&self) -> Result<u64> {
        live(&self.pool)
    }
}

/// The number of seeds among which the bytes are divided.
pub(crate) const DAMAGE_SEEDS: u64 = 16;

/// One bit of every byte of a pool with lists: it is found, or nothing changes.
pub(crate) fn damage(seed: u64) -> Tally {
    let (image, state) = golden().expect("a pool without a fault");
    let mut tally = Tally::default();
    for at in (seed..image.len() as u64).step_by(DAMAGE_SEEDS as usize) {
        let mut damaged = image.clone();
        damaged[at as usize] ^= 1 << (at % 8);
        let sim = SimRegion::from_image(damaged, Mode::Adr);
        match Lists::open(&sim, &()).and_then(|lists| lists.state()) {
            Ok(found) => assert_eq!(found, state, "byte {at} is damaged and nobody says so"),
            Err(error) => assert!(
                matches!(error.kind(), Corruption | Incompatible),
                "byte {at}: {error:?}"
            ),
        }
        tally.recovered(at);
    }
    tally
}

/// A list of several segments, one with a large entry, and two that were merged.
fn golden() -> Result<(Vec<u8>, State)> {
    let sim = SimRegion::new(96 << 10, Mode::Adr);
    let mut lists = Lists::open(&sim, &())?;
    let flush = |entries, has_large| Op::Flush(Shape { entries, has_large });
    for op in [flush(3, true), flush(2, false), Op::Link, flush(260, false)] {
        lists.apply(&op)?;
    }
    let state = lists.state()?;
    lists.pool.close()?;
    Ok((sim.durable(), state))
}
