//! The whole engine: writers, readers, snapshots and cursors, while memtables are flushed and
//! tables compacted.
//!
//! Keys have versions that only grow, so a reader knows the oldest version that it may see.

use super::{World, join, spawner, thread};
use crate::{Cursor, Db, Durability, ReadOptions, WriteBatch, WriteOptions};
use firn_base::sync::{AtomicU64, Ordering, explore};
use firn_pm::sim::{Mode, SimRegion};
use std::sync::Arc;
use std::time::Duration;

const POWER: WriteOptions = WriteOptions::new().durability(Durability::Power);
pub(super) const PROCESS: WriteOptions = WriteOptions::new().durability(Durability::Process);

/// One key per writer, and the last acknowledged version of each.
pub(super) struct Story {
    pub(super) db: Db,
    acknowledged: [AtomicU64; 2],
}

impl Story {
    fn new(db: Db) -> Arc<Story> {
        let story = Arc::new(Story {
            db,
            acknowledged: Default::default(),
        });
        (0..2).for_each(|writer| story.write(writer, 1, &PROCESS));
        story
    }

    /// Each key in a table of its own, or in a log of its own in profile `lab`.
    pub(super) fn with_tables(db: Db) -> Arc<Story> {
        let story = Arc::new(Story {
            db,
            acknowledged: Default::default(),
        });
        for writer in 0..2 {
            story.write(writer, 1, &PROCESS);
            story.db.flush().unwrap();
            story.db.wait_idle().unwrap();
        }
        story
    }

    pub(super) fn key(writer: usize) -> Vec<u8> {
        vec![b'a' + writer as u8]
    }

    pub(super) fn write(&self, writer: usize, version: u64, options: &WriteOptions) {
        self.write_sized(writer, version, 400, options);
    }

    fn write_sized(&self, writer: usize, version: u64, len: usize, options: &WriteOptions) {
        let mut value = version.to_be_bytes().to_vec();
        value.resize(len, 0);
        self.db.put_with(Self::key(writer), value, options).unwrap();
        self.acknowledged[writer].store(version, Ordering::SeqCst);
    }

    pub(super) fn version(value: &[u8]) -> u64 {
        u64::from_be_bytes(value[..8].try_into().unwrap())
    }

    pub(super) fn least(&self) -> [u64; 2] {
        [0, 1].map(|writer| self.acknowledged[writer].load(Ordering::SeqCst))
    }

    pub(super) fn get(&self, writer: usize) -> u64 {
        let least = self.acknowledged[writer].load(Ordering::SeqCst);
        let found = Self::version(
            &self
                .db
                .get(Self::key(writer))
                .unwrap()
                .expect("a key that was written is there"),
        );
        assert!(
            found >= least,
            "read version {found} after {least} was acknowledged"
        );
        found
    }

    pub(super) fn get_often(&self, writer: usize) {
        let found: Vec<u64> = (0..4).map(|_| self.get(writer)).collect();
        assert!(found.is_sorted(), "time does not go back: {found:?}");
    }

    /// The contents of a snapshot do not change, whatever is dropped below.
    pub(super) fn snapshot(&self) {
        let least = self.least();
        let snapshot = self.db.snapshot();
        let read = || {
            [0, 1].map(|writer| {
                Self::version(&snapshot.get(Self::key(writer)).unwrap().expect("is there"))
            })
        };
        let first = read();
        assert!(
            first[0] >= least[0] && first[1] >= least[1],
            "{first:?} {least:?}"
        );
        let entries = snapshot
            .iter()
            .map(|entry| Self::version(&entry.unwrap().1));
        assert_eq!(entries.collect::<Vec<_>>(), first);
        assert_eq!(read(), first);
    }

    /// A cursor in both directions, with as many pauses as the scheduler inserts.
    pub(super) fn walk(&self) {
        let mut iter = self.db.cursor_with(ReadOptions::default()).unwrap();
        iter.first().unwrap();
        let first = Self::version(iter.value());
        iter.next().unwrap();
        assert_eq!(iter.key(), Self::key(1));
        let second = Self::version(iter.value());
        iter.prev().unwrap();
        assert_eq!(
            (iter.key(), Self::version(iter.value())),
            (&Self::key(0)[..], first)
        );
        iter.last().unwrap();
        assert_eq!(Self::version(iter.value()), second);
        iter.next().unwrap();
        assert!(!iter.valid());
    }
}

/// Writers that fill memtables, a flush, a compaction, a reader and a snapshot. Then a reopen, with
/// everything that was acknowledged.
#[test]
fn readers_beside_flush_and_merge() {
    explore::random(|| {
        let world = World::new();
        let story = Story::new(world.open());
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| (2..5).for_each(|version| story.write(0, version, &PROCESS))),
            spawn(|story| (2..4).for_each(|version| story.write(1, version, &POWER))),
            spawn(|story| {
                story.db.flush().unwrap();
                story.db.compact().unwrap();
            }),
            spawn(|story| {
                let first = story.get(0);
                let both = story.db.multi_get(&[Story::key(0), Story::key(1)]).unwrap();
                assert!(Story::version(both[0].as_ref().unwrap()) >= first);
            }),
            spawn(Story::snapshot),
        ];
        join(threads);
        assert_eq!(story.least(), [4, 3]);
        assert_eq!([story.get(0), story.get(1)], [4, 3]);
        drop((story, spawn));
        let again = world.open();
        assert_eq!(Story::version(&again.get(b"a").unwrap().unwrap()), 4);
        assert_eq!(Story::version(&again.get(b"b").unwrap().unwrap()), 3);
        again.verify().unwrap();
    });
}

/// One key is overwritten in the memtable that is about to be flushed, while the older version is
/// being read.
#[test]
fn a_flush_keeps_what_is_read() {
    explore::random(|| {
        let story = Story::new(World::new().open());
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| {
                story.write(0, 2, &PROCESS);
                story.db.flush().unwrap();
            }),
            spawn(|story| story.get_often(0)),
            spawn(|story| {
                let least = story.acknowledged[0].load(Ordering::SeqCst);
                let snapshot = story.db.snapshot();
                let read =
                    || Story::version(&snapshot.get(Story::key(0)).unwrap().expect("is there"));
                let first = read();
                assert!(first >= least);
                assert_eq!(read(), first);
            }),
        ];
        join(threads);
        assert_eq!(story.get(0), 2);
    });
}

/// Tables are compacted and removed under readers that have not opened them yet, or have closed
/// them.
#[test]
fn a_merge_keeps_the_tables_that_are_read() {
    explore::random(|| {
        let story = Story::new(World::new().open());
        story.db.flush().unwrap();
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| {
                story.write(0, 2, &PROCESS);
                story.db.compact().unwrap();
            }),
            spawn(|story| story.get_often(1)),
            spawn(Story::walk),
        ];
        join(threads);
    });
}

/// Cursors whose pins are revoked between two moves, in the middle of one, or not at all.
#[test]
fn a_cursor_without_its_pins_goes_on() {
    explore::random(|| {
        let world = World::new();
        let story = Story::new(world.open());
        let (walker, writer) = (story.clone(), story.clone());
        let walks = thread::spawn(move || (0..3).for_each(|_| walker.walk()));
        writer.write(0, 2, &PROCESS);
        writer.db.flush().unwrap();
        for _ in 0..3 {
            world.clock.advance(Duration::from_secs(3));
            world.background.step();
        }
        walks.join().unwrap();
    });
}

/// A worker that sleeps, writers that fill all memtables, and a thread that waits for a flush: all
/// are woken in time. No wait times out under the scheduler, so a thread that is not woken hangs.
#[test]
fn who_waits_is_woken() {
    explore::random(|| {
        let story = Story::new(World::new().open_with_worker());
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| (2..28).for_each(|version| story.write(0, version, &PROCESS))),
            spawn(|story| (2..6).for_each(|version| story.write(1, version, &PROCESS))),
            spawn(|story| story.db.flush().unwrap()),
            spawn(|story| {
                story.db.compact().unwrap();
                story.db.wait_idle().unwrap();
            }),
        ];
        join(threads);
        assert_eq!([story.get(0), story.get(1)], [27, 5]);
    });
}

/// Writers claim memory while what is idle is lent to the block cache, and while memtables are
/// flushed and their memory is used again. In the end all that they take is counted.
#[test]
fn idle_memory_is_lent_and_comes_back() {
    explore::random(|| {
        let world = World::new();
        let story = Story::new(world.open());
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| (2..6).for_each(|version| story.write(0, version, &PROCESS))),
            spawn(|story| {
                story.write(1, 2, &PROCESS);
                story.db.flush().unwrap();
                story.write(1, 3, &PROCESS);
            }),
            spawn(|story| (0..12).for_each(|tick| story.db.engine.lend_idle_memory(tick))),
        ];
        join(threads);
        assert_eq!([story.get(0), story.get(1)], [5, 3]);
        story.db.wait_idle().unwrap();
        let engine = &story.db.engine;
        engine.remove_obsolete(true);
        engine.lend_idle_memory(100);
        let state = engine.state.load();
        let taken: usize = state
            .memtables
            .iter()
            .map(|memtable| memtable.dram_bytes())
            .sum();
        let of_jobs = engine.budget.job_bytes;
        assert_eq!(engine.tables.buffer_bytes(), taken as u64 + of_jobs);
    });
}

/// One table is compacted into two below it, which grow. Two workers share the sub-tasks, while
/// readers read the tables and a checkpoint copies them.
#[test]
fn sub_tasks_beside_readers() {
    explore::random(|| {
        let world = World::new();
        let story = Story::with_tables(world.open_with_growing_tables());
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| {
                (0..2).for_each(|writer| story.write_sized(writer, 2, 8, &PROCESS));
                story.db.flush().unwrap();
                story.db.wait_idle().unwrap();
            }),
            spawn(|story| story.get_often(0)),
            spawn(Story::walk),
            spawn(|story| story.db.checkpoint("copy").unwrap()),
        ];
        join(threads);
        assert_eq!([story.get(0), story.get(1)], [2, 2]);
        assert!(story.db.stats().background.sub_tasks >= 2);
        story.db.verify().unwrap();
    });
}

/// Rows of keys below the memtables are kept by gets while flushes replace them. No reader inserts
/// an old one, and none sees one half of a batch.
#[test]
fn rows_follow_flushes() {
    explore::random(|| {
        let story = Story::with_tables(World::new().open());
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| {
                for version in 2_u64..4 {
                    let mut batch = WriteBatch::new();
                    (0..2).for_each(|writer| {
                        _ = batch.put(Story::key(writer), version.to_be_bytes())
                    });
                    story.db.write(&batch, &PROCESS).unwrap();
                    story.acknowledged[0].store(version, Ordering::SeqCst);
                    story.db.flush().unwrap();
                }
            }),
            spawn(|story| story.get_often(0)),
            spawn(|story| {
                let versions = || -> Vec<u64> {
                    let both = story.db.multi_get(&[Story::key(0), Story::key(1)]).unwrap();
                    both.iter()
                        .map(|value| Story::version(value.as_ref().unwrap()))
                        .collect()
                };
                for _ in 0..3 {
                    let versions = versions();
                    assert_eq!(versions[0], versions[1], "both were written by one batch");
                }
            }),
        ];
        join(threads);
        assert_eq!([story.get(0), story.get(0), story.get(1)], [3, 3, 3]);
    });
}

/// As above, for a key that is not in the first memtable. Its row may be inserted while that one is
/// flushed, but no row that was found before the next flush may be inserted after it.
#[test]
fn rows_are_brought_beside_a_flush() {
    explore::random(|| {
        let story = Story::with_tables(World::new().open());
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| {
                for writer in 0..2 {
                    story.write(writer, 2, &PROCESS);
                    story.db.flush().unwrap();
                }
            }),
            spawn(|story| story.get_often(1)),
            spawn(|story| story.get_often(1)),
        ];
        join(threads);
        assert_eq!([story.get(0), story.get(1), story.get(1)], [2, 2, 2]);
    });
}

/// A database is opened read-only while its writer flushes and removes the log that the reader is
/// about to replay. The reader sees everything that was acknowledged before.
#[test]
fn a_read_only_open_beside_a_flush() {
    explore::random(|| {
        let world = Arc::new(World::new());
        let story = Story::new(world.open());
        story.db.flush().unwrap();
        // In a second log. No record of the manifest had to be made durable since it began, so none
        // says that its name is durable.
        story.write(0, 2, &PROCESS);
        let spawn = spawner(&story);
        let (reader, beside) = (story.clone(), world.clone());
        let reads = thread::spawn(move || {
            let least = reader.least();
            let db = beside.open_read_only();
            let found = [0, 1].map(|writer| {
                db.get(Story::key(writer))
                    .unwrap()
                    .map(|value| Story::version(&value))
            });
            assert!(
                (0..2).all(|writer| found[writer] >= Some(least[writer])),
                "{found:?} {least:?}"
            );
        });
        let writes = spawn(|story| {
            story.db.flush().unwrap();
            story.db.wait_idle().unwrap();
            story.write(1, 2, &PROCESS);
        });
        join(vec![reads, writes]);
    });
}

/// A database with trees in memory is opened read-only while the entries of the trees are evicted
/// to tables. Each key is seen in one or the other.
#[test]
fn a_read_only_open_beside_an_eviction() {
    explore::random(|| {
        let (world, memory) = (Arc::new(World::new()), SimRegion::new(256 << 10, Mode::Adr));
        let story = Story::new(world.open_lab(&memory));
        story.db.flush().unwrap();
        let spawn = spawner(&story);
        let (reader, beside) = (story.clone(), world.clone());
        let reads = thread::spawn(move || {
            let least = reader.least();
            let db = beside.open_lab_read_only(&memory);
            let keys = db.iter().map(|entry| Story::version(&entry.unwrap().1));
            assert_eq!(keys.collect::<Vec<_>>(), least);
        });
        let writes = spawn(|story| story.db.compact().unwrap());
        join(vec![reads, writes]);
    });
}

/// Flushes into trees, evictions and releases, with all kinds of readers; then a reopen.
#[test]
fn readers_beside_trees() {
    explore::random(|| {
        let (world, memory) = (World::new(), SimRegion::new(256 << 10, Mode::Adr));
        let story = Story::new(world.open_lab(&memory));
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| {
                for version in 2..4 {
                    story.write(0, version, &PROCESS);
                    story.db.flush().unwrap();
                }
            }),
            spawn(|story| {
                story.write(1, 2, &POWER);
                story.db.compact().unwrap();
            }),
            spawn(|story| story.get_often(0)),
            spawn(Story::snapshot),
            spawn(Story::walk),
        ];
        join(threads);
        assert_eq!([story.get(0), story.get(1)], [3, 2]);
        story.db.verify().unwrap();
        drop((story, spawn));
        let again = world.open_lab(&memory);
        assert_eq!(Story::version(&again.get(b"a").unwrap().unwrap()), 3);
        assert_eq!(Story::version(&again.get(b"b").unwrap().unwrap()), 2);
        again.verify().unwrap();
    });
}

/// Tables are flushed and compacted beside readers of all kinds, and a state that lost a race is
/// made again. After `check` a reopen, with everything that was acknowledged.
pub(super) fn beside_writers(open: impl Fn() -> Db, check: fn(&Db)) {
    let story = Story::with_tables(open());
    let spawn = spawner(&story);
    let threads = vec![
        spawn(|story| {
            for version in 2..5 {
                story.write(0, version, &PROCESS);
                story.db.flush().unwrap();
            }
        }),
        spawn(|story| {
            story.write(1, 2, &POWER);
            story.db.flush().unwrap();
            story.db.compact().unwrap();
        }),
        spawn(|story| story.get_often(0)),
        spawn(Story::snapshot),
        spawn(Story::walk),
    ];
    join(threads);
    assert_eq!([story.get(0), story.get(1)], [4, 2]);
    story.db.verify().unwrap();
    check(&story.db);
    drop((story, spawn));
    let again = open();
    assert_eq!(Story::version(&again.get(b"a").unwrap().unwrap()), 4);
    assert_eq!(Story::version(&again.get(b"b").unwrap().unwrap()), 2);
    again.verify().unwrap();
}

/// Lists are written and linked while memtables are switched.
#[test]
fn lists_beside_writers() {
    explore::random(|| {
        let (world, memory) = (World::new(), SimRegion::new(512 << 10, Mode::Adr));
        beside_writers(|| world.open_tlsm(&memory), |_| {});
    });
}

/// A cursor is at each end, and below the first key is a version that no read point sees any more.
/// Flushes drop that version, the trees rotate and everything is evicted, while both cursors move
/// and turn, and `verify` reads everything.
fn beside_a_change_of_trees(db: Db) {
    let story = Story::with_tables(db);
    let snapshot = story.db.snapshot();
    story.write(0, 2, &PROCESS);
    story.db.flush().unwrap();
    let (mut up, mut down) = (story.db.cursor().unwrap(), story.db.cursor().unwrap());
    up.first().unwrap();
    down.last().unwrap();
    drop(snapshot);
    let spawn = spawner(&story);
    let cursors = thread::spawn(move || {
        let is_at = |iter: &Cursor, writer: usize, version| {
            assert_eq!(
                (iter.key(), Story::version(iter.value())),
                (&Story::key(writer)[..], version)
            );
        };
        down.prev().unwrap();
        is_at(&down, 0, 2);
        down.next().unwrap();
        is_at(&down, 1, 1);
        up.next().unwrap();
        is_at(&up, 1, 1);
        up.prev().unwrap();
        is_at(&up, 0, 2);
        up.prev().unwrap();
        assert!(!up.valid());
    });
    let others = [
        spawn(|story| {
            for version in 3..5 {
                story.write(0, version, &PROCESS);
                story.db.flush().unwrap();
            }
        }),
        spawn(|story| story.db.compact().unwrap()),
        spawn(|story| drop(story.db.verify().unwrap())),
    ];
    join(others.into_iter().chain([cursors]).collect());
    assert_eq!([story.get(0), story.get(1)], [4, 1]);
    story.db.verify().unwrap();
}

/// The version is alone in its log, which is removed.
#[test]
fn readers_beside_a_change_of_trees() {
    explore::random(|| {
        beside_a_change_of_trees(World::new().open_lab(&SimRegion::new(256 << 10, Mode::Adr)))
    });
}

/// The version is in a slot of the hot buffer, which receives another value.
#[test]
fn readers_beside_slots_that_are_used_again() {
    explore::random(|| {
        beside_a_change_of_trees(World::new().open_lab_hot(&SimRegion::new(256 << 10, Mode::Adr)))
    });
}

/// Cursors that are told to release their state while they move, when leaves lack room: they do,
/// and see the same entries.
#[test]
fn a_cursor_that_goes_on_lets_go() {
    explore::random(|| {
        let (world, memory) = (World::new(), SimRegion::new(256 << 10, Mode::Adr));
        let story = Story::new(world.open_lab(&memory));
        story.db.flush().unwrap();
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| (0..3).for_each(|_| story.walk())),
            spawn(|story| {
                story.write(0, 2, &PROCESS);
                story.db.flush().unwrap();
                (0..3).for_each(|_| story.db.engine.revoke_all_cursors());
            }),
        ];
        join(threads);
    });
}

/// A database is closed while one thread writes, one reads and one compacts, and is opened again at
/// once on the same files. Everything that was acknowledged is there, and the other threads get the
/// error that their database was closed.
#[test]
fn a_close_beside_everything_else() {
    explore::random(|| {
        let world = World::new();
        let story = Story::new(world.open());
        let spawn = spawner(&story);
        let threads = vec![
            spawn(|story| {
                for version in 2..5_u64 {
                    let value = [&version.to_be_bytes()[..], &[0; 300]].concat();
                    match story.db.put_with(Story::key(0), value, &POWER) {
                        Ok(()) => story.acknowledged[0].store(version, Ordering::SeqCst),
                        Err(error) => return told_closed(&error),
                    }
                }
            }),
            spawn(|story| {
                let mut cursor = story.db.cursor().map_err(|error| told_closed(&error)).ok();
                for _ in 0..2 {
                    story
                        .db
                        .get(Story::key(1))
                        .map_or_else(|error| told_closed(&error), drop);
                    let moved = cursor.as_mut().map_or(Ok(()), Cursor::first);
                    moved.unwrap_or_else(|error| told_closed(&error));
                }
            }),
            spawn(|story| {
                story
                    .db
                    .flush()
                    .and_then(|()| story.db.compact())
                    .unwrap_or_else(|e| told_closed(&e));
            }),
        ];
        story.db.clone().close().unwrap();
        let again = world.open();
        again.put_with(b"again", b"new", &POWER).unwrap();
        join(threads);
        told_closed(&story.db.get(Story::key(0)).unwrap_err());
        let found = Story::version(&again.get(Story::key(0)).unwrap().unwrap());
        assert!(
            found >= story.acknowledged[0].load(Ordering::SeqCst),
            "an acknowledged write is gone"
        );
        assert_eq!(again.get(b"again").unwrap().unwrap(), b"new");
        again.verify().unwrap();
    });
}

fn told_closed(error: &crate::Error) {
    assert!(error.to_string().contains("was closed"), "{error:?}");
}
