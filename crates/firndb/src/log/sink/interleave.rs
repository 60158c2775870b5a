//! Interleaves the log's two halves: a writer that fills and retires them, workers that drain them,
//! and a reader that overlays the file with them as recovery would at this moment.

use super::super::{LogSource, LogWriter, Replay};
use super::*;
use crate::files::FileName;
use crate::interleave::{UUID, files, join, thread};
use crate::memtable::{Entry, Footprint, Memtable};
use firn_base::SeqNo;
use firn_base::key::Kind;
use firn_base::sync::{AtomicU64, Ordering, explore};
use firn_fs::OpenMode;
use firn_pm::sim::{Mode, SimRegion};

const LOG: FileId = FileId(1);
/// Enough to go through both halves twice.
const GROUPS: u64 = 10;
const HALF_BYTES: usize = 3 << 10;

/// Appends groups of one entry each, of a size that crosses from half to half. Raises
/// `acknowledged` after each.
fn write(log: &mut LogWriter, acknowledged: &AtomicU64) {
    let buffer = Arc::new(Memtable::new(16 << 10, LOG));
    for seqno in 1..=GROUPS {
        let value = vec![seqno as u8; 1500];
        let entry = || {
            std::iter::once(Entry {
                kind: Kind::Put,
                key: b"key",
                value: &value,
            })
        };
        let reservation = buffer
            .reserve(entry(), Footprint::of(entry(), seqno))
            .unwrap();
        log.append(&[reservation], SeqNo(seqno), true, true)
            .unwrap();
        acknowledged.store(seqno, Ordering::SeqCst);
    }
}

/// The number of entries recovered from the file and the halves.
fn recovered(files: &crate::files::Files, pool: &Pool) -> u64 {
    let overlay = PmLogBuffer::overlay(pool, &UUID, LOG).unwrap();
    let file = files.open(FileName::Log(LOG), OpenMode::Read).unwrap();
    let mut source = LogSource::new(file, Arc::default()).unwrap();
    source.lay_over(overlay, None).unwrap();
    let mut replay = Replay::open(source, LOG, &UUID).unwrap();
    let mut count = 0;
    let mut take = |entry: &super::super::Replayed<'_>| {
        count += 1;
        assert_eq!(entry.tag.seqno(), SeqNo(count));
        assert!(entry.value.iter().all(|byte| u64::from(*byte) == count));
        Ok(())
    };
    while replay.next(|entry| take(&entry)).unwrap() {}
    count
}

#[test]
fn halves_are_handed_over() {
    explore::random(|| {
        let files = files();
        let memory = SimRegion::new(256 << 10, Mode::Adr);
        let pool = Arc::new(Pool::open_simulated(&memory, UUID).unwrap());
        pool.finish_recovery().unwrap();
        let halves = PmLogBuffer::open(&pool, UUID, HALF_BYTES).unwrap().unwrap();
        let mut log =
            LogWriter::create(files.clone(), Arc::default(), LOG, Arc::default()).unwrap();
        log.go_through(halves.clone(), None).unwrap();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let drain = |_| {
            let halves = halves.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    if halves.has_full() {
                        halves.drain_full().unwrap();
                    }
                }
            })
        };
        let mut threads: Vec<_> = (0..2).map(drain).collect();
        let (other_files, other_pool, least) = (files.clone(), pool.clone(), acknowledged.clone());
        threads.push(thread::spawn(move || {
            for _ in 0..3 {
                let least = least.load(Ordering::SeqCst);
                assert!(
                    recovered(&other_files, &other_pool) >= least,
                    "an acknowledged frame is in no place"
                );
            }
        }));
        write(&mut log, &acknowledged);
        join(threads);
        assert_eq!(recovered(&files, &pool), GROUPS);
        log.close().unwrap();
    });
}
