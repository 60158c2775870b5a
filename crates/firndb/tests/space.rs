//! Space held only by a snapshot comes back after the snapshot is dropped: by `compact_range`, and
//! by itself when idle.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod rig;

use self::rig::{PROCESS, kinds};
use firndb::{Backend, Db, Options, PmConfig, PmdbTuning, Profile};
use std::path::Path;

const KEYS: u32 = 1_000;

fn open(dir: &Path, profile: Profile, pool: bool) -> Db {
    let options = rig::options(dir, (profile, pool)).compression(firndb::Codec::None);
    Db::open(dir.join("db"), options).unwrap()
}

fn put_all(db: &Db, round: u8) {
    (0..KEYS).for_each(|i| {
        db.put_with(i.to_be_bytes(), [round; 200], &PROCESS)
            .unwrap()
    });
}

/// Bytes of tables, on either medium, and of logs. Waits until they are at most `wanted`, because a
/// worker may still hold a table when it reports that it is done, and a file is removed only after
/// its last reader releases it.
fn file_bytes(db: &Db, dir: &Path, wanted: u64) -> u64 {
    for _ in 0..100_000 {
        if bytes_now(db, dir) <= wanted {
            break;
        }
        db.wait_idle().unwrap();
        std::thread::yield_now();
    }
    bytes_now(db, dir)
}

fn bytes_now(db: &Db, dir: &Path) -> u64 {
    let names = std::fs::read_dir(dir.join("db"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let data = names.filter(|path| {
        path.extension()
            .is_some_and(|kind| kind == "sst" || kind == "log")
    });
    let files: u64 = data
        .map(|path| path.metadata().map_or(0, |file| file.len()))
        .sum();
    // Entries in lists. Their units are as large as these tables, so most of each is empty.
    files + db.stats().design.tlsm.map_or(0, |lists| lists.live_bytes)
}

/// Checks that `give_back` frees the space that snapshots held, in the deepest level too.
fn space_comes_back(give_back: impl Fn(&Db)) {
    for (profile, pool) in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), profile, pool);
        let live = u64::from(KEYS) * 204;
        let mut snapshots = Vec::new();
        for round in 0..4 {
            put_all(&db, round);
            snapshots.push(db.snapshot());
            db.flush().unwrap();
        }
        db.compact().unwrap();
        db.wait_idle().unwrap();
        assert!(
            bytes_now(&db, dir.path()) > 3 * live,
            "{profile}: the snapshots keep it"
        );
        for (round, snapshot) in (0..).zip(&snapshots) {
            assert_eq!(
                snapshot.get(7_u32.to_be_bytes()).unwrap().unwrap(),
                [round; 200]
            );
        }
        drop(snapshots);
        give_back(&db);
        db.verify().unwrap();
        assert_eq!(db.iter().count(), KEYS as usize);
        // Includes blocks, filters, indexes and footers of many small tables, and logs of one
        // memtable.
        let wanted = live * 13 / 10 + (64 << 10);
        let bytes = file_bytes(&db, dir.path(), wanted);
        assert!(
            bytes <= wanted,
            "{profile} {pool}: {bytes} bytes for {live} live ones"
        );

        let snapshot = db.snapshot();
        (0..KEYS).for_each(|i| db.delete(i.to_be_bytes()).unwrap());
        db.flush().unwrap();
        db.compact().unwrap();
        assert_eq!(snapshot.iter().count(), KEYS as usize);
        drop(snapshot);
        give_back(&db);
        assert!(db.iter().next().is_none());
        let bytes = file_bytes(&db, dir.path(), 64 << 10);
        assert!(
            bytes <= 64 << 10,
            "{profile} {pool}: {bytes} bytes for none"
        );
    }
}

#[test]
fn compact_range_gives_back_what_snapshots_kept() {
    space_comes_back(|db| db.compact().unwrap());
}

#[test]
fn rest_gives_back_what_snapshots_kept() {
    space_comes_back(|db| {
        // Level 0 of profile `lab` has retained versions until its trees are flushed into; these
        // writes cause that.
        db.put(u32::MAX.to_be_bytes(), b"last").unwrap();
        db.delete(u32::MAX.to_be_bytes()).unwrap();
        db.flush().unwrap();
        db.wait_idle().unwrap();
    });
}

/// A manual compaction ends with the entries that existed when it began, whatever is written
/// meanwhile, and level 0 stays within its limit.
#[test]
fn compact_range_ends_beside_writers() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    for (profile, pool) in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), profile, pool);
        put_all(&db, 0);
        let (stop, most) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for writer in 0..2_u8 {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        put_all(db, writer);
                    }
                });
            }
            for _ in 0..2 {
                db.compact().unwrap();
                most.fetch_max(db.stats().levels[0].tables, Ordering::Relaxed);
            }
            stop.store(true, Ordering::Relaxed);
        });
        let limits = firndb::Limits::tiny();
        let most = most.into_inner();
        // With stacks, tables of level 0 are as far from their merge as fewer would be elsewhere.
        let slower = match profile {
            Profile::Pmdb => PmdbTuning::default().max_io.div_ceil(limits.level0_trigger),
            _ => 1,
        };
        assert!(
            most <= slower * limits.level0_stop + limits.write_buffers,
            "{profile} {pool}: {most} tables in level 0"
        );
        db.verify().unwrap();
    }
}

/// Versions that were replaced in the trees of `lab` are freed soon after the last snapshot that
/// sees them, without a flush.
#[test]
fn replaced_versions_beside_the_trees_go_with_their_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    // Flushes go into the trees, which have room for everything.
    let pm = Some(PmConfig::at(
        dir.path().join("pool"),
        Backend::Emulated,
        8 << 20,
    ));
    let mut options = Options::tiny()
        .profile(Profile::Lab)
        .pm(pm)
        .write_buffer_bytes(Some(64 << 10));
    options.tuning.lab.reuse_min = 0.0;
    let db = Db::open(dir.path().join("db"), options).unwrap();
    let put = |round: u8| (0..50_u32).for_each(|i| db.put(i.to_be_bytes(), [round; 20]).unwrap());
    put(1);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    put(2);
    db.flush().unwrap();
    let versions = || db.stats().design.lab.unwrap().retained_versions;
    assert_eq!(versions(), 50);
    drop(snapshot);
    let waited = std::time::Instant::now();
    while versions() > 0 {
        assert!(
            waited.elapsed().as_secs() < 20,
            "{} versions that nobody sees",
            versions()
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(db.get(7_u32.to_be_bytes()).unwrap().unwrap(), [2; 20]);
    db.verify().unwrap();
}
