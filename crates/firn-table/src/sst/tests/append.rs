//! Tests tables that grow against a sorted vector.

use super::*;
use firn_base::FileId;

const SMALL: usize = 256;

fn options(reserve: u32) -> SstOptions {
    SstOptions {
        filter_reserve_percent: reserve,
        ..SstOptions::new(&Limits::tiny())
    }
}

fn find(table: &Arc<Sst>, incoming: &[Entry]) -> Dirty {
    let mut finder = DirtyFinder::new(table.clone());
    for (key, _, value) in incoming {
        finder.note(key, value.len());
    }
    finder.finish(SMALL)
}

/// Appends `incoming` to the table at `path`; the newest version of each key stays.
fn grow(path: &Path, table: &Arc<Sst>, incoming: &[Entry]) -> (SstMeta, Arc<Sst>, Dirty) {
    let fs = OsFs::new();
    let dirty = find(table, incoming);
    let counters = Arc::new(IoCounters::default());
    let file = open_file(&fs, path, OpenMode::AppendDirect).unwrap();
    let start = SstAppender::start(table, file.len().unwrap());
    let mut appender = SstAppender::new(
        table.clone(),
        &dirty,
        file,
        start,
        &options(0),
        counters,
        Cause::Compaction,
    )
    .unwrap();
    let mut old = BlocksIter::new(
        table.clone(),
        dirty.blocks.clone(),
        2048,
        Cause::Compaction,
        false,
    );
    old.first().unwrap();
    let mut incoming = incoming.iter().peekable();
    let mut last = None;
    loop {
        let from_above = match (incoming.peek(), old.valid()) {
            (None, false) => break,
            (Some(entry), true) => compare(&entry.0, entry.1, old.key(), old.tag()).is_lt(),
            (above, _) => above.is_some(),
        };
        let entry = match incoming.next_if(|_| from_above) {
            Some(entry) => entry.clone(),
            None => {
                let entry = (old.key().to_vec(), old.tag(), old.value().to_vec());
                old.next().unwrap();
                entry
            }
        };
        if last.as_ref() != Some(&entry.0) {
            appender.add(&entry.0, entry.1, &entry.2).unwrap();
        }
        last = Some(entry.0);
    }
    let meta = appender.finish(old.seen()).unwrap();
    let file = open_file(&fs, path, OpenMode::ReadDirect).unwrap();
    let grown = Arc::new(Sst::open(file, FileId(7), meta.extent, table.context().clone()).unwrap());
    (meta, grown, dirty)
}

/// Entries with sequence numbers after `seqno`, some of them with new keys.
fn incoming(seed: &mut Seed, seqno: &mut u64, count: u64) -> Vec<Entry> {
    let mut all = Vec::new();
    for _ in 0..count {
        *seqno += 1;
        let key = format!(
            "key{:05}{}",
            seed.below(1600),
            "x".repeat(seed.below(3) as usize)
        )
        .into_bytes();
        let kind = if seed.one_in(10) {
            Kind::Delete
        } else {
            Kind::Put
        };
        let mut value = vec![0; seed.below(200) as usize];
        seed.fill(&mut value);
        all.push((key, Tag::new(SeqNo(*seqno), kind), value));
    }
    all.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
    all.dedup_by(|b, a| a.0 == b.0);
    all
}

#[test]
fn a_table_that_grew_reads_like_one_written_at_once() {
    for seed in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let mut model = entries(seed, 500);
        model.dedup_by(|b, a| a.0 == b.0);
        let (_, mut table) = build(&path, &model, Codec::None);
        let mut random = Seed::new(seed);
        let mut seqno = 10_000;
        let mut states = Vec::new();
        for round in 0..12 {
            let above = incoming(&mut random, &mut seqno, 1 + round * 4);
            let (meta, grown, dirty) = grow(&path, &table, &above);
            let kept = table.blocks() - dirty.blocks.len();
            assert!(kept > 0 && grown.blocks() >= kept);
            states.push((model.clone(), std::mem::replace(&mut table, grown)));
            model.extend(above);
            model.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
            model.dedup_by(|b, a| a.0 == b.0);
            assert_eq!(table.verify().unwrap().entries, model.len() as u64);
            assert_eq!(meta.properties.smallest, model[0].0);
            assert_eq!(meta.properties.appends, round + 1);
            assert_eq!(meta.dead_bytes, table.dead_bytes());
            check(&model, &table, Access::Cached);
            check(
                &model,
                &table,
                Access::Streaming {
                    bytes: 4096,
                    cause: Cause::Compaction,
                },
            );
            for (key, tag, value) in &model {
                let got = found(table.get(&Query::new(key, SeqNo::MAX)).unwrap());
                assert_eq!(got, Some((*tag, value.clone())));
            }
        }
        // A reader with an older footer open reads the same as before.
        for (model, table) in &states {
            check(model, table, Access::Cached);
        }
    }
}

#[test]
fn few_blocks_stay_small() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let all = entries(3, 500);
    let (_, mut table) = build(&path, &all, Codec::None);
    let mut random = Seed::new(3);
    let mut seqno = 10_000;
    for _ in 0..60 {
        let above = incoming(&mut random, &mut seqno, 3);
        table = grow(&path, &table, &above).1;
    }
    let small = table.blocks_below(SMALL);
    assert!(
        small * 2 <= table.blocks(),
        "{small} of {} blocks are small",
        table.blocks()
    );
}

#[test]
fn versions_of_one_key_are_taken_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    // Versions of `b` fill several blocks; `a` is in the first and `c` in the last of them.
    let mut all = vec![(b"a".to_vec(), Tag::new(SeqNo(1), Kind::Put), vec![1; 100])];
    all.extend((2..40).rev().map(|seqno| {
        (
            b"b".to_vec(),
            Tag::new(SeqNo(seqno), Kind::Put),
            vec![2; 100],
        )
    }));
    all.push((b"c".to_vec(), Tag::new(SeqNo(1), Kind::Put), vec![3; 100]));
    let (_, table) = build(&path, &all, Codec::None);
    assert!(table.blocks() > 3);
    for key in [b"a", b"b", b"c"] {
        let dirty = find(
            &table,
            &[(key.to_vec(), Tag::new(SeqNo(50), Kind::Put), Vec::new())],
        );
        assert_eq!(dirty.blocks.len(), table.blocks(), "of {key:?}");
    }
    let behind = find(
        &table,
        &[(b"d".to_vec(), Tag::new(SeqNo(50), Kind::Put), Vec::new())],
    );
    assert!(behind.blocks.len() <= 1, "only a small last block");
}

#[test]
fn an_append_that_did_not_end_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut model = entries(4, 300);
    model.dedup_by(|b, a| a.0 == b.0);
    let (meta, table) = build(&path, &model, Codec::None);
    let fs = OsFs::new();
    let file = open_file(&fs, &path, OpenMode::Append).unwrap();
    let torn = meta.extent.valid_len.next_multiple_of(4096);
    file.write(torn, &[&[0xAB; 5000]]).unwrap();
    drop(file);
    let above = vec![(
        b"key00100".to_vec(),
        Tag::new(SeqNo(9_999), Kind::Put),
        vec![7; 10],
    )];
    let (grown_meta, grown, _) = grow(&path, &table, &above);
    assert!(
        grown_meta.dead_bytes >= 5000,
        "what was torn is counted as dead"
    );
    assert_eq!(
        found(grown.get(&Query::new(b"key00100", SeqNo::MAX)).unwrap())
            .unwrap()
            .1,
        [7; 10]
    );
    // Without a manifest, the last whole footer is found although bytes of a torn append follow it.
    let file = open_file(&fs, &path, OpenMode::Append).unwrap();
    let end = file.len().unwrap();
    file.write(end, &[&[0xCD; 9000]]).unwrap();
    assert_eq!(
        Sst::find_extent(&*file, FileId(7)).unwrap(),
        grown_meta.extent
    );
}

#[test]
fn reserved_bits_are_used_up_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let fs = OsFs::new();
    let file = open_file(&fs, &path, OpenMode::CreateDirect).unwrap();
    let mut writer = SstWriter::new(
        file,
        FileId(7),
        options(40),
        Arc::new(IoCounters::default()),
        Cause::Compaction,
    );
    for i in 0..1000u64 {
        writer
            .add(
                format!("key{:05}", i * 10).as_bytes(),
                Tag::new(SeqNo(i + 1), Kind::Put),
                b"v",
            )
            .unwrap();
    }
    let meta = writer.finish().unwrap();
    assert_eq!(
        (meta.properties.filter_keys, meta.properties.filter_left()),
        (1000, 400)
    );
    let table = Sst::open(
        open_file(&fs, &path, OpenMode::ReadDirect).unwrap(),
        FileId(7),
        meta.extent,
        context(),
    )
    .unwrap();
    let above: Vec<Entry> = (0..300u64)
        .map(|i| {
            (
                format!("key{:05}", i * 10 + i % 2).into_bytes(),
                Tag::new(SeqNo(2000 + i), Kind::Put),
                vec![1],
            )
        })
        .collect();
    let (meta, _, dirty) = grow(&path, &Arc::new(table), &above);
    assert!(dirty.new_keys <= 150, "keys that are there need no bits");
    // A key whose bits are all set already, by chance, uses none.
    let used = 400 - meta.properties.filter_left();
    assert!(
        (dirty.new_keys - 10..=dirty.new_keys).contains(&used),
        "{used} of {}",
        dirty.new_keys
    );
}

#[test]
fn a_hostile_index_is_refused() {
    let handle = |offset| index::BlockHandle {
        offset,
        stored_len: 100,
        raw_len: 100,
        crc: 0,
        codec: Codec::None,
    };
    let decode = |offsets: [u64; 3]| {
        let mut builder = index::IndexBuilder::default();
        for (i, offset) in offsets.into_iter().enumerate() {
            builder.add(
                format!("{i}a").as_bytes(),
                format!("{i}z").as_bytes(),
                handle(offset),
            );
        }
        Index::decode(&builder.finish(), 1000).err()
    };
    let overlap = Some("blocks that do not overlap in the file");
    assert_eq!(decode([0, 100, 200]), None);
    assert_eq!(
        decode([300, 0, 100]),
        None,
        "blocks behind an append lie in any order"
    );
    assert_eq!(decode([0, 100, 50]), overlap, "two blocks share bytes");
    assert_eq!(decode([0, 0, 100]), overlap, "two blocks are one");
    assert_eq!(
        decode([0, 100, 950]),
        Some("index entries within the file"),
        "a block goes past the data"
    );
}

/// `verify` detects a flipped bit in a table that grew if the byte is live, and only then.
#[test]
fn every_live_byte_of_a_grown_table_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table");
    let mut seed = Seed::new(5);
    let (_, table) = build(&path, &entries(5, 60), Codec::None);
    let mut seqno = 10_000;
    let (meta, grown, _) = grow(&path, &table, &incoming(&mut seed, &mut seqno, 5));
    assert!(meta.dead_bytes > 0 && grown.properties().appends == 1);
    drop((table, grown));
    let clean = std::fs::read(&path).unwrap();
    let is_found = |at: usize| {
        let mut bytes = clean.clone();
        bytes[at] ^= 1 << (at % 8);
        verify_bytes(&bytes, meta.extent)
            .map_err(|error| assert_eq!(error.kind(), ErrorKind::Corruption))
            .is_err()
    };
    let found = (0..clean.len()).filter(|&at| is_found(at)).count() as u64;
    assert_eq!(found, meta.extent.valid_len - meta.dead_bytes);
}
