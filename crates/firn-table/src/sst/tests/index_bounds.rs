//! The index in memory gives back what was stored, in less memory.

use super::super::compress::Codec;
use super::super::index::{BlockHandle, Index, IndexBuilder};
use firn_base::seed::Seed;

const DATA_END: u64 = 1 << 47;

/// The bounds of a block and its handle.
type Stored = (Vec<u8>, Vec<u8>, BlockHandle);

fn decoded(blocks: &[Stored]) -> Index {
    let mut builder = IndexBuilder::default();
    for (smallest, largest, handle) in blocks {
        builder.add(smallest, largest, *handle);
    }
    Index::decode(&builder.finish(), DATA_END).unwrap()
}

/// Blocks with bounds from `keys` in order, two or, if both are the same, one each. Their places in
/// the file are in another order.
fn blocks_of(seed: &mut Seed, keys: &[Vec<u8>]) -> Vec<Stored> {
    let mut blocks = Vec::new();
    let mut left = keys;
    while let [smallest, rest @ ..] = left {
        let (largest, rest) = match rest {
            [largest, rest @ ..] if seed.below(3) > 0 => (largest, rest),
            _ => (smallest, rest),
        };
        let number = blocks.len() as u64;
        let codec = [Codec::None, Codec::Lz4][seed.below(2) as usize];
        let stored_len = 40 + seed.below(1000) as u32;
        let handle = BlockHandle {
            offset: (number ^ 1) * (1 << 40) + seed.below(1 << 39),
            stored_len,
            raw_len: match codec {
                Codec::None => stored_len,
                _ => 40 + seed.below(u64::from(stored_len) * 200) as u32,
            },
            crc: seed.below(u64::from(u32::MAX)) as u32,
            codec,
        };
        blocks.push((smallest.clone(), largest.clone(), handle));
        left = rest;
    }
    blocks
}

#[test]
fn gives_back_bounds_and_handles_and_compares_as_whole_keys_do() {
    let mut seed = Seed::new(31);
    for round in 0..400 {
        // Few letters, zeros among them, and lengths around a word behind a shared prefix.
        let prefix = vec![b'p'; (round % 4) * 3];
        let mut keys: Vec<Vec<u8>> = (0..round % 60)
            .map(|_| {
                let letters =
                    (0..seed.below(14)).map(|_| [0, 1, b'x', 255][seed.below(4) as usize]);
                let rest: Vec<u8> = letters.collect();
                match seed.below(20) {
                    0 => rest,
                    _ => [&prefix[..], &rest].concat(),
                }
            })
            .collect();
        keys.sort();
        let blocks = blocks_of(&mut seed, &keys);
        let index = decoded(&blocks);
        assert_eq!(index.len(), blocks.len());
        for (number, (smallest, largest, handle)) in blocks.iter().enumerate() {
            assert_eq!(index.smallest(number), *smallest);
            assert_eq!(index.largest(number), *largest);
            assert_eq!(index.handle(number), *handle);
            for key in &keys {
                assert_eq!(index.compare_smallest(number, key), smallest.cmp(key));
                assert_eq!(index.compare_largest(number, key), largest.cmp(key));
            }
        }
        for key in &keys {
            let first = blocks.partition_point(|(_, largest, _)| largest < key);
            assert_eq!(index.find(key), first, "{key:?}");
        }
    }
}

/// An open table takes its index from the memory of the cache. It was 79 bytes a block.
#[test]
fn a_block_with_keys_of_16_bytes_takes_few_bytes() {
    let key = |number: u64| format!("user{:012}", number * 4_567_891).into_bytes();
    let blocks: Vec<Stored> = (0..1000)
        .map(|number| {
            let handle = BlockHandle {
                offset: number * 4096,
                stored_len: 4096,
                raw_len: 4096,
                crc: number as u32,
                codec: Codec::None,
            };
            (key(number * 2), key(number * 2 + 1), handle)
        })
        .collect();
    let each = decoded(&blocks).memory_bytes() / blocks.len();
    assert!(each <= 46, "{each} bytes a block");
}

/// Offsets and lengths that no table has are refused, not cut.
#[test]
fn what_does_not_fit_is_refused() {
    let key = b"key".to_vec();
    let refused = |handle: BlockHandle| {
        let mut builder = IndexBuilder::default();
        builder.add(&key, &key, handle);
        Index::decode(&builder.finish(), u64::MAX).is_err()
    };
    let handle = BlockHandle {
        offset: (1 << 48) - 1,
        stored_len: 100,
        raw_len: 100,
        crc: 1,
        codec: Codec::None,
    };
    assert!(!refused(handle));
    assert!(refused(BlockHandle {
        offset: 1 << 48,
        ..handle
    }));
    assert!(refused(BlockHandle {
        raw_len: 99,
        ..handle
    }));
}
