//! The pool: verbs and space here; backends, real DAX, crashes and hostile bytes in separate files.

mod backends;
mod crash;
mod dax;
mod growing;
mod hostile;

use super::*;
use crate::config::PmConfig;
use crate::layout::{DATA_START, GRANULE_BYTES};
use crate::offset::{Extent, PmOffset};
use crate::root::RootEntry;
use crate::{Flushed, sim};
use firn_base::ErrorKind;
use firn_base::site::TEST;

pub(super) const UUID: [u8; 16] = *b"the pool's uuid!";
const G: u64 = GRANULE_BYTES;

fn volatile(granules: u64) -> Pool {
    let pool = Pool::open_or_create(&PmConfig::volatile(DATA_START + granules * G), UUID).unwrap();
    pool.finish_recovery().unwrap();
    pool
}

fn entry(kind: u16, extent: Extent) -> RootEntry {
    RootEntry {
        owner: Owner::Test,
        kind,
        word: 0,
        extent: Some(extent),
    }
}

/// The edit that names `extent` as entry `kind`.
fn naming(kind: u16, extent: Extent) -> impl FnOnce(&mut Root) -> firn_base::Result<()> {
    move |root| {
        root.set(entry(kind, extent));
        Ok(())
    }
}

#[test]
fn a_pool_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Pool>();
    shared::<crate::Frozen>();
    shared::<crate::Fenced>();
}

#[test]
fn verbs_store_what_was_given_and_count_it() {
    let pool = volatile(4);
    let extent = pool.alloc(2 * G, Owner::Btree).unwrap();
    let at = extent.at(60).unwrap();
    let dirty = pool.store(at, b"eightbyt").unwrap();
    let flushed = pool.flush(&TEST, dirty);
    let more = pool.copy_nt(extent.at(4096).unwrap(), &[7; 130]).unwrap();
    let fenced = pool.fence(&TEST, [flushed, more]);
    assert_eq!(fenced.range(), (at.get(), extent.offset.get() + 4096 + 130));
    let dirty = pool.publish(extent.offset, 42, &fenced).unwrap();
    let _fenced = pool.fence(&TEST, pool.flush(&TEST, dirty));
    let mut bytes = [0; 8];
    pool.read(at, &mut bytes).unwrap();
    assert_eq!(&bytes, b"eightbyt");
    assert_eq!(pool.load_u64(extent.offset).unwrap(), 42);
    let counts = pool.counts(Owner::Btree);
    assert_eq!(
        (counts.lines_stored, counts.flushes, counts.fences),
        (2 + 3 + 1, 2 + 1 + 1, 2)
    );
    assert_eq!((counts.bytes_written, counts.bytes_read), (8 + 130 + 8, 16));
    assert_eq!(pool.counts(Owner::Table), OwnerCounts::default());
}

#[test]
fn one_write_durable_joins_its_slices() {
    let pool = volatile(4);
    let extent = pool.alloc(G, Owner::LogBuffer).unwrap();
    let parts: [&[u8]; 4] = [b"head", &[1; 100], b"", &[2; 64]];
    let fenced = pool
        .write_durable(&TEST, extent.at(30).unwrap(), &parts)
        .unwrap();
    assert_eq!(
        fenced.range(),
        (extent.offset.get() + 30, extent.offset.get() + 30 + 168)
    );
    let mut got = vec![0; 168];
    pool.read(extent.at(30).unwrap(), &mut got).unwrap();
    assert_eq!(got, parts.concat());
}

#[test]
fn stores_outside_an_extent_are_refused() {
    let pool = volatile(4);
    let extent = pool.alloc(G, Owner::Test).unwrap();
    let kind = |offset: u64, len: usize| {
        pool.store(PmOffset::new(offset), &vec![0; len])
            .unwrap_err()
            .kind()
    };
    assert_eq!(kind(0, 8), ErrorKind::Invalid);
    assert_eq!(kind(DATA_START - 1, 2), ErrorKind::Invalid);
    assert_eq!(kind(extent.end().unwrap() - 1, 2), ErrorKind::Invalid);
    assert_eq!(kind(pool.size_bytes() - 1, 2), ErrorKind::Corruption);
    assert_eq!(kind(u64::MAX, 2), ErrorKind::Corruption);
    assert!(
        pool.publish(extent.at(4).unwrap(), 1, &crate::Fenced::nothing())
            .is_err()
    );
    assert_eq!(
        pool.read(PmOffset::new(u64::MAX - 1), &mut [0; 8])
            .unwrap_err()
            .kind(),
        ErrorKind::Corruption
    );
    assert_eq!(
        pool.load_u64(PmOffset::new(pool.size_bytes()))
            .unwrap_err()
            .kind(),
        ErrorKind::Corruption
    );
}

#[test]
fn frozen_bytes_cannot_change() {
    let pool = volatile(4);
    let extent = pool.alloc(G, Owner::Table).unwrap();
    let fenced = pool.write_durable(&TEST, extent.offset, &[b"ice"]).unwrap();
    let frozen = pool.freeze(extent, &fenced).unwrap();
    assert_eq!(pool.borrow(&frozen, 0..3).unwrap(), b"ice");
    assert!(pool.store(extent.offset, b"x").is_err());
    assert!(pool.copy_nt(extent.offset, b"x").is_err());
    assert!(pool.freeze(extent, &fenced).is_err());
    assert!(pool.adopt(extent).is_err());
    assert!(
        pool.free(extent)
            .unwrap_err()
            .to_string()
            .contains("frozen")
    );
    assert_eq!(
        pool.borrow(&frozen, 0..G + 1).unwrap_err().kind(),
        ErrorKind::Corruption
    );
    #[expect(
        clippy::reversed_empty_ranges,
        reason = "what a damaged length may come to"
    )]
    let reversed = 4..2;
    assert!(pool.borrow(&frozen, reversed).is_err());
    pool.free_frozen(frozen).unwrap();
    assert_eq!(pool.alloc(G, Owner::Test).unwrap(), extent);
    let _dirty = pool.store(extent.offset, b"x").unwrap();
}

#[test]
fn what_a_root_names_is_not_freed_and_what_is_free_is_not_named() {
    let pool = volatile(4);
    let extent = pool.alloc(G, Owner::Test).unwrap();
    let root = pool
        .commit_with(crate::Fenced::nothing(), naming(1, extent))
        .unwrap();
    assert_eq!(root.generation, 2);
    assert!(
        pool.free(extent)
            .unwrap_err()
            .to_string()
            .contains("generation 2")
    );
    let without = Root {
        entries: Vec::new(),
        ..Root::clone(&root)
    };
    pool.commit(without.clone(), crate::Fenced::nothing())
        .unwrap();
    assert!(
        pool.commit(without, crate::Fenced::nothing())
            .unwrap_err()
            .to_string()
            .contains("generation 2")
    );
    pool.free(extent).unwrap();
    let refused = |entries: Vec<RootEntry>| {
        pool.commit(
            Root {
                entries,
                ..Root::clone(&pool.root())
            },
            crate::Fenced::nothing(),
        )
    };
    assert!(
        refused(vec![entry(1, extent)])
            .unwrap_err()
            .to_string()
            .contains("not live")
    );
    let again = pool.alloc(G, Owner::Btree).unwrap();
    assert!(
        refused(vec![entry(1, again)])
            .unwrap_err()
            .to_string()
            .contains("held by btree")
    );
    pool.free(again).unwrap();
    let again = pool.alloc(G, Owner::Test).unwrap();
    assert!(
        refused(vec![entry(1, again), entry(2, again)])
            .unwrap_err()
            .to_string()
            .contains("two root entries")
    );
    assert_eq!(pool.root().generation, 3);
    pool.check().unwrap();
}

#[test]
fn a_full_pool_says_so_and_headroom_is_kept() {
    let pool = volatile(4);
    let mut headroom = pool.reserve(2 * G).unwrap();
    let held = pool.alloc(2 * G, Owner::Test).unwrap();
    let error = pool.alloc(1, Owner::Test).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(
        error
            .to_string()
            .contains("8192 free, 8192 of them reserved"),
        "{error}"
    );
    let extent = headroom.alloc(G, Owner::Skiplist).unwrap();
    assert_eq!(headroom.left_bytes(), G);
    assert_eq!(pool.usage().headroom_bytes, G);
    assert!(headroom.alloc(G + 1, Owner::Skiplist).is_err());
    drop(headroom);
    pool.alloc(G, Owner::Test).unwrap();
    pool.free(extent).unwrap();
    pool.free(held).unwrap();
    assert!(pool.free(held).is_err());
    assert_eq!(pool.usage().live_total(), G);
    pool.check().unwrap();
}

#[test]
fn growing_adds_free_space_and_moves_nothing() {
    let pool = volatile(1);
    let extent = pool.alloc(G, Owner::Test).unwrap();
    let frozen = pool
        .freeze(
            extent,
            &pool
                .write_durable(&TEST, extent.offset, &[b"firn"])
                .unwrap(),
        )
        .unwrap();
    let before = pool.borrow(&frozen, 0..4).unwrap();
    assert!(pool.alloc(G, Owner::Test).is_err());
    assert!(pool.grow(pool.size_bytes()).is_err());
    pool.grow(pool.size_bytes() + 8 * G + 5).unwrap();
    assert_eq!(pool.usage().free_bytes, 8 * G);
    assert_eq!(before, b"firn");
    let extent = pool.alloc(8 * G, Owner::Test).unwrap();
    let _fenced = pool
        .write_durable(&TEST, extent.at(8 * G - 4).unwrap(), &[b"last"])
        .unwrap();
    pool.check().unwrap();
}

#[test]
fn threads_read_while_one_writes() {
    let pool = volatile(4);
    let extent = pool.alloc(2 * G, Owner::LogBuffer).unwrap();
    let rounds = 2_000u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                let body = [round as u8; 256];
                let fenced = pool
                    .write_durable(&TEST, extent.at(64 * (round % 50 + 1)).unwrap(), &[&body])
                    .unwrap();
                let word = pool.publish(extent.offset, round, &fenced).unwrap();
                let _fenced = pool.fence(&TEST, pool.flush(&TEST, word));
            }
        });
        let mut last = 0;
        while last < rounds {
            let seen = pool.load_u64(extent.offset).unwrap();
            assert!(seen >= last);
            last = seen;
            let mut bytes = [0; 100];
            pool.read(extent.at(61 + last % 100).unwrap(), &mut bytes)
                .unwrap();
        }
    });
}

#[test]
fn latency_is_injected_without_changing_a_byte() {
    let latency = Some(crate::Latency {
        read_ns: 1,
        write_ns: 1,
    });
    let config = PmConfig {
        latency,
        ..PmConfig::volatile(1 << 16)
    };
    let pool = Pool::open_or_create(&config, UUID).unwrap();
    pool.finish_recovery().unwrap();
    let extent = pool.alloc(G, Owner::Test).unwrap();
    let flushed: Flushed = pool.copy_nt(extent.offset, &[9; 500]).unwrap();
    let _fenced = pool.fence(&TEST, flushed);
    let mut bytes = [0; 500];
    pool.read(extent.offset, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 500]);
}

/// Suite pm_lint for the pool's own verbs: no line is left in the cache, and no more instructions
/// are issued than stated here.
#[test]
fn instructions_per_operation_are_as_checked_in() {
    let sim = sim::SimRegion::new(1 << 16, sim::Mode::Adr);
    let count = |what: &str, expected: (u64, u64), before: (u64, u64, u64)| {
        sim.assert_clean();
        let now = sim.instruction_counts();
        assert_eq!(
            (now.1 - before.1, now.2 - before.2),
            expected,
            "flushes and fences of {what}"
        );
        now
    };
    let pool = Pool::open_simulated(&sim, UUID).unwrap();
    let now = count("create and open", (3, 2), (0, 0, 0));
    pool.finish_recovery().unwrap();
    let extent = pool.alloc(G, Owner::Test).unwrap();
    let now = count("alloc", (0, 0), now);
    let fenced = pool
        .write_durable(&TEST, extent.offset, &[&[1; 64], &[2; 128]])
        .unwrap();
    let now = count("write_durable of whole lines", (0, 1), now);
    let _fenced = pool
        .write_durable(&TEST, extent.at(10).unwrap(), &[&[1; 200]])
        .unwrap();
    let now = count("write_durable with ragged ends", (2, 1), now);
    pool.commit_with(fenced, naming(1, extent)).unwrap();
    let now = count("commit of one entry", (1, 1), now);
    pool.grow(1 << 17).unwrap();
    let now = count("grow", (1, 1), now);
    pool.close().unwrap();
    count("close", (1, 1), now);
}

/// Suite pm_align: for every alignment and payload length, each way of writing is durable after its
/// fence.
#[test]
fn every_alignment_and_payload_is_durable_after_its_fence() {
    let sim = sim::SimRegion::new(20 << 10, sim::Mode::Adr);
    let pool = Pool::open_simulated(&sim, UUID).unwrap();
    pool.finish_recovery().unwrap();
    let extent = pool.alloc(G, Owner::Test).unwrap();
    let mut round = 0u8;
    for alignment in 0..64u64 {
        for len in 0..=192usize {
            let at = extent.at(64 + alignment).unwrap();
            for way in 0..2 {
                round = round.wrapping_add(1);
                let bytes: Vec<u8> = (0..len)
                    .map(|i| (i as u8).wrapping_mul(13).wrapping_add(round))
                    .collect();
                let fenced = match way {
                    0 => pool.fence(&TEST, pool.flush(&TEST, pool.store(at, &bytes).unwrap())),
                    _ => pool
                        .write_durable(&TEST, at, &[&bytes[..len / 2], &bytes[len / 2..]])
                        .unwrap(),
                };
                assert_eq!(fenced.range(), (at.get(), at.get() + len as u64));
                assert!(
                    sim.pending_lines().is_empty(),
                    "way {way}, alignment {alignment}, {len} bytes"
                );
                assert_eq!(
                    &sim.durable()[at.get() as usize..][..len],
                    bytes,
                    "way {way}, {alignment}+{len}"
                );
            }
        }
    }
}

#[test]
fn commits_of_many_threads_lose_nothing() {
    let pool = volatile(64);
    std::thread::scope(|scope| {
        for thread in 0..4u16 {
            let pool = &pool;
            scope.spawn(move || {
                for step in 0..10u16 {
                    let extent = pool.alloc(G, Owner::Test).unwrap();
                    let fenced = pool
                        .write_durable(&TEST, extent.offset, &[&[thread as u8; 100]])
                        .unwrap();
                    let _root = pool
                        .commit_with(fenced, naming(thread * 16 + step, extent))
                        .unwrap();
                }
            });
        }
    });
    let root = pool.root();
    assert_eq!((root.entries.len(), root.generation), (40, 41));
    for entry in &root.entries {
        let mut bytes = [0; 100];
        pool.read(entry.extent.unwrap().offset, &mut bytes).unwrap();
        assert_eq!(bytes, [(entry.kind / 16) as u8; 100]);
    }
    pool.check().unwrap();
}
