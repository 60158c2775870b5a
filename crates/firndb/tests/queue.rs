//! A queue in the store: filled at one end, emptied at the other by a cursor and a delete. Reading
//! its head does not walk over the entries removed before.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{Model, PROCESS, entry, is_ci};
use firndb::{Cursor, Db, Options, Profile, ReadOptions, Snapshot, WriteBatch};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

/// xorshift64*: the test's own random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes()[5..].to_vec()
}

fn owned(entry: Option<(&Vec<u8>, &Vec<u8>)>) -> Option<(Vec<u8>, Vec<u8>)> {
    entry.map(|(key, value)| (key.clone(), value.clone()))
}

/// Moves a cursor at random and compares each position with the model's.
fn compare(
    mut iter: Cursor,
    model: &Model,
    dice: &mut Dice,
    keys: u64,
    bounds: &(Option<Vec<u8>>, Option<Vec<u8>>),
) {
    let lower = bounds.0.clone().map_or(Bound::Unbounded, Bound::Included);
    let upper = bounds.1.clone().map_or(Bound::Unbounded, Bound::Excluded);
    let is_empty = matches!(bounds, (Some(from), Some(to)) if from >= to);
    let within: Model = match is_empty {
        true => Model::new(),
        false => model
            .range((lower, upper))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    };
    for _ in 0..6 {
        let target = key(dice.below(keys));
        let found = match dice.below(4) {
            0 => {
                iter.first().unwrap();
                within.first_key_value()
            }
            1 => {
                iter.last().unwrap();
                within.last_key_value()
            }
            2 => {
                iter.seek(&target).unwrap();
                within.range(target..).next()
            }
            _ => {
                iter.seek_for_prev(&target).unwrap();
                within.range(..=target).next_back()
            }
        };
        let mut expected = owned(found);
        for _ in 0..4 {
            assert_eq!(entry(&iter), expected);
            let Some((here, _)) = &expected else { break };
            expected = match dice.below(2) {
                0 => {
                    let next = within
                        .range((Bound::Excluded(here.clone()), Bound::Unbounded))
                        .next();
                    iter.next().unwrap();
                    owned(next)
                }
                _ => {
                    let before = within.range(..here.clone()).next_back();
                    iter.prev().unwrap();
                    owned(before)
                }
            };
        }
    }
}

/// Ranges of keys come and go, so most cursors cross gaps, in the current state and at snapshots.
fn live(seed: u64, profile: Profile) {
    const KEYS: u64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::tiny().profile(profile)).unwrap();
    let mut dice = Dice(seed * 2 + 1);
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for round in 0..400_u64 {
        let (from, many) = (dice.below(KEYS), dice.below(60));
        match dice.below(10) {
            0..=2 => {
                for number in from..(from + many).min(KEYS) {
                    db.delete_with(key(number), &PROCESS).unwrap();
                    model.remove(&key(number));
                }
            }
            3..=5 => {
                let mut batch = WriteBatch::new();
                for number in from..(from + many / 8).min(KEYS) {
                    batch.put(key(number), round.to_be_bytes());
                    model.insert(key(number), round.to_be_bytes().to_vec());
                }
                db.write(&batch, &PROCESS).unwrap();
            }
            6 => {
                db.put_with(key(from), round.to_be_bytes(), &PROCESS)
                    .unwrap();
                model.insert(key(from), round.to_be_bytes().to_vec());
            }
            7 if snapshots.len() < 3 => snapshots.push((db.snapshot(), model.clone())),
            7 => drop(snapshots.remove(dice.below(3) as usize)),
            8 if round.is_multiple_of(3) => db.flush().unwrap(),
            _ => {}
        }
        let mut bound = || (dice.below(3) == 0).then(|| key(dice.below(KEYS)));
        let bounds = (bound(), bound());
        let (lower, upper) = bounds.clone();
        compare(
            db.cursor_with(ReadOptions {
                lower,
                upper,
                snapshot: None,
            })
            .unwrap(),
            &model,
            &mut dice,
            KEYS,
            &bounds,
        );
        if let Some((snapshot, model)) = snapshots.first() {
            compare(
                snapshot.cursor().unwrap(),
                model,
                &mut dice,
                KEYS,
                &(None, None),
            );
        }
    }
}

#[test]
fn cursors_that_go_past_gaps_see_what_the_model_has() {
    let seeds = if is_ci() { 40 } else { 6 };
    for seed in 0..seeds {
        live(seed, Profile::ALL[seed as usize % Profile::ALL.len()]);
    }
}

/// Producers and one consumer run concurrently. All pushed entries are popped exactly once, those
/// of each producer in order.
#[test]
fn a_queue_beside_producers_loses_nothing() {
    const EACH: u64 = 3000;
    const PRODUCERS: u64 = 2;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let tail = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (db, tail) = (&db, &tail);
            scope.spawn(move || {
                for number in 0..EACH {
                    let place = tail.fetch_add(1, Ordering::SeqCst);
                    let value = [producer.to_be_bytes(), number.to_be_bytes()].concat();
                    db.put_with(place.to_be_bytes(), value, &PROCESS).unwrap();
                }
            });
        }
        let mut popped = [0; PRODUCERS as usize];
        while popped.iter().sum::<u64>() < PRODUCERS * EACH {
            let mut iter = db.cursor().unwrap();
            iter.first().unwrap();
            if !iter.valid() {
                std::thread::yield_now();
                continue;
            }
            let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
            let (producer, number) = (word(&iter.value()[..8]), word(&iter.value()[8..]));
            assert_eq!(number, popped[producer as usize], "producer {producer}");
            popped[producer as usize] += 1;
            db.delete_with(iter.key(), &PROCESS).unwrap();
        }
    });
    let mut iter = db.cursor().unwrap();
    iter.first().unwrap();
    assert!(!iter.valid());
}

/// The bytes and entries of tables fall to almost nothing without a requested compaction, because a
/// flush drops tombstones that hide nothing.
#[test]
fn a_short_queue_leaves_nothing_in_tables() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::tiny().write_buffer_bytes(Some(128 << 10));
    let db = Db::open(dir.path(), options).unwrap();
    for number in 0..20_000_u64 {
        db.put_with(number.to_be_bytes(), [7; 20], &PROCESS)
            .unwrap();
        if number >= 5 {
            db.delete_with((number - 5).to_be_bytes(), &PROCESS)
                .unwrap();
        }
    }
    db.flush().unwrap();
    let stats = db.stats();
    let entries: u64 = stats.levels.iter().map(|level| level.entries).sum();
    assert!(entries < 500, "{entries} entries in tables for 5 that live");
}
