//! `OsFs` on a real directory: both backends, direct and buffered, must agree byte for byte.

use crate::{Fs, IoBackend, IoBuf, OpenMode, OsFs, open_file};
use firn_base::ErrorKind;
use firn_base::seed::Seed;
use firn_base::site::TEST;
use rustix::io::Errno;

fn round_trip(fs: &OsFs) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let file = open_file(fs, &path, OpenMode::CreateDirect).unwrap();
    let mut want = vec![0; 300 << 10];
    Seed::new(1).fill(&mut want);
    let mut pending = Vec::new();
    for (i, chunk) in want.chunks(12 << 10).enumerate() {
        let mut buf = IoBuf::with_capacity(chunk.len());
        buf.push(chunk);
        pending.push(file.submit_write((i * (12 << 10)) as u64, buf));
    }
    for one in pending {
        one.wait().unwrap();
    }
    file.sync(&TEST).unwrap();
    fs.open_dir(dir.path()).unwrap().sync(&TEST).unwrap();

    let file = open_file(fs, &path, OpenMode::ReadDirect).unwrap();
    let mut seed = Seed::new(2);
    let mut in_flight = Vec::new();
    for _ in 0..200 {
        let offset = seed.below(want.len() as u64) as usize;
        let len = seed.below(9000) as usize;
        in_flight.push((
            offset,
            len,
            file.submit_read(offset as u64, len, IoBuf::default()),
        ));
    }
    drop(in_flight.split_off(150));
    for (offset, len, pending) in in_flight {
        let got = pending.wait().unwrap();
        let end = (offset + len).min(want.len());
        assert_eq!(got.bytes(), &want[offset..end]);
        let mut buf = IoBuf::default();
        file.read(offset as u64, len, &mut buf).unwrap();
        assert_eq!(buf.bytes(), &want[offset..end]);
    }

    let file = open_file(fs, &path, OpenMode::AppendDirect).unwrap();
    file.truncate(5000).unwrap();
    file.truncate(6000).unwrap();
    assert_eq!(file.len().unwrap(), 5000, "a file is never made longer");
}

#[test]
fn ring_and_pool_agree() {
    round_trip(&OsFs::new());
    round_trip(&OsFs::with(IoBackend::Pool, true));
    round_trip(&OsFs::with(IoBackend::Pool, false));
}

#[test]
fn gathered_writes_cross_the_slice_limit() {
    let dir = tempfile::tempdir().unwrap();
    let fs = OsFs::new();
    let file = open_file(&fs, &dir.path().join("log"), OpenMode::Create).unwrap();
    let parts: Vec<Vec<u8>> = (0..1000u32).map(|i| i.to_le_bytes().to_vec()).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    file.write(3, &slices).unwrap();
    let mut buf = IoBuf::default();
    file.read(3, 4000, &mut buf).unwrap();
    assert_eq!(buf.bytes(), parts.concat());
    assert_eq!(file.len().unwrap(), 4003);
}

#[test]
fn the_second_locker_is_told() {
    let root = tempfile::tempdir().unwrap();
    let dir = OsFs::new().open_dir(root.path()).unwrap();
    let held = dir.lock("LOCK").unwrap();
    assert_eq!(dir.lock("LOCK").unwrap_err().kind(), ErrorKind::Locked);
    drop(held);
    dir.lock("LOCK").unwrap();
}

#[test]
fn missing_files_are_not_found() {
    let fs = OsFs::new();
    let missing = std::path::Path::new("/nonexistent/file");
    assert_eq!(
        open_file(&fs, missing, OpenMode::Read).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn nested_directories_are_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let fs = OsFs::new();
    let nested = dir.path().join("a/b/c");
    assert_eq!(
        fs.create_dir(&nested, false).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(!dir.path().join("a").exists());
    fs.create_dir(&nested, true).unwrap();
    fs.create_dir(&nested, false).unwrap();
    assert_eq!(
        fs.open_dir(&dir.path().join("a/b"))
            .unwrap()
            .list()
            .unwrap(),
        ["c"]
    );
}

#[test]
fn a_file_that_leaves_the_cache_keeps_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let file = open_file(&OsFs::new(), &path, OpenMode::Create).unwrap();
    let want = [7; 64 << 10];
    file.write(0, &[&want]).unwrap();
    let reader = std::fs::File::open(&path).unwrap();
    // `None` if the file system cannot tell.
    let is_cached = || {
        let mut byte = [0];
        let mut slices = [std::io::IoSliceMut::new(&mut byte)];
        match rustix::io::preadv2(&reader, &mut slices, 0, rustix::io::ReadWriteFlags::NOWAIT) {
            Ok(_) => Some(true),
            Err(Errno::AGAIN) => Some(false),
            Err(_) => None,
        }
    };
    assert_ne!(is_cached(), Some(false));
    file.sync(&TEST).unwrap();
    file.leave_cache();
    // A file system in memory keeps the file only in the cache.
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    let is_in_memory = rustix::fs::fstatfs(&reader).unwrap().f_type == TMPFS_MAGIC;
    assert!(is_in_memory || is_cached() != Some(true));
    let mut buf = IoBuf::default();
    file.read(0, want.len(), &mut buf).unwrap();
    assert_eq!(buf.bytes(), want);
}

/// More threads than rings, each with a read in flight: no read fails, and the number of rings
/// stays within its limit.
#[test]
fn threads_beyond_the_number_of_rings_read_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let fs = OsFs::new();
    let file = open_file(&fs, &path, OpenMode::Create).unwrap();
    file.write(0, &[&[9; 64 << 10]]).unwrap();
    let all_have_one = std::sync::Barrier::new(100);
    std::thread::scope(|scope| {
        for i in 0..100_u64 {
            let (file, all_have_one) = (&file, &all_have_one);
            scope.spawn(move || {
                let pending = file.submit_read(i * 100, 1000, IoBuf::default());
                all_have_one.wait();
                assert!(crate::os::ring::rings() <= crate::os::ring::RINGS_MAX);
                assert_eq!(pending.wait().unwrap().bytes(), [9; 1000]);
            });
        }
    });
}

/// A ring that fails in every way: operations in flight on it are completed with plain system
/// calls.
#[test]
fn a_ring_that_fails_fails_no_operation() {
    use super::ring::{Failing, failing};
    for how in [
        Failing::Setup,
        Failing::Submit,
        Failing::Wait,
        Failing::Cancelled,
    ] {
        std::thread::scope(|scope| {
            // A new thread has no ring yet.
            scope.spawn(|| {
                failing(Some(how));
                round_trip(&OsFs::with(IoBackend::Ring, true));
                failing(None);
            });
        });
    }
}

/// Operations that are polled instead of waited for, on each backend and on rings that fail: the
/// waker is called, and the bytes are those of a wait.
#[test]
fn operations_in_flight_can_be_polled() {
    use super::ring::{Failing, failing};
    use firn_base::count::IoCounters;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    struct Flag(AtomicBool, std::thread::Thread);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
            self.1.unpark();
        }
    }
    let cases = [
        (IoBackend::Pool, None),
        (IoBackend::Ring, None),
        (IoBackend::Ring, Some(Failing::Wait)),
        (IoBackend::Ring, Some(Failing::Submit)),
        (IoBackend::Ring, Some(Failing::Cancelled)),
    ];
    for (backend, fails) in cases {
        let (fs, dir) = (OsFs::with(backend, true), tempfile::tempdir().unwrap());
        let path = dir.path().join("file");
        let file = open_file(&fs, &path, OpenMode::CreateDirect).unwrap();
        let counters = Arc::new(IoCounters::default());
        let flag = Arc::new(Flag(AtomicBool::new(false), std::thread::current()));
        let waker = Waker::from(flag.clone());
        failing(fails);
        let finish = |pending: crate::Pending| {
            let mut pending = pending.tracked(counters.begin_compaction_io());
            while !pending.poll(&waker) {
                while !flag.0.swap(false, Ordering::SeqCst) {
                    fs.complete(Duration::from_millis(1));
                }
            }
            assert!(pending.is_done());
            assert_eq!(counters.compactions.now(), 0);
            pending.wait()
        };
        let mut buf = IoBuf::with_capacity(8192);
        buf.push(&[5; 8192]);
        assert_eq!(finish(file.submit_write(0, buf)).unwrap().len(), 8192);
        assert!(finish(file.submit_sync(&TEST)).unwrap().is_empty());
        let read = finish(file.submit_read(100, 1000, IoBuf::default()));
        assert_eq!(read.unwrap().bytes(), [5; 1000]);
        failing(None);
    }
}
