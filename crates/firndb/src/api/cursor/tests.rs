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
