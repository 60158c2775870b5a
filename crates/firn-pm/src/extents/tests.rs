//! The extent map against a set of granules, and each of its refusals.

use super::*;
use firn_base::seed::Seed;
use std::collections::BTreeSet;

const G: u64 = GRANULE_BYTES;

fn map(granules: u64) -> ExtentMap {
    let map = ExtentMap::new(DATA_START + granules * G, "pool");
    map.finish().unwrap();
    map
}

#[test]
fn random_sequences_match_a_set_of_granules() {
    for seed in 0..60 {
        let mut random = Seed::new(seed);
        let map = map(20);
        let mut held: Vec<Extent> = Vec::new();
        let mut taken: BTreeSet<u64> = BTreeSet::new();
        for _ in 0..200 {
            if random.one_in(2) && !held.is_empty() {
                let extent = held.swap_remove(random.below(held.len() as u64) as usize);
                map.free(extent, false).unwrap();
                for granule in extent.offset.get() / G..extent.end().unwrap() / G {
                    assert!(taken.remove(&granule));
                }
                assert_eq!(
                    map.free(extent, false).unwrap_err().kind(),
                    ErrorKind::Invalid
                );
            } else {
                let least = 1 + random.below(5 * G);
                let most = least + random.below(3) * random.below(5 * G);
                match map.alloc_up_to(least, most, Owner::Test, false) {
                    Ok(extent) => {
                        assert!(extent.len >= least && extent.len < most + G);
                        let kept = match random.one_in(3) {
                            true => 1 + random.below(extent.len),
                            false => extent.len,
                        };
                        let extent = map.trim(extent, kept).unwrap();
                        assert_eq!(extent.len, kept.next_multiple_of(G));
                        for granule in extent.offset.get() / G..extent.end().unwrap() / G {
                            assert!(taken.insert(granule), "handed out twice, seed {seed}");
                        }
                        held.push(extent);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace);
                        assert!(map.alloc(least, Owner::Test, false).is_err());
                    }
                }
            }
            map.check().unwrap();
            assert_eq!(map.usage().live(Owner::Test), taken.len() as u64 * G);
        }
    }
}

#[test]
fn wrong_frees_name_the_extent() {
    let map = map(4);
    let extent = map.alloc(2 * G, Owner::Test, false).unwrap();
    let half = Extent::new(extent.offset.get(), G);
    assert!(
        map.free(half, false)
            .unwrap_err()
            .to_string()
            .contains("live one there is 8192")
    );
    let inside = Extent::new(extent.offset.get() + G, G);
    assert!(
        map.free(inside, false)
            .unwrap_err()
            .to_string()
            .contains("not live")
    );
    map.free(extent, false).unwrap();
}

#[test]
fn claims_that_overlap_or_leave_the_pool_are_corruption() {
    let map = ExtentMap::new(DATA_START + 4 * G, "pool");
    let claim = |at: u64, len: u64| map.claim(Extent::new(at, len), Owner::Test, false);
    claim(DATA_START + G, 2 * G).unwrap();
    for (at, len) in [
        (DATA_START + G, G),
        (DATA_START, 2 * G),
        (DATA_START + 2 * G, G),
        (DATA_START, 4 * G),
        (0, G),
        (DATA_START + 4 * G, G),
        (DATA_START + 3 * G, 2 * G),
        (DATA_START + 3 * G, 0),
        (DATA_START + 3 * G, 100),
        (DATA_START + 1, G),
        (u64::MAX - G + 1, G),
        (DATA_START, u64::MAX - G + 1),
    ] {
        assert_eq!(
            claim(at, len).unwrap_err().kind(),
            ErrorKind::Corruption,
            "{at:#x}+{len:#x}"
        );
    }
    assert_eq!(
        map.alloc(G, Owner::Test, false).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    map.finish().unwrap();
    map.check().unwrap();
    assert_eq!(map.usage().free_bytes, 2 * G);
    assert!(
        map.claim(Extent::new(DATA_START, G), Owner::Test, false)
            .is_err()
    );
}

#[test]
fn promised_space_is_kept_from_others() {
    let map = map(4);
    assert_eq!(map.promise(2 * G + 1).unwrap(), 3 * G);
    map.alloc(G, Owner::Test, false).unwrap();
    assert_eq!(
        map.alloc(G, Owner::Test, false).unwrap_err().kind(),
        ErrorKind::NoSpace
    );
    assert_eq!(map.promise(1).unwrap_err().kind(), ErrorKind::NoSpace);
    map.alloc(2 * G, Owner::Test, true).unwrap();
    map.unpromise(G);
    map.alloc(G, Owner::Test, false).unwrap();
    map.check().unwrap();
}

#[test]
fn the_longest_piece_serves_where_none_is_long_enough() {
    let map = map(8);
    let held: Vec<Extent> = (0..4)
        .map(|_| map.alloc(2 * G, Owner::Test, false).unwrap())
        .collect();
    map.free(held[0], false).unwrap();
    map.free(held[2], false).unwrap();
    map.free(held[3], false).unwrap();
    let whole = map.alloc_up_to(G, 2 * G, Owner::Test, false).unwrap();
    assert_eq!(whole, held[0], "the first that holds all of it");
    let promise = map.promise(G).unwrap();
    let most = map.alloc_up_to(G, 9 * G, Owner::Test, false).unwrap();
    assert_eq!(
        most,
        Extent::new(held[2].offset.get(), 3 * G),
        "but for what is promised"
    );
    assert!(map.alloc_up_to(G, 9 * G, Owner::Test, false).is_err());
    map.unpromise(promise);
    assert!(map.trim(most, 4 * G).is_err(), "it has no more than three");
    map.check().unwrap();
}
