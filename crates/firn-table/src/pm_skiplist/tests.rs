//! Tests lists against sorted maps: reads, links, claims after a restart, damage and space.

use super::*;
use crate::sst::{Got, Query};
use firn_base::key::Kind;
use firn_base::seed::Seed;
use firn_base::{ErrorKind, FileId, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Owner, Pool};
use std::collections::BTreeMap;
use std::sync::Arc;

const UUID: [u8; 16] = [3; 16];
const UNIT: u64 = 4096;

/// Entries in their order: key, then newest first.
type Model = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), Vec<u8>>;

struct World {
    sim: SimRegion,
    pool: Arc<Pool>,
}

impl World {
    fn new(bytes: u64) -> World {
        let sim = SimRegion::new(bytes, Mode::Adr);
        let pool = Pool::open_simulated(&sim, UUID).unwrap();
        pool.finish_recovery().unwrap();
        World {
            sim,
            pool: Arc::new(pool),
        }
    }

    fn options(&self, id: u64, job: ListJob) -> ListOptions {
        ListOptions {
            id: FileId(id),
            unit_bytes: UNIT,
            filter_bits: 10,
            persist: Persist::Together,
            job,
        }
    }

    fn write(&self, id: u64, model: &Model) -> Arc<List> {
        let options = self.options(id, ListJob::flush(FileId(id)));
        let mut writer = ListWriter::new(self.pool.clone(), options, None);
        for ((key, tag), value) in model {
            writer.push(key, Tag(tag.0), value).unwrap();
        }
        opened(writer.finish().unwrap())
    }
}

fn opened((space, totals): (ListSpace, ListTotals)) -> Arc<List> {
    space.count_live();
    Arc::new(List::open(Arc::new(space), totals).unwrap())
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Random entries: some keys with several versions, some deletes, some large values.
fn model(seed: &mut Seed, entries: u64) -> Model {
    let mut model = Model::new();
    for i in 0..entries {
        let kind = if seed.one_in(9) {
            Kind::Delete
        } else {
            Kind::Put
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
        model.insert((key, std::cmp::Reverse(tag.0)), value);
    }
    model
}

fn check(list: &Arc<List>, model: &Model) {
    let mut iter = ListIter::new(list.clone());
    iter.first().unwrap();
    for ((key, tag), value) in model {
        iter.load().unwrap();
        assert_eq!(
            (iter.key(), iter.tag(), iter.value()),
            (&key[..], Tag(tag.0), &value[..])
        );
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    iter.last().unwrap();
    for ((key, tag), _) in model.iter().rev() {
        assert_eq!((iter.key(), iter.tag()), (&key[..], Tag(tag.0)));
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
    for ((key, tag), value) in model {
        let query = Query::new(key, Tag(tag.0).seqno());
        match list.get(&query).unwrap() {
            Got::Found {
                tag: found,
                value: read,
                ..
            } => {
                assert_eq!((found, &*read), (Tag(tag.0), &value[..]));
            }
            _ => panic!("a key that is there"),
        }
    }
    let report = verify(list).unwrap();
    assert_eq!(report.entries, model.len() as u64);
}

#[test]
fn a_list_has_what_was_written() {
    let mut seed = Seed::new(1);
    for entries in [1, 2, 17, 300, 2_000] {
        let world = World::new(8 << 20);
        let model = model(&mut seed, entries);
        let list = world.write(7, &model);
        check(&list, &model);
        let mut iter = ListIter::new(list.clone());
        for _ in 0..300 {
            let wanted = key(seed.below(entries + 10));
            iter.seek(&wanted, Tag::seek(SeqNo::MAX)).unwrap();
            let next = model
                .range((wanted.clone(), std::cmp::Reverse(u64::MAX))..)
                .next();
            let found = iter.valid().then(|| (iter.key().to_vec(), iter.tag().0));
            assert_eq!(found, next.map(|((key, tag), _)| (key.clone(), tag.0)));
        }
        let absent = Query::new(b"zzz", SeqNo::MAX);
        assert!(!matches!(list.get(&absent).unwrap(), Got::Found { .. }));
    }
}

/// Merges lists by links alone.
fn link(world: &World, id: u64, lists: &[Arc<List>]) -> Arc<List> {
    let job = ListJob {
        cause: ListCause::Compaction,
        level: 1,
        log_id: FileId(0),
        previous: 0,
        inputs: vec![FileId(1), FileId(2)],
    };
    let mut writer = ListWriter::new(world.pool.clone(), world.options(id, job), None);
    let mut iters: Vec<ListIter> = lists.iter().cloned().map(ListIter::new).collect();
    iters.iter_mut().for_each(|iter| iter.first().unwrap());
    loop {
        let next = iters.iter_mut().filter(|iter| iter.valid());
        let Some(iter) =
            next.min_by(|a, b| firn_base::key::compare(a.key(), a.tag(), b.key(), b.tag()))
        else {
            break;
        };
        let linked = iter.linked().unwrap();
        writer.link(iter.key(), iter.tag(), &linked).unwrap();
        iter.next().unwrap();
    }
    assert_eq!(writer.copied_bytes(), 0);
    opened(writer.finish().unwrap())
}

fn two(world: &World, seed: &mut Seed) -> ([Arc<List>; 2], [Model; 2]) {
    let mut models = [model(seed, 700), Model::new()];
    for ((key, tag), value) in model(seed, 700) {
        let tag = Tag::new(
            SeqNo(Tag(tag.0).seqno().0 + 1_000),
            Tag(tag.0).kind().unwrap(),
        );
        models[1].insert((key, std::cmp::Reverse(tag.0)), value);
    }
    let lists = [world.write(1, &models[0]), world.write(2, &models[1])];
    (lists, models)
}

#[test]
fn lists_are_merged_without_copying_an_entry() {
    let world = World::new(8 << 20);
    let ([a, b], [mut all, other]) = two(&world, &mut Seed::new(2));
    let payload = || world.pool.usage().live(Owner::Payload);
    let before = payload();
    let merged = link(&world, 3, &[a.clone(), b.clone()]);
    assert_eq!(payload(), before);
    all.extend(other);
    check(&merged, &all);
    // The inputs go, and the entries stay.
    for input in [a, b] {
        input.space().count_dead();
        let space = Arc::into_inner(input).unwrap().into_space();
        Arc::into_inner(space).unwrap().release().unwrap();
    }
    assert_eq!(payload(), before);
    check(&merged, &all);
    let live: u64 = merged
        .space()
        .chunks()
        .map(|(chunk, _)| chunk.live_bytes())
        .sum();
    assert_eq!(live, merged.totals().entry_bytes);
    merged.space().count_dead();
    let space = Arc::into_inner(merged).unwrap().into_space();
    Arc::into_inner(space).unwrap().release().unwrap();
    assert_eq!(world.pool.usage().live_total(), 0);
    world.pool.check().unwrap();
}

#[test]
fn an_entry_in_two_lists_is_found() {
    let world = World::new(8 << 20);
    let ([a, b], _) = two(&world, &mut Seed::new(2));
    let merged = link(&world, 3, &[a.clone(), b.clone()]);
    let sum = |lists: &[&Arc<List>]| {
        let mut sums = ChunkSums::default();
        let spaces = lists.iter().map(|list| list.space());
        spaces.map(|space| sums.add(space)).find_map(Result::err)
    };
    assert!(sum(&[&a, &b]).is_none() && sum(&[&merged]).is_none());
    let found = sum(&[&a, &merged]).map(|error| error.kind());
    assert_eq!(found, Some(ErrorKind::Corruption));
}

#[test]
fn lists_are_claimed_after_a_restart() {
    let world = World::new(8 << 20);
    let ([a, b], [mut all, other]) = two(&world, &mut Seed::new(3));
    let merged = link(&world, 3, &[a.clone(), b.clone()]);
    let places: Vec<(FileId, ListPlace)> = [(1, &a), (3, &merged)]
        .map(|(id, list)| (FileId(id), list.space().place().unwrap()))
        .into();
    let first = all.clone();
    all.extend(other);
    let pool = Arc::new(Pool::open_simulated(&world.sim.cut().killed(), UUID).unwrap());
    let mut chunks = Chunks::default();
    let found: Vec<FoundList> = places
        .iter()
        .map(|(id, place)| claim(&pool, *id, *place, &mut chunks).unwrap())
        .collect();
    drop(chunks);
    pool.finish_recovery().unwrap();
    pool.check().unwrap();
    assert_eq!(found[1].job.inputs, [FileId(1), FileId(2)]);
    let lists: Vec<Arc<List>> = found
        .into_iter()
        .map(|found| opened((found.space, found.totals)))
        .collect();
    check(&lists[0], &first);
    check(&lists[1], &all);
    for list in lists {
        let space = Arc::into_inner(list).unwrap().into_space();
        Arc::into_inner(space).unwrap().release().unwrap();
    }
    assert_eq!(pool.usage().live_total(), 0, "what nothing named was free");
}

#[test]
fn a_writer_that_fails_leaves_nothing() {
    let mut seed = Seed::new(4);
    let model = model(&mut seed, 2_000);
    let world = World::new(120 << 10);
    let options = world.options(1, ListJob::flush(FileId(1)));
    let mut writer = ListWriter::new(world.pool.clone(), options, None);
    let mut failed = None;
    for ((key, tag), value) in &model {
        if let Err(error) = writer.push(key, Tag(tag.0), value) {
            failed = Some(error.kind());
            break;
        }
    }
    assert_eq!(failed, Some(ErrorKind::NoSpace));
    drop(writer);
    assert_eq!(world.pool.usage().live_total(), 0);
    world.pool.check().unwrap();
}
