//! Write buffers of partitions in persistent memory: batches over several of them, while they are
//! flushed, and readers of all kinds.

use super::engine::PROCESS;
use super::{World, join, spawner};
use crate::{Db, WriteBatch};
use firn_base::seed::Seed;
use firn_base::sync::explore;
use firn_pm::sim::{Mode, SimRegion};
use std::sync::Arc;

/// Keys of different partitions, which every batch writes together.
const KEYS: [&[u8]; 2] = [b"a", b"z"];

struct Story {
    db: Db,
}

impl Story {
    /// A database with several partitions, and version 1 of both keys.
    fn new(db: Db) -> Arc<Story> {
        for at in 0..24_u8 {
            let mut value = [0; 3000];
            Seed::new(u64::from(at)).fill(&mut value);
            db.put_with([b'b' + at], value, &PROCESS).unwrap();
        }
        db.compact().unwrap();
        db.wait_idle().unwrap();
        let partitions = db.stats().partitions.len();
        assert!(partitions > 1, "{partitions} partitions");
        let story = Story { db };
        story.write(1);
        Arc::new(story)
    }

    fn write(&self, version: u8) {
        let mut batch = WriteBatch::new();
        for key in KEYS {
            batch.put(key, [version; 60]);
        }
        self.db.write(&batch, &PROCESS).unwrap();
    }

    /// Both keys are of one version, and none is older than `least`.
    fn check(found: [Option<&[u8]>; 2], least: u8) -> u8 {
        let versions = found.map(|value| value.expect("a key that was written is there")[0]);
        assert_eq!(versions[0], versions[1], "half of a batch was seen");
        assert!(versions[0] >= least, "{versions:?} after {least}");
        versions[0]
    }

    fn read_together(&self) {
        let mut least = 1;
        for _ in 0..3 {
            let both = self.db.multi_get(&KEYS).unwrap();
            least = Self::check([both[0].as_deref(), both[1].as_deref()], least);
        }
    }

    fn read_a_snapshot(&self) {
        let snapshot = self.db.snapshot();
        let read = |least| {
            let both = KEYS.map(|key| snapshot.get(key).unwrap());
            Self::check([both[0].as_deref(), both[1].as_deref()], least)
        };
        let version = read(1);
        assert_eq!(read(1), version);
    }

    fn walk(&self) {
        let mut cursor = self.db.cursor().unwrap();
        cursor.first().unwrap();
        assert_eq!(cursor.key(), KEYS[0]);
        let first = cursor.value().to_vec();
        cursor.last().unwrap();
        assert_eq!(cursor.key(), KEYS[1]);
        Self::check([Some(&first), Some(cursor.value())], 1);
    }
}

/// Batches over two partitions, beside writes into one and a flush of all buffers. Every reader
/// sees a batch as a whole, and so does an open after the end.
#[test]
fn batches_over_partitions_beside_a_flush() {
    explore::random(|| {
        let (world, memory) = (World::new(), SimRegion::new(512 << 10, Mode::Adr));
        let story = Story::new(world.open_pmdb(&memory));
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| (2..4).for_each(|version| story.write(version))),
            spawn(|story| {
                for at in 0..2_u8 {
                    story.db.put_with([b'y'], [at; 60], &PROCESS).unwrap();
                }
            }),
            spawn(|story| story.db.flush().unwrap()),
            spawn(Story::read_together),
            spawn(Story::read_a_snapshot),
            spawn(Story::walk),
        ];
        join(threads);
        story.db.verify().unwrap();
        drop((story, spawn));
        let again = world.open_pmdb(&memory);
        let both = again.multi_get(&KEYS).unwrap();
        let version = Story::check([both[0].as_deref(), both[1].as_deref()], 3);
        assert_eq!(version, 3);
        assert_eq!(again.get([b'y']).unwrap().unwrap()[0], 1);
        again.verify().unwrap();
    });
}

/// Several threads look into a buffer that an open found, whose list nobody made yet.
#[test]
fn a_list_is_made_once_beside_readers_and_writers() {
    explore::random(|| {
        let (world, memory) = (World::new(), SimRegion::new(512 << 10, Mode::Adr));
        drop(Story::new(world.open_pmdb(&memory)));
        let story = Arc::new(Story {
            db: world.open_pmdb(&memory),
        });
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| story.write(2)),
            spawn(Story::read_together),
            spawn(Story::walk),
            spawn(|story| story.db.flush().unwrap()),
        ];
        join(threads);
        let both = story.db.multi_get(&KEYS).unwrap();
        Story::check([both[0].as_deref(), both[1].as_deref()], 2);
        story.db.verify().unwrap();
    });
}
