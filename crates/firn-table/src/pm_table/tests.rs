//! Tests tables against sorted maps: reads, claims after a restart, damage, space and costs.

use super::layout::{GROUP_BYTES, HEADER_BYTES, OFFSET_BYTES};
use super::*;
use crate::context::TableContext;
use crate::sst::{Got, Query};
use crate::{BlockCache, Value};
use firn_base::key::{Kind, compare};
use firn_base::seed::Seed;
use firn_base::{Error, ErrorKind, FileId, Result, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Extent, Owner, Pool};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const UUID: [u8; 16] = [3; 16];

/// Entries in their order: key, then newest first.
type Model = BTreeMap<(Vec<u8>, Reverse<u64>), Vec<u8>>;

struct World {
    sim: SimRegion,
    pool: Arc<Pool>,
}

impl World {
    fn new(bytes: u64) -> World {
        World::on(SimRegion::new(bytes, Mode::Adr))
    }

    fn on(sim: SimRegion) -> World {
        let pool = Arc::new(Pool::open_simulated(&sim, UUID).unwrap());
        pool.finish_recovery().unwrap();
        World { sim, pool }
    }

    fn write_as(&self, options: PmTableOptions, model: &Model) -> Arc<PmTable> {
        let mut writer = PmTableWriter::new(self.pool.clone(), options, None);
        for ((key, tag), value) in model {
            writer.add(key, Tag(tag.0), value).unwrap();
        }
        let (space, totals) = writer.finish().unwrap();
        assert_eq!(totals.entries, model.len() as u64);
        Arc::new(PmTable::open(Arc::new(space)).unwrap())
    }

    fn write(&self, id: u64, model: &Model) -> Arc<PmTable> {
        self.write_as(options(id), model)
    }
}

fn options(id: u64) -> PmTableOptions {
    PmTableOptions {
        id: FileId(id),
        group_entries: 8,
        arrangement: Arrangement::Grouped,
        filter_bits: 10,
        table_bytes: 1 << 20,
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Random entries: some keys with several versions, some deletes, some large values.
fn model(seed: &mut Seed, entries: u64) -> Model {
    let mut model = Model::new();
    for i in 0..entries {
        let kind = match seed.one_in(9) {
            true => Kind::Delete,
            false => Kind::Put,
        };
        let len = match kind {
            Kind::Delete => 0,
            _ if seed.one_in(40) => 5_000,
            _ => seed.below(200) as usize,
        };
        let mut value = vec![0; len];
        seed.fill(&mut value);
        let tag = Tag::new(SeqNo(i + 1), kind);
        let key = key(seed.below(entries / 2 + 1));
        model.insert((key, Reverse(tag.0)), value);
    }
    model
}

/// One entry for each of `keys`.
fn with_keys(keys: impl IntoIterator<Item = Vec<u8>>) -> Model {
    let tag = |seqno| Tag::new(SeqNo(seqno), Kind::Put).0;
    let keys: BTreeSet<Vec<u8>> = keys.into_iter().collect();
    let entry = |(seqno, key): (usize, Vec<u8>)| {
        let value = key.iter().rev().copied().collect();
        ((key, Reverse(tag(seqno as u64 + 1))), value)
    };
    keys.into_iter().enumerate().map(entry).collect()
}

fn found(got: Got) -> Option<(Tag, Value)> {
    match got {
        Got::Found { tag, value, .. } => Some((tag, value)),
        _ => None,
    }
}

/// Asks for a key at a read point, as the model would answer.
fn check_get(table: &PmTable, model: &Model, key: &[u8], seqno: SeqNo) {
    let from = (key.to_vec(), Reverse(Tag::seek(seqno).0));
    let wanted = model.range(from..).next().filter(|((at, _), _)| at == key);
    let got = found(table.get(&Query::new(key, seqno)).unwrap());
    let got = got.as_ref().map(|(tag, value)| (tag.0, &**value));
    assert_eq!(
        got,
        wanted.map(|((_, tag), value)| (tag.0, &value[..])),
        "{key:?}"
    );
}

fn check(table: &Arc<PmTable>, model: &Model) {
    let mut iter = PmTableIter::new(table.clone());
    iter.first().unwrap();
    for ((key, tag), value) in model {
        iter.load().unwrap();
        let at = (iter.key(), iter.tag(), iter.value());
        assert_eq!(at, (&key[..], Tag(tag.0), &value[..]));
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    iter.last().unwrap();
    for ((key, tag), _) in model.iter().rev() {
        assert_eq!((iter.key(), iter.tag()), (&key[..], Tag(tag.0)));
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
    for (key, tag) in model.keys() {
        check_get(table, model, key, Tag(tag.0).seqno());
    }
    let report = verify(table).unwrap();
    assert_eq!(report.entries, model.len() as u64);
    let keys: BTreeSet<&Vec<u8>> = model.keys().map(|(key, _)| key).collect();
    let bounds = (&keys.first().unwrap()[..], &keys.last().unwrap()[..]);
    assert_eq!(table.bounds(), bounds);
}

/// Seeks `wanted` forwards and backwards, as the model would.
fn check_seek(table: &Arc<PmTable>, model: &Model, wanted: &[u8]) {
    let here = |iter: &PmTableIter| iter.valid().then(|| (iter.key().to_vec(), iter.tag().0));
    let at = (wanted.to_vec(), Reverse(u64::MAX));
    let name = |((key, tag), _): (&(Vec<u8>, Reverse<u64>), &Vec<u8>)| (key.clone(), tag.0);
    let mut iter = PmTableIter::new(table.clone());
    iter.seek(wanted, Tag(u64::MAX)).unwrap();
    assert_eq!(
        here(&iter),
        model.range(at.clone()..).next().map(name),
        "{wanted:?}"
    );
    iter.seek_before(wanted, Tag(u64::MAX)).unwrap();
    assert_eq!(
        here(&iter),
        model.range(..at).next_back().map(name),
        "{wanted:?}"
    );
}

#[test]
fn a_table_has_what_was_written() {
    let mut seed = Seed::new(1);
    for entries in [1, 2, 17, 300, 3_000] {
        for arrangement in [Arrangement::Grouped, Arrangement::Array] {
            let world = World::new(8 << 20);
            let model = model(&mut seed, entries);
            let options = PmTableOptions {
                arrangement,
                ..options(7)
            };
            let table = world.write_as(options, &model);
            check(&table, &model);
            for _ in 0..300 {
                let wanted = key(seed.below(entries + 10));
                check_seek(&table, &model, &wanted);
                check_get(&table, &model, &wanted, SeqNo(seed.below(entries + 1)));
            }
            check_seek(&table, &model, b"");
            check_seek(&table, &model, b"zzz");
        }
    }
}

/// Every key of up to three bytes of 0, 1 and 255, and of up to 29 zeros and one such byte: slots
/// that are padded with zeros are equal for many of them.
fn awkward_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..3 {
        let longer = keys
            .iter()
            .flat_map(|key| [0, 1, 255].map(|byte| [&key[..], &[byte]].concat()));
        keys = keys
            .iter()
            .cloned()
            .chain(longer.collect::<Vec<_>>())
            .collect();
    }
    for zeros in 0..30 {
        let zeros = vec![0; zeros];
        keys.extend([0, 1, 255].map(|byte| [&zeros[..], &[byte]].concat()));
    }
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn keys_whose_slots_are_equal_are_told_apart() {
    let all = awkward_keys();
    let mut seed = Seed::new(5);
    for prefix in [&b""[..], b"a long prefix that all keys share"] {
        for round in 0..20 {
            let world = World::new(4 << 20);
            let with = |key: &Vec<u8>| [prefix, key].concat();
            let kept = all.iter().filter(|_| round == 0 || seed.one_in(2));
            let model = with_keys(kept.map(with));
            let options = PmTableOptions {
                group_entries: 1 + round % 4,
                ..options(1)
            };
            let table = world.write_as(options, &model);
            check(&table, &model);
            for key in &all {
                check_get(&table, &model, &with(key), SeqNo::MAX);
                check_seek(&table, &model, &with(key));
            }
        }
    }
}

#[test]
fn a_prefix_that_only_some_keys_share_stays_in_the_others() {
    // The first key of a group is long, and the second one differs within the bytes of its slot.
    let keys = (0..200u32).map(|number| match number % 3 {
        0 => format!("{:04}/{}", number / 3, "x".repeat(60)),
        1 => format!("{:04}/x", number / 3),
        _ => format!("{:04}", number / 3),
    });
    let model = with_keys(keys.map(String::into_bytes));
    let world = World::new(4 << 20);
    check(&world.write(1, &model), &model);
}

#[test]
fn hashed_and_counted_keys_are_found() {
    let mut seed = Seed::new(6);
    let hashed = (0..4_000).map(|_| seed.next_u64().to_be_bytes().to_vec());
    let hashed = with_keys(hashed.collect::<Vec<_>>());
    let tables = (0..40u32).flat_map(|table| {
        (0..100u32).map(move |row| format!("table{:02}/column/{row:06}", table * 2).into_bytes())
    });
    for model in [hashed, with_keys(tables)] {
        let world = World::new(4 << 20);
        let table = world.write(1, &model);
        check(&table, &model);
        for _ in 0..2_000 {
            check_get(&table, &model, &seed.next_u64().to_be_bytes(), SeqNo::MAX);
            let key = format!("table{:02}/column/{:06}", seed.below(80), seed.below(110));
            check_seek(&table, &model, key.as_bytes());
            check_get(&table, &model, key.as_bytes(), SeqNo::MAX);
        }
    }
}

#[test]
fn versions_of_a_key_stay_together() {
    // More bytes of versions than the table was to have.
    let mut model = with_keys((0..50).map(key));
    for seqno in 100..2_100 {
        let tag = Tag::new(SeqNo(seqno), Kind::Put);
        model.insert((key(25), Reverse(tag.0)), vec![seqno as u8; 500]);
    }
    let world = World::new(16 << 20);
    let options = PmTableOptions {
        table_bytes: 64 << 10,
        ..options(1)
    };
    let table = world.write_as(options, &model);
    check(&table, &model);
    assert!(table.space().extent().len > 900 << 10);
    assert_eq!(
        world.pool.usage().live(Owner::Table),
        table.space().extent().len
    );
    world.pool.check().unwrap();
}

#[test]
fn a_table_ends_where_its_extent_does() {
    let mut seed = Seed::new(9);
    for table_bytes in [32 << 10, 100 << 10] {
        let world = World::new(16 << 20);
        let options = PmTableOptions {
            table_bytes,
            ..options(1)
        };
        let mut writer = PmTableWriter::new(world.pool.clone(), options, None);
        for number in 0.. {
            let (key, value) = (key(number), vec![7; seed.below(300) as usize]);
            if !writer.fits(&key, &value) {
                break;
            }
            writer
                .add(&key, Tag::new(SeqNo(1), Kind::Put), &value)
                .unwrap();
        }
        let (space, _) = writer.finish().unwrap();
        let len = space.extent().len;
        assert!(len <= table_bytes && len > table_bytes / 2, "{len}");
    }
}

#[test]
fn tables_are_claimed_after_a_restart() {
    let world = World::new(8 << 20);
    let models = [1, 2].map(|seed| model(&mut Seed::new(seed), 900));
    let tables = [world.write(1, &models[0]), world.write(2, &models[1])];
    let extents = tables.map(|table| table.space().extent());
    let pool = Arc::new(Pool::open_simulated(&world.sim.cut().power_cut(8), UUID).unwrap());
    assert_eq!(
        find_tables(&pool).unwrap()[0].0,
        FileId(2),
        "the newest first"
    );
    let wrong = claim(&pool, FileId(9), extents[0]).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Corruption, "{wrong}");
    let pool = Arc::new(Pool::open_simulated(&world.sim.cut().power_cut(8), UUID).unwrap());
    let (space, totals) = claim(&pool, FileId(2), extents[1]).unwrap();
    pool.finish_recovery().unwrap();
    let table = Arc::new(PmTable::open(Arc::new(space)).unwrap());
    assert_eq!(totals, *table.totals());
    check(&table, &models[1]);
    let space = Arc::into_inner(table).unwrap().into_space();
    Arc::into_inner(space).unwrap().release().unwrap();
    assert_eq!(pool.usage().live_total(), 0, "what nothing named was free");
}

#[test]
fn a_writer_that_fails_leaves_nothing() {
    let model = model(&mut Seed::new(4), 2_000);
    let world = World::new(120 << 10);
    let mut writer = PmTableWriter::new(world.pool.clone(), options(1), None);
    let failed = model.iter().find_map(|((key, tag), value)| {
        let added = writer.add(key, Tag(tag.0), value);
        added.err().map(|error| error.kind())
    });
    assert_eq!(failed, Some(ErrorKind::NoSpace));
    drop(writer);
    assert_eq!(world.pool.usage().live_total(), 0);
    world.pool.check().unwrap();
}

/// The answers to all gets and one scan, or the first error.
fn answers(pool: &Arc<Pool>, extent: Extent, model: &Model) -> Result<Vec<Option<Vec<u8>>>> {
    let (space, _) = claim(pool, FileId(1), extent)?;
    let table = Arc::new(PmTable::open(Arc::new(space))?);
    let mut answers = Vec::new();
    for (key, tag) in model.keys() {
        let got = found(table.get(&Query::new(key, Tag(tag.0).seqno()))?);
        answers.push(got.map(|(_, value)| value.to_vec()));
    }
    let mut iter = PmTableIter::new(table);
    iter.first()?;
    while iter.valid() {
        iter.load()?;
        answers.push(Some(iter.value().to_vec()));
        iter.next()?;
    }
    Ok(answers)
}

#[test]
fn no_damage_goes_unnoticed() {
    let model = model(&mut Seed::new(12), 60);
    let world = World::new(1 << 20);
    let extent = world.write(1, &model).space().extent();
    let whole = world.sim.durable();
    let opened = |image: Vec<u8>| {
        let sim = SimRegion::from_image(image, Mode::Adr);
        Arc::new(Pool::open_simulated(&sim, UUID).unwrap())
    };
    let right = answers(&opened(whole.clone()), extent, &model).unwrap();
    let (mut seen, mut seed) = (0, Seed::new(3));
    for at in extent.offset.get()..extent.end().unwrap() {
        // The values, which are most of it, are all alike.
        if !seed.one_in(3) {
            continue;
        }
        let mut image = whole.clone();
        image[at as usize] ^= 1 << seed.below(8);
        match answers(&opened(image), extent, &model) {
            Ok(got) => assert!(got == right, "a wrong answer from byte {at}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                seen += 1;
            }
        }
    }
    assert!(seen > 2_000, "{seen}");
}

#[test]
fn slots_and_offsets_that_rot_after_the_open_hide_no_key() {
    let model = with_keys((0..2_000).map(key));
    let world = World::new(4 << 20);
    let extent = world.write(1, &model).space().extent();
    let mut seed = Seed::new(2);
    let mut noticed = 0;
    for round in 0..40 {
        let sim = SimRegion::from_image(world.sim.durable(), Mode::Adr);
        let pool = Arc::new(Pool::open_simulated(&sim, UUID).unwrap());
        let (space, _) = claim(&pool, FileId(1), extent).unwrap();
        let table = PmTable::open(Arc::new(space)).unwrap();
        let table = Arc::new(table);
        let places = table.places();
        let other = Pool::open_simulated(&sim, UUID).unwrap();
        // This process may write there, as if it were the medium.
        let rot = |place: usize, bytes: &[u8]| {
            let dirty = other.store(extent.at(place as u64).unwrap(), bytes);
            let _flushed = other.flush(&crate::sites::PM_TABLE_FENCE, dirty.unwrap());
        };
        other.claim(extent, Owner::Table).unwrap();
        let group = 1 + seed.below(table.groups() as u64 - 1) as usize;
        let offsets = table.groups() * OFFSET_BYTES;
        let slot_bytes = (places.len() - offsets) / table.groups();
        // The slot or the offset of the group before, whose checksum is right, or any byte.
        let (at, size) = match round % 4 {
            0 => (places.start + group * slot_bytes, slot_bytes),
            1 => (places.end - offsets + group * OFFSET_BYTES, OFFSET_BYTES),
            _ => (places.start + seed.below(places.len() as u64) as usize, 1),
        };
        let mut bytes = vec![seed.below(256) as u8; size];
        if size > 1 {
            let before = extent.at((at - size) as u64).unwrap();
            pool.read(before, &mut bytes).unwrap();
        }
        rot(at, &bytes);
        let mut iter = PmTableIter::new(table.clone());
        for ((key, _), value) in &model {
            let sought = iter.seek(key, Tag::seek(SeqNo::MAX));
            let sought = sought.and_then(|()| iter.load());
            let sought = sought.map(|()| iter.valid().then(|| iter.value().to_vec()));
            let got = table.get(&Query::new(key, SeqNo::MAX));
            let got = got.map(|got| found(got).map(|(_, value)| value.to_vec()));
            for answer in [sought, got] {
                match answer {
                    Ok(answer) => assert_eq!(answer.as_ref(), Some(value), "{round}: {key:?}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corruption);
                        noticed += 1;
                    }
                }
            }
        }
    }
    assert!(noticed > 0, "no place that mattered was hit");
}

#[test]
fn a_reader_beside_the_writer_notices_that_the_space_was_reused() {
    let world = World::new(4 << 20);
    let models = [
        with_keys((0..500).map(key)),
        with_keys((0..500).map(|n| key(n + 3))),
    ];
    let table = world.write(1, &models[0]);
    let extent = table.space().extent();
    let reader = Arc::new(Pool::open_simulated_read_only(&world.sim, UUID).unwrap());
    let space = PmTableSpace::foreign(reader.clone(), FileId(1), extent);
    let foreign = Arc::new(PmTable::open(Arc::new(space)).unwrap());
    check(&foreign, &models[0]);
    let held = PmTableSpace::foreign(reader.clone(), FileId(1), extent);
    let held = Arc::new(PmTable::open(Arc::new(held.copied().unwrap())).unwrap());
    let space = Arc::into_inner(table).unwrap().into_space();
    Arc::into_inner(space).unwrap().release().unwrap();
    let reused = world.write(2, &models[1]);
    assert_eq!(reused.space().extent().offset, extent.offset);
    let kind = |error: Error| error.kind();
    for (key, _) in models[0].keys() {
        let got = foreign.get(&Query::new(key, SeqNo::MAX)).map(found);
        assert_eq!(got.map_err(kind).err(), Some(ErrorKind::Changed));
    }
    check(&held, &models[0]);
    let space = PmTableSpace::foreign(reader, FileId(1), extent);
    let opened = PmTable::open(Arc::new(space)).map_err(kind);
    assert_eq!(opened.err(), Some(ErrorKind::Changed));
}

#[test]
fn what_can_be_read_is_salvaged() {
    let mut model = with_keys((0..300).map(key));
    model.values_mut().for_each(|value| value.resize(300, 7));
    let world = World::new(1 << 20);
    let table = world.write(1, &model);
    let mut image = world.sim.durable();
    let extent = table.space().extent();
    // A head of the first group, and a value of the last one.
    image[extent.offset.get() as usize + HEADER_BYTES + GROUP_BYTES] ^= 1;
    image[extent.offset.get() as usize + table.places().start - 65] ^= 1;
    let sim = SimRegion::from_image(image, Mode::Adr);
    let pool = Arc::new(Pool::open_simulated(&sim, UUID).unwrap());
    let (space, _) = claim(&pool, FileId(1), extent).unwrap();
    let table = Arc::new(PmTable::open(Arc::new(space)).unwrap());
    assert_eq!(verify(&table).unwrap_err().kind(), ErrorKind::Corruption);
    let mut kept = 0;
    let lost = salvage(&table, |key, tag, value| {
        assert_eq!(model[&(key.to_vec(), Reverse(tag.0))], value);
        kept += 1;
        Ok(())
    });
    assert_eq!((lost.unwrap(), kept), (2, 300 - 8 - 1));
}

/// A table's cost in lines of persistent memory a get, with the value's left out.
fn lines(table: PmTable, keys: impl Iterator<Item = Vec<u8>>, value_bytes: u64) -> f64 {
    let context = TableContext::new(Arc::new(BlockCache::new(1 << 20)), Arc::default());
    let table = table.counted_in(&context);
    let mut gets = 0;
    for key in keys {
        found(table.get(&Query::new(&key, SeqNo::MAX)).unwrap()).unwrap();
        gets += 1;
    }
    let values = gets as f64 * (value_bytes.div_ceil(64) + 1) as f64;
    (context.pm_gets.lines.get() as f64 - values) / f64::from(gets)
}

#[test]
fn a_get_reads_few_lines() {
    let mut seed = Seed::new(1);
    let keys: BTreeSet<Vec<u8>> = (0..8_000)
        .map(|_| [seed.next_u64().to_be_bytes(), [0; 8]].concat())
        .collect();
    let world = World::new(64 << 20);
    let of = |arrangement| {
        let options = PmTableOptions {
            arrangement,
            table_bytes: 16 << 20,
            ..options(1)
        };
        let mut writer = PmTableWriter::new(world.pool.clone(), options, None);
        for key in &keys {
            writer
                .add(key, Tag::new(SeqNo(9), Kind::Put), &[7; 1024])
                .unwrap();
        }
        let (space, _) = writer.finish().unwrap();
        let len = space.extent().len;
        (PmTable::open(Arc::new(space)).unwrap(), len)
    };
    let (grouped, len) = of(Arrangement::Grouped);
    let more = len as f64 / keys.len() as f64 - (16 + 1024) as f64;
    assert!(more < 24.0, "{more} bytes an entry beside key and value");
    let grouped = lines(grouped, keys.iter().cloned(), 1024);
    let array = lines(of(Arrangement::Array).0, keys.iter().cloned(), 1024);
    assert!(grouped <= 8.0, "{grouped} lines a get beside the value");
    assert!(array > 2.0 * grouped, "{array} of the array, {grouped}");
}

#[test]
fn order_of_the_model_is_that_of_tables() {
    let (a, b) = (Tag::new(SeqNo(2), Kind::Put), Tag::new(SeqNo(1), Kind::Put));
    assert!(compare(b"k", a, b"k", b).is_lt() && Reverse(a.0) < Reverse(b.0));
}
