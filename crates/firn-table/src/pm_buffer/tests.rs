//! Tests write buffers: round trips, walks, lines, refusals and costs here; power cuts and damage
//! in separate files.

mod cuts;
mod damage;

use super::*;
use firn_base::seed::Seed;
use firn_base::site::TEST;
use firn_base::{Error, ErrorKind, FileId, Kind, Result, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Extent, Fenced, Flushed, GRANULE_BYTES as G, Owner, Pool, RootEntry};
use std::sync::Arc;

const UUID: [u8; 16] = [5; 16];

/// An entry of a test: number, key and value. Every fifth is a delete, without a value.
type Entry = (u64, Vec<u8>, Vec<u8>);

fn entry(number: u64) -> Entry {
    let key = format!("key{:0width$}", number % 7, width = number as usize % 19);
    let len = number as usize * 37 % 150;
    let value = match kind(number) {
        Kind::Delete => Vec::new(),
        _ => vec![number as u8; len],
    };
    (number, key.into_bytes(), value)
}

fn kind(number: u64) -> Kind {
    match number % 5 {
        0 => Kind::Delete,
        _ => Kind::Put,
    }
}

fn staged(numbers: impl Iterator<Item = u64>) -> StagedEntries {
    let mut staged = StagedEntries::default();
    for (number, key, value) in numbers.map(entry) {
        staged.add(kind(number), &key, &value);
    }
    staged
}

struct World {
    sim: SimRegion,
    pool: Arc<Pool>,
    directory: BufferDirectory,
}

impl World {
    fn new(bytes: u64) -> World {
        let sim = SimRegion::new(bytes, Mode::Adr);
        let pool = Arc::new(Pool::open_simulated(&sim, UUID).unwrap());
        pool.finish_recovery().unwrap();
        let directory = BufferDirectory::create(&pool, 4, SeqNo(0)).unwrap();
        World {
            sim,
            pool,
            directory,
        }
    }

    fn buffer(&self, id: u64, granules: u64) -> PmBuffer {
        named(&self.directory, id, granules).unwrap()
    }

    /// Appends one group, in which each buffer has the numbers beside it, and commits it.
    fn group(&self, parts: &[(&PmBuffer, std::ops::RangeInclusive<u64>)]) {
        group(&self.directory, parts).unwrap();
    }

    /// Ends the process, and opens the pool again.
    fn killed(&self) -> World {
        reopened(self.sim.cut().killed()).unwrap()
    }
}

/// A new buffer that `directory` names.
fn named(directory: &BufferDirectory, id: u64, granules: u64) -> Result<PmBuffer> {
    let pool = directory.pool();
    let extent = pool.alloc(granules * G, Owner::WriteBuffer)?;
    let committed = directory.committed()?;
    let line = directory.name(FileId(id), extent, committed)?;
    let line = line.ok_or_else(|| Error::invalid("no line is free"))?;
    PmBuffer::new(pool.clone(), FileId(id), line, extent, 0)
}

fn group(
    directory: &BufferDirectory,
    parts: &[(&PmBuffer, std::ops::RangeInclusive<u64>)],
) -> Result<()> {
    let append = |(buffer, numbers): &(&PmBuffer, std::ops::RangeInclusive<u64>)| {
        let first = SeqNo(*numbers.start());
        Ok(buffer.append(&mut staged(numbers.clone()), first)?.1)
    };
    let flushed: Vec<Flushed> = parts.iter().map(append).collect::<Result<_>>()?;
    let fenced = directory.pool().fence(&TEST, flushed);
    let last = parts.iter().map(|(_, numbers)| *numbers.end()).max();
    directory.commit(SeqNo(last.unwrap_or(0)), &fenced)?;
    parts.iter().for_each(|(buffer, _)| buffer.reveal(&fenced));
    Ok(())
}

/// The pool in `sim`, whose named buffers are claimed.
fn reopened(sim: SimRegion) -> Result<World> {
    let pool = Arc::new(Pool::open_simulated(&sim, UUID)?);
    let directory = BufferDirectory::find(&pool)?.ok_or_else(|| Error::invalid("no directory"))?;
    for buffer in directory.named()? {
        pool.claim(buffer?.extent, Owner::WriteBuffer)?;
    }
    pool.finish_recovery()?;
    Ok(World {
        sim,
        pool,
        directory,
    })
}

fn walked_from(world: &World, buffer: &NamedBuffer, from: u64) -> Result<(Vec<(u64, u64)>, u64)> {
    let (mut found, committed) = (Vec::new(), world.directory.committed()?);
    let end = walk(&world.pool, buffer, from, committed, |walked| {
        let number = walked.tag.seqno().0;
        let (_, key, value) = entry(number);
        let is_it = walked.key == key && walked.value_len as usize == value.len();
        assert!(
            is_it && walked.tag.kind() == Some(kind(number)),
            "{walked:?}"
        );
        found.push((number, walked.at));
        Ok(())
    })?;
    Ok((found, end))
}

/// The numbers of the committed entries of a buffer, and its end.
fn walked(world: &World, buffer: &NamedBuffer) -> Result<(Vec<u64>, u64)> {
    let (found, end) = walked_from(world, buffer, 0)?;
    Ok((found.into_iter().map(|(number, _)| number).collect(), end))
}

/// The named buffers, none of which is damaged.
fn all_named(directory: &BufferDirectory) -> Vec<NamedBuffer> {
    let named = directory.named().unwrap();
    named.into_iter().map(Result::unwrap).collect()
}

fn final_note(buffer: &NamedBuffer, through: SeqNo, end: u64) -> Note {
    let (line, id) = (buffer.line, buffer.id);
    Note {
        line,
        id,
        through,
        end,
        is_final: true,
    }
}

#[test]
fn handles_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<BufferDirectory>();
    shared::<PmBuffer>();
    shared::<StagedEntries>();
}

#[test]
fn a_buffer_has_what_was_appended_to_it() {
    let world = World::new(1 << 20);
    let buffers = [world.buffer(7, 16), world.buffer(8, 16)];
    world.group(&[(&buffers[0], 1..=10), (&buffers[1], 11..=14)]);
    world.group(&[(&buffers[1], 15..=40), (&buffers[0], 41..=90)]);
    world.sim.assert_clean();
    let check = |world: &World, buffers: &[PmBuffer]| {
        assert_eq!(world.directory.committed().unwrap(), SeqNo(90));
        let named = all_named(&world.directory);
        for ((named, buffer), wanted) in named.iter().zip(buffers).zip([
            (1..=10).chain(41..=90).collect::<Vec<u64>>(),
            (11..=40).collect(),
        ]) {
            assert_eq!((named.id, named.line), (buffer.id(), buffer.line()));
            let (found, end) = walked_from(world, named, 0).unwrap();
            assert_eq!((end, end), (buffer.end(), end));
            assert!(end < buffer.capacity_bytes());
            let numbers: Vec<u64> = found.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, wanted);
            for &(number, at) in &found {
                let (_, key, value) = entry(number);
                assert_eq!(buffer.value(at, SeqNo(number)).unwrap(), value);
                let key_at = at + ENTRY_HEADER_BYTES as u64;
                assert_eq!(buffer.bytes(key_at, key.len()).unwrap(), key);
                let other = buffer.value(at, SeqNo(number + 1)).unwrap_err();
                assert_eq!(other.kind(), ErrorKind::Corruption);
            }
        }
    };
    check(&world, &buffers);
    let again = world.killed();
    let open = |named: NamedBuffer| {
        let (_, end) = walked(&again, &named).unwrap();
        PmBuffer::new(again.pool.clone(), named.id, named.line, named.extent, end).unwrap()
    };
    let buffers: Vec<PmBuffer> = all_named(&again.directory).into_iter().map(open).collect();
    check(&again, &buffers);
    // A reader in another process sees the same.
    let pool = Arc::new(Pool::open_simulated_read_only(&world.sim, UUID).unwrap());
    let directory = BufferDirectory::find(&pool).unwrap().unwrap();
    let world = World {
        sim: world.sim,
        pool,
        directory,
    };
    check(&world, &buffers);
    let error = world.directory.commit(SeqNo(91), &Fenced::nothing());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn only_revealed_entries_are_read() {
    let world = World::new(1 << 20);
    let buffer = world.buffer(7, 4);
    world.group(&[(&buffer, 1..=1)]);
    let (at, flushed) = buffer.append(&mut staged(2..=2), SeqNo(2)).unwrap();
    assert_eq!((at, buffer.end()), (buffer.end(), at));
    let error = buffer.value(at, SeqNo(2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    buffer.reveal(&world.pool.fence(&TEST, flushed));
    assert_eq!(buffer.value(at, SeqNo(2)).unwrap(), entry(2).2);
    for (at, len) in [(buffer.end(), 1), (u64::MAX, 8), (0, usize::MAX)] {
        assert_eq!(
            buffer.bytes(at, len).unwrap_err().kind(),
            ErrorKind::Corruption
        );
    }
}

#[test]
fn staged_entries_can_be_completed_for_another_place() {
    let world = World::new(1 << 20);
    let (small, large) = (world.buffer(7, 1), world.buffer(8, 9));
    let mut entries = staged(1..=100);
    let of = |number| {
        let (_, key, value) = entry(number);
        (kind(number), key, value)
    };
    let wanted: Vec<_> = (1..=100).map(of).collect();
    let copied = |entries: &StagedEntries| -> Vec<(Kind, Vec<u8>, Vec<u8>)> {
        let entries = entries.entries();
        let copy = |(kind, key, value): (Kind, &[u8], &[u8])| (kind, key.to_vec(), value.to_vec());
        entries.map(copy).collect()
    };
    assert_eq!((copied(&entries), entries.count()), (wanted.clone(), 100));
    let sizes = wanted
        .iter()
        .map(|(_, key, value)| entry_bytes(key.len(), value.len()));
    assert_eq!(entries.bytes(), sizes.sum::<usize>());
    let error = small.append(&mut entries, SeqNo(900)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!((copied(&entries), small.end()), (wanted, 0));
    let (at, flushed) = large.append(&mut entries, SeqNo(1)).unwrap();
    let fenced = world.pool.fence(&TEST, flushed);
    world.directory.commit(SeqNo(100), &fenced).unwrap();
    large.reveal(&fenced);
    assert_eq!((at, large.end()), (0, entries.bytes() as u64));
    let named = all_named(&world.directory);
    assert_eq!(walked(&world, &named[0]).unwrap(), (Vec::new(), 0));
    let (numbers, _) = walked(&world, &named[1]).unwrap();
    assert_eq!(numbers, (1..=100).collect::<Vec<u64>>());
    assert_eq!(large.value(0, SeqNo(1)).unwrap(), entry(1).2);
    entries.clear();
    assert_eq!((entries.bytes(), entries.count()), (0, 0));
    assert_eq!(entries.entries().count(), 0);
    for first in [SeqNo(0), SeqNo(SeqNo::MAX.0 - 2), SeqNo(u64::MAX)] {
        let error = large.append(&mut staged(1..=4), first).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    let last = SeqNo(SeqNo::MAX.0 - 3);
    let _flushed = large.append(&mut staged(1..=4), last).unwrap();
}

#[test]
fn a_walk_crosses_its_pieces() {
    let world = World::new(2 << 20);
    let buffer = world.buffer(7, 300);
    let lens = [
        (0, 0),
        (65_535, 0),
        (3, 70_000),
        (65_535, 65_536),
        (9, 300_000),
        (1, 1),
    ];
    let lens: Vec<(usize, usize)> = lens.into_iter().cycle().take(13).collect();
    let mut entries = StagedEntries::default();
    for &(key_len, value_len) in &lens {
        entries.add(Kind::Put, &vec![3; key_len], &vec![4; value_len]);
    }
    let (_, flushed) = buffer.append(&mut entries, SeqNo(1)).unwrap();
    let fenced = world.pool.fence(&TEST, flushed);
    world.directory.commit(SeqNo(13), &fenced).unwrap();
    let named = all_named(&world.directory)[0];
    let mut found = Vec::new();
    let end = walk(&world.pool, &named, 0, SeqNo(13), |entry| {
        assert!(entry.key.iter().all(|&byte| byte == 3));
        found.push((entry.key.len(), entry.value_len as usize));
        Ok(())
    });
    assert_eq!((end.unwrap(), found), (entries.bytes() as u64, lens));
}

#[test]
fn a_walk_passes_on_the_error_of_its_caller_and_begins_where_it_is_told() {
    let world = World::new(1 << 20);
    let buffer = world.buffer(7, 4);
    world.group(&[(&buffer, 1..=9)]);
    let named = all_named(&world.directory)[0];
    let (found, end) = walked_from(&world, &named, 0).unwrap();
    assert_eq!(
        walked_from(&world, &named, found[4].1).unwrap(),
        (found[4..].to_vec(), end)
    );
    assert_eq!(walked_from(&world, &named, end).unwrap(), (Vec::new(), end));
    let stopped = walk(&world.pool, &named, 0, SeqNo(9), |_| {
        Err(Error::invalid("enough"))
    });
    assert!(stopped.unwrap_err().to_string().contains("enough"));
    let (mut seen, until) = (Vec::new(), SeqNo(4));
    let end = walk(&world.pool, &named, 0, until, |entry| {
        seen.push(entry.tag.seqno().0);
        Ok(())
    });
    assert_eq!((end.unwrap(), seen), (found[4].1, vec![1, 2, 3, 4]));
}

#[test]
fn a_full_buffer_is_walked_to_the_end_of_its_extent() {
    let world = World::new(1 << 20);
    let buffer = world.buffer(7, 1);
    let mut entries = StagedEntries::default();
    for _ in 0..16 {
        entries.add(Kind::Put, b"12345678", &[7; 224]);
    }
    assert_eq!(entries.bytes() as u64, G);
    let (_, flushed) = buffer.append(&mut entries, SeqNo(1)).unwrap();
    let fenced = world.pool.fence(&TEST, flushed);
    world.directory.commit(SeqNo(16), &fenced).unwrap();
    let (named, mut count) = (all_named(&world.directory)[0], 0);
    let end = walk(&world.pool, &named, 0, SeqNo(16), |_| {
        count += 1;
        Ok(())
    });
    assert_eq!((end.unwrap(), count), (G, 16));
    assert!(buffer.append(&mut staged(17..=17), SeqNo(17)).is_err());
}

#[test]
fn lines_are_taken_noted_and_freed() {
    let world = World::new(2 << 20);
    let lines = world.directory.lines();
    assert_eq!(u64::from(lines), G / 64 - 2);
    let buffers: Vec<PmBuffer> = (1..=u64::from(lines))
        .map(|id| world.buffer(id, 1))
        .collect();
    let extent = world.pool.alloc(G, Owner::WriteBuffer).unwrap();
    let full = world.directory.name(FileId(900), extent, SeqNo(0)).unwrap();
    assert_eq!(full, None);
    let mut numbers: Vec<u32> = buffers.iter().map(PmBuffer::line).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..lines).collect::<Vec<u32>>());
    world.group(&[(&buffers[3], 1..=5)]);
    let note = |buffer: &PmBuffer, end| Note {
        line: buffer.line(),
        id: buffer.id(),
        through: SeqNo(5),
        end,
        is_final: false,
    };
    let end = buffers[3].end();
    let notes = [note(&buffers[3], end), note(&buffers[9], 0)];
    world.directory.note(&notes).unwrap();
    world.sim.assert_clean();
    let again = world.killed();
    for (named, id) in all_named(&again.directory).into_iter().zip(1..) {
        let is_noted = id == 4 || id == 10;
        assert_eq!((named.id, named.is_final), (FileId(id), false));
        assert_eq!(named.through, SeqNo(if is_noted { 5 } else { 0 }));
        assert_eq!(named.end, if id == 4 { end } else { 0 });
    }
    // A removed line is taken by the next buffer.
    let (gone, line) = (&buffers[20], buffers[20].line());
    world.directory.remove(&[line, buffers[30].line()]).unwrap();
    assert_eq!(all_named(&world.directory).len() as u32, lines - 2);
    let again = world.directory.remove(&[line]).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Invalid);
    let stale = world.directory.note(&[note(gone, 0)]).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Invalid);
    let taken = world.directory.name(FileId(900), extent, SeqNo(5)).unwrap();
    assert_eq!(taken, Some(line));
    let found = all_named(&world.directory)
        .into_iter()
        .find(|one| one.line == line);
    let found = found.map(|one| (one.id, one.extent, one.through, one.end));
    assert_eq!(found, Some((FileId(900), extent, SeqNo(5), 0)));
    let reopened = world.killed();
    let (a, b) = (Extent::new(extent.offset.get(), G), buffers[30].line());
    let taken = reopened.directory.name(FileId(901), a, SeqNo(5)).unwrap();
    assert_eq!(taken, Some(b), "an open finds the free line");
}

#[test]
fn a_buffer_is_freed_with_its_extent() {
    let world = World::new(1 << 20);
    let buffer = world.buffer(7, 5);
    world.group(&[(&buffer, 1..=9)]);
    let before = world.pool.usage().live(Owner::WriteBuffer);
    world.directory.remove(&[buffer.line()]).unwrap();
    buffer.free().unwrap();
    assert_eq!(world.pool.usage().live(Owner::WriteBuffer), before - 5 * G);
    world.pool.check().unwrap();
    assert!(all_named(&world.directory).is_empty());
}

#[test]
fn nonsense_is_refused() {
    let world = World::new(1 << 20);
    let (directory, pool) = (&world.directory, &world.pool);
    let invalid = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    };
    invalid(BufferDirectory::create(pool, 4, SeqNo(0)).map(drop));
    let buffer = world.buffer(7, 1);
    let extent = pool.alloc(G, Owner::WriteBuffer).unwrap();
    let name = |id, extent, seqno| directory.name(FileId(id), extent, SeqNo(seqno)).map(drop);
    invalid(name(0, extent, 1));
    invalid(name(1 << 56, extent, 1));
    invalid(name(8, extent, 1 << 56));
    invalid(name(8, Extent::new(0, G), 1));
    invalid(name(8, Extent::new(1 << 19, 1 << 20), 1));
    invalid(name(8, Extent::new(1 << 19, G + 64), 1));
    let note = Note {
        line: buffer.line(),
        id: buffer.id(),
        through: SeqNo(0),
        end: 0,
        is_final: false,
    };
    let before = all_named(directory);
    let refused = |change: fn(&mut Note)| {
        let mut wrong = note;
        change(&mut wrong);
        invalid(directory.note(&[
            Note {
                is_final: true,
                ..note
            },
            wrong,
        ]));
    };
    refused(|note| note.line += 1);
    refused(|note| note.line = u32::MAX);
    refused(|note| note.id = FileId(8));
    refused(|note| note.id = FileId(0));
    refused(|note| note.through = SeqNo(1 << 56));
    refused(|note| note.end = 4);
    refused(|note| note.end = 1 << 48);
    assert_eq!(all_named(directory), before);
    invalid(directory.remove(&[buffer.line(), u32::MAX]));
    invalid(directory.commit(SeqNo(1 << 56), &Fenced::nothing()));
    invalid(PmBuffer::new(pool.clone(), FileId(9), 1, extent, 12).map(drop));
    invalid(PmBuffer::new(pool.clone(), FileId(9), 1, extent, G + 8).map(drop));
    PmBuffer::new(pool.clone(), FileId(9), 1, extent, 0).unwrap();
    assert_eq!(all_named(directory), before);
}

#[test]
fn the_root_names_the_directory() {
    let world = World::new(1 << 20);
    let entry = *world.pool.root().find(Owner::WriteBuffer, 0).unwrap();
    let with = |entry: Option<RootEntry>| {
        world.pool.commit_with(Fenced::nothing(), |root| {
            root.entries = entry.into_iter().collect();
            Ok(())
        })?;
        BufferDirectory::find(&world.pool)
    };
    assert!(with(None).unwrap().is_none());
    let error = with(Some(RootEntry { word: 2, ..entry })).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("format 2"), "{error}");
    let extent = None;
    let error = with(Some(RootEntry { extent, ..entry })).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(with(Some(entry)).unwrap().is_some());
}

/// Commits, notes and lines issue no more instructions than stated here.
#[test]
fn instructions_per_step_are_as_checked_in() {
    let world = World::new(1 << 20);
    let buffers = [world.buffer(7, 4), world.buffer(8, 4)];
    let count = |step: &dyn Fn()| {
        let before = world.sim.instruction_counts();
        step();
        let after = world.sim.instruction_counts();
        world.sim.assert_clean();
        (after.1 - before.1, after.2 - before.2)
    };
    let commit = || {
        let committed = world.directory.commit(SeqNo(0), &Fenced::nothing());
        committed.unwrap();
    };
    assert_eq!(count(&commit), (2, 1), "flushes and fences of a commit");
    let extent = world.pool.alloc(G, Owner::WriteBuffer).unwrap();
    let name = || {
        let named = world.directory.name(FileId(9), extent, SeqNo(0));
        assert_eq!(named.unwrap(), Some(2));
    };
    assert_eq!(count(&name), (2, 2), "of a new line");
    let notes = || {
        let note = |buffer: &PmBuffer| Note {
            line: buffer.line(),
            id: buffer.id(),
            through: SeqNo(0),
            end: 0,
            is_final: false,
        };
        world.directory.note(&buffers.each_ref().map(note)).unwrap();
    };
    assert_eq!(count(&notes), (4, 2), "of two notes");
    let remove = || world.directory.remove(&[0, 1]).unwrap();
    assert_eq!(count(&remove), (2, 1), "of two removals");
}

/// The words of line 0 after each store of a writer that notes buffer 1, removes it, and names and
/// notes buffer 2. A note of step `n` has the number `n` and the end `8 * n`.
fn stores_of_a_line() -> Vec<[u64; layout::LINE_WORDS]> {
    let line = |id: u64, step: u64| {
        let line = layout::Line {
            id: FileId(id),
            extent: Extent::new((4 + id) * G, id * G),
            through: SeqNo(step),
            end: 8 * step,
            is_final: false,
        };
        let mut words = [layout::id_word(line.id); layout::LINE_WORDS];
        let payload = line.payload(&UUID, 0);
        for (word, bytes) in words[1..].iter_mut().zip(payload.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    };
    let mut states = vec![line(1, 1)];
    let mut store = |number: usize, word: u64| {
        let mut words = states[states.len() - 1];
        words[number] = word;
        states.push(words);
    };
    let (through, end) = (layout::THROUGH_AT as usize / 8, layout::END_AT as usize / 8);
    for id in 1..=2 {
        for step in 2..=4 {
            store(through, line(id, step)[through]);
            store(end, line(id, step)[end]);
        }
        store(0, 0);
        let next = line(id + 1, 1);
        (1..layout::LINE_WORDS).for_each(|number| store(number, next[number]));
        store(0, next[0]);
    }
    states
}

#[test]
fn a_reader_beside_a_writer_sees_a_line_as_it_was_at_one_moment() {
    let (states, mut seed) = (stores_of_a_line(), Seed::new(1));
    let (mut free, mut retried) = (0, 0);
    for round in 0..30_000 {
        // Some stores between any two loads.
        let (mut at, mut loads) = (seed.below(states.len() as u64) as usize, 0);
        let read = directory::settled(|number| {
            let stores = if seed.one_in(1 + round % 4) {
                seed.below(9)
            } else {
                0
            };
            at = (at + stores as usize).min(states.len() - 1);
            loads += 1;
            Ok(states[at][number])
        });
        retried += usize::from(loads > layout::LINE_WORDS + 1);
        match layout::Line::decode(&read.unwrap(), &UUID, 0).unwrap() {
            None => free += 1,
            Some(line) => assert!(line.end <= 8 * line.through.0, "{line:?}"),
        }
    }
    assert!(
        free > 100 && retried > 100,
        "{free} free, {retried} read again"
    );
}
