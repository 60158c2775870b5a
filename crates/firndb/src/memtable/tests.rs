//! Tests the memtable against a sorted map, alone and under concurrent inserts.

use super::*;
use firn_base::key::Kind;
use firn_base::seed::Seed;
use firn_base::{FileId, SeqNo, Tag};
use firn_table::sst::hash;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn put(buffer: &Arc<Memtable>, seqno: u64, entries: &[Entry<'_>]) -> bool {
    let footprint = Footprint::of(entries.iter().copied(), seqno);
    match buffer.reserve(entries.iter().copied(), footprint) {
        Some(reservation) => {
            assert_eq!(reservation.count, entries.len() as u64);
            reservation.link(SeqNo(seqno));
            true
        }
        None => false,
    }
}

#[test]
fn gets_are_counted_and_change_no_tag() {
    let buffer = Arc::new(Memtable::new(64 << 10, FileId(1)));
    let kinds = [Kind::Put, Kind::Delete, Kind::Pointer];
    for (key, kind) in (0..3_u8).zip(kinds) {
        for seqno in [10 + u64::from(key), u64::MAX >> 8] {
            let (key, value) = (&[key][..], &b"value"[..]);
            assert!(put(&buffer, seqno, &[Entry { kind, key, value }]));
        }
    }
    // The newest version is found by so many gets, those before it by one more.
    for (key, gets) in [(0_u8, 0_u8), (1, 7), (2, 40)] {
        let newest = Tag::new(SeqNo(u64::MAX >> 8), kinds[usize::from(key)]);
        let before = Tag::new(SeqNo(10 + u64::from(key)), kinds[usize::from(key)]);
        (0..gets).for_each(|_| {
            assert_eq!(
                buffer
                    .get(&[key], hash(&[key]), SeqNo::MAX)
                    .map(|(tag, _)| tag),
                Some(newest)
            );
        });
        (0..=gets).for_each(|_| {
            assert_eq!(
                buffer
                    .get(&[key], hash(&[key]), SeqNo(99))
                    .map(|(tag, _)| tag),
                Some(before)
            );
        });
        let mut iter = buffer.iter();
        iter.seek(&[key], Tag::seek(SeqNo::MAX));
        for (tag, reads) in [(newest, gets), (before, gets + 1)] {
            assert_eq!(
                (iter.key(), iter.tag(), iter.reads()),
                (&[key][..], tag, reads.min(15))
            );
            iter.next();
        }
    }
}

#[test]
fn agrees_with_a_map_both_ways() {
    let buffer = Arc::new(Memtable::new(256 << 10, FileId(1)));
    let mut model = BTreeMap::new();
    let mut seed = Seed::new(1);
    for seqno in 1..2000 {
        let key = seed.below(300).to_be_bytes();
        let value = vec![seqno as u8; seed.below(50) as usize];
        let kind = if seed.one_in(5) {
            Kind::Delete
        } else {
            Kind::Put
        };
        assert!(put(
            &buffer,
            seqno,
            &[Entry {
                kind,
                key: &key,
                value: &value
            }]
        ));
        model.insert((key, u64::MAX - seqno), (kind, value));
    }
    let mut iter = buffer.iter();
    iter.first();
    for ((key, seqno), (kind, value)) in &model {
        assert_eq!(
            (iter.key(), iter.tag()),
            (&key[..], Tag::new(SeqNo(u64::MAX - seqno), *kind))
        );
        assert_eq!(iter.value(), value);
        iter.next();
    }
    assert!(!iter.valid());
    iter.last();
    for (key, _) in model.keys().rev() {
        assert_eq!(iter.key(), key);
        iter.prev();
    }
    assert!(!iter.valid());
    for _ in 0..1000 {
        let (key, at) = (seed.below(310).to_be_bytes(), seed.below(2100));
        let want = model.range((key, u64::MAX - at)..=(key, u64::MAX)).next();
        let got = buffer.get(&key, hash(&key), SeqNo(at));
        assert_eq!(
            got.map(|(_, value)| value.to_vec()),
            want.map(|(_, (_, value))| value.clone())
        );
    }
}

#[test]
fn a_full_buffer_refuses_and_stays_whole() {
    let buffer = Arc::new(Memtable::new(1 << 10, FileId(1)));
    let mut count = 0;
    let value = [9; 100];
    while put(
        &buffer,
        count + 1,
        &[Entry {
            kind: Kind::Put,
            key: &count.to_be_bytes(),
            value: &value,
        }],
    ) {
        count += 1;
    }
    assert!((7..11).contains(&count), "{count}");
    let mut iter = buffer.iter();
    iter.first();
    for i in 0..count {
        assert_eq!(iter.key(), i.to_be_bytes());
        iter.next();
    }
    assert!(!iter.valid());
}

/// Writes a batch, for which memory is claimed. Adds the claimed bytes to `claimed`.
fn put_growing(buffer: &Arc<Memtable>, seqno: u64, entries: &[Entry<'_>], claimed: &AtomicUsize) {
    let bytes = Footprint::of(entries.iter().copied(), seqno).bytes;
    while !put(buffer, seqno, entries) {
        let claim = |bytes| _ = claimed.fetch_add(bytes, Ordering::Relaxed);
        assert!(buffer.grow(bytes, claim), "there is room");
    }
}

/// Writers, a reader, and a thread that gives unused memory back.
#[test]
fn concurrent() {
    const THREADS: u64 = 4;
    const EACH: u64 = 3000;
    let buffer = Arc::new(Memtable::unclaimed(8 << 20, FileId(1)));
    let claimed = AtomicUsize::new(buffer.dram_bytes());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (buffer, claimed) = (&buffer, &claimed);
            scope.spawn(move || {
                let mut seed = Seed::new(thread);
                for i in 0..EACH {
                    let seqno = 1 + thread * EACH + i;
                    let key = seed.below(500).to_be_bytes();
                    // Long enough that pages are given back behind entries.
                    let value = seqno.to_be_bytes().repeat(40);
                    let entry = Entry {
                        kind: Kind::Put,
                        key: &key,
                        value: &value,
                    };
                    put_growing(buffer, seqno, &[entry], claimed);
                    assert_eq!(
                        buffer
                            .get(&key, hash(&key), SeqNo(seqno))
                            .unwrap()
                            .0
                            .seqno(),
                        SeqNo(seqno)
                    );
                }
            });
        }
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                claimed.fetch_sub(buffer.give_back(), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            for _ in 0..50 {
                let mut iter = buffer.iter();
                iter.first();
                let mut last: Option<(Vec<u8>, Tag)> = None;
                while iter.valid() {
                    if let Some((key, tag)) = &last {
                        assert!(firn_base::key::compare(key, *tag, iter.key(), iter.tag()).is_lt());
                    }
                    last = Some((iter.key().to_vec(), iter.tag()));
                    iter.next();
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
    });
    claimed.fetch_sub(buffer.give_back(), Ordering::Relaxed);
    assert_eq!(claimed.into_inner(), buffer.dram_bytes());
    assert!(buffer.dram_bytes() - buffer.used_bytes() < 256 << 10);
    let mut iter = buffer.iter();
    iter.first();
    let mut count = 0;
    while iter.valid() {
        assert_eq!(iter.value(), iter.tag().seqno().0.to_be_bytes().repeat(40));
        count += 1;
        iter.next();
    }
    assert_eq!(count, THREADS * EACH);
}
