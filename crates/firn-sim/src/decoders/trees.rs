//! B+ trees in a pool: recovered, read in both directions, verified, written to, and recovered
//! again.
//!
//! An input is the tree data of a pool: the root's word, the first words of the directory, the
//! region.

use super::patch::{put, put_u32};
use super::{Target, check_refusal};
use firn_base::checksum::crc32c_salted;
use firn_base::coding::{get_u32, get_u64};
use firn_base::key::Kind;
use firn_base::site::TEST;
use firn_base::{FileId, Result, SeqNo, Tag};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{GRANULE_BYTES, Owner, Pool, RootEntry};
use firn_table::pm_btree::{Entry, Recovered, Seen, TreeIter, TreeStore, ValueAddress, View};
use firndb::ErrorKind;
use std::sync::Arc;

const UUID: [u8; 16] = [11; 16];
const POOL_BYTES: u64 = 32 << 10;
const LEAF_BYTES: u32 = 128;
const REGION: usize = GRANULE_BYTES as usize;
const WORDS_AT: usize = 8;
const REGION_AT: usize = WORDS_AT + 16 * 8;
const UNIT: usize = 64;
const HEADER: usize = 40;

/// The trees of a pool.
pub(super) const TREES: Target = Target {
    name: "btree",
    bytes_max: REGION_AT + REGION,
    run,
    seeds,
    mend,
};

/// An empty pair of trees.
fn made() -> Result<(SimRegion, TreeStore, Arc<Pool>)> {
    let sim = SimRegion::new(POOL_BYTES, Mode::Adr);
    let pool = Arc::new(Pool::open_simulated(&sim, UUID)?);
    pool.finish_recovery()?;
    let store = TreeStore::create(pool.clone(), REGION as u64, LEAF_BYTES)?;
    Ok((sim, store, pool))
}

/// A pool with the trees that an input represents.
fn pool_of(bytes: &[u8]) -> Result<Arc<Pool>> {
    let (_sim, _store, pool) = made()?;
    let part = |from: usize, to: usize| bytes.get(from..to.min(bytes.len())).unwrap_or(&[]);
    for (kind, contents) in [
        (1, part(WORDS_AT, REGION_AT)),
        (0, part(REGION_AT, REGION_AT + REGION)),
    ] {
        let Some(entry) = pool.root().find(Owner::Btree, kind).copied() else {
            continue;
        };
        let Some(extent) = entry.extent else { continue };
        let fenced = pool.write_durable(&TEST, extent.offset, &[contents])?;
        let word = if kind == 0 {
            get_u64(bytes, 0).unwrap_or(1)
        } else {
            entry.word
        };
        pool.commit_with(fenced, |root| {
            root.set(RootEntry { word, ..entry });
            Ok(())
        })?;
    }
    Ok(pool)
}

fn recover(pool: &Arc<Pool>, lenient: bool) -> Result<Recovered> {
    let mut entries = 0;
    let damage = &mut |error| if lenient { Ok(()) } else { Err(error) };
    let seen = Seen {
        evicted: &|_| false,
        entry: &mut |_, _| entries += 1,
        damage,
        hold: None,
    };
    let recovered =
        TreeStore::recover(pool.clone(), LEAF_BYTES, seen)?.expect("the root names trees");
    let views = [Some(&recovered.mutable), recovered.immutable.as_ref()];
    assert_eq!(
        entries,
        views.into_iter().flatten().map(View::entries).sum::<u64>(),
        "every entry is told"
    );
    Ok(recovered)
}

fn run(bytes: &[u8]) {
    for lenient in [false, true] {
        let pool = pool_of(bytes).expect("a pool without a fault");
        match recover(&pool, lenient) {
            Err(error) => check_refusal(&error, "B+ trees"),
            Ok(recovered) => use_trees(&pool, recovered),
        }
    }
}

/// Checks that recovered trees can be used, and recovered again.
fn use_trees(pool: &Arc<Pool>, recovered: Recovered) {
    let Recovered {
        store,
        mutable,
        immutable,
        ..
    } = recovered;
    let store = Arc::new(store);
    for view in [Some(&mutable), immutable.as_ref()].into_iter().flatten() {
        store.verify(view, &mut |error| {
            panic!("recovered, and verify says {error}")
        });
        assert_eq!(walk(&store, view, false), walk(&store, view, true));
    }
    let tag = Tag::new(SeqNo::MAX, Kind::Delete);
    let entries = [b"a".as_slice(), b"k", b"zz"].map(|key| Entry {
        key,
        tag,
        address: None,
    });
    let view = match store.insert(store.trees().mutable, &mutable, &entries, &mut |_| {}) {
        Ok(inserted) => inserted.view,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::NoSpace), "{error}");
            mutable
        }
    };
    let again = recover(pool, false).expect("what was recovered recovers");
    assert_eq!(again.swept, 0, "all that was stray went the first time");
    let again_store = Arc::new(again.store);
    assert_eq!(
        walk(&again_store, &again.mutable, false),
        walk(&store, &view, false)
    );
}

/// The keys, after checking that a get finds each of them.
fn walk(store: &Arc<TreeStore>, view: &View, backward: bool) -> Vec<Vec<u8>> {
    let mut iter = TreeIter::new(store.clone(), view.clone());
    let mut keys = Vec::new();
    let begun = if backward { iter.last() } else { iter.first() };
    begun.expect("what recovery checked can be read");
    while let Some(entry) = iter.entry() {
        let found = store
            .get(view, entry.key)
            .expect("what recovery checked can be read");
        assert_eq!(found, Some((entry.tag, entry.address)));
        keys.push(entry.key.to_vec());
        let moved = if backward { iter.prev() } else { iter.next() };
        moved.expect("what recovery checked can be read");
    }
    if backward {
        keys.reverse();
    }
    keys
}

fn seeds() -> Vec<Vec<u8>> {
    [0, 3, 14]
        .into_iter()
        .flat_map(|count| [false, true].map(|both| seed(count, both).expect("a fault")))
        .collect()
}

/// Trees of `count` keys. With `both`, also an immutable one of the same size.
fn seed(count: u8, both: bool) -> Result<Vec<u8>> {
    let (sim, store, pool) = made()?;
    let insert = |tree: u32, prefix: &str| -> Result<()> {
        let keys: Vec<String> = (0..count)
            .map(|n| format!("{prefix}{:04}", u32::from(n) * 37))
            .collect();
        let entries: Vec<Entry<'_>> = keys
            .iter()
            .zip(1..)
            .map(|(key, n)| {
                let address = (n % 3 > 0).then_some(ValueAddress {
                    log_id: FileId(4 + n / 8),
                    offset: n << 10,
                    len: 100,
                });
                let kind = if address.is_some() {
                    Kind::Pointer
                } else {
                    Kind::Delete
                };
                Entry {
                    key: key.as_bytes(),
                    tag: Tag::new(SeqNo(n), kind),
                    address,
                }
            })
            .collect();
        store
            .insert(tree, &View::default(), &entries, &mut |_| {})
            .map(drop)
    };
    insert(1, "key")?;
    if both {
        store.rotate()?;
        insert(2, "other")?;
    }
    let (image, root) = (sim.durable(), pool.root());
    let entry = |kind: u16| {
        root.find(Owner::Btree, kind)
            .map(|entry| (entry.word, entry.extent))
    };
    let mut input = entry(0).map_or(0, |(word, _)| word).to_le_bytes().to_vec();
    for (kind, len) in [(1, REGION_AT - WORDS_AT), (0, REGION)] {
        let extent = entry(kind).and_then(|(_, extent)| extent);
        let at = extent.map_or(0, |extent| extent.offset.get() as usize);
        input.extend_from_slice(&image[at..at + len]);
    }
    while input.last() == Some(&0) {
        input.pop();
    }
    Ok(input)
}

/// Makes each leaf named by a word match the word's version, with the correct checksum.
fn mend(bytes: &mut Vec<u8>) {
    for slot in 0..16 {
        let Some(word) = get_u64(bytes, WORDS_AT + slot * 8).filter(|&word| word != 0) else {
            continue;
        };
        let (version, unit) = ((word >> 32) as u32, word as u32 as usize % (REGION / UNIT));
        let at = REGION_AT + unit * UNIT;
        let room = bytes.len().saturating_sub(at);
        if room <= HEADER {
            continue;
        }
        let len = (get_u32(bytes, at + 4).unwrap_or(0) as usize).clamp(HEADER + 1, room);
        put(
            bytes,
            WORDS_AT + slot * 8,
            &(u64::from(version) << 32 | unit as u64).to_le_bytes(),
        );
        put_u32(bytes, at + 4, len as u32);
        put_u32(bytes, at + 12, version);
        let crc = crc32c_salted(u64::from(version), unit as u64, &[&bytes[at + 4..at + len]]);
        put_u32(bytes, at, crc);
    }
}
