//! The rows of PMDB that are about write buffers in persistent memory (docs/design/pmdb.md), and
//! traps on the way to them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use firn_pm::sim::{Mode, SimRegion};
use firndb::{
    Db, ErrorKind, Options, PartBufferStats, Profile, WriteBatch, WriteOptions, mechanisms,
};
use rig::ranges::{pmdb, with_pool};
use rig::{DIR, Rig, flush, row, row_of_option, tables_of};

fn buffers(rig: &Rig) -> PartBufferStats {
    pmdb(rig).buffers.unwrap()
}

/// A database with a pool of `kib`, in up to eight partitions.
fn parted(kib: u64) -> impl Fn(&mut Options) {
    move |options| {
        with_pool(kib << 10)(options);
        options.limits.partitions_max = 8;
        options.limits.partition_bytes = 100 << 10;
    }
}

fn log_bytes(rig: &Rig) -> u64 {
    let log = rig
        .stats()
        .ssd
        .into_iter()
        .find(|cause| cause.cause == "log");
    log.unwrap().written_bytes
}

#[test]
fn pmdb_01_no_log_where_memory_is_durable() {
    row(&mechanisms::PMDB_BUFFERS, "a log was written", || {
        let rig = Rig::loaded(Profile::Pmdb, 2_000, parted(4096));
        let files = rig.fs.list(DIR.as_ref()).unwrap();
        let has_log = files.iter().any(|name| name.ends_with(".log"));
        assert!(log_bytes(&rig) == 0 && !has_log, "a log was written");
        // Nothing was synced, and everything is durable.
        let rig = rig.killed();
        rig.check();
    });
}

#[test]
fn pmdb_01_a_partition_without_writes_has_no_buffer() {
    let mut rig = Rig::loaded(Profile::Pmdb, 6_000, parted(4096));
    flush(&rig);
    rig.settle();
    assert!(pmdb(&rig).partitions > 2, "{:?}", pmdb(&rig));
    rig.db.wait_idle().unwrap();
    assert_eq!(buffers(&rig).buffers, 0, "{:?}", buffers(&rig));
    let last = rig.model.keys().next_back().unwrap().clone();
    rig.put_one(last);
    let found = buffers(&rig);
    assert_eq!((found.buffers, found.frozen), (1, 0), "{found:?}");
    rig.check();
}

#[test]
fn pmdb_01_a_batch_over_partitions_is_there_as_a_whole() {
    let mut rig = Rig::loaded(Profile::Pmdb, 6_000, parted(4096));
    let keys: Vec<Vec<u8>> = rig.model.keys().step_by(50).cloned().collect();
    for round in 0..20_u8 {
        let mut batch = WriteBatch::new();
        for key in &keys {
            batch.put(key, [round; 30]);
        }
        rig.db.write(&batch, &WriteOptions::default()).unwrap();
        keys.iter()
            .for_each(|key| drop(rig.model.insert(key.clone(), vec![round; 30])));
        rig = rig.killed();
        rig.check();
    }
    assert!(pmdb(&rig).partitions > 2, "{:?}", pmdb(&rig));
}

#[test]
fn pmdb_01_a_batch_over_more_partitions_than_buffers() {
    // Room for a few buffers of 16 KiB, and batches with keys of up to eight partitions.
    let mut rig = Rig::loaded(Profile::Pmdb, 6_000, parted(160));
    assert!(pmdb(&rig).partitions > 4, "{:?}", pmdb(&rig));
    let keys: Vec<Vec<u8>> = rig.model.keys().step_by(90).cloned().collect();
    for round in 0..30_u8 {
        let mut batch = WriteBatch::new();
        for key in &keys {
            batch.put(key, [round; 60]);
        }
        rig.db.write(&batch, &WriteOptions::default()).unwrap();
        keys.iter()
            .for_each(|key| drop(rig.model.insert(key.clone(), vec![round; 60])));
    }
    rig.check();
    let rig = rig.killed();
    rig.check();
}

#[test]
fn pmdb_01_values_larger_than_a_buffer() {
    let mut rig = Rig::loaded(Profile::Pmdb, 1_000, parted(1024));
    let key = rig.model.keys().nth(500).unwrap().clone();
    for (round, bytes) in [100, 60_000, 100, 150_000, 20_000].into_iter().enumerate() {
        let value = vec![round as u8; bytes];
        rig.db.put(&key, &value).unwrap();
        rig.model.insert(key.clone(), value);
        rig.check();
        rig = rig.reopened();
        rig.check();
    }
    let refused = rig.db.put(&key, vec![7; 1 << 20]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    assert!(refused.to_string().contains("pm.size"), "{refused}");
    rig.check();
    rig.db.put(&key, [8; 10]).unwrap();
    rig.model.insert(key, vec![8; 10]);
    rig.killed().check();
}

#[test]
fn pmdb_02_partitions_are_divided_until_the_room_for_buffers_is_spent() {
    row_of_option("partitions", |on| {
        let rig = Rig::loaded(Profile::Pmdb, 12_000, |options| {
            if on {
                with_pool(512 << 10)(options);
            }
            options.tuning.pmdb.range_tables = 1;
            options.tuning.pmdb.table_bytes = 16 << 10;
        });
        let found = pmdb(&rig);
        assert!(found.partitions > 4, "{} partitions", found.partitions);
        // Half of the pool's 32 buffers.
        assert!(found.partitions <= 16, "{found:?}");
        // Ranges go on dividing.
        assert!(found.ranges > found.partitions, "{found:?}");
        rig.check();
    });
}

#[test]
fn pmdb_03_full_buffers_wait_until_room_is_short() {
    let mut rig = Rig::new(Profile::Pmdb, with_pool(4 << 20));
    rig.put(700, 1_000_000);
    let found = buffers(&rig);
    assert!(found.frozen >= 4, "{found:?}");
    assert_eq!(tables_of(&rig.stats()), 0, "{found:?}");
    // One flush writes all that a partition has.
    flush(&rig);
    assert_eq!(rig.stats().background.flushes, 1);
    assert_eq!(buffers(&rig).buffers, 0);
    rig.check();
}

#[test]
fn pmdb_03_buffers_do_not_fill_together() {
    // Sixteen partitions, in a pool that has room for few more buffers.
    let mut rig = Rig::loaded(Profile::Pmdb, 6_000, |options| {
        parted(640)(options);
        options.limits.partitions_max = 16;
        options.limits.partition_bytes = 40 << 10;
    });
    assert!(pmdb(&rig).partitions > 12, "{:?}", pmdb(&rig));
    let keys: Vec<Vec<u8>> = rig.model.keys().cloned().collect();
    for at in 0..6_000 {
        let key = keys[at * 997 % keys.len()].clone();
        rig.put_one(key);
    }
    // No write waited, because the fullest were ended before all were full.
    let found = buffers(&rig);
    assert_eq!(found.refused, 0, "{found:?}");
    assert!(found.begun > 100, "{found:?}");
    rig.check();
}

#[test]
fn pmdb_10_buffers_and_trees_outlive_kills() {
    let mut rig = Rig::loaded(Profile::Pmdb, 3_000, parted(768));
    for _ in 0..25 {
        rig.put(80, 1_000_000);
        rig = rig.killed();
        rig.check();
    }
    rig.db.compact().unwrap();
    rig.settle();
    rig.check();
    assert!(pmdb(&rig).trees.unwrap().trees > 0);
}

#[test]
fn pmdb_11_one_root_leads_to_everything() {
    let rig = Rig::loaded(Profile::Pmdb, 3_000, parted(4096));
    let before = buffers(&rig);
    assert!(
        before.buffers > 1 && before.used_bytes > 32 << 10,
        "{before:?}"
    );
    // After a clean end buffers take more writes.
    let mut rig = rig.reopened();
    let again = buffers(&rig);
    assert_eq!(
        (again.buffers, again.used_bytes),
        (before.buffers, before.used_bytes)
    );
    let tables = tables_of(&rig.stats());
    rig.put(20, 1_000_000);
    assert_eq!(buffers(&rig).begun, 0, "{:?}", buffers(&rig));
    // After any other one they do not, because entries of a group that was cut may follow.
    let mut rig = rig.killed();
    let killed = buffers(&rig);
    assert_eq!(killed.frozen, killed.buffers, "{killed:?}");
    assert_eq!(tables_of(&rig.stats()), tables, "an open writes no table");
    rig.put(20, 1_000_000);
    assert!(buffers(&rig).begun > 0);
    rig.check();
}

#[test]
fn pmdb_12_a_full_pool_serves_writes() {
    let mut rig = Rig::loaded(Profile::Pmdb, 6_000, parted(160));
    let trees = pmdb(&rig).trees.unwrap();
    assert!(trees.refused > 0, "{trees:?}");
    let found = buffers(&rig);
    assert!(found.refused > 0, "{found:?}");
    assert!(found.bytes <= found.most_bytes, "{found:?}");
    rig.put(1_000, 1_000_000);
    rig.check();
    rig.killed().check();
}

#[test]
fn pmdb_12_a_batch_gets_the_room_of_trees() {
    let mut rig = Rig::loaded(Profile::Pmdb, 6_000, parted(160));
    rig.settle();
    let trees = pmdb(&rig).trees.unwrap();
    assert!(trees.bytes > 64 << 10, "{trees:?}");
    for round in 0..5_u32 {
        let mut batch = WriteBatch::new();
        for at in 0..20_u32 {
            let (key, value) = (
                format!("large {at}").into_bytes(),
                vec![round as u8; 4 << 10],
            );
            batch.put(&key, &value);
            rig.model.insert(key, value);
        }
        // One that stays where it is keeps neither buffers nor trees from being freed.
        let mut cursor = rig.db.cursor().unwrap();
        cursor.first().unwrap();
        rig.db.write(&batch, &WriteOptions::default()).unwrap();
        cursor.next().unwrap();
        drop(cursor);
        rig = rig.killed();
        rig.check();
    }
    rig.settle();
    let again = pmdb(&rig).trees.unwrap();
    assert!(again.trees > 0, "{again:?}");
    // A batch that no pool of this size could take says so.
    let mut batch = WriteBatch::new();
    batch.put(b"larger", vec![0; 170 << 10]);
    let refused = rig.db.write(&batch, &WriteOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    rig.check();
}

#[test]
fn pmdb_01_without_its_pool_it_does_not_open() {
    let rig = Rig::loaded(Profile::Pmdb, 500, parted(4096));
    let (mut options, model) = (rig.options.clone(), rig.model.clone());
    let memory = options.environment.memory.take();
    options.pm = None;
    rig.db.close().unwrap();
    let refused = Db::open(DIR, options.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible, "{refused}");
    assert!(refused.to_string().contains("newest"), "{refused}");
    // After a flush it needs none.
    let mut with = options.clone();
    with.pm = rig.options.pm.clone();
    with.environment.memory = memory;
    let db = Db::open(DIR, with.clone()).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = Db::open(DIR, options.clone()).unwrap();
    for (key, value) in &model {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    // What a log has is written to tables by an open with a pool.
    db.put(b"logged", b"1").unwrap();
    db.close().unwrap();
    let db = Db::open(DIR, with.clone()).unwrap();
    assert_eq!(db.get(b"logged").unwrap().unwrap(), b"1"[..]);
    db.put(b"logged", b"2").unwrap();
    db.close().unwrap();
    let db = Db::open(DIR, with).unwrap();
    assert_eq!(db.get(b"logged").unwrap().unwrap(), b"2"[..]);
}

#[test]
fn pmdb_01_a_pool_without_room_for_two_buffers_is_refused() {
    let mut options = Rig::new(Profile::Pmdb, with_pool(1 << 20)).options;
    options.tuning.pmdb.buffer_bytes = Some(512 << 10);
    let refused = Db::open("/other", options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("buffer_bytes"), "{refused}");
}

#[test]
fn pmdb_01_an_older_pool_is_refused() {
    let mut rig = Rig::new(Profile::Pmdb, parted(1024));
    rig.put(50, 1_000_000);
    flush(&rig);
    let older = rig.options.environment.memory.as_ref().unwrap().durable();
    rig.put(50, 1_000_000);
    flush(&rig);
    rig.put(20, 1_000_000);
    let mut options = rig.options.clone();
    rig.db.close().unwrap();
    options.environment.memory = Some(SimRegion::from_image(older, Mode::Adr));
    let refused = Db::open(DIR, options.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
    assert!(refused.to_string().contains("older pool"), "{refused}");
    let refused = Db::open_read_only(DIR, options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
}
