//! Tests the trees against a sorted map, and checks their space usage and the detection of damage.

use super::*;
use firn_base::key::Kind;
use firn_base::seed::Seed;
use firn_base::{ErrorKind, FileId, Result, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{PmConfig, Pool};
use std::collections::BTreeMap;
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, (Tag, Option<ValueAddress>)>;

fn pool(bytes: u64) -> Arc<Pool> {
    let pool = Pool::open_or_create(&PmConfig::volatile(bytes), [3; 16]).unwrap();
    pool.finish_recovery().unwrap();
    Arc::new(pool)
}

fn address(seqno: u64) -> ValueAddress {
    ValueAddress {
        log_id: FileId(seqno >> 8),
        offset: seqno << 10,
        len: 1000 + seqno as u32 % 50,
    }
}

/// The value of `seqno`; every fifth is a delete.
fn value(seqno: u64) -> (Tag, Option<ValueAddress>) {
    match seqno % 5 {
        0 => (Tag::new(SeqNo(seqno), Kind::Delete), None),
        _ => (Tag::new(SeqNo(seqno), Kind::Pointer), Some(address(seqno))),
    }
}

/// Flushes `keys`; a later key replaces an equal earlier one.
fn flush(
    store: &TreeStore,
    view: &View,
    keys: &[Vec<u8>],
    next: &mut u64,
    model: &mut Model,
) -> Inserted {
    let mut buffer = Model::new();
    for key in keys {
        *next += 1;
        buffer.insert(key.clone(), value(*next));
    }
    let entries: Vec<Entry<'_>> = buffer
        .iter()
        .map(|(key, (tag, address))| Entry {
            key,
            tag: *tag,
            address: *address,
        })
        .collect();
    let mut replaced = Model::new();
    let inserted = store
        .insert(store.trees().mutable, view, &entries, &mut |old| {
            assert!(
                replaced
                    .insert(old.key.to_vec(), (old.tag, old.address))
                    .is_none()
            );
        })
        .unwrap();
    for (key, new) in buffer {
        assert_eq!(replaced.remove(&key), model.insert(key, new));
    }
    assert!(replaced.is_empty());
    inserted
}

/// Reads everything, in both directions.
fn contents(store: &Arc<TreeStore>, view: &View) -> Model {
    let mut iter = TreeIter::new(store.clone(), view.clone());
    let mut forward = Vec::new();
    iter.first().unwrap();
    while let Some(entry) = iter.entry() {
        forward.push((entry.key.to_vec(), (entry.tag, entry.address)));
        iter.next().unwrap();
    }
    let mut backward = Vec::new();
    iter.last().unwrap();
    while let Some(entry) = iter.entry() {
        backward.push((entry.key.to_vec(), (entry.tag, entry.address)));
        iter.prev().unwrap();
    }
    backward.reverse();
    assert_eq!(forward, backward);
    assert!(forward.is_sorted_by(|a, b| a.0 < b.0));
    forward.into_iter().collect()
}

fn recover(pool: &Arc<Pool>, leaf_bytes: u32) -> Result<Recovered> {
    let seen = Seen {
        evicted: &|_| false,
        entry: &mut |_, _| {},
        damage: &mut Err,
        hold: None,
    };
    Ok(TreeStore::recover(pool.clone(), leaf_bytes, seen)?.expect("a pool with trees"))
}

/// A key of a random kind: short or long, with a long or no common prefix.
fn random_key(seed: &mut Seed) -> Vec<u8> {
    match seed.below(8) {
        0 => vec![seed.below(256) as u8],
        1 => [vec![b'p'; 300], seed.below(1000).to_be_bytes().to_vec()].concat(),
        2 => vec![seed.below(3) as u8; 1 + seed.below(700) as usize],
        _ => seed.below(5000).to_be_bytes()[4..].to_vec(),
    }
}

#[test]
fn holds_what_a_sorted_map_holds_and_old_views_stay() {
    for round in 0..12u64 {
        let (pool, mut seed) = (pool(16 << 20), Seed::new(round));
        let leaf_bytes = [128, 256, 1024, 4096][round as usize % 4];
        let store = Arc::new(TreeStore::create(pool, 8 << 20, leaf_bytes).unwrap());
        let (mut view, mut model, mut next) = (View::default(), Model::new(), 0);
        let mut held = Vec::new();
        for _ in 0..8 {
            let keys: Vec<Vec<u8>> = (0..seed.below(400))
                .map(|_| random_key(&mut seed))
                .collect();
            let inserted = flush(&store, &view, &keys, &mut next, &mut model);
            held.push((view, model.clone(), inserted.replaced));
            view = inserted.view;
            assert_eq!(contents(&store, &view), model);
            assert_eq!(view.entries(), model.len() as u64);
            let mut iter = TreeIter::new(store.clone(), view.clone());
            for _ in 0..100 {
                let key = random_key(&mut seed);
                assert_eq!(store.get(&view, &key).unwrap(), model.get(&key).copied());
                iter.seek(&key).unwrap();
                assert_eq!(
                    iter.entry().map(|e| e.key),
                    model.range(key.clone()..).next().map(|(k, _)| k.as_slice())
                );
                iter.seek_for_prev(&key).unwrap();
                assert_eq!(
                    iter.entry().map(|e| e.key),
                    model.range(..=key).next_back().map(|(k, _)| k.as_slice())
                );
            }
        }
        for pair in held.windows(2) {
            assert_eq!(contents(&store, &pair[1].0), pair[0].1, "a view changed");
        }
        let report = store.verify(&view, &mut |error| panic!("{error}"));
        assert_eq!(
            (report.entries, report.leaves),
            (model.len() as u64, view.leaves() as u64)
        );
        held.into_iter()
            .for_each(|(_, _, replaced)| store.release(&replaced));
        let taken = |place: Place| u64::from(place.units()) * layout::UNIT_BYTES;
        assert_eq!(
            store.usage().used_bytes,
            view.places().map(taken).sum::<u64>()
        );
        assert_eq!(store.usage().used_slots, view.leaves() as u64);
    }
}

/// At most key + 24 bytes per entry for random arrival, including all slack and words.
#[test]
fn lab_02_an_entry_takes_its_key_and_little_more() {
    for key_bytes in [8, 16, 32] {
        let store = TreeStore::create(pool(64 << 20), 48 << 20, 1024).unwrap();
        let (mut view, mut model, mut next, mut seed) =
            (View::default(), Model::new(), 1 << 40, Seed::new(9));
        for _ in 0..12 {
            let keys: Vec<Vec<u8>> = (0..8000)
                .map(|_| [seed.below(u64::MAX).to_be_bytes(); 4].concat()[..key_bytes].to_vec())
                .collect();
            let inserted = flush(&store, &view, &keys, &mut next, &mut model);
            store.release(&inserted.replaced);
            view = inserted.view;
        }
        let usage = store.usage();
        let words = usage.slots * layout::WORD_BYTES * usage.used_bytes / usage.region_bytes;
        let each = (usage.used_bytes + words) as f64 / model.len() as f64;
        println!(
            "keys of {key_bytes} bytes: {each:.1} bytes an entry, {} leaves",
            view.leaves()
        );
        assert!(
            each <= key_bytes as f64 + 24.0,
            "{each} bytes for keys of {key_bytes}"
        );
    }
}

/// The longest possible keys, and keys that are prefixes of one another.
#[test]
fn long_keys_and_long_prefixes() {
    let store = Arc::new(TreeStore::create(pool(64 << 20), 32 << 20, 1024).unwrap());
    let (mut model, mut next) = (Model::new(), 0);
    let mut keys: Vec<Vec<u8>> = (0..40u8)
        .map(|n| [vec![b'z'; 65_534], vec![n]].concat())
        .collect();
    keys.extend((1..300).map(|n| vec![b'y'; n * 200]));
    let inserted = flush(&store, &View::default(), &keys, &mut next, &mut model);
    let again = flush(&store, &inserted.view, &keys[7..30], &mut next, &mut model);
    store.release(&again.replaced);
    assert_eq!(contents(&store, &again.view), model);
    assert!(again.view.leaves() > 5);
    store.verify(&again.view, &mut |error| panic!("{error}"));
}

#[test]
fn a_full_region_refuses_and_nothing_has_changed() {
    let store = Arc::new(TreeStore::create(pool(1 << 20), 64 << 10, 256).unwrap());
    let (mut view, mut model) = (View::default(), Model::new());
    let (tag, address) = value(1);
    for n in (0..).step_by(100) {
        let keys: Vec<Vec<u8>> = (n..n + 100u64)
            .map(|n| [n.to_be_bytes(); 4].concat())
            .collect();
        let entries: Vec<Entry<'_>> = keys.iter().map(|key| Entry { key, tag, address }).collect();
        let before = store.usage();
        match store.insert(1, &view, &entries, &mut |_| {}) {
            Ok(inserted) => {
                store.release(&inserted.replaced);
                view = inserted.view;
                model.extend(keys.into_iter().map(|key| (key, (tag, address))));
            }
            Err(error) => {
                assert_eq!((error.kind(), store.usage()), (ErrorKind::NoSpace, before));
                break;
            }
        }
    }
    assert!(model.len() > 500);
    assert_eq!(contents(&store, &view), model);
}

#[test]
fn trees_change_places_and_come_back() {
    let pool = pool(4 << 20);
    let store = Arc::new(TreeStore::create(pool.clone(), 1 << 20, 256).unwrap());
    let (mut model, mut newer, mut next) = (Model::new(), Model::new(), 0);
    let keys: Vec<Vec<u8>> = (0..500u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let old = flush(&store, &View::default(), &keys, &mut next, &mut model).view;
    assert_eq!(
        store.rotate().unwrap(),
        Trees {
            mutable: 2,
            immutable: Some(1)
        }
    );
    assert_eq!(store.rotate().unwrap_err().kind(), ErrorKind::Invalid);
    let new = flush(&store, &View::default(), &keys[..50], &mut next, &mut newer).view;
    let edge = old.first_leaves(200).unwrap().1.unwrap();
    let (left, gone) = old.without(|bound| bound < edge.as_slice());
    assert!(gone.len() > 3);
    store.remove(&gone[..2]).unwrap();
    store.release(&gone[..2]);

    let mut seen = Vec::new();
    let evicted = |bound: &[u8]| bound < edge.as_slice();
    let told = Seen {
        evicted: &evicted,
        entry: &mut |e, of_old| seen.push((e.key.to_vec(), of_old)),
        damage: &mut Err,
        hold: None,
    };
    let recovered = TreeStore::recover(pool.clone(), 256, told)
        .unwrap()
        .unwrap();
    assert_eq!(recovered.swept, gone.len() - 2);
    let again = Arc::new(recovered.store);
    assert_eq!(contents(&again, &recovered.mutable), newer);
    assert_eq!(
        contents(&again, recovered.immutable.as_ref().unwrap()),
        contents(&store, &left)
    );
    assert_eq!(
        seen.len() as u64,
        recovered.mutable.entries() + left.entries()
    );
    assert_eq!(contents(&again, &new), newer);

    assert_eq!(
        again.end_immutable().unwrap(),
        Trees {
            mutable: 2,
            immutable: None
        }
    );
    let recovered = recover(&pool, 256).unwrap();
    assert_eq!(
        (recovered.immutable.is_none(), recovered.swept),
        (true, left.leaves())
    );
}

#[test]
fn damage_is_told_and_may_be_left_out() {
    let sim = SimRegion::new(256 << 10, Mode::Adr);
    let pool = Arc::new(Pool::open_simulated(&sim, [3; 16]).unwrap());
    pool.finish_recovery().unwrap();
    let store = TreeStore::create(pool.clone(), 64 << 10, 256).unwrap();
    let (mut model, mut next) = (Model::new(), 0);
    let keys: Vec<Vec<u8>> = (0..60u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let view = flush(&store, &View::default(), &keys, &mut next, &mut model).view;
    let (places, (region, directory)) = (
        view.places().collect::<Vec<_>>(),
        (store.region, store.directory),
    );
    drop((store, pool));
    let leaf_at = region.offset.get() + u64::from(places[1].unit) * layout::UNIT_BYTES;
    let word_at = directory.offset.get() + u64::from(places[1].slot) * layout::WORD_BYTES;
    let other = places[2].word().to_le_bytes();
    let damages: [(u64, &[u8]); 5] = [
        (leaf_at + 60, b"\x55"),
        (leaf_at + 4, &u32::MAX.to_le_bytes()),
        (word_at, &[0xFF; 8]),
        (word_at, &[0, 0, 0, 0, 1]),
        (word_at, &other),
    ];
    for (at, bytes) in damages {
        let mut image = sim.durable();
        image[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        let sim = SimRegion::from_image(image, Mode::Adr);
        let open = || {
            let pool = Arc::new(Pool::open_simulated(&sim, [3; 16]).unwrap());
            pool.finish_recovery().unwrap();
            pool
        };
        let error = recover(&open(), 256).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Corruption && error.to_string().contains("B+ trees"),
            "{error}"
        );
        let mut lost = 0;
        let damage = &mut |_| {
            lost += 1;
            Ok(())
        };
        let seen = Seen {
            evicted: &|_| false,
            entry: &mut |_, _| {},
            damage,
            hold: None,
        };
        let saved = TreeStore::recover(open(), 256, seen).unwrap().unwrap();
        assert_eq!((lost, saved.mutable.leaves()), (1, places.len() - 1));
        let after = recover(&open(), 256).unwrap();
        assert_eq!(
            contents(&Arc::new(after.store), &after.mutable).len(),
            saved.mutable.entries() as usize
        );
    }
}

/// The session ends while a leaf is being split, and the right half is evicted already. Its entries
/// in the left half must not reappear.
#[test]
fn a_cut_that_did_not_end_brings_nothing_back() {
    let pool = pool(1 << 20);
    let store = Arc::new(TreeStore::create(pool.clone(), 64 << 10, 512).unwrap());
    let key = |n: u8| vec![b'k', n];
    let (tag, address) = value(1);
    let keys: Vec<Vec<u8>> = (0..20).map(key).collect();
    let entries: Vec<Entry<'_>> = keys.iter().map(|key| Entry { key, tag, address }).collect();
    let whole = store
        .insert(1, &View::default(), &entries, &mut |_| {})
        .unwrap()
        .view;
    assert_eq!(whole.leaves(), 1);
    // Only the right part of the split.
    let mut gathered = write::Gathered::default();
    entries[10..].iter().for_each(|entry| gathered.push(entry));
    let mut step = store.begin();
    step.put(1, vec![gathered.encode(0..10, &key(10))], None)
        .unwrap();
    step.commit().unwrap();
    store.rotate().unwrap();

    let told = &mut 0;
    let evicted = |bound: &[u8]| bound == key(10);
    let seen = Seen {
        evicted: &evicted,
        entry: &mut |_, _| *told += 1,
        damage: &mut Err,
        hold: None,
    };
    let recovered = TreeStore::recover(pool.clone(), 512, seen)
        .unwrap()
        .unwrap();
    let left = recovered.immutable.unwrap();
    assert_eq!((*told, recovered.swept, left.entries()), (10, 1, 10));
    let again = recover(&pool, 512).unwrap();
    assert_eq!(
        contents(&Arc::new(again.store), &again.immutable.unwrap())
            .into_keys()
            .collect::<Vec<_>>(),
        keys[..10]
    );
}

#[test]
fn entries_below_the_first_leaf_and_in_it_at_once() {
    let store = Arc::new(TreeStore::create(pool(1 << 20), 64 << 10, 512).unwrap());
    let entry = |key: &'static str| Entry {
        key: key.as_bytes(),
        tag: value(1).0,
        address: value(1).1,
    };
    let mut gathered = write::Gathered::default();
    gathered.push(&entry("m"));
    let mut step = store.begin();
    let places = step
        .put(1, vec![gathered.encode(0..1, b"m")], None)
        .unwrap();
    step.commit().unwrap();
    let view = View::new(&[(b"m".to_vec(), places[0])]);
    let inserted = store
        .insert(1, &view, &[entry("a"), entry("b"), entry("z")], &mut |_| {})
        .unwrap();
    let keys: Vec<Vec<u8>> = contents(&store, &inserted.view).into_keys().collect();
    assert_eq!(keys, [b"a", b"b", b"m", b"z"]);
}
