//! Tests trees against naive lists of blocks, and gets over real tables against a sorted map:
//! searches, claims after a restart, damage, lies, space and costs.

mod damage;
mod tables;

use super::layout::{GROUP_NODES, head_of};
use super::*;
use crate::sst::{BlockHandle, BlockSummary, Codec, block_filter, hash, may_contain};
use firn_base::seed::Seed;
use firn_base::{ErrorKind, FileId};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Extent, GRANULE_BYTES, Owner, Pool};
use std::collections::BTreeSet;
use std::sync::Arc;

const UUID: [u8; 16] = [3; 16];
const BITS: u32 = 14;

struct World {
    sim: SimRegion,
    pool: Arc<Pool>,
}

impl World {
    fn new(bytes: u64) -> World {
        let sim = SimRegion::new(bytes, Mode::Adr);
        let pool = Arc::new(Pool::open_simulated(&sim, UUID).unwrap());
        pool.finish_recovery().unwrap();
        World { sim, pool }
    }

    fn write(&self, id: u64, stack: &Stack) -> IfTree {
        let space = written(&self.pool, id, stack).unwrap();
        IfTree::open(Arc::new(space)).unwrap()
    }
}

/// A pool with these bytes.
fn pool_of(image: Vec<u8>) -> Arc<Pool> {
    let sim = SimRegion::from_image(image, Mode::Adr);
    Arc::new(Pool::open_simulated(&sim, UUID).unwrap())
}

fn options(id: u64) -> IfTreeOptions {
    IfTreeOptions {
        id: FileId(id),
        totals: IfTreeTotals {
            entries: 7,
            superseded: 3,
        },
    }
}

/// A block: its keys in order, once for each version.
#[derive(Debug, Clone)]
struct Block {
    keys: Vec<Vec<u8>>,
    handle: BlockHandle,
    filter: Vec<u8>,
}

impl Block {
    fn summary(&self) -> BlockSummary<'_> {
        BlockSummary {
            smallest: self.keys[0].clone(),
            largest: self.keys[self.keys.len() - 1].clone(),
            handle: self.handle,
            filter: &self.filter,
        }
    }
}

/// Tables in the order of a tree's files.
#[derive(Debug, Clone, Default)]
struct Stack(Vec<(IfTreeFile, Vec<Block>)>);

impl Stack {
    /// Adds a run of files, each of blocks of keys. Its rank is `run`.
    fn add_run(&mut self, seed: &mut Seed, run: u32, files: Vec<Vec<Vec<Vec<u8>>>>) {
        for blocks in files {
            let mut at = 64;
            let block = |keys: Vec<Vec<u8>>| {
                let stored_len = 100 + seed.below(4_000) as u32;
                let handle = BlockHandle {
                    offset: at,
                    stored_len,
                    raw_len: stored_len + seed.below(2) as u32 * 1_000,
                    crc: seed.next_u64() as u32,
                    codec: Codec::Lz4,
                };
                at += u64::from(stored_len);
                let hashes: BTreeSet<u64> = keys.iter().map(|key| hash(key)).collect();
                let hashes: Vec<u64> = hashes.into_iter().collect();
                Block {
                    filter: block_filter(&hashes, BITS),
                    keys,
                    handle,
                }
            };
            let blocks: Vec<Block> = blocks.into_iter().map(block).collect();
            let file = IfTreeFile {
                id: FileId(100 + self.0.len() as u64),
                valid_len: at,
                run,
            };
            self.0.push((file, blocks));
        }
    }

    fn blocks(&self) -> usize {
        self.0.iter().map(|(_, blocks)| blocks.len()).sum()
    }

    fn tables(&self) -> impl Iterator<Item = (IfTreeFile, impl Iterator<Item = BlockSummary<'_>>)> {
        let files = self.0.iter();
        files.map(|(file, blocks)| (*file, blocks.iter().map(Block::summary)))
    }
}

fn written(pool: &Arc<Pool>, id: u64, stack: &Stack) -> firn_base::Result<IfTreeSpace> {
    let mut writer = IfTreeWriter::new(pool.clone(), options(id), None);
    for (file, blocks) in stack.tables() {
        writer.add_file(file, blocks)?;
    }
    assert_eq!(writer.blocks(), stack.blocks());
    writer.finish()
}

/// Ways to make keys.
const STYLES: u64 = 6;

/// Some different keys, in order.
fn keys(seed: &mut Seed, style: u64, count: u64) -> Vec<Vec<u8>> {
    let mut keys = BTreeSet::new();
    let shared = vec![b'p'; seed.below(40) as usize];
    for number in 0..count {
        let mut key = shared.clone();
        match style {
            // Few letters, zeros among them, so that padded heads tie.
            0 => (0..seed.below(12))
                .for_each(|_| key.push([0, 1, b'x', 255][seed.below(4) as usize])),
            1 => {
                let mut rest = vec![0; 1 + seed.below(200) as usize];
                seed.fill(&mut rest);
                key.extend_from_slice(&rest);
            }
            2 => key = seed.next_u64().to_be_bytes().to_vec(),
            // Each a prefix of the next ones.
            3 => key.extend(std::iter::repeat_n(seed.below(2) as u8, number as usize)),
            // Ties in heads of 8 bytes, of 16, and in all heads.
            4 => key.extend(format!("table/{:02}/column/{number:06}", number % 3).bytes()),
            _ => key.extend(format!("{:030}{:02}", number / 40, number % 40).bytes()),
        }
        keys.insert(key);
    }
    keys.into_iter().collect()
}

/// A stack of up to 12 runs over some of the keys. Versions of some keys span several blocks.
fn stack(seed: &mut Seed, keys: &[Vec<u8>]) -> Stack {
    let mut stack = Stack::default();
    for run in 0..1 + seed.below(12) as u32 {
        let (share, most) = (1 + seed.below(4), 1 + seed.below(8) as usize);
        let (mut files, mut blocks, mut block) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            if !seed.one_in(share) {
                continue;
            }
            let versions = match seed.one_in(12) {
                true => 1 + seed.below(20),
                false => 1,
            };
            for _ in 0..versions {
                block.push(key.clone());
                if block.len() >= most {
                    blocks.push(std::mem::take(&mut block));
                }
            }
            if seed.one_in(30) && !blocks.is_empty() && block.is_empty() {
                files.push(std::mem::take(&mut blocks));
            }
        }
        blocks.extend(Some(block).filter(|block| !block.is_empty()));
        files.extend(Some(blocks).filter(|blocks| !blocks.is_empty()));
        stack.add_run(seed, run, files);
    }
    stack
}

/// The (file, offset) of each candidate, as a tree answers.
fn found(tree: &IfTree, key: &[u8]) -> firn_base::Result<Vec<(usize, u64)>> {
    let mut found = Vec::new();
    tree.candidates(key, hash(key), |candidate| {
        let file = tree.files()[candidate.file];
        assert_eq!((candidate.id, candidate.run), (file.id, file.run));
        found.push((candidate.file, candidate.handle.offset));
        Ok(Visit::Next)
    })?;
    Ok(found)
}

/// The (file, offset) of each candidate, as a list of blocks answers: by the bounds' heads if
/// `heads`, else by whole keys.
fn expected(tree: &IfTree, stack: &Stack, key: &[u8], heads: bool) -> Vec<(usize, u64)> {
    let (prefix, size) = (tree.prefix(), tree.head_bytes());
    let head = |key: &[u8]| head_of(key, prefix.len())[..size].to_vec();
    let within = |block: &Block| {
        let (first, last) = (&block.keys[0], &block.keys[block.keys.len() - 1]);
        match heads {
            true => key.starts_with(prefix) && head(first) <= head(key) && head(key) <= head(last),
            false => block.keys.iter().any(|of| of == key),
        }
    };
    let files = stack.0.iter().enumerate();
    let blocks =
        files.flat_map(|(file, (_, blocks))| blocks.iter().map(move |block| (file, block)));
    blocks
        .filter(|(_, block)| within(block) && may_contain(&block.filter, hash(key)))
        .map(|(file, block)| (file, block.handle.offset))
        .collect()
}

fn check(tree: &IfTree, stack: &Stack, key: &[u8]) {
    let found = found(tree, key).unwrap();
    assert_eq!(found, expected(tree, stack, key, true), "{key:?}");
    let has = |block: &(usize, u64)| found.contains(block);
    assert!(expected(tree, stack, key, false).iter().all(has), "{key:?}");
}

/// A key near the given ones.
fn some_key(seed: &mut Seed, keys: &[Vec<u8>]) -> Vec<u8> {
    let mut key = keys[seed.below(keys.len() as u64) as usize].clone();
    match seed.below(6) {
        0 => key.push(seed.below(3) as u8),
        1 => drop(key.pop()),
        2 => key.truncate(seed.below(key.len() as u64 + 1) as usize),
        3 if !key.is_empty() => {
            let at = seed.below(key.len() as u64) as usize;
            key[at] = key[at].wrapping_add(1);
        }
        4 => key.extend_from_slice(&seed.next_u64().to_be_bytes()),
        _ => {}
    }
    key
}

#[test]
fn a_tree_finds_what_a_list_of_blocks_does() {
    let mut seed = Seed::new(1);
    for round in 0..60 {
        let keys = keys(&mut seed, round % STYLES, 1 + (round * 17) % 400);
        let stack = stack(&mut seed, &keys);
        if stack.0.is_empty() {
            continue;
        }
        let world = World::new(2 << 20);
        let tree = world.write(5, &stack);
        assert_eq!(tree.blocks(), stack.blocks());
        assert_eq!(*tree.totals(), options(5).totals);
        for key in &keys {
            check(&tree, &stack, key);
        }
        for _ in 0..300 {
            check(&tree, &stack, &some_key(&mut seed, &keys));
        }
        check(&tree, &stack, b"");
        check(&tree, &stack, &[255; 300]);
        let report = verify(&tree, stack.tables()).unwrap();
        assert_eq!(report.blocks, stack.blocks() as u64);
        assert_eq!(report.files, stack.0.len() as u64);
    }
}

#[test]
fn a_tree_is_made_of_another_one_and_new_tables() {
    let mut seed = Seed::new(31);
    for round in 0..40 {
        let keys = keys(&mut seed, round % STYLES, 40 + (round * 17) % 300);
        let world = World::new(2 << 20);
        let mut stack = stack(&mut seed, &keys);
        if stack.0.is_empty() {
            continue;
        }
        let mut tree = world.write(1, &stack);
        for id in 2..5 {
            // Some runs stay, one step older; a new one may have keys of another kind.
            let dropped = seed.below(4) as u32;
            let of = |run: u32| (run != dropped).then_some(run + 1);
            let wider = seed
                .one_in(2)
                .then(|| vec![some_key(&mut seed, &keys), vec![b'm']]);
            let mut fresh = [keys.clone(), wider.unwrap_or_default()].concat();
            fresh.retain(|_| seed.one_in(2));
            fresh.sort();
            fresh.dedup();
            let mut next = Stack::default();
            let blocks: Vec<Vec<Vec<u8>>> = fresh.chunks(3).map(<[Vec<u8>]>::to_vec).collect();
            next.add_run(&mut seed, 0, Some(blocks).into_iter().collect());
            next.0[0].0.id = FileId(1_000 + id);
            let mut writer = IfTreeWriter::new(world.pool.clone(), options(id), None);
            for (file, blocks) in next.tables() {
                writer.add_file(file, blocks).unwrap();
            }
            writer.add_tree(&tree, |file| of(file.run)).unwrap();
            for (mut file, blocks) in std::mem::take(&mut stack.0) {
                if let Some(run) = of(file.run) {
                    file.run = run;
                    next.0.push((file, blocks));
                }
            }
            stack = next;
            if stack.blocks() == 0 {
                assert_eq!(writer.finish().err().unwrap().kind(), ErrorKind::Invalid);
                break;
            }
            tree = IfTree::open(Arc::new(writer.finish().unwrap())).unwrap();
            verify(&tree, stack.tables()).unwrap();
            for key in keys.iter().chain(&fresh) {
                check(&tree, &stack, key);
            }
            for _ in 0..100 {
                check(&tree, &stack, &some_key(&mut seed, &keys));
            }
        }
    }
}

#[test]
fn heads_grow_where_neighbours_tie() {
    // Keys that begin with the same bytes after the first, which differs between halves.
    for (shared, size) in [(0, 8), (3, 8), (8, 16), (12, 24), (40, 24)] {
        let keys = (0..400u32).map(|number| {
            let half = [b"a", b"b"][number as usize / 200];
            let digits = format!("{:04}", number % 200);
            [half, &vec![b'y'; shared][..], digits.as_bytes()].concat()
        });
        let keys: Vec<Vec<u8>> = keys.collect();
        let blocks = keys.chunks(4).map(<[Vec<u8>]>::to_vec).collect();
        let mut stack = Stack::default();
        stack.add_run(&mut Seed::new(3), 0, vec![blocks]);
        let tree = World::new(1 << 20).write(1, &stack);
        assert_eq!(tree.head_bytes(), size, "{shared} shared bytes");
        keys.iter().for_each(|key| check(&tree, &stack, key));
    }
}

#[test]
fn a_visitor_passes_over_runs_and_stops() {
    let mut seed = Seed::new(2);
    let keys = keys(&mut seed, 4, 60);
    let mut stack = Stack::default();
    for run in 0..5 {
        // All versions of one key, in three blocks, among others.
        let key = vec![keys[30].clone(); 4];
        let blocks = [&keys[..20], &key, &key, &key, &keys[40..]];
        let blocks = blocks.iter().map(|block| block.to_vec()).collect();
        stack.add_run(&mut seed, run, vec![blocks]);
    }
    let tree = World::new(1 << 20).write(1, &stack);
    let visits = |after: usize, then: Visit| {
        let mut runs = Vec::new();
        let (key, mut left) = (&keys[30], after);
        let visit = |candidate: &Candidate| {
            runs.push(candidate.run);
            left -= 1;
            Ok(match left {
                0 => {
                    left = after;
                    then
                }
                _ => Visit::Next,
            })
        };
        tree.candidates(key, hash(key), visit).unwrap();
        runs
    };
    let all: Vec<u32> = (0..5).flat_map(|run| [run; 3]).collect();
    assert_eq!(visits(100, Visit::Next), all);
    assert_eq!(visits(1, Visit::NextRun), [0, 1, 2, 3, 4]);
    assert_eq!(visits(2, Visit::NextRun), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    assert_eq!(visits(4, Visit::Stop), [0, 0, 0, 1]);
}

#[test]
fn trees_are_claimed_after_a_restart() {
    let mut seed = Seed::new(7);
    let world = World::new(8 << 20);
    let stacks = [1, 2].map(|_| {
        let keys = keys(&mut seed, 2, 300);
        stack(&mut seed, &keys)
    });
    let trees = [world.write(1, &stacks[0]), world.write(2, &stacks[1])];
    let extents = trees.map(|tree| tree.space().extent());
    let pool = Arc::new(Pool::open_simulated(&world.sim.cut().power_cut(8), UUID).unwrap());
    let both = [(FileId(2), extents[1]), (FileId(1), extents[0])];
    assert_eq!(find_trees(&pool).unwrap(), both, "the newest first");
    let wrong = claim(&pool, FileId(9), extents[0]).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Corruption, "{wrong}");
    let short = Extent::new(extents[1].offset.get(), extents[1].len - GRANULE_BYTES);
    assert_eq!(
        claim(&pool, FileId(2), short).unwrap_err().kind(),
        ErrorKind::Corruption
    );
    // A refused claim takes nothing.
    let space = claim(&pool, FileId(2), extents[1]).unwrap();
    pool.finish_recovery().unwrap();
    let tree = IfTree::open(Arc::new(space)).unwrap();
    verify(&tree, stacks[1].tables()).unwrap();
    Arc::into_inner(tree.into_space())
        .unwrap()
        .release()
        .unwrap();
    assert_eq!(pool.usage().live_total(), 0, "what nothing named was free");
    pool.check().unwrap();
}

#[test]
fn a_write_that_is_cut_short_is_not_claimed() {
    let mut seed = Seed::new(8);
    let keys = keys(&mut seed, 2, 200);
    let stack = stack(&mut seed, &keys);
    let whole = World::new(1 << 20);
    let extent = whole.write(1, &stack).space().extent();
    let mut claimed = 0;
    for count in 1..200 {
        let world = World::new(1 << 20);
        let (send, cuts) = std::sync::mpsc::channel();
        world.sim.cut_after(count, move |cut| {
            for seed in 0..4 {
                let _received = send.send(cut.power_cut(seed));
            }
        });
        world.write(1, &stack);
        let mut is_over = true;
        for sim in cuts.try_iter() {
            is_over = false;
            let pool = Arc::new(Pool::open_simulated(&sim, UUID).unwrap());
            match claim(&pool, FileId(1), extent) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption),
                Ok(space) => {
                    let tree = IfTree::open(Arc::new(space)).unwrap();
                    verify(&tree, stack.tables()).unwrap();
                    claimed += 1;
                }
            }
        }
        if is_over {
            assert!(
                count > 1 && claimed > 0,
                "{count} cuts, {claimed} whole trees"
            );
            return;
        }
    }
    panic!("the write takes less steps");
}

#[test]
fn a_full_pool_is_as_it_was() {
    let mut seed = Seed::new(4);
    let keys = keys(&mut seed, 1, 400);
    let stack = stack(&mut seed, &keys);
    let world = World::new(1 << 20);
    let len = world.write(1, &stack).space().extent().len;
    assert!(len > 3 * GRANULE_BYTES);
    for free in 0..=len / GRANULE_BYTES {
        let world = World::new(1 << 20);
        let (pool, free) = (&world.pool, free * GRANULE_BYTES);
        let all = pool
            .alloc_up_to(GRANULE_BYTES, 1 << 20, Owner::Test)
            .unwrap();
        match all.len.checked_sub(free).filter(|rest| *rest > 0) {
            Some(rest) => drop(pool.trim(all, rest).unwrap()),
            None => pool.free(all).unwrap(),
        }
        let before = pool.usage();
        match written(pool, 1, &stack) {
            Ok(space) => {
                assert_eq!(free, len);
                assert_eq!(pool.usage().live(Owner::IfTree), len);
                space.release().unwrap();
            }
            Err(error) => {
                assert!(free < len);
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            }
        }
        assert_eq!(pool.usage(), before);
        pool.check().unwrap();
    }
}

#[test]
fn files_and_blocks_out_of_order_are_refused() {
    let mut seed = Seed::new(5);
    let world = World::new(1 << 20);
    let mut stack = Stack::default();
    let block = |key: u8| vec![vec![key], vec![key + 1]];
    stack.add_run(
        &mut seed,
        1,
        vec![vec![block(b'a'), block(b'c')], vec![block(b'k')]],
    );
    written(&world.pool, 1, &stack).unwrap();
    let refused = |change: fn(&mut Stack)| {
        let mut stack = stack.clone();
        change(&mut stack);
        let error = written(&world.pool, 1, &stack).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    };
    refused(|stack| stack.0.clear());
    refused(|stack| stack.0[1].0.run = 0);
    refused(|stack| stack.0.swap(0, 1));
    refused(|stack| stack.0[0].1.swap(0, 1));
    refused(|stack| stack.0[0].1[0].keys.reverse());
    refused(|stack| stack.0[0].0.valid_len = 100);
    refused(|stack| stack.0[0].1[1].handle.raw_len = u32::MAX);
    refused(|stack| stack.0[0].1[1].handle.offset = u64::MAX);
    // In runs of their own they may overlap.
    let mut apart = stack.clone();
    apart.0.swap(0, 1);
    apart.0[1].0.run = 2;
    written(&world.pool, 1, &apart).unwrap();
}

#[test]
fn verify_names_each_difference() {
    let mut seed = Seed::new(6);
    let keys = keys(&mut seed, 2, 300);
    let mut stack = Stack::default();
    for run in 0..3 {
        let blocks = keys
            .chunks(3 + run as usize)
            .map(<[Vec<u8>]>::to_vec)
            .collect();
        stack.add_run(&mut seed, run, vec![blocks]);
    }
    let tree = World::new(1 << 20).write(1, &stack);
    let told = |change: fn(&mut Stack)| {
        let mut stack = stack.clone();
        change(&mut stack);
        let error = verify(&tree, stack.tables()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        error.to_string()
    };
    let expect = |change: fn(&mut Stack), words: &str| {
        let error = told(change);
        assert!(error.contains(words), "{error} has no \"{words}\"");
    };
    expect(
        |stack| drop(stack.0[1].1.remove(4)),
        "no node without a block",
    );
    expect(
        |stack| {
            let mut other = stack.0[1].1[4].clone();
            other.handle.offset += 1;
            stack.0[1].1.insert(5, other);
        },
        "a node for the block",
    );
    expect(
        |stack| stack.0[2].1[3].keys[0][3] ^= 1,
        "head of the smallest key",
    );
    expect(
        |stack| stack.0[2].1[3].keys.push(vec![255; 9]),
        "head of the largest key",
    );
    expect(
        |stack| stack.0[0].1[9].handle.crc ^= 1,
        "location and checksum",
    );
    expect(
        |stack| stack.0[0].1[9].filter[2] ^= 4,
        "filter of the block",
    );
    expect(|stack| drop(stack.0.pop()), "no node without a block");
    expect(|stack| stack.0[1].0.valid_len += 1, "as number 1");
    expect(|stack| stack.0[1].0.id = FileId(9), "file 9 as number 1");
    expect(|stack| stack.0.push(stack.0[0].clone()), "as number 3");
    expect(
        |stack| stack.0[1].1.swap(3, 4),
        "a run's nodes in block order",
    );
}

#[test]
fn a_node_is_small_and_a_search_reads_few_lines() {
    // Ten runs of 400 blocks of four keys each, as tables of 1 KiB values have.
    let mut seed = Seed::new(1);
    let mut stack = Stack::default();
    for run in 0..10 {
        let keys: BTreeSet<Vec<u8>> = (0..1_600)
            .map(|_| [seed.next_u64().to_be_bytes(), [0; 8]].concat())
            .collect();
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        let blocks = keys.chunks(4).map(<[Vec<u8>]>::to_vec).collect();
        stack.add_run(&mut seed, run, vec![blocks]);
    }
    let world = World::new(2 << 20);
    let tree = world.write(1, &stack);
    let bytes = tree.space().extent().len as f64 / stack.blocks() as f64;
    assert!(bytes < 56.0, "{bytes} bytes a block");
    assert_eq!(
        tree.filter_bytes(),
        0,
        "the filter of four keys is in the node"
    );
    assert!(tree.memory_bytes() < 1_000);
    let (mut gets, mut sum) = (0, SearchCounts::default());
    for (_, blocks) in &stack.0 {
        for block in blocks.iter().step_by(7) {
            let key = &block.keys[1];
            let counts = tree
                .candidates(key, hash(key), |_| Ok(Visit::Next))
                .unwrap();
            gets += 1;
            sum.lines += counts.lines;
            sum.nodes += counts.nodes;
            sum.tests += counts.tests;
            sum.rejected += counts.rejected;
        }
    }
    let (lines, nodes) = (sum.lines / gets, sum.nodes / gets);
    let passed = (sum.tests - sum.rejected) as f64 / gets as f64;
    assert!(
        lines <= 24 && nodes <= 40,
        "{lines} lines, {nodes} nodes a get"
    );
    assert!(
        (7..=8).contains(&(sum.tests / gets)),
        "{} tests",
        sum.tests / gets
    );
    assert!((1.0..1.05).contains(&passed), "{passed} blocks a get");
}

#[test]
fn absent_keys_pass_few_filters() {
    let mut seed = Seed::new(21);
    for keys_a_block in [4, 28] {
        let mut stack = Stack::default();
        for run in 0..10 {
            let keys: BTreeSet<Vec<u8>> = (0..keys_a_block * 100)
                .map(|_| seed.next_u64().to_be_bytes().to_vec())
                .collect();
            let keys: Vec<Vec<u8>> = keys.into_iter().collect();
            let blocks = keys.chunks(keys_a_block).map(<[Vec<u8>]>::to_vec).collect();
            stack.add_run(&mut seed, run, vec![blocks]);
        }
        let tree = World::new(2 << 20).write(1, &stack);
        assert_eq!(tree.filter_bytes() > 0, keys_a_block > 5);
        let (mut passed, mut tests) = (0, 0);
        for _ in 0..10_000 {
            let key = seed.next_u64().to_be_bytes();
            let counts = tree.candidates(&key, hash(&key), |_| {
                passed += 1;
                Ok(Visit::Next)
            });
            let counts = counts.unwrap();
            tests += counts.tests;
            assert!(counts.rejected <= counts.tests);
        }
        let share = f64::from(passed) / tests as f64;
        assert!(
            tests > 70_000 && share < 0.005,
            "{share} of {tests} with {keys_a_block} keys"
        );
    }
}

#[test]
fn a_tree_of_one_block_is_one_group() {
    let mut stack = Stack::default();
    let one = |key: &[u8]| vec![vec![vec![key.to_vec()]]];
    stack.add_run(&mut Seed::new(1), 0, one(b"only"));
    let tree = World::new(1 << 20).write(1, &stack);
    assert_eq!((tree.levels().len(), tree.levels()[0].groups), (1, 1));
    assert_eq!(tree.prefix(), b"only");
    for key in [&b""[..], b"onl", b"only", b"only!", b"p"] {
        check(&tree, &stack, key);
    }
    // One more than a group has.
    let mut stack = Stack::default();
    for run in 0..=GROUP_NODES as u32 {
        stack.add_run(&mut Seed::new(1), run, one(b"only"));
    }
    let tree = World::new(1 << 20).write(1, &stack);
    assert_eq!(tree.levels().len(), 2);
    assert_eq!(found(&tree, b"only").unwrap().len(), GROUP_NODES + 1);
}

#[test]
fn more_candidates_than_fit_inline_stay_in_order() {
    let mut stack = Stack::default();
    let mut seed = Seed::new(1);
    for run in 0..3 {
        let blocks = vec![vec![b"k".to_vec(); 2]; 40];
        stack.add_run(&mut seed, run, vec![blocks]);
    }
    let tree = World::new(1 << 20).write(1, &stack);
    check(&tree, &stack, b"k");
    assert_eq!(found(&tree, b"k").unwrap().len(), 120);
}
