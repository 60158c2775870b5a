//! Micro-benchmarks of the parts of a get and a put: `cargo bench -p firn-bench --bench micro`,
//! with `-- NAME` for some of them.
//!
//! Each works on more data than a processor's small caches hold, as in the engine, and accesses it
//! in an order that no prefetcher can predict. The sites of the proof can be switched off here,
//! which costs a load each.

#![allow(missing_docs, reason = "criterion's macros make functions without")]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use firn_base::checksum::{crc32c, crc32c_salted};
use firn_base::key::Kind;
use firn_base::seed::mix;
use firn_base::site::TEST;
use firn_base::{SeqNo, Tag};
use firn_pm::{Extent, Owner, PmConfig, Pool};
use firn_table::sst::{Block, BlockBuilder, Filter, Lookup, hash};
use firndb::proof::{BareMemtable, frame_head};
use std::cell::Cell;
use std::hint::black_box;

/// A key of 16 bytes. Keys of consecutive numbers are far apart.
fn key(number: u64) -> [u8; 16] {
    (u128::from(mix(number)) << 64 | u128::from(number)).to_be_bytes()
}

/// Numbers below `count` in an unpredictable order, without end.
fn jumping(count: u64) -> impl FnMut() -> u64 {
    let mut at = 0;
    move || {
        at += 1;
        mix(at) % count
    }
}

fn checksum(c: &mut Criterion) {
    let mut group = c.benchmark_group("checksum");
    for bytes in [16, 116, 1024, 4096, 65536] {
        let data = vec![7u8; bytes];
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_with_input(BenchmarkId::new("crc32c", bytes), &data, |b, data| {
            b.iter(|| crc32c(black_box(data)))
        });
    }
    let data = vec![7u8; 4096];
    group.bench_function("salted/4096", |b| {
        b.iter(|| crc32c_salted(3, black_box(4096), &[black_box(&data[..])]))
    });
    group.throughput(Throughput::Bytes(16));
    group.bench_function("filter hash/16", |b| b.iter(|| hash(black_box(&key(1)))));
    group.finish();
}

fn skiplist(c: &mut Criterion) {
    let mut group = c.benchmark_group("skiplist");
    for (entries, value) in [(10_000u64, 100usize), (400_000, 100), (60_000, 1024)] {
        let value = vec![7u8; value];
        let capacity = (entries as usize + 1) * (value.len() + 96);
        let fill = |list: &BareMemtable, from: u64, to: u64| {
            for number in from..to {
                assert!(list.put(number + 1, &key(number), &value), "it fits");
            }
        };
        let list = BareMemtable::new(capacity);
        fill(&list, 0, entries);
        let name = format!("{entries} x {}", value.len());
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("get", &name), |b| {
            let mut number = jumping(entries);
            b.iter(|| black_box(list.get(&key(number()))));
        });
        group.throughput(Throughput::Elements(entries / 10));
        group.bench_function(BenchmarkId::new("put the last tenth", &name), |b| {
            let prepare = || {
                let list = BareMemtable::new(capacity);
                fill(&list, 0, entries - entries / 10);
                list
            };
            b.iter_batched_ref(
                prepare,
                |list| fill(list, entries - entries / 10, entries),
                BatchSize::PerIteration,
            );
        });
        group.throughput(Throughput::Elements(entries));
        group.bench_function(BenchmarkId::new("walk", &name), |b| {
            b.iter(|| assert_eq!(list.count() as u64, entries));
        });
    }
    group.finish();
}

fn block(c: &mut Criterion) {
    let mut group = c.benchmark_group("block");
    for value in [20usize, 100, 1024] {
        // A megabyte of blocks of 4 KiB, sorted throughout.
        let mut keys: Vec<_> = (0..(1 << 20) / (value as u64 + 24)).map(key).collect();
        keys.sort_unstable();
        let tag = Tag::new(SeqNo(7), Kind::Put);
        let mut blocks: Vec<(Block, Vec<[u8; 16]>)> = Vec::new();
        let mut builder = BlockBuilder::new(16);
        let mut held = Vec::new();
        let value = vec![7u8; value];
        for key in keys {
            builder.add(&key, tag, &value);
            held.push(key);
            if builder.len() >= 4096 {
                let block = Block::new(builder.finish().into()).expect("a block");
                blocks.push((block, std::mem::take(&mut held)));
                builder.reset();
            }
        }
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("get", value.len()), |b| {
            let mut number = jumping(u64::MAX);
            b.iter(|| {
                let number = number() as usize;
                let (block, keys) = &blocks[number % blocks.len()];
                let found = block.get(&keys[(number >> 32) % keys.len()], Tag::seek(SeqNo::MAX));
                assert!(matches!(found, Some(Lookup::Found(..))));
            });
        });
    }
    group.finish();
}

fn filter(c: &mut Criterion) {
    const KEYS: u64 = 1_000_000;
    let mut group = c.benchmark_group("filter");
    let mut filter = Filter::with_capacity(KEYS as usize, 10);
    group.bench_function("insert", |b| {
        let mut number = jumping(KEYS);
        b.iter(|| filter.insert(hash(&key(number()))));
    });
    (0..KEYS).for_each(|number| filter.insert(hash(&key(number))));
    for (name, from) in [("present", 0), ("absent", KEYS)] {
        group.bench_function(name, |b| {
            let mut number = jumping(KEYS);
            b.iter(|| black_box(filter.may_contain(hash(&key(from + number())))));
        });
    }
    group.finish();
}

fn frame(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame");
    for (writers, value) in [(1u64, 100usize), (1, 1024), (8, 100), (64, 100)] {
        let value = vec![7u8; value];
        let keys: Vec<_> = (0..writers).map(key).collect();
        let list = BareMemtable::new(1 << 20);
        let entries = keys.iter().map(|key| (&key[..], &value[..]));
        let members = list.group(entries).expect("it fits");
        let mut head = Vec::new();
        group.throughput(Throughput::Elements(writers));
        group.bench_function(format!("{writers} x {}", value.len()), |b| {
            b.iter(|| black_box(frame_head(&mut head, &members).expect("a frame")));
        });
    }
    group.finish();
}

fn verbs(c: &mut Criterion) {
    const BYTES: u64 = 64 << 20;
    let pool =
        Pool::open_or_create(&PmConfig::volatile(BYTES + (16 << 20)), [7; 16]).expect("a pool");
    pool.finish_recovery().expect("an empty pool");
    let extent: Extent = pool.alloc(BYTES, Owner::LogBuffer).expect("room");
    let at = Cell::new(0u64);
    // Places that no cache holds and no prefetcher predicts.
    let place = |bytes: usize| {
        at.set(at.get() + 1);
        let slots = BYTES / (bytes as u64).next_multiple_of(64);
        extent
            .at(mix(at.get()) % slots * (bytes as u64).next_multiple_of(64))
            .expect("a slot of the extent")
    };
    let mut group = c.benchmark_group("pm");
    for bytes in [64usize, 256, 1024, 4096, 65536] {
        let data = vec![7u8; bytes];
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_with_input(
            BenchmarkId::new("store, flush, fence", bytes),
            &data,
            |b, data| {
                b.iter(|| {
                    let dirty = pool.store(place(bytes), data).expect("in the extent");
                    pool.fence(&TEST, [pool.flush(&TEST, dirty)])
                });
            },
        );
        group.bench_with_input(
            BenchmarkId::new("write_durable", bytes),
            &data,
            |b, data| {
                b.iter(|| {
                    pool.write_durable(&TEST, place(bytes), &[data])
                        .expect("in the extent")
                });
            },
        );
        let mut out = vec![0u8; bytes];
        group.bench_function(BenchmarkId::new("read", bytes), |b| {
            b.iter(|| pool.read(place(bytes), &mut out).expect("in the pool"));
        });
    }
    group.finish();
}

criterion_group!(micro, checksum, skiplist, block, filter, frame, verbs);
criterion_main!(micro);
