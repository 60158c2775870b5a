//! Measures the persistent memory that an entry of the B+ trees takes, by the arrival order and the
//! length of keys. Prints a table in Markdown, or with `--json` one object per line. Leaf slack,
//! headers and words of the directory count.
//!
//! Keys arrive in flushes of 4,000 into trees of up to 200,000 entries (fewer with long keys), in
//! leaves of 1 KiB.

use firn_base::key::Kind;
use firn_base::seed::{Seed, mix};
use firn_base::{FileId, Result, SeqNo, Tag};
use firn_pm::{PmConfig, Pool};
use firn_table::pm_btree::{Entry, TreeStore, ValueAddress, View};
use std::sync::Arc;

const LEAF_BYTES: u32 = 1024;
const FLUSH_ENTRIES: usize = 4000;
const WORD_BYTES: u64 = 8;

/// A kind of keys: its name, and a function from a number to a key.
type Shape = (&'static str, fn(u64) -> Vec<u8>);

const SHAPES: [Shape; 7] = [
    ("1 byte", |number| vec![number as u8]),
    ("8 bytes", |number| number.to_be_bytes().to_vec()),
    ("16 bytes, hashed", |number| {
        [mix(number).to_be_bytes(), number.to_be_bytes()].concat()
    }),
    ("32 bytes, digits", |number| {
        format!("user{:028}", mix(number)).into_bytes()
    }),
    ("64 bytes, 56 of them shared", |number| {
        [vec![b'p'; 56], number.to_be_bytes().to_vec()].concat()
    }),
    ("1 KiB, hashed", |number| {
        (0..128)
            .flat_map(|i| mix(number << 7 | i).to_be_bytes())
            .collect()
    }),
    ("64 KiB - 1, hashed", |number| {
        (0..8192)
            .flat_map(|i| mix(number << 13 | i).to_be_bytes())
            .skip(1)
            .collect()
    }),
];

struct Measured {
    keys: &'static str,
    key_bytes: f64,
    entries: u64,
    /// Bytes of persistent memory per entry, including its key, for keys that arrive ascending,
    /// descending and in random order.
    bytes: [f64; 3],
}

fn main() -> Result<()> {
    let as_json = std::env::args().any(|argument| argument == "--json");
    if !as_json {
        println!("| keys | entries | ascending | descending | random | random, beside the key |");
        println!("|---|---|---|---|---|---|");
    }
    for (keys, key) in SHAPES {
        let Measured {
            keys,
            key_bytes,
            entries,
            bytes: [up, down, random],
        } = measure(keys, key)?;
        if as_json {
            println!(
                "{{\"keys\":\"{keys}\",\"entries\":{entries},\"key_bytes\":{key_bytes:.1},\"ascending\":{up:.1},\
                 \"descending\":{down:.1},\"random\":{random:.1}}}"
            );
        } else {
            let beside = random - key_bytes;
            println!("| {keys} | {entries} | {up:.1} | {down:.1} | {random:.1} | {beside:.1} |");
        }
    }
    Ok(())
}

fn measure(keys: &'static str, key: fn(u64) -> Vec<u8>) -> Result<Measured> {
    let len = key(0).len();
    let count = if len == 1 {
        256
    } else {
        (200_000 / (1 + len / 64)).max(400)
    } as u64;
    let mut sorted: Vec<Vec<u8>> = (0..count).map(key).collect();
    sorted.sort();
    sorted.dedup();
    let mut shuffled = sorted.clone();
    let mut seed = Seed::new(1);
    for i in (1..shuffled.len()).rev() {
        shuffled.swap(i, seed.below(i as u64 + 1) as usize);
    }
    let key_bytes = sorted.iter().map(Vec::len).sum::<usize>() as f64 / sorted.len() as f64;
    let descending: Vec<Vec<u8>> = sorted.iter().rev().cloned().collect();
    let bytes = [fill(&sorted)?, fill(&descending)?, fill(&shuffled)?];
    Ok(Measured {
        keys,
        key_bytes,
        entries: sorted.len() as u64,
        bytes,
    })
}

/// Flushes `keys` in the given order. Returns the bytes of leaves and words per entry.
fn fill(keys: &[Vec<u8>]) -> Result<f64> {
    let raw: u64 = keys.iter().map(|key| key.len() as u64 + 64).sum();
    let region = (4 * raw).max(4 << 20);
    let pool = Arc::new(Pool::open_or_create(
        &PmConfig::volatile(region + region / 8 + (1 << 20)),
        [0; 16],
    )?);
    pool.finish_recovery()?;
    let store = TreeStore::create(pool, region, LEAF_BYTES)?;
    let (mut view, mut seqno) = (View::default(), 0);
    for flush in keys.chunks(FLUSH_ENTRIES) {
        let mut entries: Vec<Entry<'_>> = flush
            .iter()
            .map(|key| {
                seqno += 1;
                // Values of 1 KiB, logs of 64 MiB.
                let address = ValueAddress {
                    log_id: FileId(seqno >> 16),
                    offset: (seqno & 0xffff) << 10,
                    len: 1024,
                };
                Entry {
                    key,
                    tag: Tag::new(SeqNo(seqno), Kind::Pointer),
                    address: Some(address),
                }
            })
            .collect();
        entries.sort_by(|a, b| a.key.cmp(b.key));
        let inserted = store.insert(store.trees().mutable, &view, &entries, &mut |_| {})?;
        store.release(&inserted.replaced);
        view = inserted.view;
    }
    let usage = store.usage();
    Ok((usage.used_bytes + usage.used_slots * WORD_BYTES) as f64 / view.entries() as f64)
}
