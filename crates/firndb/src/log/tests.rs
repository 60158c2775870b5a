//! Tests the log: written entries come back; a torn end is an end; damage before it is damage.

use super::layout::{
    FILE_HEADER_BYTES, FRAME_HEADER_BYTES_MAX, FRAME_MAGIC, FrameHeader, VALUE_HEADER_BYTES,
    VERSION, read_value,
};
use super::old;
use super::*;
use crate::files::{FileName, Files};
use crate::memtable::{Entry, Footprint, Memtable};
use firn_base::count::{Cause, IoCounters};
use firn_base::key::Kind;
use firn_base::seed::Seed;
use firn_base::{ErrorKind, FileId, Result, SeqNo, Tag};
use firn_fs::{Fault, FaultKind, IoBackend, IoBuf, OpKind, OpenMode, OsFs, SimFs};
use firn_pm::{Backend, PmConfig, Pool};
use std::path::Path;
use std::sync::Arc;

pub(super) const UUID: [u8; 16] = [7; 16];
pub(super) const LOG: FileId = FileId(5);

type Issued = (u64, Vec<u8>, Vec<u8>);

fn files(dir: &Path) -> Arc<Files> {
    Arc::new(Files::of_test(
        &OsFs::with(IoBackend::Pool, false),
        dir,
        UUID,
    ))
}

/// In-memory files, because each byte of a log needs a new file.
pub(super) fn in_memory() -> (SimFs, Arc<Files>) {
    let fs = SimFs::new(1);
    let files = Files::of_test(&fs, Path::new("/db"), UUID);
    (fs, Arc::new(files))
}

fn writer(files: &Arc<Files>) -> LogWriter {
    LogWriter::create(
        files.clone(),
        Arc::new(IoCounters::default()),
        LOG,
        Arc::new(SealedLogs::new(FileId(0))),
    )
    .unwrap()
}

/// Appends groups of random entries, with or without a sync per group.
fn append(log: &mut LogWriter, seed: &mut Seed, groups: u64, synced: bool) -> Vec<Issued> {
    append_to(
        &Arc::new(Memtable::new(4 << 20, LOG)),
        log,
        seed,
        groups,
        synced,
    )
}

fn append_to(
    buffer: &Arc<Memtable>,
    log: &mut LogWriter,
    seed: &mut Seed,
    groups: u64,
    synced: bool,
) -> Vec<Issued> {
    let mut issued = Vec::new();
    let mut seqno = 1u64;
    for _ in 0..groups {
        let mut reservations = Vec::new();
        let mut first = seqno;
        for _ in 0..1 + seed.below(3) {
            let mut batch = Vec::new();
            for _ in 0..1 + seed.below(3) {
                let mut value = vec![0; seed.below(400) as usize];
                seed.fill(&mut value);
                batch.push((seqno, seqno.to_be_bytes().to_vec(), value));
                seqno += 1;
            }
            let entries = batch.iter().map(|(_, key, value)| Entry {
                kind: Kind::Put,
                key,
                value,
            });
            let footprint = Footprint::of(entries.clone(), first);
            reservations.push(buffer.reserve(entries, footprint).unwrap());
            issued.extend(batch);
        }
        log.note_addresses();
        log.append(&reservations, SeqNo(first), synced, true)
            .unwrap();
        for reservation in reservations {
            let count = reservation.count;
            reservation.link(SeqNo(first));
            first += count;
        }
    }
    issued
}

fn replay(
    files: &Files,
    overlay: Vec<(u64, Vec<u8>)>,
    known_synced: u64,
) -> Result<(Vec<Issued>, End)> {
    let file = files.open(FileName::Log(LOG), OpenMode::Read)?;
    let mut source = LogSource::new(file.clone(), Arc::new(IoCounters::default()))?;
    let in_file = overlay.is_empty();
    source.lay_over(overlay, None)?;
    let mut replay = Replay::open(source, LOG, &UUID)?;
    let mut found = Vec::new();
    let mut buf = IoBuf::default();
    while replay.next(|entry| {
        if in_file {
            assert_eq!(
                read_value(&*file, entry.address, entry.tag.seqno(), &mut buf)?,
                entry.value
            );
        }
        found.push((
            entry.tag.seqno().0,
            entry.key.to_vec(),
            entry.value.to_vec(),
        ));
        Ok(())
    })? {}
    let end = replay.end(known_synced)?;
    Ok((found, end))
}

/// Entries of a memtable know where the log has their values. The values are read there, once, and
/// counted.
#[test]
fn lab_06_entries_know_where_the_log_has_their_values() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut log = writer(&files);
    let buffer = Arc::new(Memtable::new(4 << 20, LOG));
    let issued = append_to(&buffer, &mut log, &mut Seed::new(5), 40, false);
    let counters = Arc::new(IoCounters::default());
    let cache = Arc::new(firn_table::BlockCache::new(4 << 20));
    let values = ValueLogs::new(files.clone(), counters.clone(), cache, false);
    let mut iter = buffer.iter();
    iter.first();
    for round in 0..2 {
        let before = counters.get(Cause::UserRead).0;
        for (_, key, value) in &issued {
            iter.seek(key, Tag::seek(SeqNo::MAX));
            assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
            assert_eq!(
                values.get(iter.address(), iter.tag().seqno()).unwrap(),
                value
            );
            values.add(iter.address());
        }
        assert_eq!(counters.get(Cause::UserRead).0 > before, round == 0);
    }
    let bytes: usize = issued.iter().map(|(.., value)| value.len()).sum();
    let all = values::LogUse {
        log_id: LOG,
        entries: 2 * issued.len() as u64,
        bytes: 2 * bytes as u64,
        file_bytes: 0,
    };
    assert_eq!(values.uses(), [all]);
    assert_eq!(values.take_unused(LOG.next()), []);
    for (_, key, _) in &issued {
        iter.seek(key, Tag::seek(SeqNo::MAX));
        (0..2).for_each(|_| values.remove(iter.address()));
    }
    assert_eq!(
        values.take_unused(LOG),
        [],
        "not those that are still to be replayed"
    );
    assert_eq!(values.take_unused(LOG.next()), [LOG]);
    // The value at an address is checked.
    iter.first();
    let moved = ValueAddress {
        offset: iter.address().offset + 1,
        ..iter.address()
    };
    assert_eq!(
        values.get(moved, iter.tag().seqno()).unwrap_err().kind(),
        ErrorKind::Corruption
    );
}

/// Two values of one length in each other's place are not mistaken for each other by any reader.
#[test]
fn a_value_is_its_entrys_alone() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut log = writer(&files);
    let buffer = Arc::new(Memtable::new(1 << 20, LOG));
    let entry = |key: &'static [u8], value: &'static [u8]| Entry {
        kind: Kind::Put,
        key,
        value,
    };
    for (seqno, entry) in [
        (1, entry(b"a", b"first value")),
        (2, entry(b"b", b"other value")),
    ] {
        let entries = || std::iter::once(entry);
        let reservation = buffer
            .reserve(entries(), Footprint::of(entries(), 1))
            .unwrap();
        log.note_addresses();
        log.append(
            std::slice::from_ref(&reservation),
            SeqNo(seqno),
            false,
            true,
        )
        .unwrap();
        reservation.link(SeqNo(seqno));
    }
    let found = |key: &[u8]| {
        let mut iter = buffer.iter();
        iter.seek(key, Tag::seek(SeqNo::MAX));
        (iter.address(), iter.tag().seqno())
    };
    let (a, b) = (found(b"a"), found(b"b"));
    let path = files.path_of(FileName::Log(LOG));
    let mut bytes = std::fs::read(&path).unwrap();
    let framed = |at: ValueAddress| {
        at.offset as usize..at.offset as usize + VALUE_HEADER_BYTES + at.len as usize
    };
    let (of_a, of_b) = (bytes[framed(a.0)].to_vec(), bytes[framed(b.0)].to_vec());
    let values = || {
        let cache = Arc::new(firn_table::BlockCache::new(1 << 20));
        ValueLogs::new(files.clone(), Arc::default(), cache, false)
    };
    assert_eq!(values().get(a.0, a.1).unwrap(), b"first value");
    bytes[framed(a.0)].copy_from_slice(&of_b);
    bytes[framed(b.0)].copy_from_slice(&of_a);
    std::fs::write(&path, bytes).unwrap();
    for (at, seqno) in [a, b] {
        assert_eq!(
            values().get(at, seqno).unwrap_err().kind(),
            ErrorKind::Corruption
        );
        let ahead = values().submit(at, seqno).unwrap().unwrap();
        assert_eq!(
            values().finish(ahead).unwrap_err().kind(),
            ErrorKind::Corruption
        );
        let all = values().for_each(
            &[Some((at, seqno))],
            || Ok(1),
            |_, _| panic!("it is not that value"),
        );
        assert_eq!(all.unwrap_err().kind(), ErrorKind::Corruption);
    }
    assert_eq!(
        replay(&files, Vec::new(), 0).unwrap().0,
        [],
        "nor does a replay take them"
    );
}

#[test]
fn what_was_written_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut log = writer(&files);
    let issued = append(&mut log, &mut Seed::new(1), 50, false);
    let end = log.end();
    let (found, replayed) = replay(&files, Vec::new(), 0).unwrap();
    assert_eq!(found, issued);
    assert_eq!(
        replayed,
        End {
            at: end.end,
            torn: false
        }
    );
}

/// Cuts the log at every byte: a prefix of the groups comes back, and nothing else.
#[test]
fn cut_anywhere_gives_a_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut log = writer(&files);
    let issued = append(&mut log, &mut Seed::new(2), 12, false);
    let bytes = std::fs::read(files.path_of(FileName::Log(LOG))).unwrap();
    let (fs, files) = in_memory();
    for cut in 0..bytes.len() {
        fs.write_file(&files.path_of(FileName::Log(LOG)), &bytes[..cut]);
        let (found, _) = replay(&files, Vec::new(), 0).unwrap();
        assert_eq!(found, issued[..found.len()]);
        assert!(found.len() < issued.len());
        let sealed = replay(&files, Vec::new(), bytes.len() as u64);
        assert_eq!(
            sealed.map_err(|error| error.kind()).unwrap_err(),
            ErrorKind::Corruption
        );
    }
}

/// Flips one bit in every byte: damage in a part that was synced before a later frame is
/// `Corruption`; the last group may be torn.
#[test]
fn a_flipped_bit_is_damage_or_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut log = writer(&files);
    let issued = append(&mut log, &mut Seed::new(3), 12, true);
    let bytes = std::fs::read(files.path_of(FileName::Log(LOG))).unwrap();
    let (fs, files) = in_memory();
    let (mut damaged, mut torn) = (0, 0);
    for at in FILE_HEADER_BYTES..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        fs.write_file(&files.path_of(FileName::Log(LOG)), &flipped);
        match replay(&files, Vec::new(), 0) {
            Ok((found, end)) => {
                assert_eq!(found, issued[..found.len()]);
                assert!(end.torn && found.len() < issued.len());
                torn += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption);
                damaged += 1;
            }
        }
    }
    assert!(damaged > 5 * torn, "{damaged} damaged, {torn} torn");
}

/// A copy of the log inside a value is not taken for the log.
#[test]
fn a_value_that_looks_like_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut log = writer(&files);
    append(&mut log, &mut Seed::new(4), 3, true);
    let copy = std::fs::read(files.path_of(FileName::Log(LOG))).unwrap();
    let buffer = Arc::new(Memtable::new(1 << 20, LOG));
    let entry = || {
        std::iter::once(Entry {
            kind: Kind::Put,
            key: b"copy",
            value: &copy,
        })
    };
    let reservation = buffer.reserve(entry(), Footprint::of(entry(), 0)).unwrap();
    log.append(&[reservation], SeqNo(1000), false, true)
        .unwrap();
    let whole = std::fs::read(files.path_of(FileName::Log(LOG))).unwrap();
    // Tear the frame that holds the copy. The frames inside its value must neither be replayed nor
    // be taken for later ones.
    std::fs::write(files.path_of(FileName::Log(LOG)), &whole[..whole.len() - 1]).unwrap();
    let (found, end) = replay(&files, Vec::new(), 0).unwrap();
    assert!(found.iter().all(|(seqno, ..)| *seqno < 1000));
    assert!(end.torn);
}

/// lab_04: the log goes through two halves in persistent memory, is durable at the fence, and
/// reaches the file in writes of one half each.
#[test]
fn lab_04_log_buffer() {
    const HALF: usize = 8 << 10;
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let config = PmConfig::at(dir.path().join("pool"), Backend::Emulated, 256 << 10);
    let pool = Arc::new(Pool::open_or_create(&config, UUID).unwrap());
    pool.finish_recovery().unwrap();
    let half = PmLogBuffer::open(&pool, UUID, HALF).unwrap().unwrap();
    let counters = Arc::new(IoCounters::default());
    let sealed = Arc::new(SealedLogs::new(FileId(0)));
    let mut log = LogWriter::create(files.clone(), counters.clone(), LOG, sealed).unwrap();
    log.go_through(half, None).unwrap();
    let issued = append(&mut log, &mut Seed::new(5), 60, false);
    let end = log.end();
    assert_eq!(end.synced_through, end.end, "durable at the fence");
    assert!(end.end > 3 * HALF as u64);
    let (_, _, bytes, writes) = counters.get(firn_base::count::Cause::Log);
    // The header of the file, then whole halves. The last two are still in the pool.
    assert!(
        writes - 1 <= end.end / HALF as u64,
        "{writes} writes for {} bytes",
        end.end
    );
    assert!(bytes < end.end);
    // The part that the file lacks is in the halves.
    let overlay = PmLogBuffer::overlay(&pool, &UUID, LOG).unwrap();
    assert_eq!(
        replay(&files, overlay, end.synced_through).unwrap().0,
        issued
    );
    assert!(replay(&files, vec![(0, Vec::new())], end.synced_through).is_err());
    // A clean close writes everything to the file.
    log.close().unwrap();
    assert_eq!(
        replay(&files, Vec::new(), end.synced_through).unwrap().0,
        issued
    );
}

/// A frame of several halves that fails because the file does leaves nothing that masks later bytes
/// in its place: neither in a half that begins at the same place, nor in one that begins in the
/// middle of it.
#[test]
fn lab_04_what_a_failed_frame_left_masks_nothing() {
    const HALF: usize = 8 << 10;
    let put = |log: &mut LogWriter, seqno: u64, len: usize| {
        let buffer = Arc::new(Memtable::new(1 << 20, LOG));
        let (key, value) = (seqno.to_be_bytes(), vec![seqno as u8; len]);
        let entry = || {
            std::iter::once(Entry {
                kind: Kind::Put,
                key: &key,
                value: &value,
            })
        };
        let reservation = buffer.reserve(entry(), Footprint::of(entry(), 0)).unwrap();
        log.append(&[reservation], SeqNo(seqno), false, true)
            .map(|()| (seqno, key.to_vec(), value.clone()))
    };
    let mut failures = 0;
    // The first frame of a half, or one in the middle of it, with two to five halves.
    for (before, len, write) in
        (0..3).flat_map(|b| (1..5).flat_map(move |l| (0..6).map(move |w| (b, l, w))))
    {
        let dir = tempfile::tempdir().unwrap();
        let config = PmConfig::at(dir.path().join("pool"), Backend::Emulated, 256 << 10);
        let pool = Arc::new(Pool::open_or_create(&config, UUID).unwrap());
        pool.finish_recovery().unwrap();
        let fs = SimFs::new(1);
        let files = Arc::new(Files::of_test(&fs, Path::new("/db"), UUID));
        let mut log = writer(&files);
        log.go_through(PmLogBuffer::open(&pool, UUID, HALF).unwrap().unwrap(), None)
            .unwrap();
        let mut issued: Vec<Issued> = (0..before)
            .map(|i| put(&mut log, 1 + i, 2000).unwrap())
            .collect();
        fs.inject(Fault::once(FaultKind::Eio).on(OpKind::Write).after(write));
        match put(&mut log, 10, len * HALF) {
            Ok(whole) => issued.push(whole),
            Err(_) => failures += 1,
        }
        for seqno in 11..40 {
            // If the fault was not met before, it is met here.
            issued.extend(put(&mut log, seqno, 900).or_else(|_| put(&mut log, seqno, 900)));
            let overlay = PmLogBuffer::overlay(&pool, &UUID, LOG).unwrap();
            let (found, _) = replay(&files, overlay, log.end().synced_through).unwrap();
            assert!(
                found == issued,
                "{before} frames, then {len} halves, write {write}: lost at entry {seqno}"
            );
        }
    }
    assert!(failures > 5, "{failures} frames failed");
}

/// A half begins where the file or the other half ends. A half that claims to begin after that is
/// rejected, however large the gap: no bytes are invented for it.
#[test]
fn a_half_behind_a_hole_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut log = writer(&files);
    let issued = append(&mut log, &mut Seed::new(7), 3, true);
    let end = log.end().end;
    for base in [end + 1, 1 << 40, u64::MAX - 3, u64::MAX] {
        let refused = replay(&files, vec![(base, vec![0; 64])], 0).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corruption, "a half at {base}");
    }
    assert_eq!(
        replay(&files, vec![(end, vec![0; 64])], 0).unwrap().0,
        issued
    );
}

/// A pool that is not durable at the fence provides no log buffer.
#[test]
fn no_log_buffer_without_a_durable_fence() {
    let pool = Arc::new(Pool::open_or_create(&PmConfig::volatile(256 << 10), UUID).unwrap());
    pool.finish_recovery().unwrap();
    assert!(PmLogBuffer::open(&pool, UUID, 8 << 10).unwrap().is_none());
}

/// Rotation seals a log at its end, and the next one begins empty.
#[test]
fn rotation_seals() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut log = writer(&files);
    let issued = append(&mut log, &mut Seed::new(6), 5, false);
    let end = log.rotate(LOG.next()).unwrap();
    assert_eq!((end.log_id, end.synced_through), (LOG, 0));
    assert_eq!(
        replay(&files, Vec::new(), 0).unwrap(),
        (
            issued,
            End {
                at: end.end,
                torn: false
            }
        )
    );
    // A sync of the new log covers the old one.
    log.append(&[], SeqNo(99), true, true).unwrap();
    assert_eq!(log.end().synced_through, log.end().end);
}

/// Appends one entry, synced.
fn put(log: &mut LogWriter, seqno: u64, value: &[u8]) {
    let buffer = Arc::new(Memtable::new(4 << 20, LOG));
    let entry = || {
        std::iter::once(Entry {
            kind: Kind::Put,
            key: b"key",
            value,
        })
    };
    let reservation = buffer.reserve(entry(), Footprint::of(entry(), 0)).unwrap();
    log.append(&[reservation], SeqNo(seqno), true, true)
        .unwrap();
}

/// A later frame is noticed wherever its header lies in the bytes that are searched at once.
#[test]
fn a_header_across_a_border_is_found() {
    const SEARCHED: u64 = 1 << 20;
    let value = vec![0x33; SEARCHED as usize];
    let overhead = {
        let (_, files) = in_memory();
        let mut log = writer(&files);
        put(&mut log, 1, &value);
        log.end().end - FILE_HEADER_BYTES as u64 - SEARCHED
    };
    for before_border in 0..=FRAME_HEADER_BYTES_MAX as u64 {
        let (fs, files) = in_memory();
        let mut log = writer(&files);
        put(&mut log, 1, &value[(overhead + before_border) as usize..]);
        let header_at = log.end().end;
        assert_eq!(
            header_at,
            FILE_HEADER_BYTES as u64 + SEARCHED - before_border
        );
        put(&mut log, 2, b"");
        let path = files.path_of(FileName::Log(LOG));
        let mut bytes = fs.read_file(&path).unwrap();
        bytes[FILE_HEADER_BYTES] ^= 1;
        fs.write_file(&path, &bytes);
        let found = replay(&files, Vec::new(), 0).map_err(|error| error.kind());
        assert_eq!(
            found.unwrap_err(),
            ErrorKind::Corruption,
            "{before_border} bytes before the border"
        );
        // It is the only evidence.
        fs.write_file(&path, &bytes[..header_at as usize]);
        assert!(replay(&files, Vec::new(), 0).unwrap().1.torn);
    }
}

/// A header in the torn end counts as evidence only if a writer could have written it there.
#[test]
fn an_implausible_header_is_no_evidence() {
    let (fs, files) = in_memory();
    let mut log = writer(&files);
    (1..5).for_each(|seqno| put(&mut log, seqno, b"value"));
    let path = files.path_of(FileName::Log(LOG));
    let bytes = fs.read_file(&path).unwrap();
    let at = bytes.len() as u64 + 5;
    let plausible = FrameHeader {
        key_bytes: 1,
        entries: 1,
        named: false,
        value_bytes: 8,
        first_seqno: SeqNo(5),
        synced_through: at,
        key_crc: 0,
    };
    let ends = |header: FrameHeader| {
        let mut torn = [&bytes[..], b"torn "].concat();
        header.put(&mut torn, LOG, at);
        fs.write_file(&path, &torn);
        let replayed = replay(&files, Vec::new(), 0);
        replayed.map(|(found, end)| (found.len(), end.torn)).ok()
    };
    assert_eq!(ends(plausible), None);
    assert_eq!(
        ends(FrameHeader {
            first_seqno: SeqNo(4),
            ..plausible
        }),
        None,
        "an entry's own number is not below it"
    );
    for header in [
        FrameHeader {
            synced_through: at + 1,
            ..plausible
        },
        FrameHeader {
            first_seqno: SeqNo(3),
            ..plausible
        },
        FrameHeader {
            first_seqno: SeqNo::MAX,
            ..plausible
        },
        FrameHeader {
            value_bytes: u64::MAX - at,
            ..plausible
        },
    ] {
        assert_eq!(ends(header), Some((4, true)), "{header:?}");
    }
}

/// A log whose header is damaged is not taken for an empty one, and a repair reads its frames.
#[test]
fn a_log_without_a_header_keeps_its_frames() {
    let (fs, files) = in_memory();
    let mut log = writer(&files);
    let issued = append(&mut log, &mut Seed::new(8), 4, true);
    let path = files.path_of(FileName::Log(LOG));
    let mut bytes = fs.read_file(&path).unwrap();
    bytes[8] ^= 7;
    fs.write_file(&path, &bytes);
    let opened = replay(&files, Vec::new(), 0).map_err(|error| error.kind());
    assert_eq!(opened.unwrap_err(), ErrorKind::Corruption);
    let file = files.open(FileName::Log(LOG), OpenMode::Read).unwrap();
    let source = LogSource::new(file, Arc::default()).unwrap();
    let mut any = Replay::open_any(source, LOG, &UUID).unwrap();
    let mut found = 0;
    while any
        .next(|_| {
            found += 1;
            Ok(())
        })
        .unwrap()
    {}
    assert_eq!(found, issued.len());
}

proptest::proptest! {
    /// Arbitrary bytes after a log's header give a log or an error.
    #[test]
    fn hostile_logs(bytes: Vec<u8>) {
        let (fs, files) = in_memory();
        let path = files.path_of(FileName::Log(LOG));
        for (version, magic) in [(VERSION, &FRAME_MAGIC.to_le_bytes()[..]), (old::VERSION_3, b"FRM1")] {
            let header = LogHeader {
                version,
                uuid: UUID,
                previous: None,
            };
            let log = [&header.encode(LOG)[..], magic, &bytes].concat();
            fs.write_file(&path, &log);
            let _any = replay(&files, Vec::new(), 0);
        }
    }
}
