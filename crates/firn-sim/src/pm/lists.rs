//! Lists: flushes write them, links merge them without copying an entry, relocations copy one, and
//! what nothing names any more is freed.
//!
//! The root stands for the manifest: an entry per list, whose word is the list's place. One commit
//! replaces the inputs of a job with its output. A relocation stops before that, with an anchor in
//! the root. An open goes on with it; the same process gives it up with the next operation.

use super::structure::{Structure, live, pattern};
use crate::tally::Tally;
use firn_base::ErrorKind::{Corruption, Incompatible};
use firn_base::key::{Kind, compare};
use firn_base::{Error, FileId, Result, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Extent, Fenced, GRANULE_BYTES, Owner, Pool, RootEntry};
use firn_table::pm_skiplist::{
    Anchored, Chunks, FoundList, List, ListCause, ListIter, ListJob, ListOptions, ListPlace,
    ListSpace, ListTotals, ListWriter, Persist, claim, claim_anchored, peek, verify,
};
use firn_table::sst::{Got, Query};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

const UUID: [u8; 16] = [9; 16];
const UNIT: u64 = GRANULE_BYTES;
/// The filter of any list here fits in a granule.
const FILTER_BITS: u32 = 10;
/// The kind of the root entry whose word is the next list's id. Those of lists are their ids.
const NEXT: u16 = 0;
/// The kind of the root entry whose word is the place of the unfinished list.
const ANCHOR: u16 = u16::MAX;
/// The kind of the root entry whose word is the entry at which an open went on with a relocation,
/// for the layout that the model expects.
const MOVED: u16 = u16::MAX - 1;
/// No entry.
const UNBROKEN: u16 = u16::MAX;
/// Bytes of a value that has a chunk of its own.
const LARGE: usize = 5_000;

/// The entries of a flush: their number, and whether one is large.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    entries: u16,
    has_large: bool,
    /// The entry with which the process began that went on with their relocation, if they were
    /// relocated; [`UNBROKEN`] if one process did all of it.
    moved: Option<u16>,
}

/// Where the entries lie makes no difference to what they are.
impl PartialEq for Shape {
    fn eq(&self, other: &Shape) -> bool {
        (self.entries, self.has_large) == (other.entries, other.has_large)
    }
}

impl Shape {
    fn value(self, version: u64, key: u16) -> Vec<u8> {
        let len = match key {
            0 if self.has_large => LARGE,
            _ => 2 + usize::from(key % 8),
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
            if self.moved == Some(key) {
                open = None;
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

fn flush(entries: u16, has_large: bool) -> Op {
    Op::Flush(Shape {
        entries,
        has_large,
        moved: None,
    })
}

/// One operation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Writes a list of new entries.
    Flush(Shape),
    /// Merges the two oldest lists by links.
    Link,
    /// Relocates the newest list, if it is of one flush and long, and stops before it is installed.
    Half,
    /// Drops the oldest list.
    Drop,
}

/// The lists, oldest first: the flushes whose entries each has.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The number of lists that were begun.
    made: u64,
    lists: Vec<Flushes>,
    /// True if the newest list is being relocated.
    is_half: bool,
}

/// A relocation changes nothing that is read.
impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        (self.made, &self.lists) == (other.made, &other.lists)
    }
}

/// The flushes whose entries a list has, by their versions.
type Flushes = BTreeMap<u64, Shape>;

/// The first entry, of each segment, of a list.
fn segments(list: &Flushes, job_bytes: u64) -> Vec<u16> {
    let chunks: BTreeMap<u64, Vec<usize>> = list
        .iter()
        .map(|(&version, shape)| (version, shape.chunks().0))
        .collect();
    let (mut starts, mut nodes, mut refs) = (vec![0], 0, BTreeSet::new());
    let keys = list.values().map(|shape| shape.entries).max().unwrap_or(0);
    for key in 0..keys {
        for (&version, of) in chunks
            .iter()
            .rev()
            .filter(|(_, of)| of.len() > usize::from(key))
        {
            let chunk = (version, of[usize::from(key)]);
            let more = if refs.contains(&chunk) { 16 } else { 40 };
            let job = if starts.len() == 1 { job_bytes } else { 0 };
            let used = 64 + job + 16 * nodes + 24 * refs.len() as u64 + 56;
            if used + more > UNIT {
                starts.push(key);
                nodes = 0;
                refs.clear();
            }
            nodes += 1;
            refs.insert(chunk);
        }
    }
    starts
}

const RELOCATION_BYTES: u64 = 24 + 8 * (1 + PADDING);
/// Inputs that there are not, so that a relocation with few entries has three segments.
const PADDING: u64 = 400;

/// Bytes of the segments of a list, and of its filter.
fn node_bytes(list: &Flushes) -> u64 {
    let is_moved = |shape: &Shape| shape.moved.is_some();
    let job_bytes = match (list.len(), list.values().any(is_moved)) {
        (1, false) => 24,
        (1, true) => RELOCATION_BYTES,
        _ => 24 + 2 * 8,
    };
    segments(list, job_bytes).len() as u64 * UNIT + GRANULE_BYTES
}

/// The list once it is relocated, if it is long enough for that.
fn relocated(list: &Flushes) -> Option<Flushes> {
    let (&version, one) = list.iter().next().filter(|_| list.len() == 1)?;
    let is_long = one.moved.is_none() && segments(list, RELOCATION_BYTES).len() > 2;
    let moved = Shape {
        moved: Some(UNBROKEN),
        ..*one
    };
    is_long.then(|| [(version, moved)].into())
}

/// The lists in a pool.
pub(crate) struct Lists {
    pool: Arc<Pool>,
    lists: Vec<(FileId, Arc<List>)>,
    /// The jobs of the lists that an open found.
    jobs: Vec<ListJob>,
    next: u64,
    /// A relocation that stopped.
    half: Option<ListSpace>,
    /// For the list of this version, the entry at which an open went on with its relocation.
    moved: BTreeMap<u64, u16>,
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
            persist: Persist::Together,
            job,
        }
    }

    /// Names a new list in the root, in the place of the `replaced` ones, and frees those.
    fn install(
        &mut self,
        new: Option<(ListSpace, ListTotals)>,
        replaced: Range<usize>,
    ) -> Result<()> {
        let at = replaced.start;
        let old: Vec<(FileId, Arc<List>)> = self.lists.drain(replaced).collect();
        let place = new.as_ref().and_then(|(space, _)| space.place());
        self.pool.commit_with(Fenced::nothing(), |root| {
            for (id, _) in &old {
                let _gone = root.remove(Owner::Test, id.0 as u16);
            }
            let _gone = root.remove(Owner::Test, ANCHOR);
            let mut set = |kind, word| {
                root.set(RootEntry {
                    owner: Owner::Test,
                    kind,
                    word,
                    extent: None,
                });
            };
            if let (Some(place), Some((space, _))) = (place, &new) {
                set(space.id().0 as u16, place.first.offset.get());
                set(NEXT, self.next.max(space.id().0 + 1));
            }
            Ok(())
        })?;
        if let Some((space, totals)) = new {
            let id = space.id();
            self.next = self.next.max(id.0 + 1);
            self.lists.insert(at, (id, opened(space, totals)?));
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
        let at = self.lists.len();
        self.install(Some(new), at..at)
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
        self.install(Some(new), 0..2)
    }

    /// Copies the newest list, with an anchor as soon as that can be, and leaves it at that.
    fn half(&mut self) -> Result<()> {
        let Some((id, list)) = self.lists.last() else {
            return Ok(());
        };
        if relocated(&self.flushes(list)?).is_none() {
            return Ok(());
        }
        let job = ListJob {
            cause: ListCause::Relocation,
            level: 1,
            log_id: FileId(0),
            previous: 0,
            inputs: std::iter::once(*id)
                .chain((0..PADDING).map(|_| FileId(0)))
                .collect(),
        };
        let mut writer = ListWriter::new(self.pool.clone(), self.options(job), None);
        let mut iter = ListIter::new(list.clone());
        iter.first()?;
        let mut is_anchored = false;
        while iter.valid() {
            iter.load()?;
            writer.push(iter.key(), iter.tag(), iter.value())?;
            if let Some(place) = writer.place().filter(|_| !is_anchored) {
                let anchor = (ANCHOR, place.first.offset.get());
                self.set_words([anchor, (NEXT, self.next + 1)])?;
                is_anchored = true;
            }
            iter.next()?;
        }
        self.next += 1;
        self.half = Some(writer.finish()?.0);
        Ok(())
    }

    /// Commits words of the root.
    fn set_words<const N: usize>(&self, words: [(u16, u64); N]) -> Result<()> {
        let committed = self.pool.commit_with(Fenced::nothing(), |root| {
            for (kind, word) in words {
                root.set(RootEntry {
                    owner: Owner::Test,
                    kind,
                    word,
                    extent: None,
                });
            }
            Ok(())
        });
        committed.map(drop)
    }

    /// Gives a relocation up that stopped.
    fn give_up(&mut self) -> Result<()> {
        let Some(half) = self.half.take() else {
            return Ok(());
        };
        self.pool.commit_with(Fenced::nothing(), |root| {
            let _gone = root.remove(Owner::Test, ANCHOR);
            Ok(())
        })?;
        half.release()
    }

    /// Goes on with a relocation that a crash cut short.
    fn go_on(&mut self, anchored: Anchored) -> Result<()> {
        let job = match &anchored {
            Anchored::Complete(list) => &list.job,
            Anchored::Unfinished(list) => list.job(),
        };
        let input = job.inputs.first().copied();
        let at = self.lists.iter().position(|(id, _)| Some(*id) == input);
        let at = at.ok_or_else(|| Error::invalid("a relocation without its input"))?;
        let mut iter = ListIter::new(self.lists[at].1.clone());
        iter.first()?;
        let (version, mut next) = (iter.tag().seqno().0, UNBROKEN);
        let new = match anchored {
            Anchored::Complete(FoundList { space, totals, .. }) => (space, totals),
            Anchored::Unfinished(unfinished) => {
                let (mut writer, last) = ListWriter::resume(unfinished, UNIT, FILTER_BITS, None)?;
                iter.seek(&last.key, last.tag)?;
                iter.next()?;
                next = u16::from_be_bytes([iter.key()[0], iter.key()[1]]);
                while iter.valid() {
                    iter.load()?;
                    writer.push(iter.key(), iter.tag(), iter.value())?;
                    iter.next()?;
                }
                writer.finish()?
            }
        };
        drop(iter);
        self.moved.insert(version, next);
        self.set_words([(MOVED, version << 16 | u64::from(next))])?;
        self.install(Some(new), at..at + 1)
    }

    /// The entries of a list: the number of keys of each version, checked.
    fn flushes(&self, list: &Arc<List>) -> Result<Flushes> {
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
                moved: self.moved.get(&version).copied(),
            });
            let key = shape.entries;
            let expected = shape.value(version, key);
            if *iter.key() != key.to_be_bytes() || *iter.value() != expected[..] {
                // Not `Corruption`: a list that is damaged must say so before this.
                return Err(Error::invalid(format!(
                    "an entry of flush {version} is another"
                )));
            }
            let query = Query::new(iter.key(), iter.tag().seqno());
            if !matches!(list.get(&query)?, Got::Found { tag, .. } if tag == iter.tag()) {
                return Err(Error::invalid(format!("key {key} is not found")));
            }
            shape.entries += 1;
            iter.next()?;
        }
        Ok(counts)
    }
}

impl Structure for Lists {
    const NAME: &'static str = "lists";
    const POOL_BYTES: u64 = 256 << 10;
    type Op = Op;
    type State = State;
    type Beside = ();

    fn alphabet() -> Vec<Op> {
        vec![
            flush(1, false),
            flush(3, true),
            flush(320, false),
            Op::Link,
            Op::Half,
            Op::Drop,
        ]
    }

    fn model(state: &mut State, op: &Op) {
        state.is_half = false;
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
            Op::Half
                if state
                    .lists
                    .last()
                    .is_some_and(|list| relocated(list).is_some()) =>
            {
                state.made += 1;
                state.is_half = true;
            }
            Op::Drop if !state.lists.is_empty() => drop(state.lists.remove(0)),
            Op::Link | Op::Half | Op::Drop => {}
        }
    }

    fn live_bytes(state: &State) -> u64 {
        let nodes: u64 = state.lists.iter().map(node_bytes).sum();
        let flushes: BTreeMap<&u64, &Shape> = state.lists.iter().flatten().collect();
        let chunks = flushes.values().flat_map(|shape| shape.chunks().1);
        let newest = state.lists.last().filter(|_| state.is_half);
        let half = newest.and_then(relocated).map_or(0, |list| {
            let chunks = list.values().flat_map(|shape| shape.chunks().1);
            node_bytes(&list) + chunks.sum::<u64>()
        });
        nodes + chunks.sum::<u64>() + half
    }

    fn beside() {}

    fn duplicate((): &()) {}

    fn after_power_cut((): &(), _: u64) {}

    fn open(sim: &SimRegion, (): &()) -> Result<Self> {
        let pool = Arc::new(Pool::open_simulated(sim, UUID)?);
        let root = pool.root();
        let next = root.find(Owner::Test, NEXT).map_or(1, |entry| entry.word);
        let anchor = root.find(Owner::Test, ANCHOR).map(|entry| entry.word);
        let lists = root.entries.iter();
        let lists = lists.filter(|entry| !matches!(entry.kind, NEXT | ANCHOR | MOVED));
        let named = lists.map(|entry| (u64::from(entry.kind), entry.word));
        let (mut chunks, mut found) = (Chunks::default(), Vec::new());
        for (id, offset) in named {
            let first = Extent::new(offset, UNIT);
            found.push(claim(&pool, FileId(id), ListPlace { first }, &mut chunks)?);
        }
        let anchored = match anchor {
            None => None,
            Some(offset) => {
                let gone = || Error::corruption("a list", offset, "an unfinished list");
                let at = Extent::new(offset, UNIT).offset;
                let (id, place, _) = peek(&pool, at)?.ok_or_else(gone)?;
                Some(claim_anchored(&pool, id, place, &mut chunks)?)
            }
        };
        drop(chunks);
        pool.finish_recovery()?;
        let (mut lists, mut jobs) = (Vec::new(), Vec::new());
        for FoundList { space, totals, job } in found {
            jobs.push(job);
            let id = space.id();
            lists.push((id, opened(space, totals)?));
        }
        // A merged list has a higher id than lists that are newer.
        lists.sort_by_key(|(_, list)| list.totals().seqno_min);
        let moved = root.find(Owner::Test, MOVED).map(|entry| entry.word);
        let moved = moved.map(|word| (word >> 16, word as u16));
        let mut lists = Lists {
            pool,
            lists,
            jobs,
            next,
            half: None,
            moved: moved.into_iter().collect(),
        };
        if let Some(anchored) = anchored {
            lists.go_on(anchored)?;
        }
        Ok(lists)
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        self.give_up()?;
        match op {
            Op::Flush(shape) => self.flush(*shape),
            Op::Link => self.link(),
            Op::Half => self.half(),
            Op::Drop if self.lists.is_empty() => Ok(()),
            Op::Drop => self.install(None, 0..1),
        }
    }

    fn state(&self) -> Result<State> {
        let lists = self.lists.iter().map(|(_, list)| self.flushes(list));
        Ok(State {
            made: self.next - 1,
            lists: lists.collect::<Result<_>>()?,
            is_half: self.half.is_some(),
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
    let whole = SimRegion::from_image(image.clone(), Mode::Adr);
    let jobs = Lists::open(&whole, &())
        .expect("a pool without a fault")
        .jobs;
    let mut tally = Tally::default();
    for at in (seed..image.len() as u64).step_by(DAMAGE_SEEDS as usize) {
        let mut damaged = image.clone();
        damaged[at as usize] ^= 1 << (at % 8);
        let sim = SimRegion::from_image(damaged, Mode::Adr);
        let read = |lists: Lists| Ok((lists.state()?, lists.jobs));
        match Lists::open(&sim, &()).and_then(read) {
            Ok((found, found_jobs)) => {
                assert_eq!(found, state, "byte {at} is damaged and nobody says so");
                assert_eq!(found_jobs, jobs, "byte {at} is damaged and nobody says so");
            }
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
    for op in [flush(3, true), flush(2, false), Op::Link, flush(260, false)] {
        lists.apply(&op)?;
    }
    let state = lists.state()?;
    lists.pool.close()?;
    Ok((sim.durable(), state))
}
