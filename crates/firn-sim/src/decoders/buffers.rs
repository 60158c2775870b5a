//! Write buffers in a pool: looked for, walked, read, and appended to.
//!
//! An input is the first lines of the directory, then the first data after the directory.

use super::in_pool;
use super::patch::{put_u32, put_u64};
use super::{Target, check_refusal};
use firn_base::checksum::crc32c_salted;
use firn_base::coding::{get_u32, get_u64};
use firn_base::seed::mix;
use firn_base::site::TEST;
use firn_base::{FileId, Kind, Result, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{DATA_START, GRANULE_BYTES, Owner, Pool};
use firn_table::pm_buffer::{
    BufferDirectory, ENTRY_HEADER_BYTES, NamedBuffer, Note, PmBuffer, StagedEntries, entry_bytes,
    walk,
};
use std::sync::Arc;

const POOL_BYTES: u64 = 64 << 10;
const GRANULE: usize = GRANULE_BYTES as usize;
const LINE: usize = 64;
/// The lines in an input: the committed words, and these of buffers.
const LINES: usize = 2 + 4;
const DATA_AT: usize = LINES * LINE;
const BYTES_MAX: usize = DATA_AT + 2 * GRANULE;
/// The place of the data in the pool.
const DATA: u64 = DATA_START + GRANULE_BYTES;

/// The write buffers of a pool.
pub(super) const BUFFERS: Target = Target {
    name: "pm_buffer",
    bytes_max: BYTES_MAX,
    run,
    seeds,
    mend,
};

/// A pool with the buffers that an input represents.
fn pool_of(bytes: &[u8]) -> Result<Arc<Pool>> {
    let (sim, pool) = in_pool::empty(POOL_BYTES)?;
    BufferDirectory::create(&pool, LINES as u32 - 2, SeqNo(0))?;
    pool.close()?;
    let mut image = sim.durable();
    let (lines, data) = bytes.split_at(bytes.len().min(DATA_AT));
    let data = &data[..data.len().min(BYTES_MAX - DATA_AT)];
    let mut put = |at: u64, part: &[u8]| {
        image[at as usize..at as usize + part.len()].copy_from_slice(part);
    };
    put(DATA_START, lines);
    put(DATA, data);
    let sim = SimRegion::from_image(image, Mode::Adr);
    Pool::open_simulated(&sim, in_pool::UUID).map(Arc::new)
}

fn run(bytes: &[u8]) {
    let pool = pool_of(bytes).expect("a pool without a fault");
    let directory = BufferDirectory::find(&pool).expect("the root is whole");
    let directory = directory.expect("the root names a directory");
    let committed = match directory.committed() {
        Ok(committed) => committed,
        Err(error) => {
            check_refusal(&error, "the committed words");
            SeqNo::MAX
        }
    };
    let mut buffers = Vec::new();
    for named in directory.named().expect("the pool can be read") {
        let claimed = named.and_then(|named| {
            pool.claim(named.extent, Owner::WriteBuffer)?;
            Ok(named)
        });
        match claimed.and_then(|named| opened(&pool, &named, committed)) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => check_refusal(&error, "a buffer"),
        }
    }
    pool.finish_recovery().expect("the first time");
    pool.check().expect("the space adds up");
    use_buffers(&directory, buffers);
}

/// A buffer after a walk, whose values were read.
fn opened(pool: &Arc<Pool>, named: &NamedBuffer, committed: SeqNo) -> Result<PmBuffer> {
    let mut found = Vec::new();
    let mut next = 0;
    let end = walk(pool, named, 0, committed, |entry| {
        assert_eq!(entry.at, next, "entries follow each other");
        assert!(entry.tag.seqno() <= committed);
        next += entry_bytes(entry.key.len(), entry.value_len as usize) as u64;
        found.push((entry.at, entry.tag, entry.key.to_vec(), entry.value_len));
        Ok(())
    })?;
    assert!(end == next && named.end <= end && end <= named.extent.len);
    assert!(
        !named.is_final || named.end == end,
        "nothing behind a final end"
    );
    let (id, line) = (named.id, named.line);
    let buffer = PmBuffer::new(pool.clone(), id, line, named.extent, end)?;
    for (at, tag, key, value_len) in found {
        let stored = buffer.bytes(at + ENTRY_HEADER_BYTES as u64, key.len())?;
        assert_eq!(stored, key, "a key that was walked");
        match buffer.value(at, tag.seqno()) {
            Ok(value) => assert_eq!(value.len(), value_len as usize),
            Err(error) => check_refusal(&error, "a value"),
        }
    }
    Ok(buffer)
}

/// Checks that buffers that were found can be noted, removed and freed, and that a new one works.
fn use_buffers(directory: &BufferDirectory, buffers: Vec<PmBuffer>) {
    let pool = directory.pool();
    let note = |buffer: &PmBuffer| Note {
        line: buffer.line(),
        id: buffer.id(),
        through: SeqNo(9),
        end: buffer.end(),
        is_final: true,
    };
    let notes: Vec<Note> = buffers.iter().map(note).collect();
    directory.note(&notes).expect("notes of named buffers");
    let lines: Vec<u32> = buffers.iter().map(PmBuffer::line).collect();
    directory.remove(&lines).expect("lines that name buffers");
    for buffer in buffers {
        buffer.free().expect("nothing names it");
    }
    pool.check().expect("the space adds up");
    let fenced = firn_pm::Fenced::nothing();
    directory.commit(SeqNo(9), &fenced).expect("a number");
    let added = add(directory, FileId(77), &[(1, 3)]).map(|buffer| buffer.end());
    assert!(
        added.is_ok_and(|end| end > 0),
        "a pool has room for one more"
    );
    let named = directory.named().expect("the pool can be read");
    let mut whole = named.iter().flatten();
    assert!(
        whole.any(|named| named.id == FileId(77)),
        "the line is there"
    );
}

/// A new buffer with groups of entries: the first number and the number of entries of each.
fn add(directory: &BufferDirectory, id: FileId, groups: &[(u64, u64)]) -> Result<PmBuffer> {
    let pool = directory.pool();
    let extent = pool.alloc(GRANULE_BYTES, Owner::WriteBuffer)?;
    let line = directory.name(id, extent, SeqNo(0))?.expect("a free line");
    let buffer = PmBuffer::new(pool.clone(), id, line, extent, 0)?;
    for &(first, count) in groups {
        let mut staged = StagedEntries::default();
        for number in first..first + count {
            let key = format!("key{:0width$}", number % 10, width = number as usize % 9);
            match number % 4 {
                0 => staged.add(Kind::Delete, key.as_bytes(), b""),
                _ => staged.add(Kind::Put, key.as_bytes(), &vec![7; number as usize % 40]),
            }
        }
        let (_, flushed) = buffer.append(&mut staged, SeqNo(first))?;
        buffer.reveal(&pool.fence(&TEST, flushed));
    }
    Ok(buffer)
}

fn seeds() -> Vec<Vec<u8>> {
    let few: &[(u64, u64)] = &[(1, 3), (4, 2), (6, 3)];
    let many: &[(u64, u64)] = &[(1, 30), (31, 20)];
    [
        seed(&[], 0, None),
        seed(&[few], 8, None),
        seed(&[few], 5, None),
        seed(&[few, &[(9, 2)]], 10, Some(false)),
        seed(&[&[(9, 2)], few], 10, Some(true)),
        seed(&[many], 50, Some(true)),
    ]
    .map(|seed| seed.expect("no fault"))
    .into()
}

/// Buffers with groups of entries, committed up to `committed`; noted, finally or not.
fn seed(buffers: &[&[(u64, u64)]], committed: u64, noted: Option<bool>) -> Result<Vec<u8>> {
    let (sim, pool) = in_pool::empty(POOL_BYTES)?;
    let directory = BufferDirectory::create(&pool, LINES as u32 - 2, SeqNo(0))?;
    for (groups, id) in buffers.iter().zip(7..) {
        let buffer = add(&directory, FileId(id), groups)?;
        if let Some(is_final) = noted {
            directory.note(&[Note {
                line: buffer.line(),
                id: buffer.id(),
                through: SeqNo(committed),
                end: buffer.end(),
                is_final,
            }])?;
        }
    }
    directory.commit(SeqNo(committed), &firn_pm::Fenced::nothing())?;
    let image = sim.durable();
    let part = |at: u64, len: usize| &image[at as usize..at as usize + len];
    let data = part(DATA, BYTES_MAX - DATA_AT);
    let mut input = [part(DATA_START, DATA_AT), data].concat();
    while input.last() == Some(&0) {
        input.pop();
    }
    Ok(input)
}

fn crc8(bytes: &[u8]) -> u8 {
    let step = |crc: u8, _| (crc << 1) ^ if crc & 0x80 != 0 { 0x2f } else { 0 };
    let add = |crc: u8, byte: &u8| (0..8).fold(crc ^ byte, step);
    bytes.iter().fold(0xff, add)
}

/// Corrects the checksum of the word at `at`.
fn mend_word(bytes: &mut [u8], at: usize, line: u32, kind: u8, id: u64) {
    let Some(word) = get_u64(bytes, at) else {
        return;
    };
    let mut covered = in_pool::UUID.to_vec();
    covered.extend_from_slice(&line.to_le_bytes());
    covered.push(kind);
    covered.extend_from_slice(&id.to_le_bytes());
    covered.extend_from_slice(&word.to_le_bytes()[1..]);
    put_u64(bytes, at, word & !0xff | u64::from(crc8(&covered)));
}

/// Corrects the checksums of the committed words, of the lines, and of the entries that lines lead
/// to.
fn mend(bytes: &mut Vec<u8>) {
    for line in 0..2 {
        mend_word(bytes, line as usize * LINE, line, 1, 0);
    }
    for line in 0..LINES - 2 {
        let at = (line + 2) * LINE;
        let Some(first) = get_u64(bytes, at).filter(|first| first & 0xff == 0xa7) else {
            continue;
        };
        let (id, number) = (first >> 8, line as u32);
        mend_word(bytes, at + 32, number, 2, id);
        mend_word(bytes, at + 40, number, 3, id);
        if let Some(place) = bytes.get(at + 8..at + 24) {
            let crc = crc32c_salted(id, line as u64, &[&in_pool::UUID, place]);
            put_u64(bytes, at + 24, u64::from(crc));
        }
        let offset = get_u64(bytes, at + 8).unwrap_or(0);
        mend_entries(bytes, id, offset);
    }
}

/// Corrects the checksums of the entries of buffer `id`, whose extent begins at `offset`.
fn mend_entries(bytes: &mut [u8], id: u64, offset: u64) {
    let Some(start) = offset.checked_sub(DATA) else {
        return;
    };
    let half = |at| get_u64(&in_pool::UUID, at).unwrap_or(0);
    let salt = id ^ mix(half(0) ^ mix(half(8)));
    let start = DATA_AT.saturating_add(start as usize);
    let mut at = start;
    while let (Some(tag), Some(value_len), Some(key_len)) = (
        get_u64(bytes, at.saturating_add(8)),
        get_u32(bytes, at.saturating_add(16)),
        get_u32(bytes, at.saturating_add(20)),
    ) {
        let key_len = key_len as usize & 0xffff;
        let Some(head) = bytes.get(at + 4..at + ENTRY_HEADER_BYTES + key_len) else {
            return;
        };
        if Tag(tag).seqno() == SeqNo(0) {
            return;
        }
        let crc = crc32c_salted(salt, (at - start) as u64, &[head]);
        put_u32(bytes, at, crc);
        at += entry_bytes(key_len, value_len as usize);
    }
}
