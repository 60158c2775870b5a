//! A tree over blocks: each new run makes another tree, over all runs, which takes the place of the
//! one before.
//!
//! The root stands for the manifest: one entry, whose word is the tree's extent. One commit
//! replaces a tree by the next one. Runs are made up: the id and the length of a file say what its
//! blocks are.

use super::structure::{Structure, live};
use crate::tally::Tally;
use firn_base::ErrorKind::{Corruption, Incompatible};
use firn_base::{Error, FileId, Result};
use firn_pm::sim::{Mode, SimRegion};
use firn_pm::{Extent, Fenced, GRANULE_BYTES, Owner, Pool, RootEntry};
use firn_table::if_tree::{
    IfTree, IfTreeFile, IfTreeOptions, IfTreeSpace, IfTreeTotals, IfTreeWriter, Visit, claim,
    verify,
};
use firn_table::sst::{BlockHandle, BlockSummary, Codec, block_filter, hash};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

const UUID: [u8; 16] = [11; 16];
/// The kinds of the root entries whose words are the next tree's id, and the tree.
const NEXT: u16 = 0;
const TREE: u16 = 1;
/// Bytes of a block.
const BLOCK: u32 = 100;
/// Runs with this many blocks have so many keys in a block that filters are beside the nodes.
const WIDE: u64 = 9;

/// One operation.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Adds a run of so many blocks. At most four are kept.
    Add(u64),
    /// Makes one run of all.
    Compact,
    /// Drops the tree.
    Drop,
}

/// The runs, newest first: their numbers and their blocks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    /// The number of trees that were begun.
    made: u64,
    runs: Vec<(u64, u64)>,
}

impl State {
    /// Applies an operation. False if there is nothing to do.
    fn apply(&mut self, op: &Op) -> bool {
        match op {
            Op::Add(blocks) => {
                self.made += 1;
                self.runs.insert(0, (self.made, *blocks));
                self.runs.truncate(4);
            }
            Op::Compact if self.runs.len() > 1 => {
                self.made += 1;
                let most = self.runs.iter().map(|(_, blocks)| *blocks).max();
                self.runs = vec![(self.made, most.unwrap_or(1))];
            }
            Op::Drop if !self.runs.is_empty() => self.runs.clear(),
            Op::Compact | Op::Drop => return false,
        }
        true
    }
}

/// The tree in a pool.
pub(crate) struct IfTrees {
    pool: Arc<Pool>,
    tree: Option<IfTree>,
    next: u64,
}

/// A made-up run of blocks.
struct Run {
    file: IfTreeFile,
    bounds: Vec<(Vec<u8>, Vec<u8>)>,
    filters: Vec<Vec<u8>>,
}

impl Run {
    fn new(rank: usize, number: u64, blocks: u64) -> Run {
        let keys = if blocks == WIDE { 20 } else { 3 };
        let of = |block: u64| (0..keys).map(move |at| key(number, block * keys + at));
        let hashes = |block| of(block).map(|key| hash(&key)).collect::<Vec<u64>>();
        Run {
            file: IfTreeFile {
                id: FileId(number),
                valid_len: blocks * u64::from(BLOCK),
                run: rank as u32,
            },
            bounds: (0..blocks)
                .map(|block| {
                    let first = block * keys;
                    (key(number, first), key(number, first + keys - 1))
                })
                .collect(),
            filters: (0..blocks)
                .map(|block| block_filter(&hashes(block), 14))
                .collect(),
        }
    }

    fn blocks(&self) -> impl Iterator<Item = BlockSummary<'_>> {
        let blocks = (0..).zip(&self.bounds).zip(&self.filters);
        blocks.map(|((number, (smallest, largest)), filter)| BlockSummary {
            smallest: smallest.clone(),
            largest: largest.clone(),
            handle: BlockHandle {
                offset: number * u64::from(BLOCK),
                stored_len: BLOCK,
                raw_len: BLOCK,
                crc: number as u32 + 7,
                codec: Codec::None,
            },
            filter,
        })
    }
}

fn key(run: u64, number: u64) -> Vec<u8> {
    format!("key{:04}", number * 5 + run % 4).into_bytes()
}

fn runs(list: &[(u64, u64)]) -> Vec<Run> {
    let ranks = list.iter().enumerate();
    ranks
        .map(|(rank, (number, blocks))| Run::new(rank, *number, *blocks))
        .collect()
}

fn write(pool: &Arc<Pool>, id: u64, list: &[(u64, u64)]) -> Result<IfTreeSpace> {
    let options = IfTreeOptions {
        id: FileId(id),
        totals: totals(list),
    };
    let mut writer = IfTreeWriter::new(pool.clone(), options, None);
    for run in runs(list) {
        writer.add_file(run.file, run.blocks())?;
    }
    writer.finish()
}

fn totals(list: &[(u64, u64)]) -> IfTreeTotals {
    IfTreeTotals {
        entries: list.iter().map(|(_, blocks)| blocks).sum(),
        superseded: list.len() as u64,
    }
}

/// Bytes of the extent of a tree over the runs of `list`, which depend on their blocks alone.
fn bytes(list: &[(u64, u64)]) -> u64 {
    thread_local! {
        static KNOWN: RefCell<BTreeMap<Vec<u64>, u64>> = RefCell::default();
    }
    let blocks: Vec<u64> = list.iter().map(|(_, blocks)| *blocks).collect();
    if let Some(bytes) = KNOWN.with_borrow(|known| known.get(&blocks).copied()) {
        return bytes;
    }
    let sim = SimRegion::new(IfTrees::POOL_BYTES, Mode::Adr);
    let written = Pool::open_simulated(&sim, UUID).and_then(|pool| {
        pool.finish_recovery()?;
        write(&Arc::new(pool), 1, list)
    });
    let bytes = written.expect("an empty pool").extent().len;
    KNOWN.with_borrow_mut(|known| known.insert(blocks, bytes));
    bytes
}

fn word(extent: Extent) -> u64 {
    extent.offset.get() + extent.len / GRANULE_BYTES
}

fn extent(word: u64) -> Extent {
    let granules = word % GRANULE_BYTES;
    Extent::new(word - granules, granules * GRANULE_BYTES)
}

impl IfTrees {
    /// Names a new tree in the root, in the place of the one before, and frees that.
    fn install(&mut self, new: Option<IfTreeSpace>) -> Result<()> {
        let next = self.next + u64::from(new.is_some());
        self.pool.commit_with(Fenced::nothing(), |root| {
            let mut set = |kind, word| {
                root.set(RootEntry {
                    owner: Owner::Test,
                    kind,
                    word,
                    extent: None,
                });
            };
            set(NEXT, next);
            match &new {
                Some(space) => set(TREE, word(space.extent())),
                None => {
                    let _gone = root.remove(Owner::Test, TREE);
                }
            }
            Ok(())
        })?;
        self.next = next;
        let new = new.map(|space| IfTree::open(Arc::new(space))).transpose()?;
        let Some(old) = std::mem::replace(&mut self.tree, new) else {
            return Ok(());
        };
        let space = Arc::into_inner(old.into_space());
        let held = || Error::invalid("a tree that nobody reads");
        space.ok_or_else(held)?.release()
    }

    /// The runs of the tree, as its files say.
    fn runs(&self) -> Vec<(u64, u64)> {
        let files = self.tree.iter().flat_map(IfTree::files);
        files
            .map(|file| (file.id.0, file.valid_len / u64::from(BLOCK)))
            .collect()
    }
}

impl Structure for IfTrees {
    const NAME: &'static str = "if_trees";
    const POOL_BYTES: u64 = 128 << 10;
    type Op = Op;
    type State = State;
    type Beside = ();

    fn alphabet() -> Vec<Op> {
        vec![
            Op::Add(1),
            Op::Add(WIDE),
            Op::Add(70),
            Op::Compact,
            Op::Drop,
        ]
    }

    fn model(state: &mut State, op: &Op) {
        state.apply(op);
    }

    fn live_bytes(state: &State) -> u64 {
        match state.runs.is_empty() {
            true => 0,
            false => bytes(&state.runs),
        }
    }

    fn beside() {}

    fn duplicate((): &()) {}

    fn after_power_cut((): &(), _: u64) {}

    fn open(sim: &SimRegion, (): &()) -> Result<Self> {
        let pool = Arc::new(Pool::open_simulated(sim, UUID)?);
        let root = pool.root();
        let next = root.find(Owner::Test, NEXT).map_or(1, |entry| entry.word);
        let tree = match root.find(Owner::Test, TREE) {
            Some(entry) => {
                let space = claim(&pool, FileId(next - 1), extent(entry.word))?;
                Some(IfTree::open(Arc::new(space))?)
            }
            None => None,
        };
        pool.finish_recovery()?;
        Ok(IfTrees { pool, tree, next })
    }

    fn apply(&mut self, op: &Op) -> Result<()> {
        let mut state = State {
            made: self.next - 1,
            runs: self.runs(),
        };
        match (state.apply(op), state.runs.is_empty()) {
            (false, _) => Ok(()),
            (true, true) => self.install(None),
            (true, false) => {
                let space = write(&self.pool, self.next, &state.runs)?;
                self.install(Some(space))
            }
        }
    }

    fn state(&self) -> Result<State> {
        let list = self.runs();
        if let Some(tree) = &self.tree {
            let runs = runs(&list);
            verify(tree, runs.iter().map(|run| (run.file, run.blocks())))?;
        }
        Ok(State {
            made: self.next - 1,
            runs: list,
        })
    }

    fn live(&self) -> Result<u64> {
        live(&self.pool)
    }
}

/// The number of seeds among which the bytes are divided.
pub(crate) const DAMAGE_SEEDS: u64 = 16;

/// A tree as it is read, without [`verify`], which would find more than a reader does.
#[derive(Debug, PartialEq)]
struct Read {
    files: Vec<IfTreeFile>,
    totals: IfTreeTotals,
    /// The file and the block of every answer to every key.
    found: Vec<(FileId, BlockHandle)>,
}

fn read(trees: &IfTrees) -> Result<Option<Read>> {
    let Some(tree) = &trees.tree else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for number in 0..300 {
        for run in 0..2 {
            let key = key(run, number);
            tree.candidates(&key, hash(&key), |candidate| {
                found.push((candidate.id, candidate.handle));
                Ok(Visit::Next)
            })?;
        }
    }
    Ok(Some(Read {
        files: tree.files().to_vec(),
        totals: *tree.totals(),
        found,
    }))
}

/// One bit of every byte of a pool with a tree: it is found, or nothing changes.
pub(crate) fn damage(seed: u64) -> Tally {
    let (image, whole) = golden().expect("a pool without a fault");
    let mut tally = Tally::default();
    for at in (seed..image.len() as u64).step_by(DAMAGE_SEEDS as usize) {
        let mut damaged = image.clone();
        damaged[at as usize] ^= 1 << (at % 8);
        let sim = SimRegion::from_image(damaged, Mode::Adr);
        match IfTrees::open(&sim, &()).and_then(|trees| read(&trees)) {
            Ok(found) => assert!(found == whole, "byte {at} is damaged and nobody says so"),
            Err(error) => assert!(
                matches!(error.kind(), Corruption | Incompatible),
                "byte {at}: {error:?}"
            ),
        }
        tally.recovered(at);
    }
    tally
}

/// A tree over three runs, of which one has its filters beside the nodes.
fn golden() -> Result<(Vec<u8>, Option<Read>)> {
    let sim = SimRegion::new(48 << 10, Mode::Adr);
    let mut trees = IfTrees::open(&sim, &())?;
    for op in [Op::Add(70), Op::Add(WIDE), Op::Add(1)] {
        trees.apply(&op)?;
    }
    let whole = read(&trees)?;
    trees.pool.close()?;
    Ok((sim.durable(), whole))
}
