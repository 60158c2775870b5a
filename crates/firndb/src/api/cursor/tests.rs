//! Cursors that are moved while states change, and over many versions.

use super::*;
use crate::Options;

/// Revokes while `iter` is being moved, as far as that can be observed, and moves it.
fn revoke_and_move(db: &Db, iter: &mut Cursor) {
    let shared = iter.pins.clone();
    let moving = shared.lock();
    db.engine.revoke_all_cursors();
    drop(moving);
    iter.next().unwrap();
}

#[test]
fn a_cursor_that_goes_on_lets_go_of_an_older_state_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::tiny()).unwrap();
    (0..9_u8).for_each(|i| db.put([i], [i]).unwrap());
    let mut iter = db.cursor().unwrap();
    iter.first().unwrap();
    let held = |iter: &Cursor| Arc::downgrade(&iter.pins.lock().as_ref().unwrap().state);
    let first = held(&iter);
    revoke_and_move(&db, &mut iter);
    assert!(first.ptr_eq(&held(&iter)), "it held what is there");
    db.put([3], [99]).unwrap();
    db.flush().unwrap();
    assert!(first.upgrade().is_some());
    revoke_and_move(&db, &mut iter);
    assert!(
        !first.ptr_eq(&held(&iter)),
        "somebody waits for what it held"
    );
    let rest: Vec<u8> = std::iter::from_fn(|| {
        let value = iter.valid().then(|| iter.value()[0])?;
        iter.next().unwrap();
        Some(value)
    })
    .collect();
    assert_eq!(
        rest,
        [2, 3, 4, 5, 6, 7, 8],
        "as of the time that it was made"
    );
}

/// A key with many versions costs a cursor one seek, not a step for each version: in both
/// directions, at the present and at a snapshot, with versions in a memtable and in tables.
#[test]
fn versions_of_a_key_are_passed_by_a_search() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(
        dir.path(),
        Options {
            write_buffer_bytes: Some(128 << 10),
            ..Options::tiny()
        },
    )
    .unwrap();
    let process = crate::WriteOptions::new().durability(crate::Durability::Process);
    let raise = |from: u32, to: u32| {
        for round in from..to {
            for key in [b"b", b"d", b"f"] {
                db.put_with(key, round.to_be_bytes(), &process).unwrap();
            }
            db.delete_with(b"c", &process).unwrap();
        }
    };
    for key in [b"a", b"c", b"e", b"g"] {
        db.put(key, b"once").unwrap();
    }
    let before = db.snapshot();
    raise(0, 200);
    let middle = db.snapshot();
    raise(200, 500);
    let entry = |key: &str, value: &[u8]| (key.as_bytes().to_vec(), value.to_vec());
    let at = |round: u32| {
        let raised = round.to_be_bytes();
        let entry = |key| entry(key, &raised);
        let once = |key| (key_of(key), b"once".to_vec());
        vec![
            once("a"),
            entry("b"),
            entry("d"),
            once("e"),
            entry("f"),
            once("g"),
        ]
    };
    let first = ["a", "c", "e", "g"]
        .map(|key| (key_of(key), b"once".to_vec()))
        .to_vec();
    let check = || {
        for (iter, want) in [
            (before.cursor().unwrap(), first.clone()),
            (middle.cursor().unwrap(), at(199)),
            (db.cursor().unwrap(), at(499)),
        ] {
            let (mut forward, mut backward) = (Vec::new(), Vec::new());
            let mut iter = iter;
            iter.first().unwrap();
            while iter.valid() {
                forward.push((iter.key().to_vec(), iter.value().to_vec()));
                iter.next().unwrap();
            }
            iter.last().unwrap();
            while iter.valid() {
                backward.push((iter.key().to_vec(), iter.value().to_vec()));
                iter.prev().unwrap();
            }
            backward.reverse();
            assert_eq!(forward, want);
            assert_eq!(backward, want);
        }
    };
    check();
    db.flush().unwrap();
    check();
}

fn key_of(key: &str) -> Vec<u8> {
    key.as_bytes().to_vec()
}

/// Cursors that mostly look at single entries find what a map has, wherever entries are, and as of
/// their read points, with moves in between.
#[test]
fn looks_at_single_entries_agree_with_a_map() {
    use firn_base::seed::Seed;
    use std::collections::BTreeMap;
    use std::ops::Bound;

    for profile in crate::Profile::ALL {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), Options::tiny().profile(profile)).unwrap();
        let process = crate::WriteOptions::new().durability(crate::Durability::Process);
        let mut model = BTreeMap::new();
        let mut seed = Seed::new(7);
        let mut looked = 0;
        for round in 0..60_u32 {
            for _ in 0..20 {
                let key = (2 * seed.below(200)).to_be_bytes();
                if seed.below(4) == 0 {
                    db.delete_with(key, &process).unwrap();
                    model.remove(&key);
                } else {
                    let value = round.to_be_bytes().repeat(30);
                    db.put_with(key, &value, &process).unwrap();
                    model.insert(key, value);
                }
            }
            if round % 4 == 0 {
                db.flush().unwrap();
            }
            let (low, high) = (20_u64.to_be_bytes(), 380_u64.to_be_bytes());
            let mut options = ReadOptions::default();
            (options.lower, options.upper) = (Some(low.to_vec()), Some(high.to_vec()));
            let mut cursor = db.cursor_with(options).unwrap();
            for _ in 0..40 {
                let key = seed.below(410).to_be_bytes();
                let is_back = seed.below(4) == 0;
                let mut expected = match is_back {
                    true => {
                        let end = if key < high {
                            Bound::Included(key)
                        } else {
                            Bound::Excluded(high)
                        };
                        let below = (key >= low).then(|| model.range((Bound::Included(low), end)));
                        cursor.seek_for_prev(key).unwrap();
                        below.and_then(|mut below| below.next_back())
                    }
                    false => {
                        let start = key.max(low);
                        cursor.seek(key).unwrap();
                        (start < high)
                            .then(|| model.range(start..high))
                            .and_then(|mut all| all.next())
                    }
                };
                looked += u32::from(db.engine.readers.looks.are_usual());
                let moves = if seed.below(8) == 0 { seed.below(4) } else { 0 };
                for step in 0..=moves {
                    let found = cursor.valid().then(|| (cursor.key(), cursor.value()));
                    let wanted = expected.map(|(key, value)| (&key[..], &value[..]));
                    assert_eq!(found, wanted, "{profile:?} round {round}");
                    let Some((at, _)) = expected.filter(|_| step < moves) else {
                        break;
                    };
                    expected = match seed.below(2) {
                        0 => {
                            cursor.next().unwrap();
                            model
                                .range((Bound::Excluded(*at), Bound::Excluded(high)))
                                .next()
                        }
                        _ => {
                            cursor.prev().unwrap();
                            model.range(low..*at).next_back()
                        }
                    };
                }
            }
        }
        assert!(looked > 1000, "{profile:?}: {looked}");
    }
}

/// A seek for a single entry reads no more than a get, and keeps its row.
#[test]
fn a_look_at_a_single_entry_reads_like_a_get() {
    let dir = tempfile::tempdir().unwrap();
    // The entries that are looked at fit into the cache, but their blocks do not.
    let db = Db::open(dir.path(), Options::tiny()).unwrap();
    let key = |i: u32| (i % 200 * 20).to_be_bytes();
    (0..4000_u32).for_each(|i| db.put(i.to_be_bytes(), [7; 100]).unwrap());
    db.compact().unwrap();
    let look = |i: u32| {
        let mut cursor = db.cursor().unwrap();
        cursor.seek(key(i)).unwrap();
        assert_eq!((cursor.key(), cursor.value()), (&key(i)[..], &[7; 100][..]));
    };
    // As often as it takes until such looks are usual.
    (0..20).for_each(look);
    let stats = || db.stats();
    let rows = |stats: &crate::Stats| {
        let hits = &stats.user.hits;
        hits.iter()
            .find(|(layer, _)| *layer == "rows")
            .map_or(0, |(_, hits)| *hits)
    };
    (0..400).for_each(look);
    let before = stats();
    (0..200).for_each(look);
    let after = stats();
    assert_eq!(
        after.memory.cache_misses, before.memory.cache_misses,
        "all are cached"
    );
    assert!(rows(&after) > rows(&before) + 190, "{:?}", after.user.hits);
}

/// A look that fails leaves the cursor on no entry, as every other move does.
#[test]
fn a_look_after_a_close_leaves_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::tiny()).unwrap();
    db.put(b"a", b"1").unwrap();
    let mut cursor = db.cursor().unwrap();
    (0..20).for_each(|_| cursor.seek(b"a").unwrap());
    assert!(cursor.valid() && db.engine.readers.looks.are_usual());
    db.close().unwrap();
    assert!(cursor.seek(b"a").is_err());
    assert!(!cursor.valid());
}
