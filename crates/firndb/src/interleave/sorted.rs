//! Sorted tables in persistent memory, while they are merged there and their space is used again.

use super::engine::{PROCESS, Story, beside_writers};
use super::{World, join, spawner, thread};
use crate::Db;
use firn_base::sync::explore;
use firn_pm::sim::{Mode, SimRegion};
use std::sync::Arc;

/// In the end all space that no table has is free, although the cache of open tables may have
/// looked at one that was being removed.
#[test]
fn sorted_tables_beside_writers() {
    let check = |db: &Db| {
        db.compact().unwrap();
        let tables = db.stats().design.blade.unwrap();
        assert!(tables.internal_compactions > 0, "{tables:?}");
        assert_eq!(tables.used_bytes, tables.table_bytes, "{tables:?}");
    };
    explore::random(move || {
        let (world, memory) = (World::new(), SimRegion::new(512 << 10, Mode::Adr));
        beside_writers(|| world.open_blade(&memory), check);
    });
}

/// The database is opened read-only while its tables are merged and their space is used again. The
/// reader sees everything that was acknowledged before, or learns that it must open again.
#[test]
fn a_read_only_open_beside_a_merge() {
    explore::random(|| {
        let (world, memory) = (Arc::new(World::new()), SimRegion::new(512 << 10, Mode::Adr));
        let story = Story::with_tables(world.open_blade(&memory));
        let spawn = spawner(&story);
        let (reader, beside) = (story.clone(), world.clone());
        let reads = thread::spawn(move || {
            let least = reader.least();
            let db = beside.open_blade_read_only(&memory);
            let found = [0, 1].map(|writer| match db.get(Story::key(writer)) {
                Ok(value) => Story::version(&value.expect("a key that was written is there")),
                Err(error) => {
                    assert_eq!(error.kind(), crate::ErrorKind::Changed, "{error}");
                    u64::MAX
                }
            });
            let is_new = |writer: usize| found[writer] >= least[writer];
            assert!((0..2).all(is_new), "{found:?} {least:?}");
        });
        let writes = spawn(|story| {
            for version in 2..4 {
                story.write(0, version, &PROCESS);
                story.db.flush().unwrap();
                story.db.wait_idle().unwrap();
            }
        });
        join(vec![reads, writes]);
        assert_eq!([story.get(0), story.get(1)], [3, 1]);
    });
}
