//! Hostile bytes: opening anything returns a pool whose space adds up, or an error. Never a panic.

use super::*;
use crate::header;
use crate::root::{refit_checksum, slot_offset};
use crate::sim::{Mode, SimRegion};
use proptest::prelude::*;

fn golden() -> Vec<u8> {
    let sim = SimRegion::new(32 << 10, Mode::Adr);
    let pool = Pool::open_simulated(&sim, UUID).unwrap();
    pool.finish_recovery().unwrap();
    for kind in 1..4 {
        let extent = pool.alloc(G, Owner::Test).unwrap();
        pool.commit_with(crate::Fenced::nothing(), naming(kind, extent))
            .unwrap();
    }
    sim.durable()
}

/// Opens `bytes` and checks the pool. `None` if the open is refused.
fn open(bytes: Vec<u8>) -> Option<Pool> {
    if bytes.len() < 16 << 10 {
        return None;
    }
    let pool = Pool::open_simulated(&SimRegion::from_image(bytes, Mode::Adr), UUID).ok()?;
    pool.check().unwrap();
    pool.finish_recovery().unwrap();
    pool.check().unwrap();
    for entry in &pool.root().entries {
        if let Some(extent) = entry.extent {
            let frozen = pool.adopt(extent).unwrap();
            assert_eq!(
                pool.borrow(&frozen, 0..extent.len).unwrap().len() as u64,
                extent.len
            );
        }
    }
    Some(pool)
}

fn refit(bytes: &mut [u8]) {
    header::refit_checksums(&mut bytes[..4096], &UUID);
    for generation in [1, 2] {
        let at = slot_offset(generation);
        refit_checksum(&mut bytes[at as usize..][..4096], &UUID, at);
    }
}

#[test]
fn one_flipped_bit_never_gives_another_pool() {
    let golden = golden();
    let wanted = open(golden.clone()).unwrap().root();
    // Everything that is ever read: header line, session word, both root records (heads and
    // entries).
    let records = [0..72, 4096..4096 + 300, 8192..8192 + 300];
    for at in records.into_iter().flatten() {
        for bit in 0..8 {
            let mut bytes = golden.clone();
            bytes[at] ^= 1 << bit;
            if let Some(pool) = open(bytes) {
                // The newest root may be taken for a torn commit; then the previous root is used,
                // whole.
                let lost = wanted.generation - pool.root().generation;
                assert!(lost <= 1, "byte {at} bit {bit}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_and_refitted_bytes_give_a_pool_or_an_error(
        flips in prop::collection::vec((0usize..3, 0usize..320, any::<u8>()), 1..12),
        is_refitted: bool,
        len in prop::option::of(4usize..9),
    ) {
        let mut bytes = golden();
        for (page, at, value) in flips {
            bytes[page * 4096 + at] = value;
        }
        if is_refitted {
            refit(&mut bytes);
        }
        if let Some(pages) = len {
            bytes.resize(pages * 4096, 0);
        }
        open(bytes);
    }

    #[test]
    fn extreme_fields_behind_good_checksums_are_refused_or_served(
        slot in 1usize..3,
        field in prop::sample::select(vec![12usize, 16, 24, 32, 128, 130, 144, 152, 160, 176, 184]),
        value in prop::sample::select(vec![0u64, 1, 4095, 4096, 12288, 16384, 28672, 1 << 40, u64::MAX - 4095, !0]),
    ) {
        let mut bytes = golden();
        let at = slot * 4096 + field;
        let width = if field == 12 { 4 } else if (128..132).contains(&field) { 2 } else { 8 };
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        refit(&mut bytes);
        open(bytes);
    }

    #[test]
    fn any_bytes_are_read_or_refused(head in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = vec![0u8; 16 << 10];
        bytes[..head.len()].copy_from_slice(&head);
        open(bytes);
    }
}
