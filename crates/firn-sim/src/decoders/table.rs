//! Tables: a block, an index, properties, and a whole table, opened and read in every way.
//!
//! A table's id is taken from its footer, which is at the end of the input, so any table can be a
//! seed.

use super::patch::{clamp_u32, put, put_u32, put_u64};
use super::{Target, check_refusal, no_checksum, real};
use firn_base::checksum::{crc32c, crc32c_salted};
use firn_base::coding::{Reader, get_u32, get_u64, put_bytes, put_varint};
use firn_base::count::{Cause, IoCounters};
use firn_base::key::Kind;
use firn_base::{FileId, Limits, Result, SeqNo, Tag};
use firn_fs::{IoBuf, OpenMode, SimFs};
use firn_table::sst::{
    Access, Block, Extent, FOOTER_BYTES, HEADER_BYTES, Index, Lookup, Properties, Query, Sst,
    SstIter, SstOptions, SstWriter, may_contain,
};
use firn_table::{BlockCache, TableContext};
use std::path::Path;
use std::sync::Arc;

const FOOTER_MAGIC: &[u8; 8] = b"FIRNSST\x02";
/// The magic of a table with a filter for each block.
const BLOCK_FILTERS_MAGIC: &[u8; 8] = b"FIRNSST\x03";
const HEADER_MAGIC: &[u8; 8] = b"FIRNTBL\0";
const FILTER_LINE: usize = 64;
const CACHE_BYTES: u64 = 64 << 10;
/// The offsets of the handles of filter, index and properties in a footer: offset, then length,
/// then checksum.
const HANDLES: [usize; 3] = [16, 32, 48];
const DATA_BYTES_AT: usize = 64;

/// A data block before compression.
pub(super) const BLOCK: Target = Target {
    name: "sst_block",
    bytes_max: 4 << 10,
    run: run_block,
    seeds: block_seeds,
    mend: no_checksum,
};

/// An index.
pub(super) const INDEX: Target = Target {
    name: "sst_index",
    bytes_max: 4 << 10,
    run: run_index,
    seeds: index_seeds,
    mend: no_checksum,
};

/// Properties.
pub(super) const PROPERTIES: Target = Target {
    name: "sst_properties",
    bytes_max: 512,
    run: run_properties,
    seeds: properties_seeds,
    mend: no_checksum,
};

/// A table, with its footer at the end.
pub(super) const TABLE: Target = Target {
    name: "sst",
    bytes_max: 8 << 10,
    run: run_table,
    seeds: table_seeds,
    mend: mend_table,
};

/// Keys to look up.
const PROBES: [&[u8]; 6] = [b"", b"\0", b"key", b"key04", b"key99", b"\xff\xff"];

fn run_block(bytes: &[u8]) {
    if let Some(block) = Block::new(bytes.into()) {
        for key in PROBES {
            for seqno in [SeqNo(0), SeqNo(9), SeqNo::MAX] {
                if let Some(Lookup::Found(_, value)) = block.get(key, Tag::seek(seqno)) {
                    assert!(value.start <= value.end && value.end <= bytes.len());
                }
            }
        }
    }
    run_table(&table_of_block(bytes));
}

fn block_seeds() -> Vec<Vec<u8>> {
    table_seeds()
        .iter()
        .flat_map(|table| blocks(table))
        .filter(|(_, codec)| *codec == 0)
        .map(|(raw, _)| raw)
        .collect()
}

/// The stored blocks of a sound table, with their codecs.
fn blocks(table: &[u8]) -> Vec<(Vec<u8>, u8)> {
    let mut found = Vec::new();
    for_blocks(section(table, 1), |handle| {
        let end = handle.offset + handle.stored;
        found.extend(
            table
                .get(handle.offset..end)
                .map(|stored| (stored.to_vec(), handle.codec)),
        );
    });
    found
}

/// A table with one block, whose bounds include every key.
fn table_of_block(block: &[u8]) -> Vec<u8> {
    let mut index = 1u32.to_le_bytes().to_vec();
    put_varint(&mut index, 0);
    put_bytes(&mut index, &[0xff; 16]);
    put_varint(&mut index, 0);
    put_bytes(&mut index, b"");
    put_varint(&mut index, HEADER_BYTES as u64);
    put_varint(&mut index, block.len() as u64);
    put_varint(&mut index, block.len() as u64);
    index.extend_from_slice(&[0; 5]);
    table_of(block, &index, &Properties::default().encode())
}

/// A table without a filter.
fn table_of(data: &[u8], index: &[u8], properties: &[u8]) -> Vec<u8> {
    let mut table = [&[0; HEADER_BYTES], data, index, properties].concat();
    let footer_at = table.len();
    table.resize(footer_at + FOOTER_BYTES, 0);
    put_u32(&mut table, footer_at + HANDLES[1] + 8, index.len() as u32);
    put_u32(
        &mut table,
        footer_at + HANDLES[2] + 8,
        properties.len() as u32,
    );
    put_u64(&mut table, footer_at + DATA_BYTES_AT, data.len() as u64);
    mend_table(&mut table);
    table
}

fn run_index(bytes: &[u8]) {
    const DATA_END: u64 = 64 << 10;
    let Ok(index) = Index::decode(bytes, DATA_END) else {
        return;
    };
    assert!(index.len() <= bytes.len());
    run_table(&table_of(&[0; 256], bytes, &Properties::default().encode()));
}

fn index_seeds() -> Vec<Vec<u8>> {
    table_seeds()
        .iter()
        .map(|table| section(table, 1).to_vec())
        .collect()
}

fn run_properties(bytes: &[u8]) {
    if let Some(properties) = Properties::decode(bytes) {
        assert_eq!(Properties::decode(&properties.encode()), Some(properties));
    }
}

fn properties_seeds() -> Vec<Vec<u8>> {
    table_seeds()
        .iter()
        .map(|table| section(table, 2).to_vec())
        .collect()
}

fn run_table(bytes: &[u8]) {
    if let Err(error) = read_table(bytes) {
        check_refusal(&error, "a table");
    }
}

/// Opens a table and reads it in every possible way. Damage found by one way does not stop the
/// others.
fn read_table(bytes: &[u8]) -> Result<()> {
    let (fs, path) = (SimFs::new(1), Path::new("/000001.sst"));
    fs.write_file(path, bytes);
    let file = fs.open(path, OpenMode::Read)?;
    let footer_at = bytes.len().saturating_sub(FOOTER_BYTES);
    let id = get_u64(bytes, footer_at + 8).unwrap_or(0);
    let extent = Extent {
        valid_len: bytes.len() as u64,
        footer_offset: footer_at as u64,
    };
    if let Ok(found) = Sst::find_extent(&*file, FileId(id)) {
        assert!(found.footer_offset + FOOTER_BYTES as u64 <= found.valid_len);
    }
    let context = TableContext::new(
        Arc::new(BlockCache::new(CACHE_BYTES)),
        Arc::new(IoCounters::default()),
    );
    let table = Arc::new(Sst::open(file, FileId(id), extent, context)?);
    let streaming = Access::Streaming {
        bytes: 1 << 10,
        cause: Cause::Maintenance,
    };
    // An entry takes at least its header in a block, but compression can make entries numerous.
    let steps_max = 1 << 20;
    let mut results = vec![table.verify().map(drop)];
    for block in table.block_summaries() {
        std::hint::black_box((may_contain(block.filter, 7), block.smallest.len()));
    }
    for key in PROBES {
        results.push(table.get(&Query::new(key, SeqNo::MAX)).map(drop));
        for access in [Access::Cached, streaming] {
            results.push(walk(&mut table.iter(access), key, steps_max));
        }
    }
    let mut last: Option<(Vec<u8>, Tag)> = None;
    results.push(
        table
            .salvage(|key, tag, _| {
                let behind = last
                    .as_ref()
                    .is_none_or(|(k, t)| firn_base::key::compare(k, *t, key, tag).is_lt());
                assert!(
                    behind && tag.kind().is_some(),
                    "what is salvaged is in order and known"
                );
                last = Some((key.to_vec(), tag));
                Ok(())
            })
            .map(drop),
    );
    results.into_iter().collect()
}

/// Moves a cursor from `key` to both ends.
fn walk(iter: &mut SstIter, key: &[u8], steps_max: u64) -> Result<()> {
    let mut steps = 0;
    let mut step = |iter: &SstIter| {
        steps += 1;
        assert!(steps < steps_max, "a cursor that comes to no end");
        std::hint::black_box((iter.key().len(), iter.value().len()));
    };
    let forward = iter.seek(key, Tag::seek(SeqNo::MAX));
    let mut moved = forward.clone();
    while moved.is_ok() && iter.valid() {
        step(iter);
        moved = iter.next();
    }
    let mut back = iter.seek_before(key, Tag::seek(SeqNo::MAX));
    while back.is_ok() && iter.valid() {
        step(iter);
        back = iter.prev();
    }
    moved.and(back)
}

fn table_seeds() -> Vec<Vec<u8>> {
    let mut tables = real::files(".sst");
    for table in &mut tables {
        // The bytes after the footer are padding.
        let footer = table
            .windows(FOOTER_MAGIC.len())
            .rposition(|window| window == FOOTER_MAGIC);
        table.truncate(footer.map_or(0, |at| at + FOOTER_BYTES));
    }
    tables.push(with_block_filters().expect("no fault"));
    tables
}

/// A table with a filter for each block.
fn with_block_filters() -> Result<Vec<u8>> {
    let (fs, path) = (SimFs::new(1), Path::new("/000001.sst"));
    let options = SstOptions {
        block_filter_bits: 14,
        ..SstOptions::new(&Limits::tiny())
    };
    let (file, counters) = (fs.open(path, OpenMode::Create)?, Arc::default());
    let mut writer = SstWriter::new(file, FileId(1), options, counters, Cause::Flush);
    for number in 0..60u64 {
        let tag = Tag::new(SeqNo(100 - number), Kind::Put);
        let key = format!("key{:04}", number / 2 * 7);
        writer.add(key.as_bytes(), tag, &[7; 40])?;
    }
    let meta = writer.finish()?;
    let mut bytes = IoBuf::default();
    let len = meta.extent.valid_len as usize;
    fs.open(path, OpenMode::Read)?.read(0, len, &mut bytes)?;
    Ok(bytes.bytes().to_vec())
}

/// A section of a sound table: 0 the filter, 1 the index, 2 the properties.
fn section(table: &[u8], number: usize) -> &[u8] {
    let handle = table.len().saturating_sub(FOOTER_BYTES) + HANDLES[number];
    let (offset, len) = (
        get_u64(table, handle).unwrap_or(0) as usize,
        get_u32(table, handle + 8).unwrap_or(0) as usize,
    );
    table
        .get(offset..)
        .and_then(|rest| rest.get(..len))
        .unwrap_or(&[])
}

/// A block as described by an index.
struct Handle {
    offset: usize,
    stored: usize,
    codec: u8,
    /// The offset of its checksum in the index.
    crc_at: usize,
}

fn for_blocks(index: &[u8], mut visit: impl FnMut(Handle)) {
    let mut reader = Reader::new(index);
    let Some(count) = reader.u32() else { return };
    for _ in 0..count {
        let Some(handle) = handle(&mut reader, index.len()) else {
            return;
        };
        visit(handle);
    }
}

fn handle(reader: &mut Reader<'_>, len: usize) -> Option<Handle> {
    let (_shared, _rest) = (reader.varint()?, reader.bytes()?);
    let (_shared, _rest) = (reader.varint()?, reader.bytes()?);
    let (offset, stored, _raw) = (
        reader.varint_max(usize::MAX >> 1)?,
        reader.varint_max(usize::MAX >> 1)?,
        reader.varint()?,
    );
    let codec = reader.u8()?;
    let crc_at = len - reader.remaining();
    reader.u32()?;
    Some(Handle {
        offset,
        stored,
        codec,
        crc_at,
    })
}

/// Makes the header match the table of the footer.
fn mend_header(bytes: &mut [u8], id: u64) {
    put(bytes, 0, HEADER_MAGIC);
    put_u64(bytes, 8, 1);
    put_u64(bytes, 16, id);
    put(bytes, 48, &[0; 12]);
    let crc = crc32c(&bytes[..HEADER_BYTES - 4]);
    put_u32(bytes, HEADER_BYTES - 4, crc);
}

/// Makes the sections end at the footer, one after the other, and corrects every checksum.
pub(super) fn mend_table(bytes: &mut Vec<u8>) {
    let Some(footer_at) = bytes
        .len()
        .checked_sub(FOOTER_BYTES)
        .filter(|&at| at >= HEADER_BYTES)
    else {
        return;
    };
    let id = get_u64(bytes, footer_at + 8).unwrap_or(0);
    mend_header(bytes, id);
    let filter_unit = match bytes[footer_at..].starts_with(BLOCK_FILTERS_MAGIC) {
        true => 1,
        false => {
            put(bytes, footer_at, FOOTER_MAGIC);
            FILTER_LINE
        }
    };
    let mut end = footer_at;
    let mut starts = [0; 3];
    for number in [2, 1, 0] {
        let at = footer_at + HANDLES[number];
        let room = end - HEADER_BYTES;
        let max = if number == 0 {
            room - room % filter_unit
        } else {
            room
        };
        let len = clamp_u32(bytes, at + 8, max);
        let len = if number == 0 {
            len - len % filter_unit
        } else {
            len
        };
        put_u32(bytes, at + 8, len as u32);
        end -= len;
        put_u64(bytes, at, end as u64);
        starts[number] = end;
    }
    let data_bytes = get_u64(bytes, footer_at + DATA_BYTES_AT)
        .unwrap_or(0)
        .min((end - HEADER_BYTES) as u64);
    put_u64(bytes, footer_at + DATA_BYTES_AT, data_bytes);
    put_u32(bytes, footer_at + DATA_BYTES_AT + 8, 0);
    let mut crcs = Vec::new();
    for_blocks(section(bytes, 1), |handle| {
        let stored = bytes[..end]
            .get(handle.offset..)
            .and_then(|rest| rest.get(..handle.stored));
        crcs.extend(stored.map(|stored| (starts[1] + handle.crc_at, crc32c(stored))));
    });
    for (at, crc) in crcs {
        put_u32(bytes, at, crc);
    }
    for (number, at) in HANDLES.into_iter().enumerate() {
        let crc = crc32c(section(bytes, number));
        put_u32(bytes, footer_at + at + 12, crc);
    }
    let crc = crc32c_salted(
        id,
        footer_at as u64,
        &[&bytes[footer_at..footer_at + FOOTER_BYTES - 4]],
    );
    put_u32(bytes, footer_at + FOOTER_BYTES - 4, crc);
}
