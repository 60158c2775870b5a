//! Tables: flushes write them, merges read two and write one, and what nothing names any more is
//! freed.
//!
//! The root stands for the manifest: an entry per table, whose word is the table's extent. One
//! commit replaces the inputs of a merge with its output.

use super::structure::{Structure, live, pattern};
use crate::tally::Tally;
use firn_base::ErrorKind::{Corruption, Incompatible};
use firn_base::key::{Kind, compare};
use firn_base::{Error, FileId, Result, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Extent, Fenced, GRANULE_BYTES, Owner, Pool, RootEntry};
use firn_table::pm_table::{
    Arrangement, PmTable, PmTableIter, PmTableOptions, PmTableSpace, PmTableWriter, PmTotals,
    claim, verify,
};
use firn_table::sst::{Got, Query};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const UUID: [u8; 16] = [10; 16];
/// The kind of the root entry whose word is the next table's id. Those of tables are their ids.
const NEXT: u16 = 0;
/// Bytes of a value that is longer than the table was to be.
const LARGE: usize = 6_000;
const TABLE_BYTES: u64 = 2 * GRANULE_BYTES;

/// The entries of a flush: their number, and whether one is large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    entries: u16,
    has_large: bool,
}

impl Shape {
    fn value(self, version: u64, key: u16) -> Vec<u8> {
        let len = match key {
            0 if self.has_large => LARGE,
            _ => 2 + usize::from(key % 8),
        };
        pattern(version << 16 | u64::from(key), len as u64)
    }
}

/// One operation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Writes a table of new entries.
    Flush(Shape),
    /// Merges the two oldest tables, if they have few flushes together.
    Merge,
    /// Drops the oldest table.
    Drop,
}

/// The most flushes of a table, so that pieces of free space are long enough for any.
const FLUSHES_MAX: usize = 3;

/// The flushes whose entries a table has, by their versions.
type Flushes = BTreeMap<u64, Shape>;

/// The tables, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    /// The number of tables that were begun.
    made: u64,
    tables: Vec<Flushes>,
}

/// The tables in a pool.
pub(crate) struct Tables {
    pool: Arc<Pool>,
    tables: Vec<Arc<PmTable>>,
    next: u64,
}

fn flush(entries: u16, has_large: bool) -> Op {
    Op::Flush(Shape { entries, has_large })
}

fn writer(pool: &Arc<Pool>, id: u64) -> PmTableWriter {
    let options = PmTableOptions {
        id: FileId(id),
        group_entries: 4,
        arrangement: Arrangement::Grouped,
        filter_bits: 10,
        table_bytes: TABLE_BYTES,
    };
    PmTableWriter::new(pool.clone(), options, None)
}

/// Writes a table with the entries of `flushes`.
fn write(pool: &Arc<Pool>, id: u64, flushes: &Flushes) -> Result<PmTableSpace> {
    let mut writer = writer(pool, id);
    let keys = flushes.values().map(|shape| shape.entries).max();
    for key in 0..keys.unwrap_or(0) {
        for (&version, shape) in flushes.iter().rev() {
            if key < shape.entries {
                let tag = Tag::new(SeqNo(version), Kind::Put);
                writer.add(&key.to_be_bytes(), tag, &shape.value(version, key))?;
            }
        }
    }
    writer.finish().map(|(space, _)| space)
}

fn closed(table: Arc<PmTable>) -> Result<()> {
    let held = || Error::invalid("a table that nobody reads");
    let space = Arc::into_inner(table).ok_or_else(held)?.into_space();
    Arc::into_inner(space).ok_or_else(held)?.release()
}

fn word(extent: Extent) -> u64 {
    extent.offset.get() + extent.len / GRANULE_BYTES
}

fn extent(word: u64) -> Extent {
    let granules = word % GRANULE_BYTES;
    Extent::new(word - granules, granules * GRANULE_BYTES)
}

impl Tables {
    /// Names a new table in the root, in the place of the `replaced` ones, and frees those.
    fn install(&mut self, new: Option<PmTableSpace>, replaced: Range<usize>) -> Result<()> {
        let at = replaced.start;
        let old: Vec<Arc<PmTable>> = self.tables.drain(replaced).collect();
        self.pool.commit_with(Fenced::nothing(), |root| {
            for table in &old {
                let _gone = root.remove(Owner::Test, table.space().id().0 as u16);
            }
            let mut set = |kind, word| {
                root.set(RootEntry {
                    owner: Owner::Test,
                    kind,
                    word,
                    extent: None,
                });
            };
            if let Some(space) = &new {
                set(space.id().0 as u16, word(space.extent()));
                set(NEXT, self.next + 1);
            }
            Ok(())
        })?;
        if let Some(space) = new {
            self.next += 1;
            let table = PmTable::open(Arc::new(space))?;
            self.tables.insert(at, Arc::new(table));
        }
        old.into_iter().try_for_each(closed)
    }

    fn merge(&mut self) -> Result<()> {
        let lists: Vec<Flushes> = self.tables.iter().map(flushes).collect::<Result<_>>()?;
        if !may_merge(&lists) {
            return Ok(());
        }
        let mut writer = writer(&self.pool, self.next);
        let mut iters = Vec::new();
        for table in &self.tables[..2] {
            let mut iter = PmTableIter::new(table.clone());
            iter.first()?;
            iters.push(iter);
        }
        loop {
            let left = iters.iter_mut().filter(|iter| iter.valid());
            let next = left.min_by(|a, b| compare(a.key(), a.tag(), b.key(), b.tag()));
            let Some(iter) = next else { break };
            iter.load()?;
            writer.add(iter.key(), iter.tag(), iter.value())?;
            iter.next()?;
        }
        drop(iters);
        let (space, _) = writer.finish()?;
        self.install(Some(space), 0..2)
    }
}

/// True if the two oldest tables are merged.
fn may_merge(tables: &[Flushes]) -> bool {
    let oldest = tables.first_chunk::<2>();
    oldest.is_some_and(|[a, b]| a.len() + b.len() <= FLUSHES_MAX)
}

/// The entries of a table: the number of keys of each version, checked.
fn flushes(table: &Arc<PmTable>) -> Result<Flushes> {
    verify(table)?;
    let mut found: BTreeMap<u64, Vec<(u16, Vec<u8>)>> = BTreeMap::new();
    let mut iter = PmTableIter::new(table.clone());
    iter.first()?;
    while iter.valid() {
        iter.load()?;
        let wrong = || Error::corruption("a table", 0, "a key of two bytes");
        let key = iter.key().try_into().map_err(|_| wrong())?;
        let entry = (u16::from_be_bytes(key), iter.value().to_vec());
        found.entry(iter.tag().seqno().0).or_default().push(entry);
        iter.next()?;
    }
    let shape = |(version, entries): (u64, Vec<(u16, Vec<u8>)>)| {
        let shape = Shape {
            entries: entries.len() as u16,
            has_large: entries.iter().any(|(_, value)| value.len() == LARGE),
        };
        let expected = (0..shape.entries).map(|key| (key, shape.value(version, key)));
        match expected.eq(entries) {
            true => Ok((version, shape)),
            false => Err(Error::corruption("a table", 0, "the entries of a flush")),
        }
    };
    found.into_iter().map(shape).collect()
}

/// Bytes of the extent of a table with the entries of `list`.
fn bytes(list: &Flushes) -> u64 {
    thread_local! {
        static KNOWN: RefCell<BTreeMap<Flushes, u64>> = RefCell::default();
    }
    if let Some(bytes) = KNOWN.with_borrow(|known| known.get(list).copied()) {
        return bytes;
    }
    let sim = SimRegion::new(Tables::POOL_BYTES, Mode::Adr);
    let written = Pool::open_simulated(&sim, UUID).and_then(|pool| {
        pool.finish_recovery()?;
        write(&Arc::new(pool), 1, list)
    });
    let bytes = written.expect("an empty pool").extent().len;
    KNOWN.with_borrow_mut(|known| known.insert(list.clone(), bytes));
    bytes
}

impl Structure for Tables {
    const NAME: &'static str = "tables";
    const POOL_BYTES: u64 = 256 << 10;
    type Op = Op;
    type State = State;
    type Beside = ();

    fn alphabet() -> Vec<Op> {
        vec![
            flush(1, false),
            flush(3, true),
            flush(120, false),
            Op::Merge,
            Op::Drop,
        ]
    }

    fn model(state: &mut State, op: &Op) {
        match op {
            Op::Flush(shape) => {
                state.made += 1;
                state.tables.push([(state.made, *shape)].into());
            }
            Op::Merge if may_merge(&state.tables) => {
                state.made += 1;
                let newer = state.tables.remove(1);
                state.tables[0].extend(newer);
            }
            Op::Drop if !state.tables.is_empty() => drop(state.tables.remove(0)),
            Op::Merge | Op::Drop => {}
        }
    }

    fn live_bytes(state: &State) -> u64 {
        state.tables.iter().map(bytes).sum()
    }

    fn beside() {}

    fn duplicate((): &()) {}

    fn after_power_cut((): &(), _: u64) {}

    fn open(sim: &SimRegion, (): &()) -> Result<Self> {
        let pool = Arc::new(Pool::open_simulated(sim, UUID)?);
        let root = pool.root();
        let next = root.find(Owner::Test, NEXT).map_or(1, |entry| entry.word);
        let named = root.entries.iter().filter(|entry| entry.kind != NEXT);
        let named: Vec<(u64, Extent)> = named
            .map(|entry| (u64::from(entry.kind), extent(entry.word)))
            .collect();
        let mut tables = Vec::new();
        for (id, extent) in named {
            let (space, _) = claim(&pool, FileId(id), extent)?;
            tables.push(Arc::new(PmTable::open(Arc::new(space))?));
        }
        pool.finish_recovery()?;
        // A merged table has a higher id than tables that are newer.
        tables.sort_by_key(|table| table.totals().seqno_min);
        Ok(Tables { pool, tables, next })
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Flush(shape) => {
                let space = write(&self.pool, self.next, &[(self.next, *shape)].into())?;
                let at = self.tables.len();
                self.install(Some(space), at..at)
            }
            Op::Merge => self.merge(),
            Op::Drop if self.tables.is_empty() => Ok(()),
            Op::Drop => self.install(None, 0..1),
        }
    }

    fn state(&self) -> Result<State> {
        Ok(State {
            made: self.next - 1,
            tables: self.tables.iter().map(flushes).collect::<Result<_>>()?,
        })
    }

    fn live(&self) -> Result<u64> {
        live(&self.pool)
    }
}

/// The number of seeds among which the bytes are divided.
pub(crate) const DAMAGE_SEEDS: u64 = 16;

/// A table as it is read, without [`verify`], which would find more than a reader does.
#[derive(Debug, PartialEq)]
struct Read {
    totals: PmTotals,
    entries: Vec<(Vec<u8>, Tag, Vec<u8>)>,
    /// The number of them that gets find.
    found: usize,
}

fn read(tables: &Tables) -> Result<Vec<Read>> {
    let of = |table: &Arc<PmTable>| {
        let (mut entries, mut found) = (Vec::new(), 0);
        let mut iter = PmTableIter::new(table.clone());
        iter.first()?;
        while iter.valid() {
            iter.load()?;
            let query = Query::new(iter.key(), iter.tag().seqno());
            found += usize::from(matches!(table.get(&query)?, Got::Found { .. }));
            entries.push((iter.key().to_vec(), iter.tag(), iter.value().to_vec()));
            iter.next()?;
        }
        Ok(Read {
            totals: *table.totals(),
            entries,
            found,
        })
    };
    tables.tables.iter().map(of).collect()
}

/// One bit of every byte of a pool with tables: it is found, or nothing changes.
pub(crate) fn damage(seed: u64) -> Tally {
    let (image, whole) = golden().expect("a pool without a fault");
    let mut tally = Tally::default();
    for at in (seed..image.len() as u64).step_by(DAMAGE_SEEDS as usize) {
        let mut damaged = image.clone();
        damaged[at as usize] ^= 1 << (at % 8);
        let sim = SimRegion::from_image(damaged, Mode::Adr);
        match Tables::open(&sim, &()).and_then(|tables| read(&tables)) {
            Ok(found) => assert!(found == whole, "byte {at} is damaged and nobody says so"),
            Err(error) => assert!(
                matches!(error.kind(), Corruption | Incompatible),
                "byte {at}: {error:?}"
            ),
        }
        tally.recovered(at);
    }
    tally
}

/// A table with a large entry, one of many groups, and two that were merged.
fn golden() -> Result<(Vec<u8>, Vec<Read>)> {
    let sim = SimRegion::new(64 << 10, Mode::Adr);
    let mut tables = Tables::open(&sim, &())?;
    for op in [
        flush(5, false),
        flush(9, false),
        Op::Merge,
        flush(3, true),
        flush(120, false),
    ] {
        tables.apply(&op)?;
    }
    let whole = read(&tables)?;
    tables.pool.close()?;
    Ok((sim.durable(), whole))
}
