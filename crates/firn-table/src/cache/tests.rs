//! Tests of the limits of the cache. Those of the policy are in `policy_tests.rs`.

use super::*;

#[test]
fn a_cache_that_is_made_smaller_drops_what_it_must() {
    const MIB: u64 = 1 << 20;
    let cache = BlockCache::new(16 * MIB);
    let fill = |from: u64| {
        (from..from + 16_000).for_each(|at| drop(cache.insert_value(FileId(1), at, &[7; 1000])))
    };
    fill(0);
    let full = cache.bytes();
    assert!(full > 15 * MIB && full <= 16 * MIB, "{full}");
    cache.resize(3 * MIB);
    let left = cache.bytes();
    assert!(left > 2 * MIB && left <= 3 * MIB, "{left}");
    cache.resize(16 * MIB);
    fill(100_000);
    assert!(cache.bytes() > 15 * MIB, "{}", cache.bytes());
}

#[test]
fn rows_that_fit_stay() {
    for bytes in [32 << 10, 64 << 10, 300 << 10, 1 << 20] {
        let cache = BlockCache::new(bytes);
        let rows = bytes / 200;
        let tag = Tag(1);
        let round = || {
            let missed = |i: &u64| {
                let key = i.to_be_bytes();
                let is_missed = cache.get_row(&key, mix(*i), tag).is_none();
                if is_missed {
                    cache.insert_row(&key, mix(*i), tag, &[7; 50]);
                }
                is_missed
            };
            (0..rows).filter(missed).count()
        };
        let _warm = (round(), round(), round());
        assert_eq!(round(), 0, "{bytes} bytes, {} held", cache.bytes());
    }
}
