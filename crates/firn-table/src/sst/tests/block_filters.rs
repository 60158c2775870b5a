//! Tests tables with a filter for each block, their summaries, and gets that have only those.

use super::*;
use crate::sst::dirty::DirtyFinder;
use std::collections::BTreeSet;

fn options(codec: Codec) -> SstOptions {
    SstOptions {
        codec,
        block_filter_bits: 14,
        ..SstOptions::new(&Limits::tiny())
    }
}

fn context_without_cache() -> TableContext {
    let cache = Arc::new(BlockCache::new(0));
    TableContext::new(cache, Arc::new(IoCounters::default()))
}

fn some_key(seed: &mut Seed) -> Vec<u8> {
    let tail = "x".repeat(seed.below(9) as usize);
    format!("key{:05}{tail}", seed.below(1600)).into_bytes()
}

#[test]
fn tables_with_block_filters_round_trip() {
    for codec in [Codec::None, Codec::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let all = entries(1, 500);
        let (meta, table) = build_as(&dir.path().join("t"), &all, options(codec));
        assert!(table.has_filter() && table.filter().is_none());
        let keys: BTreeSet<&Vec<u8>> = all.iter().map(|(key, ..)| key).collect();
        assert_eq!(meta.properties.filter_keys, keys.len() as u64);
        assert_eq!(meta.properties.filter_left(), 0);
        assert_eq!(table.verify().unwrap().entries, all.len() as u64);
        check(&all, &table, Access::Cached);
        let mut seed = Seed::new(9);
        for _ in 0..2000 {
            let (key, seqno) = (some_key(&mut seed), seed.below(900));
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
}

#[test]
fn absent_keys_between_the_bounds_read_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let all = entries(1, 500);
    let path = dir.path().join("t");
    let (meta, _) = build_as(&path, &all, options(Codec::None));
    let file = open_file(&OsFs::new(), &path, OpenMode::ReadDirect).unwrap();
    let context = context_without_cache();
    let table = Sst::open(file, FileId(7), meta.extent, context.clone()).unwrap();
    let mut excluded = 0;
    for i in 0..1_000 {
        let key = format!("key{:05}!", i * 3 / 2);
        excluded += u64::from(matches!(
            table.get(&Query::new(key.as_bytes(), SeqNo::MAX)).unwrap(),
            Got::Excluded
        ));
    }
    assert!(excluded > 990, "{excluded}");
    assert_eq!(context.counters.get(Cause::UserRead).1, 1_000 - excluded);
}

#[test]
fn writer_and_open_table_tell_the_same_summaries() {
    let dir = tempfile::tempdir().unwrap();
    for (number, seed) in (1..6).enumerate() {
        let all = entries(seed, 20 + 150 * number as u64);
        let path = dir.path().join(format!("{number}"));
        let (meta, table) = build_as(&path, &all, options(Codec::Lz4));
        let told = meta.blocks.unwrap();
        assert!(told.iter().eq(table.block_summaries()));
        assert_eq!(told.iter().len(), table.blocks());
        for (block, summary) in told.iter().enumerate() {
            let entries = table.load(block, Cause::Maintenance).unwrap();
            let mut iter = BlockIter::new(entries);
            iter.first().unwrap();
            assert_eq!(iter.key(), summary.smallest);
            while iter.valid() {
                assert!(may_contain(summary.filter, hash(iter.key())));
                assert!(iter.key() <= &*summary.largest);
                iter.next().unwrap();
            }
        }
    }
    let (meta, table) = build(&dir.path().join("plain"), &entries(1, 50), Codec::None);
    assert!(meta.blocks.is_none());
    assert!(table.block_summaries().all(|block| block.filter.is_empty()));
}

/// The newest entry at or below the read point, in the blocks that the summaries do not exclude.
fn get_by_handles(
    reader: &BlockReader,
    blocks: &BlockSummaries,
    query: &Query<'_>,
    waits: bool,
) -> Option<(Tag, Vec<u8>)> {
    let within = |block: &BlockSummary<'_>| {
        block.smallest[..] <= *query.key
            && *query.key <= *block.largest
            && may_contain(block.filter, query.hash)
    };
    for block in blocks.iter().filter(within) {
        let got = match waits {
            true => reader.get(&block.handle, query).unwrap(),
            false => match reader.begin_get(&block.handle, query).unwrap() {
                BlockStep::Done(got) => got,
                BlockStep::Pending(pending) => reader.finish_get(pending, query).unwrap(),
            },
        };
        match got {
            BlockGot::Found { tag, value, .. } => return Some((tag, value.to_vec())),
            BlockGot::Absent { .. } => return None,
            BlockGot::PastEnd { .. } => {}
        }
    }
    None
}

#[test]
fn a_get_by_handle_needs_no_open_table() {
    let dir = tempfile::tempdir().unwrap();
    let all = entries(1, 500);
    let path = dir.path().join("t");
    let (meta, table) = build_as(&path, &all, options(Codec::Lz4));
    let blocks = meta.blocks.unwrap();
    let file = || open_file(&OsFs::new(), &path, OpenMode::ReadDirect).unwrap();
    let reader = BlockReader::new(file(), FileId(7), context());
    let (alone, open) = (context_without_cache(), context_without_cache());
    let reads = BlockReader::new(file(), FileId(7), alone.clone());
    let opened = Sst::open(file(), FileId(7), meta.extent, open.clone()).unwrap();
    let mut seed = Seed::new(11);
    for round in 0..2_000 {
        let (key, seqno) = (some_key(&mut seed), seed.below(900));
        let query = Query::new(&key, SeqNo(seqno));
        let want = expect(&all, &key, seqno);
        let got = get_by_handles(&reader, &blocks, &query, round % 2 == 0);
        assert_eq!(got, want);
        get_by_handles(&reads, &blocks, &query, true);
        opened.get(&query).unwrap();
    }
    let count = |context: &TableContext| context.counters.get(Cause::UserRead);
    assert_eq!(count(&alone), count(&open), "as many reads, as many bytes");
    // Both use one key of the cache.
    let cached = BlockReader::new(file(), FileId(7), table.context().clone());
    let query = Query::new(&all[0].0, SeqNo::MAX);
    table.get(&query).unwrap();
    let before = count(table.context());
    get_by_handles(&cached, &blocks, &query, true).unwrap();
    assert_eq!(count(table.context()), before);
}

#[test]
fn nothing_is_appended_to_a_table_with_block_filters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let (_, table) = build_as(&path, &entries(1, 50), options(Codec::None));
    let mut finder = DirtyFinder::new(table.clone());
    finder.note(b"key00001", 5);
    let dirty = finder.finish(100);
    let file = open_file(&OsFs::new(), &path, OpenMode::ReadDirect).unwrap();
    let start = SstAppender::start(&table, file.len().unwrap());
    let options = options(Codec::None);
    let counters = Arc::new(IoCounters::default());
    let made = SstAppender::new(
        table,
        &dirty,
        file,
        start,
        &options,
        counters,
        Cause::Compaction,
    );
    assert_eq!(made.err().unwrap().kind(), ErrorKind::Invalid);
}

#[test]
fn readers_tell_the_kinds_of_filters_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (all, path) = (entries(3, 60), dir.path().join("t"));
    for (bits, version) in [(0, 2), (14, 3)] {
        let options = SstOptions {
            block_filter_bits: bits,
            ..options(Codec::None)
        };
        let (meta, _) = build_as(&path, &all, options);
        let bytes = std::fs::read(&path).unwrap();
        let footer = meta.extent.footer_offset as usize;
        assert_eq!(
            &bytes[footer..footer + 8],
            [b"FIRNSST", &[version][..]].concat()
        );
        assert_eq!(
            Sst::find_extent(
                &*open_file(&OsFs::new(), &path, OpenMode::Read).unwrap(),
                FileId(7)
            )
            .unwrap(),
            meta.extent
        );
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn every_byte_of_block_filters_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let (meta, _) = build_as(&path, &entries(3, 60), options(Codec::Lz4));
    let clean = std::fs::read(&path).unwrap();
    for at in 0..meta.extent.valid_len as usize {
        let mut bytes = clean.clone();
        bytes[at] ^= 1 << (at % 8);
        let kind = verify_bytes(&bytes, meta.extent).map_err(|error| error.kind());
        assert_eq!(kind.unwrap_err(), ErrorKind::Corruption, "byte {at}");
    }
}

/// The versions of a key lie in several blocks, each of which has the key in its filter.
#[test]
fn versions_that_span_blocks_are_in_the_filter_of_each() {
    let dir = tempfile::tempdir().unwrap();
    let mut all: Vec<Entry> = (1..100u64)
        .rev()
        .map(|i| (b"k".to_vec(), Tag::new(SeqNo(i), Kind::Put), vec![1; 100]))
        .collect();
    all.push((
        b"l".to_vec(),
        Tag::new(SeqNo(200), Kind::Put),
        vec![2; 5 << 20],
    ));
    all.push((b"l".to_vec(), Tag::new(SeqNo(100), Kind::Put), vec![3; 10]));
    let (meta, table) = build_as(&dir.path().join("t"), &all, options(Codec::None));
    let blocks = meta.blocks.unwrap();
    let reader = table.block_reader();
    for seqno in 0..201 {
        for key in [&b"k"[..], b"l", b"m"] {
            let query = Query::new(key, SeqNo(seqno));
            let want = expect(&all, key, seqno);
            assert_eq!(found(table.get(&query).unwrap()), want);
            assert_eq!(get_by_handles(reader, &blocks, &query, true), want);
        }
    }
    table.verify().unwrap();
}
