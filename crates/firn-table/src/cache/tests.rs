//! Tests of the cache: its limits, and what stays in it compared with the best possible choice.

use super::*;
use firn_base::seed::Seed;

const MIB: u64 = 1 << 20;
const TAG: Tag = Tag(1);

/// Looks up the row of key `i`, and inserts it with `len` bytes if it is not there. True if it was.
fn get(cache: &BlockCache, i: u64, len: usize) -> bool {
    let key = i.to_be_bytes();
    match cache.get_row(&key, mix(i), TAG) {
        Some((tag, value)) => {
            assert_eq!((tag, &value[..]), (TAG, &vec![i as u8; value.len()][..]));
            true
        }
        None => {
            cache.insert_row(&key, mix(i), TAG, &vec![i as u8; len], 0);
            false
        }
    }
}

/// The misses in a hundred of the lookups that `next` draws, each with the length of its value.
fn misses(cache: &BlockCache, gets: u64, mut next: impl FnMut(u64) -> (u64, usize)) -> f64 {
    let missed = |i: &u64| {
        let (key, len) = next(*i);
        !get(cache, key, len)
    };
    (0..gets).filter(missed).count() as f64 / gets as f64 * 100.0
}

/// Keys of which the `i`-th is drawn with a probability in proportion to 1 / i.
struct Skewed {
    seed: Seed,
    sums: Vec<f64>,
}

impl Skewed {
    fn new(keys: u64) -> Skewed {
        let sum = |sum: &mut f64, i| {
            *sum += 1.0 / i as f64;
            Some(*sum)
        };
        Skewed {
            seed: Seed::new(1),
            sums: (1..=keys).scan(0.0, sum).collect(),
        }
    }

    fn all(&self) -> f64 {
        self.sums[self.sums.len() - 1]
    }

    fn draw(&mut self) -> u64 {
        let at = self.seed.unit() * self.all();
        self.sums.partition_point(|sum| *sum < at) as u64
    }

    /// The misses in a hundred of a cache that always has the first `entries`.
    fn misses_of_best(&self, entries: usize) -> f64 {
        (1.0 - self.sums[entries - 1] / self.all()) * 100.0
    }
}

#[test]
fn a_cache_that_is_made_smaller_drops_what_it_must() {
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
fn keys_of_all_lengths_have_rows() {
    let cache = BlockCache::new(4 * MIB);
    let lengths = [0, 1, 16, 126, 127, 128, 129, 300, 0xffff, 0x1_0000];
    let (new, newer) = ([1; 40], [2; 90]);
    for len in lengths {
        let key = vec![b'k'; len];
        let hash = mix(len as u64);
        let read = |tag| {
            cache
                .get_row(&key, hash, tag)
                .map(|(tag, value)| (tag, value.to_vec()))
        };
        cache.insert_row(&key, hash, Tag(8), &new, 0);
        let is_admitted = len < 0x1_0000;
        assert_eq!(
            read(Tag(9)),
            is_admitted.then(|| (Tag(8), new.to_vec())),
            "{len}"
        );
        assert_eq!(read(Tag(7)), None, "{len}: a later one");
        // Neither another key with this hash, nor one that ends where the value begins.
        for other in [
            [&key[..], b"k"].concat(),
            vec![b'l'; len.max(1)],
            [&key[..], &[1]].concat(),
        ] {
            assert_eq!(cache.get_row(&other, hash, Tag(9)), None, "{len}");
        }
        cache.replace_row(&key, hash, Tag(9), &newer, 0);
        assert_eq!(
            read(Tag(9)),
            is_admitted.then(|| (Tag(9), newer.to_vec())),
            "{len}"
        );
        cache.replace_row(&key, hash, Tag(10), &newer[1..], 0);
        cache.replace_row(&key, hash, Tag(11), &new[1..], 0);
        assert_eq!(
            read(Tag(11)),
            is_admitted.then(|| (Tag(11), new[1..].to_vec())),
            "{len}"
        );
    }
}

#[test]
fn lookups_elsewhere_count() {
    let read = |cache: &BlockCache, i: u64| cache.get_row(&i.to_be_bytes(), mix(i), TAG).is_some();
    let insert = |cache: &BlockCache, keys: std::ops::Range<u64>, lookups| {
        keys.for_each(|i| cache.insert_row(&i.to_be_bytes(), mix(i), TAG, &[1; 100], lookups));
    };
    // The cache has room for some 7,000 rows, and those in it were looked up twice.
    let left = |lookups, replaced| {
        let cache = BlockCache::new(MIB);
        insert(&cache, 0..10_000, 0);
        let _looked_up = (0..20_000).filter(|i| read(&cache, i % 10_000)).count();
        if replaced {
            (0..1_000_u64).for_each(|i| {
                cache.replace_row(&i.to_be_bytes(), mix(i), TAG, &[2; 100], lookups);
            });
            insert(&cache, 20_000..40_000, 3);
            return (0..1_000).filter(|i| read(&cache, *i)).count();
        }
        insert(&cache, 20_000..21_000, lookups);
        insert(&cache, 30_000..40_000, 0);
        (20_000..21_000).filter(|i| read(&cache, *i)).count()
    };
    assert!(left(0, false) < 100 && left(9, false) > 900, "new rows");
    assert!(
        left(0, true) < 100 && left(9, true) > 500,
        "rows that were there"
    );
}

#[test]
fn a_row_costs_few_bytes() {
    let cache = BlockCache::new(16 * MIB);
    for i in 0..200_000_u64 {
        cache.insert_row(&[i.to_be_bytes(); 2].concat(), mix(i), TAG, &[7; 100], 0);
    }
    let held = (0..200_000_u64).filter(|i| cache.has_row(mix(*i))).count() as u64;
    let overhead = 16 * MIB / held - 116;
    assert!(overhead <= 32, "{overhead} B beside a row of 16 + 100 B");
}

#[test]
fn rows_that_fit_stay() {
    for bytes in [32 << 10, 64 << 10, 300 << 10, 1 << 20] {
        let cache = BlockCache::new(bytes);
        let rows = bytes / 200;
        let _warm = misses(&cache, 3 * rows, |i| (i % rows, 50));
        let missed = misses(&cache, rows, |i| (i, 50));
        assert_eq!(missed, 0.0, "{bytes} bytes, {} held", cache.bytes());
    }
}

#[test]
fn a_skewed_reader_misses_little_more_than_with_the_best_choice() {
    const KEYS: u64 = 40_000;
    for (len, entries, factor) in [(100, 4000, 1.18), (1000, 4000, 1.12)] {
        let mut keys = Skewed::new(KEYS);
        // What the entries take, without the cache's overhead.
        let cache = BlockCache::new((len as u64 + 8) * entries as u64 * 104 / 100);
        let _warm = misses(&cache, 300_000, |_| (keys.draw(), len));
        let missed = misses(&cache, 300_000, |_| (keys.draw(), len));
        let best = keys.misses_of_best(entries);
        assert!(missed < best * factor, "{len}: {missed} of {best}");
    }
}

#[test]
fn a_hot_set_that_moved_is_found_again_and_scans_do_not_wash_it_out() {
    const KEYS: u64 = 40_000;
    let mut keys = Skewed::new(KEYS);
    let cache = BlockCache::new(4 * MIB);
    let _warm = misses(&cache, 300_000, |_| (keys.draw(), 1000));
    let before = misses(&cache, 40_000, |_| (keys.draw(), 1000));
    // A scan of everything.
    let _scan = misses(&cache, KEYS, |i| (i, 1000));
    let behind = misses(&cache, 40_000, |_| (keys.draw(), 1000));
    assert!(behind < before * 1.1, "{behind}, {before} before the scan");
    // Other keys are hot. The cache has 4,000 entries, and as many gets to adapt.
    let moved = |keys: &mut Skewed| ((keys.draw() + KEYS / 2) % KEYS, 1000);
    let _adapting = misses(&cache, 4000, |_| moved(&mut keys));
    let behind = misses(&cache, 4000, |_| moved(&mut keys));
    // A cache that began empty has nothing to forget.
    let empty = BlockCache::new(4 * MIB);
    let _filling = misses(&empty, 4000, |_| moved(&mut keys));
    let best = misses(&empty, 4000, |_| moved(&mut keys));
    assert!(behind < best * 1.2, "{behind}, {best} of an empty one");
}

#[test]
fn the_limit_holds_for_values_of_all_sizes_that_change() {
    for bytes in [100 << 10, 700 << 10, 5 * MIB, 16 * MIB, 40 * MIB] {
        let cache = BlockCache::new(bytes);
        let mut seed = Seed::new(bytes);
        for i in 0..20_000_u64 {
            let key = seed.below(3000);
            let len = 1 << seed.below(18);
            let len = (len + seed.below(len)) as usize;
            match seed.below(8) {
                0 => cache.replace_row(&key.to_be_bytes(), mix(key), TAG, &vec![key as u8; len], 0),
                1 => cache.insert(FileId(9), key, &vec![1; len]),
                2 => drop(cache.remove(FileId(9), key)),
                _ => drop(get(&cache, key, len)),
            }
            if i % 1000 == 0 {
                let share = 2 + seed.below(8);
                cache.resize(bytes * share / 10);
                let (held, max) = (cache.bytes(), bytes * share / 10);
                assert!(held <= max, "{held} of {max} are held");
            }
            if i % 100 == 0 {
                assert!(cache.bytes() <= bytes, "{} of {bytes}", cache.bytes());
            }
        }
        // Less than a segment for each shard, and nothing.
        for few in [bytes / 1000, bytes / 200] {
            cache.resize(few);
            let _filling = misses(&cache, 1000, |i| (i, 10));
            let held = cache.bytes();
            assert!(held <= few + bytes / 256, "{held} of {few} are held");
        }
        cache.resize(0);
        // The least size of the index.
        let held = cache.bytes();
        assert!(held <= bytes / 256, "{held} bytes of 0");
    }
}

#[test]
fn what_is_held_is_within_the_limit_while_that_changes() {
    let cache = BlockCache::new(40 * MIB);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..300_u64 {
                cache.resize(if i % 2 == 0 { 20 * MIB } else { 40 * MIB });
                (0..500).for_each(|j| drop(cache.insert_value(FileId(1), i * 500 + j, &[7; 1000])));
            }
            is_done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut seed = Seed::new(1);
            while !is_done.load(Ordering::Acquire) {
                drop(cache.insert_value(FileId(2), seed.below(1 << 20), &[7; 2000]));
            }
        });
        while !is_done.load(Ordering::Acquire) {
            let (bytes, max) = cache.bytes_of_max();
            assert!(bytes <= max, "{bytes} of {max}");
        }
    });
    assert!(cache.bytes() > 15 * MIB, "it was used");
}

#[test]
fn the_limit_holds_where_some_entries_have_segments_of_their_own() {
    // Those are larger than half a segment of 64 KiB.
    for large_one_in in [2, 20] {
        let cache = BlockCache::new(16 * MIB);
        let mut seed = Seed::new(large_one_in);
        for i in 0..60_000_u64 {
            let len = match seed.one_in(large_one_in) {
                true => 33_000 + seed.below(40_000),
                false => seed.below(3000),
            };
            let _found = get(&cache, seed.below(30_000), len as usize);
            assert!(cache.bytes() <= 16 * MIB, "{} bytes at {i}", cache.bytes());
        }
        assert!(cache.bytes() > 15 * MIB, "{} bytes", cache.bytes());
    }
}

#[test]
fn a_value_larger_than_the_cache_takes_is_refused() {
    for bytes in [0, 64 << 10, 20 * MIB] {
        let cache = BlockCache::new(bytes);
        let large = vec![5; (bytes / 2 + 1) as usize];
        assert!(!cache.admits(large.len()));
        assert_eq!(cache.insert_value(FileId(1), 1, &large), large);
        assert!(!cache.has_value(FileId(1), 1));
        cache.insert_row(b"key", 1, TAG, b"small", 0);
        cache.replace_row(b"key", 1, TAG, &large, 0);
        assert!(!cache.has_row(1), "it was replaced by one that is refused");
    }
}

#[test]
fn a_million_keys_of_one_hash_are_one_row() {
    let cache = BlockCache::new(2 * MIB);
    for i in 0..1_000_000_u64 {
        cache.insert_row(&i.to_be_bytes(), 7, TAG, b"value", 0);
    }
    let row = |i: u64| cache.get_row(&i.to_be_bytes(), 7, TAG);
    assert!(row(3).is_none(), "another key has the row");
    assert_eq!(row(999_999).unwrap().1, b"value");
    assert!(cache.bytes() <= 2 * MIB);
}

#[test]
fn a_row_is_not_found_below_its_tag() {
    let cache = BlockCache::new(MIB);
    cache.insert_row(b"key", 7, Tag(10), b"value", 0);
    assert!(cache.get_row(b"key", 7, Tag(9)).is_none());
    assert_eq!(cache.get_row(b"key", 7, Tag(11)).unwrap().0, Tag(10));
    cache.replace_row(b"key", 7, Tag(12), b"longer value", 0);
    assert_eq!(
        cache.get_row(b"key", 7, Tag(12)).unwrap().1,
        b"longer value"
    );
    cache.replace_row(b"other", 8, Tag(12), b"value", 0);
    assert!(!cache.has_row(8), "there was none to replace");
}
