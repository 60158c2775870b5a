//! The simulated file system against its own rules. For each rule, a program that breaks it loses
//! data under some seed, and a program that follows it never does.

use super::{CrashPlan, Fault, FaultKind, Keep, OpKind, SECTOR, SimFs};
use crate::file::Fs;
use crate::{File, IoBuf, OpenMode};
use firn_base::exec::{Crew, Task, run_crew};
use firn_base::seed::Seed;
use firn_base::site::TEST;
use firn_base::{ErrorKind, Result};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

const SEEDS: u64 = 200;

fn dir() -> &'static Path {
    Path::new("/db")
}

fn fresh(seed: u64) -> SimFs {
    let fs = SimFs::new(seed);
    fs.create_dir_all(dir()).unwrap();
    fs
}

fn create(fs: &SimFs, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = fs.open(&dir().join(name), OpenMode::Create).unwrap();
    file.write(0, &[bytes]).unwrap();
    file
}

fn content(fs: &SimFs, name: &str) -> Option<Vec<u8>> {
    fs.read_file(&dir().join(name)).ok()
}

/// The number of seeds under which `program` leaves, after a power cut, a state that `good`
/// rejects.
fn losses(program: impl Fn(&SimFs), good: impl Fn(&SimFs) -> bool) -> usize {
    let lost = |seed: &u64| {
        let fs = fresh(*seed);
        program(&fs);
        !good(&fs.power_cut(*seed))
    };
    (0..SEEDS).filter(lost).count()
}

const OLD: &[u8] = &[b'o'; 3000];
const NEW: &[u8] = &[b'n'; 3000];

#[test]
fn bytes_need_a_sync() {
    let kept = |fs: &SimFs| content(fs, "a").as_deref() == Some(NEW);
    let right = |fs: &SimFs| {
        create(fs, "a", NEW).sync(&TEST).unwrap();
        fs.sync_dir(&TEST, dir()).unwrap();
    };
    let no_sync = |fs: &SimFs| {
        create(fs, "a", NEW);
        fs.sync_dir(&TEST, dir()).unwrap();
    };
    assert_eq!(losses(right, kept), 0);
    assert!(losses(no_sync, kept) > SEEDS as usize / 4);
}

#[test]
fn names_need_a_sync_of_their_directory() {
    let kept = |fs: &SimFs| content(fs, "a").as_deref() == Some(NEW);
    let no_dir_sync = |fs: &SimFs| create(fs, "a", NEW).sync(&TEST).unwrap();
    assert!(losses(no_dir_sync, kept) > SEEDS as usize / 4);
    let other_directory = |fs: &SimFs| {
        create(fs, "a", NEW).sync(&TEST).unwrap();
        fs.sync_dir(&TEST, Path::new("/")).unwrap();
    };
    assert!(losses(other_directory, kept) > SEEDS as usize / 4);
}

#[test]
fn a_rename_needs_a_sync_before_and_is_atomic() {
    let start = |fs: &SimFs| {
        create(fs, "current", OLD).sync(&TEST).unwrap();
        fs.sync_dir(&TEST, dir()).unwrap();
    };
    let swap = |fs: &SimFs| {
        fs.rename(&TEST, &dir().join("new"), &dir().join("current"))
            .unwrap()
    };
    let old_or_new =
        |fs: &SimFs| matches!(content(fs, "current"), Some(bytes) if bytes == OLD || bytes == NEW);
    let right = |fs: &SimFs| {
        start(fs);
        create(fs, "new", NEW).sync(&TEST).unwrap();
        swap(fs);
    };
    let too_early = |fs: &SimFs| {
        start(fs);
        let file = create(fs, "new", NEW);
        swap(fs);
        fs.sync_dir(&TEST, dir()).unwrap();
        drop(file);
    };
    assert_eq!(losses(right, old_or_new), 0);
    assert!(losses(too_early, old_or_new) > SEEDS as usize / 8);
    // Without a sync of the directory both outcomes occur.
    let new = |fs: &SimFs| content(fs, "current").as_deref() == Some(NEW);
    let seen = losses(right, new);
    assert!(seen > 0 && seen < SEEDS as usize);
}

#[test]
fn a_removal_may_hold_before_what_it_waits_for() {
    // Old logs are removed together with the naming of the new file, with one sync of the directory
    // at the end.
    let program = |fs: &SimFs| {
        create(fs, "old", OLD).sync(&TEST).unwrap();
        fs.sync_dir(&TEST, dir()).unwrap();
        create(fs, "new", NEW).sync(&TEST).unwrap();
        fs.remove(&dir().join("old")).unwrap();
    };
    let one_there = |fs: &SimFs| content(fs, "old").is_some() || content(fs, "new").is_some();
    assert!(losses(program, one_there) > 0);
    let right = |fs: &SimFs| {
        create(fs, "old", OLD).sync(&TEST).unwrap();
        fs.sync_dir(&TEST, dir()).unwrap();
        create(fs, "new", NEW).sync(&TEST).unwrap();
        fs.sync_dir(&TEST, dir()).unwrap();
        fs.remove(&dir().join("old")).unwrap();
    };
    assert_eq!(losses(right, one_there), 0);
}

#[test]
fn every_subset_of_pending_names_can_hold() {
    let fs = fresh(1);
    for name in ["a", "b", "c"] {
        create(&fs, name, NEW).sync(&TEST).unwrap();
    }
    assert_eq!(fs.pending_names(), 3);
    for mask in 0..8u64 {
        let after = fs.power_cut_with(CrashPlan {
            seed: 1,
            data: Keep::Some,
            names: Some(mask),
        });
        for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(content(&after, name).is_some(), mask >> i & 1 == 1);
        }
    }
}

#[test]
fn links_and_content_follow_the_inode() {
    let fs = fresh(1);
    let file = create(&fs, "a", OLD);
    fs.link(&dir().join("a"), &dir().join("b")).unwrap();
    fs.remove(&dir().join("a")).unwrap();
    file.write(0, &[NEW]).unwrap();
    file.sync(&TEST).unwrap();
    fs.sync_dir(&TEST, dir()).unwrap();
    let after = fs.power_cut(3);
    assert_eq!(content(&after, "a"), None);
    assert_eq!(content(&after, "b").unwrap(), NEW);
    assert!(after.link(&dir().join("b"), &dir().join("b")).is_err());
}

/// Appends to a synced file and rewrites its last sector, as a log does.
#[test]
fn synced_bytes_in_a_rewritten_sector_are_old_or_new() {
    let (mut kept, mut lost, mut garbage, mut lengths) =
        (0, 0, 0, std::collections::BTreeSet::new());
    for seed in 0..SEEDS {
        let fs = fresh(seed);
        let file = create(&fs, "log", &OLD[..700]);
        file.sync(&TEST).unwrap();
        fs.sync_dir(&TEST, dir()).unwrap();
        file.write(600, &[&NEW[..1900]]).unwrap();
        let after = content(&fs.power_cut(seed), "log").unwrap();
        assert!((700..=2500).contains(&after.len()));
        lengths.insert(after.len());
        assert_eq!(after[..600], OLD[..600]);
        match &after[600..700] {
            bytes if bytes == &OLD[..100] => lost += 1,
            bytes if bytes == &NEW[..100] => kept += 1,
            _ => panic!("a synced sector is torn"),
        }
        garbage += usize::from(after[700..].iter().any(|b| !b"on\0".contains(b)));
    }
    assert!(
        kept > 10 && lost > 10 && garbage > 5 && lengths.len() > 20,
        "{kept} {lost} {garbage} {lengths:?}"
    );
}

#[test]
fn unsynced_files_lose_order() {
    // The second of two files, or the second page of one, may survive without the first.
    let (mut files, mut pages) = (0, 0);
    for seed in 0..SEEDS {
        let fs = fresh(seed);
        let first = create(&fs, "a", &[1; 8192]);
        let second = create(&fs, "b", &[1; 8192]);
        fs.sync_dir(&TEST, dir()).unwrap();
        drop((first, second));
        let after = fs.power_cut(seed);
        let (a, b) = (content(&after, "a").unwrap(), content(&after, "b").unwrap());
        files += usize::from(!a.starts_with(&[1; 512]) && b.starts_with(&[1; 512]));
        pages += usize::from(a.len() == 8192 && a[..4096] != [1; 4096] && a[4096..] == [1; 4096]);
    }
    assert!(files > 5 && pages > 0, "{files} {pages}");
}

#[test]
fn a_cut_file_is_cut_for_good_once_it_is_synced() {
    let (mut back, mut cut) = (0, 0);
    for seed in 0..SEEDS {
        let fs = fresh(seed);
        let file = create(&fs, "a", OLD);
        file.sync(&TEST).unwrap();
        fs.sync_dir(&TEST, dir()).unwrap();
        file.truncate(1000).unwrap();
        file.truncate(2000).unwrap();
        assert_eq!(
            content(&fs, "a").unwrap(),
            OLD[..1000],
            "a file is never made longer"
        );
        let synced = fs.duplicate();
        file.write(1500, &[&NEW[..1000]]).unwrap();
        let after = content(&fs.power_cut(seed), "a").unwrap();
        assert_eq!(after[..1000], OLD[..1000]);
        back += usize::from(after.get(1200) == Some(&b'o'));
        cut += usize::from(after.get(1200) != Some(&b'o'));

        let file = synced.open(&dir().join("a"), OpenMode::Append).unwrap();
        file.write(1500, &[&NEW[..1000]]).unwrap();
        file.sync(&TEST).unwrap();
        let want = [&OLD[..1000], &[0; 500], &NEW[..1000]].concat();
        assert_eq!(content(&synced.power_cut(seed), "a").unwrap(), want);
    }
    assert!(back > 10 && cut > 10, "{back} {cut}");
}

#[test]
fn a_killed_process_loses_nothing_but_stays_unsynced() {
    let kept = |fs: &SimFs| content(fs, "a").as_deref() == Some(NEW);
    let mut lost_later = 0;
    for seed in 0..SEEDS {
        let fs = fresh(seed);
        let file = create(&fs, "a", NEW);
        let after = fs.kill();
        assert!(kept(&after));
        assert!(
            file.sync(&TEST)
                .unwrap_err()
                .to_string()
                .contains("simulated crash")
        );
        assert!(fs.list(dir()).is_err() && fs.crashed());
        lost_later += usize::from(!kept(&after.power_cut(seed)));
    }
    assert!(lost_later > 10);
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let (mut kept, mut lost, mut lingering) = (0, 0, 0);
    for seed in 0..SEEDS {
        let fs = fresh(seed);
        let file = create(&fs, "a", OLD);
        file.sync(&TEST).unwrap();
        fs.sync_dir(&TEST, dir()).unwrap();
        file.write(0, &[NEW]).unwrap();
        fs.inject(Fault::once(FaultKind::Eio).on(OpKind::Sync));
        assert_eq!(file.sync(&TEST).unwrap_err().kind(), ErrorKind::Io);
        file.sync(&TEST).unwrap();
        let seen = content(&fs, "a").unwrap();
        match content(&fs.power_cut(seed), "a").unwrap() {
            bytes if bytes == NEW => kept += 1,
            bytes if bytes == OLD => {
                lost += 1;
                lingering += usize::from(seen == NEW);
            }
            _ => panic!("one page is torn"),
        }
    }
    assert!(
        kept > 10 && lost > 10 && lingering > 10,
        "{kept} {lost} {lingering}"
    );
}

#[test]
fn faults_strike_where_they_are_meant_to() {
    let fs = fresh(1);
    let (a, b) = (create(&fs, "a.log", OLD), create(&fs, "b.sst", OLD));
    fs.inject(
        Fault::once(FaultKind::Enospc)
            .on(OpKind::Write)
            .at(".log")
            .after(1),
    );
    b.write(0, &[NEW]).unwrap();
    a.write(0, &[NEW]).unwrap();
    assert_eq!(a.write(0, &[OLD]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(content(&fs, "a.log").unwrap(), NEW);
    a.write(0, &[OLD]).unwrap();

    fs.inject(Fault::for_ever(FaultKind::Eintr).on_mutations());
    assert_eq!(a.write(0, &[NEW]).unwrap_err().kind(), ErrorKind::Io);
    assert!(fs.remove(a.path()).is_err() && fs.sync_dir(&TEST, dir()).is_err());
    let mut buf = IoBuf::default();
    a.read(0, 10, &mut buf).unwrap();
    fs.heal();
    fs.remove(a.path()).unwrap();

    fs.inject(Fault::once(FaultKind::ShortRead));
    b.read(0, 3000, &mut buf).unwrap();
    assert!(buf.len() < 3000 && buf.bytes() == &NEW[..buf.len()]);
    fs.inject(Fault::once(FaultKind::FlippedBit));
    b.read(0, 3000, &mut buf).unwrap();
    let wrong: u32 = buf
        .bytes()
        .iter()
        .zip(NEW)
        .map(|(x, y)| (x ^ y).count_ones())
        .sum();
    assert_eq!(wrong, 1);
    fs.inject(Fault::once(FaultKind::MisplacedBlock));
    b.read(0, 3000, &mut buf).unwrap();
    assert_eq!(buf.bytes(), [0; 3000]);
    fs.inject(Fault::once(FaultKind::ShortWrite));
    assert_eq!(b.write(0, &[OLD]).unwrap_err().kind(), ErrorKind::Io);
    let after = content(&fs, "b.sst").unwrap();
    let split = after.iter().position(|byte| *byte == b'n').unwrap();
    assert!(after[..split] == OLD[..split] && after[split..] == NEW[split..]);
}

#[test]
fn a_lost_sync_says_nothing() {
    let kept = |fs: &SimFs| content(fs, "a").as_deref() == Some(NEW);
    for op in [OpKind::Sync, OpKind::SyncDir] {
        let program = |fs: &SimFs| {
            fs.inject(Fault::for_ever(FaultKind::LostSync).on(op));
            create(fs, "a", NEW).sync(&TEST).unwrap();
            fs.sync_dir(&TEST, dir()).unwrap();
        };
        assert!(losses(program, kept) > 10);
    }
}

#[test]
fn the_quota_holds_and_lifts() {
    let fs = fresh(1);
    let file = create(&fs, "a", OLD);
    fs.set_cap(Some(4000));
    assert_eq!(
        file.write(3000, &[NEW]).unwrap_err().kind(),
        ErrorKind::NoSpace
    );
    assert_eq!((fs.used(), file.len().unwrap()), (4000, 4000));
    file.write(0, &[NEW]).unwrap();
    fs.remove(file.path()).unwrap();
    assert_eq!(fs.used(), 4000, "an open file keeps its space");
    drop(file);
    assert_eq!(fs.used(), 0);
    let file = create(&fs, "b", OLD);
    assert!(file.write(3000, &[NEW]).is_err());
    fs.set_cap(None);
    file.write(3000, &[NEW]).unwrap();
}

#[test]
fn a_crash_comes_when_it_was_ordered() {
    for count in 1..6 {
        let fs = fresh(count);
        fs.crash_after(count);
        let run = || -> Result<()> {
            let file = fs.open(&dir().join("a"), OpenMode::Create)?;
            file.write(0, &[NEW])?;
            file.sync(&TEST)?;
            fs.sync_dir(&TEST, dir())?;
            Ok(())
        };
        assert_eq!(run().is_ok(), count > 4);
        assert_eq!(fs.crashed(), count <= 4);
        if count == 2 {
            let after = content(&fs.kill(), "a").unwrap();
            assert!(after == NEW[..after.len()] && after.len() < NEW.len());
        }
    }
}

#[test]
fn locks_die_with_their_holder() {
    let fs = fresh(1);
    let path = dir().join("LOCK");
    let held = fs.lock(&path).unwrap();
    assert_eq!(fs.lock(&path).unwrap_err().kind(), ErrorKind::Locked);
    drop(held);
    let held = fs.lock(&path).unwrap();
    let after = fs.kill();
    let again = after.lock(&path).unwrap();
    drop(held);
    assert!(after.lock(&path).is_err());
    drop(again);
    after.power_cut(1).lock(&path).unwrap();
}

#[test]
fn direct_files_ask_for_alignment() {
    let fs = SimFs::direct(1);
    let path = Path::new("/a");
    let file = fs.open(path, OpenMode::CreateDirect).unwrap();
    assert_eq!(file.alignment(), SECTOR);
    file.write(512, &[&[1; 1024]]).unwrap();
    let mut buf = IoBuf::default();
    file.read(700, 5000, &mut buf).unwrap();
    assert_eq!(buf.bytes(), [1; 836]);
    for (offset, len) in [(1, 512), (0, 100)] {
        let file = file.clone();
        let misaligned = move || file.write(offset, &[&vec![0; len]]);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(misaligned)).is_err());
    }
    assert_eq!(fs.open(path, OpenMode::Append).unwrap().alignment(), 1);
}

#[test]
fn damage_is_done_as_asked() {
    let fs = SimFs::new(1);
    let path = dir().join("a");
    let old: Vec<u8> = (0..12_288u32).map(|i| (i / 4096) as u8).collect();
    fs.write_file(&path, &old);
    fs.flip(&path, 5000, 3).unwrap();
    assert_eq!(fs.read_file(&path).unwrap()[5000], 1 ^ 8);
    fs.misplace(&path, &old, 0, 1).unwrap();
    assert_eq!(fs.read_file(&path).unwrap()[4096..8192], [0; 4096]);
    fs.cut(&path, 100).unwrap();
    fs.extend(&path, b"tail").unwrap();
    let after = fs.power_cut(1);
    assert_eq!(after.files(), [(path.clone(), 104)]);
    assert!(fs.crashed() && after.list(dir()).unwrap() == ["a"]);
}

#[test]
fn missing_things_are_not_found() {
    let fs = SimFs::new(1);
    let missing = dir().join("a");
    for mode in [OpenMode::Read, OpenMode::Append, OpenMode::Create] {
        assert_eq!(
            fs.open(&missing, mode).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
    let failures = [
        fs.remove(&missing),
        fs.sync_dir(&TEST, dir()),
        fs.list(dir()).map(drop),
        fs.len(&missing).map(drop),
    ];
    assert!(failures.iter().all(|failure| {
        failure
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::NotFound)
    }));
}

/// A random program. Its result depends only on the seed.
fn scramble(seed: u64) -> SimFs {
    let fs = fresh(seed);
    fs.inject(Fault::once(FaultKind::Eio).on(OpKind::Sync).after(5));
    fs.inject(Fault::once(FaultKind::ShortWrite).after(40));
    let mut random = Seed::new(seed);
    for _ in 0..200 {
        let name = |random: &mut Seed| dir().join(["a", "b", "c", "d"][random.below(4) as usize]);
        let (path, other) = (name(&mut random), name(&mut random));
        let mut bytes = vec![0; random.below(6000) as usize];
        random.fill(&mut bytes);
        let _outcome = match random.below(8) {
            0 => fs.open(&path, OpenMode::Create).map(drop),
            1 => fs.rename(&TEST, &path, &other),
            2 => fs.remove(&path),
            3 => fs.link(&path, &other),
            4 => fs.sync_dir(&TEST, dir()),
            5 => fs
                .open(&path, OpenMode::Append)
                .and_then(|file| file.sync(&TEST)),
            _ => fs
                .open(&path, OpenMode::Append)
                .and_then(|file| file.write(random.below(9000), &[&bytes])),
        };
    }
    fs
}

fn image(fs: &SimFs) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    fs.files()
        .into_iter()
        .map(|(path, _)| (path.clone(), fs.read_file(&path).unwrap()))
        .collect()
}

#[test]
fn one_seed_one_run() {
    let mut distinct = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let (a, b) = (scramble(seed), scramble(seed));
        assert_eq!((a.trace_hash(), a.log()), (b.trace_hash(), b.log()));
        for cut in 0..5 {
            let (x, y) = (a.power_cut(cut), b.power_cut(cut));
            assert_eq!(image(&x), image(&y));
            distinct.insert(image(&x));
        }
        assert_eq!(image(&a.kill()), image(&b.kill()));
        distinct.insert(vec![(a.trace_hash().to_string().into(), Vec::new())]);
    }
    assert!(distinct.len() > 50, "{}", distinct.len());
}

/// Deferred operations happen in orders that differ by seed, and a sync does not cover a write that
/// has not happened.
#[test]
fn deferred_operations_happen_when_the_seed_says_so() {
    let (mut uncovered, mut orders) = (0, BTreeSet::new());
    for seed in 0..SEEDS {
        let fs = fresh(seed);
        fs.defer();
        let file = fs.open(&dir().join("file"), OpenMode::Create).unwrap();
        let bytes = |byte: u8| {
            let mut buf = IoBuf::default();
            buf.push(&[byte; SECTOR]);
            buf
        };
        let mut in_flight = [
            Some(file.submit_write(0, bytes(1))),
            Some(file.submit_write(SECTOR as u64, bytes(2))),
            Some(file.submit_sync(&TEST)),
        ];
        assert_eq!(file.len().unwrap(), 0, "nothing has happened yet");
        let mut order = Vec::new();
        while order.len() < 3 {
            fs.complete(Duration::from_millis(1));
            for (i, slot) in in_flight.iter_mut().enumerate() {
                if slot.as_mut().is_some_and(|one| one.poll(Waker::noop())) {
                    slot.take().unwrap().wait().unwrap();
                    order.push(i);
                }
            }
        }
        orders.insert(order);
        assert_eq!(file.len().unwrap(), 2 * SECTOR as u64);
        let plan = CrashPlan {
            seed,
            data: Keep::Nothing,
            names: Some(u64::MAX),
        };
        let left = fs.power_cut_with(plan).used();
        uncovered += usize::from(left < 2 * SECTOR as u64);
    }
    assert!(orders.len() > 2, "{orders:?}");
    assert!(uncovered > SEEDS as usize / 4, "{uncovered}");
    let fs = fresh(1);
    fs.defer();
    let file = fs.open(&dir().join("file"), OpenMode::Create).unwrap();
    file.submit_sync(&TEST).wait().unwrap();
    assert!(fs.blocked().is_empty(), "nobody could have suspended");
    struct Waits<'a>(Option<Task<'a>>);
    impl<'a> Crew<'a> for Waits<'a> {
        fn next(&mut self) -> Option<Task<'a>> {
            self.0.take()
        }
        fn service(&mut self) -> Option<Task<'a>> {
            None
        }
        fn between(&mut self) {}
        fn wait(&mut self, _: Duration) {}
    }
    let waits = async { file.submit_sync(&TEST).wait().map(drop).unwrap() };
    run_crew(1, &mut Waits(Some(Box::pin(waits))));
    assert_eq!(fs.blocked().len(), 1, "this one could have");
}
