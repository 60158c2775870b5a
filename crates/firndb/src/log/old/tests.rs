//! Tests logs of versions 2 and 3: they are read as before. `version_3.log` was written by commit
//! 97f4ec81, the last one that wrote version 3.

use super::encode;
use super::*;
use crate::files::{FileName, Files};
use crate::log::layout::VALUE_HEADER_BYTES;
use crate::log::tests::{LOG, UUID, in_memory};
use crate::log::{End, LogSource, Replay};
use firn_base::key::Kind;
use firn_base::{ErrorKind, Result};
use firn_fs::{OpenMode, SimFs};
use std::sync::Arc;

const FIXTURE: &[u8] = include_bytes!("version_3.log");
/// The ends of its frames. The third has no entries, and says how far the log was synced.
const ENDS: [u64; 5] = [149, 255, 303, 685, 751];
/// The numbers of entries in them.
const ENTRIES: [usize; 5] = [2, 2, 0, 2, 1];

type Found = (u64, Kind, Vec<u8>, Vec<u8>);

fn written() -> Vec<Found> {
    let entry = |seqno, kind, key: &[u8], value: &[u8]| (seqno, kind, key.to_vec(), value.to_vec());
    vec![
        entry(1000, Kind::Put, b"apple", b"red"),
        entry(1001, Kind::Put, b"birch", b""),
        entry(1002, Kind::Delete, b"apple", b""),
        entry(1003, Kind::Put, b"cedar", b"a value of several words"),
        entry(1004, Kind::Put, b"birch", &[0x5a; 300]),
        entry(1005, Kind::Delete, b"none", b""),
        entry(1006, Kind::Put, b"\x00\xff", b"last"),
    ]
}

/// Replays `bytes`, as an open does or as a repair does.
fn replay(
    (fs, files): &(SimFs, Arc<Files>),
    bytes: &[u8],
    known_synced: u64,
    any: bool,
) -> Result<(Vec<Found>, End)> {
    fs.write_file(&files.path_of(FileName::Log(LOG)), bytes);
    let file = files.open(FileName::Log(LOG), OpenMode::Read)?;
    let source = LogSource::new(file, Arc::default())?;
    let mut replay = if any {
        Replay::open_any(source, LOG, &UUID)?
    } else {
        Replay::open(source, LOG, &UUID)?
    };
    let mut found = Vec::new();
    while replay.next(|entry| {
        found.push((
            entry.tag.seqno().0,
            entry.tag.kind().expect("a known kind"),
            entry.key.to_vec(),
            entry.value.to_vec(),
        ));
        Ok(())
    })? {}
    assert!(replay.named() || found.len() < 5, "the third frame says it");
    Ok((found, replay.end(known_synced)?))
}

fn kind_of<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn version_3_is_replayed() {
    let at = in_memory();
    for any in [false, true] {
        let (found, end) = replay(&at, FIXTURE, 0, any).unwrap();
        assert_eq!(found, written());
        let whole = End {
            at: FIXTURE.len() as u64,
            torn: false,
        };
        assert_eq!(end, whole);
    }
}

/// Frames of version 2 are those of version 3.
#[test]
fn version_2_is_replayed() {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(&FILE_MAGIC.to_le_bytes());
    header[8..12].copy_from_slice(&VERSION_2.to_le_bytes());
    header[16..24].copy_from_slice(&LOG.0.to_le_bytes());
    header[24..40].copy_from_slice(&UUID);
    let crc = crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    let log = [&header[..], &FIXTURE[FILE_HEADER_BYTES..]].concat();
    assert_eq!(replay(&in_memory(), &log, 0, false).unwrap().0, written());
}

#[test]
fn a_torn_log_ends_at_its_last_whole_frame() {
    let at = in_memory();
    for cut in FILE_HEADER_BYTES..FIXTURE.len() {
        let whole = ENDS.iter().filter(|&&end| end <= cut as u64).count();
        let entries: usize = ENTRIES[..whole].iter().sum();
        let (found, end) = replay(&at, &FIXTURE[..cut], 0, false).unwrap();
        assert_eq!(found, written()[..entries]);
        let last = ENDS[..whole].last().copied();
        assert_eq!(end.at, last.unwrap_or(FILE_HEADER_BYTES as u64));
        assert_eq!(end.torn, end.at < cut as u64);
        let sealed = replay(&at, &FIXTURE[..cut], FIXTURE.len() as u64, false);
        assert_eq!(kind_of(sealed), Some(ErrorKind::Corruption));
    }
}

/// The last frame says that all before it had been synced.
#[test]
fn a_damaged_log_is_rejected() {
    let at = in_memory();
    for bit in FILE_HEADER_BYTES * 8..FIXTURE.len() * 8 {
        let mut damaged = FIXTURE.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let replayed = replay(&at, &damaged, 0, false);
        if (bit as u64 / 8) < ENDS[3] {
            assert_eq!(kind_of(replayed), Some(ErrorKind::Corruption), "bit {bit}");
        } else {
            let (found, end) = replayed.unwrap();
            assert_eq!(found, written()[..6]);
            assert_eq!((end.at, end.torn), (ENDS[3], true));
        }
    }
}

/// A log whose header cannot be read holds no known version. The synced frames in it are still
/// noticed, and a repair reads them.
#[test]
fn a_log_without_a_header_keeps_its_frames() {
    let at = in_memory();
    for byte in 0..FILE_HEADER_BYTES {
        let mut damaged = FIXTURE.to_vec();
        damaged[byte] ^= 0x20;
        let opened = replay(&at, &damaged, 0, false);
        assert_eq!(kind_of(opened), Some(ErrorKind::Corruption));
        assert_eq!(replay(&at, &damaged, 0, true).unwrap().0, written());
    }
}

/// The encoder of these tests and of the proof writes what the engine wrote.
#[test]
fn the_encoder_writes_version_3() {
    let mut at = FILE_HEADER_BYTES;
    for end in ENDS {
        let frame = &FIXTURE[at..end as usize];
        let header = decode_frame_header(frame, LOG, at as u64).unwrap();
        let keys = &frame[FRAME_HEADER_BYTES..][..header.key_bytes as usize];
        let (mut reader, mut again) = (Reader::new(keys), Vec::new());
        let mut values = Reader::new(&frame[FRAME_HEADER_BYTES + keys.len()..]);
        let mut value_headers = Vec::new();
        while !reader.is_empty() {
            let record = key_record(&mut reader).unwrap();
            encode::put_key_record(&mut again, &record);
            let framed = values.take(VALUE_HEADER_BYTES + record.value_len as usize);
            value_headers.extend_from_slice(&framed.unwrap()[..VALUE_HEADER_BYTES]);
        }
        assert_eq!(again, keys);
        let crc = crc32c(&value_headers);
        let encoded = encode::frame_header(&header, crc, LOG, at as u64);
        assert_eq!(encoded, frame[..FRAME_HEADER_BYTES]);
        at = end as usize;
    }
}

/// An old record of kind pointer names its slot, and an old one of another keyspace is unknown.
#[test]
fn old_records() {
    let pointer = KeyRecord {
        kind: Kind::Pointer as u8,
        key: b"hot",
        value_len: 40,
        slot: Some(1 << 20),
    };
    let mut bytes = Vec::new();
    encode::put_key_record(&mut bytes, &pointer);
    let read = key_record(&mut Reader::new(&bytes)).unwrap();
    assert_eq!((read.key, read.slot), (pointer.key, pointer.slot));
    bytes[1] = 1;
    assert!(key_record(&mut Reader::new(&bytes)).is_none());
}
