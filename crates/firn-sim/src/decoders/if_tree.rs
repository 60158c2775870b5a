//! Trees over blocks in a pool: looked for, claimed and searched.
//!
//! An input is the first data of a pool: a tree in as few granules as it takes.

use super::in_pool;
use super::patch::put_u32;
use super::{Target, check_refusal};
use firn_base::checksum::crc32c_salted;
use firn_base::coding::{get_u32, get_u64};
use firn_base::{FileId, Result};
use firn_pm::{DATA_START, GRANULE_BYTES};
use firn_table::if_tree::{
    Candidate, IfTree, IfTreeFile, IfTreeOptions, IfTreeTotals, IfTreeWriter, Visit, claim,
    find_trees, verify,
};
use firn_table::sst::{BlockHandle, BlockSummary, Codec, block_filter, hash};
use std::sync::Arc;

const POOL_BYTES: u64 = 64 << 10;
const BYTES_MAX: usize = 4 * GRANULE_BYTES as usize;
const HEADER: usize = 128;
const MAGIC: &[u8] = b"firniftr";
/// The numbers of the keys that seeds have.
const KEYS: u64 = 400;

/// The trees over blocks of a pool.
pub(super) const IF_TREE: Target = Target {
    name: "if_tree",
    bytes_max: BYTES_MAX,
    run,
    seeds,
    mend,
};

fn run(bytes: &[u8]) {
    let pool = in_pool::pool_of(bytes, POOL_BYTES, BYTES_MAX).expect("a pool without a fault");
    for (id, extent) in find_trees(&pool).expect("the pool can be read") {
        match claim(&pool, id, extent).and_then(|space| IfTree::open(Arc::new(space))) {
            Err(error) => check_refusal(&error, "a tree"),
            Ok(tree) => search(&tree),
        }
    }
}

/// Checks that whatever a search finds is in one of the files, in the order of runs.
fn search(tree: &IfTree) {
    let keys = (0..KEYS).step_by(3).map(key);
    for key in keys.chain([Vec::new(), vec![0; 40], vec![255; 40]]) {
        let mut run = 0;
        let visit = |found: &Candidate| {
            let file = tree.files()[found.file];
            let end = found.handle.offset + u64::from(found.handle.stored_len);
            assert_eq!((found.id, found.run), (file.id, file.run));
            assert!(end <= file.valid_len && run <= found.run);
            run = found.run;
            Ok(Visit::Next)
        };
        match tree.candidates(&key, hash(&key), visit) {
            Err(error) => check_refusal(&error, "a search"),
            Ok(counts) => assert!(counts.rejected <= counts.tests),
        }
    }
    let files = tree.files().iter();
    let none = files.map(|file| (*file, std::iter::empty::<BlockSummary<'_>>()));
    let error = verify(tree, none).expect_err("nodes without blocks");
    check_refusal(&error, "a tree that is verified");
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn seeds() -> Vec<Vec<u8>> {
    [(1, 1, 4), (1, 30, 4), (3, 12, 3), (5, 20, 12), (2, 90, 1)]
        .map(|(runs, blocks, keys)| seed(runs, blocks, keys).expect("no fault"))
        .into()
}

/// A tree over `runs` runs of one file each, of blocks of `keys` keys.
fn seed(runs: u32, blocks: u64, keys: u64) -> Result<Vec<u8>> {
    let (sim, pool) = in_pool::empty(POOL_BYTES)?;
    let options = IfTreeOptions {
        id: FileId(3),
        totals: IfTreeTotals {
            entries: u64::from(runs) * blocks * keys,
            superseded: 5,
        },
    };
    let mut writer = IfTreeWriter::new(pool, options, None);
    for run in 0..runs {
        let of = |block: u64| (0..keys).map(move |at| key(block * keys + at + u64::from(run)));
        let last = |block| key((block + 1) * keys - 1 + u64::from(run));
        let hashes = |block| of(block).map(|key| hash(&key)).collect::<Vec<u64>>();
        let filters: Vec<Vec<u8>> = (0..blocks)
            .map(|at| block_filter(&hashes(at), 14))
            .collect();
        let summaries = (0..blocks).map(|block| BlockSummary {
            smallest: key(block * keys + u64::from(run)),
            largest: last(block),
            handle: BlockHandle {
                offset: 64 + block * 500,
                stored_len: 500,
                raw_len: 900,
                crc: block as u32,
                codec: Codec::Lz4,
            },
            filter: &filters[block as usize],
        });
        let file = IfTreeFile {
            id: FileId(u64::from(10 + run)),
            valid_len: 64 + blocks * 500,
            run,
        };
        writer.add_file(file, summaries)?;
    }
    let space = writer.finish()?;
    let len = space.extent().len as usize;
    let image = sim.durable();
    let mut input = image[DATA_START as usize..DATA_START as usize + len].to_vec();
    while input.last() == Some(&0) {
        input.pop();
    }
    Ok(input)
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    get_u32(bytes, at).unwrap_or(0) as usize
}

/// Corrects the checksums of files and prefix, of the groups of every level, of the filters beside
/// the nodes, and of the header.
fn mend(bytes: &mut Vec<u8>) {
    if bytes.len() < HEADER || bytes.get(..MAGIC.len()) != Some(MAGIC) {
        return;
    }
    let len = bytes.len();
    // Zeros at the end are left out of an input.
    bytes.resize(BYTES_MAX, 0);
    let (id, head) = (get_u64(bytes, 16).unwrap_or(0), usize::from(bytes[13]));
    let [nodes, files, prefix] = [56, 60, 64].map(|at| u32_at(bytes, at));
    let files_end = HEADER
        .saturating_add(files.saturating_mul(24))
        .saturating_add(prefix);
    if files_end <= BYTES_MAX {
        let crc = crc32c_salted(id, HEADER as u64, &[&bytes[HEADER..files_end]]);
        put_u32(bytes, 72, crc);
        let (mut at, mut groups) = (files_end.next_multiple_of(64), nodes.div_ceil(4));
        let (mut size, nodes_at) = (8 * head + 128, files_end.next_multiple_of(64));
        while groups > 0 && at.saturating_add(groups.saturating_mul(size)) <= BYTES_MAX {
            for group in 0..groups {
                mend_one(bytes, id, at + group * size, size);
            }
            at += groups * size;
            if groups == 1 {
                mend_filters(bytes, id, head, nodes_at, nodes, at);
                break;
            }
            (groups, size) = (groups.div_ceil(7), 16 * head);
        }
    }
    let crc = crc32c_salted(id, DATA_START, &[&bytes[..8], &bytes[12..HEADER]]);
    put_u32(bytes, 8, crc);
    bytes.truncate(len);
}

/// Corrects the checksum at `at` of the `size` bytes from there on.
fn mend_one(bytes: &mut [u8], id: u64, at: usize, size: usize) {
    if let Some(rest) = bytes.get(at + 4..at + size) {
        let crc = crc32c_salted(id, at as u64, &[rest]);
        put_u32(bytes, at, crc);
    }
}

/// Corrects the checksums of the filters, from `filters_at` on, that nodes lead to.
fn mend_filters(
    bytes: &mut [u8],
    id: u64,
    head: usize,
    nodes_at: usize,
    nodes: usize,
    filters_at: usize,
) {
    for node in 0..nodes {
        let group = nodes_at + node / 4 * (8 * head + 128);
        let kind = group + 4 + node % 4 * (2 * head + 31) + 2 * head + 21;
        if bytes.get(kind) == Some(&255) {
            let (place, len) = (u32_at(bytes, kind + 1), u32_at(bytes, kind + 5));
            if place.saturating_add(len) < BYTES_MAX {
                mend_one(bytes, id, filters_at + place, 4 + len);
            }
        }
    }
}
