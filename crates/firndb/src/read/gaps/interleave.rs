//! A put beside a cursor that walks over deleted keys around it and reports them.

use crate::interleave::{World, join, thread};
use crate::{Db, Durability, WriteOptions};
use firn_base::sync::explore;

const PROCESS: WriteOptions = WriteOptions::new().durability(Durability::Process);
/// Enough deleted keys on both sides of the one in the middle for a report.
const KEYS: u8 = 20;
const MIDDLE: u8 = 10;

fn deleted() -> Db {
    let db = World::new().open();
    (0..KEYS).for_each(|key| db.delete_with([key], &PROCESS).unwrap());
    db.put_with([KEYS], b"behind all", &PROCESS).unwrap();
    db
}

fn first(db: &Db) -> Vec<u8> {
    let mut iter = db.cursor().unwrap();
    iter.first().unwrap();
    iter.key().to_vec()
}

fn last_before_end(db: &Db) -> Vec<u8> {
    let mut iter = db.cursor().unwrap();
    iter.seek_for_prev([KEYS - 1]).unwrap();
    iter.key().to_vec()
}

/// A put is found by every later cursor, whatever gaps other cursors found and reported before.
fn put_beside_walks() {
    let db = deleted();
    let walker = {
        let db = db.clone();
        thread::spawn(move || {
            for _ in 0..2 {
                let _found = (first(&db), last_before_end(&db));
            }
        })
    };
    let writer = {
        let db = db.clone();
        thread::spawn(move || {
            db.put_with([MIDDLE], b"alive", &PROCESS).unwrap();
            assert_eq!(first(&db), [MIDDLE]);
            assert_eq!(last_before_end(&db), [MIDDLE]);
            db.delete_with([MIDDLE], &PROCESS).unwrap();
            assert_eq!(first(&db), [KEYS]);
            db.put_with([MIDDLE], b"again", &PROCESS).unwrap();
        })
    };
    join(vec![walker, writer]);
    assert_eq!(
        (first(&db), last_before_end(&db)),
        (vec![MIDDLE], vec![MIDDLE])
    );
}

#[test]
fn interleave_put_beside_walks_over_deleted_keys() {
    explore::random(put_beside_walks);
}
