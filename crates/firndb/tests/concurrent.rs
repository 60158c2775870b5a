//! Readers beside writers: batches are atomic at every moment, and every thread reads its own
//! writes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use firn_base::seed::Seed;
use firndb::{Db, Durability, Options, WriteBatch, WriteOptions};
use std::sync::atomic::{AtomicBool, Ordering};

const KEYS: u64 = 8;

fn key(i: u64) -> Vec<u8> {
    format!("account/{i}").into_bytes()
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// Transfers between accounts, each in a batch that preserves the sum. Values are padded so that
/// memtables and levels turn over.
fn transfer(db: &Db, seed: &mut Seed, lock: &std::sync::Mutex<()>) {
    let _one = lock.lock().unwrap();
    let (from, to) = (seed.below(KEYS), seed.below(KEYS));
    let amount = seed.below(100) as i64;
    let balance = |i| number(&db.get(key(i)).unwrap().unwrap());
    let mut batch = WriteBatch::new();
    let mut put = |i: u64, amount: i64| {
        let mut value = amount.to_be_bytes().to_vec();
        value.resize(100 + seed.below(100) as usize, 0);
        batch.put(key(i), value);
    };
    if from != to {
        put(from, balance(from) - amount);
        put(to, balance(to) + amount);
    }
    let durability = if amount % 10 == 0 {
        Durability::Power
    } else {
        Durability::Process
    };
    db.write(&batch, &WriteOptions::new().durability(durability))
        .unwrap();
}

#[test]
fn the_sum_never_changes() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::tiny()).unwrap();
    for i in 0..KEYS {
        db.put(key(i), 1000i64.to_be_bytes()).unwrap();
    }
    let total = 1000 * KEYS as i64;
    let (stop, lock) = (AtomicBool::new(false), std::sync::Mutex::new(()));
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let mut checks = 0;
                while !stop.load(Ordering::Relaxed) || checks < 10 {
                    let sum: i64 = if reader == 0 {
                        db.iter().map(|e| number(&e.unwrap().1)).sum()
                    } else {
                        let keys: Vec<_> = (0..KEYS).map(key).collect();
                        db.multi_get(&keys)
                            .unwrap()
                            .into_iter()
                            .map(|v| number(&v.unwrap()))
                            .sum()
                    };
                    assert_eq!(sum, total, "reader {reader}");
                    checks += 1;
                }
            });
        }
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let (db, lock) = (&db, &lock);
                scope.spawn(move || {
                    let mut seed = Seed::new(thread);
                    for _ in 0..3000 {
                        transfer(db, &mut seed, lock);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    db.verify().unwrap();
}

#[test]
fn own_writes_are_read_by_many_threads() {
    const THREADS: u64 = 6;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::tiny()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                for i in 0..2000u64 {
                    let key = [thread.to_be_bytes(), (i % 300).to_be_bytes()].concat();
                    let durability = if i % 50 == 0 {
                        Durability::Power
                    } else {
                        Durability::Process
                    };
                    db.put_with(
                        &key,
                        i.to_be_bytes(),
                        &WriteOptions::new().durability(durability),
                    )
                    .unwrap();
                    assert_eq!(db.get(&key).unwrap().unwrap(), i.to_be_bytes());
                }
            });
        }
    });
    assert_eq!(db.iter().count() as u64, THREADS * 300);
    assert_eq!(db.stats().user.writes, THREADS * 2000);
}
