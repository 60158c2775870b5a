//! Write buffers: groups of entries in two buffers, notes, flushes, and a session that ends in the
//! middle of a group.
//!
//! The root stands for the manifest: its words say up to which number everything is flushed, and
//! the next id.

use super::structure::{Structure, pattern};
use crate::tally::Tally;
use firn_base::ErrorKind::{Corruption, Incompatible};
use firn_base::site::TEST;
use firn_base::{Error, FileId, Kind, Result, SeqNo};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Fenced, Flushed, GRANULE_BYTES, LINE_BYTES, Owner, Pool, RootEntry};
use firn_table::pm_buffer::{
    BufferDirectory, NamedBuffer, Note, PmBuffer, StagedEntries, entry_bytes, walk,
};
use std::ops::Range;
use std::sync::Arc;

const UUID: [u8; 16] = [13; 16];
/// The kinds of the root entries whose words are the next id, and the flushed number.
const NEXT: u16 = 0;
const FLUSHED: u16 = 1;
/// Buffers that a directory can name.
const LINES: u32 = 30;
/// Entries from which no more are written before a flush.
const ENTRIES_MAX: usize = 24;
/// Bytes of a key.
const KEY_BYTES: usize = 8;
/// Bytes of the directory's extent.
const DIRECTORY_BYTES: u64 = GRANULE_BYTES;

/// One operation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Writes a group: so many entries to each of two buffers, with values of so many bytes.
    Write(u64, u64),
    /// Notes how far the buffers are filled.
    Note,
    /// Flushes all entries.
    Flush,
    /// Appends a group without committing it, and recovers.
    Cut,
}

/// The entries that are not flushed: their numbers, and the bytes of their values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    last: u64,
    entries: Vec<(u64, u64)>,
}

impl State {
    /// The number of entries that an operation writes to each buffer, and the bytes of a value.
    fn written(&self, op: &Op) -> Option<(u64, u64)> {
        match op {
            Op::Write(count, len) if self.entries.len() < ENTRIES_MAX => Some((*count, *len)),
            _ => None,
        }
    }
}

/// A buffer in use.
struct Open {
    buffer: PmBuffer,
    is_final: bool,
}

/// The buffers in a pool.
pub(crate) struct Buffers {
    sim: SimRegion,
    pool: Arc<Pool>,
    directory: BufferDirectory,
    open: Vec<Open>,
    next: u64,
    state: State,
}

/// An entry on the medium: its place, its number, and the bytes of its value.
type Found = (u64, u64, u64);

/// A group that was appended.
struct Appended {
    /// Its bytes, which are to be fenced.
    flushed: Vec<Flushed>,
    last: u64,
    entries: Vec<(u64, u64)>,
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    number.to_be_bytes()
}

fn wrong(what: &str) -> Error {
    Error::corruption("write buffers", 0, what)
}

/// The entries of a buffer from `from` on: their places, numbers and lengths of values.
fn walked(
    pool: &Pool,
    named: &NamedBuffer,
    from: u64,
    committed: SeqNo,
) -> Result<(Vec<Found>, u64)> {
    let mut found = Vec::new();
    let end = walk(pool, named, from, committed, |entry| {
        let number = entry.tag.seqno().0;
        if entry.key != key(number) {
            return Err(wrong("the key of an entry"));
        }
        found.push((entry.at, number, u64::from(entry.value_len)));
        Ok(())
    })?;
    Ok((found, end))
}

/// Checks that all entries above the noted number lie at or behind the noted end.
fn expect_noted(pool: &Pool, named: &NamedBuffer, found: &[Found], committed: SeqNo) -> Result<()> {
    let (behind, _) = walked(pool, named, named.end, committed)?;
    let above = |of: &[Found]| {
        let above = of.iter().filter(|(_, number, _)| *number > named.through.0);
        above.map(|(_, number, _)| *number).collect::<Vec<u64>>()
    };
    match above(found) == above(&behind) {
        true => Ok(()),
        false => Err(wrong("all entries above a noted number behind its end")),
    }
}

impl Buffers {
    fn named(&self) -> Result<Vec<NamedBuffer>> {
        self.directory.named()?.into_iter().collect()
    }

    fn set_root(pool: &Pool, kind: u16, word: u64) -> Result<()> {
        let set = |root: &mut firn_pm::Root| {
            root.set(RootEntry {
                owner: Owner::Test,
                kind,
                word,
                extent: None,
            });
            Ok(())
        };
        pool.commit_with(Fenced::nothing(), set).map(drop)
    }

    fn root_word(pool: &Pool, kind: u16) -> u64 {
        let root = pool.root();
        root.find(Owner::Test, kind).map_or(0, |entry| entry.word)
    }

    /// Begins buffers until two have room for `bytes`. Returns their places.
    fn two(&mut self, bytes: u64) -> Result<[usize; 2]> {
        loop {
            let has_room =
                |of: &Open| !of.is_final && of.buffer.capacity_bytes() - of.buffer.end() >= bytes;
            let with_room = (0..self.open.len()).filter(|&at| has_room(&self.open[at]));
            let found: Vec<usize> = with_room.take(2).collect();
            if let [first, second] = found[..] {
                return Ok([first, second]);
            }
            Self::set_root(&self.pool, NEXT, self.next + 1)?;
            let id = FileId(self.next + 1);
            self.next += 1;
            let extent = self.pool.alloc(GRANULE_BYTES, Owner::WriteBuffer)?;
            let line = self.directory.name(id, extent, SeqNo(self.state.last))?;
            let line = line.ok_or_else(|| wrong("a free line"))?;
            let buffer = PmBuffer::new(self.pool.clone(), id, line, extent, 0)?;
            self.open.push(Open {
                buffer,
                is_final: false,
            });
        }
    }

    /// Appends `count` entries to each of two buffers.
    fn append(&mut self, count: u64, len: u64) -> Result<Appended> {
        let bytes = count * entry_bytes(KEY_BYTES, len as usize) as u64;
        let mut next = self.state.last + 1;
        let (mut flushed, mut entries) = (Vec::new(), Vec::new());
        for at in self.two(bytes)? {
            let mut staged = StagedEntries::default();
            for number in next..next + count {
                staged.add(Kind::Put, &key(number), &pattern(number, len));
                entries.push((number, len));
            }
            let (_, token) = self.open[at].buffer.append(&mut staged, SeqNo(next))?;
            flushed.push(token);
            next += count;
        }
        Ok(Appended {
            flushed,
            last: next - 1,
            entries,
        })
    }

    fn write(&mut self, count: u64, len: u64) -> Result<()> {
        let Appended {
            flushed,
            last,
            entries,
        } = self.append(count, len)?;
        let fenced = self.pool.fence(&TEST, flushed);
        self.directory.commit(SeqNo(last), &fenced)?;
        for open in self.open.iter().filter(|open| !open.is_final) {
            open.buffer.reveal(&fenced);
        }
        self.state.last = last;
        self.state.entries.extend(entries);
        Ok(())
    }

    /// The buffers that a power cut at this moment would leave. A fence of another operation would
    /// hide that one is missing.
    fn durable(&self) -> Result<Vec<NamedBuffer>> {
        named(&SimRegion::from_image(self.sim.durable(), Mode::Adr))
    }

    fn expect_durable(&self) -> Result<()> {
        match self.durable()? == self.named()? {
            true => Ok(()),
            false => Err(wrong("lines that are durable")),
        }
    }

    fn note(&self) -> Result<()> {
        let note = |open: &Open| Note {
            line: open.buffer.line(),
            id: open.buffer.id(),
            through: SeqNo(self.state.last),
            end: open.buffer.end(),
            is_final: open.is_final,
        };
        let notes: Vec<Note> = self.open.iter().map(note).collect();
        self.directory.note(&notes)?;
        self.expect_durable()
    }

    fn flush(&mut self) -> Result<()> {
        Self::set_root(&self.pool, FLUSHED, self.state.last)?;
        let lines: Vec<u32> = self.open.iter().map(|open| open.buffer.line()).collect();
        self.directory.remove(&lines)?;
        self.expect_durable()?;
        self.state.entries.clear();
        self.open.drain(..).try_for_each(|open| open.buffer.free())
    }

    /// As a process that was killed in the middle of a group, and another that opens the pool.
    fn cut(&mut self) -> Result<()> {
        let Appended { flushed, .. } = self.append(1, 40)?;
        let _fenced = self.pool.fence(&TEST, flushed);
        *self = Self::open(&self.sim, &())?;
        Ok(())
    }

    /// The entries that the medium has, with their values.
    fn read(&self) -> Result<State> {
        let (committed, flushed) = (
            self.directory.committed()?,
            Self::root_word(&self.pool, FLUSHED),
        );
        let mut entries = Vec::new();
        for named in self.named()? {
            let (found, _) = walked(&self.pool, &named, 0, committed)?;
            expect_noted(&self.pool, &named, &found, committed)?;
            let its = self.open.iter().find(|open| open.buffer.id() == named.id);
            for (at, number, len) in found.into_iter().filter(|(_, number, _)| *number > flushed) {
                let its = its.ok_or_else(|| wrong("a buffer that is open"))?;
                let is_whole = *its.buffer.value(at, SeqNo(number))? == *pattern(number, len);
                entries.push((number, if is_whole { len } else { u64::MAX }));
            }
        }
        entries.sort_unstable();
        Ok(State {
            last: committed.0,
            entries,
        })
    }
}

impl Structure for Buffers {
    const NAME: &'static str = "buffers";
    const POOL_BYTES: u64 = 128 << 10;
    type Op = Op;
    type State = State;
    type Beside = ();

    fn alphabet() -> Vec<Op> {
        vec![
            Op::Write(1, 10),
            Op::Write(3, 300),
            Op::Note,
            Op::Flush,
            Op::Cut,
        ]
    }

    fn model(state: &mut State, op: &Op) {
        if let Some((count, len)) = state.written(op) {
            let numbers = state.last + 1..state.last + 1 + 2 * count;
            state.last += 2 * count;
            state.entries.extend(numbers.map(|number| (number, len)));
        }
        if matches!(op, Op::Flush) {
            state.entries.clear();
        }
    }

    fn live_bytes(_: &State) -> u64 {
        DIRECTORY_BYTES
    }

    fn beside() {}

    fn duplicate((): &()) {}

    fn after_power_cut((): &(), _: u64) {}

    fn open(sim: &SimRegion, (): &()) -> Result<Self> {
        let pool = Arc::new(Pool::open_simulated(sim, UUID)?);
        let found = BufferDirectory::find(&pool)?;
        let named = found
            .as_ref()
            .map_or(Ok(Vec::new()), BufferDirectory::named)?;
        let named = named.into_iter().collect::<Result<Vec<NamedBuffer>>>()?;
        for buffer in &named {
            pool.claim(buffer.extent, Owner::WriteBuffer)?;
        }
        pool.finish_recovery()?;
        let directory = match found {
            Some(directory) => directory,
            None => BufferDirectory::create(&pool, LINES, SeqNo(0))?,
        };
        let committed = directory.committed()?;
        directory.commit(committed, &Fenced::nothing())?;
        let flushed = Self::root_word(&pool, FLUSHED);
        let (mut open, mut notes, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for named in named {
            let (found, end) = walked(&pool, &named, 0, committed)?;
            // Before the notes that this open makes.
            expect_noted(&pool, &named, &found, committed)?;
            if !found.iter().any(|(_, number, _)| *number > flushed) {
                gone.push(named);
                continue;
            }
            let (pool, line, id) = (pool.clone(), named.line, named.id);
            let buffer = PmBuffer::new(pool, id, line, named.extent, end)?;
            notes.push(Note {
                line,
                id,
                through: committed,
                end,
                is_final: true,
            });
            open.push(Open {
                buffer,
                is_final: true,
            });
        }
        let lines: Vec<u32> = gone.iter().map(|named| named.line).collect();
        directory.remove(&lines)?;
        gone.iter().try_for_each(|named| pool.free(named.extent))?;
        directory.note(&notes)?;
        let mut buffers = Buffers {
            sim: sim.clone(),
            next: Self::root_word(&pool, NEXT),
            pool,
            directory,
            open,
            state: State::default(),
        };
        buffers.expect_durable()?;
        buffers.state = buffers.read()?;
        Ok(buffers)
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Write(..) => match self.state.written(op) {
                Some((count, len)) => self.write(count, len),
                None => Ok(()),
            },
            Op::Note => self.note(),
            Op::Flush => self.flush(),
            Op::Cut => self.cut(),
        }
    }

    fn state(&self) -> Result<State> {
        match self.read()? {
            read if read == self.state => Ok(read),
            _ => Err(wrong("the entries that were written")),
        }
    }

    /// The directory, if the buffers that it names take all others.
    fn live(&self) -> Result<u64> {
        self.pool.check()?;
        let buffers: u64 = self.named()?.iter().map(|named| named.extent.len).sum();
        Ok(self.pool.usage().live_total() - buffers)
    }
}

/// The number of seeds among which the bytes are divided.
pub(crate) const DAMAGE_SEEDS: u64 = 16;

/// One bit of every byte of a pool with buffers, and each bit of the directory: it is found, or
/// nothing is lost.
pub(crate) fn damage(seed: u64) -> Tally {
    let golden = golden().expect("a pool without a fault");
    let mut tally = Tally::default();
    for at in (seed..golden.image.len() as u64).step_by(DAMAGE_SEEDS as usize) {
        let bits = match golden.lines.contains(&at) {
            true => 0..8,
            false => at % 8..at % 8 + 1,
        };
        for bit in bits {
            let mut damaged = golden.image.clone();
            damaged[at as usize] ^= 1 << bit;
            golden.check(damaged, at);
        }
        tally.recovered(at);
    }
    tally
}

/// A pool with two buffers, noted, so that a lost entry is noticed.
struct Golden {
    image: Vec<u8>,
    /// The places of the directory's first lines.
    lines: Range<u64>,
    named: Vec<NamedBuffer>,
    state: State,
}

impl Golden {
    fn check(&self, damaged: Vec<u8>, at: u64) {
        let expected = |error: Error| {
            let is_known = matches!(error.kind(), Corruption | Incompatible);
            assert!(is_known, "byte {at}: {error:?}");
        };
        let sim = SimRegion::from_image(damaged.clone(), Mode::Adr);
        match named(&sim) {
            Ok(found) => {
                assert!(
                    found == self.named,
                    "byte {at} is damaged and nobody says so"
                );
            }
            Err(error) => return expected(error),
        }
        match Buffers::open(&SimRegion::from_image(damaged, Mode::Adr), &()) {
            Ok(found) => {
                assert!(
                    found.state == self.state,
                    "byte {at} is damaged and nobody says so"
                );
            }
            Err(error) => expected(error),
        }
    }
}

/// The buffers that the lines of a pool name.
fn named(sim: &SimRegion) -> Result<Vec<NamedBuffer>> {
    let pool = Arc::new(Pool::open_simulated(sim, UUID)?);
    let directory = BufferDirectory::find(&pool)?;
    let named = directory.map_or(Ok(Vec::new()), |directory| directory.named())?;
    named.into_iter().collect()
}

fn golden() -> Result<Golden> {
    let sim = SimRegion::new(40 << 10, Mode::Adr);
    let mut buffers = Buffers::open(&sim, &())?;
    for op in [Op::Write(1, 10), Op::Write(3, 300), Op::Note] {
        buffers.apply(&op)?;
    }
    let root = buffers.pool.root();
    let directory = root
        .find(Owner::WriteBuffer, 0)
        .and_then(|entry| entry.extent);
    let begin = directory.map_or(0, |extent| extent.offset.get());
    let (state, named) = (buffers.state()?, buffers.named()?);
    buffers.pool.close()?;
    Ok(Golden {
        image: sim.durable(),
        lines: begin..begin + 4 * LINE_BYTES,
        named,
        state,
    })
}
