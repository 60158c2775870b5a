//! The log: a frame, a whole log file, and a log whose end is in a buffer in persistent memory.
//!
//! A log's id and uuid are taken from its own header, so any log can be a seed. An input whose
//! first frame has the old magic is mended to one of version 3, and any other one to version 4.

use super::patch::{clamp_u32, clamp_u64, put, put_u32};
use super::{Target, check_refusal, real};
use firn_base::FileId;
use firn_base::SeqNo;
use firn_base::checksum::{crc32c, crc32c_salted, of_entry};
use firn_base::coding::{Reader, get_u64, put_varint};
use firn_base::key::Kind;
use firn_base::site::TEST;
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{GRANULE_BYTES, Owner, Pool, RootEntry};
use firndb::proof;

const FILE_HEADER: usize = 64;
const FRAME_MAGIC: &[u8] = &[0xf4, 0x1e];
/// The offset in a frame header of the bytes that its checksum covers.
const CHECKED_FROM: usize = 6;
const OLD_FRAME_MAGIC: &[u8] = b"FRM1";
const OLD_FRAME_HEADER: usize = 48;
const VALUE_HEADER: usize = 8;
/// The id of the log for frames without a file.
const LOG_ID: u64 = 7;

/// A frame and the key records after it.
pub(super) const FRAME: Target = Target {
    name: "log_frame",
    bytes_max: 1 << 10,
    run: run_frame,
    seeds: frame_seeds,
    mend: mend_frame,
};

/// A log file.
pub(super) const LOG: Target = Target {
    name: "log",
    bytes_max: 8 << 10,
    run: run_log,
    seeds: log_seeds,
    mend: mend_log,
};

/// A log file's length (`u16`), a half of the log buffer's header, the file's bytes, the half's
/// bytes.
pub(super) const HALF: Target = Target {
    name: "log_half",
    bytes_max: 8 << 10,
    run: run_half,
    seeds: half_seeds,
    mend: mend_half,
};

fn run_frame(bytes: &[u8]) {
    proof::frame(bytes, FileId(LOG_ID), FILE_HEADER as u64);
}

fn frame_seeds() -> Vec<Vec<u8>> {
    log_seeds()
        .into_iter()
        .filter_map(|log| log.get(FILE_HEADER..).map(<[u8]>::to_vec))
        .map(mended_frame)
        .collect()
}

fn mended_frame(mut frame: Vec<u8>) -> Vec<u8> {
    frame.truncate(FRAME.bytes_max);
    mend_frame(&mut frame);
    frame
}

fn mend_frame(bytes: &mut Vec<u8>) {
    mend_frames(bytes, 0, LOG_ID, FILE_HEADER as u64);
}

/// Id and uuid of the database in a log's header.
fn header_of(log: &[u8]) -> (u64, [u8; 16]) {
    let uuid = log.get(20..36).and_then(|uuid| uuid.try_into().ok());
    (get_u64(log, 12).unwrap_or(0), uuid.unwrap_or_default())
}

fn run_log(bytes: &[u8]) {
    let (id, uuid) = header_of(bytes);
    for any in [false, true] {
        if let Err(error) = proof::replay_log(bytes, None, FileId(id), &uuid, any) {
            check_refusal(&error, "a log");
        }
    }
}

fn log_seeds() -> Vec<Vec<u8>> {
    real::files(".log")
}

pub(super) fn mend_log(bytes: &mut Vec<u8>) {
    mend_file_header(bytes);
    let (id, _) = header_of(bytes);
    mend_frames(bytes, FILE_HEADER, id, 0);
}

/// True if the frames from `at` on are of version 3.
fn is_old(bytes: &[u8], at: usize) -> bool {
    bytes
        .get(at..)
        .is_some_and(|frames| frames.starts_with(OLD_FRAME_MAGIC))
}

fn mend_file_header(bytes: &mut [u8]) {
    if bytes.len() < FILE_HEADER {
        return;
    }
    let version: u32 = if is_old(bytes, FILE_HEADER) { 3 } else { 4 };
    put(bytes, 0, b"FIRNLOG\0");
    put_u32(bytes, 8, version);
    // There is no previous log, so there is no end to record.
    if get_u64(bytes, 36) == Some(0) {
        put(bytes, 44, &[0; 16]);
    }
    let crc = crc32c(&bytes[..60]);
    put_u32(bytes, 60, crc);
}

/// Mends consecutive frames starting at `at`. `shift` is the offset of `bytes` in the log.
fn mend_frames(bytes: &mut Vec<u8>, mut at: usize, id: u64, shift: u64) {
    if is_old(bytes, at) {
        return mend_old_frames(bytes, at, id, shift);
    }
    while bytes.len() > at + CHECKED_FROM + 4 {
        let mut reader = Reader::new(&bytes[at + CHECKED_FROM + 4..]);
        let [keys, entries, values, first, synced] = [(); 5].map(|()| any_varint(&mut reader));
        let room = reader.remaining();
        let keys_at = bytes.len() - room;
        let keys = keys.min(room as u64) as usize;
        let values = values.min((room - keys) as u64) as usize;
        let values_at = keys_at + keys;
        let end = values_at + values;
        mend_values(&mut bytes[keys_at..end], keys, first, false);
        let mut fields = crc32c(&bytes[keys_at..values_at]).to_le_bytes().to_vec();
        for number in [keys as u64, entries, values as u64, first, synced] {
            put_varint(&mut fields, number);
        }
        let crc = crc32c_salted(id, shift + at as u64, &[&fields]);
        let header = [FRAME_MAGIC, &crc.to_le_bytes(), &fields].concat();
        let len = header.len() + keys + values;
        bytes.splice(at..keys_at, header);
        at += len;
    }
}

/// The next varint, or the low bits of the next byte if there is none.
fn any_varint(reader: &mut Reader<'_>) -> u64 {
    let mut ahead = reader.clone();
    match ahead.varint() {
        Some(number) => {
            *reader = ahead;
            number
        }
        None => reader.u8().map_or(0, |byte| u64::from(byte & 0x7f)),
    }
}

/// As [`mend_frames`], for those of version 3.
fn mend_old_frames(bytes: &mut [u8], mut at: usize, id: u64, shift: u64) {
    while let Some(room) = bytes.len().checked_sub(at + OLD_FRAME_HEADER) {
        put(bytes, at, OLD_FRAME_MAGIC);
        let keys = clamp_u32(bytes, at + 8, room);
        let values = clamp_u64(bytes, at + 16, room - keys);
        let keys_at = at + OLD_FRAME_HEADER;
        let first = get_u64(bytes, at + 24).unwrap_or(0);
        let end = keys_at + keys + values;
        mend_values(&mut bytes[keys_at..end], keys, first, true);
        let crc = crc32c(&bytes[keys_at..keys_at + keys]);
        put_u32(bytes, at + 40, crc);
        let crc = crc32c_salted(id, shift + at as u64, &[&bytes[at + 8..keys_at]]);
        put_u32(bytes, at + 4, crc);
        at = end;
    }
}

/// Mends the values in `sections`, described by the key section of the first `keys` bytes, for
/// entries numbered from `first`.
fn mend_values(sections: &mut [u8], keys: usize, first: u64, old: bool) {
    let (keys, values) = sections.split_at_mut(keys);
    let mut reader = Reader::new(keys);
    let (mut at, mut next) = (0, first);
    while let Some((is_in_log, len)) = value_len(&mut reader, old) {
        let seqno = SeqNo(next);
        next = next.wrapping_add(1);
        if !is_in_log {
            continue;
        }
        let Some(value) = values
            .get(at + VALUE_HEADER..)
            .and_then(|rest| rest.get(..len))
        else {
            break;
        };
        let sum = of_entry(crc32c(value), seqno);
        put_u32(values, at, sum);
        put_u32(values, at + 4, len as u32);
        at += VALUE_HEADER + len;
    }
}

/// True if the value of the next key record is in the log, and its length.
fn value_len(reader: &mut Reader<'_>, old: bool) -> Option<(bool, usize)> {
    let kind = reader.u8()?;
    if old {
        let _keyspace = reader.varint()?;
    }
    let _key = reader.bytes()?;
    let len = reader.varint_max(u32::MAX as usize)?;
    let is_in_log = kind != Kind::Pointer as u8;
    if !is_in_log {
        reader.varint()?;
    }
    Some((is_in_log, len))
}

/// The parts of an input of [`HALF`]: the half's header, the file, the half's bytes.
fn parts_of_half(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (len, rest) = bytes.split_at_checked(2)?;
    let (header, rest) = rest.split_at_checked(FILE_HEADER)?;
    let (file, half) =
        rest.split_at_checked(usize::from(u16::from_le_bytes(len.try_into().ok()?)))?;
    Some((header, file, half))
}

fn run_half(bytes: &[u8]) {
    let Some((header, file, half)) = parts_of_half(bytes) else {
        return;
    };
    let (id, uuid) = header_of(file);
    let pool = pool_with_half(&[header, half].concat(), uuid).expect("a pool without a fault");
    if let Err(error) = proof::replay_log(file, Some(&pool), FileId(id), &uuid, false) {
        check_refusal(&error, "a log with a half");
    }
}

/// A pool whose root names one half of a log buffer that contains `half`.
fn pool_with_half(half: &[u8], uuid: [u8; 16]) -> firndb::Result<Pool> {
    let len = ((FILE_HEADER + half.len()) as u64).next_multiple_of(GRANULE_BYTES);
    let pool = Pool::open_simulated(&SimRegion::new((16 << 10) + len, Mode::Adr), uuid)?;
    pool.finish_recovery()?;
    let extent = pool.alloc(len, Owner::LogBuffer)?;
    // An input contains the header once.
    let fenced = pool.write_durable(
        &TEST,
        extent.offset,
        &[&half[..FILE_HEADER.min(half.len())], half],
    )?;
    pool.commit_with(fenced, |root| {
        root.set(RootEntry {
            owner: Owner::LogBuffer,
            kind: 0,
            word: 0,
            extent: Some(extent),
        });
        Ok(())
    })?;
    Ok(pool)
}

fn half_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for log in log_seeds() {
        for split in [FILE_HEADER, FILE_HEADER + (log.len() - FILE_HEADER) / 2] {
            let mut seed = (split as u16).to_le_bytes().to_vec();
            seed.extend_from_slice(&[0; 16]);
            seed.extend_from_slice(&(split as u64).to_le_bytes());
            seed.extend_from_slice(&[0; 40]);
            seed.extend_from_slice(&log);
            mend_half(&mut seed);
            seeds.push(seed);
        }
    }
    seeds
}

fn mend_half(bytes: &mut Vec<u8>) {
    let Some((_, file, _)) = parts_of_half(bytes) else {
        return;
    };
    let (id, uuid) = header_of(file);
    let mut log = bytes.split_off(2 + FILE_HEADER);
    let header = &mut bytes[2..];
    put(header, 0, b"FIRNPMLB");
    put(header, 8, &id.to_le_bytes());
    put(header, 24, &uuid);
    put(header, 40, &[0; 20]);
    let crc = crc32c(&header[..60]);
    put_u32(header, 60, crc);
    mend_file_header(&mut log);
    mend_frames(&mut log, FILE_HEADER, id, 0);
    bytes.append(&mut log);
}
