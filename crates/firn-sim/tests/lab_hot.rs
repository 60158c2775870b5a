//! Profile `lab`: the hot buffer, row lab_11 of the design.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{Rig, flush, hits, lab_stats, row_of_option, trees};
use firn_pm::sim::{Mode, SimRegion};
use firndb::{Db, ErrorKind, Options, Profile};

/// Like [`trees`], with a hot buffer.
fn hot(options: &mut Options) {
    trees(true)(options);
    options.tuning.lab.hot_bytes = Some(64 << 10);
    options.environment.memory = Some(SimRegion::new(512 << 10, Mode::Adr));
}

fn hot_key(i: u64) -> Vec<u8> {
    format!("hot{}", i % 20).into_bytes()
}

#[test]
fn lab_11_values_of_hot_keys_are_not_in_the_log() {
    row_of_option("bytes of log", |on| {
        let mut rig = Rig::new(Profile::Lab, |options| {
            hot(options);
            if !on {
                options.tuning.lab.hot_bytes = Some(0);
            }
        });
        rig.put(300, 1_000_000);
        (0..3_000).for_each(|i| rig.put_one(hot_key(i)));
        flush(&rig);
        let stats = rig.stats();
        let cause = |name| stats.ssd.iter().find(|cause| cause.cause == name).unwrap();
        let log = cause("log").written_bytes;
        // 120 bytes per value, and about 70 per frame and key.
        assert!(log < 3_300 * 110, "{log} bytes of log");
        let found = stats.design.lab.clone().unwrap().hot.unwrap();
        assert!(
            found.written > 2_800 && found.written_bytes > 100 * found.written,
            "{found:?}"
        );
        assert!(
            found.values < 100 && found.used_bytes < found.bytes,
            "slots are used again: {found:?}"
        );
        // They are read from the hot buffer too.
        let reads = cause("user_read").reads;
        (0..20).for_each(|i| assert!(rig.db.get(hot_key(i)).unwrap().is_some()));
        let after = rig.stats();
        assert_eq!(
            after
                .ssd
                .iter()
                .find(|cause| cause.cause == "user_read")
                .unwrap()
                .reads,
            reads
        );
        assert_eq!(hits(&rig)[5], 20, "{:?}", after.design.lab);
        rig.check();
    });
}

#[test]
fn lab_11_a_key_that_is_written_once_is_not_hot() {
    let mut rig = Rig::new(Profile::Lab, hot);
    rig.put(2_000, 1_000_000);
    let found = lab_stats(&rig).hot.unwrap();
    assert!(found.written < 20, "{found:?}");
    // Without a pool that is durable at the fence there is no hot buffer, and the stats show that.
    assert!(
        lab_stats(&Rig::loaded(Profile::Lab, 100, trees(false)))
            .hot
            .is_none()
    );
}

/// Deletes, snapshots, flushes, evictions and deaths of the process: the contents of the buffer
/// stay right, and in the end it is empty.
#[test]
fn lab_11_slots_are_released_and_not_too_early() {
    let mut rig = Rig::new(Profile::Lab, hot);
    let mut used = 0;
    for round in 0..60_u64 {
        let (snapshot, then) = (rig.db.snapshot(), rig.model.clone());
        for i in 0..80 {
            if rig.random.one_in(15) {
                let key = hot_key(rig.random.below(20));
                rig.db.delete(&key).unwrap();
                rig.model.remove(&key);
            } else {
                rig.put_one(hot_key(i * 7));
            }
        }
        rig.put(30, 1_000_000);
        match round % 4 {
            0 => flush(&rig),
            1 => rig.settle(),
            _ => {}
        }
        for (key, value) in &then {
            assert_eq!(
                snapshot.get(key).unwrap().as_deref(),
                Some(&value[..]),
                "round {round}"
            );
        }
        drop(snapshot);
        used = used.max(lab_stats(&rig).hot.unwrap().values);
        rig = match round % 5 {
            3 => rig.reopened(),
            4 => rig.killed(),
            _ => rig,
        };
        rig.check();
    }
    assert!(used > 20, "{used} values");
    rig.db.compact().unwrap();
    rig.settle();
    let left = lab_stats(&rig).hot.unwrap();
    assert_eq!((left.values, left.used_bytes), (0, 0), "all is in tables");
    rig.check();
}

/// A damaged value in the hot buffer is found by a read, by `verify`, and by an open that must
/// replay it. A repair reports what it could not keep.
#[test]
fn lab_11_damage_is_found() {
    for flushed in [true, false] {
        let mut rig = Rig::new(Profile::Lab, hot);
        (0..200).for_each(|i| rig.put_one(hot_key(i)));
        if flushed {
            flush(&rig);
        }
        let (key, value) = (hot_key(3), rig.model[&hot_key(3)].clone());
        let mut options = rig.options.clone();
        let mut image = options
            .environment
            .memory
            .as_ref()
            .unwrap()
            .cut()
            .killed()
            .durable();
        let fs = rig.fs.kill();
        drop(rig);
        let copies: Vec<usize> = image
            .windows(value.len())
            .enumerate()
            .filter(|(_, at)| *at == &value[..])
            .map(|(at, _)| at)
            .collect();
        assert_eq!(copies.len(), 1, "the one copy of an acknowledged value");
        image[copies[0] + value.len() / 2] ^= 4;
        options.environment.fs = Some(std::sync::Arc::new(fs));
        options.environment.memory = Some(SimRegion::from_image(image, Mode::Adr));
        match Db::open(rig::DIR, options.clone()) {
            Ok(db) => {
                assert!(flushed, "a replay needs the value");
                for error in [db.get(&key).unwrap_err(), db.verify().unwrap_err()] {
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    assert!(error.to_string().contains("hot buffer"), "{error}");
                }
                assert!(db.get(hot_key(4)).unwrap().is_some());
            }
            Err(error) => {
                assert!(!flushed, "{error}");
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert!(error.to_string().contains("hot buffer"), "{error}");
            }
        }
        let report = firndb::repair(rig::DIR, &options).unwrap();
        assert_eq!(report.values_lost, 1, "{report:?}");
        let db = Db::open(rig::DIR, options).unwrap();
        db.verify().unwrap();
        assert!((0..20).all(|i| i == 3 || db.get(hot_key(i)).unwrap().is_some()));
        assert!(
            db.get(&key).unwrap().is_none_or(|older| *older != value),
            "what was lost is not made up"
        );
    }
}

#[test]
fn lab_11_without_room_values_go_to_the_log() {
    let mut rig = Rig::new(Profile::Lab, |options| {
        hot(options);
        options.tuning.lab.hot_bytes = Some(8 << 10);
    });
    for i in 0..4_000 {
        rig.put_one(format!("hot{}", i % 100).into_bytes());
    }
    let found = lab_stats(&rig).hot.unwrap();
    assert!(
        found.turned_away > 10 && found.written > 100 && found.written < 2_000,
        "{found:?}"
    );
    rig.killed().check();
}
