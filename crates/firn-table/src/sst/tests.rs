//! Tests tables against a sorted vector: every way of reading, every codec, and damage to every
//! byte.

mod append;
mod block_filters;
mod index_bounds;
mod lazy;

use super::block_iter::BlockIter;
use super::layout::FilterKind;
use super::*;
use crate::{BlockCache, TableContext};
use firn_base::count::{Cause, IoCounters};
use firn_base::exec::block_on;
use firn_base::key::{Kind, compare};
use firn_base::seed::Seed;
use firn_base::{ErrorKind, FileId, Limits, SeqNo, Tag};
use firn_fs::{OpenMode, OsFs, SimFs, open_file};
use std::path::Path;
use std::sync::Arc;

type Entry = (Vec<u8>, Tag, Vec<u8>);

fn entries(seed: u64, keys: u64) -> Vec<Entry> {
    let mut seed = Seed::new(seed);
    let mut all = Vec::new();
    let mut seqno = 0;
    for i in 0..keys {
        let key = format!("key{:05}{}", i * 3, "x".repeat(seed.below(9) as usize)).into_bytes();
        for _ in 0..1 + seed.below(20) / 16 * seed.below(8) {
            seqno += 1;
            let kind = if seed.one_in(10) {
                Kind::Delete
            } else {
                Kind::Put
            };
            let mut value = vec![0; seed.below(200) as usize];
            if seed.one_in(2) {
                seed.fill(&mut value);
            }
            all.push((key.clone(), Tag::new(SeqNo(seqno), kind), value));
        }
    }
    all.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
    all
}

fn context() -> TableContext {
    TableContext::new(
        Arc::new(BlockCache::new(64 << 10)),
        Arc::new(IoCounters::default()),
    )
}

fn build(path: &Path, all: &[Entry], codec: Codec) -> (SstMeta, Arc<Sst>) {
    build_with(path, all, codec, &Limits::tiny())
}

fn build_with(path: &Path, all: &[Entry], codec: Codec, limits: &Limits) -> (SstMeta, Arc<Sst>) {
    let options = SstOptions {
        codec,
        ..SstOptions::new(limits)
    };
    build_as(path, all, options)
}

fn build_as(path: &Path, all: &[Entry], options: SstOptions) -> (SstMeta, Arc<Sst>) {
    let fs = OsFs::new();
    let file = open_file(&fs, path, OpenMode::CreateDirect).unwrap();
    let counters = Arc::new(IoCounters::default());
    let mut writer = SstWriter::new(file, FileId(7), options, counters, Cause::Flush);
    for (key, tag, value) in all {
        writer.add(key, *tag, value).unwrap();
    }
    let meta = writer.finish().unwrap();
    let file = open_file(&fs, path, OpenMode::ReadDirect).unwrap();
    let table = Sst::open(file, FileId(7), meta.extent, context()).unwrap();
    (meta, Arc::new(table))
}

fn expect(all: &[Entry], key: &[u8], seqno: u64) -> Option<(Tag, Vec<u8>)> {
    all.iter()
        .find(|e| e.0 == key && e.1.seqno().0 <= seqno)
        .map(|e| (e.1, e.2.clone()))
}

fn found(got: Got) -> Option<(Tag, Vec<u8>)> {
    match got {
        Got::Found { tag, value, .. } => Some((tag, value.to_vec())),
        Got::Excluded | Got::Missed { .. } => None,
    }
}

fn check(all: &[Entry], table: &Arc<Sst>, access: Access) {
    let mut iter = table.iter(access);
    iter.first().unwrap();
    for (key, tag, value) in all {
        assert_eq!(
            (iter.key(), iter.tag(), iter.value()),
            (&key[..], *tag, &value[..])
        );
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    iter.last().unwrap();
    for (key, tag, value) in all.iter().rev() {
        assert_eq!(
            (iter.key(), iter.tag(), iter.value()),
            (&key[..], *tag, &value[..])
        );
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
    let mut seed = Seed::new(5);
    for _ in 0..300 {
        let key = format!(
            "key{:05}{}",
            seed.below(1600),
            "x".repeat(seed.below(9) as usize)
        )
        .into_bytes();
        let seqno = seed.below(900);
        let at = all.partition_point(|e| compare(&e.0, e.1, &key, Tag::seek(SeqNo(seqno))).is_lt());
        iter.seek(&key, Tag::seek(SeqNo(seqno))).unwrap();
        assert_eq!(
            iter.valid().then(|| iter.key().to_vec()),
            all.get(at).map(|e| e.0.clone())
        );
        iter.seek_before(&key, Tag::seek(SeqNo(seqno))).unwrap();
        assert_eq!(
            iter.valid().then(|| iter.tag()),
            at.checked_sub(1).map(|at| all[at].1)
        );
    }
}

fn round_trip(codec: Codec) {
    let dir = tempfile::tempdir().unwrap();
    let all = entries(1, 500);
    let (meta, table) = build(&dir.path().join("t"), &all, codec);
    assert_eq!(meta.properties.entries, all.len() as u64);
    assert_eq!(table.verify().unwrap().entries, all.len() as u64);
    check(&all, &table, Access::Cached);
    check(
        &all,
        &table,
        Access::Streaming {
            bytes: 4096,
            cause: Cause::Compaction,
        },
    );
    let mut seed = Seed::new(9);
    for _ in 0..2000 {
        let key = format!(
            "key{:05}{}",
            seed.below(1600),
            "x".repeat(seed.below(9) as usize)
        )
        .into_bytes();
        let seqno = seed.below(900);
        let query = Query::new(&key, SeqNo(seqno));
        let want = expect(&all, &key, seqno);
        assert_eq!(found(table.get(&query).unwrap()), want);
        let got = match table.begin_get(&query).unwrap() {
            GetStep::Done(got) => got,
            GetStep::Pending(pending) => table.finish_get(pending, &query).unwrap(),
        };
        assert_eq!(found(got), want);
    }
}

#[test]
fn tables_round_trip() {
    round_trip(Codec::None);
    round_trip(Codec::Lz4);
    #[cfg(feature = "zstd")]
    round_trip(Codec::Zstd);
}

/// The number of blocks in a cursor's reads follows how far earlier cursors went; backward it is
/// always one.
#[test]
fn the_reads_of_a_scan_go_by_those_before() {
    let dir = tempfile::tempdir().unwrap();
    let all = entries(1, 3000);
    let (_, table) = build(&dir.path().join("t"), &all, Codec::None);
    let block = |i: usize| u64::from(table.index().handle(i).stored_len);
    let read = |from: usize, steps: usize, back: bool| {
        let before = table.context().counters.get(Cause::UserRead).0;
        let mut iter = table.iter(Access::Cached);
        iter.enter(from).unwrap();
        iter.within(BlockIter::first).unwrap();
        for _ in 0..steps {
            iter.enter(if back { iter.block - 1 } else { iter.block + 1 })
                .unwrap();
        }
        table.context().counters.get(Cause::UserRead).0 - before
    };
    assert!(table.index().len() > 200);
    assert_eq!(read(0, 0, false), block(0));
    assert_eq!(
        read(10, 5, false),
        (10..23).map(block).sum::<u64>(),
        "reads of 1, 4 and 8 blocks"
    );
    (0..20).for_each(|i| _ = read(40 + i, 12, false));
    assert_eq!(read(100, 0, false), (100..106).map(block).sum::<u64>());
    assert_eq!(
        read(110, 6, false),
        (110..120).map(block).sum::<u64>(),
        "reads of 6 and 4 blocks"
    );
    (0..100).for_each(|_| _ = read(0, 0, false));
    assert_eq!(read(130, 0, false), block(130));
    (0..20).for_each(|i| _ = read(40 + i, 12, false));
    (0..100).for_each(|_| _ = read(70, 12, true));
    assert_eq!(
        read(150, 2, true),
        (148..151).map(block).sum::<u64>(),
        "who goes back wants nothing behind"
    );
}

/// Sub-tasks share an input. One must not read ahead into the part of another.
#[test]
fn slices_of_a_table_read_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let all = entries(1, 500);
    let (meta, table) = build(&dir.path().join("t"), &all, Codec::None);
    let streaming = Access::Streaming {
        bytes: 16 << 10,
        cause: Cause::Compaction,
    };
    let borders: Vec<&[u8]> = all
        .iter()
        .step_by(100)
        .skip(1)
        .map(|(key, ..)| &key[..])
        .collect();
    let mut slices = 0;
    let mut seen = 0;
    for (from, to) in std::iter::once(None)
        .chain(borders.iter().map(Some))
        .zip(borders.iter().map(Some).chain([None]))
    {
        let mut iter = table.iter(streaming);
        to.into_iter().for_each(|to| iter.stop_at(to));
        iter.seek(from.map_or(&[], |from| *from), Tag::seek(SeqNo::MAX))
            .unwrap();
        while iter.valid() && to.is_none_or(|to| iter.key() < *to) {
            seen += 1;
            iter.next().unwrap();
        }
        slices += 1;
    }
    assert_eq!(seen, all.len());
    let (bytes, ..) = table.context().counters.get(Cause::Compaction);
    let border_blocks = slices * 2 * Limits::tiny().block_bytes as u64;
    assert!(
        (meta.data_bytes..meta.data_bytes + border_blocks).contains(&bytes),
        "{bytes} of {}",
        meta.data_bytes
    );
}

#[test]
fn zstd_is_refused_where_it_is_not_built() {
    assert_eq!(Codec::Zstd.check().is_ok(), cfg!(feature = "zstd"));
}

#[test]
fn an_empty_key_range_and_one_huge_entry() {
    let dir = tempfile::tempdir().unwrap();
    let huge = vec![7u8; 3 << 20];
    let all = vec![
        (b"a".to_vec(), Tag::new(SeqNo(1), Kind::Put), Vec::new()),
        (vec![b'b'; 65_535], Tag::new(SeqNo(2), Kind::Put), huge),
        (b"c".to_vec(), Tag::new(SeqNo(3), Kind::Delete), Vec::new()),
    ];
    let (_, table) = build(&dir.path().join("t"), &all, Codec::Lz4);
    check(&all, &table, Access::Cached);
    let key = vec![b'b'; 65_535];
    assert_eq!(
        found(table.get(&Query::new(&key, SeqNo::MAX)).unwrap())
            .unwrap()
            .1
            .len(),
        3 << 20
    );
    table.verify().unwrap();
}

/// The versions of one key span blocks: a seek between them must not stop at the first entry of the
/// next block.
#[test]
fn seeks_within_the_versions_of_one_key() {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<Entry> = (1..100u64)
        .rev()
        .map(|i| (b"k".to_vec(), Tag::new(SeqNo(i), Kind::Put), vec![1; 100]))
        .collect();
    let (_, table) = build(&dir.path().join("t"), &all, Codec::None);
    let mut iter = table.iter(Access::Cached);
    for seqno in 1..100 {
        iter.seek(b"k", Tag::seek(SeqNo(seqno))).unwrap();
        assert_eq!(iter.tag().seqno(), SeqNo(seqno));
    }
    iter.seek_before(b"k", Tag(0)).unwrap();
    assert_eq!(iter.tag().seqno(), SeqNo(1));
}

/// A get of an uncached block costs one read.
#[test]
fn reads_per_get() {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<Entry> = (0..1000u64)
        .map(|i| {
            (
                format!("{i:08}").into_bytes(),
                Tag::new(SeqNo(i + 1), Kind::Put),
                vec![1; 100],
            )
        })
        .collect();
    let (meta, _) = build(&dir.path().join("t"), &all, Codec::None);
    let file = open_file(&OsFs::new(), &dir.path().join("t"), OpenMode::ReadDirect).unwrap();
    let context = TableContext::new(
        Arc::new(BlockCache::new(0)),
        Arc::new(IoCounters::default()),
    );
    let table = Sst::open(file, FileId(7), meta.extent, context.clone()).unwrap();
    for (key, _, value) in &all {
        assert_eq!(
            found(table.get(&Query::new(key, SeqNo::MAX)).unwrap())
                .unwrap()
                .1,
            *value
        );
    }
    assert_eq!(context.counters.get(Cause::UserRead).1, 1000);
}

/// Gets of scattered keys return rows and cache only the observed blocks. Once those turn out to
/// serve their neighbours, gets cache blocks.
#[test]
fn what_gets_leave_goes_by_what_is_read() {
    // With few and with many entries per block.
    for block_bytes in [512, 4096] {
        gets_in_blocks_of(block_bytes);
    }
}

fn gets_in_blocks_of(block_bytes: usize) {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<Entry> = (0..40_000u64)
        .map(|i| {
            (
                format!("{i:08}").into_bytes(),
                Tag::new(SeqNo(i + 1), Kind::Put),
                vec![1; 60],
            )
        })
        .collect();
    let mut limits = Limits::tiny();
    limits.block_bytes = block_bytes;
    let (meta, _) = build_with(&dir.path().join("t"), &all, Codec::None, &limits);
    let file = open_file(&OsFs::new(), &dir.path().join("t"), OpenMode::ReadDirect).unwrap();
    let context = TableContext::new(
        Arc::new(BlockCache::new(64 << 20)),
        Arc::new(IoCounters::default()),
    );
    let table = Sst::open(file, FileId(7), meta.extent, context.clone()).unwrap();
    let get_with = |i: usize, rows: bool| {
        let before = context.counters.get(Cause::UserRead).1;
        let query = Query {
            rows,
            ..Query::new(&all[i].0, SeqNo::MAX)
        };
        // As a reader that keeps rows does first. Here none are kept.
        assert!(
            context
                .cache
                .get_row(query.key, query.hash, Tag(0))
                .is_none()
        );
        let Got::Found {
            value, keeps_row, ..
        } = table.get(&query).unwrap()
        else {
            panic!("key {i} is there");
        };
        assert_eq!(value, all[i].2);
        (context.counters.get(Cause::UserRead).1 > before, keeps_row)
    };
    let get = |i| get_with(i, true);
    // While there is room, a block is kept for the sake of its other entries.
    let first = (0..200).filter(|&i| get(i).0).count();
    assert!((1..60).contains(&first), "{first} blocks");
    // What is never asked for fills it.
    let fill = |at| drop(context.cache.insert_value(FileId(1), at, &[7; 4000]));
    (0..20_000).for_each(fill);
    assert!(!context.cache.has_room());
    // Scattered keys: each is read and returned as a row, except for the sample, which is returned
    // as a row when it is found again.
    let far: Vec<usize> = (1000..40_000).step_by(80).collect();
    let sampled: Vec<usize> = far
        .iter()
        .copied()
        .filter(|&i| get(i) == (true, false))
        .collect();
    assert!(
        (1..40).contains(&sampled.len()),
        "{} of 488 are observed",
        sampled.len()
    );
    for &i in &far {
        assert_eq!(get(i), (!sampled.contains(&i), true), "key {i}");
    }
    // A get that keeps no rows finds the block it read before.
    assert_eq!(
        (get_with(1001, false), get_with(1001, false)),
        ((true, false), (false, false))
    );
    // Sequential keys.
    let read = |range: std::ops::Range<usize>| range.filter(|&i| get(i).0).count();
    assert!(read(2000..3000) > 900, "every entry is read from its block");
    let _learning = read(3000..39_000);
    let blocks = read(39_000..40_000);
    assert!(blocks < 300, "{blocks} reads for 1,000 neighbours");
}

/// Flips one bit in every byte of a table: the result is `Corruption`, never a wrong answer and
/// never a panic.
#[test]
fn every_byte_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let all = entries(3, 60);
    let (meta, _) = build(&path, &all, Codec::Lz4);
    let clean = std::fs::read(&path).unwrap();
    for at in 0..meta.extent.valid_len as usize {
        let mut bytes = clean.clone();
        bytes[at] ^= 1 << (at % 8);
        let result = verify_bytes(&bytes, meta.extent);
        assert_eq!(
            result.as_ref().unwrap_err().kind(),
            ErrorKind::Corruption,
            "byte {at}: {result:?}"
        );
    }
    for cut in 0..meta.extent.valid_len as usize {
        assert_eq!(
            verify_bytes(&clean[..cut], meta.extent).unwrap_err().kind(),
            ErrorKind::Corruption
        );
    }
}

/// Verifies a table of these bytes, on files in memory.
fn verify_bytes(bytes: &[u8], extent: Extent) -> firn_base::Result<SstReport> {
    let (fs, path) = (SimFs::new(1), Path::new("/table"));
    fs.write_file(path, bytes);
    let file = open_file(&fs, path, OpenMode::Read).unwrap();
    Sst::open(file, FileId(7), extent, context()).and_then(|table| Arc::new(table).verify())
}

/// Verifies a table of three blocks of three keys each. Its index names `bounds`, and `change` has
/// been applied to its true properties.
fn verify_lying(
    bounds: [(&str, &str); 3],
    change: impl FnOnce(&mut Properties),
) -> firn_base::Result<SstReport> {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFs::new(), dir.path().join("table"));
    let (options, counters) = (
        SstOptions::new(&Limits::tiny()),
        Arc::new(IoCounters::default()),
    );
    let file = open_file(&fs, &path, OpenMode::CreateDirect).unwrap();
    let mut out = out::Out::new(file, FileId(7), 0, &options, counters, Cause::Flush);
    let mut index = index::IndexBuilder::default();
    let (smallest, largest) = (b"a0".to_vec(), b"c2".to_vec());
    let mut properties = Properties {
        seqno_min: SeqNo::MAX,
        smallest,
        largest,
        ..Properties::default()
    };
    out.header(&options.owner.encode(FileId(7)));
    let mut data_bytes = 0;
    for (letter, bounds) in ["a", "b", "c"].into_iter().zip(bounds) {
        let mut block = BlockBuilder::new(options.restart_interval);
        for i in 0..3 {
            let (key, tag) = (format!("{letter}{i}"), Tag::new(SeqNo(1), Kind::Put));
            block.add(key.as_bytes(), tag, b"value");
            properties.count(key.as_bytes(), tag, b"value");
        }
        let handle = out.block(block.finish()).unwrap();
        data_bytes += u64::from(handle.stored_len);
        index.add(bounds.0.as_bytes(), bounds.1.as_bytes(), handle);
    }
    change(&mut properties);
    let site = &firn_base::site::TEST;
    let kind = FilterKind::Table;
    let written = out.finish(site, kind, &[], &index, properties, data_bytes);
    let meta = block_on(written).unwrap();
    let file = open_file(&fs, &path, OpenMode::Read).unwrap();
    Arc::new(Sst::open(file, FileId(7), meta.extent, context())?).verify()
}

#[test]
fn verify_finds_bounds_and_counts_that_lie() {
    const TRUE: [(&str, &str); 3] = [("a0", "a2"), ("b0", "b2"), ("c0", "c2")];
    let found = |bounds, change: fn(&mut Properties)| {
        verify_lying(bounds, change)
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(found(TRUE, |_| {}), None);
    let says = |error: Option<String>, what: &str| {
        assert!(error.as_ref().unwrap().contains(what), "{error:?}: {what}")
    };
    // If the bounds are narrower than the block, gets would miss its entries. If they are wider,
    // gets would search it in vain.
    for (block, bounds) in [
        (0, ("a1", "a2")),
        (1, ("b1", "b2")),
        (1, ("b", "b2")),
        (2, ("c00", "c2")),
    ] {
        let mut lying = TRUE;
        lying[block] = bounds;
        says(
            found(lying, |_| {}),
            "the smallest key that the index names",
        );
    }
    for (block, bounds) in [
        (0, ("a0", "a1")),
        (1, ("b0", "b3")),
        (2, ("c0", "c1")),
        (2, ("c0", "c22")),
    ] {
        let mut lying = TRUE;
        lying[block] = bounds;
        says(found(lying, |_| {}), "the largest key that the index names");
    }
    says(
        found([("a0", "b2"), ("b0", "b2"), ("c0", "c2")], |_| {}),
        "blocks in the order of their keys",
    );
    says(
        found(TRUE, |properties| properties.smallest.clear()),
        "the smallest and largest key",
    );
    says(
        found(TRUE, |properties| properties.largest.push(b'!')),
        "the smallest and largest key",
    );
    says(
        found(TRUE, |properties| properties.entries += 1),
        "as many entries",
    );
    says(
        found(TRUE, |properties| properties.deletes += 1),
        "as many entries, tombstones",
    );
    says(
        found(TRUE, |properties| properties.value_bytes += 1),
        "as many entries, tombstones and bytes",
    );
    says(
        found(TRUE, |properties| properties.seqno_max = SeqNo(2)),
        "sequence numbers",
    );
}

/// An index whose entries share long keys is small on media and large in memory. It must not be
/// larger than the data it claims, of which each block has its own part.
#[test]
fn an_index_is_no_larger_than_its_data() {
    const KEY_BYTES: usize = 60_000;
    const DATA_END: u64 = 1 << 20;
    let indexed = |blocks: u64, stored_len: u32, raw_len: u32, codec| {
        let mut index = index::IndexBuilder::default();
        for i in 0..blocks {
            let offset = i % 4 * u64::from(stored_len);
            let handle = index::BlockHandle {
                offset,
                stored_len,
                raw_len,
                crc: 0,
                codec,
            };
            index.add(&[7; KEY_BYTES], &[7; KEY_BYTES], handle);
        }
        Index::decode(&index.finish(), DATA_END)
            .ok()
            .map(|index| index.len())
    };
    assert_eq!(indexed(4, 70_000, 70_000, Codec::None), Some(4));
    assert_eq!(indexed(4, 300, 70_000, Codec::Lz4), Some(4));
    assert_eq!(
        indexed(4, 270, 70_000, Codec::Lz4),
        None,
        "more than that many bytes can stand for"
    );
    assert_eq!(
        indexed(4, 50_000, 50_000, Codec::None),
        None,
        "keys that the blocks cannot hold"
    );
    assert_eq!(
        indexed(1000, 70_000, 70_000, Codec::None),
        None,
        "blocks that share their bytes"
    );
}

proptest::proptest! {
    /// Arbitrary bytes are rejected or read within bounds.
    #[test]
    fn hostile_blocks_and_indexes(bytes: Vec<u8>, key: Vec<u8>, restarts in 1u32..4) {
        let _index = Index::decode(&bytes, 1 << 20);
        let _properties = Properties::decode(&bytes);
        let mut framed = bytes.clone();
        framed.extend_from_slice(&[0; 4]);
        for _ in 1..restarts {
            framed.extend_from_slice(&(bytes.len() as u32 / 2).to_le_bytes());
        }
        framed.extend_from_slice(&restarts.to_le_bytes());
        if let Some(block) = Block::new(framed.into_boxed_slice()) {
            let _found = block.get(&key, Tag::seek(SeqNo::MAX));
            let mut iter = block_iter::BlockIter::new(Arc::new(block));
            let _first = iter.first();
            while iter.valid() && iter.next().is_ok() {}
            let _last = iter.last();
            while iter.valid() && iter.prev().is_ok() {}
            let _sought = iter.seek(&key, Tag::seek(SeqNo::MAX));
        }
    }
}
